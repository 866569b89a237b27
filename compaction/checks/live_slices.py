"""Live slices: what the partition `files` must say, told without it.

Of each file group the base file of the latest commit that counts, as Hudi's own rule has it, and
the logs on top of that. That a file was written, three witnesses tell: a listing, the commits on
the timeline, and the entry in `files`. So a file that is lost is known, and an older slice of its
group does not come back in its place:

    listed                                      live, if none is later
    not listed, but a commit says it wrote it   lost, if none is later
    not listed, in `files`, commit archived     lost, if none is later
    not listed, in `files`, commit denies it    the entry is wrong

The name of a log does not tell whose it is: a commit that names it does, else the log itself. One
that is not there is denied where each commit since its base can be asked, and none knows it. Where
there is no base file, none was lost if a log is of the very commit that its name tells, or `files`
has logs alone: that commit has opened the group by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.compaction.checks.timeline_check import TimelineState
from metatable.data.file_groups.slices import (
    DataFile,
    FileSlice,
    LogFile,
    decoded,
    partition_metadata_path,
)
from metatable.data.reading.slice_reader import writer_of
from metatable.metadata.commits.scheduled_plans import come_of
from metatable.metadata.hfiles.keys import file_group_keys
from metatable.metadata.hfiles.payload import decode_files
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["Broken", "LiveSlices", "entries_of_files", "instants_of"]

Group = tuple[str, str]
"""(partition path, file id)"""
Entries = dict[bytes, FileSlice | None]
"""What `files` tells of each group, by stored key; None where that cannot be made out."""

LOST = "0-0-0"
"""Write token of a base file of which nothing is left but logs on top of it."""


@dataclass(frozen=True)
class Broken:
    """A live slice of which some files are lost, or all."""

    slice: FileSlice
    """Sizes as they should be."""
    gone: Mapping[str, str]
    """Paths of those that are lost, and in which way."""


@dataclass(frozen=True)
class LiveSlices:
    """What is live, and how the entries of `files` differ from it."""

    there: tuple[FileSlice, ...]
    """Slices of which all files are there, by partition path and name; sizes as listed."""
    lost: tuple[Broken, ...]
    told_sizes: Mapping[str, int]
    """Bytes of files by path, as `files` has them."""
    wrong: tuple[tuple[FileSlice, str], ...]
    """Slices of which the entry is missing or says something else, and what it says."""
    surplus: pa.Array
    """Keys of entries of what is no live group."""
    entry_count: int
    unmarked: tuple[str, ...]
    """Partition paths without Hudi's file by which it knows a partition."""
    foreign: Mapping[str, tuple[DataFile | LogFile, ...]]
    """Data files of commits that no version of ours knows, by instant."""

    @classmethod
    def of(cls, view: Snapshot, entries: Entries, state: TimelineState) -> LiveSlices:
        """Walks the files of the table, and reads the logs of which no commit tells."""
        found = _Found.of(view.store, entries, state)
        slices = _latest(found, state, _waiting(view))
        there = [one for one in slices if not isinstance(one, Broken)]
        keys = file_group_keys(
            pa.array([one.partition_path for one in map(_whole, slices)], pa.string()),
            pa.array([one.file_id for one in map(_whole, slices)], pa.string()),
        ).to_pylist()
        held = {_whole(one).path: entries.get(key) for one, key in zip(slices, keys, strict=True)}
        wrong = ((one, held[one.path]) for one in there)
        folders = {one.partition_path for one in there}
        unmarked = {one for one in folders if partition_metadata_path(one) not in found.marks}
        return cls(
            there=tuple(there),
            lost=tuple(one for one in slices if isinstance(one, Broken)),
            told_sizes=found.told_sizes,
            wrong=tuple((one, spelled(told)) for one, told in wrong if told != one),
            surplus=pa.array(sorted(entries.keys() - set(keys)), pa.binary()),
            entry_count=len(entries),
            unmarked=tuple(sorted(unmarked)),
            foreign=found.foreign,
        )


