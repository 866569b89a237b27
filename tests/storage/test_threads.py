"""in_order: results in order, little ahead, errors and forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from metatable.storage.threads import in_order


def test_results_come_in_the_order_of_the_items() -> None:
    def late(item: int) -> int:
        time.sleep(0.001 * (item % 3))
        return item * item

    assert list(in_order(late, range(50), workers=4)) == [item * item for item in range(50)]


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_has_threads_of_its_own() -> None:
    assert list(in_order(str, range(4), workers=2)) == ["0", "1", "2", "3"]
    child = os.fork()
    if not child:
        done = list(in_order(str, range(4), workers=2)) == ["0", "1", "2", "3"]
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
