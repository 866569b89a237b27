"""Notes of commits: told by history and by Hudi's timeline, and by nothing else."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table, UsageError
from metatable.cli import main as program
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.metadata.commits.lost_commit import rebuilt_commit
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.store import Store
from tests.model import SCHEMA, arrow

ROW = {"id": "a", "city": "ny", "v": 1, "ts": 1}
NOTE = {"job": "nightly", "run": 7, "share": 0.5, "again": True}
TEXTS = {"job": "nightly", "run": "7", "share": "0.5", "again": "true"}


@pytest.fixture
def table(table_uri: str) -> Table:
    return metatable.create(table_uri, SCHEMA, key="id", index="record")


def on_timeline(table: Table, instant: str | None) -> dict[str, str]:
    path = Path(table.uri, ".hoodie", f"{instant}.commit")
    extra = dict(CommitMetadata.decode(path.read_bytes(), str(path)).extra)
    assert json.loads(extra.pop("schema"))["type"] == "record"
    return extra


def test_history_and_hudi_s_timeline_tell_a_commit_s_note(table: Table) -> None:
    for write in (table.insert, table.upsert, table.delete):
        done = write(arrow([ROW]), note={**NOTE, "verb": write.__name__})
        assert table.history(1)[0].note == TEXTS | {"verb": write.__name__}
        assert on_timeline(table, done.instant) == TEXTS | {"verb": write.__name__}


def test_a_note_is_of_one_version_alone(table: Table) -> None:
    table.insert(arrow([ROW]), note=NOTE)
    done = table.upsert(arrow([ROW]))
    table.compact(major=True)
    assert [one.note for one in table.history()] == [{}, {}, TEXTS, {}]
    assert on_timeline(table, done.instant) == {}


def test_a_commit_that_is_rebuilt_has_its_note(table: Table) -> None:
    table.insert(arrow([ROW]), note=NOTE)
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    extra = CommitMetadata.decode(rebuilt_commit(store, newest), "").extra
    assert {name: extra[name] for name in TEXTS} == TEXTS


def test_where_nothing_is_new_there_is_no_version_and_no_note(table: Table) -> None:
    table.insert(arrow([ROW]))
    for write in (table.insert, table.upsert, table.delete):
        done = write(arrow([]), note=NOTE)
        assert (done.version, done.instant) == (2, None)
    assert table.delete(arrow([ROW | {"id": "b"}]), note=NOTE).version == 2
    assert [one.note for one in table.history()] == [{}, {}]


def test_the_command_line_tells_notes_on_one_line(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    table.insert(arrow([ROW]), note={"job": "nightly", "why": "line\nbreak \x1b[31m é"})
    assert program.main(["history", table.uri]) == 0
    told = capsys.readouterr().out
    assert "job=nightly, why=line\\nbreak \\x1b[31m é" in told
    assert len(told.splitlines()) == 3
    assert program.main(["history", table.uri, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["note"] == {"job": "nightly", "why": "line\nbreak \x1b[31m é"}


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("nightly", "a note has names and values"),
        ([("job", "nightly")], "a note has names and values"),
        ({1: "x"}, "not what a note can hold"),
        ({"job": ["x"]}, "not what a note can hold"),
        ({"job": None}, "not what a note can hold"),
        ({"schema": "x"}, "a note cannot be called so"),
        ({"latest_schema": "x"}, "a note cannot be called so"),
        ({"job": "y", "metatable.columns": "x"}, "a note cannot be called so"),
        ({"job": "x" * 20_000}, "a note is short"),
        ({"job": "\ud800"}, "not UTF-8"),
    ],
)
def test_what_is_no_note_is_refused_before_anything_is_written(
    table: Table, note: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        table.insert(arrow([ROW]), note=note)
    assert table.version == 1


class Job(str, Enum):  # noqa: UP042  (which would print what it holds)
    """Texts that print as their names."""

    NIGHTLY = "nightly"


def test_a_text_of_an_enumeration_is_noted_as_what_it_holds(table: Table) -> None:
    done = table.insert(arrow([ROW]), note={"job": Job.NIGHTLY})
    assert table.history(1)[0].note == on_timeline(table, done.instant) == {"job": "nightly"}
