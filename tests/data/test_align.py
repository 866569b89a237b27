"""Given columns become the table's, or an error that names one."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal, localcontext
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metatable
from metatable.data.columns.schema import align, normal
from metatable.storage.errors import UsageError

GAP = pd.Series([1, None])
DAY = pd.to_datetime(pd.Series(["2024-01-01"]))


def one(values: list[Any], given_type: pa.DataType, kind: pa.DataType) -> pa.Array:
    """A column aligned, and the same column aligned as a slice out of the middle."""
    schema = pa.schema([("a", kind)])
    column = pa.array(values, given_type)
    whole = align(pa.RecordBatch.from_arrays([column], ["a"]), schema)
    padded = pa.array([values[0], *values, values[0]], given_type).slice(1, len(values))
    part = align(pa.RecordBatch.from_arrays([padded], ["a"]), schema)
    assert part.equals(whole)
    whole.validate(full=True)
    assert whole.schema == schema
    return whole.column(0)


@pytest.mark.parametrize(
    ("values", "given_type", "kind"),
    [
        ([1, None], pa.int8(), pa.int32()),
        ([1], pa.uint32(), pa.int64()),
        ([1], pa.int32(), pa.float64()),
        ([1.5, None], pa.float32(), pa.float64()),
        ([Decimal("1.5")], pa.decimal128(3, 1), pa.decimal128(9, 4)),
        ([Decimal("-99999999.99"), None], pa.decimal128(38, 2), pa.decimal128(10, 2)),
        ([Decimal("99999999.9")], pa.decimal256(76, 1), pa.decimal128(10, 2)),
        ([Decimal(0)], pa.decimal128(38, 0), pa.decimal128(2, 2)),
        ([Decimal("1.5")], pa.decimal64(18, 1), pa.decimal128(3, 2)),
        ([-(2**63), 2**63 - 1, None], pa.decimal128(38, 0), pa.int64()),
        ([-(2**31), 2**31 - 1], pa.decimal256(76, 0), pa.int32()),
        ([[Decimal(1), None], None], pa.list_(pa.decimal128(38, 0)), pa.list_(pa.int32())),
        (["x", None], pa.large_string(), pa.string()),
        (["x", None], pa.string_view(), pa.string()),
        (["x", "x", None], pa.dictionary(pa.int32(), pa.string()), pa.string()),
        ([b"x"], pa.large_binary(), pa.binary()),
        ([b"xy"], pa.binary(2), pa.binary()),
        ([b"xy", None], pa.binary(), pa.binary(2)),
        ([b"xy", None], pa.large_binary(), pa.binary(2)),
        ([b"xy", None], pa.binary_view(), pa.binary(2)),
        ([[b"xy", None], None], pa.list_(pa.binary()), pa.list_(pa.binary(2))),
        ([date(2024, 1, 1)], pa.date64(), pa.date32()),
        ([datetime(2024, 1, 1)], pa.timestamp("s"), pa.timestamp("us")),
        ([datetime(2024, 1, 1)], pa.timestamp("ns"), pa.timestamp("us")),
        ([datetime(2024, 1, 1)], pa.timestamp("us"), pa.timestamp("ms")),
        ([time(1, 2)], pa.time64("us"), pa.time32("ms")),
        ([None, None], pa.null(), pa.decimal128(5, 2)),
        ([[1, None], None, []], pa.large_list(pa.int8()), pa.list_(pa.int32())),
        ([[1, 2], None], pa.list_(pa.int32(), 2), pa.list_(pa.int64())),
        ([[1, None], None, []], pa.list_view(pa.int8()), pa.list_(pa.int32())),
        ([[1, None], None, []], pa.large_list_view(pa.int8()), pa.list_(pa.int32())),
        ([{"x": 1}, None], pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int64())])),
        (
            [[("k", 1)], None, []],
            pa.map_(pa.large_string(), pa.int8()),
            pa.map_(pa.string(), pa.int32()),
        ),
    ],
)
def test_safe_widening_keeps_every_value(
    values: list[Any], given_type: pa.DataType, kind: pa.DataType
) -> None:
    assert one(values, given_type, kind).to_pylist() == values


@pytest.mark.parametrize(
    ("given_type", "kind"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.uint32(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.binary(3), pa.binary(4)),
        (pa.bool_(), pa.int32()),
        (pa.decimal128(9, 4), pa.decimal128(9, 3)),
        (pa.decimal128(9, 2), pa.int64()),
        (pa.decimal128(9, 0), pa.float64()),
        (pa.int64(), pa.decimal128(19, 0)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.string(), pa.list_(pa.string())),
        (pa.list_(pa.string()), pa.string()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_other_types_are_refused_before_a_value_is_seen(
    given_type: pa.DataType, kind: pa.DataType
) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([], given_type)], ["a"])
    with pytest.raises(UsageError, match="another type than the table's: column='a"):
        align(rows, pa.schema([("a", kind)]))


@pytest.mark.parametrize(
    ("series", "kind", "way", "done"),
    [
        (GAP, pa.int64(), '.astype("Int64")', GAP.astype("Int64")),
        (GAP, pa.int32(), '.astype("Int32")', GAP.astype("Int32")),
        (DAY, pa.date32(), ".dt.date", DAY.dt.date),
        (
            DAY,
            pa.timestamp("us", "UTC"),
            '.dt.tz_localize("UTC")',
            DAY.dt.tz_localize("UTC"),
        ),
    ],
)
def test_what_pandas_has_no_type_for_is_refused_with_the_way(
    series: Any, kind: pa.DataType, way: str, done: Any
) -> None:
    def aligned(one: Any) -> pa.RecordBatch:
        return align(pa.RecordBatch.from_pandas(one.to_frame("a")), pa.schema([("a", kind)]))

    with pytest.raises(UsageError, match="another type than the table's: column='a'") as raised:
        aligned(series)
    assert raised.value.facts["in_pandas"] == way
    assert aligned(done).num_rows == len(series)


def test_zones_keep_the_instant() -> None:
    values = [datetime(2024, 1, 1).astimezone()]
    found = one(values, pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "UTC"))
    assert found.to_pylist() == values


@pytest.mark.parametrize(
    ("value", "given_type", "kind"),
    [
        (1001, pa.timestamp("ns"), pa.timestamp("us")),
        (1001, pa.timestamp("us"), pa.timestamp("ms")),
        (1001, pa.time64("us"), pa.time32("ms")),
        (2**60, pa.timestamp("s"), pa.timestamp("us")),
        (1001, pa.time64("ns"), pa.time64("us")),
    ],
)
def test_times_that_would_change_are_refused(
    value: int, given_type: pa.DataType, kind: pa.DataType
) -> None:
    with pytest.raises(UsageError, match=r"another type.*column='a'"):
        one([value], given_type, kind)


@pytest.mark.parametrize(
    ("value", "given_type", "kind"),
    [
        ("100000000.00", pa.decimal128(38, 2), pa.decimal128(10, 2)),
        ("-100000000", pa.decimal128(38, 0), pa.decimal128(10, 2)),
        ("1", pa.decimal128(38, 0), pa.decimal128(2, 2)),
        ("4", pa.decimal128(38, 0), pa.decimal128(38, 38)),
        ("-7", pa.decimal256(76, 0), pa.decimal128(38, 38)),
        ("9223372036854775808", pa.decimal128(38, 0), pa.int64()),
        ("18446744073709551617", pa.decimal128(38, 0), pa.int64()),
        ("-2147483649", pa.decimal128(38, 0), pa.int32()),
        ("1" + "0" * 60, pa.decimal256(76, 0), pa.int64()),
        ("1" + "0" * 60, pa.decimal256(76, 0), pa.decimal128(38, 10)),
    ],
)
def test_decimals_that_do_not_fit_are_refused(
    value: str, given_type: pa.DataType, kind: pa.DataType
) -> None:
    for values in ([Decimal(value)], [None, Decimal(1), Decimal(value)]):
        with pytest.raises(UsageError, match=r"another type.*column='a'"):
            one(values, given_type, kind)


def test_decimals_of_polars_and_sums_of_duckdb_are_taken(table_uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    table = metatable.create(table_uri, schema, key="id", storage_options={"durable": "false"})
    table.insert(pl.DataFrame({"id": [1], "price": [Decimal("1.50")]}))
    told = "select sum(x) as id, 2.25::decimal(38, 2) as price from (values (2), (3)) t(x)"
    table.upsert(duckdb.sql(told))
    assert table.scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 5],
        "price": [Decimal("1.50"), Decimal("2.25")],
    }


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(1, 38), st.data())
def test_decimals_become_shorter_ones_or_are_refused(
    number: int, precision: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, precision))
    given_scale = data.draw(st.integers(0, scale))
    number = number // 10 ** data.draw(st.integers(0, 37))
    with localcontext(prec=100):
        value = Decimal(number).scaleb(-given_scale)
        fits = abs(value.scaleb(scale)) < 10**precision
    try:
        found = one([value], pa.decimal128(38, given_scale), pa.decimal128(precision, scale))
    except UsageError:
        assert not fits
    else:
        assert (fits, found.to_pylist()) == (True, [value])


@pytest.mark.parametrize("given_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_binaries_of_another_size_are_refused(given_type: pa.DataType) -> None:
    kind = pa.binary(2)
    with pytest.raises(UsageError) as refused:
        align(
            pa.RecordBatch.from_arrays([pa.array([b"xy", None, b"x", b""], given_type)], ["a"]),
            pa.schema([("a", kind)]),
        )
    what = "binary has another size than the table's"
    assert str(refused.value) == f"{what}: column='a' row=2 expected='2 bytes' found='1 bytes'"


SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("a", pa.string()), ("b", pa.int32())]
)


def test_columns_come_in_the_order_of_the_table_and_missing_ones_are_null() -> None:
    rows = pa.RecordBatch.from_pydict({"b": pa.array([1, 2], pa.int32()), "id": [3, 4]})
    found = align(rows, SCHEMA)
    assert found.schema == SCHEMA
    assert found.to_pydict() == {"id": [3, 4], "a": [None, None], "b": [1, 2]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["x"]}, "column is missing: column='id'"),
        ({"id": [None]}, "must not be null: column='id' found='1 nulls'"),
        ({"id": [1], "z": [1]}, "not in the table: column='z' expected=.'id', 'a', 'b'."),
        ({"id": [1], "b": [1]}, "another type.*column='b' expected='int32' found='int64'"),
    ],
)
def test_an_error_names_the_column(columns: dict[str, Any], message: str) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(UsageError, match=message):
        align(rows, SCHEMA)


def test_a_column_given_twice_is_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    with pytest.raises(UsageError, match="given twice: column='id'"):
        align(rows, SCHEMA)


INNER = pa.schema(
    [
        (
            "s",
            pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.string())]),
        )
    ]
)


def test_nested_columns_follow_the_same_rules() -> None:
    kind = pa.struct([("x", pa.int32())])
    rows = pa.RecordBatch.from_arrays([pa.array([{"x": 1}, None], kind)], ["s"])
    assert align(rows, INNER).to_pydict() == {"s": [{"x": 1, "y": None}, None]}
    for bad, message in (
        ({"x": 1, "z": 2}, "not in the table: column='s.z'"),
        ({"y": "a"}, "missing: column='s.x'"),
        ({"x": None}, "must not be null|another type.*column='s.x'"),
    ):
        with pytest.raises(UsageError, match=message):
            align(pa.RecordBatch.from_pylist([{"s": bad}]), INNER)


def test_a_null_where_the_struct_itself_is_not_null_is_refused() -> None:
    kind = pa.struct([("x", pa.int32())])
    rows = pa.RecordBatch.from_arrays([pa.array([None, {"x": None}], kind)], ["s"])
    with pytest.raises(UsageError, match=r"must not be null: column='s\.x'"):
        align(rows, INNER)


def wrapped(made: pa.Array, within: str) -> pa.Array:
    """The rows' structs, one in each list or map of `within`."""
    offsets = pa.array(range(len(made) + 1), pa.int32())
    if within == "map":
        return pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(made)), made)
    return pa.ListArray.from_arrays(offsets, made) if within == "list" else made


