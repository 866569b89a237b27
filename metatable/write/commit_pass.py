"""The steps of a data commit, in order; what each step does is in a module of its own.

    few          a few rows of a Spark DataFrame are handled in this process  few_rows
    prepare      columns checked and widened, key texts made                  engine.map, kept
    deduplicate  one row per key                                              where keys repeat
    tag          where is each key now                                        the index
    complete     columns that a merge leaves out, as they are stored          engine.map
    profile      rows counted by partition and file group                     engine.run
    stale        rows older than stored ones left out                         with an ordering
    gone         what is overwritten, by whole partitions                     where some are
    plan         groups to write, bins for inserts                            WritePlan
    write        rows to their groups, new slices, runs of entries            engine.run
    build        runs to few HFiles                                           engine.run
    publish      one put

Nothing is written before the plan, so bad input leaves no trace. (On an object store a lease is
taken earlier, to save a round trip, and released.) When another writer was first, everything from
`tag` on is done again on the new base.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.hoodie.operations import (
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    INSERT,
    MERGE,
    OVERWRITING,
    UPSERT,
    action_of,
)
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.row_order import COLUMN_SAMPLES, RowOrder, sample_columns
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.adding_up import added_up
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index import create_index
from metatable.index.locations import LOCATION_COLUMN, without_codes
from metatable.index.presence import present
from metatable.index.protocol import Index
from metatable.index.record import keyed_index
from metatable.metadata.commits.change import Change, Requirement, Update
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import (
    GroupsAbsent,
    NoneLater,
    RingsAreBase,
    RowsUnchanged,
    SchemaIsBase,
    SlicesCurrent,
)
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import SetSchema
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.results import WriteResult
from metatable.storage import clock
from metatable.storage.errors import NotFoundError, StaleError
from metatable.storage.store import Store
from metatable.write.attempts import attempts
from metatable.write.bent_logs import bent_slices
from metatable.write.few_rows import is_much, prepared_near, reads_much, slices_named
from metatable.write.given import Given, adopted_rows, check_sorting, no_rows
from metatable.write.held_rows import held_rows
from metatable.write.late_logs import CarryOut
from metatable.write.named_partitions import named_paths
from metatable.write.new_keys import KeysAbsent, refuse_existing
from metatable.write.overwrite import Overwritten, PartitionsUnchanged, overwritten
from metatable.write.partial_rows import made_whole
from metatable.write.plan import WritePlan
from metatable.write.planning import planned
from metatable.write.prepare import Distinct, distinct, keys_alone, prepared, refuse_others
from metatable.write.profile import PROFILE_SUMS, CountGroups, row_count
from metatable.write.receipts import FileReceipt
from metatable.write.routes import ROUTE, route
from metatable.write.same_rows import refuse_other_rows
from metatable.write.stale_rows import with_newer, without_stale_rows
from metatable.write.written_files import Written, written_groups

__all__ = ["delete_partitions", "write"]

_log = logging.getLogger("metatable.write")

INSERTS = (INSERT, BULK_INSERT)

YOUNG_MS = 1000
"""A base that was loaded before the rows were prepared is taken while it is no older: rows may be a
stream of an hour, and others publish meanwhile."""


def write(
    store: Store,
    engine: Engine[Any],
    data: Any,
    operation: str,
    note: Mapping[str, str] | None = None,
    *,
    evolve: bool = False,
    named: tuple[str, ...] = (),
    sort_by: tuple[str, ...] = (),
    carry_out: CarryOut | None = None,
) -> WriteResult:
    """Make one data commit; when another writer was first, try again from `tag` on.

    `note` is stored with the version, and with the commit on Hudi's timeline. `evolve`: columns of
    the rows that the table lacks are added to it. `named`: the partitions of `DELETE_PARTITION`;
    `sort_by`: the columns of a bulk insert; `carry_out`: as `attempts` takes it.
    """
    began, began_ms = time.perf_counter(), clock.now_ms()

    def begin() -> Transaction:
        return Transaction.begin(store.holding().counting(engine.counters))

    try:
        first = begin()
    except NotFoundError as error:
        raise StaleError("the table is gone", path=store.uri) from error
    options, snapshot = first.base.options, first.snapshot
    rows = adopted_rows(engine, snapshot, data, operation, evolve)
    if operation == DELETE:
        rows = keys_alone(engine, rows, options)
    given = Given(engine.schema(rows), evolve)
    if sort_by:
        check_sorting(snapshot, sort_by)
    columns = given.columns(snapshot).arrow

    def prepare(engine: Engine[Any], rows: Any) -> Any:
        return prepared(engine, rows, options, columns, operation)

    asked = operation, dict(note or {}), given, named, sort_by
    with prepared_near(engine, rows, snapshot, prepare) as (near, rows):
        once = distinct(near, rows, options, operation)

        def attempt(number: int) -> WriteResult:
            young = number == 1 and clock.now_ms() - began_ms < YOUNG_MS
            base = first if young else begin()
            if not base.base.is_of(first.base):  # the rows were prepared for that one
                raise StaleError("table was replaced by another one", path=store.uri)
            return _Attempt(base, near, engine, once, *asked).run(number, began)

        return attempts(operation, options.commit_retries, attempt, carry_out)


def delete_partitions(
    store: Store, engine: Engine[Any], partitions: Any, note: Mapping[str, str] | None = None
) -> WriteResult:
    """A commit that deletes whole table partitions, named as `named_paths` takes them."""
    newest = newest_of(store.counting(engine.counters))
    named = named_paths(newest.options, Snapshot(store, newest).schema, partitions)
    return write(store, engine, None, DELETE_PARTITION, note, named=named)


@dataclass(slots=True)
class _Attempt:
    """One try on one base version."""

    transaction: Transaction
    engine: Engine[Any]
    """The engine that looks the rows' keys up; once it is known that much is to do, `source`."""
    source: Engine[Any]
    """The engine that the rows came from, as a rule the same."""
    given: Distinct
    operation: str
    note: Mapping[str, str]
    columns: Given
    named: tuple[str, ...]
    sort_by: tuple[str, ...]

    def run(self, attempt: int, began: float) -> WriteResult:
        with self.transaction as transaction:
            snapshot = self._with_columns(transaction.snapshot)
            index = create_index(snapshot.options)
            names = [one.name for one in partitions_of(snapshot.options, index)]
            transaction.claim_beside(partial(snapshot.warm, *names))
            # an upsert goes where its key would be: whether it is there, its merge will see
            _log.info("looking keys up for %s on version %d", self.operation, snapshot.version)
            located = self._look(index)(self.engine, self._rows(snapshot), snapshot)
            with (
                self._whole(located, snapshot) as located,
                self._profiled(index, located, snapshot) as known,
            ):
                gone = self._gone(known.rows, snapshot)
                done = self._write(snapshot, index, known, gone)
        return WriteResult(
            **asdict(done.counts),
            operation=self.operation,
            version=done.version,
            instant=transaction.instant or None,
            files=len(done.stats),
            engine=done.engine,
            bytes=sum(one.size_bytes for one in done.stats),
            attempts=attempt,
            seconds=time.perf_counter() - began,
            counters=dict(self.engine.counters),
        )

    def _look(self, index: Index) -> Callable[[Engine[Any], Any, Snapshot], Any]:
        if self.operation != UPSERT:
            return partial(present, index)
        keyed = keyed_index(index) if self.engine.in_process else None
        return index.tag if keyed is None else keyed.tag_coded

    @contextmanager
    def _whole(self, located: Any, snapshot: Snapshot) -> Iterator[Any]:
        """The rows, kept, with the columns that a merge leaves out."""
        names = self.engine.schema(located).names
        with ExitStack() as held:
            if self.operation == MERGE and not {*snapshot.schema.names} <= {*names}:
                if self.engine is not self.source:
                    located = held.enter_context(self.engine.keep(located))
                    slices = slices_named(self.engine, located, snapshot)
                    located = self._where_read(located, slices)
                located = made_whole(self.engine, located, snapshot, self.given.count)
            yield held.enter_context(self.engine.keep(located))

    def _where_read(self, located: Any, slices: Sequence[FileSlice]) -> Any:
        """The rows, where these slices shall be read for them."""
        is_here = self.engine is not self.source
        return self._back(located) if is_here and reads_much(slices) else located

    def _back(self, rows: Any) -> Any:
        """Few rows that came here from elsewhere are there again, with all that is left to do."""
        few = without_codes(self.engine.to_table(rows))
        self.engine = self.source
        return self.engine.rows(few)

    def _gone(self, located: Any, snapshot: Snapshot) -> Overwritten | None:
        """What leaves the table, if partitions are overwritten."""
        if self.operation not in OVERWRITING:
            return None
        return overwritten(self.engine, located, snapshot, self.operation, self.named)

    def _with_columns(self, snapshot: Snapshot) -> Snapshot:
        """The base version with the columns that come with the rows."""
        columns = self.columns.columns(snapshot)
        if columns == snapshot.table_schema:
            return snapshot
        return snapshot.with_columns(columns.encode())

    def _rows(self, snapshot: Snapshot) -> Any:
        """The prepared rows; again where the columns have changed since they were."""
        rows = self.given.rows
        held = self.engine.schema(rows)
        if self.operation == DELETE:
            return rows
        own = [field for field in held if field.name not in (KEY, PATH)]
        given = self.columns.schema.names
        if self.operation == MERGE:
            wanted = [field for field in snapshot.schema if field.name in given]
        else:
            wanted = list(snapshot.schema)
        if [(one.name, one.type) for one in own] == [(one.name, one.type) for one in wanted]:
            return rows
        if self.operation == DELETE_PARTITION:
            kept = no_rows(self.engine, snapshot)
        else:
            kept = self.engine.select(rows, [name for name in held.names if name in given])
        return prepared(self.engine, kept, snapshot.options, snapshot.schema, self.operation)

    @contextmanager
    def _profiled(self, index: Index, located: Any, snapshot: Snapshot) -> Iterator[_Known]:
        """The rows that shall be written: without those that are older than stored ones."""
        order, placement = self._order(index, located, snapshot), index.placement(snapshot)
        placed = placement is not None  # a row that is placed twice is deleted once
        count = CountGroups(
            snapshot.options,
            placement,
            replaces=self.operation in OVERWRITING,
            order=order,
            refuses=self.operation in INSERTS,
            sums=not self.engine.in_process and not (placed and self.operation == DELETE),
            given=self.given.count,
        )
        profile = self._counted(located, count)
        if count.sums:
            refuse_others(self.engine, located, snapshot.options, self.given, profile)
        if self.operation in INSERTS:
            refuse_existing(profile)
        ordering = snapshot.options.ordering
        known = row_count(profile.filter(profile["file_id"].is_valid()))
        if (
            ordering is None
            or self.operation == DELETE
            or not known
            or not (opened := with_newer(self.engine, located, snapshot, ordering, known))
        ):
            yield _Known(located, order, profile)
            return
        located = self._where_read(located, opened)
        judged = without_stale_rows(self.engine, located, snapshot, ordering, known)
        with judged as (fresh, stale):
            again = self._counted(fresh, count) if stale else profile
            yield _Known(fresh, order, again, stale)

    def _counted(self, rows: Any, count: CountGroups) -> pa.Table:
        return added_up(self.engine, rows, count, PROFILE_SUMS, self.given.count)

    def _order(self, index: Index, located: Any, snapshot: Snapshot) -> RowOrder:
        """What new files are cut by: what was asked for, or as the table says."""
        columns = snapshot.options.cutting(snapshot.options.cluster_by)
        leaves_open = self.operation != DELETE and index.placement(snapshot) is None
        if self.sort_by or len(columns) < 2 or not leaves_open:
            return RowOrder(self.sort_by or (columns if leaves_open else ()))
        rows = self.engine.select(located, columns)
        sample = partial(sample_columns, columns, self.given.count)
        sampled = self.engine.run(rows, sample, COLUMN_SAMPLES)
        return RowOrder.fitted(columns, sampled)

    def _write(
        self, snapshot: Snapshot, index: Index, known: _Known, gone: Overwritten | None
    ) -> _Done:
        transaction, unwritten = self.transaction, RowCounts(stale=known.stale)
        if self.operation == DELETE:
            known, unwritten = known.held_alone()
        if not known.profile.num_rows and not (gone and len(gone.filled)):
            return _Done(transaction.base.version, (), unwritten, self.engine.name)
        transaction.start(action_of(self.operation, snapshot.options.has_logs))
        has_keys = any(one.has_keys for one in partitions_of(snapshot.options, index))
        rows, plan = self._planned(snapshot, index, known, gone, has_keys)
        engine = self.engine
        spread = _spread(engine, rows, plan)
        leaving = (rows, gone) if gone else None

        def check(receipts: Sequence[FileReceipt]) -> None:
            if plan.sums_keys:
                refuse_other_rows(known.profile, receipts, self.operation)
                if gone and has_keys:  # asked for once more, to tell which keys come back
                    refuse_others(engine, rows, snapshot.options, self.given)

        told = engine, transaction, snapshot, index, plan, spread, leaving, check
        written = written_groups(*told)
        counts = RowCounts.total([unwritten, *(one.counts for one in written.receipts)])
        if gone:
            counts = replace(counts, deleted=gone.deleted(counts.updated))
        change = self._change(snapshot, index, plan, written, gone)
        version = written.published(transaction, snapshot, change, counts, self.note)
        return _Done(version, written.stats, counts, engine.name)

    def _planned(
        self,
        snapshot: Snapshot,
        index: Index,
        known: _Known,
        gone: Overwritten | None,
        has_keys: bool,
    ) -> tuple[Any, WritePlan]:
        """What is written, and from which rows: few that came here from elsewhere go back if much
        is written for them, or read to tell which keys go."""
        instant, nonce = self.transaction.instant, self.transaction.owner.nonce
        filled = gone.filled if gone else ()

        def plan_for(engine: Engine[Any]) -> WritePlan:
            told = snapshot, index, known.profile, self.operation, instant, engine.slots, nonce
            return planned(*told, filled, known.order)

        rows, plan = known.rows, plan_for(self.engine)
        plan = replace(plan, sums_keys=not known.profile["key_sum"].null_count)
        read = gone.files.total_bytes if gone and has_keys else 0
        if self.engine is not self.source and is_much(plan, read):
            rows = self._back(rows)
            plan = plan_for(self.engine)
        files = len(plan.groups)
        _log.info("writing %d rows to %d files as %s", row_count(known.profile), files, instant)
        return rows, plan

    def _change(
        self,
        snapshot: Snapshot,
        index: Index,
        plan: WritePlan,
        written: Written,
        gone: Overwritten | None,
    ) -> Change:
        """What the commit does to the table, and what must still be so when it is published."""
        requires: list[Requirement] = [
            SlicesCurrent(tuple(group.base for group in plan.groups if group.base)),
            GroupsAbsent(plan.opened),
            KeysAbsent(index, written.scratch, written.arrivals),
            SchemaIsBase(),
            RingsAreBase(tuple(sorted({one.target.partition_path for one in plan.groups}))),
        ]
        if gone:
            requires.append(PartitionsUnchanged(gone.paths))
        updates: list[Update] = [AddFiles(written.adds)]
        before = self.transaction.snapshot.table_schema
        if snapshot.table_schema != before:
            requires.append(NoneLater(self.transaction.instant))
            if bent_slices(self.transaction.snapshot, snapshot.table_schema) is not None:
                requires.append(RowsUnchanged())  # there were no logs, and none may have come
            updates.append(SetSchema(snapshot.table_schema.encode()))
        return Change(self.operation, self.transaction.instant, (*requires,), (*updates,))


