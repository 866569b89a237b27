"""Conditions over rows: for which rows of a batch a bound expression is true.

Columns and literals are compared as `sortable` makes them: in a type that Arrow orders as Spark
orders theirs. Bounds of files are compared in the same way (`bounds.py`).

A list of many values is made Arrow's once, for all batches (`matcher`), and of each batch only
those are asked that may be in it: Arrow makes a hash table of a list for every call, which for
100,000 values takes longer than reading a small file. Lists of what several columns have together
are asked column by column: rows get the number of their value, then that of both, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.query.expressions import Expression
from metatable.query.predicates import evaluate

__all__ = ["COMPARE", "RowDialect", "literals", "matcher", "matches", "sortable"]

COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


FEW_VALUES = 1_000
"""Lists of no more values are asked as they are: choosing among them would take longer."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the columns that are asked together: its values, and which of them come behind which
    of the columns before, as the number of those times `len(values)` and that of the value."""

    column: str
    values: pa.Array
    pairs: pa.Array


@dataclass(frozen=True, slots=True)
class _Lists:
    """What was made of lists, by their own ids: they live as long as it does."""

    values: dict[tuple[str, int], pa.Array] = field(default_factory=dict)
    """Literals, by the column, too."""
    steps: dict[int, list[_Step]] = field(default_factory=dict)


def matches(bound: Expression, batch: pa.RecordBatch) -> pa.Array:
    """For each row of `batch` whether the bound expression is true: booleans without null."""
    return matcher(bound)(batch)


def matcher(bound: Expression) -> Callable[[pa.RecordBatch], pa.Array]:
    """`matches` for many batches of the same columns."""
    lists = _Lists()
    return lambda batch: evaluate(bound, RowDialect(batch, lists))


class RowDialect:
    """The dialect of rows: true where the predicate is true, false elsewhere; never null."""

    def __init__(self, batch: pa.RecordBatch, lists: _Lists) -> None:
        self._batch, self._lists = batch, lists

    def constant(self, value: bool) -> pa.Array:
        return pa.repeat(value, self._batch.num_rows)

    def compare(self, column: str, op: str, value: Any) -> pa.Array:
        held = self._batch.column(column)
        literal = literals([value], held.type)[0]
        return COMPARE[op](sortable(held), literal).fill_null(False)

    def is_in(self, column: str, values: Sequence[Any], negated: bool) -> pa.Array:
        held = self._batch.column(column)
        asked = self._lists.values.get((column, id(values)))
        if asked is None:
            asked = self._lists.values[column, id(values)] = literals(values, held.type)
        among = _places(sortable(held), asked).is_valid()
        return pc.and_not(held.is_valid(), among) if negated else among

    def is_among(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Array:
        steps = self._lists.steps.get(id(rows))
        if steps is None:
            types = [self._batch.column(name).type for name in columns]
            steps = self._lists.steps[id(rows)] = [*_steps(columns, types, rows)]
        found = pa.repeat(pa.scalar(0, pa.int64()), self._batch.num_rows)
        for one in steps:
            value = _places(sortable(self._batch.column(one.column)), one.values)
            found = _places(_paired(found, value, len(one.values)), one.pairs)
        return found.is_valid()

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


def _steps(
    columns: Sequence[str], types: Sequence[pa.DataType], rows: Sequence[tuple[Any, ...]]
) -> Iterator[_Step]:
    found = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    for column, kind, values in zip(columns, types, zip(*rows, strict=True), strict=True):
        asked = literals(values, kind)
        every = pc.unique(asked)
        paired = _paired(found, pc.index_in(asked, value_set=every), len(every))
        pairs = pc.unique(paired)
        yield _Step(column, every, pairs)
        found = pc.index_in(paired, value_set=pairs)


def _paired(found: pa.Array, value: pa.Array, count: int) -> pa.Array:
    """A number for each pair of numbers, the second ones below `count`; null of null."""
    return pc.add(pc.multiply(found.cast(pa.int64()), count), value.cast(pa.int64()))


def _places(held: pa.Array, asked: pa.Array) -> pa.Array:
    """The place of each value held among those asked for, null where it is none of them: of a long
    list those alone are looked through that may be held."""
    if len(asked) <= FEW_VALUES:
        return pc.index_in(held, value_set=asked)
    span = pc.min_max(held)
    above, below = pc.greater_equal(asked, span["min"]), pc.less_equal(asked, span["max"])
    near = pc.indices_nonzero(pc.and_(above, below))  # none, where only nulls are held
    if len(near) > max(len(held), FEW_VALUES):
        near = near.filter(pc.is_in(asked.take(near), value_set=held))
    return near.take(pc.index_in(held, value_set=asked.take(near)))


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
