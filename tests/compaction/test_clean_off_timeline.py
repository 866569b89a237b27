"""Clean beside a timeline that does not tell all: Hudi's tools have archived it, or files of it are
lost. What a version has published, or waits to be, is no orphan."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import metatable
from metatable import Table
from metatable.compaction.reshaping.log_compaction import CompactLogs
from metatable.compaction.service import execute
from metatable.data.hoodie.timeline import next_instant
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.scheduled_plans import staged_plan
from metatable.metadata.commits.steps import staged_path
from tests.compaction.aged_tables import KEEP, SMALL, clean, every_row, grown, is_sound
from tests.face.protocol.making import BEFORE_PUT, FAST, dies, made, newest, recover, rows
from tests.faults import dying
from tests.long import one_in
from tests.model import arrow, completed, data_files, read_by_hudi, scanned
from tests.shared import made_once

pytestmark = pytest.mark.in_turn("origin")

ALL = {**SMALL, "timeline_commits": 0}
"""We archive none."""
OFF = 5
"""Commits that Hudi's tools have archived."""


@pytest.fixture(scope="module", params=one_in(2, ["record", "metadata_bloom", "record-avro"]))
def origin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine commits, of which a later one replaces files of others."""
    index = request.param
    name = f"off-timeline-{index}"
    return made_once(tmp_path_factory, name, lambda uri: grown(made(uri, index, **ALL)))


@pytest.fixture
def table(origin: Path, table_uri: str) -> Table:
    """A copy of that."""
    shutil.copytree(origin, table_uri)
    return metatable.open(table_uri, FAST)


def archived(table: Table, number: int = OFF) -> list[str]:
    """The oldest commits leave the timeline, as Hudi's archiver has it."""
    gone = sorted(completed(table.uri))[:number]
    for instant in gone:
        for path in Path(table.uri, ".hoodie").glob(f"{instant}*"):
            path.unlink()
    return gone


def stray(table: Table, instant: str) -> Path:
    """A data file of an instant, in a group of its own."""
    path = Path(table.uri, "city=ny", f"made-up-0_0-0-0_{instant}.parquet")
    path.write_bytes(b"whatever")
    return path


@pytest.mark.parametrize("versions", [1, 4, 99])
def test_what_hudi_has_archived_is_not_withdrawn(table: Table, versions: int) -> None:
    expected = scanned(table)
    before = {one: every_row(table, one) for one in range(1, table.version + 1)}
    gone = archived(table)
    for _ in range(2):
        clean(table, versions)
    assert newest(table).withdrawn == ()
    kept = {one: told for one, told in before.items() if one >= newest(table).oldest}
    assert all(Path(table.uri, staged_path(one)).exists() for one in gone), "their last twins"
    assert every_row(table) == read_by_hudi(table.uri) == expected
    table.repair(dry_run=False)
    assert {one: every_row(table, one) for one in kept} == kept
    is_sound(table, expected)
    for number in range(3):
        table.upsert(arrow(rows(0, 3, 50 + number)))
        clean(table)
    is_sound(table, scanned(table))
    assert newest(table).withdrawn == ()


def test_what_a_dead_writer_has_left_there_goes(table: Table) -> None:
    archived(table)
    clean(table)
    before = set(data_files(table.uri))
    dies(table, rows(20, 24, 9), BEFORE_PUT)
    left = {path: path.read_bytes() for path in set(data_files(table.uri)) - before}
    assert left
    for _ in range(3):
        recover(table)
    for path, body in left.items():
        path.write_bytes(body)
    clean(table)
    assert not left.keys() & set(data_files(table.uri))


def test_an_orphan_there_is_told_as_long_as_versions_tell_all_commits(table: Table) -> None:
    archived(table)
    expected = scanned(table)
    first = stray(table, next_instant(after=newest(table).latest_instant))
    clean(table, 99)
    assert not first.exists()
    assert len(newest(table).withdrawn) == 1
    clean(table)  # the versions of what is archived go
    second = stray(table, next_instant(after=newest(table).latest_instant))
    assert clean(table).reason == "nothing to clean"
    assert second.exists()
    assert len(newest(table).withdrawn) == 1
    assert every_row(table) == expected


def test_the_timeline_is_not_archived_past_what_nobody_can_tell(table_uri: str) -> None:
    """Hudi takes what is older than its timeline for committed, and so does `repair`."""
    table = grown(made(table_uri, **SMALL))
    archived(table, 2)
    instant = next_instant(after=newest(table).latest_instant)
    left = stray(table, instant)
    for number in range(KEEP + 2):
        table.upsert(arrow(rows(0, 3, 10 + number)))
    expected = scanned(table)
    for _ in range(2):
        clean(table)
    assert "" < newest(table).archived < instant
    assert left.exists()
    assert every_row(table) == read_by_hudi(table.uri) == expected
    left.unlink()
    clean(table)
    assert newest(table).archived > instant
    is_sound(table, expected)


@pytest.mark.parametrize("starts", [False, True])
def test_a_plan_that_waits_is_kept_though_the_timeline_has_lost_it(
    table_uri: str, starts: bool
) -> None:
    """With its `.requested`; `.inflight` of a compaction that was begun is lost, too."""
    table = made(table_uri, "record-avro", **ALL)
    for number in range(3):
        table.upsert(arrow(rows(0, 12, number)))
    plan = table.compact_logs(ratio=0, schedule=True).plan
    table.upsert(arrow(rows(0, 3, 9)))  # the schedule's steps are not done again
    expected = scanned(table)
    if starts:
        with dying(table.uri, BEFORE_PUT) as store:
            execute(store, LocalEngine(1), CompactLogs(plan))
    made_of_it = [path for path in data_files(table.uri) if path.name.endswith(f"_{plan}.parquet")]
    assert bool(made_of_it) == starts
    for path in Path(table.uri, ".hoodie").glob(f"{plan}.*"):
        path.unlink()
    clean(table)
    assert newest(table).withdrawn == ()
    assert Path(table.uri, staged_plan(plan)).exists()
    assert all(path.exists() for path in made_of_it)
    table.compact_logs(plan=plan)
    assert every_row(table) == read_by_hudi(table.uri) == expected
