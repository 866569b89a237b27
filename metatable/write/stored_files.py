"""Files that are there already, and the jobs over their slices: what tasks are told of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema_text import GREATEST_ID, TableSchema
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.keygen import KeyGenerator
from metatable.engine.protocol import Engine
from metatable.index.placement import Placement
from metatable.index.protocol import Index
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = [
    "META",
    "SliceJob",
    "StoredFiles",
    "size_of",
    "slice_jobs",
    "slices_of_jobs",
    "task_count",
]

TASK_BYTES = 64 << 20
"""Fewer bytes of data files are not worth a task of their own."""

META = pa.schema([pa.field(KEY, pa.string()), pa.field(PATH, pa.string())])
"""The meta columns that tell rows apart."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """What is made of files, and what they are held against. Pickles.

    `table`: its columns. `columns`: those whose statistics are told, and what they are called
    there. `foreign`: another software wrote the files.
    """

    store: Store
    options: Options
    table: TableSchema
    partitions: tuple[MetadataPartition, ...]
    columns: Mapping[str, str]
    placement: Placement | None
    asks_footers: bool
    foreign: bool

    @classmethod
    def of(
        cls,
        view: TableView,
        index: Index,
        partitions: Sequence[MetadataPartition],
        columns: Mapping[str, str],
        *,
        foreign: bool,
    ) -> StoredFiles:
        if view.options.resizes:  # ids that a resize took away may not come again
            raise UsageError(
                "buckets that are resized come with the table: create it with them",
                bucket_engine=view.options.bucket_engine,
                expected="another index, or bucket_engine='simple'",
            )
        return cls(
            view.store,
            view.options,
            # what the table has no more, and is passed over, may have greater ids
            replace(view.table_schema, last_column_id=GREATEST_ID)
            if foreign
            else view.table_schema,
            tuple(partitions),
            dict(columns),
            index.placement(view),
            index.asks_footers,
            foreign,
        )

    @property
    def schema(self) -> pa.Schema:
        return self.table.arrow

    def counting(self, counters: Counters) -> StoredFiles:
        return replace(self, store=self.store.counting(counters))

    def asked(self, passing: Collection[str]) -> pa.Schema:
        """The columns to read: key text, partition path, those of which statistics are made as
        they pass, and those that keys are made of."""
        generator = KeyGenerator(self.options).columns if self.foreign else ()
        named = {*passing, *generator}
        return pa.schema([*META, *(field for field in self.schema if field.name in named)])


@dataclass(frozen=True, slots=True)
class SliceJob:
    """Job: a slice, as text."""

    slice: str


def slice_jobs(slices: Sequence[FileSlice]) -> list[SliceJob]:
    return [SliceJob(one.encode()) for one in slices]


def slices_of_jobs(jobs: Iterable[SliceJob]) -> Iterator[FileSlice]:
    return (FileSlice.decode(job.slice) for job in jobs)


def size_of(made: FileSlice) -> int:
    """Bytes of a slice, by which portions of them are cut."""
    return made.size_bytes


def task_count(engine: Engine[Any], slices: Sequence[FileSlice]) -> int:
    """How many tasks read these slices."""
    size_bytes = sum(one.size_bytes for one in slices)
    return max(1, min(len(slices), max(engine.slots, size_bytes // TASK_BYTES)))
