"""LocalEngine keeps the laws of an engine, and what it promises of its own."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable.engine import local, partitions
from metatable.engine.local import LocalEngine, LocalRows
from metatable.engine.spill import Hand
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, StoreError, UsageError
from metatable.storage.store import Store
from tests.engine_contract import (
    NUMBERS,
    EngineContract,
    count_rows,
    one_answer_over,
    one_answer_short,
    plus,
    same,
)
from tests.memory import watched_memory

ENGINES: dict[str, dict[str, Any]] = {
    "one thread": {"threads": 1},
    "threads": {"threads": 3},
    "no memory": {"threads": 2, "memory_bytes": 0},
    "every task twice, in random order": {"threads": 2, "twice": True, "shuffle_seed": 7},
}
PLUS = pa.schema({"plus": pa.int64()})


class TestLocalEngine(EngineContract):
    @pytest.fixture(params=ENGINES)
    def engine(self, request: pytest.FixtureRequest) -> LocalEngine:
        return LocalEngine(**ENGINES[request.param])

    def spread(self, engine: LocalEngine, table: pa.Table, parts: int = 3) -> Any:
        to = pa.array([n % parts for n in range(table.num_rows)], pa.int32())
        sent = engine.exchange(engine.rows(table.append_column("_part", to)), "_part", parts)
        return engine.select(sent, table.schema.names)


@pytest.fixture
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 3)


def numbers(count: int) -> pa.Table:
    return pa.table({"n": range(count)})


def counted(calls: list[int], batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
    for batch in batches:
        calls.append(len(batch))
        yield from plus(1, iter([batch]), counters)


def note(seen: list[int], batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
    for batch in batches:
        seen.append(batch["n"][0].as_py())
        yield batch


@pytest.mark.usefixtures("small_partitions")
def test_a_task_that_wants_rows_at_once_gets_those_of_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "AT_ONCE_ROWS", 10)
    calls: list[int] = []
    engine = LocalEngine(threads=2)
    some = engine.rows(numbers(20).slice(1))
    rows = engine.extend(some, ["n"], partial(counted, calls), PLUS, at_once=True)
    assert not calls  # lazy
    assert engine.to_table(rows)["plus"].to_pylist() == list(range(2, 21))
    assert calls == [12, 7]  # four partitions of three rows have ten, and two at a time are made
    monkeypatch.setattr(local, "AT_ONCE_BYTES", 48)
    calls.clear()
    engine.to_table(rows)
    assert calls == [6, 6, 6, 1]
    assert (
        engine.to_table(engine.extend(engine.rows(numbers(0)), ["n"], same, PLUS, at_once=True))[
            "plus"
        ].to_pylist()
        == []
    )


@pytest.mark.parametrize("task", [one_answer_short, one_answer_over])
def test_what_is_answered_at_once_is_answered_row_for_row(task: Any) -> None:
    engine = LocalEngine(threads=2)
    rows = engine.extend(engine.rows(numbers(9)), ["n"], task, PLUS, at_once=True)
    with pytest.raises(UsageError, match="must answer row for row"):
        engine.to_table(rows)


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", ENGINES)
def test_every_step_keeps_the_order_of_rows(
    name: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "AT_ONCE_ROWS", 10)
    engine = LocalEngine(**ENGINES[name])
    given = engine.rows(numbers(40))
    rows = engine.extend(given, ["n"], partial(plus, 1), PLUS, at_once=at_once)
    assert engine.to_table(rows).equals(numbers(40).append_column("plus", pa.array(range(1, 41))))
    matches = engine.map(rows, ["n"], same, NUMBERS)
    with engine.keep(engine.attach(rows, matches, ["n"])) as kept:
        for _ in range(2):
            got = engine.run(kept, same, engine.schema(kept))
            assert got["n"].to_pylist() == list(range(40))
            assert engine.to_table(kept).equals(got)


def test_small_batches_of_a_partition_are_dealt_together() -> None:
    engine = LocalEngine(threads=1)
    one = pa.record_batch({"n": [1], "to": pa.array([0], pa.int32())})
    rows = LocalRows(one.schema, lambda: [lambda: [one] * 9])
    [sent] = engine.exchange(rows, "to", 1).partitions()
    assert sent.__self__.pieces[0].num_rows == 9  # type: ignore[attr-defined]


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("name", ENGINES)
def test_exchange_keeps_the_order_within_a_partition(name: str) -> None:
    engine = LocalEngine(**ENGINES[name])
    to = pa.array([n % 2 for n in range(40)], pa.int32())
    sent = engine.exchange(engine.rows(numbers(40).append_column("to", to)), "to", 2)
    assert engine.to_table(sent)["n"].to_pylist() == [*range(0, 40, 2), *range(1, 40, 2)]


def test_a_table_is_cut_without_copying() -> None:
    table = pa.table({"n": np.arange(300_000)})
    engine = LocalEngine(threads=3)
    parts = [part for source in engine.rows(table).partitions() for part in source()]
    assert [part.num_rows for part in parts] == [100_000] * 3
    address = table["n"].chunk(0).buffers()[1].address
    assert {part["n"].buffers()[1].address for part in parts} == {address}


def test_wide_rows_make_smaller_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 1 << 20)
    table = pa.table({"wide": ["x" * 1000] * 5000})
    parts = [part for source in LocalEngine(1).rows(table).partitions() for part in source()]
    assert len(parts) == 5
    assert sum(part.num_rows for part in parts) == 5000


def test_matches_beyond_memory_are_not_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 1 << 20)
    monkeypatch.setattr(local, "RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(partitions, "LEAST_ROWS", 1000)
    count = 100_000
    rows = pa.table({"n": range(count)})
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})

    def wide(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = batch.filter(pc.equal(pc.bit_wise_and(batch["n"], 1), 0))
            text = pc.utf8_lpad(found["n"].cast(pa.string()), 1000)
            yield pa.RecordBatch.from_arrays([found["n"], text], schema=schema)

    def check(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            held = pc.cast(pc.ascii_trim_whitespace(batch["text"]), pa.int64())
            odd = pc.equal(pc.bit_wise_and(batch["n"], 1), 1)
            assert pc.all(pc.if_else(odd, held.is_null(), pc.equal(held, batch["n"]))).as_py()
            yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})

    with watched_memory() as pool:
        engine = LocalEngine(2, memory_bytes=1 << 20)
        parts = LocalRows(rows.schema, lambda: partitions.cut(rows, rows.schema, 50))
        joined = engine.attach(parts, engine.map(parts, ["n"], wide, schema), ["n"])
        told = engine.run(joined, check, pa.schema({"n": pa.int64()}))
    assert pc.sum(told["n"]).as_py() == count
    assert pool.max_memory() < 25 << 20  # of 48 MiB


def test_a_stream_beyond_memory_waits_on_disk_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 1 << 20)
    schema = pa.schema([("n", pa.int64())])
    alive: list[int] = []

    def given() -> Iterator[pa.RecordBatch]:
        for number in range(200):
            alive.append(pa.total_allocated_bytes())
            rows = np.arange(number * 10_000, (number + 1) * 10_000)
            yield pa.record_batch([pa.array(rows.tolist())], schema=schema)

    engine = LocalEngine(2, memory_bytes=1 << 20)
    before = pa.total_allocated_bytes()
    held = engine.rows(pa.RecordBatchReader.from_batches(schema, given()))
    parts = [list(source()) for source in held.partitions()]
    assert max(alive) - before < 5 << 20
    assert len(parts) > 10
    numbers = [part["n"].to_numpy() for part in chain.from_iterable(parts)]
    assert np.array_equal(np.concatenate(numbers), np.arange(2_000_000))


def test_a_stream_in_memory_counts_against_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(1, memory_bytes=1 << 20)
    batch = pa.record_batch({"n": np.arange(120_000)})
    rows = engine.rows(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
    spilled: list[int] = []
    write_out = Hand.write_out
    monkeypatch.setattr(Hand, "write_out", lambda self: spilled.append(1) or write_out(self))
    with engine.keep(rows) as kept:
        assert engine.to_table(kept).num_rows == 120_000
    assert not spilled, "they are held once"
    again = engine.map(rows, ["n"], _copied, rows.schema)
    with engine.keep(again) as kept:
        assert engine.to_table(kept).num_rows == 120_000
    assert spilled, "both together are more than the budget"


def test_a_stream_in_memory_goes_with_its_engine_and_waits_for_no_collector() -> None:
    def worked() -> weakref.ref[Any]:
        engine = LocalEngine(1)
        batch = pa.record_batch({"n": np.arange(120_000)})
        rows = engine.rows(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
        assert sum(map(len, chain.from_iterable(one() for one in rows.partitions()))) == 120_000
        [spill] = engine._streams
        return weakref.ref(spill)

    gc.disable()
    try:
        assert worked()() is None
    finally:
        gc.enable()


def test_a_table_that_is_given_counts_nothing_against_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = LocalEngine(2, memory_bytes=0)
    monkeypatch.setattr(Hand, "write_out", lambda self: pytest.fail("a copy frees nothing"))
    table = pa.table({"n": np.arange(120_000), "text": pa.array(["x"] * 120_000)})
    with engine.keep(engine.rows(table)) as kept:
        assert engine.to_table(kept).equals(table)


def _copied(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": pc.add(batch["n"], 0)})


class Arrowish:
    """Any library's rows: all that is known of them is the Arrow C stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TABLE = pa.table({"k": ["a", None, "c"], "n": [1, 2, 3]})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        TABLE.to_pandas().set_index(pd.Index([7, 8, 9])),
        pl.from_arrow(TABLE),
        Arrowish(TABLE),
        TABLE.to_batches()[0].to_struct_array(),
    ],
    ids=lambda data: type(data).__qualname__,
)
def test_whatever_speaks_arrow_is_rows(data: Any) -> None:
    engine = LocalEngine()
    rows = engine.rows(data)
    assert engine.schema(rows).names == ["k", "n"]
    assert engine.to_table(rows).to_pylist() == TABLE.to_pylist()
    assert engine.to_table(rows).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize(
    "data",
    [None, 3, "rows", {"n": [1]}, [{"n": 1}], pa.Table, pl.LazyFrame({"n": [1]}), Path()],
    ids=lambda data: type(data).__qualname__,
)
def test_what_does_not_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="these are no rows"):
        LocalEngine().rows(data)


