"""Chosen pages: rows of paged files by their positions, without their neighbours of other pages.

The pages that hold them (`page_cuts.py`) are read and checked (`stored_pages.py`), of all columns
together, and then taken apart column by column (`column_pages.py`, `pages_together.py`).

    memory    some PORTION_BYTES of decoded pages, or those of one row group
    damage    that of pages; a column comes back with as many rows as its pages hold
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.parquet.column_pages import TEXTS_OF_A_PAGE, ColumnPages
from metatable.storage.parquet.page_cuts import Cut, cuts_of, decoded_bytes
from metatable.storage.parquet.page_places import KeyPages, Wanted
from metatable.storage.parquet.page_runs import Runs
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.pages_together import found_with_columns, rows_of_columns
from metatable.storage.parquet.stored_pages import Pages, checked, read_pages
from metatable.storage.portions import in_portions
from metatable.storage.store import Store

__all__ = ["find_rows", "read_found", "read_rows"]

PORTION_BYTES = 64 << 20
"""Bytes of decoded pages that are held at once."""

AHEAD_BYTES = 512 << 10
"""Stored bytes of pages of keys from which on they are read before those of other columns: with
fewer, making the steps twice takes longer than what goes on meanwhile."""


def read_rows(
    store: Store, asked: Sequence[tuple[PagedFile, Int64s]], names: Sequence[str]
) -> pa.Table:
    """These columns, one at least, of rows of files of one shape: a file and positions in it,
    ascending. Rows come in this order. Raises CorruptError."""
    shape = asked[0][0].shape
    columns = [shape.names.index(name) for name in names]
    schema = pa.schema([shape.schema.field(column) for column in columns])
    tables = [schema.empty_table()]
    for cuts in _portions(cuts_of(store, asked), columns):
        made = [*rows_of_columns(_read(store, cuts, columns))]
        tables.append(pa.table(made, schema=schema))
    return pa.concat_tables(tables)


def find_rows(
    store: Store, asked: Sequence[tuple[PagedFile, KeyPages, Wanted]], name: str
) -> list[tuple[Int64s, pa.Array]]:
    """For each of these files, which are of one shape, (rows, their texts in this column).

    All rows are among them whose text is wanted of their page; rows are ascending. Raises
    CorruptError.
    """
    shape = asked[0][0].shape
    columns = [shape.names.index(name)]
    found: list[list[tuple[Int64s, pa.Array]]] = [[] for _ in asked]
    every, texts = _cuts_of_texts(store, asked)
    for cuts in _portions(every, columns):
        [read] = _read(store, cuts, columns)
        for cut, (own, held) in zip(cuts, read.rows_with(texts), strict=True):
            found[cut.number].append((own + cut.file.starts[cut.group], held))
    none = pa.array([], shape.schema.field(columns[0]).type)
    return [
        (
            np.concatenate([np.empty(0, np.int64), *(one for one, _ in own)]),
            pa.concat_arrays([none, *(held for _, held in own)]),
        )
        for own in found
    ]


def read_found(
    store: Store,
    asked: Sequence[tuple[PagedFile, KeyPages, Wanted]],
    name: str,
    names: Sequence[str],
) -> tuple[list[int], pa.Array, pa.Table] | None:
    """Rows of these files, which are of one shape, that have a text in the column `name` that is
    wanted of a page, and other columns of them: all is read at once. How many there are of each
    file, the texts that they have (binary), and the columns, one at least, in the order of files
    and rows. None where so much is wanted of them that they are better decoded. Raises
    CorruptError."""
    shape = asked[0][0].shape
    columns = [shape.names.index(one) for one in (name, *names)]
    schema = pa.schema([shape.schema.field(column) for column in columns[1:]])
    pages = sum(len(wanted) for *_, wanted in asked)
    if sum(len(own) for *_, wanted in asked for own in wanted.values()) > TEXTS_OF_A_PAGE * pages:
        return None
    every, texts = _cuts_of_texts(store, asked)
    counts, held, tables = np.zeros(len(asked), np.int64), [], [schema.empty_table()]
    for cuts in _portions(every, columns):
        runs, own, made = _found(store, cuts, columns, texts)
        owners = np.repeat([cut.number for cut in cuts], runs.of_cut)[runs.of]
        counts += np.bincount(owners, minlength=len(asked))
        held.append(own.cast(pa.binary()))
        tables.append(pa.table(made, schema=schema))
    return counts.tolist(), pa.concat_arrays(held), pa.concat_tables(tables)


def _cuts_of_texts(
    store: Store, asked: Sequence[tuple[PagedFile, KeyPages, Wanted]]
) -> tuple[list[Cut], list[dict[int, list[bytes]]]]:
    """What is read of files for pages that may have what is wanted; of each file what that is, by
    the first rows of its pages."""
    firsts = [pages.starts[[*wanted]] for _, pages, wanted in asked]
    own = zip(firsts, asked, strict=True)
    texts = [dict(zip(rows.tolist(), wanted.values(), strict=True)) for rows, (*_, wanted) in own]
    rows = [(file, np.unique(first)) for (file, *_), first in zip(asked, firsts, strict=True)]
    ends = [_ends_of(pages, first) for (_, pages, _), (_, first) in zip(asked, rows, strict=True)]
    return cuts_of(store, rows, ends), texts


def _ends_of(pages: KeyPages, rows: Int64s) -> Int64s:
    """The rows at which pages end that begin at these; one of no rows ends with the next one."""
    return np.asarray(pages.starts[pages.starts.searchsorted(rows, "right")])


def _portions(cuts: Sequence[Cut], columns: Sequence[int]) -> Iterator[list[Cut]]:
    sizes = decoded_bytes(cuts, columns) if cuts else []
    sized = zip(cuts, sizes, strict=True)
    for portion in in_portions(sized, lambda one: one[1], PORTION_BYTES):
        yield [cut for cut, _ in portion]


def _read(store: Store, cuts: Sequence[Cut], columns: Sequence[int]) -> Iterator[ColumnPages]:
    """The pages of each column."""
    return _columns(store, Pages.of_cuts(cuts, columns), columns)


def _found(
    store: Store,
    cuts: Sequence[Cut],
    columns: Sequence[int],
    texts: Sequence[dict[int, list[bytes]]],
) -> tuple[Runs, pa.Array, list[pa.Array]]:
    """Rows that have one of the texts in the first column, which has one leaf, and what the others
    have there. Near by its pages are decompressed while theirs are read."""
    pages = Pages.of_cuts(cuts, columns)
    first, behind = pages.parted(len(cuts))
    if store.is_distant or first.stored_bytes < AHEAD_BYTES:
        keys, *others = _columns(store, pages, columns)
        return found_with_columns(keys, others, texts)
    [keys] = _columns(store, first, columns[:1])
    begun = keys.begun()
    return found_with_columns(keys, [*_columns(store, behind, columns[1:])], texts, begun)


def _columns(store: Store, pages: Pages, columns: Sequence[int]) -> Iterator[ColumnPages]:
    """The columns that these pages are of."""
    cuts = pages.cuts
    bodies = read_pages(store, pages)
    sums, headers = checked(pages, bodies)
    leaves = [len(cuts[0].file.shape.columns[column]) for column in columns]
    parts = np.cumsum([0, *leaves]) * len(cuts)
    borders = zip(parts.tolist(), np.searchsorted(pages.of, parts).tolist(), strict=True)
    made: dict[tuple[int, ...], Runs] = {}
    for column, ((low, first), (high, end)) in zip(columns, pairwise(borders), strict=True):
        picked = [cut.of_column(column) for cut in cuts]
        names = tuple(map(id, picked))
        runs = made.get(names) or Runs.of_picked(picked)
        made[names] = runs  # columns whose pages hold the same rows share them
        own = slice(first, end)
        yield ColumnPages(cuts, column, runs, pages, headers, bodies, own, sums[low:high])
