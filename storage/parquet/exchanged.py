"""Exchanged pages: a column chunk of which some pages are others, and the rest is as it was.

Where few rows of a row group change, most pages of a column do not. They can stay beside new ones
where no page needs a dictionary: all are PLAIN then. Between pages of a dictionary a PLAIN one is
allowed by the format, and read wrongly by Spark; such chunks are encoded whole.

    pages          one comes for each that goes, of as many rows
    column index   bounds of the new pages take the places of the old ones'; pages are in no order
    offset index   is made anew
    statistics     of the chunk: exact, without a look at the pages that stay. A bound stays where
                   no value that went was it, or where one that came is at least as far out; else
                   only who reads all values knows it, and the chunk is not made (None)
    sizes          of values, by kind of level, which need not be told, are left out

Pages that are copied are checked as those of other chunks are: when they are written (`splice.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, pairwise
from typing import Any

import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Bounds, Column, Meta, Statistics
from metatable.storage.parquet.offset_index import (
    OFFSET,
    ROW,
    SIZE,
    decode_offset_indexes,
    encoded_offset_index,
)
from metatable.storage.parquet.page_headers import WIDTH, Headers
from metatable.storage.parquet.parts import Chunk, ParquetParts, Raw, Span
from metatable.storage.parquet.splice import read_chunks
from metatable.storage.parquet.thrift import (
    I32,
    I64,
    STRUCT,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)

__all__ = ["Exchange", "Gone", "exchanged", "is_exchangeable"]

Value = int | float | bytes

_INT32, _INT64, _FLOAT, _DOUBLE, _BYTES = 1, 2, 4, 5, 6
_LAYOUTS = {
    _INT32: struct.Struct("<i"),
    _INT64: struct.Struct("<q"),
    _FLOAT: struct.Struct("<f"),
    _DOUBLE: struct.Struct("<d"),
}
_PLAIN, _LEVELS = 0, 3
"""Encodings of values, and of levels."""
_UNORDERED = 0

_OF_PAGES = (Bounds.IS_NULL, Bounds.LEAST, Bounds.GREATEST)
_KNOWN_BOUNDS = {*range(1, Bounds.LAST + 1)}
_TOLD = {Statistics.NULLS, Statistics.GREATEST, Statistics.LEAST}
_KNOWN_STATISTICS = _TOLD | {
    Statistics.OLD_GREATEST,
    Statistics.OLD_LEAST,
    Statistics.GREATEST_IS_EXACT,
    Statistics.LEAST_IS_EXACT,
}


@dataclass(frozen=True, slots=True)
class Gone:
    """Values that are in a chunk no more: the least and the greatest of them (None: all are null),
    numbers as they are stored; and how many nulls there were in the pages that went."""

    least: Value | None
    greatest: Value | None
    nulls: int


def is_exchangeable(chunk: Chunk) -> bool:
    """Whether pages of it can be: it is of one level and one value a row, has no dictionary, and
    tells places and bounds of its pages, and its own."""
    meta, told = chunk.meta, chunk.meta.get(Meta.STATISTICS)
    if len(chunk.leaf.path) > 1 or chunk.leaf.is_repeated or chunk.has_dictionary:
        return False
    numbers = (meta.get(Meta.TYPE), meta.get(Meta.CODEC), *meta[Meta.ENCODINGS])
    if not all(type(one) is int for one in numbers):
        return False
    if not {*meta[Meta.ENCODINGS]} <= {_PLAIN, _LEVELS} or Meta.SHAPES in meta:
        return False
    if meta.get(Meta.TYPE) not in {*_LAYOUTS, _BYTES} or not isinstance(told, Struct):
        return False
    index = chunk.page_index
    if not index or not index[0][1] or not _TOLD <= told.keys() <= _KNOWN_STATISTICS:
        return False
    return type(told[Statistics.NULLS]) is int


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """In a chunk that is exchangeable, and whose pages lie at `places` (OFFSET, SIZE, ROW), all
    pages of `by` come for these of its own (numbers, ascending)."""

    chunk: Chunk
    places: Int64s
    pages: Int64s
    by: Chunk
    gone: Gone


def exchanged(asked: Sequence[Exchange]) -> list[Chunk | None]:
    """The chunk that each makes. None: it is to be encoded whole."""
    both = [one.chunk for one in asked], [one.by for one in asked]
    raws = [*zip(*map(read_chunks, both), strict=True)]
    counts, places = decode_offset_indexes([raw[2] for _, raw in raws])
    ends = np.cumsum(counts.clip(0)).tolist()
    come = [places[lo:hi] for lo, hi in pairwise([0, *ends])]
    plain = _plain_sizes(asked, [raw[0] for raw, _ in raws])
    return [
        None if size is None else _exchanged(each, own, size, *raw)
        for each, own, size, raw in zip(asked, come, plain, raws, strict=True)
    ]


def _exchanged(
    asked: Exchange, new: Int64s, plain: int, into: Sequence[Raw], of: Sequence[Raw]
) -> Chunk | None:
    """`new`: where its pages lie that come. `plain`: bytes of those that go, before they were
    compressed. `into` and `of`: the chunk and the other one, their bytes and column indexes."""
    chunk, by, old, pages = asked.chunk, asked.by, asked.places, asked.pages
    told = _statistics(chunk, by, asked.gone) if is_exchangeable(by) else None
    if told is None or by.meta[Meta.CODEC] != chunk.meta[Meta.CODEC]:
        return None
    if not len(new) or not _fits(by, new, np.arange(len(pages))):
        return None
    if not np.array_equal(_rows(old, chunk.rows)[pages], _rows(new, by.rows)):
        return None
    bounds = _bounds(chunk, into[1], of[1], pages, len(old))
    if bounds is None:
        return None
    body = _body(asked, into[0], of[0], new)
    sizes = old[:, SIZE].copy()
    sizes[pages] = new[:, SIZE]
    places = np.stack([chunk.offset + np.cumsum(sizes) - sizes, sizes, old[:, ROW]], axis=1)
    uncompressed = chunk.uncompressed - plain + by.uncompressed
    return _made(chunk, told, uncompressed, body, bounds, encoded_offset_index(places))


def _fits(chunk: Chunk, places: Int64s, pages: Int64s) -> bool:
    """Whether the pages of a chunk lie one behind the other and fill it, and these are among
    them."""
    ends = places[:, OFFSET] + places[:, SIZE]
    fill = np.append(places[:, OFFSET], chunk.offset + chunk.size)
    is_filled = fill[0] == chunk.offset and np.array_equal(ends, fill[1:])
    is_sound = is_filled and (places[:, SIZE] > 0).all() and places[0, ROW] == 0
    return bool(is_sound and len(pages) and pages[-1] < len(places))


def _rows(places: Int64s, rows: int) -> Int64s:
    """How many rows each page has, in a chunk of so many `rows`."""
    return np.diff(np.append(places[:, ROW], rows))


def _plain_sizes(asked: Sequence[Exchange], raws: Sequence[Raw]) -> list[int | None]:
    """Bytes of the pages that go before they were compressed, headers included. None: they do not
    lie where they should, or cannot be read, which `splice` will tell."""
    fits = [_fits(one.chunk, one.places, one.pages) for one in asked]
    going = [one.places[one.pages] for one, fit in zip(asked, fits, strict=True) if fit]
    if not going:
        return [None for _ in asked]
    heads = [
        _heads(raw, one[:, OFFSET] - each.chunk.offset)
        for one, (each, raw) in zip(
            going, compress(zip(asked, raws, strict=True), fits), strict=True
        )
    ]
    borders = np.cumsum([0, *map(len, going)])
    headers = Headers.of(np.concatenate(heads), np.zeros(borders[-1], np.bool_))
    fill = headers.fill(np.concatenate(going)[:, SIZE])
    are_sound = np.logical_and.reduceat(fill, borders[:-1])
    sums = np.add.reduceat(headers.sizes + headers.plain, borders[:-1])
    found = zip(are_sound.tolist(), sums.tolist(), strict=True)
    told = (size if is_sound else None for is_sound, size in found)
    return [next(told) if fit else None for fit in fits]


def _heads(raw: Raw, begins: Int64s) -> UInt8s:
    body = np.frombuffer(raw, np.uint8)
    heads: UInt8s = body[np.minimum(begins[:, None] + np.arange(WIDTH), len(body) - 1)]
    return heads


def _statistics(chunk: Chunk, by: Chunk, gone: Gone) -> Struct | None:
    """The statistics of the new chunk. None: they are not known."""
    held, come = chunk.meta[Meta.STATISTICS], by.meta[Meta.STATISTICS]
    exact = (Statistics.GREATEST_IS_EXACT, Statistics.LEAST_IS_EXACT)
    if held.keys() != come.keys() or any(
        one.get(flag) is False for one in (held, come) for flag in exact
    ):
        return None
    nulls = held[Statistics.NULLS] - gone.nulls + come[Statistics.NULLS]
    least = _further(chunk, held, come, Statistics.LEAST, gone.least, -1)
    greatest = _further(chunk, held, come, Statistics.GREATEST, gone.greatest, 1)
    if least is None or greatest is None or not 0 <= nulls <= chunk.rows:
        return None
    values = {
        Statistics.NULLS: nulls,
        Statistics.LEAST: least,
        Statistics.GREATEST: greatest,
        Statistics.OLD_LEAST: least,
        Statistics.OLD_GREATEST: greatest,
    }
    changes = [(one, held.kinds[one], value) for one, value in values.items() if one in held]
    made: Struct = held.changed(*changes)
    return made


def _further(
    chunk: Chunk, held: Struct, come: Struct, field: int, gone: Value | None, sign: int
) -> bytes | None:
    """The bound that is further out; None: it went, and nothing as far out came."""
    kind = chunk.meta[Meta.TYPE]
    old, new = _value(held[field], kind), _value(come[field], kind)
    if old is None or new is None:
        return None
    if _is_beyond(new, old, sign) or new == old:
        raw: bytes = come[field]
        return raw
    stays = gone is None or _is_beyond(old, gone, sign)
    return held[field] if stays else None


def _is_beyond(one: Any, other: Any, sign: int) -> bool:
    return bool(one > other if sign > 0 else one < other)


def _value(raw: Any, kind: int) -> Value | None:
    if not isinstance(raw, bytes):
        return None
    if kind == _BYTES:
        return raw
    layout = _LAYOUTS[kind]
    value: Value | None = layout.unpack(raw)[0] if len(raw) == layout.size else None
    return value if value == value else None  # noqa: PLR0124  (NaN)


def _bounds(chunk: Chunk, old: Raw, new: Raw, pages: Int64s, count: int) -> bytes | None:
    """The column index of the new chunk, which has so many pages. None: one of the two is of
    another form."""
    try:
        held, come = (decode_struct(raw, chunk.path)[0] for raw in (old, new))
    except CorruptError:
        return None
    if held.keys() != come.keys() or not {*_OF_PAGES} <= held.keys() <= _KNOWN_BOUNDS:
        return None
    lists = [one for one in held if one != Bounds.ORDER]
    changes: list[tuple[int, int, Any]] = [(Bounds.ORDER, I32, _UNORDERED)]
    for field in lists:
        into, of = held[field], come[field]
        if not isinstance(into, Elements) or not isinstance(of, Elements):
            return None
        if into.kind != of.kind:
            return None
        width = len(into) // count
        is_of_pages = len(into) == width * count and len(of) == width * len(pages)
        if not is_of_pages or (field in _OF_PAGES and width != 1):
            return None
        made = Elements(into.kind, into)
        for at, page in enumerate(pages.tolist()):
            made[page * width : (page + 1) * width] = of[at * width : (at + 1) * width]
        changes.append((field, held.kinds[field], made))
    return encode_struct(held.changed(*changes))


def _body(asked: Exchange, raw: Raw, other: Raw, new: Int64s) -> bytes:
    """All pages."""
    chunk, by, going = asked.chunk, asked.by, asked.places[asked.pages]
    begins = (going[:, OFFSET] - chunk.offset).tolist()
    ends = (going[:, OFFSET] + going[:, SIZE] - chunk.offset).tolist()
    come = [*(new[:, OFFSET] - by.offset).tolist(), by.size]
    kept = zip([0, *ends], [*begins, chunk.size], strict=True)
    into, of = memoryview(raw), memoryview(other)
    first, *others = (into[start:end] for start, end in kept)
    pieces = [first]
    for (start, end), behind in zip(pairwise(come), others, strict=True):
        pieces += [of[start:end], behind]
    return b"".join(pieces)


def _made(
    chunk: Chunk, told: Struct, uncompressed: int, body: bytes, bounds: bytes, places: bytes
) -> Chunk:
    """The chunk as one of a file in memory, which begins where the old one does: so offsets up to
    the first page that is another are those of the file."""
    meta = chunk.meta.changed(
        (Meta.UNCOMPRESSED, I64, uncompressed),
        (Meta.STORED, I64, len(body)),
        (Meta.DATA_PAGE, I64, chunk.offset),
        (Meta.STATISTICS, STRUCT, told),
        (Meta.SIZES, STRUCT, None),
    )
    at = chunk.offset + len(body)
    stored = chunk.stored.changed(
        (Column.META, STRUCT, meta),
        (Column.COLUMN_INDEX, I64, at),
        (Column.COLUMN_INDEX_SIZE, I32, len(bounds)),
        (Column.OFFSET_INDEX, I64, at + len(bounds)),
        (Column.OFFSET_INDEX_SIZE, I32, len(places)),
    )
    parts, view = chunk.parts, memoryview(body + bounds + places)
    made = ParquetParts(
        parts.path,
        parts.is_fresh,
        partial(_sliced, view, chunk.offset),
        at + len(bounds) + len(places),
        parts.stored,
        parts.leaves,
        [],
        parts.bound,
    )
    return Chunk(made, chunk.group, chunk.leaf, chunk.rows, stored, chunk.offset, len(body))


def _sliced(view: memoryview, start: int, spans: Sequence[Span]) -> list[memoryview]:
    return [view[offset - start : offset - start + size] for offset, size in spans]
