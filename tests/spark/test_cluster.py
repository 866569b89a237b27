"""Files are cut by columns on Spark as in process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compaction.test_cluster import rows
from tests.face.test_cluster_by import made
from tests.long import LONG
from tests.model import arrow, check
from tests.spark.elsewhere import index_built_elsewhere


@pytest.mark.skipif(not LONG, reason="its stages are many and small: with METATABLE_LONG=1")
def test_files_are_cut_and_cut_anew_on_spark(spark: Any, table_uri: str) -> None:
    table, model = made(table_uri, "ts", "v", options={"small_file_bytes": 0})
    table.insert(spark.createDataFrame(arrow(rows())))
    model.upsert(rows())
    files = len(table.files())
    assert files >= 5
    assert max(table.describe().depths.values()) < files * 0.8
    with index_built_elsewhere():
        done = table.cluster(by="id", engine=spark)
    assert (done.files_before, done.depth_after) == (files, {"id": 1.0})
    assert table.cluster(engine=spark).entries == done.entries == len(rows())
    check(table, model, rows()[::20])


def test_files_of_which_all_rows_are_deleted_go(spark: Any, table_uri: str) -> None:
    given = rows()[:80]
    options = {"file_rows": 40, "small_file_bytes": 0, "table_type": "mor"}
    table, model = made(table_uri, options=options)
    for part in (given[::2], given[1::2]):
        table.insert(arrow(part))
    table.delete(arrow(given))
    assert len(table.files()) == 2
    with index_built_elsewhere():
        done = table.cluster(by="id", engine=spark)
    assert (done.files_before, done.files_after, table.files()) == (2, 0, [])
    check(table, model, given[::20])
