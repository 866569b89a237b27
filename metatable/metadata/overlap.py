"""Overlap: how many files hold one value of a column, told from the column's bounds alone.

A file's *depth* is how many files of its table partition, itself included, hold the value in the
middle of its range; it *meets* those whose ranges have a part in common with its own. What only
touch, the one ending with the value that the other begins with, share no part. A file without
bounds may hold any value; one of a single value, or of nulls alone, has no part to share.

    16 files of random keys      depth 14 or so
    the same, cut by the key     depth 1
    cut by two columns           depth 4, of each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_system_view import FileSystemView
from metatable.data.key_texts import KEY
from metatable.data.options import Options
from metatable.data.schema_text import TableSchema
from metatable.data.sort_texts import check_sortable, column_texts
from metatable.metadata.view import StatsColumn, TableView
from metatable.metadata.written import stats_columns
from metatable.storage.errors import UsageError

__all__ = ["Overlap", "check_clustered", "mean_depths", "overlap"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """Of one column: depth and number of files met, a row each of `files`; `low` and `high` are
    numbers in the order of the bounds."""

    files: FileSystemView
    depth: Numbers
    meets: Numbers
    low: Numbers
    high: Numbers

    def met(self, row: int) -> npt.NDArray[np.bool_]:
        """Which files share a part of this one's range, itself included."""
        files = self.files.folder_of
        shares = (self.low < self.high[row]) & (self.low[row] < self.high)
        shares[row] = True
        return np.asarray(shares & (files == files[row]))

    def among(self, rows: Numbers) -> Numbers:
        """The depth of some files, as if there were no others."""
        return _swept(self.files.folder_of[rows], self.low[rows], self.high[rows])[0]


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


def _ranks(stats: StatsColumn, column: str) -> tuple[Numbers, Numbers]:
    """Numbers in the order of the bounds, of all files together."""
    bounds = [column_texts(one, column) for one in (stats.minimum, stats.maximum)]
    ranks = pc.rank(pa.concat_arrays(bounds), tiebreaker="dense").to_numpy().astype(np.int64)
    count = len(stats.files)
    empty = pc.fill_null(pc.equal(stats.null_count, stats.value_count), False)
    told = pc.or_(empty, pc.and_(stats.minimum.is_valid(), stats.maximum.is_valid()))
    known = told.to_numpy(zero_copy_only=False)
    return np.where(known, ranks[:count], 0), np.where(known, ranks[count:], 2 * count + 1)


def _swept(folder: npt.NDArray[np.int32], low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
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