class Frame(pd.DataFrame):
    """As geopandas has one: pandas' own stream would bring the index along."""


def test_an_index_is_left_out_of_what_derives_from_pandas() -> None:
    given = Frame({"k": ["a", None, "c"], "n": [1, 2, 3]}, index=["x", "y", "z"])
    assert LocalEngine().rows(given).schema.names == ["k", "n"]


def test_a_plain_column_is_no_rows() -> None:
    with pytest.raises(UsageError, match="cannot be taken over as Arrow: found='Int64Array'"):
        LocalEngine().rows(pa.array([1, 2]))


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there twice: found=\['n'\]"):
        LocalEngine().rows(pa.table([[1], [2]], ["n", "n"]))


def test_a_data_frame_of_which_arrow_makes_no_rows_is_refused() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["n", "n"])
    wide = pd.DataFrame({"n": [2**70]}, dtype=object)
    for given in (twice, wide):
        with pytest.raises(UsageError, match="cannot be taken over as Arrow: found='DataFrame'"):
            LocalEngine().rows(given)


def test_a_stream_is_read_once_and_not_before_it_is_needed() -> None:
    pulled: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(3):
            pulled.append(n)
            yield pa.record_batch({"n": [n]})

    engine = LocalEngine()
    rows = engine.rows(pa.RecordBatchReader.from_batches(NUMBERS, batches()))
    assert pulled == []
    assert engine.to_table(rows)["n"].to_pylist() == [0, 1, 2]
    assert engine.to_table(rows)["n"].to_pylist() == [0, 1, 2]
    assert pulled == [0, 1, 2]


