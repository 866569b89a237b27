"""Store: who created a file is settled by what is stored, whatever was raised."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest

from metatable.storage import store as store_module
from metatable.storage.address import texts
from metatable.storage.counters import Counters
from metatable.storage.errors import AccessError, CorruptError, StoreError, UsageError
from metatable.storage.store import Store


class Lost:
    """A backend whose creates end in an error, before or after they were carried out."""

    def __init__(self, store: Store, error: BaseException, done: bool) -> None:
        self._inner = store.backend
        self._error = error
        self._done = done
        self.reads_fail = False

    def create(self, path: str, body: bytes, *, soon: bool) -> bool:
        if self._done:
            self._inner.create(path, body, soon=soon)
        raise self._error

    def __getattr__(self, name: str) -> Callable[..., object]:
        if self.reads_fail:
            raise StoreError("a second error")
        return getattr(self._inner, name)


ERRORS = [OSError("lost"), StoreError("lost"), AccessError("lost"), RuntimeError("lost")]


def losing(folder: Path, error: BaseException, done: bool) -> tuple[Store, Lost]:
    store = Store(folder)
    store.backend = backend = Lost(store, error, done)  # type: ignore[assignment]
    return store, backend


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_create_that_was_carried_out_is_ours_whatever_was_raised(
    tmp_path: Path, error: Exception
) -> None:
    store, _ = losing(tmp_path, error, done=True)
    assert store.create("a", b"ours")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("theirs", [None, b"more", b"theirs"])
def test_create_that_was_not_carried_out_raises_what_was_raised(
    tmp_path: Path, error: Exception, theirs: bytes | None
) -> None:
    if theirs is not None:
        Store(tmp_path).put("a", theirs)
    store, _ = losing(tmp_path, error, done=False)
    with pytest.raises(type(error), match="lost"):
        store.create("a", b"ours")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_create_whose_outcome_nobody_tells_raises_the_first_error(
    tmp_path: Path, error: Exception
) -> None:
    store, backend = losing(tmp_path, error, done=True)
    backend.reads_fail = True
    with pytest.raises(type(error), match="lost"):
        store.create("a", b"ours")


def test_create_of_an_empty_file_is_nobodys_after_an_error(tmp_path: Path) -> None:
    store, _ = losing(tmp_path, OSError("lost"), done=True)
    with pytest.raises(OSError, match="lost"):
        store.create("a", b"")


def test_interrupt_of_a_create_is_not_swallowed(tmp_path: Path) -> None:
    store, _ = losing(tmp_path, KeyboardInterrupt("lost"), done=True)
    with pytest.raises(KeyboardInterrupt):
        store.create("a", b"ours")


def test_refused_call_of_a_create_is_not_looked_after(tmp_path: Path) -> None:
    store, _ = losing(tmp_path, UsageError("lost"), done=False)
    with pytest.raises(UsageError, match="lost"):
        store.create("a", b"ours")
    assert store.counters["store.reads"] == 0


def test_options_become_texts_and_texts_keep_their_case() -> None:
    given = {"allow_http": True, "secret_access_key": "SeCrEt", "timeout": 5}
    assert texts(given) == {"allow_http": "true", "secret_access_key": "SeCrEt", "timeout": "5"}  # type: ignore[arg-type]


class Region(str, Enum):  # noqa: UP042  (which would print what it holds)
    """Texts that print as their names."""

    IRELAND = "eu-west-1"


def test_options_of_an_enumeration_are_what_they_hold() -> None:
    assert texts({"region": Region.IRELAND}) == {"region": "eu-west-1"}


def test_ranges_of_no_bytes_are_not_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("a", b"bytes")
    asked = store.counters["store.requests"]
    assert store.read("a", [(0, 0), (5, 0)]) == [b"", b""]
    assert store.counters["store.requests"] == asked
    assert store.read("a", [(1, 2), (3, 0), (4, 1)]) == [b"yt", b"", b"s"]
    assert store.counters["store.reads"] == 1


def test_one_range_is_read_and_counted_like_several(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("a", b"bytes")
    before = Counters(store.counters)
    assert (store.read_one("a", 1, 3), store.read_one("a", 5, 0)) == (b"yte", b"")
    told = {"store.bytes_read": 3, "store.reads": 1, "store.requests": 1}
    assert store.counters.since(before) == told
    for path, told_of in (("a", "file ends too early"), ("b", "missing")):
        with pytest.raises(CorruptError, match=told_of):
            store.read_one(path, 3, 4)
    with pytest.raises(UsageError):
        store.read_one("../a", 0, 1)


def test_a_process_that_ends_leaves_arrow_time_to_let_go_of_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    now = [100.0]
    monkeypatch.setattr(store_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(store_module.time, "sleep", slept.append)
    (tmp_path / "file").write_bytes(b"body")
    with Store(str(tmp_path)).open("file") as file:
        assert file.read() == b"body"
    now[0] += 0.02
    store_module._leave_time()
    now[0] += 0.04
    store_module._leave_time()
    assert slept == [pytest.approx(0.03)]
