"""Clean: nothing goes that a kept version names, or somebody who lives; everything else does."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import (
    AccessError,
    AddColumn,
    ConflictError,
    StaleError,
    Table,
    UpgradeError,
    UsageError,
)
from metatable.compaction.cleaning import clean as clean_module
from metatable.compaction.cleaning import kept_files
from metatable.compaction.cleaning.clean import Clean, _settled
from metatable.compaction.cleaning.garbage import FileKind, left, suspects
from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.signs import Signs
from metatable.compaction.merging import upkeep
from metatable.compaction.merging.compact import Compact
from metatable.compaction.reshaping.log_compaction import ScheduleLogs
from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.service import execute
from metatable.data.file_groups.slices import decoded
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import action_of
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.hoodie.timeline import Timeline, next_instant
from metatable.data.reading.slice_reader import writer_of
from metatable.engine.local import LocalEngine
from metatable.metadata.commits import retention
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import CommitSum, commits_back
from metatable.metadata.commits.refusals import check_timeline
from metatable.metadata.commits.steps import settle, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import LEASES, SERVICES, StoredLease, lease_path
from metatable.metadata.manifests.manifest import Manifest, version_path
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.arrays import UInt64s
from metatable.storage.store import TEMPORARY, Store
from metatable.write.commit_pass import write
from tests.compaction.aged_tables import KEEP, SMALL, clean, every_row, grown, is_sound, strange
from tests.face.protocol.making import (
    BEFORE_PUT,
    FAST,
    age_leases,
    dies,
    made,
    newest,
    recover,
    rows,
)
from tests.face.test_kill import _copy, _kill, _shape
from tests.faults import Refused, watched
from tests.long import LONG, one_in
from tests.metadata.test_steps import put
from tests.model import (
    SCHEMA,
    Model,
    Row,
    arrow,
    check,
    completed,
    data_files,
    read_by_hudi,
    scanned,
)
from tests.root_refs import SOME_REFS, root_refs

pytestmark = pytest.mark.in_turn("origin")

TABLES = ["record", "metadata_bloom", "record-avro", "metadata_bloom-parquet"]
"""Indexes; behind a dash the format of logs, of merge-on-read tables."""


@pytest.fixture(scope="module", params=one_in(3, TABLES))
def origin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine commits, of which some replace files of others; a compaction in the middle."""
    folder = tmp_path_factory.mktemp("origin") / "table"
    with root_refs(SOME_REFS):
        grown(made(str(folder), request.param, **SMALL))
    return folder


@pytest.fixture
def table(origin: Path, table_uri: str) -> Table:
    """A copy of that."""
    shutil.copytree(origin, table_uri)
    return metatable.open(table_uri, FAST)


def files(table: Table) -> set[str]:
    return {one.path for one in Store(table.uri).list("", recursive=True)}


def test_what_is_left_is_what_the_newest_version_and_the_timeline_name(table: Table) -> None:
    expected, before = scanned(table), files(table)
    done = clean(table)
    assert strange(table) == []
    is_sound(table, expected)
    assert len(completed(table.uri)) == KEEP
    gone = before - files(table)
    on_timeline = {path for path in gone if path.count("/") == 1 and path.startswith(".hoodie/")}
    staged = {path for path in gone if path.startswith(f"{HOME}/commits/")}
    assert len(on_timeline) == 3 * len(staged) == 3 * (9 - KEEP)
    assert done.files_deleted == len(gone) - len(on_timeline) - len(staged)
    assert done.bytes_deleted > 1000
    assert [one.operation for one in table.history()] == ["clean", "clean", "delete"]
    again = table.version
    assert clean(table).reason == "nothing to clean"
    assert table.version == again
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in expected)
    for number in range(3):  # and it goes on as any table
        given = rows(number, number + 9, 50)
        table.upsert(arrow(given))
        model.upsert(given)
        check(table, model)


@pytest.mark.parametrize("versions", [1, 2, 5, 99])
def test_kept_versions_answer_as_before_and_others_are_stale(table: Table, versions: int) -> None:
    before = {version: scanned(table, version) for version in range(1, table.version + 1)}
    committed = [one.version for one in table.history() if one.instant]
    clean(table, versions)
    first = committed[versions - 1] if versions < 99 else 1
    assert [one.version for one in table.history()][-1] == first
    for version, expected in before.items():
        if version >= first:
            assert every_row(table, version) == expected
            continue
        with pytest.raises(StaleError, match="not kept any more") as told:
            table.scan(version=version)
        assert str(first) in str(told.value)
    is_sound(table, before[max(before)])
    assert strange(table) == [] or versions == 99


def test_what_was_the_newest_within_some_hours_is_kept(table: Table) -> None:
    old = [one.version for one in table.history()][4:]
    for version in old:  # the version before a root ends when it is put
        path = Path(table.uri, version_path(version))
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    assert clean(table, 1, hours=3).reason.startswith("no files")  # the timeline alone
    clean(table, 1, hours=1)
    assert min(one.version for one in table.history()) == max(old)
    assert every_row(table, max(old))
    clean(table, 3, hours=0)
    assert min(one.version for one in table.history() if one.instant) > max(old)


