"""A table that Hudi on Spark has made is ours from there, and Hudi goes on reading it."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import UpgradeError
from tests.hudi_spark.histories import FAST, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.writing import writer_options
from tests.model import Model, arrow, scanned

BULK = "bulk_insert"


def test_its_ordering_column_decides_for_us_too(hudi: HudiOnSpark, table_uri: str) -> None:
    """1.x calls it otherwise than 0.15.0, also in a table of version 6."""
    model = Model(is_global=False, ordering=True)
    for given in (rows(0, 30, 5), rows(20, 40, 6)):
        hudi.write(arrow(given), table_uri, writer_options("t", ("id",), ("city",)))
        model.upsert(given)
    table = metatable.adopt(table_uri, storage_options=FAST)
    assert table.options.ordering == "ts"
    assert scanned(table) == model.listed()
    for given in (rows(0, 10, 3), rows(25, 45, 7)):
        assert table.upsert(arrow(given)).stale == model.upsert(given).stale
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))
    assert table.verify().findings == ()


@pytest.mark.parametrize(
    "payload", ["DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload"]
)
def test_rows_that_are_older_than_stored_ones_do_as_they_do_for_hudi(
    hudi: HudiOnSpark, table_uri: str, payload: str
) -> None:
    """0.15.0 does not tell the payload of a copy-on-write table: older rows are stale for us, and
    not for its writers, unless the properties are told what they go by."""
    named = f"org.apache.hudi.common.model.{payload}"
    options = writer_options("t", ("id",), ("city",)) | {
        "hoodie.datasource.write.payload.class": named
    }
    hudi.write(arrow(rows(0, 30, 5)), table_uri, options)
    copy = f"{table_uri}-copy"
    shutil.copytree(table_uri, copy)
    if hudi.is_old:
        path = Path(copy, ".hoodie/hoodie.properties")
        path.write_text(f"{path.read_text()}hoodie.compaction.payload.class={named}\n")
        path.with_name(".hoodie.properties.crc").unlink()  # Hadoop's checksum of what was there
    table = metatable.adopt(copy, storage_options=FAST)
    for given in (rows(10, 40, 3), rows(0, 15, 9)):
        table.upsert(arrow(given))
        hudi.write(arrow(given), table_uri, options)
        assert scanned(table) == as_rows(hudi.read(table_uri)) == as_rows(hudi.read(copy))
    assert table.options.ordering == ("ts" if payload[0] == "D" else None)
    assert table.verify().findings == ()


def test_days_by_the_calendar_of_spark_2_are_refused(hudi: HudiOnSpark, table_uri: str) -> None:
    """Hudi's row writer takes the calendar of the session, and tells it in the footer."""
    days = pa.array([date(1582, 10, 4), date(2024, 3, 1)])
    given = arrow(rows(0, 2)).append_column("day", days)
    options = writer_options("t", ("id",), ("city",), hoodie__datasource__write__operation=BULK)
    for calendar in ("CORRECTED", "LEGACY"):
        uri = f"{table_uri}-{calendar}"
        mode = "spark.sql.parquet.datetimeRebaseMode"
        with hudi.settings({f"{mode}InRead": "CORRECTED", f"{mode}InWrite": calendar}):
            hudi.write(given, uri, options)
        if calendar == "LEGACY":
            with pytest.raises(UpgradeError, match=r"calendar of Spark 2.*column='day'"):
                metatable.adopt(uri, storage_options=FAST)
        else:
            table = metatable.adopt(uri, storage_options=FAST)
            assert table.scan().to_arrow().sort_by("id")["day"].combine_chunks().equals(days)
