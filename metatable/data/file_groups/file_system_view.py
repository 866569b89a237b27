"""Many slices at once: in columns, each an object only when it is asked for.

A table may have a million file groups; questions about all of them (how many, how large, which
may hold a key) are answered from arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.paths import (
    begin_as_logs,
    folders_of,
    name_hashes,
    name_starts,
    names_of,
    which_are_logs,
)
from metatable.data.file_groups.slices import DataFile, FileSlice, is_log
from metatable.storage.arrays import Bools, Int32s, Int64s, UInt64s
from metatable.storage.byte_columns import byte_layout, gathered
from metatable.storage.errors import CorruptError
from metatable.storage.ordering import order_within

__all__ = ["FILE", "FileSystemView", "slices_of"]

FILE = pa.struct([pa.field("path", pa.string(), False), pa.field("size", pa.int64(), False)])
"""A file of a slice."""

TOGETHER = 1 << 10
"""Slices that are made objects at once: of very many often the first few alone are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class FileSystemView(Sequence[FileSlice]):
    """Live slices in columns, by partition path and file name; its row is a slice's ordinal.

    `paths` and `sizes` (int64) of the first file of each: its base file, or, of logs `alone`
    (bool), the first of these. Paths stay as they were read, `held` (strings), with the place there
    of each slice's (`rows`): few of very many are ever asked for. `folders` are the distinct
    partition paths in byte order, with the place there of each file's (int32). `logs`: a list of
    `FILE` a slice, the other logs, and in it the base file that a scheduled compaction is to make;
    None where none has any.
    """

    held: pa.Array
    rows: Int64s
    sizes: Int64s
    folders: pa.Array
    folder_of: Int32s
    alone: Bools
    logs: pa.ListArray | None = None

    @classmethod
    def of(cls, paths: pa.Array, sizes: Int64s, logs: pa.ListArray | None = None) -> FileSystemView:
        """From a row a slice, in any order: the path (string) and the bytes of its first file, and
        its other files as of `logs` of the class."""
        offsets, data = byte_layout(paths)
        names_at = name_starts(paths)
        folders, folder_of = folders_of(paths, names_at)
        order = order_within(folder_of, data, names_at, offsets[1:] - names_at)
        return cls(
            paths,
            order,
            sizes[order],
            folders,
            folder_of[order],
            begin_as_logs(paths, names_at)[order],
            None if logs is None else logs.take(pa.array(order)),
        )

    @classmethod
    def of_lists(cls, pieces: Iterable[pa.ListArray]) -> FileSystemView:
        """From a list of `FILE` a slice, in any order. Raises CorruptError where one is none."""
        sizes, logs = [np.zeros(0, np.int64)], [pa.array([], pa.list_(FILE))]

        def paths() -> Iterator[pa.Array]:
            for files in pieces:
                firsts, others = _apart(files)
                sizes.append(pc.struct_field(firsts, "size").to_numpy())
                logs.append(others)
                yield pc.struct_field(firsts, "path")

        held = gathered(paths()).cast(pa.string())
        joined = pa.concat_arrays(logs)
        return cls.of(held, np.concatenate(sizes), joined if len(joined.values) else None)

    @classmethod
    def joined(cls, parts: Sequence[FileSystemView]) -> FileSystemView:
        """The slices of all these views, in one."""
        return cls.of_lists(one.lists() for one in parts)

    @property
    def paths(self) -> pa.Array:
        """The path of the first file of each (strings); made anew when it is asked for."""
        return self.held.take(pa.array(self.rows))

    def lists(self) -> pa.ListArray:
        """All that is stored of each slice, as a list of `FILE`, its first file before the others:
        what `of_lists` is given."""
        paths, sizes, slices = self._files_and_pending()
        order = np.argsort(slices, kind="stable")
        offsets = np.searchsorted(slices[order], np.arange(len(self) + 1))
        columns = paths.take(pa.array(order)), pa.array(sizes[order])
        files = pa.StructArray.from_arrays(columns, fields=list(FILE))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), files)

    def names(self) -> pa.Array:
        """The bare names of the first files (strings)."""
        return names_of(self.paths)

    def contents(self) -> pa.Array:
        """A text a slice, equal for slices of the same files, which are equal contents."""
        firsts = self.paths
        if self.logs is None:
            return firsts
        paths, _ = _columns(self.logs.flatten())
        lengths = pc.list_value_length(self.logs).to_numpy()
        offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, paths), "\n")
        every = pc.binary_join_element_wise(firsts, joined, "\n")
        return pc.if_else(pa.array(lengths > 0), every, firsts)  # as in a view without others

    def file_ids(self) -> pa.Array:
        """The ids of the file groups (strings)."""
        begins = pc.list_element(pc.split_pattern(self.names(), "_", max_splits=1), 0)
        return pc.utf8_ltrim(begins, ".") if self.alone.any() else begins

    def take(self, rows: Int64s) -> FileSystemView:
        """Some of the slices, in the same order (`rows` ascending); all folders stay."""
        return FileSystemView(
            self.held.take(pa.array(self.rows[rows])),
            np.arange(len(rows)),
            self.sizes[rows],
            self.folders,
            self.folder_of[rows],
            self.alone[rows],
            None if self.logs is None else self.logs.take(pa.array(rows)),
        )

    @property
    def has_logs(self) -> Bools:
        """Which slices have logs."""
        if self.logs is None:
            return self.alone
        return self.logs_of_each()[1] > 0

    @property
    def log_count(self) -> int:
        """Log files of all slices."""
        return int(self.logs_of_each()[1].sum())

    def logs_of_each(self) -> tuple[Int64s, Int64s]:
        """(bytes, number) of the logs of each slice, as arrays of one value a slice."""
        sizes, slices = self.all_sizes()
        are_logs = np.concatenate([self.alone, np.ones(len(slices) - len(self), np.bool_)])
        counts = np.bincount(slices[are_logs], minlength=len(self))
        held = np.zeros(len(self), np.int64)
        np.add.at(held, slices[are_logs], sizes[are_logs])
        return held, counts

    def bases(self) -> FileSystemView:
        """The view of base files alone: without logs, and without slices that have nothing else."""
        based = self.take(np.flatnonzero(~self.alone)) if self.alone.any() else self
        return replace(based, logs=None)

    @property
    def is_pending(self) -> Bools:
        """For which slices a compaction is scheduled."""
        paths, _, slices = self._files_and_pending()
        found = np.zeros(len(self), np.bool_)
        found[slices[len(self) :][~which_are_logs(paths[len(self) :])]] = True
        return found

    @property
    def slice_sizes(self) -> Int64s:
        """Bytes of each slice, logs included."""
        bases = np.where(self.alone, 0, self.sizes)
        return np.asarray(bases + self.logs_of_each()[0])

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return int(self.all_sizes()[0].sum())

    def all_files(self) -> tuple[pa.Array, Int64s, Int64s]:
        """(paths, sizes, ordinals of their slices) of all files that are there: the first one of
        each slice, and behind these all other logs."""
        paths, sizes, slices = self._files_and_pending()
        if self.logs is None:
            return paths, sizes, slices
        there = which_are_logs(paths)
        there[: len(self)] = True
        return paths.filter(pa.array(there)), sizes[there], slices[there]

    def all_sizes(self) -> tuple[Int64s, Int64s]:
        """(sizes, ordinals of their slices), as of `all_files`."""
        return (self.sizes, np.arange(len(self))) if self.logs is None else self.all_files()[1:]

    def name_hashes(self) -> UInt64s:
        """`quick_hash` of the bare name of each of `all_files`."""
        first = name_hashes(self.held).take(self.rows)
        if self.logs is None:
            return first
        return np.concatenate([first, name_hashes(self.all_files()[0][len(self) :])])

    def _files_and_pending(self) -> tuple[pa.Array, Int64s, Int64s]:
        """What `all_files` gives, and among the logs of a slice also the base file that a scheduled
        compaction is to make."""
        slices = np.arange(len(self))
        if self.logs is None:
            return self.paths, self.sizes, slices
        paths, sizes = _columns(self.logs.flatten())
        of = np.repeat(slices, pc.list_value_length(self.logs).to_numpy())
        return (
            pa.concat_arrays([self.paths, paths]),
            np.concatenate([self.sizes, sizes]),
            np.concatenate([slices, of]),
        )

    def within(self, partition_paths: Sequence[str]) -> Int64s:
        """The ordinals of the slices of these partitions, ascending."""
        asked = pc.is_in(self.folders, value_set=pa.array(partition_paths, pa.string()))
        return np.flatnonzero(asked.to_numpy(zero_copy_only=False)[self.folder_of])

    def by_folder(self) -> Iterator[tuple[str, Int64s]]:
        """Each partition path, and the ordinals of its slices, ascending."""
        order = np.argsort(self.folder_of, kind="stable")
        cuts = np.searchsorted(self.folder_of, np.arange(1, len(self.folders)), sorter=order)
        return zip(self.folders.to_pylist(), np.split(order, cuts), strict=False)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> FileSlice: ...
    @overload
    def __getitem__(self, place: slice) -> list[FileSlice]: ...
    def __getitem__(self, place: int | slice) -> FileSlice | list[FileSlice]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        logs = () if self.logs is None else self.logs[int(place)].as_py()
        path = self.held[int(self.rows[place])].as_py()
        return _slice(path, int(self.sizes[place]), logs)

    def __iter__(self) -> Iterator[FileSlice]:
        starts = range(0, len(self), TOGETHER)
        return chain.from_iterable(self._some(slice(one, one + TOGETHER)) for one in starts)

    def _some(self, places: slice) -> Iterator[FileSlice]:
        paths = self.held.take(pa.array(self.rows[places])).to_pylist()
        logs = repeat(()) if self.logs is None else self.logs[places].to_pylist()
        return map(_slice, paths, self.sizes[places].tolist(), logs)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        logs = 0 if self.logs is None else self.logs.nbytes
        columns = self.held, self.rows, self.sizes, self.folder_of, self.alone
        return int(sum(one.nbytes for one in columns) + logs) + 500


