"""Back in time: savepoints, restores over many commits, and versions named by a moment."""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pytest

import metatable
from metatable import ConflictError, CorruptError, StaleError, Table, UsageError
from metatable.compaction.cleaning.clean import Clean
from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.service import Service, execute
from metatable.compaction.ways_back import rollback, savepoint
from metatable.compaction.ways_back.restore import Restore
from metatable.compaction.ways_back.savepoint import DropSavepoint, Savepoint
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.savepoint_metadata import HEAD_BYTES, savepoint_metadata
from metatable.data.hoodie.timeline import instant_of, next_instant
from metatable.engine.local import LocalEngine
from metatable.kept_version import newest_of, snapshot_at
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.steps import settle, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.manifest import Manifest, Pin, saved_path, version_path
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.description import version_as_of
from metatable.storage import cache, clock
from metatable.storage.store import Store
from tests.compaction.aged_tables import KEEP, SMALL, clean, every_row, grown, is_sound, strange
from tests.face.protocol.making import BEFORE_PUT, FAST, made, newest, recover, rows
from tests.face.test_kill import _copy, _kill, _shape
from tests.faults import dying, once, watched
from tests.long import LONG, one_in
from tests.model import SCHEMA, Model, arrow, check, completed, read_by_hudi, scanned

pytestmark = pytest.mark.in_turn("origin")


