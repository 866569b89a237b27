"""Histories: whatever is done in whatever order, table, index and Hudi agree with a dict.

Constants are shrunk so that edges are met all the time: files of five rows, four buckets, HFile
blocks of 256 bytes, several HFiles a commit. METATABLE_SEED replays a run, METATABLE_LONG=1
makes it long and, without a seed, a different one each time.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import metatable
from metatable import Table, UsageError
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import execute
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.metadata.manifests.pages import border
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.long import LONG, one_in
from tests.model import SCHEMA, Counts, Model, Row, arrow, check, check_counts, data_files, scanned

SEED = int(os.environ.get("METATABLE_SEED") or (random.randrange(1 << 32) if LONG else 1))

FAST = {"durable": "false"}
SHRUNK: dict[str, Any] = {
    "file_rows": 5,
    "row_group_rows": 3,
    "buckets": {"files": 4, "bloom_filter": 4, "column_stats": 4, "record_index": 4},
    "hfile_block_bytes": 256,
    "hfile_target_bytes": 4096,
}
"""Seventy rows of two cities: more than five file groups each, and several HFiles a commit."""

CITIES = ("ny", "sf", "île d'Yeu")
KEYS = [f"k{number % 7}-{number:04}" for number in range(60)]
KEYS += [f"clé {number}" for number in range(10)]
KEYS += ["a", "a\0", "aa", "a" * 300, "\U0001f600", "\uffff", ":", "/", "%20", " "]

keys = st.sampled_from(KEYS)
cities = st.sampled_from(CITIES)
rows_drawn = st.lists(
    st.fixed_dictionaries(
        {
            "id": keys,
            "city": cities,
            "v": st.integers(0, 9),
            "ts": st.one_of(st.none(), st.integers(0, 5)),
        }
    ),
    min_size=1,
    max_size=24,
)
subset = st.randoms(use_true_random=False)


class History(RuleBasedStateMachine):
    """A table beside its model. Subclasses say which index and which scope."""

    index = "record"
    scope = "global"
    shrunk: ClassVar[dict[str, Any]] = SHRUNK

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="metatable-history-")
        self.uri = os.path.join(self.folder, "table")
        self.gone: list[Row] = []
        self.table: Table
        self.model: Model
        self.checked = 0

    @initialize(
        ordering=st.booleans(),
        hive_style=st.booleans(),
        form=st.sampled_from([("hash", "xxh64"), ("plain", "xxh64"), ("plain", "java_string")]),
        codec=st.sampled_from(["gz", "none"]),
    )
    def create(self, ordering: bool, hive_style: bool, form: tuple[str, str], codec: str) -> None:
        chosen = {"record_key_form": form[0], "record_bucket_function": form[1]}
        chosen |= {"key_scope": self.scope, "hive_style": hive_style, "hfile_codec": codec}
        self.table = metatable.create(
            self.uri,
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="ts" if ordering else None,
            index=self.index,
            options={**self.shrunk, **chosen},
            storage_options=FAST,
        )
        self.model = Model(self.scope == "global", ordering)
        first = [
            {"id": key, "city": CITIES[place % 2], "v": -1, "ts": 1}
            for place, key in enumerate(KEYS[:70])
        ]
        self.expect(self.table.insert(arrow(first)), self.model.upsert(first))
        groups: dict[str, int] = {}
        for one in self.snapshot().slices():
            groups[one.partition_path] = groups.get(one.partition_path, 0) + 1
        assert min(groups.values()) >= 5, "the constants are not small enough"

    @rule(rows=rows_drawn)
    def upsert(self, rows: list[Row]) -> None:
        rows = self.acceptable(rows)
        self.expect(self.table.upsert(arrow(rows)), self.model.upsert(rows))

    @rule(rows=rows_drawn)
    def insert(self, rows: list[Row]) -> None:
        rows = self.acceptable(rows)
        new = [row for row in rows if self.model.identity(row) not in self.model.rows]
        if len(new) < len(rows):
            version = self.table.version
            with pytest.raises(UsageError, match="insert of keys that the table holds"):
                self.table.insert(arrow(rows))
            assert self.table.version == version
        if new:
            self.expect(self.table.insert(arrow(new)), self.model.upsert(new))

    @rule(rows=rows_drawn, chosen=subset)
    def delete(self, rows: list[Row], chosen: random.Random) -> None:
        held = sorted(self.model.rows.values(), key=lambda row: (row["city"], row["id"]))
        taken = chosen.sample(held, min(len(held), len(rows)))
        self.gone += taken
        asked = taken + rows[: len(rows) // 2]
        deleted = self.table.delete(arrow(asked).select(["city", "id"]))
        self.expect(deleted, self.model.delete(asked))

    @precondition(lambda self: self.gone)
    @rule(count=st.integers(1, 20))
    def reinsert(self, count: int) -> None:
        rows = [row | {"v": 77} for row in self.gone[-count:]]
        rows = list(self.model.distinct(rows).values())
        self.expect(self.table.upsert(arrow(rows)), self.model.upsert(rows))

    @precondition(lambda self: self.model.is_global and self.model.rows)
    @rule(count=st.integers(1, 12), to=cities, ts=st.integers(0, 6), chosen=subset)
    def move(self, count: int, to: str, ts: int, chosen: random.Random) -> None:
        held = sorted(self.model.rows.values(), key=lambda row: row["id"])
        rows = chosen.sample(held, min(len(held), count))
        rows = [row | {"city": to, "v": 55, "ts": ts} for row in rows]
        self.expect(self.table.upsert(arrow(rows)), self.model.upsert(rows))

    @rule(major=st.booleans())
    def compact(self, major: bool) -> None:
        before = self.depths()
        self.table.compact(major=major)
        after = self.depths()
        assert all(after[name] <= depth for name, depth in before.items())
        if major:
            assert set(after.values()) <= {0, 1}
            facts = self.table.describe().metadata.values()
            assert not any(one["tombstones"] for one in facts)

    @rule(
        major=st.booleans(),
        partition=st.sampled_from(["files", "column_stats"]),
        buckets=st.sets(st.integers(0, 3), min_size=1, max_size=3),
    )
    def compact_some(self, major: bool, partition: str, buckets: set[int]) -> None:
        self.table.compact(major=major, partitions=[partition], buckets=sorted(buckets))

    @precondition(lambda self: create_index(self.table.options).placement(self.snapshot()) is None)
    @rule(by=st.sampled_from(["v", "id", ("ts", "v")]))
    def cluster(self, by: Any) -> None:
        before = self.table.version
        self.table.cluster(by=by)
        if self.table.version > before:
            self.model.upsert([])  # no row changes, and a rollback undoes it

    @precondition(lambda self: self.model.commits)
    @rule()
    def rollback(self) -> None:
        self.table.rollback()
        self.model.rollback()

    @rule()
    def reopen(self) -> None:
        self.table = metatable.open(self.uri, storage_options=FAST)

    @invariant()
    def agrees(self) -> None:
        version = self.table.version
        if version == self.checked:
            return
        probe = [{"id": key, "city": city} for key in (*KEYS, "absent") for city in CITIES]
        random.Random(version).shuffle(probe)
        check(self.table, self.model, probe)
        self.checked = version

    def acceptable(self, rows: list[Row]) -> list[Row]:
        """Without an ordering a key may come once; the same input is refused otherwise."""
        distinct = list(self.model.distinct(rows).values())
        if self.model.ordering or len(distinct) == len(rows):
            return rows
        with pytest.raises(UsageError, match="keys repeat"):
            self.table.upsert(arrow(rows))
        return distinct

    def expect(self, result: Any, counts: Counts) -> None:
        """The commit reports what the model counted; one that wrote nothing made no version."""
        check_counts(self.table, result, counts)
        assert result.index_misses == 0
        if result.instant is None:
            self.model.forget_commit()

    def depths(self) -> dict[tuple[str, int], int]:
        """How many HFiles a lookup in each bucket must ask."""
        snapshot = self.snapshot()
        return {
            (name, bucket): sum(
                ref.covers(*(border(ref.space, count, one) for one in (bucket, bucket + 1)))
                for ref in snapshot.refs(name)
            )
            for name in snapshot.manifest.pages
            for count in [snapshot.options.buckets[name]]
            for bucket in range(count)
        }

    def snapshot(self) -> Snapshot:
        store = Store(self.uri, FAST)
        newest = load_newest(store)
        assert newest is not None
        return Snapshot(store, newest)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class RecordGlobal(History):
    index, scope = "record", "global"


class RecordPartition(History):
    index, scope = "record", "partition"


class MetadataBloomGlobal(History):
    index, scope = "metadata_bloom", "global"


class MetadataBloomPartition(History):
    index, scope = "metadata_bloom", "partition"


class BloomGlobal(History):
    index, scope = "bloom", "global"


class BloomPartition(History):
    index, scope = "bloom", "partition"


class Bucket(History):
    index, scope = "bucket", "partition"
    shrunk: ClassVar[dict[str, Any]] = {
        **{name: value for name, value in SHRUNK.items() if name != "file_rows"},
        "bucket_count": 7,
    }


MACHINES: tuple[type[History], ...] = (RecordGlobal, MetadataBloomPartition, Bucket)
if LONG:  # in short, tests/index/index_contract.py has histories of every index
    MACHINES += (RecordPartition, MetadataBloomGlobal, BloomGlobal, BloomPartition)

LENGTH = settings(
    max_examples=100 if LONG else 2,
    stateful_step_count=40 if LONG else 13,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)


AS_LOGS_TOO = pytest.mark.both_table_types if LONG else lambda test: test
"""In short, tests/index/test_logs.py and tests/compaction/test_log_histories.py have them."""


@AS_LOGS_TOO
@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.__name__)
def test_every_history_leaves_table_index_and_hudi_agreeing(machine: type[History]) -> None:
    print(f"METATABLE_SEED={SEED}")
    run_state_machine_as_test(seed(SEED)(machine), settings=LENGTH)


FEW = KEYS[45:85]
HISTORY: list[tuple[str, list[Row]]] = [
    ("insert", [{"id": key, "city": CITIES[n % 2], "v": 0, "ts": 1} for n, key in enumerate(FEW)]),
    ("upsert", [{"id": key, "city": CITIES[n % 3], "v": 1, "ts": 2} for n, key in enumerate(FEW)]),
    ("compact", []),
    ("delete", [{"id": key, "city": CITIES[0], "v": 0, "ts": 0} for key in FEW[::3]]),
    ("upsert", [{"id": key, "city": CITIES[2], "v": 2, "ts": n} for n, key in enumerate(FEW[:9])]),
    ("compact", []),
]


@AS_LOGS_TOO
@pytest.mark.parametrize("machine", one_in(2, MACHINES), ids=lambda one: one.__name__)
def test_tasks_that_run_twice_and_in_any_order_change_no_file_and_no_answer(
    machine: type[History], table_uri: str
) -> None:
    plain = run_history(machine, f"{table_uri}-plain", LocalEngine)
    engine = partial(LocalEngine, twice=True, shuffle_seed=SEED)
    assert run_history(machine, f"{table_uri}-again", engine) == plain


def run_history(machine: type[History], uri: str, engine: Any) -> list[Any]:
    """What each step told, and how many data files, file groups and HFiles there are after it."""
    scope = {"key_scope": machine.scope}
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=machine.index,
        options={**machine.shrunk, **scope},
        storage_options=FAST,
    )
    store, model, told = Store(uri, FAST), Model(machine.scope == "global", True), []
    for operation, rows in HISTORY:
        if operation == "compact":
            execute(store, engine(), Compact(major=True))
        else:
            result = write(store, engine(), arrow(rows), operation)
            counts = model.delete(rows) if operation == "delete" else model.upsert(rows)
            check_counts(table, result, counts)
        assert scanned(table) == model.listed()
        facts = table.describe()
        told.append((len(data_files(uri)), facts.file_groups, facts.rows, facts.metadata.keys()))
        told.append({name: one["entries"] for name, one in facts.metadata.items()})
    check(table, model, [{"id": key, "city": city} for key in KEYS for city in CITIES])
    return told
