"""The pass of a data commit, in order; what each step does is elsewhere.

    prepare    columns checked and widened, key texts made        engine.map, kept
    deduplicate one row a key                                      only where keys repeat
    tag        where is each key now                               the index
    complete   columns that a merge leaves out, as they are stored engine.map
    profile    rows by partition and file group                    engine.run
    stale      rows older than stored ones left out                only with an ordering
    gone       what is overwritten, by whole partitions            only where some are
    plan       groups to write, bins for inserts                   WritePlan
    write      rows to their groups, new slices, runs of entries   engine.run
    build      runs to few HFiles                                  engine.run
    publish    one put

Up to the plan nothing is written: bad input leaves no trace. When another writer was first,
everything from `tag` on is done again on the new base.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.commit_metadata import (
    DELETE_PARTITION,
    REPLACING,
    CommitMetadata,
    WriteStat,
    action_of,
)
from metatable.data.key_texts import KEY, PATH
from metatable.data.row_counts import RowCounts
from metatable.data.sort_texts import check_sortable
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.presence import present
from metatable.index.protocol import LOCATION_COLUMN, Index
from metatable.metadata.change import AddFiles, Change, GroupsAbsent, Race, SlicesCurrent
from metatable.metadata.entry_files import Run, read_run
from metatable.metadata.manifest import load_newest
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.transaction import Transaction
from metatable.results import WriteResult
from metatable.storage import clock
from metatable.storage.errors import ConflictError, StaleError, UsageError
from metatable.storage.store import Store
from metatable.write.build import build_hfiles
from metatable.write.groups import (
    ARRIVALS,
    EMPTIED,
    RECEIPT,
    FileReceipt,
    empty_groups,
    write_groups,
)
from metatable.write.overwrite import (
    Overwritten,
    PartitionsUnchanged,
    entries_gone,
    named_paths,
    overwritten,
)
from metatable.write.partial_rows import made_whole
from metatable.write.plan import (
    BULK_INSERT,
    DELETE,
    MERGE,
    NO_TASK,
    ROUTE,
    TASK_COLUMN,
    WritePlan,
    route,
)
from metatable.write.prepare import distinct, prepared
from metatable.write.profile import NAMED_KEYS, PROFILE, count_groups
from metatable.write.stale_rows import without_stale_rows

__all__ = ["INSERT", "UPSERT", "delete_partitions", "write"]

_log = logging.getLogger("metatable.write")

INSERT, UPSERT = "insert", "upsert"
INSERTS = (INSERT, BULK_INSERT)

FIRST_WAIT_SECONDS = 0.02


def write(
    store: Store,
    engine: Engine[Any],
    data: Any,
    operation: str,
    note: Mapping[str, str] | None = None,
    named: tuple[str, ...] = (),
    sort_by: tuple[str, ...] = (),
) -> WriteResult:
    """One data commit; again from `tag` when another writer was first.

    `note` is remembered with the version, and with the commit on Hudi's timeline. `named`: of a
    delete of partitions, which ones; `sort_by`: of a bulk insert, by which columns.
    """
    began = time.perf_counter()
    newest = load_newest(store.counting(engine.counters))
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    options, schema = newest.options, Snapshot(store, newest).schema
    if sort_by:
        _check_sorting(Snapshot(store, newest), sort_by)
    rows = prepared(engine, engine.rows(data), options, schema, operation)
    with engine.keep(rows) as rows:
        rows = distinct(engine, rows, options, operation)
        for attempt in range(options.commit_retries + 1):
            try:
                counting = store.counting(engine.counters)
                asked = operation, dict(note or {}), named, sort_by
                attempted = _Attempt(counting, engine, rows, *asked)
                return attempted.run(attempt + 1, began)
            except ConflictError as lost:
                if attempt == options.commit_retries:
                    raise
                _log.info("%s, attempt %d was lost: %s", operation, attempt + 1, lost)
                clock.pause(random.uniform(0, FIRST_WAIT_SECONDS * 2 ** min(attempt, 6)))
    raise AssertionError("unreachable")


def delete_partitions(
    store: Store, engine: Engine[Any], partitions: Any, note: Mapping[str, str] | None = None
) -> WriteResult:
    """A commit that deletes whole table partitions, named as `named_paths` takes them."""
    newest = load_newest(store.counting(engine.counters))
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    schema = Snapshot(store, newest).schema
    named = named_paths(newest.options, schema, partitions)
    return write(store, engine, schema.empty_table(), DELETE_PARTITION, note, named)


@dataclass(slots=True)
class _Attempt:
    """One try on one base version."""

    store: Store
    engine: Engine[Any]
    rows: Any
    operation: str
    note: Mapping[str, str]
    named: tuple[str, ...]
    sort_by: tuple[str, ...]

    def run(self, attempt: int, began: float) -> WriteResult:
        with Transaction.begin(self.store) as transaction:
            snapshot = transaction.snapshot
            index = create_index(snapshot.options)
            # an upsert goes where its key would be: whether it is there, its merge will see
            _log.info("looking keys up for %s on version %d", self.operation, snapshot.version)
            look = index.tag if self.operation == UPSERT else partial(present, index)
            located = look(self.engine, self.rows, snapshot)
            if self.operation == MERGE:
                located = made_whole(self.engine, located, snapshot)
            with (
                self.engine.keep(located) as located,
                self._profiled(index, located, snapshot) as (located, profile, stale),
            ):
                gone = self._gone(located, snapshot)
                done = self._write(transaction, index, located, profile, gone)
        return WriteResult(
            **asdict(replace(done.counts, stale=done.counts.stale + stale)),
            operation=self.operation,
            version=done.version,
            instant=transaction.instant or None,
            files=len(done.stats),
            bytes=sum(one.size_bytes for one in done.stats),
            attempts=attempt,
            seconds=time.perf_counter() - began,
            counters=dict(self.engine.counters),
        )

    def _gone(self, located: Any, snapshot: Snapshot) -> Overwritten | None:
        """What leaves the table, if partitions are overwritten."""
        if self.operation not in REPLACING:
            return None
        return overwritten(self.engine, located, snapshot, self.operation, self.named)

    @contextmanager
    def _profiled(
        self, index: Index, located: Any, snapshot: Snapshot
    ) -> Iterator[tuple[Any, pa.Table, int]]:
        """(rows that shall be written, their profile, rows dropped as older than stored ones)."""
        count = partial(
            count_groups,
            snapshot.options,
            index.placement(snapshot),
            replaces=self.operation in REPLACING,
            sort_by=self.sort_by,
        )
        profile = self.engine.run(located, count, PROFILE)
        if self.operation in INSERTS:
            _refuse_existing(profile)
        ordering = snapshot.options.ordering
        known = profile["file_id"].null_count < profile.num_rows
        if ordering is None or self.operation == DELETE or not known:
            yield located, profile, 0
            return
        with without_stale_rows(self.engine, located, snapshot, ordering) as (fresh, stale):
            yield fresh, self.engine.run(fresh, count, PROFILE) if stale else profile, stale

    def _write(
        self,
        transaction: Transaction,
        index: Index,
        located: Any,
        profile: pa.Table,
        gone: Overwritten | None,
    ) -> _Done:
        absent = RowCounts()
        if self.operation == DELETE:
            absent = RowCounts(absent=_rows(profile.filter(profile["file_id"].is_null())))
            profile = profile.filter(profile["file_id"].is_valid())
        if not profile.num_rows and not (gone and len(gone.filled)):
            return _Done(transaction.base.version, (), absent)
        snapshot, engine = transaction.snapshot, self.engine
        instant = transaction.start(action_of(self.operation))
        told = snapshot, index, profile, self.operation, instant, engine.slots
        plan = WritePlan.make(*told, gone.filled if gone else (), self.sort_by)
        groups, rows = len(plan.groups), _rows(profile)
        _log.info("writing %d rows to %d files as %s", rows, groups, instant)
        transaction.planned = tuple(group.target.path for group in plan.groups)
        partitions = partitions_of(snapshot.options, index)
        scratch = engine.scratch(self.store)
        work = snapshot, plan, partitions, scratch
        receipts, runs = _split(self._files_written(located, *work))
        if gone:
            runs += entries_gone(engine, located, gone, *work)
        _log.info("%d files are written, building the index", len(receipts))
        adds = build_hfiles(engine, self.store, scratch, partitions, runs, transaction.owner)
        stats = tuple(one.stat for one in receipts)
        counts = RowCounts.total([absent, *(one.counts for one in receipts)])
        if gone:
            counts = replace(counts, deleted=max(gone.row_count - counts.updated, 0))
        body = self._body(stats, snapshot, gone.told(plan) if gone else None)
        change = Change(
            operation=self.operation,
            instant=instant,
            requires=(
                SlicesCurrent(tuple(group.base for group in plan.groups if group.base)),
                GroupsAbsent(plan.opened),
                KeysAbsent(index, scratch, tuple(run for run in runs if run.partition == ARRIVALS)),
                *([PartitionsUnchanged(gone.paths)] if gone else []),
            ),
            updates=(AddFiles(adds),),
            steps=(transaction.stage(body),),
            summary=_summary(counts, stats),
            note=self.note,
        )
        published = transaction.publish(change)
        scratch.delete(run.path for run in runs if run.path is not None)
        return _Done(published.version, stats, counts)

    def _files_written(
        self,
        located: Any,
        snapshot: Snapshot,
        plan: WritePlan,
        partitions: Sequence[MetadataPartition],
        scratch: Store,
    ) -> pa.Table:
        """What the tasks tell that write the plan's groups: in `RECEIPT`."""
        engine = self.engine
        inputs = list(dict.fromkeys([KEY, PATH, LOCATION_COLUMN, *plan.sort_by]))
        routed = engine.extend(located, inputs, partial(route, plan), ROUTE)
        kept = [name for name in engine.schema(routed).names if name != LOCATION_COLUMN]
        spread = engine.exchange(engine.select(routed, kept), TASK_COLUMN, plan.tasks)
        work = partial(write_groups, snapshot, plan, partitions, scratch)
        told = engine.run(spread, work, RECEIPT)
        empty = [place for place, one in enumerate(plan.groups) if one.task == NO_TASK]
        if not empty:
            return told
        tasks = min(engine.slots, len(empty))
        jobs = pa.table([empty, [place % tasks for place in empty]], schema=EMPTIED)
        work = partial(empty_groups, snapshot, plan, partitions, scratch)
        spread = engine.exchange(engine.rows(jobs), TASK_COLUMN, tasks)
        return pa.concat_tables([told, engine.run(spread, work, RECEIPT)])

    def _body(
        self,
        stats: tuple[WriteStat, ...],
        snapshot: Snapshot,
        replaced: Mapping[str, tuple[str, ...]] | None,
    ) -> bytes:
        """What Hudi is told."""
        table = snapshot.schema, snapshot.options.name
        return CommitMetadata.of_ours(self.operation, stats, self.note, *table, replaced).encode()


