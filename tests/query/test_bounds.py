"""What bounds of columns, and partition paths, prove of the rows of a file."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metatable
from metatable import col
from metatable.data.config.options import Options
from metatable.data.keys.keygen import KeyGenerator
from metatable.query.bounds import Bounds, may_hold, partition_bounds
from metatable.query.expressions import And, Comparison, Expression, In, InRows, Or
from metatable.query.predicates import bind
from metatable.query.row_dialect import literals
from tests.every_kind import NAN, SCHEMA


def bounds(low: Any, high: Any, nulls: int | None, rows: int | None) -> Bounds:
    """What is known of `double` in one file of one row group."""
    sides = [pa.array([one], pa.float64()) for one in (low, high)]
    return Bounds.of(*sides, *(pa.array([one], pa.int64()) for one in (nulls, rows)))


DOUBLE = col("double")


@pytest.mark.parametrize(
    ("known", "kept", "skipped"),
    [
        # nothing is known: all is possible
        (bounds(None, None, None, None), [DOUBLE == 1, DOUBLE.is_null(), DOUBLE.is_not_null()], []),
        # a NaN in the file: no maximum
        (bounds(1.0, None, 0, 5), [DOUBLE > 9, DOUBLE == NAN, DOUBLE != 1], [DOUBLE < 1]),
        # without one there is a maximum, and no NaN
        (bounds(1.0, 2.0, 0, 5), [DOUBLE >= 2, DOUBLE < NAN], [DOUBLE > 2, DOUBLE == NAN]),
        # what some writers write for a NaN as minimum says nothing
        (bounds(NAN, NAN, 0, 5), [DOUBLE < 1, DOUBLE == NAN], [DOUBLE.is_null()]),
        # nothing but nulls: nothing compares
        (bounds(None, None, 5, 5), [DOUBLE.is_null()], [DOUBLE == 1, DOUBLE != 1, ~(DOUBLE == 1)]),
        (bounds(None, None, 5, 5), [], [DOUBLE.is_not_null(), DOUBLE.is_in([1, 2])]),
        # one value only
        (bounds(-0.0, 0.0, 1, 5), [DOUBLE == 0, DOUBLE.is_in([0.0, 3])], [DOUBLE != 0]),
        (bounds(-0.0, 0.0, 1, 5), [~DOUBLE.is_in([1.0])], [~DOUBLE.is_in([1.0, -0.0])]),
        # no rows at all
        (bounds(None, None, 0, 0), [], [DOUBLE == 1, DOUBLE.is_null(), DOUBLE.is_not_null()]),
    ],
)
def test_a_file_is_skipped_only_by_what_is_known_of_it(
    known: Bounds, kept: list[Expression], skipped: list[Expression]
) -> None:
    for one, expected in [(one, True) for one in kept] + [(one, False) for one in skipped]:
        found = may_hold(bind(one, SCHEMA), 1, {"double": known}.get)
        assert found.tolist() == [expected], one


SOME_VALUES: dict[str, list[Any]] = {
    "small": [1, 2, 3, 4],
    "text": ["", "a", "ab", "b", "é"],
    "double": [-1.5, 0.0, -0.0, 1.5, NAN],
    "flag": [False, True],
}


@st.composite
def files_and_rows(draw: st.DrawFn) -> tuple[dict[str, Bounds], int, InRows]:
    """What is known of some columns of some files, as far as anything is, and rows asked for."""
    count = draw(st.integers(1, 8))
    names = draw(st.lists(st.sampled_from([*SOME_VALUES]), min_size=2, unique=True))
    known = {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        one = st.sampled_from([None, *SOME_VALUES[name]])
        ends = [pa.array(draw(st.tuples(*[one] * count)), SCHEMA.field(name).type) for _ in "<>"]
        few = st.tuples(*[st.sampled_from([None, 0, 5])] * count)
        known[name] = Bounds.of(*ends, *(pa.array(draw(few), pa.int64()) for _ in range(2)))
    row = st.tuples(*(st.sampled_from(SOME_VALUES[name]) for name in names))
    return known, count, InRows(tuple(names), tuple(draw(st.lists(row, min_size=1, max_size=9))))


@given(files_and_rows(), st.sampled_from([1, 20, 1 << 20]))
def test_rows_are_asked_of_files_as_each_of_them_would_be(
    given: tuple[dict[str, Bounds], int, InRows], at_once: int
) -> None:
    known, count, asked = given
    pairs = [[*zip(asked.columns, row, strict=True)] for row in asked.rows]
    each = [And(tuple(Comparison(name, "=", value) for name, value in one)) for one in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metatable.query.bounds.AT_ONCE", at_once)
        found = may_hold(asked, count, known.get)
    assert found.tolist() == may_hold(Or(tuple(each)), count, known.get).tolist()


@given(files_and_rows())
def test_values_are_asked_of_files_as_each_of_them_would_be(
    given: tuple[dict[str, Bounds], int, InRows],
) -> None:
    known, count, asked = given
    for name, values in zip(asked.columns, zip(*asked.rows, strict=True), strict=True):
        each = Or(tuple(Comparison(name, "=", value) for value in values))
        found = may_hold(In(name, values), count, known.get)
        assert found.tolist() == may_hold(each, count, known.get).tolist()


def test_of_many_rows_a_file_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, small = col("text"), col("small")
    asked = bind(Or(tuple((text == f"k{n:05}") & (small == n) for n in range(20_000))), SCHEMA)
    ends = {"text": ["k00005", "k00007"], "small": [8, 9]}, {"small": [5, 6], "text": ["k", "k1"]}
    counts = [pa.array([one], pa.int64()) for one in (0, 1)]
    calls: list[int] = []
    counted = lambda *one: calls.append(1) or literals(*one)  # noqa: E731
    monkeypatch.setattr("metatable.query.bounds.literals", counted)
    for told, expected in zip(ends, (False, True), strict=True):
        known = {
            name: Bounds.of(*(pa.array([one], SCHEMA.field(name).type) for one in pair), *counts)
            for name, pair in told.items()
        }
        assert may_hold(asked, 1, known.get).tolist() == [expected]
    assert len(calls) == 4


PARTITION_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int32(), [-(2**31), 0, 2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.string(), ["a=b", "é", " ", "'"]),
    (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.00"), None]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), None]),
    (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None]),
    (pa.timestamp("ms"), [datetime(1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 7000), None]),
]


@pytest.mark.parametrize("hive_style", [True, False])
@pytest.mark.parametrize(("kind", "values"), PARTITION_VALUES, ids=lambda one: str(one)[:12])
def test_partition_values_are_read_back_from_paths(
    kind: pa.DataType, values: list[Any], hive_style: bool
) -> None:
    schema = pa.schema([("id", pa.int64()), ("other", pa.string()), ("part", kind)])
    options = Options("t", key=("id",), partition_by=("other", "part"), hive_style=hive_style)
    if not hive_style:
        values = [one for one in values if one != "a=b"]  # makes no folder there
    rows = pa.table([range(len(values)), ["x"] * len(values), values], schema=schema)
    paths = KeyGenerator(options, schema).partition_paths(rows)
    found = partition_bounds(options, schema, paths)["part"]
    assert found.minimum.to_pylist() == found.maximum.to_pylist() == values
    assert found.null_count.to_pylist() == [int(one is None) for one in values]
    with pytest.raises(metatable.CorruptError, match="not a partition path"):
        partition_bounds(options, schema, pa.array(["x"]))


def test_days_of_any_year_are_read_back_from_paths() -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    options = Options("t", key=("id",), partition_by=("day",))
    days = pa.array([-1_000_000, -719_529, 0, 2_932_897, None], pa.int32()).view(pa.date32())
    rows = pa.table([range(len(days)), days], schema=schema)
    paths = KeyGenerator(options, schema).partition_paths(rows)
    assert "day=10000-01-01" in paths.to_pylist()
    assert partition_bounds(options, schema, paths)["day"].minimum.equals(days)
    for word in ("10000", "10000-1-01", "soon", "10000-02-30"):
        with pytest.raises(metatable.CorruptError, match="not a partition value"):
            partition_bounds(options, schema, pa.array([f"day={word}"]))


def test_the_default_partition_of_strings_holds_null_and_empty_ones() -> None:
    options = Options("t", key=("id",), partition_by=("city",))
    paths = pa.array(["city=__HIVE_DEFAULT_PARTITION__"])
    known = partition_bounds(options, SCHEMA, paths)
    city = col("city")
    for one in (city == "", city.is_null(), city.is_not_null(), city < "a"):
        assert may_hold(bind(one, SCHEMA), 1, known.get).all()
    assert not may_hold(bind(city == "a", SCHEMA), 1, known.get).any()
