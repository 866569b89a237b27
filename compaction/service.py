"""Service: look at the state, plan, work, publish one change.

A plan is made of a snapshot and only reads: what is due, or why nothing is. The work carries it
out and returns the change to publish. `execute` is the only way from one to the other: recover,
pin, plan, work, put; a dry run ends with the plan, and writes nothing at all. A
compaction that loses to another compaction starts again; a rollback does not, for the commit
that it meant to undo is no longer the last one.

A service with an `action` writes data files: it is a commit of that kind on Hudi's timeline, begun
before its work, and the owner that it is given has the instant. One that `reserves` takes an
instant for what begins later, of the action that it says.

`schedule` stores the plan instead. `Scheduled` is the service with such a plan in the place of
one of its own: checked on the newest version, worked, and dropped by a step after the put.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from metatable.engine.protocol import Engine
from metatable.metadata.change import Change
from metatable.metadata.manifest import Manifest, load_newest
from metatable.metadata.owner import Owner
from metatable.metadata.plans import dropping, load_plan, put_plan, waiting_plans
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.transaction import Transaction
from metatable.results import ServiceResult
from metatable.storage.errors import ConflictError, StaleError, UsageError
from metatable.storage.store import Store

__all__ = [
    "NothingDue",
    "Outcome",
    "Plan",
    "Schedulable",
    "Scheduled",
    "Service",
    "due",
    "execute",
    "schedule",
]

_log = logging.getLogger("metatable.compaction")


class Plan(Protocol):
    """What a service means to do on a version."""

    @property
    def told(self) -> str:
        """In a few words, for people."""
        ...


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True, slots=True)
class NothingDue:
    """A plan to do nothing, and why. `facts`: of the `ServiceResult`."""

    told: str
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
    """One table service."""

    @property
    def name(self) -> str: ...

    @property
    def retries(self) -> int:
        """How often it may start again after a lost race."""
        ...

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
class _TakenUp:
    """A stored plan, and where it lies."""

    path: str
    plan: Any

    @property
    def told(self) -> str:
        return str(self.plan.told)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`service` with the stored plan of this name."""

    service: Schedulable[Any]
    plan_name: str

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def retries(self) -> int:
        return self.service.retries

    def plan(self, snapshot: Snapshot) -> _TakenUp:
        path, stored = load_plan(snapshot.store, self.plan_name)
        if stored.service != self.name:
            raise UsageError(
                "a plan of another service", path=path, expected=self.name, found=stored.service
            )
        return _TakenUp(path, self.service.resume(snapshot, stored.work, path))

    @property
    def action(self) -> str | None:
        return _action_of(self.service)

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
    return _told(store, engine, service, _looked_at if dry_run else _carried_out)


def schedule(store: Store, engine: Engine[Any], service: Schedulable[Any]) -> ServiceResult:
    """Store what is due, for `Scheduled` to carry out: `plan` of the result is its name."""
    return _told(store, engine, service, _stored)


def due(store: Store, services: Iterable[Service[Any]]) -> list[ServiceResult]:
    """Stored plans that wait, and what these services have to do on the newest version, as dry
    runs tell it. Writes nothing."""
    newest = load_newest(store)
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    found = [
        ServiceResult(plan.service, newest.version, reason=f"scheduled: {plan.told}", plan=name)
        for name, plan in waiting_plans(store)
    ]
    snapshot = Snapshot(store, newest)
    for service in services:
        began, plan = time.perf_counter(), service.plan(snapshot)
        if not isinstance(plan, NothingDue):
            facts = getattr(plan, "facts", {})
            seconds = time.perf_counter() - began
            told = {"reason": f"due: {plan.told}", "seconds": seconds, **facts}
            found.append(ServiceResult(service.name, newest.version, **told))
    return found


_Done = tuple[int, str, Mapping[str, Any]]
"""The table's version, what was done or why nothing was, facts."""


def _told(
    store: Store,
    engine: Engine[Any],
    service: Service[Any],
    run: Callable[[Store, Engine[Any], Service[Any]], _Done],
) -> ServiceResult:
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
    snapshot = transaction.snapshot
    plan = service.plan(snapshot)
    _log.info("%s on version %d: %s", service.name, snapshot.version, plan.told)
    if isinstance(plan, NothingDue):
        return snapshot.version, plan.told, plan.facts
    outcome = service.work(engine, snapshot, plan, _begun(transaction, service))
    newest = transaction.publish(outcome.change)
    if outcome.after is None:
        return newest.version, plan.told, outcome.facts
    version, facts = outcome.after(snapshot.store, newest)
    return version, plan.told, {**outcome.facts, **facts}


def _action_of(service: Service[Any]) -> str | None:
    return getattr(service, "action", None)


def _begun(transaction: Transaction, service: Service[Any]) -> Owner:
    later, action = getattr(service, "reserves", None), _action_of(service)
    if later is not None:
        return transaction.reserve(later)
    if action is None:
        return transaction.serve(service.name)
    transaction.start(action)
    transaction.begin_files()
    return transaction.owner


def _stored(store: Store, _: Engine[Any], service: Service[Any]) -> _Done:
    with Transaction.begin(store) as transaction:
        version, plan = transaction.base.version, service.plan(transaction.snapshot)
        if isinstance(plan, NothingDue):
            return version, plan.told, plan.facts
        name = put_plan(store, service.name, version, plan.encode(), plan.told)
        return version, f"scheduled, nothing was done: {plan.told}", {"plan": name}


def _looked_at(store: Store, _: Engine[Any], service: Service[Any]) -> _Done:
    newest = load_newest(store)
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    plan = service.plan(Snapshot(store, newest))
    due = "" if isinstance(plan, NothingDue) else "dry run, nothing was done: "
    return newest.version, due + plan.told, getattr(plan, "facts", {})
