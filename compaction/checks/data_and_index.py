"""Data and index: every live slice read and held against its entries, and entries of what is gone.

Tasks read the slices (`slice_check.py`); here their receipts come together. Damage is found and
passed: what can still be read is checked on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.compaction.checks.examined import Anew, Examined
from metatable.compaction.checks.hudi_ring_check import hudi_ring_faults
from metatable.compaction.checks.live_slices import Broken, spelled
from metatable.compaction.checks.ring_check import ring_faults
from metatable.compaction.checks.slice_check import Checked, Live, check_slices
from metatable.compaction.checks.surplus_entries import surplus_keys
from metatable.data.file_groups.slices import (
    DataFile,
    FileSlice,
    LogFile,
    decoded,
    partition_metadata_path,
)
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import rows_in
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.written import WrittenSlice
from metatable.results import Fault
from metatable.storage.arrays import UInt64s
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["look_at_slices"]

_log = logging.getLogger("metatable.compaction")

TASK_BYTES = 4 << 20
"""Fewer bytes of data files are not worth a task of their own."""

_MENDED = {
    Fault.COLUMN_STATS: "written anew",
    Fault.BLOOM_FILTER: "written anew",
    Fault.RECORD_INDEX: "written anew",
    Fault.ENTRIES: "written anew",
}
"""Findings about a slice that entries mend."""

_SET_RIGHT = "what is left of what is gone is deleted"
"""What is done about entries of what is gone."""


def look_at_slices(
    engine: Engine[Any], view: Snapshot, found: Examined, scratch: Store | None
) -> None:
    """Look at all slices of a version, and at its whole index. What is wrong goes to `found`; the
    entries that set it right go to `scratch`, where there is one."""
    live, add = found.live, found.findings.add
    index = create_index(view.options)
    _look_at_rings(view, found)  # first: looked up together here, slices find them in memory
    jobs = _jobs(found)
    _log.info("verify version %d: reading %d files", view.version, len(jobs))
    work = partial(check_slices, view, index, scratch)
    tasks = 1 + sum(FileSlice.decode(one.slice).size_bytes for one in jobs) // TASK_BYTES
    checked, hashes = _parted(run_jobs(engine, jobs, work, Checked, min(tasks, engine.slots * 4)))
    _log.info("verify: %d files read, looking at the index", len(jobs))
    wrong = {one.anew for one in checked if one.anew is not None}
    there = [one for one in live.there if one.encode() not in wrong]
    _look_at_footers(found, checked)
    _look_at_lost(view, found, checked)
    files = [file for one in there for file in one.files]
    files += [file for one in found.anew for file in one.left]
    found.files, found.rows = len(files), sum(one.rows for one in checked)
    _take_receipts(found, checked)
    again = int(np.count_nonzero(hashes[1:] == hashes[:-1]))
    if again:
        add(Fault.DUPLICATE_KEYS, "table", f"{again} keys live in more than one place")
    _look_at_groups(view, found, {one.path for one in there}, scratch)
    for partition in partitions_of(view.options, index):
        _look_for_surplus(view, partition, found, files, hashes, scratch)
    for folder in live.unmarked:
        what = "Hudi on Spark finds no rows of this partition without it"
        add(Fault.PARTITION_METADATA, partition_metadata_path(folder), what, "written anew")


def _parted(told: list[Checked]) -> tuple[list[Checked], UInt64s]:
    """The receipts, and the hashes that came with them, ascending: the one thing that there is for
    each row of the table, so each receipt's go as they are taken over. Empties the list."""
    hashes = np.empty(sum(len(one.hashes) for one in told) // 8, np.uint64)
    checked: list[Checked] = []
    end = len(hashes)
    while told:
        one = told.pop()
        begin = end - len(one.hashes) // 8
        hashes[begin:end] = np.frombuffer(one.hashes, np.uint64)
        checked.append(replace(one, hashes=b"") if one.hashes else one)
        end = begin
    hashes.sort()
    return checked[::-1], hashes


def _jobs(found: Examined) -> list[Live]:
    """A job for each live slice: first those of which all files are there."""
    live, writers = found.live, found.state.writers()
    jobs = []
    for one in (*(Broken(one, {}) for one in live.there), *live.lost):
        paths = [file.path for file in one.slice.files]
        facts: Sequence[Mapping[str, Any]] = live.told_sizes, one.gone, writers
        told = ({path: held[path] for path in paths if path in held} for held in facts)
        jobs.append(Live(one.slice.encode(), *map(json.dumps, told)))
    return jobs


def _take_receipts(found: Examined, checked: Sequence[Checked]) -> None:
    """The faults that entries mend, or nothing does, and the entries that mend them."""
    for one in checked:
        if one.fault is not None and one.anew is None:
            fault = Fault(one.fault)
            found.findings.add(fault, one.where, one.detail, _MENDED.get(fault, ""))
        if one.run is not None:
            found.runs.append(one.run)


def _look_at_footers(found: Examined, checked: Sequence[Checked]) -> None:
    """Slices that have all of their rows, but a file with a footer that says what is not so."""
    for one in checked:
        if one.anew is not None and one.fault == Fault.FOOTER:
            remedy = "its group is written anew, with all of its rows"
            found.findings.add(Fault.FOOTER, one.where, one.detail, remedy)
            found.anew.append(Anew(FileSlice.decode(one.anew), frozenset(), 0))


def _look_at_lost(view: Snapshot, found: Examined, checked: Sequence[Checked]) -> None:
    """Slices with files of which the rows are gone."""
    wrong: dict[str, list[Checked]] = {}
    for one in checked:
        if one.anew is not None and one.fault != Fault.FOOTER:
            wrong.setdefault(one.anew, []).append(one)
    said = found.state.rows_of()
    for text, told in sorted(wrong.items()):
        file, files = FileSlice.decode(text), [decoded(one.where) for one in told]
        gone = frozenset(one.path for one in files)
        spared = _spared(file, gone)
        counts = [
            0 if one.path in spared else said.get(one.path, -1) if count < 0 else count
            for one, count in zip(files, _row_counts(view, files), strict=True)
        ]
        found.anew.append(Anew(file, gone, -1 if -1 in counts else sum(counts)))
        rest = "emptied" if len(gone) == len(file.files) else "written anew from what is left"
        for one, rows in zip(told, counts, strict=True):
            remedy = f"its {rows if rows >= 0 else 'unknown number of'} rows are gone, group {rest}"
            found.findings.add(Fault(one.fault or ""), one.where, one.detail, remedy, rows)


def _spared(file: FileSlice, gone: Collection[str]) -> set[str]:
    """Paths of files whose rows are in other files that are left, too: copies, or what they are
    copies of."""
    copies = {one.path for one in file.copies}
    if copies.isdisjoint(one.path for one in file.left(gone)):
        return copies
    return {one.path for one in file.files} - {one.path for one in file.planned.files}


def _row_counts(view: Snapshot, files: Sequence[DataFile | LogFile]) -> list[int]:
    """Rows by the statistics that are left of a file; -1 where none are."""
    try:
        return rows_in(view, files)
    except CorruptError:
        return [-1] * len(files)


def _look_at_groups(
    view: Snapshot, found: Examined, there: set[str], scratch: Store | None
) -> None:
    """Hold the entries of the partition `files` against the slices that are there (`there`: their
    paths)."""
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
        made = [WrittenSlice(file) for file, _ in wrong]
        found.runs.append(write_run(scratch, partition.name, partition.entries(made)))
    if scratch is not None and len(live.surplus):
        found.runs.append(_burial(scratch, partition, live.surplus))


def _look_at_rings(view: Snapshot, found: Examined) -> None:
    """Hold the rings, and those in Hudi's own place, against the file groups that are there."""
    there, add = found.live.there, found.findings.add
    for where, what in ring_faults(view, there) if view.options.resizes else ():
        add(Fault.HASHING_METADATA, where, what)
    if view.options.hudi_hashing_metadata:
        found.rings = [*hudi_ring_faults(view, there)]
    for ring in found.rings:
        remedy = "deleted" if ring.body is None else "written anew"
        add(Fault.HASHING_METADATA, ring.path, ring.what, remedy)


def _look_for_surplus(
    view: Snapshot,
    partition: MetadataPartition,
    found: Examined,
    files: Sequence[DataFile | LogFile],
    hashes: UInt64s,
    scratch: Store | None,
) -> None:
    """Look for live entries of this partition that are of no live file, nor of one of its keys."""
    count = surplus = 0
    for seen, keys in surplus_keys(view, partition, files, hashes):
        count, surplus = count + seen, surplus + len(keys)
        if scratch is not None and len(keys):
            found.runs.append(_burial(scratch, partition, keys))
    expected = _expected_count(partition, files, hashes)
    if expected is not None and (surplus or count != expected):
        what = f"expected {expected} live entries, found {count}"
        found.findings.add(Fault.ENTRY_COUNT, partition.name, what, _SET_RIGHT)
    elif surplus:
        what = f"{surplus} live entries are of no live file"
        found.findings.add(Fault.ENTRY_COUNT, partition.name, what, _SET_RIGHT)


def _expected_count(
    partition: MetadataPartition, files: Sequence[DataFile | LogFile], hashes: UInt64s
) -> int | None:
    """How many live entries a partition must have; None where files and rows do not tell it."""
    if partition.name == BloomFilterPartition.name:
        return sum(isinstance(one, DataFile) for one in files)
    return len(hashes) if isinstance(partition, RecordIndexPartition) else None


def _burial(scratch: Store, partition: MetadataPartition, keys: pa.Array) -> Run:
    """A run of tombstones for these stored keys."""
    gone = pa.nulls(len(keys), partition.schema.field("value").type)
    places = pa.array(partition.places(keys))
    return write_run(scratch, partition.name, pa.table([places, keys, gone], partition.schema))
