"""Columns of a row group of which only some pages are made anew: those that hold rows that change.

Their pages are read, decoded and encoded without their neighbours, and put in the places of the old
ones (`storage/parquet/exchanged.py`). That pays where most pages have no such row. It is asked for
columns whose pages need no dictionary and have PAGE_ROWS rows each, as ours have; all others, and
whatever is not as it should be, are left to who decodes the whole column, and finds what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_file import PAGE_ROWS
from metatable.data.merge import changed_columns, put_columns
from metatable.data.spliced_file import StoredParts
from metatable.data.taking import taken, whole
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.exchanged import Gone, exchanged, is_exchangeable
from metatable.storage.parquet.offset_index import ROW
from metatable.storage.parquet.page_places import group_pages
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.parts import Chunk

__all__ = ["ExchangedColumns", "exchanged_columns"]

Numbers = npt.NDArray[np.int64]

MOST_PAGES = 1 / 3
"""Of a column: with more of them, its neighbours cost little more."""


@dataclass(frozen=True, slots=True)
class ExchangedColumns:
    """What became of columns of a row group: `chunks` of those that changed, and the names of all
    that need not be looked at any more."""

    chunks: tuple[Chunk, ...] = ()
    done: frozenset[str] = frozenset()


def exchanged_columns(
    held: StoredParts, file: PagedFile | None, group: int, places: Numbers, rows: pa.Table
) -> ExchangedColumns:
    """`rows` take the places (in the row group, ascending) of as many; of which columns that is
    done here. `file`: the same one, None where its pages are not told."""
    if file is None:
        return ExchangedColumns()
    chunks = {one.leaf.name: one for one in held.parts.chunks(group)}
    kinds = {one.name: one.type for one in file.shape.schema}
    names = [
        one.name
        for one in rows.schema
        if _is_ordered(one.type)
        and kinds.get(one.name) == one.type
        and is_exchangeable(chunks[one.name])
    ]
    pages = np.unique(places // PAGE_ROWS)
    count = -(-int(file.rows[group]) // PAGE_ROWS)
    if not names or len(pages) > MOST_PAGES * count:
        return ExchangedColumns()
    try:
        names = _in_step(held, file, group, names, count)
        return _exchanged(held, file, group, places, rows.select(names), pages, chunks)
    except CorruptError:  # of what may not be needed; else who reads all will say so
        return ExchangedColumns()


def _in_step(
    held: StoredParts, file: PagedFile, group: int, names: Sequence[str], count: int
) -> list[str]:
    """Those of which each page but the last has PAGE_ROWS rows."""
    [pages] = group_pages(held.store, [(file, group)])
    shape, firsts = file.shape, np.arange(count) * PAGE_ROWS
    leaves = dict(zip(shape.names, (one.start for one in shape.columns), strict=True))
    return [one for one in names if np.array_equal(pages.of(leaves[one])[:, ROW], firsts)]


def _exchanged(
    held: StoredParts,
    file: PagedFile,
    group: int,
    places: Numbers,
    rows: pa.Table,
    pages: Numbers,
    chunks: dict[str, Chunk],
) -> ExchangedColumns:
    names = rows.column_names
    if not names:
        return ExchangedColumns()
    every = (pages[:, None] * PAGE_ROWS + np.arange(PAGE_ROWS)).reshape(-1)
    every = every[every < file.rows[group]]
    piece = read_rows(held.store, [(file, every + file.starts[group])], names)
    here = np.searchsorted(every, places)
    put = np.arange(len(every))
    put[here] = len(every) + np.arange(len(here))
    changed = changed_columns(piece, rows, put)
    made = held.encoded(put_columns(piece, rows, put, changed), ()) if changed else ()
    gone = taken(piece.select(changed), pa.array(here))
    found = [
        exchanged(chunks[name], pages, by, _gone(gone[name], piece[name].null_count))
        for name, by in zip(changed, made, strict=True)
    ]
    left = {name for name, one in zip(changed, found, strict=True) if one is None}
    return ExchangedColumns(tuple(filter(None, found)), frozenset(names) - left)


def _gone(values: pa.ChunkedArray, nulls: int) -> Gone:
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
