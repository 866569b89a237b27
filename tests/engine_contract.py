"""The laws of an engine, as one suite: every engine's tests inherit it.

A subclass gives the fixture `engine` and two methods: `spread(engine, table, parts)` makes
rows of several partitions, `all_rows(engine, rows)` brings them back. Answers are compared
as sets of rows, because an engine may keep their order or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable.engine.jobs import run_jobs
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError

Batches = Iterator[pa.RecordBatch]

SEEN = pa.schema({"columns": pa.string(), "rows": pa.int64()})
NUMBERS = pa.schema({"n": pa.int64()})


def tell_columns(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        names = pa.array([",".join(batch.schema.names)])
        yield pa.record_batch([names, pa.array([batch.num_rows])], schema=SEEN)


def keep_even(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield batch.filter(pc.equal(pc.bit_wise_and(batch["n"], 1), 0))


def three_times(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield from [batch, batch, batch]


def turned_round(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield pa.record_batch([batch["b"], batch["a"]], ["b", "a"])


def small_ints(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield pa.record_batch([batch["n"].cast(pa.int32())], ["n"])


def misnamed(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield batch.rename_columns(["m"])


def plus(added: int, batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield pa.record_batch([pc.add(batch["n"], added)], ["plus"])


def one_by_one(batches: Batches, counters: Counters) -> Batches:
    """Answers in other batches than the questions came in."""
    for batch in batches:
        for place in range(batch.num_rows):
            yield pa.record_batch([pc.add(batch["n"].slice(place, 1), 1)], ["plus"])


def all_at_once(batches: Batches, counters: Counters) -> Batches:
    questions = pa.Table.from_batches(list(batches)).combine_chunks()
    yield pa.record_batch([pc.add(questions["n"], 1).combine_chunks()], ["plus"])


def one_answer_short(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield pa.record_batch([batch["n"].slice(1)], ["plus"])


def one_answer_over(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        yield pa.record_batch([pa.concat_arrays([batch["n"], batch["n"][:1]])], ["plus"])


def by_chance(batches: Batches, counters: Counters) -> Batches:
    """The same unforeseeable bytes in both columns; other bytes at every call."""
    for batch in batches:
        drawn = pa.array([os.urandom(8) for _ in range(batch.num_rows)])
        yield pa.record_batch([drawn, drawn], ["left", "right"])


CHANCE = pa.schema({"left": pa.binary(), "right": pa.binary()})


def tell_places(batches: Batches, counters: Counters) -> Batches:
    """One receipt a task: the partition numbers and the rows that it was given."""
    whole = pa.Table.from_batches(list(batches))
    receipt = {"places": [sorted(set(whole["to"].to_pylist()))], "rows": [whole.num_rows]}
    yield pa.record_batch(receipt, schema=PLACES)


PLACES = pa.schema({"places": pa.list_(pa.int32()), "rows": pa.int64()})


def count_rows(batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        counters.add("rows", batch.num_rows)
        yield pa.record_batch([pa.array([batch.num_rows])], ["n"])
    counters.add("tasks")


def same(batches: Batches, counters: Counters) -> Batches:
    yield from batches


def refuse(kind: type[Exception], batches: Batches, counters: Counters) -> Batches:
    for batch in batches:
        raise kind("no such thing: here", rows=batch.num_rows)
        yield batch


@dataclass(frozen=True, slots=True)
class Errand:
    number: int
    name: str | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """What a task was given, and how many jobs it had been given until then."""

    number: int
    name: str | None
    raw: bytes | None
    until_then: int


def carry_out(twice: set[int], errands: Iterator[Errand], counters: Counters) -> Iterator[Done]:
    """Receipts: two for the numbers in `twice`, none for number 0."""
    counters.add("tasks")
    for place, one in enumerate(errands, 1):
        counters.add("errands")
        for _ in range((one.number != 0) + (one.number in twice)):
            yield Done(one.number, one.name, one.raw, place)


def fail(kind: type[Exception], errands: Iterator[Errand], counters: Counters) -> Iterator[Done]:
    for one in errands:
        raise kind("no such errand", number=one.number)
        yield


def as_set(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order that depends on nothing but their values."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


class EngineContract:
    """What holds for every engine."""

    def spread(self, engine: Any, table: pa.Table, parts: int = 3) -> Any:
        raise NotImplementedError

    def all_rows(self, engine: Any, rows: Any) -> pa.Table:
        return engine.to_table(rows)

    def numbers(self, engine: Any, count: int = 20, parts: int = 3) -> Any:
        table = pa.table({"n": range(count), "s": [f"s{n}" for n in range(count)]})
        return self.spread(engine, table, parts)

    # rows, schema, select

    def test_schema_tells_the_columns_without_running_anything(self, engine: Any) -> None:
        rows = engine.map(self.numbers(engine), ["n"], partial(refuse, UsageError), NUMBERS)
        assert engine.schema(rows).equals(NUMBERS)
        assert engine.schema(self.numbers(engine)).names == ["n", "s"]

    def test_a_small_table_is_rows_for_every_engine(self, engine: Any) -> None:
        plan = pa.table({"task": pa.array([1, 0], pa.int32()), "inputs": [["a"], None]})
        told = engine.run(engine.exchange(engine.rows(plan), "task", 2), same, plan.schema)
        assert told.equals(plan.take([1, 0]))

    def test_what_is_no_rows_is_refused_by_name(self, engine: Any) -> None:
        with pytest.raises(UsageError, match="found='int'"):
            engine.rows(3)

    def test_select_gives_columns_in_the_order_asked(self, engine: Any) -> None:
        picked = self.all_rows(engine, engine.select(self.numbers(engine, 2), ["s", "n"]))
        assert picked.schema.names == ["s", "n"]
        assert as_set(picked) == [("s0", 0), ("s1", 1)]

    def test_an_unknown_column_is_refused_before_anything_runs(self, engine: Any) -> None:
        rows = self.numbers(engine)
        with pytest.raises(UsageError, match="no such column: column='x'"):
            engine.select(rows, ["x"])
        with pytest.raises(UsageError, match="no such column: column='x'"):
            engine.map(rows, ["x"], same, NUMBERS)
        with pytest.raises(UsageError, match="no such column: column='x'"):
            engine.extend(rows, ["x"], same, NUMBERS)

    def test_a_name_with_dots_and_quotes_is_only_a_name(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"a.b`c": [1, 2], "n": [1, 2]}))
        longer = engine.extend(rows, ["n"], partial(plus, 1), pa.schema({"plus": pa.int64()}))
        got = self.all_rows(engine, engine.select(longer, ["plus", "a.b`c"]))
        assert got.schema.names == ["plus", "a.b`c"]
        assert as_set(got) == [(2, 1), (3, 2)]

    # map

    def test_map_sees_only_its_inputs(self, engine: Any) -> None:
        told = engine.map(self.numbers(engine), ["s"], tell_columns, SEEN)
        got = self.all_rows(engine, told)
        assert set(got["columns"].to_pylist()) == {"s"}
        assert pc.sum(got["rows"]).as_py() == 20

    def test_map_may_give_fewer_rows_and_more(self, engine: Any) -> None:
        even = engine.map(self.numbers(engine, 6), ["n"], keep_even, NUMBERS)
        often = engine.map(even, ["n"], three_times, NUMBERS)
        assert as_set(self.all_rows(engine, often)) == sorted([(0,), (2,), (4,)] * 3)

    def test_columns_go_by_name_whatever_order_a_task_yields_them_in(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"a": [1, 2], "b": [10, 20]}))
        schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
        turned = engine.map(rows, ["a", "b"], turned_round, schema)
        assert as_set(self.all_rows(engine, turned)) == [(1, 10), (2, 20)]

    def test_a_narrower_type_is_widened_to_the_one_promised(self, engine: Any) -> None:
        rows = engine.map(self.numbers(engine, 3), ["n"], small_ints, NUMBERS)
        assert as_set(self.all_rows(engine, rows)) == [(0,), (1,), (2,)]

    def test_columns_other_than_promised_are_refused(self, engine: Any) -> None:
        rows = engine.map(self.numbers(engine, 3), ["n"], misnamed, NUMBERS)
        with pytest.raises(UsageError, match=r"columns are not those promised.*'m'"):
            engine.run(rows, same, NUMBERS)

    # extend

    def test_extend_answers_row_for_row_and_leaves_the_rest_untouched(self, engine: Any) -> None:
        payload = pa.array([{"x": [1, 2]}, None, {"x": None}, {"x": []}])
        table = pa.table({"n": [5, 6, 7, 8], "payload": payload})
        fields = pa.schema({"plus": pa.int64()})
        longer = engine.extend(self.spread(engine, table), ["n"], partial(plus, 1), fields)
        assert engine.schema(longer).names == ["n", "payload", "plus"]
        want = table.append_column("plus", pa.array([6, 7, 8, 9]))
        assert as_set(self.all_rows(engine, longer)) == as_set(want)

    @pytest.mark.parametrize("task", [one_by_one, all_at_once])
    def test_answers_may_come_in_batches_of_another_size(self, engine: Any, task: Any) -> None:
        fields = pa.schema({"plus": pa.int64()})
        longer = engine.extend(self.numbers(engine), ["n"], task, fields)
        want = [(n, f"s{n}", n + 1) for n in range(20)]
        assert as_set(self.all_rows(engine, longer)) == sorted(want, key=repr)

    @pytest.mark.parametrize("task", [one_answer_short, one_answer_over])
    def test_extend_refuses_what_is_not_one_answer_a_row(self, engine: Any, task: Any) -> None:
        longer = engine.extend(self.numbers(engine), ["n"], task, pa.schema({"plus": pa.int64()}))
        with pytest.raises(UsageError, match="must answer row for row"):
            engine.run(longer, count_rows, NUMBERS)

    def test_extend_by_several_fields_calls_its_task_once(self, engine: Any) -> None:
        longer = engine.extend(self.numbers(engine), ["n", "s"], by_chance, CHANCE)
        got = self.all_rows(engine, longer)
        assert got.schema.names == ["n", "s", "left", "right"]
        assert got["left"].to_pylist() == got["right"].to_pylist()
        assert len(set(got["left"].to_pylist())) == 20

    def test_extend_refuses_a_column_that_is_there(self, engine: Any) -> None:
        with pytest.raises(UsageError, match="a column is there already: column='n'"):
            engine.extend(self.numbers(engine), ["n"], same, NUMBERS)

    # exchange

    def test_exchange_brings_each_row_to_its_partition(self, engine: Any) -> None:
        to = pa.array([3, 0, 3, 1, 0, 3], pa.int32())
        rows = self.spread(engine, pa.table({"to": to, "s": list("abcdef")}))
        told = engine.run(engine.exchange(rows, "to", 5), tell_places, PLACES)
        assert told.to_pylist() == [
            {"places": [0], "rows": 2},
            {"places": [1], "rows": 1},
            {"places": [3], "rows": 3},
        ]

    def test_a_list_column_sends_copies_and_leaves_as_one_number(self, engine: Any) -> None:
        to = pa.array([[0, 2], [1], [], [2, 2]], pa.list_(pa.int32()))
        rows = self.spread(engine, pa.table({"s": list("abcd"), "to": to, "n": range(4)}))
        sent = engine.exchange(rows, "to", 3)
        assert engine.schema(sent).field("to").type == pa.int32()
        want = [("a", 0, 0), ("a", 2, 0), ("b", 1, 1), ("d", 2, 3), ("d", 2, 3)]
        assert as_set(self.all_rows(engine, sent)) == want
        told = engine.run(sent, tell_places, PLACES)
        assert told["rows"].to_pylist() == [1, 1, 3]

    @pytest.mark.parametrize("wrong", [None, -1, 4])
    def test_a_row_that_names_no_partition_fails(self, engine: Any, wrong: int | None) -> None:
        to = pa.array([0, wrong, 3], pa.int32())
        sent = engine.exchange(self.spread(engine, pa.table({"to": to})), "to", 4)
        with pytest.raises(UsageError, match=f"column='to'.*found={wrong}"):
            engine.run(sent, count_rows, NUMBERS)

    # attach

    def test_attach_is_a_left_join_in_which_null_equals_null(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"k": ["a", "b", None, "b", "z"], "v": range(5)}))
        matches = self.spread(engine, pa.table({"k": ["b", None, "q"], "w": [7, 8, 9]}))
        joined = engine.attach(rows, matches, ["k"])
        assert engine.schema(joined).names == ["k", "v", "w"]
        want = [("a", 0, None), ("b", 1, 7), (None, 2, 8), ("b", 3, 7), ("z", 4, None)]
        assert as_set(self.all_rows(engine, joined)) == sorted(want, key=repr)

    def test_equal_matches_count_once_and_different_ones_each(self, engine: Any) -> None:
        place = [{"file": "f", "at": 1}, {"file": "f", "at": 1}, {"file": "f", "at": None}, None]
        rows = self.spread(engine, pa.table({"k": [1, 2, 3], "v": list("abc")}))
        matches = self.spread(engine, pa.table({"k": [1, 1, 2, 2], "place": place}))
        got = self.all_rows(engine, engine.attach(rows, matches, ["k"]))
        want = [(1, "a", place[0]), (2, "b", place[2]), (2, "b", None), (3, "c", None)]
        assert as_set(got) == sorted(want, key=repr)

    def test_attach_compares_all_columns_named(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"p": ["x", "x", "y"], "k": [1, 2, 1]}))
        matches = self.spread(engine, pa.table({"k": [1, 2], "p": ["x", "y"], "w": [True, True]}))
        got = self.all_rows(engine, engine.attach(rows, matches, ["k", "p"]))
        assert as_set(got) == [("x", 1, True), ("x", 2, None), ("y", 1, None)]

    def test_rows_may_be_matched_with_what_was_made_of_them(self, engine: Any) -> None:
        rows = self.numbers(engine, 6)
        even = engine.map(rows, ["n"], keep_even, NUMBERS)
        fields = pa.schema({"plus": pa.int64()})
        matches = engine.extend(even, ["n"], partial(plus, 100), fields)
        got = self.all_rows(engine, engine.attach(rows, matches, ["n"]))
        want = [(n, f"s{n}", None if n % 2 else n + 100) for n in range(6)]
        assert as_set(got) == want

    def test_columns_of_different_types_are_not_matched(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"k": [1]}))
        matches = self.spread(engine, pa.table({"k": ["1"], "w": [1]}))
        with pytest.raises(UsageError, match="of different types: column='k'"):
            engine.attach(rows, matches, ["k"])

    def test_attach_refuses_a_column_that_is_there(self, engine: Any) -> None:
        rows = self.numbers(engine)
        with pytest.raises(UsageError, match="a column is there already: column='s'"):
            engine.attach(rows, rows, ["n"])

    # keep

    def test_kept_rows_are_made_once(self, engine: Any) -> None:
        drawn = engine.map(self.numbers(engine), ["n"], by_chance, CHANCE)
        with engine.keep(drawn) as kept:
            first = engine.run(kept, same, CHANCE)
            assert as_set(engine.run(kept, same, CHANCE)) == as_set(first)
            assert as_set(self.all_rows(engine, kept)) == as_set(first)
        assert as_set(engine.run(drawn, same, CHANCE)) != as_set(first)

    def test_what_is_held_here_is_all_that_is_kept(self, engine: Any) -> None:
        drawn = engine.map(self.numbers(engine), ["n"], by_chance, CHANCE)
        assert engine.held(drawn) is None
        with engine.keep(drawn) as kept:
            held = engine.held(kept)
            assert held is None or engine.in_process
            if held is not None:  # not on a disk
                assert pa.Table.from_batches(held).equals(engine.to_table(kept))

    # few

    def test_an_estimate_runs_nothing(self, engine: Any) -> None:
        failing = engine.map(self.numbers(engine), ["n"], partial(refuse, UsageError), NUMBERS)
        told = engine.estimate(failing)
        assert told is None if engine.name == "local" else told is None or told >= 0
        assert not engine.is_stored(failing)

    def test_few_rows_that_are_kept_elsewhere_come_whole_or_not_at_all(self, engine: Any) -> None:
        drawn = engine.map(self.numbers(engine, 20, parts=3), ["n"], by_chance, CHANCE)
        with engine.keep(drawn) as kept:
            found = engine.few(kept, 20, 1 << 20)
            if engine.name == "local":
                assert found is None
                return
            assert as_set(found) == as_set(engine.run(kept, same, CHANCE))
            assert engine.few(kept, 19, 1 << 20) is None
            assert engine.few(kept, 20, 20) is None

    # run

    def test_counters_of_all_tasks_add_up(self, engine: Any) -> None:
        told = engine.run(self.numbers(engine, 20, parts=3), count_rows, NUMBERS)
        assert pc.sum(told["n"]).as_py() == 20
        assert told.schema.equals(NUMBERS)
        assert engine.counters["rows"] == 20
        assert engine.counters["tasks"] == told.num_rows == 3

    def test_a_task_is_not_called_for_a_partition_without_rows(self, engine: Any) -> None:
        rows = self.spread(engine, pa.table({"to": pa.array([4, 4], pa.int32())}))
        told = engine.run(engine.exchange(rows, "to", 8), tell_places, PLACES)
        assert told.to_pylist() == [{"places": [4], "rows": 2}]

    def test_no_rows_give_an_empty_table_of_the_promised_columns(self, engine: Any) -> None:
        empty = self.spread(engine, pa.table({"n": pa.array([], pa.int64())}))
        to = pa.schema({"to": pa.list_(pa.int32())})
        sent = engine.exchange(engine.map(empty, ["n"], same, to), "to", 4)
        assert engine.run(sent, tell_places, PLACES).equals(PLACES.empty_table())
        assert engine.counters == {}

    def test_nothing_runs_before_run(self, engine: Any) -> None:
        failing = engine.map(self.numbers(engine), ["n"], partial(refuse, UsageError), NUMBERS)
        engine.exchange(engine.attach(failing, failing, ["n"]), "n", 3)

    @pytest.mark.parametrize("kind", [UsageError, CorruptError])
    def test_an_error_of_a_task_comes_back_as_itself(self, engine: Any, kind: Any) -> None:
        rows = engine.map(self.numbers(engine), ["n"], partial(refuse, kind), NUMBERS)
        with pytest.raises(kind, match=r"^no such thing: here: rows=\d+$"):
            engine.run(rows, same, NUMBERS)

    def test_receipts_keep_their_types(self, engine: Any) -> None:
        schema = pa.schema(
            {
                "raw": pa.binary(),
                "when": pa.timestamp("us", tz="UTC"),
                "local": pa.timestamp("us"),
                "money": pa.decimal128(12, 2),
                "small": pa.int16(),
                "tags": pa.list_(pa.string()),
            }
        )
        row = {
            "raw": b"\x00\xff",
            "when": 1_600_000_000_000_000,
            "local": 1,
            "money": 5,
            "small": -3,
            "tags": ["x", None],
        }
        table = pa.Table.from_pylist([row, dict.fromkeys(row)], schema=schema)
        told = engine.run(self.spread(engine, table, 1), same, schema)
        assert told.schema.equals(schema)
        assert as_set(told) == as_set(table)

    # jobs

    @pytest.mark.parametrize(("tasks", "expected"), [(None, 7), (3, 3), (100, 7)])
    def test_every_job_is_done_once_in_as_many_tasks_as_asked(
        self, engine: Any, tasks: int | None, expected: int
    ) -> None:
        errands = [Errand(n, f"n{n}", bytes([n])) for n in range(7)]
        done = run_jobs(engine, errands, partial(carry_out, {2, 5}), Done, tasks)
        assert sorted(one.number for one in done) == [1, 2, 2, 3, 4, 5, 5, 6]
        assert engine.counters == {"tasks": expected, "errands": 7}
        assert {(one.number, one.until_then) for one in done} == {
            (n, n // expected + 1) for n in range(1, 7)
        }

    def test_jobs_and_receipts_keep_the_values_of_their_fields(self, engine: Any) -> None:
        errands = [Errand((1 << 63) - 1, None, b"\x00\xff"), Errand(-(1 << 63), "ä\0", b"")]
        done = run_jobs(engine, errands, partial(carry_out, set()), Done, 1)
        assert done == [
            Done(one.number, one.name, one.raw, place) for place, one in enumerate(errands, 1)
        ]

    def test_no_jobs_run_nothing(self, engine: Any) -> None:
        assert run_jobs(engine, [], partial(fail, UsageError), Done) == []
        assert engine.counters == {}

    @pytest.mark.parametrize("kind", [UsageError, CorruptError])
    def test_an_error_of_a_job_comes_back_as_itself(self, engine: Any, kind: Any) -> None:
        with pytest.raises(kind, match=r"^no such errand: number=4$"):
            run_jobs(engine, [Errand(4, "n", b"")], partial(fail, kind), Done)
