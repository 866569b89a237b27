"""Resize: buckets are split and merged, and ring and file groups change by one put (RFC-42).

    plan      which buckets, and where they are cut (`bucket_sizes.py`); may be stored
    children  a task each: the rows of its parents that are in its range, as they are; a child
              that gets none has no file
    publish   one `replacecommit`: parents leave, children and the rings come

No row changes: each keeps its commit, and readers of changes see none. In memory are a child's
keys, and some row groups; all rows where they are few, and of some children far away. Killed before
the put the old ring holds, and what was written goes, as of any commit. A writer that placed rows
by the old ring fails a requirement and tries again; so does a resize whose buckets were written
meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from metatable.compaction.reshaping.bucket_sizes import BucketSizes
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
from metatable.compaction.reshaping.resize_plan import ResizePlan, check_resize
from metatable.compaction.service import NothingDue, Outcome, Schedulable
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import (
    DataFile,
    FileSlice,
    marker_path,
    partition_metadata,
    partition_metadata_path,
)
from metatable.data.hoodie.commit_metadata import WriteStat, ids_by_path
from metatable.data.hoodie.operations import RESIZE
from metatable.data.hoodie.timeline import CLUSTERING
from metatable.data.keys.key_texts import KEY
from metatable.data.reading.slice_reader import stream_slice
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.bucket.ring import SPACE, Ring, hashes_of
from metatable.index.bucket.rings import rings_of
from metatable.metadata.commits.change import Change, Race
from metatable.metadata.commits.hudi_rings import with_rings
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import (
    GroupsAbsent,
    RingsAreBase,
    SchemaIsBase,
    SlicesCurrent,
)
from metatable.metadata.commits.scheduled_plans import buckets_plan
from metatable.metadata.hfiles.entry_files import Run, drop_runs, read_run, read_together
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.manifests.plans import waiting_plans
from metatable.metadata.partitions.rings import RingsPartition, ring_entries
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.view import read_columns
from metatable.metadata.written import WrittenSlice, every_stats_column
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, StaleError, UsageError
from metatable.storage.portions import together_far
from metatable.storage.store import Store

__all__ = [
    "Child",
    "Made",
    "NoResizeWaits",
    "Resize",
    "check_resizes",
    "children_of",
    "none_due",
    "planned_paths",
    "resized",
    "summary_of",
    "written_children",
]


@dataclass(frozen=True, slots=True)
class Resize(Schedulable[ResizePlan]):
    """Split and merge buckets, by their sizes unless a stored plan says which."""

    sizes: BucketSizes = field(default_factory=BucketSizes)
    name: ClassVar[str] = RESIZE
    action: ClassVar[str] = "replacecommit"

    def plan(self, snapshot: Snapshot) -> ResizePlan | NothingDue:
        """Raises UsageError where buckets are for ever, and for sizes that contradict."""
        check_resizes(snapshot)
        self.sizes.check(snapshot.options.bucket_engine)
        planned = planned_paths(snapshot)
        tasks = self.sizes.tasks(snapshot, planned)
        return ResizePlan(tuple(tasks)) if tasks else none_due(self.sizes, planned)

    def resume(self, snapshot: Snapshot, work: Mapping[str, Any], path: str) -> ResizePlan:
        """A stored plan, if it is still right."""
        check_resizes(snapshot)
        plan = ResizePlan.decode(work, path)
        check_resize(plan, snapshot, path)
        return plan

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: ResizePlan, owner: Owner
    ) -> Outcome:
        store, instant = snapshot.store, owner.instant
        rings = resized(snapshot, plan, instant)
        parents, empty = _groups(snapshot, plan)
        children = children_of(plan, rings, parents, instant)
        scratch = engine.scratch(store, owner.name)
        made = written_children(engine, snapshot, children, scratch)
        entries = _entries(snapshot, parents.values(), rings.values(), made.runs, scratch)
        replaced = ids_by_path(parents, plan.paths)
        step, files = staged_commit(snapshot, self.name, instant, made.stats, self.action, replaced)
        change = Change(
            operation=self.name,
            instant=instant,
            requires=(
                SlicesCurrent(tuple(parents.values())),
                GroupsAbsent((*empty, *((one.partition_path, one.file_id) for one in children))),
                RingsAreBase(plan.paths),
                NoResizeWaits(plan.paths),
                SchemaIsBase(),
            ),
            updates=(AddFiles(_stored(store, entries, owner)),),
            steps=with_rings(snapshot.options, step),
            summary=summary_of(plan, made.stats),
            note={"why": plan.why} if plan.why else {},
            files=files,
        )
        counts = {"files_before": len(parents), "files_after": len(made.stats)}
        return Outcome(change, {**counts, "entries": sum(one.row_count for one in made.stats)})


def check_resizes(snapshot: Snapshot) -> None:
    """Raises UsageError for a table whose buckets are not resized."""
    options = snapshot.options
    if not options.resizes:
        raise UsageError(
            "the buckets of this table are not resized",
            index=options.index,
            bucket_engine=options.bucket_engine,
            expected="index='bucket', bucket_engine='consistent_hashing' or 'extendible_hashing'",
        )


def none_due(sizes: BucketSizes, planned: Set[str]) -> NothingDue:
    """Says what was left out for plans: one that nobody carries out keeps its partitions."""
    told = "no bucket to resize"
    left = len(planned if sizes.partitions is None else planned & {*sizes.partitions})
    if left:
        what = "partition" if left == 1 else "partitions"
        told += f": plans wait for {left:,} {what}, left out here (see `due`)"
    return NothingDue(told)


def planned_paths(snapshot: Snapshot) -> set[str]:
    """Partitions of plans that can still be carried out: they do not overlap."""
    waits = snapshot.manifest.compactions.items()
    resizes = [instant for instant, one in waits if one.action == CLUSTERING]
    paths = {one.partition_path for time in resizes for one in buckets_plan(snapshot, time).tasks}
    for name, stored in waiting_plans(snapshot.store):
        if stored.service == RESIZE:
            try:
                paths.update(Resize().resume(snapshot, stored.work, name).paths)
            except (CorruptError, StaleError):  # nobody will
                continue
    return paths


@dataclass(frozen=True, slots=True)
class NoResizeWaits:
    """Nobody has scheduled a resize of these table partitions meanwhile: the ring that comes last
    must be of the latest instant, for Hudi goes by that."""

    paths: tuple[str, ...]

    def check(self, race: Race) -> None:
        waits = race.newest.compactions
        for instant in sorted(waits.keys() - race.base.compactions):
            if waits[instant].action != CLUSTERING:
                continue
            tasks = buckets_plan(race.snapshot, instant).tasks
            if not {one.partition_path for one in tasks}.isdisjoint(self.paths):
                raise race.lost("a resize of a partition was scheduled: retry", instant=instant)


# What becomes of what


_Group = tuple[str, str]
"""(partition path, file id)"""


def resized(snapshot: Snapshot, plan: ResizePlan, instant: str) -> dict[str, Ring]:
    """The new rings, by partition path."""
    held = plan.by_path()
    return {
        path: ring.resized(
            [node for one in tasks for node in one.before],
            [node for one in tasks for node in one.after],
            instant,
        )
        for ring, (path, tasks) in zip(rings_of(snapshot, [*held]), held.items(), strict=True)
    }


def _groups(
    snapshot: Snapshot, plan: ResizePlan
) -> tuple[dict[_Group, FileSlice], tuple[_Group, ...]]:
    """(slices of the nodes that go, nodes that go and have no group)."""
    groups = [(one.partition_path, node.file_id) for one in plan.tasks for node in one.before]
    slices = snapshot.current([path for path, _ in groups], [name for _, name in groups])
    pairs = [*zip(groups, slices, strict=True)]
    there = {group: one for group, one in pairs if one is not None}
    waits = [one.path for one in there.values() if one.awaits]
    if waits:
        raise UsageError(
            "buckets that would be resized wait for something scheduled: carry it out first",
            found=waits[:5],
        )
    return there, tuple(group for group, one in pairs if one is None)


@dataclass(frozen=True, slots=True)
class Child:
    """Job: a new group, with the rows of its parents (slices, JSON) whose hashes are in (after,
    upto]."""

    partition_path: str
    file_id: str
    write_token: str
    instant: str
    after: int
    upto: int
    parents: str

    @property
    def target(self) -> DataFile:
        """The base file of the new group."""
        return DataFile(self.partition_path, self.file_id, self.write_token, self.instant)

    @property
    def slices(self) -> list[FileSlice]:
        """The slices of its parents."""
        return [*map(FileSlice.decode, json.loads(self.parents))]

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that are read for it."""
        return sum(one.size_bytes for one in self.slices)


