"""Varints of Thrift, one or many at once: numbers of seven bits a byte, the last byte below 128."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_BYTES", "encoded_zigzags", "read_varint", "write_varint", "zigzags"]

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

MOST_BYTES = 9
"""Of a number: 63 bits."""

_COUNT_BYTES = 5
"""Of a number that is a size or a count."""


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


def zigzags(body: Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
    """The zigzag varints of these places and lengths; of those above MOST_BYTES anything."""
    found = np.zeros(starts.shape, np.uint64)
    for place in range(min(int(lengths.max(initial=0)), MOST_BYTES)):
        more = lengths > place
        byte = body[np.where(more, starts + place, 0)].astype(np.uint64) & np.uint64(127)
        found |= np.where(more, byte, np.uint64(0)) << np.uint64(7 * place)
    halves = (found >> np.uint64(1)).view(np.int64)
    return halves ^ -(found & np.uint64(1)).view(np.int64)


def encoded_zigzags(numbers: Numbers) -> tuple[Bytes, npt.NDArray[np.bool_]]:
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
