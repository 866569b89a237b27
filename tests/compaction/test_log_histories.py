"""Histories of services on tables with logs: every kept version is what a dict says it was.

Writes, rollbacks, restores, savepoints and cleans come in an order that a seed decides; after each
the newest version is what Hudi's own reader finds, and each version that is kept, and each moment,
is what it was, for Hudi's reader too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import metatable
from metatable import Table
from metatable.storage import cache
from metatable.storage.store import Store
from tests.cleaned import strange_files
from tests.face.protocol.making import FAST, made, newest
from tests.long import LONG
from tests.model import Identity, Model, Row, arrow, listed, read_by_hudi, scanned

TABLES = ("record-avro", "metadata_bloom-parquet", "bloom-parquet", "bucket-avro")
CITIES = ("ny", "sf")
STEPS = 25 if LONG else 8
SEEDS = range(30 if LONG else 1)

State = dict[Identity, Row]


class History:
    """A table, its model, and the rows of all versions that are kept."""

    def __init__(self, table: Table, draw: random.Random) -> None:
        self.table, self.draw = table, draw
        self.model = Model(is_global=False, ordering=False)
        self.states: dict[int, State] = {table.version: {}}
        self.committed: list[int] = []
        """Versions of data commits that count, the last one last."""
        self.pinned: dict[str, int] = {}

    def rows(self) -> list[Row]:
        keys = self.draw.sample(range(16), self.draw.randint(1, 9))
        made = [(f"k{key:02}", self.draw.choice(CITIES), self.draw.randrange(9)) for key in keys]
        return [{"id": key, "city": city, "v": v, "ts": None} for key, city, v in made]

    def write(self, verb: str) -> None:
        rows, before = self.rows(), self.table.version
        if verb == "insert":
            rows = [one for one in rows if self.model.identity(one) not in self.model.rows]
            if not rows:
                return
        getattr(self.table, verb)(arrow(rows))
        {"delete": self.model.delete, "insert_overwrite": self.model.overwrite}.get(
            verb, self.model.upsert
        )(rows)
        if self.table.version > before:
            done = next(one for one in self.table.history() if one.instant)
            self.committed.append(done.version)
            self.states[done.version] = self.model.rows

    def rollback(self) -> None:
        last = self.committed[-1] if self.committed else 0
        before = max((one for one in self.states if one < last), default=0)
        if not last or last in self.pinned.values() or before < self.oldest:
            return
        self.table.rollback()
        self.committed.pop()
        self._went_back(last, self.states[before])

    def restore(self) -> None:
        kept = [one for one in self.committed if one >= self.oldest]
        goals = [one for one in kept if all(pin <= one for pin in self.pinned.values())]
        if goals:
            goal = self.draw.choice(goals)
            self.table.restore(goal)
            self.committed = [one for one in self.committed if one <= goal]
            self._went_back(goal + 1, self.states[goal])

    def restore_savepoint(self) -> None:
        if self.pinned:
            name = max(self.pinned, key=lambda one: self.pinned[one])
            goal = self.pinned[name]
            self.table.restore(savepoint=name)
            self.committed = [one for one in self.committed if one <= goal]
            self._went_back(goal + 1, self.states[goal])

    def _went_back(self, undone: int, state: State) -> None:
        self.states = {one: held for one, held in self.states.items() if one < undone}
        self.states[self.table.version] = self.model.rows = state

    def savepoint(self) -> None:
        if self.committed and not self.pinned:
            self.table.savepoint("kept")
            self.pinned["kept"] = self.committed[-1]

    def drop_savepoint(self) -> None:
        for name in [*self.pinned]:
            self.table.drop_savepoint(name)
            del self.pinned[name]
        self._forget()

    def clean(self) -> None:
        cache.clear()
        done = self.table.clean(versions=self.draw.randint(1, 4), hours=0)
        assert "left alone" not in done.reason
        assert strange_files(Store(self.table.uri)) == []
        self._forget()

    def _forget(self) -> None:
        """What is not kept any more."""
        kept, oldest = {*self.pinned.values()}, self.oldest
        self.states = {
            one: held for one, held in self.states.items() if one >= oldest or one in kept
        }

    def compact(self) -> None:
        self.table.compact(major=self.draw.random() < 0.5)

    @property
    def oldest(self) -> int:
        return self.table.history()[-1].version

    def check(self) -> None:
        cache.clear()
        table = metatable.open(self.table.uri, FAST)
        expected = self.model.listed()
        assert scanned(table) == expected
        assert read_by_hudi(table.uri) == expected
        assert table.verify().findings == ()
        for version, state in self.states.items():
            assert scanned(table, version) == listed(state.values()), version
        told = {one.version: one.instant for one in table.history() if one.instant}
        for version in (one for one in self.committed if one in told and one in self.states):
            found = listed(table.scan(as_of=told[version]).to_arrow().to_pylist())
            assert found == listed(self.states[version].values()), version
            if told[version] >= newest(table).archived:  # else it is none of Hudi's moments
                assert _by_hudi(table.uri, told[version]) == found, version


def _by_hudi(uri: str, instant: str) -> list[tuple[Any, ...]]:
    options = HudiReadOptions().with_as_of_timestamp(instant)
    batches = HudiTableBuilder.from_base_uri(uri).build().read(options)
    return listed(row for batch in batches for row in batch.to_pylist())


ACTS: dict[str, Callable[[History], Any]] = {
    **{
        f"{verb} {turn}": lambda history, verb=verb: history.write(verb)
        for verb, count in (("upsert", 5), ("delete", 2), ("insert", 2), ("insert_overwrite", 1))
        for turn in range(count)
    },
    "rollback": History.rollback,
    "restore": History.restore,
    "restore savepoint": History.restore_savepoint,
    "savepoint": History.savepoint,
    "drop savepoint": History.drop_savepoint,
    "clean": History.clean,
    "compact": History.compact,
}


@pytest.mark.parametrize("number", SEEDS)
@pytest.mark.parametrize("index", TABLES)
def test_every_kept_version_is_what_it_was(index: str, number: int, table_uri: str) -> None:
    draw = random.Random(f"{index} {number}")
    more = {"bucket_count": 2} if index.startswith("bucket") else {"file_rows": 4}
    options = {"timeline_commits": 4, "lease_seconds": 0, "key_scope": "partition", **more}
    history = History(made(table_uri, index, **options), draw)
    for _ in range(STEPS):
        name = draw.choice([*ACTS])
        print(name)
        ACTS[name](history)
        history.check()
