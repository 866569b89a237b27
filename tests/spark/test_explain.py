"""`explain` of a Spark DataFrame: what the executors counted, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.long import LONG

pytest.importorskip("pyspark", reason="pyspark is not installed")

from metatable.spark.counting import CountingEngine
from metatable.spark.workers import COUNTED
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from tests.engine_contract import NUMBERS, count_rows, plus, refuse
from tests.index.rows import make, rows

pytestmark = pytest.mark.in_turn("table")

CITY = "element_at(array('amsterdam', 'berlin', 'cairo'), cast(id % 3 as int) + 1) as city"
KINDS = [("record", "global"), ("metadata_bloom", "partition"), ("metadata_bloom", "global")]
PLUS = pa.schema([pa.field("plus", pa.int64(), nullable=False)])

ASKED = {
    "some of them": rows(20, 90),
    "only new keys": rows(500, 520),
    "new keys within the ranges": rows(0, 30).set_column(
        0, "id", pa.array([f"k{number:06d}x" for number in range(30)])
    ),
    "no keys at all": rows(0, 0),
}


@pytest.fixture(params=KINDS if LONG else KINDS[:2], ids="-".join)
def table(request: pytest.FixtureRequest, table_uri: str) -> Any:
    made = make(table_uri, *request.param)
    made.insert(rows(0, 80))
    made.upsert(rows(60, 70, value=1000))
    return made


def cached(spark: Any) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def test_explain_on_spark_counts_what_it_counts_in_process(spark: Any, table: Any) -> None:
    before = cached(spark)
    for what, asked in ASKED.items():
        here = table.explain(asked)
        frame = spark.createDataFrame(asked if asked.num_rows else [], _spark(asked))
        there = table.explain(frame.coalesce(1))
        assert (there.keys, there.found) == (here.keys, here.found), what
        assert there.files == here.files, what
        assert _tags(there) == _tags(here), what
        if what == "some of them":  # nothing is in a worker's caches yet
            assert there.requests > 0 < there.bytes, what
            assert there.blocks > 0, what
    assert cached(spark) == before


def _spark(asked: pa.Table) -> str:
    return ", ".join(f"{field.name} {_NAMES[field.type]}" for field in asked.schema)


_NAMES = {pa.string(): "string", pa.int64(): "bigint"}


def _tags(told: Any) -> dict[str, int]:
    """What does not depend on what a process has in its caches."""
    return {name: count for name, count in told.counters.items() if name.startswith("tag.")}


def test_the_cost_of_an_explain_is_the_tables_too(spark: Any, table: Any) -> None:
    before = dict(table.counters)
    told = table.explain(spark.createDataFrame(rows(0, 50)))
    assert table.counters.since(before)["tag.keys"] == told.counters["tag.keys"] == 50


def test_the_users_own_plan_has_no_counters_in_it(spark: Any, table: Any) -> None:
    tagged = table.tag_locations(spark.createDataFrame(rows(0, 50)))
    plan = tagged._jdf.queryExecution().toString()
    for never in (COUNTED, "CollectMetrics", "InMemory"):
        assert never not in plan
    assert tagged.columns == ["id", "city", "value", "note", "_location"]


def test_explain_keeps_key_columns_alone(spark: Any, table: Any) -> None:
    """A column that must not be worked out."""
    columns = [
        "concat('k', lpad(id, 6, '0')) as id",
        CITY,
        "if(id < 0, 0, raise_error('!')) as bad",
    ]
    frame = spark.range(50).selectExpr(*columns)
    assert table.explain(frame).found == 50


def plus_counted(
    mark: str, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Counts, answers, and then fails the first time that it is called at all."""
    for batch in plus(1, batches, counters):
        counters.add("added", batch.num_rows)
        yield batch
    counters.add("ends")
    if not Path(mark).exists():
        Path(mark).touch()
        raise RuntimeError("lost executor")


def test_a_step_counts_once_that_is_read_twice_and_tried_twice(spark: Any, tmp_path: Path) -> None:
    engine, before = CountingEngine(spark), cached(spark)
    mark = tmp_path / "mark"
    numbers = spark.range(0, 120_000, numPartitions=1).withColumnRenamed("id", "n")
    longer = engine.extend(numbers, ["n"], partial(plus_counted, str(mark)), PLUS)
    sums = engine.map(longer, ["n"], count_rows, NUMBERS)
    joined = engine.attach(longer, sums, ["n"])
    told = engine.run(joined, count_rows, NUMBERS)
    assert mark.exists()
    assert sum(told["n"].to_pylist()) == 120_000
    assert engine.counters["added"] == 120_000
    assert engine.counters["ends"] == 1
    assert engine.counters["rows"] == 2 * 120_000  # of `sums`, and of the run
    assert cached(spark) == before


def test_a_run_that_fails_leaves_nothing_in_the_cache(spark: Any) -> None:
    engine, before = CountingEngine(spark), cached(spark)
    rows = engine.map(spark.range(9).withColumnRenamed("id", "n"), ["n"], count_rows, NUMBERS)
    with pytest.raises(UsageError, match="no such thing"):
        engine.run(rows, partial(refuse, UsageError), NUMBERS)
    assert cached(spark) == before
