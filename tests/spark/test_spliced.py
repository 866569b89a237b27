"""Spliced Parquet files, read by Spark: with its vectorised reader and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.parquet.files import (
    OPTIONS,
    OTHERS,
    ROWS,
    after_ten_upserts,
    with_all,
    with_columns,
    written,
)

CONDITIONS = ["id = 233", "city = 'bärlin' and not flag", "point.x > 230 or price is null"]


@pytest.fixture(params=[True, False], ids=["vectorised", "row by row"])
def reader(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    name = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(name)
    spark.conf.set(name, str(request.param).lower())
    yield spark.read
    spark.conf.set(name, before)


def judged(
    reader: Any, folder: Path, raw: bytes, rows: pa.Table, conditions: Sequence[str] = ("true",)
) -> None:
    """Spark finds in the file what it finds in one that was written anew, in the same order.

    But for a time of day, which it cannot have.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    schema = from_arrow_schema(rows.drop("hour").schema, prefer_timestamp_ntz=True)
    (folder / "ours.parquet").write_bytes(raw)
    (folder / "plain.parquet").write_bytes(written(rows))
    for condition in conditions:
        ours, plain = (
            reader.schema(schema).parquet(str(folder / name)).where(condition).collect()
            for name in ("ours.parquet", "plain.parquet")
        )
        assert str(ours) == str(plain)
        assert ours


@pytest.mark.parametrize("written_as", OPTIONS)
def test_after_ten_upserts_over_each_other_spark_finds_the_rows(
    tmp_path: Path, reader: Any, written_as: str
) -> None:
    judged(reader, tmp_path, *after_ten_upserts(written_as))


@pytest.mark.parametrize("fresh", ["as ours", "page index", "dictionary falls back"])
def test_spark_finds_rows_where_some_columns_alone_have_a_page_index(
    tmp_path: Path, reader: Any, fresh: str
) -> None:
    new = OTHERS.select(["city", "price", "list", "point"])
    raw = with_columns(written(ROWS, **OPTIONS["page index"]), new, **OPTIONS[fresh])
    judged(reader, tmp_path, raw, with_all(ROWS, new), CONDITIONS)
    raw = with_columns(written(ROWS, **OPTIONS[fresh]), new, **OPTIONS["page index"])
    judged(reader, tmp_path, raw, with_all(ROWS, new), CONDITIONS)
