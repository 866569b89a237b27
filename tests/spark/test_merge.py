"""A merge of a DataFrame leaves what a merge of the same rows leaves in process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from metatable import Table
from tests.every_kind import made_rows
from tests.spark.test_scan import SCHEMA as READ

SCHEMA = pa.schema([field for field in READ if field.name != "fixed"])
"""What Spark can write."""


def created(place: Path) -> Table:
    table = metatable.create(
        str(place),
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options={"file_rows": 20, "key_scope": "global"},
        storage_options={"durable": "false"},
    )
    table.insert(made_rows(0, 60, random.Random(1)).select(SCHEMA.names))
    return table


def test_a_merge_on_spark_is_one_in_process(spark: Any, tmp_path: Path) -> None:
    there, here = created(tmp_path / "spark"), created(tmp_path / "process")
    given = made_rows(40, 40, random.Random(2))
    for rows in (
        given.select(["id", "city", "text"]),  # some move, some are new
        given.slice(0, 30).select(["id", "big"]),  # where they are is read
    ):
        told, expected = there.merge(spark.createDataFrame(rows)), here.merge(rows)
        for name in ("inserted", "updated", "moved", "stale", "files"):
            assert getattr(told, name) == getattr(expected, name), name
    assert there.verify().findings == ()
    found, expected_rows = (one.scan().to_arrow().sort_by("id") for one in (there, here))
    for name in SCHEMA.names:
        assert _texts(found[name]) == _texts(expected_rows[name]), name


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Values in a form in which one that is not a number equals another."""
    return [repr(one) for one in column.to_pylist()]
