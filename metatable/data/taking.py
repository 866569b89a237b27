"""Taking rows: those of one group, and those of tables of which a column may pass 2 GiB.

Offsets of Arrow's strings are 32 bits wide, and its `take` joins the chunks of a column before
it looks at one row: more than 2 GiB of text is an error there, however few rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["grouped", "joined", "pieces_of", "taken", "taker", "whole"]

WHOLE_BYTES = 1 << 30
"""Up to this size a table is taken from in one piece: none of its columns can pass 2 GiB."""

PIECE_BYTES = 32 << 20
"""What passes from a merge to its file at once."""

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without a copy where it is one already."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def joined(table: pa.Table) -> pa.Table:
    """The table in one chunk, where it is small enough for that."""
    return table.combine_chunks() if table.nbytes <= WHOLE_BYTES else table


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """These rows, in this order; in chunks where they do not fit into one."""
    return taker(table)(rows)


def taker(table: pa.Table) -> Callable[[pa.Array], pa.Table]:
    """`taken` of one table, made ready once for many calls."""
    if table.nbytes <= WHOLE_BYTES:
        ready: Callable[[pa.Array], pa.Table] = table.combine_chunks().take
        return ready
    fields = [field.with_type(_LARGE.get(field.type, field.type)) for field in table.schema]
    wide = table.cast(pa.schema(fields)).combine_chunks()
    step = max(1, int(WHOLE_BYTES * table.num_rows / table.nbytes))

    def take(rows: pa.Array) -> pa.Table:
        parts = [table.slice(0, 0)]
        for start in range(0, len(rows), step):
            parts += _narrow(wide, rows.slice(start, step), table.schema)
        return pa.concat_tables(parts)

    return take


def pieces_of(table: pa.Table, rows: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """The same, PIECE_BYTES of them at a time."""
    step = max(1, int(PIECE_BYTES * table.num_rows / max(table.nbytes, 1)))
    take = taker(table)
    for start in range(0, len(rows), step):
        yield take(pa.array(rows[start : start + step]))


def _narrow(wide: pa.Table, rows: pa.Array, schema: pa.Schema) -> list[pa.Table]:
    try:
        return [wide.take(rows).cast(schema)]
    except pa.ArrowInvalid:  # the widest rows came together
        if len(rows) < 2:
            raise
    half = len(rows) // 2
    return _narrow(wide, rows.slice(0, half), schema) + _narrow(wide, rows.slice(half), schema)


def grouped(columns: Mapping[str, Any]) -> tuple[pa.Table, list[npt.NDArray[np.int64]]]:
    """The distinct rows of some columns of equal length, and for each of them the numbers
    (int64, ascending) of the rows that have these values; null equals null."""
    names = list(columns)
    numbered = pa.table(dict(columns))
    numbered = numbered.append_column("", pa.array(np.arange(numbered.num_rows)))
    found = numbered.group_by(names, use_threads=False).aggregate([("", "list")])
    rows = found["_list"].combine_chunks()
    return found.select(names), [np.asarray(one.values.to_numpy()) for one in rows]
