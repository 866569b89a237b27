"""Logs are compacted on Spark as in process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compaction.test_log_compaction import (
    RENAMED,
    check,
    compacted_under_other_names,
    filled,
    rows,
    slices,
    upsert,
)
from tests.spark.elsewhere import index_built_elsewhere


@pytest.mark.in_turn("kind")
@pytest.mark.parametrize("kind", ["record", "metadata_bloom"])
def test_logs_are_compacted_on_spark(spark: Any, table_uri: str, kind: str) -> None:
    table, model = filled(table_uri, kind)
    plan = table.compact_logs(ratio=0, schedule=True).plan
    upsert(table, model, rows(10, 40, 5))
    with index_built_elsewhere():
        done = table.compact_logs(plan=plan, engine=spark)
    assert (done.files_before, done.files_after, done.entries) == (6, 2, 27)
    assert {one.instant for one in slices(table)} >= {plan}
    check(table, model)
    assert table.compact_logs(ratio=0, engine=spark).files_after > 0
    assert not any(one.logs for one in slices(table))
    check(table, model)


@pytest.mark.parametrize("how", RENAMED)
def test_spark_reads_what_was_compacted_under_other_names_on_the_way_back(
    spark: Any, table_uri: str, how: str
) -> None:
    table, was = compacted_under_other_names(table_uri, how)
    assert table.scan().to_spark(spark).toArrow().sort_by("id").to_pylist() == was
