"""in_order: results in order, little ahead, errors; and what forks leave of locks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from metatable.storage import cache, counters, threads
from metatable.storage.cache import Cache
from metatable.storage.counters import Counters
from metatable.storage.threads import (
    WORKERS,
    beside,
    here_alone,
    in_order,
    one_ahead,
    shared,
    workers_here,
)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


def test_results_come_in_the_order_of_the_items() -> None:
    def late(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    assert list(in_order(late, range(50), workers=4)) == [item * item for item in range(50)]


def test_where_no_thread_is_to_be_had_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(threads, "WORKERS", 4)
    with monkeypatch.context() as here:
        here.setattr(threading.Thread, "start", refused)
        assert list(in_order(abs, range(-9, 0))) == [*range(9, 0, -1)]
        assert beside(lambda: 7)() == 7
        with pytest.raises(ZeroDivisionError):
            beside(lambda: 1 // 0)()
    names = set(in_order(lambda _: threading.current_thread().name, range(9)))
    assert threading.current_thread().name not in names


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_no_more_items_are_taken_than_there_is_room_ahead(workers: int) -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = in_order(lambda item: item, source(), workers=workers)
    for number in range(10):
        assert next(results) == number
        assert len(taken) <= number + workers + 1


def test_alone_it_runs_where_it_is_asked_for() -> None:
    def names() -> set[str]:
        return set(in_order(lambda _: threading.current_thread().name, range(20), workers=4))

    with here_alone():
        with here_alone():
            pass
        assert names() == {threading.current_thread().name}
        assert workers_here() == 1
    assert threading.current_thread().name not in names()
    assert workers_here() == WORKERS
    assert {*in_order(lambda _: workers_here(), range(20), workers=4)} == {1}


def test_what_goes_beside_is_on_another_thread_unless_its_caller_is_one_of_many() -> None:
    asked = threading.Event()

    def name() -> str:
        assert asked.wait(10)
        return threading.current_thread().name

    told = beside(name)
    asked.set()
    assert told() == told()
    if WORKERS > 1:
        assert told() != threading.current_thread().name
    with here_alone():
        assert beside(name)() == threading.current_thread().name
    with pytest.raises(ZeroDivisionError):
        beside(lambda: 1 // 0)()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_one_item_is_taken_ahead_and_no_more(count: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(count):
            taken.append(number)
            yield number

    given = []
    for one in one_ahead(items()):
        given.append(one)
        assert taken == [*range(min(one + 2, count))]
    assert given == [*range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_of_shared_items_the_last_is_the_callers(count: int) -> None:
    def name(item: int) -> tuple[int, str]:
        time.sleep(0.001 * (count - item))
        return item, threading.current_thread().name

    found, here = shared(name, iter(range(count))), threading.current_thread().name
    assert [item for item, _ in found] == [*range(count)]
    assert [place for place, (_, name) in enumerate(found) if name == here][-1:] == (
        [count - 1] if count else []
    )
    if WORKERS > 1:
        assert all(name != here for _, name in found[:-1])
    with here_alone():
        assert shared(name, range(count)) == [(item, here) for item in range(count)]


def test_an_exception_arrives_in_its_place_and_ends_it() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 3:
            raise ValueError("three")
        return item

    results = in_order(work, range(1000), workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert len(begun) < 10


def test_work_that_works_in_order_itself_does_not_wait_for_itself() -> None:
    def inner(item: int) -> int:
        return sum(in_order(lambda other: other, range(item), workers=2))

    assert list(in_order(inner, range(20), workers=2)) == [n * (n - 1) // 2 for n in range(20)]


def test_one_worker_works_on_the_callers_thread() -> None:
    threads = set(in_order(lambda _: threading.get_ident(), range(5), workers=1))
    assert threads == {threading.get_ident()}


def forked(act: Callable[[], bool]) -> int:
    """How a forked child ends: 0 where `act` holds in it, a signal's number where it hangs."""
    child = os.fork()
    if not child:
        signal.alarm(60)  # a child that hangs; how fast the machine is decides nothing
        holds = False
        try:
            holds = act()
        finally:  # never back into the tests
            os._exit(0 if holds else 1)
    return os.waitpid(child, 0)[1]


@contextmanager
def held_by_another_thread(lock: threading.Lock) -> Iterator[None]:
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        may_go.set()
        thread.join()


@needs_fork
def test_a_forked_child_has_threads_of_its_own() -> None:
    def works() -> bool:
        return list(in_order(str, range(4), workers=2)) == ["0", "1", "2", "3"]

    assert works()
    assert forked(works) == 0


@needs_fork
@pytest.mark.parametrize("one", [cache.shared, cache.blocks], ids=["shared", "blocks"])
def test_a_forked_child_does_not_wait_for_a_cache_that_its_parent_held(one: Cache) -> None:
    def is_empty_and_works() -> bool:
        is_empty = one.get("x") is None and one.size_bytes == 0
        return is_empty and one.offer("x", 2, 7) == one.get("x") == 2

    cache.clear()
    one.offer("x", 1, 5)
    with held_by_another_thread(one._lock):
        assert forked(is_empty_and_works) == 0
    assert one.get("x") == 1
    cache.clear()


@needs_fork
def test_a_forked_child_keeps_what_its_parent_had_read() -> None:
    cache.clear()
    cache.shared.offer("x", 1, 5)
    assert forked(lambda: cache.shared.get("x") == 1 and cache.shared.size_bytes == 5) == 0
    cache.clear()


@needs_fork
def test_a_forked_child_counts_on_where_its_parent_was_counting() -> None:
    sums = Counters({"a": 1})

    def counts() -> bool:
        sums.add("a")
        return sums["a"] == 2

    with held_by_another_thread(counters._lock):
        assert forked(counts) == 0
    assert sums["a"] == 1
