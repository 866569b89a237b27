"""Calls that need not wait for each other.

On a disk they are made one after the other, as given: an answer takes less than a thread does. On
an object store an answer takes tens of milliseconds, whatever is asked, and so they go out at once:
what counts there are *rounds*, requests that follow each other. Which it is to be, a backend says
(`Backend.together`).

Whoever hands calls over says that any of them may be carried out before any other, and that those
of a process that dies may be carried out in any part. Tests hold callers to that: simulated stores
make the calls in a random order, and die in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from metatable.storage.errors import MetatableError, StoreError

__all__ = ["MOST_AT_ONCE", "at_once", "in_turn"]

R = TypeVar("R")

MOST_AT_ONCE = 32
"""Of one caller: what a service and its client's connections take without complaint."""


def in_turn(calls: Sequence[Callable[[], R]]) -> list[R]:
    """One after the other. The first exception ends it: what is behind it is not called."""
    return [call() for call in calls]


def at_once(calls: Sequence[Callable[[], R]]) -> list[R]:
    """On threads of their own, the first on the caller's; a call may do the same.

    Returns, or raises, when all of them have ended: no effect of any comes later. Of several
    exceptions the first is raised that tells of an unknown outcome, else the first.
    """
    if len(calls) < 2:
        return in_turn(calls)
    with ThreadPoolExecutor(min(len(calls), MOST_AT_ONCE) - 1, "metatable-request") as pool:
        futures = [pool.submit(call) for call in calls[1:]]
        first: Future[R] = Future()
        try:
            first.set_result(calls[0]())
        except Exception as error:
            first.set_exception(error)
    raised = [told for one in (first, *futures) if (told := one.exception()) is not None]
    for told in sorted(raised, key=_is_known):
        raise told
    return [one.result() for one in (first, *futures)]


def _is_known(error: BaseException) -> bool:
    """Whether it is certain that what was asked was not done, and will not be."""
    return isinstance(error, MetatableError) and not isinstance(error, StoreError)
