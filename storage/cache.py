"""Two least-recently-used caches per process, for immutable things only, each within its bytes.

Files of ours never change once they are written, so what was made from them may be kept for
as long as there is room. A key must therefore name everything that the value depends on
(address, path, version, column).

    shared   what was parsed: opened files, indexes, filters, snapshots
    blocks   payloads of data blocks, decompressed; they never drive the parsed things out

What several entries hold, as a listing of files and what is made of it do, is a *part* of each: it
counts once, as long as one of them is kept.

Two threads that miss the same key at the same time may both make it; the first one in
wins, and both get that one. Making is done outside the lock.

A forked child has its parent's content and locks of its own. Where a thread held a lock when
the child was made, that thread is not there to finish what it changed: the child then starts
with that cache empty.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["Cache", "Part", "blocks", "cached", "clear", "shared"]

T = TypeVar("T")


class Part(Protocol):
    """What several entries may hold: a view of files, an array."""

    @property
    def nbytes(self) -> int:
        """Bytes held in memory; always the same."""
        ...


PARSED_BYTES = 256 << 20
BLOCK_BYTES = 256 << 20


class Cache:
    """A byte-budgeted LRU map. `budget_bytes` bounds the sum of the sizes that callers state."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._held: OrderedDict[Hashable, tuple[Any, int, Sequence[Part]]] = OrderedDict()
        self._holders: dict[int, int] = {}
        """How many entries hold a part, by the `id` of it, which they keep alive."""
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        """The value kept under `key`, or None."""
        with self._lock:
            kept = self._held.get(key)
            if kept is None:
                return None
            self._held.move_to_end(key)
            return kept[0]

    def offer(self, key: Hashable, value: T, size_bytes: int, parts: Sequence[Part] = ()) -> T:
        """Keep `value` unless one is there; return the one that is kept. `parts`: what other
        entries may hold, too, and is not in `size_bytes`."""
        with self._lock:
            kept = self._held.get(key)
            if kept is not None:
                return kept[0]  # type: ignore[no-any-return]
            if size_bytes + sum(one.nbytes for one in parts) > self.budget_bytes:
                return value
            self._keep(key, value, size_bytes, parts)
            self._evict()
        return value

    def replace(self, key: Hashable, value: object, size_bytes: int) -> None:
        """Keep `value` in place of what may be there."""
        with self._lock:
            if key in self._held:
                self._forget(*self._held.pop(key))
            self._keep(key, value, size_bytes, ())
            self._evict()

    def keep_at_most(self, budget_bytes: int) -> None:
        """Make do with less, from now on."""
        with self._lock:
            self.budget_bytes = min(self.budget_bytes, budget_bytes)
            self._evict()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._holders.clear()
            self._bytes = 0

    def renew_after_fork(self) -> None:
        """Be usable in a forked child, whatever other threads were doing in the parent."""
        if self._lock.locked():
            self._held = OrderedDict()
            self._holders = {}
            self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Sum of the stated sizes of what is kept, and of its parts."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._held)

    def _keep(self, key: Hashable, value: object, size_bytes: int, parts: Sequence[Part]) -> None:
        self._held[key] = value, size_bytes, parts
        self._bytes += size_bytes
        for one in parts:
            count = self._holders.get(id(one), 0)
            self._holders[id(one)] = count + 1
            self._bytes += 0 if count else one.nbytes

    def _forget(self, value: object, size_bytes: int, parts: Sequence[Part]) -> None:
        self._bytes -= size_bytes
        for one in parts:
            left = self._holders.pop(id(one)) - 1
            if left:
                self._holders[id(one)] = left
            else:
                self._bytes -= one.nbytes

    def _evict(self) -> None:
        while self._bytes > self.budget_bytes:
            self._forget(*self._held.popitem(last=False)[1])


shared = Cache(PARSED_BYTES)
"""What was parsed. On Spark each Python worker, of which an executor has one for each task that
runs, has its own, which is smaller (`spark/workers.py`)."""

blocks = Cache(BLOCK_BYTES)
"""Payloads of data blocks."""


def clear() -> None:
    """Forget everything: tests that count reads, and benchmarks, start cold."""
    shared.clear()
    blocks.clear()


def _of_nothing(value: object) -> Sequence[Part]:
    return ()


def cached(
    key: Hashable,
    make: Callable[[], T],
    size_bytes: Callable[[T], int],
    parts: Callable[[T], Sequence[Part]] = _of_nothing,
) -> T:
    """The value kept under `key` in `shared`, made and kept if it is not there. `parts`: as of
    `offer`."""
    kept = shared.get(key)
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    value = make()
    return shared.offer(key, value, size_bytes(value), parts(value))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.renew_after_fork)
    os.register_at_fork(after_in_child=blocks.renew_after_fork)