@pytest.fixture(
    scope="module", params=one_in(2, ["record", "record-avro", "metadata_bloom-parquet"])
)
def origin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine commits, the last but four followed by a compaction; the timeline keeps three."""
    folder = tmp_path_factory.mktemp("origin") / "table"
    grown(made(str(folder), request.param, **SMALL))
    return folder


@pytest.fixture
def table(origin: Path, table_uri: str) -> Table:
    """A copy of that."""
    shutil.copytree(origin, table_uri)
    return metatable.open(table_uri, FAST)


def commits(table: Table) -> dict[int, str]:
    """Version to instant, newest first."""
    return {one.version: one.instant for one in table.history() if one.instant}


def states(table: Table) -> dict[int, list[tuple[Any, ...]]]:
    return {one.version: scanned(table, one.version) for one in table.history()}


def goes_on(table: Table) -> None:
    """It is a table as any other."""
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in every_row(table))
    for number in range(2):
        given = rows(number, number + 9, 50)
        table.upsert(arrow(given))
        model.upsert(given)
        check(table, model)
    table.rollback()
    assert read_by_hudi(table.uri) == every_row(table)


# restore


@pytest.mark.parametrize("back", [1, 6])
def test_a_restore_goes_back_over_many_commits_at_once(table: Table, back: int) -> None:
    before, done = states(table), commits(table)
    target = list(done)[back]
    undone = list(done.values())[:back]
    told = table.restore(target)
    assert told.version == max(before) + 1
    assert f"{back} commit" in told.reason
    is_sound(table, before[target])
    assert completed(table.uri) == set(done.values()) - set(undone)
    named = {path.name for path in Path(table.uri).rglob("*.parquet")}
    assert not [name for name in named if name.rpartition("_")[2].partition(".")[0] in undone]
    assert set(undone) == set(newest(table).withdrawn)
    assert scanned(table, target) == before[target]
    goes_on(table)
    clean(table)
    assert strange(table) == []


def test_back_to_a_version_of_a_service_and_to_the_empty_table(table: Table) -> None:
    before = states(table)
    [compacted] = [one.version for one in table.history() if one.operation == "compact"]
    table.restore(compacted)
    is_sound(table, before[compacted])
    assert table.restore(compacted).reason == f"the table has the content of version {compacted}"
    table.restore(1)
    assert every_row(table) == read_by_hudi(table.uri) == []
    assert completed(table.uri) == set()
    goes_on(table)


def test_a_version_that_was_undone_is_read_by_no_verb(table: Table) -> None:
    """Its files may be there still, or be gone: nobody is told of rows that never were. The moment
    at which it was the newest is answered as Hudi does, without it."""
    before, done, keys = states(table), commits(table), arrow(rows(0, 3, 1))
    undone, kept = list(done)[:2]
    table.rollback()
    asked: list[Callable[[], object]] = [
        partial(table.scan, version=undone),
        partial(table.files, version=undone),
        partial(table.tag_locations, keys, version=undone),
        partial(table.read_keys, keys, version=undone),
        partial(table.changes, 0, undone),
        partial(table.savepoint, "it", undone),
        partial(table.restore, undone),
    ]
    for ask in asked:
        with pytest.raises(StaleError, match="was undone"):
            ask()
    assert scanned_as_of(table, done[undone]) == sorted(before[kept])


def test_undone_commits_are_none_of_those_that_a_clean_is_to_keep(table: Table) -> None:
    before, done = states(table), list(commits(table))
    table.restore(done[3])
    clean(table, 2)
    assert every_row(table, done[4]) == before[done[4]]
    is_sound(table, before[done[3]])
    with pytest.raises(StaleError):
        table.scan(version=done[5])
    assert scanned_as_of(table, commits(table)[done[4]]) == sorted(before[done[4]])
    assert strange(table) == []


def test_a_restore_can_be_undone_by_none_but_repeated_by_all(table: Table) -> None:
    before, done = states(table), list(commits(table))
    table.restore(done[3])
    with pytest.raises(StaleError, match="was undone"):
        table.restore(done[1])
    table.restore(done[5])
    is_sound(table, before[done[5]])
    table.rollback()
    is_sound(table, before[done[6]])


def test_a_dry_run_of_a_restore_proves_it_and_writes_nothing(table: Table) -> None:
    before, done = every_row(table), list(commits(table))
    version = table.version
    assert (
        "dry run, nothing was done: back to version" in table.restore(done[2], dry_run=True).reason
    )
    assert (table.version, every_row(table)) == (version, before)


def test_what_cannot_be_gone_back_to_is_refused(table: Table) -> None:
    done = list(commits(table))
    for given, told in (
        ({}, "go back where to"),
        ({"version": done[0], "as_of": "20200101"}, "stands alone"),
        ({"savepoint": "none"}, "no such savepoint"),
        ({"as_of": "yesterday"}, "not a moment"),
    ):
        with pytest.raises(UsageError, match=told):
            table.restore(**given)
    with pytest.raises(metatable.NotFoundError):
        table.restore(99)
    clean(table, 2)
    with pytest.raises(StaleError, match="not kept any more"):
        table.restore(done[4])
    is_sound(table, every_row(table))


def test_no_restore_leaves_hudi_s_timeline_without_a_commit(table: Table) -> None:
    done = list(commits(table))
    clean(table, 99)  # archives all but three
    with pytest.raises(UsageError, match="no commit would be left on Hudi's timeline"):
        table.restore(done[5])
    table.restore(done[2])
    is_sound(table, every_row(table))


def archived_by_hudi(table: Table, done: Sequence[str]) -> None:
    """Its own tools take commits off the timeline, and tell nobody."""
    for instant in done:
        for path in Path(table.uri, ".hoodie").glob(f"{instant}.*"):
            path.unlink()


def test_nobody_goes_back_behind_what_hudi_has_archived(table: Table) -> None:
    before, done = states(table), list(commits(table).items())
    archived_by_hudi(table, [instant for _, instant in done[4:]])
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="not on Hudi's timeline any more"):
            table.restore(done[4][0], dry_run=dry_run)
    assert every_row(table) == read_by_hudi(table.uri) == before[done[0][0]]
    table.restore(done[3][0])
    assert every_row(table) == read_by_hudi(table.uri) == before[done[3][0]]
    with pytest.raises(UsageError, match="not on Hudi's timeline any more"):
        table.rollback()


@pytest.mark.parametrize("damaged", [False, True])
def test_files_of_undone_commits_that_hudi_has_archived_go(table: Table, damaged: bool) -> None:
    """They would count as committed as soon as there is a later commit."""
    done = list(commits(table).values())
    archived_by_hudi(table, done[4:])
    store, now = Store(table.uri, FAST), newest(table)
    if damaged:  # between the put and the step that deletes them
        staged = Path(table.uri, staged_path(done[5]))
        store, _ = acting(table, (r"create .*/manifest/0.*", lambda: staged.write_bytes(b"?")))
    execute(store, LocalEngine(1), Restore(1))
    assert now.version + 1 == newest(table).version
    assert not list(Path(table.uri).rglob("*.parquet"))
    assert not [one for one in done if Path(table.uri, staged_path(one)).exists()]
    table.upsert(arrow(rows(0, 5, 9)))
    is_sound(table, every_row(table))
    assert len(every_row(table)) == 5


def test_a_commit_of_which_nothing_tells_any_more_is_not_undone(table: Table) -> None:
    before, done = every_row(table), list(commits(table).values())
    archived_by_hudi(table, done[4:])
    Path(table.uri, staged_path(done[5])).unlink()
    for dry_run in (True, False):
        with pytest.raises(CorruptError, match="nothing was undone") as told:
            table.restore(1, dry_run=dry_run)
        assert told.value.facts["path"] == staged_path(done[5])
    assert every_row(table) == read_by_hudi(table.uri) == before


def test_a_damaged_target_is_refused_before_anything_is_undone(table: Table) -> None:
    before, target = every_row(table), list(commits(table))[3]
    one = next(iter(Path(table.uri, ".hoodie/metatable/files").glob(f"{commits(table)[target]}*")))
    one.unlink()
    with pytest.raises(CorruptError, match="nothing was undone"):
        table.restore(target)
    assert len(read_by_hudi(table.uri)) == len(before)


def data_files_of(table: Table, version: int) -> set[str]:
    store = Store(table.uri, FAST)
    return {*Snapshot(store, load_version(store, version, 0)).slices().all_files()[0].to_pylist()}


@pytest.mark.each_once
@pytest.mark.parametrize("verb", ["rollback", "restore", "savepoint"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_target_without_its_data_files_is_refused_before_anything_is_undone(
    table: Table, verb: str, cut: bool
) -> None:
    """Hudi's cleaner takes what older versions need."""
    before, done = every_row(table), list(commits(table))
    target = done[0] - 1 if verb == "rollback" else done[3]
    if table.options.has_logs:
        table.compact_logs(ratio=0)
    named = data_files_of(table, target) - data_files_of(table, table.version)
    lost = Path(table.uri, max(named))
    lost.write_bytes(lost.read_bytes()[:-1]) if cut else lost.unlink()
    given = {"rollback": (), "restore": (target,), "savepoint": ("it", target)}[verb]
    for dry_run in (True, False):
        with pytest.raises(CorruptError, match="lacks a data file: nothing was") as told:
            getattr(table, verb)(*given, dry_run=dry_run)
        assert told.value.facts["path"] == str(lost.relative_to(table.uri))
    assert newest(table).version == table.version
    assert every_row(table) == read_by_hudi(table.uri) == before


def test_a_data_file_that_is_lost_now_keeps_nobody_from_going_back(table: Table) -> None:
    """What the newest version needs as well is no worse without it."""
    done = list(commits(table))
    before = scanned(table, done[3])
    if table.options.has_logs:
        table.compact_logs(ratio=0)
    only_now = data_files_of(table, table.version) - data_files_of(table, done[3])
    Path(table.uri, max(only_now)).unlink()
    table.restore(done[3])
    is_sound(table, before)


