"""Steps after the put: any action of Hudi's timeline, done by whoever comes next."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rounds import Rounds
from metatable import CorruptError, Table, UpgradeError
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.timeline import Timeline, next_instant
from metatable.data.hoodie.undo_metadata import UNDOING, Undone, undo_metadata
from metatable.data.stored_fields import decode_fields
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.steps import KINDS, settle, stage, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import COMMITS
from metatable.metadata.manifests.manifest import Manifest, Step, version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.sealed import seal
from metatable.storage.store import Store
from tests.face.protocol.making import FAST, made, newest, recover, rows
from tests.faults import READS, Refused, dying, watched
from tests.model import arrow, read_by_hudi, scanned

AVRO = b"Obj\x01 what Hudi keeps of it"


@pytest.fixture
def table(table_uri: str) -> Table:
    """Twelve rows in two cities."""
    table = made(table_uri)
    table.insert(arrow(rows(0, 12, 1)))
    return table


def put(table: Table, action: str, body: bytes, at: str | None = None) -> str:
    """Publish a version that completes an action, and die before it is completed."""
    base = newest(table)
    instant = at or next_instant(after=base.latest_instant)
    step = stage(Store(table.uri, FAST), instant, body, action)
    data = instant if action == "replacecommit" else ""
    publish(
        Store(table.uri, FAST), base, Change("service", data, steps=(step,)), Owner.new("service")
    )
    return instant


def replacing(table: Table) -> bytes:
    """A commit that replaces nothing: what it is to Hudi is told by its action alone."""
    last = CommitMetadata.decode(Path(table.uri, staged_path(str(table.instant))).read_bytes(), "")
    return CommitMetadata("INSERT_OVERWRITE", (), last.extra, {}).encode()


def told(table: Table, action: str) -> bytes:
    """The completed file of an action."""
    if action in UNDOING:
        return undo_metadata(
            action, "20260101000000000", [Undone("20251231000000000", "commit", {})]
        )
    return replacing(table) if action == "replacecommit" else AVRO


def on_timeline(table: Table, instant: str) -> set[str]:
    """What the names of this instant's files on the timeline end with."""
    found = Path(table.uri, ".hoodie").glob(f"{instant}*")
    return {path.name.removeprefix(instant) for path in found}


def states(action: str) -> set[str]:
    found = {f".{action}.requested", f".{action}.inflight", f".{action}"}
    return found - {".savepoint.requested"}


@pytest.mark.parametrize("action", ["replacecommit", "clean", "rollback", "restore"])
def test_an_action_whose_service_died_after_its_put_is_completed_by_the_next_writer(
    table: Table, action: str
) -> None:
    before = scanned(table)
    body = told(table, action)
    instant = put(table, action, body)
    assert on_timeline(table, instant) == set()
    recover(table)
    assert on_timeline(table, instant) == states(action)
    assert Path(table.uri, f".hoodie/{instant}.{action}").read_bytes() == body
    assert table.verify().findings == ()
    assert read_by_hudi(table.uri) == scanned(table) == before
    assert table.upsert(arrow(rows(8, 16, 2))).updated == 4
    assert read_by_hudi(table.uri) == scanned(table)


def test_a_savepoint_stands_beside_its_commit_and_is_never_requested(table: Table) -> None:
    instant = str(table.instant)
    commit, staged = on_timeline(table, instant), Path(table.uri, staged_path(instant))
    before = staged.read_bytes()
    put(table, "savepoint", AVRO, at=instant)
    recover(table)
    assert staged.read_bytes() == before
    assert on_timeline(table, instant) == commit | {".savepoint.inflight", ".savepoint"}
    assert Path(table.uri, f".hoodie/{instant}.savepoint").read_bytes() == AVRO
    assert json.loads(Path(table.uri, f".hoodie/{instant}.commit").read_bytes())
    assert table.upsert(arrow(rows(8, 16, 2))).updated == 4
    assert read_by_hudi(table.uri) == scanned(table)


