"""Conditions over rows: for which rows of a batch a bound expression is true.

Columns and literals are compared as `sortable` makes them: in a type that Arrow orders as Spark
orders theirs. Bounds of files are compared in the same way (`bounds.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.query.expressions import Expression
from metatable.query.predicates import evaluate

__all__ = ["COMPARE", "RowDialect", "literals", "matches", "sortable"]

COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def matches(bound: Expression, batch: pa.RecordBatch) -> pa.Array:
    """For each row of `batch` whether the bound expression is true: booleans without null."""
    return evaluate(bound, RowDialect(batch))


class RowDialect:
    """The dialect of rows: true where the predicate is true, false elsewhere; never null."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def constant(self, value: bool) -> pa.Array:
        return pa.repeat(value, self._batch.num_rows)

    def compare(self, column: str, op: str, value: Any) -> pa.Array:
        held = self._batch.column(column)
        literal = literals([value], held.type)[0]
        return COMPARE[op](sortable(held), literal).fill_null(False)

    def is_in(self, column: str, values: Sequence[Any], negated: bool) -> pa.Array:
        held = self._batch.column(column)
        among = pc.is_in(sortable(held), value_set=literals(values, held.type))
        return pc.and_not(held.is_valid(), among) if negated else among

    def is_null(self, column: str, negated: bool) -> pa.Array:
        held = self._batch.column(column)
        return held.is_valid() if negated else held.is_null()

    def starts_with(self, column: str, prefix: str | bytes, negated: bool) -> pa.Array:
        begins = pc.starts_with(self._batch.column(column), prefix)
        return (pc.invert(begins) if negated else begins).fill_null(False)

    def both(self, left: pa.Array, right: pa.Array) -> pa.Array:
        return pc.and_(left, right)

    def either(self, left: pa.Array, right: pa.Array) -> pa.Array:
        return pc.or_(left, right)


def literals(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Literals of a bound expression as what `sortable` makes of a column of this type."""
    if pa.types.is_floating(kind):  # compared as doubles
        kind = pa.float64()
    if pa.types.is_fixed_size_binary(kind):  # a literal may have another size
        kind = pa.binary()
    return sortable(pa.array(values, kind))


def sortable(column: pa.Array) -> pa.Array:
    """`column` in a type that Arrow orders as Spark orders the column's.

    Floats become int64 that sort like them: -0 is 0, and every NaN is the greatest.
    """
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if not pa.types.is_floating(column.type):
        return column
    absent = column.is_null().to_numpy(zero_copy_only=False)
    numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(numbers == 0, 0.0, numbers).view(np.int64)  # no -0
    ordered = np.where(bits < 0, bits ^ np.int64(_MAGNITUDE), bits)
    return pa.array(np.where(np.isnan(numbers), _MAGNITUDE, ordered), mask=absent)


_MAGNITUDE = (1 << 63) - 1
"""All bits of a float but its sign; as an integer above all that floats become."""
