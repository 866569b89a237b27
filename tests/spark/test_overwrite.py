"""Overwrites and bulk inserts of a DataFrame leave what those of the same rows leave in process."""

from __future__ import annotations

from typing import Any

import pytest

from metatable import UsageError, col
from tests.face.test_bulk_insert import made_rows
from tests.face.test_overwrite import created, few
from tests.long import LONG
from tests.model import Model, arrow, check


def test_partitions_are_overwritten_on_spark_as_in_process(spark: Any, table_uri: str) -> None:
    table, model = created(table_uri, "record", "global"), Model(True, False)
    before = few(1, *range(8)) + few(1, *range(8, 12), city="sf")
    table.insert(arrow(before))
    model.upsert(before)
    rows = few(2, 5, 6, 20)
    told = table.insert_overwrite(spark.createDataFrame(arrow(rows)))
    model.overwrite(rows)
    assert (told.inserted, told.updated, told.deleted) == (1, 2, 6)
    check(table, model, before)
    found = {row["id"]: row["v"] for row in table.scan().to_spark(spark).collect()}
    assert found == {row["id"]: row["v"] for row in model.rows.values()}
    if not LONG:
        return
    with pytest.raises(UsageError, match=r"other partitions.*k08"):
        table.insert_overwrite(spark.createDataFrame(arrow(few(3, 5, 8))))
    nothing = spark.createDataFrame(arrow(rows)).where("false")
    assert table.insert_overwrite(nothing, by="table").deleted == 7
    assert table.scan().count() == 0
    assert table.scan().to_spark(spark).collect() == []
    assert table.verify().findings == ()


def test_a_bulk_insert_on_spark_sorts_over_the_whole_batch(spark: Any, table_uri: str) -> None:
    table, model = created(table_uri, "record", "global"), Model(True, False)
    rows = made_rows(160)
    given = spark.createDataFrame(arrow(rows)).repartition(4)
    told = table.bulk_insert(given, sort_by="ts")
    model.upsert(rows)
    assert told.inserted == 160
    assert told.files >= 20
    for least in (1000, 1050, 1140):
        within = (col("city") == "ny") & (col("ts") >= least) & (col("ts") < least + 5)
        assert len(table.files(where=within)) in (1, 2)
    check(table, model, rows[::20])
