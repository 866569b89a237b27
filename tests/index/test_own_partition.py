"""An index from outside may keep a metadata partition: it is filled, compacted, swept, counted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table, UsageError
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import LEASES
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import dying
from tests.index.by_first_letter import LettersPartition
from tests.model import SCHEMA, Model, Row, arrow, check

FAST = {"durable": "false"}


def made(uri: str, **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="letters",
        options={"lease_seconds": 60, "file_rows": 4, **options},
        storage_options=FAST,
    )


def rows(keys: str, v: int = 0) -> list[Row]:
    return [{"id": f"{key}1", "city": "ny", "v": v, "ts": v} for key in keys]


def letters(table: Table) -> set[str]:
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    scanned = Snapshot(store, newest).scan(LettersPartition(table.options))
    return {value.decode() for batch in scanned for value in batch["value"].to_pylist()}


def test_a_partition_of_its_own_is_filled_and_compacted_as_any(table_uri: str) -> None:
    table = made(table_uri)
    assert table.options.buckets["letters"] == 2
    model = Model(is_global=False, ordering=False)
    for given in (rows("abcd"), rows("efgh"), rows("ab", 1)):
        table.upsert(arrow(given))
        model.upsert(given)
    table.delete(arrow(rows("d")))
    model.delete(rows("d"))
    assert letters(table) == {"abc", "efgh"}
    before = table.describe().metadata["letters"]
    table.compact(major=True)
    after = table.describe().metadata["letters"]
    assert (before["hfiles"], after["hfiles"]) == (4, 1)
    assert after["buckets"] == 2
    assert letters(table) == {"abc", "efgh"}
    check(table, model, rows("abcdefghij"))


def test_what_a_dead_writer_left_in_it_is_swept(table_uri: str) -> None:
    made(table_uri, lease_seconds=0.0)
    folder = Path(table_uri, HOME, "letters")
    with dying(table_uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(rows("abcd")), "upsert")
    assert len(list(folder.iterdir())) == 1
    for _ in range(3):
        for lease in Path(table_uri, LEASES).glob("*"):
            os.utime(lease, (0, 0))
        with Transaction.begin(Store(table_uri, FAST)):
            pass
    assert list(folder.glob("*")) == []


def test_buckets_are_given_of_what_the_table_keeps(table_uri: str) -> None:
    with pytest.raises(UsageError, match=r"unknown metadata partition.*lettres.*letters"):
        made(table_uri, buckets={"lettres": 3})
    assert not Path(table_uri).exists()
    assert made(table_uri, buckets={"letters": 3}).options.buckets["letters"] == 3
