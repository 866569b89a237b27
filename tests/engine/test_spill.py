"""Batches held beyond the budget of memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.engine import spill as spilling
from metatable.engine.batches import gathered
from metatable.engine.local import LocalEngine
from metatable.engine.spill import LEAST_SHARE, Memory, Spill
from metatable.storage.errors import StoreError
from metatable.storage.store import Store


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number], "s": [f"row {number}"]})


@given(st.lists(st.integers(0, 3), max_size=30), st.sampled_from([0, 50, 200, 1 << 20]))
def test_a_hand_gives_back_what_it_was_given_in_order(places: list[int], memory_bytes: int) -> None:
    spill = Spill(Memory(memory_bytes))
    hands = [spill.hand() for _ in range(4)]
    for number, place in enumerate(places):
        spill.add(hands[place], batch(number))
    spill.finish()
    for place, hand in enumerate(hands):
        want = [number for number, at in enumerate(places) if at == place]
        for _ in range(2):
            got = [n for one in hand.batches() for n in one["n"].to_pylist()]
            assert got == want
    assert (spill.spilled_bytes > 0) == (
        sum(batch(n).nbytes for n in range(len(places))) > memory_bytes
    )


def test_memory_stays_within_the_budget_and_disk_is_given_back(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = Spill(Memory(1 << 20))
    hand = spill.hand()
    before = pa.total_allocated_bytes()
    for _ in range(40):
        spill.add(hand, pa.record_batch({"n": pa.nulls(1 << 14, pa.int64()).fill_null(7)}))
        assert pa.total_allocated_bytes() - before < 3 << 20
    spill.finish()
    assert spill.spilled_bytes >= 4 << 20
    [of_process] = Path(tmp_path).iterdir()
    assert sorted(one.is_dir() for one in of_process.iterdir()) == [
        False,
        True,
    ]  # and what it holds
    read = list(hand.batches())
    assert sum(one.num_rows for one in read) == 40 << 14
    del hand, spill
    gc.collect()
    assert not any(one.is_dir() for one in of_process.iterdir())
    assert read[0]["n"][0].as_py() == 7


def test_what_goes_to_disk_is_joined_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand that holds the whole budget is not copied whole to be written."""
    held: list[int] = []

    def told(*asked: Any) -> Iterator[pa.RecordBatch]:
        for piece in gathered(*asked):
            held.append(pa.total_allocated_bytes() - before)
            yield piece

    monkeypatch.setattr(spilling, "WRITTEN_BYTES", 256 << 10)
    monkeypatch.setattr(spilling, "gathered", told)
    spill = Spill(Memory(4 << 20))
    hand, before = spill.hand(), pa.total_allocated_bytes()
    for _ in range(40):
        spill.add(hand, wide())
    spill.finish()
    assert held
    assert max(held) < 5 << 20
    assert sum(one.num_rows for one in hand.batches()) == 40 << 14


def wide() -> pa.RecordBatch:
    return pa.record_batch({"n": pa.nulls(1 << 14, pa.int64()).fill_null(7)})


def test_columns_count_once_until_the_last_who_holds_them_is_forgotten() -> None:
    memory = Memory(1 << 20)
    first, second = Spill(memory), Spill(memory)
    one, other = wide(), wide()
    both = pa.record_batch({"n": one["n"], "m": one["n"], "o": other["n"]})
    for spill, batch in ((first, one), (second, both), (second, one)):
        spill.add(spill.hand(), batch)
    assert memory.held_bytes == one.nbytes + other.nbytes
    del first
    gc.collect()
    assert memory.held_bytes == one.nbytes + other.nbytes
    del second, spill
    gc.collect()
    assert memory.held_bytes == 0


def test_slices_of_a_column_and_dictionaries_count_for_themselves() -> None:
    memory = Memory(1 << 20)
    spill, rows = Spill(memory), wide()
    for start in (0, 1 << 13):
        spill.add(spill.hand(), rows.slice(start, 1 << 13))
    assert memory.held_bytes == rows.nbytes
    numbers = pa.nulls(1 << 14, pa.int32()).fill_null(0)
    words = [pa.DictionaryArray.from_arrays(numbers, [word * 99]) for word in "ab"]
    spill.add(spill.hand(), pa.record_batch(words, ["a", "b"]))
    assert memory.held_bytes >= rows.nbytes + 2 * numbers.nbytes


