"""What a simulated world must come to: its operations, and the versions replayed against a dict.

An operation is known by the index files that it wrote, whether or not its caller ever heard of
its end; so every published version says which operation made it, and the rows of each
version follow from the one before.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
import metatable.opening
from metatable import ConflictError, CorruptError, Table, UsageError
from metatable.compaction.cleaning.clean import Clean
from metatable.compaction.merging.compact import Compact
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.service import execute
from metatable.compaction.ways_back.restore import Restore
from metatable.compaction.ways_back.rollback import Rollback
from metatable.compaction.ways_back.savepoint import DropSavepoint, Savepoint
from metatable.data.config.options import LOG_FORMATS
from metatable.data.file_groups.slices import DataFile, LogFile, decoded
from metatable.data.hoodie.operations import OVERWRITING, RESIZE, action_of
from metatable.data.hoodie.timeline import Timeline
from metatable.data.hoodie.undo_metadata import UNDOING
from metatable.data.reading.slice_reader import writer_of
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests import pages
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import GRAIN_SECONDS, LEASES
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.rings import RingsPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.errors import StaleError, StoreError
from metatable.storage.store import Store
from metatable.write.commit_pass import delete_partitions, write
from tests.cleaned import strange_files
from tests.index.rows import RINGS
from tests.model import SCHEMA, Counts, Identity, Model, Row, arrow, listed, read_by_hudi
from tests.root_refs import SOME_REFS, root_refs
from tests.simulation.world import EFFECT_LEASES, LEASE_SECONDS, Actor, Lost, World, world_of

CITIES = ("ny", "sf")
KEYS = [f"k{number:02}" for number in range(12)]
PROBE: list[Row] = [{"id": key, "city": city, "v": 0, "ts": 0} for key in KEYS for city in CITIES]
OPTIONS: dict[str, Any] = {
    "file_rows": 4,
    "stats_columns": 1,
    "buckets": {"files": 2, "bloom_filter": 2, "column_stats": 2, "record_index": 2},
    "hfile_block_bytes": 512,
    "hfile_codec": "none",
    "parquet_codec": "none",
    "lease_seconds": LEASE_SECONDS,
    "commit_retries": 6,
    "key_salts": [11, -7],
    "timeline_commits": 2,
}

BUCKETED: dict[str, Any] = {
    **{name: value for name, value in OPTIONS.items() if name != "file_rows"},
    "bucket_count": 2,
}
OVERWRITES_EVERY, OVERWRITES_AT = 7, 2
"""In one world in so many whole partitions are overwritten, too."""

BUCKETS_EVERY = 5
"""One world in so many is of a table in buckets, of which all but one are still to be opened; those
of an even seed have rings, and who resizes them."""

LOGS_EVERY, LOGS_AT = 3, 2
"""One world in so many is of a merge-on-read table."""

OUTSIDE_AT = 3
"""As many keep their keys in a store outside."""

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the `hudi` wheel finds a world's files without a disk."""

GIVES_UP = (ConflictError, StaleError, StoreError, UsageError, Lost)
"""What an operation may end with here; anything else is a fault."""


@dataclass(eq=False)
class Operation:
    """One call of a verb."""

    kind: str
    rows: list[Row] = field(default_factory=list)
    instant: str = ""
    """Of a rollback: what it undoes."""
    result: Any = None


@dataclass(eq=False)
class Seen:
    """What a reader found at a version."""

    version: int
    rows: list[tuple[Any, ...]]


