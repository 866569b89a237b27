"""Known pages: chunks to be copied are checked many at once, by the places that their indexes tell.

Headers of many chunks are read by numpy (`page_headers.py`). What is held against the footer and
the checksums is what `pages.py` holds there, and whatever is not as it should be, or only of
another form, is left to it: it finds the same, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from isal import isal_zlib

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Location, Meta
from metatable.storage.parquet.offset_index import OFFSET, SIZE, moved_offset_indexes
from metatable.storage.parquet.page_headers import LAST_ENCODING, WIDTH, Headers
from metatable.storage.parquet.pages import checked_pages
from metatable.storage.parquet.parts import Chunk, Raw, Span
from metatable.storage.parquet.thrift import (
    I64,
    LIST,
    STRUCT,
    Elements,
    decode_struct,
    encode_struct,
)

__all__ = ["checked_chunks"]

MOST_INDEX_BYTES = 256 << 10
"""Bytes of offset indexes that are read together: of 20,000 pages, or 40,000 forged ones. Reading
takes 100 times the memory, and a kilobyte a page. A longer index is read by itself, page by
page."""


def checked_chunks(
    chunks: Sequence[Chunk],
    raws: Sequence[Raw],
    indexes: Sequence[Raw],
    shifts: Sequence[int],
) -> list[bytes]:
    """The offset indexes of chunks that are put so many bytes further on; b"" where there is none.

    `raws` are the bytes of the chunks, `indexes` their offset indexes, b"" if there is none. Raises
    CorruptError: of damage, naming column, row group and offset.
    """
    moved: dict[int, bytes] = {}
    for some in _portions(indexes):
        known = _sound(
            [chunks[place] for place in some],
            [raws[place] for place in some],
            [indexes[place] for place in some],
            [shifts[place] for place in some],
        )
        moved.update(zip(some, known, strict=True))
    return [
        moved.get(place) or _one_by_one(*given)
        for place, given in enumerate(zip(chunks, raws, indexes, shifts, strict=True))
    ]


def _portions(indexes: Sequence[Raw]) -> Iterator[list[int]]:
    """The numbers of those that there are, together some MOST_INDEX_BYTES."""
    some: list[int] = []
    held = 0
    for place, index in enumerate(indexes):
        if not 0 < len(index) <= MOST_INDEX_BYTES:
            continue
        if held + len(index) > MOST_INDEX_BYTES:
            yield some
            some, held = [], 0
        some.append(place)
        held += len(index)
    if some:
        yield some


def _one_by_one(chunk: Chunk, raw: Raw, index: Raw, shift: int) -> bytes:
    pages = checked_pages(chunk, raw)
    return _moved(chunk, index, pages, shift) if index else b""


def _moved(chunk: Chunk, raw: Raw, pages: list[Span], shift: int) -> bytes:
    """Raises CorruptError unless it tells the data pages that are there."""
    try:
        index, _ = decode_struct(raw, chunk.parts.path)
        locations = index[Location.ALL]
        found = [(one[Location.OFFSET], one[Location.SIZE]) for one in locations]
    except (CorruptError, LookupError, TypeError) as error:
        what = "offset index is damaged"
        raise chunk.wrong(what, chunk.page_index[1][0], found=str(error)) from error
    if found != pages:
        what, expected = "offset index tells other pages", f"{len(pages)} from {pages[:1]}"
        raise chunk.wrong(what, chunk.page_index[1][0], expected=expected, found=found[:1])
    moved = [one.changed((Location.OFFSET, I64, one[Location.OFFSET] + shift)) for one in locations]
    return encode_struct(index.changed((Location.ALL, LIST, Elements(STRUCT, moved))))


def _sound(
    chunks: Sequence[Chunk], raws: Sequence[Raw], indexes: Sequence[Raw], shifts: Sequence[int]
) -> list[bytes]:
    """The moved index of each chunk that is as it should be, and of this form; b"" for others."""
    counts, pages, moved = moved_offset_indexes(indexes, shifts)
    borders = np.cumsum(np.append(0, counts.clip(0))).tolist()
    parts = [
        _Part.of(chunk, raw, pages[lo:hi]) if one else None
        for chunk, raw, one, (lo, hi) in zip(chunks, raws, moved, pairwise(borders), strict=True)
    ]
    filled = [part for part in parts if part is not None]
    sound = iter(_are_as_told(filled) if filled else ())
    return [
        one if part is not None and next(sound) else b""
        for part, one in zip(parts, moved, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A chunk and where its pages lie in it, of which the first one may be a dictionary."""

    chunk: Chunk
    raw: Raw
    begins: Int64s
    sizes: Int64s
    has_dictionary: bool

    @classmethod
    def of(cls, chunk: Chunk, raw: Raw, pages: Int64s) -> _Part | None:
        """A chunk with its pages; None where these do not lie one behind the other, from where the
        footer says to the chunk's end."""
        begins, ends = pages[:, OFFSET] - chunk.offset, np.append(pages[1:, OFFSET], 0)
        ends[-1] = chunk.offset + len(raw)
        data, dictionary = (chunk.meta.get(field) for field in (Meta.DATA_PAGE, Meta.DICTIONARY))
        first = int(begins[0])
        is_told = not dictionary or (first > 0 and dictionary == chunk.offset)
        is_told = is_told and data in (0, chunk.offset, chunk.offset + first)
        sizes = ends - pages[:, OFFSET]
        if first < 0 or not is_told or (sizes <= 0).any() or (sizes != pages[:, SIZE]).any():
            return None
        if not first:
            return cls(chunk, raw, begins, sizes, False)
        return cls(chunk, raw, np.append(0, begins), np.append(first, sizes), True)

    @property
    def encodings(self) -> int:
        """A bit each."""
        told = self.chunk.meta[Meta.ENCODINGS]
        return sum({1 << one for one in told if type(one) is int and 0 <= one <= LAST_ENCODING})

    @property
    def heads(self) -> UInt8s:
        """What lies where headers begin, WIDTH bytes each."""
        body = np.frombuffer(self.raw, np.uint8)
        last = len(body) - WIDTH
        if last >= 0 and self.begins[-1] <= last:  # whole rows are taken sooner than bytes
            at_every_byte: UInt8s = np.ndarray((last + 1, WIDTH), np.uint8, body, strides=(1, 1))
            return at_every_byte[self.begins]
        heads: UInt8s = body[np.minimum(self.begins[:, None] + np.arange(WIDTH), len(body) - 1)]
        return heads

    def sums(self, headers: Int64s) -> list[int]:
        """The CRC32 of what is behind each header, of so many bytes."""
        view, crc32 = memoryview(self.raw), isal_zlib.crc32
        starts, ends = (self.begins + headers).tolist(), (self.begins + self.sizes).tolist()
        return [crc32(view[start:end]) for start, end in zip(starts, ends, strict=True)]


