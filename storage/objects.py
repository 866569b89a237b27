"""Objects on S3, Azure, GCS or in memory, through obstore.

`create` is the store's own conditional put. A client that repeats a put whose answer was
lost is told "already exists" about its own object, so whoever calls `create` must look at
what is there before deciding who won: `Store.create` does.

A range that begins behind the end of an object is an error without a name to the services; it
is told from others by the object's size, and read as the short part that it is on a disk.

Some answers say that a call was not carried out and may be a moment later (`is_passing`), and the
client does not repeat it: it takes every 409 for an object that is there. We do.

Whatever obstore raises passes `_asking`, and comes out as one of ours (`object_errors.py`).
"""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import MemoryStore, from_url

from metatable.storage.backend import Backend
from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError
from metatable.storage.listing import Listed
from metatable.storage.made_once import made_once
from metatable.storage.object_errors import (
    NO_OBJECT,
    check_absence,
    code_of_one,
    is_panic,
    is_passing,
    is_silent,
    ours,
    panicked,
    sentence,
)
from metatable.storage.object_options import ClientOptions
from metatable.storage.system_errors import in_temporary_folder
from metatable.storage.together import at_once, begun, in_turn

__all__ = ["Objects"]

_log = logging.getLogger("metatable.storage")

R = TypeVar("R")

_SPOOL_BYTES = 64 << 20

_LARGE_BYTES = 1 << 20
"""Larger data and index files go by a client that is patient."""

_AGREED, _INDEX_FILE = ".hoodie/", ".hfile"
"""Where all else lies that writers agree by (leases, roots, the timeline), of whatever size: a call
that puts it ends within a lease, one way or the other."""

_MEMORY: dict[str, MemoryStore] = {}
"""`memory://name` means the same store throughout the process."""

_ASKED: dict[str, int] = {}
"""The process in which a store was asked first: obstore's threads are in it."""

_DELETE_MANY = ("s3", "az", "adl:", "abfs")
"""What addresses begin with of services that delete many objects in one request."""


