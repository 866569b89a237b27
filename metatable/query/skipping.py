"""Skipping: which files of a version may hold a row for which a predicate is true.

Two levels, each in columns over all files at once: first the partition columns, whose values
stand in the partition path; then `column_stats`, of the partitions that are left. A file is
dropped only where bounds prove that the predicate is true of none of its rows (`bounds.py`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from metatable.data.columns.schema import META_FIELDS
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.metadata.view import FEW_PARTITIONS, TableView
from metatable.query.bounds import Bounds, may_hold, partition_bounds
from metatable.query.expressions import Expression
from metatable.query.predicates import columns_of
from metatable.storage.arrays import Bools, Int64s

__all__ = ["Selection", "keep_files"]

_log = logging.getLogger("metatable.query")


@dataclass(frozen=True, slots=True)
class Selection:
    """The files of a version, and the ordinals of those left after each level, ascending.

    `row_counts`: of those left at the end, as far as the statistics that were read tell; else -1.
    """

    slices: FileSystemView
    after_partitions: Int64s
    after_statistics: Int64s
    row_counts: Int64s

    def files(self) -> FileSystemView:
        """The files to read, by partition path and file name."""
        return self.slices.take(self.after_statistics)

    def of_bases(self) -> Selection:
        """The selection without slices that are logs alone."""
        based = ~self.slices.alone[self.after_statistics]
        kept, counts = self.after_statistics[based], self.row_counts[based]
        return replace(self, after_statistics=kept, row_counts=counts)


def keep_files(bound: Expression | None, view: TableView) -> Selection:
    """The files that may hold a row for which the (bound) expression is true; None: all."""
    named = [] if bound is None else columns_of(bound)
    others = [name for name in named if name not in view.options.partition_by]
    if others and others == named:  # of all files, which are read beside them
        slices = view.stats(others[0], _kind(view, others[0])).files
    else:
        slices = view.slices()
    every = np.arange(len(slices))
    unknown = np.full(len(slices), -1)
    if bound is None or not len(slices):
        return Selection(slices, every, every, unknown)
    folders = partition_bounds(view.options, view.schema, slices.folders)
    folders = {name: folders[name] for name in named if name in folders}
    wanted = may_hold(bound, len(slices.folders), folders.get)
    left = every if wanted.all() else np.flatnonzero(wanted[slices.folder_of])
    if not len(left) or not others:
        return Selection(slices, left, left, unknown[left])
    known = {name: one.take(slices.folder_of[left]) for name, one in folders.items()}
    paths = _few_paths(slices, np.flatnonzero(wanted))
    if paths is not None:
        view.hold_stats(others, paths)
    for name in others:
        known[name] = _statistics(view, slices, name, left, paths)
    kept = may_hold(bound, len(left), known.get)
    told = "%d files, %d after partitions, %d after statistics"
    _log.debug(told, len(slices), len(left), int(kept.sum()))
    counts = _row_counts(known[others[0]], slices.has_logs[left])
    return Selection(slices, left, left[kept], counts[kept])


def _row_counts(bounds: Bounds, has_logs: Bools) -> Int64s:
    """Rows of each slice, -1 where they are not known: keys of a log may be in its base, too."""
    counts: Int64s = bounds.value_count.cast(pa.int64()).fill_null(-1).to_numpy()
    return np.where(has_logs, -1, counts)


def _few_paths(slices: FileSystemView, folders: Int64s) -> list[str] | None:
    """The paths of these partitions, where they are few, and not all; else None."""
    if len(folders) == len(slices.folders) or len(folders) > FEW_PARTITIONS:
        return None
    return slices.folders.take(pa.array(folders)).to_pylist()  # type: ignore[no-any-return]


def _statistics(
    view: TableView, slices: FileSystemView, column: str, rows: Int64s, paths: list[str] | None
) -> Bounds:
    """A column's bounds in the files `rows`, which are all those of the partitions `paths`, or,
    where these are not told, some of all."""
    bounds = Bounds.of(*view.stats(column, _kind(view, column), paths).columns)
    return bounds if paths is not None or len(rows) == len(slices) else bounds.take(rows)


def _kind(view: TableView, column: str) -> pa.DataType:
    """The type of a column of the table, or of Hudi's own."""
    return next(field.type for field in (*META_FIELDS, *view.schema) if field.name == column)
