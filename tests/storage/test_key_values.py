"""The client of key-value stores: what it sends, how often, and what it does without an answer.

`StoreContract` is what every store answers; one of HBase is asked in tests/services.
"""

from __future__ import annotations

import os
import pickle
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from metatable.storage import clock
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, StoreError
from metatable.storage.key_values import CELLS, Client, client, client_of, pool, sqlite
from metatable.storage.key_values.protocol import KeyValues
from metatable.storage.key_values.sqlite import SqliteValues
from metatable.storage.together import at_once

Cell = tuple[bytes, bytes, bytes]


def binary(*texts: bytes) -> pa.Array:
    return pa.array(texts, pa.binary())


def told(cells: pa.RecordBatch | pa.Table) -> list[Cell]:
    assert cells.schema.equals(CELLS)
    return sorted(tuple(row.values()) for row in cells.to_pylist())  # type: ignore[misc]


class Memory:
    """A store in a dict, with regions, that says no `refusals` times before it answers."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[bytes, bytes]] = {}
        self.starts = [b""]
        self.asked: list[list[bytes]] = []
        self.connections = self.closed = self.now = self.most = self.refusals = 0
        self.lock = threading.Lock()

    def connect(self) -> KeyValues:
        self.connections += 1
        return self

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        with self.lock:
            self.asked.append(keys.to_pylist())
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            clock.pause(0.001)
            self._answer()
            return _cells(self.rows, keys.to_pylist())
        finally:
            with self.lock:
                self.now -= 1

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        self._answer()
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            self.rows.setdefault(key, {})[name] = value

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        self._answer()
        for key, name in zip(keys.to_pylist(), names.to_pylist(), strict=True):
            self.rows.get(key, {}).pop(name, None)

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        inside = [key for key in sorted(self.rows) if key >= first and (end is None or key < end)]
        for key in inside:
            self._answer()
            yield _cells(self.rows, [key])

    def regions(self) -> list[bytes]:
        return self.starts

    def close(self) -> None:
        self.closed += 1

    def _answer(self) -> None:
        with self.lock:
            if self.refusals:
                self.refusals -= 1
                raise StoreError("it did not answer", found="nothing")


def _cells(rows: dict[bytes, dict[bytes, bytes]], keys: list[bytes]) -> pa.RecordBatch:
    found = [(key, name, value) for key in keys for name, value in rows.get(key, {}).items()]
    columns = zip(*found, strict=True) if found else ((), (), ())
    return pa.RecordBatch.from_arrays([pa.array(one, pa.binary()) for one in columns], schema=CELLS)


class StoreContract:
    """What every store is asked."""

    @pytest.fixture
    def store(self) -> KeyValues:
        raise NotImplementedError

    def test_a_row_has_a_cell_for_each_name(self, store: KeyValues) -> None:
        keys = binary(b"a", b"\x00\xff", b"b" * 300)
        store.put_many(keys, b"one", binary(b"1", b"", b"3"))
        store.put_many(keys[:1], b"two", binary(b"2"))
        store.put_many(keys[:1], b"two", binary(b"2"))
        assert told(store.get_many(keys)) == [
            (b"\x00\xff", b"one", b""),
            (b"a", b"one", b"1"),
            (b"a", b"two", b"2"),
            (b"b" * 300, b"one", b"3"),
        ]
        assert told(store.get_many(binary(b"b", b"c"))) == []
        assert told(store.get_many(binary())) == []

    def test_a_store_that_nobody_has_written_to_answers(self, store: KeyValues) -> None:
        keys = [f"{number:05}".encode() for number in range(3000)]
        assert told(store.get_many(binary(*keys))) == []
        store.put_many(binary(*keys), b"one", binary(*keys))
        assert len(store.get_many(binary(*keys))) == 3000

    def test_a_cell_goes_alone(self, store: KeyValues) -> None:
        for name in (b"one", b"two"):
            store.put_many(binary(b"a", b"b"), name, binary(b"1", b"1"))
        store.delete_many(binary(b"a", b"b", b"c"), binary(b"one", b"two", b"one"))
        left = [(b"a", b"two", b"1"), (b"b", b"one", b"1")]
        assert told(store.get_many(binary(b"a", b"b", b"c"))) == left

    def test_a_scan_gives_whole_rows_in_order(self, store: KeyValues) -> None:
        keys = [f"{number:05}".encode() for number in range(9000)]
        for start in range(0, 9000, 3000):
            some = binary(*keys[start : start + 3000])
            store.put_many(some, b"one", some)
        store.put_many(binary(*keys[:5000]), b"two", binary(*keys[:5000]))
        batches = [batch["key"].to_pylist() for batch in store.scan(b"", None)]
        found = [key for batch in batches for key in batch]
        assert found == sorted([*keys, *keys[:5000]])
        assert sum(len(set(batch)) for batch in batches) == 9000
        [some] = [batch["key"].to_pylist() for batch in store.scan(keys[7000], keys[7003])]
        assert some == keys[7000:7003]
        assert [*store.scan(b"x", None)] == []

    def test_regions_begin_with_nothing(self, store: KeyValues) -> None:
        assert store.regions()[0] == b""


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> KeyValues:
        return SqliteValues(str(tmp_path / "file"), "entries")

    def test_a_file_of_others_is_damage(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"no database" * 1000)
        with pytest.raises(CorruptError, match=r"not a file of SQLite.*path="):
            SqliteValues(str(tmp_path / "file"), "entries")

    def test_a_folder_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="unable to open"):
            SqliteValues(str(tmp_path / "no" / "file"), "entries")

    def test_tables_of_one_file_are_apart(self, tmp_path: Path) -> None:
        one, two = (SqliteValues(str(tmp_path / "file"), name) for name in ("a.b-c", "ns:t"))
        one.put_many(binary(b"a"), b"one", binary(b"1"))
        assert told(two.get_many(binary(b"a"))) == []


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; how long they would have."""
    waited: list[float] = []
    monkeypatch.setattr(clock, "pause", waited.append)
    return waited


