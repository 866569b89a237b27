"""The texts of values."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.keys.value_texts import text
from metatable.storage.errors import UsageError

MOMENT = datetime(2024, 3, 1, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, False], pa.bool_(), ["true", "false"]),
        ([-128, 7], pa.int8(), ["-128", "7"]),
        ([2**63 - 1, -(2**63)], pa.int64(), ["9223372036854775807", "-9223372036854775808"]),
        (["ä", "x,y:z"], pa.string(), ["ä", "x,y:z"]),
        (["ä"], pa.large_string(), ["ä"]),
        (["ä"], pa.string_view(), ["ä"]),
        (["ä", "b"], pa.dictionary(pa.int8(), pa.string()), ["ä", "b"]),
        ([date(2024, 3, 1), date(1, 1, 1)], pa.date32(), ["2024-03-01", "0001-01-01"]),
        ([date(2024, 3, 1)], pa.date64(), ["2024-03-01"]),
        ([MOMENT], pa.timestamp("us"), ["1709254923000004"]),
        ([MOMENT], pa.timestamp("us", "America/New_York"), ["1709254923000004"]),
        ([datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("ms"), ["-1000000"]),
        ([MOMENT], pa.timestamp("ns"), ["1709254923000004"]),
        ([b"\x00\xffa", b""], pa.binary(), ["00ff61", ""]),
        ([b"\x00\xff"], pa.binary(2), ["00ff"]),
        ([b"\x0a"], pa.large_binary(), ["0a"]),
        ([Decimal("12.50"), Decimal("-0.05")], pa.decimal128(5, 2), ["12.50", "-0.05"]),
        ([Decimal("1E-10")], pa.decimal128(38, 10), ["0.0000000001"]),
        ([Decimal(-7)], pa.decimal128(3, 0), ["-7"]),
    ],
)
def test_each_type_has_its_own_text(
    values: list[Any], kind: pa.DataType, expected: list[str]
) -> None:
    if pa.types.is_timestamp(kind) and kind.tz:
        values = [value.replace(tzinfo=UTC) for value in values]
    column = pa.array([values[0], None, *values], kind)
    assert text(column).to_pylist() == [expected[0], None, *expected]
    assert text(column.slice(1)).to_pylist() == [None, *expected]
    assert text(column).type == pa.string()


@settings(deadline=None)
@given(st.integers(0, 20), st.lists(st.integers(-(10**20) + 1, 10**20 - 1)))
def test_decimals_are_plain_with_every_digit_of_their_scale(
    scale: int, unscaled: list[int]
) -> None:
    with decimal.localcontext(prec=60):
        values = [Decimal(number).scaleb(-scale) for number in unscaled]
    column = pa.array([None, *values], pa.decimal128(38, scale)).slice(1)
    assert text(column).to_pylist() == [f"{value:.{scale}f}" for value in values]


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9)), st.integers(0, 3))
def test_hex_is_that_of_python(values: list[bytes | None], start: int) -> None:
    found = text(pa.array(values, pa.binary()).slice(start)).to_pylist()
    assert found == [None if value is None else value.hex() for value in values[start:]]


@settings(deadline=None)
@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_zones_do_not_change_the_text_of_an_instant(moment: datetime) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(hours=5)))
    column = pa.array([zoned], pa.timestamp("us", "Asia/Kolkata"))
    expected = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert text(column).to_pylist() == [str(expected)]


def test_nanoseconds_between_microseconds_are_refused() -> None:
    column = pa.array([1001], pa.timestamp("ns"))
    with pytest.raises(UsageError, match="not a whole number of microseconds: column='a'"):
        text(column, "a")
