"""Service: look at the state, plan, work, publish one change.

A plan is made of a snapshot and only reads: what is due, or why nothing is. The work carries it
out and returns the change to publish. `execute` is the only way from one to the other: recover,
pin, plan, work, put; a dry run ends with the plan, and writes nothing at all. A
compaction that loses to another compaction starts again; a rollback does not, for the commit
that it meant to undo is no longer the last one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

from metatable.engine.protocol import Engine
from metatable.metadata.change import Change
from metatable.metadata.manifest import load_newest
from metatable.metadata.owner import Owner
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.transaction import Transaction
from metatable.results import ServiceResult
from metatable.storage.errors import ConflictError, StaleError
from metatable.storage.store import Store

__all__ = ["NothingDue", "Outcome", "Plan", "Service", "execute"]


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


def execute(
    store: Store, engine: Engine[Any], service: Service[Any], *, dry_run: bool = False
) -> ServiceResult:
    """Carry out one service. Raises ConflictError after lost races; nothing is half done."""
    began = time.perf_counter()
    counted = store.counting(engine.counters)
    done = _looked_at(counted, service) if dry_run else _carried_out(counted, engine, service)
    version, reason, facts = done
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


_Done = tuple[int, str, Mapping[str, Any]]
"""The table's version, what was done or why nothing was, facts."""


def _carried_out(store: Store, engine: Engine[Any], service: Service[Any]) -> _Done:
    for attempt in count():
        try:
            with Transaction.begin(store) as transaction:
                return _worked(transaction, engine, service)
        except ConflictError:
            if attempt == service.retries:
                raise
    raise AssertionError("unreachable")


def _worked(transaction: Transaction, engine: Engine[Any], service: Service[Any]) -> _Done:
    snapshot = transaction.snapshot
    plan = service.plan(snapshot)
    if isinstance(plan, NothingDue):
        return snapshot.version, plan.told, plan.facts
    outcome = service.work(engine, snapshot, plan, transaction.serve(service.name))
    return transaction.publish(outcome.change).version, plan.told, outcome.facts


def _looked_at(store: Store, service: Service[Any]) -> _Done:
    newest = load_newest(store)
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    plan = service.plan(Snapshot(store, newest))
    due = "" if isinstance(plan, NothingDue) else "dry run, nothing was done: "
    facts = plan.facts if isinstance(plan, NothingDue) else {}
    return newest.version, due + plan.told, facts