@pytest.mark.usefixtures("small_partitions")
def test_few_partitions_are_under_way_at_once() -> None:
    engine = LocalEngine(threads=2)
    seen: list[int] = []
    rows = engine.map(engine.rows(numbers(300)), ["n"], partial(note, seen), NUMBERS)
    stream = engine.stream(rows)
    first = next(stream)
    assert first["n"].to_pylist() == [0, 1, 2]
    assert len(seen) <= 4
    stream.close()
    assert len(seen) <= 5


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("count", [3, 6])
def test_a_task_that_is_alone_stays_on_its_callers_thread(count: int) -> None:
    engine, seen = LocalEngine(threads=2), list[bool]()

    def noted(batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
        seen.append(threading.current_thread() is threading.main_thread())
        yield from batches

    rows = engine.map(engine.rows(numbers(count)), ["n"], noted, NUMBERS)
    assert engine.run(rows, same, NUMBERS).num_rows == count
    assert seen == [count == 3] * (count // 3)


def test_rows_that_all_go_to_one_task_stay_on_the_callers_thread() -> None:
    engine, seen = LocalEngine(threads=2), list[bool]()

    def noted(batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
        seen.append(threading.current_thread() is threading.main_thread())
        yield from batches

    for tasks in ([5, 5, 5], [5, 2, 5]):
        rows = pa.table({"n": pa.array([1, 2, 3]), "t": pa.array(tasks, pa.int32())})
        spread = engine.exchange(engine.rows(rows), "t", 8)
        told = engine.run(spread, noted, rows.schema)
        assert told.sort_by("n").equals(rows)
        assert [len(one) for one in map(list, (part() for part in spread.partitions()))] == [
            int(place in tasks) for place in range(8)
        ]
    assert seen == [True, False, False]


@pytest.mark.usefixtures("small_partitions")
def test_a_failure_ends_the_run_when_what_has_begun_is_over() -> None:
    seen: list[int] = []

    def fail(batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
        for batch in note(seen, batches, counters):
            if batch["n"][0].as_py() == 6:
                raise UsageError("no sixes")
            yield batch

    engine = LocalEngine(threads=2)
    before = threading.active_count()
    with pytest.raises(UsageError, match="no sixes"):
        engine.run(engine.rows(numbers(3000)), fail, NUMBERS)
    assert threading.active_count() == before
    assert len(seen) <= 8


@pytest.mark.usefixtures("small_partitions")
def test_of_failures_the_one_is_raised_that_tells_of_an_unknown_outcome() -> None:
    """Whoever writes deletes what was written where every outcome is known, and a put without an
    answer may still be carried out."""
    both = threading.Barrier(2, timeout=60)

    def fail(batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
        first = next(batches)["n"][0].as_py()
        both.wait()
        raise StoreError("no answer") if first else CorruptError("file is missing")
        yield

    engine = LocalEngine(threads=2)
    with pytest.raises(StoreError, match="no answer") as told:
        engine.run(engine.rows(numbers(6)), fail, NUMBERS)
    assert isinstance(told.value.__cause__, CorruptError)


def test_twice_means_twice_and_the_second_answer_counts() -> None:
    seen: list[int] = []
    engine = LocalEngine(threads=1, twice=True)
    rows = engine.extend(engine.rows(numbers(3)), ["n"], partial(plus, 1), PLUS)
    told = engine.run(rows, partial(_answer_by_turn, seen), NUMBERS)
    assert told["n"].to_pylist() == [2]
    assert engine.counters == {"turns": 2}


def _answer_by_turn(
    seen: list[int], batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    assert sum(batch.num_rows for batch in batches) == 3
    seen.append(0)
    counters.add("turns", len(seen))
    yield pa.record_batch({"n": [len(seen)]})


@pytest.mark.usefixtures("small_partitions")
def test_a_shuffle_seed_changes_the_order_of_work_only() -> None:
    orders = set()
    for seed in range(3):
        seen: list[int] = []
        engine = LocalEngine(threads=1, shuffle_seed=seed)
        told = engine.run(engine.rows(numbers(60)), partial(note, seen), NUMBERS)
        assert told["n"].to_pylist() == list(range(60))
        orders.add(tuple(seen))
    assert len(orders) == 3


def test_what_is_kept_is_released_at_the_end() -> None:
    engine = LocalEngine()
    with engine.keep(engine.rows(numbers(1000))) as kept:
        engine.run(kept, count_rows, NUMBERS)
    before = pa.total_allocated_bytes()
    with engine.keep(engine.map(kept, ["n"], _copied, NUMBERS)) as kept:
        engine.run(kept, count_rows, NUMBERS)
        assert pa.total_allocated_bytes() >= before + 8000
    assert pa.total_allocated_bytes() <= before + 1000


def _copied(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.take(pa.array(np.arange(batch.num_rows)))


def test_scratch_is_a_folder_that_goes_with_the_engine(table_uri: str) -> None:
    engine, counters = LocalEngine(), Counters()
    scratch = engine.scratch(Store(table_uri, counters=counters))
    assert scratch.create("runs/1", b"entries")
    assert engine.scratch(Store(table_uri)).fetch("runs/1") == b"entries"
    assert counters["store.writes"] == 1
    assert not Path(table_uri).exists()
    del engine
    assert not Path(scratch.uri).exists()