@dataclass(frozen=True, slots=True)
class _Done:
    """What a commit came to: its version, the files it wrote, its rows."""

    version: int
    stats: tuple[WriteStat, ...]
    counts: RowCounts


def _check_sorting(snapshot: Snapshot, sort_by: Sequence[str]) -> None:
    """Raises UsageError where rows cannot be sorted by these columns."""
    check_sortable(snapshot.schema, sort_by)
    index = create_index(snapshot.options)
    if index.placement(snapshot) is not None:
        raise UsageError(
            "the index tells which file a row goes to: no order of other columns does",
            sort_by=list(sort_by),
            found=f"index {index.name!r}",
        )


def _summary(counts: RowCounts, stats: tuple[WriteStat, ...]) -> dict[str, int]:
    """As history tells it."""
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "moved": counts.moved,
        "stale": counts.stale,
        "misses": counts.index_misses,
        "bytes": sum(stat.size_bytes for stat in stats),
        "rows": sum(stat.row_count for stat in stats),
    }


def _refuse_existing(profile: pa.Table) -> None:
    existing = profile.filter(profile["file_id"].is_valid())
    if existing.num_rows:
        named = sorted(key for keys in existing["keys"].to_pylist() for key in keys)
        raise UsageError(
            "insert of keys that the table holds: use upsert",
            keys=named[:NAMED_KEYS],
            found=f"{_rows(existing)} existing keys",
        )


def _split(table: pa.Table) -> tuple[list[FileReceipt], list[Run]]:
    files = table["file"].drop_null().to_pylist()
    runs = table.filter(table["file"].is_null()).drop_columns(["file"]).to_pylist()
    receipts = [FileReceipt.decode(one) for one in files]
    return sorted(receipts, key=lambda one: one.stat.path), [Run(**one) for one in runs]


@dataclass(frozen=True, slots=True)
class KeysAbsent:
    """Nobody has published a key that we insert: those in `arrivals`, runs in the scratch."""

    index: Index
    scratch: Store
    arrivals: tuple[Run, ...]

    def check(self, race: Race) -> None:
        since = race.snapshot.since(race.base.version)
        for run in self.arrivals:
            for batch in read_run(self.scratch, run):
                held = self.index.holds(since, batch[KEY], batch[PATH])
                if held.any():
                    keys = batch[KEY].filter(pa.array(held))[:NAMED_KEYS].to_pylist()
                    raise race.lost("another commit inserted the same keys: retry", keys=keys)


def _rows(profile: pa.Table) -> int:
    return int(pc.sum(profile["rows"]).as_py() or 0)
