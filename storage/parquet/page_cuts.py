"""Page cuts: which pages of a row group hold the rows that are asked for.

Columns of a row group may begin their pages at different rows. Of each such set of beginnings what
is read is told once (`Picked`), whichever columns have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from metatable.storage.arrays import Int64s
from metatable.storage.parquet.offset_index import OFFSET, ROW, SIZE
from metatable.storage.parquet.page_places import ODD, GroupPages, group_pages
from metatable.storage.parquet.paged_file import START, UNCOMPRESSED, PagedFile
from metatable.storage.store import Store

__all__ = ["NO_ROWS", "Cut", "Picked", "cuts_of", "decoded_bytes"]

NO_ROWS = -1
"""The number of rows that stands for a page that is a dictionary."""


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """What is read of a column of a row group for some of its rows: runs of rows, whole pages."""

    begins: Int64s
    """The first row of each run, in the row group."""
    counts: Int64s
    """How many rows each run has."""
    asked: Int64s
    """How many rows are asked of each run."""
    within: Int64s
    """The places of the rows that are asked, each in its run."""

    @property
    def rows(self) -> int:
        """How many rows are read."""
        return sum(self.counts.tolist())

    @property
    def places(self) -> Int64s:
        """The places of the rows asked among all that are read."""
        return np.repeat(np.cumsum(self.counts) - self.counts, self.asked) + self.within

    @classmethod
    def of(cls, starts: Int64s, end: int, rows: Int64s, ends: Int64s | None = None) -> Picked:
        """What has to be read for these rows, ascending, of pages that begin at the rows `starts`
        and go up to `end`. `ends`: with each row all up to there are read."""
        if len(rows) == 1:  # most often
            place = int(starts.searchsorted(rows[0], "right"))
            begin, last = int(starts[place - 1]), int(starts[place]) if place < len(starts) else end
            if ends is None or ends[0] <= last:
                made = np.array([begin, last - begin, 1, rows[0] - begin], np.int64).reshape(4, 1)
                return cls(*made)
        if ends is not None:
            first, behind = starts.searchsorted(rows, "right"), starts.searchsorted(ends)
            more = [starts[low:high] for low, high in zip(first, behind, strict=True) if low < high]
            rows = np.unique(np.concatenate([rows, *more])) if more else rows
        ends = np.append(starts, end)
        asked = np.diff(rows.searchsorted(ends))  # of each run
        chosen = asked.nonzero()[0]
        begins, asked = starts[chosen], asked[chosen]
        counts = ends[chosen + 1] - begins
        return cls(begins, counts, asked, rows - np.repeat(begins, asked))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Rows that are asked for of one row group, and what is read for them, by the `starts` that
    columns have (`GroupPages`). `number`: whose they are, among those who asked."""

    number: int
    file: PagedFile
    group: int
    pages: GroupPages
    picked: tuple[Picked, ...]

    def of_column(self, column: int) -> Picked:
        return self.picked[int(self.pages.of_column[column])]

    def parts(self, columns: Sequence[int], leaves: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """What is read of these leaves, which are those of the columns: the leaves in some order,
        by their places among these; how many pages of each; and of every page its offset, its
        bytes, and the rows that it should hold."""
        begins, borders = self.file.chunks[self.group, leaves, START], self.pages.borders[leaves]
        first = np.empty((len(leaves), 1, 3), np.int64)
        first[:, 0, OFFSET], first[:, 0, ROW] = begins, NO_ROWS
        first[:, 0, SIZE] = self.pages.pages[borders, OFFSET] - begins
        if self.pages.is_even:
            held = self._held(0, leaves)
            order, counts = np.arange(len(leaves)), np.full(len(leaves), held.shape[1])
            every = np.concatenate([first, held], axis=1).reshape(-1, 3)
        else:
            alike = self._alike(columns, leaves)
            order = np.concatenate([places for places, _ in alike])
            counts = np.concatenate([[held.shape[1]] * len(held) for _, held in alike])
            both = [np.concatenate([first[places], held], axis=1) for places, held in alike]
            every = np.concatenate([one.reshape(-1, 3) for one in both])
        return order, counts + (first[order, 0, SIZE] > 0), every[every[:, SIZE] > 0]  # has bytes

    def _alike(self, columns: Sequence[int], leaves: Int64s) -> list[tuple[Int64s, Int64s]]:
        """Leaves that begin their pages at the same rows, by their places among these, and what is
        read of them: offset, bytes and rows, int64 [leaves, pages, 3]."""
        of = self.pages.of_leaf[leaves]
        numbers = range(len(self.picked))
        alike = [(own, (of == own).nonzero()[0]) for own in numbers]
        made = [(places, self._held(own, leaves[places])) for own, places in alike if len(places)]
        if sum(len(places) for places, _ in made) < len(leaves):
            owners = [one for one in columns for _ in self.file.shape.columns[one]]
            for place in (of == ODD).nonzero()[0].tolist():
                held = self._held_of_odd(owners[place], int(leaves[place]))
                made.append((np.array([place]), held[None]))
        return made

    def _held(self, number: int, leaves: Int64s) -> Int64s:
        """(leaf, run, number): the pages that are read of leaves which begin theirs at the same
        rows."""
        pages, picked = self.pages, self.picked[number]
        own = pages.starts[number].searchsorted(picked.begins)
        held = pages.pages[pages.borders[leaves][:, None] + own]
        held[:, :, ROW] = picked.counts
        return np.asarray(held)

    def _held_of_odd(self, column: int, leaf: int) -> Int64s:
        starts, held = self.pages.starts[self.pages.of_column[column]], self.pages.of(leaf)
        run = starts[np.searchsorted(starts, held[:, ROW], "right") - 1]
        own = np.flatnonzero(np.isin(run, self.of_column(column).begins))
        rows = np.append(held[1:, ROW], self.file.rows[self.group]) - held[:, ROW]
        return np.column_stack([held[own][:, [OFFSET, SIZE]], rows[own]])


def cuts_of(
    store: Store,
    asked: Sequence[tuple[PagedFile, Int64s]],
    ends: Sequence[Int64s] | None = None,
) -> list[Cut]:
    """A file and rows of it, ascending, each; `ends`: with each of them all up to such a row, which
    are of its row group. Raises CorruptError."""
    wanted: list[tuple[PagedFile, int]] = []
    rows: list[tuple[int, Int64s, Int64s | None]] = []
    for number, (file, positions) in enumerate(asked):
        starts = file.starts
        cuts = positions.searchsorted(starts).tolist()
        for group, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                wanted.append((file, group))
                first = starts[group]
                last = None if ends is None else ends[number][low:high] - first
                rows.append((number, positions[low:high] - first, last))
    made = []
    every = zip(wanted, group_pages(store, wanted), rows, strict=True)
    for (file, group), pages, (number, own, last) in every:
        end = int(file.rows[group])
        last = None if pages.is_even else last
        picked = tuple(Picked.of(starts, end, own, last) for starts in pages.starts)
        made.append(Cut(number, file, group, pages, picked))
    return made


def decoded_bytes(cuts: Sequence[Cut], columns: Sequence[int]) -> list[int]:
    """Decoded bytes of what is read of each of these cuts (one at least), about."""
    of = cuts[0].file.shape.columns
    plain = np.array([cut.file.chunks[cut.group, :, UNCOMPRESSED] for cut in cuts])
    sizes = np.stack([plain[:, [*of[one]]].sum(axis=1) for one in columns], axis=1).tolist()
    made = []
    for cut, own in zip(cuts, sizes, strict=True):
        rows, end = [one.rows for one in cut.picked], int(cut.file.rows[cut.group])
        if len(rows) == 1:
            made.append(sum(own) * rows[0] // end)
            continue
        of = cut.pages.of_column[[*columns]].tolist()
        made.append(sum(size * rows[at] for size, at in zip(own, of, strict=True)) // end)
    return made