@pytest.mark.parametrize(("within", "path"), [("", "a"), ("list", "a.element"), ("map", "a.value")])
def test_a_field_given_twice_is_refused_like_a_column(within: str, path: str) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    kinds = {"": INNER.field("s").type, "list": pa.list_(INNER.field("s").type)}
    kinds["map"] = pa.map_(pa.string(), INNER.field("s").type)
    rows = pa.RecordBatch.from_arrays([wrapped(twice, within)], ["a"])
    with pytest.raises(UsageError, match=rf"given twice: column='{path}\.x'"):
        align(rows, pa.schema([("a", kinds[within])]))


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.lists(st.integers(0, 9))), min_size=1))
def test_lists_of_lists_are_kept(values: list[Any]) -> None:
    given_type = pa.large_list(pa.list_(pa.int16()))
    kind = normal(pa.schema([("a", given_type)])).field("a").type
    assert one(values, given_type, kind).to_pylist() == values


VIEWS = [(pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())]


def views(made_by: Any, offset: pa.DataType) -> pa.Array:
    """Out of order, overlapping, one of them null above values: [5, 6], null, [], [1], [2, 5]."""
    offsets, sizes = pa.array([3, 0, 2, 0, 2], offset), pa.array([2, 3, 0, 1, 2], offset)
    values = pa.array([1, 9, 2, 5, 6, 9], pa.int8())
    null = pa.array([False, True, False, False, False])
    return made_by.from_arrays(offsets, sizes, values, mask=null)


