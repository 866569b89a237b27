"""What a kind of storage must be able to do, for `Store` to be made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Protocol, TypeVar

from metatable.storage.arrays import UInt8s
from metatable.storage.listing import Listed

__all__ = ["Backend"]

R = TypeVar("R")


class Backend(Protocol):
    """Files of one root, by paths below it. That one is absent is told by None or False, never by
    an exception; what goes wrong raises an error of `storage.errors`.

    What has a body here is what it comes to where nothing is a disk's: whoever derives from this
    has it.
    """

    @property
    def distant(self) -> bool:
        """Whether an answer takes as long as a megabyte does: then more is asked for at once."""
        ...

    @property
    def settles(self) -> bool:
        """Whether who writes waits for a disk: it settles many files in the time of one."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file; None where there is no such file."""
        ...

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """The bytes of each (offset, size), fewer where the file ends before; None where there is
        no such file."""
        ...

    def read_whole(self, path: str) -> bytes | None:
        """All bytes of a file; None where there is no such file."""
        ...

    def fill(
        self,
        path: str,
        ranges: Sequence[tuple[int, int]],
        memory: memoryview,
        begins: Sequence[int],
    ) -> Sequence[int] | None:
        """Read these ranges into the memory, each to where it begins there; how many bytes of each
        there are. None where there is no such file, or where it is far away, whence its bytes come
        as `read` has them."""
        return None

    def map(self, path: str, size_bytes: int) -> UInt8s | None:
        """A whole file of this size as memory; None where it cannot be had so."""
        return None

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        """Write or replace a file, atomically; durable if `lasting`."""
        ...

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """`put` of each of some files of new names, by path, in any order; durable."""
        self.together([partial(self.put, path, body, lasting=True) for path, body in files.items()])

    def jot(self, path: str, body: bytes) -> None:
        """Write or replace a file that may be any mix of what it was and what it becomes."""
        self.put(path, body, lasting=False)

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        """Write a file unless the name is taken: False then. `soon`: it may be durable later, with
        the next one that is created here, or at `settle`. After an error it may be there."""
        ...

    def marking(self, paths: Sequence[str]) -> Sequence[Callable[[], object]]:
        """Calls, in any order, that make empty files of these names, which are to be there soon."""
        return [partial(self.put, path, b"", lasting=True) for path in paths]

    def settle(self, *, nobody_waits: bool) -> None:
        """Make durable what is to be soon; `nobody_waits`: what goes wrong is told to who does."""
        return

    def sink(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file object; what is written to it is the file, whole, when the block ends without an
        exception, else nothing is there."""
        ...

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        """The files of a folder, of those below it too if `recursive`; none where it is not
        there."""
        ...

    def names(self, folder: str, sized: Callable[[str], bool]) -> Sequence[tuple[str, int]]:
        """The names of a folder's files, in order, with sizes where `sized` of a name says so."""
        found = sorted(self.list(folder, False), key=lambda one: one.path)
        return [(one.name, one.size_bytes) for one in found]

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        ...

    def delete_all(self, paths: Sequence[str]) -> None:
        """`delete` of each of some hundred, in any order."""
        self.together([partial(self.delete, path) for path in paths])

    def dismiss(self) -> None:
        """Delete the root's own folder, and that of half-written files, if nothing is in them."""
        return

    def other_spelling(self, path: str) -> str | None:
        """What the folder of a file is called, where the file system takes another name than that
        of the path for the same; None: as the path says."""
        return None

    def spares(self, path: str) -> bool:
        """Whether `delete` leaves a file alone that is there."""
        return False

    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        """What the calls return, in their order: made at once where that takes less time."""
        ...

    def write_together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        """`together`, of calls that each write a file and do little else."""
        return self.together(calls)

    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        """`call`, which reads, made while the caller goes on, or only when it is asked for."""
        return call