def test_a_damaged_index_keeps_nobody_from_going_back(table: Table) -> None:
    done = list(commits(table))
    before = scanned(table, done[3])
    held = Snapshot(Store(table.uri, FAST), newest(table)).refs("files")
    Path(table.uri, held[0].path).unlink()
    cache.clear()
    metatable.open(table.uri, FAST).restore(done[3])
    is_sound(table, before)


def test_a_writer_that_was_under_way_begins_anew(table_uri: str) -> None:
    table = grown(made(table_uri, **{**SMALL, "lease_seconds": 60}))
    target = list(commits(table))[3]
    before = scanned(table, target)
    store = Store(table.uri, FAST)
    with Transaction.begin(store) as transaction:
        instant = transaction.start()
        table.restore(target)
        with pytest.raises(ConflictError, match="rolled back"):
            transaction.publish(Change("upsert", instant=instant))
    is_sound(table, before)


def test_a_restore_killed_at_any_call_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    origin = str(tmp_path / "origin")
    table = made(origin, "record", **SMALL)
    for number in range(4):
        table.upsert(arrow(rows(number * 2, number * 2 + 6, number)))
    table.compact(major=True)
    old, new = scanned(table), scanned(table, 3)

    def restores(store: Store) -> None:
        execute(store, LocalEngine(1), Restore(3))

    store, backend = watched(_copy(origin, tmp_path / "dry"))
    restores(store)
    limits, seen = [0, *backend.kills()], set()
    assert len(limits) > 10
    for limit in one_in(3, limits):
        uri = _copy(origin, tmp_path / "killed")
        _kill(uri, restores, limit)
        if (shape := _shape(uri)) in seen:
            continue
        seen.add(shape)
        found = every_row(metatable.open(uri, FAST))
        assert found in (old, new)
        recover(metatable.open(uri, FAST))
        is_sound(metatable.open(uri, FAST), found)
    assert len(seen) > (8 if LONG else 2)


# savepoints


def test_a_savepoint_keeps_its_version_whatever_is_cleaned(table: Table) -> None:
    before, done = states(table), commits(table)
    kept = list(done)[4]
    told = table.savepoint("before-june", kept, note="the books are closed")
    assert f"version {kept} (commit {done[kept]}) kept as before-june" in told.reason
    [info] = table.savepoints()
    assert (info.name, info.version, info.instant) == ("before-june", kept, done[kept])
    assert info.note == "the books are closed"
    newest_rows = every_row(table)
    clean(table)
    assert every_row(table, kept) == before[kept]
    assert every_row(table, done and kept) == before[kept]
    assert [one.version for one in table.history()][-2:] == [next(iter(done)), kept]
    with pytest.raises(StaleError):
        table.scan(version=kept + 1)
    assert min(completed(table.uri)) == newest(table).archived == done[kept]
    is_sound(table, newest_rows)
    assert strange(table) == []
    for number in range(6):
        table.upsert(arrow(rows(number, number + 5, 70)))
    clean(table)
    assert every_row(table, kept) == before[kept]
    assert scanned(table) == read_by_hudi(table.uri)
    table.restore(savepoint="before-june")
    is_sound(table, before[kept])
    assert completed(table.uri) == {done[kept]}
    goes_on(table)
    table.drop_savepoint("before-june")
    assert table.savepoints() == []
    assert not list(Path(table.uri, ".hoodie").glob("*.savepoint*"))
    clean(table)
    assert strange(table) == []
    with pytest.raises(StaleError):
        table.scan(version=kept)


def test_a_savepoint_made_while_a_clean_was_planned_keeps_its_files(
    table: Table, between: Any
) -> None:
    before, done = states(table), commits(table)
    kept = list(done)[4]
    between(lambda: metatable.open(table.uri, FAST).savepoint("in-time", kept))
    clean(table)
    assert every_row(table, kept) == before[kept]
    recover(table)
    clean(table)
    assert strange(table) == []
    table.restore(savepoint="in-time")
    is_sound(table, before[kept])


def test_hudi_s_record_of_a_savepoint_names_its_files(table: Table) -> None:
    table.savepoint("one", note="why")
    [path] = Path(table.uri, ".hoodie").glob("*.savepoint")
    assert path.name == f"{table.instant}.savepoint"
    with path.open("rb") as file:
        [record] = fastavro.reader(file)
    assert (record["savepointedBy"], record["comments"], record["version"]) == (
        "metatable",
        "why",
        1,
    )
    named = {
        f"{folder}/{name}"
        for folder, held in record["partitionMetadata"].items()
        for name in held["savepointDataFile"]
    }
    held = Snapshot(Store(table.uri), newest(table)).slices().all_files()[0]
    assert named == {*held.to_pylist()}
    is_sound(table, every_row(table))


def test_nothing_that_a_savepoint_keeps_is_undone(table: Table) -> None:
    before, done = states(table), list(commits(table))
    table.savepoint("one")
    with pytest.raises(UsageError, match="a savepoint keeps a commit that would be undone"):
        table.rollback()
    with pytest.raises(UsageError, match="drop it first"):
        table.restore(done[2])
    table.upsert(arrow(rows(0, 3, 99)))
    table.rollback()
    is_sound(table, before[done[0]])
    table.drop_savepoint("one")
    table.restore(done[2])
    is_sound(table, before[done[2]])


def test_two_savepoints_of_one_version_are_one_to_hudi(table: Table) -> None:
    table.savepoint("one")
    table.savepoint("two")
    table.drop_savepoint("one")
    assert len(list(Path(table.uri, ".hoodie").glob("*.savepoint"))) == 1
    table.drop_savepoint("two")
    assert not list(Path(table.uri, ".hoodie").glob("*.savepoint*"))


