"""Slices: how Hudi names the files of a table, and what a name says.

A file group lives in one partition and keeps its file id for ever; every commit that touches
it writes a new slice, a whole file under a new instant:

    <partition path>/<file id>_<write token>_<instant>.parquet
    .hoodie/.temp/<instant>/<partition path>/<that name>.marker.CREATE | MERGE
    <partition path>/.hoodie_partition_metadata

The name is cut at "_", so a file id holds none. Hudi on Spark finds partitions only by
`.hoodie_partition_metadata`, and finds the files of a crashed commit only by its markers
(there is no `MARKERS.type` beside them: one that says DIRECT makes Hudi's rollback fail).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Literal

from metatable.data.file_groups.log_names import LogName
from metatable.storage.errors import CorruptError

__all__ = [
    "DataFile",
    "FileSlice",
    "LogFile",
    "decoded",
    "is_file_id",
    "is_log",
    "marker_path",
    "markers_folder",
    "new_file_id",
    "partition_metadata",
    "partition_metadata_path",
]

_NAME = re.compile(r"([^_./\\]+)_([^_./\\]+)_(\d{17}|\d{14})\.parquet")
_SHAPE = "<file id>_<write token>_<instant>.parquet"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One base file. `encode` is `path`; size and rows (None: not known) travel beside it."""

    partition_path: str
    file_id: str
    write_token: str
    instant: str
    size_bytes: int = 0
    row_count: int | None = None

    @property
    def name(self) -> str:
        """The bare file name."""
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return _join(self.partition_path, self.name)

    def log(self, version: int, write_token: str) -> LogFile:
        """A log on it."""
        named = LogName(self.file_id, self.instant, version, write_token)
        return LogFile(self.partition_path, named)

    @classmethod
    def decode(cls, path: str, size_bytes: int = 0) -> DataFile:
        """From a path relative to the table. Raises CorruptError where it names no base file."""
        partition_path, _, name = path.rpartition("/")
        cut = _NAME.fullmatch(name)
        if cut is None:
            raise CorruptError("not the name of a data file", path=path, expected=_SHAPE)
        file_id, write_token, instant = cut.groups()
        return cls(partition_path, file_id, write_token, instant, size_bytes)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file. `encode` is `path`; its size travels beside it."""

    partition_path: str
    named: LogName
    size_bytes: int = 0

    @property
    def file_id(self) -> str:
        return self.named.file_id

    @property
    def write_token(self) -> str:
        return self.named.write_token

    @property
    def instant(self) -> str:
        """That of its slice, which need not be that of the commit that wrote it."""
        return self.named.base_instant

    @property
    def row_count(self) -> None:
        """Nobody knows it of a slice, where other logs may say the same keys."""
        return None

    @property
    def name(self) -> str:
        """The bare file name."""
        return self.named.name

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return _join(self.partition_path, self.name)

    def follows(self, base: DataFile) -> bool:
        """Whether it lies on this base file."""
        theirs = base.partition_path, base.file_id, base.instant
        return (self.partition_path, self.file_id, self.instant) == theirs

    @classmethod
    def decode(cls, path: str, size_bytes: int = 0) -> LogFile:
        """From a path relative to the table. Raises CorruptError where it names no log file."""
        partition_path, _, name = path.rpartition("/")
        return cls(partition_path, LogName.decode(name), size_bytes)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file group as of one instant: a base file, and the log files on top of it, in order; or
    logs alone, of which the first opened the group (`has_base`).

        base ── logs on it ──┬── nothing is scheduled
                             ├── pending   ── logs on that file     a compaction makes it
                             └── children  ── logs on those files   a resize makes them

    What is scheduled is not there yet, but writers go on on top of it. Whoever asks what a group is
    now is given this; single files matter only to those who read or write their bytes.
    """

    base: DataFile
    """Of logs alone it is no file, and only tells whose they are: its write token is empty."""
    logs: tuple[LogFile, ...] = ()
    pending: DataFile | None = None
    """What a scheduled compaction makes of the base and the logs on it; it is not there yet. Logs
    since then lie on it: they are behind all others."""
    children: tuple[DataFile, ...] = ()
    """Of a bucket that a scheduled resize takes away: what it makes of it, in groups of their own
    (`children.py`). Logs since then lie on these, too, or on these alone."""
    copies: tuple[LogFile, ...] = ()
    """Logs on children with what a log of this group says: it has the same write token."""

    @classmethod
    def of(cls, files: Sequence[tuple[str, int]]) -> FileSlice:
        """From (path, bytes) of all its files, in any order; one to come has 0 bytes. Raises
        CorruptError where together they are no slice."""
        logs = [LogFile.decode(path, size) for path, size in files if is_log(path)]
        bases = [DataFile.decode(path, size) for path, size in files if not is_log(path)]
        bases.sort(key=lambda one: (one.instant, one.write_token))
        first = min(logs, key=lambda one: one.named.order, default=None)
        if first is not None and not any(map(first.follows, bases)):
            bases.insert(0, _no_base(first.partition_path, first.file_id, first.instant))
        if not bases or not _are_slice(bases, logs):
            raise CorruptError(
                "these files are no file slice",
                expected="a base file, or none, its logs, and those to come with their own",
                found=[path for path, _ in files][:5],
            )
        return cls._of(bases, logs)

    @classmethod
    def unopened(cls, partition_path: str, file_id: str, instant: str) -> FileSlice:
        """The slice of a group that the first log of this instant opens: nothing is there yet."""
        return cls(_no_base(partition_path, file_id, instant))

    @classmethod
    def _of(cls, bases: Sequence[DataFile], logs: Sequence[LogFile]) -> FileSlice:
        """From base files, of which the first is there and others are to come, and all logs, in any
        order; those on children whose write token a log on the base has too are its copies."""
        base, *later = bases
        own = {one.write_token for one in logs if one.follows(base)}
        order = sorted(logs, key=lambda one: one.named.order)
        if not later:
            return cls(base, tuple(order))
        if later[0].file_id == base.file_id:
            return cls(base, tuple(order), later[0])
        copies = [not one.follows(base) and one.write_token in own for one in order]
        told = zip(order, copies, strict=True)
        merged = tuple(one for one, is_copy in told if not is_copy)
        return cls(base, merged, None, tuple(later), tuple(compress(order, copies)))

    @property
    def partition_path(self) -> str:
        return self.base.partition_path

    @property
    def file_id(self) -> str:
        return self.base.file_id

    @property
    def instant(self) -> str:
        return self.base.instant

    @property
    def path(self) -> str:
        """Names it in messages: the path of its first file."""
        return self.files[0].path

    @property
    def has_base(self) -> bool:
        """Whether there is a base file; else it is logs alone."""
        return bool(self.base.write_token)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(one.size_bytes for one in self.files)

    @property
    def files(self) -> tuple[DataFile | LogFile, ...]:
        """All its files that are there, the base first: what is merged, and copies of it."""
        return *self.merged, *self.copies

    @property
    def merged(self) -> tuple[DataFile | LogFile, ...]:
        """Those of its files that a reader merges: the base, if there is one, and all logs."""
        return (self.base, *self.logs) if self.has_base else self.logs

    def left(self, gone: Collection[str]) -> tuple[DataFile | LogFile, ...]:
        """Those of its files that a reader merges where these paths are gone. If a log is gone of
        which there are copies, all of them stand for the logs that they are of: beside those they
        would be merged behind logs that came later."""
        merged, copied = self.merged, {one.write_token for one in self.copies}
        is_told_twice = any(one.path in gone and one.write_token in copied for one in self.logs)
        if is_told_twice and not any(one.path in gone for one in self.copies):
            merged = (*self.planned.merged, *self.copies)
        return tuple(one for one in merged if one.path not in gone)

    @property
    def told(self) -> tuple[DataFile | LogFile, ...]:
        """What `files` of the metadata stores of it: its files, and those that are to come."""
        return (*self.files, *self.to_come)

    @property
    def to_come(self) -> tuple[DataFile, ...]:
        """The base files that a scheduled compaction, or resize, makes of it."""
        return self.children if self.pending is None else (self.pending,)

    @property
    def awaits(self) -> str:
        """The instant of the compaction or resize that is scheduled; "": none is."""
        return self.to_come[0].instant if self.to_come else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that is stored of it. Equal names are equal contents: files never
        change."""
        return tuple(one.name for one in self.told)

    @property
    def planned(self) -> FileSlice:
        """What a scheduled compaction makes one file of, or a resize its children: it stays as it
        is. All of it, where nothing is scheduled."""
        again = {one.write_token for one in self.copies}
        logs = self.unscheduled.logs
        return FileSlice(self.base, tuple(one for one in logs if one.write_token not in again))

    @property
    def unscheduled(self) -> FileSlice:
        """This slice, had nothing been scheduled: right where no log is `ahead`."""
        return FileSlice(self.base, tuple(one for one in self.logs if one.follows(self.base)))

    @property
    def ahead(self) -> tuple[LogFile, ...]:
        """The logs that are on nothing but what is to come."""
        return tuple(one for one in self.logs if not one.follows(self.base))

    @property
    def forwarded(self) -> tuple[LogFile, ...]:
        """The logs on what is to come."""
        return (*self.ahead, *self.copies)

    @property
    def late(self) -> tuple[LogFile, ...]:
        """The logs on the latest base file, be it there or to come: all but those `planned`."""
        tip = self.pending or self.base
        return tuple(one for one in self.logs if one.follows(tip))

    def scheduled(self, pending: DataFile) -> FileSlice:
        """This slice, of which a compaction is to make this file."""
        return FileSlice(self.base, self.logs, pending)

    def compacted(self, base: DataFile) -> FileSlice:
        """This slice, once its compaction has made this file."""
        return FileSlice(base, self.late)

    def split(self, children: Sequence[DataFile]) -> FileSlice:
        """This slice, of which a resize is to make these."""
        return FileSlice(self.base, self.logs, None, tuple(children))

    def with_logs(self, logs: Sequence[LogFile]) -> FileSlice:
        """This slice, and the logs of one more commit on top."""
        return self._of((self.base, *self.to_come), (*self.logs, *self.copies, *logs))

    def next_log(self, write_token: str) -> LogFile:
        """The log that the next commit puts on top."""
        version = max((one.named.version for one in self.late), default=0) + 1
        return (self.pending or self.base).log(version, write_token)

    def encode(self) -> str:
        """All that is stored of it as text, for the way from one task to another."""
        return json.dumps([[one.path, one.size_bytes] for one in self.told])

    @classmethod
    def decode(cls, text: str) -> FileSlice:
        """The slice that `encode` made a text of."""
        return cls.of(json.loads(text))


def _no_base(partition_path: str, file_id: str, instant: str) -> DataFile:
    """What stands for the base of logs alone: it tells whose they are."""
    return DataFile(partition_path, file_id, "", instant)


def _are_slice(bases: Sequence[DataFile], logs: Sequence[LogFile]) -> bool:
    """Whether each log lies on one of these base files. The first is the slice's own; the others
    are still to come: either the next file of this group, or one for each child group of a resize.
    """
    base, later = bases[0], bases[1:]
    ids = [one.file_id for one in later]
    apart = base.file_id not in ids and len(set(ids)) == len(ids)
    to_come = all(not one.size_bytes and one.instant > base.instant for one in later)
    at_once = len({one.instant for one in later}) <= 1
    here = all(one.partition_path == base.partition_path for one in later)
    lies = all(any(one.follows(base) for base in bases) for one in logs)
    return (apart or ids == [base.file_id]) and to_come and at_once and here and lies


def decoded(path: str, size_bytes: int = 0) -> DataFile | LogFile:
    """The data file of a path. Raises CorruptError where it names none."""
    return (LogFile if is_log(path) else DataFile).decode(path, size_bytes)


def is_log(path: str) -> bool:
    """Whether a data file's path is that of a log: only theirs begin with a point."""
    return path.rpartition("/")[2].startswith(".")


