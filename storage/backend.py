"""What a kind of storage must be able to do, for `Store` to be made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Protocol, TypeVar

from metatable.storage.arrays import UInt8s
from metatable.storage.listing import Listed

__all__ = ["Backend"]

R = TypeVar("R")


class Backend(Protocol):
    """Absence is None or False, never an exception. What has a body here is what it comes to where
    nothing is a disk's: whoever derives from this has it.
    """

    @property
    def distant(self) -> bool:
        """Whether an answer takes as long as a megabyte does: then more is asked for at once."""
        ...

    @property
    def settles(self) -> bool:
        """Whether who writes waits for a disk: it settles many files in the time of one."""
        ...

    def size(self, path: str) -> int | None: ...
    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None: ...
    def read_whole(self, path: str) -> bytes | None: ...
    def fill(
        self,
        path: str,
        ranges: Sequence[tuple[int, int]],
        memory: memoryview,
        begins: Sequence[int],
    ) -> Sequence[int] | None:
        """The bytes of these ranges, each where it begins in the memory; how many of each there
        are. None where there is no such file, or where it is far away, whence its bytes come as
        `read` has them."""
        return None

    def map(self, path: str, size_bytes: int) -> UInt8s | None:
        return None

    def put(self, path: str, body: bytes, *, lasting: bool) -> None: ...
    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool: ...
    def marking(self, paths: Sequence[str]) -> Sequence[Callable[[], object]]:
        """Calls, in any order, that make empty files of these names, which are to be there soon."""
        return [partial(self.put, path, b"", lasting=True) for path in paths]

    def settle(self, *, nobody_waits: bool) -> None:
        """Make durable what is to be soon; `nobody_waits`: what goes wrong is told to who does."""
        return

    def sink(self, path: str) -> AbstractContextManager[IO[bytes]]: ...
    def list(self, folder: str, recursive: bool) -> Iterator[Listed]: ...
    def names(self, folder: str, sized: Callable[[str], bool]) -> Sequence[tuple[str, int]]:
        """The names of its files, in order, with sizes where `sized` of a name says so."""
        found = sorted(self.list(folder, False), key=lambda one: one.path)
        return [(one.name, one.size_bytes) for one in found]

    def delete(self, path: str) -> None: ...
    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]: ...
    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        """`call`, which reads, made while the caller goes on, or only when it is asked for."""
        return call
