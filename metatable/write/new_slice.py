"""Rows to slice: what a file group holds when a commit has put rows in and taken keys out.

A slice of usual size is made in memory and written at once. A large one, stored or coming in,
passes piece by piece from its old file to its new one, so that memory follows the rows that come
and not the group that they come to. What decides is looked through first, in few columns: its
keys, the ordering column, and which numbers are not numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.data.base_file import (
    add_meta_columns,
    columns_with_nan,
    stream_to_base_file,
    write_base_file,
)
from metatable.data.key_texts import KEY
from metatable.data.merge import Merge
from metatable.data.row_counts import RowCounts
from metatable.data.schema import with_meta_columns
from metatable.data.slice_reader import read_slice, stream_slice
from metatable.data.slices import DataFile, FileSlice
from metatable.data.taking import pieces_of, taken, whole
from metatable.metadata.view import TableView
from metatable.storage.ordering import sort_order

__all__ = ["NewSlice", "merged_slice", "opened_slice"]

LARGE_FILE_BYTES = 64 << 20
"""A stored file above this size is merged piece by piece."""

LARGE_ROWS_BYTES = 64 << 20
"""So are rows that are more than this in memory."""


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

    def stored(
        self, view: TableView, target: DataFile, pieces: Iterator[pa.Table]
    ) -> tuple[int, bool]:
        """(bytes of the file, whether it is ours), when the pieces, its rows, have passed."""
        store, options = view.store, view.options
        if self.with_nan is None:
            return write_base_file(store, target, pa.concat_tables(pieces), options=options)
        return stream_to_base_file(store, target, pieces, options=options, with_nan=self.with_nan)


def merged_slice(
    view: TableView,
    base: FileSlice,
    target: DataFile,
    place: int,
    offered: pa.Table | None,
    deletes: pa.Array,
) -> NewSlice:
    """A stored slice with rows (their key texts beside them) put in and keys taken out."""
    schema, ordering = with_meta_columns(view.schema), view.options.ordering
    upserts = schema.empty_table()
    if offered is not None:
        columns = offered.select(view.schema.names)
        upserts = add_meta_columns(columns, whole(offered[KEY]), target, place).cast(schema)
    if base.size_bytes <= LARGE_FILE_BYTES and upserts.nbytes <= LARGE_ROWS_BYTES:
        stored = read_slice(view.store, base, schema)
        merge = Merge.of(stored, upserts, deletes, ordering)
        return NewSlice(merge.rows([stored], upserts), None, merge.counts, merge.deleted_keys)
    deciding, with_nan = _looked_through(view, base, schema)
    merge = Merge.of(deciding, upserts, deletes, ordering)
    pieces = merge.rows(stream_slice(view.store, base, schema), upserts)
    with_nan.update(columns_with_nan(upserts))
    return NewSlice(pieces, with_nan, merge.counts, merge.deleted_keys)


def _looked_through(
    view: TableView, base: FileSlice, schema: pa.Schema
) -> tuple[pa.Table, set[str]]:
    """(what decides a merge: keys and ordering column; columns that hold a NaN)."""
    kept = [KEY, *filter(None, (view.options.ordering,))]
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    asked = pa.schema([schema.field(name) for name in dict.fromkeys([*kept, *floats])])
    found, with_nan = [asked.empty_table().select(kept)], set[str]()
    for piece in stream_slice(view.store, base, asked):
        found.append(piece.select(kept))
        with_nan.update(columns_with_nan(piece))
    return pa.concat_tables(found), with_nan


def opened_slice(
    view: TableView, target: DataFile, place: int, rows: pa.Table, here: npt.NDArray[np.int64]
) -> NewSlice:
    """A new group of some of these rows, by key: its row groups hold narrow ranges of keys."""
    keys = whole(rows[KEY])
    order = here[sort_order(keys.take(pa.array(here)))]
    columns = rows.select([KEY, *view.schema.names])
    large = columns.nbytes * len(order) > LARGE_ROWS_BYTES * max(columns.num_rows, 1)
    pieces = pieces_of(columns, order) if large else iter([taken(columns, pa.array(order))])
    with_nan = columns_with_nan(columns) if large else None
    made = _with_meta_columns(pieces, view.schema.names, target, place)
    return NewSlice(made, with_nan, RowCounts(inserted=len(order)), keys[:0])


def _with_meta_columns(
    pieces: Iterable[pa.Table], names: Sequence[str], target: DataFile, place: int
) -> Iterator[pa.Table]:
    first = 0
    for piece in pieces:
        yield add_meta_columns(piece.select(names), whole(piece[KEY]), target, place, first)
        first += piece.num_rows
