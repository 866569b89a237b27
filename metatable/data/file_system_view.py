"""Many slices at once: in columns, each an object only when it is asked for.

A table may have a million file groups; questions about all of them (how many, how large, which
may hold a key) are answered from arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.slices import DataFile, FileSlice

__all__ = ["FileSystemView", "folders_of"]


@dataclass(frozen=True, slots=True, eq=False)
class FileSystemView(Sequence[FileSlice]):
    """Live slices in columns, by partition path and file name; its row is a slice's ordinal.

    `paths` of base files (strings), `sizes` (int64), and `folders`, the distinct partition paths
    in byte order, with the place there of each file's (int32).
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
        """The bare names of the base files (strings)."""
        return _split(self.paths)[1]

    def file_ids(self) -> pa.Array:
        """The ids of the file groups (strings)."""
        return pc.list_element(pc.split_pattern(self.names(), "_", max_splits=1), 0)

    def take(self, rows: npt.NDArray[np.int64]) -> FileSystemView:
        """Some of the slices, in the same order (`rows` ascending); all folders stay."""
        taken = self.paths.take(pa.array(rows))
        return FileSystemView(taken, self.sizes[rows], self.folders, self.folder_of[rows])

    def within(self, partition_paths: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of the slices of these partitions, ascending."""
        asked = pc.is_in(self.folders, value_set=pa.array(partition_paths, pa.string()))
        return np.flatnonzero(asked.to_numpy(zero_copy_only=False)[self.folder_of])

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> FileSlice: ...
    @overload
    def __getitem__(self, place: slice) -> list[FileSlice]: ...
    def __getitem__(self, place: int | slice) -> FileSlice | list[FileSlice]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return _slice(self.paths[int(place)].as_py(), int(self.sizes[place]))

    def __iter__(self) -> Iterator[FileSlice]:
        pairs = zip(self.paths.to_pylist(), self.sizes.tolist(), strict=True)
        return (_slice(path, size) for path, size in pairs)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return int(self.paths.nbytes + self.sizes.nbytes + self.folder_of.nbytes) + 500


def folders_of(paths: pa.Array) -> pa.Array:
    """The partition path of each file's path; "" in an unpartitioned table."""
    return _split(paths)[0]


def _slice(path: str, size_bytes: int) -> FileSlice:
    return FileSlice(DataFile.decode(path, size_bytes))


def _split(paths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(partition paths, file names); "" for the partition path of an unpartitioned table."""
    parts = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    offsets = parts.offsets.to_numpy()
    names = parts.values.take(pa.array(offsets[1:] - 1))
    alone = pa.array(np.diff(offsets) == 1)
    folders = pc.if_else(alone, "", parts.values.take(pa.array(offsets[:-1])))
    return folders, names
