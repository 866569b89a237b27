"""Rollbacks, and those who read and write beside them."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import (
    CorruptError,
    StaleError,
    Table,
    UsageError,
)
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import execute
from metatable.compaction.ways_back.rollback import Rollback
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import LEASES, StoredLease, lease_path
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.pages import read_page
from metatable.metadata.manifests.sealed import checksum, seal
from metatable.storage import cache
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.face.protocol.making import (
    BEFORE_PUT,
    FAST,
    dies,
    newest,
    rows,
)
from tests.faults import watched
from tests.model import (
    Model,
    arrow,
    check,
    data_files,
    read_by_hudi,
    scanned,
)

pytestmark = pytest.mark.in_turn("table")


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"no json"])
@pytest.mark.parametrize("twin", [True, False])
def test_a_rollback_without_its_staged_commit_undoes_all_the_same(
    table: Table, damage: bytes | None, twin: bool
) -> None:
    before, files = scanned(table), data_files(table.uri)
    instant = table.upsert(arrow(rows(8, 16, 2))).instant
    assert instant is not None
    for path in (staged_path(instant), *(() if twin else (f".hoodie/{instant}.commit",))):
        if damage is None:
            Path(table.uri, path).unlink()
        else:
            Path(table.uri, path).write_bytes(damage)
    assert table.rollback().version == 4
    assert data_files(table.uri) == files
    assert not list(Path(table.uri, ".hoodie").glob(f"{instant}*"))
    table.upsert(arrow(rows(8, 16, 3)))
    table.rollback()
    assert scanned(table) == read_by_hudi(table.uri) == before


@pytest.mark.parametrize("lost", ["hfile", "page", "root"])
@pytest.mark.usefixtures("pages_as_files")
def test_a_rollback_to_a_version_that_cannot_be_read_is_refused_before_its_put(
    one: Table, lost: str
) -> None:
    one.upsert(arrow(rows(3, 5, 2)))
    one.compact(major=True)
    old = newest(one)
    one.upsert(arrow(rows(8, 16, 2)))
    one.compact(major=True)
    held, version = scanned(one), one.version
    page = old.pages["record_index"][0]
    path = {
        "hfile": read_page(Store(one.uri, FAST), page)[0].path,
        "page": page.path,
        "root": old.path,
    }[lost]
    Path(one.uri, path).unlink()
    cache.clear()
    with pytest.raises((CorruptError, StaleError)) as told:
        one.rollback()
    assert told.value.facts["path"] == path
    assert one.version == version
    assert scanned(one) == held
    assert one.upsert(arrow(rows(0, 2, 7))).updated == 2


def test_a_rollback_that_is_repeated_by_its_instant_undoes_nothing_else(table: Table) -> None:
    first = table.upsert(arrow(rows(8, 14, 2)))
    expected = scanned(table)
    second = table.upsert(arrow(rows(8, 16, 3)))
    assert second.instant is not None
    assert first.instant is not None
    undone = table.rollback(second.instant)
    again = table.rollback(second.instant)
    assert again.version == undone.version == table.version
    assert again.reason == f"commit {second.instant} is undone already"
    assert scanned(table) == expected
    table.upsert(arrow(rows(8, 9, 4)))
    with pytest.raises(UsageError, match="only the last commit can be rolled back"):
        table.rollback(first.instant)


def test_a_rollback_tells_which_commit_it_undoes(one: Table) -> None:
    instant = one.upsert(arrow(rows(8, 14, 2))).instant
    assert one.rollback().reason == f"commit {instant} of version 3 (upsert) undone"


def test_a_rollback_of_a_commit_that_lists_files_of_others_deletes_its_own_alone(
    one: Table,
) -> None:
    live = [path.relative_to(one.uri).as_posix() for path in data_files(one.uri)]
    before = scanned(one)
    instant = one.upsert(arrow(rows(8, 14, 2))).instant
    assert instant is not None
    staged = Path(one.uri, staged_path(instant))
    body = json.loads(staged.read_bytes())
    for stats in body["partitionToWriteStats"].values():
        for stat, path in zip(stats, [*live, ".hoodie/hoodie.properties"], strict=False):
            stat["path"] = path
    raw = json.dumps(body).encode()
    staged.write_bytes(raw)
    Path(one.uri, f".hoodie/{instant}.commit").write_bytes(raw)
    root = Path(one.uri, version_path(3))
    told = json.loads(root.read_bytes())["body"]
    told["steps"][0]["checksum"] = checksum(raw)
    root.write_bytes(seal(told))
    one.rollback()
    assert [path for path in live if not Path(one.uri, path).exists()] == []
    assert scanned(one) == before


def test_a_reader_and_a_writer_of_a_version_that_is_rolled_back_are_told_so(
    table: Table, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go while they read them: that is no damage."""
    from metatable.write.group_maker import GroupMaker  # noqa: PLC0415  (patched where it is used)

    table.upsert(arrow(rows(0, 6, 2)))
    merge = GroupMaker._filed
    waiting = [table.rollback]
    lock = threading.Lock()

    def roll_back_first(*given: Any) -> Any:
        with lock:
            if waiting:
                waiting.pop()()
        return merge(*given)

    monkeypatch.setattr(GroupMaker, "_filed", roll_back_first)
    result = table.upsert(arrow(rows(2, 8, 3)))
    assert result.attempts == 2
    model = Model(is_global=True, ordering=False)
    model.upsert(rows(0, 12, 1) + rows(2, 8, 3))
    check(table, model)