def test_a_dry_run_writes_nothing_and_says_what_a_clean_then_does(table: Table) -> None:
    before = files(table)
    dry = clean(table, 2, dry_run=True)
    assert files(table) == before
    done = clean(table, 2)
    assert dry.reason == f"dry run, nothing was done: {done.reason}"
    assert (dry.files_deleted, dry.bytes_deleted) == (done.files_deleted, done.bytes_deleted)
    assert "data files" in done.reason or table.options.has_logs
    assert "HFiles" in done.reason
    assert f"{done.files_deleted} files deleted" in repr(done)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"versions": 0}, "versions to keep"),
        ({"versions": True}, "versions to keep"),
        ({"versions": 2.5}, "versions to keep"),
        ({"hours": -1}, "hours to keep"),
        ({"hours": float("nan")}, "hours to keep"),
        ({"hours": "1"}, "hours to keep"),
    ],
)
def test_bad_retentions_are_refused(table_uri: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        made(table_uri).clean(**given)


def test_a_kept_version_that_is_lost_stops_it_before_anything_is_deleted(table: Table) -> None:
    before = files(table)
    Path(table.uri, version_path(table.version - 2)).unlink()
    with pytest.raises(metatable.CorruptError, match="version that is kept is lost"):
        clean(table, 5)
    assert before - files(table) == {version_path(table.version - 2)}


def test_what_only_a_savepoint_keeps_is_kept_and_not_live(table: Table) -> None:
    def named() -> set[str]:
        slices = Snapshot(Store(table.uri), newest(table)).slices()
        return {file.path for one in slices for file in one.files}

    then = named()
    table.savepoint("then")
    table.insert_overwrite(arrow(rows(50, 60, 1)), by="table")
    clean(table)
    size_of = {one.path: one.size_bytes for one in Store(table.uri).walk()}
    told = table.describe(listing=True).usage
    assert sum(told.values()) == sum(size_of.values())
    assert told["kept"] > sum(size_of[path] for path in then)
    assert told["live"] > sum(size_of[path] for path in named())


def test_what_the_table_went_back_to_is_live_and_not_reclaimable(table: Table) -> None:
    table.savepoint("then")
    for number in range(2):
        table.upsert(arrow(rows(0, 60, 50 + number)))
    clean(table)
    table.restore(savepoint="then")
    table.drop_savepoint("then")
    told = table.describe(listing=True).usage
    freed = clean(table)
    assert min(told.values()) >= 0
    assert told["reclaimable"] == freed.bytes_deleted


@pytest.mark.usefixtures("pages_as_files")
def test_what_is_lost_of_a_version_that_was_undone_stops_nobody(table: Table) -> None:
    table.compact(major=True)
    table.upsert(arrow(rows(0, 3, 50)))
    lost = {page.path for page in newest(table).page_files}
    table.rollback()
    lost -= {page.path for page in newest(table).page_files}
    table.upsert(arrow(rows(0, 3, 51)))
    expected = scanned(table)
    for path in lost:
        Path(table.uri, path).unlink()
    is_sound(table, expected)
    assert [one.service for one in table.due()]
    assert table.describe(listing=True).usage
    clean(table, 5)
    is_sound(table, expected)
    clean(table)
    assert strange(table) == []


def test_commits_that_were_undone_long_ago_are_none_of_those_to_keep(table: Table) -> None:
    """Though their instants are archived, and so told as withdrawn by nothing."""
    for _ in range(2):
        table.upsert(arrow(rows(0, 3, 50)))
        table.rollback()
    for v in range(KEEP + 1):
        table.upsert(arrow(rows(0, 3, 60 + v)))
    clean(table, 99)
    assert newest(table).withdrawn == ()
    kept = list(commits_back(Store(table.uri), newest(table)))
    clean(table, KEEP + 3)
    assert newest(table).oldest == kept[KEEP + 2][0]


def test_more_versions_than_there_are_may_be_kept(table: Table) -> None:
    before = files(table)
    clean(table, 10**30)
    assert newest(table).oldest <= 1
    assert {one for one in before if one.endswith(".parquet")} <= files(table)


# what nobody names


@pytest.mark.parametrize("saved", [False, True])
def test_what_a_dead_service_left_goes_and_it_never_publishes(table_uri: str, saved: bool) -> None:
    table = grown(made(table_uri, **{**SMALL, "lease_seconds": 60}))
    expected = scanned(table)
    store, service = Store(table.uri, FAST), Compact(major=True)
    with Transaction.begin(store) as sleeper:
        plan = service.plan(sleeper.snapshot)
        owner = sleeper.serve("compact")
        change = service.work(LocalEngine(1), sleeper.snapshot, plan, owner).change
        clean(table, 99)  # it lives: what it writes is its own
        mine = {path for path in files(table) if owner.nonce in path}
        assert any(path.endswith(".hfile") for path in mine)
        if saved:
            table.savepoint("base", sleeper.base.version)
        for path in Path(table.uri, SERVICES).iterdir():
            os.utime(path, (path.stat().st_mtime - 70,) * 2)
        clean(table, 99)
        assert not mine & files(table)
        with pytest.raises(ConflictError, match="taken for dead"):
            sleeper.publish(change)
        table.upsert(arrow(rows(0, 3, 8)))
        expected = scanned(table)
        clean(table)
        assert newest(table).fenced == {}, "its base is not kept: that refuses it, too"
        assert newest(table).keeps(sleeper.base.version) == saved
        with pytest.raises(ConflictError, match="is not kept any more"):
            sleeper.publish(change)
    is_sound(table, expected)
    assert table.compact(major=True).files_after < 9
    table.upsert(arrow(rows(0, 3, 9)))
    clean(table)
    assert strange(table) == []
    assert newest(table).fenced == {}, "its base is not kept: that refuses it, too"


@pytest.mark.usefixtures("pages_as_files")
def test_pages_of_puts_that_others_forestalled_go(table: Table, between: Any) -> None:
    between(lambda: table.upsert(arrow(rows(40, 44, 1))))
    table.compact(major=True)
    before = len(list(Path(table.uri, HOME, "pages").iterdir()))
    clean(table, 99)
    assert len(list(Path(table.uri, HOME, "pages").iterdir())) < before
    assert strange(table) == []


@pytest.mark.in_turn("index")
@pytest.mark.parametrize("index", ["record", "record-avro"])
def test_a_living_writer_s_files_stay_and_a_dead_one_s_go(table_uri: str, index: str) -> None:
    table = made(table_uri, index, **{**SMALL, "lease_seconds": 60})
    table.insert(arrow(rows(0, 12, 1)))
    expected = scanned(table)
    dies(table, rows(6, 18, 2), BEFORE_PUT)
    before = files(table)
    clean(table, 99)
    assert before <= files(table), "it may be alive"
    for _ in range(2):
        age_leases(table, 70)
        recover(table)
    clean(table)
    assert strange(table) == []
    is_sound(table, expected)


@pytest.mark.parametrize("index", ["record", "record-avro", "metadata_bloom-parquet"])
def test_a_file_of_a_dead_writer_that_lands_after_all_sweeps_never_comes_to_light(
    table_uri: str, index: str
) -> None:
    """The orphan to be afraid of: older than Hudi's timeline it would count as committed."""
    table = made(table_uri, index, **SMALL)
    table.insert(arrow(rows(0, 12, 1)))
    dies(table, rows(6, 18, 2), BEFORE_PUT)
    late = {path: Path(table.uri, path).read_bytes() for path in _orphans(table)}
    [instant] = {writer_of(Store(table.uri), decoded(path)) for path in late}
    for _ in range(3):
        recover(table)
    assert not _orphans(table)
    for path, body in late.items():
        Path(table.uri, path).write_bytes(body)
    for number in range(2 * KEEP):
        table.upsert(arrow(rows(0, 3, 10 + number)))
    expected = scanned(table)
    assert read_by_hudi(table.uri) == expected
    clean(table)
    assert not set(late) & files(table)
    assert newest(table).archived > instant
    is_sound(table, expected)
    assert strange(table) == []


def _orphans(table: Table) -> set[str]:
    done, store = completed(table.uri), Store(table.uri)
    found = {str(path.relative_to(table.uri)) for path in data_files(table.uri)}
    return {path for path in found if writer_of(store, decoded(path)) not in done}


def test_an_orphan_of_an_instant_that_nobody_withdrew_is_withdrawn_first(table: Table) -> None:
    """Nobody can then take the instant again, and write a file of the same name."""
    expected = scanned(table)
    instant = next_instant(after=newest(table).latest_instant)
    orphan = Path(table.uri, "city=ny", f"made-up-0_0-0-0_{instant}.parquet")
    orphan.write_bytes(b"whatever")
    marker = Path(table.uri, ".hoodie/.temp", instant, "city=ny/x.parquet.marker.CREATE")
    marker.parent.mkdir(parents=True)
    marker.write_bytes(b"")
    clean(table, 99)
    assert instant in newest(table).withdrawn
    assert not orphan.exists()
    assert not marker.exists()
    is_sound(table, expected)


def test_files_of_others_and_of_a_far_future_stay(table: Table) -> None:
    kept = [
        "city=ny/notes.txt",
        "city=ny/not ours.parquet",
        "_SUCCESS",
        ".hoodie/archived/commits_.archive.1",
        f"{HOME}/newer/words.json",
        "city=ny/far-0_0-0-0_29991231235959999.parquet",
    ]
    for path in kept:
        Path(table.uri, path).parent.mkdir(parents=True, exist_ok=True)
        Path(table.uri, path).write_bytes(b"mine")
    assert "1 data files that no version names were left alone" in clean(table).reason
    assert set(kept) <= files(table)
    assert newest(table).latest_instant < "2999"
    assert set(strange(table)) == set(kept)


def linked_out(table: Table, folder: str, tmp_path: Path) -> None:
    """A table partition lies elsewhere, and a link leads to it."""
    there = tmp_path / "elsewhere"
    shutil.move(Path(table.uri, folder), there)
    Path(table.uri, folder).symlink_to(there)


def test_files_to_which_a_link_leads_out_are_no_garbage_and_told(
    table: Table, tmp_path: Path
) -> None:
    if table.options.has_logs:  # what logs are put on is not replaced
        table.compact_logs(ratio=0)
        table.upsert(arrow(rows(0, 1, 99)))
    expected = scanned(table)
    linked_out(table, "city=ny", tmp_path)
    before = {path for path in files(table) if path.startswith("city=ny/")}
    assert "left alone" in clean(table).reason
    assert before <= files(table)
    version = table.version
    told = clean(table, dry_run=True)
    assert (told.files_deleted, told.bytes_deleted, table.version) == (0, 0, version)
    assert clean(table).reason == "nothing to clean"
    assert table.describe(listing=True).usage["reclaimable"] == 0
    is_sound(table, expected)


def test_a_file_of_which_no_path_of_ours_is_like_the_path_ends_no_clean(table: Table) -> None:
    instant = next_instant(after=newest(table).latest_instant)
    strange_one = Path(table.uri, "city=n\\y", f"made-up-0_0-0-0_{instant}.parquet")
    strange_one.parent.mkdir()
    strange_one.write_bytes(b"whatever")
    assert "left alone" in clean(table).reason
    assert strange_one.exists()


def test_the_timeline_is_not_archived_past_what_no_delete_reaches(
    table_uri: str, tmp_path: Path
) -> None:
    """Hudi takes what is older than its timeline for committed, and so does `repair`."""
    table = made(table_uri, **SMALL)
    table.insert(arrow(rows(0, 12, 1)))
    linked_out(table, "city=ny", tmp_path)
    folder = Path(table.uri, "city=ny")
    held = {*folder.iterdir()}
    dies(table, rows(0, 12, 2), BEFORE_PUT)
    assert (left := {*folder.iterdir()} - held)
    for v in range(KEEP + 3):
        table.upsert(arrow(rows(20, 24, v, "sf")))
    for _ in range(2):
        clean(table)
    assert left <= {*folder.iterdir()}
    is_sound(table, scanned(table))


def test_rows_whose_entry_is_lost_are_left_alone_and_told(table: Table) -> None:
    """A data file of a published commit that no version names: damage, and no garbage."""
    instant = sorted(completed(table.uri))[-1]
    lost = Path(table.uri, "city=ny", f"lost-entry-0_0-0-0_{instant}.parquet")
    lost.write_bytes(b"rows")
    assert "left alone" in clean(table).reason
    assert lost.exists()


def test_an_instant_under_way_of_another_engine_is_left_alone(table: Table) -> None:
    instant = next_instant(after=newest(table).latest_instant)
    foreign = [
        f".hoodie/{instant}.commit.requested",
        f".hoodie/.temp/{instant}/city=ny/a.parquet.marker.CREATE",
        f"city=ny/foreign-0_0-0-0_{instant}.parquet",
    ]
    for path in foreign:
        Path(table.uri, path).parent.mkdir(parents=True, exist_ok=True)
        Path(table.uri, path).write_bytes(b"")
    clean(table)
    assert set(foreign) <= files(table)


def test_half_written_files_go_when_they_have_not_grown_for_long(table_uri: str) -> None:
    table = grown(made(table_uri, **{**SMALL, "lease_seconds": 6}))
    folder = Path(table.uri, HOME, "tmp")
    folder.mkdir(exist_ok=True)
    old, young = folder / "a.tmp", folder / "b.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (old.stat().st_mtime - 62,) * 2)
    clean(table)
    assert young.exists()
    assert not old.exists()


def test_what_tasks_of_a_living_writer_hand_on_stays(table_uri: str) -> None:
    """Runs of entries, where tasks are Spark's: the first may wait for hours for the last."""
    table = grown(made(table_uri, **{**SMALL, "lease_seconds": 6}))

    def put(owner: str) -> Path:
        scratch = Path(table.uri, TEMPORARY, owner)
        scratch.mkdir(parents=True)
        run = scratch / "a.arrow"
        run.write_bytes(b"entries")
        os.utime(run, (run.stat().st_mtime - 62,) * 2)
        return run

    store = Store(table.uri, FAST)
    with Transaction.begin(store) as writer, Transaction.begin(store) as service:
        writer.start()
        runs = [put(one) for one in (writer.owner.name, service.serve("compact").name)]
        nobodys = put("b" * 32)
        clean(table)
        assert [one.exists() for one in (*runs, nobodys)] == [True, True, False]
    clean(table)
    assert [one.exists() for one in runs] == [False, False]
    assert strange(table) == []


# beside others


def test_a_writer_whose_base_went_meanwhile_begins_anew(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in scanned(table))
    given = rows(0, 40, 7)
    waiting = [lambda: (table.upsert(arrow(rows(4, 30, 6))), clean(table))]

    def meanwhile(verb: str, path: str) -> None:
        if waiting and verb == "create" and path.endswith("commit.requested"):
            waiting.pop()()

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    model.upsert(rows(4, 30, 6))
    if table.options.has_logs and table.options.index == "record":  # nothing is read that went
        with pytest.raises(StaleError, match="look whether its rows are there"):
            write(store, LocalEngine(1), arrow(given), "upsert")
        recover(table)
    else:
        assert write(store, LocalEngine(1), arrow(given), "upsert").attempts == 2
        model.upsert(given)
    check(table, model)


def overtaken(table: Table, given: list[Row], where: str) -> tuple[Any, list[Row]]:
    """An upsert that sleeps before its first call that `where` matches, while others write, clean
    away its base and what came right after; its result, and their rows."""
    theirs = rows(4, 30, 6)
    waiting = [lambda: [table.upsert(arrow(theirs)) for _ in range(3)] and clean(table)]

    def meanwhile(verb: str, path: str) -> None:
        if waiting and re.fullmatch(where, f"{verb} {path}"):
            waiting.pop()()

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    done = write(store, LocalEngine(1), arrow(given), "upsert")
    assert not waiting
    return done, theirs


def test_a_put_in_the_place_of_a_cleaned_version_is_void(table_uri: str) -> None:
    """The simulation found it: a commit was acknowledged that nobody would ever have seen."""
    table = grown(made(table_uri, **{**SMALL, "lease_seconds": 60}))
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in scanned(table))
    place = version_path(table.version + 1)
    done, theirs = overtaken(table, rows(0, 9, 7), rf"create {place}")
    assert done.attempts == 2
    assert done.version == table.version > 14
    assert place not in files(table)
    model.upsert(theirs)
    model.upsert(rows(0, 9, 7))
    check(table, model)


