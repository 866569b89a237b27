"""Filters in the HFiles of the record index: keys that are new are told by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Explain
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import file_filter
from metatable.storage.store import Store

HELD, COMMITS = 6000, 2
SMALL = {"hfile_block_bytes": 1024, "hfile_target_bytes": 16 << 10, "file_rows": 2000}
RATE = {"record_filter_fpp": 0.01}


def keys(first: int, end: int) -> pa.Table:
    ids = [f"k{number:06d}" for number in range(first, end)]
    return pa.table({"id": ids, "v": range(first, end)})


def filled(uri: Path, **options: Any) -> metatable.Table:
    table = metatable.create(
        uri,
        keys(0, 1).schema,
        key="id",
        index="record",
        options={**SMALL, **options},
        storage_options={"durable": "false"},
    )
    for part in range(COMMITS):
        table.insert(keys(HELD * part // COMMITS, HELD * (part + 1) // COMMITS))
    table.delete(keys(100, 200))
    return table


def with_filters(table: metatable.Table) -> set[bool]:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    refs = Snapshot(store, newest).refs("record_index")
    return {file_filter.META in HFileReader.open(store, ref.path).opened.meta for ref in refs}


def asked(table: metatable.Table, rows: pa.Table) -> Explain:
    cache.clear()
    return metatable.open(table.uri).explain(rows)


def found(table: metatable.Table, rows: pa.Table) -> list[bool]:
    located = table.tag_locations(rows)["_location"]
    return [bool(one) for one in located.combine_chunks().is_valid().to_pylist()]


@pytest.mark.each_once
@pytest.mark.parametrize("options", [{}, {"record_key_form": "plain"}], ids=["hash", "plain"])
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_a_tag_says_the_same_with_filters_and_without(
    tmp_path: Path, options: dict[str, Any], codec: str
) -> None:
    options = options | {"hfile_codec": codec}
    plain, filtered = (
        filled(tmp_path / name, **options, **more) for name, more in (("a", {}), ("b", RATE))
    )
    assert (with_filters(plain), with_filters(filtered)) == ({False}, {True})
    chance = np.random.default_rng(2)
    for count in (1, 40, 900, 4000):
        for first in (0, HELD - count // 3, HELD):
            rows = keys(first, first + count).take(chance.permutation(count))
            assert found(filtered, rows) == found(plain, rows)
    for table in (plain, filtered):
        table.compact(major=True)
        assert table.verify().findings == ()
    everything = keys(0, HELD + 500)
    assert found(filtered, everything) == found(plain, everything)
    assert with_filters(filtered) == {True}


def test_new_keys_leave_blocks_unread_that_keys_which_are_there_need(tmp_path: Path) -> None:
    plain, filtered = filled(tmp_path / "a"), filled(tmp_path / "b", **RATE)
    news, held = keys(HELD, HELD + 300), keys(500, 800)
    without, told = asked(plain, news).counters, asked(filtered, news).counters
    assert told["hfile.filtered"] > 0.95 * 300
    assert told["hfile.blocks"] < without["hfile.blocks"] / 4
    assert asked(filtered, held).counters.get("hfile.filtered", 0) <= 3 * len(held)
    assert all(found(filtered, held))


def test_of_many_keys_that_are_there_a_filter_is_asked_no_more_than_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of so many, a filter of that rate as good as never lets through the eleven that switch it off
    monkeypatch.setattr(file_filter, "SAMPLE_KEYS", 128)
    table = filled(tmp_path, **RATE, upkeep_files=0)
    table.compact(major=True)
    assert asked(table, keys(200, HELD + 300)).counters.get("hfile.filtered", 0) == 0
    assert asked(table, keys(HELD, 2 * HELD)).counters["hfile.filtered"] > 0.9 * HELD


def test_files_get_filters_from_when_the_option_is_set(tmp_path: Path) -> None:
    table = filled(tmp_path)
    assert with_filters(table) == {False}
    table.set_options(RATE)
    table.upsert(keys(HELD - 50, HELD + 50))
    assert with_filters(table) == {False, True}
    rows = keys(50, HELD + 100)
    expected = [not 100 <= at < 200 and at < HELD + 50 for at in range(50, HELD + 100)]
    assert found(table, rows) == expected
    table.compact(major=True)
    assert with_filters(table) == {True}
    assert found(table, rows) == expected
    table.set_options({"record_filter_fpp": 0})
    table.compact(major=True)
    table.upsert(keys(HELD + 50, HELD + 90))
    assert False in with_filters(table)
    assert table.verify().findings == ()
