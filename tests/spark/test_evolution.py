"""Changed columns on Spark: its own reader where names tell, our workers where ids do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from metatable import AddColumn, DropColumn, RenameColumn, Table, WidenColumn, col

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int32(),
        "m": pa.int32(),
        "f": pa.float32(),
        "d": pa.decimal128(6, 2),
        "t": pa.timestamp("ms", "UTC"),
        "b": pa.binary(2),
        "s": pa.struct([("x", pa.int32()), ("y", pa.string())]),
        "l": pa.list_(pa.struct([("q", pa.int32())])),
    }
)


def rows(low: int, high: int) -> pa.Table:
    made = [
        {
            "id": n,
            "n": n,
            "m": -n,
            "f": n / 10,
            "d": Decimal(n) / 4,
            "t": n * 1001,
            "b": bytes([n, 255]),
            "s": {"x": n, "y": str(n)},
            "l": [{"q": n}],
        }
        for n in range(low, high)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def create(uri: Path, **options: Any) -> Table:
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        options={"small_file_bytes": 0, **options},
        storage_options={"durable": "false"},
    )
    table.insert(rows(0, 4))
    return table


def found_by_spark(spark: Any, table: Table, **asked: Any) -> list[dict[str, Any]]:
    scan = table.scan(**asked)
    by_spark = scan.to_spark(spark).toArrow().cast(scan.schema).sort_by("id")
    assert by_spark.to_pylist() == scan.to_arrow().sort_by("id").to_pylist()
    return list(by_spark.to_pylist())


def test_spark_finds_the_rows_after_every_change(spark: Any, tmp_path: Path) -> None:
    table = create(tmp_path / "table", hudi_readable=False)
    table.alter(
        WidenColumn("n", pa.int64()),
        WidenColumn("m", pa.float64()),
        WidenColumn("f", pa.float64()),
        WidenColumn("d", pa.decimal128(12, 4)),
        WidenColumn("t", pa.timestamp("us", "UTC")),
        WidenColumn("b", pa.binary()),
        WidenColumn("s.x", pa.int64()),
        WidenColumn("l.element.q", pa.int64()),
        AddColumn("l.element.w", pa.string()),
        AddColumn("s.z", pa.string(), after=""),
        AddColumn("new", pa.string()),
    )
    table.insert(rows(4, 6))
    assert len(found_by_spark(spark, table)) == 6
    table.alter(RenameColumn("n", "o"), DropColumn("m"), AddColumn("m", pa.string()))
    assert [one["o"] for one in found_by_spark(spark, table, where=col("o") > 2)] == [3, 4, 5]


def test_spark_does_not_take_a_new_column_for_one_of_another_case(
    spark: Any, tmp_path: Path
) -> None:
    for is_readable in (True, False):
        table = create(tmp_path / str(is_readable), hudi_readable=is_readable)
        table.alter(DropColumn("m"), DropColumn("s.x"))
        table.alter(AddColumn("M", pa.int32()), AddColumn("s.X", pa.string()))
        assert [one["M"] for one in found_by_spark(spark, table)] == [None] * 4
        assert found_by_spark(spark, table, where=col("M") < 0) == []


def test_a_session_that_makes_nulls_of_structs_finds_them(spark: Any, tmp_path: Path) -> None:
    """Of files that have none of the fields that are asked for: by Spark's own reader of before
    4.1, which a setting brings back."""
    table = create(tmp_path / "table")
    table.alter(AddColumn("s.z", pa.string()), DropColumn("s.x"), DropColumn("s.y"))
    setting = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
    for told in ("false", "true"):
        spark.conf.set(setting, told)
        try:
            found = found_by_spark(spark, table)
            assert [one["s"] for one in found] == [{"z": None}] * 4
            assert len(found_by_spark(spark, table, where=~col("s").is_null())) == 4
        finally:
            spark.conf.unset(setting)


def test_a_dataframe_brings_new_columns_along(spark: Any, tmp_path: Path) -> None:
    table = create(tmp_path / "table", hudi_readable=False)
    table.alter(RenameColumn("m", "n2"), DropColumn("b"))
    rows = spark.createDataFrame([(1, 7, "new"), (9, 8, "newer")], "id bigint, n2 int, word string")
    assert table.upsert(rows, evolve=True).updated == 1
    found = table.scan().to_arrow().to_pylist()
    told = {one["id"]: (one["n2"], one["word"]) for one in found}
    assert told == {0: (0, None), 1: (7, "new"), 2: (-2, None), 3: (-3, None), 9: (8, "newer")}
    assert table.verify().findings == ()


def test_files_are_written_anew_by_the_workers(spark: Any, tmp_path: Path) -> None:
    table = create(tmp_path / "table")
    table.insert(rows(4, 6))
    before = table.scan().to_arrow().sort_by("id")
    done = table.alter(RenameColumn("n", "o"), engine=spark)
    assert (done.files, done.engine) == (2, "spark")
    after = table.scan().to_arrow().sort_by("id")
    assert after.rename_columns(before.column_names).equals(before)
    assert table.verify().findings == ()


def test_what_spark_leaves_out_by_older_types_has_no_row_asked_for(
    spark: Any, tmp_path: Path
) -> None:
    """It takes a literal for one of the file's type, which may have no room for it."""
    kinds = {"id": pa.int64(), "price": pa.decimal128(6, 2), "t": pa.timestamp("ms", "UTC")}
    noon, price = datetime(2024, 1, 1, 12, tzinfo=UTC), Decimal("1.25")
    schema = pa.schema(kinds)
    table = metatable.create(tmp_path / "table", schema, key="id")
    table.insert(pa.table([[1], [price], [noon]], schema=schema))
    table.alter(
        WidenColumn("price", pa.decimal128(12, 2)), WidenColumn("t", pa.timestamp("us", "UTC"))
    )
    more, later = Decimal("100000.00"), noon + timedelta(microseconds=500)
    for where in (
        (col("price") < more) & (col("price") <= more),
        (col("price") != more) & ~col("price").is_in([more, more + 1]),
        (col("price") > -more) & (col("price") >= -more),
        col("price").is_in([price, more]) & ~col("price").is_null(),
        (col("t") < later) & (col("t") <= later) & (col("t") <= noon),
        (col("t") != later) & (col("t") > noon - timedelta(microseconds=1)),
        ~col("t").is_in([later]) & (col("t") < noon + timedelta(milliseconds=1)),
        ~col("t").is_in([later, later + timedelta(hours=1)]) & (col("t") == noon),
        col("t").is_in([later, noon]) & (col("t") >= noon),
    ):
        [found] = found_by_spark(spark, table, where=where)
        assert found == {"id": 1, "price": price, "t": noon}, where
