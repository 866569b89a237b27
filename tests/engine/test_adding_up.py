"""What many tasks tell of the same things is added up before it is in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable.engine import adding_up, partitions
from metatable.engine.adding_up import Sums, added_up, folded
from metatable.engine.local import LocalEngine
from metatable.storage.counters import Counters

TOLD = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])


def added(told: pa.Table) -> pa.Table:
    found = told.group_by(["a", "b"], use_threads=False).aggregate([("n", "sum")])
    return pa.table(found.columns, schema=TOLD)


def is_alone(told: pa.Table) -> pa.ChunkedArray:
    return pc.is_null(told["b"])


SUMS = Sums(TOLD, ("a", "b"), added)
ALONE = Sums(TOLD, ("a", "b"), added, is_alone)


def count(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Task: its rows added up, and one that stays alone."""
    yield from added(pa.Table.from_batches(list(batches))).to_batches()
    yield pa.RecordBatch.from_pylist([{"a": "x", "b": None, "n": 1}], schema=TOLD)


class Elsewhere(LocalEngine):
    """Tasks run here, as if it were elsewhere; `told`: rows of each `run`."""

    in_process = False

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.told: list[int] = []

    def run(self, *given: Any) -> pa.Table:
        made = super().run(*given)
        self.told.append(made.num_rows)
        return made


def _rows(things: int, times: int) -> pa.Table:
    """Each thing so many times, each time from first to last."""
    numbers = [number for _ in range(times) for number in range(things)]
    told = {
        "a": [f"a{number // 10}" if number else None for number in numbers],
        "b": [f"b{number % 10}" for number in numbers],
        "n": numbers,
    }
    return pa.table(told, schema=TOLD)


def _counted(told: pa.Table) -> Counter[Any]:
    found = Counter[Any]()
    for row in told.to_pylist():
        found[row["a"], row["b"]] += row["n"]
    return found


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("most", [0, 10_000])
def test_the_driver_is_told_of_each_thing_once_where_rows_are_many(
    monkeypatch: pytest.MonkeyPatch, slots: int, most: int
) -> None:
    monkeypatch.setattr(adding_up, "MOST_TOLD", most)
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 100)
    engine, rows = Elsewhere(slots), _rows(50, 40)
    told = added_up(engine, engine.rows(rows), count, ALONE, rows.num_rows)
    tasks = told.filter(is_alone(told)).num_rows
    assert tasks >= 20
    assert _counted(told) == _counted(rows) + Counter({("x", None): tasks})
    assert engine.told == [told.num_rows]  # one job
    assert (told.num_rows == 50 + tasks) == (most == 0)


def test_this_process_is_told_all_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding_up, "MOST_TOLD", 0)
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 100)
    engine, rows = LocalEngine(1), _rows(50, 4)
    assert added_up(engine, engine.rows(rows), count, SUMS, 200).num_rows == 2 * 51


@pytest.mark.parametrize("sums", [SUMS, ALONE])
@pytest.mark.parametrize("pieces", [0, 1, 2, 5])
def test_pieces_are_added_up_but_for_rows_that_stay_alone(pieces: int, sums: Sums) -> None:
    alone = pa.table({"a": ["x"], "b": [None], "n": [1]}, schema=TOLD)
    piece = pa.concat_tables([_rows(7, 1), alone])
    batches = [*folded([piece] * pieces, sums)]
    told = pa.Table.from_batches(batches, TOLD)
    assert all(batch.num_rows for batch in batches)
    assert _counted(told) == Counter({one: n * pieces for one, n in _counted(piece).items()})
    assert told.num_rows == (7 + (1 if sums is SUMS else pieces) if pieces else 0)
