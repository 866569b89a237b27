"""Column ids lie in the root: commits keep them, and give them to a table of before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import ConflictError, CorruptError, Table
from metatable.data.hoodie.properties import PROPERTIES_PATH
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from tests.data.test_schema_text import without_ids
from tests.index.rows import SCHEMA, SMALL, make, rows
from tests.metadata.test_stored_fields import changed, newest

ACTS: dict[str, Any] = {
    "insert": lambda table: table.insert(rows(100, 103)),
    "delete": lambda table: table.delete(rows(0, 3)),
    "compact": lambda table: table.compact(partitions=["files"]),
    "rollback": lambda table: table.rollback(),
}


@pytest.fixture
def table(table_uri: str) -> Table:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 30))
    table.upsert(rows(20, 40))
    return table


def ids(table: Table) -> dict[str, int]:
    return Snapshot(Store(table.uri), newest(table)).table_schema.ids()


def stored_ids(table: Table) -> list[Any]:
    return [one.get("id") for one in json.loads(newest(table).schema)["fields"]]


def age(body: dict[str, Any]) -> None:
    body["schema"] = without_ids(body["schema"])


def test_create_gives_every_column_an_id(table: Table) -> None:
    assert ids(table) == {name: n for n, name in enumerate(SCHEMA.names, 1)}
    assert json.loads(newest(table).schema)["last_column_id"] == len(SCHEMA)


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_any_commit_gives_ids_to_a_table_that_has_none(table: Table, act: Any) -> None:
    expected = ids(table)
    changed(table, age)
    assert ids(table) == expected
    assert stored_ids(table) == [None] * len(SCHEMA)
    act(table)
    assert stored_ids(table) == list(expected.values())
    assert metatable.open(table.uri).schema == SCHEMA
    assert table.verify().findings == ()


@pytest.mark.parametrize("name", ["insert", "delete", "compact"])
def test_any_commit_keeps_the_ids_and_the_greatest_that_was_ever_given(
    table: Table, name: str
) -> None:
    def give_others(body: dict[str, Any]) -> None:
        text = json.loads(body["schema"])
        for number, one in enumerate(text["fields"]):
            one["id"] = 50 - number
        body["schema"] = json.dumps(text | {"last_column_id": 77, "later": 1})

    changed(table, give_others)
    expected = json.loads(newest(table).schema)
    ACTS[name](table)
    assert json.loads(newest(table).schema) == expected


def test_a_root_with_a_lost_id_is_told_as_damage_by_readers_and_by_writers(table: Table) -> None:
    def lose(body: dict[str, Any]) -> None:
        text = json.loads(body["schema"])
        del text["fields"][1]["id"]
        body["schema"] = json.dumps(text)

    changed(table, lose)
    for act in (*ACTS.values(), lambda table: table.scan()):
        with pytest.raises(CorruptError, match="column has no id") as told:
            act(table)
        assert told.value.facts["path"] == newest(table).path
    assert table.version == 3


def test_a_creation_that_began_before_there_were_ids_is_finished(table_uri: str) -> None:
    begun = make(table_uri, "record", "global")
    changed(begun, age)
    Path(table_uri, PROPERTIES_PATH).unlink()
    options = {**SMALL, "key_scope": "global"}
    how: dict[str, Any] = {"key": "id", "partition_by": "city", "index": "record"}
    with pytest.raises(ConflictError, match="began to create, another table"):
        metatable.create(table_uri, SCHEMA.remove(2), options=options, **how)
    table = metatable.create(table_uri, SCHEMA, options=options, **how)
    assert table.options.key_salts == begun.options.key_salts
    assert table.schema == SCHEMA
