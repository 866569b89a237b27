"""A lookup by row numbers answers as one whose candidates travel and come back by value."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.data.base_files import base_file
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.keys.key_texts import identity_columns
from metatable.data.reading import keyed_rows
from metatable.engine.by_row import ROW
from metatable.engine.local import LocalEngine
from metatable.index import bloom_lookup, create_index, key_filters
from metatable.index.bloom_lookup import BloomIndex, candidates
from metatable.index.found_rows import Candidates, _answers
from metatable.index.key_filters import AskedKeys, HashFilters, NoFilter, admitted
from metatable.index.presence import confirmed
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.bloom_filter import SEED, hashes_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.filters import build
from metatable.storage.store import Store
from tests.index.rows import make, rows, told_tags

INDEXES = ("metadata_bloom", "bloom")


def snapshot(table: metatable.Table, counters: Counters | None = None) -> Snapshot:
    store = Store(table.uri, counters=counters or Counters())
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


def by_value(table: metatable.Table, asked: pa.Table) -> pa.Table:
    """As on an engine whose workers share no memory."""
    engine, view = LocalEngine(2), snapshot(table)
    index = create_index(view.options)
    assert isinstance(index, BloomIndex)
    given = engine.rows(asked)
    find = partial(candidates, index._source, view)
    inputs = identity_columns(view.options, asked.schema.names)
    return engine.to_table(confirmed(engine, given, given, inputs, find, view))


@pytest.mark.each_once
@pytest.mark.parametrize("scope", ["partition", "global"])
@pytest.mark.parametrize("index", INDEXES)
def test_answers_by_row_are_those_by_value(
    table_uri: str, index: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated keys, null and empty partitions, pages and whole files, several steps of a file."""
    table = make(table_uri, index, scope, file_rows=60, row_group_rows=7)
    table.insert(rows(0, 200))
    table.upsert(rows(80, 120, value=9))
    cities = pa.array([None, "", None, "", "cairo"], pa.string())
    odd = pa.table({"id": ["k000999"] * 5, "city": cities, "value": range(5), "note": ["n"] * 5})
    table.insert(odd.slice(0, 1))
    asked = pa.concat_tables([rows(150, 320), odd, rows(0, 130), odd, rows(100, 160)])
    asked = asked.take(pa.array(np.random.default_rng(3).permutation(len(asked))))
    expected = by_value(table, asked)
    found = sum(one is not None for one in told_tags(expected))
    assert found == 50 + 130 + 60 + (10 if scope == "global" else 8)
    assert table.tag_locations(asked).equals(expected)
    for name, value in (
        ("FOUND_ROWS", 0),
        ("FOUND_ROWS", 1 << 30),
    ):  # pages alone; whole files alone
        monkeypatch.setattr(keyed_rows, name, value)
        assert table.tag_locations(asked).equals(expected)
    monkeypatch.setattr(base_file, "STEP_BYTES", 1)
    assert table.tag_locations(asked).equals(expected)
    monkeypatch.setattr(key_filters, "FEW_KEYS", 0)  # hashed for each of Hudi's filters
    assert table.tag_locations(asked).equals(expected)
    monkeypatch.setattr(bloom_lookup, "TOGETHER", 0)  # each partition's keys taken by themselves
    assert table.tag_locations(asked).equals(expected)
    monkeypatch.setattr(bloom_lookup, "APART", 1)  # each partition's keys in order by themselves
    assert table.tag_locations(asked).equals(expected)
    monkeypatch.setattr(key_filters, "MANY_KEYS", 4)  # files asked for all keys of their bounds
    monkeypatch.setattr(key_filters, "SOME_KEYS", 3)
    assert table.tag_locations(asked).equals(expected)


def test_parts_of_keys_have_the_hashes_of_their_own_texts() -> None:
    texts = pa.array([f"{number:04d}" * (1 + number % 3) for number in range(99)])
    every = AskedKeys(texts)
    for first, last in ((0, 40), (40, 40), (40, 99)):
        part = every.part(first, last)
        assert part.texts.equals(texts.slice(first, last - first))
        assert part.hashes(SEED).tolist() == hashes_of(texts)[first:last].tolist()


