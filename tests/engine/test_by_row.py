"""Answers that name their rows come back beside them, by number alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable.engine import local, partitions
from metatable.engine.by_row import ROW, listed
from metatable.engine.local import LocalEngine
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from tests.engine.test_local import ENGINES, PLUS, numbers
from tests.engine_contract import same


def often(calls: list[int], batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
    """Even numbers are answered by their successors, those that three divides twice."""
    asked = pa.Table.from_batches(batches)["n"].to_numpy()
    calls.append(len(asked))
    rows = np.repeat(np.arange(len(asked)), np.where(asked % 3, 1, 2))
    told = pa.array(asked[rows] + 1, mask=asked[rows] % 2 == 1)
    yield pa.record_batch([pa.array(rows), told], [ROW, "plus"])


def wrong(rows: list[int], batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
    list(batches)
    yield pa.record_batch(
        [pa.array(rows, pa.int64()), pa.nulls(len(rows), pa.int64())], [ROW, "plus"]
    )


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("partition_rows", [3, 100])
def test_a_row_that_is_named_twice_comes_out_twice_in_its_place(
    name: str, partition_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PARTITION_ROWS", partition_rows)
    monkeypatch.setattr(local, "AT_ONCE_ROWS", 10)
    engine, calls = LocalEngine(**ENGINES[name]), list[int]()
    payload = numbers(30).append_column("s", pa.array([f"s{n}" for n in range(30)]))
    rows = engine.find(engine.rows(payload), ["n"], partial(often, calls), PLUS)
    assert not calls  # lazy
    got = engine.to_table(rows)
    want = [n for n in range(30) for _ in range(1 if n % 3 else 2)]
    assert got["n"].to_pylist() == want
    assert got["s"].to_pylist() == [f"s{n}" for n in want]
    assert got["plus"].to_pylist() == [None if n % 2 else n + 1 for n in want]
    assert len(calls) < 10 or partition_rows == 3


def test_rows_that_are_answered_once_are_not_copied() -> None:
    engine = LocalEngine(threads=1)
    given = pa.table({"n": [1, 5, 7]})
    found = engine.to_table(engine.find(engine.rows(given), ["n"], partial(often, []), PLUS))
    addresses = [one["n"].chunk(0).buffers()[1].address for one in (given, found)]
    assert addresses[0] == addresses[1]


def test_no_rows_have_no_answers() -> None:
    engine = LocalEngine(threads=2)
    rows = engine.find(engine.rows(numbers(0)), ["n"], same, PLUS)
    assert engine.to_table(rows).schema.names == ["n", "plus"]


@pytest.mark.parametrize(
    "rows", [[], [0, 2], [1, 2], [0, 1], [0, 1, 2, 3], [0, 2, 1], [-1, 0, 1, 2]]
)
def test_answers_that_leave_out_a_row_are_refused(rows: list[int]) -> None:
    engine = LocalEngine(threads=1)
    found = engine.find(engine.rows(numbers(3)), ["n"], partial(wrong, rows), PLUS)
    with pytest.raises(UsageError, match="answers must name each of the rows"):
        engine.to_table(found)


@pytest.mark.parametrize("cuts", [[], [4], [1, 4, 9]])
def test_lists_hold_the_answers_that_rows_beside_them_have(cuts: list[int]) -> None:
    engine, given = LocalEngine(threads=1), pa.table({"n": range(10)})
    plain = engine.to_table(engine.find(engine.rows(given), ["n"], partial(often, []), PLUS))
    [whole] = often([], iter(given.to_batches()), Counters())
    ends = [int(np.searchsorted(whole[ROW].to_numpy(), cut)) for cut in [0, *cuts, 10]]
    pieces = [whole.slice(a, b - a) for a, b in pairwise(ends)]
    lists = pa.Table.from_batches(listed(pieces, PLUS.field(0)))["plus"]
    assert pc.list_value_length(lists).to_pylist() == [1 if n % 3 else 2 for n in range(10)]
    assert pc.list_flatten(lists).to_pylist() == plain["plus"].to_pylist()


@pytest.mark.parametrize("rows", [[0, 2], [1, 2], [0, 2, 1], [-1, 0]])
def test_lists_that_leave_out_a_row_are_refused(rows: list[int]) -> None:
    with pytest.raises(UsageError, match="answers must name each of the rows"):
        [*listed(wrong(rows, iter(()), Counters()), PLUS.field(0))]


def test_a_column_that_is_there_or_is_not_is_refused_before_anything_runs() -> None:
    engine = LocalEngine(threads=1)
    with pytest.raises(UsageError, match="no such column: column='x'"):
        engine.find(engine.rows(numbers(3)), ["x"], same, PLUS)
    with pytest.raises(UsageError, match="a column is there already: column='n'"):
        engine.find(engine.rows(numbers(3)), ["n"], same, pa.schema({"n": pa.int64()}))
