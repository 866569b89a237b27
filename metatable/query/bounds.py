"""Bounds of columns in many files at once, and what they prove of the rows.

A file may be left out only where it is proven that the predicate is true of none of its rows.
Whatever is missing (statistics, a bound, a count) says nothing, and keeps the file.

What bounds prove of a bound expression's leaf, of a file with values in [minimum, maximum]:

    = v          not true of any row where v < minimum or maximum < v
    < v, <= v    where minimum >= v, minimum > v;   > v, >= v  likewise by the maximum
    != v         where minimum = maximum = v
    in           as = for each value;   not in  as != for one of them
    among rows   as = of all columns, for each row
    is null      where no row is null;   is not null, and all of the above  where all rows are
    starts with  where no text of [minimum, maximum] does; not: where both of them do

Bounds may be wider than the data (cut texts), and all of this still holds. A conjunction is
false where one part is, a disjunction where all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.keys.keygen import DEFAULT_PARTITION
from metatable.query.expressions import Expression
from metatable.query.predicates import evaluate
from metatable.query.row_dialect import COMPARE, literals, sortable
from metatable.storage.arrays import Bools, Int32s
from metatable.storage.errors import CorruptError

__all__ = ["Bounds", "may_hold", "partition_bounds"]


AT_ONCE = 1 << 20
"""So many pairs of a file and a row that is asked for are compared at once."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one column in many files, arrays of a row a file; null where it is not.

    `minimum` and `maximum` are `sortable`, made of values of type `kind`. `null_count` and
    `value_count` (int64) count rows, nulls among the latter.
    """

    kind: pa.DataType
    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    value_count: pa.Array

    @classmethod
    def of(
        cls, minimum: pa.Array, maximum: pa.Array, null_count: pa.Array, value_count: pa.Array
    ) -> Bounds:
        """From statistics as they are stored, a row a file; bounds in the type of the column."""
        kind = minimum.type
        if pa.types.is_floating(kind):  # some writers' way of saying that there is a NaN
            minimum = pc.if_else(pc.is_nan(minimum), pa.scalar(None, kind), minimum)
        return cls(kind, sortable(minimum), sortable(maximum), null_count, value_count)

    def take(self, rows: npt.NDArray[Any]) -> Bounds:
        """What is known in some of the files, by their numbers."""
        places = pa.array(rows)
        return Bounds(
            self.kind,
            self.minimum.take(places),
            self.maximum.take(places),
            self.null_count.take(places),
            self.value_count.take(places),
        )


def partition_bounds(options: Options, schema: pa.Schema, paths: pa.Array) -> dict[str, Bounds]:
    """For each partition column its bounds in the table partitions `paths`, a row each.

    Raises CorruptError for paths that the table's key generator does not make.
    """
    found = {}
    for place, name in enumerate(options.partition_by):
        prefix = f"{name}=" if options.hive_style else ""
        words = _folders(paths, place, len(options.partition_by), prefix)
        found[name] = _bounds_of_words(words, schema.field(name).type, name)
    return found


def _folders(paths: pa.Array, place: int, count: int, prefix: str) -> pa.Array:
    """The text of one partition column in each path."""
    folders = pc.split_pattern(paths, "/")
    fits = pc.equal(pc.list_value_length(folders), count)
    if pc.all(fits).as_py():
        words = pc.list_element(folders, place)
        fits = pc.starts_with(words, prefix)
    if not pc.all(fits).as_py():
        path = paths.filter(pc.invert(fits))[0].as_py()
        expected = f"{count} folders" + (f", {prefix}…" if prefix else "")
        raise CorruptError("not a partition path of the table", path=path, expected=expected)
    return pc.utf8_slice_codeunits(words, len(prefix))


def _bounds_of_words(words: pa.Array, kind: pa.DataType, column: str) -> Bounds:
    """A partition has one value. The default one is null, or, of strings, empty too."""
    default = pc.equal(words, DEFAULT_PARTITION)
    one = pa.repeat(1, len(words))
    if pa.types.is_string(kind):
        values = pc.if_else(default, "", words)
        nulls = pc.if_else(default, pa.scalar(None, pa.int64()), 0)
        return Bounds(kind, values, values, nulls, one)
    try:
        values = _values(pc.if_else(default, pa.scalar(None, pa.string()), words), kind)
    except ValueError as error:  # Arrow's own is one
        what = "not a partition value of the column's type"
        raise CorruptError(what, column=column, expected=str(kind), found=str(error)) from error
    return Bounds(kind, values, values, default.cast(pa.int64()), one)


def _values(words: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values whose key text `words` are."""
    if pa.types.is_timestamp(kind):
        return words.cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    return _days(words) if pa.types.is_date(kind) else words.cast(kind)


def _days(words: pa.Array) -> pa.Array:
    """The days that these texts tell. Raises ValueError."""
    try:
        return words.cast(pa.date32())
    except pa.ArrowInvalid:  # it reads fewer years than it writes: 0 to 9999
        days = pa.array(np.array(words.to_pylist(), "datetime64[D]"), pa.date32())
        if not days.cast(pa.string()).equals(words):
            raise
        return days


def may_hold(bound: Expression, count: int, bounds_of: Callable[[str], Bounds | None]) -> Bools:
    """For which of `count` files the (bound) expression may be true of some row."""
    return evaluate(bound, _FileDialect(count, bounds_of))


