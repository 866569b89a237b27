"""SparkEngine keeps the laws of an engine, and what it promises of its own."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable.engine import local
from metatable.engine.by_row import ROW
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.store import TEMPORARY, Store
from tests.engine_contract import NUMBERS, EngineContract, as_set, count_rows, plus, same

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F  # noqa: N812

from metatable.spark.engine import SparkEngine
from metatable.spark.types import arrow_schema
from metatable.spark.workers import PARSED_BYTES
from tests.spark.settings import settings

PLUS = pa.schema({"plus": pa.int64()})
SIZES = pa.schema({"rows": pa.list_(pa.int64())})
MICROS = pa.schema({"micros": pa.int64()})


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> SparkEngine:
        return SparkEngine(spark)

    def spread(self, engine: SparkEngine, table: pa.Table, parts: int = 3) -> Any:
        return engine.rows(table).repartition(parts)


@pytest.fixture
def engine(spark: Any) -> SparkEngine:
    return SparkEngine(spark)


def tell_sizes(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    sizes = [batch.num_rows for batch in batches]
    yield pa.record_batch({"rows": [sizes]}, schema=SIZES)


def fail_once(
    mark: str, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Counts, yields, and then fails the first time that it is called at all."""
    yield from count_rows(batches, counters)
    if not Path(mark).exists():
        Path(mark).touch()
        raise RuntimeError("lost executor")


