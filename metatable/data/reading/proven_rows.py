"""Rows of keys that are known to be there: their pages of all columns are read at once.

The bounds of the pages of keys tell of most keys the one page that may hold them. If an index has
proven that a key is there, that page holds it; and where all columns begin their pages at the same
rows, theirs are known as well before the key was found. So there is one step for a file, and far
away one request less after another. Bounds have no checksum: where a key is not found, and wherever
this way is not open (logs, pages by bytes, a key between pages), `keyed_rows.py` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.stored_columns import IDS_ARE_OURS, AskedColumns, StoredColumns
from metatable.data.reading.keyed_rows import (
    Asked,
    paged_for_rows,
    raw_texts,
    rows_of_keys,
    together,
)
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.chosen_pages import read_found
from metatable.storage.parquet.page_places import KeyPages, Wanted, key_pages
from metatable.storage.parquet.paged_file import PagedFile, Shape
from metatable.storage.store import Store

__all__ = ["rows_of_proven_keys"]

_Sought = tuple[PagedFile, KeyPages, Wanted]


def rows_of_proven_keys(
    store: Store, asked: Sequence[Asked], read: ReadColumns
) -> Iterator[pa.Table]:
    """What `rows_of_keys` gives, at once where that is possible. Raises CorruptError."""
    for some in together(asked):
        try:
            made = _at_once(store, some, read)
        except CorruptError:  # of what may not be needed
            made = [None] * len(some)
        left = [one for one, rows in zip(some, made, strict=True) if rows is None]
        others = rows_of_keys(store, left, read)
        yield from (next(others) if rows is None else rows for rows in made)


def _at_once(store: Store, asked: Sequence[Asked], read: ReadColumns) -> list[pa.Table | None]:
    """The rows of each slice, None where they have to be read the ordinary way."""
    made: list[pa.Table | None] = [None] * len(asked)
    for some in _alike(store, asked):
        rows = _read(store, [*some.values()], read)
        for place, own in zip(some, rows, strict=True):
            made[place] = own
    return made


def _alike(store: Store, asked: Sequence[Asked]) -> list[dict[int, _Sought]]:
    """Those whose keys are in one page each, by their place; files of one shape together."""
    sure = [place for place, one in enumerate(asked) if _is_proven(one)]
    files = zip(sure, paged_for_rows(store, [asked[place] for place in sure]), strict=True)
    known = [(place, file) for place, file in files if file is not None]
    bounds = key_pages(store, [file for _, file in known], KEY_COLUMN)
    alike: dict[tuple[Shape, bool], dict[int, _Sought]] = {}
    for (place, file), pages in zip(known, bounds, strict=True):
        if pages is None:
            continue
        texts = sorted(set(raw_texts(asked[place].keys)))
        wanted = pages.wanted(texts)
        if sum(map(len, wanted.values())) == len(texts):
            form = file.shape, IDS_ARE_OURS.encode() in file.words
            alike.setdefault(form, {})[place] = file, pages, wanted
    return [*alike.values()]


def _is_proven(asked: Asked) -> bool:
    is_base = asked.of.has_base and not asked.of.logs
    return is_base and asked.are_there and asked.positions is None


def _read(store: Store, sought: Sequence[_Sought], read: ReadColumns) -> list[pa.Table | None]:
    """The rows of each file; None where they are not to be had so."""
    nothing: list[pa.Table | None] = [None] * len(sought)
    schema, file = read.schema, sought[0][0]
    place = schema.get_field_index(read.key)
    others = schema if place < 0 else schema.remove(place)
    stored = StoredColumns.of_schema(file.shape.schema, file.words, file.path)
    asked = AskedColumns.of(stored, others, read.table)
    found = read_found(store, sought, KEY_COLUMN, asked.names) if asked.names else None
    if found is None:
        return nothing
    counts, keys, table = found
    rows = asked.of_table(table)
    if place >= 0:
        rows = rows.add_column(place, schema.field(place), keys.cast(pa.string()))
    made, start, texts = nothing, 0, raw_texts(keys)
    for number, (count, (*_, wanted)) in enumerate(zip(counts, sought, strict=True)):
        if len(set(texts[start : start + count])) == sum(map(len, wanted.values())):
            made[number] = rows.slice(start, count)
        start += count
    return made
