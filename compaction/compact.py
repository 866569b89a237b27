"""Compaction: fewer HFiles, the same answers.

The work is cut into contiguous ranges of buckets, each worth one output file: one range for
a small partition, one a bucket for a large one, exactly the named buckets where the caller
names some. Minor: the newest run of files that are small beside each other (as HBase chooses:
the next older file joins while it is no larger than twice what has joined); tombstones stay.
Major: all files of the range; tombstones go, for nothing is left that they hide.

Inputs are neighbours in sequence and the output takes the highest of theirs, so a writer
that began before and publishes after still comes after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from metatable.compaction.merge import merge_hfiles
from metatable.compaction.service import NothingDue, Outcome
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.change import Change, Swap, SwapFiles
from metatable.metadata.manifest import HFileRef, Part
from metatable.metadata.owner import Owner
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError

__all__ = ["Compact"]

JOIN_RATIO = 2
"""A minor compaction takes an older file in while it is at most so many times what it has."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Which HFiles to merge: of all partitions and buckets, unless some are named."""

    major: bool = False
    partitions: Sequence[str] | None = None
    buckets: Sequence[int] | None = None
    name: str = "compact"
    retries: int = 5

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: CompactionPlan, owner: Owner
    ) -> Outcome:
        tasks = plan.tasks
        swapped = SwapFiles(_carry_out(engine, snapshot, tasks, owner))
        change = Change(
            operation=self.name,
            updates=(swapped,),
            summary={"tasks": len(tasks), "inputs": sum(len(one.inputs) for one in tasks)},
        )
        facts = {
            "files_before": _file_count(snapshot),
            "files_after": _file_count(snapshot, swapped),
            "entries": sum(one.output.entry_count for one in swapped.swaps if one.output),
        }
        return Outcome(change, facts)

    def plan(self, snapshot: Snapshot) -> CompactionPlan | NothingDue:
        """What is worth merging in this version. Raises UsageError for unknown names."""
        index = create_index(snapshot.options)
        stored = {one.name: one for one in partitions_of(snapshot.options, index)}
        named = list(stored) if self.partitions is None else list(self.partitions)
        for name in named:
            if name not in stored:
                raise UsageError("no such metadata partition", found=name, expected=list(stored))
        tasks = tuple(
            task
            for name in named
            for lo, hi in self._ranges(snapshot, stored[name])
            if (task := self._task(snapshot, stored[name], lo, hi)) is not None
        )
        if tasks:
            return CompactionPlan("major" if self.major else "minor", tasks)
        held = _file_count(snapshot)
        return NothingDue("nothing to compact", {"files_before": held, "files_after": held})

    def _ranges(self, snapshot: Snapshot, partition: MetadataPartition) -> list[tuple[int, int]]:
        count = partition.bucket_count
        if self.buckets is not None:
            for bucket in self.buckets:
                if not 0 <= bucket < count:
                    expected = f"0 to {count - 1}"
                    raise UsageError("no such bucket", found=bucket, expected=expected)
            return [partition.bucket(number) for number in sorted(set(self.buckets))]
        refs = snapshot.refs(partition.name)
        joining = {ref.path: ref.size_bytes for ref in (refs if self.major else _newest_run(refs))}
        worth = sum(joining.values()) // snapshot.options.hfile_target_bytes
        return partition.cut(max(1, worth))

    def _task(
        self, snapshot: Snapshot, partition: MetadataPartition, lo: int, hi: int
    ) -> CompactionTask | None:
        refs = [ref for ref in snapshot.placed(partition) if ref.covers(lo, hi)]
        chosen = refs if self.major else _newest_run(refs)
        lone = len(chosen) == 1 and not (self.major and chosen[0].tombstone_count)
        if not chosen or lone:
            return None
        return CompactionTask(partition, lo, hi, tuple(chosen), keep_tombstones=not self.major)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What is to be merged."""

    kind: str
    tasks: tuple[CompactionTask, ...]

    @property
    def told(self) -> str:
        return f"{self.kind}, {len(self.tasks)} bucket ranges"


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Merge these files, newest first, for places [lo, hi) of a partition."""

    partition: MetadataPartition
    lo: int
    hi: int
    inputs: tuple[HFileRef, ...]
    keep_tombstones: bool


def _newest_run(refs: Sequence[HFileRef]) -> list[HFileRef]:
    """The newest files that are worth merging with each other; `refs` are newest first."""
    chosen: list[HFileRef] = []
    joined = 0
    for ref in refs:
        if chosen and ref.size_bytes > JOIN_RATIO * joined:
            break
        chosen.append(ref)
        joined += ref.size_bytes
    return chosen


@dataclass(frozen=True, slots=True)
class _Job:
    """The task of this number: all of them ride in the function, with their inputs."""

    number: int


@dataclass(frozen=True, slots=True)
class _Merged:
    """Receipt: the file that a task made, if anything was left to write."""

    number: int
    ref: str


def _carry_out(
    engine: Engine[Any], snapshot: Snapshot, tasks: Sequence[CompactionTask], owner: Owner
) -> tuple[Swap, ...]:
    jobs = [_Job(number) for number in range(len(tasks))]
    receipts = run_jobs(engine, jobs, partial(_merge, snapshot, tuple(tasks), owner), _Merged)
    built = {one.number: HFileRef.decode(json.loads(one.ref)) for one in receipts}
    return tuple(
        Swap(
            partition=task.partition.name,
            space=task.partition.space,
            lo=task.lo,
            hi=task.hi,
            inputs=tuple(Part.of(ref, task.lo, task.hi) for ref in task.inputs),
            output=built.get(number),
        )
        for number, task in enumerate(tasks)
    )


def _merge(
    snapshot: Snapshot,
    tasks: Sequence[CompactionTask],
    owner: Owner,
    jobs: Iterator[_Job],
    counters: Counters,
) -> Iterator[_Merged]:
    """Task: one output file a job."""
    store = snapshot.store.counting(counters)
    for job in jobs:
        task = tasks[job.number]
        ref = merge_hfiles(
            store,
            task.partition,
            task.inputs,
            task.lo,
            task.hi,
            owner,
            keep_tombstones=task.keep_tombstones,
        )
        if ref is not None:
            yield _Merged(job.number, json.dumps(ref.encode()))


def _file_count(snapshot: Snapshot, swapped: SwapFiles | None = None) -> int:
    """HFiles that the version names, or would name with these swapped."""
    buckets, paths = snapshot.options.buckets, set[str]()
    for name in snapshot.manifest.pages:
        refs = snapshot.refs(name)
        left = refs if swapped is None else swapped.within(name, refs, buckets[name])
        paths.update(ref.path for ref in left)
    return len(paths)
