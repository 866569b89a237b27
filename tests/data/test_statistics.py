"""Bounds that never exclude a value that is there."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.base_files import statistics
from metatable.data.base_files.statistics import BOUND_LENGTH, ColumnStats


def of(values: list[Any], kind: pa.DataType, name: str = "a") -> ColumnStats:
    [found] = statistics.of_table(pa.table({name: pa.array(values, kind)}), [name])
    return found


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, None, -1], pa.int32(), -1, 3),
        ([True, False], pa.bool_(), False, True),
        (["b", "Z", "ä"], pa.string(), "Z", "ä"),
        ([b"\x80", b"\x7f"], pa.binary(), b"\x7f", b"\x80"),
        ([b"bb", b"ba"], pa.binary(2), b"ba", b"bb"),
        ([Decimal("1.5"), Decimal("-2")], pa.decimal128(9, 2), Decimal("-2"), Decimal("1.5")),
        ([date(2024, 1, 1)], pa.date32(), date(2024, 1, 1), date(2024, 1, 1)),
        ([time(1), time(2)], pa.time64("us"), time(1), time(2)),
        ([datetime(2024, 1, 1)], pa.timestamp("us"), datetime(2024, 1, 1), datetime(2024, 1, 1)),
        ([1.5, -math.inf], pa.float64(), -math.inf, 1.5),
        ([None, None], pa.int64(), None, None),
        ([], pa.string(), None, None),
        ([[1]], pa.list_(pa.int32()), None, None),
        ([{"x": 1}, None], pa.struct([("x", pa.int32())]), None, None),
    ],
)
def test_bounds_are_values_of_the_natural_kind(
    values: list[Any], kind: pa.DataType, low: Any, high: Any
) -> None:
    found = of(values, kind)
    assert (found.minimum, found.maximum) == (low, high)
    assert type(found.minimum) is type(low)
    assert (found.column, found.type) == ("a", kind)
    assert (found.value_count, found.null_count) == (len(values), values.count(None))


def test_zoned_timestamps_are_zoned() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    found = of([moment], pa.timestamp("us", "UTC"))
    assert found.minimum == moment
    assert found.minimum.tzinfo is not None


@pytest.mark.parametrize(
    ("values", "low"),
    [([math.nan, 1.5, -1.0], -1.0), ([math.nan], None), ([None, math.nan, math.inf], math.inf)],
)
def test_nan_is_the_greatest_and_no_bound(values: list[float | None], low: float | None) -> None:
    for kind in (pa.float32(), pa.float64()):
        found = of(values, kind)
        assert (found.minimum, found.maximum) == (low, None)


def test_years_that_python_lacks_have_no_bound() -> None:
    column = pa.array([10**7], pa.int32()).cast(pa.date32())
    [found] = statistics.of_table(pa.table({"a": column}), ["a"])
    assert (found.minimum, found.maximum) == (None, None)


@pytest.mark.parametrize("wrong", [-1, 86_400_000_000])
def test_times_beyond_a_day_which_python_lacks_are_no_bounds(wrong: int) -> None:
    raw = pa.array([36_000_000_000, wrong, None], pa.int64())
    [found] = statistics.of_table(pa.table({"a": raw.view(pa.time64("us"))}), ["a"])
    low, high = (time(10), None) if wrong > 0 else (None, time(10))
    assert (found.minimum, found.maximum) == (low, high)


TEXT = st.text(st.sampled_from("a\U0010ffff퟿￿é"), max_size=BOUND_LENGTH + 3)


@settings(deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_text_bounds_are_short_and_hold_every_value(values: list[str]) -> None:
    found = of(values, pa.string())
    low, high = found.minimum, found.maximum
    assert len(low) <= BOUND_LENGTH
    assert low.encode() <= min(value.encode() for value in values)
    if high is not None:
        assert len(high) <= BOUND_LENGTH
        assert high.encode() >= max(value.encode() for value in values)
    else:
        assert max(values).startswith("\U0010ffff" * BOUND_LENGTH)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([b"a", b"\xff", b"\x00"]), max_size=BOUND_LENGTH + 3).map(
            b"".join
        ),
        min_size=1,
        max_size=5,
    )
)
def test_binary_bounds_are_short_and_hold_every_value(values: list[bytes]) -> None:
    found = of(values, pa.binary())
    assert found.minimum <= min(values)
    if found.maximum is not None:
        assert len(found.maximum) <= BOUND_LENGTH
        assert found.maximum >= max(values)
    else:
        assert max(values)[:BOUND_LENGTH] == b"\xff" * BOUND_LENGTH


def test_binaries_of_a_fixed_size_have_bounds_of_it_or_none() -> None:
    for size in (BOUND_LENGTH, BOUND_LENGTH + 1):
        values = [b"\1" * size, b"\2" * size]
        table = pa.table({"a": pa.array([*values, None], pa.binary(size))})
        [whole], [[first], [last]] = (
            statistics.of_table(table, ["a"]),
            statistics.of_parts(table, ["a"], [0, 1, 3]),
        )
        told = [(one.minimum, one.maximum) for one in (whole, first, last)]
        if size > BOUND_LENGTH:
            assert told == [(None, None)] * 3
        else:
            assert told == [tuple(values), (values[0],) * 2, (values[1],) * 2]
        assert (whole.null_count, whole.value_count) == (1, 3)


@pytest.mark.parametrize(
    ("longest", "raised"),
    [
        ("x" * 65, "x" * 63 + "y"),
        ("x" * 63 + "\ud7ff" + "x", "x" * 63 + "\ue000"),
        ("x" * 62 + "a\U0010ffff" + "x", "x" * 62 + "b"),
        ("\U0010ffff" * 65, None),
        ("x" * 64, "x" * 64),
    ],
)
def test_a_cut_maximum_is_the_least_that_is_not_below(longest: str, raised: str | None) -> None:
    assert of([longest], pa.string()).maximum == raised


def test_record_keys_are_never_cut() -> None:
    key = "k" * 1000
    found = of([key], pa.string(), "_hoodie_record_key")
    assert (found.minimum, found.maximum) == (key, key)


def test_columns_come_in_the_order_asked_for() -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    assert [one.column for one in statistics.of_table(table, ["c", "a"])] == ["c", "a"]
