"""Resize plan: which buckets are to be split or merged; stored or at once.

A task names nodes of a partition's ring as they are, and as they will be, ids included: so a plan
that is carried out twice makes the same groups, of which the second finds the first. It is right
as long as the ring is the one that it was made of, told by how often that was resized. A stored
plan may say anything: nonsense is damage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metatable.compaction.service import Plan
from metatable.data.file_groups.hashing_metadata import HashingNode
from metatable.data.file_groups.slices import is_file_id
from metatable.data.stored_fields import decode_fields, encode_fields, many, stored
from metatable.index.bucket.ring import Ring
from metatable.index.bucket.rings import rings_of
from metatable.metadata.hfiles.keys import partition_text
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError, StaleError

__all__ = ["ResizePlan", "ResizeTask", "check_resize"]


@dataclass(frozen=True, slots=True)
class ResizeTask:
    """A split (one node before, two after) or a merge (two before, in the ring's order; one
    after)."""

    partition_path: str
    seq_no: int
    """The number of the ring that it was made of."""
    before: tuple[HashingNode, ...] = stored(many(HashingNode, "node"))
    after: tuple[HashingNode, ...] = stored(many(HashingNode, "node"))
    size_bytes: int = 0
    """Bytes of the files that it rewrites: for people."""
    why: str = ""
    """The sizes that made it due, and the bound: for people, too."""
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_split(self) -> bool:
        return len(self.before) == 1


@dataclass(frozen=True, slots=True)
class ResizePlan(Plan):
    """What is to be resized; no two tasks share a node."""

    tasks: tuple[ResizeTask, ...] = stored(many(ResizeTask, "task"))
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def splits(self) -> int:
        return sum(one.is_split for one in self.tasks)

    @property
    def merges(self) -> int:
        return len(self.tasks) - self.splits

    @property
    def paths(self) -> tuple[str, ...]:
        """The table partitions whose rings change."""
        return tuple(dict.fromkeys(one.partition_path for one in self.tasks))

    @property
    def summary(self) -> str:
        size_bytes = sum(one.size_bytes for one in self.tasks)
        return (
            f"{self.splits} splits and {self.merges} merges in {len(self.paths)} partitions,"
            f" {size_bytes:,} bytes to rewrite" + (f"; {self.why}" if self.why else "")
        )

    @property
    def why(self) -> str:
        """Why the first split and the first merge are due, and how many more there are."""
        splits = [one for one in self.tasks if one.is_split]
        merges = [one for one in self.tasks if not one.is_split]
        return "; ".join(_why(tasks) for tasks in (splits, merges) if tasks and tasks[0].why)

    def by_path(self) -> dict[str, list[ResizeTask]]:
        """The tasks of each table partition, in the order of `paths`."""
        found = defaultdict[str, list[ResizeTask]](list)
        for one in self.tasks:
            found[one.partition_path].append(one)
        return found

    def encode(self) -> dict[str, Any]:
        return encode_fields(self)

    @classmethod
    def decode(cls, body: Any, path: str) -> ResizePlan:
        return decode_fields(cls, body, path, "plan")


def _why(tasks: Sequence[ResizeTask]) -> str:
    """Why tasks of one kind are due: the first, and how many more there are."""
    first, *others = tasks
    told = f"{'split' if first.is_split else 'merged'} in {partition_text(first.partition_path)}"
    told += f": {first.why}"
    return f"{told}, and {len(others):,} more" if others else told


def check_resize(plan: ResizePlan, snapshot: Snapshot, path: str) -> None:
    """Hold a plan, stored at `path`, against a version.

    Raises StaleError where it is not right on it, CorruptError where it is nonsense.
    """
    if not plan.tasks:
        raise _damaged(path, "tasks", "none")
    held = plan.by_path()
    for ring, (folder, tasks) in zip(rings_of(snapshot, [*held]), held.items(), strict=True):
        if any(one.seq_no != ring.metadata.seq_no for one in tasks):
            raise StaleError(
                "buckets were resized since it was planned, or that was undone: schedule it again",
                path=path,
                partition_path=folder,
                expected=tasks[0].seq_no,
                found=ring.metadata.seq_no,
            )
        numbers = {node: number for number, node in enumerate(ring.nodes)}
        for one in tasks:
            _check_task(one, ring, numbers, path)
        _check_apart(tasks, ring, path)


def _check_task(
    task: ResizeTask, ring: Ring, numbers: Mapping[HashingNode, int], path: str
) -> None:
    if not task.before or any(one not in numbers for one in task.before):
        raise _damaged(path, "nodes of the ring", task.before)
    first, last = numbers[task.before[0]], task.before[-1].value
    if [len(task.before), len(task.after)] == [1, 2]:
        low, high = task.after
        right = high.value == last and ring.may_split(first, low.value)
    elif [len(task.before), len(task.after)] == [2, 1]:
        right = task.after[0].value == last and ring.next_of(first) == numbers[task.before[1]]
    else:
        right = False
    if not right:
        raise _damaged(path, "a split, or a merge of neighbours", task.after)


def _check_apart(tasks: Sequence[ResizeTask], ring: Ring, path: str) -> None:
    gone = [node for one in tasks for node in one.before]
    if len(set(gone)) < len(gone):
        raise _damaged(path, "each node once", sorted(one.value for one in gone))
    ids = [*_file_ids(tasks), *(one.file_id for one in ring.nodes)]
    if len(set(ids)) < len(ids) or not all(map(is_file_id, ids)):
        raise _damaged(path, "new names of file groups", sorted(_file_ids(tasks)))


def _file_ids(tasks: Sequence[ResizeTask]) -> Iterator[str]:
    return (node.file_id for one in tasks for node in one.after)


def _damaged(path: str, expected: object, found: object) -> CorruptError:
    return CorruptError("plan is damaged", path=path, expected=expected, found=found)
