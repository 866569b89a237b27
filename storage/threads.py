"""Work on a few threads, results in order: for what lets go of the interpreter's lock.

Decompression, checksums, Arrow's and numpy's passes over megabytes do. `in_order` keeps only
a few results ahead of who takes them, so that memory is bounded by that look-ahead.

One pool a process, made when it is first needed and made anew in a forked child. A function
that runs on the pool may call `in_order` itself: it then runs where it is, which cannot
deadlock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TypeVar

__all__ = [
    "WORKERS",
    "as_here",
    "beside",
    "here_alone",
    "in_order",
    "one_ahead",
    "shared",
    "workers_here",
]

T = TypeVar("T")
R = TypeVar("R")

_MOST_WORKERS = 8
"""More threads than this wait for memory and for the lock, not for a processor."""


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


WORKERS = min(_processors(), _MOST_WORKERS)

_here = threading.local()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def in_order(
    function: Callable[[T], R], items: Iterable[T], workers: int | None = None
) -> Iterator[R]:
    """`function` of each item, in the order of the items, at most `workers` ahead.

    The first exception ends the iteration; what has not begun by then is not done. `items` is
    read on the caller's thread. One worker means: on the caller's thread.
    """
    most = WORKERS if workers is None else workers
    source = iter(items)
    if most <= 1 or getattr(_here, "is_worker", False):
        yield from map(function, source)
        return
    few = list(islice(source, 2))
    if len(few) < 2:  # on a thread it would have nothing to go beside
        yield from map(function, few)
        return
    waiting: deque[Future[R]] = deque()
    try:
        for item in chain(few, source):
            waiting.append(_begun(partial(function, item)))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for one in waiting:
            one.cancel()


def workers_here() -> int:
    """How many of its items `in_order` would work on beside each other, called here."""
    return 1 if getattr(_here, "is_worker", False) else WORKERS


def beside(function: Callable[[], R]) -> Callable[[], R]:
    """`function` is begun while the caller does something else; what is returned waits for its
    result, or raises its exception. Where nothing is to go beside, it is called when asked for."""
    if workers_here() <= 1:
        return function
    return _begun(function).result


def shared(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of each item, of the last one on the caller's thread, which has made the items
    before: for few long calls that do not need the interpreter's lock."""
    begun: list[Callable[[], R]] = []
    held: Callable[[], R] | None = None
    for item in items:
        if held is not None:
            begun.append(beside(held))
        held = partial(function, item)
    last = [] if held is None else [held()]
    return [*(one() for one in begun), *last]


def one_ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, each given when the one behind it was taken: what taking one begins (`beside`)
    goes on while its forerunner is worked on, and no more than that."""
    source = iter(items)
    for held in source:
        for taken in source:
            yield held
            held = taken
        yield held


@contextmanager
def here_alone() -> Iterator[None]:
    """What this thread calls `in_order` for is done on it: for one of many tasks of one kind, which
    keep the processors busy between them and would only wait for each other's pieces."""
    before = getattr(_here, "is_worker", False)
    _here.is_worker = True
    try:
        yield
    finally:
        _here.is_worker = before


def as_here(work: Callable[[], R]) -> Callable[[], R]:
    """`work` for a thread that this one may wait for: what is done in place here is so there. Were
    it handed to the pool by those for whom the pool's threads wait, nobody would be left."""
    if not getattr(_here, "is_worker", False):
        return work

    def alone() -> R:
        with here_alone():
            return work()

    return alone


def _begun(call: Callable[[], R]) -> Future[R]:
    """`call` on the pool, or here where no thread is to be had, as a system bounds those of a
    process or of a user. The pool has queued it all the same: it goes with its queue, and what
    threads it has may make the call once more."""
    try:
        return _executor().submit(call)
    except RuntimeError:
        _drop_pool()
    made: Future[R] = Future()
    try:
        made.set_result(call())
    except BaseException as error:
        made.set_exception(error)
    return made


def _executor() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603  (one pool a process is the point)
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(WORKERS, "metatable", initializer=_mark)
        return _pool


def _mark() -> None:
    _here.is_worker = True


def _drop_pool() -> None:
    global _pool  # noqa: PLW0603
    with _lock:
        _pool = None


def _forget() -> None:
    """A forked child has none of its parent's threads, and perhaps its locked lock."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
