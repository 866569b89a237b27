"""Buckets are split and merged on Spark as in process, and its rows go where the rings say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.index.rows import RINGS
from tests.index.test_buckets import rows
from tests.index.test_ring_buckets import made
from tests.model import Model, arrow, check


@pytest.mark.in_turn("engine")
@pytest.mark.parametrize("engine", RINGS)
def test_buckets_are_resized_and_written_on_spark(spark: Any, table_uri: str, engine: str) -> None:
    table, model = made(table_uri, engine, 2), Model(is_global=False, ordering=True)
    table.insert(arrow(rows(0, 60)))
    model.upsert(rows(0, 60))
    done = table.resize_buckets(split_above=1, merge_below=0, engine=spark)
    assert (done.files_before, done.files_after, done.entries) == (4, 8, 60)
    check(table, model, rows(0, 70))
    given = rows(40, 80, 1)
    table.upsert(spark.createDataFrame(arrow(given)))
    model.upsert(given)
    plan = table.resize_buckets(schedule=True).plan
    table.resize_buckets(plan=plan, engine=spark)
    check(table, model, rows(0, 90))
