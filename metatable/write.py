"""The pass of a data commit, in order; what each step does is elsewhere.

    prepare    columns checked and widened, key texts made        engine.map, kept
    deduplicate one row a key                                      only where keys repeat
    tag        where is each key now                               the index
    profile    rows by partition and file group                    engine.run
    plan       groups to write, bins for inserts                   WritePlan
    write      rows to their groups, new slices, runs of entries   engine.run
    build      runs to few HFiles                                  engine.run
    publish    one put

Up to the plan nothing is written: bad input leaves no trace. When another writer was first,
everything from `tag` on is done again on the new base.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.align import align
from metatable.data.commit_metadata import CommitMetadata
from metatable.data.keygen import KeyGenerator
from metatable.data.merge import deduplicate, newer
from metatable.data.options import Options
from metatable.data.schema import to_avro
from metatable.data.slice_reader import read_slice
from metatable.data.slices import FileSlice
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.key_texts import KEY, PATH, identity_columns, texts_of
from metatable.index.protocol import LOCATION_COLUMN, Index
from metatable.metadata.commit import Change
from metatable.metadata.entry_files import Run, build_hfile, cut_ranges, read_run
from metatable.metadata.files import current_slices
from metatable.metadata.manifest import HFileRef, load_newest
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.transaction import Transaction
from metatable.results import WriteResult
from metatable.storage.counters import Counters
from metatable.storage.errors import ConflictError, StaleError, UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.store import Store
from metatable.workload import DELETE, PROFILE, TASK_COLUMN, WritePlan, count_groups, route
from metatable.write_groups import ARRIVALS, RECEIPT, FileReceipt, write_groups

__all__ = ["INSERT", "UPSERT", "write"]

INSERT, UPSERT = "insert", "upsert"

NAMED_KEYS = 5
"""So many keys does an error name."""

FIRST_WAIT_SECONDS = 0.02


def write(store: Store, engine: Engine[Any], data: Any, operation: str) -> WriteResult:
    """One data commit; again from `tag` when another writer was first."""
    began = time.perf_counter()
    newest = load_newest(store.counting(engine.counters))
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    options, schema = newest.options, Snapshot(store, newest).schema
    rows = _prepared(engine, engine.rows(data), options, schema, operation)
    with engine.keep(rows) as rows:
        rows = _distinct(engine, rows, options, operation)
        for attempt in range(options.commit_retries + 1):
            try:
                attempted = _Attempt(store.counting(engine.counters), engine, rows, operation)
                return attempted.run(attempt + 1, began)
            except ConflictError:
                if attempt == options.commit_retries:
                    raise
                time.sleep(random.uniform(0, FIRST_WAIT_SECONDS * 2 ** min(attempt, 6)))
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _Attempt:
    """One try on one base version."""

    store: Store
    engine: Engine[Any]
    rows: Any
    operation: str

    def run(self, attempt: int, began: float) -> WriteResult:
        with Transaction.begin(self.store) as transaction:
            snapshot = transaction.snapshot
            index = create_index(snapshot.options)
            located = index.tag(self.engine, self.rows, snapshot)
            with self.engine.keep(located) as located:
                located, profile, stale = self._profile(located, snapshot)
                done = self._write(transaction, index, located, profile)
        facts = _Facts.of(self.operation, profile, done.receipts)
        return WriteResult(
            operation=self.operation,
            version=done.version,
            instant=transaction.instant or None,
            inserted=facts.inserted,
            updated=facts.updated,
            deleted=facts.deleted,
            moved=facts.moved,
            stale=facts.stale + stale,
            absent=facts.absent,
            index_misses=facts.misses,
            files=len(done.receipts),
            bytes=facts.bytes,
            attempts=attempt,
            seconds=time.perf_counter() - began,
            counters=dict(self.engine.counters),
        )

    def _profile(self, located: Any, snapshot: Snapshot) -> tuple[Any, pa.Table, int]:
        """(rows that shall be written, their profile, rows dropped as older than stored ones)."""
        profile = self.engine.run(located, count_groups, PROFILE)
        if self.operation == INSERT:
            _refuse_existing(profile)
        options = snapshot.options
        moving = pc.not_equal(profile["partition_path"], profile["located_path"])
        if options.ordering is None or not options.is_global or self.operation == DELETE:
            return located, profile, 0
        if not pc.any(moving).as_py():
            return located, profile, 0
        current = _without_stale_moves(self.engine, located, snapshot)
        again = self.engine.run(current, count_groups, PROFILE)
        return current, again, _rows(profile) - _rows(again)

    def _write(
        self, transaction: Transaction, index: Index, located: Any, profile: pa.Table
    ) -> _Done:
        if self.operation == DELETE:
            profile = profile.filter(profile["file_id"].is_valid())
        if not profile.num_rows:
            return _Done(transaction.base.version, [])
        snapshot, engine = transaction.snapshot, self.engine
        instant = transaction.start()
        plan = WritePlan.make(snapshot, profile, self.operation, instant, engine.slots)
        transaction.planned = tuple(group.target.path for group in plan.groups)
        inputs = [KEY, PATH, LOCATION_COLUMN]
        fields = pa.schema([pa.field(TASK_COLUMN, pa.list_(pa.int32()))])
        routed = engine.extend(located, inputs, partial(route, plan), fields)
        spread = engine.exchange(routed, TASK_COLUMN, plan.tasks)
        partitions = partitions_of(snapshot.options, index)
        scratch = engine.scratch(self.store)
        work = partial(write_groups, snapshot, plan, partitions, scratch)
        receipts, runs = _split(engine.run(spread, work, RECEIPT))
        adds = _build(engine, self.store, scratch, partitions, runs, instant)
        body = _commit_metadata(snapshot, self.operation, receipts).encode()
        change = Change(
            operation=self.operation,
            instant=instant,
            expects_slices=tuple(group.base for group in plan.groups if group.base is not None),
            adds=adds,
            steps=(transaction.stage(body),),
            summary=_Facts.of(self.operation, profile, receipts).summary(),
        )
        arrivals = [run for run in runs if run.partition == ARRIVALS]
        published = transaction.publish(change, partial(_clashes, index, scratch, arrivals))
        scratch.delete(run.path for run in runs if run.path is not None)
        return _Done(published.version, receipts)


@dataclass(frozen=True, slots=True)
class _Done:
    version: int
    receipts: list[FileReceipt]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Row counts of a commit, from what its tasks saw."""

    inserted: int
    updated: int
    deleted: int
    moved: int
    stale: int
    absent: int
    misses: int
    bytes: int
    rows: int

    @classmethod
    def of(cls, operation: str, profile: pa.Table, receipts: Sequence[FileReceipt]) -> _Facts:
        moved = sum(one.moved_in for one in receipts)
        removed = sum(one.removed for one in receipts)
        absent = 0
        if operation == DELETE:
            absent = _rows(profile.filter(profile["file_id"].is_null()))
        return cls(
            inserted=sum(one.stored - one.misses for one in receipts) - moved,
            updated=sum(one.updated for one in receipts),
            deleted=removed if operation == DELETE else 0,
            moved=moved,
            stale=sum(one.stale for one in receipts),
            absent=absent,
            misses=sum(one.misses for one in receipts),
            bytes=sum(one.size_bytes for one in receipts),
            rows=sum(one.row_count for one in receipts),
        )

    def summary(self) -> dict[str, int]:
        names = ("inserted", "updated", "deleted", "moved", "stale", "misses", "bytes", "rows")
        return {name: getattr(self, name) for name in names}


