"""Service: look at the state, choose, work, publish one change.

A service plans on a snapshot and returns an `Outcome`: a change to publish (or none) and what
to tell the user. `execute` is the only way one is carried out: recover, pin, work, put. A
compaction that loses to another compaction starts again; a rollback does not, for the commit
that it meant to undo is no longer the last one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from metatable.engine.protocol import Engine
from metatable.metadata.change import Change
from metatable.metadata.owner import Owner
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.transaction import Transaction
from metatable.results import ServiceResult
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store

__all__ = ["Outcome", "Service", "execute"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a service wants published (None: nothing to do) and what it has to say."""

    change: Change | None
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Service(Protocol):
    """One table service."""

    @property
    def name(self) -> str: ...

    @property
    def retries(self) -> int:
        """How often it may start again after a lost race."""
        ...

    def work(self, engine: Engine[Any], snapshot: Snapshot, owner: Owner) -> Outcome:
        """Index files are written under the owner's name: whatever is not published goes."""
        ...


def execute(store: Store, engine: Engine[Any], service: Service) -> ServiceResult:
    """Carry out one service. Raises ConflictError after lost races; nothing is half done."""
    began = time.perf_counter()
    counted = store.counting(engine.counters)
    for attempt in count():
        try:
            with Transaction.begin(counted) as transaction:
                outcome = service.work(
                    engine, transaction.snapshot, transaction.serve(service.name)
                )
                version = transaction.base.version
                if outcome.change is not None:
                    version = transaction.publish(outcome.change).version
            break
        except ConflictError:
            if attempt == service.retries:
                raise
    return ServiceResult(
        service=service.name,
        version=version,
        reason=outcome.reason,
        bytes_read=engine.counters["store.bytes_read"],
        bytes_written=engine.counters["store.bytes_written"],
        seconds=time.perf_counter() - began,
        counters=dict(engine.counters),
        **outcome.facts,
    )