def test_no_void_put_is_left_of_a_writer_that_was_taken_for_dead(table_uri: str) -> None:
    table = grown(made(table_uri, **SMALL))
    place = version_path(table.version + 1)
    with pytest.raises(StaleError, match="look whether its rows are there"):
        overtaken(table, rows(0, 9, 7), rf"create {place}")
    assert place not in files(table)


def test_a_void_put_that_cannot_be_deleted_is_told_all_the_same(table_uri: str) -> None:
    table = grown(made(table_uri, **SMALL))
    place = version_path(table.version + 1)
    waiting = [lambda: [table.upsert(arrow(rows(4, 30, 6))) for _ in range(3)] and clean(table)]

    def meanwhile(verb: str, path: str) -> None:
        if waiting and (verb, path) == ("create", place):
            waiting.pop()()
        elif (verb, path) == ("delete", place) and not waiting:
            raise AccessError("the store refuses us", path=path)

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    with pytest.raises(StaleError, match="look whether its rows are there"):
        write(store, LocalEngine(1), arrow(rows(0, 9, 7)), "upsert")
    assert place in files(table)


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "record-avro"])
@pytest.mark.parametrize("what", ["upsert", "insert_overwrite"])
def test_a_put_that_counted_counts_though_what_was_before_it_is_cleaned(
    table_uri: str, index: str, what: str
) -> None:
    """Whatever it is on Hudi's timeline."""
    options = {**SMALL, "lease_seconds": 60, "timeline_commits": 9}
    table = grown(made(table_uri, index, **options))
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in scanned(table))
    base, reads = version_path(table.version), rf"read_whole {version_path(table.version)}"
    asked: list[str] = []
    given = rows(0, 9, 7)
    waiting = [lambda: [table.upsert(arrow(rows(20, 30, 6))) for _ in range(3)] and clean(table)]

    def meanwhile(verb: str, path: str) -> None:
        asked.append(f"{verb} {path}")
        put = f"create {version_path(int(base[-25:-5]) + 1)}" in asked
        if waiting and put and asked[-1] == reads:
            waiting.pop()()

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    done = write(store, LocalEngine(1), arrow(given), what)
    assert not waiting
    assert (done.attempts, done.version) == (1, int(base[-25:-5]) + 1)
    assert base not in files(table)
    (model.upsert if what == "upsert" else model.overwrite)(given)
    model.upsert(rows(20, 30, 6))
    check(table, model)


