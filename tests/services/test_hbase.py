"""A table whose keys are in a real HBase, which is killed while a commit is under way."""

from __future__ import annotations

import importlib.util
import os
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import StoreError, Table
from metatable.storage.counters import Counters
from metatable.storage.key_values import KeyValues, client
from metatable.storage.key_values import hbase as hbase_values
from metatable.storage.key_values.hbase import HBaseValues
from metatable.storage.together import at_once
from tests.conftest import Servers
from tests.index.index_contract import HistoryContract
from tests.index.key_values import WatchedValues, cells, connection, watching
from tests.index.test_outside import FAST, PROBE, rows, told
from tests.long import LONG
from tests.model import SCHEMA, Model, Row, arrow, check, check_tags
from tests.services.hbase_server import HBaseServer
from tests.services.servers import free_port
from tests.storage.test_key_values import StoreContract


@pytest.fixture(scope="session")
def hbase(servers: Servers) -> HBaseServer:
    if importlib.util.find_spec("happybase") is None:
        text = "happybase is not installed: pip install 'metatable[hbase]'"
        if os.environ.get("METATABLE_SERVICES") == "required":
            pytest.fail(text)
        pytest.skip(text)
    return servers.get(HBaseServer)


def place(hbase: HBaseServer) -> dict[str, Any]:
    """Options for a table of its own."""
    return {"hbase_table": f"t_{uuid.uuid4().hex}", "hbase_address": hbase.address}


def made(uri: str, hbase: HBaseServer, **options: Any) -> Table:
    small = {"file_rows": 4, "lease_seconds": 0, "key_scope": "global"}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="hbase",
        options={**small, **place(hbase), **options},
        storage_options=FAST,
    )


class TestHBaseValues(StoreContract):
    @pytest.fixture
    def store(self, hbase: HBaseServer) -> Iterator[KeyValues]:
        store = HBaseValues(hbase.address, f"t_{uuid.uuid4().hex}")
        yield store
        store.close()

    def test_its_table_is_made_for_lookups(self, hbase: HBaseServer) -> None:
        name = f"t_{uuid.uuid4().hex}"
        store = HBaseValues(hbase.address, name)
        store.put_many(pa.array([b"a"]), b"n", pa.array([b"1"]))
        [family] = store._client.getColumnDescriptors(name.encode()).values()
        assert (family.maxVersions, family.bloomFilterType) == (1, b"ROW")
        assert family.blockCacheEnabled
        store.close()

    def test_tasks_that_all_make_its_table_need_not_ask_again(self, hbase: HBaseServer) -> None:
        name = f"t_{uuid.uuid4().hex}"

        def put(number: int) -> None:
            store = HBaseValues(hbase.address, name)
            store.put_many(pa.array([b"%d" % number]), b"n", pa.array([b"1"]))
            store.close()

        at_once([partial(put, number) for number in range(4)])
        store = HBaseValues(hbase.address, name)
        assert len(store.get_many(pa.array([b"%d" % number for number in range(4)]))) == 4
        store.close()


class TestHistoriesOnHBase(HistoryContract):
    """`made` of the contract has options for SQLite: the address is HBase's here."""

    steps = 6

    @pytest.fixture(scope="class", params=[("hbase", "global")], ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> tuple[str, str]:
        return request.param

    @pytest.fixture(autouse=True)
    def _place(self, hbase: HBaseServer) -> None:
        self.hbase = hbase

    def made(self, uri: str, kind: tuple[str, str], **options: Any) -> Table:
        return super().made(uri, kind, **place(self.hbase), **options)


def test_a_table_without_a_gateway_is_told_so(table_uri: str) -> None:
    pytest.importorskip("happybase", reason="happybase is not installed")
    address = f"127.0.0.1:{free_port()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "FIRST_PAUSE_S", 0.0)
        store = client.Client(lambda: client.connect(address, "t"))
        with pytest.raises(StoreError, match=rf"did not answer.*Start the store.*{address}"):
            store.get_many(pa.array([b"a"]), Counters())


def test_a_table_is_adopted_into_regions_that_were_made_before(
    table_uri: str, hbase: HBaseServer
) -> None:
    """And mended there: a request goes to each region."""
    given, model = rows(0, 80), Model(is_global=True, ordering=False)
    outside = place(hbase)
    hbase.make_table(outside["hbase_table"], regions=4)
    table = metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options={"file_rows": 40},
        storage_options=FAST,
    )
    told(table, model, "insert", given)
    metatable.adopt(table_uri, index="hbase", options=outside)
    check(table, model, PROBE)
    assert table.explain(arrow(given)).counters["kv.batches"] == 4
    store = connection(table)
    assert len(store.regions()) == 4
    gone = pa.array([cell["key"] for cell in cells(table)[::20]], pa.binary())
    store.delete_many(gone, pa.array([cells(table)[0]["name"]] * len(gone), pa.binary()))
    store.close()
    assert table.verify().finding_counts.keys() == {"entries", "entry-count"}
    assert table.repair(dry_run=False).unmended == ()
    check(table, model, PROBE)