class Game:
    """A table in a world: actors, what they did, and whether it holds."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world = world
        draw = world.random
        self.ordering = draw.random() < 0.3
        self.index = draw.choice(["record", "metadata_bloom"])
        self.scope = draw.choice(["global", "partition"])
        if world.seed % BUCKETS_EVERY == 1:
            self.index, self.scope = "bucket", "partition"
        if world.seed % BUCKETS_EVERY == OUTSIDE_AT:
            self.index = "hbase"
        self.engine = ""
        if self.index == "bucket" and world.seed % 2 == 0:
            self.engine = RINGS[world.seed // 10 % 2]
        self.log_format = ""
        if world.seed % LOGS_EVERY == LOGS_AT:
            self.log_format = LOG_FORMATS[world.seed // LOGS_EVERY % 2]
        finds_logs = bool(self.log_format) and self.index != "metadata_bloom"
        self.opens_by_logs = finds_logs and world.seed // LOGS_EVERY % 4 < 2
        self.operations: list[Operation] = []
        self.seen: list[Seen] = []
        self.compacted: list[int] = []
        self.here = threading.local()
        self.takers: dict[str, tuple[Operation, int]] = {}
        """By the path of an index file, what it was written for, and on which base. Instants do
        not tell: an undone one may be taken once more, by a writer whose base is older."""
        kind = self.index, self.scope, self.ordering, self.engine, self.log_format
        first = beginning(*kind, self.opens_by_logs)
        world.files.update(first.files)
        world.told_files.update(first.told_files)
        world.cells.update(first.cells)
        self.operations.append(first.operation)
        self.takers[first.hfile] = first.operation, 1
        self.note_files(patch)

    # acting

    def populate(self) -> None:
        """Writers, services, readers and those who only recover."""
        draw = self.world.random
        for number in range(draw.choice([2, 2, 3])):
            self.world.act(f"writer{number}", self.writing(draw.choice([1, 1, 2])))
        for number in range(draw.choice([0, 1, 1, 2])):
            self.world.act(f"compactor{number}", self.compacting(draw.randint(1, 2)))
        for number in range(draw.choice([0, 0, 1, 1, 2])):
            self.world.act(f"cleaner{number}", self.cleaning(draw.randint(1, 2)))
        if draw.random() < 0.4:
            self.world.act("roller", self.rolling_back())
        if draw.random() < 0.3:
            self.world.act("restorer", self.restoring())
        if draw.random() < 0.3:
            self.world.act("keeper", self.keeping())
        if draw.random() < 0.5:
            self.world.act("recoverer", self.recovering(draw.randint(1, 2)))
        if draw.random() < 0.5:
            self.world.act("reader", self.reading(draw.randint(1, 2)))
        for number in range(draw.choice([1, 1, 2]) if self.engine else 0):
            self.world.act(f"resizer{number}", self.resizing(draw.randint(1, 2)))

    def writing(self, count: int) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            for number in range(count):
                if number and self.world.random.random() < 0.5:
                    self.world.pause(LEASE_SECONDS * self.world.random.uniform(0.5, 3))
                self.tolerant(self.write, self.draw_write())

        return work

    def draw_write(self) -> Operation:
        draw = self.world.random
        kinds = ["upsert", "upsert", "upsert", "delete", "insert"]
        if self.world.seed % OVERWRITES_EVERY == OVERWRITES_AT:
            kinds += ["insert_overwrite", "insert_overwrite", *OVERWRITING]
        kind = draw.choice(kinds)
        keys = draw.sample(KEYS, draw.randint(1, 2))
        rows = [self.row(key) for key in keys]
        if kind in ("insert_overwrite", "delete_partition"):
            rows = [row | {"city": rows[0]["city"]} for row in rows]
        return Operation(kind, rows)

    def row(self, key: str) -> Row:
        draw = self.world.random
        v = draw.randrange(1000)
        return {"id": key, "city": draw.choice(CITIES), "v": v, "ts": draw.randrange(4)}

    def write(self, operation: Operation) -> None:
        self.operations.append(operation)
        self.here.operation = operation
        store, engine = self.world.store(), LocalEngine(1)
        if operation.kind == "delete_partition":
            operation.result = delete_partitions(store, engine, {"city": operation.rows[0]["city"]})
        else:
            operation.result = write(store, engine, arrow(operation.rows), operation.kind)

    def note_files(self, patch: pytest.MonkeyPatch) -> None:
        """Let every operation be known by what it puts, also where it dies over the put."""
        publish = Transaction.publish

        def noting(transaction: Transaction, change: Change) -> Manifest:
            added = [one for one in change.updates if isinstance(one, AddFiles)]
            for ref in (ref for one in added for refs in one.files.values() for ref in refs):
                self.takers[ref.path] = self.here.operation, transaction.base.version
            return publish(transaction, change)

        patch.setattr(Transaction, "publish", noting)

    def compacting(self, count: int) -> Callable[[Actor], None]:
        def compact() -> None:
            service = Compact(major=self.world.random.random() < 0.6)
            done = execute(self.world.store(), LocalEngine(1), service)
            if done.reason != "nothing to compact":
                self.compacted.append(done.version)

        return lambda actor: [self.tolerant(compact) for _ in range(count)] and None

    def resizing(self, count: int) -> Callable[[Actor], None]:
        """All buckets are split or merged, or one."""

        def resize() -> None:
            draw, operation = self.world.random, Operation(RESIZE)
            self.operations.append(operation)
            self.here.operation = operation
            above, below = draw.choice([(1, 0), (1, 0), (1 << 30, 1 << 20)])
            service = Resize(BucketSizes(above, below, most_bytes=draw.choice([None, 1])))
            execute(self.world.store(), LocalEngine(1), service)

        return lambda actor: [self.tolerant(resize) for _ in range(count)] and None

    def cleaning(self, count: int) -> Callable[[Actor], None]:
        def clean() -> None:
            draw = self.world.random
            service = Clean(draw.choice([1, 1, 2, 3]), draw.choice([0, 0, LEASE_SECONDS / 3600]))
            execute(self.world.store(), LocalEngine(1), service)

        return lambda actor: [self.tolerant(clean) for _ in range(count)] and None

    def rolling_back(self) -> Callable[[Actor], None]:
        def roll_back() -> None:
            operation = Operation("rollback")
            newest = load_newest(self.world.store())
            assert newest is not None
            if newest.last_commit is None:
                return
            operation.instant = newest.last_commit[1]
            self.operations.append(operation)
            service = Rollback(newest.last_commit[1])
            operation.result = execute(self.world.store(), LocalEngine(1), service)

        return lambda actor: self.tolerant(roll_back)

    def restoring(self) -> Callable[[Actor], None]:
        def restore() -> None:
            newest = load_newest(self.world.store())
            assert newest is not None
            back = self.world.random.randint(1, 4)
            service = Restore(max(newest.version - back, newest.oldest, 1))
            execute(self.world.store(), LocalEngine(1), service)

        return lambda actor: self.tolerant(restore)

    def keeping(self) -> Callable[[Actor], None]:
        """A savepoint, which is perhaps dropped."""

        def keep() -> None:
            execute(self.world.store(), LocalEngine(1), Savepoint("kept"))
            if self.world.random.random() < 0.4:
                execute(self.world.store(), LocalEngine(1), DropSavepoint("kept"))

        return lambda actor: self.tolerant(keep)

    def recovering(self, count: int) -> Callable[[Actor], None]:
        return lambda actor: [self.tolerant(self.recover) for _ in range(count)] and None

    def recover(self) -> None:
        with Transaction.begin(self.world.store()):
            pass

    def reading(self, count: int) -> Callable[[Actor], None]:
        def read() -> None:
            table = Table(self.world.store())
            version = table.version
            self.seen.append(Seen(version, _rows(table, version)))

        return lambda actor: [self.tolerant(read) for _ in range(count)] and None

    def tolerant(self, work: Callable[..., None], *given: Any) -> None:
        try:
            work(*given)
        except GIVES_UP as error:
            self.world.log.append(f"gave up: {error}")

    # checking

    def check(self) -> None:
        """After a lease's time of silence everything agrees, and nothing of the dead is left."""
        for _ in range(2):
            # what was to land lands first
            self.world.be_silent(LEASE_SECONDS * (1 + EFFECT_LEASES) + 2 * GRAIN_SECONDS)
            for _ in range(3):  # of several dead writers each is fenced by a version of its own
                self.recover()
        cache.clear()
        history = self.history()
        states = self.replay(history)
        self.check_acknowledged(history)
        self.check_versions(history, states)
        self.check_nothing_is_left(history)
        final = states[history[-1].version]
        self.check_hudi(final)
        if self.world.random.random() < 0.5:
            self.check_cleaned(final)
        if self.world.random.random() < 0.4:
            self.check_still_writable(final)

    def check_cleaned(self, state: dict[Identity, Row]) -> None:
        """A clean leaves what the newest versions name, and nothing else at all."""
        done = execute(self.world.store(), LocalEngine(1), Clean(1, 0))
        assert "left alone" not in done.reason, done.reason
        cache.clear()
        newest, store = load_newest(self.world.store()), self.world.store()
        assert newest is not None
        assert strange_files(store) == []
        history = self.history()
        live = self.content(history, newest.version)
        on_timeline = Timeline(store).completed()
        assert on_timeline == {one for one in live if one >= newest.archived}
        assert on_timeline or not live
        # as many as asked for were left there, of which others may have been undone since then
        then = next(one.version for one in history if one.archived == newest.archived)
        live = self.content(history, then)
        left = [one for one in live if one >= newest.archived]
        assert len(left) >= min(len(live), OPTIONS["timeline_commits"])
        table = Table(store)
        assert _rows(table, table.version) == listed(state.values())
        assert table.verify().findings == ()
        self.check_hudi(state)

    def history(self) -> list[Manifest]:
        store = self.world.store()
        newest = load_newest(store)
        assert newest is not None
        past = self.world.past()
        return [load_version(past, version, 0) for version in range(1, newest.version + 1)]

    def replay(self, history: list[Manifest]) -> dict[int, dict[Identity, Row]]:
        """The rows of every version."""
        states: dict[int, dict[Identity, Row]] = {1: {}}
        for manifest in history[1:]:
            before = states[manifest.version - 1]
            if manifest.restored_at == manifest.version:
                before = states[_goes_back_to(manifest)]
            elif manifest.instant:
                operation, base = self.takers[written_file(self.world.past(), manifest)]
                assert operation.kind == manifest.operation
                before = self.applied(operation, before, states[base])
            states[manifest.version] = before
        return states

    def applied(
        self, operation: Operation, before: dict[Identity, Row], base: dict[Identity, Row]
    ) -> dict[Identity, Row]:
        """The rows after it. What it decided not to write was decided on its base: keys to
        delete that were not there, rows older than the stored ones."""
        then = Model(self.scope == "global", self.ordering, dict(base))
        if operation.kind == RESIZE:
            return before
        if operation.kind in OVERWRITING:
            return self.overwritten(operation, before, then)
        told = (then.delete if operation.kind == "delete" else then.upsert)(operation.rows)
        self.check_counts(operation, told)
        given = {then.identity(row): row for row in operation.rows}
        if operation.kind == "delete":
            return {
                name: row
                for name, row in before.items()
                if name not in (given.keys() & base.keys())
            }
        if operation.kind == "insert":
            assert not given.keys() & before.keys()
        return before | {name: row for name, row in given.items() if then.rows[name] is row}

    def check_counts(self, operation: Operation, expected: Counts) -> None:
        """What its caller was told; with logs not every number can be known."""
        for name in Counts.__slots__ if operation.result is not None else ():
            told = getattr(operation.result, name)
            known = told is not None or not self.log_format
            assert told == getattr(expected, name) or not known, name

    def overwritten(
        self, operation: Operation, before: dict[Identity, Row], then: Model
    ) -> dict[Identity, Row]:
        """The rows after partitions were overwritten, to which nobody has written meanwhile."""
        rows = [] if operation.kind == "delete_partition" else operation.rows
        cities = {row["city"] for row in operation.rows}
        if operation.kind == "insert_overwrite_table":
            cities = set(CITIES)
        stays = {name: row for name, row in before.items() if row["city"] not in cities}
        assert {name: before[name] for name in before.keys() - stays.keys()} == {
            name: row for name, row in then.rows.items() if row["city"] in cities
        }
        told = then.overwrite(rows, cities)
        self.check_counts(operation, told)
        given = then.distinct(rows)
        assert not given.keys() & stays.keys()
        return stays | given

    def check_acknowledged(self, history: list[Manifest]) -> None:
        """Every commit that somebody was told of is there, under the version that was told."""
        by_version = {one.version: one for one in history}
        for operation in self.operations:
            told = operation.result
            if told is None:
                continue
            if operation.kind == "rollback":
                undone = by_version[told.version].withdrawn
                assert operation.instant in undone
            elif told.instant is not None:
                assert by_version[told.version].instant == told.instant
        assert all(by_version[one].operation == "compact" for one in self.compacted)
        published = Counter(one.instant for one in history if one.instant)
        assert max(published.values()) == 1, "an instant was published twice"
        assert not set(published) & self.fenced(history), "a fenced instant was published"

    def fenced(self, history: list[Manifest]) -> set[str]:
        undone = self.undone(history)
        return set(history[-1].withdrawn) - undone

    def undone(self, history: list[Manifest]) -> set[str]:
        """Instants that were published and rolled back."""
        undone: set[str] = set()
        for one in history:
            if one.restored_at == one.version:
                kept = self.content(history, _goes_back_to(one))
                undone |= self.content(history, one.version - 1) - kept
        return undone

    def check_versions(
        self, history: list[Manifest], states: dict[int, dict[Identity, Row]]
    ) -> None:
        """Every version that is kept is readable, and index equals data in the newest."""
        store = self.world.store()
        undone = self.undone(history)
        bare = ("delete_partition", RESIZE)  # these may write no file
        without_files = {one.instant for one in history if one.operation in bare}
        kept = []
        for manifest in history:
            if not history[-1].keeps(manifest.version):
                continue
            lost = self.content(history, manifest.version) & undone
            if lost - without_files:
                self.check_told(store, manifest.version)
            if lost:
                continue
            kept.append(manifest.version)
            for partition in manifest.pages:
                for ref in Snapshot(store, manifest).refs(partition):
                    assert ref.path in self.world.files, f"{ref.path} of {manifest.version} is gone"
        table = Table(store)
        pinned = [one.version for one in history[-1].pins.values()]
        for version in {*kept[-2:], *pinned}:
            assert _rows(table, version) == listed(states[version].values()), version
            if self.index == "hbase":
                self.check_older_tags(table, version, states[version])
        for seen in self.seen:
            assert seen.rows == listed(states[seen.version].values()), seen.version
        assert table.verify().findings == ()
        self.check_tags(table, states[table.version])

    def check_told(self, store: Store, version: int) -> None:
        """A version that holds an undone commit is gone, its index files perhaps, too: a writer
        that slept through its rollback may put its lease again, and is swept when it dies."""
        try:
            found = Table(store).scan(version=version).to_arrow()
        except StaleError:
            return
        assert found.num_rows == 0, f"version {version} is read, though it was undone"

    def content(self, history: list[Manifest], version: int) -> set[str]:
        """The instants of the data commits in a version."""
        held: dict[int, set[str]] = {0: set()}
        for one in history[:version]:
            before = held[one.version - 1]
            if one.restored_at == one.version:
                before = held[_goes_back_to(one)]
            held[one.version] = before | ({one.instant} if one.instant else set())
        return held[version]

    def check_tags(self, table: Table, state: dict[Identity, Row]) -> None:
        keys, model = arrow(PROBE).select(["id", "city"]), Model(self.scope == "global", False)
        there = [model.identity(row) in state for row in PROBE]
        assert table.filter_exists(keys).equals(keys.filter(pa.array(there)))
        self.check_places(table.tag_locations(keys), state)

    def check_older_tags(self, table: Table, version: int, state: dict[Identity, Row]) -> None:
        """Refused may be one of which nobody can say any more whether it was undone."""
        newest = load_newest(self.world.store())
        assert newest is not None
        try:
            tagged = table.tag_locations(arrow(PROBE).select(["id", "city"]), version)
        except StaleError:
            assert newest.restored_at > version
            assert newest.archived
        else:
            self.check_places(tagged, state)

    def check_places(self, tagged: pa.Table, state: dict[Identity, Row]) -> None:
        model = Model(self.scope == "global", False)
        for row, place in zip(PROBE, tagged["_location"].to_pylist(), strict=True):
            held = state.get(model.identity(row))
            if held is None and self.index == "bucket":
                continue  # where it would be
            assert (place and place["partition_path"]) == (held and f"city={held['city']}"), row

    def check_nothing_is_left(self, history: list[Manifest]) -> None:
        """Of the dead there is no lease, marker, timeline file, data file or HFile."""
        files = sorted(self.world.files)
        live = self.content(history, history[-1].version)
        assert [path for path in files if path.startswith((f"{LEASES}/", ".hoodie/.temp/"))] == []
        actions = {
            one.instant: action_of(one.operation, one.options.has_logs)
            for one in history
            if one.instant
        }
        states = {
            "commit": (".commit.requested", ".inflight", ".commit"),
            **{
                action: tuple(f".{action}{state}" for state in (".requested", ".inflight", ""))
                for action in ("deltacommit", "replacecommit")
            },
        }
        expected = {
            f".hoodie/{instant}{state}"
            for instant in live
            if instant >= history[-1].archived
            for state in states[actions[instant]]
        }
        for pin in history[-1].pins.values():
            assert pin.instant in live, "a savepoint's commit was undone"
            names = (".savepoint", ".savepoint.inflight")
            expected |= {f".hoodie/{pin.instant}{name}" for name in names}
        for step in (step for one in history for step in one.steps if step.action in UNDOING):
            if step.instant >= history[-1].archived:
                names = (".requested", ".inflight", "")
                expected |= {f".hoodie/{step.instant}.{step.action}{name}" for name in names}
        assert {path for path in files if re.fullmatch(r"\.hoodie/\d+\.[^/]+", path)} == expected
        store, data = self.world.store(), [*filter(None, map(_data_file, files))]
        assert {one.path for one in data if writer_of(store, one) not in live} == set()
        named = self.named_hfiles(history)
        strays = [path for path in files if path.endswith(".hfile") and path not in named]
        ours = re.compile(rf"{HOME}/\w+/\d")
        asleep = self.fenced(history)  # who slept through both sweeps, and then lost its store
        left = [path for path in strays if ours.match(path)]
        assert [path for path in left if path.rpartition("/")[2][:17] not in asleep] == []
        self.world.told["stray service files"] = len(strays)
        if left:
            self.check_cleaned(self.replay(history)[history[-1].version])

    def named_hfiles(self, history: list[Manifest]) -> set[str]:
        store = self.world.past()
        return {
            ref.path
            for manifest in history
            for partition in manifest.pages
            for ref in Snapshot(store, manifest).refs(partition)
        }

    def check_hudi(self, state: dict[Identity, Row]) -> None:
        """The `hudi` wheel reads the same rows from the same files."""
        folder = tempfile.mkdtemp(prefix="metatable-world-", dir=MEMORY)
        public = {path for path in self.world.files if not path.startswith(f"{HOME}/")}
        try:
            for path in public:
                body, _ = self.world.files[path]
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(body)
            assert read_by_hudi(folder) == listed(state.values())
        finally:
            shutil.rmtree(folder)

    def check_still_writable(self, state: dict[Identity, Row]) -> None:
        operation = Operation("upsert", [self.row(key) for key in KEYS[5:7]])
        self.write(operation)
        after = self.applied(operation, state, state)
        self.check_acknowledged(self.history())
        self.recover()  # what was given out a second time would go here
        table = Table(self.world.store())
        assert _rows(table, table.version) == listed(after.values())


