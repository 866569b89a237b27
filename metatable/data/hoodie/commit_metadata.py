"""Commit metadata: what a completed commit tells Hudi's readers, as version 6 writes it (JSON).

Snapshots do not consult it; incremental reads see exactly the files that it lists, and on some
releases nothing at all where `fileSizeInBytes` is left out. `extraMetadata.schema` is the
table's Avro schema without the meta columns. Keys stand in the order in which Hudi writes them.

A commit of ours that changes the table's columns, or writes rows of some that Avro does not tell
whole, tells them also as its version does, with their ids (`COLUMNS`): who publishes it again where
that version is lost gives the columns back, and who adopts the table where all are lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from metatable.data.columns.avro_schema import tells_all, to_avro
from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.log_names import LogName
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.hoodie.operations import COMPACT_LOGS, hudi_word
from metatable.data.rows.row_counts import RowCounts
from metatable.storage.errors import CorruptError, in_short

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "CommitMetadata",
    "WriteStat",
    "columns_beside",
    "ids_by_path",
]

SCHEMA, COLUMNS = "schema", "metatable.columns"
"""Keys in `extraMetadata`."""

_NEW_GROUP = "null"
"""Hudi's word, a string, for the previous commit of a file group that is new."""

_UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What JSON raises that is none, nested too deep, or of other values than Hudi writes."""

_ZEROS = (
    "totalLogRecords",
    "totalLogFilesCompacted",
    "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
)


def ids_by_path(
    groups: Iterable[tuple[str, str]], paths: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Ids of the file groups (partition path, file id) that leave a table, by partition path, as
    `CommitMetadata.replaced` tells them; of `paths` also where none does."""
    found: dict[str, list[str]] = {path: [] for path in paths}
    for path, file_id in groups:
        found.setdefault(path, []).append(file_id)
    return {path: tuple(ids) for path, ids in found.items()}


