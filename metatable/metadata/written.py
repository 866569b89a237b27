"""Written slices: the facts from which every metadata partition makes its entries of a slice.

A commit makes entries from the rows in its hands; whoever finds the slice there already reads them
back from its file, and comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from metatable.data import statistics
from metatable.data.base_file import read_record_keys
from metatable.data.key_texts import KEY
from metatable.data.options import Options
from metatable.data.schema_text import TableSchema
from metatable.data.slices import DataFile, FileSlice, LogFile
from metatable.data.statistics import ColumnStats
from metatable.data.taking import whole
from metatable.storage.store import Store

__all__ = [
    "PassingRows",
    "WrittenSlice",
    "entries_of",
    "facts_of_stored",
    "stats_columns",
    "stats_of_parts",
    "stats_of_rows",
]


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """A new slice, and what it changed. Keys are record-key texts.

    `keys` are all that the new file holds, a base or a log, or none where no partition looks at
    them (`reads_keys`); `arrived` live in this file group only since this commit (inserted, or
    moved in from another one); `departed` are in no file any more.
    `stats` are those of the base file; of logs that were written each is told with its own.
    What was replaced may have statistics of `past_stats`, columns that are gone, too.
    """

    made: FileSlice
    replaced: FileSlice | None
    keys: pa.Array
    arrived: pa.Array
    departed: pa.Array
    stats: tuple[ColumnStats, ...]
    past_stats: tuple[str, ...] = ()
    logs: tuple[tuple[LogFile, tuple[ColumnStats, ...]], ...] = ()

    @property
    def files(self) -> tuple[tuple[DataFile | LogFile, tuple[ColumnStats, ...]], ...]:
        """What was written, each file with its statistics."""
        return self.logs or ((self.made.base, self.stats),)

    @property
    def superseded(self) -> tuple[DataFile | LogFile, ...]:
        """Files that the slice before held, and this one does not."""
        if self.replaced is None:
            return ()
        kept = set(self.made.names)
        return tuple(one for one in self.replaced.files if one.name not in kept)


class _Partition(Protocol):
    @property
    def name(self) -> str: ...

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table: ...


def entries_of(
    written: Sequence[WrittenSlice], partitions: Sequence[_Partition]
) -> Iterator[tuple[str, pa.Table]]:
    """(name of a metadata partition, the entries it adds and takes), for each of them.

    Slices are told together: many small ones cost little more than one.
    """
    return ((one.name, one.entries(written)) for one in partitions)


Facts = tuple[pa.Array, tuple[ColumnStats, ...]]
"""The record keys of a slice, and statistics of its columns."""


def stats_columns(schema: TableSchema, options: Options) -> dict[str, str]:
    """Columns whose statistics are kept, and what they are called there: the record key, and the
    first of the table's, as they were added: what has statistics keeps them."""
    flat = [one for one in schema.columns if not pa.types.is_nested(one.type)]
    kept = {one.id for one in sorted(flat, key=lambda one: one.id)[: options.stats_columns]}
    return {KEY: KEY, **{one.name: one.first_name for one in flat if one.id in kept}}


class PassingRows:
    """Tells the facts of rows that pass to their file, meta columns included, piece by piece."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._keys: list[pa.Array] = []
        self._stats: list[list[ColumnStats]] = []

    def passing(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            self._keys += piece[KEY].chunks
            self._stats.append(stats_of_rows(piece, self._columns))
            yield piece

    def facts(self) -> Facts:
        """When all have passed."""
        keys = pa.chunked_array(self._keys, pa.string())
        return whole(keys), tuple(statistics.of_all(self._stats))


def facts_of_stored(
    store: Store, made: FileSlice, columns: Mapping[str, str], table: TableSchema
) -> Facts:
    """The same, read back. Raises CorruptError."""
    keys, _ = read_record_keys(store, made.base)
    found = statistics.of_file(store, made.base, [*columns], table)
    return keys, tuple(_called(found, columns))


def stats_of_rows(rows: pa.Table, columns: Mapping[str, str]) -> list[ColumnStats]:
    """Statistics of these columns of a table's rows, under the names that they have there."""
    return _called(statistics.of_table(rows, [*columns]), columns)


def stats_of_parts(
    rows: pa.Table, cuts: Sequence[int], columns: Mapping[str, str]
) -> list[list[ColumnStats]]:
    """The same of the rows between each two of `cuts`."""
    parts = statistics.of_parts(rows, [*columns], cuts)
    return [_called(one, columns) for one in parts]


def _called(stats: Iterable[ColumnStats], columns: Mapping[str, str]) -> list[ColumnStats]:
    return [replace(one, column=columns[one.column]) for one in stats]
