"""Which columns of a file that Spark wrote may hold days of the calendar of before."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.columns.old_calendar import by_old_calendar
from metatable.storage.parquet.fields import Column, Footer, Group, Meta
from tests.storage.parquet.files import footer_of, with_footer

INT64 = 2


def test_bounds_of_another_type_than_the_schema_s_prove_nothing(tmp_path: Path) -> None:
    """By them pyarrow would end the process."""
    path = tmp_path / "f.parquet"
    days = pa.table({"day": pa.array([date(2026, 1, 1)], pa.date32())})
    with pq.ParquetWriter(path, days.schema) as writer:
        writer.write_table(days)
        writer.add_key_value_metadata({"org.apache.spark.legacyDateTime": ""})
    assert by_old_calendar(pq.read_metadata(path)) is None
    raw = path.read_bytes()
    footer = footer_of(raw)
    footer[Footer.GROUPS][0][Group.COLUMNS][0][Column.META][Meta.TYPE] = INT64
    path.write_bytes(with_footer(raw, footer))
    assert by_old_calendar(pq.read_metadata(path)) == "day"
