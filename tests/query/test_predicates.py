"""Predicates: how they are said, what of Python's is refused, and what they mean for rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metatable
from metatable import col
from metatable.query import row_dialect
from metatable.query.expressions import (
    And,
    Comparison,
    Constant,
    Expression,
    In,
    InRows,
    Or,
    parse_where,
)
from metatable.query.predicates import bind
from metatable.query.row_dialect import FEW_VALUES, matcher, matches, sortable
from tests.every_kind import NAN, SCHEMA


def test_tuples_and_built_expressions_mean_the_same() -> None:
    a, b = col("a"), col("b")
    assert parse_where([("a", "==", 1), ("b", "NOT  IN", [2, 3])]) == (
        (a == 1) & In("b", (2, 3), negated=True)
    )
    assert parse_where([[("a", "<", 1)], [("b", "is null"), ("a", ">=", 2)]]) == (
        (a < 1) | (b.is_null() & (a >= 2))
    )
    assert parse_where(("a", "starts with", "x")) == a.starts_with("x")
    assert parse_where([("a", "is not null")]) == a.is_not_null()
    assert parse_where(a != 1) == parse_where([("a", "!=", 1)])
    assert parse_where(None) is None


def test_python_s_own_and_or_and_chains_are_refused() -> None:
    with pytest.raises(metatable.UsageError, match="no truth value"):
        _ = 1 < col("x") < 2
    with pytest.raises(metatable.UsageError, match="comparisons stand in brackets"):
        _ = (col("x") > 1) & 2  # type: ignore[operator]
    with pytest.raises(metatable.UsageError, match="are not compared: column='list'"):
        bind(col("list") == [1], SCHEMA)
    with pytest.raises(metatable.UsageError, match="expected='datetime with zone'"):
        bind(col("moment") > datetime(2024, 1, 1), SCHEMA)
    with pytest.raises(metatable.UsageError, match="expected='Decimal or int'"):
        bind(col("price") == 0.1, SCHEMA)


def test_scalars_of_numpy_pandas_and_arrow_are_what_they_hold() -> None:
    pandas = pytest.importorskip("pandas")
    noon = datetime(2024, 1, 1, 12)
    same: list[tuple[str, list[Any], Any]] = [
        ("small", [np.int64(5), pa.scalar(5), 5.0, Decimal(5)], 5),
        ("double", [np.float32(0.5), pa.scalar(0.5), Decimal("0.5")], 0.5),
        ("flag", [np.bool_(True), pa.scalar(True)], True),
        ("text", [np.str_("a"), pa.scalar("a")], "a"),
        ("day", [np.datetime64("2024-01-01"), pa.scalar(noon.date())], noon.date()),
        ("clock", [np.datetime64("2024-01-01T12", "ns"), pandas.Timestamp(noon)], noon),
        ("moment", [pandas.Timestamp(noon, tz="UTC")], noon.replace(tzinfo=UTC)),
    ]
    for column, said, value in same:
        expected = bind(Comparison(column, "=", value), SCHEMA)
        assert [bind(Comparison(column, "=", one), SCHEMA) for one in said] == [expected] * len(
            said
        )
    for null in (None, pandas.NaT, pandas.NA, np.datetime64("NaT"), pa.scalar(None)):
        assert bind(Comparison("clock", "=", null), SCHEMA) == Constant(False)


class Town(str, Enum):  # noqa: UP042  (which would print what it holds)
    """Texts that print as their names."""

    ULM = "Ulm"


def test_texts_of_an_enumeration_are_what_they_hold() -> None:
    text = col("text")
    for one, plain in (
        (text == Town.ULM, text == "Ulm"),
        (text.is_in([Town.ULM]), text.is_in(["Ulm"])),
        (text.starts_with(Town.ULM), text.starts_with("Ulm")),
    ):
        assert repr(bind(one, SCHEMA)) == repr(bind(plain, SCHEMA))


def test_empty_lists_and_nulls_among_the_values_are_as_in_spark() -> None:
    batch = pa.record_batch({"small": pa.array([1, 2, None], pa.int32())})

    def rows(one: Expression) -> list[bool]:
        return [bool(one) for one in matches(bind(one, SCHEMA), batch).to_pylist()]

    small = col("small")
    assert rows(small.is_in([])) == [False, False, False]
    assert rows(~small.is_in([])) == [True, True, True]
    assert rows(small.is_in([1, None])) == [True, False, False]
    assert rows(~small.is_in([1, None])) == [False, False, False]
    assert rows(~small.is_in([1])) == [False, True, False]
    assert rows(~(small == None)) == [False, False, False]  # noqa: E711
    assert rows(small < 10**30) == [True, True, False]
    assert rows(small != 1.5) == [True, True, False]


def _kinds_of_values() -> list[tuple[str, Callable[[int], Any]]]:
    """Columns of `SCHEMA`, and how numbers become values of theirs, not all of them different."""
    day = datetime(2024, 1, 1)
    return [
        ("small", lambda one: one),
        ("double", lambda one: float("nan") if one == 7 else one / 4),
        ("text", lambda one: f"k{one:05}"),
        ("flag", lambda one: one % 2 == 0),
        ("price", lambda one: Decimal(one).scaleb(-2)),
        ("clock", lambda one: day + timedelta(seconds=one)),
        ("moment", lambda one: (day + timedelta(seconds=one)).replace(tzinfo=UTC)),
        ("day", lambda one: day.date() + timedelta(days=one)),
    ]


@pytest.mark.parametrize(("column", "value"), _kinds_of_values(), ids=lambda one: str(one)[:6])
def test_long_lists_mean_what_short_ones_do(column: str, value: Callable[[int], Any]) -> None:
    asked = [value(one) for one in range(0, 6 * FEW_VALUES, 2)]
    kind = SCHEMA.field(column).type
    for numbers in ([7, 8, 9, None], [None], [], range(-5, 5), range(0, 12 * FEW_VALUES, 3)):
        held = pa.array([None if one is None else value(one) for one in numbers], kind)
        batch = pa.record_batch({column: held})
        short = np.zeros(len(held), bool)
        for some in range(0, len(asked), FEW_VALUES):
            part = bind(In(column, tuple(asked[some : some + FEW_VALUES])), SCHEMA)
            short |= np.array(matches(part, batch))
        assert matches(bind(In(column, tuple(asked)), SCHEMA), batch).to_pylist() == short.tolist()
        others = matches(bind(In(column, tuple(asked), negated=True), SCHEMA), batch)
        assert others.to_pylist() == (~short & np.array(held.is_valid(), bool)).tolist()


def test_values_that_a_column_may_have_are_asked_as_a_list() -> None:
    text, small = col("text"), col("small")
    either = (text == "a") | (small == 1) | (text == "b") | (small > 7) | (text == "a")
    assert bind(either, SCHEMA) == bind((small > 7) | text.is_in(["a", "b"]) | (small == 1), SCHEMA)
    assert bind((text == "a") | (text == "b"), SCHEMA) == In("text", ("a", "b"))
    assert bind(~((small != 1) & (small != 2)), SCHEMA) == In("small", (1, 2))
    batch = pa.record_batch({"small": pa.array([1, 7, 8, None], pa.int32())})
    found = matches(bind((small == 1) | (small == None) | (small == 8), SCHEMA), batch)  # noqa: E711
    assert found.to_pylist() == [True, False, True, False]


@given(st.data(), st.sampled_from([0, FEW_VALUES]))
def test_values_that_columns_may_have_together_are_asked_as_rows(
    data: st.DataObject, few_values: int
) -> None:
    few: dict[str, list[Any]] = {
        "small": [None, 1, 2, 3],
        "text": [None, "", "a", "b"],
        "double": [None, 0.0, -0.0, 1.5, NAN],
    }
    row = st.fixed_dictionaries({name: st.sampled_from(some) for name, some in few.items()})
    held = data.draw(st.lists(row, min_size=1, max_size=20))
    names = data.draw(st.lists(st.sampled_from([*few]), min_size=2, max_size=3, unique=True))
    wanted = data.draw(st.lists(row, min_size=2, max_size=6))
    terms = [And(tuple(Comparison(name, "=", one[name]) for name in names)) for one in wanted]
    asked: Expression = Or(tuple(terms))
    kinds = pa.schema([SCHEMA.field(name) for name in few])
    batch = pa.RecordBatch.from_pylist(held, schema=kinds)
    apart = np.zeros(len(held), bool)
    for term in terms:
        apart |= np.array(matches(bind(term, SCHEMA), batch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_dialect, "FEW_VALUES", few_values)
        assert matches(bind(asked, SCHEMA), batch).to_pylist() == apart.tolist()
    opposite = np.ones(len(held), bool)
    for term in terms:
        opposite &= np.array(matches(bind(~term, SCHEMA), batch))
    assert matches(bind(~asked, SCHEMA), batch).to_pylist() == opposite.tolist()


def test_of_many_rows_asked_for_a_batch_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, small = col("text"), col("small")
    pairs = [(text == f"k{one % 7}") & (small == one) for one in range(500)]
    asked = bind(Or((*pairs, small == -1)), SCHEMA)
    assert isinstance(asked, Or)
    assert [type(one) for one in asked.terms] == [InRows, Comparison]
    found, calls = matcher(asked), list[int]()
    index_in = pc.index_in
    monkeypatch.setattr(
        row_dialect.pc, "index_in", lambda *one, **more: calls.append(1) or index_in(*one, **more)
    )
    kinds = pa.schema([SCHEMA.field(name) for name in ("text", "small")])
    for start in range(0, 1000, 100):
        held = [{"text": f"k{one % 5}", "small": one} for one in range(start, start + 100)]
        told = found(pa.RecordBatch.from_pylist(held, schema=kinds)).to_pylist()
        assert told == [one % 5 == one % 7 and one < 500 for one in range(start, start + 100)]
    assert len(calls) < 60


def _sizes_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values Arrow will have made a hash table of, call by call."""
    asked: list[int] = []

    def counting(real: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
        def counted(held: pa.Array, value_set: pa.Array) -> pa.Array:
            asked.append(len(value_set))
            return real(held, value_set=value_set)

        return counted

    for name in ("index_in", "is_in"):
        monkeypatch.setattr(row_dialect.pc, name, counting(getattr(pc, name)))
    return asked


def test_of_a_long_list_each_batch_is_asked_only_for_what_may_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, asked = [], _sizes_asked(monkeypatch)
    literals = row_dialect.literals
    monkeypatch.setattr(row_dialect, "literals", lambda *one: made.append(1) or literals(*one))
    found = matcher(bind(In("text", tuple(f"k{one:06}" for one in range(20_000))), SCHEMA))
    for start in range(0, 20_000, 100):
        texts = [f"k{one:06}" for one in range(start, start + 100)]
        assert all(found(pa.record_batch({"text": texts})).to_pylist())
    spread = [f"k{one:06}" for one in range(0, 40_000, 400)]
    assert sum(found(pa.record_batch({"text": spread})).to_pylist()) == 50
    assert len(made) == 1
    assert max(asked) == 100


def test_of_many_rows_each_batch_is_asked_only_for_what_may_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, small = col("text"), col("small")
    pairs = [(text == f"k{one:06}") & (small == one // 2) for one in range(20_000)]
    found = matcher(bind(Or(tuple(pairs)), SCHEMA))
    kinds = pa.schema([SCHEMA.field(name) for name in ("text", "small")])

    def rows(numbers: range) -> list[bool]:
        held = [{"text": f"k{one:06}", "small": one // 2} for one in numbers]
        told: list[bool] = found(pa.RecordBatch.from_pylist(held, schema=kinds)).to_pylist()
        return told

    assert all(rows(range(100)))  # the lists are made by then
    asked = _sizes_asked(monkeypatch)
    for start in range(0, 20_000, 1000):
        assert all(rows(range(start, start + 100)))
    assert rows(range(0, 40_000, 400)) == [True] * 50 + [False] * 50
    assert max(asked) == 100


def test_any_nan_is_the_greatest_number_and_minus_zero_is_zero() -> None:
    odd = np.array([0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    held = pa.array([*odd, NAN, float("inf"), 1.0, 0.0, -0.0, -1.0, float("-inf"), None])
    ranks = sortable(held).to_pylist()
    assert ranks[0] == ranks[1] == ranks[2] > ranks[3] > ranks[4] > ranks[5] == ranks[6] > ranks[7]
    assert ranks[7] > ranks[8]
    assert ranks[9] is None


def test_numbers_beyond_all_doubles_lie_short_of_the_infinite_ones() -> None:
    held = [1.0, float("inf"), float("-inf"), NAN, None]
    batch = pa.record_batch({"double": pa.array(held, pa.float64())})
    double = col("double")

    def rows(one: Expression) -> list[bool]:
        return [bool(one) for one in matches(bind(one, SCHEMA), batch).to_pylist()]

    for huge in (10**400, 10**5000, Decimal("1E+400")):
        assert rows(double < huge) == [True, False, True, False, False]
        assert rows(double >= huge) == [False, True, False, True, False]
        assert rows(double > -huge) == [True, True, False, True, False]
        assert rows(double <= -huge) == [False, False, True, False, False]
        assert rows(double.is_in([huge, -huge])) == [False] * 5


def test_decimals_of_any_exponent_are_compared() -> None:
    held = {"small": [-1, 0, 1, None], "price": [Decimal(-1), Decimal(0), Decimal(1), None]}
    batch = pa.record_batch(held, schema=pa.schema([SCHEMA.field(name) for name in held]))

    def rows(one: Expression) -> list[bool]:
        return [bool(one) for one in matches(bind(one, SCHEMA), batch).to_pylist()]

    for column in map(col, held):
        for zero in (Decimal("0E+100"), Decimal("-0E+100"), Decimal(f"0E+{MAX_EMAX}")):
            assert rows(column == zero) == [False, True, False, False]
            assert rows(column > zero) == [False, False, True, False]
            assert rows(column.is_in([zero])) == [False, True, False, False]
        for huge in (Decimal("1E+100"), Decimal(f"1E+{MAX_EMAX}")):
            below = huge.copy_negate()
            assert rows(column < huge) == rows(column > below) == [True, True, True, False]
            assert rows(column == huge) == rows(column < below) == [False] * 4


def test_literals_just_beyond_all_decimals_of_many_digits_are_compared() -> None:
    ends = [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal("9" * 28 + "." + "9" * 10)]
    schema = pa.schema([("wide", pa.decimal128(38, 10))])
    batch = pa.record_batch({"wide": pa.array([*ends, None], schema.field("wide").type)})
    wide = col("wide")

    def rows(one: Expression) -> list[bool]:
        return [bool(one) for one in matches(bind(one, schema), batch).to_pylist()]

    for below in (-(10**28), Decimal("-1E+28"), Decimal(f"{ends[0]}5")):
        assert rows(wide > below) == rows(wide != below) == [True, True, False]
        assert rows(wide < below) == rows(wide == below) == rows(wide.is_in([below])) == [False] * 3
    for above in (10**28, Decimal("1E+28"), Decimal(f"{ends[1]}5")):
        assert rows(wide < above) == rows(wide != above) == [True, True, False]
        assert rows(wide > above) == rows(wide == above) == rows(wide.is_in([above])) == [False] * 3
    assert rows(wide == ends[0]) == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "literal", "expected"),
    [
        (pa.date32(), "2024-01-02", "datetime.date(2024, 1, 2)"),
        (pa.date32(), "2024-01-02T03:04", "date"),
        (pa.date32(), "soon", "date"),
        (pa.timestamp("us"), "2024-01-02", "datetime.datetime(2024, 1, 2, 0, 0)"),
        (pa.timestamp("us"), date(2024, 1, 2), "datetime.datetime(2024, 1, 2, 0, 0)"),
        (pa.timestamp("us"), "2024-01-02T03:04Z", "datetime without a zone"),
        (
            pa.timestamp("us", "UTC"),
            "2024-01-02 03:04",
            "datetime.datetime(2024, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)",
        ),
        (pa.int64(), "2024-01-02", "a number"),
    ],
)
def test_a_text_of_a_date_is_refused_with_the_date_to_write(
    kind: pa.DataType, literal: Any, expected: str
) -> None:
    with pytest.raises(metatable.UsageError, match="literal is not of the column's kind") as raised:
        bind(Comparison("day", "=", literal), pa.schema([("day", kind)]))
    assert raised.value.facts["expected"] == expected


@pytest.mark.parametrize(
    ("column", "literal"),
    [
        ("text", 10**5000),
        ("day", pa.scalar(10**7, pa.date32())),
        ("clock", pa.scalar(10**18, pa.timestamp("us"))),
    ],
    ids=["many digits", "a day of no year", "a moment of no year"],
)
def test_literals_that_python_has_no_text_of_are_refused_like_others(
    column: str, literal: Any
) -> None:
    with pytest.raises(metatable.UsageError, match="literal is not of the column's kind"):
        bind(Comparison(column, "=", literal), SCHEMA)
