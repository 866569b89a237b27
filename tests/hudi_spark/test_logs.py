"""Hudi on Spark reads merge-on-read tables of ours: every index, after every verb, then and now."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import metatable
from metatable import WidenColumn, opening
from tests.hudi_spark.histories import FAST, STEPS, Kind, history, rows
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


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_a_table_with_logs_whose_columns_were_widened_is_read(
    hudi: HudiOnSpark, table_uri: str, log_format: str
) -> None:
    """0.15.0 takes a block's decimals, and integers in Parquet, for those of the table: groups with
    logs are written anew beside the change."""
    old = pa.schema([("id", pa.string()), ("n", pa.int32()), ("d", pa.decimal128(9, 2))])
    options = {"log_format": log_format}
    table = metatable.create(
        table_uri, old, key="id", table_type="mor", options=options, storage_options=FAST
    )
    for ids in (["a", "b"], ["b"]):
        values = [{"id": one, "n": 7, "d": Decimal("1.25")} for one in ids]
        table.upsert(pa.Table.from_pylist(values, schema=old))
    table.alter(WidenColumn("n", pa.int64()), WidenColumn("d", pa.decimal128(12, 2)))
    expected = table.scan().to_arrow().sort_by("id").to_pylist()
    found = hudi.read(table_uri).select(old.names).sort_by("id")
    assert found.to_pylist() == expected


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("before", [False, True], ids=["new", "widened"])
def test_rows_are_ordered_by_moments_given_in_milliseconds(
    hudi: HudiOnSpark,
    table_uri: str,
    log_format: str,
    before: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a table in which they are kept as such, as all once were, 0.15.0 shows rows of base files
    in place of those of logs, at moments of far away."""
    kind, widened = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
    within = {"seen": kind, "s": pa.struct([("at", kind)]), "l": pa.list_(kind)}
    schema = pa.schema({"id": pa.string(), "city": pa.string(), "at": kind, **within})
    words = {"key": "id", "partition_by": "city", "ordering": "at", "table_type": "mor"}
    with monkeypatch.context() as patch:
        if before:
            patch.setattr(opening, "_ordered", lambda schema, options: schema)
        options = {"log_format": log_format}
        table = metatable.create(table_uri, schema, options=options, storage_options=FAST, **words)
    assert table.schema.field("at").type == (kind if before else widened)

    def upsert(day: int, *ids: str) -> None:
        at = datetime(2024, 1, day, tzinfo=UTC)
        row = {"at": at, "seen": at, "s": {"at": at}, "l": [at]}
        given = [{"id": one, "city": one[0], **row} for one in ids]
        table.upsert(pa.Table.from_pylist(given, schema))

    def ours() -> list[Row]:
        found: list[Row] = table.scan().to_arrow().sort_by("id").to_pylist()
        return found

    def theirs() -> list[Row]:
        found: list[Row] = hudi.read(table_uri).select(schema.names).sort_by("id").to_pylist()
        return found

    upsert(2, "a1", "a2", "b1")
    upsert(3, "a1")
    upsert(1, "a2")
    if before:
        if hudi.is_old:
            with pytest.raises(OverflowError):
                theirs()
        else:
            assert theirs() == ours()
        assert table.alter(WidenColumn("at", widened)).files == 1
    assert theirs() == ours()
    upsert(4, "a2", "b1")
    assert theirs() == ours()
    assert [row["at"].day for row in ours()] == [3, 4, 4]
