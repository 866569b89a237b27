"""Compaction: HFiles of the metadata partitions are merged into fewer; no answer changes.

The work is cut into contiguous ranges of buckets, each worth one output file: one range for
a small partition, one per bucket for a large one, exactly the named buckets where the caller
names some. Minor: the newest run of files that are small beside each other (as HBase chooses:
the next older file joins while it is no larger than twice what has joined). Major: all files of the
range. Where no older file is left that they may hide something of, tombstones go.

Inputs are neighbours in sequence and the output takes the highest of theirs, so a writer
that began before and publishes after still comes after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from metatable.compaction.merging.compaction_plan import (
    CompactionPlan,
    CompactionTask,
    Merge,
    merges_of,
)
from metatable.compaction.merging.merge import merge_hfiles
from metatable.compaction.service import NothingDue, Outcome, Schedulable
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import Swap, SwapFiles
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef, Part
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.threads import WORKERS, here_alone

__all__ = ["Compact"]

JOIN_RATIO = 2
"""A minor compaction takes an older file in while it is at most so many times what it has."""


@dataclass(frozen=True, slots=True)
class Compact(Schedulable[CompactionPlan]):
    """Which HFiles to merge: of all partitions and buckets, unless some are named."""

    major: bool = False
    partitions: Sequence[str] | None = None
    buckets: Sequence[int] | None = None
    least_files: int = 2
    """A minor compaction leaves fewer of them alone."""
    most_bytes: int | None = None
    """A minor compaction merges no more than this for one range of buckets, if it is given."""
    name: ClassVar[str] = "compact"

    def plan(self, snapshot: Snapshot) -> CompactionPlan | NothingDue:
        """What is worth merging in this version. Raises UsageError for unknown names."""
        kept = {one.name: one for one in _partitions(snapshot)}
        named = list(kept) if self.partitions is None else list(self.partitions)
        for name in named:
            if name not in kept:
                raise UsageError("no such metadata partition", found=name, expected=list(kept))
        self._check_buckets({name: kept[name].bucket_count for name in named})
        tasks = tuple(task for name in named for task in self._tasks(snapshot, kept[name]))
        if tasks:
            return CompactionPlan("major" if self.major else "minor", tasks)
        held = _file_count(snapshot)
        return NothingDue("nothing to compact", {"files_before": held, "files_after": held})

    def resume(self, snapshot: Snapshot, work: Mapping[str, Any], path: str) -> CompactionPlan:
        """A stored plan, if it is still right."""
        plan = CompactionPlan.decode(work, path)
        merges_of(plan, snapshot, _partitions(snapshot), path)
        return plan

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: CompactionPlan, owner: Owner
    ) -> Outcome:
        merges = merges_of(plan, snapshot, _partitions(snapshot))
        swapped = SwapFiles(_carry_out(engine, snapshot, merges, owner))
        change = Change(
            operation=self.name,
            updates=(swapped,),
            summary={"tasks": len(merges), "inputs": sum(len(one.refs) for one in merges)},
        )
        facts = {
            "files_before": _file_count(snapshot),
            "files_after": _file_count(snapshot, swapped),
            "entries": sum(one.output.entry_count for one in swapped.swaps if one.output),
        }
        return Outcome(change, facts)

    def _tasks(self, snapshot: Snapshot, partition: MetadataPartition) -> list[CompactionTask]:
        """One per range that is worth it. A minor compaction that would leave more files than there
        are takes fewer ranges: with a single one, what it merges is gone whole."""
        refs = snapshot.placed(partition)
        if self.buckets is not None:
            return self._in_ranges(partition, refs, self._named(partition))
        joining = {ref.path: ref.size_bytes for ref in self._chosen(snapshot.refs(partition.name))}
        pieces = max(1, sum(joining.values()) // snapshot.options.hfile_target_bytes)
        while True:
            tasks = self._in_ranges(partition, refs, partition.cut(pieces))
            if self.major or pieces == 1 or _files_left(refs, tasks) < len(_paths(refs)):
                return tasks
            pieces //= 2

    def _check_buckets(self, counts: Mapping[str, int]) -> None:
        """Each bucket that is named is one of some partition's, of which there are so many."""
        for bucket in sorted(set(self.buckets or ())):
            if not 0 <= bucket < max(counts.values(), default=0):
                last = ", ".join(f"{name} 0 to {count - 1}" for name, count in counts.items())
                raise UsageError("no such bucket", found=bucket, expected=last)

    def _named(self, partition: MetadataPartition) -> list[tuple[int, int]]:
        """Ranges of the buckets that are named; a partition may have fewer of them."""
        named = sorted(set(self.buckets or ()))
        return [partition.bucket(number) for number in named if number < partition.bucket_count]

    def _in_ranges(
        self,
        partition: MetadataPartition,
        refs: Sequence[HFileRef],
        ranges: Sequence[tuple[int, int]],
    ) -> list[CompactionTask]:
        made = (self._task(partition, refs, lo, hi) for lo, hi in ranges)
        return [task for task in made if task is not None]

    def _task(
        self, partition: MetadataPartition, placed: Sequence[HFileRef], lo: int, hi: int
    ) -> CompactionTask | None:
        """What is due in places [lo, hi) of a partition, if anything is."""
        refs = [ref for ref in placed if ref.covers(lo, hi)]
        chosen = self._chosen(refs)
        if self.major:
            due = len(chosen) > 1 or any(ref.tombstone_count for ref in chosen)
        else:
            due = len(chosen) >= self.least_files
        if not due:
            return None
        inputs = tuple(Part.of(ref, lo, hi) for ref in chosen)
        hides = len(chosen) < len(refs)  # what tombstones hide is in an older file
        return CompactionTask(partition.name, partition.space, lo, hi, hides, inputs)

    def _chosen(self, refs: Sequence[HFileRef]) -> Sequence[HFileRef]:
        return refs if self.major else _newest_run(refs, self.most_bytes)