@pytest.mark.parametrize("what", ["upsert", "insert_overwrite_table", "compact", "schedule_logs"])
def test_nothing_is_deleted_of_a_put_of_which_nobody_can_tell_whether_it_counted(
    table_uri: str, what: str
) -> None:
    """Its writer slept until its version was cleaned, and its commit archived. Later versions name
    what he wrote; he deleted that, and so did recovery, if he died when he had renewed his
    lease."""
    index = "record-avro" if what == "schedule_logs" else "record"
    table = made(table_uri, index, **{**SMALL, "timeline_commits": 1})
    table.upsert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(2, 6, 2)))
    given, base = rows(10, 14, 3), table.version
    asked: list[str] = []
    found: list[list[tuple[Any, ...]]] = []

    def meanwhile(verb: str, path: str) -> None:
        asked.append(f"{verb} {path}")
        put = f"create {version_path(base + 1)}" in asked
        if not found and put and asked[-1] == f"read_whole {version_path(base)}":
            found.append([])
            for number in range(3):
                table.upsert(arrow(rows(20, 24, 5 + number)))
            clean(table)
            found[0] = every_row(table)

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    if what == "compact":
        execute(store, LocalEngine(1), Compact(major=True))
    elif what == "schedule_logs":
        with suppress(ConflictError):
            execute(store, LocalEngine(1), ScheduleLogs(LogSizes(ratio=0)))
    else:
        with pytest.raises(StaleError, match="look whether its rows are there"):
            write(store, LocalEngine(1), arrow(given), what)
    assert found
    names = [path.name for path in Path(table.uri, ".hoodie/metatable").rglob("*.hfile")]
    written = {(name[:17], name[18:50]) for name in names if name[:17].isdigit()}
    for instant, nonce in written:  # each as if its writer had woken up, and died
        if not Path(table.uri, f".hoodie/{instant}.commit").exists():
            Store(table.uri, FAST).put(lease_path(instant), StoredLease(nonce).encode())
    for _ in range(3):
        recover(table)
    assert every_row(table) == found[0]
    assert table.verify().findings == ()
    assert not list(Path(table.uri, LEASES).glob("*"))