@pytest.mark.parametrize("meanwhile", ["is dropped", "is kept"])
def test_a_savepoint_is_dropped_while_another_one_of_its_commit(
    table: Table, meanwhile: str
) -> None:
    """Both looked while the other one was there, or neither was."""
    version, twin = table.version, metatable.open(table.uri, FAST)
    table.savepoint("one")
    if meanwhile == "is dropped":
        twin.savepoint("two")
        act: Callable[[], Any] = partial(twin.drop_savepoint, "two")
    else:
        act = partial(twin.savepoint, "two", version)
    before, seen = once("/manifest/", act)
    execute(watched(table.uri, before=before)[0], LocalEngine(1), DropSavepoint("one"))
    assert seen
    left = 0 if meanwhile == "is dropped" else 1
    assert len(table.savepoints()) == left
    assert len(list(Path(table.uri, ".hoodie").glob("*.savepoint*"))) == 2 * left
    assert table.verify().findings == ()


def by_hudis_tools(table: Table) -> tuple[list[Path], set[str]]:
    """A savepoint of the last commit that Hudi's own tools have made: its files on the timeline,
    and those that it keeps."""
    held = Snapshot(Store(table.uri), newest(table)).slices()
    body = savepoint_metadata([*held], 0, "").replace(b"metatable", b"hudi user")
    ends = (".inflight", b""), ("", body)
    files = [(Path(table.uri, f".hoodie/{table.instant}.savepoint{end}"), one) for end, one in ends]
    for file, one in files:
        file.write_bytes(one)
    return [file for file, _ in files], {*held.all_files()[0].to_pylist()}


def test_a_savepoint_of_hudis_own_tools_stays_when_ours_of_its_commit_is_dropped(
    table: Table,
) -> None:
    files, kept = by_hudis_tools(table)
    bodies = [file.read_bytes() for file in files]
    table.savepoint("ours")
    table.drop_savepoint("ours")
    for v in range(KEEP + 1):
        table.upsert(arrow(rows(0, 30, 50 + v)))
    clean(table)
    assert [file.read_bytes() for file in files] == bodies
    assert [path for path in kept if not Path(table.uri, path).exists()] == []
    is_sound(table, every_row(table))


def of_many_files(instant: str) -> list[FileSlice]:
    names = (f"city={number:08}" for number in range(1 << 14))
    return [FileSlice(DataFile(folder, "g-0", "0-0-0", instant)) for folder in names]


def test_a_large_savepoint_of_hudis_own_tools_is_not_read_by_each_commit(table: Table) -> None:
    """It names all files of the table."""
    (_, path), _ = by_hudis_tools(table)
    body = savepoint_metadata(of_many_files(table.instant), 0, "")
    body = body.replace(b"metatable", b"hudi user")
    path.write_bytes(body)
    opened = metatable.open(table.uri, FAST)
    opened.upsert(arrow(rows(0, 3, 99)))
    assert opened.counters["store.bytes_read"] < len(body) / 2
    assert path.read_bytes() == body


def test_a_large_savepoint_of_ours_is_told_by_its_beginning(table: Table) -> None:
    """One that was dropped, and that a late hand has put there again."""
    (_, path), _ = by_hudis_tools(table)
    body = savepoint_metadata(of_many_files(table.instant), 0, "")
    path.write_bytes(body)
    assert len(body) > HEAD_BYTES
    recover(table)
    assert not path.exists()


def test_nothing_that_a_savepoint_of_hudis_own_tools_keeps_is_undone(table: Table) -> None:
    before, done = states(table), list(commits(table))
    files, _ = by_hudis_tools(table)
    for back in (table.rollback, partial(table.restore, done[2])):
        for dry_run in (True, False):
            with pytest.raises(UsageError, match=r"of Hudi's own tools keeps .* would be undone"):
                back(dry_run=dry_run)
    table.upsert(arrow(rows(0, 3, 99)))
    table.rollback()
    is_sound(table, before[done[0]])
    for file in files:
        file.unlink()
    table.restore(done[2])
    is_sound(table, before[done[2]])


@pytest.mark.parametrize("since", [1, 3])
def test_what_only_a_savepoint_keeps_may_be_kept_under_another_name(
    table: Table, since: int
) -> None:
    table.savepoint("a")
    [saved] = table.savepoints()
    kept = every_row(table)
    for number in range(since):
        table.upsert(arrow(rows(0, 3, 70 + number)))
    clean(table)
    table.savepoint("b", saved.version)
    table.restore(savepoint="a")
    table.savepoint("c")
    for name in "ab":
        table.drop_savepoint(name)
        clean(table)
    assert [one.version for one in table.savepoints()] == [saved.version]
    table.upsert(arrow(rows(0, 3, 71)))
    clean(table)
    table.restore(savepoint="c")
    is_sound(table, kept)
    clean(table)
    assert strange(table) == []


def test_a_savepoint_is_its_copy_whatever_lies_in_the_place_of_its_root(table: Table) -> None:
    """A writer that slept may have put its own root there, and died."""
    before, done = states(table), list(commits(table))
    kept, older = done[0], done[-1]
    other = load_version(Store(table.uri), older, 0).pages
    table.savepoint("a")
    for number in range(3):
        table.upsert(arrow(rows(0, 3, 70 + number)))
    clean(table)
    place, copy = (Path(table.uri, path(kept)) for path in (version_path, saved_path))
    assert not place.exists()
    saved = copy.read_bytes()
    root = Manifest.decode(saved, version_path(kept))
    void = dataclasses.replace(root, nonce="f" * 32, pages=other).encode()

    place.write_bytes(void)
    assert every_row(table, kept) == before[kept]
    carried = pickle.loads(pickle.dumps(snapshot_at(Store(table.uri), kept)))
    assert carried.manifest == root
    assert [one.nonce for one in Kept(Store(table.uri), newest(table), table.version).pinned] == [
        root.nonce
    ]
    assert metatable.open(table.uri, FAST).verify().findings == ()
    table.savepoint("b", kept)
    assert copy.read_bytes() == saved
    assert place.exists()
    table.upsert(arrow(rows(0, 3, 80)))
    clean(table)
    assert not place.exists()
    place.write_bytes(void)
    copy.write_bytes(saved[:-9])
    with pytest.raises(CorruptError, match=f"path='{saved_path(kept)}'"):
        table.restore(savepoint="a")
    assert [one.where for one in table.verify().findings] == [saved_path(kept)]
    copy.write_bytes(saved)
    table.restore(savepoint="a")
    is_sound(table, before[kept])


