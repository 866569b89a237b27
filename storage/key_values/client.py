"""Client: many keys at once, asked of a key-value store with care.

    batches      the keys of a region, at most `BATCH_KEYS`, are one request; few keys are spread
                 over as many requests as may be in flight, unless requests are limited
    in flight    at most `IN_FLIGHT` requests of a process, all of its tasks together, each on a
                 connection of its own, and one for each scan; on Spark, so many of each of the
                 workers' processes
    rate         a process sends no more requests per second than it is told to, retries included
    retries      what a store has not answered is sent again, on another connection, after a pause
                 that doubles; everything in here may be repeated (`protocol.py`)
    connections  stay, for whichever task of the process comes next (`pool.py`)

One client a process and place; a forked child makes its own.

Counted: `kv.batches`, `kv.requests` (retries included), `kv.retries`, `kv.connections` (opened),
`kv.bytes_read` and `kv.bytes_written` (of keys, names and values).
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from metatable.storage import clock
from metatable.storage.counters import Counters
from metatable.storage.errors import StoreError
from metatable.storage.key_values.pool import Pool
from metatable.storage.key_values.protocol import CELLS, KeyValues
from metatable.storage.ordering import PrefixIndex, sort_order
from metatable.storage.together import at_once

__all__ = ["SQLITE", "Client", "client_of", "connect"]

_log = logging.getLogger("metatable.storage")

R = TypeVar("R")

SQLITE = "sqlite:"
"""What the address of a file begins with; any other one is a gateway's host and port."""

BATCH_KEYS = 2000
"""Answers of some 300 kB: more do not come sooner, and are sent again whole."""

LEAST_KEYS = 250
"""Fewer are not worth a request of their own."""

IN_FLIGHT = 4
"""More do not come sooner: making objects of the answers keeps a processor of ours busy."""

TRIES = 5
FIRST_PAUSE_S = 0.25
"""Five tries take some four seconds where a connection is refused at once: a region server that
moves its regions needs less, one that died does not come back sooner."""

REGIONS_S = 300.0
"""So long the borders of regions are taken as they were: who goes by old ones only asks the same
in more or fewer requests."""


