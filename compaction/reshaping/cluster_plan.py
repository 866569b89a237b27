"""Which file groups to cluster: those that overlap most, within bounds.

Due is a table partition in which a value is in more than `DUE` times the files that it has to be
in. By one column that is one file; by k columns of n files the k-th root of n^(k-1): each file
holds a range of each column, and many of them one value. A column that has one value in all files
of a table partition cuts nothing there, and is none of the k. There the file that meets most others
goes first, together with those that it meets, then the next one, while there is room for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from metatable.compaction.service import Plan
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.partitions.overlap import Neighbours, Overlap, overlap
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.arrays import Bools, Float64s, Int64s

__all__ = ["ClusterPlan", "chosen"]

DUE = 1.5
"""A curve through several columns comes to 1.3 at most; what has no order, to much more."""


@dataclass(frozen=True, slots=True)
class ClusterPlan(Plan):
    """These slices are to be cut anew, by these columns."""

    by: tuple[str, ...]
    slices: tuple[FileSlice, ...]
    depths: Mapping[str, float]
    """The mean depth of each of the columns, in the whole table, as it is now."""

    @property
    def summary(self) -> str:
        paths = len({one.partition_path for one in self.slices})
        depths = ", ".join(f"{name} in {depth:.1f} files" for name, depth in self.depths.items())
        return (
            f"{len(self.slices):,} files in {paths:,} partitions to cut by"
            f" {', '.join(self.by)}, {self.size_bytes:,} bytes; a value of {depths}"
        )

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.slices)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"files_before": len(self.slices), "depth_before": dict(self.depths)}


def chosen(
    snapshot: Snapshot, files: FileSystemView, by: Sequence[str], most_bytes: int
) -> tuple[FileSlice, ...]:
    """Slices among `files` that are worth it; at least two of a table partition, or none. What
    waits for something scheduled stays as it is."""
    found = [overlap(snapshot, name) for name in by]
    every = found[0].files
    wanted = _among(every, files) & ~every.is_pending
    cutting = _cutting(found, wanted)
    due = _due(found, wanted, cutting)
    worth = wanted & (due[every.folder_of] > DUE)
    for one, cuts in zip(found, cutting, strict=True):
        worth &= (one.meets > 1) | ~cuts[every.folder_of]
    meets = np.prod([one.meets for one in found], axis=0, dtype=np.float64)
    order = np.lexsort((-meets, -due[every.folder_of]))
    taken = _within(found, cutting, order[worth[order]], every.slice_sizes, most_bytes)
    return tuple(every[place] for place in sorted(taken))


def _among(every: FileSystemView, files: FileSystemView) -> Bools:
    found = pc.is_in(every.paths, value_set=files.paths)  # numpy holds texts each with each
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _cutting(found: Sequence[Overlap], wanted: Bools) -> list[Bools]:
    """For each column, a mask by folder: whether it has more than one value there."""
    folder = found[0].files.folder_of[wanted]
    masks = []
    for one in found:
        low = np.full(len(one.files.folders), np.iinfo(np.int64).max)
        high = np.full(len(low), -1)
        np.minimum.at(low, folder, one.low[wanted])
        np.maximum.at(high, folder, one.high[wanted])
        masks.append(low < high)
    return masks


def _due(found: Sequence[Overlap], wanted: Bools, cutting: Sequence[Bools]) -> Float64s:
    """For each folder, how many times as deep it is as it has to be."""
    folder = found[0].files.folder_of
    count = len(found[0].files.folders)
    files = np.maximum(np.bincount(folder[wanted], minlength=count), 1.0)
    columns = np.maximum(np.sum(cutting, axis=0), 1)
    product = np.ones(count)
    for one, cuts in zip(found, cutting, strict=True):
        depths = np.bincount(folder[wanted], one.depth[wanted], minlength=count)
        product *= np.where(cuts, depths / files, 1)
    return np.asarray(product ** (1 / columns) / files ** ((columns - 1) / columns))


def _excess(depths: Sequence[Int64s]) -> float:
    """How many times as deep some files that overlap are as they have to be, by their depths among
    themselves."""
    least = len(depths[0]) ** ((len(depths) - 1) / len(depths))
    mean = np.prod([one.mean() for one in depths]) ** (1 / len(depths))
    return float(mean / least)


def _within(
    found: Sequence[Overlap],
    cutting: Sequence[Bools],
    order: Int64s,
    sizes: Int64s,
    most_bytes: int,
) -> list[int]:
    """Rows of so many bytes, from the first in this order, each with those that it meets; two at
    least, whatever they are."""
    left, taken = np.zeros(len(sizes), np.bool_), list[int]()
    left[order] = True
    place = np.zeros(len(sizes), np.int64)
    place[order] = np.arange(len(order))
    near = [Neighbours(one, order) for one in found]
    room = most_bytes
    for seed in order.tolist():
        if not left[seed]:
            continue
        folder = found[0].files.folder_of[seed]
        first, *others = (number for number, cuts in enumerate(cutting) if cuts[folder])
        met = near[first].met(seed)
        for number in others:
            met = met[found[number].shares(seed, met)]
        ours = met[left[met]]
        ours = ours[np.argsort(place[ours])]
        fit = np.cumsum(sizes[ours]) <= room
        fit[:2] |= not taken
        by = [found[number] for number in (first, *others)]
        if fit.sum() < 2 or _excess([one.among(ours[fit]) for one in by]) <= DUE:
            left[seed] = False
            continue
        left[ours[fit]] = False
        taken += ours[fit].tolist()
        room -= int(sizes[ours[fit]].sum())
        if room <= 0 or not fit.all():
            break
    return taken
