"""Column statistics of one data file: what a reader needs to leave the file out.

A bound is exact, or on the safe side, or None: None says nothing, and a file without bounds
is kept. Bounds are those of Spark's order: NaN is the greatest number, -0 = 0, strings and
binaries in byte order, false below true.

    strings, binaries   bounds longer than 64 characters (bytes) are cut: the minimum is cut
                        off, the maximum is cut off and its last character raised; where
                        that cannot be done there is no maximum. Never `_hoodie_record_key`:
                        its bounds decide which file a key may be in
    fixed binaries      no bounds where they are longer than that: a cut one has another type
    floats              with a NaN in the file there is no maximum
    nested columns      no bounds; nulls are those of the column itself
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.base_files.parquet import open_parquet
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import DataFile
from metatable.storage.arrays import Int64s
from metatable.storage.store import Store

__all__ = [
    "BOUND_LENGTH",
    "ColumnStats",
    "cut_bounds",
    "of_all",
    "of_file",
    "of_parts",
    "of_table",
    "python_value",
    "stored_sizes",
]

BOUND_LENGTH = 64
"""Characters of a string bound, bytes of a binary one."""

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

_Ends = tuple[pa.Scalar, pa.Scalar]


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds and counts of one column of one file.

    `minimum` and `maximum` are Python values of the natural kind of `type` (int, float, bool,
    str, bytes, Decimal, date, time, datetime), or None where there is no bound. `value_count`
    counts all rows, nulls included, as Parquet and Hudi do. Sizes are of the column's data, in
    memory (`of_table`) or in the file (`of_file`): a hint for planners, not part of any answer.
    """

    column: str
    type: pa.DataType
    minimum: Any | None
    maximum: Any | None
    null_count: int
    value_count: int
    size_bytes: int
    uncompressed_bytes: int


def of_table(table: pa.Table, columns: Sequence[str]) -> list[ColumnStats]:
    """Statistics of these columns of a file's rows, in this order."""
    return [_of_column(name, table.column(name)) for name in columns]


def of_parts(
    table: pa.Table, columns: Sequence[str], cuts: Sequence[int]
) -> list[list[ColumnStats]]:
    """`of_table` of the rows between each two of `cuts` (ascending, from 0 to all): small parts
    cost little more than one of all their rows."""
    ends = _ends_of_parts(table, columns, np.diff(cuts))
    return [
        [
            _of_column(name, table.column(name).slice(lo, hi - lo), told.get(part))
            for name, told in zip(columns, ends, strict=True)
        ]
        for part, (lo, hi) in enumerate(pairwise(cuts))
    ]


def _ends_of_parts(
    table: pa.Table, columns: Sequence[str], counts: Int64s
) -> list[dict[int, _Ends]]:
    """For each column the least and greatest value of the parts (numbers) that have rows, `counts`
    of them; of a column with NaN none: they would have to be looked for in each part."""
    parts = pa.array(np.repeat(np.arange(len(counts)), counts))
    held = {
        str(place): _comparable(table.column(name))
        for place, name in enumerate(columns)
        if _has_ends(table.column(name).type) and not _has_nan(table.column(name))
    }
    asked = [(name, end) for name in held for end in ("min", "max")]
    found = pa.table({"": parts, **held}).group_by("", use_threads=False).aggregate(asked)
    numbers = found[""].to_pylist()
    pairs = {name: zip(found[f"{name}_min"], found[f"{name}_max"], strict=True) for name in held}
    ends = {name: dict(zip(numbers, told, strict=True)) for name, told in pairs.items()}
    return [ends.get(str(place), {}) for place in range(len(columns))]


def of_all(parts: Sequence[Sequence[ColumnStats]]) -> list[ColumnStats]:
    """Statistics of a file from those of its pieces, each with the same columns."""
    return [_joined(of_column) for of_column in zip(*parts, strict=True)]


def _joined(parts: Sequence[ColumnStats]) -> ColumnStats:
    told = [one for one in parts if one.null_count < one.value_count]  # the others have no values
    return replace(
        parts[0],
        minimum=_end(min, [one.minimum for one in told]),
        maximum=_end(max, [one.maximum for one in told]),
        null_count=sum(one.null_count for one in parts),
        value_count=sum(one.value_count for one in parts),
        size_bytes=sum(one.size_bytes for one in parts),
        uncompressed_bytes=sum(one.uncompressed_bytes for one in parts),
    )


def _end(choose: Callable[[list[Any]], Any], bounds: list[Any | None]) -> Any | None:
    """The least, or the greatest, of the bounds of pieces; where one has none, nothing is known."""
    return choose(bounds) if bounds and None not in bounds else None