@pytest.mark.parametrize("where", [r"list \.hoodie", r"delete .*\.savepoint"])
def test_a_savepoint_that_comes_while_a_writer_begins_stays(table: Table, where: str) -> None:
    """Between his look for the newest version and that at the timeline; and while he drops one of
    the same commit, which a late hand has brought back."""
    instant, version = str(table.instant), table.version
    files = [Path(table.uri, f".hoodie/{instant}.savepoint{end}") for end in ("", ".inflight")]
    if where.startswith("delete"):
        table.savepoint("gone")
        held = [file.read_bytes() for file in files]
        table.drop_savepoint("gone")
        table.upsert(arrow(rows(0, 3, 9)))  # a version that does not drop it
        for file, body in zip(files, held, strict=True):
            file.write_bytes(body)
    come: list[str] = []

    def before(verb: str, path: str) -> None:
        if not come and re.fullmatch(where, f"{verb} {path}"):
            come.append(path)
            metatable.open(table.uri, FAST).savepoint("kept", version=version)

    store, _ = watched(table.uri, before=before)
    with Transaction.begin(store):
        assert come
    assert [file.name for file in files if not file.exists()] == []
    assert table.verify().findings == ()


def test_a_late_hand_brings_no_dropped_savepoint_back(table: Table) -> None:
    """The simulation found the first half: it was told that what it should put is lost."""
    table.savepoint("one")
    store, root = Store(table.uri, FAST), newest(table)
    [path] = Path(table.uri, ".hoodie").glob("*.savepoint")
    body = path.read_bytes()
    table.drop_savepoint("one")
    settle(store, root)
    assert not path.exists()
    path.write_bytes(body)  # had read it before
    recover(table)
    assert not path.exists()
    table.upsert(arrow(rows(0, 3, 9)))  # a version without that step
    path.write_bytes(body.replace(b"metatable", b"hudi user"))  # of Hudi's own tools
    recover(table)
    assert path.exists()


def test_nor_does_it_where_another_one_of_that_commit_lay_ready_alone(table: Table) -> None:
    """Whose maker has died before the put: what is not the same is no lost savepoint."""
    version = table.version
    table.savepoint("one")
    [path] = Path(table.uri, ".hoodie").glob("*.savepoint")
    body = path.read_bytes()
    table.drop_savepoint("one")
    table.upsert(arrow(rows(0, 3, 9)))  # a version without that step
    with dying(table.uri, BEFORE_PUT) as store:
        execute(store, LocalEngine(1), Savepoint("two", version))
    path.write_bytes(body)
    assert table.verify().findings == ()
    recover(table)
    assert not path.exists()


def test_who_drops_a_savepoint_late_makes_none_that_looks_lost(table: Table) -> None:
    """He puts back what another one of the same commit has, which is dropped by then."""
    version = table.version
    table.savepoint("gone")
    twin = metatable.open(table.uri, FAST)

    def drop() -> None:
        twin.drop_savepoint("kept")
        twin.upsert(arrow(rows(0, 3, 9)))  # a version without that step

    keep = partial(twin.savepoint, "kept", version)
    acts = ((r"delete .*/commits/.*", keep), (r"put .*/commits/.*", drop))
    store, seen = acting(table, *acts)
    execute(store, LocalEngine(1), DropSavepoint("gone"))
    assert len(seen) == 2
    assert table.verify().findings == ()
    recover(table)
    assert list(Path(table.uri, ".hoodie").glob("*.savepoint*")) == []


def acting(table: Table, *acts: tuple[str, Callable[[], Any]]) -> tuple[Store, list[str]]:
    """A store of this table, and which calls (verb and path) others were before: each of `acts`, in
    this order, before the first one that it matches."""
    seen: list[str] = []

    def before(verb: str, path: str) -> None:
        if len(seen) < len(acts) and re.fullmatch(acts[len(seen)][0], f"{verb} {path}"):
            seen.append(f"{verb} {path}")
            acts[len(seen) - 1][1]()

    store, _ = watched(table.uri, before=before)
    return store, seen


@pytest.mark.parametrize("where", [r"delete \.hoodie/\d+\.savepoint", r"delete .*/commits/.*"])
def test_a_savepoint_that_comes_while_another_one_is_dropped_stays(
    table: Table, where: str
) -> None:
    """Of the same commit; nobody could write any more, for what was to be put was gone."""
    version, expected = table.version, every_row(table)
    table.savepoint("gone")
    again = partial(metatable.open(table.uri, FAST).savepoint, "kept", version)
    store, seen = acting(table, (where, again))
    execute(store, LocalEngine(1), DropSavepoint("gone"))
    assert len(seen) == 1
    recover(table)
    assert table.verify().findings == ()
    table.upsert(arrow(rows(0, 3, 9)))
    clean(table)
    assert strange(table) == []
    table.restore(savepoint="kept")
    is_sound(table, expected)