@dataclass(frozen=True)
class _Found:
    """What the witnesses say."""

    listed: Mapping[str, DataFile | LogFile]
    """Committed data files by path."""
    marks: frozenset[str]
    """Paths of Hudi's partition files."""
    foreign: Mapping[str, tuple[DataFile | LogFile, ...]]
    told_sizes: Mapping[str, int]
    unlisted: tuple[DataFile | LogFile, ...]
    """Files that are not there, of which a commit, or `files`, says that they are live."""
    opened: frozenset[tuple[Group, str]]
    """Groups that began as logs alone, with the instant that did it."""

    @classmethod
    def of(cls, store: Store, entries: Entries, state: TimelineState) -> _Found:
        """Ask them all: one walk, the entries of `files`, and what the commits tell."""
        files, marks = _walked(store)
        told, writers = state.rows_of(), state.writers()
        named = {file.path: file for one in entries.values() if one for file in one.files}
        strange = {time for time, _ in state.foreign}
        listed, foreign = {}, dict[str, tuple[DataFile | LogFile, ...]]()
        owned = [*_owned(store, files, writers)]
        for file, instant in owned:
            if state.counts(instant) or (not instant and file.path in named):  # a damaged log
                listed[file.path] = file
            elif instant in strange:
                foreign[instant] = (*foreign.get(instant, ()), file)
        seen = {file.path for file in files}
        unlisted = map(_decoded, sorted(told.keys() - listed.keys()))
        lost = [one for one in unlisted if one is not None]
        lost += [
            file
            for path, file in named.items()
            if path not in told.keys() | seen and not state.denies(file)
        ]
        sizes = {path: file.size_bytes for path, file in named.items()}
        owned += ((file, writers.get(file.path, "")) for file in lost)
        return cls(
            listed=listed,
            marks=frozenset(marks),
            foreign=foreign,
            told_sizes=sizes,
            unlisted=tuple(lost),
            opened=frozenset(_opened(owned, entries)),
        )


def _walked(store: Store) -> tuple[list[DataFile | LogFile], set[str]]:
    """(data files, paths of Hudi's partition files) that are there."""
    files: list[DataFile | LogFile] = []
    marks: set[str] = set()
    for one in store.walk():
        if one.name == ".hoodie_partition_metadata":
            marks.add(one.path)
        elif not one.path.startswith(".hoodie/"):
            files += filter(None, [_decoded(one.path, one.size_bytes)])
    return files, marks


def _opened(
    owned: Iterable[tuple[DataFile | LogFile, str]], entries: Entries
) -> set[tuple[Group, str]]:
    """Groups that began as logs alone, with the instant that did it: as logs tell, with the instant
    of the commit that wrote each, and as the entries do."""
    opened = {
        ((file.partition_path, file.file_id), instant)
        for file, instant in owned
        if isinstance(file, LogFile) and instant == file.instant
    }
    alone = (one for one in entries.values() if one and not one.has_base)
    return opened | {((one.partition_path, one.file_id), one.instant) for one in alone}


def _owned(
    store: Store, files: Iterable[DataFile | LogFile], writers: Mapping[str, str]
) -> Iterable[tuple[DataFile | LogFile, str]]:
    """Each with the instant of the commit that wrote it; "" of a log that does not tell."""
    files = [*files]
    unsure = [one for one in files if isinstance(one, LogFile) and one.path not in writers]
    told = in_order_far(store, partial(writer_of, store), unsure, lambda log: log.size_bytes)
    read = dict(zip(unsure, told, strict=True))
    for one in files:
        if isinstance(one, DataFile):
            yield one, one.instant
        else:
            yield one, read[one] if one in read else writers[one.path]


def _waiting(view: Snapshot) -> dict[Group, tuple[DataFile, ...]]:
    """The base files that what is scheduled will make."""
    every = view.manifest.compactions
    return {group: come for time in every for group, come in come_of(view, time).items()}


