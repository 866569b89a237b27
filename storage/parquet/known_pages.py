"""Known pages: chunks to be copied are checked many at once, by the places that their indexes tell.

Headers of many chunks are read by numpy (`page_headers.py`). What is held against the footer and
the checksums is what `pages.py` holds there, and whatever is not as it should be, or only of
another form, is left to it: it finds the same, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

import numpy as np
from isal.isal_zlib import crc32

from metatable.storage.arrays import Bools, Int64s, UInt8s
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
    counts, locations, moved = moved_offset_indexes(indexes, shifts)
    sound = np.array([len(one) > 0 for one in moved])
    pages = _Pages.of(chunks, raws, counts.clip(0), locations).only(sound)
    for are_right in (_lie_as_told, _are_as_told):
        if not sound.any():
            break
        right = are_right(pages)
        pages = pages.only(right)
        sound[np.flatnonzero(sound)] = right
    return [one if is_sound else b"" for one, is_sound in zip(moved, sound.tolist(), strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Pages:
    """The pages of some chunks, those of one behind those of another."""

    chunks: Sequence[Chunk]
    raws: Sequence[Raw]
    counts: Int64s
    """Pages of each chunk, one at least."""
    begins: Int64s
    """Where each page begins in its chunk."""
    sizes: Int64s

    @classmethod
    def of(
        cls, chunks: Sequence[Chunk], raws: Sequence[Raw], counts: Int64s, locations: Int64s
    ) -> _Pages:
        """Data pages, as offset indexes tell them."""
        starts = np.array([chunk.offset for chunk in chunks], np.int64)
        begins = locations[:, OFFSET] - np.repeat(starts, counts)
        return cls(chunks, raws, counts, begins, locations[:, SIZE])

    @property
    def first(self) -> Int64s:
        """The number of each chunk's first page."""
        return np.cumsum(self.counts) - self.counts

    def only(self, wanted: Bools) -> _Pages:
        """Those of these chunks."""
        if wanted.all():
            return self
        chunks, raws = list(compress(self.chunks, wanted)), list(compress(self.raws, wanted))
        of = np.repeat(wanted, self.counts)
        return _Pages(chunks, raws, self.counts[wanted], self.begins[of], self.sizes[of])

    def with_dictionaries(self) -> tuple[_Pages, Bools]:
        """With the page of each chunk that lies before its data pages; and which these are."""
        first = self.first
        before = self.begins[first]
        has_one = before > 0
        at = first[has_one]
        begins, sizes = np.insert(self.begins, at, 0), np.insert(self.sizes, at, before[has_one])
        are_dictionaries = np.insert(np.zeros(len(self.begins), np.bool_), at, True)
        made = _Pages(self.chunks, self.raws, self.counts + has_one, begins, sizes)
        return made, are_dictionaries

    def spans(self) -> Iterator[tuple[int, int]]:
        """Of each chunk the numbers of its pages."""
        return pairwise(np.cumsum([0, *self.counts]).tolist())

    def heads(self) -> UInt8s:
        """What lies where headers begin, WIDTH bytes each, zeros behind the end of a chunk."""
        begins, found = self.begins.tolist(), list[Raw]()
        for raw, (lo, hi) in zip(self.raws, self.spans(), strict=True):
            heads: list[Raw] = [raw[at : at + WIDTH] for at in begins[lo:hi]]
            if len(heads[-1]) < WIDTH:
                heads = [bytes(one).ljust(WIDTH, b"\0") for one in heads]
            found += heads
        return np.frombuffer(b"".join(found), np.uint8).reshape(-1, WIDTH)

    def sums(self, headers: Int64s) -> Iterator[list[int]]:
        """Of each chunk the CRC32 of what is behind each header, of so many bytes."""
        starts, ends = (self.begins + headers).tolist(), (self.begins + self.sizes).tolist()
        for raw, (lo, hi) in zip(self.raws, self.spans(), strict=True):
            view = memoryview(raw)
            yield [crc32(view[starts[page] : ends[page]]) for page in range(lo, hi)]


def _lie_as_told(pages: _Pages) -> Bools:
    """Which chunks, one at least, have their pages one behind the other, from where the footer says
    to their end, and a dictionary before them or nothing."""
    first = pages.first
    ends = np.append(pages.begins[1:], 0)
    ends[first + pages.counts - 1] = [len(raw) for raw in pages.raws]
    lie = (pages.sizes > 0) & (ends - pages.begins == pages.sizes)
    before = pages.begins[first]
    told = [
        (one.offset, one.meta.get(Meta.DATA_PAGE, -1), one.meta.get(Meta.DICTIONARY, 0))
        for one in pages.chunks
    ]
    start, data, dictionary = np.array(told, np.int64).T
    is_told = (dictionary == 0) | ((before > 0) & (dictionary == start))
    is_told &= (data == 0) | (data == start) | (data == start + before)
    sound: Bools = np.logical_and.reduceat(lie, first) & (before >= 0) & is_told
    return sound


def _are_as_told(pages: _Pages) -> Bools:
    """Which chunks, one at least, have pages with headers of this form and their checksums, that
    add up to what the footer tells."""
    pages, are_dictionaries = pages.with_dictionaries()
    headers = Headers.of(pages.heads(), are_dictionaries)
    ways = np.repeat([_encodings(chunk) for chunk in pages.chunks], pages.counts)
    is_sound = headers.fill(pages.sizes)
    is_sound &= are_dictionaries | headers.are_encoded(ways)
    values = np.where(are_dictionaries, 0, headers.values)
    sums = np.stack([values, headers.sizes + headers.plain], axis=1)
    told = [(chunk.values, chunk.uncompressed) for chunk in pages.chunks]
    first = pages.first
    add_up = (np.add.reduceat(sums, first) == np.array(told, np.int64)).all(axis=1)
    expected = headers.sums
    are_whole = [
        found == expected[lo:hi]
        for found, (lo, hi) in zip(pages.sums(headers.sizes), pages.spans(), strict=True)
    ]
    sound: Bools = add_up & np.logical_and.reduceat(is_sound, first) & np.array(are_whole)
    return sound


def _encodings(chunk: Chunk) -> int:
    """A bit each."""
    told = chunk.meta[Meta.ENCODINGS]
    return sum({1 << one for one in told if type(one) is int and 0 <= one <= LAST_ENCODING})
