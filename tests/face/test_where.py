"""Predicates: how they are said, what is refused, and what each rule of skipping proves."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import col
from metatable.cli import render
from metatable.data.keygen import KeyGenerator
from metatable.data.options import Options
from metatable.query.expressions import Comparison, Constant, Expression, In, parse_where
from metatable.query.predicates import bind, matches, sortable
from metatable.query.skipping import Bounds, may_hold, partition_bounds
from tests.face.every_kind import NAN, SCHEMA


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> metatable.Table:
    """Four days of thirty rows, ten a file; `x` counts up, and is never null."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("x", pa.float64())])
    table = metatable.create(
        str(tmp_path_factory.mktemp("skipping") / "days"),
        schema,
        key="id",
        partition_by="day",
        options={"file_rows": 10, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    for first in (0, 10, 20):
        numbers = [30 * day + first + number for day in range(4) for number in range(10)]
        days = [date(2024, 3, 1 + number // 30) for number in numbers]
        table.insert(pa.table([numbers, days, [float(one) for one in numbers]], schema=schema))
    return table


SECOND = date(2024, 3, 2)


def test_partition_columns_decide_before_any_statistics_are_read(days: metatable.Table) -> None:
    told = days.scan(where=[("day", "=", SECOND)]).explain()
    assert list(told.files.values()) == [12, 3, 3]
    told = days.scan(where=[("day", "=", SECOND), ("x", ">=", 50)]).explain()
    assert list(told.files.values()) == [12, 3, 1]
    told = days.scan(where=[("day", ">", date(2025, 1, 1)), ("x", ">=", 50)]).explain()
    assert list(told.files.values()) == [12, 0, 0]
    assert told.file_bytes == 0


def test_explain_of_a_scan_counts_and_opens_no_data_file(days: metatable.Table) -> None:
    fresh = metatable.open(days.uri)
    scan = fresh.scan(where=[("x", "<", 15)])
    told = scan.explain()
    assert "data.files_opened" not in told.counters
    assert told.to_dict()["files"] == {"all": 12, "after partitions": 12, "after statistics": 2}
    assert told.file_bytes == sum(one.size_bytes for one in scan.files())
    assert [line.split() for line in repr(told).splitlines()[:4]] == [
        ["scan"],
        ["files,", "all", "12"],
        ["files,", "after", "partitions", "12"],
        ["files,", "after", "statistics", "2", *render.size(told.file_bytes).split()],
    ]
    before = dict(fresh.counters)
    assert scan.to_arrow().num_rows == 15
    assert fresh.counters.since(before)["data.files_opened"] == 2


def test_files_and_scans_of_an_older_version_hold_what_it_held(days: metatable.Table) -> None:
    where = col("x") == 7
    before = days.files(where)
    days.upsert(pa.table({"id": [7], "day": [date(2024, 3, 1)], "x": [1000.0]}))
    try:
        assert days.scan(["id"], col("x") > 500).to_arrow().to_pylist() == [{"id": 7}]
        assert days.scan(where=where).count() == 0
        assert days.files(where, version=days.version - 1) == before
        assert days.scan(where=where, version=days.version - 1).count() == 1
    finally:
        days.rollback()


def test_a_condition_may_name_columns_that_are_not_asked_for(days: metatable.Table) -> None:
    found = days.scan(["_hoodie_partition_path", "id"], (col("x") > 58) & (col("x") < 61))
    assert found.to_arrow().to_pylist() == [
        {"_hoodie_partition_path": "day=2024-03-02", "id": 59},
        {"_hoodie_partition_path": "day=2024-03-03", "id": 60},
    ]
    [file] = days.files([("_hoodie_record_key", "=", "7")])
    assert file.partition_path == "day=2024-03-01"
    nothing = days.scan(["id"], col("x").is_null()).to_arrow()
    assert (nothing.num_rows, nothing.schema.names) == (0, ["id"])


def test_files_of_a_version_are_all_there_without_a_condition(days: metatable.Table) -> None:
    files = days.files()
    assert len(files) == 12
    assert files == sorted(files, key=lambda one: one.path)
    assert {one.partition_path for one in files} == {f"day=2024-03-0{n}" for n in (1, 2, 3, 4)}


def test_a_list_of_thousands_of_values_still_skips(days: metatable.Table) -> None:
    far = [number * 1000.5 for number in range(1, 5000)]
    assert days.files([("x", "in", far)]) == []
    assert len(days.files([("x", "in", [*far, 15.0])])) == 1
    assert len(days.files([("x", "not in", [*far, 15.0])])) == 12


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


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ([("nope", "=", 1)], "no such column: column='nope' expected="),
        ([("x", "=", "1")], "column='x' expected='a number' found=\"'1'\""),
        ([("x", "=", True)], "column='x' expected='a number' found='True'"),
        ([("day", "=", "2024-03-01")], "column='day' expected='date' found="),
        ([("day", "=", datetime(2024, 3, 1))], "column='day' expected='date'"),
        ([("id", "in", [1, "2"])], "column='id' expected='a number' found=\"'2'\""),
        ([("id", "in", 1)], "column='id' expected='a list of values'"),
        ([("x", "starts with", "1")], "column='x' expected='string or binary' found='double'"),
        ([("x", "like", "1")], "no such operator: column='x'"),
        ("x > 1", "not a predicate"),
        ([], "not a predicate"),
        ([[]], "not a predicate"),
        ([("x",)], "not a predicate"),
        ([[("x", "=", 1)], ("x", "=", 2)], "not a predicate"),
        (col(["a"]) == 1, "no such column: column=['a'] expected="),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_predicate_of_the_table_is_refused(
    days: metatable.Table, where: Any, told: str
) -> None:
    with pytest.raises(metatable.UsageError, match=re.escape(told)):
        days.scan(where=where)


def turned(times: int) -> Expression:
    made = col("id") == 1
    for _ in range(times):
        made = ~made
    return made


def mixed(times: int) -> Expression:
    made = col("id") == 1
    for _ in range(times):
        made = (made & (col("id") == 2)) | (col("id") == 3)
    return made


def test_conditions_may_be_long_but_not_deep(days: metatable.Table) -> None:
    for deep in (turned(3_000), turned(101), mixed(1_500)):
        for verb in (days.scan, days.files, days.cluster):
            with pytest.raises(metatable.UsageError, match="lie too deep in each other"):
                verb(where=deep)
    assert days.scan(where=turned(100)).count() == 1
    assert days.scan(where=mixed(50)).count() == 1
    chain = col("id") == 0
    for number in range(1, 3_000):
        chain = chain | (col("id") == number)
    assert days.scan(where=chain).to_arrow().num_rows == 120


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
    for column, given, value in same:
        expected = bind(Comparison(column, "=", value), SCHEMA)
        assert [bind(Comparison(column, "=", one), SCHEMA) for one in given] == [expected] * len(
            given
        )
    for null in (None, pandas.NaT, pandas.NA, np.datetime64("NaT"), pa.scalar(None)):
        assert bind(Comparison("clock", "=", null), SCHEMA) == Constant(False)


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


def test_any_nan_is_the_greatest_number_and_minus_zero_is_zero() -> None:
    odd = np.array([0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    held = pa.array([*odd, NAN, float("inf"), 1.0, 0.0, -0.0, -1.0, float("-inf"), None])
    ranks = sortable(held).to_pylist()
    assert ranks[0] == ranks[1] == ranks[2] > ranks[3] > ranks[4] > ranks[5] == ranks[6] > ranks[7]
    assert ranks[7] > ranks[8]
    assert ranks[9] is None


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
    rows = pa.table([range(len(values)), ["x"] * len(values), values], schema=schema)
    paths = KeyGenerator(options, schema).partition_paths(rows)
    found = partition_bounds(options, schema, paths)["part"]
    assert found.minimum.to_pylist() == found.maximum.to_pylist() == values
    assert found.null_count.to_pylist() == [int(one is None) for one in values]
    with pytest.raises(metatable.CorruptError, match="not a partition path"):
        partition_bounds(options, schema, pa.array(["x"]))


def test_the_default_partition_of_strings_holds_null_and_empty_ones() -> None:
    options = Options("t", key=("id",), partition_by=("city",))
    paths = pa.array(["city=__HIVE_DEFAULT_PARTITION__"])
    known = partition_bounds(options, SCHEMA, paths)
    city = col("city")
    for one in (city == "", city.is_null(), city.is_not_null(), city < "a"):
        assert may_hold(bind(one, SCHEMA), 1, known.get).all()
    assert not may_hold(bind(city == "a", SCHEMA), 1, known.get).any()