def test_columns_that_were_lent_count_nothing_and_what_is_made_of_them_does() -> None:
    memory = Memory(1 << 20)
    rows = wide()
    memory.lend(pa.Table.from_batches([rows]))
    spill = Spill(memory)
    spill.add(spill.hand(), rows.slice(100))
    assert memory.held_bytes == 0
    spill.add(spill.hand(), rows.take(pa.array(range(1 << 14))))
    assert memory.held_bytes >= 8 << 14
    before, words = memory.held_bytes, pa.array(["a", "b" * 99])
    memory.lend(pa.table({"words": words}))
    numbers = pa.array(np.zeros(1 << 15, np.int32))
    own = pa.DictionaryArray.from_arrays(numbers, words)
    spill.add(spill.hand(), pa.record_batch({"words": own}))
    assert memory.held_bytes >= before + numbers.nbytes
    assert spill.spilled_bytes == 0


def test_spills_share_a_budget_and_each_keeps_a_little_of_its_own() -> None:
    memory = Memory(1 << 20)
    first, second = Spill(memory), Spill(memory)
    held = first.hand()
    for _ in range(7):
        first.add(held, wide())
    assert first.spilled_bytes == 0
    hand = second.hand()
    for _ in range(40):
        second.add(hand, wide())
        assert memory.held_bytes <= (1 << 20) + (1 << 20) // LEAST_SHARE + wide().nbytes
    assert first.spilled_bytes == 0
    assert second.spilled_bytes >= 38 * wide().nbytes
    second.finish()
    assert sum(one.num_rows for one in hand.batches()) == 40 << 14
    del hand, second
    gc.collect()
    assert memory.held_bytes == 7 * wide().nbytes


def test_a_full_hand_keeps_no_file_open() -> None:
    spill = Spill(Memory(0))
    before = len(os.listdir("/proc/self/fd"))
    hands = []
    for number in range(20):
        hands.append(spill.hand())
        spill.add(hands[-1], batch(number))
        spill.add(hands[-1], batch(-number))
        spill.full(hands[-1])
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    spill.finish()
    got = [[n for one in hand.batches() for n in one["n"].to_pylist()] for hand in hands]
    assert got == [[number, -number] for number in range(20)]


def test_a_full_hand_that_is_in_memory_is_written_and_closed_later() -> None:
    spill = Spill(Memory(1 << 20))
    first, second = spill.hand(), spill.hand()
    spill.add(first, wide())
    spill.full(first)
    gc.collect()  # files of other tests do not go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(12):
        spill.add(second, wide())
    assert spill.spilled_bytes
    assert len(os.listdir("/proc/self/fd")) == before + 1
    spill.finish()
    assert sum(one.num_rows for one in first.batches()) == 1 << 14
    assert sum(one.num_rows for one in second.batches()) == 12 << 14


def test_very_many_batches_weigh_more_than_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "LIGHT_BATCHES", 100)
    few, many = Spill(Memory(1 << 20)), Spill(Memory(1 << 20))
    for spill, count in ((few, 100), (many, 3000)):
        hands = [spill.hand() for _ in range(10)]
        for number in range(count):
            spill.add(hands[number % 10], batch(number))
        spill.finish()
        got = [n for hand in hands for one in hand.batches() for n in one["n"].to_pylist()]
        assert sorted(got) == list(range(count))
    assert 3000 * batch(0).nbytes < 1 << 20
    assert not few.spilled_bytes
    assert many.spilled_bytes


def test_of_many_hands_no_file_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "MOST_OPEN", 4)
    spill = Spill(Memory(0))
    hands = [spill.hand() for _ in range(5)]
    gc.collect()  # files of other tests do not go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        spill.add(hands[number % 5], batch(number))
        assert len(os.listdir("/proc/self/fd")) == before
    spill.finish()
    for place, hand in enumerate(hands):
        for _ in range(2):
            got = [n for one in hand.batches() for n in one["n"].to_pylist()]
            assert got == list(range(place, 20, 5))


def test_a_full_disk_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spill, "path", lambda *_: "/dev/full")
    spill = Spill(Memory(0))
    with pytest.raises(StoreError, match=r"temporary folder .*No space left on device"):
        spill.add(spill.hand(), wide())


def test_a_temporary_folder_that_is_not_there_is_told_as_such(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", os.path.join(tmp_path, "gone"))
    spill = Spill(Memory(0))
    with pytest.raises(StoreError, match=r"temporary folder .*path='.*/gone'"):
        spill.add(spill.hand(), batch(1))
    with pytest.raises(StoreError, match=r"temporary folder .*path='.*/gone'"):
        LocalEngine().scratch(Store("memory://scratch"))


def test_a_mapping_for_which_there_is_no_memory_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: str) -> None:
        raise OSError("Memory mapping file failed: Cannot allocate memory")

    spill = Spill(Memory(0))
    hand = spill.hand()
    spill.add(hand, batch(1))
    spill.finish()
    monkeypatch.setattr("pyarrow.memory_map", fails)
    with pytest.raises(MemoryError, match="mapping file failed"):
        list(hand.batches())