def columns_beside(columns: TableSchema, *, changed: bool) -> str:
    """What a commit has to tell of columns beside their Avro schema; "": nothing."""
    return columns.encode() if changed or not tells_all(columns) else ""


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One file that a commit wrote: its rows, and how they came to differ from the slice before.

    `previous` is the instant of the slice that this one replaces, None for a new file group.
    """

    partition_path: str
    file_id: str
    path: str
    previous: str | None
    row_count: int
    inserted: int
    updated: int
    deleted: int
    size_bytes: int
    logs: tuple[str, ...] = ()
    """Of a log: the names of the logs on its base file, and before them that of the base file; ""
    where there is none, or something scheduled has yet to make it."""
    compacted_logs: int = 0
    """Of a base file that a compaction has made: how many logs are in it, and their bytes."""
    compacted_bytes: int = 0

    @classmethod
    def of_log(cls, made: FileSlice, log: LogFile, rows: int, counts: RowCounts) -> WriteStat:
        """For a log of the slice `made` that holds so many rows. Where nobody knows which of them
        were updated (`counts`), all count as such."""
        beside = (one for one in made.files if isinstance(one, LogFile))
        on_base = made.has_base and log.follows(made.base)
        lies_on = log.file_id, log.named.base_instant
        return cls(
            log.partition_path,
            log.file_id,
            log.path,
            log.named.base_instant,
            rows,
            counts.inserted or 0,
            rows if counts.updated is None else counts.updated,
            counts.deleted or 0,
            log.size_bytes,
            (
                made.base.name if on_base else "",
                *(one.name for one in beside if (one.file_id, one.named.base_instant) == lies_on),
            ),
        )

    @classmethod
    def of(cls, data_file: DataFile, previous: str | None, counts: RowCounts) -> WriteStat:
        """For a written base file, whose size and row count are known."""
        return cls(
            data_file.partition_path,
            data_file.file_id,
            data_file.path,
            previous,
            data_file.row_count or 0,
            counts.inserted or 0,
            counts.updated or 0,
            counts.deleted or 0,
            data_file.size_bytes,
        )

    def as_json(self) -> dict[str, Any]:
        """The stat as Hudi stores it: with every field that it writes, in its order."""
        return {
            "fileId": self.file_id,
            "path": self.path,
            "cdcStats": None,
            "prevCommit": self.previous or _NEW_GROUP,
            "numWrites": self.row_count,
            "numDeletes": self.deleted,
            "numUpdateWrites": self.updated,
            "numInserts": self.inserted,
            "totalWriteBytes": self.size_bytes,
            "totalWriteErrors": 0,
            "tempPath": None,
            "partitionPath": self.partition_path,
            **dict.fromkeys(_ZEROS, 0),
            "totalLogFilesCompacted": self.compacted_logs,
            "totalLogSizeCompacted": self.compacted_bytes,
            "fileSizeInBytes": self.size_bytes,
            "minEventTime": None,
            "maxEventTime": None,
            "runtimeStats": None,
            **(self._of_log() if self.logs else {}),
        }

    def _of_log(self) -> dict[str, Any]:
        """The fields of HoodieDeltaWriteStat."""
        base, *logs = self.logs
        version = LogName.decode(logs[-1]).version
        return {"logVersion": version, "logOffset": 0, "baseFile": base, "logFiles": logs}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any], partition_path: str) -> WriteStat:
        """From a stat of any Hudi writer; numbers that it lacks are 0."""
        previous = stored.get("prevCommit")
        return cls(
            _text(partition_path),
            _text(stored.get("fileId")),
            _text(stored.get("path")),
            None if previous in (None, _NEW_GROUP) else _text(previous),
            _number(stored, "numWrites"),
            _number(stored, "numInserts"),
            _number(stored, "numUpdateWrites"),
            _number(stored, "numDeletes"),
            _number(stored, "fileSizeInBytes"),
        )


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """A completed `commit` or, with `replaced` (partition path -> file ids), `replacecommit`."""

    operation: str
    stats: tuple[WriteStat, ...]
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] | None = None

    @classmethod
    def of_ours(
        cls,
        operation: str,
        stats: Sequence[WriteStat],
        note: Mapping[str, str],
        schema: pa.Schema,
        name: str,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        columns: str = "",
    ) -> CommitMetadata:
        """What Hudi is told of a commit of ours to a table of this name and schema; `columns`: the
        table's from now on, as `columns_beside` has them."""
        extra = {**note, SCHEMA: json.dumps(to_avro(schema, name), separators=(",", ":"))}
        if columns:
            extra[COLUMNS] = columns
        return cls(hudi_word(operation), tuple(stats), extra, replaced)

    def encode(self) -> bytes:
        """The bytes of the completed file."""
        by_partition: dict[str, list[dict[str, Any]]] = {}
        for stat in self.stats:
            by_partition.setdefault(stat.partition_path, []).append(stat.as_json())
        stored: dict[str, Any] = {
            "partitionToWriteStats": by_partition,
            "compacted": self.operation == hudi_word(COMPACT_LOGS),
            "extraMetadata": dict(self.extra),
            "operationType": self.operation,
        }
        if self.replaced is not None:
            stored["partitionToReplaceFileIds"] = {
                partition_path: list(file_ids) for partition_path, file_ids in self.replaced.items()
            }
        return json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes, path: str) -> CommitMetadata:
        """From a completed file of any Hudi writer of version 6. Raises CorruptError."""
        try:
            stored = json.loads(raw)
            stats = tuple(
                WriteStat.of_json(stat, partition_path)
                for partition_path, listed in (stored.get("partitionToWriteStats") or {}).items()
                for stat in listed
            )
            groups = stored.get("partitionToReplaceFileIds")
            replaced = (
                None
                if groups is None
                else {_text(name): tuple(map(_text, _list(ids))) for name, ids in groups.items()}
            )
            operation, extra = _text(stored.get("operationType")), stored.get("extraMetadata") or {}
            if not isinstance(extra, dict):
                raise TypeError(f"extraMetadata is a {type(extra).__name__}")
        except _UNREADABLE as error:
            raise CorruptError(
                "commit is not readable", path=path, found=in_short(error)
            ) from error
        return cls(operation, stats, extra, replaced)


def _number(stored: Mapping[str, Any], key: str) -> int:
    found = int(stored.get(key) or 0)
    if found.bit_length() > 63:
        raise OverflowError(f"{key} is beyond 64 bits")
    return found


def _text(found: Any) -> str:
    """A text, or "" where nothing is told. Raises TypeError, and ValueError for what no file can
    be called."""
    if not isinstance(found, str | None):
        raise TypeError(f"a {type(found).__name__} in place of a text")
    text = found or ""
    if not text.isascii():
        text.encode()  # refuses half a surrogate pair, which JSON can spell
    return text


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"a {type(found).__name__} in place of a list")
    return found
