"""Service: look at the state, plan, work, publish one change.

A plan is made of a snapshot and only reads: what is due, or why nothing is. The work carries it
out and returns the change to publish. `execute` is the only way from one to the other: recover,
pin, plan, work, put; a dry run ends with the plan, and writes nothing at all. A
compaction that loses to another compaction starts again; a rollback does not, for the commit
that it meant to undo is no longer the last one.

`schedule` stores the plan instead. `Scheduled` is the service with such a plan in the place of
one of its own: checked on the newest version, worked, and dropped by a step after the put.
`take_back` drops it undone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from metatable.engine.protocol import Engine
from metatable.engine.shared_store import check_shared
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.plans import (
    StoredPlan,
    dropping,
    load_plan,
    put_plan,
    waiting_plans,
)
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import ServiceResult
from metatable.storage.errors import ConflictError, StaleError, UsageError
from metatable.storage.store import Store

__all__ = [
    "RETRIES",
    "NothingDue",
    "Outcome",
    "Plan",
    "Schedulable",
    "Scheduled",
    "Service",
    "due",
    "execute",
    "looking",
    "schedule",
    "take_back",
]

_log = logging.getLogger("metatable.compaction")


RETRIES = 5
"""How often a service starts again after a lost race: it yields to writers, but not for ever."""


class Plan(Protocol):
    """What a service means to do on a version."""

    @property
    def summary(self) -> str:
        """In a few words, for people."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Fields of the `ServiceResult`, where nothing but the plan is made."""
        return {}


P = TypeVar("P", bound=Plan)
S = TypeVar("S", bound="Service[Any]")


@dataclass(frozen=True, slots=True)
class NothingDue(Plan):
    """A plan to do nothing, and why."""

    summary: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a service wants published."""

    change: Change
    facts: Mapping[str, Any] = field(default_factory=dict)
    after: Callable[[Store, Manifest], tuple[int, Mapping[str, Any]]] | None = None
    """What follows the put, given the version it made: deletions, which anybody can go on with. It
    returns the table's version then, and more facts."""


class Service(Protocol[P]):
    """A table service: it plans on a version, does the work, and says what is to be published."""

    @property
    def name(self) -> str:
        """The verb, as in results, plans and the table's history."""
        ...

    @property
    def retries(self) -> int:
        """How often it may start again after a lost race."""
        return RETRIES

    @property
    def action(self) -> str | None:
        """For a service that writes data files, what its commit is on Hudi's timeline: it is begun
        before the work, whose owner has its instant. None for any other."""
        return None

    @property
    def reserves(self) -> str | None:
        """For a service that plans what is carried out later, the action for which it takes an
        instant. None for any other."""
        return None

    def plan(self, snapshot: Snapshot) -> P | NothingDue:
        """What is to be done on this version. Reads, and proves what the work will need."""
        ...

    def work(self, engine: Engine[Any], snapshot: Snapshot, plan: P, owner: Owner) -> Outcome:
        """Index files are written under the owner's name: whatever is not published goes."""
        ...


class Schedulable(Service[P], Protocol[P]):
    """A service whose plans (which have `encode`) can be stored."""

    def resume(self, snapshot: Snapshot, work: Mapping[str, Any], path: str) -> P:
        """The plan that is stored at `path`, if it is right on this version.

        Raises StaleError where it is not, CorruptError where it is nonsense.
        """
        ...


@dataclass(frozen=True, slots=True)
class _TakenUp(Plan):
    """A stored plan, and where it lies."""

    path: str
    plan: Plan

    @property
    def summary(self) -> str:
        return self.plan.summary

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.plan.facts


@dataclass(frozen=True, slots=True)
class Scheduled(Service[_TakenUp]):
    """`service` with the stored plan of this name."""

    service: Schedulable[Any]
    plan_name: str

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def retries(self) -> int:
        return self.service.retries

    def stored(self, store: Store) -> tuple[str, StoredPlan]:
        """The plan, and its path. Raises UsageError, NotFoundError, CorruptError."""
        path, stored = load_plan(store, self.plan_name)
        if stored.service != self.name:
            raise UsageError(
                "a plan of another service", path=path, expected=self.name, found=stored.service
            )
        return path, stored

    def plan(self, snapshot: Snapshot) -> _TakenUp:
        path, stored = self.stored(snapshot.store)
        return _TakenUp(path, self.service.resume(snapshot, stored.work, path))

    @property
    def action(self) -> str | None:
        return self.service.action

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: _TakenUp, owner: Owner
    ) -> Outcome:
        done = self.service.work(engine, snapshot, plan.plan, owner)
        change = replace(done.change, steps=(*done.change.steps, dropping(plan.path)))
        return Outcome(change, {**done.facts, "plan": self.plan_name})


def execute(
    store: Store, engine: Engine[Any], service: Service[Any], *, dry_run: bool = False
) -> ServiceResult:
    """Carry out one service. Raises ConflictError after lost races; nothing is half done."""
    return _result_of(store, engine, service, _looked_at if dry_run else _carried_out)


def schedule(store: Store, engine: Engine[Any], service: Schedulable[Any]) -> ServiceResult:
    """Store what is due, for `Scheduled` to carry out: `plan` of the result is its name."""
    return _result_of(store, engine, service, _stored)


