"""Overlap: how many files hold one value of a column, told from the column's bounds alone.

A file's *depth* is how many files of its table partition, itself included, hold the value in the
middle of its range; it *meets* those whose ranges have a part in common with its own. What only
touch, the one ending with the value that the other begins with, share no part. A file without
statistics may hold any value; one of a single value, or of nulls alone, has no part to share.

What bounds cannot tell counts as one value, for files that were cut anew would have no others: what
long texts begin with that is all of both bounds, and NaN, which leaves a file without a maximum,
behind all numbers.

    16 files of random keys      depth 14 or so
    the same, cut by the key     depth 1
    cut by two columns           depth 4, of each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.statistics import BOUND_LENGTH
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.keys.key_texts import KEY
from metatable.data.keys.sort_texts import check_sortable, column_texts
from metatable.metadata.view import StatsColumn, TableView
from metatable.metadata.written import stats_columns
from metatable.storage.arrays import Bools, Int32s, Int64s
from metatable.storage.errors import UsageError

__all__ = ["Neighbours", "Overlap", "check_clustered", "mean_depths", "overlap"]


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """The overlap of files by the bounds of one column: for each row of `files` its depth, and how
    many files it meets. `low` and `high` are its bounds, as numbers in their order."""

    files: FileSystemView
    depth: Int64s
    meets: Int64s
    low: Int64s
    high: Int64s

    def shares(self, row: int, rows: Int64s) -> Bools:
        """Which of these share a part of this one's range, in one table partition; itself does."""
        shared = (self.low[rows] < self.high[row]) & (self.low[row] < self.high[rows])
        return np.asarray(shared | (rows == row))

    def among(self, rows: Int64s) -> Int64s:
        """The depth of some files, as if there were no others."""
        return _swept(self.files.folder_of[rows], self.low[rows], self.high[rows])[0]


class Neighbours:
    """Finds those of some files (`rows`) that one of them meets, without a look at all: in the
    order of their lower bounds, from the first on behind which a range has not ended yet."""

    def __init__(self, found: Overlap, rows: Int64s) -> None:
        span = 1 + max(int(one.max(initial=0)) for one in (found.low, found.high))
        first = found.files.folder_of.astype(np.int64) * span
        self._found, self._low, self._high = found, first + found.low, first + found.high
        self._rows = rows[np.argsort(self._low[rows], kind="stable")]
        self._begin = self._low[self._rows]
        self._reach = np.maximum.accumulate(self._high[self._rows])

    def met(self, row: int) -> Int64s:
        """Those that share a part of its range, itself included, in no order."""
        begin = int(np.searchsorted(self._reach, self._low[row], "right"))
        near = self._rows[begin : int(np.searchsorted(self._begin, self._high[row]))]
        near = near[self._found.shares(row, near)]
        return near if (near == row).any() else np.append(near, row)


def mean_depths(view: TableView, columns: Sequence[str]) -> Mapping[str, float]:
    """The mean depth of all files, by column; 0 where there is no file."""
    found = {name: overlap(view, name).depth for name in columns}
    return {name: round(float(one.mean()), 2) if len(one) else 0.0 for name, one in found.items()}


def check_clustered(table: TableSchema, options: Options, columns: Sequence[str]) -> None:
    """Raises UsageError for columns by which files cannot be cut: without order, or statistics."""
    check_sortable(table.arrow, columns)
    kept = stats_columns(table, options)
    for name in columns:
        if name not in kept:
            raise UsageError(
                "no statistics are kept of a column: no file would be skipped by it",
                column=name,
                expected=[one for one in kept if one != KEY],
            )


def overlap(view: TableView, column: str) -> Overlap:
    """Reads one column of `column_stats`."""
    stats = view.stats(column, view.schema.field(column).type)
    low, high = _ranks(stats, column)
    return Overlap(stats.files, *_swept(stats.files.folder_of, low, high), low, high)


def _ranks(stats: StatsColumn, column: str) -> tuple[Int64s, Int64s]:
    """Numbers in the order of the bounds, of all files together."""
    minimum, maximum = stats.minimum, _least_above(stats.minimum, stats.maximum)
    bounds = [column_texts(one, column) for one in (minimum, maximum)]
    ranks = pc.rank(pa.concat_arrays(bounds), tiebreaker="dense").to_numpy().astype(np.int64)
    count = len(stats.files)
    top = 2 * count + 1
    empty = pc.fill_null(pc.equal(stats.null_count, stats.value_count), False)
    has_low, has_high, is_told, is_empty = (
        one.to_numpy(zero_copy_only=False)
        for one in (minimum.is_valid(), maximum.is_valid(), stats.value_count.is_valid(), empty)
    )
    no_low = np.where(is_told & ~has_high, top, 0)
    low = np.where(is_empty | has_low, ranks[:count], no_low)
    return low, np.where(is_empty | has_high, ranks[count:], top)


def _least_above(minimum: pa.Array, maximum: pa.Array) -> pa.Array:
    """The maxima; where both bounds of a text or binary were cut, and but for the end that the
    maximum is raised by are alike, the minimum."""
    kind, t = minimum.type, pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        length, head = pc.utf8_length, pc.utf8_slice_codeunits
    elif t.is_binary(kind) or t.is_large_binary(kind):
        length, head = pc.binary_length, pc.binary_slice
    else:
        return maximum
    is_cut = pc.and_(*(pc.equal(length(one), BOUND_LENGTH) for one in (minimum, maximum)))
    heads = (head(one, 0, BOUND_LENGTH - 1) for one in (minimum, maximum))
    return pc.if_else(pc.fill_null(pc.and_(is_cut, pc.equal(*heads)), False), minimum, maximum)


def _swept(folder: Int32s, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """(depth, files met) of each range: all ends in order, a table partition behind the other. At
    one value ranges end, then single values begin and end, one by one, then ranges begin."""
    count, alone = len(low), low == high
    kind = np.where(alone, 1, [[2], [0]]).ravel()
    single = np.tile(np.where(alone, np.arange(count), 0), 2)
    is_end = np.repeat([0, 1], count)
    keys = is_end, single, kind, np.concatenate([low, high]), np.tile(folder, 2)
    order = np.lexsort(keys)
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    began, ended = (np.cumsum(is_end[order] == number) for number in (0, 1))
    first, last = place[:count], place[count:]
    changed = np.any([np.diff(one[order], prepend=-1) != 0 for one in keys], axis=0)
    starts, group = np.flatnonzero(changed), np.cumsum(changed) - 1  # of ends that are alike
    behind = np.append(starts, 2 * count)[group[first] + 1] - 1
    middle = (behind + starts[group[last]] - 1) // 2
    return (began - ended)[middle], began[last] - ended[first]
