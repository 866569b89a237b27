"""What clean leaves in a store outside: all that some kept version believes, and what a living
writer has put."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import StaleError, Table
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.partitions.outside import SEAL
from metatable.storage.counters import Counters
from metatable.storage.key_values import client
from metatable.storage.store import Store
from metatable.write.change_index import change_index
from metatable.write.commit_pass import write
from tests.faults import Refused, dying, watched
from tests.index.key_values import cells, connection, watching
from tests.index.test_outside import FAST, PROBE, made, rows, told, where
from tests.long import LONG
from tests.model import Model, arrow, check, check_tags


@pytest.fixture
def table(table_uri: str) -> Table:
    return made(table_uri)


def by_key(table: Table) -> Counter[bytes]:
    return Counter(cell["key"] for cell in cells(table))


def seals(table: Table) -> int:
    """How many commits and services are said to have been here."""
    asked = client.Client(lambda: connection(table))
    held = [key for batch in asked.scan(Counters()) for key in batch["key"].to_pylist()]
    return sum(key.startswith(SEAL) for key in held)


def grown(table: Table) -> Model:
    """Eight keys, some moved twice, some deleted; a dead writer's and an undone commit's cells."""
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    told(table, model, "upsert", rows(0, 4, 1, city="sf"))
    told(table, model, "upsert", rows(1, 6, 2, city="la"))
    told(table, model, "delete", rows(5, 7))
    with dying(table.uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(rows(2, 14, 3, city="ny")), "upsert")
    told(table, model, "insert", rows(20, 22))
    table.rollback()
    model.rollback()
    return model


def test_of_what_nobody_needs_nothing_is_left(table: Table) -> None:
    model = grown(table)
    assert sum(by_key(table).values()) > 30
    cleaned = table.clean(versions=1, hours=0)
    assert cleaned.counters["kv.cells_dropped"] > 20
    check(table, model, PROBE)
    assert by_key(table) == dict.fromkeys([b"k%02d" % n for n in range(8)], 1)
    told(table, model, "upsert", rows(0, 1, 4, city="la"))
    assert table.clean(versions=1, hours=0).counters["kv.cells_dropped"] == 3
    check(table, model, PROBE)
    there = {row["id"].encode() for row in model.rows.values()}
    assert by_key(table) == dict.fromkeys(there, 1), "deletions go last"


def test_what_a_kept_version_believes_stays(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    given = rows(0, 8)
    told(table, model, "insert", given)
    saved, answer = table.version, where(table, given)
    table.savepoint("first")
    for turn in range(4):
        told(table, model, "upsert", rows(turn, turn + 3, turn, city="s" + "f" * (turn % 2)))
        told(table, model, "delete", rows(6, 8, city="ny"))
        told(table, model, "insert", rows(6, 8, turn, city="ny"))
    kept = {}
    for version in range(table.version - 3, table.version + 1):
        kept[version] = where(table, given, version)
    table.clean(versions=3, hours=0)
    told_of = {one.version: one.operation for one in table.history()}
    asked = kept.keys() & told_of.keys()
    assert sum(told_of[version] != "compact" for version in asked) == 3
    for version in asked:
        assert where(table, given, version) == kept[version]
    assert where(table, given, saved) == answer
    table.rollback()
    table.rollback()
    model.rollback()
    model.rollback()
    check(table, model, PROBE)
    table.restore(savepoint="first")
    assert where(table, given) == answer
    assert table.verify().findings == ()


def test_what_a_living_writer_has_put_stays(table_uri: str) -> None:
    table = made(table_uri, lease_seconds=60)
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    told(table, model, "upsert", rows(0, 2, 1, city="sf"))
    slept: list[Any] = []

    def sleep(verb: str, path: str) -> None:
        if not slept and re.fullmatch(r"create .*/manifest/\d+\.json", f"{verb} {path}"):
            slept.append(metatable.open(table_uri).clean(versions=1, hours=0))

    store, _ = watched(table_uri, before=sleep)
    given = rows(4, 12, 2, city="sf")
    assert write(store, LocalEngine(1), arrow(given), "upsert").attempts == 1
    model.upsert(given)
    assert slept[0].counters["kv.cells_dropped"] == 2
    check(table, model, PROBE)


def test_what_an_index_of_before_needs_stays(table: Table) -> None:
    """Changed to another one and back, while versions of then are kept."""
    given, model = rows(0, 8), Model(is_global=True, ordering=False)
    told(table, model, "insert", given)
    told(table, model, "upsert", rows(0, 4, 1, city="sf"))
    version, answer = table.version, where(table, given)
    metatable.adopt(table.uri, index="record")
    told(table, model, "upsert", rows(2, 6, 2, city="la"))
    metatable.adopt(table.uri, index="hbase")
    told(table, model, "delete", rows(0, 2))
    check(table, model, PROBE)
    table.clean(versions=4, hours=0)
    assert where(table, given, version) == answer
    check(table, model, PROBE)
    table.clean(versions=1, hours=0)
    with pytest.raises(StaleError):
        where(table, given, version)
    check(table, model, PROBE)
    assert set(by_key(table).values()) == {1}


def test_cells_of_an_index_that_was_given_up_go(table: Table) -> None:
    """Changed to another one and back twice: what the first changes have put nobody needs."""
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    for first in (0, 2):
        metatable.adopt(table.uri, index="record")
        told(table, model, "delete", rows(first, first + 2))
        metatable.adopt(table.uri, index="hbase")
    table.clean(versions=1, hours=0)
    check(table, model, PROBE)
    assert by_key(table) == dict.fromkeys([b"k%02d" % n for n in range(4, 8)], 1)
    assert seals(table) == 1


def test_cells_of_an_index_stay_for_a_version_between(table: Table) -> None:
    """Neither the oldest nor the newest kept version believes what a service has put; one between
    them does."""
    given, model = rows(0, 8), Model(is_global=True, ordering=False)
    told(table, model, "insert", given)
    metatable.adopt(table.uri, index="record")
    told(table, model, "delete", rows(0, 2))
    oldest = table.version
    metatable.adopt(table.uri, index="hbase")
    version, answer = metatable.open(table.uri).version, where(table, given)
    metatable.adopt(table.uri, index="record")
    told(table, model, "delete", rows(2, 4))
    metatable.adopt(table.uri, index="hbase")
    table.clean(versions=metatable.open(table.uri).version - oldest, hours=0)
    assert where(table, given, oldest) == where(table, given, version) == answer
    check(table, model, PROBE)


def test_cells_of_a_service_that_died_go_with_its_lease(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    metatable.adopt(table.uri, index="record")
    with dying(table.uri, r"create .*/manifest/\d+\.json") as store:
        change_index(store, LocalEngine(1), "hbase", {})
    told(table, model, "delete", rows(0, 2))
    metatable.adopt(table.uri, index="hbase")
    table.clean(versions=1, hours=0)
    assert by_key(table)[b"k00"] == 1, "while there is a lease"
    told(table, model, "upsert", rows(7, 8, 1))
    table.clean(versions=1, hours=0)
    check(table, model, PROBE)
    assert by_key(table) == dict.fromkeys([b"k%02d" % n for n in range(2, 8)], 1)
    assert seals(table) == 1


def test_a_clean_that_is_killed_anywhere_leaves_what_is_needed(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = grown(table)
    with Transaction.begin(Store(table.uri, FAST)):
        pass
    held = [tuple(cell.values()) for cell in cells(table)]
    values = watching(monkeypatch)
    monkeypatch.setattr("metatable.storage.key_values.client.BATCH_KEYS", 5)
    killed = 0
    while True:
        uri = str(tmp_path / f"killed {killed}")
        shutil.copytree(table.uri, uri)
        one = metatable.open(uri, FAST)
        values.calls.clear()
        values.limit = killed
        try:
            one.clean(versions=1, hours=0)
            break
        except Refused:
            killed += 1 if LONG else 3
        values.limit = None
        check_tags(one, model, PROBE)
        one.clean(versions=1, hours=0)
        check(one, model, PROBE)
        _put_back(table, held)
    assert killed > 5


def _put_back(table: Table, held: list[tuple[bytes, bytes, bytes]]) -> None:
    store = connection(table)
    for key, name, value in held:
        store.put_many(pa.array([key]), name, pa.array([value]))
    store.close()
