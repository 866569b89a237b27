"""Calls that need not wait for each other.

On a disk they are made one after the other, as given: an answer takes less than a thread does. On
an object store an answer takes tens of milliseconds, whatever is asked, and so they go out at once:
what counts there are *rounds*, requests that follow each other. Which it is to be, a backend says
(`Backend.together`). Files that a disk has to settle (fsync) go to it at once, too, where it takes
its time: it settles many in the time of one (`Backend.write_together`).

Whoever hands calls over says that any of them may be carried out before any other, and that those
of a process that dies may be carried out in any part. Tests hold callers to that: simulated stores
make the calls in a random order, and die in between.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from metatable.storage.errors import AccessError, MetatableError, StoreError
from metatable.storage.threads import as_here

__all__ = ["MOST_AT_ONCE", "at_once", "begun", "gravest", "in_turn"]

R = TypeVar("R")

MOST_AT_ONCE = 32
"""Calls of one caller: what a service and its client's connections take without complaint."""


def in_turn(calls: Sequence[Callable[[], R]]) -> list[R]:
    """What the calls return, made one after the other. The first exception ends it: what is behind
    it is not called."""
    return [call() for call in calls]


def at_once(calls: Sequence[Callable[[], R]]) -> list[R]:
    """On threads that do nothing else, the first on the caller's; a call may do the same.

    Returns, or raises, when all of them have ended: no effect of any comes later. Of several
    exceptions the `gravest` is raised.
    """
    if len(calls) < 2:
        return in_turn(calls)
    told: list[Future[R]] = [Future() for _ in calls]
    pairs = zip(told, calls, strict=True)
    first, left = next(pairs), deque(pairs)
    try:
        for _ in range(min(len(left), MOST_AT_ONCE - 1)):
            if not _on_a_thread(as_here(partial(_make, left))):
                break  # those that there are, and the caller, make all of them
        _make(deque([first]))
    finally:
        _make(left)
        wait(told[1:])
    raised = [error for one in told if (error := one.exception()) is not None]
    if raised:
        raise gravest(raised)
    return [one.result() for one in told]


def gravest(errors: Sequence[BaseException]) -> BaseException:
    """Of what several calls have raised, an interrupt, else the first that tells of an unknown
    outcome, else the first: after a known one what was written is deleted, and another may still
    come."""
    return min(errors, key=lambda one: (isinstance(one, Exception), _is_known(one)))


def begun(call: Callable[[], R]) -> Callable[[], R]:
    """`call`, made on a thread while the caller goes on. What is returned waits for its end, and
    gives, or raises, what it came to, as often as it is called."""
    told: Future[R] = Future()
    work = as_here(partial(_make, deque([(told, call)])))
    if not _on_a_thread(work):
        work()
    return told.result


def _make(left: deque[tuple[Future[Any], Callable[[], Any]]]) -> None:
    """Make those of these calls that nobody else makes."""
    while True:
        try:
            told, call = left.popleft()
        except IndexError:
            return
        try:
            told.set_result(call())
        except BaseException as error:
            told.set_exception(error)


_idle: deque[SimpleQueue[Callable[[], None]]] = deque()
"""Threads that wait for work, each by its own queue: to start one takes longer than a request of a
near store. Nobody waits for a thread, so that calls within calls cannot wait for each other."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked child has none of them


def _on_a_thread(work: Callable[[], None]) -> bool:
    """False: no thread is to be had, for a system bounds those of a process or of a user."""
    try:
        given = _idle.pop()
    except IndexError:
        given = SimpleQueue()
        name = "metatable-request"
        thread = threading.Thread(target=_serve, args=(given,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
    given.put(work)
    return True


def _serve(given: SimpleQueue[Callable[[], None]]) -> None:
    given.get()()
    while len(_idle) < MOST_AT_ONCE:
        _idle.append(given)
        given.get()()


def _is_known(error: BaseException) -> bool:
    """Whether it is certain that what was asked was not done, and will not be. What is refused may
    have been a repeat."""
    return isinstance(error, MetatableError) and not isinstance(error, StoreError | AccessError)
