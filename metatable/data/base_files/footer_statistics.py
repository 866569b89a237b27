"""Column statistics as the Parquet footer has them: what need not be read to be known.

Of columns whose bounds every Parquet writer orders alike, and as we do: booleans, integers, dates,
times, timestamps, strings, binaries (pyarrow passes over those of writers known to have them
wrong). Of floats only where it is known that none is NaN, because a footer's bounds leave NaN out;
not of decimals and fixed binaries, because old writers ordered them by unsigned bytes; not of
nested columns, which have no bounds. And nothing where a row group with values tells no bounds, or
no number of nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.base_files.statistics import (
    ColumnStats,
    cut_bounds,
    python_value,
    stored_sizes,
)
from metatable.data.columns.schema import KEY_COLUMN
from metatable.storage.parquet.footer import ToldChunk

__all__ = ["of_footer"]

Ends = tuple[Any, Any]

Read = Callable[[str, int], pa.ChunkedArray]
"""A column of a row group."""

_NOT_TOLD = ValueError, TypeError, OverflowError, pa.ArrowException
"""Raised for a bound that is no value of its column, or cut within a character."""


def of_footer(
    footer: pq.FileMetaData,
    held: pa.Schema,
    wanted: pa.Schema,
    numbers: Collection[str] = (),
    read: Read | None = None,
) -> list[ColumnStats]:
    """Statistics of those columns of `wanted` that the footer tells enough of.

    `held`: the file's schema as Arrow reads it; a column of another type there is left out.
    `numbers`: columns of floats of which none is NaN; `read` gives one of them in a row group, of
    which the footer tells a zero, but not its sign. Without it such a column is left out.
    """
    leaves = {footer.schema.column(leaf).path: leaf for leaf in range(footer.num_columns)}
    groups = [
        number for number in range(footer.num_row_groups) if footer.row_group(number).num_rows
    ]
    sizes = stored_sizes(footer)
    found = []
    for field in wanted:
        is_told = _is_ordered(field.type) or field.name in numbers
        if not is_told or field.name not in leaves:
            continue
        if held.field(field.name).type != field.type:
            continue
        leaf = leaves[field.name]
        chunks = {number: ToldChunk.of(footer, number, leaf) for number in groups}
        known = _ends_and_nulls(field, chunks, read if field.name in numbers else None)
        if known is not None:
            minimum, maximum, nulls = known
            if field.name != KEY_COLUMN:
                minimum, maximum = cut_bounds(minimum, maximum)
            stored, plain = sizes.get(field.name, (0, 0))
            rows = footer.num_rows
            found.append(
                ColumnStats(field.name, field.type, minimum, maximum, nulls, rows, stored, plain)
            )
    return found


def _is_ordered(kind: pa.DataType) -> bool:
    t = pa.types
    is_kind = (
        *(t.is_boolean, t.is_int32, t.is_int64, t.is_date32, t.is_time64, t.is_timestamp),
        *(t.is_string, t.is_binary),
    )
    return any(one(kind) for one in is_kind)


def _ends_and_nulls(
    field: pa.Field, chunks: Mapping[int, Any], read: Read | None
) -> tuple[Any, Any, int] | None:
    """(minimum, maximum, nulls) over all row groups, by their numbers; None where one of them tells
    too little, and it is not to be read."""
    nulls, ends, raws = 0, list[Ends](), list[Ends]()
    for number, chunk in chunks.items():
        one = chunk.statistics
        if one is None or not one.has_null_count:
            return None
        nulls += one.null_count
        if one.null_count == chunk.num_values:
            continue
        if not one.has_min_max:
            return None
        if read and 0 in (one.min_raw, one.max_raw):
            ends.append(tuple(pc.min_max(read(field.name, number)).as_py().values()))
            continue
        try:
            raws.append((one.min_raw, one.max_raw))
        except _NOT_TOLD:
            return None
    if raws:  # ordered as they are stored: one of a column is made a value, not one a row group
        try:
            ends.append(tuple(_value(one, field.type) for one in _widest(raws)))
        except _NOT_TOLD:
            return None
    if not ends:
        return None, None, nulls
    minimum, maximum = _widest(ends)
    return (minimum, maximum, nulls) if minimum <= maximum else None


def _widest(ends: list[Ends]) -> Ends:
    return min(least for least, _ in ends), max(most for _, most in ends)


def _value(raw: Any, kind: pa.DataType) -> Any:
    """A bound of the column's physical type as a Python value of its natural kind."""
    if pa.types.is_string(kind):
        return raw if isinstance(raw, str) else raw.decode()
    if pa.types.is_binary(kind):
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    if pa.types.is_boolean(kind):
        return bool(raw)
    if pa.types.is_floating(kind):
        if not raw:  # a writer tells 0 as -0 where it is the least
            raise ValueError(raw)
        return float(raw)
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()
    value = python_value(pa.array([raw], stored).view(kind)[0])
    if value is None:
        raise ValueError(raw)
    return value
