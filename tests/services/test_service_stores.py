"""Real servers of S3, Azure and GCS keep the contract of stores, at the root of a bucket and below
it, and refuse in words of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from metatable.storage.errors import AccessError, MetatableError, StoreError
from metatable.storage.store import Store
from tests.long import LONG
from tests.services.servers import KINDS, Bucket
from tests.storage.store_contract import Place, StoreContract

BELOW = "/some folder/table"

PLACES = [(kind, below) for kind in KINDS for below in ("", BELOW) if LONG or kind == "s3" or below]
"""At the root of a bucket, where they can be told from services, in long runs."""

PAGE = 1000
"""Names that S3 and GCS list at once; Azure takes five times as many."""

MULTIPART = 12 << 20
"""More than the client puts in one request."""


class TestServices(StoreContract):
    @pytest.fixture(params=PLACES, ids=lambda one: f"{one[0]}{one[1]}")
    def place(self, request: pytest.FixtureRequest) -> Place:
        kind, below = request.param
        servers = request.getfixturevalue("servers")
        bucket = servers.get(KINDS[kind]).bucket(f"test-{os.urandom(12).hex()}")
        return bucket.uri + below, dict(bucket.storage_options)

    def test_list_tells_when_a_file_was_written(self, store: Store) -> None:
        """In whole seconds, as services do."""
        store.put("a", b"1")
        [first] = store.list("")
        time.sleep(1.1)
        store.put("a", b"1")
        [second] = store.list("")
        assert first.modified < second.modified
        assert abs(second.modified - time.time()) < 60


@pytest.fixture
def store(any_bucket: Bucket) -> Store:
    return Store(any_bucket.uri + BELOW, any_bucket.storage_options)


def test_what_is_put_in_parts_appears_whole(store: Store) -> None:
    with store.sink("large") as file:
        for number in range(MULTIPART >> 20):
            file.write(bytes([number]) * (1 << 20))
        assert store.size("large") is None
    assert store.size("large") == MULTIPART
    edge = 5 << 20  # of a part
    [body] = store.read("large", [(edge - 1, 2)])
    assert body == bytes([4, 5])


def test_what_is_created_whole_is_refused_whole(store: Store) -> None:
    bodies = [bytes([one]) * (6 << 20) for one in (1, 2)]
    assert store.create("large", bodies[0])
    with suppress(StoreError):  # versitygw hangs up on what it refuses, at times before it says so
        assert not store.create("large", bodies[1])
    assert store.get("large") == bodies[0]


@pytest.mark.skipif(not LONG, reason="METATABLE_LONG is not set")
def test_a_listing_of_several_pages_is_whole_and_in_order(store: Store) -> None:
    names = [f"many/{number:05}" for number in range(2 * PAGE + 1)]
    store.together([lambda name=name: store.put(name, b"1") for name in names])  # type: ignore[misc]
    assert [one.path for one in store.list("many")] == names
    assert sorted(one.path for one in store.walk()) == names
    store.delete_all(names)
    assert store.list("many") == []


def test_an_s3_listing_of_several_pages_is_whole_and_in_order(bucket: Bucket) -> None:
    names = [f"many/{number:05}" for number in range(PAGE + 1)]
    (bucket.folder / "many").mkdir()
    for name in names:
        (bucket.folder / name).write_bytes(b"1")
    store = Store(bucket.uri, bucket.storage_options)
    assert [one.path for one in store.list("many")] == names
    assert [one.path for one in store.list("", recursive=True)] == names


ASKED: list[Callable[[Store], object]] = [
    lambda store: store.get("a"),
    lambda store: store.read("a", [(0, 1)]),
    lambda store: store.list("a"),
    lambda store: store.put("a", b"1"),
    lambda store: store.create("a", b"1"),
]


@pytest.mark.parametrize("ask", ASKED, ids=["get", "read", "list", "put", "create"])
def test_a_bucket_that_is_not_there_is_told(
    any_bucket: Bucket, ask: Callable[[Store], object]
) -> None:
    uri = f"{any_bucket.scheme}://no-such-bucket"
    with pytest.raises(AccessError, match="no such bucket") as raised:
        ask(Store(uri, any_bucket.storage_options))
    _one_line(raised.value)


@pytest.mark.parametrize("ask", ASKED, ids=["get", "read", "list", "put", "create"])
def test_wrong_credentials_are_told(any_bucket: Bucket, ask: Callable[[Store], object]) -> None:
    wrong = any_bucket.by_stranger()
    with pytest.raises(AccessError, match="refuses us") as raised:
        ask(Store(wrong.uri, wrong.storage_options))
    _one_line(raised.value)
    assert Store(any_bucket.uri, any_bucket.storage_options).list("") == []


@pytest.mark.parametrize("ask", ASKED[:3], ids=["get", "read", "list"])
def test_nobody_reads_without_credentials(
    any_bucket: Bucket, ask: Callable[[Store], object]
) -> None:
    nobody = any_bucket.told(skip_signature="true")
    with pytest.raises(AccessError, match="refuses us") as raised:
        ask(Store(nobody.uri, nobody.storage_options))
    _one_line(raised.value)


def _one_line(error: MetatableError) -> None:
    told = str(error)
    assert "\n" not in told
    for noise in ("<?xml", "<Error>", "source:", "Generic {", "Some("):
        assert noise not in told