@pytest.mark.skipif(not LONG, reason="a session of its own: METATABLE_LONG=1")
def test_workers_of_spark_ask_by_connections_that_stay(
    spark: Any, table_uri: str, hbase: HBaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = made(table_uri, hbase, file_rows=400), Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    monkeypatch.setattr(client, "_clients", {})
    monkeypatch.setattr(client, "connect", refused)  # of this process: workers have their own

    def frame(given: list[Row]) -> Any:
        return spark.createDataFrame(arrow(given)).repartition(TASKS)

    for given in (rows(0, 400), rows(300, 500, 1, city="sf")):
        written = table.upsert(frame(given))
        model.upsert(given)
        assert written.counters["kv.requests"] >= written.counters["kv.batches"] > 1
        assert written.counters["kv.bytes_written"] > len(given) * 50
    monkeypatch.undo()
    check(table, model, PROBE)

    opened = []

    while not opened or (opened[-1] and len(opened) < 8):
        asked = table.explain(frame(rows(250, 550)))
        assert asked.found == 250
        assert asked.counters["kv.batches"] >= TASKS
        assert asked.counters["kv.bytes_read"] > 250 * 50
        opened.append(asked.counters.get("kv.connections", 0))
    assert opened[-1] == 0, f"each call opened connections for its tasks: {opened}"

    hbase.start_gateway()
    asked = table.explain(frame(rows(250, 550)))
    assert asked.found == 250
    assert asked.counters["kv.connections"] >= asked.counters["kv.retries"] > 0
    assert asked.counters["kv.requests"] > asked.counters["kv.batches"]


TASKS = 4


def refused(*place: str) -> KeyValues:
    raise AssertionError(f"a connection of the driver: {place}")


def impatient(monkeypatch: pytest.MonkeyPatch) -> WatchedValues:
    """Whoever waits for a dead HBase gives up soon; `patient` again when it is back."""
    monkeypatch.setattr(hbase_values, "TIMEOUT_S", 2)
    monkeypatch.setattr(client, "TRIES", 2)
    monkeypatch.setattr(client, "BATCH_KEYS", 3)
    monkeypatch.setattr(client, "IN_FLIGHT", 1)
    return watching(monkeypatch)


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hbase_values, "TIMEOUT_S", 60)
    monkeypatch.setattr(client, "TRIES", 8)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.25)
    monkeypatch.setattr(client, "_clients", {})


def test_hbase_killed_in_the_middle_of_a_commit_gives_no_wrong_location(
    table_uri: str, hbase: HBaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = made(table_uri, hbase), Model(is_global=True, ordering=False)
    told(table, model, "insert", rows(0, 8))
    told(table, model, "upsert", rows(6, 10, 1, city="sf"))
    before, puts, watched = len(cells(table)), 0, impatient(monkeypatch)

    def kill(verb: str, number: int) -> None:
        nonlocal puts
        puts += verb == "put_many"
        if puts == 2:
            hbase.kill()

    watched.before = kill
    given = rows(2, 14, 2, city="la")
    with pytest.raises(StoreError, match=r"not published.*Start the store again.*repeat the call"):
        table.upsert(arrow(given))
    watched.before = None
    with pytest.raises(StoreError, match="HBase did not answer"):
        check_tags(table, model, PROBE)
    hbase.stop()
    hbase.start(again=True)
    patient(monkeypatch)
    assert len(cells(table)) > before, "it was killed before the first put"
    check(table, model, PROBE)
    told(table, model, "upsert", given)
    check(table, model, PROBE)
    table.rollback()
    model.rollback()
    check_tags(table, model, PROBE)
    assert table.clean(versions=1, hours=0).counters["kv.cells_dropped"] > 12
    check(table, model, PROBE)
