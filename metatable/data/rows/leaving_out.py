"""Leaving out: a table without some of its rows, in the memory where it lies.

A filter copies all that is left. Here the last rows are put into the places of those that go, which
touches only these: for who alone holds the table, and gives its rows in any order. Columns whose
values are of many sizes, or some null, are copied in the order that this makes. Where these are
most, or memory is not to be written on, the whole table is filtered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import byte_layout, size_of_all

__all__ = ["without"]

Pieces = npt.NDArray[Any]
"""Each value of a column a word, or a piece of some bytes."""

_WORDS = (1, 2, 4, 8)


def without(table: pa.Table, rows: Int64s) -> pa.Table:
    """`table` without the ascending `rows`, the others in any order. Its memory is written on:
    nobody else may hold it, nor read it again."""
    if not len(rows):
        return table
    columns = [_pieces(column) for column in table.columns]
    if 2 * sum(one is not None for one in columns) < max(1, len(columns)):
        return _filtered(table, rows)
    left = table.num_rows - len(rows)
    holes, last = _moved(table.num_rows, rows)
    order = np.arange(left)
    order[holes] = last
    found = []
    for column, pieces in zip(table.columns, columns, strict=True):
        if pieces is None:
            found.append(column.take(pa.array(order)))
        else:
            pieces[holes] = pieces[last]
            found.append(column.slice(0, left))
    return pa.table(found, schema=table.schema)


def _filtered(table: pa.Table, rows: Int64s) -> pa.Table:
    kept = np.ones(table.num_rows, np.bool_)
    kept[rows] = False
    return table.filter(pa.array(kept))


def _moved(count: int, rows: Int64s) -> tuple[Int64s, Int64s]:
    """(places among those that are left which rows of the end take, these rows)."""
    left = count - len(rows)
    cut = int(np.searchsorted(rows, left))
    stays = np.ones(len(rows), np.bool_)
    stays[rows[cut:] - left] = False
    return rows[:cut], np.flatnonzero(stays) + left


def _pieces(column: pa.ChunkedArray) -> Pieces | None:
    """The values of a column as they lie there, to be written on; None where they cannot be."""
    if column.num_chunks != 1 or column.null_count or not len(column):
        return None
    array = column.chunk(0)
    found = _texts(array) if _is_text(array.type) else _words(array)
    return found if found is not None and found.flags.writeable else None


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _texts(array: pa.Array) -> Pieces | None:
    """Where all are of one size, and that not 0."""
    offsets, data = byte_layout(array)
    size = size_of_all(offsets)
    if size <= 0:
        return None
    return data[int(offsets[0]) : int(offsets[-1])].view(np.dtype((np.void, size)))


def _words(array: pa.Array) -> Pieces | None:
    kind, t = array.type, pa.types
    if not (t.is_primitive(kind) or t.is_decimal(kind) or t.is_fixed_size_binary(kind)):
        return None
    width, bits = divmod(kind.bit_width, 8)
    if bits or not width:
        return None
    data = np.frombuffer(array.buffers()[1], np.uint8)
    of_one = np.dtype(f"u{width}") if width in _WORDS else np.dtype((np.void, width))
    return data[array.offset * width :][: len(array) * width].view(of_one)
