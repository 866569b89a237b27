"""Repair mends each fault that can be put into a table, and finds none in a sound one.

A table of each index is made once a module, and copied for each fault. Every fault is found by its
kind, a dry run changes nothing, a repair leaves a table without findings that has the rows it had,
but for those of lost data files, and can be written; a second repair has nothing to do.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.compaction.checks.findings import KEPT, Findings
from metatable.compaction.checks.repair import repair
from metatable.data.file_groups.slices import new_file_id
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.timeline import Timeline
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.steps import announce, stage
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import lease_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.written import WrittenSlice
from metatable.storage import cache
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.compaction.hurt_tables import (
    FAST,
    INDEXES,
    TABLES,
    Hurt,
    contents,
    made,
    once,
    rows,
    writable,
)
from tests.compaction.ways_to_hurt import (
    FAULTS,
    Fault,
    all_missing,
    commit,
    data,
    data_with_older_slice,
    files_of,
    flip,
    foreign_rows,
    hfile,
    key_replaced,
    later,
    lose,
    one_missing,
    partition_file,
    properties,
    record,
    record_forgets,
    records_of,
    rewritten,
    root,
    some_of,
    stats_of,
    written_as,
)
from tests.faults import Refused, watched
from tests.faults import once as asleep
from tests.long import LONG, one_in
from tests.model import arrow, listed, read_by_hudi, scanned


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return once(tmp_path_factory, made)


def _of_turn(tables: tuple[str, ...], turn: int) -> str:
    """Of an even turn one with logs, if there is one."""
    some = [one for one in tables if one.endswith(("avro", "parquet")) == (turn % 2 == 0)]
    return (some or tables)[turn // 2 % len(some or tables)]


CASES = [
    pytest.param(fault, index, id=f"{fault[0]}-{index}")
    for turn, fault in enumerate(some_of(FAULTS))
    for index in (fault[3] if LONG else [_of_turn(fault[3], turn)])
]
"""In the short run with one table each: neighbours are alike, and have tables of both types."""


def test_the_guide_tells_of_each_kind() -> None:
    told = Path(__file__).resolve().parents[2].joinpath("docs/repair.md").read_text("utf-8")
    kinds = re.findall(r"^\| `([a-z-]+)` \| .* \| .* \|$", told, re.M)
    assert [one for one in kinds if one in set(metatable.results.Fault)] == [
        str(one) for one in metatable.results.Fault
    ]


def test_there_are_many_faults_and_each_has_a_name_of_its_own() -> None:
    assert len({name for name, *_ in FAULTS}) == len(FAULTS) >= 80
    assert {kind for _, kind, *_ in FAULTS} | NOT_MENDED == set(metatable.results.Fault)


NOT_MENDED = {
    "column-type",
    "partition-path",
    "placement",
    "duplicate-keys",
    "entries",
    "hashing-metadata",
}


@pytest.mark.parametrize(("fault", "index"), CASES)
def test_a_fault_is_found_and_mended(
    fault: Fault, index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    _, kind, hurts, _ = fault
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    before = {row[0]: row for row in scanned(hurt.table)}
    gone = hurts(hurt) or set()
    cache.clear()
    there = contents(hurt.uri)
    dry = hurt.table.repair()
    assert kind in {one.kind for one in dry.findings}, dry.findings
    exact = index in INDEXES or not gone  # of a key that is in several files several rows are gone
    assert dry.rows_lost == len(gone) if exact else dry.rows_lost >= len(gone)
    assert contents(hurt.uri) == there, "a dry run has changed something"

    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    assert kind in {one.kind for one in done.findings}
    assert done.rows_lost == dry.rows_lost
    cache.clear()
    assert [str(one) for one in hurt.table.verify().findings] == []
    assert {one.state for one in Timeline(hurt.store).load()} == {"completed"}
    left = [row for key, row in sorted(before.items()) if key not in gone]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == left
    writable(hurt, {row[0]: row for row in left})


# Sound tables


def cleaned(table: Table) -> None:
    table.compact(major=True)
    table.clean(versions=1, hours=0)


def archived(table: Table) -> None:
    table.clean(versions=2, hours=0)
    table.upsert(arrow(rows(30, 33, 1)))
    table.clean(versions=1, hours=0)


def pinned(table: Table) -> None:
    table.savepoint("kept")
    table.upsert(arrow(rows(0, 9, 5)))
    table.restore(savepoint="kept")
    table.clean(versions=1, hours=0)


def emptied(table: Table) -> None:
    table.delete(arrow(rows(0, 30, 0)))


def planned(table: Table) -> None:
    table.compact(major=True, schedule=True)


def untouched(table: Table) -> None:
    pass


HISTORIES = [untouched, cleaned, archived, pinned, emptied, planned]
SOUND = [
    (history, index)
    for turn, history in enumerate(HISTORIES)
    for index in (TABLES if LONG or history is untouched else [TABLES[(5 * turn) % len(TABLES)]])
]


@pytest.mark.parametrize(("history", "index"), SOUND)
def test_nothing_is_found_in_a_sound_table_and_nothing_done(
    history: Callable[[Table], None], index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    if history is archived:
        table = made(str(tmp_path / "table"), index, timeline_commits=2)
    else:
        table = Hurt(str(shutil.copytree(sound(index), tmp_path / "table"))).table
    history(table)
    cache.clear()
    version = table.version
    assert table.verify().findings == ()
    done = table.repair(dry_run=False)
    assert (done.findings, done.version, table.version) == ((), version, version)
    assert "index equals data" in done.reason


def test_a_group_that_a_replacecommit_took_away_is_not_brought_back(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its files lie there until they are cleaned."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file, instant = hurt.files()[0], later(hurt)
    gone = hurt.rows_of(file)
    left = [row for row in scanned(hurt.table) if row[0] not in gone]
    body = CommitMetadata("DELETE_PARTITION", (), {}, {file.partition_path: (file.file_id,)})
    written = hurt.written(file)
    buried = {}
    for of in (files_of, stats_of, records_of):
        partition = of(hurt)
        entries = partition.entries([replace(written, arrived=written.keys)])
        kind = partition.schema.field("value").type
        none = entries.set_column(2, "value", pa.nulls(entries.num_rows, kind))
        ref = partition.store(hurt.store, 0, partition.space, none, Owner.new("commit"))
        assert ref is not None
        buried[partition.name] = (ref,)
    change = Change(
        "delete",
        instant=instant,
        updates=(AddFiles(buried),),
        steps=(stage(hurt.store, instant, body.encode(), "replacecommit"),),
    )
    announce(hurt.store, publish(hurt.store, hurt.newest, change, Owner.new("commit")))
    assert scanned(hurt.table) == left
    assert hurt.table.repair(dry_run=False).findings == ()
    entry = WrittenSlice(file)
    hurt.enter(files_of(hurt), files_of(hurt).entries([entry]))
    assert {one.kind for one in hurt.table.repair(dry_run=False).findings} == {"entry-count"}
    assert scanned(hurt.table) == left


REPLACECOMMIT = (".replacecommit", ".replacecommit.requested", ".replacecommit.inflight")


@pytest.mark.parametrize(
    "lost",
    [
        (".hoodie/{}.replacecommit",),
        (".hoodie/{}.replacecommit", f"{HOME}/commits/{{}}.json"),
        tuple(f".hoodie/{{}}{suffix}" for suffix in REPLACECOMMIT),
        tuple(f".hoodie/{{}}{suffix}" for suffix in REPLACECOMMIT[1:]),
    ],
    ids=["alone", "with what was staged", "with its traces", "its traces alone"],
)
def test_a_replacecommit_that_is_lost_comes_back_as_one(
    sound: Callable[[str], Path], tmp_path: Path, lost: Sequence[str]
) -> None:
    """As a commit it would bring the rows back that it has taken away, to Hudi's readers."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.table.delete_partition("city=sf")
    instant = hurt.table.instant
    hurt.table.upsert(arrow(rows(0, 4, 7)))
    expected, actions = scanned(hurt.table), Timeline(hurt.store).load()
    for path in lost:
        hurt.path(path.format(instant)).unlink()
    done = hurt.table.repair(dry_run=False)
    assert [f"{instant}.replacecommit" in one.where for one in done.findings] == [True]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert Timeline(hurt.store).load() == actions
    assert hurt.table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.parametrize(
    ("what", "staged"),
    [("upsert", True), ("upsert", False), ("insert_overwrite", True)],
    ids=["upsert", "upsert, and not staged", "overwrite"],
)
@pytest.mark.parametrize("saved", [True, False], ids=["older slices there", "none older"])
def test_rows_of_a_lost_commit_stay_where_its_version_is_not_kept_any_more(
    sound: Callable[[str], Path], tmp_path: Path, what: str, saved: bool, staged: bool
) -> None:
    """A clean keeps ten versions, the timeline a hundred commits."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    if saved:
        hurt.table.savepoint("before")
    write = hurt.table.insert_overwrite if what == "insert_overwrite" else hurt.table.upsert
    write(arrow([one for one in rows(0, 20, 5) if one["city"] == "ny"]))
    instant = str(hurt.table.instant)
    for v in range(3):
        hurt.table.upsert(arrow([one for one in rows(0, 20, v) if one["city"] == "sf"]))
    hurt.table.clean(versions=1, hours=0)
    expected, actions = scanned(hurt.table), Timeline(hurt.store).load()
    [lost] = [one for one in actions if one.time == instant]
    hurt.path(f".hoodie/{instant}.{lost.action}").unlink()
    if not staged:
        hurt.path(f"{HOME}/commits/{instant}.json").unlink()
    cache.clear()
    assert [one.kind for one in hurt.table.verify().findings] == ["commit-missing"]
    done = hurt.table.repair(dry_run=False)
    assert [one.kind for one in done.findings] == ["commit-missing"]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert Timeline(hurt.store).load() == actions
    assert hurt.table.verify().findings == ()


@pytest.mark.parametrize("how", [flip, lose], ids=["flipped", "lost"])
def test_a_lost_commit_is_put_back_where_an_older_root_cannot_be_read(
    how: Callable[[Path], None], sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A writer walks the versions where the timeline lacks a commit."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    expected = scanned(hurt.table)
    root(5, how, hurt)
    commit(lose, hurt)
    cache.clear()
    with pytest.raises(metatable.CorruptError):
        hurt.table.upsert(arrow(rows(3, 5, 4)))
    kinds = {"version", "commit-missing"}
    assert {one.kind for one in hurt.table.repair().findings} == kinds
    done = hurt.table.repair(dry_run=False)
    assert {one.kind for one in done.findings} == kinds
    assert done.unmended == ()
    assert hurt.table.verify().findings == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert hurt.newest.oldest > 5
    writable(hurt, {row[0]: row for row in expected})


@pytest.mark.parametrize("newest", ["savepoint", "drop_savepoint", "clean"])
def test_a_lost_commit_is_found_where_the_newest_version_names_its_instant(
    tmp_path: Path, newest: str
) -> None:
    """By another step than the one that completes it."""
    table = made(str(tmp_path / "table"), "record", timeline_commits=2)
    hurt, instant = Hurt(table.uri), str(table.instant)
    if newest == "clean":
        table.clean(versions=99, hours=24)
        instant = hurt.newest.archived
    else:
        table.savepoint("kept")
    if newest == "drop_savepoint":
        table.drop_savepoint("kept")
    assert instant in {one.instant for one in hurt.newest.steps}
    expected = scanned(table)
    hurt.path(f".hoodie/{instant}.commit").unlink()
    assert [one.kind for one in table.verify().findings] == ["commit-missing"]
    table.repair(dry_run=False)
    assert scanned(table) == read_by_hudi(table.uri) == expected
    assert table.verify().findings == ()


@pytest.mark.parametrize("suffix", [".commit.requested", ".inflight"])
def test_traces_of_the_newest_commit_are_missed_at_once(tmp_path: Path, suffix: str) -> None:
    table = made(str(tmp_path / "table"), "record")
    trace = Path(table.uri, f".hoodie/{table.instant}{suffix}")
    trace.unlink()
    assert [one.kind for one in table.verify().findings] == ["traces-missing"]
    table.repair(dry_run=False)
    assert trace.exists()
    assert table.verify().findings == ()


def test_a_plan_to_merge_what_is_damaged_is_mended_with_it(tmp_path: Path) -> None:
    table = made(str(tmp_path / "table"), "record")
    hurt = Hurt(table.uri)
    assert table.compact(schedule=True, major=True).plan
    hurt.hfiles("column_stats")[0].write_bytes(b"")
    found = table.repair(dry_run=False).findings
    assert {"hfile", "plan"} <= {one.kind for one in found}
    assert table.verify().findings == ()


PUT = [(index, place) for index in TABLES for place in ("another partition", "the same one")]
PUT += [(index, "an older slice") for index in INDEXES]  # of others groups have one base file


@pytest.mark.parametrize(("index", "place"), one_in(2, PUT))
def test_a_file_that_was_put_in_another_s_place_is_lost_not_believed(
    index: str, place: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sound file, whose rows are not those of the group."""
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    before = {row[0]: row for row in scanned(hurt.table)}
    file, older = rewritten(hurt) if index in INDEXES else (hurt.files()[0], Path())
    if place != "an older slice":
        same = place == "the same one"
        others = [one for one in hurt.files() if one.file_id != file.file_id]
        older = next(
            hurt.path(one.path)
            for one in others
            if (one.partition_path == file.partition_path) is same
        )
    gone = hurt.rows_of(file) - hurt.rows_left(file.logs)
    shutil.copy(older, hurt.path(file.path))
    cache.clear()
    [told] = [one for one in hurt.table.verify().findings if one.where == file.path]
    assert told.kind in ("file-size", "file-damaged")
    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    exact = index in INDEXES
    assert done.rows_lost == len(gone) if exact else done.rows_lost >= len(gone)
    left = [row for key, row in sorted(before.items()) if key not in gone]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == left
    assert hurt.table.verify().findings == ()