@dataclass(frozen=True, slots=True)
class _Known:
    """Rows whose locations are known: those that shall be written."""

    rows: Any
    order: RowOrder
    """What new files of them are cut by."""
    profile: pa.Table
    """How many there are of each partition and file group."""
    stale: int = 0
    """Rows that were left out, as older than stored ones."""

    def held_alone(self) -> tuple[_Known, RowCounts]:
        """Of rows to delete those that the table holds, and how many it does not."""
        held = self.profile["file_id"].is_valid()
        absent = row_count(self.profile.filter(pc.invert(held)))
        return replace(self, profile=self.profile.filter(held)), RowCounts(absent=absent)


def _spread(engine: Engine[Any], located: Any, plan: WritePlan) -> Any:
    """Rows, to be handed to the tasks of the plan; or for all of them, as they are."""
    names = [name for name in engine.schema(located).names if name not in (PATH, LOCATION_COLUMN)]
    held = held_rows(engine, located, plan, names)
    if held is not None:
        return held
    inputs = list(dict.fromkeys([KEY, PATH, LOCATION_COLUMN, *plan.order.columns]))
    routed = engine.extend(located, inputs, partial(route, plan), ROUTE)
    kept = [name for name in engine.schema(routed).names if name != LOCATION_COLUMN]
    return engine.exchange(engine.select(routed, kept), TASK_COLUMN, plan.tasks)


@dataclass(frozen=True, slots=True)
class _Done:
    """What a commit came to: its version, the files it wrote, its rows, and which engine did it."""

    version: int
    stats: tuple[WriteStat, ...]
    counts: RowCounts
    engine: str
