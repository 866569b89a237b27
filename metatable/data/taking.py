"""Taking rows: those of one group, and those of tables of which a column may pass 2 GiB.

Offsets of Arrow's strings are 32 bits wide, and its `take` joins the chunks of a column before
it looks at one row: more than 2 GiB of text is an error there, however few rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["grouped", "joined", "rows_of", "taken", "taker", "whole"]

JOINED_BYTES = 64 << 20
"""Up to this size a table is taken from in one piece. A larger one is taken from chunk by chunk: it
is not held twice."""

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
    starts = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
    step = rows_of(table, JOINED_BYTES)

    def take(rows: pa.Array) -> pa.Table:
        parts = [table.slice(0, 0)]
        for start in range(0, len(rows), step):
            parts += _gathered(chunks, starts, rows[start : start + step].to_numpy())
        return pa.concat_tables(parts)

    return take


def rows_of(table: pa.Table, size_bytes: int) -> int:
    """How many of its rows are so many bytes, at least one."""
    return max(1, int(size_bytes * table.num_rows / max(table.nbytes, 1)))


def _gathered(
    chunks: Sequence[pa.RecordBatch],
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
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


def grouped(columns: Mapping[str, Any]) -> tuple[pa.Table, list[npt.NDArray[np.int64]]]:
    """The distinct rows of some columns of equal length, and for each of them the numbers
    (int64, ascending) of the rows that have these values; null equals null."""
    names = list(columns)
    numbered = pa.table(dict(columns))
    if numbered.num_rows == 1:
        return numbered, [np.zeros(1, np.int64)]
    numbered = numbered.append_column("", pa.array(np.arange(numbered.num_rows)))
    found = numbered.group_by(names, use_threads=False).aggregate([("", "list")])
    rows = found["_list"].combine_chunks()
    return found.select(names), [np.asarray(one.values.to_numpy()) for one in rows]