class Client:
    """Keys in any order and number; threads may share it. `connect` opens a connection."""

    def __init__(self, connect: Callable[[], KeyValues], requests_per_second: float = 0.0) -> None:
        self._pool = Pool(connect)
        self._slots = threading.BoundedSemaphore(IN_FLIGHT)
        self._pace = _Pace(requests_per_second)
        self._least = BATCH_KEYS if requests_per_second else LEAST_KEYS
        self._borders: tuple[float, pa.Array] | None = None

    def close_idle(self) -> None:
        """Close the connections that wait."""
        self._pool.clear()

    def get_many(self, keys: pa.Array, counters: Counters) -> pa.Table:
        """All cells (`CELLS`) of the rows of these keys, which are distinct; in any order."""

        def ask(some: pa.Array) -> pa.RecordBatch:
            found = self._sent(lambda store: store.get_many(some), counters)
            counters.add("kv.bytes_read", found.nbytes)
            return found

        return pa.Table.from_batches(self._spread(ask, [keys], counters), CELLS)

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array, counters: Counters) -> None:
        """A cell of this name in each of these rows. When it returns they are durable; where it
        raises, some are there, or will be."""

        def put(some: pa.Array, those: pa.Array) -> None:
            self._sent(lambda store: store.put_many(some, name, those), counters)
            size_bytes = some.nbytes + those.nbytes + len(name) * len(some)
            counters.add("kv.bytes_written", size_bytes)

        self._spread(put, [keys, values], counters)

    def delete_many(self, keys: pa.Array, names: pa.Array, counters: Counters) -> None:
        """One cell of each of these rows, which may repeat."""

        def delete(some: pa.Array, those: pa.Array) -> None:
            self._sent(lambda store: store.delete_many(some, those), counters)

        self._spread(delete, [keys, names], counters)

    def scan(self, counters: Counters) -> Iterator[pa.RecordBatch]:
        """All cells, by key, region after region; a row is in one batch."""
        borders = [*self._regions(counters).to_pylist(), None]
        for first, end in pairwise(borders):
            yield from self._scanned(first, end, counters)

    def _scanned(
        self, first: bytes, end: bytes | None, counters: Counters
    ) -> Iterator[pa.RecordBatch]:
        """Goes on behind the last row where an answer did not come."""
        store, tried = None, 0
        while True:
            try:
                store = store or self._pool.take(counters)
                for batch in store.scan(first, end):
                    self._pace.wait()
                    counters.add("kv.requests")
                    counters.add("kv.bytes_read", batch.nbytes)
                    tried, first = 0, batch["key"][-1].as_py() + b"\0"
                    yield batch
                self._pool.give_back(store)
                return
            except StoreError as error:
                tried += 1
                _dropped(store)
                self._pool.clear()
                store = None
                _pause(tried, error, counters)

    def _spread(
        self, send: Callable[..., R], columns: Sequence[pa.Array], counters: Counters
    ) -> list[R]:
        """`send` of the columns (the first one: keys), cut into batches by region."""
        rows = pa.array(sort_order(columns[0]))
        columns = [one.take(rows) for one in columns]
        cuts = self._cuts(columns[0], counters)
        counters.add("kv.batches", len(cuts))
        told: dict[int, R] = {}
        waiting = iter(range(len(cuts)))
        lock, over = threading.Lock(), threading.Event()

        def work() -> None:
            while not over.is_set():
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                lo, hi = cuts[number]
                try:
                    told[number] = send(*(one[lo:hi] for one in columns))
                except BaseException:
                    over.set()
                    raise

        at_once([work] * min(IN_FLIGHT, len(cuts)))
        return [told[number] for number in range(len(cuts))]

    def _cuts(self, keys: pa.Array, counters: Counters) -> list[tuple[int, int]]:
        """Ranges of sorted keys: of one region, and of at most `BATCH_KEYS`."""
        if not len(keys):
            return []
        size = min(max(-(-len(keys) // IN_FLIGHT), self._least), BATCH_KEYS)
        begins = PrefixIndex(keys).place(self._regions(counters), "left")
        ends = [*np.unique(begins).tolist(), len(keys)]
        return [
            (start, min(start + size, hi))
            for lo, hi in pairwise(ends)
            for start in range(lo, hi, size)
        ]

    def _regions(self, counters: Counters) -> pa.Array:
        """The first key of each region."""
        now = time.monotonic()
        if self._borders is None or self._borders[0] < now:
            found = self._sent(lambda store: store.regions(), counters)
            self._borders = now + REGIONS_S, pa.array(found, pa.binary())
        return self._borders[1]

    def _sent(self, ask: Callable[[KeyValues], R], counters: Counters) -> R:
        """What `ask` gives of a connection that answers."""
        tried = 0
        while True:
            self._pace.wait()
            counters.add("kv.requests")
            store = None
            try:
                with self._slots:
                    store = self._pool.take(counters)
                    given = ask(store)
                    self._pool.give_back(store)
            except StoreError as error:
                tried += 1
                _dropped(store)
                self._pool.clear()
                _pause(tried, error, counters)
            except BaseException:
                _dropped(store)
                raise
            else:
                return given


class _Pace:
    """Lets one by at a time, so many a second; 0: all at once."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        if not self._gap:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            self._next = mine + self._gap
        if mine > now:
            clock.pause(mine - now)


def _dropped(store: KeyValues | None) -> None:
    """A connection whose answers nobody has read to their end is of no more use."""
    if store is not None:
        store.close()


def _pause(tried: int, error: StoreError, counters: Counters) -> None:
    """Before the next try; raises the error after the last one, with what to do."""
    if tried == TRIES:
        raise StoreError(
            f"{error.what}: a commit under way is not published. Start the store again, or wait"
            " for it, and repeat the call",
            **error.facts,
            tries=tried,
        ) from error
    counters.add("kv.retries")
    _log.info("try %d: %s", tried, error)
    clock.pause(FIRST_PAUSE_S * 2 ** (tried - 1) * random.uniform(0.5, 1.5))


def connect(address: str, table: str) -> KeyValues:
    """A connection to a table at an address. Raises StoreError where nobody answers."""
    # whoever does not use a store does not load what it needs
    if address.startswith(SQLITE):
        from metatable.storage.key_values.sqlite import SqliteValues  # noqa: PLC0415

        return SqliteValues(address.removeprefix(SQLITE), table)
    from metatable.storage.key_values.hbase import HBaseValues  # noqa: PLC0415

    return HBaseValues(address, table)


_clients: dict[tuple[str, str, float], Client] = {}


def client_of(address: str, table: str, requests_per_second: float) -> Client:
    """The process's client of this place; a path that is relative is one to the folder in which
    the process was when it asked first. Raises StoreError where that folder is gone."""
    known = address, table, requests_per_second
    client = _clients.get(known)
    if client is None:
        place = _absolute(address)
        made = Client(lambda: connect(place, table), requests_per_second)
        client = _clients.setdefault(known, made)
    return client


def _absolute(address: str) -> str:
    """The path is not made shorter: `link/..` is where the link leads."""
    path = address.removeprefix(SQLITE)
    if path == address or os.path.isabs(path):
        return address
    try:
        return SQLITE + os.path.join(os.getcwd(), path)
    except OSError as error:
        what, expected = "the folder in which this process is, is gone", "an absolute path"
        raise StoreError(what, address=address, expected=expected) from error


def _close_idle() -> None:
    for client in [*_clients.values()]:
        client.close_idle()


if hasattr(os, "register_at_fork"):
    # a child that let go of its parent's connections would hang up for both
    os.register_at_fork(before=_close_idle, after_in_child=_clients.clear)
