"""A commit is tried again when another writer was first."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from metatable.storage import clock
from metatable.storage.errors import ConflictError
from metatable.write.late_logs import CarryOut, plan_in_the_way

__all__ = ["attempts"]

FIRST_WAIT_SECONDS = 0.02
MOST_PLANS = 100
"""So many scheduled compactions are carried out for one commit: others may go on scheduling."""

_log = logging.getLogger("metatable.write")

Done = TypeVar("Done")


def attempts(
    operation: str,
    retries: int,
    attempt: Callable[[int], Done],
    carry_out: CarryOut | None = None,
) -> Done:
    """What `attempt`, told its number from 1 on, gives when no other writer was first.

    Waits a while by chance in between, twice as long each time. `carry_out`: for scheduled
    compactions that are in the way (`late_logs.py`), which is no race, and begins again at once.
    Raises ConflictError after so many retries.
    """
    lost_races = plans = 0
    while True:
        number = 1 + lost_races + plans
        try:
            return attempt(number)
        except ConflictError as lost:
            _log.info("%s, attempt %d was lost: %s", operation, number, _without_keys(lost))
            plan = plan_in_the_way(lost)
            if plan and carry_out is not None and plans < MOST_PLANS:
                plans += 1
                carry_out(plan)
                continue
            if lost_races == retries:
                raise
            clock.pause(random.uniform(0, FIRST_WAIT_SECONDS * 2 ** min(lost_races, 6)))
            lost_races += 1


def _without_keys(lost: ConflictError) -> ConflictError:
    """The same error for a log, where no keys are told."""
    told = {name: fact for name, fact in lost.facts.items() if name != "keys"}
    return ConflictError(lost.what, **told)