def children_of(
    plan: ResizePlan,
    rings: Mapping[str, Ring],
    parents: Mapping[_Group, FileSlice],
    instant: str,
) -> list[Child]:
    """The new groups that may get rows."""
    found: list[Child] = []
    for task in plan.tasks:
        path, ring = task.partition_path, rings[task.partition_path]
        held = [parents.get((path, node.file_id)) for node in task.before]
        slices = json.dumps([one.encode() for one in held if one is not None])
        for node in task.after if any(held) else ():
            number = int(np.searchsorted(ring.values, node.value))
            after, place = int(ring.values[number - 1]), len(found)
            token = f"{place}-0-0"
            found.append(Child(path, node.file_id, token, instant, after, node.value, slices))
    return found


# Tasks


@dataclass(frozen=True, slots=True)
class Made:
    """What the tasks of a resize have made: files, and runs of entries."""

    stats: tuple[WriteStat, ...]
    runs: tuple[Run, ...]


def written_children(
    engine: Engine[Any],
    snapshot: Snapshot,
    children: Sequence[Child],
    scratch: Store,
    is_told: bool = False,
) -> Made:
    """`is_told`: the names of the files, so that one which is there is taken for made; each is
    there, without rows, too."""
    partitions = tuple(partitions_of(snapshot.options, create_index(snapshot.options)))
    work = partial(_write_children, snapshot, partitions, scratch, is_told, len(children))
    tasks = tasks_for(engine, snapshot.store, sum(child.size_bytes for child in children))
    return Made(*sorted_out(run_jobs(engine, children, work, Receipt, tasks)))


