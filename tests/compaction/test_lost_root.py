"""Newest roots that are lost, with what stood in them alone: without such a root a table is at the
version before, and `repair` finds a commit of ours on the timeline that no version knows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import (
    AddColumn,
    CorruptError,
    RenameColumn,
    StaleError,
    Table,
    UsageError,
    WidenColumn,
)
from metatable.compaction.checks import barriers
from metatable.compaction.checks.repair import repair
from metatable.data.columns.schema_changes import ColumnChange
from metatable.data.hoodie.commit_metadata import COLUMNS
from metatable.engine.local import LocalEngine
from metatable.metadata.commits import commit, transaction
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.store import Store
from tests.compaction.hurt_tables import FAST
from tests.compaction.test_hudi_rings import equal, filled, upsert
from tests.compaction.test_resize import rows
from tests.compaction.test_waiting_resize import check as check_waiting
from tests.faults import Refused, watched
from tests.long import one_in
from tests.model import arrow, check

SIZES = {"split_above": 1, "merge_below": 0}
SCHEDULED: dict[str, Callable[[Table], Any]] = {
    "dual_write": lambda one: one.resize_buckets(**SIZES, writers="dual_write", schedule=True),
    "virtual_log": lambda one: one.resize_buckets(**SIZES, writers="virtual_log", schedule=True),
    "compact_logs": lambda one: one.compact_logs(count=1, schedule=True),
}


def carry_out(table: Table, what: str, plan: str) -> None:
    (table.compact_logs if what == "compact_logs" else table.resize_buckets)(plan=plan)


def newest(table: Table) -> Manifest:
    return newest_of(Store(table.uri, FAST))


def lose_root(table: Table) -> Table:
    Path(table.uri, newest(table).path).unlink()
    cache.clear()
    return metatable.open(table.uri, FAST)


def mended(table: Table, becomes: str) -> None:
    """What is lost is told by `verify`, and `repair` does what that says."""
    [told] = table.verify().findings
    assert (told.kind, told.remedy.partition(",")[0]) == ("foreign-commit", becomes)
    with pytest.raises(CorruptError, match="a version is lost"):
        table.delete(arrow(rows(0, 1)))
    assert table.repair(dry_run=False).unmended == ()
    assert table.verify().findings == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_resize_is_undone(table_uri: str, table_type: str) -> None:
    hudi = {"hudi_hashing_metadata": table_type == "mor"}
    table, model = filled(table_uri, table_type=table_type, options=hudi)
    table.resize_buckets(**SIZES)
    table = lose_root(table)
    mended(table, "undone")
    check(table, model, rows(0, 100))
    upsert(table, model, 40, 90, 1)
    table.resize_buckets(**SIZES)
    upsert(table, model, 0, 60, 2)
    check(table, model, rows(0, 100))
    assert table.verify().findings == ()
    if table_type == "mor":
        equal(table)


@pytest.mark.parametrize("what", ["a parent", "a later root"])
def test_a_resize_that_cannot_be_undone_is_left(table_uri: str, what: str) -> None:
    table, model = filled(table_uri)
    parents = [*Path(table_uri).rglob("*.parquet")]
    table.resize_buckets(**SIZES)
    if what == "a parent":
        parents[0].unlink()
    else:
        upsert(table, model, 40, 90, 1)
        table = lose_root(table)
    table = lose_root(table)
    assert [one.kind for one in table.repair().unmended] == ["foreign-commit"]
    with pytest.raises(CorruptError, match="a version is lost"):
        table.repair(dry_run=False)


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["all kept", "cleaned"])
@pytest.mark.parametrize("what", SCHEDULED)
def test_what_waited_waits_again_and_is_carried_out(
    table_uri: str, what: str, is_cleaned: bool
) -> None:
    table, model = filled(table_uri)
    upsert(table, model, 0, 60, 1)
    plan = SCHEDULED[what](table).plan
    upsert(table, model, 40, 90, 2)
    if is_cleaned:
        table.clean(versions=1, hours=0)
    carry_out(table, what, plan)
    table = lose_root(table)
    by_hudi = what == "dual_write"  # `hudi` passes over logs that lie on what is to come
    mended(table, "taken off the timeline: its plan waits")
    equal(table)
    check_waiting(table, model, by_hudi)
    upsert(table, model, 20, 50, 3)
    check_waiting(table, model, by_hudi)
    carry_out(table, what, plan)
    equal(table)
    upsert(table, model, 80, 99, 4)
    check(table, model, rows(0, 100))


def forget_columns(table: Table) -> None:
    """As an earlier release has written the newest commit."""
    for path in Path(table.uri, ".hoodie").rglob(f"{table.instant}.*"):
        if path.stat().st_size:  # else it tells that the commit was asked for, or begun
            body = json.loads(path.read_bytes())
            del body["extraMetadata"][COLUMNS]
            path.write_text(json.dumps(body))


def of_two_columns(uri: str, **options: Any) -> tuple[Table, pa.Table]:
    held = pa.struct([("a", pa.int32())])
    given = pa.table(
        [["k1", "k2"], [1, 2], pa.array([{"a": 1}, None], held)],
        schema=pa.schema([("id", pa.string()), ("n", pa.int32()), ("held", held)]),
    )
    told = {"index": "record", "options": options, "storage_options": FAST}
    table = metatable.create(uri, given.schema, key="id", **told)  # type: ignore[arg-type]
    table.insert(given)
    return table, given


@pytest.mark.parametrize("told", [True, False])
def test_columns_that_came_with_rows_come_back_with_them(table_uri: str, told: bool) -> None:
    table, given = of_two_columns(table_uri)
    held = pa.struct([("b", pa.decimal128(9, 2)), ("a", pa.int32())])
    news = pa.table(
        [["k2", "k3"], pa.array([None, {"a": 3, "b": 1}], held), [[b"x"], []]],
        schema=pa.schema([("id", pa.string()), ("held", held), ("more", pa.list_(pa.binary()))]),
    )
    table.upsert(news.append_column("n", pa.array([7, 8], pa.int32())), evolve=True)
    expected, columns = table.scan().to_arrow(), newest(table).schema
    if not told:
        forget_columns(table)
    table = lose_root(table)
    mended(table, "published again")
    assert newest(table).schema == columns
    assert table.scan().to_arrow() == expected
    table.upsert(given.append_column("other", pa.array(["x", "y"])), evolve=True)
    assert table.scan(["more"]).to_arrow().column(0).to_pylist() == [None, None, []]
    assert table.verify().findings == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    "change",
    [AddColumn("m", pa.int64()), RenameColumn("n", "m"), WidenColumn("n", pa.int64())],
    ids=["added", "renamed", "widened"],
)
def test_a_change_of_columns_that_its_commit_does_not_tell_can_be_made_again(
    table_uri: str, change: ColumnChange, table_type: str
) -> None:
    table, given = of_two_columns(table_uri, table_type=table_type)
    table.upsert(given.set_column(1, "n", pa.array([3, 4], pa.int32())))
    before = table.scan().to_arrow()
    table.alter(change)
    expected = table.scan().to_arrow()
    forget_columns(table)
    table = lose_root(table)
    assert table.repair(dry_run=False).unmended == ()
    assert table.verify().findings == ()
    assert table.scan().to_arrow() == before
    table.alter(change)
    assert table.scan().to_arrow() == expected
    assert table.verify().findings == ()


@pytest.mark.parametrize("how", ["undone", "waits"])
def test_a_repair_killed_anywhere_is_gone_on_with(tmp_path: Path, how: str) -> None:
    origin, model = filled(str(tmp_path / "origin"))
    if how == "waits":
        plan = SCHEDULED["dual_write"](origin).plan
        upsert(origin, model, 40, 90, 2)
        carry_out(origin, "dual_write", plan)
    else:
        origin.resize_buckets(**SIZES)
    lose_root(origin)
    store, backend = watched(str(shutil.copytree(origin.uri, tmp_path / "dry")))
    repair(store, LocalEngine(1), dry_run=False)
    assert len(backend.kills()) > (3 if how == "waits" else 10)
    for limit in one_in(3, backend.kills()):
        cache.clear()
        uri = str(shutil.copytree(origin.uri, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit)
        with suppress(Refused, metatable.MetatableError):
            repair(store, LocalEngine(1), dry_run=False)
        table = metatable.open(uri, FAST)
        assert table.repair(dry_run=False).unmended == ()
        equal(table)
        check_waiting(table, model)
        shutil.rmtree(uri)


def numbers(v: int, *ids: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.string()), "v": pa.array([v] * len(ids), pa.int64())})


def told(table: Table, **when: Any) -> dict[str, int]:
    """The rows of a table; every key is there once."""
    rows = table.scan(**when).to_arrow().to_pylist()
    held = {row["id"]: row["v"] for row in rows}
    assert len(held) == len(rows)
    return held


def of_numbers(uri: str, lost: int, **more: Any) -> tuple[Table, list[dict[str, int]], list[str]]:
    """A table of which so many of the newest roots are lost, its rows by commit, and instants."""
    given = {"index": "record", "options": {"file_rows": 1}, **more}
    schema = numbers(0).schema
    table = metatable.create(uri, schema, key="id", storage_options=FAST, **given)
    states, instants = list[dict[str, int]](), list[str]()
    for some in (numbers(1, "a", "b"), numbers(2, "b", "c"), numbers(3, "c", "d")):
        instants.append(table.upsert(some).instant)
        states.append(told(table))
    for _ in range(lost):
        table = lose_root(table)
    return table, states, instants


def with_others_behind_each_put(
    monkeypatch: pytest.MonkeyPatch, table: Table, work: Callable[[Table], Any]
) -> None:
    """Others try to write behind each version that a repair puts."""
    publish, rooms = commit.publish, (barriers, transaction)

    def publish_and_wait(*given: Any, **more: Any) -> Manifest:
        made = publish(*given, **more)
        with monkeypatch.context() as alone:
            for room in rooms:
                alone.setattr(room, "publish", publish)
            work(metatable.open(table.uri, FAST))
        return made

    for room in rooms:
        monkeypatch.setattr(room, "publish", publish_and_wait)


@pytest.mark.parametrize("lost", [1, 2], ids=["one lost", "two lost"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_nobody_writes_before_the_rows_of_a_lost_commit_are_back(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, table_type: str, lost: int
) -> None:
    table, states, _ = of_numbers(table_uri, lost, table_type=table_type)
    expected, written = dict(states[-1]), []

    def write(other: Table) -> None:
        for work in (lambda: other.upsert(numbers(9, "a")), lambda: other.insert(numbers(9, "d"))):
            with suppress(metatable.MetatableError):
                written.append(work())
                expected["a"] = 9

    with monkeypatch.context() as beside:
        with_others_behind_each_put(beside, table, write)
        table.repair(dry_run=False)
    assert len(written) == 1  # the key `d` is there
    assert told(table) == expected
    assert table.verify().findings == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("lost", [1, 2], ids=["one lost", "two lost"])
def test_the_version_of_a_commit_that_is_published_again_has_its_rows(
    table_uri: str, lost: int, table_type: str
) -> None:
    table, states, instants = of_numbers(table_uri, lost, table_type=table_type)
    assert table.repair(dry_run=False).unmended == ()
    for state, instant in zip(states, instants, strict=True):
        assert told(table, as_of=instant) == state
    table.savepoint("good")
    table.upsert(numbers(4, "a", "d"))
    table.clean(versions=2, hours=0)
    table.rollback()
    assert told(table) == states[-1]
    table.upsert(numbers(5, "b", "e"))
    table.restore(savepoint="good")
    assert told(table) == states[-1]
    assert table.verify().findings == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_commits_that_are_published_again_can_be_undone(table_uri: str, table_type: str) -> None:
    table, states, _ = of_numbers(table_uri, 2, table_type=table_type)
    table.repair(dry_run=False)
    for state in states[1::-1]:
        table.rollback()
        assert told(table) == state
        assert table.verify().findings == ()


@pytest.mark.parametrize("lost", [1, 2], ids=["of the last", "of the one before"])
def test_a_file_that_is_lost_with_the_root_of_a_commit_gives_no_older_rows_back(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    table, states, instants = of_numbers(table_uri, lost, options={})
    [file] = Path(table_uri).rglob(f"*{instants[-lost]}.parquet")
    file.unlink()
    expected = {} if lost == 1 else dict(states[-1])  # the later file has all rows

    def write(other: Table) -> None:
        with suppress(metatable.MetatableError):
            other.upsert(numbers(9, "a"))
            expected["a"] = 9
            assert told(other) == expected

    with monkeypatch.context() as beside:
        with_others_behind_each_put(beside, table, write)
        assert table.repair(dry_run=False).unmended == ()
    assert told(table) == expected
    assert table.verify().findings == ()


def test_a_repair_that_is_killed_between_lost_commits_lets_nobody_write(tmp_path: Path) -> None:
    origin, states, instants = of_numbers(str(tmp_path / "origin"), 2)
    store, backend = watched(str(shutil.copytree(origin.uri, tmp_path / "dry")))
    repair(store, LocalEngine(1), dry_run=False)
    assert len(backend.kills()) > 12
    for limit in one_in(3, backend.kills()):
        cache.clear()
        uri = str(shutil.copytree(origin.uri, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit)
        with suppress(Refused):
            repair(store, LocalEngine(1), dry_run=False)
        table = metatable.open(uri, FAST)
        before = told(table)
        try:
            table.delete(numbers(0, "nobody"))
        except CorruptError:
            assert before in states
        else:
            assert before == states[-1]
        assert table.repair(dry_run=False).unmended == ()
        assert [told(table, as_of=one) for one in instants] == states
        assert table.verify().findings == ()
        shutil.rmtree(uri)


@pytest.mark.parametrize("what", ["page", "HFile"])
@pytest.mark.usefixtures("pages_as_files")
def test_a_lost_commit_comes_back_where_an_index_file_is_lost_as_well(
    table_uri: str, what: str
) -> None:
    table, states, instants = of_numbers(table_uri, 1)
    held = Snapshot(Store(table_uri), newest(table))
    lost, *_ = held.manifest.pages["files"] if what == "page" else held.refs("files")
    Path(table_uri, lost.path).unlink()
    cache.clear()
    assert table.repair(dry_run=False).unmended == ()
    assert told(table) == told(table, as_of=instants[-1]) == states[-1]
    assert table.verify().findings == ()


@pytest.mark.parametrize("lost", [1, 2], ids=["alone", "with its commit"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_lost_savepoint_is_told_and_what_it_keeps_stays(
    table_uri: str, table_type: str, lost: int
) -> None:
    table, states, instants = of_numbers(table_uri, 0, table_type=table_type)
    version = table.version
    table.savepoint("good")
    for _ in range(lost):
        table = lose_root(table)
    assert "savepoint" in {one.kind for one in table.verify().findings}
    [left] = table.repair(dry_run=False).unmended
    assert (left.kind, left.where) == ("savepoint", f".hoodie/{instants[-1]}.savepoint")
    assert f"keep version {version} again" in left.detail
    for v in (4, 5):
        table.upsert(numbers(v, "a", "d"))
        assert "has lost its root" in table.clean(versions=1, hours=0).reason
    with pytest.raises(UsageError, match="a savepoint whose root is lost keeps a commit"):
        table.restore(version=version - 1)
    table.savepoint("good", version)
    assert table.verify().findings == ()
    table.upsert(numbers(6, "b"))
    table.clean(versions=1, hours=0)
    assert newest(table).oldest > version
    table.restore(savepoint="good")
    assert told(table) == states[-1]
    table.drop_savepoint("good")
    assert savepoints(table) == []
    assert table.verify().findings == ()


def test_a_lost_savepoint_of_which_nothing_lies_ready_is_dropped(table_uri: str) -> None:
    """As `verify` says; its version is not kept any more here."""
    table, states, instants = of_numbers(table_uri, 0)
    kept = newest(table)
    table.savepoint("good")
    table = lose_root(table)
    table.upsert(numbers(3, "c"))
    Path(table_uri, kept.path).unlink()
    [left] = table.repair(dry_run=False).unmended
    ready = staged_path(instants[-1], "savepoint")
    assert f"keep its version again by `savepoint`, or delete {ready}" in left.detail
    with pytest.raises(StaleError, match="not kept any more"):
        table.savepoint("good", kept.version)
    Path(table_uri, ready).unlink()
    table.upsert(numbers(3, "c"))
    assert savepoints(table) == []
    assert table.verify().findings == ()
    table.clean(versions=1, hours=0)
    assert told(table) == states[-1]


def savepoints(table: Table) -> list[Path]:
    """What there is of savepoints on the timeline."""
    return [*Path(table.uri, ".hoodie").glob("*.savepoint*")]
