"""How any service is carried out: begun anew after a lost race, so often and no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import ConflictError, CorruptError, Table, UsageError
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import Outcome, Plan, Service, execute
from metatable.compaction.ways_back.rollback import Rollback
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.manifests.home import HOME
from metatable.storage.store import Store
from tests.faults import READS, watched
from tests.model import SCHEMA, arrow

FAST = {"durable": "false"}


@dataclass
class Losing(Plan, Service[Any]):
    """A service that loses `races` races, then publishes."""

    races: int
    retries: int = 0
    bases: list[int] = field(default_factory=list)
    owners: list[Any] = field(default_factory=list)
    name: str = "compact"

    def plan(self, snapshot: Any) -> Losing:
        return self

    @property
    def summary(self) -> str:
        return "done"

    def work(self, _engine: Any, snapshot: Any, plan: Losing, owner: Any) -> Outcome:
        assert plan is self
        self.bases.append(snapshot.manifest.version)
        self.owners.append(owner)
        if len(self.bases) <= self.races:
            raise ConflictError("another was first: retry")
        return Outcome(Change(self.name))


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


def grown(table: Table) -> Table:
    for first in (0, 5, 10):
        table.upsert(arrow([{"id": f"k{n}", "city": "ny", "v": first} for n in range(first, 20)]))
    return table


@pytest.mark.parametrize(
    ("service", "told"),
    [
        (Compact(), "dry run, nothing was done: minor, "),
        (Compact(major=True), "dry run, nothing was done: major, "),
        (Compact(partitions=["bloom_filter"], buckets=[0], major=True), "1 bucket ranges"),
        (Rollback(), "dry run, nothing was done: commit 2"),
        (Rollback("20200101000000000"), "only the last commit"),
        (Compact(buckets=[99]), "no such bucket"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_dry_run_tells_what_is_due_and_writes_nothing(
    table: Table, service: Any, told: str
) -> None:
    version = grown(table).version
    store, backend = watched(table.uri)
    try:
        result = execute(store, LocalEngine(1), service, dry_run=True)
        said = result.reason
        assert result.version == version
    except UsageError as error:
        said = str(error)
    assert told in said
    assert {verb for verb, _ in backend.calls} <= READS
    assert table.version == version


def test_a_dry_run_tells_that_nothing_is_due(table: Table) -> None:
    grown(table).compact(major=True)
    done = table.compact(dry_run=True)
    assert done.reason == "nothing to compact"
    assert done.files_before == done.files_after > 0


def test_a_dry_run_of_a_rollback_proves_that_it_can_be_done(table: Table) -> None:
    instant = grown(table).instant
    assert instant is not None
    lost = min(Path(table.uri, HOME, "files").glob("*.hfile"))  # of the first commit
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(CorruptError, match="lacks an index file"):
        table.rollback(dry_run=True)
    lost.write_bytes(kept)
    assert instant in table.rollback(dry_run=True).reason
    assert table.rollback(instant).reason.endswith("undone")
    assert table.rollback(instant, dry_run=True).reason == f"commit {instant} is undone already"
