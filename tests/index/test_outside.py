"""Entries in a store that is not ours: which of them are believed, at which version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import CorruptError, StaleError, StoreError, Table, UsageError
from metatable.data.columns.schema_text import TableSchema
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.hfiles import entries, entry_files
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.partitions.outside import SEAL, client_for
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import Refused, dying
from tests.index.key_values import WatchedValues, cells, connection, watching
from tests.index.rows import fitting
from tests.model import SCHEMA, Model, Row, arrow, check, check_tags

ROOT = Path(__file__).resolve().parents[2]
FAST = {"durable": "false"}


def rows(first: int, last: int, v: int = 0, city: str = "ny") -> list[Row]:
    return [{"id": f"k{n:02}", "city": city, "v": v, "ts": v} for n in range(first, last)]


PROBE = rows(0, 24) + rows(0, 24, city="sf")


def made(uri: str, scope: str = "global", **options: Any) -> Table:
    small = {"file_rows": 4, "lease_seconds": 0, "key_scope": scope, "record_key_form": "plain"}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="hbase",
        options=fitting("hbase", {**small, **options}),
        storage_options=FAST,
    )


@pytest.fixture
def table(table_uri: str) -> Table:
    return made(table_uri)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> WatchedValues:
    return watching(monkeypatch)


def told(table: Table, model: Model, verb: str, given: list[Row]) -> None:
    getattr(table, verb)(arrow(given))
    (model.delete if verb == "delete" else model.upsert)(given)


def where(table: Table, given: list[Row], version: int | None = None) -> list[Any]:
    """File ids, by row."""
    tagged = table.tag_locations(arrow(given), version)
    return [place and place["file_id"] for place in tagged["_location"].to_pylist()]


def names(table: Table) -> set[bytes]:
    return {cell["name"] for cell in cells(table)}


# What is believed


def test_entries_that_no_version_published_hide_none_that_one_did(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    with dying(table.uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(rows(0, 4, city="sf")), "upsert")
    with Transaction.begin(Store(table.uri, FAST)):  # withdraws it
        check_tags(table, model, PROBE)
    with dying(table.uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(rows(4, 6)), "delete")
    assert len(names(table)) == 3
    check(table, model, PROBE)
    told(table, model, "upsert", rows(2, 5, 1, city="sf"))
    check(table, model, PROBE)


def test_of_two_writers_with_one_instant_one_is_believed(table: Table) -> None:
    """Its nonce is another one: an instant that was given up may be taken by somebody else."""
    table.insert(arrow(rows(0, 2)))
    [name] = names(table)
    assert re.fullmatch(rb"\d{17}-[0-9a-f]{32}", name)
    instant, _, nonce = name.partition(b"-")
    stranger = instant + b"-" + bytes(reversed(nonce))
    store = connection(table)
    lie = json.dumps(["city=ny", "lie"]).encode()
    for key in (b"k00", b"k01", b"k05"):
        store.put_many(pa.array([key]), stranger, pa.array([lie]))
        store.put_many(pa.array([key]), name + b"x", pa.array([lie]))
        store.put_many(pa.array([key]), b"", pa.array([b"no json"]))
    store.close()
    found = where(table, rows(0, 2) + rows(5, 6))
    assert None not in found[:2]
    assert found[2] is None
    assert "lie" not in found
    assert table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.parametrize("small", [0, entries.SMALL_ENTRIES], ids=["asked", "kept"])
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_what_a_commit_moved_deleted_and_brought_back_is_undone_with_it(
    table_uri: str, scope: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "SMALL_ENTRIES", small)
    table, model = made(table_uri, scope), Model(scope == "global", ordering=False)
    told(table, model, "insert", rows(0, 8))
    told(table, model, "upsert", rows(2, 10, 1, city="sf"))
    told(table, model, "delete", rows(4, 9, city="sf"))
    told(table, model, "insert", rows(4, 6, 2, city="sf"))
    check(table, model, PROBE)
    for _ in range(4):
        table.rollback()
        model.rollback()
        check_tags(table, model, PROBE)
    told(table, model, "insert", rows(0, 3, 5))
    check(table, model, PROBE)


def test_a_second_lookup_at_a_version_parses_nothing_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes beside the request is what few keys cost."""
    parsed: list[str] = []

    def noting(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: parsed.append(name) or real(*given))

    for number in range(4):
        table.upsert(arrow(rows(number, number + 3, number)))
    before = where(table, PROBE)
    noting(Manifest, "decode")
    noting(TableSchema, "decode")
    noting(HFileReader, "get_sorted")
    assert where(metatable.open(table.uri), PROBE) == before
    assert parsed == []
    table.upsert(arrow(rows(0, 1, 9, city="sf")))
    assert where(table, PROBE) != before
    cache.clear()  # or its writer has told it the new root
    assert where(table, PROBE) != before
    assert "decode" in parsed