def _prepared(
    engine: Engine[Any], rows: Any, options: Options, schema: pa.Schema, operation: str
) -> Any:
    """Rows with their key texts first; a delete keeps nothing else."""
    texts = [pa.field(KEY, pa.string()), pa.field(PATH, pa.string())]
    names = engine.schema(rows).names
    if operation == DELETE:
        inputs = identity_columns(options, [name for name in names if name not in (KEY, PATH)])
        return engine.map(rows, inputs, partial(_key_rows, options, schema), pa.schema(texts))
    prepared = pa.schema([*texts, *schema])
    return engine.map(rows, names, partial(_whole_rows, options, schema), prepared)


def _key_rows(
    options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(list(texts_of(options, schema, batch)), names=[KEY, PATH])


def _whole_rows(
    options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    generator = KeyGenerator(options, schema)
    for batch in batches:
        batch = align(batch, schema)
        texts = [generator.record_keys(batch), generator.partition_paths(batch)]
        yield pa.RecordBatch.from_arrays([*texts, *batch.columns], names=[KEY, PATH, *schema.names])


def _distinct(engine: Engine[Any], rows: Any, options: Options, operation: str) -> Any:
    """Rows with one row a key. Raises UsageError for repeated keys without an ordering."""
    identity = [KEY] if options.is_global else [KEY, PATH]
    names = engine.schema(rows).names
    field = pa.schema([pa.field(TASK_COLUMN, pa.int32())])
    spread = partial(_by_key, engine.slots)
    keys = engine.extend(engine.select(rows, identity), [KEY], spread, field)
    found = engine.run(
        engine.exchange(keys, TASK_COLUMN, engine.slots),
        partial(_repeated, identity),
        pa.schema([pa.field("keys", pa.string())]),
    )
    if not found.num_rows:
        return rows
    if options.ordering is None and operation != DELETE:
        raise UsageError(
            "keys repeat in the rows given",
            keys=sorted(found["keys"].to_pylist())[:NAMED_KEYS],
            expected="each key once, or a table with an ordering column",
        )
    ordering = None if operation == DELETE else options.ordering
    together = engine.exchange(engine.extend(rows, [KEY], spread, field), TASK_COLUMN, engine.slots)
    schema = engine.schema(rows)
    return engine.map(together, names, partial(_deduplicated, identity, ordering), schema)


def _by_key(
    count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = (xxh64(batch[KEY], 0) % np.uint64(count)).astype(np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(places)], names=[TASK_COLUMN])


def _repeated(
    identity: Sequence[str], batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(batches))
    counts = table.group_by(list(identity)).aggregate([([], "count_all")])
    again = counts.filter(pc.greater(counts["count_all"], 1))
    keys = pc.array_sort_indices(again[KEY].combine_chunks())[:NAMED_KEYS]
    named = again[KEY].combine_chunks().take(keys)
    yield pa.RecordBatch.from_arrays([named], names=["keys"])


def _deduplicated(
    identity: Sequence[str],
    ordering: str | None,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(batches))
    if ordering is None:  # a delete: any row of a key will do
        table = table.group_by(list(identity)).aggregate([]).select(list(identity))
        table = table if PATH in identity else table.append_column(PATH, _nowhere(table.num_rows))
        yield from table.to_batches()
        return
    yield from deduplicate(table, identity, ordering).to_batches()


def _nowhere(count: int) -> pa.Array:
    return pa.repeat(pa.scalar("", pa.string()), count)


def _refuse_existing(profile: pa.Table) -> None:
    existing = profile.filter(profile["file_id"].is_valid())
    if existing.num_rows:
        named = sorted(key for keys in existing["keys"].to_pylist() for key in keys)
        raise UsageError(
            "insert of keys that the table holds: use upsert",
            keys=named[:NAMED_KEYS],
            found=f"{_rows(existing)} existing keys",
        )


def _without_stale_moves(engine: Engine[Any], located: Any, snapshot: Snapshot) -> Any:
    """Rows without those that would move a key and are older than what is stored.

    A row that stays in its group is compared when the group is merged; one that goes to another
    group must be compared before, for there it would look new.
    """
    schema = engine.schema(located)
    ordering = snapshot.options.ordering
    assert ordering is not None
    asked = pa.schema(
        [schema.field(KEY), schema.field(ordering), schema.field(LOCATION_COLUMN), *_TASK_FIELD]
    )
    inputs = [KEY, PATH, ordering, LOCATION_COLUMN]
    moves = engine.map(located, inputs, partial(_moves, ordering, engine.slots), asked)
    spread = engine.exchange(moves, TASK_COLUMN, engine.slots)
    judged = pa.schema([schema.field(KEY), pa.field("_stale", pa.bool_())])
    stale = engine.map(spread, asked.names[:3], partial(_stale_moves, snapshot, ordering), judged)
    marked = engine.attach(located, stale, [KEY])
    return engine.map(marked, engine.schema(marked).names, _fresh, schema)


_TASK_FIELD = [pa.field(TASK_COLUMN, pa.int32())]


def _moves(
    ordering: str, count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        path = pc.struct_field(batch[LOCATION_COLUMN], "partition_path")
        moving = batch.filter(pc.fill_null(pc.not_equal(path, batch[PATH]), False))
        if not moving.num_rows:
            continue
        file_ids = pc.struct_field(moving[LOCATION_COLUMN], "file_id")
        places = (xxh64(file_ids, 0) % np.uint64(count)).astype(np.int32)
        columns = [moving[name] for name in (KEY, ordering, LOCATION_COLUMN)]
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.array(places)], names=[KEY, ordering, LOCATION_COLUMN, TASK_COLUMN]
        )


def _stale_moves(
    snapshot: Snapshot,
    ordering: str,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    snapshot = snapshot.counting(counters)
    table = pa.Table.from_batches(list(batches)).flatten()
    wanted = pa.schema([pa.field(KEY, pa.string()), snapshot.schema.field(ordering)])
    path, file_id = f"{LOCATION_COLUMN}.partition_path", f"{LOCATION_COLUMN}.file_id"
    groups = table.group_by([path, file_id]).aggregate([]).to_pylist()
    paths, ids = [one[path] for one in groups], [one[file_id] for one in groups]
    for current, one in zip(current_slices(snapshot, paths, ids), ids, strict=True):
        assert current is not None  # the index has just named it
        ours = table.filter(pc.equal(table[file_id], one))
        held = read_slice(snapshot.store, FileSlice(current), wanted)
        places = pc.index_in(ours[KEY].combine_chunks(), value_set=held[KEY].combine_chunks())
        known = places.is_valid()
        ours, places = ours.filter(known), places.filter(known)
        stored = held[ordering].combine_chunks().take(places)
        stale = ~newer(stored, ours[ordering].combine_chunks())
        yield pa.RecordBatch.from_arrays(
            [ours[KEY].combine_chunks(), pa.array(stale)], names=[KEY, "_stale"]
        )


def _fresh(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keep = pc.invert(pc.fill_null(batch["_stale"], False))
        yield batch.filter(keep).drop_columns(["_stale"])


def _split(table: pa.Table) -> tuple[list[FileReceipt], list[Run]]:
    files = table["file"].drop_null().to_pylist()
    runs = table.filter(table["file"].is_null()).drop_columns(["file"]).to_pylist()
    receipts = [FileReceipt(**json.loads(one)) for one in files]
    return sorted(receipts, key=lambda one: one.path), [Run(**one) for one in runs]


_BUILT = pa.schema([pa.field("partition", pa.string()), pa.field("ref", pa.string())])


def _build(
    engine: Engine[Any],
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    instant: str,
) -> dict[str, tuple[HFileRef, ...]]:
    """The HFiles of a commit, by metadata partition: a task each."""
    jobs = []
    for partition in partitions:
        ours = [run for run in runs if run.partition == partition.name]
        target = partition.options.hfile_target_bytes
        jobs += [(partition.name, lo, hi) for lo, hi in cut_ranges(partition, ours, target)]
    table = pa.Table.from_pylist(
        [
            {"partition": name, "lo": lo, "hi": hi, TASK_COLUMN: place}
            for place, (name, lo, hi) in enumerate(jobs)
        ],
        schema=_JOB,
    )
    work = partial(_build_files, store, scratch, tuple(partitions), tuple(runs), instant)
    spread = engine.exchange(engine.rows(table), TASK_COLUMN, max(1, len(jobs)))
    built = engine.run(spread, work, _BUILT).to_pylist()
    refs = [(one["partition"], HFileRef.decode(json.loads(one["ref"]))) for one in built]
    return {
        partition.name: tuple(ref for name, ref in refs if name == partition.name)
        for partition in partitions
        if any(name == partition.name for name, _ in refs)
    }


_JOB = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("lo", pa.int32()),
        pa.field("hi", pa.int32()),
        *_TASK_FIELD,
    ]
)


def _build_files(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    instant: str,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: one HFile a row of `_JOB`."""
    by_name = {partition.name: partition for partition in partitions}
    store, scratch = store.counting(counters), scratch.counting(counters)
    for job in (row for batch in batches for row in batch.to_pylist()):
        partition = by_name[job["partition"]]
        ours = [run for run in runs if run.partition == partition.name]
        ref = build_hfile(store, scratch, partition, ours, job["lo"], job["hi"], instant)
        if ref is not None:
            row = {"partition": partition.name, "ref": json.dumps(ref.encode())}
            yield pa.RecordBatch.from_pylist([row], schema=_BUILT)


def _commit_metadata(
    snapshot: Snapshot, operation: str, receipts: Sequence[FileReceipt]
) -> CommitMetadata:
    avro = to_avro(snapshot.schema, snapshot.options.name)
    return CommitMetadata(
        operation=operation.upper(),
        stats=tuple(one.stat() for one in receipts),
        extra={"schema": json.dumps(avro, separators=(",", ":"))},
    )


def _clashes(index: Index, scratch: Store, arrivals: Sequence[Run], since: Snapshot) -> None:
    """Raise ConflictError where others have published a key that we insert."""
    for run in arrivals:
        for batch in read_run(scratch, run):
            held = index.holds(since, batch[KEY], batch[PATH])
            if held.any():
                keys = batch[KEY].filter(pa.array(held))[:NAMED_KEYS].to_pylist()
                raise ConflictError("another commit inserted the same keys: retry", keys=keys)


def _rows(profile: pa.Table) -> int:
    return int(pc.sum(profile["rows"]).as_py() or 0)