def is_file_id(text: str) -> bool:
    """Whether it can stand in the name of a data file that every Hudi reader takes apart."""
    return re.fullmatch(r"[A-Za-z0-9-]{1,100}", text) is not None


def new_file_id() -> str:
    """A file id never given before."""
    return f"{uuid.uuid4()}-0"


def markers_folder(instant: str) -> str:
    """Where the markers of one commit lie while it is under way."""
    return f".hoodie/.temp/{instant}"


def marker_path(
    file: DataFile | LogFile, instant: str, kind: Literal["CREATE", "MERGE", "APPEND"]
) -> str:
    """The (empty) marker to write before `file` in the commit of this instant: CREATE opens a
    group, MERGE follows a slice, APPEND puts a log on top of one."""
    return f"{markers_folder(instant)}/{file.path}.marker.{kind}"


def partition_metadata_path(partition_path: str) -> str:
    """Where the file lies by which Hudi recognises a partition."""
    return _join(partition_path, ".hoodie_partition_metadata")


def partition_metadata(instant: str, partition_path: str) -> bytes:
    """Its content; the same for all writers of one instant, so a second attempt changes nothing."""
    written = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    depth = len(partition_path.split("/")) if partition_path else 0
    return (
        "#partition metadata\n"
        f"#{written:%a %b %d %H:%M:%S} UTC {written:%Y}\n"
        f"commitTime={instant}\n"
        f"partitionDepth={depth}\n"
    ).encode()


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