def test_an_older_version_answers_as_long_as_it_is_kept(table: Table) -> None:
    given = rows(0, 6)
    table.insert(arrow(given))
    first, before = table.version, where(table, given)
    table.upsert(arrow(rows(0, 3, 1, city="sf")))
    second, between = table.version, where(table, given)
    table.delete(arrow(rows(1, 5)))
    assert where(table, given, first) == before
    assert where(table, given, second) == between
    assert where(table, given)[1:5] == [None] * 4
    table.rollback()
    with pytest.raises(StaleError, match="undone"):
        where(table, given, second + 1)
    assert where(table, given, first) == before
    assert where(table, given, second) == between == where(table, given)


def test_a_version_that_is_cleaned_while_it_is_asked_is_no_answer(
    table: Table, watched: WatchedValues
) -> None:
    given = rows(0, 6)
    table.insert(arrow(given))
    version = table.version
    table.upsert(arrow(rows(0, 3, 1, city="sf")))

    def clean(verb: str, number: int) -> None:
        watched.before = None
        metatable.open(table.uri).clean(versions=1, hours=0)

    watched.before = clean
    with pytest.raises(StaleError, match="not kept any more"):
        where(table, given, version)


# Kills


Step = tuple[str, list[Row]]
HISTORIES: dict[str, tuple[list[Step], Step]] = {
    "insert": ([], ("insert", rows(0, 8))),
    "move": ([("insert", rows(0, 8))], ("upsert", rows(2, 10, 1, city="sf"))),
    "delete": ([("insert", rows(0, 8))], ("delete", rows(2, 6))),
    "re-insert": (
        [("insert", rows(0, 8)), ("delete", rows(2, 6))],
        ("insert", rows(2, 5, 2, "sf")),
    ),
}


@pytest.mark.each_once
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_a_kill_at_any_request_of_the_store_leaves_the_old_version_whole(
    tmp_path: Path, watched: WatchedValues, history: str, scope: str
) -> None:
    before, (verb, given) = HISTORIES[history]
    origin = made(str(tmp_path / "origin"), scope)
    model = Model(scope == "global", ordering=False)
    for step in before:
        told(origin, model, *step)
    watched.calls.clear()
    dry = _copied(origin, tmp_path / "dry")
    getattr(dry, verb)(arrow(given))
    count = len(watched.calls)
    assert {verb for verb, _ in watched.calls} == {"put_many"} | ({"get_many"} if before else set())
    for limit in range(count):
        table, dead = _copied(origin, tmp_path / f"killed {limit}"), model_of(model)
        watched.calls.clear()
        watched.limit = limit
        with pytest.raises(Refused):
            getattr(table, verb)(arrow(given))
        watched.limit = None
        check_tags(table, dead, PROBE)
        told(table, dead, verb, given)
        check(table, dead, PROBE)


def model_of(model: Model) -> Model:
    return Model(model.is_global, model.ordering, dict(model.rows), list(model.commits))


def _copied(table: Table, to: Path) -> Table:
    shutil.copytree(table.uri, to)
    return metatable.open(str(to), FAST)


@pytest.mark.parametrize("limit", range(3))
def test_a_store_that_does_not_answer_is_asked_again_and_then_told_of(
    table: Table, watched: WatchedValues, limit: int
) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    watched.calls.clear()
    watched.error, watched.limit = (
        lambda text: StoreError("HBase did not answer", found=text),
        limit,
    )
    with pytest.raises(StoreError, match=r"not published.*repeat the call.*tries=5"):
        table.upsert(arrow(rows(4, 12, 1, city="sf")))
    watched.limit = None
    check(table, model, PROBE)
    told(table, model, "upsert", rows(4, 12, 1, city="sf"))
    check(table, model, PROBE)


