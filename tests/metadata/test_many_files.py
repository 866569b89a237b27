"""Questions about a table of many files are answered from columns, without an object a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from benchmarks.synthetic import DAYS, FILE_ROWS, SCHEMA, add_files, make_ours
from metatable import Table, col
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.index.metadata_bloom import MetadataSource
from metatable.metadata.hfiles import entries
from metatable.metadata.hfiles.keys import column_prefix
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions import column_stats
from metatable.metadata.partitions.column_stats import RECORD_KEY
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import StatsColumn
from metatable.storage import cache
from metatable.storage.arrays import UInt64s
from metatable.storage.store import Store
from metatable.storage.word_places import WordPlaces
from tests.shared import made_once

FILES = 2000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = made_once(tmp_path_factory, "many_files", lambda uri: make_ours(Path(uri), FILES))
    return metatable.open(made)


def level_1(table: Table) -> int:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    return len(MetadataSource().ranges(Snapshot(store, newest), None).files)


QUESTIONS: dict[str, tuple[Callable[[Table], Any], Any]] = {
    "describe": (lambda table: (table.describe().file_groups, table.describe().rows), None),
    "count": (lambda table: table.scan().count(), FILES * FILE_ROWS),
    "files": (lambda table: len(table.files().uris), FILES),
    "some files": (lambda table: len(table.files(where=col("place") < 50_000).uris), 50),
    "of a day": (lambda table: len(table.files(where=col("day") == "d07").uris), FILES // DAYS),
    "level 1": (level_1, FILES),
}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_no_object_a_file_is_made(
    table: Table, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.clear()
    made: list[str] = []
    decode = DataFile.decode.__func__  # type: ignore[attr-defined]

    def noting(kind: type[DataFile], path: str, size_bytes: int = 0) -> DataFile:
        made.append(path)
        found: DataFile = decode(kind, path, size_bytes)
        return found

    monkeypatch.setattr(DataFile, "decode", classmethod(noting))
    question, expected = QUESTIONS[asked]
    answer = question(table)
    assert answer == (expected or (FILES, FILES * FILE_ROWS))
    assert len(made) < FILES / 10


PLACES: dict[str, Callable[[Snapshot], Any]] = {
    "slices of a day": lambda base: list(base.slices("d07")),
    "slices of no day": lambda base: list(base.slices("never")),
    "bounds": lambda base: told(base.stats("place", pa.int64(), DAYS_ASKED)),
    "bounds of keys": lambda base: told(base.stats(RECORD_KEY, pa.string(), DAYS_ASKED[1:])),
    "row counts": lambda base: base.row_counts([*base.slices("d07"), GONE]).tolist(),
    "maxima": lambda base: base.maxima("place", pa.int64(), base.slices("d03")).to_pylist(),
}
DAYS_ASKED = ["d07", "d03", "never"]
GONE = FileSlice(DataFile("d07", "gone", "0-0-0", "20200101000000000"))


def told(stats: StatsColumn) -> list[Any]:
    return [list(stats.files), *(one.to_pylist() for one in stats.columns)]


@pytest.mark.parametrize("asked", PLACES)
def test_a_partition_that_is_read_whole_tells_what_it_tells_piece_by_piece(
    table: Table, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for small in (0, 1 << 40):
        cache.clear()
        monkeypatch.setattr(entries, "SMALL_ENTRIES", small)
        store = Store(table.uri)
        newest = load_newest(store)
        assert newest is not None
        answers.append(PLACES[asked](Snapshot(store, newest)))
    assert answers[0] == answers[1]


def snapshot(uri: str) -> Snapshot:
    store = Store(uri)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


def test_statistics_are_those_of_their_keys(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    by_words = told(snapshot(table.uri).stats("place", pa.int64()))
    cache.clear()
    monkeypatch.setattr(column_stats, "_places_among", lambda *words: None)
    assert told(snapshot(table.uri).stats("place", pa.int64())) == by_words
    assert len(by_words[0]) == FILES
    assert None not in by_words[1]


def test_words_are_found_among_others_unless_two_are_equal() -> None:
    words = np.array([7, 1 << 63, 0, 9], np.uint64)
    for asked, places in (
        ([9, 7, 0, 1 << 63], [3, 0, 2, 1]),
        ([9, (1 << 64) - 1, 8], [3, -1, -1]),
        ([], []),
        ([7, 7], None),
    ):
        assert among(asked, words) == places
    assert among([5], np.array([5, 7, 5], np.uint64)) is None
    assert among([7], np.array([5, 5], np.uint64)) == [-1]  # nobody asks for these


def among(asked: list[int], held: UInt64s) -> list[int] | None:
    known = WordPlaces.of(np.array(asked, np.uint64))
    found = column_stats._places_among(known, held)
    return None if found is None else found.tolist()


def test_entries_outside_the_places_of_their_hfile_are_left_out(table: Table) -> None:
    base = snapshot(table.uri)
    partition = column_stats.ColumnStatsPartition(base.options)
    batch = base.scan(partition).read_all().combine_chunks().to_batches()[0]
    keys, places = batch["key"].to_pylist(), partition.places(batch["key"]).tolist()
    least, most, half = min(places), max(places) + 1, partition.space // 2
    for lo, hi in ((least, most), (0, half), (half, partition.space), (least + 1, most), (0, 0)):
        expected = [key for key, place in zip(keys, places, strict=True) if lo <= place < hi]
        assert partition.live(batch, lo, hi)["key"].to_pylist() == expected
    assert least < half < most


def test_pieces_of_many_hfiles_are_what_is_merged_of_them_all(tmp_path: Path) -> None:
    """Some are apart, and some, of later commits, lie over them."""
    options = {"hive_style": False, "small_file_bytes": 0, "hfile_target_bytes": 4000}
    made = metatable.create(tmp_path, SCHEMA, key="id", partition_by="day", options=options)
    store = Store(made.uri, {"durable": "false"})
    acts = [
        lambda: add_files(store, range(200)),
        lambda: add_files(store, range(200, 203)),
        lambda: made.delete_partition("d00"),
    ]
    for count, act in zip((200, 203, 200), acts, strict=True):
        act()
        base = snapshot(made.uri)
        assert len(base.stats("place", pa.int64()).files) == count
        partition = column_stats.ColumnStatsPartition(base.options)
        assert len(base.refs(partition.name)) > 2
        whole = base.scan(partition).read_all()
        read = pa.Table.from_batches([*base.pieces(partition, lambda batch: batch)])
        assert read.sort_by("key").equals(whole.combine_chunks())
        prefix = column_prefix("place")
        some = pa.Table.from_batches([*base.pieces(partition, lambda batch: batch, prefix)])
        assert some.sort_by("key").equals(
            whole.filter(pc.starts_with(whole["key"], prefix)).combine_chunks()
        )
        assert base.stats("place", pa.int64()).minimum.null_count == 0


def test_columns_are_kept_together_where_the_files_and_all_of_them_have_room(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds the listing of the files, and so do the ranges of a bloom index."""
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    snapshot, loaded = Snapshot(store, newest), list[str]()
    load = column_stats._load

    def counted(entries: Any, column: str, *asked: Any) -> StatsColumn:
        loaded.append(column)
        return load(entries, column, *asked)

    monkeypatch.setattr(column_stats, "_load", counted)
    kinds = {RECORD_KEY: pa.string(), "place": pa.int64(), "seen": pa.int64()}
    files = snapshot.slices()
    columns = [one for name, kind in kinds.items() for one in snapshot.stats(name, kind).columns]
    room = sum(one.nbytes for one in columns) + int(1.8 * files.nbytes)
    monkeypatch.setattr(cache.shared, "budget_bytes", room)
    cache.clear()
    loaded.clear()
    for _ in range(3):
        MetadataSource().ranges(snapshot, None)
        for name, kind in kinds.items():
            assert snapshot.stats(name, kind).files is snapshot.slices()
    assert len(loaded) == 3
    assert cache.shared.size_bytes <= room


def test_a_listing_is_forgotten_after_what_is_made_of_it(table: Table) -> None:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    snapshot = Snapshot(store, newest)
    cache.clear()
    for _ in range(2):
        snapshot.stats("place", pa.int64())
        assert next(reversed(cache.shared._held))[0] == "files"
    cache.clear()
