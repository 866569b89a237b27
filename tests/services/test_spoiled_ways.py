"""The way to a store is spoiled by toxiproxy: answers are lost, bodies break off, links are slow.

Whatever happens there, nothing is lost and nothing is done twice, and what cannot be done ends, in
a bounded time, with an error that says so.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import metatable
from metatable import StoreError, Table
from metatable.storage import cache
from metatable.storage.store import Store
from tests.model import arrow, scanned
from tests.services.servers import Bucket, Toxiproxy, Versitygw
from tests.services.test_s3_tables import created, rows
from tests.services.test_service_stores import MULTIPART

QUICK = {"timeout": "2s", "connect_timeout": "2s", "init_backoff": "50ms", "max_backoff": "100ms"}


class Way:
    """A bucket behind a proxy of its own; `near` is the same bucket without it."""

    def __init__(self, proxy: Toxiproxy, near: Bucket, port: int, name: str) -> None:
        self.near = near
        self.far = near.at(port).told(**QUICK)
        self._proxy, self._name = proxy, name

    def spoil(self, kind: str, stream: str = "downstream", **attributes: int) -> None:
        self._proxy.spoil(self._name, kind, stream, **attributes)

    def mend(self, kind: str) -> None:
        self._proxy.mend(self._name, kind)

    @contextmanager
    def spoiled(self, kind: str, stream: str = "downstream", **attributes: int) -> Iterator[None]:
        self.spoil(kind, stream, **attributes)
        try:
            yield
        finally:
            self.mend(kind)

    def table(self, **options: str) -> Table:
        """The table, by the spoiled way."""
        return metatable.open(
            self.far.uri, storage_options=self.far.told(**options).storage_options
        )


@pytest.fixture
def way(request: pytest.FixtureRequest, s3_server: Versitygw, bucket: Bucket) -> Way:
    proxy = request.getfixturevalue("servers").get(Toxiproxy)
    name = uuid.uuid4().hex
    return Way(proxy, bucket, proxy.proxy(name, s3_server.port), name)


def at_the_create(table: Table, names: str, act: Callable[[Callable[[], bool]], bool]) -> list[str]:
    """`act` is given the next create of a file whose path ends with `names` (a pattern), to carry
    it out; what is returned tells whether it came to that."""
    create: Any = table._store.backend.create
    met: list[str] = []

    def spoiled(path: str, body: bytes, **how: Any) -> bool:
        if re.search(f"{names}$", path) and not met:
            met.append(path)
            return act(lambda: bool(create(path, body, **how)))
        return bool(create(path, body, **how))

    table._store.backend.create = spoiled  # type: ignore[method-assign]
    return met


@pytest.mark.parametrize(
    ("file", "repeats"),
    [
        (r"/manifest/\d+\.json", "0"),
        (r"/manifest/\d+\.json", "8"),
        (r"\.parquet", "8"),  # beside others that go the same way
        (r"/leases/\d+", "0"),
        (r"/\d+\.commit", "8"),
    ],
)
def test_a_create_whose_answer_is_lost_was_carried_out_once(
    way: Way, file: str, repeats: str
) -> None:
    """Without a repeat the client tells of an error, with one that somebody else was first."""
    created(way.near.uri, way.near.storage_options).insert(arrow(rows(0, 8, 1)))
    table = way.table(max_retries=repeats)
    table.verify()  # then all that is read beside the lease is at hand

    def lose(create: Callable[[], bool]) -> bool:
        way.spoil("limit_data", bytes=0)
        timer = threading.Timer(0.2, way.mend, ["limit_data"])
        timer.start()
        try:
            return create()
        finally:
            timer.join()

    met = at_the_create(table, file, lose)
    done = table.upsert(arrow(rows(4, 12, 2)))
    assert len(met) == 1
    assert (done.version, done.attempts) == (3, 1)
    _is_sound(way, [(f"k{n:02}", 1 if n < 4 else 2) for n in range(12)], ["upsert", "insert"])


@pytest.mark.parametrize(
    ("kind", "stream", "attributes"),
    [
        ("reset_peer", "downstream", {"timeout": 0}),
        ("limit_data", "upstream", {"bytes": 100}),
        ("timeout", "downstream", {"timeout": 100}),
    ],
)
def test_a_writer_cut_off_at_its_put_is_told_and_nothing_is_half_there(
    way: Way, kind: str, stream: str, attributes: dict[str, int]
) -> None:
    near = created(way.near.uri, way.near.storage_options)
    near.insert(arrow(rows(0, 8, 1)))
    table = way.table(max_retries="1", retry_timeout="2s")
    began = 0.0

    def cut_off(create: Callable[[], bool]) -> bool:
        nonlocal began
        way.spoil(kind, stream, **attributes)
        began = time.monotonic()
        return create()

    at_the_create(table, r"/manifest/\d+\.json", cut_off)
    with pytest.raises(StoreError, match=r"tried='\w+, \d times? in \d+\.\d s'"):
        table.upsert(arrow(rows(4, 12, 2)))
    assert time.monotonic() - began < 60, "there is no bound"
    way.mend(kind)
    values = dict.fromkeys(range(8), 1)
    if near.version == 3:  # it was carried out, and nobody was told
        values.update(dict.fromkeys(range(4, 12), 2))
    assert sorted((row[0], row[2]) for row in scanned(near)) == [
        (f"k{n:02}", v) for n, v in values.items()
    ]
    way.table().upsert(arrow(rows(4, 12, 3)))
    expected = [(f"k{n:02}", 1 if n < 4 else 3) for n in range(12)]
    _is_sound(way, expected, ["upsert"] * (near.version - 2) + ["insert"])


def test_a_body_that_breaks_off_is_an_error_and_never_short(way: Way) -> None:
    body = bytes(range(256)) * 800
    Store(way.near.uri, way.near.storage_options).put("a", body)
    store = Store(way.far.uri, way.far.told(max_retries="2").storage_options)
    asked: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.read("a", [(0, 100), (1 << 17, 20_000)]),
        lambda: store.open("a", len(body)).read(),
    ]
    with way.spoiled("limit_data", bytes=5_000):
        for ask in asked:
            with pytest.raises(StoreError, match="did not answer as it should"):
                ask()
    assert store.get("a") == body


def _sink(store: Store, body: bytes) -> None:
    with store.sink("large") as file:
        file.write(body)


LARGE: dict[str, Callable[[Store, bytes], object]] = {
    "put": lambda store, body: store.put("large", body),
    "create": lambda store, body: store.create("large", body),
    "sink": _sink,  # as index files are written
}
"""Two of them go in parts, and are repeated by the client; a create goes at once."""


@pytest.mark.parametrize("how", LARGE)
def test_a_large_put_that_is_cut_off_half_way_is_not_there_and_can_be_repeated(
    way: Way, how: str
) -> None:
    body, near = os.urandom(MULTIPART), Store(way.near.uri, way.near.storage_options)
    store = Store(way.far.uri, way.far.told(max_retries="1").storage_options)
    with way.spoiled("limit_data", "upstream", bytes=3 << 20):
        with pytest.raises(StoreError, match=r"tried='\w+, \d times? in"):
            LARGE[how](store, body)
        assert near.list("", recursive=True) == []
    LARGE[how](store, body)
    assert near.get("large") == body


@pytest.mark.parametrize("how", ["put", "sink"])
def test_a_large_put_that_is_cut_off_once_is_repeated(way: Way, how: str) -> None:
    body, near = os.urandom(MULTIPART), Store(way.near.uri, way.near.storage_options)
    store = Store(way.far.uri, way.far.told(max_retries="8").storage_options)
    way.spoil("limit_data", "upstream", bytes=3 << 20)
    timer = threading.Timer(0.2, way.mend, ["limit_data"])
    timer.start()
    LARGE[how](store, body)
    timer.join()
    assert near.get("large") == body


def test_a_read_that_is_cut_off_once_is_repeated(way: Way) -> None:
    body = bytes(range(256)) * 800
    Store(way.near.uri, way.near.storage_options).put("a", body)
    store = Store(way.far.uri, way.far.told(max_retries="8").storage_options)
    way.spoil("reset_peer", timeout=0)
    timer = threading.Timer(0.2, way.mend, ["reset_peer"])
    timer.start()
    assert store.get("a") == body
    timer.join()


def test_a_link_that_is_slow_is_only_slow(way: Way) -> None:
    created(way.near.uri, way.near.storage_options).insert(arrow(rows(0, 8, 1)))
    cache.clear()
    with (
        way.spoiled("latency", latency=20, jitter=10),
        way.spoiled("slicer", average_size=500, size_variation=200, delay=100),
    ):
        assert way.table().upsert(arrow(rows(4, 12, 2))).attempts == 1
    _is_sound(way, [(f"k{n:02}", 1 if n < 4 else 2) for n in range(12)], ["upsert", "insert"])


def test_a_link_that_is_too_slow_ends_in_a_bounded_time(way: Way) -> None:
    Store(way.near.uri, way.near.storage_options).put("a", bytes(1 << 20))
    slow = way.far.told(timeout="300ms", max_retries="1", retry_timeout="1s")
    store = Store(slow.uri, slow.storage_options)
    began = time.monotonic()
    with way.spoiled("bandwidth", rate=10), pytest.raises(StoreError, match="try again"):
        store.get("a")
    assert time.monotonic() - began < 30


def _is_sound(way: Way, expected: list[tuple[str, int]], operations: list[str]) -> None:
    """By the way that nothing spoils: these rows, each once, by these commits, each once."""
    cache.clear()
    table = metatable.open(way.near.uri, storage_options=dict(way.near.storage_options))
    assert sorted((row[0], row[2]) for row in scanned(table)) == expected
    assert [one.operation for one in table.history()] == [*operations, "create"]
    assert table.verify().findings == ()
