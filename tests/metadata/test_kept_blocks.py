"""Few keys are told from kept blocks what each HFile tells by itself, which is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.metadata.hfiles import asking, kept_blocks
from metatable.metadata.hfiles.kept_blocks import KeptBlocks
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader
from tests.long import one_in

COUNT = 20_000


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def rows(numbers: Any) -> pa.Table:
    return pa.table({"id": [f"k{number}" for number in numbers], "v": [0] * len(numbers)})


def made(folder: Path, **options: Any) -> Table:
    """An index of sixteen files, of several blocks each."""
    table = metatable.create(
        folder,
        rows([0]).schema,
        key="id",
        index="record",
        options={
            "hfile_block_bytes": 8 << 10,
            "hfile_target_bytes": 30_000,
            "file_rows": 3000,
            "upkeep_files": 0,
            **options,
        },
        storage_options={"durable": "false"},
    )
    table.insert(rows(range(COUNT)))
    return table


def both(table: Table, numbers: Any) -> tuple[list[bool], int]:
    """Which keys are there, as all files say; and how many files were asked for themselves."""
    asked, find, told = rows(numbers), HFileReader.find_alike, [0]

    def noted(self: HFileReader, keys: Any, *, keep: bool = True) -> Any:
        told[0] += 1
        return find(self, keys, keep=keep)

    before = dict(table.counters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HFileReader, "find_alike", noted)
        found = table.tag_locations(asked)
    lookups = table.counters.since(before)["hfile.lookups"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_from_kept", lambda *_: None)
        before = dict(table.counters)
        assert table.tag_locations(asked).equals(found)
        assert table.counters.since(before)["hfile.lookups"] == lookups
    return found["_location"].combine_chunks().is_valid().to_pylist(), told[0]


@pytest.mark.parametrize("seed", one_in(2, range(6)))
def test_kept_blocks_tell_what_their_files_do(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    table = made(tmp_path)
    for _ in range(4):
        numbers = random.integers(0, COUNT * 5 // 4, random.integers(250, 400))  # in all files
        there = [number < COUNT for number in numbers.tolist()]
        assert both(table, numbers) == (there, 16)  # no block was kept, or some
        found, asked = both(table, numbers)
        assert found == there
        assert asked <= 12  # files in which a block opens with a key
        held = [*cache.blocks._held]
        for name in random.choice(len(held), len(held) // 8, replace=False).tolist():
            cache.blocks._held.pop(held[name])
        found, asked = both(table, numbers)
        assert found == there
        assert 0 < asked <= 16
        cache.clear()


def test_first_keys_of_blocks_are_found(tmp_path: Path) -> None:
    table = made(tmp_path)
    every = both(table, range(0, COUNT, 50))
    assert every == ([True] * (COUNT // 50), 16)
    told = []
    for start in range(50):  # all keys, and so the first of each block
        numbers = range(start, COUNT, 50)
        both(table, numbers)
        found, asked = both(table, numbers)
        assert all(found)
        told.append(asked)
    assert min(told) == 0 < max(told) < 16


def test_keys_that_went_are_not_there(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.delete(rows(range(0, 300, 3)))
    for _ in range(2):
        assert both(table, range(300))[0] == [number % 3 > 0 for number in range(300)]


@pytest.mark.parametrize("options", [{"record_filter_fpp": 0.01}, {"record_key_form": "plain"}])
def test_other_files_are_asked_for_themselves(tmp_path: Path, options: dict[str, Any]) -> None:
    table = made(tmp_path, **options)
    for _ in range(2):
        assert both(table, range(19_900, 20_100))[0] == [True] * 100 + [False] * 100


def test_few_keys_that_leave_a_file_out_are_asked_of_the_others(tmp_path: Path) -> None:
    table = made(tmp_path)
    for _ in range(2):
        found, asked = both(table, [1, 2, COUNT])
        assert found == [True, True, False]
        assert asked > 0


def test_so_many_blocks_are_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_blocks, "MOST_BLOCKS", 10)
    table = made(tmp_path)
    for _ in range(2):
        assert both(table, range(200)) == ([True] * 200, 16)


def test_files_that_do_not_ascend_are_no_table(tmp_path: Path) -> None:
    table = made(tmp_path)
    both(table, range(200))
    name = next(one for one in cache.shared._held if one[0] == "kept-blocks")
    store = table._snapshot(None).store
    readers = [HFileReader.open(store, path) for _, path in name[1:]]
    assert KeptBlocks.of(readers) is not None
    assert KeptBlocks.of(readers[::-1]) is None