def test_what_lay_ready_for_a_savepoint_is_made_anew(table: Table) -> None:
    """A late hand may take it, which drops one of the same commit."""
    version = table.version

    def lose() -> None:
        [staged] = Path(table.uri, ".hoodie/metatable/commits").glob("*.savepoint")
        staged.unlink()

    store, seen = acting(table, (r"size \.hoodie/\d+\.savepoint", lose))
    execute(store, LocalEngine(1), Savepoint("one", note="why"))
    assert seen
    [path] = Path(table.uri, ".hoodie").glob("*.savepoint")
    with path.open("rb") as file:
        [record] = fastavro.reader(file)
    assert record["comments"] == "why"
    assert [(one.name, one.version) for one in table.savepoints()] == [("one", version)]
    recover(table)
    assert table.verify().findings == ()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_commit_that_is_published_while_a_savepoint_is_planned_is_none_of_its_version(
    table: Table, dry_run: bool
) -> None:
    version, expected = table.version, every_row(table)
    listed, upsert = r"list \.hoodie", partial(table.upsert, arrow(rows(0, 3, 9)))
    begins = [] if dry_run else [(listed, lambda: None)]
    store, seen = acting(table, *begins, (listed, upsert))
    execute(store, LocalEngine(1), Savepoint("one"), dry_run=dry_run)
    assert len(seen) == 1 + len(begins)
    if not dry_run:
        assert [one.version for one in table.savepoints()] == [version]
        assert table.verify().findings == ()
        table.restore(savepoint="one")
        is_sound(table, expected)


def test_a_version_that_is_kept_again_while_a_clean_deletes_stays(table: Table) -> None:
    """Its root's second copy, left by a savepoint that was dropped, is none of the garbage as long
    as the version can be kept by another one."""
    version, expected = table.version, every_row(table)
    table.savepoint("gone")
    table.drop_savepoint("gone")
    table.upsert(arrow(rows(0, 3, 9)))
    again = partial(metatable.open(table.uri, FAST).savepoint, "kept", version)
    deletes = r"delete .*\.hfile|delete .*/pages/.*"
    store, seen = acting(table, (deletes, again))
    execute(store, LocalEngine(1), Clean(versions=2, hours=0))
    assert seen
    table.upsert(arrow(rows(0, 3, 11)))
    clean(table)
    assert table.verify().findings == ()
    assert strange(table) == []
    table.restore(savepoint="kept")
    is_sound(table, expected)


def test_what_is_restored_while_a_clean_is_under_way_stays(table: Table) -> None:
    """By a savepoint that came after its first look, and is gone before its last one."""
    kept = list(commits(table))[4]
    expected = every_row(table, kept)
    twin = metatable.open(table.uri, FAST)

    def back() -> None:
        twin.restore(savepoint="in-time")
        twin.drop_savepoint("in-time")

    put = r"create .*/manifest/\d+\.json"
    store, seen = acting(
        table, (put, partial(twin.savepoint, "in-time", kept)), (r"list .*/services", back)
    )
    execute(store, LocalEngine(1), Clean(versions=1, hours=0))
    assert len(seen) == 2
    is_sound(table, expected)
    clean(table)
    assert strange(table) == []
    is_sound(table, expected)


def test_a_version_whose_commit_is_archived_cannot_be_kept(table_uri: str) -> None:
    """Neither is trying again of use, nor is anything wrong with the order of its commits."""
    table = made(table_uri, "record", **{**SMALL, "timeline_commits": 2})
    grown(table)
    table.clean(versions=20, hours=0)
    begins = newest(table).archived
    for version, instant in commits(table).items():
        if instant < begins:
            with pytest.raises(UsageError, match="timeline begins after the commit"):
                table.savepoint("one", version)
            with pytest.raises(UsageError, match="timeline begins after the commit"):
                table.savepoint("one", version, dry_run=True)
        else:
            table.savepoint(f"of-{version}", version)


@pytest.mark.parametrize("first", ["savepoint", "clean"])
def test_a_savepoint_and_an_archiving_that_race_both_hold(table_uri: str, first: str) -> None:
    """A savepoint of a commit that is not on Hudi's timeline could not be restored."""
    table = made(table_uri, "record", **{**SMALL, "timeline_commits": 0})
    grown(table)
    table.set_options({"timeline_commits": 3})
    version = list(commits(table))[5]
    expected, twin = every_row(table, version), metatable.open(table.uri, FAST)
    put = r"create .*/manifest/\d+\.json"
    if first == "savepoint":
        store, seen = acting(table, (put, partial(twin.savepoint, "one", version)))
        execute(store, LocalEngine(1), Clean(versions=20, hours=0))
    else:
        store, seen = acting(table, (put, partial(twin.clean, versions=20, hours=0)))
        with pytest.raises(UsageError, match="keep a later version"):
            execute(store, LocalEngine(1), Savepoint("one", version))
    assert seen
    assert table.verify().findings == ()
    archived = newest(table).archived
    assert archived
    if first == "savepoint":
        assert archived <= commits(table)[version]
        table.restore(savepoint="one")
        is_sound(table, expected)


def test_bad_savepoints_are_refused(table_uri: str) -> None:
    table = made(table_uri, **SMALL)
    with pytest.raises(UsageError, match="no commit to keep"):
        table.savepoint("one")
    table.insert(arrow(rows(0, 9, 1)))
    for name in ("", "a b", "20260301120000000", "x" * 101, None, 7):
        with pytest.raises(UsageError, match="not a name"):
            table.savepoint(name)  # type: ignore[arg-type]
    table.savepoint("one")
    assert "already" in table.savepoint("one").reason
    table.upsert(arrow(rows(3, 6, 2)))
    with pytest.raises(UsageError, match="there is a savepoint of this name"):
        table.savepoint("one")
    with pytest.raises(UsageError, match="no such savepoint"):
        table.drop_savepoint("two")
    with pytest.raises(metatable.NotFoundError):
        table.savepoint("two", 77)
    undone = table.version
    table.rollback()
    with pytest.raises(StaleError):
        table.savepoint("two", undone)


