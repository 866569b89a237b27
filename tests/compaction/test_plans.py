"""Stored plans: made now, carried out later, elsewhere or after a death; nothing they say is
believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import ConflictError, CorruptError, NotFoundError, StaleError, Table, UsageError
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import Scheduled, execute
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.sealed import seal
from metatable.storage.store import Store
from tests.compaction.shrunk_tables import FAST, answers, grown, rows, snapshot
from tests.faults import Refused, watched

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def table(table_uri: str) -> Table:
    return grown(table_uri, "record")


def plans(table: Table) -> list[str]:
    """The names of those that are stored."""
    return sorted(path.stem for path in Path(table.uri, PLANS).glob("*"))


def files(table: Table) -> set[str]:
    return {one.path for one in Store(table.uri, FAST).list("", recursive=True)}


def scheduled(table: Table, **how: Any) -> str:
    found = table.compact(schedule=True, **how)
    assert found.plan in plans(table)
    return found.plan


def test_a_plan_is_all_that_scheduling_writes(table: Table) -> None:
    version, before = table.version, files(table)
    told = table.compact(major=True, schedule=True)
    assert told.version == table.version == version
    assert told.reason.startswith("scheduled, nothing was done: major, ")
    assert f"plan {told.plan}" in repr(told)
    assert files(table) - before == {f"{PLANS}/{told.plan}.json"}
    assert told.bytes_written == Path(table.uri, PLANS, f"{told.plan}.json").stat().st_size
    assert told.files_before == told.files_after == 0


@pytest.mark.each_once
@pytest.mark.parametrize("major", [True, False])
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_a_plan_does_what_a_compaction_would_have_done(
    table_uri: str, index: str, major: bool
) -> None:
    table = grown(table_uri, index)
    before = answers(table)
    twin = metatable.open(shutil.copytree(table_uri, f"{table_uri}-twin"), FAST)
    expected = twin.compact(major=major)
    name = scheduled(table, major=major)
    looked_at = table.compact(plan=name, dry_run=True)
    assert (looked_at.version, plans(table)) == (table.version, [name])
    assert looked_at.reason == f"dry run, nothing was done: {expected.reason}"
    done = metatable.open(table_uri, FAST).compact(plan=name)
    assert (done.plan, done.reason, done.entries) == (name, expected.reason, expected.entries)
    assert (done.files_before, done.files_after) == (expected.files_before, expected.files_after)
    assert done.version == table.version == expected.version
    assert table.history()[0].summary == twin.history()[0].summary
    assert table.describe().metadata == twin.describe().metadata
    assert plans(table) == []
    assert [one.equals(two) for one, two in zip(answers(table), before, strict=True)] == [True] * 2
    assert table.verify().findings == ()


def test_a_plan_is_taken_back_whether_it_is_right_or_not(table: Table) -> None:
    names = [scheduled(table, major=True) for _ in range(2)]
    table.compact(plan=names[0], dry_run=True, take_back=True)
    assert sorted(plans(table)) == sorted(names)
    table.compact(plan=names[0], take_back=True)
    assert plans(table) == [names[1]]
    table.compact(major=True)
    told = table.compact(plan=names[1], take_back=True)
    assert told.reason.startswith("plan taken back: major, ")
    assert (told.plan, told.version, plans(table)) == (names[1], table.version, [])
    with pytest.raises(NotFoundError):
        table.compact(plan=names[1], take_back=True)
    wrong: list[dict[str, Any]] = [{}, {"schedule": True}, {"plan": names[0], "major": True}]
    for how in wrong:
        with pytest.raises(UsageError):
            table.compact(take_back=True, **how)


def test_where_nothing_is_due_no_plan_is_stored(table: Table) -> None:
    table.compact(major=True)
    told = table.compact(schedule=True)
    assert (told.reason, told.plan, plans(table)) == ("nothing to compact", "", [])


@pytest.mark.parametrize("major", [True, False])
def test_a_plan_is_right_as_long_as_only_data_comes(table: Table, major: bool) -> None:
    name = scheduled(table, major=major)
    table.delete(rows(700, 720))
    table.upsert(rows(1515, 1540, 7))
    done = table.compact(plan=name)
    assert done.files_after < done.files_before
    assert table.filter_exists(rows(690, 730)).num_rows == 20
    assert table.filter_exists(rows(1500, 1600)).num_rows == 35
    assert table.verify().findings == ()


def test_plans_of_other_partitions_do_not_touch_each_other(table: Table) -> None:
    names = [scheduled(table, partitions=one) for one in ("files", "record_index")]
    for name in names:
        table.compact(plan=name)
    assert plans(table) == []
    assert table.verify().findings == ()


def merged(table: Table) -> None:
    table.compact(major=True)


def merged_in_part(table: Table) -> None:
    table.compact(major=True, partitions=["record_index"], buckets=[3])


def undone(table: Table) -> None:
    table.rollback()


@pytest.mark.each_once
@pytest.mark.parametrize("meanwhile", [merged, merged_in_part, undone])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_whose_inputs_were_taken_is_refused_and_changes_nothing(
    table: Table, meanwhile: Callable[[Table], None], dry_run: bool
) -> None:
    name = scheduled(table, major=True)
    meanwhile(table)
    version, before = table.version, files(table)
    with pytest.raises(StaleError, match="schedule it again") as told:
        table.compact(plan=name, dry_run=dry_run)
    assert told.value.facts["path"] == f"{PLANS}/{name}.json"
    assert (table.version, files(table)) == (version, before)
    assert table.compact(major=True).version == version + (meanwhile is not merged)
    assert [one.kind for one in table.verify().findings] == ["plan"]


@pytest.mark.parametrize(
    ("index", "options"),
    [("metadata_bloom", {}), ("record", {"buckets": {"record_index": 5}})],
    ids=["another index", "other buckets"],
)
def test_a_plan_for_another_index_is_out_of_date(
    table: Table, index: str, options: dict[str, Any]
) -> None:
    name = scheduled(table, major=True)
    version = metatable.adopt(table.uri, index=index, options=options, storage_options=FAST).version
    with pytest.raises(StaleError, match="schedule it again") as told:
        table.compact(plan=name)
    assert told.value.facts["partition"] == "record_index"
    assert told.value.facts["path"] == f"{PLANS}/{name}.json"
    assert metatable.open(table.uri, FAST).version == version
    assert [one.kind for one in table.verify().findings] == ["plan"]
    table.repair(dry_run=False)
    assert (plans(table), table.verify().findings) == ([], ())


def test_a_plan_is_carried_out_once(table: Table) -> None:
    name = scheduled(table)
    done = table.compact(plan=name)
    with pytest.raises(NotFoundError, match="it is carried out, was taken back, or never was"):
        table.compact(plan=name)
    assert table.version == done.version


def test_of_two_who_carry_out_one_plan_the_second_is_told(table: Table, between: Any) -> None:
    name, version = scheduled(table, major=True), table.version
    between(lambda: table.compact(plan=name))
    with pytest.raises(NotFoundError, match="it is carried out"):
        metatable.open(table.uri, FAST).compact(plan=name)
    assert table.version == version + 1
    named = {ref.path for one in table.options.buckets for ref in snapshot(table).refs(one)}
    made = {path for path in files(table) if "/compact-" in path and path.endswith(".hfile")}
    assert made == named, "index files of who was second are gone"
    assert table.verify().findings == ()


def test_a_plan_that_is_killed_anywhere_is_taken_up_again_or_is_dropped(
    table: Table, tmp_path: Path
) -> None:
    name, version, before = scheduled(table, major=True), table.version, answers(table)

    def carried_out(store: Store) -> None:
        execute(store, LocalEngine(1), Scheduled(Compact(), name))

    dry = Store(shutil.copytree(table.uri, tmp_path / "dry"), FAST)
    store, backend = watched(dry.uri)
    carried_out(store)
    seen = set()
    for limit in backend.kills()[:-1]:
        twin = metatable.open(shutil.copytree(table.uri, tmp_path / f"{limit}"), FAST)
        deadly, _ = watched(twin.uri, limit=limit)
        with pytest.raises(Refused):
            carried_out(deadly)
        if twin.version == version:
            assert twin.compact(plan=name).version == version + 1
            seen.add("taken up again")
        else:
            seen.add("open" if plans(twin) else "dropped")
            with Transaction.begin(Store(twin.uri, FAST)):
                pass
        assert plans(twin) == []
        assert twin.version == version + 1
        assert answers(twin)[0].equals(before[0])
        assert twin.verify().findings == ()
        shutil.rmtree(twin.uri)
    assert seen == {"taken up again", "open", "dropped"}


def test_a_plan_of_another_service_is_refused(table: Table) -> None:
    name = scheduled(table)
    other = name.replace("compact", "cluster")
    path = Path(table.uri, PLANS, f"{name}.json")
    body = json.loads(path.read_bytes())["body"]
    path.with_stem(other).write_bytes(seal(body | {"service": "cluster"}))
    with pytest.raises(UsageError, match="a plan of another service"):
        table.compact(plan=other)


def rewritten(table: Table, name: str, change: Change) -> None:
    """Another plan of the same name, with a right checksum."""
    path = Path(table.uri, PLANS, f"{name}.json")
    body = json.loads(path.read_bytes())["body"]
    change(body)
    path.write_bytes(seal(body))


def task(change: Change) -> Change:
    """A change to the plan's task for the record index."""

    def run(body: dict[str, Any]) -> None:
        [one] = [one for one in body["work"]["tasks"] if one["partition"] == "record_index"]
        change(one)

    return run


