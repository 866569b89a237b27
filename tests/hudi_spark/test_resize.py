"""Hudi on Spark reads tables whose buckets were split and merged; to it that is a clustering."""

from __future__ import annotations

import pytest

from tests.hudi_spark.histories import rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.index.rows import RINGS
from tests.index.test_ring_buckets import made
from tests.model import Model, arrow


@pytest.mark.parametrize("engine", RINGS)
def test_hudi_reads_what_resizes_have_left(hudi: HudiOnSpark, table_uri: str, engine: str) -> None:
    table, model = made(table_uri, engine, 2), Model(is_global=False, ordering=True)

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed()
        assert table.verify().findings == ()

    first = table.insert(arrow(rows(0, 60))).instant
    model.upsert(rows(0, 60))
    before = model.listed()
    table.resize_buckets(split_above=1, merge_below=0)
    equal()
    assert first is not None
    assert as_rows(hudi.since(table_uri, first)) == []
    table.upsert(arrow(rows(50, 70, 1)))
    model.upsert(rows(50, 70, 1))
    equal()
    assert len(as_rows(hudi.since(table_uri, first))) == 20
    table.resize_buckets(merge_below=1 << 20)
    equal()
    assert len(as_rows(hudi.since(table_uri, first))) == 20
    assert as_rows(hudi.as_of(table_uri, first)) == before
    table.rollback()
    equal()
    table.resize_buckets(split_above=1, merge_below=0)
    equal()
    table.delete_partition({"city": "sf"})
    model.overwrite([], ["sf"])
    equal()
    table.clean(versions=1, hours=0)
    equal()
