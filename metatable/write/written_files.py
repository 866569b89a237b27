"""The files of a commit: written by its tasks, told to Hudi, published with the version."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.data.commit_metadata import CommitMetadata, WriteStat
from metatable.data.row_counts import RowCounts
from metatable.engine.protocol import Engine
from metatable.index.protocol import Index
from metatable.metadata.change import Change
from metatable.metadata.entry_files import Run
from metatable.metadata.manifest import HFileRef
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.transaction import Transaction
from metatable.storage.store import Store
from metatable.write.build import build_hfiles
from metatable.write.groups import (
    ARRIVALS,
    EMPTIED,
    MOST_TOGETHER,
    RECEIPT,
    FileReceipt,
    empty_groups,
    preparations,
    write_groups,
)
from metatable.write.overwrite import Overwritten, entries_gone
from metatable.write.plan import NO_TASK, TASK_COLUMN, WritePlan

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
        step, staged = transaction.staged(CommitMetadata.of_ours(*told, self.replaced).encode())
        files, summary = {**self.files, **staged}, _summary(counts, self.stats)
        whole = replace(change, steps=(step,), summary=summary, note=note, files=files)
        published = transaction.publish(whole)
        self.scratch.delete(run.path for run in self.runs if run.path is not None)
        return published.version


def written_groups(
    engine: Engine[Any],
    transaction: Transaction,
    snapshot: Snapshot,
    index: Index,
    plan: WritePlan,
    spread: Any,
    gone: tuple[Any, Overwritten] | None = None,
) -> Written:
    """Write the groups of a plan, given its rows, spread over its tasks.

    `gone`: where partitions are overwritten, the rows with where their keys are now, and what
    leaves the table.
    """
    store = transaction.store
    transaction.planned = plan.paths
    few = len(plan.groups) <= MOST_TOGETHER
    transaction.begin_files(preparations(snapshot, plan, plan.groups) if few else ())
    partitions = partitions_of(snapshot.options, index)
    asks = any(one.reads_keys for one in partitions)
    plan = replace(plan, prepared=few, asks_for_keys=asks)
    scratch = engine.scratch(store)
    receipts, runs = _split(_files_written(engine, snapshot, plan, partitions, scratch, spread))
    replaced = None
    if gone:
        located, leaving = gone
        runs += entries_gone(engine, located, leaving, snapshot, plan, partitions, scratch)
        replaced = leaving.told(plan)
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


def _summary(counts: RowCounts, stats: tuple[WriteStat, ...]) -> dict[str, int]:
    """As history tells it."""
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
