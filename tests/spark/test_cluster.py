"""Files are cut by columns on Spark as in process."""

from __future__ import annotations

from typing import Any

from tests.compaction.test_cluster import rows
from tests.face.test_cluster_by import made
from tests.model import arrow, check


def test_files_are_cut_and_cut_anew_on_spark(spark: Any, table_uri: str) -> None:
    table, model = made(table_uri, "ts", "v", options={"small_file_bytes": 0})
    table.insert(spark.createDataFrame(arrow(rows())))
    model.upsert(rows())
    files = len(table.files())
    assert files >= 5
    assert max(table.describe().depths.values()) < files * 0.8
    done = table.cluster(by="v", engine=spark)
    assert done.depth_after == {"v": 1.0}
    assert done.entries == len(rows())
    check(table, model, rows()[::20])