def test_no_instant_below_a_savepoint_is_published_any_more(table: Table) -> None:
    slow = next_instant(datetime(2020, 1, 1, tzinfo=UTC), sorted(completed(table.uri))[-2])
    with Transaction.begin(Store(table.uri, FAST)) as sleeper:
        table.savepoint("one")
        sleeper.owner = sleeper.owner.of(slow)
        with pytest.raises(ConflictError, match="a savepoint is"):
            sleeper.publish(Change("upsert", instant=slow))


@pytest.mark.parametrize(("verb", "turn"), [(Savepoint, 0), (DropSavepoint, 2)])
def test_a_savepoint_killed_at_any_call_is_there_or_not(
    tmp_path: Path, verb: Callable[[str], Service[Any]], turn: int
) -> None:
    origin = str(tmp_path / "origin")
    table = made(origin, "record", **SMALL)
    table.insert(arrow(rows(0, 9, 1)))
    if verb is DropSavepoint:
        table.savepoint("one")
    expected = scanned(table)

    def serves(store: Store) -> None:
        execute(store, LocalEngine(1), verb("one"))

    store, backend = watched(_copy(origin, tmp_path / "dry"))
    serves(store)
    for limit in one_in(3, [0, *backend.kills()], turn):
        uri = _copy(origin, tmp_path / "killed")
        _kill(uri, serves, limit)
        one = metatable.open(uri, FAST)
        assert one.verify().findings == ()
        recover(one)
        is_sound(one, expected)
        records = list(Path(uri, ".hoodie").glob("*.savepoint"))
        assert len(records) == len(one.savepoints())
        clean(one)
        assert strange(one) == []


# by a moment