def test_nothing_is_deleted_of_a_put_that_counted_where_what_followed_cannot_be_read(
    table_uri: str,
) -> None:
    """Its writer slept, others cleaned what was before it, and went on in a newer format."""
    table = made(table_uri, **{**SMALL, "timeline_commits": 9})
    table.upsert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(2, 6, 2)))
    base, asked = table.version, []
    found: list[list[tuple[Any, ...]]] = []
    newer = Path(table_uri, version_path(base + 5))

    def meanwhile(verb: str, path: str) -> None:
        asked.append(f"{verb} {path}")
        put = f"create {version_path(base + 1)}" in asked
        if not found and put and asked[-1] == f"read_whole {version_path(base)}":
            found.append([])
            for number in range(2):
                table.upsert(arrow(rows(20, 24, 5 + number)))
            clean(table)
            found[0] = every_row(table)
            root, told = newest(table), {"reader": 99, "writer": 99}
            assert root.path == version_path(base + 4)
            made_newer = replace(root, version=base + 5, parent=base + 4, format=told)
            newer.write_bytes(made_newer.encode())

    store, _ = watched(table_uri, before=meanwhile)
    cache.clear()
    with pytest.raises(UpgradeError):
        write(store, LocalEngine(1), arrow(rows(10, 14, 3)), "upsert")
    newer.unlink()
    assert every_row(table) == found[0]
    assert table.verify().findings == ()


def test_a_late_hint_does_not_make_a_void_put_the_newest_version(table: Table) -> None:
    root = Path(table.uri, version_path(table.version)).read_bytes()
    place = Path(table.uri, version_path(table.version))
    late = f"{table.version} {newest(table).nonce}".encode()
    for _ in range(3):
        table.upsert(arrow(rows(0, 9, 5)))
    clean(table)
    expected, version = scanned(table), table.version
    place.write_bytes(root.replace(newest(table).nonce.encode(), b"0"))  # by one who slept
    Path(table.uri, HOME, "manifest/latest").write_bytes(late.replace(b" ", b" not this one "))
    assert table.version == version
    assert every_row(table) == expected
    clean(table, 1)
    assert table.upsert(arrow(rows(0, 3, 6))).version > version


def test_a_reader_whose_version_went_is_told_and_not_of_damage(table: Table) -> None:
    scan = table.scan()
    table.insert_overwrite(arrow(rows(0, 40, 7)))
    clean(table)
    with pytest.raises(StaleError, match="not kept any more"):
        scan.to_arrow()


WHERE = {
    "before its put": r"create .*/manifest/\d+\.json",
    "before its first deletion": r"delete .*\.(parquet|hfile)",
    "before it archives": r"delete .*commit\.requested",
}


LOOKS: dict[str, Callable[[Table], Any]] = {
    "explain": lambda table: table.scan().explain(),
    "describe": lambda table: table.describe(),
    "usage": lambda table: table.describe(listing=True),
    "due": lambda table: table.due(),
    "dry clean": lambda table: table.clean(versions=99, hours=0, dry_run=True),
    "dry rollback": lambda table: table.rollback(dry_run=True),
    "dry restore": lambda table: table.restore(table.version - 1, dry_run=True),
}


@pytest.mark.parametrize("look", LOOKS)
def test_so_is_whoever_only_looks(table: Table, look: str) -> None:
    with pytest.raises(StaleError):
        LOOKS[look](goes_at(table, "/pages/"))
    is_sound(table, every_row(table))


@pytest.mark.usefixtures("pages_as_files")
def test_so_is_whoever_looks_at_buckets(table_uri: str) -> None:
    rings: dict[str, Any] = {"bucket_engine": "consistent_hashing", "bucket_count": 1}
    table = made(table_uri, "bucket", **rings, key_scope="partition", upkeep_files=0)
    for number in range(2):
        table.upsert(arrow(rows(0, 12, number)))
    with pytest.raises(StaleError):
        goes_at(table, "/pages/").buckets()
    assert table.buckets().num_rows


@pytest.mark.parametrize("look", ["usage", "due", "dry clean"])
def test_whoever_looks_at_older_versions_need_not_begin_a_service_anew(
    table: Table, look: str
) -> None:
    """A ConflictError is for those who write: here nobody was about to."""
    with pytest.raises(StaleError, match="another service was first"):
        LOOKS[look](goes_at(table, f"{1:020}.json"))


@pytest.mark.parametrize("look", ["usage", "due", "dry clean"])
def test_pages_of_older_versions_that_go_meanwhile_are_no_damage(table: Table, look: str) -> None:
    now, store = newest(table), Store(table.uri)
    before = [load_version(store, version, 0) for version in range(max(now.oldest, 1), now.version)]
    older = min(set().union(*map(_page_paths, before)) - _page_paths(now))
    with pytest.raises(StaleError, match="another service was first"):
        LOOKS[look](goes_at(table, older))
    is_sound(table, every_row(table))


def _page_paths(root: Manifest) -> set[str]:
    return {page.path for page in root.page_files}


def goes_at(table: Table, where: str) -> Table:
    """The table of one whose version goes at the first call that has this in its path."""
    seen: list[None] = []

    def others(verb: str, path: str) -> None:
        if not seen and where in path:
            seen.append(None)
            other = metatable.open(table.uri, FAST)
            other.compact(major=True)
            other.upsert(arrow(rows(0, 5, 60)))
            clean(other)
            cache.clear()

    cache.clear()
    return Table(watched(table.uri, before=others)[0])


@pytest.mark.parametrize("what", ["version", "savepoint"])
def test_whoever_verifies_meanwhile_is_told_and_not_of_damage(table: Table, what: str) -> None:
    """The version itself is kept, but not others that are looked at with it."""
    if what == "savepoint":
        table.savepoint("a", [one.version for one in table.history() if one.instant][-2])
        clean(table)
        table.upsert(arrow(rows(0, 5, 60)))
    seen: list[None] = []

    def others(verb: str, path: str) -> None:
        if not seen and "/pages/" in path:
            seen.append(None)
            if what == "savepoint":
                table.drop_savepoint("a")
            clean(metatable.open(table.uri, FAST), 1 if what == "version" else 99)
            cache.clear()

    cache.clear()
    with pytest.raises(StaleError, match="files went while they were verified"):
        Table(watched(table.uri, before=others)[0]).verify()
    assert seen
    assert table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.parametrize("what", one_in(2, ["upsert", "compact", "rollback", "clean"]))
@pytest.mark.parametrize("where", WHERE if LONG else list(WHERE)[:2])
def test_whoever_publishes_meanwhile_loses_nothing(table: Table, where: str, what: str) -> None:
    states = [scanned(table)]
    acts: dict[str, Callable[[], Any]] = {
        "upsert": lambda: table.upsert(arrow(rows(3, 33, 9))),
        "compact": lambda: table.compact(major=True),
        "clean": lambda: clean(table, 2),
        "rollback": table.rollback,
    }
    waiting = [acts[what]]

    def meanwhile(verb: str, path: str) -> None:
        if waiting and re.fullmatch(WHERE[where], f"{verb} {path}"):
            with suppress(UsageError):  # a rollback, of which what was before is not kept
                waiting.pop()()
            states.append(every_row(table))

    store, _ = watched(table.uri, before=meanwhile)
    cache.clear()
    execute(store, LocalEngine(1), Clean(1, 0))
    assert len(states) == 2
    is_sound(table, states[-1])
    recover(table)
    clean(table)
    assert strange(table) == []
    is_sound(table, states[-1])