class Objects(Backend):
    """One prefix of a bucket. `options` are told in `object_options.py`."""

    distant, settles = True, False

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri
        told = ClientOptions.of(uri, options)
        self._told, self._pauses = told, told.pauses
        if uri.startswith("memory://"):
            self._store: Any = _MEMORY.setdefault(uri, MemoryStore())
        else:
            self._store = _connected(uri, told)

    @made_once
    def _patient(self) -> Any:
        """A client of the same place that gives each attempt more time."""
        if isinstance(self._store, MemoryStore) or "timeout" in self._told.client:
            return self._store
        return _connected(self._uri, self._told.patient())

    def _for(self, path: str, size_bytes: int) -> Any:
        """The client that puts a body of this size."""
        is_agreed = path.startswith(_AGREED) and not path.endswith(_INDEX_FILE)
        return self._store if is_agreed or size_bytes <= _LARGE_BYTES else self._patient

    def size(self, path: str) -> int | None:
        with self._asking(path):
            try:
                return int(obstore.head(self._store, path)["size"])
            except FileNotFoundError as error:
                check_absence(error)
                return None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        try:
            with self._asking(path):
                return self._parts(path, ranges)
        except StoreError as error:
            if is_silent(error):
                raise
            size = self._size_now(path)
            if size is None or all(start + length <= size for start, length in ranges):
                raise
        with self._asking(path):
            return self._parts_within(path, ranges, size)

    def _parts(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        starts, lengths = zip(*ranges, strict=True)
        try:
            found = obstore.get_ranges(
                self._store, path, starts=starts, lengths=lengths, coalesce=0
            )
        except FileNotFoundError as error:
            check_absence(error)
            return None
        return [bytes(part) for part in found]

    def _parts_within(
        self, path: str, ranges: Sequence[tuple[int, int]], size: int
    ) -> list[bytes] | None:
        """What an object of `size` bytes has of each range."""
        there = [one for one in ranges if one[0] < size]
        found = self._parts(path, there) if there else []
        if found is None:
            return None
        parts = iter(found)
        return [next(parts) if start < size else b"" for start, _ in ranges]

    def _size_now(self, path: str) -> int | None:
        """The size, None where it cannot be had: the error that made us ask says more."""
        try:
            return self.size(path)
        except MetatableError:
            return None

    def read_whole(self, path: str) -> bytes | None:
        with self._asking(path):
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError as error:
                check_absence(error)
                return None

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        with self._asking(path):
            self._repeated(partial(obstore.put, self._for(path, len(body)), path, body))

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        with self._asking(path):
            return self._repeated(partial(self._created, path, _all(body)))

    def _created(self, path: str, body: bytes) -> bool:
        try:
            client = self._for(path, len(body))
            obstore.put(client, path, body, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            if is_passing(error):
                raise
            return False
        return True

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        with _Spool(max_size=_SPOOL_BYTES) as file:
            yield cast(IO[bytes], file)
            with self._asking(path):
                self._repeated(partial(self._put_file, path, cast(io.BufferedIOBase, file)))

    def _put_file(self, path: str, file: io.BufferedIOBase) -> None:
        client = self._for(path, file.seek(0, os.SEEK_END))
        file.seek(0)
        obstore.put(client, path, file)

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        with self._asking(folder):
            if recursive:
                for page in obstore.list(self._store, folder or None):
                    yield from _listed(page, folder)
            else:
                found = obstore.list_with_delimiter(self._store, folder)["objects"]
                yield from _listed(found, folder)

    def delete(self, path: str) -> None:
        with self._asking(path):
            self._repeated(partial(self._deleted, path))

    def delete_all(self, paths: Sequence[str]) -> None:
        if len(paths) == 1 or not self._uri.lower().startswith(_DELETE_MANY):
            super().delete_all(paths)
            return
        try:
            with self._asking(paths[0]):
                if self._deleted_together(paths):
                    return
        except AccessError:
            in_turn([partial(self.delete, path) for path in paths])  # tells which is refused
            return
        except StoreError as error:
            if is_silent(error):
                raise
        super().delete_all(paths)  # one may be gone, or busy; else this tells which

    def _deleted_together(self, paths: Sequence[str]) -> bool:
        """False: one is gone, which Azure tells as an error, and of the others nothing."""
        try:
            obstore.delete(self._store, [*paths])
        except FileNotFoundError as error:
            check_absence(error)
            return False
        return True

    def _deleted(self, path: str) -> None:
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError as error:
            check_absence(error)
        except BaseError as error:
            if code_of_one(error) not in NO_OBJECT:
                raise

    def _repeated(self, ask: Callable[[], R]) -> R:
        """What `ask` gives; while it ends in what passes, it is made again."""
        for pause in self._pauses():
            try:
                return ask()
            except (BaseError, OSError) as error:
                if not is_passing(error):
                    raise
            time.sleep(pause)
        return ask()

    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        return in_turn(calls) if isinstance(self._store, MemoryStore) else at_once(calls)

    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        return call if isinstance(self._store, MemoryStore) else begun(call)

    def _refuse_forked(self, path: str) -> None:
        """Raises UsageError in a process that was forked from one which has asked a store: the
        threads that wait for answers are not in it, and no call would ever end."""
        process = os.getpid()
        if isinstance(self._store, MemoryStore) or _ASKED.setdefault("in", process) == process:
            return
        raise UsageError(
            "a process forked from one that has asked an object store cannot ask one",
            path=path,
            store=self._uri,
            expected="processes that are started by spawn or forkserver",
        )

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """The one place where errors of obstore become ours."""
        self._refuse_forked(path)
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            made = ours(error, path=path, store=self._uri)
            _log.debug("%s: %s", type(made).__name__, made)
            raise made from None
        except BaseException as error:
            if not is_panic(error):
                raise
            raise panicked(error, path=path, store=self._uri) from None


class _Spool(SpooledTemporaryFile[bytes]):
    """What is written before the object is put: in memory, or in the system's temporary folder."""

    def write(self, data: Any) -> int:
        with in_temporary_folder():
            return super().write(data)


def _all(body: bytes | IO[bytes]) -> bytes:
    """What is put at once: only a single request can be refused where the name is taken."""
    if isinstance(body, bytes):
        return body
    body.seek(0)
    return body.read()


def _connected(uri: str, told: ClientOptions) -> Any:
    """A client of the service. Raises UsageError for whatever it does not accept."""
    try:
        return from_url(
            uri,
            config=cast(Any, told.config) or None,
            client_options=cast(Any, told.client) or None,
            retry_config=cast(Any, told.retry) or None,
        )
    except Exception as error:
        what = "the address or its storage options are not accepted"
        said = re.sub('string ".*"', "a text", str(error))  # which may be a key
        raise UsageError(what, uri=uri, found=sentence(said)) from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise panicked(error, uri=uri) from None


def _listed(found: Iterable[Any], folder: str) -> Iterator[Listed]:
    """What lies in a folder. Some tools mark one by an empty object that is called as it is, with a
    slash behind; obstore leaves out the slash. It is no file."""
    for meta in found:
        if meta["path"] != folder:
            yield Listed(str(meta["path"]), int(meta["size"]), meta["last_modified"].timestamp())
