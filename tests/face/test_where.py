"""Conditions of scans: which files they leave, which rows, and what is refused."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import col
from metatable.cli import render
from metatable.query.expressions import Expression


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


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ([("nope", "=", 1)], "no such column: column='nope' expected="),
        ([("x", "=", "1")], "column='x' expected='a number' found=\"'1'\""),
        ([("x", "=", True)], "column='x' expected='a number' found='True'"),
        ([("day", "=", "2024-03-01")], "column='day' expected='datetime.date(2024, 3, 1)' found="),
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