@pytest.mark.parametrize(("made_by", "offset"), VIEWS)
@pytest.mark.parametrize("first", range(6))
def test_views_of_lists_keep_the_values_of_each_row(
    made_by: Any, offset: pa.DataType, first: int
) -> None:
    held = views(made_by, offset).slice(first)
    inside = pa.StructArray.from_arrays([held], ["x"], mask=held.is_null())
    kind = pa.list_(pa.field("element", pa.int32()))
    schema = pa.schema([("a", kind), ("s", pa.struct([("x", kind)]))])
    found = align(pa.RecordBatch.from_arrays([held, inside], ["a", "s"]), schema)
    found.validate(full=True)
    expected = [[5, 6], None, [], [1], [2, 5]][first:]
    assert found["a"].to_pylist() == expected
    assert found["s"].to_pylist() == [one if one is None else {"x": one} for one in expected]


def test_more_values_than_offsets_of_a_table_reach_are_refused() -> None:
    places, sizes = pa.array([0] * 4, pa.int64()), pa.array([1 << 29] * 4, pa.int64())
    held = pa.LargeListViewArray.from_arrays(places, sizes, pa.nulls(1 << 29))
    with pytest.raises(UsageError, match=r"too many values: column='a' .*found=2147483648"):
        align(pa.RecordBatch.from_arrays([held], ["a"]), pa.schema([("a", pa.list_(pa.int32()))]))


