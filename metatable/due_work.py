"""What a call asks to be done with what its service finds due: do it at once, only say it, store it
as a plan, carry a stored plan out, or take one back.

There are two kinds of plans. One is carried out while nobody else alters what it names (`planned`),
and is called by its service and a number. The other waits on Hudi's timeline while writers go on,
on top of what it will make (`beside_writers`), and is called by its instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from metatable.arguments import one_of
from metatable.compaction.reshaping.log_compaction import CompactLogs, ScheduleLogs
from metatable.compaction.reshaping.waiting_plans import TakeBack, carry_out_all
from metatable.compaction.reshaping.waiting_resize import CarryOutResize, ScheduleResize
from metatable.compaction.service import Schedulable, Scheduled, execute, take_back
from metatable.compaction.service import schedule as store_plan
from metatable.results import ServiceResult
from metatable.storage.errors import UsageError

__all__ = ["Asked", "Serve", "beside_writers", "planned"]

Serve = Callable[..., ServiceResult]
"""Runs a function of `compaction.service` on an engine: `(run, service, session, **how)`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments by which a call says what is to be done; by default it is done at once."""

    dry_run: bool
    schedule: bool
    plan: str | None
    """The name of a stored plan."""
    take_back: bool = False


def planned(
    serve: Serve, service: Schedulable[Any], session: Any, asked: Asked, **told: Any
) -> ServiceResult:
    """Store the plan of what is due, carry out a stored one or take it back, or plan and work at
    once.

    `told`: arguments that a stored plan tells itself. Raises UsageError where these are given with
    one, and where arguments contradict each other.
    """
    if asked.schedule:
        one_of(schedule=True, dry_run=asked.dry_run, plan=asked.plan, take_back=asked.take_back)
        return serve(store_plan, service)
    if asked.plan is None:
        _check_named(asked)
        return serve(execute, service, session, dry_run=asked.dry_run)
    one_of(plan=asked.plan, **told)
    run = take_back if asked.take_back else execute
    return serve(run, Scheduled(service, asked.plan), session, dry_run=asked.dry_run)


def beside_writers(
    serve: Serve,
    service: ScheduleLogs | ScheduleResize,
    carry_out: type[CompactLogs | CarryOutResize],
    session: Any,
    asked: Asked,
    **told: Any,
) -> ServiceResult:
    """Schedule what is due, carry out or take back what waits (`plan`), or carry out all that waits
    and then what is due. `told`, and errors: as of `planned`."""
    plan = asked.plan
    if asked.schedule:
        one_of(schedule=True, dry_run=asked.dry_run, plan=plan, take_back=asked.take_back)
        return serve(execute, service)
    if plan is None:
        _check_named(asked)
        every = partial(carry_out_all, carry_out=carry_out)
        return serve(every, service, session, dry_run=asked.dry_run)
    if not isinstance(plan, str):
        expected = "an instant, as schedule=True names it"
        raise UsageError("not the name of a plan", found=plan, expected=expected)
    one_of(plan=plan, **told)
    chosen = TakeBack(plan, service.reserves) if asked.take_back else carry_out(plan)
    return serve(execute, chosen, session, dry_run=asked.dry_run)


def _check_named(asked: Asked) -> None:
    """Without the name of a plan none is taken back."""
    if asked.take_back:
        raise UsageError("take back of which plan?", expected="plan=")
