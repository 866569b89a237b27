"""Hudi on Spark reads tables of which whole partitions were replaced, or went."""

from __future__ import annotations

import pytest

from tests.hudi_spark.histories import Kind, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.model import arrow

KINDS = [Kind("record", "global"), Kind("metadata_bloom"), Kind("bloom"), Kind("bucket")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_hudi_reads_what_overwrites_have_left(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    table, model = kind.create(table_uri), kind.model

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed()
        assert table.verify().findings == ()

    table.bulk_insert(arrow(rows(0, 60)), sort_by=() if kind.index == "bucket" else "ts")
    model.upsert(rows(0, 60))
    equal()
    table.insert_overwrite(arrow(rows(10, 30, 1, "ny")[::2]))
    model.overwrite(rows(10, 30, 1, "ny")[::2])
    equal()
    table.upsert(arrow(rows(12, 20, 2)))
    model.upsert(rows(12, 20, 2))
    equal()
    table.delete_partition({"city": "sf"})
    model.overwrite([], ["sf"])
    equal()
    table.insert(arrow(rows(101, 140, 3, "sf")[::2]))
    model.upsert(rows(101, 140, 3, "sf")[::2])
    equal()
    done = table.insert_overwrite(arrow(rows(0, 6, 4)), by="table")
    table.rollback(done.instant)
    equal()
    table.insert_overwrite(arrow(rows(0, 6, 4)), by="table")
    model.overwrite(rows(0, 6, 4), ["ny", "sf"])
    equal()
    table.clean(versions=1, hours=0)
    equal()
