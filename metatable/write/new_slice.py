"""Rows to slice: what a file group holds when a commit has put rows in and taken keys out.

Rows pass piece by piece, from the old file and from the rows of the task to the new file, and are
made whole, with meta columns, only as they pass. What decides is looked through first, in few
columns: keys, the ordering column, and which numbers are not numbers. A small file is read once
and held for that; of a large one only what decides is, and it is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import pyarrow as pa

from metatable.data.base_files.base_file import read_filter, read_with_filter
from metatable.data.base_files.base_file_writer import (
    columns_with_nan,
    encoded_base_file,
    stream_to_base_file,
)
from metatable.data.base_files.key_footer import GrownFilter
from metatable.data.base_files.meta_columns import (
    add_changing_columns,
    add_meta_columns,
    with_file_name,
)
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.keys.key_texts import KEY
from metatable.data.reading.slice_reader import read_slice, stream_slice
from metatable.data.rows.merge import Merge, Take
from metatable.data.rows.row_counts import RowCounts
from metatable.data.rows.taking import piece_rows, taken, taker
from metatable.metadata.view import TableView, read_columns
from metatable.metadata.written import PassingRows, stats_columns
from metatable.storage.arrays import Int64s
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.ordering import sort_order

__all__ = ["Entering", "Filed", "NewSlice", "merged_slice", "opened_slice"]

LARGE_FILE_BYTES = 24 << 20
"""A stored file above this size is merged piece by piece: in memory it is several times as much."""

LARGE_ROWS_BYTES = 48 << 20
"""So are rows that are more than this in memory."""

PIECE_BYTES = 16 << 20
"""Rows of a task that pass to a file at once; of many columns up to twice that."""


@dataclass(frozen=True, slots=True)
class Entering:
    """Rows of a task that are put into a group, in this order.

    `columns` are the table's, and `keys` the key texts, of all rows of the task; `here` are the
    numbers of those that enter; `place`, that of the group in its plan, tells apart the sequence
    numbers of one commit.
    """

    columns: pa.Table
    keys: pa.Array
    here: Int64s
    target: DataFile
    place: int
    texts: pa.Array | None = None
    """What all rows of the task are in order by, if that is not their keys."""

    @property
    def size_bytes(self) -> int:
        return int(self.columns.nbytes * len(self.here) / max(self.columns.num_rows, 1))

    @property
    def step(self) -> int:
        """How many of them make a piece."""
        return piece_rows(self.columns, PIECE_BYTES)

    def in_order(self) -> Entering:
        """The same in the order of their keys, or of what they are in order by."""
        texts = self.keys if self.texts is None else self.texts
        return replace(self, here=self.here[sort_order(texts.take(pa.array(self.here)))])

    def deciding(self, ordering: str | None) -> pa.Table:
        """What decides a merge, of them all: keys, and the ordering column."""
        keys = pa.table({KEY: self.keys.take(pa.array(self.here))})
        return keys.append_column(ordering, self._only([ordering])[0]) if ordering else keys

    def with_nan(self) -> list[str]:
        """Columns of numbers of which one is not a number."""
        return columns_with_nan(self._only(_floats(self.columns.schema)))

    def _only(self, names: Sequence[str]) -> pa.Table:
        return taken(self.columns.select(list(names)), pa.array(self.here))

    def taker(self, schema: pa.Schema) -> Take:
        """Gives some of them, by number, as rows of the new file."""
        take = taker(self.columns)

        def made(numbers: Int64s) -> pa.Table:
            rows = pa.array(self.here[numbers])
            columns, keys = take(rows), self.keys.take(rows)
            return add_meta_columns(columns, keys, self.target, self.place, numbers).cast(schema)

        return made

    def changing(self, schema: pa.Schema) -> Take:
        """The same without what a row of the same key has already: these columns alone, the first
        two meta columns in front."""
        known = {*self.columns.column_names}
        own = [name for name in schema.names if name in known]
        take = taker(self.columns.select(own))

        def made(numbers: Int64s) -> pa.Table:
            columns = take(pa.array(self.here[numbers]))
            told = columns, self.target.instant, self.place, numbers
            return add_changing_columns(*told).cast(schema)

        return made


@dataclass(frozen=True, slots=True)
class Filed:
    """A new file and its facts: how many rows it has, their record keys (none where nobody asks for
    them) and statistics, and what happened to get there (as `Merge` tells it).

    `body` is None where it is stored already, being too large to wait; `ours`: whether by us.
    """

    body: bytes | IO[bytes] | None
    size_bytes: int
    ours: bool
    row_count: int
    keys: pa.Array
    stats: tuple[ColumnStats, ...]
    counts: RowCounts
    deleted_keys: pa.Array


@dataclass(frozen=True, slots=True)
class NewSlice:
    """The rows of a slice that is to be written, with meta columns, piece by piece, and what
    happened to get there (as `Merge` tells it).

    `with_nan`: what must be known of all rows before the first is written (`stream_to_base_file`);
    None for a slice that is written at once.
    """

    rows: Iterator[pa.Table]
    with_nan: Collection[str] | None
    counts: RowCounts
    deleted_keys: pa.Array
    grown: GrownFilter | None = None
    """The filter of the file that it follows."""

    def filed(self, view: TableView, target: DataFile) -> Filed:
        """Its file: in memory where it is small, else stored as it is made."""
        passing = PassingRows(stats_columns(view.table_schema, view.options))
        pieces = passing.passing(with_file_name(one, target.name) for one in self.rows)
        body, ours = None, True
        if self.with_nan is None:
            body = self._encoded(view, pieces)
            size_bytes = len(body)
        else:
            size_bytes, ours = self._stored(view, target, pieces)
        keys, stats = passing.facts()
        counted = self.counts, self.deleted_keys
        return Filed(body, size_bytes, ours, len(keys), keys, stats, *counted)

    def _encoded(self, view: TableView, pieces: Iterator[pa.Table]) -> bytes:
        rows = pa.concat_tables(pieces)
        return encoded_base_file(rows, view.options, view.table_schema, self.grown)

    def _stored(
        self, view: TableView, target: DataFile, pieces: Iterator[pa.Table]
    ) -> tuple[int, bool]:
        assert self.with_nan is not None
        return stream_to_base_file(
            view.store,
            target,
            pieces,
            options=view.options,
            columns=view.table_schema,
            with_nan=self.with_nan,
            grown=self.grown,
        )


def merged_slice(
    view: TableView, base: FileSlice, entering: Entering, deletes: pa.Array
) -> NewSlice:
    """A stored slice with rows put in and keys (texts) taken out."""
    schema, ordering = with_meta_columns(view.schema), view.options.ordering
    small = base.size_bytes <= LARGE_FILE_BYTES and entering.size_bytes <= LARGE_ROWS_BYTES
    if small:
        stored, bloom = _read(view, base, schema)
        pieces, deciding, with_nan = iter([stored]), stored, set[str]()
    else:
        bloom = None if base.logs else read_filter(view.store, base.base)
        pieces = stream_slice(view.store, base, read_columns(view, schema))
        deciding, with_nan = _looked_through(view, base, schema)
        with_nan.update(entering.with_nan())
    merge = Merge.of(deciding, entering.deciding(ordering), deletes, ordering)
    new_keys = entering.keys.take(pa.array(entering.here[merge.new]))
    grown = GrownFilter(bloom, new_keys) if bloom else None
    rows = merge.rows(pieces, entering.taker(schema), entering.step)
    return NewSlice(rows, None if small else with_nan, merge.counts, merge.deleted_keys, grown)


def _read(view: TableView, base: FileSlice, schema: pa.Schema) -> tuple[pa.Table, HudiBloom | None]:
    """All of a slice, and the filter over its keys, where that is known: logs bring others."""
    if base.logs:
        read = read_columns(view, schema)
        return read_slice(view.store, base, read), None
    return read_with_filter(view.store, base.base, schema, view.table_schema)


def _looked_through(
    view: TableView, base: FileSlice, schema: pa.Schema
) -> tuple[pa.Table, set[str]]:
    """(what decides a merge: keys and ordering column; columns that hold a NaN)."""
    kept = [KEY, *filter(None, (view.options.ordering,))]
    asked = pa.schema(map(schema.field, dict.fromkeys([*kept, *_floats(schema)])))
    found, with_nan = [asked.empty_table().select(kept)], set[str]()
    read = read_columns(view, asked)
    for piece in stream_slice(view.store, base, read):
        found.append(piece.select(kept))
        with_nan.update(columns_with_nan(piece))
    return pa.concat_tables(found), with_nan


def opened_slice(view: TableView, entering: Entering) -> NewSlice:
    """A new group of some rows, in order: its row groups hold narrow ranges."""
    entering = entering.in_order()
    count, take = len(entering.here), entering.taker(with_meta_columns(view.schema))
    small = entering.size_bytes <= LARGE_ROWS_BYTES
    step = max(count, 1) if small else entering.step
    rows = (take(np.arange(at, min(at + step, count))) for at in range(0, max(count, 1), step))
    with_nan = None if small else entering.with_nan()
    return NewSlice(rows, with_nan, RowCounts(inserted=count), pa.array([], pa.string()))


def _floats(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_floating(field.type)]
