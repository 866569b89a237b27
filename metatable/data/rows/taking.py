"""Taking rows: those of one group, and those of tables of which a column may pass 2 GiB.

Offsets of Arrow's strings are 32 bits wide, and its `take` joins the chunks of a column before
it looks at one row: more than 2 GiB of text is an error there, however few rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt16s

__all__ = ["grouped", "joined", "piece_rows", "rows_of", "taken", "taker", "whole"]

JOINED_BYTES = 64 << 20
"""Up to this size a table is taken from in one piece. A larger one is taken from chunk by chunk: it
is not held twice."""

MOST_CODES = 1 << 16
"""Groups that are told apart by two bytes per row."""

COLUMN_BYTES = 32 << 10
"""Values of a column that are worth a chunk: to read what a footer tells of one takes as long as
some thousands of them."""

MOST_BYTES = 1 << 30
"""What is taken at once at most: none of its columns can pass 2 GiB."""


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without a copy where it is one already."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def joined(table: pa.Table) -> pa.Table:
    """The table in one chunk, where it is small enough for that."""
    return table.combine_chunks() if table.nbytes <= JOINED_BYTES else table


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """These rows, in this order; in chunks where they do not fit into one."""
    return taker(table)(rows)


def taker(table: pa.Table) -> Callable[[pa.Array], pa.Table]:
    """`taken` of one table, made ready once for many calls."""
    if table.nbytes <= JOINED_BYTES:
        ready: Callable[[pa.Array], pa.Table] = table.combine_chunks().take
        return ready
    chunks = table.to_batches()
    if len(chunks) == 1:
        return partial(_by_steps, table, rows_of(table, JOINED_BYTES))
    starts = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
    step = rows_of(table, JOINED_BYTES)

    def take(rows: pa.Array) -> pa.Table:
        parts = [table.slice(0, 0)]
        for start in range(0, len(rows), step):
            parts += _gathered(chunks, starts, rows[start : start + step].to_numpy())
        return pa.concat_tables(parts)

    return take


def _by_steps(table: pa.Table, step: int, rows: pa.Array) -> pa.Table:
    """These rows of a table in one chunk, so many at a time."""
    if len(rows) <= step:
        return table.take(rows)
    return pa.concat_tables([table.take(rows[at : at + step]) for at in range(0, len(rows), step)])


def rows_of(table: pa.Table, size_bytes: int) -> int:
    """How many of its rows are so many bytes, at least one."""
    return max(1, int(size_bytes * table.num_rows / max(table.nbytes, 1)))


def piece_rows(table: pa.Table, size_bytes: int) -> int:
    """How many of its rows pass to a file at once, and are a row group there: so many bytes, or up
    to twice that where it has so many columns that their chunks were small."""
    wide = COLUMN_BYTES * table.num_columns
    return rows_of(table, min(max(size_bytes, wide), 2 * size_bytes))


def _gathered(
    chunks: Sequence[pa.RecordBatch],
    starts: Int64s,
    rows: Int64s,
) -> list[pa.Table]:
    """These rows of chunks that begin at `starts`: taken from each, then put in order."""
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], starts)
    parts = [
        chunk.take(pa.array(rows[order[lo:hi]] - start))
        for chunk, start, (lo, hi) in zip(chunks, starts[:-1], pairwise(cuts), strict=True)
        if lo < hi
    ]
    if len(rows) > 1 and sum(part.nbytes for part in parts) > MOST_BYTES:
        half = len(rows) // 2  # the widest rows came together
        return [
            *_gathered(chunks, starts, rows[:half]),
            *_gathered(chunks, starts, rows[half:]),
        ]
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return [pa.Table.from_batches(parts).combine_chunks().take(pa.array(places))]


def grouped(columns: Mapping[str, Any]) -> tuple[pa.Table, list[Int64s]]:
    """The distinct rows of some columns of equal length, and for each of them the numbers
    (int64, ascending) of the rows that have these values; null equals null. Of columns that are
    dictionaries as well, as their values: sooner, where these are few."""
    codes = _codes(columns.values())
    if codes is not None:
        rows = _rows_of_codes(codes)
        firsts = pa.array([one[0] for one in rows], pa.int64())
        return _plain({name: whole(one).take(firsts) for name, one in columns.items()}), rows
    return _grouped_by_values(_plain(columns))


def _plain(columns: Mapping[str, Any]) -> pa.Table:
    return pa.table(
        {
            name: whole(one).dictionary_decode() if pa.types.is_dictionary(one.type) else one
            for name, one in columns.items()
        }
    )


def _codes(columns: Iterable[Any]) -> UInt16s | None:
    """A number for each row, equal where rows agree in all columns: of dictionaries whose values
    make few pairs, and of nulls alone; None of others."""
    codes, count = None, 1
    for column in map(whole, columns):
        if pa.types.is_dictionary(column.type):
            values = column.dictionary
            count *= len(values) + 1
            if count > MOST_CODES or values.null_count:
                return None
            first = pc.index_in(values, values).to_numpy().astype(np.int32)  # some are there twice
            held = pc.fill_null(column.indices, -1).to_numpy()
            mine = np.append(first, -1)[held] + 1
            codes = mine if codes is None else codes * (len(values) + 1) + mine
        elif column.null_count < len(column):
            return None
    return None if codes is None or not len(codes) else codes.astype(np.uint16)


def _rows_of_codes(codes: UInt16s) -> list[Int64s]:
    """The rows of each number, ascending; the number that is met first in front."""
    order = np.argsort(codes, kind="stable")  # by radix, being short
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return sorted(np.split(order, cuts), key=lambda rows: int(rows[0]))


def _grouped_by_values(numbered: pa.Table) -> tuple[pa.Table, list[Int64s]]:
    names = numbered.column_names
    if numbered.num_rows == 1:
        return numbered, [np.zeros(1, np.int64)]
    numbered = numbered.append_column("", pa.array(np.arange(numbered.num_rows)))
    found = numbered.group_by(names, use_threads=False).aggregate([("", "list")])
    rows = found["_list"].combine_chunks()
    return found.select(names), [np.asarray(one.values.to_numpy()) for one in rows]
