"""Verify: hold a table against its data, all ways, by reading all of it.

    versions -> files  every kept version can be read: its root, pages and HFiles are what they were
    timeline -> us     every completed commit is ours, every one of ours is completed, and says what
                       it said; nothing is under way that nobody does
    data -> index      every live file is there and can be read; `files` names it with its size; its
                       statistics cover it, its filter passes all of its keys, the record index
                       finds each key in its group; its footer and page indexes tell what is so,
                       and pass its keys, where the index asks footers; an index that places rows
                       would place them there
    index -> data      no entry is left of what is gone; no key lives twice in its scope

Findings are data: an empty list means that the index equals the data at this version. Damage is
found and passed: what can still be read is checked on. `examine` is the same for `repair`, which
is also handed what each finding needs to be mended.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.compaction.compact import Compact
from metatable.compaction.findings import Findings
from metatable.compaction.held_slices import NO_KEYS
from metatable.compaction.hudi_rings import RingFile, hudi_ring_faults
from metatable.compaction.kept_versions import IndexFiles, Remains, Versions, dropping_up_to
from metatable.compaction.live_slices import (
    Broken,
    LiveSlices,
    entries_of_files,
    instants_of,
    spelled,
)
from metatable.compaction.resize import Resize
from metatable.compaction.ring_check import ring_faults
from metatable.compaction.service import Schedulable
from metatable.compaction.slice_check import Checked, Live, check_slices
from metatable.compaction.surplus_entries import surplus_keys
from metatable.compaction.timeline_check import Action, TimelineState
from metatable.data.options import Options
from metatable.data.properties import PROPERTIES_PATH, TableProperties
from metatable.data.slices import DataFile, FileSlice, LogFile, decoded, partition_metadata_path
from metatable.data.timeline import REPLACING, completed_path, requested_path
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.bloom_filter import BloomFilterPartition
from metatable.metadata.column_stats import rows_in
from metatable.metadata.entry_files import Run, write_run
from metatable.metadata.files import FilesPartition
from metatable.metadata.manifest import gone_since, version_path
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.plans import PLANS, load_plan
from metatable.metadata.record_index import RecordIndexPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.written import WrittenSlice
from metatable.results import Fault, ServiceResult
from metatable.storage.errors import (
    CorruptError,
    MetatableError,
    NotFoundError,
    StaleError,
)
from metatable.storage.store import Store

__all__ = [
    "Examined",
    "Lost",
    "add_missing",
    "examine",
    "look_at_opening",
    "properties_fault",
    "told",
    "undoable",
    "verify",
]

_log = logging.getLogger("metatable.compaction")

TASK_BYTES = 4 << 20
"""Fewer bytes of data files are not worth a task of their own."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A live slice that is to be written anew: files of it (`gone`, paths) are lost or damaged, or
    none, and one says of its rows what is not so. `rows`: of those, -1 where nobody knows."""

    file: FileSlice
    gone: frozenset[str]
    rows: int

    @property
    def left(self) -> tuple[DataFile | LogFile, ...]:
        """Its files that can be read, without copies."""
        return tuple(one for one in self.file.merged if one.path not in self.gone)


@dataclass
class Examined:
    """What a look at a version came to."""

    snapshot: Snapshot
    state: TimelineState
    versions: Versions
    index_files: IndexFiles
    live: LiveSlices
    findings: Findings
    lost: list[Lost] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Entries that set right what is wrong in the version without its damaged index files."""
    rings: list[RingFile] = field(default_factory=list)
    """Of Hudi's own place, those that are wrong."""
    plans: list[str] = field(default_factory=list)
    """Paths of stored plans that nobody can carry out."""
    floor: int = 0
    """The first version of which everything is there, if an older one is kept that lacks some."""
    files: int = 0
    rows: int = 0


def verify(engine: Engine[Any], snapshot: Snapshot) -> ServiceResult:
    """Compare everything; memory: eight bytes a row and a column of a file, some hundred bytes a
    file, and for each worker the keys of a file, or of some small ones."""
    began = time.perf_counter()
    found = examine(engine, snapshot)
    return told(engine, "verify", snapshot.version, found, began)


def told(
    engine: Engine[Any],
    service: str,
    version: int,
    found: Examined,
    began: float,
    done: str = "",
    **facts: Any,
) -> ServiceResult:
    """`found` as a result."""
    reason = f"{found.files} files, {found.rows} rows"
    reason += ": index equals data" if not len(found.findings) else done
    return ServiceResult(
        service=service,
        version=version,
        entries=found.rows,
        bytes_read=engine.counters["store.bytes_read"],
        bytes_written=engine.counters["store.bytes_written"],
        seconds=time.perf_counter() - began,
        reason=reason,
        findings=found.findings.told,
        finding_counts=found.findings.counts,
        rows_lost=found.findings.rows_lost,
        counters=dict(engine.counters),
        **facts,
    )


