"""Key-value stores that refuse, and those that remember what they were asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from metatable import Table
from metatable.storage.counters import Counters
from metatable.storage.key_values import client
from metatable.storage.key_values.protocol import KeyValues
from tests.faults import Refused


class WatchedValues:
    """Connections that log (verb, keys) of every request, all into one list, and refuse from
    request `limit` on with `error`. `before` is called with each verb and its number."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.limit: int | None = None
        self.error: Callable[[str], Exception] = Refused
        self.before: Callable[[str, int], None] | None = None
        self._lock = threading.Lock()

    def count(self, verb: str, keys: int) -> None:
        with self._lock:
            number = len(self.calls)
            if self.limit is not None and number >= self.limit:
                raise self.error(f"{verb}: refused from request {self.limit} on")
            self.calls.append((verb, keys))
        if self.before is not None:
            self.before(verb, number)

    def around(self, inner: KeyValues) -> KeyValues:
        return _Connection(self, inner)


class _Connection:
    def __init__(self, watched: WatchedValues, inner: KeyValues) -> None:
        self._watched, self._inner = watched, inner

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        self._watched.count("get_many", len(keys))
        return self._inner.get_many(keys)

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        self._watched.count("put_many", len(keys))
        self._inner.put_many(keys, name, values)

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        self._watched.count("delete_many", len(keys))
        self._inner.delete_many(keys, names)

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        for batch in self._inner.scan(first, end):
            self._watched.count("scan", len(batch))
            yield batch

    def regions(self) -> list[bytes]:
        return self._inner.regions()

    def close(self) -> None:
        self._inner.close()


def watching(monkeypatch: pytest.MonkeyPatch) -> WatchedValues:
    """Whoever connects from now on is watched, and whoever retries does not wait."""
    watched, real = WatchedValues(), client.connect
    monkeypatch.setattr(client, "connect", lambda *place: watched.around(real(*place)))
    monkeypatch.setattr(client, "_clients", {})
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.0)
    return watched


def connection(table: Table) -> KeyValues:
    """To the store of a table's entries, by itself."""
    return client.connect(table.options.hbase_address, table.options.hbase_table)


def cells(table: Table) -> list[dict[str, Any]]:
    """All cells but the seals, by key."""
    asked = client.Client(lambda: connection(table))
    found = [row for batch in asked.scan(Counters()) for row in batch.to_pylist()]
    return [row for row in found if not row["key"].startswith(b"\xff\xff\xff\xff")]
