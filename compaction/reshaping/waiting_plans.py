"""Compactions of logs and resizes of buckets that are scheduled: which wait, and taking one back.

A version says so (`metadata/commits/scheduled.py`), and so does Hudi's timeline. Until one is
carried out, or taken back, writers go on by what it is to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metatable.compaction.service import Outcome, Plan, Service, execute
from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.operations import COMPACT_LOGS, RESIZE
from metatable.data.hoodie.timeline import CLUSTERING, COMPACTION, Timeline
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.requirements import SlicesCurrent
from metatable.metadata.commits.scheduled import PlannedUnchanged, SetUnscheduled, Unschedule
from metatable.metadata.commits.scheduled_plans import (
    logs_left,
    staged_plan,
    waiting_slices,
)
from metatable.metadata.commits.steps import drop_markers, lying_ready
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.commits.updates import Withdraw
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_newest, newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import ServiceResult
from metatable.storage.errors import ConflictError, NotFoundError, UsageError
from metatable.storage.store import Store

__all__ = ["TakeBack", "begin", "carried_out", "carry_out_all", "check_waits", "tidied", "waiting"]

_SERVICES = {COMPACTION: COMPACT_LOGS, CLUSTERING: RESIZE}
_WORDS = {COMPACTION: "compaction of logs", CLUSTERING: "resize of buckets"}


def carry_out_all(
    store: Store,
    engine: Engine[Any],
    schedule: Service[Any],
    *,
    carry_out: Callable[[str], Service[Any]],
    dry_run: bool = False,
) -> ServiceResult:
    """Carry out all of a service that waits, the oldest first, then schedule what is due and carry
    that out (`carry_out` makes the service that does, of an instant).

    What another one carries out meanwhile is left to that one. Raises ConflictError.
    """
    waits = [one.plan for one in waiting(store) if one.service == schedule.name]
    if dry_run:
        due = execute(store, engine, schedule, dry_run=True)
        return replace(due, reason="; ".join([*(f"{one} waits" for one in waits), due.reason]))
    done = [carried_out(store, engine, carry_out(one)) for one in waits]
    due = execute(store, engine, schedule)
    if due.plan:
        waits.append(due.plan)
        done.append(carried_out(store, engine, carry_out(due.plan)))
    reasons = [
        f"{instant} waits no more: another process carried it out, or took it back"
        if one is None
        else one.reason
        for instant, one in zip(waits, done, strict=True)
    ]
    return _summed(engine, due, [one for one in done if one is not None], reasons)


def _summed(
    engine: Engine[Any], due: ServiceResult, ours: Sequence[ServiceResult], reasons: Sequence[str]
) -> ServiceResult:
    """One result of what was scheduled (`due`) and of all that was carried out (`ours`)."""
    return replace(
        ours[-1] if ours else due,
        version=max(one.version for one in (due, *ours)),
        files_before=sum(one.files_before for one in ours),
        files_after=sum(one.files_after for one in ours),
        entries=sum(one.entries for one in ours),
        bytes_read=engine.counters["store.bytes_read"],
        bytes_written=engine.counters["store.bytes_written"],
        counters=dict(engine.counters),
        seconds=due.seconds + sum(one.seconds for one in ours),
        reason="; ".join(reasons if ours else [*reasons, due.reason]),
    )


def carried_out(store: Store, engine: Engine[Any], service: Service[Any]) -> ServiceResult | None:
    """Carry one out (`service`); None where it waits no more: another process was first."""
    try:
        return execute(store, engine, service)
    except NotFoundError:
        return None


def check_waits(snapshot: Snapshot, instant: str, action: str) -> None:
    """Raises NotFoundError where none of this kind was scheduled, or it does not wait any more."""
    held = snapshot.manifest.compactions
    if instant not in held or held[instant].action != action:
        raise NotFoundError(
            f"no such {_WORDS[action]} waits: it is carried out, or was taken back",
            found=instant,
            expected=sorted(one for one, plan in held.items() if plan.action == action),
        )


def begin(snapshot: Snapshot, instant: str, action: str) -> None:
    """Say on Hudi's timeline that it is carried out. Raises ConflictError where it waits no more:
    what is under way without a plan would stay there. So it does where the table has gone back
    since the snapshot: its columns may be others, and nothing of it would count."""
    store = snapshot.store
    timeline = Timeline(store)
    is_first = timeline.inflight(instant, action)
    newest = load_newest(store)  # behind it: who goes back from now on finds that it was begun
    if newest is None or instant not in newest.compactions:
        if is_first:
            timeline.withdraw(instant, ("inflight",), action)
        raise ConflictError("another one has carried it out, or taken it back", found=instant)
    if newest.restored_at > snapshot.version:
        raise ConflictError("the table has gone back meanwhile: retry", found=instant)


def waiting(store: Store) -> list[ServiceResult]:
    """What is scheduled, and nobody has carried out yet, the oldest first."""
    newest = load_newest(store)
    held = sorted(newest.compactions.items()) if newest else []
    return [
        ServiceResult(
            _SERVICES[one.action],
            newest.version,
            reason=f"scheduled: {one.group_count:,} slices, {one.size_bytes:,} bytes to read",
            plan=instant,
        )
        for instant, one in held
        if newest
    ]


@dataclass(frozen=True, slots=True)
class TakeBackPlan(Plan):
    """Slices that wait, and need not."""

    slices: tuple[FileSlice, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class TakeBack(Service[TakeBackPlan]):
    """As if that one had not been scheduled, as long as no log lies only on what it is to make: of
    groups that were written anew, or went, older versions may name some, whose rows would be lost
    to whoever goes back there."""

    instant: str
    kind: str = COMPACTION

    @property
    def name(self) -> str:
        return _SERVICES[self.kind]

    def plan(self, snapshot: Snapshot) -> TakeBackPlan:
        """Raises NotFoundError where it does not wait (any more), UsageError where logs do."""
        check_waits(snapshot, self.instant, self.kind)
        slices = waiting_slices(snapshot, self.instant)
        late = [log.path for one in slices for log in one.ahead]
        late += logs_left(snapshot, self.instant, slices)
        if late:
            raise UsageError(
                f"commits have put logs on what this {_WORDS[self.kind]} is to make: carry it out",
                instant=self.instant,
                found=late[:5],
            )
        told = f"{_WORDS[self.kind]} {self.instant} of {len(slices):,} slices taken back"
        return TakeBackPlan(tuple(slices), told)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: TakeBackPlan, owner: Owner
    ) -> Outcome:
        instant, held = self.instant, snapshot.manifest.compactions[self.instant]
        step = Step("unrequest", instant, held.plan, held.checksum, self.kind)
        change = Change(
            operation="take_back_logs" if self.kind == COMPACTION else "take_back_resize",
            requires=(PlannedUnchanged(instant, ()), SlicesCurrent(plan.slices)),
            updates=(
                Unschedule(instant),
                SetUnscheduled(plan.slices, owner),
                Withdraw((instant,)),
            ),
            steps=(lying_ready(snapshot.store, step),),
            summary={"slices": len(plan.slices)},
        )
        return Outcome(change, {"plan": instant})


def tidied(
    store: Store, newest: Manifest, instant: str, action: str
) -> tuple[int, Mapping[str, Any]]:
    """Whoever dies before leaves it to `clean`. Of what was undone meanwhile all stays that tells
    whose step it is to undo that it is not done."""

    def drop() -> None:
        if instant in newest_of(store).withdrawn:
            return
        drop_markers(store, instant)
        store.delete([staged_plan(instant, action)])

    tidy(f"traces of {instant}", drop)
    return newest.version, {}