def take_back(
    store: Store, engine: Engine[Any], service: Scheduled, *, dry_run: bool = False
) -> ServiceResult:
    """Forget a stored plan, also one that is out of date; one that is damaged is left to `repair`.
    Who is carrying it out goes on, unless he loses a race. Raises as `Scheduled.stored`."""
    return _result_of(store, engine, service, _found if dry_run else _forgotten)


def due(store: Store, services: Iterable[Service[Any]]) -> list[ServiceResult]:
    """Stored plans that wait, and what these services have to do on the newest version, as dry
    runs tell it. Writes nothing."""
    newest = newest_of(store)
    found = [
        ServiceResult(plan.service, newest.version, reason=f"scheduled: {plan.told}", plan=name)
        for name, plan in waiting_plans(store)
    ]
    snapshot = Snapshot(store, newest)
    for service in services:
        began = time.perf_counter()
        with looking(snapshot):
            plan = service.plan(snapshot)
        if not isinstance(plan, NothingDue):
            seconds = time.perf_counter() - began
            found.append(
                ServiceResult(
                    service.name,
                    newest.version,
                    reason=f"due: {plan.summary}",
                    seconds=seconds,
                    **plan.facts,
                )
            )
    return found


@contextmanager
def looking(snapshot: Snapshot) -> Iterator[None]:
    """While it is only looked what is to be done. Raises StaleError where a service of others has
    taken meanwhile what is looked at."""
    try:
        with snapshot.reading():
            yield
    except ConflictError as lost:
        told = "another service was first: try again"
        raise StaleError(told, path=snapshot.store.uri, version=snapshot.version) from lost


_Done = tuple[int, str, Mapping[str, Any]]
"""The table's version, what was done or why nothing was, facts."""


def _result_of(
    store: Store,
    engine: Engine[Any],
    service: S,
    run: Callable[[Store, Engine[Any], S], _Done],
) -> ServiceResult:
    """What `run` has done, with its time and all that was counted. Raises UsageError for an engine
    whose tasks would not see the table."""
    if not engine.in_process:
        check_shared(store)
    began = time.perf_counter()
    version, reason, facts = run(store.counting(engine.counters), engine, service)
    return ServiceResult(
        service=service.name,
        version=version,
        reason=reason,
        bytes_read=engine.counters["store.bytes_read"],
        bytes_written=engine.counters["store.bytes_written"],
        seconds=time.perf_counter() - began,
        counters=dict(engine.counters),
        **facts,
    )


def _carried_out(store: Store, engine: Engine[Any], service: Service[Any]) -> _Done:
    """Plan, work and publish, again after each lost race. Raises ConflictError for the last."""
    for attempt in count():
        try:
            with Transaction.begin(store) as transaction:
                return _worked(transaction, engine, service)
        except ConflictError as lost:
            if attempt == service.retries:
                raise
            _log.info("%s, attempt %d was lost: %s", service.name, attempt + 1, lost)
    raise AssertionError("unreachable")


def _worked(transaction: Transaction, engine: Engine[Any], service: Service[Any]) -> _Done:
    """One attempt, on the transaction's version."""
    snapshot = transaction.snapshot
    plan = service.plan(snapshot)
    _log.info("%s on version %d: %s", service.name, snapshot.version, plan.summary)
    if isinstance(plan, NothingDue):
        return snapshot.version, plan.summary, plan.facts
    transaction.speculates = engine.speculates
    outcome = service.work(engine, snapshot, plan, _begun(transaction, service))
    newest = transaction.publish(outcome.change)
    if outcome.after is None:
        return newest.version, plan.summary, outcome.facts
    version, facts = outcome.after(snapshot.store, newest)
    return version, plan.summary, {**outcome.facts, **facts}


def _begun(transaction: Transaction, service: Service[Any]) -> Owner:
    if service.reserves is not None:
        return transaction.reserve(service.reserves)
    if service.action is None:
        return transaction.serve(service.name)
    transaction.start(service.action)
    transaction.begin_files()
    return transaction.owner


def _stored(store: Store, _: Engine[Any], service: Service[Any]) -> _Done:
    with Transaction.begin(store) as transaction:
        version, plan = transaction.base.version, service.plan(transaction.snapshot)
        if isinstance(plan, NothingDue):
            return version, plan.summary, plan.facts
        name = put_plan(store, service.name, version, plan.encode(), plan.summary)
        return version, f"scheduled, nothing was done: {plan.summary}", {"plan": name}


def _forgotten(store: Store, _: Engine[Any], service: Scheduled) -> _Done:
    with Transaction.begin(store) as transaction:
        path, stored = service.stored(store)
        store.delete([path])
        told = f"plan taken back: {stored.told}"
        return transaction.base.version, told, {"plan": service.plan_name}


def _found(store: Store, _: Engine[Any], service: Scheduled) -> _Done:
    stored = service.stored(store)[1]
    told = f"dry run, nothing was done: plan taken back: {stored.told}"
    return newest_of(store).version, told, {"plan": service.plan_name}


def _looked_at(store: Store, _: Engine[Any], service: Service[Any]) -> _Done:
    newest = newest_of(store)
    snapshot = Snapshot(store, newest)
    with looking(snapshot):
        plan = service.plan(snapshot)
    so_far = "" if isinstance(plan, NothingDue) else "dry run, nothing was done: "
    return newest.version, so_far + plan.summary, plan.facts