def of_file(
    store: Store, data_file: DataFile, columns: Sequence[str], table: TableSchema | None = None
) -> list[ColumnStats]:
    """Statistics of these columns of a stored file, with types as they are in the file.

    `table`: the columns with their ids, by which the file's are found; None: by their names.
    Columns that the file lacks are left out. Raises CorruptError.
    """
    with open_parquet(store, data_file) as parquet:
        stored = StoredColumns.of(parquet, data_file.path)
        every = zip(columns, stored.find_each(columns, table), strict=True)
        held = {name: one.name for name, one in every if one is not None}
        parts = [
            of_table(rows.select(list(held.values())).rename_columns(list(held)), list(held))
            for rows in _row_groups(parquet, list(held.values()))
        ]
        parquet.check_chunks()
        sizes = stored_sizes(parquet.metadata)
    of_rows = zip(of_all(parts), held.values(), strict=True)
    return [
        replace(one, size_bytes=sizes[name][0], uncompressed_bytes=sizes[name][1])
        for one, name in of_rows
    ]


def _row_groups(parquet: pq.ParquetFile, names: list[str]) -> Iterator[pa.Table]:
    """These columns, a row group at a time; of a file without any one table without rows."""
    for group in range(parquet.num_row_groups):
        yield parquet.read_row_group(group, names)
    if not parquet.num_row_groups:
        yield parquet.read(names)


def _of_column(name: str, column: pa.ChunkedArray, ends: _Ends | None = None) -> ColumnStats:
    """`ends`: its least and greatest value, where it has no NaN and they are known."""
    minimum, maximum = _bounds(column, ends, cut=name != KEY_COLUMN)
    return ColumnStats(
        column=name,
        type=column.type,
        minimum=minimum,
        maximum=maximum,
        null_count=column.null_count,
        value_count=len(column),
        size_bytes=column.nbytes,
        uncompressed_bytes=column.nbytes,
    )


def _bounds(
    column: pa.ChunkedArray, ends: _Ends | None, cut: bool
) -> tuple[Any | None, Any | None]:
    if not _has_ends(column.type):
        return None, None
    if ends is None:
        ends = tuple(pc.min_max(_comparable(column)).values())
        if _has_nan(column):  # the greatest number, which Arrow leaves out
            return _least_beside_nan(column, python_value(ends[0])), None
    minimum, maximum = map(python_value, ends)
    return cut_bounds(minimum, maximum) if cut else (minimum, maximum)


def _has_ends(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(kind):  # a bound has the column's type, and so its size
        return bool(kind.byte_width <= BOUND_LENGTH)
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


def _has_nan(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def cut_bounds(minimum: Any, maximum: Any) -> tuple[Any | None, Any | None]:
    """Long texts and binaries as they are kept; other bounds as they are."""
    if isinstance(minimum, str) and isinstance(maximum, str):
        return minimum[:BOUND_LENGTH], _raised_text(maximum)
    if isinstance(minimum, bytes) and isinstance(maximum, bytes):
        return minimum[:BOUND_LENGTH], _raised_bytes(maximum)
    return minimum, maximum


def python_value(bound: pa.Scalar) -> Any | None:
    """A bound as a Python value; None for what Python cannot hold (nanoseconds, the year 10000,
    24:00, which other writers store and Arrow would make 00:00)."""
    if pa.types.is_timestamp(bound.type) and bound.type.unit == "ns":
        return None
    try:
        found = bound.as_py()
    except (ValueError, OverflowError):
        return None
    if pa.types.is_time(bound.type) and pa.scalar(found, bound.type) != bound:
        return None
    return found


def _least_beside_nan(column: pa.ChunkedArray, minimum: Any) -> Any | None:
    """`minimum`, unless it is no value, but what Arrow starts from where all is NaN."""
    is_value = not math.isnan(minimum) and pc.any(pc.equal(column, minimum)).as_py()
    return minimum if is_value else None


def _raised_text(longest: str) -> str | None:
    """The least text of `BOUND_LENGTH` characters or fewer that is not below `longest`."""
    if len(longest) <= BOUND_LENGTH:
        return longest
    for last in range(BOUND_LENGTH - 1, -1, -1):
        raised = ord(longest[last]) + 1
        if raised in _SURROGATES:
            raised = _SURROGATES.stop
        if raised <= _LAST_CODE_POINT:
            return longest[:last] + chr(raised)
    return None


def _raised_bytes(longest: bytes) -> bytes | None:
    if len(longest) <= BOUND_LENGTH:
        return longest
    head = longest[:BOUND_LENGTH].rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def stored_sizes(footer: Any) -> dict[str, tuple[int, int]]:
    """Bytes in the file of each top-level column: as stored, and before compression."""
    sizes: dict[str, tuple[int, int]] = {}
    for group in range(footer.num_row_groups):
        for leaf in range(footer.num_columns):
            chunk = footer.row_group(group).column(leaf)
            name = chunk.path_in_schema.partition(".")[0]
            stored, plain = sizes.get(name, (0, 0))
            sizes[name] = (
                stored + chunk.total_compressed_size,
                plain + chunk.total_uncompressed_size,
            )
    return sizes