def _latest(
    found: _Found, state: TimelineState, waiting: Mapping[Group, tuple[DataFile, ...]]
) -> list[FileSlice | Broken]:
    """The live slice of each group. One that waits for its compaction has logs on the base file
    that is to come, too, unless it was written anew meanwhile."""
    told, replaced, sizes = state.rows_of(), state.replaced(), state.sizes()
    best: dict[Group, tuple[tuple[str, bool, bool, bool, str], DataFile]] = {}
    logs: dict[Group, list[LogFile]] = {}
    for file in (*found.listed.values(), *found.unlisted):
        group = file.partition_path, file.file_id
        path, is_base = file.path, isinstance(file, DataFile)
        if isinstance(file, LogFile):
            logs.setdefault(group, []).append(file)
            instant = file.instant
            token = "" if (group, instant) in found.opened else LOST  # surely it was there
            file = DataFile(*group, token, instant)
        if state.counts(file.instant):
            # of one instant the file that its commit names, else the one that `files` does
            rank = file.instant, is_base, path in told, path in found.told_sizes, file.path
            if group not in best or best[group][0] < rank:
                best[group] = rank, file
    slices = []
    for group, (_, base) in sorted(best.items()):
        if group not in replaced:
            come = [one for one in waiting.get(group, ()) if one.instant > base.instant]
            on_top = {
                log.path: log
                for one in (base, *come)
                for log in logs.get((one.partition_path, one.file_id), ())
                if log.follows(base) or log.follows(one)
            }
            slices.append(_judged(_slice_of(base, come, on_top.values()), found, sizes))
    return slices


def _slice_of(base: DataFile, come: Sequence[DataFile], logs: Iterable[LogFile]) -> FileSlice:
    """With those of the logs that are its own: on the child of a merge lie logs of two parents,
    told apart by the write tokens that they share with a parent's."""
    if come and come[0].file_id == base.file_id:
        return FileSlice(base, (), come[0]).with_logs([*logs])
    held = FileSlice(base, (), None, tuple(come)).with_logs([*logs])
    return replace(held, logs=held.unscheduled.logs) if len(come) == 1 else held


def _judged(live: FileSlice, found: _Found, sizes: Mapping[str, int]) -> FileSlice | Broken:
    """Whether all of it is there. A log does not tell where it ends: one that is not as long as its
    commit says, or else `files`, has lost some of its blocks."""
    gone: dict[str, str] = {}
    meant: list[DataFile | LogFile] = []
    for file in live.files:
        size = sizes.get(file.path, found.told_sizes.get(file.path, file.size_bytes))
        if file.path not in found.listed:
            size = found.told_sizes.get(file.path, size)
            gone[file.path] = f"expected {size} bytes, found None"
        elif isinstance(file, LogFile) and file.size_bytes != size:
            gone[file.path] = f"expected {size} bytes, found {file.size_bytes}"
        meant.append(replace(file, size_bytes=size) if file.path in gone else file)
    if not gone:
        return live
    base = next((one for one in meant if isinstance(one, DataFile)), live.base)
    on_top = tuple(one for one in meant if isinstance(one, LogFile))
    resized = FileSlice(base, (), live.pending, live.children)
    return Broken(resized.with_logs(on_top), gone)


def _whole(one: FileSlice | Broken) -> FileSlice:
    return one.slice if isinstance(one, Broken) else one


def _decoded(path: str, size_bytes: int = 0) -> DataFile | LogFile | None:
    try:
        return decoded(path, size_bytes)
    except CorruptError:
        return None


def entries_of_files(view: Snapshot) -> Entries:
    """The live entries of `files`, by key; None for one that says nothing sensible."""
    held: Entries = {}
    for batch in view.scan(FilesPartition(view.options)):
        try:
            told = decode_files(batch["value"]).to_pylist()
        except CorruptError:
            told = [_value(batch["value"].slice(row, 1)) for row in range(batch.num_rows)]
        for key, files in zip(batch["key"].to_pylist(), told, strict=True):
            held[key] = None if files is None else _slice(files)
    return held


def instants_of(store: Store, entries: Entries) -> set[str]:
    """Instants of the commits whose files the entries name."""
    files = [file for one in entries.values() if one for file in one.files]
    return {instant for _, instant in _owned(store, files, {})} - {""}


def _slice(files: Iterable[Mapping[str, Any]]) -> FileSlice | None:
    try:
        return FileSlice.of([(one["path"], one["size"]) for one in files])
    except CorruptError:
        return None


def _value(value: pa.Array) -> list[dict[str, Any]] | None:
    try:
        files: list[dict[str, Any]] | None = decode_files(value)[0].as_py()
    except CorruptError:
        return None
    return files


def spelled(told: FileSlice | None) -> str:
    """A slice, in words."""
    if told is None:
        return "nothing"
    return ", ".join(f"{one.path} of {one.size_bytes} bytes" for one in told.told)
