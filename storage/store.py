"""Where a table's bytes are: one folder on disk or one prefix of an object store.

Paths are relative to the root and use "/". Ways to write, by what a reader may see:

    put     replaces, atomically; for things that may be overwritten
    jot     replaces, and a reader may meet a mix; for hints
    create  fails if the name is taken: True means that what is stored there is ours
    sink    a file object; the file appears, whole, when the block ends without an exception

`create` settles unknown outcomes by reading back. A client that repeats a conditional put
whose first answer was lost is told "already exists" about its own object; and a put that
raised may still have been carried out. So whenever the answer is not a plain yes, the stored
bytes are compared with ours. Whoever competes for a name must therefore offer bytes that
nobody else would offer (manifests and leases carry a nonce).

Counted: `store.requests` (every call to the disk or service), `store.reads`,
`store.bytes_read`, `store.writes`, `store.bytes_written`, `store.lists`, `store.deletes`.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from typing import IO, Any, TypeVar

from metatable.storage.address import normal, texts
from metatable.storage.arrays import UInt8s
from metatable.storage.backend import Backend
from metatable.storage.counters import Counters
from metatable.storage.errors import AccessError, CorruptError, StoreError, UsageError
from metatable.storage.listing import Listed
from metatable.storage.local_files import LocalFiles
from metatable.storage.object_options import DURABLE, refuse_unknown
from metatable.storage.ranges import coalesce, cut, joined
from metatable.storage.together import begun

__all__ = ["Store", "StoreFile"]

_log = logging.getLogger("metatable.storage")

R = TypeVar("R")

COALESCE_GAP_BYTES = 64 << 10
"""Ranges nearer than this are read together: a request costs more than these bytes."""

DISTANT_GAP_BYTES = 512 << 10
"""Ranges nearer than this are read together where an answer takes some 30 ms."""

HELD_BYTES = 64 << 20
"""What one operation holds of small files that it reads more than once."""

TOGETHER = 1000
"""Files of a long list that are deleted together: as many as S3 takes in a request."""

MOST_KNOWN = 32
"""Clients that a process keeps for stores that come again: of a few tables, each with a scratch."""

Texts = frozenset[tuple[str, str]]
"""Names and values."""

KEPT = (".hoodie/.temp", ".hoodie/metatable/leases")
"""Folders on a disk that every commit fills and empties: they stay. Whose they are
`data/file_groups/slices.py` and `metadata/manifests/leases.py` say, which this room does not know;
a test holds the three together."""

TEMPORARY = ".hoodie/metatable/tmp"
"""Where half-written local files wait: a private folder that no Hudi reader looks into."""


class Store:
    """A root, reachable from every worker: pickles as its address, never as an open handle.

    `uri` is a local path, `file://…`, or any URL that obstore takes (`s3://`, `gs://`, `az://`,
    `memory://`). `options` go to obstore; for local folders `durable="false"` leaves out fsync.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.uri = normal(uri)
        self.options = texts(options)
        self._begin(_backend(self.uri, self.options), Counters() if counters is None else counters)

    def _begin(self, backend: Backend, counters: Counters) -> None:
        self.backend, self.counters = backend, counters
        self._held: dict[str, bytes] | None = None

    def holding(self) -> Store:
        """A store of the same place, for one operation: what `hold` fetches is not asked for
        again."""
        twin = self.counting(self.counters)
        twin._held = {}
        return twin

    def hold(self, files: Iterable[tuple[str, int]]) -> None:
        """Fetch small files (path, bytes) that are about to be read, and never change, together.

        Nothing is done near by, nor where nobody holds.
        """
        if self._held is None or not self.backend.distant:
            return
        room = HELD_BYTES - sum(map(len, self._held.values()))
        wanted = []
        for path, size in files:
            if 0 < size <= min(self.request_bytes, room) and path not in self._held:
                wanted.append((path, size))
                room -= size
        parts = self.together([partial(self.read, path, [(0, size)]) for path, size in wanted])
        for (path, _), [body] in zip(wanted, parts, strict=True):
            self._held[path] = body

    @property
    def request_bytes(self) -> int:
        """What is rather read than asked for in another request."""
        return DISTANT_GAP_BYTES if self.backend.distant else COALESCE_GAP_BYTES

    @property
    def is_distant(self) -> bool:
        """Whether requests that follow each other are what takes time."""
        return self.backend.distant

    @property
    def waits(self) -> bool:
        """Whether who writes waits for an answer, from far away or of a disk: then some files are
        written together."""
        return self.backend.distant or self.backend.settles

    def counting(self, counters: Counters) -> Store:
        """A store of the same place that counts into `counters`."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.counters = counters
        return twin

    def size(self, path: str) -> int | None:
        """Size in bytes, or None where there is no such file."""
        self._count("reads")
        return self.backend.size(_file(path))

    def get(self, path: str) -> bytes | None:
        """The whole of a (small) file, or None where there is no such file."""
        self._count("reads")
        body = self.backend.read_whole(_file(path))
        self.counters.add("store.bytes_read", len(body or b""))
        return body

    def fetch(self, path: str) -> bytes:
        """The whole of a (small) file that must be there. Raises CorruptError."""
        body = self.get(path)
        if body is None:
            raise _missing(self, path)
        return body

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, size), neighbours fetched together.

        Raises CorruptError where the file is missing or ends before a range does.
        """
        wanted = [one for one in ranges if one[1] > 0]
        if not wanted:
            return [b"" for _ in ranges]
        spans = coalesce(wanted, self.request_bytes)
        parts = self._read(path, spans)
        return parts if len(ranges) == 1 else cut(ranges, spans, parts)

    def read_one(self, path: str, offset: int, size: int) -> bytes:
        """`read` of one range."""
        return self._read(path, ((offset, size),))[0] if size > 0 else b""

    def _read(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each of these, which are not empty. Raises as `read`."""
        held = self._held.get(path) if self._held else None
        if held is not None:
            parts: list[bytes] | None = [held[start : start + size] for start, size in spans]
        else:
            self._count("reads", len(spans))
            parts = self.backend.read(_file(path), spans)
        if parts is None:
            raise _missing(self, path)
        if held is None:
            self.counters.add("store.bytes_read", sum(map(len, parts)))
        _check_sizes(path, spans, map(len, parts))
        return parts

    def read_into(
        self,
        path: str,
        ranges: Sequence[tuple[int, int]],
        memory: memoryview,
        begins: Sequence[int],
    ) -> None:
        """Read the bytes of each (offset, size) into memory, to where `begins` says. Near by they
        are copied once, and nothing is read between two ranges.

        Raises CorruptError, as `read` does.
        """
        if self.backend.distant:
            for at, part in zip(begins, self.read(path, ranges), strict=True):
                memory[at : at + len(part)] = part
            return
        spans, places = joined(ranges, begins)
        self._count("reads", len(spans))
        found = self.backend.fill(_file(path), spans, memory, places)
        if found is None:
            raise _missing(self, path)
        self.counters.add("store.bytes_read", sum(found))
        _check_sizes(path, spans, found)

    def map(self, path: str, size_bytes: int) -> UInt8s | None:
        """A whole local file of this size as memory that is read when it is touched, else None.

        What is used of it is counted by `count_mapped`. The file must not be cut short while
        the array is there.
        """
        return self.backend.map(_file(path), size_bytes)

    def count_mapped(self, size_bytes: int) -> None:
        """Count a use of mapped memory as the read that it stands for."""
        self._count("reads")
        self.counters.add("store.bytes_read", size_bytes)

    def put(self, path: str, body: bytes, *, lasting: bool = True) -> None:
        """Write or replace a file, atomically. `lasting`: who reads it misses it, and so a disk is
        waited for; where it is not, a crash of the machine may leave any of it."""
        self._count("writes")
        self.counters.add("store.bytes_written", len(body))
        self.backend.put(_file(path), body, lasting=lasting)

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """`put` of each of some files of new names, in any order: those of a process that dies, or
        of a call that raises, may be there in any part, and be empty. So nobody may take one for
        whole because it is there."""
        self._count("writes", len(files))
        self.counters.add("store.bytes_written", sum(map(len, files.values())))
        self.backend.put_all({_file(path): body for path, body in files.items()})

    def jot(self, path: str, body: bytes) -> None:
        """Write or replace a small file that nothing rests on: on a disk in place, so that whoever
        reads it then, or after a crash, may meet any mix of what it was and what it becomes."""
        self._count("writes")
        self.counters.add("store.bytes_written", len(body))
        self.backend.jot(_file(path), body)

    def marking(self, paths: Sequence[str]) -> Sequence[Callable[[], object]]:
        """Calls, in any order, that make some hundred empty files of new names, of which nothing
        counts but that they are there: on a disk they are one file, durable `soon` (`create`)."""
        self._count("writes", len(paths))
        return self.backend.marking([_file(path) for path in paths])

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool = False) -> bool:
        """Write a file unless the name is taken. True: what is stored there is `body`.

        A body that is a file is written from its beginning; object stores take it whole. `soon`: it
        is there for everybody, and durable before the next file that this process names here, or at
        `settle`: of what means nothing without what follows, a disk is not waited for twice.
        """
        self._count("writes")
        self.counters.add("store.bytes_written", _length(body))
        try:
            if self.backend.create(_file(path), body, soon=soon):
                return True
        except UsageError:
            raise
        except Exception as error:  # the put may have been carried out: only the store knows
            _log.info("no answer to a put, asking what is there: path=%s: %s", path, error)
            with suppress(Exception):  # where it does not tell, the first error says more
                if self._holds(path, body, soon):
                    return True
            raise
        return self._holds(path, body, soon)

    def settle(self) -> None:
        """Wait for what is to be durable soon: before other processes write what must follow."""
        self.backend.settle(nobody_waits=False)

    def begin_to_settle(self) -> None:
        """Begin to `settle`, on a thread of its own: whoever writes what must follow waits then."""
        self.begun(partial(self.backend.settle, nobody_waits=True))

    def _holds(self, path: str, body: bytes | IO[bytes], soon: bool) -> bool:
        """Whether our bytes are stored there, and durable unless they are to be `soon`: a disk may
        have given them their name, and not have settled it. Empty ones are nobody's."""
        if not self._has(path, body):
            return False
        if not soon:
            self.settle()
        return True

    def _has(self, path: str, body: bytes | IO[bytes]) -> bool:
        size = _length(body)
        if not size or self.size(path) != size:
            return False
        if isinstance(body, bytes):
            return self.get(path) == body
        body.seek(0)
        stored = self.open(path, size)
        return all(stored.read(len(part)) == part for part in iter(lambda: body.read(1 << 20), b""))

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        """A file object whose content becomes `path` when the block ends without an exception."""
        self._count("writes")
        with self.backend.sink(_file(path)) as file:
            yield file
            self.counters.add("store.bytes_written", file.tell())

    def list(self, folder: str, recursive: bool = False) -> list[Listed]:
        """The files of a folder (and below it), by path; empty where there is no such folder."""
        self._count("lists")
        return sorted(self.backend.list(_inside(folder), recursive), key=lambda one: one.path)

    def names(self, folder: str, sized: Callable[[str], bool]) -> Sequence[tuple[str, int]]:
        """The names of a folder's files, in order, with their sizes in bytes where `sized` of a
        name says so: on a disk each is a call of its own. Of others it may be 0."""
        self._count("lists")
        return self.backend.names(_inside(folder), sized)

    def walk(self) -> Iterator[Listed]:
        """Every file of the table, one by one, in no order: for listings that no memory holds."""
        self._count("lists")
        return self.backend.list("", True)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files one after the other, in this order; those that are gone already are passed
        over."""
        for path in paths:
            self._count("deletes")
            self.backend.delete(_file(path))

    def check_spelling(self, path: str) -> None:
        """Raise UsageError if what lies in this file's folder is listed under another name."""
        found = self.backend.other_spelling(_file(path))
        if found is not None:
            what = "two folders would be one: this file system takes their names for the same"
            expected = "names that differ in more than letter case, or another file system"
            raise UsageError(what, path=path, store=self.uri, expected=expected, found=found)

    def check_refusals(self) -> None:
        """Raise UsageError where an object store overwrites what `create` may not: some that speak
        a service's language pass over that condition, and of two writers both would win. Near by
        the system sees to it. Three requests, one after the other."""
        if not self.backend.distant:
            return
        path = f"{TEMPORARY}/{uuid.uuid4().hex}.tmp"
        self._count("writes", 2)
        overwrites = all(self.backend.create(path, body, soon=False) for body in (b"1", b"2"))
        with suppress(AccessError, StoreError):  # what stays is scratch, which `clean` deletes
            self.delete([path])
        if overwrites:
            what = "this store overwrites what it was told not to"
            expected = "one that keeps the first of two files of one name (put-if-absent)"
            raise UsageError(what, path=path, store=self.uri, expected=expected)

    def spares(self, path: str) -> bool:
        """Whether a file is not deleted, whoever asks for it: a link leads to it out of the table,
        or no path of ours is like its own."""
        return "\\" in path or self.backend.spares(_file(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files in any order, some at a time. Each counts as a request, though some services
        are asked once for many."""
        left = map(_file, paths)
        while some := list(islice(left, TOGETHER)):
            self._count("deletes", len(some))
            self.backend.delete_all(some)

    def dismiss(self) -> None:
        """Nothing more is written here: where no file is left, no folder is, either."""
        self.backend.dismiss()

    def together(self, calls: Sequence[Callable[[], R]], writes: bool = False) -> Sequence[R]:
        """What each call gives, in this order. None needs another one's effect or answer, and of a
        process that dies any part of them may be carried out (`together.py`). `writes`: each of
        them writes a file, and does little else."""
        return self.backend.write_together(calls) if writes else self.backend.together(calls)

    def begun(self, call: Callable[[], R]) -> Callable[[], R]:
        """`call`, which writes files: made meanwhile where a disk has to settle them, else now.
        What is returned waits for its end, and gives, or raises, what it came to."""
        if self.backend.settles:
            return begun(call)
        done = call()
        return lambda: done

    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        """`call`, which reads: made meanwhile where answers take long, else when it is asked for.
        What is returned gives, or raises, what it came to. Unlike a worker of `threads.py`, who
        makes it may wait for others."""
        return self.backend.meanwhile(call)

    def open(self, path: str, size_bytes: int | None = None) -> StoreFile:
        """A readable, seekable file object (for Parquet). Raises CorruptError if it is missing."""
        size = self.size(path) if size_bytes is None else size_bytes
        if size is None:
            raise _missing(self, path)
        return StoreFile(self, path, size)

    def _count(self, what: str, amount: int = 1) -> None:
        self.counters.add("store.requests", amount)
        self.counters.add(f"store.{what}", amount)

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.uri, self.options = state["uri"], state["options"]
        self._begin(_backend_again(self.uri, self.options), Counters())

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"


class StoreFile(io.RawIOBase):
    """A stored file as pyarrow wants it; each `read` is one counted request."""

    last_read = 0.0
    """When any of them was read, by the monotonic clock."""

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        [body] = self._store.read(self._path, [(self._position, wanted)])
        self._position += wanted
        StoreFile.last_read = time.monotonic()
        return body

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        body = self.read(len(view))
        view[: len(body)] = body
        return len(body)


AT_EXIT_SECONDS = 0.05
"""How long a process that ends leaves Arrow's threads with what they have read of a file. They give
it back some moments after the call that asked for it has returned, and take the interpreter's lock
for that. An interpreter that is ending takes such a thread away in the middle of C++, which aborts
the process; and Arrow tells nobody when its threads are done."""


def _leave_time() -> None:
    left = StoreFile.last_read + AT_EXIT_SECONDS - time.monotonic()
    if left > 0:
        time.sleep(left)


atexit.register(_leave_time)


def _backend(uri: str, options: Mapping[str, str]) -> Backend:
    if "://" in uri:
        from metatable.storage.objects import Objects  # noqa: PLC0415  (not needed on a disk)

        return Objects(uri, options)
    return LocalFiles(uri, TEMPORARY, _is_durable(options), KEPT)


def _backend_again(uri: str, options: Mapping[str, str]) -> Backend:
    """That of a store which was sent to this process, as it is with each task on Spark: a client of
    a service stays for the next one, with its connections and the credentials that it was given."""
    if "://" not in uri:
        return _backend(uri, options)
    environment = frozenset(os.environ.items())  # which tells clients where and who they are
    return _known_backend(os.getpid(), environment, uri, frozenset(options.items()))


@lru_cache(MOST_KNOWN)
def _known_backend(process: int, environment: Texts, uri: str, options: Texts) -> Backend:
    return _backend(uri, dict(options))


def _is_durable(options: Mapping[str, str]) -> bool:
    refuse_unknown(list(options), [DURABLE])
    word = options.get(DURABLE, "true").lower()
    if word not in ("true", "false"):
        expected = "true or false"
        raise UsageError("bad storage option", option=DURABLE, expected=expected, found=word)
    return word == "true"


def _inside(path: str) -> str:
    """`path`, unless it would leave the root: paths also come from files that others wrote."""
    strange = {"", ".", ".."} & set(path.split("/"))
    if path and (strange or "\\" in path or "\0" in path):
        raise UsageError("path leaves the table", path=path, expected=_BELOW)
    return path


_BELOW = "a relative path below the root"


def _file(path: str) -> str:
    """`path`, of a file: the root is none."""
    if not path:
        raise UsageError("a file needs a name", path=path, expected=_BELOW)
    return _inside(path)


def _length(body: bytes | IO[bytes]) -> int:
    return len(body) if isinstance(body, bytes) else body.seek(0, os.SEEK_END)


def _missing(store: Store, path: str) -> CorruptError:
    return CorruptError("file is missing", path=path, store=store.uri)


def _check_sizes(path: str, spans: Sequence[tuple[int, int]], found: Iterable[int]) -> None:
    for (offset, size), own in zip(spans, found, strict=True):
        if own != size:
            raise CorruptError(
                "file ends too early",
                path=path,
                offset=offset,
                expected=f"{size} bytes",
                found=f"{own} bytes",
            )
