"""`Changes.to_spark` gives the rows that the process finds itself, of every kind of column."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from tests.every_kind import made_rows
from tests.model import SCHEMA as PLAIN
from tests.model import Row, arrow
from tests.spark.test_scan import SCHEMA


def test_changes_on_spark_are_those_in_process(spark: Any, tmp_path: Path) -> None:
    table = metatable.create(
        str(tmp_path / "a table"),
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options={"file_rows": 20, "key_scope": "global"},
        storage_options={"durable": "false"},
    )
    table.insert(made_rows(0, 60, random.Random(1)).select(SCHEMA.names))
    seen = table.version
    again = made_rows(40, 40, random.Random(2)).select(SCHEMA.names)  # some move to another city
    table.upsert(again)
    table.delete(made_rows(0, 10, random.Random(1)).select(["id"]))
    changes = table.changes(since=seen)
    frame = changes.to_spark(spark)
    assert frame.columns == changes.schema.names
    found, expected = (one.sort_by("id") for one in (frame.toArrow(), changes.to_arrow()))
    assert found["_change_type"].value_counts().to_pylist() == [
        {"values": "delete", "counts": 10},
        {"values": "update", "counts": 20},
        {"values": "insert", "counts": 20},
    ]
    for name in changes.schema.names:
        as_found = expected[name].cast(found[name].type)
        assert _texts(found[name]) == _texts(as_found), name


def test_on_spark_too_rows_that_only_lie_elsewhere_have_not_changed(
    spark: Any, tmp_path: Path
) -> None:
    options = {"file_rows": 20, "small_file_bytes": 0, "key_scope": "global"}
    table = metatable.create(
        str(tmp_path / "t"), PLAIN, key="id", partition_by="city", index="record", options=options
    )
    for start in range(3):  # which overlap in v
        table.insert(arrow([row(number) for number in range(start, 120, 3)]))
    table.insert(arrow([row(900, "sf")]))
    seen = table.version
    assert table.cluster(by="v").files_before
    assert table.changes(seen).to_spark(spark).toArrow().num_rows == 0
    table.upsert(arrow([row(3), row(4, "la"), row(5, "sf")]))
    table.delete(arrow([row(6)]))
    table.insert(arrow([row(901)]))
    found = table.changes(seen).to_spark(spark).toArrow().sort_by("id")
    assert found.equals(table.changes(seen).to_arrow().sort_by("id").cast(found.schema))
    kinds = ["update", "update", "update", "delete", "insert"]
    assert found["_change_type"].to_pylist() == kinds


def row(number: int, city: str = "ny") -> Row:
    return {"id": f"k{number:03}", "city": city, "v": number, "ts": 0}


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Values in a form in which one that is not a number equals another."""
    return [repr(one) for one in column.to_pylist()]