def filled(memory: Memory, count: int) -> list[bytes]:
    keys = [f"{number:05}".encode() for number in range(count)]
    memory.rows = {key: {b"n": b"v" + key} for key in keys}
    return keys


@pytest.mark.parametrize("value", [5, 1.5, None])
def test_cells_that_are_no_bytes_are_damage(tmp_path: Path, value: object) -> None:
    store = SqliteValues(str(tmp_path / "cells"), "t")
    store.put_many(pa.array([b"k"]), b"n", pa.array([b"v"]))
    with closing(sqlite3.connect(tmp_path / "cells")) as behind, behind:
        behind.execute("UPDATE t SET value = ?", [value])
    for ask in (lambda: store.get_many(pa.array([b"k"])), lambda: list(store.scan(b"", None))):
        with pytest.raises(CorruptError, match=r"other things than bytes.*path="):
            ask()
    store.close()


def test_tables_of_names_that_differ_in_letter_case_are_two(tmp_path: Path) -> None:
    for name in ("Trips", "trips", "ns:tRIPS"):
        with closing(SqliteValues(str(tmp_path / "cells"), name)) as store:
            store.put_many(pa.array([b"k"]), b"n", pa.array([name.encode()]))
    for name in ("Trips", "trips", "ns:tRIPS"):
        with closing(SqliteValues(str(tmp_path / "cells"), name)) as store:
            assert store.get_many(pa.array([b"k"]))["value"].to_pylist() == [name.encode()]


def test_a_table_that_an_earlier_release_made_is_found(tmp_path: Path) -> None:
    with closing(SqliteValues(str(tmp_path / "cells"), "Trips")) as store:
        store.put_many(pa.array([b"k"]), b"n", pa.array([b"v"]))
    with closing(sqlite3.connect(tmp_path / "cells")) as behind, behind:
        behind.execute('ALTER TABLE "^trips" RENAME TO "Trips"')
    for _ in range(2):
        with closing(SqliteValues(str(tmp_path / "cells"), "Trips")) as store:
            assert store.get_many(pa.array([b"k"]))["value"].to_pylist() == [b"v"]


