"""`Scan.to_spark`: pruned paths for Spark's own reader, and the rows that the scan finds itself."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import col
from metatable.query import scan
from metatable.query.expressions import Expression
from metatable.query.predicates import bind, evaluate
from tests.every_kind import COLUMNS, NAN, made_rows
from tests.spark.settings import settings

LEFT_OUT = ("hour", "nothing", "list")
"""Spark 4.0 has no time of day."""
SCHEMA = pa.schema([(name, kind) for name, kind in COLUMNS.items() if name not in LEFT_OUT])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> metatable.Table:
    """Partitions of a text (null and empty among them) and a flag, under an awkward path."""
    uri = Path(tmp_path_factory.mktemp("scan")) / "a [table] of {mine} 100%"
    made = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by=["city", "flag"],
        options={"file_rows": 20, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    made.insert(made_rows(0, 200, random.Random(1)).select(SCHEMA.names))
    return made


def _conditions() -> list[Expression]:
    start = datetime(2024, 1, 3, tzinfo=UTC)
    naive = datetime(1970, 1, 5, 0, 0, 0, 500)
    return [
        col("city").is_in(["", "bärlin"]) & (col("day") <= datetime(2024, 2, 28).date()),
        (col("double") >= NAN) | (col("single") == 0.0) | (col("single") == 0.1),
        ~((col("double") > -0.0) | (col("flag") == True)),  # noqa: E712
        (col("price") > Decimal("-2.505")) & (col("wide") <= Decimal(-(10**32))),
        (col("moment") >= start) & (col("moment") < start + timedelta(hours=40)),
        (col("clock") != naive) & (col("clock") < naive + timedelta(days=1)),
        col("text").starts_with("k00") & ~col("raw").starts_with(b"\x01"),
        col("fixed").is_in([b"\x00\x20", b"\x00\x21", b"\x00"]) | (col("fixed") > b"\x00\x80\x00"),
        (col("big") > 10**16 * -250) & ~col("small").is_in([-210, -220, 2**40]),
        col("city").is_null() | col("flag").is_null(),
        col("small") > 2**35,
    ]


@pytest.mark.parametrize("number", range(len(_conditions())))
def test_spark_finds_the_rows_that_the_scan_finds(
    spark: Any, table: metatable.Table, number: int
) -> None:
    one = _conditions()[number]
    told = table.scan(["id", "double"], one)
    frame = told.to_spark(spark)
    assert frame.columns == ["id", "double"]
    ids = sorted(row.id for row in frame.collect())
    assert ids == sorted(told.to_arrow()["id"].to_pylist())
    paths = {path.rpartition("/")[2] for path in frame.inputFiles()}
    assert paths <= {file.name for file in told.files()}
    assert (len(ids) > 0) == (number < len(_conditions()) - 1)


def test_values_come_as_they_are_stored(spark: Any, table: metatable.Table) -> None:
    names = [name for name in SCHEMA.names if name != "moment"]
    scan = table.scan(["_hoodie_record_key", *names])
    told = scan.to_spark(spark).toArrow()
    expected = scan.to_arrow()
    assert told.num_rows == 200
    for name in ("_hoodie_record_key", "city", "day", "flag", "price", "clock", "fixed", "raw"):
        pairs = [
            sorted(
                zip(one["id"].to_pylist(), one[name].to_pylist(), strict=True), key=lambda x: x[0]
            )
            for one in (told, expected)
        ]
        assert pairs[0] == pairs[1], name


def test_no_files_make_an_empty_frame_with_the_columns(spark: Any, table: metatable.Table) -> None:
    scan = table.scan(["id", "moment"], col("day") > datetime(2030, 1, 1).date())
    assert scan.files() == []
    frame = scan.to_spark(spark)
    assert frame.dtypes == [("id", "bigint"), ("moment", "timestamp")]
    assert frame.count() == 0


def test_days_of_before_1582_are_those_that_were_written(spark: Any, tmp_path: Path) -> None:
    """Our files do not say that Spark wrote them: its sessions may take them for Julian days."""
    old = {"day": [date(1200, 1, 1)], "at": [datetime(1200, 1, 1, tzinfo=UTC)], "id": [1]}
    kinds = {"day": pa.date32(), "at": pa.timestamp("us", "UTC"), "id": pa.int64()}
    given = pa.table(old, schema=pa.schema(kinds))
    made = metatable.create(tmp_path / "old", given.schema, key="id")
    made.insert(given)
    with settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        found = made.scan(where=col("day") == date(1200, 1, 1)).to_spark(spark).toArrow()
    assert found.cast(given.schema).equals(given)


def test_a_file_that_is_gone_is_missed_whatever_the_session_ignores(
    spark: Any, tmp_path: Path
) -> None:
    given = pa.table({"id": [1], "v": [2]})
    made = metatable.create(tmp_path / "gone", given.schema, key="id")
    made.insert(given)
    ignored = {f"spark.sql.files.ignore{what}Files": "true" for what in ("Missing", "Corrupt")}
    with settings(spark, ignored):
        frame = made.scan().to_spark(spark)
        [file] = made.files()
        (tmp_path / "gone" / file.path).unlink()
        with pytest.raises(Exception, match=r"(?i)not.?exist"):
            frame.collect()


def test_a_long_chain_of_conditions_is_asked_of_spark(spark: Any, table: metatable.Table) -> None:
    """Spark goes down a condition by calls: of a thousand in each other its stack ends."""
    from metatable.spark.parquet import Conditions  # noqa: PLC0415

    any_of = col("id") == -1
    for number in range(0, 200, 2):
        any_of = any_of | (col("id") == number)
    depth = [0]
    for letter in str(evaluate(bind(any_of, SCHEMA), Conditions(SCHEMA))):
        depth.append(depth[-1] + {"(": 1, ")": -1}.get(letter, 0))
    assert max(depth) < 20
    told = table.scan(["id"], any_of).to_spark(spark)
    assert sorted(row.id for row in told.collect()) == list(range(0, 200, 2))


def test_a_limit_beyond_what_spark_counts_is_none(
    spark: Any, table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.scan(["id"], limit=10**12).to_spark(spark).count() == 200
    monkeypatch.setattr(scan, "MOST_OF_SPARK", 50)
    assert table.scan(["id"], limit=200).to_spark(spark).count() == 200
    with pytest.raises(metatable.UsageError, match="Spark knows no such limit"):
        table.scan(["id"], limit=51).to_spark(spark)


def test_a_condition_on_a_time_of_day_is_asked_of_the_workers(spark: Any, tmp_path: Path) -> None:
    clock = pa.time64("us")
    span = pa.struct([("to", pa.list_(clock))])
    schema = pa.schema([("id", pa.int64()), ("at", clock), ("span", span)])
    made = metatable.create(tmp_path / "times", schema, key="id")
    made.insert(pa.table([[1, 2], [time(9), time(15)], [{"to": [time(9)]}, None]], schema=schema))
    for where, ids in ((col("at") > time(12), [2]), (col("span").is_not_null(), [1])):
        rows = made.scan(["id"], where).to_spark(spark)
        assert rows.columns == ["id"]
        assert [row.id for row in rows.collect()] == ids
    for columns in (None, ["id", "span"]):
        with pytest.raises(metatable.UsageError, match="Spark has no such type"):
            made.scan(columns, col("id") == 1).to_spark(spark)


def test_binaries_of_a_fixed_size_are_read_wherever_they_lie(spark: Any, tmp_path: Path) -> None:
    fixed = pa.binary(3)
    held = {
        "id": (pa.int64(), [1, 2]),
        "s": (pa.struct([("a", fixed), ("b", pa.list_(fixed))]), [{"a": b"abc", "b": None}, None]),
        "l": (pa.list_(fixed), [[b"abc", None, b"\0\1\2"], []]),
        "m": (pa.map_(pa.string(), pa.struct([("f", fixed)])), [[("k", {"f": b"xyz"})], None]),
    }
    schema = pa.schema({name: kind for name, (kind, _) in held.items()})
    given = pa.table([values for _, values in held.values()], schema=schema)
    for kind in ("cow", "mor"):
        made = metatable.create(tmp_path / kind, schema, key="id", table_type=kind)
        made.insert(given)
        if kind == "mor":
            made.upsert(given.slice(1))
        found = made.scan().to_spark(spark).toArrow().sort_by("id")
        assert found.to_pylist() == given.to_pylist(), kind
        changed = made.changes(0).to_spark(spark).toArrow().sort_by("id")
        assert changed.drop_columns("_change_type").to_pylist() == given.to_pylist(), kind