def refuse(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    raise UsageError("not these rows")
    yield from count_rows(batches, counters)


def leave_a_file(
    place: Store, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    total = sum(batch.num_rows for batch in batches)
    place.counting(counters).create("left/behind", str(total).encode())
    yield pa.record_batch([pa.array([total])], schema=NUMBERS)


def tell_micros(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([batch["at"].cast(pa.int64())], schema=MICROS)


def tell_budgets(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Row for row, with what this process may keep."""
    budgets = cache.shared.budget_bytes
    for batch in batches:
        yield pa.record_batch([pa.array([budgets] * batch.num_rows)], schema=PLUS)


def numbers(engine: SparkEngine, count: int, parts: int = 1) -> Any:
    return engine.session.range(0, count, numPartitions=parts).withColumnRenamed("id", "n")


def jobs_so_far(engine: SparkEngine) -> int:
    return len(engine.session.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_worker_keeps_less_than_this_process(engine: SparkEngine) -> None:
    """There is one for each task that runs on a machine, and it lives on."""
    mapped = engine.map(numbers(engine, 1), ["n"], tell_budgets, PLUS)
    answered = engine.extend(numbers(engine, 1), ["n"], tell_budgets, PLUS)
    for told in (mapped, answered.select("plus")):
        assert [row["plus"] for row in told.collect()] == [PARSED_BYTES]
    assert cache.shared.budget_bytes == 256 << 20


def test_lazy_steps_start_no_job(engine: SparkEngine) -> None:
    before = jobs_so_far(engine)
    rows = engine.extend(numbers(engine, 10), ["n"], partial(plus, 1), PLUS)
    sent = engine.exchange(rows.withColumn("to", F.lit(1)), "to", 3)
    matches = engine.map(sent, ["n"], same, NUMBERS)
    engine.select(engine.attach(sent, matches, ["n"]), ["n", "plus"])
    assert jobs_so_far(engine) == before
    engine.run(sent, count_rows, NUMBERS)
    assert jobs_so_far(engine) > before


def test_extend_and_attach_leave_columns_in_the_jvm_that_python_could_not_take(
    engine: SparkEngine,
) -> None:
    rows = numbers(engine, 3).withColumn("span", F.expr("make_interval(0, 1, 0, cast(n as int))"))
    longer = engine.extend(rows, ["n"], partial(plus, 1), PLUS)
    matches = engine.map(rows, ["n"], same, NUMBERS)
    matches = engine.extend(matches, ["n"], partial(plus, 10), PLUS)
    matches = matches.withColumnRenamed("plus", "ten")
    longer = longer.withColumnRenamed("plus", "_match_0")  # a name as any other
    got = engine.attach(longer, matches, ["n"]).withColumn("span", F.col("span").cast("string"))
    assert as_set(engine.to_table(got))[2] == (2, "1 months 2 days", 3, 12)


def test_what_spark_makes_of_nothing_is_empty(engine: SparkEngine) -> None:
    """Of `array()` and `map()` Spark says that nothing in them is null, and of what they hold that
    it is."""
    made = engine.session.sql("select array() as a, map() as m, struct(array() as b) as s")
    schema = arrow_schema(made.schema)
    assert schema.field("a").type == pa.list_(pa.field("element", pa.null()))
    assert schema.field("m").type == pa.map_(pa.string(), pa.null())
    got = engine.to_table(engine.map(made, made.columns, same, schema))
    assert got.to_pylist() == [{"a": [], "m": [], "s": {"b": []}}]


def test_texts_are_attached_by_their_letters_whatever_their_collation(engine: SparkEngine) -> None:
    texts = "select s collate UTF8_LCASE as s from values ('a'), ('A') as given(s)"
    matches = engine.rows(pa.table({"s": ["a"], "w": [1]}))
    got = engine.attach(engine.session.sql(texts), matches, ["s"])
    assert {(row.s, row.w) for row in got.collect()} == {("a", 1), ("A", None)}


def often(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Numbers that three divides are answered twice, odd ones by null."""
    at = 0
    for batch in batches:
        n = batch["n"].to_numpy()
        rows = np.repeat(np.arange(len(n)), np.where(n % 3, 1, 2))
        told = pa.array(n[rows] + 1, mask=n[rows] % 2 == 1)
        yield pa.record_batch([pa.array(rows + at), told], [ROW, "plus"])
        at += len(n)


def test_a_row_with_two_answers_comes_out_twice_in_tasks_that_run_at_once(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_processors", lambda: 2)
    found = engine.find(numbers(engine, 30, parts=7), ["n"], often, PLUS)
    assert found is not None
    assert found.rdd.getNumPartitions() == 2
    told = sorted((row.n, row.plus) for row in found.collect())
    assert [n for n, _ in told] == [n for n in range(30) for _ in range(1 if n % 3 else 2)]
    assert all(plus == (None if n % 2 else n + 1) for n, plus in told)
    monkeypatch.setattr(local, "_processors", lambda: 1)
    assert engine.find(numbers(engine, 30), ["n"], often, PLUS) is None


class Told:
    """A session that is set otherwise: what is fixed when one starts, too."""

    def __init__(self, session: Any, conf: dict[str, str]) -> None:
        self._session = session
        self.conf = {f"spark.{name}": value for name, value in conf.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize(
    ("conf", "grows"),
    [
        ({"master": "yarn", "dynamicAllocation.enabled": "true"}, True),
        ({"master": "yarn", "dynamicAllocation.enabled": "false"}, False),
        ({"master": "yarn"}, False),
        ({"master": "local[2]", "dynamicAllocation.enabled": "true"}, False),
    ],
)
def test_a_cluster_that_grows_is_not_held_to_the_tasks_that_it_runs_now(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], grows: bool
) -> None:
    monkeypatch.setattr(local, "_processors", lambda: 2)
    rows = numbers(engine, 30, parts=7)
    engine.session = Told(engine.session, conf | {"sql.shuffle.partitions": "37"})
    assert engine.slots == (37 if grows else 2)
    assert (engine.find(rows, ["n"], often, PLUS) is None) == grows


def test_what_was_done_is_done_though_the_session_goes_before_rows_are_let_go(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ConnectionError

    with engine.keep(numbers(engine, 3)) as kept:
        assert kept.count() == 3
        monkeypatch.setattr(type(kept), "unpersist", gone)
    with pytest.raises(ValueError, match="of the block"), engine.keep(numbers(engine, 3)):
        raise ValueError("of the block")


def thirds(
    batches: Iterator[pa.RecordBatch], counters: Counters, values: pa.Array
) -> Iterator[pa.RecordBatch]:
    """The place of each number's remainder, null for that of 2."""
    places = [pc.index(values, value).as_py() for value in (0, 10)]
    for batch in batches:
        of_row = np.array([*places, -1], np.int32).take(batch["n"].to_numpy() % 3)
        yield pa.record_batch([pa.array(of_row, mask=of_row < 0)], ["plus"])


def test_values_are_picked_by_the_places_that_a_task_answers(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def values(most: int) -> pa.Array | None:
        asked.append(most)
        return pa.array([10, None, 0], pa.int64()) if most >= 3 else None

    rows = numbers(engine, 30, parts=4)
    picked = engine.pick(rows, ["n"], thirds, PLUS, values)
    assert picked is not None
    assert picked.schema == engine.extend(rows, ["n"], partial(plus, 1), PLUS).schema
    told = {(row.n, row.plus) for row in picked.collect()}
    assert told == {(n, (0, 10, None)[n % 3]) for n in range(30)}
    monkeypatch.setattr("metatable.spark.engine.PLAN_VALUES", 2)
    assert engine.pick(rows, ["n"], thirds, PLUS, values) is None
    assert asked == [1024, 2]


def test_texts_of_any_letters_are_in_a_plan_as_they_are(engine: SparkEngine) -> None:
    texts = [
        'quo"te',
        "back\\slash",
        "{1}",
        "東京",
        "\U0001f600",
        "a\nb\t\0",
        "",
        "null",
        None,
        "1.0",
    ]
    values = pa.array(
        [one if one is None else {"a": one} for one in texts], pa.struct([("a", pa.string())])
    )
    fields = pa.schema([("plus", values.type)])
    picked = engine.pick(numbers(engine, len(texts)), ["n"], counted, fields, lambda _: values)
    assert picked is not None
    told = {row.n: None if row.plus is None else row.plus.a for row in picked.collect()}
    assert told == dict(enumerate(texts))


def counted(
    batches: Iterator[pa.RecordBatch], counters: Counters, values: pa.Array
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([batch["n"].cast(pa.int32())], ["plus"])


def test_a_filter_on_an_answer_does_not_ask_twice(engine: SparkEngine) -> None:
    longer = engine.extend(numbers(engine, 9), ["n"], partial(plus, 1), PLUS)
    plan = longer.where("plus > 5")._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1


def test_partition_p_is_task_p(engine: SparkEngine) -> None:
    rows = numbers(engine, 60).withColumn("to", F.expr("cast(n % 6 as int)"))
    sent = engine.exchange(rows, "to", 7).withColumn("task", F.spark_partition_id())
    assert sent.where("task != to").count() == 0


def test_small_batches_are_joined_up_for_a_task(engine: SparkEngine) -> None:
    told = engine.run(numbers(engine, 120_000), tell_sizes, SIZES)
    assert told["rows"].to_pylist() == [[50_000, 50_000, 20_000]]


def test_wide_rows_reach_a_task_in_smaller_batches(engine: SparkEngine) -> None:
    wide = numbers(engine, 5).withColumn("text", F.repeat(F.lit("x"), 10 << 20))
    with settings(engine.session, {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}):
        assert engine.run(wide, tell_sizes, SIZES)["rows"].to_pylist() == [[4, 1]]


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_table_is_sent_where_batches_have_no_limit(engine: SparkEngine, limit: str) -> None:
    at = pa.array([datetime(2024, 7, 1, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    table = pa.table({"at": at, "text": ["é", ""], "raw": [None, b"\0"]})
    with settings(engine.session, {"spark.sql.execution.arrow.maxRecordsPerBatch": limit}):
        assert engine.run(engine.rows(table), same, table.schema).equals(table)


def test_a_task_that_was_tried_again_counts_once(engine: SparkEngine, tmp_path: Path) -> None:
    task = partial(fail_once, str(tmp_path / "mark"))
    told = engine.run(numbers(engine, 30), task, NUMBERS)
    assert (tmp_path / "mark").exists()
    assert told["n"].to_pylist() == [30]
    assert engine.counters == {"rows": 30, "tasks": 1}


def test_an_error_of_a_task_says_that_others_may_go_on(engine: SparkEngine) -> None:
    with pytest.raises(UsageError, match="not these rows") as told:
        engine.run(numbers(engine, 5), refuse, NUMBERS)
    assert told.value.others_go_on
    with pytest.raises(UsageError, match="no such column") as told:
        engine.run(engine.select(numbers(engine, 5), ["no"]), refuse, NUMBERS)
    assert not told.value.others_go_on


def test_workers_and_driver_share_the_scratch(engine: SparkEngine, table_uri: str) -> None:
    scratch = engine.scratch(Store(table_uri))
    told = engine.run(numbers(engine, 5), partial(leave_a_file, scratch), NUMBERS)
    assert told["n"].to_pylist() == [5]
    assert scratch.fetch("left/behind") == b"5"
    assert engine.counters["store.writes"] == 1
    assert pickle.loads(pickle.dumps(scratch)).uri == scratch.uri
    assert engine.scratch(Store(table_uri)).uri == scratch.uri
    other = SparkEngine(engine.session)
    assert other.scratch(Store(table_uri)).uri != scratch.uri
    owned = [one.scratch(Store(table_uri), "upsert-1").uri for one in (engine, other)]
    assert owned == [f"{table_uri}/{TEMPORARY}/upsert-1"] * 2


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_instants_are_the_same_in_every_session_zone(engine: SparkEngine, zone: str) -> None:
    before = engine.session.conf.get("spark.sql.session.timeZone")
    engine.session.conf.set("spark.sql.session.timeZone", zone)
    try:
        at = pa.array([datetime(2024, 7, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        rows = engine.session.createDataFrame(pa.table({"at": at}))
        told = engine.map(rows, ["at"], tell_micros, MICROS)
        assert engine.run(told, same, MICROS)["micros"].to_pylist() == at.cast("int64").to_pylist()
        schema = pa.schema({"at": at.type})
        assert engine.run(rows, same, schema).equals(pa.table({"at": at}, schema=schema))
    finally:
        engine.session.conf.set("spark.sql.session.timeZone", before)


def test_slots_are_the_cores_of_the_session(engine: SparkEngine) -> None:
    assert engine.slots == engine.session.sparkContext.defaultParallelism


def test_a_cluster_that_runs_slow_tasks_twice_says_so(engine: SparkEngine) -> None:
    assert not engine.speculates
    engine.session = Told(engine.session, {"speculation": "true"})
    assert engine.speculates


def test_a_stream_and_a_double_column_are_refused(engine: SparkEngine) -> None:
    stream = engine.session.readStream.format("rate").load()
    with pytest.raises(UsageError, match="no end"):
        engine.rows(stream)
    with pytest.raises(UsageError, match="there twice: found=\\['n'\\]"):
        engine.rows(numbers(engine, 1).select("n", "n"))


def test_columns_that_differ_in_case_are_refused_unless_the_session_tells_it_apart(
    engine: SparkEngine,
) -> None:
    rows = numbers(engine, 3).select("n", (F.col("n") + 1).alias("N"))
    with pytest.raises(UsageError, match=r"there twice .*case.* column='n'"):
        engine.map(rows, ["n"], same, NUMBERS)
    with settings(engine.session, {"spark.sql.caseSensitive": "true"}):
        told = engine.run(engine.map(rows, ["n"], same, NUMBERS), same, NUMBERS)
    assert sorted(told["n"].to_pylist()) == [0, 1, 2]


def test_a_type_that_spark_lacks_is_refused_before_anything_runs(engine: SparkEngine) -> None:
    schema = pa.schema({"n": pa.uint64()})
    with pytest.raises(UsageError, match="Spark has no such type: column='n' found='uint64'"):
        engine.map(numbers(engine, 1), ["n"], same, schema)


def test_receipts_come_in_the_order_of_the_partitions(engine: SparkEngine) -> None:
    rows = numbers(engine, 40).withColumn("to", F.expr("cast(3 - n % 4 as int)"))
    sent = engine.select(engine.exchange(rows, "to", 4), ["n"])
    told = engine.run(sent, same, NUMBERS)
    assert pc.bit_wise_and(told["n"], 3).to_pylist() == [3] * 10 + [2] * 10 + [1] * 10 + [0] * 10
