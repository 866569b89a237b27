"""Offset indexes: where each page of a column chunk lies, many of them decoded, or moved, at once.

    OffsetIndex    field 1: a list of PageLocation; what else there may be is passed over
    PageLocation   1 i64 offset, 2 i32 bytes with the header, 3 i64 first row of its row group

In Thrift's compact form each of a location's seven parts (three fields with a head each, and the
end) is a varint, heads being of one byte. So all of an index is one run of varints, and numpy finds
their ends at once. Whoever writes heads otherwise is not understood.

A byte that is 0 ends a location, and there is no other one in a sound index but the first row. So
where each location ends is seen without looking at its varints, and these are taken apart by three
steps over all locations. Where anything is otherwise, the ends of all varints are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import at_every_byte
from metatable.storage.parquet.varints import (
    MOST_BYTES,
    encoded_zigzags,
    leading_zigzags,
    read_varint,
    write_varint,
    zigzags,
)

__all__ = [
    "OFFSET",
    "ROW",
    "SIZE",
    "decode_offset_indexes",
    "encoded_offset_index",
    "list_head",
    "moved_offset_indexes",
]

Raw = bytes | memoryview

OFFSET, SIZE, ROW = range(3)
"""Columns of what is decoded."""

_NEXT_LIST, _LONG = 0x19, 15
_I64, _STRUCT = 6, 12
_END = b"\0"
_CONTINUED = bytes(range(128, 256))
_VARINTS = re.compile(rb"(?:[\x80-\xff]{0,8}[\x00-\x7f])*")
_HEADS = {0: 0x16, 2: 0x15, 4: 0x16, 6: 0x00}
"""Parts of a location that are the same in each."""
_PARTS = 7
_BEFORE, _NUMBERS = slice(0, 6, 2), slice(1, 6, 2)
"""Parts of a location: those before its numbers, and these."""

_FIRST_ROW = 1
"""Bytes that are 0 in an index before its first location ends."""

_TOGETHER = 256
"""Indexes of one step: arrays of many more are made anew by the system each time, page by page."""

_FURTHEST = 1 << 60
"""A place that is encoded here."""


def decode_offset_indexes(raws: Sequence[Raw]) -> tuple[Int64s, Int64s]:
    """(how many locations each has, -1 where it is not understood; all locations behind each other,
    a row each: OFFSET, SIZE, ROW). Memory: some 100 bytes for each byte."""
    found = []
    for first in range(0, max(len(raws), 1), _TOGETHER):
        some = raws[first : first + _TOGETHER]
        heads = [_head(raw) for raw in some]
        found.append((_ended_by_zeros(some, heads) or _decoded(some, heads))[:2])
    counts, pages = zip(*found, strict=True)
    return np.concatenate(counts), np.concatenate(pages)


def moved_offset_indexes(
    raws: Sequence[Raw], shifts: Sequence[int]
) -> tuple[Int64s, Int64s, list[bytes]]:
    """What `decode_offset_indexes` gives, and each index with its pages so many bytes further on.

    The latter is nothing where the index is not understood, has no locations or places that no file
    has, or where the list is not all of it, but for bytes of texts before they were compressed,
    which are kept.
    """
    heads = [_head(raw) for raw in raws]
    counts, pages, ends = _ended_by_zeros(raws, heads) or _decoded(raws, heads)
    borders = np.cumsum(np.append(0, counts.clip(0)))
    moved = pages.copy()
    moved[:, OFFSET] += np.repeat(np.array(shifts, np.int64), np.diff(borders))
    odd = np.any((moved < 0) | (moved > _FURTHEST), axis=1)
    is_odd = np.asarray(counts <= 0)
    is_odd[np.repeat(np.arange(len(counts)), np.diff(borders))[odd]] = True
    body, sizes = _encoded(np.where(odd[:, None], 0, moved))
    at = np.cumsum(np.append(0, sizes))[borders].tolist()
    made = []
    for number, (raw, (_, begin), behind) in enumerate(zip(raws, heads, ends, strict=True)):
        rest = bytes(raw[behind:])
        is_sound = not is_odd[number] and _is_end(rest)
        new = raw[:begin], body[at[number] : at[number + 1]], rest
        made.append(b"".join(new) if is_sound else b"")
    return counts, pages, made


def encoded_offset_index(pages: Int64s) -> bytes:
    """An index of these locations, and of nothing else."""
    return list_head(len(pages), _STRUCT) + _encoded(pages)[0] + _END


def list_head(count: int, kind: int) -> bytes:
    """What a list begins with that is the next field, its elements of this kind."""
    head = bytearray([_NEXT_LIST, min(count, _LONG) << 4 | kind])
    if count >= _LONG:
        write_varint(head, count)
    return bytes(head)


def _encoded(pages: Int64s) -> tuple[bytes, Int64s]:
    """Locations, and how many bytes each of them takes."""
    made, kept = encoded_zigzags(pages)
    heads = np.array([_HEADS[part] for part in (0, 2, 4)], np.uint8)
    body = np.concatenate([np.broadcast_to(heads[:, None], (len(pages), 3, 1)), made], axis=2)
    kept = np.concatenate([np.ones((len(pages), 3, 1), np.bool_), kept], axis=2)
    rows, own = (
        np.pad(one.reshape(len(pages), -1), ((0, 0), (0, 1)), constant_values=end)
        for one, end in ((body, _HEADS[_PARTS - 1]), (kept, 1))
    )
    return rows[own].tobytes(), own.sum(axis=1)


def _ended_by_zeros(
    raws: Sequence[Raw], heads: Sequence[tuple[int, int]]
) -> tuple[Int64s, Int64s, list[int]] | None:
    """What `_decoded` gives, of sound indexes that have some locations each, of numbers of eight
    bytes at most; None where one is another."""
    counts = np.array([count for count, _ in heads], np.int64)
    if not len(raws) or counts.min() < 1:
        return None
    sizes = np.array([len(raw) for raw in raws], np.int64)
    body = np.frombuffer(b"".join([*raws, bytes(8)]), np.uint8)
    starts = np.cumsum(sizes) - sizes
    begins = starts + np.array([at for _, at in heads], np.int64)
    zeros = np.flatnonzero(body[:-8] == 0)
    first = zeros.searchsorted(begins) + _FIRST_ROW
    if (first + counts > zeros.searchsorted(starts + sizes)).any():
        return None
    behind = np.cumsum(counts)
    ends = zeros[np.repeat(first - behind + counts, counts) + np.arange(behind[-1])]
    at = np.append(0, ends[:-1] + 1)
    at[behind - counts] = begins
    words = at_every_byte(body, "<u8")
    found = np.empty((len(ends), 3), np.int64)
    for column, part in ((OFFSET, 0), (SIZE, 2), (ROW, 4)):
        if (body.take(at, mode="clip") != _HEADS[part]).any():
            return None
        found[:, column], lengths = leading_zigzags(words.take(at + 1, mode="clip"))
        if not lengths.all():
            return None
        at += 1 + lengths
    if not np.array_equal(at, ends) or (found < 0).any():
        return None
    return counts, found, (ends[behind - 1] + 1 - starts).tolist()


def _decoded(
    raws: Sequence[Raw], heads: Sequence[tuple[int, int]]
) -> tuple[Int64s, Int64s, list[int]]:
    """(counts, locations, where the list of each ends, if it is understood)."""
    counts = np.array([count for count, _ in heads], np.int64)
    sizes = np.array([len(raw) for raw in raws], np.int64)
    body = np.frombuffer(b"".join(raws), np.uint8)
    starts = np.cumsum(sizes) - sizes
    ends = np.flatnonzero(body < 0x80)
    begins = starts + np.array([at for _, at in heads], np.int64)
    first = np.searchsorted(ends, begins)
    behind = np.searchsorted(ends, starts + sizes)
    counts[first + _PARTS * counts > behind] = -1
    borders = np.cumsum(np.append(0, counts.clip(0)))
    last = _parts(ends, first, counts)  # of each varint the last byte
    before = np.append(-1, last[-1, :-1])[: last.shape[1]]
    before[borders[:-1][counts > 0]] = begins[counts > 0] - 1
    lengths = np.diff(last, axis=0, prepend=before[None])
    odd = (lengths[_NUMBERS] > MOST_BYTES).any(axis=0)
    for part, head in _HEADS.items():
        odd |= (lengths[part] != 1) | (body[last[part]] != head)
    over = np.append(-1, last[-1])[borders[1:]] + 1 - starts
    found = zigzags(body, last[_BEFORE] + 1, lengths[_NUMBERS]).T
    if odd.any():
        of = np.repeat(np.arange(len(counts)), counts.clip(0))
        counts[of[odd]] = -1
        found = found[counts[of] >= 0]
    return counts, found, over.tolist()


def _head(raw: Raw, kind: int = _STRUCT) -> tuple[int, int]:
    """(number of elements of the list that the next field is, where the first one begins); (-1, 0):
    there is no such list."""
    if len(raw) < 2 or raw[0] != _NEXT_LIST or raw[1] & 15 != kind:
        return -1, 0
    count, at = raw[1] >> 4, 2
    if count < _LONG:
        return count, at
    count, at = read_varint(raw, at)
    return (count, at) if count <= len(raw) else (-1, 0)


def _is_end(raw: bytes) -> bool:
    """Whether this is the end of an index, or a list of numbers and the end: one a page, in those
    of texts."""
    if raw == _END:
        return True
    count, at = _head(raw, _I64)
    numbers = raw[at:-1]
    is_list = count >= 0 and raw[-1:] == _END and _VARINTS.fullmatch(numbers) is not None
    return is_list and len(numbers.translate(None, _CONTINUED)) == count


def _parts(ends: Int64s, first: Int64s, counts: Int64s) -> Int64s:
    """The ends of the varints of every location: a row a part, a column a location."""
    spans = zip(first.tolist(), counts.clip(0).tolist(), strict=True)
    own = [ends[begin : begin + _PARTS * count] for begin, count in spans]
    return np.concatenate([ends[:0], *own]).reshape(-1, _PARTS).T.copy()
