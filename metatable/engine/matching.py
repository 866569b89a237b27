"""Matching: a left join by value that keeps the order of its left side.

    rows      k      v        matches   k      w        joined   k      v    w
              a      1                  b      x                 a      1    null
              b      2                  null   y                 b      2    x
              null   3                  b      x                 null   3    y
              b      4                                           b      4    x

Null equals null, equal matches count once, and a row that has two different matches comes
out twice. The right side is kept sorted by a 64-bit hash of its keys, built once; a batch
asks it by binary search with its own hashes in ascending order (about 50 ns per row into ten
million, against 1300 in any order), and every hit is compared by value, so that two keys
with one hash cannot be taken for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64

__all__ = ["Matches", "attached_schema", "hashes_of"]

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xC2B2AE3D27D4EB4F)


def attached_schema(rows: pa.Schema, matches: pa.Schema, on: Sequence[str]) -> pa.Schema:
    """The columns of `rows`, then those of `matches` that are not in `on`. Raises UsageError."""
    for column in on:
        for side in (rows, matches):
            if column not in side.names:
                raise UsageError("no such column", column=column, expected=side.names)
        left, right = rows.field(column).type, matches.field(column).type
        if not left.equals(right):
            what = "columns to match are of different types"
            raise UsageError(what, column=column, expected=str(left), found=str(right))
    added = [field.with_nullable(True) for field in matches if field.name not in on]
    for field in added:
        if field.name in rows.names:
            raise UsageError("a column is there already", column=field.name, found=rows.names)
    return pa.schema([*rows, *added])


class Matches:
    """The right side of the join, distinct and sorted by hash."""

    def __init__(self, table: pa.Table, on: Sequence[str]) -> None:
        table = _distinct(table)
        hashes = _hashes([_whole(table.column(name)) for name in on], table.num_rows)
        order = np.argsort(hashes, kind="stable")
        self._on = tuple(on)
        self._hashes = hashes[order]
        taken = table.take(pa.array(order))
        self._keys = [_whole(taken.column(name)) for name in on]
        payload = taken.drop_columns(list(on)) if on else taken
        self._payload = [_whole(column) for column in payload.columns]

    def attach(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """`batch`, in order, beside what it matches; `schema` as of `attached_schema`."""
        keys = [batch.column(name) for name in self._on]
        rows, matches = self._pairs(keys, _hashes(keys, batch.num_rows))
        if len(rows) != batch.num_rows:
            batch = batch.take(pa.array(rows))
        places = pa.array(matches, mask=matches < 0)
        added = [column.take(places) for column in self._payload]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    def _pairs(self, keys: Sequence[pa.Array], hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """(row, match or -1) by row, every row at least once."""
        order = np.argsort(hashes, kind="stable")
        first = np.searchsorted(self._hashes, hashes[order], "left")
        count = np.searchsorted(self._hashes, hashes[order], "right") - first
        rows = np.repeat(order, count)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        matches = np.repeat(first, count) + steps
        true = self._equal(keys, rows, matches)
        rows, matches = rows[true], matches[true]
        lonely = np.ones(len(hashes), dtype=bool)
        lonely[rows] = False
        alone = np.flatnonzero(lonely)
        rows = np.concatenate([rows, alone])
        matches = np.concatenate([matches, np.full(len(alone), -1)])
        by_row = np.argsort(rows, kind="stable")
        return rows[by_row], matches[by_row]

    def _equal(self, keys: Sequence[pa.Array], rows: Int64s, matches: Int64s) -> Any:
        equal = np.ones(len(rows), dtype=bool)
        for ours, theirs in zip(keys, self._keys, strict=True):
            left = _bare(ours).take(pa.array(rows))
            right = _bare(theirs).take(pa.array(matches))
            same = pc.fill_null(pc.equal(left, right), False)
            if left.null_count and right.null_count:
                same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
            equal &= same.to_numpy(zero_copy_only=False)
        return equal


def hashes_of(batch: pa.RecordBatch, on: Sequence[str]) -> UInt64s:
    """What rows that are equal in these columns have in common."""
    return _hashes([batch.column(name) for name in on], batch.num_rows)


def _hashes(keys: Sequence[pa.Array], count: int) -> UInt64s:
    """One 64-bit hash a row over all key columns; null has one of its own."""
    total = np.zeros(count, dtype=np.uint64)
    for column in keys:
        with np.errstate(over="ignore"):
            total = (total ^ (total >> np.uint64(29))) * _STEP + _hash(column)
    return total


def _hash(column: pa.Array) -> UInt64s:
    column = _bare(column)
    kind = column.type
    if pa.types.is_integer(kind):
        return _mix(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), column)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _hash(column.view(whole))
    if pa.types.is_dictionary(kind):
        return _hash(column.dictionary_decode())
    if not (_is_text(kind) or pa.types.is_fixed_size_binary(kind)):
        column = column.cast(pa.string())
    present = column.drop_null() if column.null_count else column
    return _spread(xxh64(present), column)


def _mix(values: Any, column: pa.Array) -> UInt64s:
    with np.errstate(over="ignore"):
        mixed = values.astype(np.int64).view(np.uint64) * _NULL_HASH
        mixed ^= mixed >> np.uint64(32)
        mixed *= _STEP
    if column.null_count:
        mixed[column.is_null().to_numpy(zero_copy_only=False)] = _NULL_HASH
    return cast("UInt64s", mixed)


def _spread(present: UInt64s, column: pa.Array) -> UInt64s:
    if not column.null_count:
        return present
    hashes = np.full(len(column), _NULL_HASH)
    hashes[column.is_valid().to_numpy(zero_copy_only=False)] = present
    return hashes


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _distinct(table: pa.Table) -> pa.Table:
    """The first of each set of equal rows, in order."""
    leaves = [leaf for column in table.columns for leaf in _leaves(_whole(column))]
    names = [str(place) for place in range(len(leaves))]
    keyed = pa.table([*leaves, pa.array(np.arange(table.num_rows))], [*names, "row"])
    grouped = keyed.group_by(names, use_threads=False).aggregate([("row", "min")])
    if grouped.num_rows == table.num_rows:
        return table
    return table.take(np.sort(grouped.column("row_min").to_numpy()))


def _leaves(column: pa.Array) -> list[pa.Array]:
    """Flat columns that are equal exactly where `column` is."""
    column = _bare(column)
    if not pa.types.is_struct(column.type):
        return [column]
    below = [leaf for child in column.flatten() for leaf in _leaves(child)]
    return [column.is_null(), *below]


def _bare(column: pa.Array) -> pa.Array:
    """What Arrow can compare: the storage of an extension's values."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
