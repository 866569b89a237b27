"""Hudi on Spark and resizes beside writers: by dual write it reads every row at any time, by
virtual log those of before, until the resize is carried out."""

from __future__ import annotations

import pytest

from metatable.data.file_groups.children import DUAL_WRITE, WAYS
from tests.compaction.test_waiting_resize import MERGE, delete, filled, rows, upsert
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.model import read_by_hudi, scanned

SPLIT = {"split_above": 1, "merge_below": 0}


@pytest.mark.parametrize("way", WAYS)
def test_hudi_reads_while_a_resize_waits_and_after_it(
    hudi: HudiOnSpark, table_uri: str, way: str
) -> None:
    table, model = filled(table_uri, log_format="avro" if way == DUAL_WRITE else "parquet")

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)

    equal()
    plan = table.resize_buckets(**SPLIT, writers=way, schedule=True).plan
    equal()
    before = model.listed()
    upsert(table, model, rows(20, 70, 5))
    delete(table, model, rows(40, 44))
    if way == DUAL_WRITE:
        equal()
    else:
        assert as_rows(hudi.read(table_uri)) == before
        assert scanned(table) == model.listed()
    table.resize_buckets(plan=plan)
    equal()
    upsert(table, model, rows(60, 80, 6))
    equal()
    table.compact_logs(ratio=0)
    equal()
    assert read_by_hudi(table_uri) == model.listed()


def test_hudi_passes_over_copies_of_what_was_left_out(hudi: HudiOnSpark, table_uri: str) -> None:
    """Of a merge one bucket was written anew; and then a plan is taken back."""
    table, model = filled(table_uri, count=2)
    merge = {"split_above": MERGE.split_above, "merge_below": MERGE.merge_below}
    plan = table.resize_buckets(**merge, writers=DUAL_WRITE, schedule=True).plan
    upsert(table, model, rows(0, 60, 3))
    upsert(table, model, [{**one, "ts": None} for one in rows(61, 62, 4)])
    assert as_rows(hudi.read(table_uri)) == model.listed()
    table.resize_buckets(plan=plan)
    assert as_rows(hudi.read(table_uri)) == model.listed()
    plan = table.resize_buckets(**merge, writers=DUAL_WRITE, schedule=True).plan
    upsert(table, model, rows(0, 60, 5))
    table.resize_buckets(plan=plan, take_back=True)
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)
