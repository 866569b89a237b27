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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from metatable.storage.errors import CorruptError

__all__ = [
    "DataFile",
    "FileSlice",
    "is_file_id",
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
class FileSlice:
    """A file group as of one instant: a base file, and the log files on top of it, in order.

    Whoever asks what a group is now is given this; single files matter only to those who read or
    write their bytes. `logs` are file names in the group's partition.
    """

    base: DataFile
    logs: tuple[str, ...] = ()

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
        """Names it in messages: the path of its base file."""
        return self.base.path

    @property
    def size_bytes(self) -> int:
        return self.base.size_bytes

    @property
    def names(self) -> tuple[str, ...]:
        """Those of all its files. Equal names are equal contents: files never change."""
        return self.base.name, *self.logs

    def encode(self) -> str:
        """As text, for the way from one task to another."""
        return json.dumps([self.path, self.size_bytes, *self.logs])

    @classmethod
    def decode(cls, text: str) -> FileSlice:
        """From `encode`."""
        path, size_bytes, *logs = json.loads(text)
        return cls(DataFile.decode(path, size_bytes), tuple(logs))


def is_file_id(text: str) -> bool:
    """Whether it can stand in the name of a data file that every Hudi reader takes apart."""
    return re.fullmatch(r"[A-Za-z0-9-]{1,100}", text) is not None


def new_file_id() -> str:
    """A file id never given before."""
    return f"{uuid.uuid4()}-0"


def markers_folder(instant: str) -> str:
    """Where the markers of one commit lie while it is under way."""
    return f".hoodie/.temp/{instant}"


def marker_path(data_file: DataFile, kind: Literal["CREATE", "MERGE"]) -> str:
    """The (empty) marker to write before `data_file`: CREATE opens a group, MERGE follows a slice.

    It lies in the folder of the file's own instant.
    """
    return f"{markers_folder(data_file.instant)}/{data_file.path}.marker.{kind}"


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