def examine(
    engine: Engine[Any],
    snapshot: Snapshot,
    scratch: Store | None = None,
) -> Examined:
    """Look at all of a version. `scratch`: where the entries are kept that would mend it.

    Raises CorruptError where files went meanwhile, as their version was undone or cleaned.
    """
    store = snapshot.store
    versions = Versions.of(store, snapshot.manifest)
    index_files = IndexFiles.of(store, versions)
    view = Remains.of(snapshot, index_files.forgetting)
    entries = entries_of_files(view)
    named = partial(instants_of, store, entries)
    state = TimelineState.of(store, snapshot.manifest, versions, named)
    live = LiveSlices.of(view, entries, state)
    found = Examined(snapshot, state, versions, index_files, live, Findings())
    look_at_opening(store, snapshot, state, live, found.findings)
    _look_at_timeline(found)
    _look_at_versions(found)
    _look_at_plans(view, found)
    _look_at_slices(engine, view, found, scratch)
    if len(found.findings) and gone_since(store, snapshot.version):
        raise CorruptError("files went while they were verified", path=store.uri)
    return found


# What lies beside the data


def look_at_opening(
    store: Store,
    snapshot: Snapshot,
    state: TimelineState,
    live: LiveSlices | None,
    findings: Findings,
) -> None:
    """What keeps writers from beginning, or is mended when one does. `live`: where there are
    foreign commits."""
    wrong = properties_fault(store, snapshot.options)
    if wrong:
        findings.add(Fault.PROPERTIES, PROPERTIES_PATH, wrong, "written anew")
    for one in state.ours:
        what = "no version of ours has published it, and it is ours: its version is lost"
        remedy = "published again, with all of its rows"
        findings.add(Fault.FOREIGN_COMMIT, completed_path(*one), what, remedy)
    for one in state.foreign:
        what, remedy = "no version of ours has published it", ""
        if live is not None and undoable(live, one):
            remedy = "undone, as Hudi's rollback does, with its files"
        findings.add(Fault.FOREIGN_COMMIT, completed_path(*one), what, remedy)
    for one in state.late:
        what = "it was undone, and is on the timeline"
        findings.add(Fault.LATE_COMMIT, completed_path(*one), what, "taken off the timeline")


def properties_fault(store: Store, options: Options) -> str:
    """What is wrong with `hoodie.properties`; "": nothing."""
    raw = store.get(PROPERTIES_PATH)
    if raw is None:
        return "it is lost"
    try:
        TableProperties.decode(raw).check(options)
    except CorruptError as error:
        return str(error)
    return ""


def _look_at_timeline(found: Examined) -> None:
    state, add = found.state, found.findings.add
    for one in state.missing:
        add_missing(found.findings, one)
    for one, wrong in state.damaged.items():
        add(Fault.COMMIT_DAMAGED, completed_path(*one), wrong, "written anew")
    for one in state.untraced:
        what = "its commit is completed, but has no .requested or no .inflight"
        add(Fault.TRACES_MISSING, requested_path(*one), what, "written anew")
    for one in state.stray:
        what = "under way, and nobody is: no lease, no version, and it has not moved for long"
        add(Fault.STRAY_INSTANT, requested_path(*one), what, "withdrawn, with its files")
    for name in state.savepoints:
        path = completed_path(found.versions.newest.pins[name].instant, "savepoint")
        what = f"savepoint {name} is not on the timeline"
        add(Fault.SAVEPOINT, path, what, "put on the timeline")


def add_missing(findings: Findings, one: Action) -> None:
    what = "published, and not on the timeline"
    findings.add(Fault.COMMIT_MISSING, completed_path(*one), what, "put on the timeline")


def undoable(live: LiveSlices, one: Action) -> bool:
    """Whether a commit that no version knows can be undone: nothing is lost with it but what it
    wrote, for each group that it has written again has its slice from before."""
    instant, action = one
    lost = {(each.slice.partition_path, each.slice.file_id) for each in live.lost}
    groups = {(each.partition_path, each.file_id) for each in live.foreign.get(instant, ())}
    return action not in REPLACING and not groups & lost