ON_A_FILE: dict[str, Callable[[Client, pa.Array], object]] = {
    "get": lambda asked, keys: asked.get_many(keys, Counters()),
    "put": lambda asked, keys: asked.put_many(keys, b"more", keys, Counters()),
    "delete": lambda asked, keys: asked.delete_many(keys, binary(b"n", b"n"), Counters()),
    "scan": lambda asked, keys: pa.Table.from_batches(asked.scan(Counters()), CELLS),
}


@pytest.mark.skipif(os.name == "nt", reason="a file that is open stays there")
@pytest.mark.parametrize("verb", ON_A_FILE)
def test_a_file_that_was_deleted_and_made_again_is_opened_anew(
    tmp_path: Path, pauses: list[float], verb: str
) -> None:
    path, keys, counters = tmp_path / "cells", binary(b"a", b"b"), Counters()
    asked = Client(lambda: SqliteValues(str(path), "t"))
    asked.put_many(keys, b"old", keys, counters)
    for one in [asked._pool.take(counters) for _ in range(3)]:
        asked._pool.give_back(one)
    _delete_all(tmp_path)
    with closing(SqliteValues(str(path), "t")) as other:
        other.put_many(keys, b"n", keys)
        given = ON_A_FILE[verb](asked, keys)
        names = {"put": [b"more", b"n"], "delete": []}.get(verb, [b"n"])
        assert told(other.get_many(keys)) == [
            (key, name, key) for key in (b"a", b"b") for name in names
        ]
        if isinstance(given, pa.Table):
            assert told(given) == told(other.get_many(keys))


def test_a_relative_path_is_one_to_the_folder_in_which_the_process_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook, after %cd: an empty file was made in the other folder."""
    address = f"sqlite:{tmp_path.name}.db"
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    monkeypatch.chdir(before)
    client = client_of(address, "t", 0.0)
    client.put_many(pa.array([b"k"]), b"n", pa.array([b"v"]), Counters())
    client.close_idle()
    monkeypatch.chdir(after)
    found = client_of(address, "t", 0.0).get_many(pa.array([b"k"]), Counters())
    assert found["value"].to_pylist() == [b"v"]
    assert list(after.iterdir()) == []


def test_a_relative_path_through_a_link_is_where_the_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "other" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep)
    monkeypatch.chdir(tmp_path)
    client = client_of(f"sqlite:link/../{tmp_path.name}.db", "t", 0.0)
    client.put_many(pa.array([b"k"]), b"n", pa.array([b"v"]), Counters())
    client.close_idle()
    assert (tmp_path / "other" / f"{tmp_path.name}.db").is_file()


def test_without_a_folder_a_relative_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreError, match="expected='an absolute path'"):
        client_of(f"sqlite:{tmp_path.name}.db", "t", 0.0)
    client_of(f"sqlite:{tmp_path}/there.db", "t", 0.0)


@pytest.mark.skipif(os.name == "nt", reason="a file that is open stays there")
def test_what_goes_with_its_file_while_it_is_put_is_put_again(
    tmp_path: Path, pauses: list[float]
) -> None:
    path, key, left = tmp_path / "cells", binary(b"a"), [1]

    def connected() -> SqliteValues:
        store = SqliteValues(str(path), "t")
        store._sql.set_trace_callback(goes)
        return store

    def goes(statement: str) -> None:
        if statement == "COMMIT" and left:
            left.pop()
            _delete_all(tmp_path)

    Client(connected).put_many(key, b"n", key, Counters())
    with closing(SqliteValues(str(path), "t")) as other:
        assert told(other.get_many(key)) == [(b"a", b"n", b"a")]


def test_rows_that_go_while_they_are_scanned_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do where two clean a table."""
    monkeypatch.setattr(sqlite, "SCANNED_ROWS", 2)
    path, keys = tmp_path / "cells", binary(b"a", b"b", b"c", b"d", b"e")

    def connected() -> SqliteValues:
        store = SqliteValues(str(path), "t")
        store._sql.set_trace_callback(goes)
        return store

    def goes(statement: str) -> None:
        if "BETWEEN" in statement:  # whose keys are known by then
            other.delete_many(keys[:3], binary(b"n", b"n", b"n"))

    with closing(SqliteValues(str(path), "t")) as other:
        other.put_many(keys, b"n", keys)
        found = pa.Table.from_batches(Client(connected).scan(Counters()), CELLS)
    assert [key for key, _, _ in told(found)] == [b"d", b"e"]