@dataclass(frozen=True)
class Beginning:
    """The files of a table with one commit, which is the same for every world."""

    files: dict[str, tuple[bytes, float]]
    told_files: dict[str, tuple[bytes, float]]
    cells: dict[tuple[bytes, bytes], bytes]
    operation: Operation
    hfile: str


@lru_cache
def beginning(
    index: str, scope: str, ordering: bool, engine: str, log_format: str, opens_by_logs: bool
) -> Beginning:
    rows = [
        {"id": key, "city": CITIES[place % 2], "v": -place, "ts": place % 3}
        for place, key in enumerate(KEYS[: 1 if index == "bucket" else 6])
    ]
    with world_of(0) as world:
        table = _created(world, index, scope, ordering, engine, log_format, opens_by_logs)
        operation = Operation("insert", rows, result=table.insert(arrow(rows)))
        newest = load_newest(world.store())
        assert newest is not None
        return Beginning(
            dict(world.files),
            dict(world.told_files),
            dict(world.cells),
            operation,
            written_file(world.store(), newest),
        )


def _created(
    world: World,
    index: str,
    scope: str,
    ordering: bool,
    engine: str,
    log_format: str,
    opens_by_logs: bool,
) -> Table:
    class Here(Store):
        def __init__(self, *_: Any) -> None:
            self.__dict__.update(world.store().__dict__)

    options = {**(BUCKETED if index == "bucket" else OPTIONS), "key_scope": scope}
    if engine:
        options["bucket_engine"] = engine
    if log_format:
        options |= {"table_type": "mor", "log_format": log_format}
        options["new_groups"] = "log" if opens_by_logs else "base"
    if index == "hbase":
        options |= {"hbase_table": "cells", "hbase_address": "simulated"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metatable.opening, "Store", Here)
        return metatable.create(
            world.uri,
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="ts" if ordering else None,
            index=index,
            options=options,
        )


