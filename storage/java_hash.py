"""Java's hash of a string, of whole columns: h = 31 * h + unit, over UTF-16 units, in 32 bits."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int32s, Int64s, UInt8s, UInt32s
from metatable.storage.byte_columns import Offsets, cut_rows

__all__ = ["java_string_hash"]

CHUNK_ROWS = 16 << 10
"""Hashed together: their state stays in the second level cache."""


def java_string_hash(column: pa.Array | pa.ChunkedArray) -> Int32s:
    """`String.hashCode` of every value of a UTF-8 column: over UTF-16 units, wrapping int32."""
    parts = [
        _java_hash(*_utf16_units(offsets, data)) for offsets, data in cut_rows(column, CHUNK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _java_hash(offsets: Int64s, units: UInt32s) -> Int32s:
    """Sums of unit * 31 ** (units after it), by running sums of unit / 31 ** (units before).

    31 is odd, so it has an inverse modulo 2 ** 32 and the division is exact.
    """
    powers, inverses = _powers_of_31(max(10, len(units).bit_length()))
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * inverses[: len(units)], out=sums[1:], dtype=np.uint32)
    lasts = np.maximum(offsets[1:] - 1, 0)
    return ((sums[offsets[1:]] - sums[offsets[:-1]]) * powers[lasts]).view(np.int32)


@lru_cache(maxsize=1)
def _powers_of_31(bits: int) -> tuple[UInt32s, UInt32s]:
    """The first 2 ** bits powers of 31 and of its inverse, modulo 2 ** 32."""
    factors = np.ones((2, 1 << bits), np.uint32)
    factors[:, 1:] = [[31], [pow(31, -1, 1 << 32)]]
    powers, inverses = np.cumprod(factors, axis=1, dtype=np.uint32)
    return powers, inverses


def _utf16_units(offsets: Offsets, data: UInt8s) -> tuple[Int64s, UInt32s]:
    """(offsets in units, units) of UTF-8 text; every byte below 0x80 is its own unit."""
    starts = offsets.astype(np.int64) - int(offsets[0])
    text = data[offsets[0] : offsets[-1]]
    if not (text & 0x80).any():
        return starts, text.astype(np.uint32)
    units = np.frombuffer(text.tobytes().decode().encode("utf-16-le"), "<u2")
    made = np.zeros(len(text) + 1, np.int64)  # units begun before each byte
    np.cumsum(((text & 0xC0) != 0x80) + (text >= 0xF0).astype(np.int64), out=made[1:])
    return made[starts], units.astype(np.uint32)
