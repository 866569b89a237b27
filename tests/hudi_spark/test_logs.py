"""Hudi on Spark reads merge-on-read tables of ours: every index, after every verb, then and now."""

from __future__ import annotations

import pytest

from tests.hudi_spark.histories import STEPS, Kind, history, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.model import Model, Row, arrow, scanned

KINDS = [Kind("record", "global"), Kind("metadata_bloom"), Kind("bloom", "global"), Kind("bucket")]


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_hudi_merges_as_we_do(
    hudi: HudiOnSpark, table_uri: str, kind: Kind, log_format: str
) -> None:
    table, model = kind.create(table_uri, table_type="mor", log_format=log_format), kind.model
    seen = {}
    for _ in history(table, model):
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))
        assert table.verify().findings == ()
        assert table.instant is not None
        seen[table.instant] = model.listed()
    assert table.describe().log_files > 0
    assert len(seen) == len(STEPS) - 1, "a rollback leaves the instant of the commit before"
    for instant, expected in seen.items():
        assert as_rows(hudi.as_of(table_uri, instant)) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_that_come_late_after_a_delete_are_there_for_hudi(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    table, model = kind.create(table_uri, table_type="mor"), kind.model

    def upsert(given: list[Row]) -> None:
        table.upsert(arrow(given))
        model.upsert(given)
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))

    upsert(rows(0, 40, 10))
    gone = rows(5, 15)
    table.delete(arrow(gone).select(["id", "city"]))
    model.delete(gone)
    upsert(rows(8, 12, 3))  # older than what was deleted
    upsert(rows(12, 30, 12))
    upsert([{**row, "ts": None} for row in rows(13, 15, 4)] + rows(40, 44, 1))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_that_come_upon_nulls_to_order_by_are_there_for_hudi(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    table, model = kind.create(table_uri, table_type="mor"), kind.model
    for given in ([{**row, "ts": None} for row in rows(0, 20)], rows(10, 30, 2), rows(12, 14, 3)):
        table.upsert(arrow(given))
        model.upsert(given)
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))


def test_partitions_that_were_overwritten_and_restored(hudi: HudiOnSpark, table_uri: str) -> None:
    kind = Kind("record", "global")
    table, model = kind.create(table_uri, table_type="mor"), Model(True, True)
    table.insert(arrow(rows(0, 60)))
    model.upsert(rows(0, 60))
    table.upsert(arrow(rows(10, 30, 1)))
    model.upsert(rows(10, 30, 1))
    version, before = table.version, model.listed()
    table.insert_overwrite(arrow(rows(10, 30, 2, "ny")[::2]))
    model.overwrite(rows(10, 30, 2, "ny")[::2])
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)
    table.restore(version)
    assert as_rows(hudi.read(table_uri)) == before == scanned(table)
    table.upsert(arrow(rows(0, 20, 5)))
    model.rollback()
    model.upsert(rows(0, 20, 5))
    table.clean(versions=1, hours=0)
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)
