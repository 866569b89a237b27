"""Filters of live slices: each is given once, some at a time, and a missing one is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions import bloom_filter
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store
from tests.index.rows import make, rows

KEYS = 60


@pytest.fixture
def snapshot(table_uri: str) -> Snapshot:
    """Twelve slices or so of five rows."""
    make(table_uri, "metadata_bloom", "global", file_rows=5).insert(rows(0, KEYS))
    store = Store(table_uri)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many filters each lookup asks for."""
    counts: list[int] = []
    lookup = Entries.lookup

    def noting(self: Entries, partition: Any, keys: Any) -> Any:
        counts.append(len(keys))
        return lookup(self, partition, keys)

    monkeypatch.setattr(Entries, "lookup", noting)
    return counts


def test_every_slice_gets_its_own_filter(snapshot: Snapshot) -> None:
    slices = list(snapshot.slices())
    found = dict(snapshot.filters(slices))
    assert sorted(found) == list(range(len(slices)))
    bounds = snapshot.stats("_hoodie_record_key", pa.string())
    for place, body in found.items():
        first = bounds.minimum.take(pa.array([place]))
        assert body.might_contain(bloom_filter.hashes_of(first)).all()
        other = bounds.minimum.take(pa.array([(place + 1) % len(slices)]))
        assert not body.might_contain(bloom_filter.hashes_of(other)).any()


def test_so_many_are_read_together_as_a_budget_is_for(
    snapshot: Snapshot, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = list(snapshot.slices())
    monkeypatch.setattr(bloom_filter, "FIRST_FILTERS", 2)
    monkeypatch.setattr(bloom_filter, "FILTER_BYTES", 300)
    given = snapshot.filters(slices)
    next(given)
    assert asked == [2], "those behind are not read before they are wanted"
    assert len(list(given)) == len(slices) - 1
    assert len(asked) > 3
    assert max(asked) < 6


def test_a_small_filter_lets_more_be_read(
    snapshot: Snapshot, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = list(snapshot.slices())
    monkeypatch.setattr(bloom_filter, "FIRST_FILTERS", 1)
    monkeypatch.setattr(bloom_filter, "FILTER_BYTES", 10 << 20)
    assert len(list(snapshot.filters(slices))) == len(slices)
    assert asked == [1, len(slices) - 1]


def test_a_slice_without_one_is_named(snapshot: Snapshot) -> None:
    [one, *_] = snapshot.slices()
    gone = FileSlice(DataFile(one.partition_path, "nobody-0", "0-0-0", one.instant))
    with pytest.raises(CorruptError, match="live slice has no filter") as told:
        list(snapshot.filters([one, gone]))
    assert "nobody-0" in str(told.value)
