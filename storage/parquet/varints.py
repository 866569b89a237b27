"""Varints of Thrift, one or many at once: seven bits of a number per byte, the last below 128."""

from __future__ import annotations

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import LOW_BYTES, at_every_byte

__all__ = [
    "MOST_BYTES",
    "encoded_zigzags",
    "leading_zigzags",
    "read_varint",
    "write_varint",
    "zigzags",
]

MOST_BYTES = 9
"""Bytes of a number, at most: it has 63 bits."""

_WORD = 8

_STOPS = np.uint64(0x8080808080808080)
"""The highest bit of each of eight bytes: it is not set in the last byte of a number."""

_COUNT_BYTES = 5
"""Bytes of a number that is a size or a count, at most."""


def read_varint(raw: bytes | memoryview, at: int) -> tuple[int, int]:
    """A size or a count that begins there, and where it ends; (-1, 0) where it does not end."""
    value = shift = 0
    for place in range(at, min(at + _COUNT_BYTES, len(raw))):
        value |= (raw[place] & 127) << shift
        if raw[place] < 128:
            return value, place + 1
        shift += 7
    return -1, 0


def write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def zigzags(body: UInt8s, starts: Int64s, lengths: Int64s) -> Int64s:
    """The zigzag varints of these places and lengths; of those above MOST_BYTES anything."""
    padded = np.append(body, np.zeros(_WORD, np.uint8))
    words = at_every_byte(padded, "<u8").take(starts, mode="clip").astype(np.uint64, copy=False)
    words &= LOW_BYTES.take(lengths, mode="clip")
    found = _joined(words, int(lengths.max(initial=0)))
    long = lengths > _WORD
    if long.any():
        byte = padded[np.minimum(starts[long] + _WORD, len(body))].astype(np.uint64)
        found[long] |= (byte & np.uint64(0x7F)) << np.uint64(7 * _WORD)
    return _signed(found)


def leading_zigzags(words: UInt64s) -> tuple[Int64s, Int64s]:
    """The zigzag varints that eight bytes begin with, and the bytes of each: 0 of a longer one."""
    stops = ~words & _STOPS
    below = (stops & (~stops + np.uint64(1))) - np.uint64(1)  # all bits where there is no stop
    lengths = np.bitwise_count(below).astype(np.int64) + 1 >> 3
    lengths[stops == 0] = 0
    return _signed(_joined(words & below, int(lengths.max(initial=0)))), lengths


def _joined(words: UInt64s, most: int) -> UInt64s:
    """Seven bits of each of the first bytes, `most` of them, eight at most, as one number."""
    found = words & np.uint64(0x7F)
    for place in range(1, min(most, _WORD)):
        found |= (words >> np.uint64(place)) & np.uint64(0x7F << 7 * place)
    return found


def _signed(found: UInt64s) -> Int64s:
    halves = (found >> np.uint64(1)).view(np.int64)
    return halves ^ -(found & np.uint64(1)).view(np.int64)


def encoded_zigzags(numbers: Int64s) -> tuple[UInt8s, Bools]:
    """Numbers from 0 to 2**61, in as few bytes as each takes: (bytes, which of them count); both
    have an axis more than `numbers`, as long as the longest one is."""
    doubled = numbers << 1
    width = max(-(-int(doubled.max(initial=0)).bit_length() // 7), 1)
    left = doubled[..., None] >> np.arange(0, 7 * width, 7)
    counts = left > 0
    counts[..., 0] = True
    made = (left & 127).astype(np.uint8)
    made[..., :-1][counts[..., 1:]] |= 128
    return made, counts
