"""An ordered pool of threads: work on partitions, whose results leave in their order.

No more than two parts per thread are under way, so what has been made and waits is bounded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from metatable.engine.batches import Partition
from metatable.storage.together import gravest

__all__ = ["logged", "pooled", "tidied"]

_log = logging.getLogger("metatable.engine")

T = TypeVar("T")

BUSY_BYTES = 64 << 20
"""If Arrow holds more than this, its pool gives back what it keeps for later."""


def tidied(work: Callable[[Partition], T], part: Partition) -> T:
    """`work(part)`, and what it has used goes back to the system."""
    done = work(part)
    if pa.total_allocated_bytes() > BUSY_BYTES:
        pa.default_memory_pool().release_unused()
    return done


def pooled(parts: Iterable[Partition], work: Callable[[Partition], T], slots: int) -> Iterator[T]:
    """`work(part)` of each, on so many threads. An exception ends it: what has not begun is
    dropped, what has begun is waited for, and of several that are raised then it is the gravest, of
    the earliest part."""
    pool = ThreadPoolExecutor(slots, thread_name_prefix="metatable")
    ahead: deque[Future[T]] = deque()
    try:
        for part in parts:
            ahead.append(pool.submit(work, part))
            if len(ahead) >= 2 * slots:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    except Exception as error:
        pool.shutdown(wait=True, cancel_futures=True)
        ended = (one.exception() for one in ahead if not one.cancelled())
        worst = gravest([error, *filter(None, ended)])
        if worst is error:
            raise
        raise worst from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def logged(parts: Iterable[T], tasks: Iterable[Partition]) -> Iterator[T]:
    """The same; how far it is goes to the log, as text and as `done` and `of` of the record."""
    of = len(tasks) if isinstance(tasks, Sequence) else None
    for done, part in enumerate(parts, 1):
        if of is not None and of > 1:
            _log.debug("task %d of %d", done, of, extra={"done": done, "of": of})
        yield part