def _not_utf8(values: list[bytes | None]) -> pa.Array:
    """A string column as a careless program makes one."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2])


def test_text_that_is_not_utf8_is_refused_with_its_column_and_row() -> None:
    bad = _not_utf8([b"fine", b"\xc3\xbc", b"", b"\xff\xfe", b"\xc3"])
    rows = pa.RecordBatch.from_arrays([bad], ["a"])
    for given_rows, row in ((rows, 3), (rows.slice(2), 1), (rows.slice(4), 0)):
        with pytest.raises(UsageError, match=f"not UTF-8: column='a' row={row}"):
            align(given_rows, pa.schema([("a", pa.string())]))
    assert align(rows.slice(0, 3), pa.schema([("a", pa.string())])).num_rows == 3
    nested = pa.ListArray.from_arrays(pa.array([0, 3, 5], pa.int32()), bad)
    field = pa.field("a", pa.list_(pa.field("element", pa.string())))
    with pytest.raises(UsageError, match="not UTF-8: column='a' row=1"):
        align(pa.RecordBatch.from_arrays([nested], ["a"]), pa.schema([field]))


def _made(kind: pa.DataType, units: str) -> pa.Array:
    """Moments of this kind of column: what is far, what is near, and null."""
    far = {"s": 1 << 60, "n": 1, "-": None}
    one = {
        "list": lambda value: [0, value],
        "struct": lambda value: {"at": value},
        "map": lambda value: [("x", value)],
    }
    form = next((one[name] for name in one if str(kind).startswith(name)), lambda value: value)
    return pa.array([form(far[unit]) for unit in units], kind)


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("form", ["plain", "list", "struct", "map"])
def test_moments_that_microseconds_do_not_reach_are_refused(form: str, zone: str | None) -> None:
    at = pa.timestamp("ms", zone)
    kinds = {
        "plain": at,
        "list": pa.list_(pa.field("element", at)),
        "struct": pa.struct([("at", at)]),
        "map": pa.map_(pa.string(), at),
    }
    rows = pa.RecordBatch.from_arrays([_made(kinds[form], "nn-snsn")], ["a"])
    for given_rows, row in ((rows, 3), (rows.slice(2), 1), (rows.slice(4), 1)):
        with pytest.raises(UsageError, match=f"microseconds reach: column='a' row={row}"):
            align(given_rows, rows.schema)
    assert align(rows.slice(0, 3), rows.schema) == rows.slice(0, 3)


def test_what_lies_below_a_null_may_be_any_moment() -> None:
    raw = pa.array([1 << 60, 5], pa.int64()).view(pa.timestamp("ms"))
    inner = pa.StructArray.from_arrays([raw], ["at"], mask=pa.array([True, False]))
    rows = pa.RecordBatch.from_arrays([inner], ["a"])
    assert align(rows, rows.schema).to_pylist()[0] == {"a": None}


DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@pytest.mark.parametrize("unit", DAY)
def test_times_beyond_a_day_are_refused_with_their_row(unit: str) -> None:
    plain = pa.int32() if unit in ("s", "ms") else pa.int64()
    kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    schema = pa.schema([("a", pa.time64("us"))])
    for wrong in (DAY[unit], -1000):
        times = pa.array([0, None, DAY[unit] - 1000, wrong], plain).view(kind)
        rows = pa.RecordBatch.from_arrays([times], ["a"])
        with pytest.raises(UsageError, match="time is not within a day: column='a' row=3"):
            align(rows, schema)
        assert align(rows.slice(0, 3), schema).num_rows == 3


def test_times_within_a_column_are_looked_at_and_those_below_nulls_are_not() -> None:
    times = pa.array([5, DAY["us"], 7], pa.int64()).view(pa.time64("us"))
    field = pa.field("element", pa.time64("us"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), times, pa.list_(field))
    rows = pa.RecordBatch.from_arrays([lists], ["a"])
    with pytest.raises(UsageError, match="time is not within a day: column='a' row=1"):
        align(rows, rows.schema)
    for mask in ([False, True, False], [True, False, True]):
        structs = pa.StructArray.from_arrays([times], ["at"], mask=pa.array(mask))
        rows = pa.RecordBatch.from_arrays([structs], ["a"])
        if mask[1]:
            assert align(rows, rows.schema).to_pylist()[1] == {"a": None}
        else:
            with pytest.raises(UsageError, match="time is not within a day: column='a' row=1"):
                align(rows, rows.schema)
