"""Spliced Parquet files, read by Spark: with its vectorised reader and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metatable.data.base_files import base_file_writer, exchanged_columns
from tests.face.test_exchanged import PAGE_ROWS, file_of, make, rows
from tests.long import one_in
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


@pytest.mark.each_once
@pytest.mark.parametrize("written_as", one_in(3, [*OPTIONS]))
def test_after_ten_upserts_over_each_other_spark_finds_the_rows(
    tmp_path: Path, reader: Any, written_as: str
) -> None:
    judged(reader, tmp_path, *after_ten_upserts(written_as))


@pytest.mark.each_once
@pytest.mark.parametrize("fresh", ["as ours", "page index", "dictionary falls back"])
def test_spark_finds_rows_where_some_columns_alone_have_a_page_index(
    tmp_path: Path, reader: Any, fresh: str
) -> None:
    new = OTHERS.select(["city", "price", "list", "point"])
    raw = with_columns(written(ROWS, **OPTIONS["page index"]), new, **OPTIONS[fresh])
    judged(reader, tmp_path, raw, with_all(ROWS, new), one_in(2, CONDITIONS))
    raw = with_columns(written(ROWS, **OPTIONS[fresh]), new, **OPTIONS["page index"])
    judged(reader, tmp_path, raw, with_all(ROWS, new), one_in(2, CONDITIONS, 1))


def test_spark_finds_rows_of_exchanged_pages(
    tmp_path: Path, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(exchanged_columns, "PAGE_ROWS", PAGE_ROWS)
    made: list[Any] = []
    exchanged = exchanged_columns.exchanged

    def spy(*given: Any) -> Any:
        found = exchanged(*given)
        made.extend(found)
        return found

    monkeypatch.setattr(exchanged_columns, "exchanged", spy)
    table = make(str(tmp_path))
    for seed in range(1, 4):
        table.upsert(rows([7 * seed, 50 + seed], seed))
    assert sum(one is not None for one in made) > 20
    expected = pa.Table.from_batches(table.scan().to_batches()).sort_by("id")
    found = reader.parquet(str(file_of(table))).select(*expected.column_names).sort("id")
    at = expected.schema.get_field_index("at")
    held = [tuple(one.values()) for one in expected.to_pylist()]
    seen = [tuple(one) for one in found.collect()]
    assert [one[:at] + one[at + 1 :] for one in seen] == [one[:at] + one[at + 1 :] for one in held]
    times = [(one[0], one[at]) for one in held]
    assert times == [(one[0], one[at]) for one in seen]
    [n] = expected.slice(51, 1)["n"].to_pylist()
    assert [one.id for one in found.where(f"n = {n}").collect()] == ["k00051"]