@pytest.mark.parametrize("index", TABLES if LONG else ["metadata_bloom", "record-avro"])
def test_killed_at_any_call_the_table_is_right_and_the_next_one_goes_on(
    index: str, tmp_path: Path
) -> None:
    origin = str(tmp_path / "origin")
    table = made(origin, index, **{**SMALL, "timeline_commits": 2})
    for number in range(4):
        table.upsert(arrow(rows(number * 2, number * 2 + 6, number)))
    table.rollback()
    table.compact(major=True)
    dies(table, rows(6, 18, 2), BEFORE_PUT)
    recover(table)
    expected = scanned(table)

    def cleans(store: Store) -> None:
        cache.clear()
        execute(store, LocalEngine(1), Clean(1, 0))

    store, backend = watched(_copy(origin, tmp_path / "dry"))
    cleans(store)
    limits = [0, *backend.kills()]
    assert len(limits) > 25
    seen: set[tuple[str, ...]] = set()
    for limit in one_in(4, limits, TABLES.index(index)):
        uri = _copy(origin, tmp_path / "killed")
        _kill(uri, cleans, limit)
        if (shape := _shape(uri)) in seen:
            continue
        seen.add(shape)
        assert read_by_hudi(uri) == expected, "Hudi reads something else"
        one = metatable.open(uri, FAST)
        assert every_row(one) == expected
        for _ in range(3):
            recover(one)
        clean(one)
        assert strange(one) == []
        is_sound(one, expected)


# Hudi's timeline


def test_a_late_hand_that_completes_an_archived_commit_does_no_lasting_harm(table: Table) -> None:
    store = Store(table.uri, FAST)
    old = next(one for one in table.history() if one.instant)
    root = load_version(store, old.version, 0)
    action = action_of(old.operation, table.options.has_logs)
    body = Path(table.uri, f".hoodie/{old.instant}.{action}").read_bytes()
    for number in range(2 * KEEP):
        table.upsert(arrow(rows(0, 3, 10 + number)))
    expected = scanned(table)
    clean(table)
    settle(store, root)  # by one who slept
    assert old.instant not in completed(table.uri)
    Path(table.uri, f".hoodie/{old.instant}.{action}").write_bytes(body)  # had read it before
    recover(table)
    assert old.instant not in completed(table.uri)
    is_sound(table, expected)