def _delete_all(folder: Path) -> None:
    for one in folder.iterdir():
        one.unlink()


def test_batches_are_of_one_region_and_of_bounded_size(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_KEYS", 10)
    keys = filled(memory, 40)
    memory.starts = [b"", b"00003", b"00015x", b"9"]
    counters = Counters()
    asked = random.Random(1).sample(keys, 40)
    found = Client(memory.connect).get_many(binary(*asked), counters)
    assert told(found) == [(key, b"n", b"v" + key) for key in keys]
    cut = [keys[:3], keys[3:13], keys[13:16], keys[16:26], keys[26:36], keys[36:]]
    assert sorted(memory.asked) == cut
    assert (counters["kv.batches"], counters["kv.requests"]) == (6, 7)
    assert counters["kv.bytes_read"] > 40 * (5 + 1 + 6)


def test_puts_and_deletes_are_spread_as_gets_are(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_KEYS", 3)
    memory.starts = [b"", b"d"]
    counters, asked = Counters(), Client(memory.connect)
    keys = binary(*(bytes([letter]) for letter in b"hgfedcba"))
    asked.put_many(keys, b"n", keys, counters)
    assert memory.rows == {key: {b"n": key} for key in keys.to_pylist()}
    assert (counters["kv.batches"], counters["kv.bytes_written"] > 8 * 3) == (3, True)
    asked.delete_many(keys[:3], binary(b"n", b"n", b"x"), counters)
    assert {key for key, row in memory.rows.items() if not row} == {b"h", b"g"}
    assert told(asked.get_many(binary(), counters)) == []


def test_few_keys_are_spread_over_the_requests_that_may_be_in_flight(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_KEYS", 40)
    monkeypatch.setattr(client, "LEAST_KEYS", 5)
    keys = binary(*filled(memory, 200))
    for count, sizes in {4: [4], 12: [5, 5, 2], 100: [25] * 4, 200: [40] * 5}.items():
        memory.asked.clear()
        Client(memory.connect).get_many(keys[:count], Counters())
        assert sorted(map(len, memory.asked), reverse=True) == sizes
    memory.asked.clear()
    Client(memory.connect, 1e6).get_many(keys[:20], Counters())
    assert len(memory.asked) == 1, "who counts requests is sent few"


def test_no_more_are_in_flight_of_all_tasks_than_may_be_and_connections_stay(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_KEYS", 2)
    keys, asked, counters = binary(*filled(memory, 200)), Client(memory.connect), Counters()

    def task() -> None:
        assert len(asked.get_many(keys, counters)) == 200

    at_once([task] * 3)
    task()
    assert 1 < memory.most <= client.IN_FLIGHT
    assert counters["kv.connections"] == memory.connections <= client.IN_FLIGHT
    assert memory.closed == 0


def test_what_waited_long_is_closed_and_not_asked(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(pool.time, "monotonic", lambda: now[0])
    waiting, counters = pool.Pool(memory.connect), Counters()
    taken = [waiting.take(counters) for _ in range(3)]
    for wait_s, one in zip((0.0, 1.0, pool.IDLE_S), taken, strict=True):
        now[0] += wait_s
        waiting.give_back(one)
    assert (memory.connections, memory.closed) == (3, 1)
    now[0] += pool.IDLE_S - 0.5
    waiting.take(counters)
    assert (memory.connections, memory.closed) == (3, 2)
    now[0] += pool.IDLE_S + 1
    waiting.take(counters)
    assert (memory.connections, memory.closed) == (counters["kv.connections"], 2) == (4, 2)


def test_behind_a_connection_that_broke_none_that_waits_is_asked(
    memory: Memory, pauses: list[float]
) -> None:
    """A gateway that was started again has hung up on all of them."""
    keys, asked, counters = binary(*filled(memory, 1)), Client(memory.connect), Counters()
    for one in [asked._pool.take(counters) for _ in range(3)]:
        asked._pool.give_back(one)
    memory.refusals = 1
    assert len(asked.get_many(keys, counters)) == 1
    assert counters["kv.retries"] == 1
    assert (memory.connections, memory.closed) == (4, 3)


def test_no_more_requests_a_second_are_sent_than_may_be(
    memory: Memory, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_KEYS", 1)
    monkeypatch.setattr(client, "IN_FLIGHT", 1)
    monkeypatch.setattr(client.time, "monotonic", lambda: 1000.0)
    Client(memory.connect, 4.0).get_many(binary(*filled(memory, 4)), Counters())
    assert [one for one in pauses if one >= 0.25] == [
        0.25,
        0.5,
        0.75,
        1.0,
    ]  # regions are asked, too


def test_what_is_not_answered_is_sent_again_after_growing_pauses(
    memory: Memory, pauses: list[float]
) -> None:
    counters, asked = Counters(), Client(memory.connect)
    asked.get_many(binary(*filled(memory, 3)), counters)
    pauses.clear()
    memory.refusals = client.TRIES - 1
    assert len(asked.get_many(binary(b"00001"), counters)) == 1
    waited = [one for one in pauses if one != 0.001]
    assert len(waited) == counters["kv.retries"] == client.TRIES - 1
    for number, one in enumerate(waited):
        assert 0.5 <= one / (client.FIRST_PAUSE_S * 2**number) <= 1.5
    assert memory.closed == client.TRIES - 1, "a connection without an answer is not used again"


def test_after_the_last_try_it_is_told_what_to_do(memory: Memory, pauses: list[float]) -> None:
    memory.refusals = 1000
    with pytest.raises(StoreError, match=r"not published.*Start the store again.*tries=5") as told:
        Client(memory.connect).put_many(binary(b"a"), b"n", binary(b"1"), Counters())
    assert memory.refusals == 1000 - client.TRIES
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


def test_other_errors_are_not_tried_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(keys: pa.Array) -> pa.RecordBatch:
        memory.asked.append([])
        raise CorruptError("damaged")

    asked = Client(memory.connect)
    monkeypatch.setattr(memory, "get_many", wrong)
    with pytest.raises(CorruptError, match="damaged"):
        asked.get_many(binary(b"a"), Counters())
    assert len(memory.asked) == 1


def test_a_scan_goes_on_behind_the_last_row_that_came(memory: Memory, pauses: list[float]) -> None:
    keys, asked = filled(memory, 12), Client(memory.connect)
    memory.starts = [b"", b"00005"]
    found = []
    for number, batch in enumerate(asked.scan(Counters())):
        found += batch["key"].to_pylist()
        memory.refusals = number % 3
    assert found == keys


def test_a_process_has_one_client_of_a_place_and_a_forked_child_its_own(tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path / 'file'}", "t", 0.0
    ours = client_of(*place)
    assert client_of(*place) is ours
    ours.put_many(binary(b"a"), b"n", binary(b"1"), Counters())
    child = os.fork()
    if not child:
        found = client_of(*place) is not ours and client_of(*place).get_many(
            binary(b"a"), Counters()
        )
        os._exit(0 if found and len(found) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_who_forks_hangs_up_first_for_a_child_would_for_both(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections of Thrift shut down when they are collected, in the child as well."""
    monkeypatch.setattr(client, "connect", lambda *_: memory.connect())
    ours = client_of("gateway:9090", "t", 0.0)
    ours._pool.give_back(ours._pool.take(Counters()))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert (memory.connections, memory.closed) == (1, 1)
