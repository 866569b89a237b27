"""Columns of a row group of which only some pages are made anew: those that hold rows that change.

Their pages are read, decoded and encoded without their neighbours, and put in the places of the old
ones (`storage/parquet/exchanged.py`). That pays where most pages have no such row. It is asked for
columns whose pages need no dictionary, one of which begins with every PAGE_ROWS rows, as of ours;
all others, and whatever is not as it should be, are left to who decodes the whole column, and finds
what is wrong. Rows that are between two such places, a block, go together in all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.base_file_writer import PAGE_ROWS
from metatable.data.base_files.spliced_file import StoredParts
from metatable.data.rows.merge import changed_columns, put_columns
from metatable.data.rows.taking import taken, whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.exchanged import Exchange, Gone, exchanged, is_exchangeable
from metatable.storage.parquet.offset_index import ROW
from metatable.storage.parquet.page_places import group_pages
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.parts import Chunk

__all__ = ["MOST_PAGES", "NOT_EXCHANGED", "ExchangedColumns", "Hit", "are_few", "exchanged_columns"]

MOST_PAGES = 1 / 3
"""Of a column: with more of them, its neighbours cost little more."""


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """In a row group, `rows` take the places (in it, ascending) of as many."""

    group: int
    places: Int64s
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class ExchangedColumns:
    """What became of columns of a row group: `chunks` of those that changed, and the names of all
    that need not be looked at any more."""

    chunks: tuple[Chunk, ...] = ()
    done: frozenset[str] = frozenset()


NOT_EXCHANGED = ExchangedColumns()


def are_few(places: Int64s, count: int) -> bool:
    """Whether rows of a row group of so many are in few of its blocks."""
    return len(np.unique(places // PAGE_ROWS)) <= MOST_PAGES * -(-count // PAGE_ROWS)


def exchanged_columns(
    held: StoredParts, file: PagedFile | None, hits: Sequence[Hit]
) -> list[ExchangedColumns]:
    """For each of the hits, what became of the columns of its rows.

    `file`: the same file as `held`, as one of which single pages are read; None where its pages are
    not told, and nothing is exchanged. `hits`: of rows that `are_few`, one a row group, ascending.

    The pages of all hits that are made anew are held decoded at once. Row groups are looked at
    together: what a call of pyarrow takes is more than what it does for ten pages.
    """
    nothing = [NOT_EXCHANGED for _ in hits]
    if file is None or not hits:
        return nothing
    try:
        places = _Places.of(held, file, hits)
        return _exchanged(held, file, hits, places) if places.names else nothing
    except CorruptError:  # of what may not be needed; else who reads all will say so
        return nothing


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the pages lie that can be exchanged, in all of the row groups that are hit.

    `names` of the columns; for each hit, by column, its chunk (`chunks`) and the places of all of
    its pages (`pages`, a row a page, as `offset_index.py` has them).
    """

    names: tuple[str, ...]
    chunks: tuple[dict[str, Chunk], ...]
    pages: tuple[dict[str, Int64s], ...]

    @classmethod
    def of(cls, held: StoredParts, file: PagedFile, hits: Sequence[Hit]) -> _Places:
        """Of columns whose values are ordered as they are stored, whose chunks can take other pages
        (`is_exchangeable`), and of which each block begins with a page. Raises CorruptError."""
        chunks = [{one.leaf.name: one for one in held.groups[hit.group]} for hit in hits]
        kinds = {one.name: one.type for one in file.shape.schema}
        names = [
            one.name
            for one in hits[0].rows.schema
            if _is_ordered(one.type)
            and kinds.get(one.name) == one.type
            and all(is_exchangeable(own[one.name]) for own in chunks)
        ]
        found = group_pages(held.store, [(file, hit.group) for hit in hits]) if names else []
        shape = file.shape
        leaves = dict(zip(shape.names, (one.start for one in shape.columns), strict=True))
        pages = [{name: own.of(leaves[name]) for name in names} for own in found]
        counts = [int(file.rows[hit.group]) for hit in hits]
        in_step = [
            name
            for name in names
            if all(_are_in_step(own[name], n) for own, n in zip(pages, counts, strict=True))
        ]
        return cls(tuple(in_step), tuple(chunks), tuple(pages))


