"""Objects: what a service has no name for is told from what it is."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

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