def _data_file(path: str) -> DataFile | LogFile | None:
    is_data = path.endswith(".parquet") or (".log." in path and not path.startswith(".hoodie/"))
    return decoded(path) if is_data else None


def _goes_back_to(manifest: Manifest) -> int:
    """The version whose content a rollback or a restore has brought back."""
    restored = manifest.summary.get("restored_version")
    return manifest.summary["undone_version"] - 1 if restored is None else restored


def written_file(store: Store, manifest: Manifest) -> str:
    """The path of an index file that a data commit has written."""
    held = Snapshot(store, manifest)
    refs = [ref for name in ("files", RingsPartition.name) for ref in held.refs(name)]
    return next(ref.path for ref in refs if ref.sequence == manifest.version)


def _rows(table: Table, version: int) -> list[tuple[Any, ...]]:
    try:
        return listed(table.scan(version=version).to_arrow().to_pylist())
    except CorruptError as error:
        raise AssertionError(f"version {version} is not readable: {error}") from error


def refs_of(seed: int) -> AbstractContextManager[None]:
    """Of a third of the worlds no page lies in a root, of another one some do."""
    return root_refs((pages.ROOT_REFS, 0, SOME_REFS)[seed % 3])


def play(seed: int) -> World:
    """One world from beginning to end; raises what is wrong with it."""
    with world_of(seed) as world, refs_of(seed), pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(entries, "SMALL_ENTRIES", 0)  # what a large table asks for
        game = Game(world, patch)
        game.populate()
        world.run()
        game.check()
    return world
