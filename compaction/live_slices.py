"""Live slices: what the partition `files` must say, told without it.

Of each file group the file of the latest commit that counts, as Hudi's own rule has it. That a file
was written, three witnesses tell: a listing, the commits on the timeline, and the entry in `files`.
So a file that is lost is known, and an older slice of its group does not come back in its place:

    listed                                      live, if none is later
    not listed, but a commit says it wrote it   lost, if none is later
    not listed, in `files`, commit archived     lost, if none is later
    not listed, in `files`, commit denies it    the entry is wrong
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.compaction.timeline_check import TimelineState
from metatable.data.slices import DataFile, FileSlice, partition_metadata_path
from metatable.metadata.files import FilesPartition
from metatable.metadata.keys import file_group_keys
from metatable.metadata.payload import decode_files
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.listing import Listed

__all__ = ["LiveSlices", "entries_of_files"]

Group = tuple[str, str]
Entries = dict[bytes, DataFile | None]


@dataclass(frozen=True)
class LiveSlices:
    """What is live, and how the entries of `files` differ from it."""

    there: tuple[FileSlice, ...]
    """By partition path and name; sizes as listed."""
    lost: tuple[FileSlice, ...]
    told_sizes: Mapping[str, int]
    """By path, as `files` has them."""
    wrong: tuple[tuple[FileSlice, str], ...]
    """Slices of which the entry is missing or says something else, and what it says."""
    surplus: pa.Array
    """Keys of entries of what is no live group."""
    entry_count: int
    unmarked: tuple[str, ...]
    """Partition paths without Hudi's file by which it knows a partition."""
    foreign: Mapping[str, tuple[DataFile, ...]]
    """Data files of commits that no version of ours knows, by instant."""

    @classmethod
    def of(cls, entries: Entries, state: TimelineState, walk: Iterable[Listed]) -> LiveSlices:
        """`walk`: every file of the table."""
        strange = {time for time, _ in state.foreign}
        listed, paths, foreign = _listed(walk, state, strange)
        told, replaced = state.rows_of(), state.replaced()
        named = {one.path for one in entries.values() if one is not None}
        seen = [*listed.values(), *map(_decoded, told.keys() - listed.keys())]
        for one in entries.values():
            if one is not None and one.path not in listed:
                denied = one.instant in state.bodies and one.path not in told
                seen += [] if denied else [one]
        best: dict[Group, tuple[tuple[str, bool, bool, str], DataFile]] = {}
        for file in seen:
            if file is not None and state.counts(file.instant):
                # of one instant the file that its commit names, else the one that `files` does
                rank = file.instant, file.path in told, file.path in named, file.path
                group = file.partition_path, file.file_id
                if group not in best or best[group][0] < rank:
                    best[group] = rank, file
        live = [file for group, (_, file) in sorted(best.items()) if group not in replaced]
        there = [FileSlice(file) for file in live if file.path in listed]
        lost = [FileSlice(file) for file in live if file.path not in listed]
        keys = file_group_keys(
            pa.array([one.partition_path for one in live], pa.string()),
            pa.array([one.file_id for one in live], pa.string()),
        ).to_pylist()
        held = {file.path: entries.get(key) for file, key in zip(live, keys, strict=True)}
        wrong = ((one, held[one.path]) for one in there)
        folders = {one.partition_path for one in there}
        return cls(
            tuple(there),
            tuple(lost),
            {one.path: one.size_bytes for one in entries.values() if one is not None},
            tuple((one, _spelled(told)) for one, told in wrong if told != one.base),
            pa.array(sorted(entries.keys() - set(keys)), pa.binary()),
            len(entries),
            tuple(sorted(one for one in folders if partition_metadata_path(one) not in paths)),
            foreign,
        )


def _listed(
    walk: Iterable[Listed], state: TimelineState, strange: set[str]
) -> tuple[dict[str, DataFile], set[str], dict[str, tuple[DataFile, ...]]]:
    """Committed data files by path; paths of Hudi's partition files; files of foreign commits."""
    files: dict[str, DataFile] = {}
    marks: set[str] = set()
    foreign: dict[str, tuple[DataFile, ...]] = {}
    for one in walk:
        if one.path.startswith(".hoodie/"):
            continue
        if one.name == ".hoodie_partition_metadata":
            marks.add(one.path)
            continue
        file = _decoded(one.path, one.size_bytes)
        if file is None:
            continue
        if state.counts(file.instant):
            files[file.path] = file
        elif file.instant in strange:
            foreign[file.instant] = (*foreign.get(file.instant, ()), file)
    return files, marks, foreign


def _decoded(path: str, size_bytes: int = 0) -> DataFile | None:
    try:
        return DataFile.decode(path, size_bytes)
    except CorruptError:
        return None


def entries_of_files(view: Snapshot) -> Entries:
    """The live entries of `files`, by key; None for one that says nothing sensible."""
    held: Entries = {}
    for batch in view.scan(FilesPartition(view.options)):
        try:
            paths, sizes = decode_files(batch["value"])
            told = [*zip(paths.to_pylist(), sizes.tolist(), strict=True)]
        except CorruptError:
            told = [_value(batch["value"].slice(row, 1)) for row in range(batch.num_rows)]
        for key, (path, size) in zip(batch["key"].to_pylist(), told, strict=True):
            held[key] = None if path is None else _decoded(path, size)
    return held


def _value(value: pa.Array) -> tuple[str | None, int]:
    try:
        paths, sizes = decode_files(value)
    except CorruptError:
        return None, 0
    return paths[0].as_py(), int(np.asarray(sizes)[0])


def _spelled(told: DataFile | None) -> str:
    return "nothing" if told is None else f"{told.path} of {told.size_bytes} bytes"