def _paths(refs: Sequence[HFileRef]) -> set[str]:
    return {ref.path for ref in refs}


def _files_left(refs: Sequence[HFileRef], tasks: Sequence[CompactionTask]) -> int:
    """Files of a partition, outputs included, when these tasks are done."""
    left = list(refs)
    for task in tasks:
        inputs = {one.path for one in task.inputs}
        left = [
            rest
            for ref in left
            for rest in (ref.without(task.lo, task.hi) if ref.path in inputs else [ref])
        ]
    return len(_paths(left)) + len(tasks)


def _newest_run(refs: Sequence[HFileRef], most_bytes: int | None) -> list[HFileRef]:
    """The newest files that are worth merging with each other; `refs` are newest first.

    Those that are more than half of `most_bytes` are passed over: what is behind them has been
    merged before, or was as large when it came.
    """
    chosen: list[HFileRef] = []
    joined = 0
    for ref in refs:
        most = None if most_bytes is None else most_bytes - joined
        if most is not None and ref.size_bytes > (most if chosen else most // 2):
            if chosen:
                break
            continue
        if chosen and ref.size_bytes > JOIN_RATIO * joined:
            break
        chosen.append(ref)
        joined += ref.size_bytes
    return chosen


@dataclass(frozen=True, slots=True)
class _Job:
    """The merge of this number: all of them ride in the function, with their inputs."""

    number: int


@dataclass(frozen=True, slots=True)
class _Merged:
    """Receipt: the file that a task made, if anything was left to write."""

    number: int
    ref: str


def _carry_out(
    engine: Engine[Any], snapshot: Snapshot, merges: Sequence[Merge], owner: Owner
) -> tuple[Swap, ...]:
    jobs = [_Job(number) for number in range(len(merges))]
    receipts = run_jobs(engine, jobs, partial(_merge, snapshot, tuple(merges), owner), _Merged)
    built = {one.number: HFileRef.decode(json.loads(one.ref)) for one in receipts}
    return tuple(one.swap(built.get(number)) for number, one in enumerate(merges))


def _merge(
    snapshot: Snapshot,
    merges: Sequence[Merge],
    owner: Owner,
    jobs: Iterator[_Job],
    counters: Counters,
) -> Iterator[_Merged]:
    """Task: one output file a job."""
    store = snapshot.store.counting(counters)
    for job in jobs:
        one = merges[job.number]
        with here_alone() if len(merges) >= WORKERS else nullcontext():
            ref = merge_hfiles(
                store,
                one.partition,
                one.refs,
                one.task.lo,
                one.task.hi,
                owner,
                keep_tombstones=one.task.keep_tombstones,
            )
        if ref is not None:
            yield _Merged(job.number, json.dumps(ref.encode()))


def _partitions(snapshot: Snapshot) -> list[MetadataPartition]:
    return partitions_of(snapshot.options, create_index(snapshot.options))


def _file_count(snapshot: Snapshot, swapped: SwapFiles | None = None) -> int:
    """HFiles that the version names, or would name with these swapped."""
    buckets, paths = snapshot.options.buckets, set[str]()
    for name in snapshot.manifest.pages:
        refs = snapshot.refs(name)
        left = refs if swapped is None else swapped.within(name, refs, buckets[name])
        paths.update(ref.path for ref in left)
    return len(paths)
