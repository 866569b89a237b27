"""What is made once for each object, by whoever asks first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from metatable.storage.made_once import made_once

PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Thing:
    make: Callable[[], object]

    @made_once
    def value(self) -> object:
        """What it makes."""
        return self.make()


def test_it_is_made_once_for_each_object() -> None:
    one, other = Thing(object), Thing(object)
    assert one.value is one.value
    assert one.value is not other.value
    assert Thing.value.__doc__ == "What it makes."


def test_who_makes_one_keeps_nobody_waiting_who_makes_another() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return "slow"

    slow, quick = Thing(slowly), Thing(lambda: "quick")
    with ThreadPoolExecutor(2) as pool:
        told = pool.submit(lambda: slow.value)
        assert begun.wait(PATIENCE_SECONDS)
        try:
            assert pool.submit(lambda: quick.value).result(5) == "quick"
        finally:
            go_on.set()
        assert told.result() == "slow"


def test_of_two_threads_that_make_it_both_get_the_first_one() -> None:
    both = threading.Barrier(2)

    def together() -> object:
        both.wait(PATIENCE_SECONDS)
        return object()

    thing = Thing(together)
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(lambda: thing.value) for _ in range(2)]
    assert told[0].result() is told[1].result() is thing.value