def test_a_version_is_named_by_an_instant_or_a_time(table: Table) -> None:
    before, done = states(table), commits(table)
    for version, instant in done.items():
        moment = datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
        asked: list[Any] = [instant, moment, moment.isoformat(), moment.replace(tzinfo=None)]
        asked.append(moment.astimezone(timezone(timedelta(hours=-7))))
        for one in asked:
            assert scanned_as_of(table, one) == before[version], one
    assert scanned_as_of(table, "29990101000000000") == every_row(table)
    assert scanned_as_of(table, date(2020, 1, 1)) == []
    assert len(table.files(as_of=min(done.values()))) > 0
    first = sorted(done.values())[4]
    assert scanned_as_of(table, first[:14]) == scanned_as_of(
        table, datetime.strptime(first[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    )
    with pytest.raises(UsageError, match="stands alone"):
        table.scan(version=2, as_of=first)
    for bad in ("soon", "2026", 7, "20261399000000", None.__class__):
        with pytest.raises(UsageError, match="not a moment"):
            table.scan(as_of=bad)  # type: ignore[arg-type]


def test_a_commit_at_the_beginning_of_a_second_is_done_by_that_second(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, second = made(table_uri, "record", **SMALL), datetime(2026, 3, 1, 12, tzinfo=UTC)
    for number, moment in enumerate([second, second + timedelta(milliseconds=1)]):
        monkeypatch.setattr(clock, "now", lambda moment=moment: moment)
        assert table.insert(arrow(rows(number, number + 1, 1))).instant == next_instant(moment)
    first, both = scanned(table, table.version - 1), every_row(table)
    assert len(first) < len(both)
    for asked in ("20260301120000", "20260301120000000", second, second.isoformat()):
        assert scanned_as_of(table, asked) == first, asked
    assert scanned_as_of(table, "20260301115959") == []
    assert scanned_as_of(table, "20260301120001") == both


def test_a_savepoint_of_an_instant_of_old_is_found_by_it(table_uri: str) -> None:
    made(table_uri, "record", **SMALL)
    store, newest = Store(table_uri, FAST), newest_of(Store(table_uri, FAST))
    pinned = dataclasses.replace(newest, pins={"one": Pin(7, "20200101000000")})
    assert version_as_of(store, pinned, instant_of("20200101000000")) == 7


def scanned_as_of(table: Table, moment: Any) -> list[tuple[Any, ...]]:
    return sorted_rows(table.scan(as_of=moment).to_arrow().to_pylist())


def sorted_rows(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in found)


def test_a_moment_before_what_is_kept_is_stale_but_for_a_savepoint(table: Table) -> None:
    before, done = states(table), commits(table)
    versions = list(done)
    table.savepoint("old", versions[6])
    clean(table, 2)
    assert scanned_as_of(table, done[versions[1]]) == sorted(before[versions[1]])
    assert scanned_as_of(table, done[versions[6]]) == sorted(before[versions[6]])
    with pytest.raises(StaleError, match="not kept any more"):
        table.scan(as_of=done[versions[4]])


def test_an_undone_commit_is_not_there_at_its_own_instant(table: Table) -> None:
    before, done = states(table), commits(table)
    versions = list(done)
    table.restore(versions[2])
    table.upsert(arrow(rows(0, 2, 88)))
    assert scanned_as_of(table, done[versions[0]]) == sorted(before[versions[2]])
    assert scanned_as_of(table, str(table.instant)) == sorted(every_row(table))


def out_of_order(uri: str, between: Any) -> tuple[Table, str, str]:
    """A table, and the instants of a commit and of a later one that came before it."""
    table = made(uri, **{**SMALL, "lease_seconds": 60, "small_file_bytes": 0})
    table.insert(arrow(rows(0, 3, 1)))
    faster = []
    between(lambda: faster.append(str(table.insert(arrow(rows(20, 23, 1))).instant)))
    slow = str(table.insert(arrow(rows(10, 13, 1))).instant)
    assert slow < faster[0]
    return table, slow, faster[0]


def test_commits_that_were_not_published_in_their_order_have_no_moment(
    table_uri: str, between: Any
) -> None:
    table, slow, faster = out_of_order(table_uri, between)
    with pytest.raises(UsageError, match="not published in the order of their instants"):
        table.scan(as_of=slow)
    assert len(scanned_as_of(table, faster)) == 9
    with pytest.raises(UsageError, match="a commit of a later instant"):
        table.savepoint("one")
    table.upsert(arrow(rows(0, 2, 2)))
    table.savepoint("one")


@pytest.mark.parametrize("later", [0, KEEP + 1], ids=["on the timeline", "archived"])
def test_commits_out_of_order_have_no_moment_when_the_faster_one_s_version_is_gone(
    table_uri: str, between: Any, later: int
) -> None:
    table, slow, faster = out_of_order(table_uri, between)
    clean(table, 1)
    for number in range(later):
        table.upsert(arrow(rows(0, 2, 60 + number)))
    clean(table, 99)
    assert (newest(table).archived > slow) == bool(later)
    with pytest.raises(UsageError, match="not published in the order of their instants"):
        table.scan(as_of=slow)
    assert len(scanned_as_of(table, faster)) == 9


def test_a_commit_has_its_moment_where_the_table_went_back_to_it(table_uri: str) -> None:
    table = made(table_uri, **SMALL)
    first = table.insert(arrow(rows(0, 3, 1))).instant
    table.insert(arrow(rows(10, 13, 1)))
    back = table.rollback().version
    for version in range(1, back + 1):  # the version before a root ends when it is put
        os.utime(Path(table.uri, version_path(version)), (0, 0))
    table.insert(arrow(rows(20, 23, 1)))
    table.clean(versions=1, hours=1)
    assert newest(table).oldest == back
    assert len(scanned_as_of(table, first)) == 3


def test_a_moment_whose_version_is_a_service_s_by_now_is_answered(table: Table) -> None:
    """What was the newest within some hours is kept: the compaction, not the commit before it."""
    before, done = states(table), commits(table)
    [compacted] = [one.version for one in table.history() if one.operation == "compact"]
    for version in range(1, compacted + 1):  # the version before a root ends when it is put
        path = Path(table.uri, version_path(version))
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    table.clean(versions=1, hours=1)
    assert min(one.version for one in table.history()) == compacted
    earlier, commit, later = (done[compacted + step] for step in (-2, -1, 1))
    behind = datetime.strptime(later + "000", "%Y%m%d%H%M%S%f") - timedelta(milliseconds=1)
    for moment in (commit, behind):
        assert scanned_as_of(table, moment) == sorted(before[compacted])
    with pytest.raises(StaleError, match="not kept any more"):
        table.scan(as_of=earlier)


def test_a_version_that_was_undone_stays_unread_when_its_instant_is_archived(table: Table) -> None:
    before, undone = states(table), table.version
    table.rollback()
    for number in range(KEEP + 1):
        table.upsert(arrow(rows(0, 2, 60 + number)))
    clean(table, 99)
    assert newest_of(Store(table.uri, FAST)).withdrawn == ()
    with pytest.raises(StaleError, match="was undone"):
        table.scan(version=undone)
    assert every_row(table, undone - 1) == before[undone - 1]


def test_a_version_of_a_service_that_was_undone_is_not_read(table_uri: str) -> None:
    """A restore takes its files, though no commit of rows is undone that it holds."""
    table = made(table_uri, "record-avro", **SMALL)
    table.insert(arrow(rows(0, 8, 1)))
    last = table.upsert(arrow(rows(0, 4, 2))).version
    merged = table.compact_logs(ratio=0).version
    table.upsert(arrow(rows(0, 2, 3)))
    table.restore(last)
    with pytest.raises(StaleError, match="was undone"):
        table.files(version=merged)


def test_damage_of_a_version_from_before_what_was_undone_is_damage(table: Table) -> None:
    last = table.version - 1
    table.rollback()
    table.upsert(arrow(rows(0, 2, 60)))
    Path(table.uri, table.files(version=last)[0].path).unlink()
    with pytest.raises(CorruptError, match="missing"):
        table.scan(version=last).to_arrow()


@pytest.mark.parametrize("back", [1, 3])
def test_a_restore_whose_root_is_lost_is_made_again(table: Table, back: int) -> None:
    """What it has undone is not there to be undone again."""
    before, target = states(table), [*commits(table)][back]
    done = table.restore(target)
    Path(table.uri, version_path(done.version)).unlink()
    again = metatable.open(table.uri, FAST)
    assert again.version < done.version
    again.restore(target, dry_run=True)
    assert again.restore(target).version == done.version
    is_sound(again, before[target])
    goes_on(again)


@pytest.mark.parametrize("verb", ["restore", "rollback", "savepoint"])
def test_a_clean_meanwhile_is_no_damage(
    table: Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    target = [*commits(table)][1]
    module = savepoint if verb == "savepoint" else rollback
    real, looked = module.check_files, list[Any]()

    def late(*given: Any) -> None:
        if not looked:
            looked.append(metatable.open(table.uri, FAST).clean(versions=1, hours=0))
        real(*given)

    monkeypatch.setattr(module, "check_files", late)
    calls: dict[str, Callable[[], Any]] = {
        "restore": lambda: table.restore(target),
        "rollback": table.rollback,
        "savepoint": lambda: table.savepoint("kept", version=target),
    }
    with pytest.raises(StaleError, match="not kept any more"):
        calls[verb]()
    assert looked