def _look_at_versions(found: Examined) -> None:
    add, versions, index_files = found.findings.add, found.versions, found.index_files
    newest, pinned = versions.newest.version, versions.pinned
    bad: set[int] = set()
    for path, twin in versions.copies.items():
        add(Fault.VERSION, path, "the root is lost or damaged", f"copied from {twin}")
    for version, why in versions.lost.items():
        if version in pinned:
            what = f"{why}: drop savepoint {pinned[version]}"
            add(Fault.VERSION, version_path(version), what)
        else:
            bad.add(version)
            add(Fault.VERSION, version_path(version), why, dropping_up_to(version))
    for fault, files in ((Fault.PAGE, index_files.pages), (Fault.HFILE, index_files.hfiles)):
        for path, why in files.items():
            if path in index_files.lasting:
                add(fault, path, f"{why}: restore it, nothing says where keys are without it")
                continue
            named = index_files.versions.get(path, ())
            free = [one for one in named if one not in pinned and one <= newest]
            bad.update(free)
            remedy = "its entries made anew" if newest in named else ""
            if older := [one for one in free if one < newest]:
                remedy = "; ".join(filter(None, (remedy, dropping_up_to(max(older)))))
            add(fault, path, why, remedy)
            for one in sorted(pinned.keys() & set(named) - {newest}):
                what = f"it names {path}: drop savepoint {pinned[one]}"
                add(Fault.VERSION, version_path(one), what)
    found.floor = max(bad, default=-1) + 1


def _look_at_plans(view: Snapshot, found: Examined) -> None:
    """Only a plan of a service that we know can be judged."""
    store = view.store
    services: dict[str, Schedulable[Any]] = {one.name: one for one in (Compact(), Resize())}
    carried_out = {one.staged for one in view.manifest.steps}
    for listed in store.list(PLANS):
        if listed.path in carried_out:
            continue
        try:
            path, plan = load_plan(store, listed.name.removesuffix(".json"))
            if plan.service in services:
                services[plan.service].resume(view, plan.work, path)
        except NotFoundError:  # carried out since it was listed
            continue
        except (CorruptError, StaleError) as error:
            if store.size(listed.path) is not None:
                found.plans.append(listed.path)
                found.findings.add(Fault.PLAN, listed.path, str(error), "deleted")
        except MetatableError:  # not the name of a plan
            continue


# Slices and entries


_MENDED = {
    Fault.COLUMN_STATS: "written anew",
    Fault.BLOOM_FILTER: "written anew",
    Fault.RECORD_INDEX: "written anew",
    Fault.ENTRIES: "written anew",
}
"""Findings about a slice that entries mend."""


def _look_at_slices(
    engine: Engine[Any], view: Snapshot, found: Examined, scratch: Store | None
) -> None:
    live, add = found.live, found.findings.add
    index = create_index(view.options)
    jobs = _jobs(found)
    _log.info("verify version %d: reading %d files", view.version, len(jobs))
    work = partial(check_slices, view, index, scratch)
    tasks = 1 + sum(FileSlice.decode(one.slice).size_bytes for one in jobs) // TASK_BYTES
    checked = run_jobs(engine, jobs, work, Checked, min(tasks, engine.slots * 4))
    _log.info("verify: %d files read, looking at the index", len(jobs))
    anew = {one.anew for one in checked if one.anew is not None}
    there = [one for one in live.there if one.encode() not in anew]
    _look_at_lost(view, found, checked)
    files = [file for one in there for file in one.files]
    files += [file for one in found.lost for file in one.left]
    found.files, found.rows = len(files), sum(one.rows for one in checked)
    for one in checked:
        if one.fault is not None and one.anew is None:
            add(Fault(one.fault), one.where, one.detail, _MENDED.get(Fault(one.fault), ""))
        if one.partition is not None:
            run = one.partition, one.entry_count, one.entry_bytes, one.path, one.body
            found.runs.append(Run(*run))
    hashes = np.sort(np.frombuffer(b"".join(one.hashes for one in checked), np.uint64))
    again = int((hashes[1:] == hashes[:-1]).sum())
    if again:
        add(Fault.DUPLICATE_KEYS, "table", f"{again} keys live in more than one place")
    _look_at_groups(view, found, {one.path for one in there}, scratch)
    for where, what in ring_faults(view, live.there) if view.options.resizes else ():
        add(Fault.HASHING_METADATA, where, what)
    if view.options.hudi_hashing_metadata:
        found.rings = [*hudi_ring_faults(view, live.there)]
    for ring in found.rings:
        remedy = "deleted" if ring.body is None else "written anew"
        add(Fault.HASHING_METADATA, ring.path, ring.what, remedy)
    for partition in partitions_of(view.options, index):
        _look_for_surplus(view, partition, found, files, hashes, scratch)
    for folder in live.unmarked:
        what = "Hudi on Spark finds no rows of this partition without it"
        add(Fault.PARTITION_METADATA, partition_metadata_path(folder), what, "written anew")