def slices_of(files: pa.ListArray) -> list[FileSlice]:
    """From a list of `FILE` a slice, without nulls. Raises CorruptError where one is none."""
    return [FileSlice.of([tuple(one.values()) for one in few]) for few in files.to_pylist()]


def _slice(path: str, size_bytes: int, logs: Sequence[Mapping[str, Any]] = ()) -> FileSlice:
    if not logs and not is_log(path):
        return FileSlice(DataFile.decode(path, size_bytes))
    return FileSlice.of([(path, size_bytes), *((one["path"], one["size"]) for one in logs)])


def _apart(files: pa.ListArray) -> tuple[pa.StructArray, pa.ListArray]:
    """(the first file of each slice, a list of the others), from a list of `FILE` a slice.

    The first is the base file, or, where there is none, the first log. A base file of no bytes is
    one to come, and one of the others. Raises CorruptError for a slice with two base files.
    """
    counts = pc.list_value_length(files).to_numpy()
    flat = files.flatten()
    if (counts == 1).all():
        none = pa.array(np.zeros(len(files) + 1, np.int32))
        return flat, pa.ListArray.from_arrays(none, pa.array([], FILE), type=pa.list_(FILE))
    are_logs = which_are_logs(pc.struct_field(flat, "path"))
    to_come = ~are_logs & (pc.struct_field(flat, "size").to_numpy() == 0)
    slices = np.repeat(np.arange(len(files)), counts)
    are_bases = ~are_logs & ~to_come
    is_first = are_bases.copy()
    alone = np.flatnonzero(are_logs & ~np.isin(slices, slices[are_bases]))
    is_first[alone[np.unique(slices[alone], return_index=True)[1]]] = True  # they are in order
    if not np.array_equal(slices[is_first], np.arange(len(files))):
        wrong = int(np.flatnonzero(np.bincount(slices[is_first], minlength=len(files)) != 1)[0])
        raise CorruptError(
            "these files are no file slice",
            expected="a base file, or none, and its logs",
            found=[one["path"] for one in files[wrong].as_py()][:5],
        )
    ends = np.cumsum(np.bincount(slices[~is_first], minlength=len(files)))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    others = flat.filter(pa.array(~is_first))
    return flat.filter(pa.array(is_first)), pa.ListArray.from_arrays(offsets, others)


def _columns(files: pa.StructArray) -> tuple[pa.Array, Int64s]:
    """(paths, sizes) of `FILE`s."""
    return pc.struct_field(files, "path"), pc.struct_field(files, "size").to_numpy()
