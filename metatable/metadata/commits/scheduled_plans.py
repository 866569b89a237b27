"""Plans of scheduled compactions of logs, and of resizes of buckets, as Hudi has them.

    commits/<instant>.<action>.requested    put before the version that schedules it
    .hoodie/<instant>.<action>.requested    its twin, put behind that version by a step

Which slices they are the entries of `files` say, too, each with the names of the base files that
are to come: where both copies are lost the plan is made anew from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from metatable.data.file_groups.children import WAYS, is_virtual, node_of
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile, is_log
from metatable.data.hoodie.clustering_plan import BucketsPlan, PlannedTask
from metatable.data.hoodie.slice_compaction_plan import SliceCompaction, SliceCompactionPlan
from metatable.data.hoodie.timeline import CLUSTERING, COMPACTION, filed_as, requested_path
from metatable.metadata.manifests.home import COMMITS
from metatable.metadata.manifests.manifest import Manifest, Planned
from metatable.metadata.manifests.sealed import checksum
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError, MetatableError
from metatable.storage.store import Store

__all__ = [
    "WRITE_TOKEN",
    "buckets_plan",
    "come_of",
    "logs_left",
    "made_buckets_plan",
    "made_plan",
    "plan_body",
    "plan_fault",
    "planned_groups",
    "read_plan",
    "scheduled_slices",
    "staged_plan",
    "to_come",
    "waiting_slices",
    "waits",
]

WRITE_TOKEN = "0-0-0"
"""The write token of all base files that compactions of logs make, by which whoever carries one out
finds what others have made."""

_MB = 1 << 20


def staged_plan(instant: str, action: str = COMPACTION) -> str:
    """The path where the plan lies ready."""
    return f"{COMMITS}/{instant}.{filed_as(action)}.requested"


def to_come(partition_path: str, file_id: str, instant: str) -> DataFile:
    """The base file that a compaction makes in a file group."""
    return DataFile(partition_path, file_id, WRITE_TOKEN, instant)


def made_plan(slices: Sequence[FileSlice]) -> bytes:
    """The plan that compacts these."""
    return SliceCompactionPlan(tuple(map(_told, slices)), preserves_meta_columns=True).encode()


def made_buckets_plan(snapshot: Snapshot, slices: Sequence[FileSlice]) -> bytes:
    """The plan that makes of these their children. `snapshot`: of the rings that they are in."""
    tasks: dict[tuple[DataFile, ...], list[FileSlice]] = {}
    for one in slices:
        tasks.setdefault(one.children, []).append(one)
    paths = [*dict.fromkeys(children[0].partition_path for children in tasks)]
    rings = zip(paths, snapshot.rings(paths), strict=True)
    numbers = {path: ring.seq_no if ring else 0 for path, ring in rings}
    held = {(one.partition_path, one.file_id): one.unscheduled for one in slices}
    plan = BucketsPlan(
        WAYS[is_virtual(slices[0].children[0])],
        tuple(
            PlannedTask(
                children[0].partition_path,
                numbers[children[0].partition_path],
                tuple(one.file_id for one in parents),
                tuple(map(node_of, children)),
            )
            for children, parents in tasks.items()
        ),
    )
    return plan.encode(snapshot.store.uri, held)


def buckets_plan(snapshot: Snapshot, instant: str) -> BucketsPlan:
    """The plan of a resize that waits; if it is lost, it is made anew from what is left of it."""
    plan = snapshot.manifest.compactions[instant]
    body = read_plan(snapshot.store, instant, plan.checksum, plan.action)
    if body is None:
        held = scheduled_slices(snapshot, instant)
        if not held:  # it is lost, or was taken back, and nothing waits for it any more
            return BucketsPlan(WAYS[0], ())
        body = made_buckets_plan(snapshot, held)
    return BucketsPlan.decode(body, plan.plan)


def read_plan(store: Store, instant: str, told: str = "", action: str = COMPACTION) -> bytes | None:
    """The plan, from either place; None where it is in none as its checksum tells (if one does)."""
    for path in (staged_plan(instant, action), requested_path(instant, action)):
        body = store.get(path)
        if body is not None and told in ("", checksum(body)):
            return body
    return None


def plan_fault(store: Store, instant: str, plan: Planned) -> str:
    """What is wrong with a plan that waits, on the timeline; "": nothing. One that was made anew
    has not the bytes of the one that was lost."""
    body = store.get(requested_path(instant, plan.action))
    if body is None:
        return "its plan is lost"
    if checksum(body) == plan.checksum:
        return ""
    lying = store.get(staged_plan(instant, plan.action))
    if lying is not None and checksum(lying) == plan.checksum:
        return "its plan says something else than what waits"
    decode = BucketsPlan.decode if plan.action == CLUSTERING else SliceCompactionPlan.decode
    try:
        decode(body, requested_path(instant, plan.action))
    except MetatableError as error:
        return str(error)
    return ""


def plan_body(snapshot: Snapshot, instant: str, told: str, action: str) -> bytes:
    """The plan of what waits; where both copies are lost, made anew from the entries."""
    body = read_plan(snapshot.store, instant, told, action)
    if body is not None:
        return body
    held = scheduled_slices(snapshot, instant)
    if action == CLUSTERING:
        return made_buckets_plan(snapshot, held)
    return made_plan([one.planned for one in held])


def scheduled_slices(snapshot: Snapshot, instant: str) -> list[FileSlice]:
    """The slices that wait for this one: looks at all of the version."""
    files = snapshot.slices()
    waiting = files.take(np.flatnonzero(files.is_pending))
    return [one for one in waiting if one.awaits == instant]


def waits(store: Store, instant: str) -> bool:
    """Whether the newest version has it scheduled."""
    newest = load_newest(store)
    return newest is not None and instant in newest.compactions


def planned_groups(snapshot: Snapshot, instant: str) -> list[tuple[str, str]]:
    """(partition path, file id) of the groups that were planned, those that went since included."""
    held: Manifest = snapshot.manifest
    if held.compactions[instant].action == CLUSTERING:
        tasks = buckets_plan(snapshot, instant).tasks
        return [(one.partition_path, file_id) for one in tasks for file_id in one.parents]
    body = read_plan(snapshot.store, instant, held.compactions[instant].checksum)
    if body is None:
        found = scheduled_slices(snapshot, instant)
        return [(one.partition_path, one.file_id) for one in found]
    plan = SliceCompactionPlan.decode(body, staged_plan(instant))
    return [(one.partition_path, one.file_id) for one in plan.slices]


def waiting_slices(snapshot: Snapshot, instant: str) -> list[FileSlice]:
    """The planned slices that wait still: none of those that were written anew since."""
    groups = planned_groups(snapshot, instant)
    slices = snapshot.current([path for path, _ in groups], [name for _, name in groups])
    return [one for one in slices if one and one.awaits == instant]


def come_of(snapshot: Snapshot, instant: str) -> dict[tuple[str, str], tuple[DataFile, ...]]:
    """The base files to come, by (partition path, file id) of the groups that were planned."""
    if snapshot.manifest.compactions[instant].action != CLUSTERING:
        groups = planned_groups(snapshot, instant)
        return {group: (to_come(*group, instant),) for group in groups}
    plan = buckets_plan(snapshot, instant)
    return {
        (task.partition_path, file_id): task.children(plan.way, instant)
        for task in plan.tasks
        for file_id in task.parents
    }


def logs_left(snapshot: Snapshot, instant: str, waits: Sequence[FileSlice]) -> Iterator[str]:
    """Paths of logs on what this one is to make of groups other than those of the slices that wait:
    they were written anew, or went, and older versions may have rows in such logs alone. Copies are
    none."""
    held = {(one.partition_path, one.file_id) for one in waits}
    left = {
        (file.partition_path, file.file_id)
        for group, files in come_of(snapshot, instant).items()
        for file in files
        if group not in held and not _has_copies(snapshot, instant, file)
    }
    for folder in sorted({path for path, _ in left}):
        for log in _logs_in(snapshot.store, folder):
            if log.instant == instant and (folder, log.file_id) in left:
                yield log.path


def _has_copies(snapshot: Snapshot, instant: str, come: DataFile) -> bool:
    """Whether logs on this file say nothing that logs of its parent do not."""
    return snapshot.manifest.compactions[instant].action == CLUSTERING and not is_virtual(come)


def _logs_in(store: Store, folder: str) -> Iterator[LogFile]:
    for one in store.list(folder):
        if is_log(one.path):
            with suppress(CorruptError):  # it is of no reader's
                yield LogFile.decode(one.path)


def _told(one: FileSlice) -> SliceCompaction:
    """A slice as Hudi's plan tells of it, with what compacting it reads and writes."""
    logs = sum(log.size_bytes for log in one.logs)
    read, written = (logs + one.base.size_bytes) / _MB, one.base.size_bytes / _MB
    metrics = {
        "TOTAL_LOG_FILES": float(len(one.logs)),
        "TOTAL_LOG_FILES_SIZE": float(logs),
        "TOTAL_IO_READ_MB": read,
        "TOTAL_IO_WRITE_MB": written,
        "TOTAL_IO_MB": read + written,
    }
    names = tuple(log.name for log in one.logs)
    where = one.partition_path, one.file_id, one.base.instant
    return SliceCompaction(*where, one.base.name if one.has_base else None, names, metrics)
