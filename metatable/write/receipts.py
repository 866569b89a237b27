"""What tasks of a data commit tell of their work: a receipt for each file, and one for each run of
entries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.rows.row_counts import RowCounts
from metatable.metadata.hfiles.entry_files import RUN_SCHEMA, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.written import KEY_BYTES, NO_KEYS, WrittenSlice, entries_of
from metatable.storage.store import Store

__all__ = ["ARRIVALS", "RECEIPT", "FileReceipt", "TaskRuns"]

RECEIPT = pa.schema([pa.field("file", pa.string()), *RUN_SCHEMA])
"""Either `file` (JSON of a `FileReceipt`) or the columns of a run are set."""

ARRIVALS = "arrivals"
"""A run of its own: keys new to the table, for the check against concurrent inserts. A key that
moves is no such key: whoever else touches it must replace the slice that it leaves."""

ARRIVALS_SCHEMA = pa.schema([pa.field(KEY, pa.string()), pa.field(PATH, pa.string())])


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """One written file: as Hudi's timeline tells of it, and its part of the commit's counts.

    To Hudi a row that moves is deleted here and inserted there.
    """

    stat: WriteStat
    counts: RowCounts
    key_sum: int = 0
    """Of the rows that its group was given, if somebody asks (`same_rows.py`)."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> FileReceipt:
        """The receipt from what `encode` made, which only passes from a task to its commit."""
        held = json.loads(text)
        return cls(WriteStat(**held["stat"]), RowCounts(**held["counts"]), held["key_sum"])


class TaskRuns:
    """Entries of the slices that a task has written, gathered by metadata partition."""

    def __init__(self, partitions: Sequence[MetadataPartition]) -> None:
        self._partitions = partitions
        self._read_keys = any(one.reads_keys for one in partitions)
        self._entries: dict[str, list[pa.Table]] = {}
        self._untold: list[WrittenSlice] = []
        self._key_bytes = 0

    def add(self, written: WrittenSlice, inserted: pa.Array) -> None:
        """One slice more; `inserted`: those of its keys (string) that no group held."""
        if not self._read_keys:
            written = replace(written, keys=NO_KEYS)
        self._untold.append(written)
        self._key_bytes += written.keys.nbytes + written.arrived.nbytes + written.departed.nbytes
        if self._key_bytes > KEY_BYTES:
            self._tell()
        paths = pa.repeat(pa.scalar(written.made.partition_path, pa.string()), len(inserted))
        arrivals = pa.table([inserted, paths], schema=ARRIVALS_SCHEMA)
        self._entries.setdefault(ARRIVALS, []).append(arrivals)

    def receipts(self, scratch: Store, tasks: int = 1) -> Iterator[dict[str, Any]]:
        """A row of `RECEIPT` for each run, which is in the scratch, or rides in it. `tasks`: how
        many there are."""
        self._tell()
        for name, parts in self._entries.items():
            entries = pa.concat_tables(parts)
            if entries.num_rows:
                run = write_run(scratch, name, entries, tasks)
                yield {field: getattr(run, field) for field in RUN_SCHEMA.names}

    def _tell(self) -> None:
        if self._untold:
            for name, entries in entries_of(self._untold, self._partitions):
                self._entries.setdefault(name, []).append(entries)
        self._untold, self._key_bytes = [], 0
