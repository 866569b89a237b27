"""Upkeep: a table of many small commits stays as fast as one of few."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.compaction.merging import compact, upkeep
from metatable.compaction.merging.compact import Compact
from metatable.compaction.merging.upkeep import due, keep_up, looks_after
from metatable.compaction.service import execute
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.page_updates import FoldPages
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.home import COMMITS
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage import store as stores
from metatable.storage.hfile.reading import opened
from metatable.storage.hfile.trailer import TRAILER_SIZE
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import dying, watched
from tests.long import LONG, one_in
from tests.model import SCHEMA, completed, read_by_hudi, scanned

pytestmark = pytest.mark.in_turn("table")

FAST = {"durable": "false"}
INDEXES = ["record", "metadata_bloom"]
CITIES = ("ny", "sf", "la")
WAITING = 3
MOST = WAITING + 2 + 4
"""HFiles and pages of a partition: those that wait, and the older ones in doubling sizes."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "EVERY", 2)
    monkeypatch.setattr(upkeep, "LEAST_FILES", 2)


@pytest.fixture(params=INDEXES)
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    return made(table_uri, request.param)


def made(uri: str, index: str, **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={
            "hfile_codec": "none",
            "lease_seconds": 0,
            "upkeep_files": WAITING,
            **options,
        },
        storage_options=FAST,
    )


def batch(number: int, count: int = 10) -> pa.Table:
    """Keys that no other batch has, but for one."""
    ids = [f"k{number:04}-{place}" for place in range(count)] + ["often"]
    cities = [CITIES[place % 3] for place in range(count)] + ["ny"]
    numbers = [number] * (count + 1)
    return pa.table([ids, cities, numbers, numbers], schema=SCHEMA)


def newest(table: Table) -> Manifest:
    found = load_newest(Store(table.uri))
    assert found is not None
    return found


def files(table: Table) -> dict[str, int]:
    snapshot = Snapshot(Store(table.uri), newest(table))
    pages = snapshot.manifest.pages
    return {name: len({ref.path for ref in snapshot.refs(name)}) for name in pages}


def grown(table: Table, monkeypatch: pytest.MonkeyPatch, commits: int = 6) -> Table:
    """So many commits, of which nobody has kept up."""
    monkeypatch.setattr("metatable.table.looks_after", lambda version: False)
    for number in range(commits):
        table.upsert(batch(number))
    assert set(files(table).values()) == {commits}
    assert set(due(newest(table))) == set(files(table))
    return table


def cost(table: Table, ask: Callable[[], object]) -> int:
    """Requests of a question that nothing is known for."""
    cache.clear()
    before = table.counters["store.requests"]
    ask()
    return table.counters["store.requests"] - before


def test_what_a_cold_process_asks_for_does_not_grow_with_the_commits(table: Table) -> None:
    told = []
    for number in range(1, 49):
        table.upsert(batch(number))
        assert max(files(table).values()) <= MOST, number
        assert max(map(len, newest(table).pages.values())) <= MOST, number
        told.append(
            {
                "open": cost(table, lambda: table.schema),
                "tag": cost(table, lambda: table.tag_locations(batch(5))),
                "history": cost(table, lambda: table.history(limit=9)),
                "root": len(newest(table).encode()),
            }
        )
    early, late = (
        {what: max(one[what] for one in part) for what in told[0]}
        for part in (told[12:24], told[36:48])
    )
    assert late["open"] == early["open"] <= 3
    assert late["history"] == early["history"] <= 12
    assert late["tag"] <= 1.2 * early["tag"], (early, late)
    assert late["root"] <= 1.2 * early["root"], (early, late)
    assert table.verify().findings == ()
    rows = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert rows == {f"k{n:04}-{p}": n for n in range(1, 49) for p in range(10)} | {"often": 48}
    assert read_by_hudi_is_equal(table)


