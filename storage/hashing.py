"""Hashes of whole columns of bytes: XXH64 and MD5 (Java's hash of a string: `java_hash.py`).

XXH64 is exact: the same 64 bits as the `xxhash` package, Hudi's `hash64` and Spark's
`xxhash64(column)` (seed 42) give for the same UTF-8 bytes. It is computed for many rows at
once: each step of the algorithm is one numpy operation over all rows that take this step.
Columns whose values have one length need no gathering at all, because lane k of every row is
a strided view of the buffer. Work goes in chunks that stay in the processor's cache.

`md5` answers to the same columns; nulls are refused, since no key is null and every engine would
make another number of it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt32s, UInt64s
from metatable.storage.byte_columns import (
    Offsets,
    at_every_byte,
    byte_chunks,
    byte_layout,
    cut_rows,
    from_layout,
)
from metatable.storage.threads import in_order

__all__ = [
    "SPARK_SEED",
    "md5",
    "md5_one",
    "xxh64",
    "xxh64_one",
    "xxh64_pair",
]

_Seeds = list[np.uint64]

SPARK_SEED = 42
CHUNK_ROWS = 16 << 10
"""Hashed together: their state stays in the second level cache."""
RAGGED_ROWS = 128 << 10
"""Grouped by length together, beside others."""
GROUP_ROWS = 512
"""From so many rows of one length on, taking them alone pays for the calls."""
FEW_ROWS = 32
"""So few are hashed one by one, too: steps over all rows cost their calls."""
LONG_BYTES = 4096
"""Longer values are hashed one by one: their bytes cost more than the call."""

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SHIFT = [np.uint64(bits) for bits in range(64)]


def xxh64(column: pa.Array | pa.ChunkedArray, seed: int = SPARK_SEED) -> UInt64s:
    """XXH64 of every value of a string or binary column (large and fixed-size ones too).

    Returns n uint64. Raises UsageError for nulls and for columns that have no bytes.
    """
    hashes: UInt64s = _hash(column, [seed])[0]
    return hashes


def xxh64_pair(column: pa.Array | pa.ChunkedArray, seeds: tuple[int, int]) -> UInt64s:
    """XXH64 under two seeds: an array of shape (2, n). Cheaper than two calls."""
    return _hash(column, seeds)


def xxh64_one(data: bytes, seed: int = SPARK_SEED) -> int:
    """XXH64 of one value."""
    return int(xxhash.xxh64_intdigest(data, seed & _MASK))


def md5(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """MD5 of every value, as 16 bytes each. One call a value: meant for file names."""
    digests = [
        hashlib.md5(data[start:end].data, usedforsecurity=False).digest()
        for offsets, data in map(byte_layout, byte_chunks(column))
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    return pa.array(digests, pa.binary(16))


def md5_one(data: bytes) -> bytes:
    """MD5 of one value."""
    return hashlib.md5(data, usedforsecurity=False).digest()


# How rows are cut up: into chunks, then by length


def _hash(column: pa.Array | pa.ChunkedArray, seeds: Sequence[int]) -> UInt64s:
    """(seed, row): XXH64 of the bytes of each row, with each of these seeds."""
    hashes = np.empty((len(seeds), len(column)), np.uint64)
    if len(column) <= FEW_ROWS:
        pieces = [values for part in byte_chunks(column) for values in _values(part)]
        for row, seed in enumerate(seeds):
            hashes[row] = np.array([xxh64_one(piece, seed) for piece in pieces], np.uint64)
        return hashes
    words = [np.uint64(seed & _MASK) for seed in seeds]

    def hashed(part: tuple[Offsets, UInt8s, UInt64s]) -> None:
        with np.errstate(over="ignore"):  # all arithmetic is modulo 2 ** 64
            _hash_rows(part[0], part[1], words, part[2])

    def parts() -> Iterator[tuple[Offsets, UInt8s, UInt64s]]:
        done = 0
        for offsets, data in cut_rows(column, RAGGED_ROWS):
            rows = len(offsets) - 1
            yield offsets, data, hashes[:, done : done + rows]
            done += rows

    deque(in_order(hashed, parts(), None if len(column) > RAGGED_ROWS else 1), maxlen=0)
    return hashes


def _values(column: pa.Array) -> list[bytes]:
    offsets, data = byte_layout(column)
    ends, raw = offsets.tolist(), data.data
    return [bytes(raw[start:end]) for start, end in itertools.pairwise(ends)]


def _hash_rows(offsets: Offsets, data: UInt8s, seeds: _Seeds, out: UInt64s) -> None:
    lengths = np.diff(offsets).astype(np.int64)
    width = int(lengths[0])
    if width >= LONG_BYTES or (lengths != width).any():
        _hash_by_length(offsets, lengths, data, seeds, out)
        return
    for first in range(0, len(lengths), CHUNK_ROWS):
        part = out[:, first : first + CHUNK_ROWS]
        _hash_equal(data, int(offsets[first]), width, seeds, part)


def _hash_by_length(
    offsets: Offsets, lengths: Int64s, data: UInt8s, seeds: _Seeds, out: UInt64s
) -> None:
    """Lengths that many rows have are taken one by one, the rest in steps of XXH64."""
    clipped = np.minimum(lengths, LONG_BYTES).astype(np.uint16)  # sorted by radix, being short
    order = np.argsort(clipped, kind="stable")
    ordered = clipped[order].astype(np.int64)
    cuts = np.flatnonzero(np.diff(ordered, prepend=-1, append=-1))
    sizes = np.diff(cuts)
    many = (sizes >= GROUP_ROWS) & (ordered[cuts[:-1]] < LONG_BYTES)
    column = from_layout(offsets, data)
    for group in np.flatnonzero(many).tolist():
        for first in range(cuts[group], cuts[group + 1], CHUNK_ROWS):
            rows = order[first : min(first + CHUNK_ROWS, int(cuts[group + 1]))]
            _, packed = byte_layout(column.take(pa.array(rows)))
            part = np.empty((len(seeds), len(rows)), np.uint64)
            _hash_equal(packed, 0, int(ordered[first]), seeds, part)
            for row, hashes in enumerate(part):
                out[row, rows] = hashes
    rows = order[np.repeat(~many, sizes)]
    for first in range(0, len(rows), CHUNK_ROWS):
        some = rows[first : first + CHUNK_ROWS]
        out[:, some] = _hash_few(offsets[:-1][some].astype(np.int64), lengths[some], data, seeds)


# Rows of one length, end to end: lane k of all rows is a strided view


def _hash_equal(data: UInt8s, start: int, width: int, seeds: _Seeds, out: UInt64s) -> None:
    """Fill `out` (seed, row) for rows of `width` bytes, end to end from `start` on."""

    def lanes(at: int, kind: str) -> npt.NDArray[Any]:
        return np.ndarray((rows,), kind, buffer=data, offset=start + at, strides=(width,))

    rows, at = out.shape[1], 0
    states = _Stripes(seeds, rows) if width >= 32 else None
    while states and at + 32 <= width:
        for k in range(4):
            states.add(k, lanes(at + 8 * k, "<u8"))
        at += 32
    for row, seed in enumerate(seeds):
        out[row] = states.join(row) if states else seed + _P5
    out += np.uint64(width)
    while at + 8 <= width:
        _add_8(out, lanes(at, "<u8"))
        at += 8
    if at + 4 <= width:
        _add_4(out, lanes(at, "<u4"))
        at += 4
    while at < width:
        _add_1(out, lanes(at, "u1"))
        at += 1
    _avalanche(out)


# Rows of any length: each step gathers its lanes


def _hash_few(starts: Int64s, lengths: Int64s, data: UInt8s, seeds: _Seeds) -> UInt64s:
    """Each step takes the rows that still have bytes for it."""
    out = np.empty((len(seeds), len(starts)), np.uint64)
    long = np.flatnonzero(lengths >= LONG_BYTES)
    short = np.where(lengths < LONG_BYTES, lengths, 0)
    for row, seed in enumerate(seeds):
        out[row] = seed + _P5
    _add_stripes(data, starts, short >> 5, seeds, out)
    out += short.astype(np.uint64)
    at, rest = starts + (short & ~31), short & 31
    for lane in range(1, 4):
        _step(rest >= 8 * lane, at, data, "<u8", out)
    _step(rest & 4 > 0, at, data, "<u4", out)
    for byte in range(1, 4):
        _step(rest & 3 >= byte, at, data, "u1", out)
    _avalanche(out)
    for row in long.tolist():
        value = data[starts[row] : starts[row] + lengths[row]].tobytes()
        out[:, row] = [xxh64_one(value, int(seed)) for seed in seeds]
    return out


def _add_stripes(
    data: UInt8s, starts: Int64s, stripes: Int64s, seeds: _Seeds, out: UInt64s
) -> None:
    # rows that are through come first
    by_stripes = np.argsort(stripes.astype(np.uint16), kind="stable")
    rows = by_stripes[np.searchsorted(stripes[by_stripes], 1) :]
    counts = stripes[rows]
    states, joined = _Stripes(seeds, len(rows)), 0
    for stripe in range(int(counts[-1]) + 1 if len(rows) else 0):
        through = int(np.searchsorted(counts, stripe, side="right"))
        for row in range(len(seeds)):
            out[row, rows[joined:through]] = states.join(row, through - joined)
        states.drop(through - joined)
        joined = through
        at = starts[rows[joined:]] + 32 * stripe
        for k in range(4):
            states.add(k, at_every_byte(data, "<u8")[at + 8 * k])


def _step(which: Bools, at: Int64s, data: UInt8s, kind: str, out: UInt64s) -> None:
    """Add the lane at the cursor of some rows, and move their cursors."""
    rows = np.flatnonzero(which)
    cursor, some = at[rows], out[:, rows]
    _ADD[kind](some, at_every_byte(data, kind)[cursor])
    out[:, rows] = some
    at[rows] = cursor + np.dtype(kind).itemsize


# The steps of XXH64. Hashes have a row per seed; lanes are shared by all seeds


class _Stripes:
    """The four accumulators of values of 32 bytes and more, for each seed."""

    def __init__(self, seeds: _Seeds, rows: int) -> None:
        first = [(s + _P1 + _P2, s + _P2, s, s - _P1) for s in seeds]
        self.states = np.empty((4, len(seeds), rows), np.uint64)
        self.states[:] = np.array(first, np.uint64).T[:, :, None]
        self.work = np.empty((len(seeds), rows), np.uint64)

    def add(self, k: int, lane: UInt64s) -> None:
        state = self.states[k]
        state += lane * _P2
        _rotate(state, 31, self.work)
        state *= _P1

    def join(self, seed: int, rows: int | None = None) -> UInt64s:
        states = [state[seed, :rows].copy() for state in self.states]
        joined = np.zeros_like(states[0])
        for state, bits in zip(states, (1, 7, 12, 18), strict=True):
            joined += _rotated(state, bits)
        for state in states:
            state *= _P2
            _rotate(state, 31)
            state *= _P1
            joined ^= state
            joined *= _P1
            joined += _P4
        return joined

    def drop(self, rows: int) -> None:
        self.states, self.work = self.states[:, :, rows:], self.work[:, rows:]


def _add_8(out: UInt64s, lane: UInt64s) -> None:
    mixed = lane * _P2
    _rotate(mixed, 31)
    mixed *= _P1
    out ^= mixed
    _rotate(out, 27)
    out *= _P1
    out += _P4


def _add_4(out: UInt64s, lane: UInt32s) -> None:
    out ^= lane.astype(np.uint64) * _P1
    _rotate(out, 23)
    out *= _P2
    out += _P3


def _add_1(out: UInt64s, lane: UInt8s) -> None:
    out ^= lane.astype(np.uint64) * _P5
    _rotate(out, 11)
    out *= _P1


_ADD: dict[str, Callable[[UInt64s, npt.NDArray[Any]], None]] = {
    "<u8": _add_8,
    "<u4": _add_4,
    "u1": _add_1,
}


def _avalanche(out: UInt64s) -> None:
    for shift, prime in ((33, _P2), (29, _P3), (32, None)):
        out ^= out >> _SHIFT[shift]
        if prime is not None:
            out *= prime


def _rotate(words: UInt64s, bits: int, work: UInt64s | None = None) -> None:
    high = np.right_shift(words, _SHIFT[64 - bits], out=work)
    words <<= _SHIFT[bits]
    words |= high


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    copy = words.copy()
    _rotate(copy, bits)
    return copy
