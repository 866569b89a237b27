"""Calls that need not wait for each other: what comes of them, and of their exceptions."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from metatable.storage import threads, together, unsettled
from metatable.storage.errors import AccessError, CorruptError, StoreError
from metatable.storage.store import Store
from metatable.storage.threads import in_order
from metatable.storage.together import MOST_AT_ONCE, at_once, begun, in_turn
from tests.storage.s3_server import serving


def test_answers_come_in_the_order_of_the_calls() -> None:
    calls = [partial(int, number) for number in range(3 * MOST_AT_ONCE)]
    assert list(at_once(calls)) == list(in_turn(calls)) == list(range(3 * MOST_AT_ONCE))
    assert list(at_once([])) == []


def test_calls_are_under_way_at_the_same_time_and_may_do_the_same() -> None:
    outer, inner = threading.Barrier(3, timeout=60), threading.Barrier(6, timeout=60)

    def meet() -> list[int]:
        outer.wait()
        return list(at_once([inner.wait, inner.wait]))

    found = at_once([meet] * 3)
    assert sorted(place for pair in found for place in pair) == list(range(6))


def test_what_is_begun_goes_on_beside_its_caller_who_waits_for_what_it_comes_to(
    tmp_path: Path,
) -> None:
    both = threading.Barrier(2, timeout=60)
    ended = Store(str(tmp_path)).begun(both.wait)  # would wait for ever, were it made now
    assert both.wait() + ended() == 1
    assert ended() == ended()
    failed = Store(str(tmp_path)).begun(_fail)
    for _ in range(2):
        with pytest.raises(StoreError):
            failed()


def test_nothing_is_begun_where_no_disk_settles(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Store(str(tmp_path), {"durable": "false"}).begun(_fail)


def _fail() -> None:
    raise StoreError("the disk is full")


def test_threads_are_used_again_and_few_stay() -> None:
    calls = [threading.Barrier(8, timeout=60).wait] * 8
    at_once(calls)
    before = _waiting_threads()
    at_once(calls)
    assert len(before) >= 7
    assert _waiting_threads() == before
    many = threading.Barrier(4 * MOST_AT_ONCE, timeout=60)
    at_once([partial(at_once, [many.wait] * MOST_AT_ONCE)] * 4)
    assert len(_waiting_threads()) < 2 * MOST_AT_ONCE


def _waiting_threads() -> set[int | None]:
    """Those that make requests, when all of them wait for work."""
    while True:
        found = {one.ident for one in threading.enumerate() if one.name == "metatable-request"}
        if len(found) == len(together._idle):
            return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    at_once([threading.Barrier(8, timeout=60).wait] * 8)
    child = os.fork()
    if not child:
        with suppress(threading.BrokenBarrierError):  # calls that waited for each other
            at_once([threading.Barrier(8, timeout=9).wait] * 8)
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize("are_some", [False, True])
def test_where_no_more_threads_are_to_be_had_those_there_are_make_all_calls(
    monkeypatch: pytest.MonkeyPatch, are_some: bool
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    at_once([partial(int, number) for number in range(9)])
    monkeypatch.setattr(threading.Thread, "start", refused)
    if not are_some:
        monkeypatch.setattr(together, "_idle", deque())
    assert at_once([partial(int, number) for number in range(99)]) == [*range(99)]
    assert begun(partial(int, 7))() == 7
    failed = begun(_fail)
    with pytest.raises(StoreError):
        failed()


def test_exception_comes_when_all_have_ended() -> None:
    ended = []
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise ValueError("first")

    def go_on() -> None:
        assert failed.wait(60)
        ended.append(1)

    with pytest.raises(ValueError, match="first"):
        at_once([fail, go_on, go_on])
    assert ended == [1, 1]


@pytest.mark.parametrize(
    "unknown", [StoreError("no answer"), OSError("no answer"), AccessError("no answer")]
)
def test_an_unknown_outcome_is_told_before_a_known_one(unknown: Exception) -> None:
    def fail(error: Exception) -> None:
        raise error

    for order in (1, -1):
        errors = [CorruptError("known"), unknown][::order]
        with pytest.raises(type(unknown), match="no answer"):
            at_once([partial(fail, error) for error in errors])


def test_an_interrupt_is_told_before_all_else() -> None:
    """Wherever it came, and whatever else has failed."""

    def fail(error: BaseException) -> None:
        raise error

    for place in range(3):
        errors: list[BaseException] = [CorruptError("known"), StoreError("no answer")]
        errors.insert(place, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            at_once([partial(fail, error) for error in errors])


def test_near_by_what_stands_behind_an_exception_is_not_called(tmp_path: Path) -> None:
    called = []

    def fail() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        Store(tmp_path).together([fail, lambda: called.append(1)])
    assert called == []


@pytest.mark.parametrize("known", [False, True])
def test_writes_wait_at_the_same_time_for_a_disk_that_takes_its_time(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_QUICK_SECONDS", -1)
    meeting = threading.Barrier(2)
    store = Store(tmp_path)
    if known:
        _settle(store)
    met = store.together([partial(meeting.wait, 10), partial(meeting.wait, 10)], writes=True)
    assert sorted(met) == [0, 1]


@pytest.mark.parametrize(("durable", "writes"), [("true", False), ("false", True), ("true", True)])
def test_what_waits_for_no_disk_or_for_a_quick_one_is_in_turn(
    tmp_path: Path, durable: str, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_QUICK_SECONDS", 60)
    store = Store(tmp_path, {"durable": durable})
    _settle(store)
    assert {*store.together([threading.get_ident] * 3, writes)} == {threading.get_ident()}


def _settle(store: Store) -> None:
    """What a disk takes for it tells how quick it is."""
    assert store.create("soon", b"1", soon=True)
    store.settle()


def test_a_small_file_that_is_held_is_asked_for_once() -> None:
    with serving() as server:
        store = Store(f"{server.uri}/table", server.options)
        store.put("a", bytes(range(100)))
        holding = store.holding()
        before = dict(store.counters)
        holding.hold([("a", 100)])
        holding.hold([("a", 100)])
        twin = holding.counting(store.counters)
        assert twin.read("a", [(3, 2), (90, 10)]) == [b"\x03\x04", bytes(range(90, 100))]
        with pytest.raises(CorruptError, match="file ends too early"):
            twin.read("a", [(98, 5)])
        assert store.counters.since(before)["store.requests"] == 1
        assert store.read("a", [(3, 2)]) == [b"\x03\x04"]
        assert store.counters.since(before)["store.requests"] == 2


def test_near_by_nothing_is_held(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("a", b"123")
    holding = store.holding()
    holding.hold([("a", 3)])
    assert store.counters["store.reads"] == 0


def test_files_are_deleted_in_any_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("a", "b", "c"):
        store.put(name, b"1")
    store.delete_all(["c", "a", "not there"])
    assert [one.path for one in store.list("")] == ["b"]


@pytest.mark.parametrize("way", ["at once", "begun"])
def test_calls_for_which_the_pool_waits_give_it_no_work(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would be left to do it."""
    monkeypatch.setattr(threads, "WORKERS", 2)
    monkeypatch.setattr(threads, "_pool", None)
    inside = threading.Barrier(2, timeout=60)

    def look_into(portion: int) -> list[list[int]]:
        inside.wait()  # the pool's two threads are here
        calls = [lambda: [*in_order(abs, range(4))] for _ in range(4)]
        if way == "at once":
            return list(at_once(calls))
        return [told() for told in map(begun, calls)]

    found: list[list[list[int]]] = []
    caller = threading.Thread(target=lambda: found.extend(in_order(look_into, [0, 1])), daemon=True)
    caller.start()
    caller.join(timeout=60)
    assert found == [[[0, 1, 2, 3]] * 4] * 2