def test_entries_are_put_as_they_come_in_pieces(
    table_uri: str, watched: WatchedValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_files, "STEP_BYTES", 200)
    table, model = made(table_uri, buckets={"outside": 1}), Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 20))
    puts = [keys for verb, keys in watched.calls if verb == "put_many"]
    assert sum(puts) == 20 + 1
    assert max(puts) < 12
    check(table, model, PROBE)


# A store that is not what it was


def test_a_store_that_was_emptied_is_no_store_without_keys(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    _drop(table, lambda cell: True)
    for verb in ("upsert", "insert", "delete"):
        with pytest.raises(CorruptError, match=r"lacks the last commit.*repair.*table="):
            getattr(table, verb)(arrow(rows(0, 2)))
    found = table.verify()
    assert found.finding_counts == {"entries": 2, "entry-count": 1}
    assert table.repair(dry_run=False).unmended == ()
    check(table, model, PROBE)


@pytest.mark.skipif(os.name == "nt", reason="a file that is open stays there")
def test_a_table_that_is_made_again_with_its_file_finds_its_keys(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    place = {"hbase_table": "t", "hbase_address": f"sqlite:{tmp_path / 'k.db'}"}
    made(uri, **place).insert(arrow(rows(0, 8)))
    shutil.rmtree(uri)
    for one in tmp_path.glob("k.db*"):
        one.unlink()
    table = made(uri, **place)
    table.insert(arrow(rows(0, 24)))
    client_for(table.options).close_idle()  # as the end of the process does
    assert None not in where(table, rows(0, 24))


def test_a_store_that_lacks_the_last_commit_alone_is_refused(table: Table) -> None:
    """As one is that was restored from a copy."""
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    [first] = names(table)
    told(table, model, "insert", rows(8, 12))
    _drop(table, lambda cell: cell["name"] != first)
    with pytest.raises(CorruptError, match="lacks the last commit"):
        where(table, rows(0, 2))
    assert table.repair(dry_run=False).unmended == ()
    told(table, model, "upsert", rows(6, 14, 1, city="sf"))
    check(table, model, PROBE)


def test_what_is_missing_wrong_and_too_much_is_found_and_mended(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    told(table, model, "delete", rows(6, 8))
    assert table.verify().findings == ()
    first, second = sorted(names(table))
    _drop(table, lambda cell: cell["key"] in (b"k00", b"k07") and cell["name"] in (first, second))
    store = connection(table)
    elsewhere = json.dumps(["city=sf", "nowhere"]).encode()
    store.put_many(pa.array([b"k01"]), first, pa.array([elsewhere]))
    store.put_many(pa.array([b"k07", b"k20"]), second, pa.array([elsewhere] * 2))
    store.close()
    with pytest.raises(CorruptError, match="not there"):
        where(table, rows(1, 2))
    for wrong in (b'["\\ud800", "x"]', b"[" * 100_000, b"5", b"\xff", b"[1]"):
        store = connection(table)
        store.put_many(pa.array([b"k02"]), first, pa.array([wrong]))
        store.close()
        with pytest.raises(CorruptError, match="damaged"):
            where(table, rows(2, 3))
    assert table.verify().finding_counts.keys() == {"entries", "entry-count"}
    assert table.repair(dry_run=False).unmended == ()
    check(table, model, PROBE)
    told(table, model, "upsert", rows(0, 3, 1, city="sf"))
    assert table.repair(dry_run=False).findings == ()
    check(table, model, PROBE)


def _drop(table: Table, chosen: Callable[[dict[str, Any]], bool]) -> None:
    """Cells, the seals among them."""
    store = connection(table)
    for batch in [*store.scan(b"", None)]:
        gone = [cell for cell in batch.to_pylist() if chosen(cell)]
        keys, named = ([cell[word] for cell in gone] for word in ("key", "name"))
        store.delete_many(pa.array(keys, pa.binary()), pa.array(named, pa.binary()))
    store.close()


def test_a_seal_is_no_key(table: Table) -> None:
    table.insert(arrow(rows(0, 2)))
    store = connection(table)
    sealed = [key for batch in store.scan(SEAL, None) for key in batch["key"].to_pylist()]
    store.close()
    assert len(sealed) == 1
    assert table.verify().entries == 2


# How a table comes to it


def test_a_table_of_ours_gets_it_and_loses_it_again(table_uri: str) -> None:
    table = metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        options={"file_rows": 4, "key_scope": "global"},
        storage_options=FAST,
    )
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    place = fitting("hbase", {})
    for _ in range(2):
        version = table.version
        metatable.adopt(table_uri, index="hbase", options=place)
        assert table.version == version + 1
        told(table, model, "upsert", rows(2, 5, table.version, ("ny", "sf")[table.version % 2]))
        check(table, model, PROBE)
        metatable.adopt(table_uri, index="record")
        told(table, model, "upsert", rows(1, 4, table.version, ("ny", "sf")[table.version % 2]))
        check(table, model, PROBE)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "hbase_table"),
        ({"hbase_table": "t"}, "hbase_address"),
        ({"hbase_table": "a b", "hbase_address": "localhost:9090"}, "hbase_table"),
        ({"hbase_table": 't"; drop', "hbase_address": "sqlite:/x"}, "hbase_table"),
        ({"hbase_table": "t", "hbase_address": "http://here"}, "hbase_address"),
        ({"hbase_table": "t", "hbase_address": "sqlite:"}, "hbase_address"),
        ({"hbase_table": "t", "hbase_address": "x", "hbase_requests_per_second": -1}, "per_second"),
    ],
)
def test_a_place_that_is_none_is_refused(
    table_uri: str, options: dict[str, Any], option: str
) -> None:
    with pytest.raises(UsageError, match=option):
        metatable.create(table_uri, SCHEMA, key="id", index="hbase", options=options)


