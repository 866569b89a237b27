"""Offset indexes: where each page of a column chunk lies, many of them decoded at once.

    OffsetIndex    field 1: a list of PageLocation; what else there may be is passed over
    PageLocation   1 i64 offset, 2 i32 bytes with the header, 3 i64 first row of its row group

In Thrift's compact form each of a location's seven parts (three fields with a head each, and the
end) is a varint, heads being of one byte. So all of an index is one run of varints, and numpy finds
their ends at once. Whoever writes heads otherwise is not understood.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["OFFSET", "ROW", "SIZE", "decode_offset_indexes"]

Numbers = npt.NDArray[np.int64]

OFFSET, SIZE, ROW = range(3)
"""Columns of what is decoded."""

_FIELD_1, _LONG = 0x19, 15
_STRUCT = 12
_HEADS = {0: 0x16, 2: 0x15, 4: 0x16, 6: 0x00}
"""Parts of a location that are the same in each."""
_PARTS, _NUMBERS = 7, [1, 3, 5]
_MOST_BYTES = 9
"""Of a number: 63 bits."""


def decode_offset_indexes(raws: Sequence[bytes]) -> tuple[Numbers, Numbers]:
    """(how many locations each has, -1 where it is not understood; all locations behind each other,
    a row each: OFFSET, SIZE, ROW). Memory: some 100 bytes for each byte."""
    heads = [_head(raw) for raw in raws]
    counts = np.array([count for count, _ in heads], np.int64)
    sizes = np.array([len(raw) for raw in raws], np.int64)
    body = np.frombuffer(b"".join(raws), np.uint8)
    starts = np.cumsum(sizes) - sizes
    ends = np.flatnonzero(body < 0x80)
    begins = starts + np.array([at for _, at in heads], np.int64)
    first = np.searchsorted(ends, begins)
    behind = np.searchsorted(ends, starts + sizes)
    counts[first + _PARTS * counts > behind] = -1
    parts, of = _parts(first, counts.clip(0))
    last, before = ends[parts], ends[parts - 1]
    before[:, 0] = np.maximum(before[:, 0], begins[of] - 1)  # the count may run into the first head
    lengths = last - before
    odd = (lengths[:, _NUMBERS] > _MOST_BYTES).any(axis=1)
    for part, head in _HEADS.items():
        odd |= (lengths[:, part] != 1) | (body[last[:, part]] != head)
    counts[of[odd]] = -1
    found = _numbers(body, before[:, _NUMBERS] + 1, lengths[:, _NUMBERS])
    return counts, found[counts[of] >= 0]


def _head(raw: bytes) -> tuple[int, int]:
    """(number of locations, where the first one begins); (-1, 0): there is no such list."""
    if len(raw) < 2 or raw[0] != _FIELD_1 or raw[1] & 15 != _STRUCT:
        return -1, 0
    count, at = raw[1] >> 4, 2
    if count < _LONG:
        return count, at
    count = shift = 0
    for byte in raw[at : at + 5]:
        count |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (count, at) if count * _PARTS <= len(raw) else (-1, 0)
    return -1, 0


def _parts(first: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Of every location the numbers of its varints, a row each, and which index it is of."""
    of = np.repeat(np.arange(len(counts)), counts)
    own = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = first[of] + _PARTS * own
    return begin[:, None] + np.arange(_PARTS), of


def _numbers(body: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> Numbers:
    """The zigzag varints of these places; of odd ones anything."""
    found = np.zeros(starts.shape, np.uint64)
    for place in range(min(int(lengths.max(initial=0)), _MOST_BYTES)):
        more = lengths > place
        byte = body[np.where(more, starts + place, 0)].astype(np.uint64) & np.uint64(127)
        found |= np.where(more, byte, np.uint64(0)) << np.uint64(7 * place)
    halves, signs = found >> np.uint64(1), found & np.uint64(1)
    return np.where(signs == 1, -1, halves.view(np.int64))
