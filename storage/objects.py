"""Objects on S3, Azure, GCS or in memory, through obstore.

`create` is the store's own conditional put. A client that repeats a put whose answer was
lost is told "already exists" about its own object, so whoever calls `create` must look at
what is there before deciding who won: `Store.create` does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError
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
        starts, lengths = zip(*ranges, strict=True)
        try:
            found = obstore.get_ranges(
                self._store, path, starts=starts, lengths=lengths, coalesce=0
            )
        except FileNotFoundError:
            return None
        return [bytes(part) for part in found]

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