def _are_as_told(parts: Sequence[_Part]) -> list[bool]:
    """Whether pages have headers of this form and their checksums, and add up to what the footer
    tells."""
    borders = np.cumsum([0, *(len(part.begins) for part in parts)])
    of = np.repeat(np.arange(len(parts)), np.diff(borders))
    is_dictionary = np.zeros(len(of), np.bool_)
    is_dictionary[borders[:-1]] = [part.has_dictionary for part in parts]
    headers = Headers.of(np.concatenate([part.heads for part in parts]), is_dictionary)
    ways = np.array([part.encodings for part in parts])[of]
    is_sound = headers.fill(np.concatenate([part.sizes for part in parts]))
    is_sound &= is_dictionary | headers.are_encoded(ways)
    values = np.where(is_dictionary, 0, headers.values)
    sums = np.stack([values, headers.sizes + headers.plain], axis=1)
    told = [(part.chunk.values, part.chunk.uncompressed) for part in parts]
    add_up = (np.add.reduceat(sums, borders[:-1]) == np.array(told, np.int64)).all(axis=1)
    add_up &= np.logical_and.reduceat(is_sound, borders[:-1])
    expected = headers.sums
    return [
        is_right and part.sums(headers.sizes[lo:hi]) == expected[lo:hi]
        for part, is_right, (lo, hi) in zip(
            parts, add_up.tolist(), pairwise(borders.tolist()), strict=True
        )
    ]