def test_no_commit_leaves_a_table_that_asks_for_more(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any commit, not only at those that were just looked after; with files that are larger
    than what is read when they are opened, so that each block is a request."""
    monkeypatch.setattr(opened, "TAIL_BYTES", TRAILER_SIZE + 512)
    monkeypatch.setattr(stores, "COALESCE_GAP_BYTES", 0)
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    table = made(table_uri, "record", hfile_block_bytes=256)
    asked = batch(5)
    tags, commits = [], []
    for number in range(90 if LONG else 60):
        commits.append(cost(table, partial(table.upsert, batch(number))))
        tags.append(cost(table, lambda: table.tag_locations(asked)))
        assert max(files(table).values()) <= MOST, number
    early, late = slice(30), slice(30, None)
    file = 4  # requests of one more, where there is a longer wait for who looks
    assert max(tags[late]) <= max(tags[early]) + file <= 32
    assert max(commits[late]) <= max(commits[early]) + file + 1 <= 170


def read_by_hudi_is_equal(table: Table) -> bool:
    theirs = {(row[0], row[2]) for row in read_by_hudi(table.uri)}
    return theirs == {(row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist()}


def test_a_byte_is_merged_again_only_when_what_it_lies_in_has_doubled(table_uri: str) -> None:
    table = made(table_uri, "record", buckets={"record_index": 1})
    merged: list[int] = []
    for number in range(32):
        before = table.version
        table.upsert(batch(number, 30))
        for one in table.history(limit=table.version - before):
            if one.operation == "compact":
                [index] = {ref.size_bytes for ref in _oldest(table)}
                merged.append(index)
    whole = sum(ref.size_bytes for ref in _refs(table))
    assert len(merged) > 4
    assert sum(merged) <= 6 * whole


def _refs(table: Table) -> list[HFileRef]:
    return Snapshot(Store(table.uri), newest(table)).refs("record_index")


def _oldest(table: Table) -> list[HFileRef]:
    newest_output = [ref for ref in _refs(table) if "compact" in ref.path]
    return [max(newest_output, key=lambda ref: ref.sequence)]


def test_upkeep_can_be_turned_off(table_uri: str) -> None:
    table = made(table_uri, "record", upkeep_files=0)
    for number in range(8):
        table.upsert(batch(number))
    assert set(files(table).values()) == {8}
    assert {one.operation for one in table.history()} == {"create", "upsert"}


def test_one_of_some_versions_looks_and_no_request_is_made_for_the_others(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def looking(store: Store, engine: Any) -> None:
        looked.append(table.version)

    monkeypatch.setattr("metatable.table.keep_up", looking)
    for number in range(12):
        table.upsert(batch(number))
    assert (
        looked
        == [version for version in range(2, 14) if looks_after(version)]
        == [2, 4, 5, 7, 10, 12, 13]
    )


@pytest.mark.parametrize("between", one_in(2, [1, 3, 7]))
def test_upkeep_is_done_however_many_versions_services_make_between_commits(
    table_uri: str, between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four versions one is looked after; commits fell on the others for ever."""
    monkeypatch.setattr(upkeep, "EVERY", 4)
    table = made(table_uri, "record")
    for number in range(40 if LONG else 28):
        table.upsert(batch(number))
        for value in range(between):
            table.set_options({"upkeep_files": WAITING, "file_rows": 1000 + value})
        assert max(files(table).values()) <= MOST + 16, number


def test_no_more_is_merged_than_a_commit_may_wait_for(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(table_uri, "record")
    bound = 30_000
    monkeypatch.setattr(upkeep, "MOST_BYTES", bound)
    store = Store(table.uri)
    for number in range(20):
        table.upsert(batch(number, 40))
        snapshot = Snapshot(store, newest(table))
        for name in snapshot.manifest.pages:
            outputs = [ref for ref in snapshot.refs(name) if "compact" in ref.path]
            assert all(ref.size_bytes <= bound * 1.1 for ref in outputs), name
    assert max(files(table).values()) > 2, "there is more than one merge may take"
    assert max(map(len, newest(table).pages.values())) <= MOST
    assert table.verify().findings == ()


def test_where_nothing_is_worth_merging_pages_are_folded(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    expected = {name: set(map(_named, _all(table, name))) for name in files(table)}
    monkeypatch.setattr(upkeep, "LEAST_FILES", 100)
    before = table.version
    assert keep_up(Store(table.uri, FAST), LocalEngine(1)) == before + 1
    assert {len(pages) for pages in newest(table).pages.values()} == {1}
    assert {name: set(map(_named, _all(table, name))) for name in files(table)} == expected
    assert keep_up(Store(table.uri, FAST), LocalEngine(1)) is None


def _all(table: Table, name: str) -> list[HFileRef]:
    return Snapshot(Store(table.uri), newest(table)).refs(name)


def _named(ref: HFileRef) -> tuple[Any, ...]:
    return ref.path, ref.lo, ref.hi, ref.sequence


@pytest.mark.parametrize("swapped", [False, True], ids=["folded", "compacted"])
@pytest.mark.usefixtures("pages_as_files")
def test_full_pages_are_not_written_again(
    table: Table, swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.metadata.commits.page_updates.PAGE_REFS", 4)
    monkeypatch.setattr("metatable.metadata.manifests.pages.PAGE_REFS", 4)
    grown(table, monkeypatch)
    store = Store(table.uri, FAST)
    publish(
        store,
        newest(table),
        Change("compact", updates=(FoldPages(tuple(files(table))),)),
        Owner.new("compact"),
    )
    full = {page.path for page in newest(table).page_files if page.ref_count == 4}
    assert len(full) == len(files(table))
    table.upsert(batch(50))
    if swapped:
        monkeypatch.setattr(compact, "_newest_run", lambda refs, most: refs[:3])
        execute(store, LocalEngine(1), Compact())
    else:
        publish(
            store,
            newest(table),
            Change("compact", updates=(FoldPages(tuple(files(table))),)),
            Owner.new("compact"),
        )
    held = {page.path for page in newest(table).page_files}
    assert full <= held
    assert table.verify().findings == ()


def test_tombstones_go_where_no_older_file_is_left(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    assert sum(one["tombstones"] for one in table.describe().metadata.values()) > 0
    keep_up(Store(table.uri, FAST), LocalEngine(1))
    assert sum(one["tombstones"] for one in table.describe().metadata.values()) == 0
    assert table.verify().findings == ()


def test_a_race_that_is_lost_is_not_told_to_the_writer(
    table: Table, between: Callable[[Callable[[], Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    rows = scanned(table)
    store = Store(table.uri, FAST)
    between(lambda: execute(store, LocalEngine(1), Compact(major=True)))
    before = table.version
    assert keep_up(store, LocalEngine(1)) is None
    assert table.version == before + 1
    assert scanned(table) == rows
    assert table.verify().findings == ()


def test_a_commit_that_came_meanwhile_stays_on_top(
    table: Table, between: Callable[[Callable[[], Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    between(lambda: table.upsert(batch(70)))
    keep_up(Store(table.uri, FAST), LocalEngine(1))
    held = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert held["often"] == 70
    assert [one.operation for one in table.history(limit=2)] == ["compact", "upsert"]
    assert table.verify().findings == ()


def test_killed_anywhere_it_changes_nothing_and_the_next_one_keeps_up(
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grown(table, monkeypatch, commits=5)
    rows, hudis = scanned(table), read_by_hudi(table.uri)
    dry, backend = watched(shutil.copytree(table.uri, tmp_path / "dry"))
    assert keep_up(dry, LocalEngine(1)) == table.version + 1
    changing = [0, *backend.kills()[:-1]]
    assert len(changing) > 6
    for limit in one_in(3, changing):
        uri = str(shutil.copytree(table.uri, tmp_path / f"killed-{limit}"))
        store, backend = watched(uri)
        backend.limit = limit
        caplog.clear()
        with caplog.at_level(logging.WARNING, "metatable"):
            version = keep_up(store, LocalEngine(1))
        killed = metatable.open(uri)
        assert (version is None) == ("left to the next writer" in caplog.text)
        assert scanned(killed) == rows
        assert read_by_hudi(uri) == hudis
        keep_up(Store(uri, FAST), LocalEngine(1))
        assert set(files(killed).values()) == {1}
        killed.upsert(batch(80))
        assert killed.verify().findings == ()


def test_the_timeline_stays_short_and_so_does_what_a_commit_lists(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 3)
    table = made(table_uri, "record", timeline_commits=5)
    expected: dict[str, int] = {}
    for number in range(1, 25):
        table.upsert(batch(number))
        expected |= {f"k{number:04}-{place}": number for place in range(10)} | {"often": number}
        done = completed(table.uri)
        assert min(number, 5) <= len(done) <= 5 + 3 + upkeep.EVERY
        assert len(list(Path(table.uri, ".hoodie").glob("2*"))) == 3 * len(done)
        assert len(list(Path(table.uri, COMMITS).iterdir())) == len(done)
        assert {row[0]: row[2] for row in read_by_hudi(table.uri)} == expected
    assert min(done) == newest(table).archived
    assert table.verify().findings == ()
    assert len(table.history()) > 24, "versions stay: these are not cleaned"
    assert len(scanned(table, 3)) == 21


def test_the_timeline_is_not_archived_past_what_was_undone(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late file of it would be taken for live: only a clean looks for one."""
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    table = made(table_uri, "record", timeline_commits=2)
    table.upsert(batch(0))
    undone = str(table.upsert(batch(1)).instant)
    table.rollback(undone)
    for number in range(2, 12):
        table.upsert(batch(number))
    assert newest(table).archived < undone
    assert len(completed(table.uri)) > 8
    table.clean(hours=0)
    assert newest(table).archived > undone
    assert newest(table).withdrawn == ()
    assert len(completed(table.uri)) == 2
    assert read_by_hudi_is_equal(table)


@pytest.mark.parametrize("looks", [True, False], ids=["", "a writer of before"])
def test_files_of_a_writer_under_way_are_not_taken_for_live(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """Though he is slower than others archive the timeline, who stop where they see his lease."""
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    if not looks:
        monkeypatch.setattr(upkeep, "leased", lambda _: frozenset())
    apart = {"file_rows": 1, "small_file_bytes": 0}
    table = made(table_uri, "record", timeline_commits=2, lease_seconds=60, **apart)
    table.upsert(batch(0))
    borders: list[bool] = []

    def others(verb: str, path: str) -> None:
        if not borders and path.endswith(".requested"):
            instant = Path(path).name.partition(".")[0]
            borders.append(True)  # once
            for number in range(1, 9):
                metatable.open(table_uri, FAST).upsert(batch(number, 0))
            borders[0] = newest(table).archived <= instant
        elif len(borders) == 1 and verb == "create" and "/manifest/0" in path:
            borders.append(metatable.open(table_uri, FAST).verify().findings == ())

    Table(watched(table_uri, before=others)[0]).upsert(batch(0).slice(0, 2))
    assert borders == [looks, True]
    assert table.verify().findings == ()
    assert read_by_hudi_is_equal(table)


def test_an_archived_timeline_killed_anywhere_shows_hudi_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    table = grown(made(str(tmp_path / "origin"), "record", timeline_commits=2), monkeypatch)
    rows = scanned(table)
    dry, backend = watched(shutil.copytree(table.uri, tmp_path / "dry"))
    assert keep_up(dry, LocalEngine(1)) == table.version + 1
    assert len(completed(dry.uri)) == 2
    for limit in one_in(6, [0, *backend.kills()]):
        uri = str(shutil.copytree(table.uri, tmp_path / f"killed-{limit}"))
        store, backend = watched(uri)
        backend.limit = limit
        keep_up(store, LocalEngine(1))
        assert read_by_hudi(uri) == scanned(metatable.open(uri)) == rows
        metatable.open(uri, FAST).upsert(batch(80))
        assert read_by_hudi(uri) == scanned(metatable.open(uri))
        assert metatable.open(uri).verify().findings == ()


def test_what_a_dead_writer_has_published_is_completed_before_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    with dying(table.uri, r"create .*/\d+\.commit") as deadly:
        write(deadly, LocalEngine(1), batch(60), "upsert")
    instant = table.instant
    assert instant not in completed(table.uri)
    assert keep_up(Store(table.uri, FAST), LocalEngine(1)) == table.version
    assert instant in completed(table.uri)
    assert read_by_hudi_is_equal(table)


def test_a_rollback_behind_it_undoes_the_commit_before_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(table, monkeypatch)
    rows = scanned(table)
    table.upsert(batch(60))
    keep_up(Store(table.uri, FAST), LocalEngine(1))
    table.rollback()
    assert scanned(table) == rows
    assert table.verify().findings == ()
    assert keep_up(Store(table.uri, FAST), LocalEngine(1)) == table.version


def test_history_takes_a_limit(table_uri: str) -> None:
    table = made(table_uri, "record", upkeep_files=0)
    for number in range(5):
        table.upsert(batch(number))
    assert [one.version for one in table.history(limit=3)] == [6, 5, 4]
    assert [one.version for one in table.history()] == [6, 5, 4, 3, 2, 1]
    assert table.history(limit=0) == []
    assert len(table.history(limit=10**30)) == 6
    assert cost(table, lambda: table.history(limit=3)) < cost(table, table.history)
    for wrong in (-1, "3", True):
        with pytest.raises(metatable.UsageError, match="limit"):
            table.history(limit=wrong)  # type: ignore[arg-type]
