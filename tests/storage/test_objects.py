"""Objects: what a service has no name for is told from what it is."""

from __future__ import annotations

import gc
import pickle
import weakref
from datetime import UTC, datetime
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from metatable.storage import objects
from metatable.storage import store as store_module
from metatable.storage.errors import (
    AccessError,
    CorruptError,
    MetatableError,
    StoreError,
    UsageError,
)
from metatable.storage.store import Store
from tests.storage.s3_server import serving
from tests.storage.test_threads import forked, needs_fork

FAR = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"memory://{tmp_path.name}", {"init_backoff": "1ms"})


@pytest.mark.parametrize(("size", "offset"), [(100, 100), (100, FAR), (0, 0)])
def test_range_behind_the_end_is_a_file_that_ends_too_early(
    store: Store, size: int, offset: int
) -> None:
    store.put("a", b"x" * size)
    with pytest.raises(CorruptError, match=f"ends too early: path='a' offset={offset} .*'0 bytes'"):
        store.read("a", [(offset, 10)])


def test_ranges_before_the_end_are_read_beside_one_behind_it(store: Store) -> None:
    store.put("a", bytes(range(100)))
    parts = store.backend.read("a", [(FAR, 5), (10, 2), (98, 10), (100, 1)])
    assert parts == [b"", b"\x0a\x0b", b"\x62\x63", b""]


def test_every_range_behind_the_end_is_empty(store: Store) -> None:
    store.put("a", b"x")
    assert store.backend.read("a", [(1, 1), (FAR, 5)]) == [b"", b""]


def test_other_failures_of_a_service_stay_what_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise GenericError("no route to host")

    store.put("a", b"x" * 100)
    monkeypatch.setattr(obstore, "get_ranges", fails)
    with pytest.raises(StoreError, match="no route"):
        store.read("a", [(0, 100)])
    monkeypatch.setattr(obstore, "head", fails)
    with pytest.raises(StoreError, match="no route"):
        store.read("a", [(FAR, 100)])


def test_missing_object_is_missing_whatever_range_is_asked_for(store: Store) -> None:
    with pytest.raises(CorruptError, match="file is missing"):
        store.read("a", [(FAR, 100)])


@pytest.mark.parametrize(("code", "kind"), [("503", None), ("500", None), ("403", AccessError)])
def test_object_that_azure_did_not_delete_is_asked_for_again_unless_that_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: str, kind: type[MetatableError] | None
) -> None:
    """In an answer of its own to many, that is no error itself, and which the client leaves."""
    told = f"Bulk delete request failed for key t/a: of some reason (code: {code})"
    asked: list[str] = []

    def deletes(_: object, path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise GenericError(f"Generic MicrosoftAzure error: {told}")

    monkeypatch.setattr(obstore, "delete", deletes)
    if kind is None:
        store.delete(["a"])
        assert asked == ["a", "a"]
    else:
        with pytest.raises(kind, match=code):
            store.delete(["a"])
        assert asked == ["a"]


@pytest.mark.parametrize("recursive", [False, True])
def test_an_object_that_marks_the_folder_is_no_file_in_it(recursive: bool) -> None:
    """Hadoop's tools, consoles and some that copy buckets make such."""
    with serving() as server:
        store = Store(f"{server.uri}/t", server.options)
        for key in ("t/", "t/a/", "t/a/b"):
            server.objects[key] = b"", datetime.now(UTC)
        assert [one.path for one in store.list("a", recursive)] == ["a/b"]
        del server.objects["t/a/b"]
        assert store.list("a", recursive) == []


def test_a_store_that_overwrites_what_it_may_not_is_refused_by_three_requests() -> None:
    with serving() as server:
        store = Store(f"{server.uri}/t", server.options)
        store.check_refusals()
        assert [verb for verb, _ in server.asked] == ["PUT", "PUT", "POST"]
        assert store.counters["store.requests"] == 3
        assert not server.objects
        server.overwrites = True
        with pytest.raises(UsageError, match="overwrites what it was told not to"):
            store.check_refusals()
        assert not server.objects
        server.overwrites, server.kept_once = False, ["AccessDenied"]
        store.check_refusals()
        assert len(server.objects) == 1, "scratch, of who may not delete"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses for which clients were made, in order."""
    made: list[str] = []

    def from_url(uri: str, **_: object) -> object:
        made.append(uri)
        return object()

    monkeypatch.setattr(objects, "from_url", from_url)
    store_module._known_backend.cache_clear()
    return made


def test_a_store_that_comes_again_to_a_process_has_the_client_of_before(made: list[str]) -> None:
    """As it does with each task on Spark."""
    sent = pickle.dumps(Store("s3://bucket/t", {"region": "eu-west-1", "timeout": "5"}))
    made.clear()
    one, other = pickle.loads(sent), pickle.loads(sent)
    assert one.backend is other.backend
    assert one.counters is not other.counters
    assert one.holding().backend is one.backend
    others = Store("s3://bucket/t", {"region": "eu-west-2"}), Store("s3://bucket/u", one.options)
    made.clear()
    for store in others:
        assert pickle.loads(pickle.dumps(store)).backend is not one.backend
    assert made == ["s3://bucket/t", "s3://bucket/u"]


def test_who_opens_a_table_anew_has_a_new_client(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment says may have been corrected meanwhile."""
    sent = pickle.dumps(Store("s3://bucket/t", {}))
    one = pickle.loads(sent)
    assert Store("s3://bucket/t", {}).backend is not one.backend
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert pickle.loads(sent).backend is not one.backend
    assert len(made) == 4


def test_clients_of_stores_that_do_not_come_again_go(made: list[str]) -> None:
    count = store_module.MOST_KNOWN + 1
    sent = [pickle.dumps(Store(f"s3://bucket/{number}")) for number in range(count)]
    first = weakref.ref(pickle.loads(sent[0]).backend)
    for one in sent[1:]:
        pickle.loads(one)
    gc.collect()
    assert first() is None


@needs_fork
def test_a_forked_child_has_clients_of_its_own(made: list[str]) -> None:
    sent = pickle.dumps(Store("s3://bucket/t"))
    ours = pickle.loads(sent).backend
    assert forked(lambda: pickle.loads(sent).backend is not ours) == 0
    assert pickle.loads(sent).backend is ours


@needs_fork
def test_a_forked_child_is_told_that_the_threads_of_its_parent_s_client_are_not_there() -> None:
    with serving() as server:
        store = Store(f"{server.uri}/t", server.options)
        near = Store(f"memory://{server.bucket}")
        for one in (store, near):
            one.put("a", b"x")

        def is_told() -> bool:
            try:
                Store(store.uri, store.options).get("a")
            except UsageError as error:
                return "spawn or forkserver" in str(error) and near.get("a") == b"x"
            return False

        assert forked(is_told) == 0
        assert store.get("a") == b"x"
