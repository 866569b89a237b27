"""Page runs: the rows that are read of a column, run by run, and which of them are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metatable.storage.arrays import Int64s
from metatable.storage.parquet.page_cuts import Picked

__all__ = ["Runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The runs of rows of a column that are read, of all cuts; a page each, where it has one leaf.
    `of_cut`: how many runs of each cut; `begins`: the first row of each in its row group, and
    `counts` how many; `of`: of each row asked the run, and `within` the place in it."""

    of_cut: Int64s
    begins: Int64s
    counts: Int64s
    of: Int64s
    within: Int64s

    @classmethod
    def of_picked(cls, picked: Sequence[Picked]) -> Runs:
        of_cut = np.array([len(one.begins) for one in picked], np.int64)
        told = [(one.begins, one.counts, one.asked, one.within) for one in picked]
        begins, counts, asked, within = (np.concatenate(one) for one in zip(*told, strict=True))
        return cls(of_cut, begins, counts, np.repeat(np.arange(len(asked)), asked), within)

    def with_rows_of(self, other: Runs) -> Runs:
        """These with the rows that another column is asked for, which are all in them."""
        if self.begins is other.begins:
            return replace(self, of=other.of, within=other.within)
        (own, cuts) = (np.repeat(np.arange(len(one.of_cut)), one.of_cut) for one in (self, other))
        rows = other.begins[other.of] + other.within
        step = 1 + max(int(one.begins.max(initial=0)) for one in (self, other))
        step += int(other.counts.max(initial=0))
        asked = cuts[other.of] * step + rows
        of = (own * step + self.begins).searchsorted(asked, "right") - 1
        return replace(self, of=of, within=rows - self.begins[of])

    @property
    def rows_of_cuts(self) -> Int64s:
        """How many rows are read of each cut."""
        ends = np.cumsum(self.counts)[np.cumsum(self.of_cut) - 1]
        return np.diff(ends, prepend=0)

    @property
    def places(self) -> Int64s:
        """The places of the rows asked among all that are read."""
        return np.asarray((np.cumsum(self.counts) - self.counts)[self.of] + self.within)

    @property
    def rows(self) -> Int64s:
        """All rows that are read, in their row group."""
        before = np.cumsum(self.counts) - self.counts
        rows = np.repeat(self.begins - before, self.counts)
        return np.asarray(rows + np.arange(len(rows)))
