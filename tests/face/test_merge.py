"""Merge: some columns change, the others stay what they are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table, UsageError
from metatable.data.base_files import base_file
from metatable.data.keys.key_texts import KEY, PATH
from metatable.storage.counters import Counters
from metatable.write import partial_rows
from tests.every_kind import SCHEMA as EVERY_KIND
from tests.every_kind import made_rows
from tests.long import one_in
from tests.memory import watched_memory
from tests.model import SCHEMA, Model, Row, arrow, check, check_counts, scanned

FAST = {"durable": "false"}
KINDS = [
    ("record", "global"),
    ("record", "partition"),
    ("metadata_bloom", "global"),
    ("bloom", "partition"),
    ("bucket", "partition"),
]


def created(uri: str, index: str, scope: str, ordering: str | None = None) -> Table:
    cut = {"bucket_count": 3} if index == "bucket" else {"file_rows": 7}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering=ordering,
        index=index,
        options={"key_scope": scope, **cut},
        storage_options=FAST,
    )


@pytest.fixture
def table(table_uri: str) -> Table:
    """Four rows in two cities; a key lives once, its partition may be left out."""
    table = created(table_uri, "record", "global")
    rows = [{"id": key, "city": "ny", "v": n, "ts": 10 * n} for n, key in enumerate("abc")]
    table.insert(arrow([*rows, {"id": "d", "city": "sf", "v": 3, "ts": 30}]))
    return table


def given(rows: list[Row], *names: str) -> pa.Table:
    return arrow(rows).select(list(names))


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize(
    ("index", "scope", "ordering"),
    [(*kind, by) for turn, kind in enumerate(KINDS) for by in one_in(2, (None, "ts"), turn)],
)
def test_after_any_merges_rows_and_index_are_those_of_a_dict(
    table_uri: str, index: str, scope: str, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_rows, "ROWS_TOGETHER", 5)  # a file is read for several of them
    table = created(table_uri, index, scope, ordering)
    model = Model(scope == "global", ordering is not None)
    chosen = random.Random(f"{index} {scope} {ordering}")
    for step in range(4):
        keys = chosen.sample(range(30), 14)
        rows = [
            {"id": f"k{n:02}", "city": chosen.choice(("ny", "sf")), "v": step, "ts": step + n % 3}
            for n in keys
        ]
        names = ["id", "city", *chosen.sample(("v", "ts"), chosen.randrange(3))]
        merged = [
            dict.fromkeys(SCHEMA.names)
            | model.rows.get(model.identity(row), {})
            | {name: row[name] for name in names}
            for row in rows
        ]
        counts = model.upsert(merged)
        told = table.merge(given(rows, *names))
        check_counts(table, told, counts)
        check(table, model, [row | {"id": f"k{n:02}"} for n, row in enumerate(rows)])


def test_what_is_left_out_stays_and_what_is_null_becomes_null(table: Table) -> None:
    told = table.merge(pa.table({"id": ["a", "d"], "v": pa.array([None, 33], pa.int64())}))
    assert (told.operation, told.updated, told.inserted, told.moved) == ("merge", 2, 0, 0)
    assert scanned(table) == [
        ("a", "ny", None, 0),
        ("b", "ny", 1, 10),
        ("c", "ny", 2, 20),
        ("d", "sf", 33, 30),
    ]


def test_a_row_moves_with_all_that_it_has(table: Table) -> None:
    told = table.merge(pa.table({"id": ["a", "d"], "city": ["sf", "sf"]}))
    assert (told.moved, told.updated) == (1, 1)
    assert scanned(table)[0] == ("a", "sf", 0, 0)
    assert table.verify().findings == ()


def test_hudi_is_told_of_an_upsert_and_history_of_a_merge(table: Table) -> None:
    told = table.merge(pa.table({"id": ["a"], "v": [9]}))
    commit = json.loads(Path(table.uri, ".hoodie", f"{told.instant}.commit").read_text())
    assert commit["operationType"] == "UPSERT"
    assert table.history(1)[0].operation == "merge"


def test_a_new_key_has_null_for_what_is_left_out(table: Table) -> None:
    told = table.merge(pa.table({"id": ["e"], "city": ["sf"], "v": [5]}))
    assert told.inserted == 1
    assert scanned(table)[-1] == ("e", "sf", 5, None)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"id": ["a", "e"], "v": [1, 2]}, ["new keys", "['city']", "['e']"]),
        ({"v": [1]}, ["the key column is missing", "'id'"]),
        ({"id": ["a"], "w": [1]}, ["not in the table", "'w'"]),
        ({"id": ["a", "a"], "v": [1, 2]}, ["keys repeat", "['a']"]),
        ({"id": ["a"], "v": ["x"]}, ["'v'", "int64"]),
    ],
    ids=["new without its partition", "no key", "unknown column", "twice", "another type"],
)
def test_a_mistake_changes_nothing(table: Table, rows: dict[str, Any], words: list[str]) -> None:
    before = scanned(table), sorted(Path(table.uri).rglob("*"))
    with pytest.raises(UsageError) as told:
        table.merge(pa.table(rows))
    for word in words:
        assert word in str(told.value)
    assert (scanned(table), table.version) == (before[0], 2)
    assert [one for one in sorted(Path(table.uri).rglob("*.parquet")) if one not in before[1]] == []


def test_a_new_key_needs_what_may_not_be_null(table_uri: str) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("n", pa.int64(), nullable=False), ("v", "i8")])
    table = metatable.create(table_uri, schema, key="id", storage_options=FAST)
    table.insert(pa.table({"id": ["a"], "n": [1], "v": pa.array([1], "i8")}, schema=schema))
    table.merge(pa.table({"id": ["a"], "v": pa.array([2], pa.int8())}))
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "n": 1, "v": 2}]
    with pytest.raises(UsageError, match=r"new keys need .*\['n'\]"):
        table.merge(pa.table({"id": ["b"], "v": pa.array([2], pa.int8())}))


def test_in_partition_scope_the_partition_is_part_of_the_key(table_uri: str) -> None:
    table = created(table_uri, "record", "partition")
    table.insert(arrow([{"id": "a", "city": city, "v": 1, "ts": 1} for city in ("ny", "sf")]))
    with pytest.raises(UsageError, match="the partition column is missing"):
        table.merge(pa.table({"id": ["a"], "v": [2]}))
    table.merge(pa.table({"id": ["a"], "city": ["sf"], "v": [2]}))
    assert scanned(table) == [("a", "ny", 1, 1), ("a", "sf", 2, 1)]


@pytest.mark.in_turn("table_type")
@pytest.mark.both_table_types
def test_older_rows_change_nothing(table_uri: str) -> None:
    table = created(table_uri, "record", "global", ordering="ts")
    table.insert(arrow([{"id": "a", "city": "ny", "v": 1, "ts": 5}]))
    told = table.merge(pa.table({"id": ["a"], "v": [2], "ts": [4]}))
    assert (told.stale, told.version, told.instant) == (1, 2, None)
    assert table.merge(pa.table({"id": ["a", "a"], "v": [2, 3], "ts": [6, 7]})).updated == 1
    assert scanned(table) == [("a", "ny", 3, 7)]
    with pytest.raises(UsageError, match="rows with an ordering column"):
        table.merge(pa.table({"id": ["a", "a"], "v": [2, 3]}))


@pytest.mark.in_turn("table_type")
@pytest.mark.both_table_types
def test_of_two_merges_at_once_both_are_there(
    table: Table, between: Callable[[Callable[[], Any]], None]
) -> None:
    between(lambda: table.merge(pa.table({"id": ["a"], "v": [100]})))
    told = table.merge(pa.table({"id": ["a"], "ts": [200]}))
    assert told.attempts == 2
    assert scanned(table)[0] == ("a", "ny", 100, 200)


@pytest.mark.in_turn("table_type")
@pytest.mark.both_table_types
def test_values_of_every_kind_stay_what_they_are(table_uri: str) -> None:
    table = metatable.create(
        table_uri,
        EVERY_KIND,
        key="id",
        partition_by="city",
        index="record",
        options={"key_scope": "global", "file_rows": 12},
        storage_options=FAST,
    )
    rows = made_rows(0, 120, random.Random(3))
    table.insert(rows)
    names = [name for name in EVERY_KIND.names if name not in ("id", "city")]
    for name in names:  # each is once what is given, and otherwise what stays
        table.merge(rows.select(["id", name]).slice(0, 30))
    found = table.scan().to_arrow().sort_by("id")
    for name in EVERY_KIND.names:
        told, expected = (one[name].to_pylist() for one in (found, rows.sort_by("id")))
        assert list(map(repr, told)) == list(map(repr, expected)), name


def test_what_is_read_goes_on_piece_by_piece(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of long texts, of which a merge sets something else."""
    monkeypatch.setattr(base_file, "STEP_BYTES", 1 << 20)
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("v", pa.int64())])
    options = {"row_group_rows": 50, "key_scope": "global"}
    table = metatable.create(table_uri, schema, key="id", index="record", options=options)
    ids = [f"k{n:04}" for n in range(2000)]
    texts = [random.Random(n).randbytes(5000).hex() for n in range(2000)]
    table.insert(pa.table({"id": ids, "text": texts, "v": [0] * 2000}, schema=schema))
    rows = pa.table({KEY: ids, PATH: [""] * 2000, "id": ids, "v": [1] * 2000})
    location = table.tag_locations(rows.select(["id"]))["_location"]
    located = rows.append_column("_location", location).combine_chunks().to_batches()
    found = 0
    with watched_memory() as pool:
        for batch in partial_rows._filled(
            table._snapshot(None), ["text"], iter(located), Counters()
        ):
            found += batch.num_rows
            assert batch["text"][0].as_py() == texts[int(batch[KEY][0].as_py()[1:])]
    assert found == 2000
    assert pool.max_memory() < 2000 * 10_000 / 3