def test_what_a_late_hand_puts_back_is_not_archived_twice(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By upkeep, to which it is a commit like others: the root tells the sum of all that are left,
    and would tell fewer."""
    store = Store(table.uri, FAST)
    old = next(one for one in table.history() if one.instant)
    action = action_of(old.operation, table.options.has_logs)
    path = Path(table.uri, f".hoodie/{old.instant}.{action}")
    body = path.read_bytes()
    for number in range(2 * KEEP):
        table.upsert(arrow(rows(0, 3, 10 + number)))
        if number == 2:
            clean(table)
    assert newest(table).archived > old.instant
    expected = scanned(table)
    table.set_options({"upkeep_files": 8})
    path.write_bytes(body)
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    assert upkeep.keep_up(store, LocalEngine(1))
    assert CommitSum.decode(newest(table).commits) == CommitSum.of(completed(table.uri))
    recover(table)
    is_sound(table, expected)


def test_an_instant_older_than_the_timeline_is_never_published(table: Table) -> None:
    slow = next_instant(datetime(2020, 1, 1, tzinfo=UTC), sorted(completed(table.uri))[0])
    expected = scanned(table)
    with Transaction.begin(Store(table.uri, FAST)) as sleeper:
        clean(table, 99)
        assert newest(table).archived > slow
        sleeper.owner = sleeper.owner.of(slow)
        with pytest.raises(ConflictError, match="the timeline begins"):
            sleeper.publish(Change("upsert", instant=slow))
    is_sound(table, expected)


def test_no_commit_is_undone_without_which_hudi_would_find_no_rows(table: Table) -> None:
    clean(table, 99)
    for _ in range(KEEP - 1):
        table.rollback()
        assert read_by_hudi(table.uri) == every_row(table)
    with pytest.raises(UsageError, match="no commit would be left on Hudi's timeline"):
        table.rollback()
    clean(table)
    with pytest.raises(UsageError, match="not kept any more"):
        table.rollback()
    is_sound(table, every_row(table))


def test_the_timeline_is_not_archived_past_a_savepoint(table: Table) -> None:
    saved = sorted(completed(table.uri))[2]
    theirs = savepoint_metadata((), 0, "").replace(b"metatable", b"hudi-cli\0")
    put(table, "savepoint", theirs, at=saved)
    clean(table)
    assert min(completed(table.uri)) == newest(table).archived == saved
    assert Path(table.uri, f".hoodie/{saved}.savepoint").read_bytes() == theirs
    is_sound(table, every_row(table))


@pytest.mark.in_turn("index")
@pytest.mark.parametrize("index", ["record", "record-avro"])
def test_a_replacecommit_stays_until_what_it_replaced_is_gone(table_uri: str, index: str) -> None:
    """Without it Hudi's readers would take the replaced files for live, also logs alone."""
    table = made(table_uri, index, **SMALL)
    table.insert(arrow(rows(0, 12, 1)))
    if table.options.has_logs:
        table.upsert(arrow(rows(0, 12, 2)))
    old = {one.file_id: one for one in table.files()}
    last = CommitMetadata.decode(Path(table.uri, staged_path(str(table.instant))).read_bytes(), "")
    groups = {"city=ny": tuple(one for one, at in old.items() if at.partition_path == "city=ny")}
    body = CommitMetadata("INSERT_OVERWRITE", (), last.extra, groups).encode()
    instant = put(table, "replacecommit", body)
    recover(table)
    for number in range(2 * KEEP):
        given: list[Row] = rows(20, 23, 10 + number, city="sf")
        table.upsert(arrow(given))
    by_hudi = read_by_hudi(table.uri)
    clean(table, 99)
    assert newest(table).archived == instant
    assert read_by_hudi(table.uri) == by_hudi
    for one in old.values():
        if one.partition_path == "city=ny":
            Path(table.uri, one.path).unlink()
    if logs := [*Path(table.uri, "city=ny").glob(".*.log.*")]:
        clean(table, 99)
        assert newest(table).archived == instant
        for log in logs:
            log.unlink()
    clean(table, 99)
    assert newest(table).archived > instant
    assert not list(Path(table.uri, ".hoodie").glob(f"{instant}*"))
    assert read_by_hudi(table.uri) == by_hudi


def mixed(first: int, last: int) -> list[Row]:
    """Rows of which many files hold each value of `v`."""
    return [{**row, "v": number % 7} for number, row in enumerate(rows(first, last, 0))]


def telling(table: Table) -> list[tuple[str, bool]]:
    """Of each commit on Hudi's timeline, from which its readers take the columns: Hudi's word for
    it, and whether it tells the column `w`."""
    found = []
    for one in sorted(completed(table.uri)):
        [path] = Path(table.uri, ".hoodie").glob(f"{one}.*commit")
        told = json.loads(path.read_text())
        word = told["operationType"]
        if word not in ("CLUSTER", "COMPACT"):
            found.append((word, '"w"' in told["extraMetadata"]["schema"]))
    return found


@pytest.mark.parametrize("index", ["record", "record-avro"])
@pytest.mark.parametrize("by", ["clean", "upkeep"])
def test_a_commit_that_tells_hudi_the_columns_stays_behind_services(
    table_uri: str, index: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From those of services its readers take none, and what they fall back to is of old."""
    table = made(table_uri, index, **{**SMALL, "timeline_commits": 1, "file_rows": 20})
    table.insert(arrow(rows(0, 12, 1)))
    table.alter(AddColumn("w", pa.int64()))
    for number in range(3):
        table.upsert(arrow(mixed(number, 70)))
        service = table.compact_logs(ratio=0) if table.options.has_logs else table.cluster(by="v")
        assert service.files_after
    expected = scanned(table)
    last = sorted(completed(table.uri))
    if by == "clean":
        clean(table)
    else:
        monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
        table.set_options({"upkeep_files": 8})
        upkeep.keep_up(Store(table.uri, FAST), LocalEngine(1))
    assert newest(table).archived > last[0]
    assert telling(table)[-1] == ("UPSERT", True)
    if by == "clean":
        assert len(telling(table)) == 1
    is_sound(table, expected)


def test_an_overwrite_tells_hudi_the_columns(table_uri: str) -> None:
    """Though a clustering is a replacecommit, too."""
    table = made(table_uri, **{**SMALL, "timeline_commits": 1, "file_rows": 20})
    table.insert(arrow(rows(0, 12, 1)))
    table.alter(AddColumn("w", pa.int64()))
    for number in range(2):
        table.insert_overwrite(arrow(mixed(number, 70)))
        assert table.cluster(by="v").files_after
    expected = scanned(table)
    clean(table)
    clean(table)
    assert telling(table) == [("INSERT_OVERWRITE", True)]
    is_sound(table, expected)


class Looked(frozenset[tuple[str, str]]):
    """Counts how often it is looked through."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        Looked.looks += 1
        return super().__iter__()


@pytest.mark.parametrize(
    ("name", "is_of_group"),
    [
        ("g7_0-0-0_20260101000000000.parquet", True),
        (".g7_20260101000000000.log.1_0-0-0", True),
        ("g70_0-0-0_20260101000000000.parquet", False),
        (".g70_20260101000000000.log.1_0-0-0", False),
        ("g7.parquet", False),
    ],
)
def test_what_was_replaced_is_looked_through_twice_however_many_partitions_there_are(
    tmp_path: Path, name: str, is_of_group: bool
) -> None:
    store = Store(tmp_path, FAST)
    store.put(f"city=7/{name}", b"rows")
    store.put("city=8/g7_0-0-0_20260101000000000.parquet", b"of another group")
    groups, Looked.looks = Looked((f"city={n}", f"g{n}") for n in range(20)), 0
    assert (not _settled(store, {"1": groups}, "2")) == is_of_group
    assert Looked.looks == 2, "for the folders, and for what is left in them"


def test_folders_are_listed_once_for_all_that_was_replaced_there(table_uri: str) -> None:
    """Not once for each replacecommit, of which the timeline holds as many as commits."""
    table = made(table_uri, timeline_commits=3, lease_seconds=0, upkeep_files=0)
    for number in range(9):
        table.insert_overwrite(arrow(rows(0, 2, number)))
    store, backend = watched(table.uri)
    Table(store).clean(versions=1, hours=0)
    folders = Counter(path for verb, path in backend.calls if verb == "list" and "city=" in path)
    assert folders.keys() == {"city=ny", "city=sf"}
    assert max(folders.values()) == 2  # before anything goes, and after
    assert len(completed(table.uri)) == KEEP
    backend.calls.clear()
    assert Table(store).clean(versions=1, hours=0).reason == "nothing to clean"
    assert not [path for verb, path in backend.calls if verb == "list" and "city=" in path]


def test_of_many_savepoints_the_paths_of_one_are_held_at_a_time(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, counts, hashed = made(table_uri, "bloom"), list[int](), kept_files.xxh64
    for number in range(4):
        table.upsert(arrow(rows(0, 12, number)))
        table.savepoint(f"s{number}")
    table.upsert(arrow(rows(0, 12, 9)))
    files = {version: {one.path for one in table.files(version=version)} for version in (2, 4, 6)}

    def counting(paths: pa.Array, seed: int) -> UInt64s:
        counts.append(len(paths))
        return hashed(paths, seed)

    monkeypatch.setattr(kept_files, "xxh64", counting)
    store = Store(table.uri)
    base = newest(table)
    kept = Kept(store, base, base.version)
    assert len(kept.paths) == sum(map(len, files.values())) + 2 * len(table.files())
    assert max(counts) == len(table.files())
    assert all(all(kept.names([*held])) for held in files.values())


class Searched(tuple[str, ...]):
    """Is not looked through for one of its own."""

    __slots__ = ()

    def __contains__(self, one: object) -> bool:
        raise AssertionError(f"looked through for {one}")


def test_withdrawn_instants_are_not_looked_through_for_each_file_and_commit(table: Table) -> None:
    """Those of a large restore are many, and stay until the timeline is archived past them."""
    store, base = Store(table.uri, FAST), newest(table)
    base = replace(base, withdrawn=Searched(base.withdrawn))
    kept, signs = Kept(store, base, base.version), Signs.of(store, 60, 0.0)
    assert left(kept, signs, suspects(store, kept, 0.0)).garbage
    check_timeline(store, base, Timeline(store).load())


def test_nor_past_that_of_a_replacecommit_when_what_it_replaced_is_gone(table: Table) -> None:
    table.delete_partition("city=ny")
    saved, kept = str(table.instant), scanned(table)
    table.savepoint("overwritten")
    for number in range(2 * KEEP):
        table.upsert(arrow(rows(20, 23, number, city="sf")))
        clean(table)
    assert newest(table).archived == saved
    assert Path(table.uri, f".hoodie/{saved}.savepoint").exists()
    table.restore(savepoint="overwritten")
    is_sound(table, kept)
    table.drop_savepoint("overwritten")
    for number in range(2 * KEEP):
        table.upsert(arrow(rows(20, 23, number, city="sf")))
    clean(table)
    assert newest(table).archived > saved
    assert strange(table) == []


def test_a_kill_in_mid_archive_is_finished_by_the_next_writer(table: Table) -> None:
    expected = scanned(table)
    store, backend = watched(table.uri)
    delete = backend.delete

    def dies_over(path: str) -> None:
        if path.endswith("commit") and len(completed(table.uri)) == KEEP + 2:
            backend.limit = 0
        delete(path)

    backend.delete = dies_over  # type: ignore[method-assign]
    with pytest.raises(Refused):
        execute(store, LocalEngine(1), Clean(1, 0))
    assert len(completed(table.uri)) == KEEP + 2
    assert read_by_hudi(table.uri) == expected
    recover(table)
    assert Timeline(Store(table.uri)).completed() == completed(table.uri)
    assert len(completed(table.uri)) == KEEP
    is_sound(table, expected)
    clean(table)
    assert strange(table) == []


@pytest.mark.parametrize("only", ["archives", "deletes too"])
def test_what_is_archived_is_a_few_commits_a_version(
    table: Table, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait for the steps of a version."""
    expected = scanned(table)
    if only == "archives":
        monkeypatch.setattr(clean_module, "_archived", lambda _, version, __: version)
        clean(table)
        monkeypatch.undo()
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 2)
    before = len(completed(table.uri))
    monkeypatch.setattr(clean_module, "ARCHIVING_TRIES", 1)
    told = clean(table, dry_run=True).reason
    version = newest(table).version
    clean(table)
    monkeypatch.undo()
    later = range(version + 1, newest(table).version + 1)
    made = [load_version(Store(table.uri), one, 0) for one in later]
    borders = [one.archived for one in made if one.steps]
    assert len(borders) == (before - KEEP) // 2
    assert borders == sorted(set(borders))
    assert len(completed(table.uri)) == KEEP
    assert f"Hudi's timeline from {borders[-1]}" in told
    assert strange(table) == []
    is_sound(table, expected)


def test_upkeep_archives_a_few_commits_a_version(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    store, expected = Store(table.uri, FAST), scanned(table)
    counts = [len(completed(table.uri))]
    assert upkeep.keep_up(store, LocalEngine(1)) is None, "operators do it"
    table.set_options({"upkeep_files": 8})
    while upkeep.keep_up(store, LocalEngine(1)):
        counts.append(len(completed(table.uri)))
    assert counts == [9, 7, 5, 3]
    is_sound(table, expected)


# Logs


@pytest.mark.parametrize("index", TABLES[2:])
def test_slices_go_with_their_logs_when_their_groups_are_written_anew(
    table_uri: str, index: str
) -> None:
    table = made(table_uri, index, **SMALL)
    for number in range(4):
        table.upsert(arrow(rows(0, 12, number)))
    before = {path for path in files(table) if ".log." in path and ".hoodie/" not in path}
    assert before
    table.insert_overwrite(arrow(rows(0, 8, 9)))
    table.upsert(arrow(rows(0, 4, 10)))
    expected = scanned(table)
    clean(table, 3)
    is_sound(table, expected)
    assert before <= files(table), "a kept version names them"
    done = clean(table, 1)
    assert done.files_deleted >= len(before)
    assert not before & files(table)
    assert strange(table) == []
    is_sound(table, expected)


@pytest.mark.parametrize("hurts", [b"", b"these are no blocks"], ids=["empty", "no log"])
def test_a_log_that_tells_nobody_is_left_alone(table_uri: str, hurts: bytes) -> None:
    """Nothing proves whose it is."""
    table = made(table_uri, "record-avro", **SMALL)
    for number in range(2):
        table.upsert(arrow(rows(0, 12, number)))
    named = next(one for one in Snapshot(Store(table.uri), newest(table)).slices() if one.logs)
    stray = named.next_log("7-7-7")
    Path(table.uri, stray.path).write_bytes(hurts)
    expected = scanned(table)
    clean(table)
    assert "" not in newest(table).withdrawn
    assert Path(table.uri, stray.path).exists()
    Path(table.uri, stray.path).unlink()
    is_sound(table, expected)


def test_who_wrote_a_large_log_is_told_without_its_rows(table_uri: str) -> None:
    """Of logs that were compacted, and whose versions are kept for some hours."""
    table = made(table_uri, "record-avro", **SMALL, file_rows=1000)
    table.insert(arrow(rows(0, 400, 1)))
    for v in (2, 3):
        long = [{**row, "city": "ny", "id": row["id"] + "x" * 999} for row in rows(0, 400, v)]
        table.upsert(arrow(long))
    table.compact_logs(ratio=0)
    logs = sum(path.stat().st_size for path in Path(table_uri).rglob(".*.log.*"))
    assert logs > 400_000
    cache.clear()
    store = Store(table_uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    found = suspects(store, Kept.readable(store, newest, 1), 0.0)
    assert [one for one in found if one.kind is FileKind.DATA] == []
    assert store.counters["store.bytes_read"] < logs / 4


def test_a_marker_of_a_dead_writer_deletes_no_log_of_another_one(table_uri: str) -> None:
    """Its name would not tell whose it is."""
    table = made(table_uri, "record-avro", **SMALL)
    for number in range(2):
        table.upsert(arrow(rows(0, 12, number)))
    expected, live = scanned(table), data_files(table.uri)
    dies(table, rows(6, 18, 2), BEFORE_PUT)
    [lease] = Path(table.uri, LEASES).iterdir()
    for log in (path for path in live if ".log." in path.name):
        target = log.relative_to(table.uri).as_posix()
        marker = Path(table.uri, ".hoodie/.temp", lease.name, f"{target}.marker.APPEND")
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    for _ in range(3):
        recover(table)
    assert data_files(table.uri) == live
    is_sound(table, expected)


@pytest.mark.parametrize("first", [True, False])
def test_a_table_within_the_folder_is_left_alone(table_uri: str, first: bool) -> None:
    """Partitions or not, whichever was there before: its files are no orphans of ours."""
    inner, outer = f"{table_uri}/deep/rides", table_uri
    tables = {}
    for uri in (inner, outer) if first else (outer, inner):
        tables[uri] = made(uri, "record", **SMALL)
        tables[uri].upsert(arrow(rows(0, 20, 1)))
    before = scanned(tables[inner])
    tables[outer].upsert(arrow(rows(0, 20, 2)))
    done = clean(tables[outer], versions=1, hours=0)
    assert done
    assert scanned(metatable.open(inner, FAST)) == before
    assert metatable.open(inner, FAST).verify().findings == ()
    assert metatable.open(outer, FAST).verify().findings == ()