class TestFiltersOfManyKeys:
    """A filter that denies few keys of some is not asked for all."""

    @staticmethod
    def denied(share: int, count: int) -> int:
        """Of the keys but the first and last ones; of `share` in ten the filter is made."""
        texts = pa.array([f"k{number:06d}" for number in range(count + 14)])
        held = np.arange(len(texts)) % 10 < share
        made = HashFilters((build("fingerprints", hashes_of(texts.filter(held)), 1e-6),), SEED)
        found = admitted(made, AskedKeys(texts), 5, len(texts) - 9)
        own = held[5:-9]
        assert len(found) == count
        assert found[own].all()
        assert found[~own].all() or not found[~own].any()
        return int((~found).sum())

    def test_all_keys_are_admitted_where_most_of_some_are(self) -> None:
        assert self.denied(9, key_filters.MANY_KEYS) == 0

    def test_a_filter_that_denies_most_keys_is_asked_for_each(self) -> None:
        count = key_filters.MANY_KEYS
        assert 0.75 * count < self.denied(2, count) < 0.85 * count

    def test_a_filter_is_asked_for_each_of_few_keys(self) -> None:
        count = key_filters.MANY_KEYS - 1
        assert 0.05 * count < self.denied(9, count) < 0.15 * count

    def test_a_file_without_a_filter_admits_all(self) -> None:
        texts = pa.array([f"{number:05d}" for number in range(key_filters.MANY_KEYS)])
        assert admitted(NoFilter(), AskedKeys(texts), 0, len(texts)).all()


def test_a_filter_is_decoded_once_a_process_whatever_the_version(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "metadata_bloom", "partition")
    table.insert(rows(0, 60))
    cache.clear()
    asked: list[int] = []
    plain = Snapshot.filters

    def noted(view: Snapshot, slices: list[FileSlice]) -> object:
        asked.append(len(slices))
        return plain(view, slices)

    monkeypatch.setattr(Snapshot, "filters", noted)
    before = table.tag_locations(rows(0, 90))
    files = sum(asked)
    assert files == 3
    assert table.tag_locations(rows(0, 90)).equals(before)
    assert sum(asked) == files
    table.upsert(rows(0, 1))  # one file is another one now
    asked.clear()
    assert metatable.open(table.uri).tag_locations(rows(0, 90))["_location"].null_count == 30
    assert sum(asked) == 1


def test_a_key_of_two_slices_is_answered_twice_and_a_lonely_row_once() -> None:
    slices = [FileSlice(DataFile("p", name, "0-0-0", "20260101000000000")) for name in "ab"]
    told = _answers(
        [np.array([3, 1]), np.array([1])], [np.array([7, 8]), np.array([-1])], slices, 4
    )
    assert told[ROW].to_pylist() == [0, 1, 1, 2, 3]
    places = [one and (one["file_id"], one["position"]) for one in told["_location"].to_pylist()]
    assert places == [None, ("a", 8), ("b", None), None, ("a", 7)]


def test_each_of_several_rows_of_a_key_is_told() -> None:
    one = Candidates(
        FileSlice(DataFile("", "f", "0-0-0", "20260101000000000")),
        pa.array(["a", "b", "c"]),
        np.array([5, 0, 9, 2, 4, 1]),
        np.array([2, 3, 6]),
    )
    own, of = one.rows_of(np.array([0, 2]))
    assert own.tolist() == [5, 0, 2, 4, 1]
    assert of.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("step_bytes", [1, 200, 1 << 20])
def test_record_keys_come_step_by_step_with_where_they_stand(
    tmp_path: Path, step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metatable.create(
        tmp_path / "t",
        pa.schema([("id", pa.string())]),
        key="id",
        options={"row_group_rows": 10},
    )
    table.insert(pa.table({"id": [f"k{n:03}" for n in range(95)]}))
    [file] = table.scan().files()
    whole, positions = base_file.read_record_keys(Store(table.uri), file)
    assert positions.tolist() == list(range(95))
    monkeypatch.setattr(base_file, "STEP_BYTES", step_bytes)
    for first, last in ((None, None), ("k025", "k061"), ("k094", None), ("z", None)):
        read = [*base_file.stream_record_keys(Store(table.uri), file, first, last)]
        for keys, start in read:
            assert keys.equals(whole.slice(start, len(keys)))
        starts = [start for _, start in read]
        assert starts == sorted(set(starts))
        assert (
            sum(len(keys) for keys, _ in read) == {None: 95, "k025": 50, "k094": 5, "z": 0}[first]
        )