@pytest.mark.parametrize("action", ["savepoint", "clean"])
def test_two_who_complete_a_savepoint_at_once_come_to_one(
    table: Table, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Of a commit there may be several, dropped and made again. Other actions have an instant of
    their own: what else has it is damage."""
    instant = put(table, action, AVRO, at=str(table.instant) if action == "savepoint" else None)
    completed = Path(table.uri, f".hoodie/{instant}.{action}")

    def another_is_first(*given: Any) -> bool:
        completed.write_bytes(b"another's")
        return False

    monkeypatch.setattr(Timeline, "is_complete", another_is_first)
    if action == "savepoint":
        recover(table)
    else:
        with pytest.raises(CorruptError, match="another action of this instant"):
            recover(table)
    assert completed.read_bytes() == b"another's"


@pytest.mark.parametrize("action", ["replacecommit", "savepoint", "clean"])
def test_a_step_killed_at_any_call_is_done_by_who_comes_next_and_may_be_done_again(
    table: Table, action: str
) -> None:
    at = str(table.instant) if action == "savepoint" else None
    instant = put(table, action, replacing(table), at)
    limit, changing = 0, 1
    while changing:
        store, backend = watched(table.uri, limit=limit)
        try:
            settle(store, newest(table))
            changing = len([verb for verb, _ in backend.calls if verb not in READS])
        except Refused:
            assert f".{action}" not in on_timeline(table, instant)
        limit += 1
    assert limit > 5
    assert on_timeline(table, instant) >= states(action)
    assert table.verify().findings == ()


def test_a_rollback_takes_back_a_commit_of_another_action(table: Table) -> None:
    before = scanned(table)
    instant = put(table, "replacecommit", replacing(table))
    assert instant in table.rollback(instant).reason
    assert on_timeline(table, instant) == set()
    assert scanned(table) == read_by_hudi(table.uri) == before
    table.upsert(arrow(rows(8, 16, 2)))
    late = Path(table.uri, f".hoodie/{instant}.replacecommit")
    late.write_bytes(replacing(table))  # by one who slept since its put
    recover(table)
    assert not late.exists()
    assert read_by_hudi(table.uri) == scanned(table)
    assert table.verify().findings == ()


@pytest.mark.parametrize("damage", [None, b"other"])
@pytest.mark.parametrize("action", ["clean", "savepoint"])
def test_what_was_staged_and_is_lost_is_named_and_nothing_is_made_up(
    table: Table, action: str, damage: bytes | None
) -> None:
    body = replacing(table)
    instant = put(table, action, body)
    staged = Path(table.uri, staged_path(instant, action))
    staged.unlink() if damage is None else staged.write_bytes(damage)
    with pytest.raises(CorruptError, match="restore the file") as told:
        table.upsert(arrow(rows(8, 16, 2)))
    assert told.value.facts["path"] == staged_path(instant, action)
    staged.write_bytes(body)
    assert table.upsert(arrow(rows(8, 16, 2))).updated == 4
    assert on_timeline(table, instant) == states(action)


@pytest.mark.parametrize("action", UNDOING)
def test_a_record_of_an_undoing_that_is_lost_is_missed_by_nobody(table: Table, action: str) -> None:
    instant = put(table, action, told(table, action))
    Path(table.uri, staged_path(instant, action)).unlink()
    assert table.upsert(arrow(rows(8, 16, 2))).updated == 4
    assert on_timeline(table, instant) == set()
    assert table.verify().findings == ()


def test_the_instant_of_a_service_is_never_given_out_again(table: Table) -> None:
    late = next_instant(datetime.now(UTC) + timedelta(hours=2))
    put(table, "clean", AVRO, at=late)
    commit = table.upsert(arrow(rows(8, 16, 2)))
    assert commit.instant is not None
    assert commit.instant > late


def changed(table: Table, change: Callable[[dict[str, Any]], Any], version: int) -> None:
    """Rewrite a root after `change` to its body, with a right checksum."""
    path = Path(table.uri, version_path(version))
    body = json.loads(path.read_bytes())["body"]
    change(body)
    path.write_bytes(seal(body))


NEWER: list[dict[str, str]] = [{"kind": "clean"}, {"action": "indexing"}]


@pytest.mark.parametrize("newer", NEWER, ids=str)
def test_a_step_of_a_newer_writer_is_refused_by_writers_and_nothing_is_done(
    table: Table, newer: dict[str, str]
) -> None:
    instant, before = put(table, "clean", AVRO), scanned(table)
    version = table.version
    changed(table, lambda body: body["steps"].append(body["steps"][0] | newer), version)
    acts = (lambda: table.upsert(arrow(rows(8, 16, 2))), table.compact, table.rollback)
    for act in (*acts, lambda: table.compact(schedule=True)):
        with pytest.raises(UpgradeError, match="newer writer has left something to be done"):
            act()
    assert on_timeline(table, instant) == set(), "not even the step before it"
    assert scanned(table) == before
    assert table.version == version


@pytest.mark.parametrize("newer", ["number", "step"])
def test_a_newer_writer_that_is_first_in_a_race_is_not_published_over(
    table: Table, between: Any, newer: str
) -> None:
    def grow(body: dict[str, Any]) -> None:
        if newer == "number":
            body["format"]["writer"] = 99
        else:
            body["steps"] = [body["steps"][0] | {"kind": "clean"}]

    def meanwhile() -> None:
        table.upsert(arrow(rows(20, 22, 5)))
        changed(table, grow, table.version)

    between(meanwhile)
    with pytest.raises(UpgradeError, match="upgrade metatable to write"):
        table.upsert(arrow(rows(0, 2, 9)))
    assert table.version == 3
    assert len(scanned(table)) == 14


def test_a_new_kind_of_step_is_one_line_and_is_done_until_it_is_done(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `clean` will: files go after the put, as its step says."""
    gone = [".hoodie/metatable/some", ".hoodie/metatable/files/old"]
    store = Store(table.uri, FAST)
    for path in (*gone, ".hoodie/metatable/list"):
        store.put(path, "\n".join(gone).encode())

    def delete_listed(store: Store, _: Manifest, step: Step) -> None:
        listed = store.get(step.staged)
        if listed is not None:
            store.delete([*listed.decode().split("\n"), step.staged])

    monkeypatch.setitem(KINDS, "clean", delete_listed)
    step = Step("clean", staged=".hoodie/metatable/list", action="clean")
    change = Change("clean", requires=(NewestIsBase(),), steps=(step,))
    with dying(table.uri, "delete .*/files/old") as killed, Transaction.begin(killed) as service:
        service.serve("clean")
        service.publish(change)
    assert [store.size(path) is None for path in (*gone, step.staged)] == [True, False, False]
    for _ in range(2):
        recover(table)
        assert [store.size(path) for path in (*gone, step.staged)] == [None] * 3
    assert newest(table).operation == "clean"


@pytest.mark.parametrize(
    "path",
    [
        ".hoodie/hoodie.properties",
        f"{PLANS}/compact-{'0' * 32}",
        f"{PLANS}/../compact-{'0' * 32}.json",
        f"compact-{'0' * 32}.json",
        f"{PLANS}/sub/compact-{'0' * 32}.json",
        f"{PLANS}/compact.json",
        "",
    ],
)
def test_a_step_that_drops_a_plan_deletes_nothing_else(table: Table, path: str) -> None:
    version = newest(table).version
    changed(table, lambda body: body["steps"][0].update(kind="drop_plan", staged=path), version)
    before = sorted(Path(table.uri).rglob("*"))
    with pytest.raises(CorruptError, match="step is damaged") as told:
        table.upsert(arrow(rows(0, 2, 9)))
    assert told.value.facts["path"] == version_path(version)
    assert sorted(Path(table.uri).rglob("*")) == before


def test_a_step_of_before_there_were_actions_is_one_of_a_commit() -> None:
    body = {"kind": "complete", "instant": "i", "staged": "s", "checksum": ""}
    assert decode_fields(Step, body, "p", "step") == Step("complete", "i", "s", "", "commit")


def test_far_away_commits_are_archived_by_a_wait_for_each(table: Table) -> None:
    """What must go in turn is the completed file of each: the oldest first."""
    store = Store("memory://archived-in-turn")
    instants = [f"20260101000000{number:03}" for number in range(300)]
    timeline = Timeline(store)
    for number, instant in enumerate(instants):
        action = "deltacommit" if number % 2 else "replacecommit"
        store.put(staged_path(instant, action), b"{}")
        timeline.begin(instant, action)
        timeline.complete(instant, b"{}", action)
    store.backend = backend = Rounds(store.backend)
    border = instants[-1]
    KINDS["archive"](store, newest(table), Step("archive", border))
    assert {one.time for one in timeline.load()} == {border}
    assert [one.path for one in store.list(COMMITS)] == [staged_path(border)]
    gone = [path for _, verb, path in backend.log if verb == "delete"]
    assert [path[8:25] for path in gone[-299:]] == instants[:-1]
    assert backend.now < 299 + 20
