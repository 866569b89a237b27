"""Stores that refuse, and stores that remember what they were asked.

A *kill* is a store that refuses its n-th call and every later one: whatever the operation does
then, no clean-up of it reaches the disk. Writing through `sink` is two calls, one to begin
and one to make the file visible.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import pytest

from metatable.storage.arrays import UInt8s
from metatable.storage.backend import Backend
from metatable.storage.listing import Listed
from metatable.storage.store import Store
from metatable.storage.together import in_turn

R = TypeVar("R")

READS = frozenset({"size", "read", "read_whole", "map", "list"})


class Refused(OSError):  # noqa: N818  (it is what the store does, not a fault of it)
    """The store is gone, as far as this operation can tell."""


class Watched(Backend):
    """A backend that logs (verb, path) of every call, and refuses from call `limit` on.

    The first call has the number 0; `before`, if given, is called with each call's verb and path.
    """

    def __init__(
        self,
        inner: Backend,
        limit: int | None = None,
        before: Callable[[str, str], None] | None = None,
        backwards: bool = False,
    ) -> None:
        self._inner = inner
        self.limit = limit
        self._before = before
        self._backwards = backwards
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []

    @property
    def distant(self) -> bool:
        """Backwards it counts as far away: there calls go together that near by do not."""
        return self._backwards or self._inner.distant

    @property
    def settles(self) -> bool:
        return self._inner.settles

    def kills(self) -> list[int]:
        """Limits of which each leaves something else than the one before it, as reading changes
        nothing: behind every call that has changed something."""
        still = READS | {"sink"}
        return [at + 1 for at, (verb, _) in enumerate(self.calls) if verb not in still]

    def paths(self, *verbs: str) -> set[str]:
        """The paths that were asked for by these verbs."""
        return {path for verb, path in self.calls if verb in verbs}

    def size(self, path: str) -> int | None:
        self._count("size", path)
        return self._inner.size(path)

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        self._count("read", path)
        return self._inner.read(path, ranges)

    def fill(
        self,
        path: str,
        ranges: Sequence[tuple[int, int]],
        memory: memoryview,
        begins: Sequence[int],
    ) -> Sequence[int] | None:
        self._count("read", path)
        return self._inner.fill(path, ranges, memory, begins)

    def read_whole(self, path: str) -> bytes | None:
        self._count("read_whole", path)
        return self._inner.read_whole(path)

    def map(self, path: str, size_bytes: int) -> UInt8s | None:
        self._count("map", path)
        return self._inner.map(path, size_bytes)

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        self._count("put", path)
        self._inner.put(path, body, lasting=lasting)

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        self._count("create", path)
        return self._inner.create(path, body, soon=soon)

    def settle(self, *, nobody_waits: bool) -> None:
        self._inner.settle(nobody_waits=nobody_waits)

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        self._count("sink", path)
        with self._inner.sink(path) as file:
            yield file
            self._count("close", path)

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        self._count("list", folder)
        return self._inner.list(folder, recursive)

    def delete(self, path: str) -> None:
        self._count("delete", path)
        self._inner.delete(path)

    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        """One after the other; backwards, if that was asked for: any order must do."""
        if not self._backwards:
            return in_turn(calls)
        return in_turn(calls[::-1])[::-1]

    def _count(self, verb: str, path: str) -> None:
        with self._lock:
            if self.limit is not None and len(self.calls) >= self.limit:
                raise Refused(f"{verb} {path}: refused from call {self.limit} on")
            self.calls.append((verb, path))
        if self._before is not None:
            self._before(verb, path)


def watched(
    uri: str, options: Mapping[str, str] | None = None, **how: Any
) -> tuple[Store, Watched]:
    """A store, and its backend that counts; `how` as `Watched` takes it."""
    store = Store(uri, {"durable": "false", **(options or {})})
    backend = Watched(store.backend, **how)
    store.backend = backend
    return store, backend


@contextmanager
def dying(uri: str, where: str, options: Mapping[str, str] | None = None) -> Iterator[Store]:
    """A store that dies at the first call (verb and path) that `where` matches, together with
    whoever uses it in the block. He must come so far."""

    def die(verb: str, path: str) -> None:
        if re.fullmatch(where, f"{verb} {path}"):
            backend.limit = 0
            raise Refused(path)

    store, backend = watched(uri, options, before=die)
    with pytest.raises(Refused):
        yield store
    assert backend.limit == 0, "the work has not come so far"


def once(before: str, act: Callable[[], Any]) -> tuple[Callable[[str, str], None], list[Any]]:
    """(what a store does before each call, what `act` told): `act` before the first `create` of a
    path with this in it."""
    seen: list[Any] = []

    def sleep(verb: str, path: str) -> None:
        if not seen and verb == "create" and before in path:
            seen.append(None)
            seen[0] = act()

    return sleep, seen