def _write_children(
    view: Snapshot,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    is_told: bool,
    times: int,
    jobs: Iterator[Child],
    counters: Counters,
) -> Iterator[Receipt]:
    """Task: the files of children, of so many in all, and their entries."""
    view, scratch = view.holding().counting(counters), scratch.counting(counters)
    work = partial(_write_child, view, is_told=is_told)
    for written in together_far(view.store, work, jobs, lambda child: child.size_bytes):
        if written is None:
            continue
        rows = RowCounts(inserted=len(written.keys))
        yield file_receipt(WriteStat.of(written.made.base, None, rows))
        yield from entry_receipts([written], partitions, scratch, times)


def _write_child(view: Snapshot, child: Child, is_told: bool) -> WrittenSlice | None:
    """None where it gets no rows. A second attempt adopts the file of the first."""
    schema, store, target = with_meta_columns(view.schema), view.store, child.target
    parents = child.slices
    made = adopted(view, target, parents) if is_told else None
    if made is not None:
        return WrittenSlice(made.made, keys=made.keys, stats=made.stats)
    read = partial(_rows, view, child)
    rows, with_nan = rows_to_store(schema, read, child.size_bytes)
    first = [*islice(rows, 1)]
    if not first and not is_told:
        return None
    store.put(marker_path(target, target.instant, "CREATE"), b"")
    folder = child.partition_path
    store.create(partition_metadata_path(folder), partition_metadata(child.instant, folder))
    new = new_base(view, target, chain(first, rows), with_nan, sources=parents)
    return WrittenSlice(new.made, keys=new.keys, stats=new.stats)


def _rows(view: Snapshot, child: Child, schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows of the parents that are the child's, in these columns, none of them empty."""
    width = (child.upto - child.after - 1) % SPACE
    read = read_columns(view, schema)
    for parent in child.slices:
        for piece in stream_slice(view.store, parent, read):
            keys = piece[KEY].cast(pa.string()).combine_chunks()
            behind = (hashes_of(keys, view.options.key) - child.after - 1) % SPACE
            ours = piece.filter(pa.array(behind <= width))
            if ours.num_rows:
                yield ours


# Entries


def _entries(
    snapshot: Snapshot,
    parents: Iterable[FileSlice],
    rings: Iterable[Ring],
    runs: Sequence[Run],
    scratch: Store,
) -> list[tuple[MetadataPartition, pa.Table]]:
    """What each metadata partition gains and loses: of a resize it is little."""
    columns = every_stats_column(snapshot.table_schema, snapshot.options)
    gone, found = list(parents), []
    for partition in partitions_of(snapshot.options, create_index(snapshot.options)):
        ours = (read_run(scratch, run) for run in runs if run.partition == partition.name)
        batches = read_together(scratch, ours)
        parts = [pa.Table.from_batches(batches, partition.schema), partition.retired(gone, columns)]
        if partition.name == RingsPartition.name:
            parts.append(ring_entries(snapshot.options, [ring.metadata for ring in rings]))
        found.append((partition, pa.concat_tables(parts)))
    drop_runs(scratch, runs)
    return found


def _stored(
    store: Store, entries: Sequence[tuple[MetadataPartition, pa.Table]], owner: Owner
) -> dict[str, tuple[HFileRef, ...]]:
    """An HFile a metadata partition."""
    refs = {one.name: one.store(store, 0, one.space, held, owner) for one, held in entries}
    return {name: (ref,) for name, ref in refs.items() if ref is not None}


def summary_of(plan: ResizePlan, stats: Sequence[WriteStat]) -> dict[str, int]:
    """What a version tells of a resize that was carried out."""
    return {
        "splits": plan.splits,
        "merges": plan.merges,
        "partitions": len(plan.paths),
        "rows": sum(one.row_count for one in stats),
        "bytes": sum(one.size_bytes for one in stats),
    }
