"""Bins: which insert goes to which file group where the index leaves that open.

The inserts of a partition fill small files first and then new groups. Each of these bins is a
range of keys, cut at quantiles of the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np
import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.data.rows.samples import Sample
from metatable.index import create_index
from metatable.metadata.view import TableView, each_slices
from metatable.storage.arrays import Bools
from metatable.write.profile import are_open

__all__ = [
    "Bin",
    "Bins",
    "Inserts",
    "SmallFiles",
    "bins_for",
    "inserts_of",
    "new_bins",
    "rooms",
    "small_files",
]

GROUP_BYTES = 1 << 30
"""Rows in memory that one commit puts into one file group, however well they compress."""

SMALL_FILES = 64
"""The most small files of a partition that one commit fills up."""

PARTITIONS_TOGETHER = 256
"""Table partitions whose small files' rows are looked up at once."""

BEGUN = 0.02
"""Share of a file's bytes that a small file's mean row does not tell of: a page begun by its last
rows brings a header and an entry of the page index, with the least and greatest text of it."""


@dataclass(slots=True)
class Inserts(Sample):
    """Rows to be put into one partition: how many, how large, sampled texts with weights."""

    bytes: int = 0

    @property
    def width(self) -> float:
        """Bytes of a row in memory."""
        return max(self.bytes / max(self.rows, 1), 1.0)

    @property
    def memory_rows(self) -> int:
        """How many of them one commit puts into one file group."""
        return max(1, int(GROUP_BYTES / self.width))


def inserts_of(profile: pa.Table) -> dict[str, Inserts]:
    """The rows that no index has placed and that do not stay where they are, by partition path."""
    found: dict[str, Inserts] = {}
    for one in profile.filter(are_open(profile)).to_pylist():
        inserts = found.setdefault(one["partition_path"], Inserts())
        inserts.add(one["rows"], one["keys"])
        inserts.bytes += one["bytes"]
    return dict(sorted(found.items()))


Bin = tuple[FileSlice | None, int]
"""A small file to fill, or None for a new one, and rows for it."""

Bins = tuple[tuple[str, ...], list[Bin], list[int]]
"""Texts between neighbouring ranges of a partition's inserts; the bins; and of each range (one more
than there are texts) the number of its bin."""


SmallFiles = list[tuple[FileSlice, int]]
"""Files of a partition that may be filled up, smallest first, with their row counts."""


def bins_for(options: Options, inserts: Inserts, small: SmallFiles) -> Bins:
    """All inserts of a partition, its small files first."""
    left = inserts.rows
    bins: list[Bin] = []
    room, width = rooms(options, inserts, small)
    for file, most in room:
        if left > 0:
            bins.append((file, min(left, most)))
            left -= bins[-1][1]
    bins += new_bins(options, inserts, left, width)
    cuts, kept = inserts.cut(np.cumsum([0, *(rows for _, rows in bins)])[:-1].tolist())
    return cuts, [bins[place] for place in kept.tolist()], [*range(len(kept))]


def rooms(options: Options, inserts: Inserts, small: SmallFiles) -> tuple[list[Bin], float]:
    """(small files with how many rows each may be given; bytes of a row, stored where there are
    such files). One is left alone where its room is less than what samples may be wrong by."""
    found: list[Bin] = []
    width, most = inserts.width, options.file_bytes * (1 - BEGUN)
    for file, held in small:
        # of few rows it is the footer that takes the bytes, and no row is stored wider than it is
        width = min(file.size_bytes / max(held, 1), inserts.width)
        room = min(options.file_rows - held, int((most - file.size_bytes) / width))
        rows = min(room - inserts.slack, inserts.memory_rows)
        if rows > 0:
            found.append((file, rows))
    return found, width


def new_bins(options: Options, inserts: Inserts, rows: int, width: float) -> list[Bin]:
    """New file groups for so many rows of so many bytes, as few as they fill."""
    most = min(options.most_rows(width), inserts.memory_rows)
    most -= min(inserts.slack, most // 8)  # more slack than that is chance, and evens out
    count = -(-rows // most)
    borders = [rows * number // count for number in range(count + 1)] if count else []
    return [(None, hi - lo) for lo, hi in pairwise(borders)]


def small_files(view: TableView, partition_paths: Sequence[str]) -> Iterator[SmallFiles]:
    """The small files of each of these table partitions; with logs where the index finds keys in
    them, or every other commit would open some more. Groups that wait for something scheduled are
    left alone, unless groups begin with logs."""
    options = view.options
    if not options.small_file_bytes:
        yield from ([] for _ in partition_paths)
        return
    files_of = each_slices(view, partition_paths)
    on_logs = options.has_logs and create_index(options).indexes_logs
    left = iter(partition_paths)
    while some := list(islice(left, PARTITIONS_TOGETHER)):
        small = [_smallest(files_of(path), options, on_logs) for path in some]
        counts = iter(view.row_counts([*chain(*small)], at_most=on_logs).tolist())
        for files in small:
            told = zip(files, islice(counts, len(files)), strict=True)
            yield [(one, held) for one, held in told if held >= 0]


def _smallest(files: FileSystemView, options: Options, on_logs: bool) -> list[FileSlice]:
    """Those of a partition's files, which may be many: no object is made of each."""
    sizes = files.slice_sizes if on_logs else files.sizes
    may_grow = (sizes < options.small_file_bytes) & _take_more(files, options, on_logs)
    below = np.flatnonzero(may_grow)
    smallest = below[np.argsort(sizes[below], kind="stable")[:SMALL_FILES]]
    return [files[place] for place in smallest.tolist()]


def _take_more(files: FileSystemView, options: Options, on_logs: bool) -> Bools:
    """Which of these groups may get new keys: into a file that is written anew or, `on_logs`, into
    a log."""
    if not on_logs:
        return ~files.has_logs
    return np.ones(len(files), np.bool_) if options.opens_by_logs else ~files.is_pending
