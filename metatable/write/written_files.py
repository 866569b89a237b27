"""The files of a commit: written by its tasks, told to Hudi, published with the version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat, columns_beside
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.protocol import TASK_COLUMN, Engine, Task
from metatable.index.build import build_hfiles
from metatable.index.protocol import Index
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import SetSchema
from metatable.metadata.hfiles.entry_files import Run, drop_runs
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.storage.store import Store
from metatable.write.entries_gone import entries_gone
from metatable.write.groups import (
    MOST_TOGETHER,
    PLACES,
    empty_groups,
    held_groups,
    preparations,
    write_groups,
)
from metatable.write.overwrite import Overwritten
from metatable.write.plan import NO_TASK, WritePlan
from metatable.write.receipts import ARRIVALS, RECEIPT, FileReceipt
from metatable.write.task_rows import TaskRows

__all__ = ["Written", "written_groups"]

_log = logging.getLogger("metatable.write")


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a commit, with their index files, before they are published.

    `replaced`: ids of the file groups that leave the table, by partition path; None: it is no
    commit that replaces any.
    """

    receipts: tuple[FileReceipt, ...]
    runs: tuple[Run, ...]
    scratch: Store
    adds: Mapping[str, tuple[HFileRef, ...]]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Index files that are put with the version's pages."""
    replaced: Mapping[str, tuple[str, ...]] | None = None

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        return tuple(one.stat for one in self.receipts)

    @property
    def arrivals(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.partition == ARRIVALS)

    def published(
        self,
        transaction: Transaction,
        snapshot: Snapshot,
        change: Change,
        counts: RowCounts,
        note: Mapping[str, str],
    ) -> int:
        """The version that `change` has made, with its commit for Hudi's timeline."""
        told = change.operation, self.stats, note, snapshot.schema, snapshot.options.name
        changed = any(isinstance(one, SetSchema) for one in change.updates)
        columns = columns_beside(snapshot.table_schema, changed=changed)
        commit = CommitMetadata.of_ours(*told, self.replaced, columns)
        step, staged = transaction.staged(commit.encode())
        files, summary = {**self.files, **staged}, _summary(counts, self.stats)
        whole = replace(change, steps=(step,), summary=summary, note=note, files=files)
        published = transaction.publish(whole)
        tidy("runs of entries", partial(drop_runs, self.scratch, self.runs))
        return published.version


def written_groups(
    engine: Engine[Any],
    transaction: Transaction,
    snapshot: Snapshot,
    index: Index,
    plan: WritePlan,
    spread: Any,
    gone: tuple[Any, Overwritten] | None = None,
    check: Callable[[Sequence[FileReceipt]], None] | None = None,
) -> Written:
    """Write the groups of a plan, given its rows, spread over its tasks, or in this process as they
    are (`TaskRows`).

    `gone`: where partitions are overwritten, the rows with where their keys are now, and what
    leaves the table. `check`: raises where it is not to be published, before the index is built.
    """
    store = transaction.store
    transaction.planned, transaction.speculates = plan.paths, engine.speculates
    few = len(plan.groups) <= MOST_TOGETHER
    prepared = preparations(snapshot, plan, plan.groups) if few else ()
    transaction.begin_files(prepared, here=engine.in_process)
    partitions = partitions_of(snapshot.options, index)
    asks = any(one.reads_keys for one in partitions)
    plan = replace(plan, prepared=few, asks_for_keys=asks)
    scratch = engine.scratch(store, transaction.owner.name)
    receipts, runs = _split(_files_written(engine, snapshot, plan, partitions, scratch, spread))
    replaced = None
    if gone:
        located, leaving = gone
        runs += entries_gone(engine, located, leaving, snapshot, plan, partitions, scratch)
        replaced = leaving.told(plan)
    if check is not None:
        check(receipts)
    _log.info("%d files are written, building the index", len(receipts))
    adds, files = build_hfiles(engine, store, scratch, partitions, runs, transaction.owner)
    return Written(tuple(receipts), tuple(runs), scratch, adds, files, replaced)


def _files_written(
    engine: Engine[Any],
    snapshot: Snapshot,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    spread: Any,
) -> pa.Table:
    """What the tasks tell that write the plan's groups: in `RECEIPT`."""
    given = snapshot, plan, partitions, scratch
    if isinstance(spread, TaskRows):
        chosen = [
            place
            for place, one in enumerate(plan.groups)
            if one.task != NO_TASK and spread.writes(one, place)
        ]
        task_of = [plan.groups[place].task for place in chosen]
        told = _of_places(engine, chosen, task_of, partial(held_groups, *given, spread))
    else:
        told = engine.run(spread, partial(write_groups, *given), RECEIPT)
    empty = [place for place, one in enumerate(plan.groups) if one.task == NO_TASK]
    if not empty:
        return told
    tasks = min(engine.slots, len(empty))
    task_of = [place % tasks for place in empty]
    return pa.concat_tables(
        [told, _of_places(engine, empty, task_of, partial(empty_groups, *given))]
    )


def _of_places(
    engine: Engine[Any], places: Sequence[int], task_of: Sequence[int], work: Task
) -> pa.Table:
    """What tasks tell that are given these groups."""
    jobs = engine.rows(pa.table([places, task_of], schema=PLACES))
    count = max(task_of, default=0) + 1
    if count > 1 or not engine.in_process:
        jobs = engine.exchange(jobs, TASK_COLUMN, count)
    return engine.run(jobs, work, RECEIPT)


def _summary(counts: RowCounts, stats: tuple[WriteStat, ...]) -> dict[str, int]:
    """The counts as `history` tells them."""
    told = {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
    }
    return {
        **{name: count for name, count in told.items() if count is not None},
        "moved": counts.moved,
        "stale": counts.stale,
        "misses": counts.index_misses,
        "bytes": sum(stat.size_bytes for stat in stats),
        "rows": sum(stat.row_count for stat in stats),
    }


def _split(table: pa.Table) -> tuple[list[FileReceipt], list[Run]]:
    receipts, runs = list[FileReceipt](), list[Run]()
    for row in table.to_pylist():
        file = row.pop("file")
        if file is None:
            runs.append(Run(**row))
        else:
            receipts.append(FileReceipt.decode(file))
    return sorted(receipts, key=lambda one: one.stat.path), runs
