"""A commit is tried again when another writer was first."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from metatable.storage import clock
from metatable.storage.errors import ConflictError
from metatable.write.late_logs import is_about_late_logs

__all__ = ["attempts"]

FIRST_WAIT_SECONDS = 0.02

_log = logging.getLogger("metatable.write")

Done = TypeVar("Done")


def attempts(
    operation: str,
    retries: int,
    attempt: Callable[[int], Done],
    carry_out: Callable[[], None] | None = None,
) -> Done:
    """What `attempt`, told its number from 1 on, gives when no other writer was first.

    Waits a while by chance in between, twice as long each time. `carry_out`: carries out scheduled
    compactions of logs, where one is in the way. Raises ConflictError after so many retries.
    """
    for number in range(1, retries + 1):
        try:
            return attempt(number)
        except ConflictError as lost:
            _log.info("%s, attempt %d was lost: %s", operation, number, _without_keys(lost))
            if carry_out is not None and is_about_late_logs(lost):
                carry_out()
                continue
            clock.pause(random.uniform(0, FIRST_WAIT_SECONDS * 2 ** min(number - 1, 6)))
    return attempt(retries + 1)


def _without_keys(lost: ConflictError) -> ConflictError:
    """The same error for a log, where no keys are told."""
    told = {name: fact for name, fact in lost.facts.items() if name != "keys"}
    return ConflictError(lost.what, **told)