def _jobs(found: Examined) -> list[Live]:
    """The live slices, whole ones first."""
    live, writers = found.live, found.state.writers()
    jobs = []
    for one in (*(Broken(one, {}) for one in live.there), *live.lost):
        paths = [file.path for file in one.slice.files]
        facts: Sequence[Mapping[str, Any]] = live.told_sizes, one.gone, writers
        told = ({path: held[path] for path in paths if path in held} for held in facts)
        jobs.append(Live(one.slice.encode(), *map(json.dumps, told)))
    return jobs


def _look_at_lost(view: Snapshot, found: Examined, checked: Sequence[Checked]) -> None:
    """Slices that are to be written anew, and files of which the rows are gone."""
    wrong: dict[str, list[Checked]] = {}
    for one in checked:
        if one.anew is not None and one.fault == Fault.FOOTER:
            remedy = "its group is written anew, with all of its rows"
            found.findings.add(Fault.FOOTER, one.where, one.detail, remedy)
            found.lost.append(Lost(FileSlice.decode(one.anew), frozenset(), 0))
        elif one.anew is not None:
            wrong.setdefault(one.anew, []).append(one)
    said = found.state.rows_of()
    for text, told in sorted(wrong.items()):
        file, files = FileSlice.decode(text), [decoded(one.where) for one in told]
        copies = {one.path for one in file.copies}  # their rows are in other logs, too
        counts = [
            0 if one.path in copies else said.get(one.path, -1) if count < 0 else count
            for one, count in zip(files, _row_counts(view, files), strict=True)
        ]
        gone = frozenset(one.path for one in files)
        found.lost.append(Lost(file, gone, -1 if -1 in counts else sum(counts)))
        rest = "emptied" if len(gone) == len(file.files) else "written anew from what is left"
        for one, rows in zip(told, counts, strict=True):
            remedy = f"its {rows if rows >= 0 else 'unknown number of'} rows are gone, group {rest}"
            found.findings.add(Fault(one.fault or ""), one.where, one.detail, remedy, rows)


def _row_counts(view: Snapshot, files: Sequence[DataFile | LogFile]) -> list[int]:
    """Rows by the statistics that are left of a file; -1 where none are."""
    try:
        return rows_in(view, files)
    except CorruptError:
        return [-1] * len(files)


def _look_at_groups(
    view: Snapshot, found: Examined, there: set[str], scratch: Store | None
) -> None:
    """The entries of `files`."""
    partition, live = FilesPartition(view.options), found.live
    wrong = [(file, says) for file, says in live.wrong if file.path in there]
    for file, says in wrong:
        meant = f"{file.size_bytes} bytes" if not file.logs else spelled(file)
        what = f"expected {meant}, found {says}"
        found.findings.add(Fault.FILES, file.path, what, "written anew")
    expected = len(live.there) + len(live.lost)
    if len(live.surplus) or live.entry_count != expected:
        what = f"expected {expected} live entries, found {live.entry_count}"
        found.findings.add(Fault.ENTRY_COUNT, partition.name, what, _SET_RIGHT)
    if scratch is not None and wrong:
        made = [WrittenSlice(file, None, NO_KEYS, NO_KEYS, NO_KEYS, ()) for file, _ in wrong]
        found.runs.append(write_run(scratch, partition.name, partition.entries(made)))
    if scratch is not None and len(live.surplus):
        found.runs.append(_burial(scratch, partition, live.surplus))


_SET_RIGHT = "what is left of what is gone is deleted"


def _look_for_surplus(
    view: Snapshot,
    partition: MetadataPartition,
    found: Examined,
    files: Sequence[DataFile | LogFile],
    hashes: npt.NDArray[np.uint64],
    scratch: Store | None,
) -> None:
    """Entries of what is gone."""
    count = surplus = 0
    looked = False
    for seen, keys in surplus_keys(view, partition, files, hashes):
        looked, count, surplus = True, count + seen, surplus + len(keys)
        if scratch is not None and len(keys):
            found.runs.append(_burial(scratch, partition, keys))
    expected = None
    if partition.name == BloomFilterPartition.name:
        expected = sum(isinstance(one, DataFile) for one in files)
    if isinstance(partition, RecordIndexPartition):
        expected = len(hashes)
    if expected is not None and (surplus or count != expected):
        what = f"expected {expected} live entries, found {count}"
        found.findings.add(Fault.ENTRY_COUNT, partition.name, what, _SET_RIGHT)
    elif surplus and looked:
        what = f"{surplus} live entries are of no live file"
        found.findings.add(Fault.ENTRY_COUNT, partition.name, what, _SET_RIGHT)


def _burial(scratch: Store, partition: MetadataPartition, keys: pa.Array) -> Run:
    """Tombstones of these stored keys."""
    gone = pa.nulls(len(keys), partition.schema.field("value").type)
    places = pa.array(partition.places(keys))
    return write_run(scratch, partition.name, pa.table([places, keys, gone], partition.schema))
