"""Compaction plan: which HFiles are to be merged, for which places; stored or at once.

A plan names files and says nothing of what is in them. On the version that it is carried out on
it is right as long as each input stands for the very places that it stood for when the plan was
made: what was published since is newer than all of them and stays beside the output, while
what was merged since must not come back.

A stored plan may say anything. Nonsense is damage; and of one that makes sense the version
decides that it changes no answer: with a file between its inputs that is none of them, or one
below where tombstones would go (a rollback can bring such files back), it is not right there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from metatable.compaction.service import Plan
from metatable.data.stored_fields import decode_fields, encode_fields, many, stored
from metatable.metadata.commits.page_updates import Swap
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.pages import HFileRef, Part
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import NAMES
from metatable.storage.errors import CorruptError, StaleError

__all__ = ["CompactionPlan", "CompactionTask", "Merge", "merges_of"]


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Merge what these HFiles, newest first, hold in places [lo, hi) of a metadata partition."""

    partition: str
    space: int
    lo: int
    hi: int
    keep_tombstones: bool
    inputs: tuple[Part, ...] = stored(many(Part, "input"))
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompactionPlan(Plan):
    """What is to be merged. `kind`: in a word, for people."""

    kind: str
    tasks: tuple[CompactionTask, ...] = stored(many(CompactionTask, "task"))
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return f"{self.kind}, {len(self.tasks)} bucket ranges"

    def encode(self) -> dict[str, Any]:
        return encode_fields(self)

    @classmethod
    def decode(cls, body: Any, path: str) -> CompactionPlan:
        return decode_fields(cls, body, path, "plan")


@dataclass(frozen=True, slots=True)
class Merge:
    """A task, with what it names as a version has it."""

    task: CompactionTask
    partition: MetadataPartition
    refs: tuple[HFileRef, ...]

    def swap(self, output: HFileRef | None) -> Swap:
        """What the next version has in place of the inputs: this HFile, or nothing."""
        one = self.task
        return Swap(one.partition, one.space, one.lo, one.hi, one.inputs, output)


def merges_of(
    plan: CompactionPlan,
    snapshot: Snapshot,
    partitions: Sequence[MetadataPartition],
    path: str = "",
) -> tuple[Merge, ...]:
    """The plan on this version; `path` is where it is stored.

    Raises StaleError where it is not right on it, CorruptError where it is nonsense.
    """
    named = {one.name: one for one in partitions}
    spans = sorted((one.partition, one.lo, one.hi) for one in plan.tasks)
    if not spans:
        raise _damaged(path, "", "tasks", "none")
    for (name, _, hi), (following, lo, _) in pairwise(spans):
        if name == following and lo < hi:
            raise _damaged(path, name, "places apart", f"{lo} twice")
    names = {*NAMES, *named}
    for task in plan.tasks:
        _refuse_nonsense(task, names, path)
    return tuple(_merge(task, named.get(task.partition), snapshot, path) for task in plan.tasks)


def _refuse_nonsense(task: CompactionTask, names: Set[str], path: str) -> None:
    """Raise CorruptError for what is right on no version. `names`: of all partitions there are."""
    if task.partition not in names:
        raise _damaged(path, task.partition, sorted(names), task.partition)
    if not 0 <= task.lo < task.hi <= task.space:
        expected, found = f"places of 0 to {task.space}", f"{task.lo} to {task.hi}"
        raise _damaged(path, task.partition, expected, found)
    if not task.inputs:
        raise _damaged(path, task.partition, "inputs", "none")


def _merge(
    task: CompactionTask, partition: MetadataPartition | None, snapshot: Snapshot, path: str
) -> Merge:
    """A task on this version; the partition is None, or cut otherwise, where the table has another
    index since. Raises StaleError where it is not right on it."""
    told = {"path": path, "partition": task.partition, "version": snapshot.version}
    if partition is None or partition.space != task.space:
        found = f"one of {partition.space}" if partition else "none"
        expected = f"a partition of {task.space} places"
        raise StaleError(_OUT_OF_DATE, **told, expected=expected, found=found)
    held = [ref for ref in snapshot.placed(partition) if ref.covers(task.lo, task.hi)]
    inputs = set(task.inputs)
    chosen = [at for at, ref in enumerate(held) if Part.of(ref, task.lo, task.hi) in inputs]
    if len(chosen) < len(inputs):
        expected = f"{len(inputs)} index files"
        raise StaleError(_OUT_OF_DATE, **told, expected=expected, found=len(chosen))
    if chosen[-1] - chosen[0] >= len(chosen):
        raise StaleError(_OUT_OF_DATE, **told, expected="neighbours", found="files between them")
    if not task.keep_tombstones and chosen[-1] + 1 < len(held):
        raise StaleError(_OUT_OF_DATE, **told, expected="the oldest", found="files below them")
    return Merge(task, partition, tuple(held[at] for at in chosen))


_OUT_OF_DATE = "what was planned to be merged is merged or undone meanwhile: schedule it again"


def _damaged(path: str, partition: str, expected: object, found: object) -> CorruptError:
    return CorruptError(
        "plan is damaged", path=path, partition=partition, expected=expected, found=found
    )