def _are_in_step(pages: Int64s, count: int) -> bool:
    """Whether each block of a row group of so many rows begins with a page."""
    return bool(np.isin(np.arange(0, count, PAGE_ROWS), pages[:, ROW]).all())


def _exchanged(
    held: StoredParts, file: PagedFile, hits: Sequence[Hit], of: _Places
) -> list[ExchangedColumns]:
    """Read the blocks that are hit, put the rows into them, encode the columns that change, and put
    their pages in the places of the old ones."""
    blocks = [np.unique(hit.places // PAGE_ROWS) for hit in hits]
    counts = [int(file.rows[hit.group]) for hit in hits]
    every = [_rows_of(one, count) for one, count in zip(blocks, counts, strict=True)]
    asked = [one + file.starts[hit.group] for one, hit in zip(every, hits, strict=True)]
    piece = read_rows(held.store, [(file, np.concatenate(asked))], of.names)
    sizes = [len(one) for one in every]
    starts = np.cumsum([0, *sizes])  # of each hit's blocks in the piece
    own = [np.searchsorted(one, hit.places) for one, hit in zip(every, hits, strict=True)]
    here = np.concatenate([one + at for one, at in zip(own, starts[:-1], strict=True)])
    rows = pa.concat_tables([hit.rows.select(of.names) for hit in hits])
    put = np.arange(len(piece))  # as `put_columns` takes it: places from len(piece) on are of rows
    put[here] = len(piece) + np.arange(len(here))
    changed = changed_columns(piece, rows, put)
    if not changed:
        return [ExchangedColumns((), frozenset(of.names)) for _ in hits]
    made = held.encoded_groups(put_columns(piece, rows, put, changed), sizes)
    gone = taken(piece.select(changed), pa.array(here))
    taken_before = np.cumsum([0, *map(len, own)]).tolist()
    exchanges = [
        Exchange(
            of.chunks[at][name],
            of.pages[at][name],
            _pages_of(blocks[at], of.pages[at][name]),
            by,
            _gone(
                gone[name].slice(taken_before[at], len(own[at])),
                piece[name].slice(starts[at], sizes[at]).null_count,
            ),
        )
        for at, group in enumerate(made)
        for name, by in zip(changed, group, strict=True)
    ]
    found = iter(exchanged(exchanges))
    return [_outcome(of.names, changed, [next(found) for _ in changed]) for _ in hits]


def _rows_of(blocks: Int64s, count: int) -> Int64s:
    """The rows of these blocks of a row group of so many."""
    every = (blocks[:, None] * PAGE_ROWS + np.arange(PAGE_ROWS)).reshape(-1)
    return np.asarray(every[every < count])


def _pages_of(blocks: Int64s, places: Int64s) -> Int64s:
    """Which pages of a column hold the rows of these blocks, where its pages lie at `places`."""
    return np.flatnonzero(np.isin(places[:, ROW] // PAGE_ROWS, blocks))


def _outcome(
    names: Sequence[str], changed: Sequence[str], found: Sequence[Chunk | None]
) -> ExchangedColumns:
    """For a row group: its chunks of the columns that changed, None of those that are left to who
    decodes the whole column."""
    left = {name for name, one in zip(changed, found, strict=True) if one is None}
    return ExchangedColumns(tuple(filter(None, found)), frozenset(names) - left)


def _gone(values: pa.ChunkedArray, nulls: int) -> Gone:
    """What leaves a column of a row group: the least and the greatest of these values, as they are
    stored, and how many nulls were in the pages that go."""
    kind = values.type
    if pa.types.is_string(kind):
        values = values.cast(pa.binary())
    elif not pa.types.is_binary(kind) and not pa.types.is_floating(kind):
        values = whole(values).view(pa.int32() if kind.bit_width == 32 else pa.int64())
    ends: dict[str, Any] = pc.min_max(values).as_py()
    return Gone(ends["min"], ends["max"], nulls)


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether values are stored as they are, and compare as what is stored does."""
    t = pa.types
    is_kind = (t.is_int32, t.is_int64, t.is_float32, t.is_float64, t.is_date32, t.is_time64)
    return any(one(kind) for one in (*is_kind, t.is_timestamp, t.is_string, t.is_binary))
