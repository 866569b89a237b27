"""Bins: which insert goes to which file group where the index leaves that open.

The inserts of a partition fill small files first and then new groups. Each of these bins is a
range of keys, cut at quantiles of the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from metatable.data.samples import Sample
from metatable.data.slices import FileSlice
from metatable.metadata.view import TableView
from metatable.write.profile import is_open

__all__ = ["Inserts", "bins_for", "cut_keys", "inserts_of"]

GROUP_BYTES = 1 << 30
"""Rows in memory that one commit puts into one file group, however well they compress."""

SMALL_FILES = 64
"""At most so many small files of a partition are filled up in one commit."""


@dataclass(slots=True)
class Inserts(Sample):
    """Rows to be put into one partition: how many, how large, sampled texts with weights."""

    bytes: int = 0

    @property
    def width(self) -> float:
        """Bytes of a row in memory."""
        return max(self.bytes / max(self.rows, 1), 1.0)


def inserts_of(profile: pa.Table) -> dict[str, Inserts]:
    """By partition path, rows that no index has placed and that do not stay where they are."""
    found: dict[str, Inserts] = {}
    for one in profile.to_pylist():
        if not is_open(one):
            continue
        inserts = found.setdefault(one["partition_path"], Inserts())
        inserts.add(one["rows"], one["keys"])
        inserts.bytes += one["bytes"]
    return dict(sorted(found.items()))


_Bin = tuple[FileSlice | None, int]


def bins_for(view: TableView, path: str, inserts: Inserts, fills: bool = True) -> list[_Bin]:
    """(small file to fill or None for a new one, rows for it): all inserts of a partition.

    A small file is left alone where its room is less than what samples may be wrong by; all are
    unless the commit `fills` files.
    """
    options = view.options
    left = inserts.rows
    bins: list[_Bin] = []
    width = inserts.width
    memory = max(1, int(GROUP_BYTES / width))
    for small, held in _small_files(view, path) if fills else ():
        width = small.size_bytes / max(held, 1)
        room = min(options.file_rows - held, int((options.file_bytes - small.size_bytes) / width))
        rows = min(left, room - inserts.slack, memory)
        if rows > 0:
            bins.append((small, rows))
            left -= rows
    most = min(options.most_rows(width), memory)
    most -= min(inserts.slack, most // 8)  # more slack than that is chance, and evens out
    count = -(-left // most)
    borders = [left * number // count for number in range(count + 1)] if count else []
    bins += [(None, hi - lo) for lo, hi in pairwise(borders)]
    return bins


def _small_files(view: TableView, path: str) -> list[tuple[FileSlice, int]]:
    """Files of a partition that may be filled up, smallest first, with their row counts; with logs
    only where logs open groups, or each commit would open some more."""
    limit, opens = view.options.small_file_bytes, view.options.opens_by_logs
    if not limit:
        return []
    files = view.slices(path)  # a partition may have many: no object a file
    sizes = files.slice_sizes if opens else files.sizes
    below = np.flatnonzero(sizes < limit)
    smallest = below[np.argsort(sizes[below], kind="stable")[:SMALL_FILES]]
    small = [files[place] for place in smallest.tolist()]
    counts = view.row_counts(small, at_most=opens).tolist()
    return [(one, held) for one, held in zip(small, counts, strict=True) if held >= 0]


def cut_keys(inserts: Inserts, bins: Sequence[_Bin]) -> tuple[tuple[str, ...], list[_Bin]]:
    """Keys between neighbouring bins, so that each gets about its number of rows; and the bins,
    without those for which the sample is too coarse: every one has its first key."""
    cuts, kept = inserts.cut(np.cumsum([0, *(rows for _, rows in bins)])[:-1].tolist())
    return cuts, [bins[place] for place in kept.tolist()]
