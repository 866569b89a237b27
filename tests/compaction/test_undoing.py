"""What Hudi itself would leave on its timeline of a rollback and of a restore."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import to_parsing_canonical_form

from metatable import CorruptError, Table
from metatable.compaction.ways_back import undoing
from metatable.data.file_groups.slices import decoded
from metatable.data.hoodie.timeline import next_instant
from metatable.data.hoodie.undo_metadata import UNDOING, Undone, undo_metadata, undo_plan
from metatable.data.reading.slice_reader import writer_of
from metatable.storage.store import Store
from tests.face.protocol.making import made, newest, rows
from tests.model import arrow, completed, data_files, read_by_hudi, scanned

pytestmark = pytest.mark.in_turn("table")


@pytest.fixture(params=["record", "record-avro"])
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    """Five commits, the fourth of which overwrites a partition."""
    table = made(table_uri, request.param, timeline_commits=3)
    for number in range(3):
        table.upsert(arrow(rows(number * 4, number * 4 + 12, number)))
    table.insert_overwrite(arrow(rows(40, 44, 4, "la")))
    table.upsert(arrow(rows(0, 20, 5)))
    return table


def on_timeline(table: Table, action: str) -> list[str]:
    """Instants of what is there of an action, completed."""
    names = [path.name for path in Path(table.uri, ".hoodie").glob(f"*.{action}")]
    return sorted(name.split(".")[0] for name in names)


def action(table: Table) -> str:
    return "deltacommit" if table.options.has_logs else "commit"


def read(table: Table, name: str) -> Any:
    [record] = fastavro.reader(io.BytesIO(Path(table.uri, ".hoodie", name).read_bytes()))
    return record


def deleted(told: Any) -> set[str]:
    return {
        file for held in told["partitionMetadata"].values() for file in held["successDeleteFiles"]
    }


def test_a_rollback_leaves_hudi_s_record_of_what_went(table: Table) -> None:
    before, undone = set(data_files(table.uri)), str(table.instant)
    result = table.rollback()
    [instant] = on_timeline(table, "rollback")
    assert instant > undone
    assert instant == newest(table).latest_instant
    told = read(table, f"{instant}.rollback")
    gone = before - set(data_files(table.uri))
    assert gone
    assert deleted(told) == {*map(str, gone)}
    assert told["totalFilesDeleted"] == len(gone)
    assert told["startRollbackTime"] == instant
    assert told["commitsRollback"] == [undone]
    assert told["instantsRollback"] == [{"commitTime": undone, "action": action(table)}]
    plan = read(table, f"{instant}.rollback.requested")
    assert plan["instantToRollback"] == {"commitTime": undone, "action": action(table)}
    asked = [(one["partitionPath"], one["filesToBeDeleted"]) for one in plan["RollbackRequests"]]
    assert {file for _, files in asked for file in files} == deleted(told)
    assert all(f"/{path}/" in file for path, files in asked for file in files)
    assert Path(table.uri, f".hoodie/{instant}.rollback.inflight").read_bytes() == b""
    assert result.version == newest(table).version
    assert table.verify().findings == ()
    assert read_by_hudi(table.uri) == scanned(table)


def test_a_restore_leaves_one_record_of_all_commits_newest_first(table: Table) -> None:
    before, done = set(data_files(table.uri)), sorted(completed(table.uri), reverse=True)
    table.restore(3)
    [instant] = on_timeline(table, "restore")
    assert on_timeline(table, "rollback") == []
    told = read(table, f"{instant}.restore")
    actions = action(table), "replacecommit", action(table)
    undone = [*zip(done[:3], actions, strict=True)]
    named = [(one["commitTime"], one["action"]) for one in told["restoreInstantInfo"]]
    assert named == undone
    assert told["instantsToRollback"] == done[:3]
    each = [rollback for time in done[:3] for rollback in told["hoodieRestoreMetadata"][time]]
    assert [rollback["commitsRollback"] for rollback in each] == [[time] for time in done[:3]]
    gone = before - set(data_files(table.uri))
    assert set().union(*map(deleted, each)) == {*map(str, gone)}
    plan = read(table, f"{instant}.restore.requested")
    assert plan["instantsToRollback"] == told["restoreInstantInfo"]
    assert table.verify().findings == ()
    assert read_by_hudi(table.uri) == scanned(table)


def test_a_commit_whose_files_nobody_can_tell_is_recorded_without_them(table: Table) -> None:
    undone = str(table.instant)
    Path(table.uri, f".hoodie/{undone}.{action(table)}").unlink()
    Path(table.uri, f".hoodie/metatable/commits/{undone}.json").unlink()
    table.rollback()
    [instant] = on_timeline(table, "rollback")
    assert deleted(read(table, f"{instant}.rollback")) == set()
    left = [decoded(str(path.relative_to(table.uri))) for path in data_files(table.uri)]
    assert undone not in {writer_of(Store(table.uri), one) for one in left}


def test_records_leave_the_timeline_with_the_commits_around_them(table: Table) -> None:
    table.rollback()
    table.restore(3)
    records = Path(table.uri, ".hoodie/metatable/commits")
    for number in range(5):
        assert len([*records.glob("*.r*")]) == 2
        assert (len(on_timeline(table, "rollback")), len(on_timeline(table, "restore"))) == (1, 1)
        table.upsert(arrow(rows(number, number + 9, 50)))
    expected = scanned(table)
    table.clean(versions=1, hours=0)
    assert on_timeline(table, "rollback") == on_timeline(table, "restore") == []
    assert [*records.glob("*.r*")] == []
    assert [*Path(table.uri, ".hoodie").glob("*.r[eo][ls]*")] == []
    assert table.verify().findings == ()
    assert read_by_hudi(table.uri) == scanned(table) == expected


@pytest.mark.parametrize("states", [("requested",), ("requested", "inflight", "completed")])
def test_a_record_that_a_late_hand_brings_back_goes_again(
    table: Table, states: tuple[str, ...]
) -> None:
    """One that read it before it was archived, and has died since, or has not."""
    first = min(completed(table.uri))
    table.clean(versions=1, hours=0)
    assert first < min(completed(table.uri))
    for state in states:
        end = "" if state == "completed" else f".{state}"
        Path(table.uri, f".hoodie/{first}.rollback{end}").touch()
    for number in range(5):
        table.upsert(arrow(rows(number, number + 9, 50)))
    assert [*Path(table.uri, ".hoodie").glob(f"{first}*")] == []
    table.clean(versions=1, hours=0)
    assert len(completed(table.uri)) == 3
    assert table.verify().findings == ()


def test_a_record_takes_no_instant_that_a_writer_has_just_taken(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = next_instant()
    Path(table.uri, f".hoodie/{now}.commit.requested").touch()

    def fixed(_: object = None, after: str | None = None) -> str:
        return next_instant(None, after) if after and after >= now else now

    monkeypatch.setattr(undoing, "next_instant", fixed)
    table.rollback()
    [instant] = on_timeline(table, "rollback")
    assert instant > now


@pytest.mark.parametrize("action", UNDOING)
def test_a_record_that_is_none_is_told(action: str) -> None:
    commit = Undone("20260101000000000", "commit", {"a": ["/t/a/f.parquet"]})
    body = undo_metadata(action, "20260101000000001", [commit])
    for damaged in (b"", b"Obj\x01", body[:-3]):
        with pytest.raises(CorruptError, match=f"{action} is not readable"):
            undo_plan(action, damaged, "there")


def test_the_records_have_the_schemas_of_hudi_s_own(interop: Path) -> None:
    """A rollback that Hudi on Spark has left, read and written again by us."""
    with zipfile.ZipFile(interop / "hudi-spark/cow_bloom_footer.zip") as archive:
        names = [one for one in archive.namelist() if "/.hoodie/2" in one]
        [name] = [one for one in names if one.endswith(".rollback")]
        theirs, their_plan = archive.read(name), archive.read(f"{name}.requested")
    [told] = records = list(fastavro.reader(io.BytesIO(theirs)))
    [undone] = told["instantsRollback"]
    files = {path: held["successDeleteFiles"] for path, held in told["partitionMetadata"].items()}
    commit = Undone(undone["commitTime"], undone["action"], files)
    ours = undo_metadata("rollback", told["startRollbackTime"], [commit])
    assert list(fastavro.reader(io.BytesIO(ours))) == [{**told, "timeTakenInMillis": 0}]
    pairs = [(theirs, ours), (their_plan, undo_plan("rollback", theirs, name))]
    for one, other in pairs:
        assert canonical(one) == canonical(other)
    plans = [next(fastavro.reader(io.BytesIO(one))) for one in pairs[1]]
    for plan in plans:
        plan["RollbackRequests"].sort(key=lambda request: request["partitionPath"])
    assert plans[0] == plans[1]
    assert len(records) == 1


def canonical(body: bytes) -> str:
    return to_parsing_canonical_form(fastavro.reader(io.BytesIO(body)).writer_schema)