def test_a_table_without_it_loads_nothing_of_it(tmp_path: Path) -> None:
    code = f"""
import sys, metatable, pyarrow as pa
table = metatable.create({str(tmp_path / "t")!r}, pa.schema([("id", pa.string())]), key="id")
table.insert(pa.table({{"id": ["a"]}}))
assert table.tag_locations(pa.table({{"id": ["a"]}}))["_location"].null_count == 0
print(*sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"sqlite3", "happybase", "thriftpy2"} & set(ran.stdout.split()) == set()


def test_explain_tells_what_the_store_was_asked(table: Table) -> None:
    table.insert(arrow(rows(0, 20)))
    explained = table.explain(arrow(rows(0, 24)))
    counted = explained.counters
    assert re.search(
        r"key-value batches +1\n.*requests +1 +[\d.]+ kB\n.*retries +0\n", repr(explained)
    )
    assert (counted["kv.batches"], counted["kv.requests"]) == (1, 1)
    assert "kv.retries" not in counted
    assert counted["kv.bytes_read"] > 20 * 50
    assert table.upsert(arrow(rows(18, 24))).counters["kv.bytes_written"] > 4 * 50


def test_what_a_lost_race_has_put_is_believed_by_nobody(
    table: Table, between: Callable[[Any], None]
) -> None:
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 4))
    between(lambda: told(table, model, "upsert", rows(2, 6, 1, city="sf")))
    store = Store(table.uri, FAST)
    result = write(store, LocalEngine(1), arrow(rows(3, 8, 2)), "upsert")
    model.upsert(rows(3, 8, 2))
    assert result.attempts == 2
    assert len(names(table)) == 4
    check(table, model, PROBE)


def test_what_others_insert_and_delete_meanwhile_hides_no_key_that_is_put(
    table_uri: str, between: Callable[[Any], None]
) -> None:
    """Their cells have the greater names."""
    table = made(table_uri, small_file_bytes=0, lease_seconds=60)  # no other conflict comes first
    model = Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 4))

    def others() -> None:
        told(table, model, "insert", rows(6, 8))
        told(table, model, "delete", rows(6, 8))

    between(others)
    result = write(Store(table.uri, FAST), LocalEngine(1), arrow(rows(6, 9, 2)), "insert")
    model.upsert(rows(6, 9, 2))
    assert result.attempts == 2
    check(table, model, PROBE)
