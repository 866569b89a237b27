"""Written slices: the facts from which every metadata partition makes its entries of a slice.

A commit makes entries from the rows in its hands; whoever finds the slice there already reads them
back from its file, and comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from metatable.data.base_files import statistics
from metatable.data.base_files.base_file import read_record_keys
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.keys.key_texts import KEY
from metatable.data.rows.taking import whole
from metatable.storage.store import Store

__all__ = [
    "KEY_BYTES",
    "NO_KEYS",
    "PassingRows",
    "WrittenSlice",
    "entries_of",
    "every_stats_column",
    "facts_of_stored",
    "stats_columns",
    "stats_of_parts",
    "stats_of_rows",
    "sure_of_stats",
]

KEY_BYTES = 8 << 20
"""Keys of written slices that wait to become entries together."""

NO_KEYS = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """A new slice, and what it changed. Keys are record-key texts, as arrays of strings.

    What was replaced may have statistics of columns that are gone, too: `past_stats`.
    """

    made: FileSlice
    replaced: FileSlice | None = None
    """The slice in whose place it comes; None where it comes in no place of another."""
    keys: pa.Array = field(default_factory=lambda: NO_KEYS)
    """All that the new file holds, a base or a log, or none where no partition looks at them
    (`reads_keys`)."""
    arrived: pa.Array = field(default_factory=lambda: NO_KEYS)
    """Those that live in this file group only since this commit: inserted, or moved in from another
    one."""
    departed: pa.Array = field(default_factory=lambda: NO_KEYS)
    """Those that are in no file any more."""
    stats: tuple[ColumnStats, ...] = ()
    """Of the base file; of logs that were written each is told with its own."""
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
    """(name of a metadata partition, the entries that it gains), for each of them; what leaves a
    partition is among them as tombstones.

    Slices are told together: many small ones cost little more than one.
    """
    return ((one.name, one.entries(written)) for one in partitions)


Facts = tuple[pa.Array, tuple[ColumnStats, ...]]
"""The record keys of a slice, and statistics of its columns."""


def stats_columns(schema: TableSchema, options: Options) -> dict[str, str]:
    """Columns whose statistics are kept, and what they are called there: the record key, the
    table's first flat ones in the order in which they were added, so that a column keeps its
    statistics whatever is added later, and those that have them `_anywhere`."""
    flat = [one for one in schema.columns if not pa.types.is_nested(one.type)]
    kept = {one.id for one in sorted(flat, key=lambda one: one.id)[: options.stats_columns]}
    kept |= {one.id for one in flat if kept and one.name in _anywhere(options)}
    return {KEY: KEY, **{one.name: one.first_name for one in flat if one.id in kept}}


def _anywhere(options: Options) -> tuple[str | None, ...]:
    """Columns that have statistics, if any has, wherever they stand: each upsert asks what is newer
    than its rows, and files are cut by keys. They keep their names."""
    return (*options.key, options.ordering)


def sure_of_stats(schema: TableSchema, options: Options) -> set[str]:
    """What columns are called of which each file that holds them has statistics, whenever it was
    written. Where columns are gone, the last of the first ones had none before, and none were kept
    `_anywhere` else by versions of before."""
    count = max(options.stats_columns - len(schema.past_stats), 0)
    first = replace(options, stats_columns=count, key=(), ordering=None)
    return {*stats_columns(schema, first).values()}


def every_stats_column(schema: TableSchema, options: Options) -> tuple[str, ...]:
    """What all columns are called of which files may have statistics, those that are gone from the
    table included."""
    return (*stats_columns(schema, options).values(), *schema.past_stats)


class PassingRows:
    """Tells the facts of rows that pass to their file, meta columns included, piece by piece."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._keys: list[pa.Array] = []
        self._stats: list[list[ColumnStats]] = []

    def passing(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same pieces, one after the other; their facts are kept in memory as they pass."""
        for piece in pieces:
            self._keys += piece[KEY].chunks
            self._stats.append(stats_of_rows(piece, self._columns))
            yield piece

    def facts(self) -> Facts:
        """The facts of all that has passed: to be asked once the pieces are through."""
        keys = pa.chunked_array(self._keys, pa.string())
        return whole(keys), tuple(statistics.of_all(self._stats))


def facts_of_stored(
    store: Store, made: FileSlice, columns: Mapping[str, str], table: TableSchema
) -> Facts:
    """The facts of a slice that is its base file alone, read back from it. Raises CorruptError."""
    keys, _ = read_record_keys(store, made.base)
    found = statistics.of_file(store, made.base, [*columns], table)
    return keys, tuple(_called(found, columns))


def stats_of_rows(rows: pa.Table, columns: Mapping[str, str]) -> list[ColumnStats]:
    """Statistics of these columns of a table's rows, under the names that they have there."""
    return _called(statistics.of_table(rows, [*columns]), columns)


def stats_of_parts(
    rows: pa.Table, cuts: Sequence[int], columns: Mapping[str, str]
) -> list[list[ColumnStats]]:
    """For each two successive numbers of `cuts`, the statistics of the rows between them."""
    parts = statistics.of_parts(rows, [*columns], cuts)
    return [_called(one, columns) for one in parts]


def _called(stats: Iterable[ColumnStats], columns: Mapping[str, str]) -> list[ColumnStats]:
    return [replace(one, column=columns[one.column]) for one in stats]
