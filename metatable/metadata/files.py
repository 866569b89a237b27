"""Partition `files`: the current slice of every file group.

    key    file_group_keys(partition path, file id)        one entry a file GROUP
    value  MetadataRecord, filesystemMetadata: {"<partition path>/<file name>": size}

A new slice overwrites its group's entry, so a location found as a file id leads to the
current slice by one get, and all groups of a table partition share a key prefix.

Many files are held in columns (`FileSystemView`), and become objects one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.slices import DataFile
from metatable.metadata.keys import file_group_keys, partition_prefix
from metatable.metadata.partition import ENTRIES, MetadataPartition, WrittenFile
from metatable.metadata.payload import (
    FILES_TOMBSTONE,
    decode_files,
    encode_files,
    schema_text,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage.cache import cached

__all__ = [
    "FileSystemView",
    "FilesPartition",
    "current_slices",
    "published_since",
    "slices_of_table",
    "view_of_partition",
    "view_of_table",
]


class FilesPartition(MetadataPartition):
    name: ClassVar[str] = "files"
    tombstone: ClassVar[bytes] = FILES_TOMBSTONE

    def entries(self, written: WrittenFile) -> pa.Table:
        made = written.data_file
        keys = file_group_keys(pa.array([made.partition_path]), pa.array([made.file_id]))
        values = encode_files(pa.array([made.path]), np.array([made.size_bytes], dtype=np.int64))
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def current_slices(
    snapshot: Snapshot, partition_paths: Sequence[str], file_ids: Sequence[str]
) -> list[DataFile | None]:
    """The current slice of each file group, None for a group that is not there."""
    if not partition_paths:
        return []
    keys = file_group_keys(pa.array(partition_paths, pa.string()), pa.array(file_ids, pa.string()))
    found = snapshot.lookup(FilesPartition(snapshot.options), keys)
    present = iter(_data_files(found.values.drop_null()))
    return [next(present) if valid else None for valid in found.values.is_valid().to_pylist()]


def published_since(view: Snapshot, files: Sequence[DataFile]) -> npt.NDArray[np.bool_]:
    """For each slice that `view.since(version)` shows: whether it came after that version.

    A compaction lifts entries of older slices into such a view, so what is in it may be older:
    only the version itself tells. In a view of everything all slices came after.
    """
    base = view.base()
    if base is None:
        return np.ones(len(files), dtype=bool)
    before = current_slices(
        base, [one.partition_path for one in files], [one.file_id for one in files]
    )
    pairs = zip(files, before, strict=True)
    late = (old is None or old.name != new.name for new, old in pairs)
    return np.fromiter(late, dtype=bool, count=len(files))


def slices_of_table(snapshot: Snapshot) -> list[DataFile]:
    """All live slices, by partition path and file name."""
    return list(view_of_table(snapshot))


@dataclass(frozen=True, slots=True, eq=False)
class FileSystemView(Sequence[DataFile]):
    """Live slices in columns, by partition path and file name; its row is a file's ordinal.

    `paths` (strings), `sizes` (int64), and `folders`, the distinct partition paths in byte
    order, with the place there of each file's (int32).
    """

    paths: pa.Array
    sizes: npt.NDArray[np.int64]
    folders: pa.Array
    folder_of: npt.NDArray[np.int32]

    @classmethod
    def of(cls, paths: pa.Array, sizes: npt.NDArray[np.int64]) -> FileSystemView:
        folders, names = _split(paths)
        order = pc.sort_indices(
            pa.table({"folder": folders, "name": names}),
            sort_keys=[("folder", "ascending"), ("name", "ascending")],
        )
        encoded = folders.take(order).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int32)
        return cls(paths.take(order), sizes[order.to_numpy()], encoded.dictionary, codes)

    def names(self) -> pa.Array:
        """The bare file names (strings)."""
        return _split(self.paths)[1]

    def take(self, rows: npt.NDArray[np.int64]) -> FileSystemView:
        """Some of the files, in the same order (`rows` ascending); all folders stay."""
        taken = self.paths.take(pa.array(rows))
        return FileSystemView(taken, self.sizes[rows], self.folders, self.folder_of[rows])

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> DataFile: ...
    @overload
    def __getitem__(self, place: slice) -> list[DataFile]: ...
    def __getitem__(self, place: int | slice) -> DataFile | list[DataFile]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return DataFile.decode(self.paths[int(place)].as_py(), int(self.sizes[place]))

    def __iter__(self) -> Iterator[DataFile]:
        pairs = zip(self.paths.to_pylist(), self.sizes.tolist(), strict=True)
        return (DataFile.decode(path, size) for path, size in pairs)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return int(self.paths.nbytes + self.sizes.nbytes + self.folder_of.nbytes) + 500


def view_of_table(snapshot: Snapshot) -> FileSystemView:
    """All live slices; kept by the process for this version."""
    return cached(("files", snapshot.identity), lambda: _load_all(snapshot), _nbytes)


def view_of_partition(snapshot: Snapshot, partition_path: str) -> FileSystemView:
    """The live slices of one table partition."""
    found = snapshot.prefix(FilesPartition(snapshot.options), partition_prefix(partition_path))
    paths, sizes = decode_files(found["value"].combine_chunks())
    # a prefix is 60 of the hash's 64 bits: another partition may share it
    ours = pc.equal(_split(paths)[0], partition_path)
    return FileSystemView.of(paths.filter(ours), sizes[ours.to_numpy(zero_copy_only=False)])


def _load_all(snapshot: Snapshot) -> FileSystemView:
    parts = [
        decode_files(batch["value"]) for batch in snapshot.scan(FilesPartition(snapshot.options))
    ]
    paths = pa.concat_arrays([pa.array([], pa.string()), *(paths for paths, _ in parts)])
    sizes = [np.zeros(0, np.int64), *(sizes for _, sizes in parts)]
    return FileSystemView.of(paths, np.concatenate(sizes))


def _split(paths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(partition paths, file names); "" for the partition path of an unpartitioned table."""
    parts = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    offsets = parts.offsets.to_numpy()
    names = parts.values.take(pa.array(offsets[1:] - 1))
    alone = pa.array(np.diff(offsets) == 1)
    folders = pc.if_else(alone, "", parts.values.take(pa.array(offsets[:-1])))
    return folders, names


def _nbytes(view: FileSystemView) -> int:
    return view.nbytes


def _data_files(values: pa.Array) -> list[DataFile]:
    paths, sizes = decode_files(values)
    return [
        DataFile.decode(path, int(size))
        for path, size in zip(paths.to_pylist(), sizes, strict=True)
    ]
