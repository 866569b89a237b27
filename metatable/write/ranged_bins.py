"""Ranged bins: inserts by ranges of columns, and small files filled only within their own.

A small file is given the rows of its range, as its bounds tell it, and those of the gaps beside it
that no other file covers, while it has room. All others go to new groups, in order, as few as they
fill: a group of its own in each gap would make many that are tiny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.keys.row_order import RowOrder
from metatable.metadata.view import StatsColumn, TableView, each_stats
from metatable.storage.ordering import PrefixIndex
from metatable.write.bins import Bin, Bins, Inserts, new_bins, rooms, small_files

__all__ = ["ranged_bins"]

LAST = "\U0010ffff"
"""Behind all that may follow a range's last value in the texts of rows."""


def ranged_bins(view: TableView, opened: Mapping[str, Inserts], order: RowOrder) -> Iterator[Bins]:
    """The bins of each table partition's inserts, whose texts are in `order`."""
    stats = cache(partial(_each_stats, view, order, [*opened]))  # if there are small files
    for (path, inserts), small in zip(opened.items(), small_files(view, [*opened]), strict=True):
        room, width = rooms(view.options, inserts, small)
        told = {name: stats_of(path) for name, stats_of in stats().items()} if room else {}
        yield _bins(view.options, inserts, order, room, width, told)


def _bins(
    options: Options,
    inserts: Inserts,
    order: RowOrder,
    room: list[Bin],
    width: float,
    stats: Mapping[str, StatsColumn],
) -> Bins:
    """The bins of one partition: of rows of this width, beside files that have room for some."""
    texts, before = inserts.in_order()
    small = {one.path: (one, most) for one, most in room if one}
    bins: list[Bin] = []
    of_text = np.full(len(texts), -1)
    at = 0
    for name, start, end in _reaches(stats, order, texts, [*small]):
        file, most = small[name]
        start = max(start, at)
        end = min(end, int(np.searchsorted(before, before[start] + most, "right")) - 1)
        if start < end:
            of_text[start:end] = len(bins)
            bins.append((file, int(before[end] - before[start])))
            at = end
    left = np.flatnonzero(of_text < 0)
    weights = np.diff(before)[left]
    new = new_bins(options, inserts, int(weights.sum()), width)
    borders = np.cumsum([rows for _, rows in new])
    of_text[left] = len(bins) + np.searchsorted(borders, np.cumsum(weights) - weights, "right")
    starts = np.flatnonzero(np.diff(of_text, prepend=-1))
    used, which = np.unique(of_text[starts], return_inverse=True)
    every = [*bins, *new]
    cuts = tuple(texts[place] for place in starts[1:].tolist())
    return cuts, [every[number] for number in used.tolist()], which.tolist()


def _each_stats(
    view: TableView, order: RowOrder, partition_paths: Sequence[str]
) -> dict[str, Callable[[str], StatsColumn]]:
    """By column of the order, what tells its statistics in each of these table partitions."""
    kinds = {name: view.schema.field(name).type for name in order.columns}
    return {name: each_stats(view, name, kinds[name], partition_paths) for name in kinds}


def _reaches(
    stats: Mapping[str, StatsColumn], order: RowOrder, texts: list[str], small: list[str]
) -> list[tuple[str, int, int]]:
    """Of each of these files (by path) the texts [start, end) that it may be given, by where its
    range begins."""
    if not small:
        return []
    low, high = order.ranges({name: (one.minimum, one.maximum) for name, one in stats.items()})
    told = [bound.is_valid() for one in stats.values() for bound in (one.minimum, one.maximum)]
    known = np.all([one.to_numpy(zero_copy_only=False) for one in told], axis=0)
    low, high = pc.if_else(known, low, ""), pc.if_else(known, high, LAST)
    index, behind = PrefixIndex(pa.array(texts)), pc.binary_join_element_wise(high, LAST, "")
    first, end = index.place(low, "left"), index.place(behind, "left")
    ranks = pc.rank(pa.concat_arrays([low, high]), tiebreaker="dense").to_numpy().astype(np.int64)
    begins, ends = ranks[: len(low)], ranks[len(low) :]
    paths = next(iter(stats.values())).files.paths
    reaches = []
    for row in np.flatnonzero(pc.is_in(paths, value_set=pa.array(small)).to_numpy(False)):
        other = np.arange(len(paths)) != row
        before, after = other & (ends <= begins[row]), other & (begins >= ends[row])
        start = int(end[before].max(initial=0))
        reaches.append((paths[row].as_py(), start, int(first[after].min(initial=len(texts)))))
    return sorted(reaches, key=lambda one: one[1:])
