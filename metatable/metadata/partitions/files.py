"""Partition `files`: the current slice of every file group.

    key    file_group_keys(partition path, file id)        one entry a file GROUP
    value  MetadataRecord, filesystemMetadata: {"<partition path>/<file name>": size, …}: the base
           file, if there is one, and its logs; with the size 0 the base file that a scheduled
           compaction makes

A new slice overwrites its group's entry, so a location found as a file id leads to the
current slice by one get, and all groups of a table partition share a key prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.file_system_view import FileSystemView, slices_of
from metatable.data.file_groups.paths import which_are_logs
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.keys import file_group_keys, partition_prefix
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition
from metatable.metadata.hfiles.payload import (
    FILES_TOMBSTONE,
    decode_files,
    encode_files,
    schema_text,
)
from metatable.metadata.manifests.home import HOME
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.cache import cached, shared
from metatable.storage.errors import CorruptError

__all__ = [
    "FilesPartition",
    "current_slices",
    "files_there",
    "hold_partitions",
    "keep_listing",
    "published_since",
    "view_of_partition",
    "view_of_table",
]

SLICE_BYTES, FILE_BYTES = 600, 400
"""About what a slice takes in memory, and each of its files."""


class FilesPartition(MetadataPartition):
    """`files`: for each file group its current slice, under the hashes of its partition and id."""

    name: ClassVar[str] = "files"
    tombstone: ClassVar[bytes] = FILES_TOMBSTONE

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        return self.of_slices([one.made for one in written])

    def of_slices(self, made: Sequence[FileSlice]) -> pa.Table:
        """Entries that say that these are the current slices of their groups."""
        keys = file_group_keys(
            pa.array([one.partition_path for one in made], pa.string()),
            pa.array([one.file_id for one in made], pa.string()),
        )
        files = [file for one in made for file in one.told]
        offsets = np.cumsum([0, *(len(one.told) for one in made)], dtype=np.int32)
        sizes = np.array([one.size_bytes for one in files], dtype=np.int64)
        values = encode_files(pa.array([one.path for one in files], pa.string()), sizes, offsets)
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        paths = pa.array([one.partition_path for one in slices], pa.string())
        ids = pa.array([one.file_id for one in slices], pa.string())
        return self.tombstones_of(file_group_keys(paths, ids))

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def current_slices(
    entries: Entries, partition_paths: Sequence[str], file_ids: Sequence[str]
) -> list[FileSlice | None]:
    """The current slice of each file group, None for a group that is not there. Of a small table
    they are kept by the process: each tag asks for nearly the same ones."""
    if not entries.is_small(FilesPartition.name):
        return _slices(entries, partition_paths, file_ids)
    groups = list(zip(partition_paths, file_ids, strict=True))
    names = [("slice", entries.identity, *group) for group in groups]
    held: list[FileSlice | None] = [shared.get(name) for name in names]
    missing = [at for at, one in enumerate(held) if one is None]
    asked = [groups[at] for at in missing]
    made = _slices(entries, [path for path, _ in asked], [file_id for _, file_id in asked])
    for at, one in zip(missing, made, strict=True):
        held[at] = one and shared.offer(names[at], one, SLICE_BYTES + FILE_BYTES * len(one.told))
    return held


def _slices(
    entries: Entries, partition_paths: Sequence[str], file_ids: Sequence[str]
) -> list[FileSlice | None]:
    if not partition_paths:
        return []
    keys = file_group_keys(pa.array(partition_paths, pa.string()), pa.array(file_ids, pa.string()))
    found = entries.values(FilesPartition(entries.options), keys)
    present = iter(slices_of(_files_of(found.drop_null())))
    return [next(present) if valid else None for valid in found.is_valid().to_pylist()]


def published_since(entries: Entries, slices: Sequence[FileSlice]) -> Bools:
    """For each slice that `entries.since(version)` shows: whether its base file came after that
    version.

    A compaction lifts entries of older slices into such a view, so what is in it may be older:
    only the version itself tells. In a view of everything all slices came after.
    """
    base = entries.base()
    if base is None:
        return np.ones(len(slices), dtype=bool)
    before = current_slices(
        base, [one.partition_path for one in slices], [one.file_id for one in slices]
    )
    pairs = zip(slices, before, strict=True)
    late = (old is None or old.base.name != new.base.name for new, old in pairs)
    return np.fromiter(late, dtype=bool, count=len(slices))


def view_of_table(entries: Entries) -> FileSystemView:
    """All live slices; kept by the process for this version."""
    return _kept(_key(entries), lambda: _read(entries))


def view_of_partition(entries: Entries, partition_path: str) -> FileSystemView:
    """The live slices of one table partition."""
    if entries.is_small(FilesPartition.name):
        whole = view_of_table(entries)
        return whole.take(whole.within([partition_path]))
    return _kept(_key(entries, partition_path), lambda: _load(entries, partition_path))


def keep_listing(entries: Entries, partition_path: str | None) -> None:
    """For whoever holds what was made of these slices (None: of all): the process forgets them
    after it. Before it no room would be won, and they would be read again beside it."""
    shared.get(_key(entries, partition_path))


def hold_partitions(entries: Entries, partition_paths: Sequence[str]) -> None:
    """Fetch together, from afar, what `view_of_partition` of each of these begins with."""
    if not entries.is_small(FilesPartition.name):
        asked = [one for one in partition_paths if shared.get(_key(entries, one)) is None]
        entries.hold(FilesPartition(entries.options), [*map(partition_prefix, asked)])


def _key(entries: Entries, partition_path: str | None = None) -> Hashable:
    return "files", entries.identity, partition_path


def _kept(key: Hashable, make: Callable[[], FileSystemView]) -> FileSystemView:
    return cached(key, make, lambda _: 0, lambda view: (view,))


def _load(entries: Entries, partition_path: str) -> FileSystemView:
    view = _read(entries, partition_prefix(partition_path))
    # a prefix is 60 of the hash's 64 bits: another partition may share it
    return view.take(view.within([partition_path]))


def _read(entries: Entries, prefix: bytes = b"") -> FileSystemView:
    pieces = entries.pieces(FilesPartition(entries.options), _decoded, prefix)
    return FileSystemView.of_lists(pieces)


def _decoded(batch: pa.RecordBatch) -> pa.ListArray:
    return _files_of(batch["value"])


def _files_of(values: pa.Array) -> pa.ListArray:
    """The files of entries that are live. Raises CorruptError: tombstones are all alike, and one
    that says something else besides is none."""
    files = decode_files(values)
    if files.null_count:
        raise CorruptError(
            "file record is deleted, and no tombstone",
            path=f"{HOME}/{FilesPartition.name}",
            found=files.null_count,
        )
    return files


def files_there(entries: Entries) -> Iterator[tuple[pa.Array, Int64s]]:
    """(paths, sizes) of all data files that are there, many at a time and in no order: for whoever
    need not have them all in memory."""
    return entries.pieces(FilesPartition(entries.options), _there)


def _there(batch: pa.RecordBatch) -> tuple[pa.Array, Int64s]:
    files = _decoded(batch).flatten()
    paths, sizes = (pc.struct_field(files, name) for name in ("path", "size"))
    sizes = sizes.to_numpy()
    there = (sizes > 0) | which_are_logs(paths)  # a base file of no bytes is one to come
    return paths.filter(pa.array(there)), sizes[there]