class _FileDialect:
    """The dialect of files: false where a leaf is proven not to be true of any row."""

    def __init__(self, count: int, bounds_of: Callable[[str], Bounds | None]) -> None:
        self._count = count
        self._bounds_of = bounds_of

    def constant(self, value: bool) -> Bools:
        return np.full(self._count, value)

    def compare(self, column: str, op: str, value: Any) -> Bools:
        bounds = self._bounds_of(column)
        if bounds is None:
            return self.constant(True)
        literal = literals([value], bounds.kind)[0]
        if op == "=":
            empty = _surely(pc.greater(bounds.minimum, literal))
            empty |= _surely(pc.less(bounds.maximum, literal))
        elif op == "!=":
            empty = _surely(pc.equal(bounds.minimum, literal))
            empty &= _surely(pc.equal(bounds.maximum, literal))
        else:
            nearest = bounds.minimum if op in ("<", "<=") else bounds.maximum
            empty = ~_perhaps(COMPARE[op](nearest, literal))
        return ~empty & _some_value(bounds)

    def is_in(self, column: str, values: Sequence[Any], negated: bool) -> Bools:
        bounds = self._bounds_of(column)
        if bounds is None:
            return self.constant(True)
        asked = literals(values, bounds.kind)
        if negated:
            single = _surely(pc.equal(bounds.minimum, bounds.maximum))
            empty = single & _surely(pc.is_in(bounds.minimum, value_set=asked))
        else:
            first, end = _within(_ascending(asked), bounds)
            empty = first >= end
        return ~empty & _some_value(bounds)

    def is_among(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Bools:
        """Each column is asked for itself; then of the files that are left, whether a row lies
        within the bounds of all. Values are compared by their places among those of a column."""
        left, known = self.constant(True), []
        for name, values in zip(columns, zip(*rows, strict=True), strict=True):
            bounds = self._bounds_of(name)
            if bounds is not None:
                asked = literals(values, bounds.kind)
                every = _ascending(asked)
                first, end = _within(every, bounds)
                left &= (first < end) & _some_value(bounds)
                known.append((pc.index_in(asked, value_set=every).to_numpy(), first, end))
        if len(known) < 2:
            return left
        files, step = np.flatnonzero(left), max(1, AT_ONCE // len(rows))
        for some in (files[at : at + step] for at in range(0, len(files), step)):
            inside = np.ones((len(some), len(rows)), bool)
            for places, first, end in known:
                inside &= (first[some, None] <= places) & (places < end[some, None])
            left[some] = inside.any(axis=1)
        return left

    def is_null(self, column: str, negated: bool) -> Bools:
        bounds = self._bounds_of(column)
        if bounds is None:
            return self.constant(True)
        return _some_value(bounds) if negated else _perhaps(pc.greater(bounds.null_count, 0))

    def starts_with(self, column: str, prefix: str | bytes, negated: bool) -> Bools:
        bounds = self._bounds_of(column)
        if bounds is None:
            return self.constant(True)
        begin = prefix.encode() if isinstance(prefix, str) else prefix
        low, high = bounds.minimum.cast(pa.binary()), bounds.maximum.cast(pa.binary())
        if negated:
            empty = _surely(pc.starts_with(low, begin)) & _surely(pc.starts_with(high, begin))
            return ~empty & _some_value(bounds)
        below = _surely(pc.less(high, pa.scalar(begin)))
        above = _surely(pc.greater(low, pa.scalar(begin)))
        above &= ~_perhaps(pc.starts_with(low, begin))  # known, and no such text
        return ~(below | above) & _some_value(bounds)

    def both(self, left: Bools, right: Bools) -> Bools:
        return left & right

    def either(self, left: Bools, right: Bools) -> Bools:
        return left | right


def _surely(truth: pa.Array) -> Bools:
    """True where it is known to be."""
    return np.asarray(truth.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def _perhaps(truth: pa.Array) -> Bools:
    """False only where it is known to be."""
    return np.asarray(truth.fill_null(True).to_numpy(zero_copy_only=False), dtype=bool)


def _some_value(bounds: Bounds) -> Bools:
    """Whether a row may be other than null."""
    return _perhaps(pc.less(bounds.null_count, bounds.value_count))


def _ascending(values: pa.Array) -> pa.Array:
    """The values, each once, in order."""
    return pc.unique(values).sort()


def _within(ascending: pa.Array, bounds: Bounds) -> tuple[Int32s, Int32s]:
    """The places of those values that may lie between a file's bounds: from the first one up to the
    end. A bound that is not known leaves all on its side."""
    count = len(bounds.minimum)
    first = _preceding(ascending, lambda one: _surely(pc.less(one, bounds.minimum)), count)
    end = _preceding(ascending, lambda one: _perhaps(pc.less_equal(one, bounds.maximum)), count)
    return first, end


def _preceding(ascending: pa.Array, precede: Callable[[pa.Array], Bools], count: int) -> Int32s:
    """How many of the values precede something of each of `count` files; `precede` is told a value
    a file. A binary search for all of them at once: to sort their bounds would take longer."""
    found = np.zeros(count, np.int32)
    for bit in reversed(range(len(ascending).bit_length())):
        ahead = found + np.int32(1 << bit)
        last = ascending.take(pa.array(np.minimum(ahead, len(ascending)) - 1))
        found = np.where((ahead <= len(ascending)) & precede(last), ahead, found)
    return found
