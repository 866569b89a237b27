"""Which buckets are to be resized, and where they are cut.

Those above a size are split, neighbours that are both below another one are merged. The largest
splits come first, then the smallest merges, until a bound is met. A bucket is cut in the middle of
its range, as Hudi does, or at the median of the hashes of its keys: that reads its key column, and
halves it whatever its keys are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.compute as pc

from metatable.compaction.given_numbers import is_number
from metatable.compaction.reshaping.resize_plan import ResizeTask
from metatable.data.config.options import EXTENDIBLE
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.data.reading.slice_reader import read_slice_keys
from metatable.index.bucket.ring import SPACE, Resizing, Ring, hashes_of, new_prefix
from metatable.index.bucket.rings import each_ring
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError

__all__ = ["CUTS", "MERGE_BELOW", "SPLIT_ABOVE", "BucketSizes"]

CUTS = ("middle", "median")

SPLIT_ABOVE, MERGE_BELOW = 240 << 20, 24 << 20
"""As Hudi has both by default: 2 and 0.2 of its largest file."""


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """Sizes in bytes of stored files. `partitions`: these alone (paths)."""

    split_above: int = SPLIT_ABOVE
    merge_below: int = MERGE_BELOW
    cut: str = "middle"
    partitions: tuple[str, ...] | None = None
    most_partitions: int | None = None
    most_bytes: int | None = None
    """One plan rewrites no more, but a task at least."""

    def check(self, engine: str) -> None:
        """Raises UsageError for what cannot be."""
        bounds = self.most_partitions, self.most_bytes
        if not all(one is None or is_number(one, 1) for one in bounds):
            raise UsageError("a bound is 1 or more", found=bounds)
        if not is_number(self.split_above, 1) or not is_number(self.merge_below, 0):
            sizes = {"split_above": self.split_above, "merge_below": self.merge_below}
            raise UsageError("sizes in bytes", expected="numbers", found=sizes)
        if self.merge_below * 2 > self.split_above:
            raise UsageError(
                "what is merged would be split again",
                merge_below=self.merge_below,
                split_above=self.split_above,
                expected="merge_below at most half of split_above",
            )
        if self.cut not in CUTS or (self.cut == "median" and engine == EXTENDIBLE):
            expected = ["middle"] if engine == EXTENDIBLE else list(CUTS)
            raise UsageError("a bucket is not cut there", cut=self.cut, expected=expected)

    def tasks(
        self,
        snapshot: Snapshot,
        planned: Collection[str],
        *,
        only_stored: bool = False,
        merges: bool = True,
    ) -> list[ResizeTask]:
        """What is due in partitions that are not `planned` already. `only_stored`: in which each
        bucket has a file; `merges`: not splits alone."""
        files = snapshot.slices()
        asked = {
            path: rows
            for path, rows in files.by_folder()
            if path not in planned and (self.partitions is None or path in self.partitions)
        }
        found: list[_Due] = []
        for rows, ring in zip(asked.values(), each_ring(snapshot, [*asked]), strict=True):
            own = self._in_ring(snapshot, ring, files.take(rows), only_stored)
            found += (one for one in own if one.is_split or merges)
        found.sort(key=lambda one: -one.size_bytes if one.is_split else one.size_bytes)
        found.sort(key=lambda one: not one.is_split)
        return list(self._bounded(found))

    def _bounded(self, due: list[_Due]) -> Iterator[ResizeTask]:
        """Those, in order, that the bounds of partitions and bytes let pass. Keys are read of these
        alone."""
        paths: set[str] = set()
        size_bytes, most = 0, self.most_partitions or len(due)
        for one in due:
            if one.partition_path not in paths and len(paths) >= most:
                continue
            if (
                self.most_bytes is not None
                and paths
                and size_bytes + one.size_bytes > self.most_bytes
            ):
                return
            task = one.made()
            if task is not None:
                size_bytes += one.size_bytes
                paths.add(one.partition_path)
                yield task

    def _in_ring(
        self, snapshot: Snapshot, ring: Ring, files: FileSystemView, only_stored: bool
    ) -> Iterator[_Due]:
        """What is due in one table partition: splits of large buckets, merges of small
        neighbours."""
        rows = pc.index_in(ring.file_ids, value_set=files.file_ids()).fill_null(-1).to_numpy()
        sizes = np.append(files.slice_sizes, 0)[rows]  # the last: of a bucket without a file
        waits = np.append(files.is_pending, False)[rows]
        for number in np.flatnonzero((sizes > self.split_above) & ~waits).tolist():
            split = partial(self._split, snapshot, ring, number, files[int(rows[number])])
            yield _Due(ring.metadata.partition_path, int(sizes[number]), True, split)
        small = (sizes < self.merge_below) & ~waits & ((rows >= 0) | (not only_stored))
        for number in np.flatnonzero(small).tolist():
            other = ring.next_of(number)
            if other is not None and small[number] and small[other]:
                small[[number, other]] = False
                both = ring.united(number, new_prefix())
                pair = f"{sizes[number]:,} and {sizes[other]:,} bytes"
                why = f"{pair}, both below {self.merge_below:,}"
                size_bytes = int(sizes[number] + sizes[other])
                merge = partial(_task, ring, both, size_bytes, why)
                yield _Due(ring.metadata.partition_path, size_bytes, False, merge)

    def _split(
        self, snapshot: Snapshot, ring: Ring, number: int, file: FileSlice
    ) -> ResizeTask | None:
        at = self._where(snapshot, ring, number, file)
        if at is None:
            return None
        halves = ring.cut(number, at, (new_prefix(), new_prefix()))
        why = f"{file.size_bytes:,} bytes, above {self.split_above:,}"
        return _task(ring, halves, file.size_bytes, why)

    def _where(self, snapshot: Snapshot, ring: Ring, number: int, file: FileSlice) -> int | None:
        """The last hash of the first half of a bucket that is split; None where it has no keys, or
        all of them have one hash."""
        if self.cut == "middle":
            return ring.middle(number)
        keys, _ = read_slice_keys(
            snapshot.store, file, snapshot.table_schema, snapshot.options.ordering
        )
        before = int(ring.values[number - 1])
        behind = (hashes_of(keys, snapshot.options.key) - before - 1) % SPACE
        lower = behind[behind < behind.max(initial=0)]
        if not len(lower):  # all keys have one hash, or there are none
            return None
        half = min(int(np.sort(behind)[(len(behind) - 1) // 2]), int(lower.max()))
        return (before + 1 + half) % SPACE


@dataclass(frozen=True, slots=True)
class _Due:
    """A bucket to split, or two to merge. `made`: the task; None where no cut leaves both halves
    some."""

    partition_path: str
    size_bytes: int
    is_split: bool
    made: Callable[[], ResizeTask | None]


def _task(ring: Ring, resizing: Resizing, size_bytes: int, why: str) -> ResizeTask:
    held = ring.metadata
    return ResizeTask(held.partition_path, held.seq_no, *resizing, size_bytes, why)
