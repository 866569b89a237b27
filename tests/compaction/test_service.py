"""How any service is carried out: begun anew after a lost race, so often and no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import metatable
from metatable import ConflictError, Table
from metatable.compaction.service import Outcome, execute
from metatable.engine.local import LocalEngine
from metatable.metadata.change import Change
from metatable.storage.store import Store
from tests.model import SCHEMA

FAST = {"durable": "false"}


@dataclass
class Losing:
    """A service that loses `races` races, then publishes."""

    races: int
    retries: int
    bases: list[int] = field(default_factory=list)
    owners: list[Any] = field(default_factory=list)
    name: str = "compact"

    def work(self, _engine: Any, snapshot: Any, owner: Any) -> Outcome:
        self.bases.append(snapshot.manifest.version)
        self.owners.append(owner)
        if len(self.bases) <= self.races:
            raise ConflictError("another was first: retry")
        return Outcome(Change(self.name), "done")


@pytest.fixture
def table(table_uri: str) -> Table:
    return metatable.create(table_uri, SCHEMA, key="id", storage_options=FAST)


def carried_out(table: Table, service: Losing) -> Any:
    return execute(Store(table.uri, FAST), LocalEngine(1), service)


@pytest.mark.parametrize("races", [0, 1, 2])
def test_a_lost_race_is_run_again_under_a_name_of_its_own(table: Table, races: int) -> None:
    service = Losing(races, retries=2)
    assert carried_out(table, service).version == table.version == 2
    assert service.bases == [1] * (races + 1)
    assert len({owner.nonce for owner in service.owners}) == races + 1


@pytest.mark.parametrize("retries", [0, 3])
def test_races_lost_once_more_than_allowed_are_told(table: Table, retries: int) -> None:
    service = Losing(10, retries)
    with pytest.raises(ConflictError, match="another was first"):
        carried_out(table, service)
    assert len(service.bases) == retries + 1
    assert table.version == 1
