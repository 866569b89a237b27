"""A DataFrame of few rows: handled in this process, and evaluated once wherever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metatable.engine.local import LocalEngine
from metatable.metadata.manifest import load_newest
from metatable.metadata.snapshot import Snapshot
from metatable.spark.engine import SparkEngine
from metatable.storage.store import Store
from metatable.write import few_rows
from metatable.write.few_rows import nearest
from tests.index.rows import make, rows
from tests.spark.telling import telling


@pytest.mark.parametrize(("rewritten_bytes", "engine"), [(1 << 20, "local"), (0, "spark")])
def test_few_rows_are_written_here_unless_much_is_made_anew(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewritten_bytes: int,
    engine: str,
) -> None:
    """The source counts how often it is asked, and is different every time."""
    monkeypatch.setattr(few_rows, "ROWS", 60)
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", rewritten_bytes)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 30))
    log = tmp_path / "evaluated"
    source = (
        spark.createDataFrame(rows(0, 60, value=7))
        .coalesce(1)
        .selectExpr("id", "city", "value", "cast(rand() as string) as note")
    )
    result = table.upsert(telling(source, log))
    assert (result.inserted, result.updated, result.engine) == (30, 30, engine)
    assert ("on Spark" in repr(result)) == (engine == "spark")
    assert log.read_text() == "once\n"  # its partition is one batch
    assert table.verify().findings == ()
    found = table.scan(columns=["id", "city", "value"]).to_arrow().sort_by("id")
    assert found.equals(rows(0, 60, value=7).select(found.schema.names).cast(found.schema))


@pytest.mark.parametrize("said", ["bigger than spark.driver.maxResultSize (1 MiB)", "disk full"])
def test_rows_are_not_few_for_a_driver_that_may_not_take_them(
    spark: Any, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    engine = SparkEngine(spark)
    gathered = engine.to_table

    def to_table(rows: Any) -> pa.Table:
        if rows.columns != ["rows", "bytes"]:
            raise RuntimeError(said)
        return gathered(rows)

    monkeypatch.setattr(engine, "to_table", to_table)
    with engine.keep(spark.range(3)) as kept:
        if "maxResultSize" in said:
            assert engine.few(kept, 3, 1 << 20) is None
        else:
            with pytest.raises(RuntimeError, match=said):
                engine.few(kept, 3, 1 << 20)


def test_rows_are_weighed_by_their_texts_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is 8 bytes and its text in UTF-8, a list what it is as JSON."""
    engine, jobs = SparkEngine(spark), list[list[str]]()
    gathered = engine.to_table
    monkeypatch.setattr(engine, "to_table", lambda one: jobs.append(one.columns) or gathered(one))
    given = spark.createDataFrame(
        [(1, "ä" * 50, [1, 2]), (2, None, None)], "n int, s string, a array<int>"
    )
    size_bytes = 2 * 3 * 8 + 100 + len('{"a":[1,2]}') + len("{}")
    with engine.keep(given) as kept:
        assert engine.few(kept, 2, size_bytes - 1) is None
        found = engine.few(kept, 2, size_bytes)
    assert found is not None
    assert found["s"].to_pylist() == ["ä" * 50, None]
    assert jobs == [["rows", "bytes"], given.columns]


class Asked:
    """An engine that has three rows; it remembers how many it was asked for."""

    counters = None
    limits: tuple[int, int] | None = None

    def __init__(self, slots: int = 1, least: int = 0) -> None:
        self.slots, self._least = slots, least

    def few(self, rows: str, count: int, size_bytes: int) -> pa.Table | None:
        self.limits = count, size_bytes
        return pa.table({"n": [1, 2, 3]}) if count >= self._least else None


@pytest.mark.parametrize("more", [False, True])
def test_rows_are_few_sooner_where_the_cluster_has_more_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 10))
    store = Store(table.uri)
    manifest = load_newest(store)
    assert manifest is not None
    engine: Any = Asked(slots=LocalEngine().slots + more, least=11)
    near, found = nearest(engine, "rows", Snapshot(store, manifest))
    if more:
        assert (near, found) == (engine, "rows")
        assert engine.limits == (10, few_rows.ROW_BYTES)
    else:
        assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
        assert engine.limits == (few_rows.NEAR_ROWS, few_rows.NEAR_BYTES)


@pytest.mark.parametrize("index", ["record", "bucket", "metadata_bloom", "bloom"])
def test_where_many_filters_may_be_asked_rows_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    table = make(str(tmp_path / "table"), index, "partition")
    table.insert(rows(0, 10))
    store = Store(table.uri)
    manifest = load_newest(store)
    assert manifest is not None
    for listed_bytes, stay in ((1 << 20, False), (0, index.endswith("bloom"))):
        monkeypatch.setattr(few_rows, "LISTED_BYTES", listed_bytes)
        engine: Any = Asked()
        near, found = nearest(engine, "rows", Snapshot(store, manifest))
        if stay:
            assert (near, found, engine.limits) == (engine, "rows", None)
        else:
            assert engine.limits == (10, few_rows.ROW_BYTES)
            assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
