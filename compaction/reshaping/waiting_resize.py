"""Resize while writers go on (RFC-42), of merge-on-read tables: planned apart, carried out apart.

    schedule   which buckets (`bucket_sizes.py`): a version says so, and Hudi's timeline
               (`<instant>.replacecommit.requested`). The entry of each bucket names its children
    writers    dual write: a log of the bucket, and copies in logs of the children
               virtual log: logs of the children alone, which the bucket's readers merge
    carry out  a task a child: the rows of its parents up to the plan, in a file of that instant
    publish    one `replacecommit` of that instant: children begin with these, and have the logs of
               writers on top; rings change (`resized.py`)

As in a compaction of logs neither side waits for the other, and names are told by the plan. Buckets
without a file are none of it, and of virtual logs no merges: where one of two parents is written
anew its task comes to nothing, and the rows of the other one would lie on no base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.new_files import staged_commit
from metatable.compaction.reshaping.resize import (
    Child,
    NoResizeWaits,
    check_resizes,
    children_of,
    none_due,
    planned_paths,
    resized,
    summary_of,
    written_children,
)
from metatable.compaction.reshaping.resize_plan import ResizePlan, ResizeTask
from metatable.compaction.reshaping.resized import Resized
from metatable.compaction.reshaping.waiting_plans import begin, check_waits, tidied
from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.data.file_groups.children import DUAL_WRITE, VIRTUAL_LOG, WAYS
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.clustering_plan import PlannedTask
from metatable.data.hoodie.commit_metadata import ids_by_path
from metatable.data.hoodie.operations import RESIZE
from metatable.data.hoodie.timeline import CLUSTERING
from metatable.engine.protocol import Engine
from metatable.index.bucket.rings import rings_of
from metatable.index.build import build_hfiles
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.hudi_rings import with_rings
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import RingsAreBase, SchemaIsBase, SlicesCurrent
from metatable.metadata.commits.scheduled import PlannedUnchanged, Schedule, SetSlices
from metatable.metadata.commits.scheduled_plans import buckets_plan, made_buckets_plan, staged_plan
from metatable.metadata.hfiles.entry_files import drop_runs
from metatable.metadata.manifests.manifest import Planned, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.sealed import checksum
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import clock
from metatable.storage.errors import UsageError

__all__ = ["CarryOutResize", "ScheduleResize"]

_Group = tuple[str, str]
"""(partition path, file id)"""


def _check(snapshot: Snapshot) -> None:
    check_resizes(snapshot)
    if not snapshot.options.has_logs:
        raise UsageError("without logs writers wait for a resize", expected="table_type='mor'")


@dataclass(frozen=True, slots=True)
class ScheduleResize(Service[ResizePlan]):
    """Plan what is due. `way`: how writers go on until it is carried out."""

    sizes: BucketSizes = field(default_factory=BucketSizes)
    way: str = DUAL_WRITE
    name: ClassVar[str] = RESIZE
    reserves: ClassVar[str] = CLUSTERING

    def plan(self, snapshot: Snapshot) -> ResizePlan | NothingDue:
        """Raises UsageError where buckets are for ever, or rows have no logs."""
        _check(snapshot)
        if self.way not in WAYS:
            raise UsageError("how writers go on", found=self.way, expected=WAYS)
        self.sizes.check(snapshot.options.bucket_engine)
        planned = planned_paths(snapshot)
        merges = self.way != VIRTUAL_LOG
        due = self.sizes.tasks(snapshot, planned, only_stored=True, merges=merges)
        return ResizePlan(tuple(due)) if due else none_due(self.sizes, planned)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: ResizePlan, owner: Owner
    ) -> Outcome:
        instant = owner.instant
        groups = [(one.partition_path, node.file_id) for one in plan.tasks for node in one.before]
        current = _current(snapshot, groups)
        parents, waits = list[FileSlice](), list[FileSlice]()
        for task in plan.tasks:
            path, ids = task.partition_path, [node.file_id for node in task.before]
            planned = PlannedTask(path, task.seq_no, tuple(ids), task.after)
            children = planned.children(self.way, instant)
            held = [current[path, one] for one in ids if (path, one) in current]
            parents += held
            waits += (one.split(children) for one in held)
        body, path = made_buckets_plan(snapshot, waits), staged_plan(instant, CLUSTERING)
        told, size_bytes = checksum(body), sum(one.size_bytes for one in parents)
        planned_now = clock.now_ms()
        held_plan = Planned(path, told, len(parents), size_bytes, planned_now, CLUSTERING)
        change = Change(
            operation="schedule_resize",
            requires=(
                SlicesCurrent(tuple(parents)),
                RingsAreBase(plan.paths),
                NoResizeWaits(plan.paths),
            ),
            updates=(Schedule(instant, held_plan), SetSlices(tuple(waits), owner)),
            steps=(Step("request", instant, path, told, CLUSTERING),),
            summary={"splits": plan.splits, "merges": plan.merges, "bytes": size_bytes},
            note={"why": plan.why} if plan.why else {},
            files={path: body},
        )
        return Outcome(change, {"plan": instant, "files_before": len(parents)})


@dataclass(frozen=True, slots=True)
class WaitingPlan(Plan):
    """What is carried out: of which slices as they were planned, to which children."""

    resize: ResizePlan
    planned: Mapping[_Group, FileSlice]
    children: tuple[DataFile, ...]
    left: tuple[PlannedTask, ...]
    """Tasks that came to nothing."""

    @property
    def summary(self) -> str:
        return self.resize.summary

    @property
    def replaced(self) -> dict[str, tuple[str, ...]]:
        """Groups by partition path that Hudi's readers pass over from now on: parents, and, where a
        task came to nothing, its children, on which copies may lie."""
        children = ((task.partition_path, one.file_id) for task in self.left for one in task.nodes)
        return ids_by_path([*self.planned, *children])


@dataclass(frozen=True, slots=True)
class CarryOutResize(Service[WaitingPlan]):
    """Carry out the one that was scheduled as `instant`."""

    instant: str
    name: ClassVar[str] = RESIZE

    def plan(self, snapshot: Snapshot) -> WaitingPlan:
        """What is left of it: tasks of which a bucket was written anew are left out. Raises
        NotFoundError where it does not wait (any more)."""
        _check(snapshot)
        check_waits(snapshot, self.instant, CLUSTERING)
        plan = buckets_plan(snapshot, self.instant)
        groups = [(one.partition_path, name) for one in plan.tasks for name in one.parents]
        held = _current(snapshot, groups).items()
        waits = {group: one for group, one in held if one.awaits == self.instant}
        stand, left, children = list[PlannedTask](), list[PlannedTask](), list[DataFile]()
        for task in plan.tasks:
            stands = all((task.partition_path, one) in waits for one in task.parents)
            (stand if stands else left).append(task)
            children += task.children(plan.way, self.instant) if stands else ()
        parents = {(one.partition_path, name) for one in stand for name in one.parents}
        planned = {group: one.planned for group, one in waits.items() if group in parents}
        sizes = {group: one.size_bytes for group, one in waits.items()}
        told = _as_resize(snapshot, stand, sizes)
        return WaitingPlan(told, planned, tuple(children), tuple(left))

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: WaitingPlan, owner: Owner
    ) -> Outcome:
        store, instant = snapshot.store, self.instant
        begin(snapshot, instant, CLUSTERING)
        rings = resized(snapshot, plan.resize, instant)
        tokens = {one.file_id: one.write_token for one in plan.children}
        jobs: list[Child] = [
            replace(one, write_token=tokens[one.file_id])
            for one in children_of(plan.resize, rings, plan.planned, instant)
        ]
        scratch = engine.scratch(store, owner.name)
        made = written_children(engine, snapshot, jobs, scratch, is_told=True)
        # statistics of the base files: what else there is to say is composed with the version
        stats = (ColumnStatsPartition(snapshot.options),)
        adds, files = build_hfiles(engine, store, scratch, stats, made.runs, owner)
        drop_runs(scratch, made.runs)
        step, staged = staged_commit(
            snapshot, self.name, instant, made.stats, CLUSTERING, plan.replaced
        )
        bases = tuple(DataFile.decode(one.path, one.size_bytes) for one in made.stats)
        change = Change(
            operation=self.name,
            instant=instant,
            is_undone_alone=False,
            requires=(PlannedUnchanged(instant, (*plan.planned.values(),)), SchemaIsBase()),
            updates=(AddFiles(adds), Resized(instant, bases, owner)),
            steps=with_rings(snapshot.options, step),
            summary=summary_of(plan.resize, made.stats),
            files={**files, **staged},
        )
        counts = {"files_before": len(plan.planned), "files_after": len(bases), "plan": instant}
        entries = sum(one.row_count for one in made.stats)
        after = partial(tidied, instant=instant, action=CLUSTERING)
        return Outcome(change, {**counts, "entries": entries}, after)


def _current(snapshot: Snapshot, groups: Iterable[_Group]) -> dict[_Group, FileSlice]:
    """The current slices of those that are there."""
    asked = list(groups)
    slices = snapshot.current([path for path, _ in asked], [name for _, name in asked])
    return {group: one for group, one in zip(asked, slices, strict=True) if one}


def _as_resize(
    snapshot: Snapshot, tasks: Sequence[PlannedTask], sizes: Mapping[_Group, int]
) -> ResizePlan:
    """By nodes of the rings as they are. `sizes`: bytes of their file groups."""
    paths = [*dict.fromkeys(one.partition_path for one in tasks)]
    nodes = {
        (path, node.file_id): node
        for path, ring in zip(paths, rings_of(snapshot, paths), strict=True)
        for node in ring.nodes
    }
    told = []
    for task in tasks:
        asked = [(task.partition_path, one) for one in task.parents]
        before = tuple(nodes[one] for one in asked if one in nodes)
        size_bytes = sum(sizes[one] for one in asked)
        told.append(ResizeTask(task.partition_path, task.seq_no, before, task.nodes, size_bytes))
    return ResizePlan(tuple(told))