HOSTILE: dict[str, Change] = {
    "no work": lambda body: body.pop("work"),
    "work that is a list": lambda body: body.update(work=[]),
    "a work of nonsense": lambda body: body.update(work={"kind": 5, "tasks": []}),
    "an empty list of tasks": lambda body: body["work"].update(tasks=[]),
    "no tasks": lambda body: body["work"].pop("tasks"),
    "a task that is none": lambda body: body["work"].update(tasks=["all"]),
    "a task twice": lambda body: body["work"]["tasks"].append(body["work"]["tasks"][-1]),
    "an unknown partition": task(lambda one: one.update(partition="../pages")),
    "a narrower space": task(lambda one: one.update(space=8)),
    "places below": task(lambda one: one.update(lo=-1)),
    "places beyond": task(lambda one: one.update(hi=one["space"] + 1)),
    "no places": task(lambda one: one.update(lo=5, hi=5)),
    "places of text": task(lambda one: one.update(lo="0")),
    "places of 300 bits": task(lambda one: one.update(hi=1 << 300)),
    "no inputs": task(lambda one: one.update(inputs=[])),
    "an input of nonsense": task(lambda one: one.update(inputs=[{"path": 5, "lo": 0, "hi": 1}])),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_plan_of_nonsense_is_damage(table: Table, hostile: str) -> None:
    name = scheduled(table, major=True)
    rewritten(table, name, HOSTILE[hostile])
    before, version = files(table), table.version
    for dry_run in (True, False):
        with pytest.raises(CorruptError) as told:
            table.compact(plan=name, dry_run=dry_run)
        assert told.value.facts["path"] == f"{PLANS}/{name}.json"
        assert {"expected", "found"} <= told.value.facts.keys()
    assert (files(table), table.version) == (before, version)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one["inputs"].pop(1), "expected='neighbours'"),
        (lambda one: one["inputs"].pop(), "expected='the oldest'"),
        (lambda one: one["inputs"][0].update(hi=one["hi"] - 1), "expected='5 index files'"),
        (lambda one: one.update(hi=one["hi"] // 2), "expected='5 index files'"),
    ],
    ids=["a gap", "tombstones dropped", "a part of an input", "a part of the places"],
)
def test_a_plan_that_would_bring_back_what_was_deleted_is_refused(
    table: Table, change: Change, told: str
) -> None:
    name = scheduled(table, major=True)
    rewritten(table, name, task(change))
    before, version = files(table), table.version
    with pytest.raises(StaleError, match=told):
        table.compact(plan=name)
    assert (files(table), table.version) == (before, version)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/passwd", "city=ny", f"{HOME}/clock", "."]
)
def test_a_plan_reads_no_file_that_the_version_does_not_name(table: Table, path: str) -> None:
    name = scheduled(table, major=True)
    rewritten(table, name, task(lambda one: one["inputs"][0].update(path=path)))
    store, backend = watched(table.uri)
    with pytest.raises(StaleError, match="schedule it again"):
        execute(store, LocalEngine(1), Scheduled(Compact(), name))
    asked = backend.paths("size", "read", "read_whole", "map", "list")
    assert path not in asked
    assert not [one for one in asked if one.endswith(".hfile")]


