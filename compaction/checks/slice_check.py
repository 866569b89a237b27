"""Slice check: the task of `verify` that reads live slices and holds them against their entries.

A job is a slice, with what a look at the version has told of its files; receipts say what is wrong,
and how many rows it has, with a hash of each: so the whole is judged where receipts come together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial

from metatable.compaction.checks.entry_check import Told, check_alone, check_together
from metatable.compaction.checks.held_slices import Held, damage_of, read_held, texts_left
from metatable.compaction.checks.surplus_entries import hashes_of_keys
from metatable.data.file_groups.slices import FileSlice
from metatable.index.protocol import Index
from metatable.metadata.hfiles.entry_files import Run, RunReceipt
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Fault
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.portions import together_far
from metatable.storage.store import Store

__all__ = ["Checked", "Live", "check_slices"]

LOOKUP_KEYS = 1 << 18
"""Keys of small files are looked up together, so many at least."""


@dataclass(frozen=True, slots=True)
class Live:
    """Job: a slice of the version, as text, and as JSON what is known of some of its files, by
    path: their sizes as `files` has them, in which way they are gone, who wrote them."""

    slice: str
    sizes: str
    gone: str
    writers: str


@dataclass(frozen=True, slots=True)
class Checked(RunReceipt):
    """Receipt: a finding, and the slice that is to be written anew because of it; the rows of a
    slice, and eight bytes of hash for each of them; or a run of entries that should be there."""

    fault: str | None = None
    where: str = ""
    detail: str = ""
    anew: str | None = None
    rows: int = 0
    hashes: bytes = b""


def check_slices(
    view: Snapshot, index: Index, scratch: Store | None, jobs: Iterator[Live], counters: Counters
) -> Iterator[Checked]:
    """Task: small slices are held against their entries together."""
    view = view.counting(counters)
    waiting: list[Held] = []
    read = partial(_read_job, view)
    for job, file, held in together_far(view.store, read, jobs, _size_of):
        if not isinstance(held, Held):
            yield from held
            yield _left(view, index, file, {one.where for one in held})
            continue
        alone = [*check_alone(view, index, held)]
        yield from (_of_slice(job, *told) for told in alone)
        hashes = hashes_of_keys(view, index, file.partition_path, held.keys, held.paths)
        yield Checked(rows=len(held.keys), hashes=hashes.tobytes())
        if any(fault is Fault.FOOTER for fault, *_ in alone):
            continue  # its entries are made anew with it
        waiting.append(held)
        if sum(len(one.keys) for one in waiting) >= LOOKUP_KEYS:
            yield from map(_receipt, check_together(view, index, waiting, scratch))
            waiting = []
    yield from map(_receipt, check_together(view, index, waiting, scratch))


def _left(view: Snapshot, index: Index, file: FileSlice, gone: Collection[str]) -> Checked:
    """The rows that are left of a slice without these files."""
    keys, paths = texts_left(view, file.left(gone))
    hashes = hashes_of_keys(view, index, file.partition_path, keys, paths)
    return Checked(rows=len(keys), hashes=hashes.tobytes())


def _read_job(view: Snapshot, job: Live) -> tuple[Live, FileSlice, Held | list[Checked]]:
    file = FileSlice.decode(job.slice)
    return job, file, _read(view, file, job)


def _size_of(job: Live) -> int:
    return FileSlice.decode(job.slice).size_bytes


def _read(view: Snapshot, file: FileSlice, job: Live) -> Held | list[Checked]:
    """A slice, or what is wrong with its files, and the rows that are left of it."""
    sizes, gone, writers = map(json.loads, (job.sizes, job.gone, job.writers))
    if not gone:
        with suppress(CorruptError, UpgradeError):
            return read_held(view, file, writers)
    told = [Checked(Fault.FILE_SIZE, path, what, job.slice) for path, what in gone.items()]
    for one in file.files:
        what = "" if one.path in gone else damage_of(view, one, writers.get(one.path, ""))
        if what and sizes.get(one.path, one.size_bytes) != one.size_bytes:
            what = f"expected {sizes[one.path]} bytes, found {one.size_bytes}"
            told.append(Checked(Fault.FILE_SIZE, one.path, what, job.slice))
        elif what:
            told.append(Checked(Fault.FILE_DAMAGED, one.path, what, job.slice))
    return told


def _of_slice(job: Live, fault: Fault, where: str, detail: str) -> Checked:
    """Where a file says of sound rows what is not so, it is written anew."""
    return Checked(fault, where, detail, job.slice if fault is Fault.FOOTER else None)


def _receipt(one: Told | Run) -> Checked:
    return Checked(**asdict(one)) if isinstance(one, Run) else Checked(*one)
