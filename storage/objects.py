"""Objects on S3, Azure, GCS or in memory, through obstore.

`create` is the store's own conditional put. A client that repeats a put whose answer was
lost is told "already exists" about its own object, so whoever calls `create` must look at
what is there before deciding who won: `Store.create` does.

A range that begins behind the end of an object is an error without a name to the services; it
is told from others by the object's size, and read as the short part that it is on a disk.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import MemoryStore, from_url

from metatable.storage.listing import Listed

__all__ = ["Objects"]

_SPOOL_BYTES = 64 << 20

_MEMORY: dict[str, MemoryStore] = {}
"""`memory://name` means the same store throughout the process."""


class Objects:
    """One prefix of a bucket. `options` go to obstore unread (region, credentials, endpoint)."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        if uri.startswith("memory://"):
            self._store: Any = _MEMORY.setdefault(uri, MemoryStore())
        else:
            self._store = from_url(uri, config=cast(Any, dict(options)) or None)

    def size(self, path: str) -> int | None:
        try:
            return int(obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        try:
            return self._parts(path, ranges)
        except FileNotFoundError:
            return None
        except GenericError:
            size = self._size_now(path)
            if size is None or all(start + length <= size for start, length in ranges):
                raise
        return self._parts_within(path, ranges, size)

    def _parts(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, lengths = zip(*ranges, strict=True)
        found = obstore.get_ranges(self._store, path, starts=starts, lengths=lengths, coalesce=0)
        return [bytes(part) for part in found]

    def _parts_within(self, path: str, ranges: Sequence[tuple[int, int]], size: int) -> list[bytes]:
        """What an object of `size` bytes has of each range."""
        there = [one for one in ranges if one[0] < size]
        parts = iter(self._parts(path, there) if there else ())
        return [next(parts) if start < size else b"" for start, _ in ranges]

    def _size_now(self, path: str) -> int | None:
        """The size, None where it cannot be had: the error that made us ask says more."""
        try:
            return self.size(path)
        except BaseError:
            return None

    def read_whole(self, path: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None

    def map(self, path: str, size_bytes: int) -> None:
        return None

    def put(self, path: str, body: bytes) -> None:
        obstore.put(self._store, path, body)

    def create(self, path: str, body: bytes) -> bool:
        try:
            obstore.put(self._store, path, body, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as file:
            yield cast(IO[bytes], file)
            file.seek(0)
            obstore.put(self._store, path, cast(io.BufferedIOBase, file))

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        if recursive:
            for page in obstore.list(self._store, folder or None):
                yield from map(_listed, page)
        else:
            yield from map(_listed, obstore.list_with_delimiter(self._store, folder)["objects"])

    def delete(self, path: str) -> None:
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return


def _listed(meta: Any) -> Listed:
    return Listed(str(meta["path"]), int(meta["size"]), meta["last_modified"].timestamp())