# What cannot be mended, and what is said


def test_what_cannot_be_mended_is_told_and_all_else_is_mended(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    copy = replace(file.base, file_id=new_file_id())
    written_as(hurt.uri, file.path, copy.path)  # its keys live twice
    all_missing(records_of, hurt)  # and neither of the two is indexed
    one_missing(stats_of, hurt)
    done = hurt.table.repair(dry_run=False)
    assert "duplicate-keys" in {one.kind for one in done.unmended}
    left = {one.kind for one in hurt.table.verify().findings}
    assert "duplicate-keys" in left
    assert "column-stats" not in left


def test_what_is_no_file_in_the_place_of_hudis_partition_file_is_left_and_told(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    path = hurt.path("city=ny/.hoodie_partition_metadata")
    path.unlink()
    path.mkdir()
    done = hurt.table.repair(dry_run=False)
    [left] = done.unmended
    assert (left.kind, left.where) == ("partition-metadata", "city=ny/.hoodie_partition_metadata")
    assert left.detail.endswith("something that is no file lies in its place: delete that")
    assert done.reason.endswith("0 mended, 1 not")
    path.rmdir()
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert hurt.table.verify().findings == ()


@pytest.mark.parametrize("sign", ["lease", "fresh"])
def test_a_commit_that_may_be_under_way_is_left_alone(
    sign: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    instant = later(hurt)
    hurt.aged(f"{instant}.commit.requested", f"{instant}.inflight")
    if sign == "lease":
        hurt.store.put(lease_path(instant), b'{"nonce": "somebody"}')
    else:
        os.utime(hurt.path(f".hoodie/{instant}.inflight"))
    assert hurt.table.verify().findings == ()
    assert hurt.table.repair(dry_run=False).findings == ()
    assert hurt.path(f".hoodie/{instant}.inflight").exists()


@pytest.mark.parametrize(
    "name",
    [
        "99999999999999999.commit",
        "20261399999999999.commit",
        "20271399999999999.deltacommit",
        "99991231235959999.commit",
        "99991231235959998.commit",
    ],
)
def test_commits_at_no_time_are_undone_and_others_follow(
    name: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Instants are later than all that were used: none is later than these."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.aged(name, body=b"junk")
    hurt.table.repair(dry_run=False)
    assert hurt.table.verify().findings == ()
    for v in (91, 92):
        hurt.table.upsert(arrow([{"id": "new", "city": "ny", "v": v, "ts": 9}]))
    told = hurt.table.read_keys(arrow([{"id": "new", "city": "ny", "v": 0, "ts": 0}]))
    assert told["v"].to_pylist() == [92]
    hurt.table.rollback()
    assert hurt.table.verify().findings == ()


def test_a_commit_of_another_engine_that_replaces_groups_is_left_and_named(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.aged(f"{later(hurt)}.replacecommit", body=b'{"partitionToReplaceFileIds": {}}')
    [told] = hurt.table.repair().unmended
    assert told.kind == "foreign-commit"
    there = contents(hurt.uri)
    with pytest.raises(metatable.UpgradeError, match="another writer has committed"):
        hurt.table.repair(dry_run=False)
    assert contents(hurt.uri) == there


KEEPING = {
    "cow": "delete the folder .hoodie/metatable and adopt the table again, or create one from its",
    "cow rings": "create one from its rows",
    "mor": "create one from its rows",
    "mor rings": "create one from its rows",
}
"""What a table's error says of the rows of another engine: no other is adopted as what it is."""


@pytest.mark.parametrize("kind", KEEPING)
def test_the_ways_out_that_an_error_names_are_there(kind: str, tmp_path: Path) -> None:
    table_type, *rings = kind.split()
    options = {"bucket_engine": "consistent_hashing"} if rings else {}
    made(str(tmp_path / "table"), "bucket", table_type=table_type, **options)
    hurt = Hurt(str(tmp_path / "table"))
    expected, replaced = scanned(hurt.table), f"{later(hurt)}.replacecommit"
    hurt.aged(replaced, body=b"{}")
    keeping = KEEPING[kind].capitalize()
    with pytest.raises(metatable.UpgradeError, match=f"does not hold its rows. {keeping}"):
        hurt.table.upsert(arrow(rows(3, 5, 9)))
    hurt.path(f".hoodie/{replaced}").unlink()
    foreign_rows(hurt)
    undoing = "`repair` undoes the commit, if the files from before it are there"
    with pytest.raises(
        metatable.UpgradeError, match=f"{undoing}. To keep its rows, {KEEPING[kind]}"
    ):
        hurt.table.upsert(arrow(rows(3, 5, 9)))
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert scanned(hurt.table) == expected
    hurt.table.upsert(arrow(rows(3, 5, 9)))
    assert hurt.table.verify().findings == ()


def test_a_commit_of_another_engine_whose_older_files_are_gone_is_not_undone(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its rows are all that is left of the groups."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    foreign_rows(hurt)
    hurt.path(file.path).unlink()
    assert "foreign-commit" in {one.kind for one in hurt.table.repair().unmended}
    with pytest.raises(metatable.UpgradeError, match="another writer has committed"):
        hurt.table.repair(dry_run=False)


def test_a_damaged_newest_root_is_refused_and_without_it_the_table_is_mended(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("metadata_bloom"), tmp_path / "table")))
    expected, path = scanned(hurt.table), hurt.path(hurt.newest.path)
    flip(path)
    for dry_run in (True, False):
        with pytest.raises(metatable.CorruptError, match=path.name):
            hurt.table.repair(dry_run=dry_run)
    path.unlink()
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected


def pins(table: Table) -> list[tuple[str, int]]:
    return [(one.name, one.version) for one in table.savepoints()]


@pytest.mark.parametrize("index", ["record", "metadata_bloom-parquet"])
def test_what_a_repair_has_made_can_have_a_savepoint(
    index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Though the version that the last commit has made is not kept any more."""
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    table, expected = hurt.table, scanned(hurt.table)
    hfile("column_stats", lose, hurt)
    table.repair(dry_run=False)
    repaired = table.version
    assert hurt.newest.oldest == repaired
    table.savepoint("kept", dry_run=True)
    table.savepoint("kept")
    assert "already" in table.savepoint("kept").reason, "whose answer was lost"
    table.savepoint("again")
    assert pins(table) == [("again", repaired), ("kept", repaired)]
    for number in range(2):
        table.upsert(arrow(rows(3, 5, 50 + number)))
        table.clean(versions=1, hours=0)
    assert hurt.newest.oldest > repaired
    assert scanned(table, repaired) == expected
    assert table.verify().findings == ()
    table.restore(savepoint="kept")
    assert scanned(table) == read_by_hudi(hurt.uri) == expected
    table.savepoint("here")
    assert ("here", repaired) in pins(table)
    for name in ("kept", "again", "here"):
        table.drop_savepoint(name)
    table.clean(versions=1, hours=0)
    assert table.verify().findings == ()
    writable(hurt, {row[0]: row for row in expected})


@pytest.mark.parametrize("later", [False, True])
def test_nor_has_a_savepoint_what_a_restore_to_it_would_undo(tmp_path: Path, later: bool) -> None:
    """Of a later instant than the last commit, if it holds it."""
    table = made(str(tmp_path / "table"), "record-avro")
    hurt, expected = Hurt(table.uri), scanned(table)
    if not later:
        plan = table.compact_logs(ratio=0, schedule=True).plan
        table.upsert(arrow(rows(3, 5, 60)))
        expected = scanned(table)
        table.compact_logs(plan=plan)
    else:
        table.compact_logs(ratio=0)
    hfile("column_stats", lose, hurt)
    table.repair(dry_run=False)
    if later:
        with pytest.raises(metatable.UsageError, match="keep a later version"):
            table.savepoint("kept")
        table.upsert(arrow(rows(3, 5, 61)))
        expected = scanned(table)
    table.savepoint("kept")
    for number in range(2):
        table.upsert(arrow(rows(3, 5, 70 + number)))
        table.compact_logs(ratio=0)
        table.clean(versions=1, hours=0)
    table.restore(savepoint="kept")
    assert scanned(table) == read_by_hudi(table.uri) == expected
    assert table.verify().findings == ()


def test_a_savepoint_of_which_an_index_file_is_damaged_is_named(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.table.savepoint("kept")
    hfile("files", flip, hurt)
    done = hurt.table.repair(dry_run=False)
    assert ["drop savepoint kept" in one.detail for one in done.unmended] == [True]
    hurt.table.drop_savepoint("kept")
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert hurt.table.verify().findings == ()


def test_older_rows_of_a_lost_file_are_in_the_version_before(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A repair is a commit: it can be looked behind, and undone, as soon as the file is back."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file, _ = rewritten(hurt)
    path, gone, before = hurt.path(file.path), hurt.rows_of(file), scanned(hurt.table)
    away, then = path.rename(tmp_path / "away"), scanned(hurt.table, 2)
    done = hurt.table.repair(dry_run=False)
    [lost] = [one for one in done.findings if one.kind == "file-size"]
    assert lost.rows_lost == len(gone)
    assert f"{len(gone)} rows are gone" in lost.remedy
    assert scanned(hurt.table, 2) == then
    assert hurt.table.history(1)[0].operation == "repair"
    with pytest.raises(metatable.CorruptError, match="lacks a data file: nothing was undone"):
        hurt.table.rollback(hurt.table.instant)
    away.rename(path)
    hurt.table.rollback(hurt.table.instant)
    assert scanned(hurt.table) == before
    assert hurt.table.verify().findings == ()


def test_findings_are_all_counted_and_the_first_of_each_kind_kept() -> None:
    findings = Findings()
    for number in range(KEPT + 5):
        findings.add(metatable.results.Fault.FILES, str(number), "wrong", "", rows=-1)
        findings.add(metatable.results.Fault.HFILE, str(number), "lost", "made anew", rows=2)
    both = findings.plus(findings)
    assert [one.where for one in both.told] == [*map(str, range(KEPT))] * 2
    assert both.counts == {"hfile": 2 * KEPT + 10, "files": 2 * KEPT + 10}
    assert (len(both), both.left, both.rows_lost) == (4 * KEPT + 20, 2 * KEPT + 10, 4 * KEPT + 20)


# Others, and kills


def test_a_writer_who_is_first_makes_repair_look_again(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    record_forgets(hurt, 1)
    forgotten = hurt.written(file).keys[0].as_py()
    other = Store(hurt.uri, FAST)
    between(lambda: write(other, LocalEngine(1), arrow(rows(40, 44, 1)), "insert"))
    expected = sorted([*scanned(hurt.table), *listed(rows(40, 44, 1))])
    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    assert forgotten in {row[0] for row in expected}
    assert scanned(hurt.table) == expected
    assert hurt.table.verify().findings == ()


def test_a_writer_who_began_before_a_repair_begins_again(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    """He found a key where it was not, and has put it there without an entry of his own, which the
    repair has taken away."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = next(one for one in hurt.files() if one.partition_path == "city=ny")
    record(hurt, file, arrived=pa.array(["k40"]))
    given = rows(40, 41, 1)
    between(lambda: repair(Store(hurt.uri, FAST), LocalEngine(1), dry_run=False))
    done = write(Store(hurt.uri, FAST), LocalEngine(1), arrow(given), "upsert")
    assert (done.attempts, done.inserted) == (2, 1)
    assert hurt.table.verify().findings == ()
    assert hurt.table.upsert(arrow(given)).updated == 1


def test_an_index_that_is_made_beside_a_repair_has_all_keys(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    """It was made of a list of files that lacked one."""
    hurt = Hurt(str(shutil.copytree(sound("metadata_bloom"), tmp_path / "table")))
    one_missing(files_of, hurt)
    between(lambda: repair(Store(hurt.uri, FAST), LocalEngine(1), dry_run=False))
    table = metatable.adopt(hurt.uri, index="record", storage_options=FAST)
    assert table.verify().findings == ()


def test_of_two_repairs_at_a_time_the_second_has_nothing_to_do(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("metadata_bloom"), tmp_path / "table")))
    data(lose, hurt)
    version = hurt.table.version
    first: list[Any] = []
    between(lambda: first.append(repair(Store(hurt.uri, FAST), LocalEngine(1), dry_run=False)))
    second = hurt.table.repair(dry_run=False)
    assert first[0].rows_lost > 0
    assert (second.findings, hurt.table.version) == ((), version + 1)


def test_what_a_repair_puts_in_the_place_of_a_cleaned_version_is_void(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """The commit that it publishes again is complete: another one has published it."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    expected = {row[0]: row for row in scanned(hurt.table)}
    hurt.path(hurt.newest.path).unlink()
    cache.clear()

    def go_on() -> None:
        hurt.table.repair(dry_run=False)
        hurt.table.upsert(arrow(rows(3, 5, 4)))
        hurt.table.clean(versions=1, hours=0)

    sleep, slept = asleep("/manifest/0", go_on)
    store, _ = watched(hurt.uri, before=sleep)
    repair(store, LocalEngine(1), dry_run=False)
    assert slept
    assert {row[0] for row in scanned(hurt.table)} == expected.keys()
    assert hurt.table.verify().findings == ()
    writable(hurt, {row[0]: row for row in scanned(hurt.table)})


def test_a_repair_killed_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    origin = made(str(tmp_path / "origin"), "record", lease_seconds=0)
    hurt = Hurt(origin.uri)
    before = {row[0]: row for row in scanned(hurt.table)}
    commit(lose, hurt)
    partition_file(hurt)
    properties(key_replaced, hurt)
    hfile("record_index", lose, hurt)
    gone = data_with_older_slice(hurt) or set()
    left = [row for key, row in sorted(before.items()) if key not in gone]
    dry = shutil.copytree(origin.uri, tmp_path / "dry")
    store, backend = watched(str(dry))
    repair(store, LocalEngine(1), dry_run=False)
    changing = backend.kills()
    assert len(changing) > 15
    for limit in one_in(8, changing):
        cache.clear()
        uri = str(shutil.copytree(origin.uri, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit)
        with suppress(Refused, metatable.MetatableError):
            repair(store, LocalEngine(1), dry_run=False)
        table = Table(Store(uri, FAST))
        with suppress(metatable.CorruptError):
            assert scanned(table) == left, "a reader sees half a repair"
        table.repair(dry_run=False)
        assert scanned(table) == read_by_hudi(uri) == left
        assert table.repair(dry_run=False).findings == ()
        shutil.rmtree(uri)
