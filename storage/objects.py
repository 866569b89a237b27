"""Objects on S3, Azure, GCS or in memory, through obstore.

`create` is the store's own conditional put. A client that repeats a put whose answer was
lost is told "already exists" about its own object, so whoever calls `create` must look at
what is there before deciding who won: `Store.create` does.

A range that begins behind the end of an object is an error without a name to the services; it
is told from others by the object's size, and read as the short part that it is on a disk.

Some answers say that a call was not carried out and may be a moment later (`_PASSING`), and the
client does not repeat it: it takes every 409 for an object that is there. We do.

Whatever obstore raises passes `_asking`, and comes out as one of ours: AccessError where
the service refuses us or has no such bucket, UsageError for what no service would do,
StoreError for the rest. A service's answer (XML or JSON) and obstore's dump of its own values
are cut down to the status, the code and the sentence in them.
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
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, from_url

from metatable.storage.backend import Backend
from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError
from metatable.storage.listing import Listed
from metatable.storage.made_once import made_once
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

_NO_OBJECT = ("NoSuchKey", "NoSuchVersion", "BlobNotFound", "NotFound")
"""What services call an object that is missing; a 404 of another name tells of something else."""

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")

_PASSING = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "NoSuchUpload")
"""What S3 answers with a 4xx though the same put may be carried out a moment later: another one of
this object was under way, a body came too slowly, or the last answer to a put in parts was lost, so
that its repeat found nothing to complete."""

_PASSING_OF_ONE = ("ServiceUnavailable", "500", "503", "429")
"""What services of S3's kind, and Azure by a status, say of an object that was not deleted and may
be a moment later, in an answer that is no error itself. `InternalError` and `SlowDown` in such an
answer the client finds by itself, and repeats."""

_REFUSED_OF_ONE = ("AccessDenied", "401", "403")
"""The same, of S3 and of Azure, where we are not allowed to."""

_DELETE_MANY = ("s3", "az", "adl:", "abfs")
"""What addresses begin with of services that delete many objects in one request."""

_NO_SUCH_RANGE = "416"
"""What services say of a range that begins behind the end."""

_MISPLACED = ("169.254.", "incorrectly configured region")
"""What obstore says of a machine that is given no credentials, and of a bucket elsewhere."""


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
                _check_absence(error)
                return None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        try:
            with self._asking(path):
                return self._parts(path, ranges)
        except StoreError as error:
            if _is_silent(error):
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
            _check_absence(error)
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
                _check_absence(error)
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
            if _is_passing(error):
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
            if _is_silent(error):
                raise
        super().delete_all(paths)  # one may be gone, or busy; else this tells which

    def _deleted_together(self, paths: Sequence[str]) -> bool:
        """False: one is gone, which Azure tells as an error, and of the others nothing."""
        try:
            obstore.delete(self._store, [*paths])
        except FileNotFoundError as error:
            _check_absence(error)
            return False
        return True

    def _deleted(self, path: str) -> None:
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError as error:
            _check_absence(error)
        except BaseError as error:
            if _code_of_one(error) not in _NO_OBJECT:
                raise

    def _repeated(self, ask: Callable[[], R]) -> R:
        """What `ask` gives; while it ends in what passes, it is made again."""
        for pause in self._pauses():
            try:
                return ask()
            except (BaseError, OSError) as error:
                if not _is_passing(error):
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
            ours = _ours(error, path=path, store=self._uri)
            _log.debug("%s: %s", type(ours).__name__, ours)
            raise ours from None
        except BaseException as error:
            if not _is_panic(error):
                raise
            raise _panicked(error, path=path, store=self._uri) from None


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
        raise UsageError(what, uri=uri, found=_sentence(said)) from None
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise _panicked(error, uri=uri) from None


def _check_absence(error: FileNotFoundError) -> None:
    """An object that is not there is no error; its bucket, or our key of access, is one."""
    if _code(error) not in ("", *_NO_OBJECT):
        raise error


def _code(error: Exception) -> str:
    """What a service calls an error, where its answer is XML."""
    code = re.search("<Code>([^<]*)<", str(error))
    return code[1] if code else ""


def _is_passing(error: Exception) -> bool:
    return _code(error) in _PASSING or _code_of_one(error) in _PASSING_OF_ONE


def _code_of_one(error: Exception) -> str:
    """What a service that deletes many objects at once says of the one that it did not: some say
    so of an object that another deleted meanwhile. Azure says a status."""
    form = r"(?:DeleteObjects|Bulk delete) request failed for key .*\(code: (\w+)\)"
    code = re.search(form, str(error))
    return code[1] if code else ""


def _ours(error: Exception, **where: str) -> MetatableError:
    """The error of our family that tells of this one."""
    told, found = str(error), _sentence(str(error))
    status = re.search(r"status code: (\d{3})", told)
    if any(word in told for word in _NO_BUCKET):
        expected = "a bucket or container that is there"
        return AccessError("no such bucket", **where, expected=expected, found=found)
    if "source: BadScheme" in told:
        expected = "the storage option allow_http=true"
        return UsageError("plain http is not allowed", **where, expected=expected, found=found)
    if isinstance(error, InvalidPathError | NotSupportedError | ValueError):
        return UsageError("the store cannot do this", **where, found=found)
    refused = _code_of_one(error) in _REFUSED_OF_ONE
    if refused or _is_refusal(error, int(status[1]) if status else 0, told):
        expected = "credentials, permissions and a region that fit this bucket"
        return AccessError("the store refuses us", **where, expected=expected, found=found)
    what = "the store did not answer as it should: try again"
    return StoreError(what, **where, **_tried(told), found=found)


_PERFORMING = r"Error performing (\w+) .*? in ([\d.]+)(ns|µs|ms|s)(?:, after (\d+) retries)?"


def _tried(told: str) -> dict[str, str]:
    """How often it was asked, and how long that took, where the client tells."""
    found = re.search(_PERFORMING, told)
    if found is None:
        return {}
    verb, amount, unit, repeats = found.groups()
    seconds = float(amount) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
    times = int(repeats or 0) + 1
    return {"tried": f"{verb}, {times} {'time' if times == 1 else 'times'} in {seconds:.1f} s"}


def _is_silent(error: StoreError) -> bool:
    """Whether the store was asked again and again: another question would take as long."""
    tried, found = (str(error.facts.get(name, "")) for name in ("tried", "found"))
    return " times " in tried and not found.startswith(_NO_SUCH_RANGE)


def _is_refusal(error: Exception, status: int, told: str) -> bool:
    """Whether asking again as we are can never help."""
    if _is_passing(error):
        return False
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError):
        return True
    if any(word in told for word in _MISPLACED):
        return True
    return 300 <= status < 500 and status not in (408, 409, 412, 416, 425, 429)


def _sentence(told: str) -> str:
    """The one line in what obstore says: status and reason, without dumps, XML or JSON."""
    told, _, dump = told.partition("Debug source:")
    head, _, body = told.partition("status code: ")
    if body:
        status, _, answer = body.partition(":")
        return ": ".join(filter(None, (status.strip(), _answer(answer))))
    reason = head.rpartition(" - ")[2]
    cause = re.search(r'(?:message|error): "([^"]*)"', dump)
    inner = cause[1] if cause else "timed out" if "TimedOut" in dump else ""
    return _line(": ".join(dict.fromkeys(filter(None, (reason.strip(), inner)))))


def _answer(body: str) -> str:
    """What a service says in its answer."""
    words = [
        re.search(rf'<{name}>([^<]*)<|"{name}": ?"([^"]*)"', body, re.IGNORECASE)
        for name in ("Code", "Message")
    ]
    told = [word[1] or word[2] or "" for word in words if word is not None]
    if not told and not re.search(r"[<{]", body):
        told = [body]
    return _line(": ".join(told))


def _line(text: str, most: int = 300) -> str:
    text = " ".join(text.translate(_BRACKETS).split())
    return text if len(text) <= most else f"{text[:most]}…"


_BRACKETS = str.maketrans("<>{}", "    ")


def _is_panic(error: BaseException) -> bool:
    """Rust's own end of all things; pyo3 keeps its class to itself, and below BaseException."""
    return type(error).__name__ == "PanicException"


def _panicked(error: BaseException, **where: str) -> UsageError:
    what = "the store's client cannot work with this address and these storage options"
    return UsageError(what, **where, found=_line(str(error)))


def _listed(found: Iterable[Any], folder: str) -> Iterator[Listed]:
    """What lies in a folder. Some tools mark one by an empty object that is called as it is, with a
    slash behind; obstore leaves out the slash. It is no file."""
    for meta in found:
        if meta["path"] != folder:
            yield Listed(str(meta["path"]), int(meta["size"]), meta["last_modified"].timestamp())