def test_readers_of_a_version_that_is_undone_meanwhile_are_told_to_try_again(
    table: Table,
) -> None:
    table.upsert(arrow(rows(0, 6, 2)))
    old = metatable.open(table.uri, FAST)
    held = old._snapshot(None)
    table.rollback()
    old._snapshot = lambda *_: held  # type: ignore[method-assign]
    keys = arrow(rows(0, 6, 0))
    acts: list[Callable[[], Any]] = [old.verify, lambda: old.read_keys(keys)]
    acts += [lambda: old.scan().to_arrow()]
    if table.options.index == "metadata_bloom":
        acts += [lambda: old.tag_locations(keys), lambda: old.explain(keys)]
    for act in acts:
        with pytest.raises(StaleError):
            act()


def test_a_sleeping_writer_inserts_no_key_that_a_rollback_and_a_commit_brought_back(
    table: Table, between: Any
) -> None:
    table.delete(arrow(rows(0, 4, 0)))

    def meanwhile() -> None:
        table.rollback()
        table.upsert(arrow(rows(20, 22, 5, "la")))

    between(meanwhile)
    late = table.upsert(arrow(rows(0, 2, 9, "la")))
    assert (late.attempts, late.inserted, late.moved) == (2, 0, 2)
    model = Model(is_global=True, ordering=False)
    model.upsert(rows(0, 12, 1) + rows(20, 22, 5, "la") + rows(0, 2, 9, "la"))
    check(table, model)


def test_a_service_takes_no_instant_but_for_hudi_s_record_of_a_rollback(one: Table) -> None:
    one.upsert(arrow(rows(8, 16, 2)))
    before = set(os.listdir(Path(one.uri, ".hoodie")))
    execute(Store(one.uri, FAST), LocalEngine(1), Compact(major=True))
    assert set(os.listdir(Path(one.uri, ".hoodie"))) == before
    assert newest(one).instant == ""
    execute(Store(one.uri, FAST), LocalEngine(1), Rollback())
    fresh = set(os.listdir(Path(one.uri, ".hoodie"))) - before
    record = newest(one).latest_instant
    assert fresh == {f"{record}.rollback{end}" for end in (".requested", ".inflight", "")}
    assert newest(one).instant == ""


def test_a_lease_tells_whose_it_is(one: Table) -> None:
    dies(one, rows(8, 16, 2), BEFORE_PUT)
    [path] = Path(one.uri, LEASES).iterdir()
    lease = StoredLease.decode(path.read_bytes(), lease_path(path.name))
    hfiles = Path(one.uri, ".hoodie/metatable/files").glob(f"{path.name}-{lease.nonce}-*.hfile")
    assert len(list(hfiles)) == 1


@pytest.mark.parametrize("asked", ["rows", "files"])
def test_an_undone_version_is_stale_also_where_its_index_files_are_gone(
    table: Table, asked: str
) -> None:
    undone = table.upsert(arrow(rows(8, 16, 2)))
    scan = table.scan()
    table.rollback()
    hfiles = list(Path(table.uri, HOME).rglob(f"{undone.instant}-*.hfile"))
    assert hfiles
    for hfile in hfiles:  # as a sweep does, of a writer that slept through all this and died
        hfile.unlink()
    cache.clear()
    with pytest.raises(StaleError, match=r"undone, .*meanwhile"):
        scan.files() if asked == "files" else scan.to_arrow()


def test_a_commit_that_is_undone_while_its_timeline_is_completed_is_not_made_again(
    one: Table,
) -> None:
    """Whoever undoes it puts the last file first; the writer is told that, and does not find it
    any more when he looks whether it is his."""
    store, backend = watched(one.uri)
    create, undone = backend.create, []

    def forestalled(path: str, body: bytes, **how: Any) -> bool:
        done = create(path, body, **how)
        if re.fullmatch(r"\.hoodie/\d+\.commit", path) and not undone:
            undone.append(one.rollback().version)
            return False
        return done

    backend.create = forestalled  # type: ignore[method-assign]
    expected = scanned(one)
    done = write(store, LocalEngine(1), arrow(rows(0, 4, 2)), "upsert")
    assert (done.attempts, [done.version + 1]) == (1, undone)
    assert [made.operation for made in one.history(2)] == ["rollback", "upsert"]
    assert scanned(one) == read_by_hudi(one.uri) == expected
