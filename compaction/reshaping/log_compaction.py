"""Compaction of logs: of file groups, base and logs become one new base file (merge-on-read).

    schedule   which slices (`log_sizes.py`): a version says so, and Hudi's timeline
               (`<instant>.compaction.requested`). Writers go on, on top
    carry out  a task each: the rows of what is planned, as they are, in a file of that instant
    publish    one commit of that instant: slices begin with the new files

Neither keeps writers from committing, and no writer makes it begin again: what is planned stays as
it is. Names of files are told by the plan: killed anywhere, whoever carries it out next finds what
is there, and two at once share the work. No row changes: each keeps its commit. In memory are the
logs of a slice, and some row groups; of small slices all rows, and of some of them far away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import pyarrow as pa

from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.reshaping.new_files import (
    Receipt,
    adopted,
    entry_receipts,
    file_receipt,
    new_base,
    rows_to_store,
    sorted_out,
    staged_commit,
    tasks_for,
)
from metatable.compaction.reshaping.waiting_plans import (
    begin,
    carried_out,
    check_waits,
    tidied,
)
from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import DataFile, FileSlice, marker_path
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.hoodie.operations import COMPACT_LOGS
from metatable.data.hoodie.timeline import COMPACTION
from metatable.data.reading.slice_reader import stream_slice
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.build import build_hfiles
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import SchemaIsBase, SlicesCurrent
from metatable.metadata.commits.scheduled import (
    Compacted,
    PlannedUnchanged,
    Schedule,
    SetSlices,
)
from metatable.metadata.commits.scheduled_plans import (
    made_plan,
    staged_plan,
    to_come,
    waiting_slices,
)
from metatable.metadata.hfiles.entry_files import Run, drop_runs
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Planned, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.sealed import checksum
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.view import read_columns
from metatable.metadata.written import KEY_BYTES, WrittenSlice
from metatable.storage import clock
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.portions import together_far
from metatable.storage.store import Store

__all__ = ["CompactLogs", "ScheduleLogs", "carry_out"]


def _check_has_logs(snapshot: Snapshot) -> None:
    if not snapshot.options.has_logs:
        raise UsageError("the table has no logs", expected="table_type='mor'")


@dataclass(frozen=True, slots=True)
class LogPlan(Plan):
    """The slices that are to be compacted, with what is planned of each."""

    slices: tuple[FileSlice, ...]

    @property
    def summary(self) -> str:
        logs = sum(len(one.logs) for one in self.slices)
        return f"{logs:,} logs of {len(self.slices):,} slices, {self.size_bytes:,} bytes to read"

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.slices)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"files_before": sum(len(one.files) for one in self.slices)}


@dataclass(frozen=True, slots=True)
class ScheduleLogs(Service[LogPlan]):
    """Plan what is due."""

    sizes: LogSizes = field(default_factory=LogSizes)
    name: ClassVar[str] = COMPACT_LOGS
    reserves: ClassVar[str] = COMPACTION
    """The instant is that of the compaction."""

    def plan(self, snapshot: Snapshot) -> LogPlan | NothingDue:
        """Raises UsageError for a table without logs, and for bounds that cannot be."""
        _check_has_logs(snapshot)
        self.sizes.check()
        slices = self.sizes.slices(snapshot)
        return LogPlan(tuple(slices)) if slices else NothingDue("no logs to compact")

    def work(self, engine: Engine[Any], snapshot: Snapshot, plan: LogPlan, owner: Owner) -> Outcome:
        instant, body = owner.instant, made_plan(plan.slices)
        path, told = staged_plan(instant), checksum(body)
        held = Planned(path, told, len(plan.slices), plan.size_bytes, clock.now_ms())
        waiting = tuple(
            one.scheduled(to_come(one.partition_path, one.file_id, instant)) for one in plan.slices
        )
        change = Change(
            operation="schedule_logs",
            requires=(SlicesCurrent(plan.slices),),
            updates=(Schedule(instant, held), SetSlices(waiting, owner)),
            steps=(Step("request", instant, path, told, COMPACTION),),
            summary={"slices": held.group_count, "bytes": held.size_bytes},
            files={path: body},
        )
        return Outcome(change, {"plan": instant, **plan.facts})


@dataclass(frozen=True, slots=True)
class CompactLogs(Service[LogPlan]):
    """Carry out the one that was scheduled as `instant`."""

    instant: str
    name: ClassVar[str] = COMPACT_LOGS

    def plan(self, snapshot: Snapshot) -> LogPlan | NothingDue:
        """What is left of it: groups that were written anew since are left out. Raises
        NotFoundError where it does not wait (any more)."""
        _check_has_logs(snapshot)
        check_waits(snapshot, self.instant, COMPACTION)
        return LogPlan(tuple(one.planned for one in waiting_slices(snapshot, self.instant)))

    def work(self, engine: Engine[Any], snapshot: Snapshot, plan: LogPlan, owner: Owner) -> Outcome:
        store, instant = snapshot.store, self.instant
        begin(snapshot, instant, COMPACTION)
        scratch = engine.scratch(store, owner.name)
        made = _written(engine, snapshot, plan, instant, scratch)
        adds, files = build_hfiles(engine, store, scratch, made.partitions, made.runs, owner)
        drop_runs(scratch, made.runs)
        step, staged = staged_commit(snapshot, self.name, instant, made.stats, COMPACTION)
        bases = {(one.partition_path, one.file_id): one for one in made.bases}
        change = Change(
            operation=self.name,
            instant=instant,
            is_undone_alone=False,
            requires=(PlannedUnchanged(instant, plan.slices), SchemaIsBase()),
            updates=(
                AddFiles(adds),
                Compacted(
                    instant,
                    plan.slices,
                    tuple(bases[one.partition_path, one.file_id] for one in plan.slices),
                    owner,
                ),
            ),
            steps=(step,),
            summary={
                "slices": len(made.stats),
                "rows": sum(one.row_count for one in made.stats),
                "bytes": sum(one.size_bytes for one in made.stats),
            },
            files={**files, **staged},
        )
        facts = {
            **plan.facts,
            "files_after": len(made.stats),
            "entries": sum(one.row_count for one in made.stats),
            "plan": instant,
        }
        return Outcome(change, facts, partial(tidied, instant=instant, action=COMPACTION))


# Tasks


@dataclass(frozen=True, slots=True)
class _Job:
    """A slice, as text."""

    planned: str


@dataclass(frozen=True, slots=True)
class _Made:
    partitions: tuple[MetadataPartition, ...]
    stats: tuple[WriteStat, ...]
    runs: tuple[Run, ...]

    @property
    def bases(self) -> Iterator[DataFile]:
        """The base files that were made."""
        return (DataFile.decode(one.path, one.size_bytes) for one in self.stats)


def _written(
    engine: Engine[Any],
    snapshot: Snapshot,
    plan: LogPlan,
    instant: str,
    scratch: Store,
) -> _Made:
    """Write the base files of the plan's slices, and runs of the entries of all partitions but
    `files`."""
    every = partitions_of(snapshot.options, create_index(snapshot.options))
    partitions = tuple(one for one in every if one.name != FilesPartition.name)
    work = partial(_write_slices, snapshot, partitions, instant, scratch, len(plan.slices))
    jobs = [_Job(one.encode()) for one in plan.slices]
    tasks = tasks_for(engine, snapshot.store, plan.size_bytes)
    return _Made(partitions, *sorted_out(run_jobs(engine, jobs, work, Receipt, tasks)))


def _write_slices(
    view: Snapshot,
    partitions: Sequence[MetadataPartition],
    instant: str,
    scratch: Store,
    times: int,
    jobs: Iterator[_Job],
    counters: Counters,
) -> Iterator[Receipt]:
    """Task: the new base files of slices, of so many in all, and their entries."""
    view, scratch = view.counting(counters), scratch.counting(counters)
    untold: list[WrittenSlice] = []
    key_bytes = 0
    slices = (FileSlice.decode(job.planned) for job in jobs)

    def write(planned: FileSlice) -> tuple[FileSlice, WrittenSlice]:
        return planned, _write_slice(view, planned, instant)

    for planned, written in together_far(view.store, write, slices, lambda one: one.size_bytes):
        untold.append(written)
        key_bytes += written.keys.nbytes
        if key_bytes > KEY_BYTES:
            yield from entry_receipts(untold, partitions, scratch, times)
            untold, key_bytes = [], 0
        counts = RowCounts(updated=len(written.keys))
        previous = planned.instant if planned.has_base else None
        stat = WriteStat.of(written.made.base, previous, counts)
        log_bytes = sum(one.size_bytes for one in planned.logs)
        yield file_receipt(
            replace(stat, compacted_logs=len(planned.logs), compacted_bytes=log_bytes)
        )
    if untold:
        yield from entry_receipts(untold, partitions, scratch, times)


def _write_slice(view: Snapshot, planned: FileSlice, instant: str) -> WrittenSlice:
    target = to_come(planned.partition_path, planned.file_id, instant)
    new = adopted(view, target, [planned])
    if new is None:
        kind: Literal["MERGE", "CREATE"] = "MERGE" if planned.has_base else "CREATE"
        view.store.put(marker_path(target, instant, kind), b"")

        def read(columns: pa.Schema) -> Iterator[pa.Table]:
            return stream_slice(view.store, planned, read_columns(view, columns))

        schema = with_meta_columns(view.schema)
        rows, with_nan = rows_to_store(schema, read, planned.size_bytes)
        new = new_base(view, target, rows, with_nan, sources=[planned])
    past = view.table_schema.past_stats
    return WrittenSlice(new.made, planned, keys=new.keys, stats=new.stats, past_stats=past)


def carry_out(store: Store, engine: Engine[Any], instant: str) -> None:
    """Carry out the one that was scheduled as this instant, unless others do. Raises
    ConflictError."""
    carried_out(store, engine, CompactLogs(instant))
