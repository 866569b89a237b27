"""What is lost of what lies beside the data: a commit's completed file, what lay ready for it, a
plan that waits. Versions of then are not kept any more, so that other things must tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import CorruptError, Table, UpgradeError
from metatable.metadata.commits.steps import staged_path
from metatable.results import Fault
from metatable.storage import cache
from tests.compaction.test_lost_root import lose_root
from tests.face.protocol.making import FAST, made, newest, rows
from tests.model import arrow, scanned

ALONE = {"upkeep_files": 0, "small_file_bytes": 0}


def reopened(table: Table) -> Table:
    cache.clear()
    return metatable.open(table.uri, FAST)


def lose(table: Table, *paths: str) -> Table:
    for path in paths:
        Path(table.uri, path).unlink()
    return reopened(table)


def age(table: Table, instant: str) -> None:
    """As if its first files had been written a day before."""
    day_before = time.time() - 86_400
    for name in (f"{instant}.commit.requested", f"{instant}.inflight"):
        os.utime(Path(table.uri, ".hoodie", name), (day_before, day_before))


def codes(table: Table) -> list[Fault]:
    return [one.kind for one in table.verify().findings]


def mended(table: Table) -> Table:
    table.repair(dry_run=False)
    table = reopened(table)
    assert codes(table) == []
    return table


@pytest.fixture(params=["savepoint", "version"])
def superseded(table_uri: str, request: pytest.FixtureRequest) -> tuple[Table, str]:
    """A table, and the instant of a commit whose version is gone, and whose files version 3 names:
    a savepoint, or the oldest that is kept."""
    table = made(table_uri, **ALONE)
    first = str(table.insert(arrow(rows(0, 1, 1))).instant)
    table.insert(arrow(rows(1, 2, 1)))
    if request.param == "savepoint":
        table.savepoint("kept")
    table.upsert(arrow(rows(0, 1, 2)))
    table.clean(versions=1 if request.param == "savepoint" else 2, hours=0)
    assert newest(table).keeps(3)
    assert not newest(table).keeps(2)
    return table, first


def test_a_commit_that_was_published_is_put_back_and_not_withdrawn(
    superseded: tuple[Table, str],
) -> None:
    table, first = superseded
    expected = scanned(table, 3)
    path = Path(table.uri, f".hoodie/{first}.commit")
    body = path.read_bytes()
    table = lose(table, f".hoodie/{first}.commit")
    age(table, first)
    assert codes(table) == [Fault.COMMIT_MISSING]
    table = mended(table)
    assert path.read_bytes() == body
    assert scanned(table, 3) == expected


def test_of_a_commit_that_nothing_tells_no_file_is_deleted(superseded: tuple[Table, str]) -> None:
    """Nor is a dead writer's by then: it cannot be told from one that was published."""
    table, first = superseded
    expected = scanned(table, 3)
    table = lose(table, f".hoodie/{first}.commit", staged_path(first))
    age(table, first)
    table = mended(table)
    assert scanned(table, 3) == expected
    table.upsert(arrow(rows(0, 4, 3)))
    assert scanned(table, 3) == expected


def test_a_slow_commit_whose_root_is_lost_lets_nobody_write(
    table_uri: str, between: Callable[[Callable[[], Any]], None]
) -> None:
    """Its instant is before the newest that is left: a version that was cleaned might have
    published it. But the sum of commits tells that none has."""
    table = made(table_uri, **ALONE)
    table.insert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(0, 4, 2)))
    table.clean(versions=1, hours=0)
    between(lambda: metatable.open(table_uri, FAST).insert(arrow(rows(21, 22, 1))))
    slow = str(table.upsert(arrow(rows(0, 1, 9))).instant)
    expected = scanned(table)
    lose_root(table)
    table = reopened(table)
    assert slow < newest(table).latest_instant
    assert Fault.FOREIGN_COMMIT in codes(table)
    with pytest.raises(CorruptError, match="a version is lost"):
        table.upsert(arrow(rows(2, 3, 5)))
    table = mended(table)
    assert scanned(table) == expected


def test_a_commit_of_ours_of_which_the_index_alone_tells_is_not_undone(table_uri: str) -> None:
    """Hudi's archiver has taken another commit, so the sum of commits tells nothing."""
    table = made(table_uri, **ALONE)
    archived = str(table.insert(arrow(rows(0, 1, 1))).instant)
    own = str(table.insert(arrow(rows(1, 2, 1))).instant)
    table.upsert(arrow(rows(0, 1, 2)))
    expected = scanned(table)
    table.clean(versions=1, hours=0)
    gone = [path.name for path in Path(table_uri, ".hoodie").glob(f"{archived}*")]
    table = lose(table, *(f".hoodie/{name}" for name in gone), staged_path(own))
    with pytest.raises(UpgradeError, match="another writer has committed"):
        table.upsert(arrow(rows(0, 1, 3)))
    assert codes(table) == [Fault.TRACES_MISSING]
    assert table.repair(dry_run=False).rows_lost == 0
    table = reopened(table)
    assert codes(table) == []
    assert scanned(table) == expected
    table.upsert(arrow(rows(0, 1, 2)))
    assert scanned(table) == expected


@pytest.mark.parametrize("hurt", ["lost", "cut", "another's"])
def test_a_plan_that_waits_is_put_back_on_the_timeline(table_uri: str, hurt: str) -> None:
    table = made(table_uri, "record-avro", **ALONE)
    table.insert(arrow(rows(0, 6, 1)))
    table.upsert(arrow(rows(0, 1, 2)))
    other = table.compact_logs(count=1, schedule=True).plan
    table.upsert(arrow(rows(1, 2, 3)))
    plan = table.compact_logs(count=1, schedule=True).plan
    assert other
    assert plan
    table.upsert(arrow(rows(0, 2, 4)))  # logs on what is to come
    expected = scanned(table)
    path = Path(table_uri, f".hoodie/{plan}.compaction.requested")
    body = path.read_bytes()
    if hurt == "lost":
        path.unlink()
    else:
        others = Path(table_uri, f".hoodie/{other}.compaction.requested").read_bytes()
        path.write_bytes(body[:20] if hurt == "cut" else others)
    table = reopened(table)
    assert codes(table) == [Fault.TRACES_MISSING]
    table = mended(table)
    assert path.read_bytes() == body
    table.compact_logs(plan=plan)
    assert scanned(table) == expected


def test_a_plan_of_which_both_copies_are_lost_is_made_anew(table_uri: str) -> None:
    table = made(table_uri, "record-avro", **ALONE)
    table.insert(arrow(rows(0, 6, 1)))
    table.upsert(arrow(rows(0, 6, 2)))
    plan = table.compact_logs(count=1, schedule=True).plan
    table.upsert(arrow(rows(0, 2, 3)))
    expected = scanned(table)
    table = lose(
        table, f".hoodie/{plan}.compaction.requested", newest(table).compactions[plan].plan
    )
    table = mended(table)
    assert Path(table_uri, f".hoodie/{plan}.compaction.requested").exists()
    table.compact_logs(plan=plan)
    assert scanned(table) == expected
    assert codes(table) == []
