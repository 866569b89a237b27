"""XXH32 of whole columns of bytes: the hash by which Hudi's consistent hashing places a key.

Exact, as the `xxhash` package and Hudi's `HashID.getXXHash32` have it. Rows of one length are
hashed together: their bytes are gathered into a matrix, of which every step of the algorithm takes
some columns. Nulls are refused, as in `hashing.py`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash

from metatable.storage.arrays import Int64s, UInt8s, UInt32s
from metatable.storage.byte_columns import (
    Offsets,
    byte_chunks,
    byte_layout,
)

__all__ = ["xxh32"]

GATHERED_BYTES = 1 << 20
"""Gathered together: they stay in the processor's cache."""

LONG_BYTES = 512
"""Longer values are hashed one by one: their bytes cost more than the call."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)
_JOINED_BY = np.array([1, 7, 12, 18], np.uint32)


def xxh32(column: pa.Array | pa.ChunkedArray, seed: int = 0) -> UInt32s:
    """XXH32 of every value of a string or binary column.

    Returns n uint32. Raises UsageError for nulls and for columns that have no bytes.
    """
    parts = [_hashed(*byte_layout(chunk), seed) for chunk in byte_chunks(column)]
    return np.concatenate([np.zeros(0, np.uint32), *parts])


def _hashed(offsets: Offsets, data: UInt8s, seed: int) -> UInt32s:
    out = np.empty(len(offsets) - 1, np.uint32)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1))
    with np.errstate(over="ignore"):  # all arithmetic is modulo 2 ** 32
        for rows in np.split(order, cuts[1:-1]) if len(order) else ():
            width = int(lengths[rows[0]])
            if width < LONG_BYTES:
                _hash_equal(data, starts, rows, width, seed, out)
                continue
            for row in rows.tolist():
                value = data[starts[row] : starts[row] + lengths[row]].tobytes()
                out[row] = xxhash.xxh32_intdigest(value, seed)
    return out


def _hash_equal(
    data: UInt8s,
    starts: Int64s,
    rows: Int64s,
    width: int,
    seed: int,
    out: UInt32s,
) -> None:
    """Rows of one length; the last word of each is filled up with bytes that do not count."""
    lanes = np.arange(-(-width // 4) * 4)
    step = max(1, GATHERED_BYTES // max(width, 1))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        places = np.minimum(starts[some][:, None] + lanes, max(len(data) - 1, 0))
        out[some] = _hash_matrix(data[places] if width else places.astype(np.uint8), width, seed)


def _hash_matrix(matrix: UInt8s, width: int, seed: int) -> UInt32s:
    """Row i's bytes are the first `width` of row i."""
    words: UInt32s = matrix.view("<u4")
    start = np.uint32(seed)
    out = np.full(len(matrix), start + _P5, np.uint32)
    if width >= 16:
        state: UInt32s = np.empty((len(out), 4), np.uint32)
        state[:] = start + _P1 + _P2, start + _P2, start, start - _P1
        for at in range(0, width // 16 * 4, 4):
            state = _rotated(state + words[:, at : at + 4] * _P2, np.uint32(13)) * _P1
        out = _rotated(state, _JOINED_BY).sum(axis=1, dtype=np.uint32)
    out += np.uint32(width)
    for at in range(width // 16 * 4, width // 4):
        out = _rotated(out + words[:, at] * _P3, np.uint32(17)) * _P4
    for at in range(width // 4 * 4, width):
        out = _rotated(out + matrix[:, at] * _P5, np.uint32(11)) * _P1
    for bits, prime in ((15, _P2), (13, _P3), (16, np.uint32(1))):
        out = (out ^ (out >> np.uint32(bits))) * prime
    return out


def _rotated(words: UInt32s, bits: np.uint32 | UInt32s) -> UInt32s:
    return (words << bits) | (words >> (np.uint32(32) - bits))