@pytest.mark.parametrize("raw", [b"", b"{", b"7", b"[" * 100_000, b"\xff", b'{"body": {}}'])
def test_a_plan_of_garbage_is_damage(table: Table, raw: bytes) -> None:
    name = scheduled(table)
    Path(table.uri, PLANS, f"{name}.json").write_bytes(raw)
    with pytest.raises(CorruptError, match="not a plan file") as told:
        table.compact(plan=name)
    assert told.value.facts["path"] == f"{PLANS}/{name}.json"


def test_any_flipped_byte_of_a_plan_is_damage(table: Table) -> None:
    name = scheduled(table, partitions="files")
    path = Path(table.uri, PLANS, f"{name}.json")
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        if not chr(whole[at]).isspace():  # between the words it means nothing
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(CorruptError):
                table.compact(plan=name, dry_run=True)
    path.write_bytes(whole)
    assert table.compact(plan=name).plan == name


def test_a_plan_of_a_newer_writer_is_read_for_what_is_known(table: Table) -> None:
    name = scheduled(table, major=True)

    def grow(body: dict[str, Any]) -> None:
        body["future"] = body["work"]["future"] = 1
        for one in body["work"]["tasks"]:
            one["future"] = one["inputs"][0]["future"] = {"a": 1}

    rewritten(table, name, grow)
    done = table.compact(plan=name)
    assert done.files_after < done.files_before
    assert table.verify().findings == ()


def test_a_rollback_leaves_no_plan_open_and_a_plan_is_no_part_of_what_it_undoes(
    table: Table,
) -> None:
    done, left = (scheduled(table, partitions=one) for one in ("record_index", "files"))
    table.compact(plan=done)
    table.rollback()
    assert plans(table) == [left]
    with pytest.raises(StaleError):
        table.compact(plan=left)


def test_a_service_that_loses_its_last_race_leaves_the_plan(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Any:
        raise ConflictError("another was first: retry")

    name = scheduled(table)
    with monkeypatch.context() as patch:
        patch.setattr(Compact, "work", lost)
        with pytest.raises(ConflictError):
            table.compact(plan=name)
    assert plans(table) == [name]
    assert table.compact(plan=name).plan == name
