"""TableView: what a reader sees of a table at one version, whosever table it is.

Indexes, queries and the planning of writes ask these questions and no others; how they are answered
is the table's business. `Snapshot` answers them from our metadata partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pyarrow as pa

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.hashing_metadata import HashingMetadata
from metatable.data.file_groups.slices import FileSlice
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.counters import Counters
from metatable.storage.filters import Filter
from metatable.storage.store import Store

__all__ = [
    "FEW_PARTITIONS",
    "Located",
    "StatsColumn",
    "TableView",
    "each_slices",
    "each_stats",
    "read_columns",
]

FEW_PARTITIONS = 16
"""Up to so many table partitions are read one by one; beyond, all are: each by itself takes
requests, and a tenth as long as all of a hundred thousand files."""

_NO_ROWS = np.zeros(0, np.int64)


class TableView(Protocol):
    """A consistent view. Pickles; cheap to make again on a worker."""

    @property
    def store(self) -> Store:
        """Where the data files lie."""
        ...

    @property
    def options(self) -> Options:
        """The table's options at this version."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns."""
        ...

    @property
    def table_schema(self) -> TableSchema:
        """The same columns with their ids: what data files are read by."""
        ...

    @property
    def version(self) -> int:
        """The number of the version."""
        ...

    @property
    def identity(self) -> Hashable:
        """Names this content for caches: equal identities have equal answers."""
        ...

    @property
    def era(self) -> Hashable:
        """Names for caches the versions in which a file's entries stay as they are while the file
        does: a change of the index and a mending of entries begin another."""
        ...

    def counting(self, counters: Counters) -> Self:
        """The same view, counting what it reads into `counters`."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """A context in which data files are read. Raises StaleError where they go meanwhile because
        the version was undone or is not kept any more."""
        ...

    def slices(self, partition_path: str | None = None) -> FileSystemView:
        """All live slices, or those of one table partition."""
        ...

    def few_slices(self, at_most: int) -> FileSystemView | None:
        """All live slices, if there are at most so many and listing them is cheap; else None."""
        ...

    def current(
        self, partition_paths: Sequence[str], file_ids: Sequence[str]
    ) -> list[FileSlice | None]:
        """The current slice of each file group, None for a group that is not there."""
        ...

    def came(self, slices: Sequence[FileSlice]) -> Bools:
        """For a view made by `since`: which of these slices got a new base file after that
        version."""
        ...

    def stats(
        self, column: str, type: pa.DataType, partition_paths: Iterable[str] | None = None
    ) -> StatsColumn:
        """A column's statistics in the named table partitions (None: in all), live slices only."""
        ...

    def hold_stats(self, columns: Sequence[str], partition_paths: Sequence[str]) -> None:
        """Fetch together, from afar, what `stats` of these columns in these few partitions would
        fetch one after the other."""
        ...

    def maxima(self, column: str, type: pa.DataType, slices: Sequence[FileSlice]) -> pa.Array:
        """The column's maximum in each slice, of its type. Null: nothing is known."""
        ...

    def null_counts(self, column: str, type: pa.DataType, slices: Sequence[FileSlice]) -> pa.Array:
        """How many nulls the column has in each slice, at most. Null: nothing is known."""
        ...

    def row_counts(self, slices: Sequence[FileSlice], at_most: bool = False) -> Int64s:
        """Rows of each slice; -1 where the number is not known. `at_most`: an upper bound will
        do."""
        ...

    def filters(self, slices: Sequence[FileSlice]) -> Iterator[tuple[int, Filter]]:
        """The filter of each slice with the slice's place, in any order, a budget at a time.

        They hold hashes of record keys (`metadata.bloom_filter.SEED`). Raises CorruptError where
        one is missing.
        """
        ...

    def locate(self, keys: pa.Array, partition_paths: pa.Array | pa.Scalar) -> Located:
        """The file group of each record key (texts), of a table that has a record index."""
        ...

    def published(self, commits: pa.Array) -> Bools:
        """Which of these commits count, named as their entries in a key-value store name them."""
        ...

    def latest_commit(self) -> bytes | None:
        """The last commit that has put such entries; None: there is none."""
        ...

    def check_kept(self) -> None:
        """Raises CorruptError where this version was undone or is not kept any more, because what
        it needs of a key-value store may be gone. Within `reading` that is a StaleError."""
        ...

    def rings(self, partition_paths: Sequence[str]) -> list[HashingMetadata | None]:
        """The hashing metadata of each table partition at this version, also in a view of what came
        after another; None where nobody has resized its buckets."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class StatsColumn:
    """One column's bounds and counts over many files; row i is `files[i]`.

    `minimum` and `maximum` are of the column's type, the counts int64; null where nothing is
    known. `value_count` counts all rows of the file, nulls too.
    """

    files: FileSystemView
    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    value_count: pa.Array

    def take(self, rows: Int64s) -> StatsColumn:
        """The bounds and counts of some of the files (`rows` ascending)."""
        places = pa.array(rows)
        return StatsColumn(self.files.take(rows), *(one.take(places) for one in self.columns))

    @property
    def columns(self) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
        return self.minimum, self.maximum, self.null_count, self.value_count


@dataclass(frozen=True, slots=True)
class Located:
    """Where keys live: row i is in `groups[group[i]]`, a (partition path, file id); where the key
    was not found, `group[i]` is -1."""

    groups: tuple[tuple[str, str], ...]
    group: Int64s


def read_columns(view: TableView, schema: pa.Schema, key: str = KEY_COLUMN) -> ReadColumns:
    """The columns of `schema`, to be read of the view's slices; `key`: as in `ReadColumns`."""
    return ReadColumns(schema, view.table_schema, view.options.ordering, key)


def each_slices(view: TableView, partition_paths: Sequence[str]) -> Callable[[str], FileSystemView]:
    """What tells the live slices of each of these table partitions."""
    if len(partition_paths) <= FEW_PARTITIONS:
        return view.slices
    whole = view.slices()
    rows = dict(whole.by_folder())
    return lambda path: whole.take(rows.get(path, _NO_ROWS))


def each_stats(
    view: TableView, column: str, type: pa.DataType, partition_paths: Sequence[str]
) -> Callable[[str], StatsColumn]:
    """What tells a column's statistics in each of these table partitions."""
    if len(partition_paths) <= FEW_PARTITIONS:
        return lambda path: view.stats(column, type, [path])
    whole = view.stats(column, type)
    rows = dict(whole.files.by_folder())
    return lambda path: whole.take(rows.get(path, _NO_ROWS))
