"""Split-block Bloom filter, as Parquet specifies it: eight bits in one block of 32 bytes per key.

    offset  size   field      (integers little-endian, unsigned)
         0     4   version    1
         4     4   count      blocks, at least one
         8   32·n  blocks     eight u32 words each: Parquet's bitset, bit for bit
       end     4   checksum   CRC-32C of all before

The upper half of a hash chooses the block, `upper * count >> 32`. The lower half sets one bit
in each word i: bit `lower * SALTS[i] mod 2**32 >> 27`. So a key touches one cache line, where
a plain Bloom filter touches one for each of its hashes. The price is bits, because blocks fill
unevenly: 10.5 a key for a rate of 1 %, 17 for 0.1 %, 26 for 0.01 %, 318 for 1e-9. Rates below
1e-12 would take thousands and are refused.

There is no loop over keys: hashes are sorted, which sorts them by block, so that the words of
a block are one reduction over neighbours.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache

import google_crc32c
import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt32s, UInt64s
from metatable.storage.errors import CorruptError, UpgradeError, UsageError

__all__ = ["KIND", "SALTS", "SplitBlock"]

KIND = "split_block"
VERSION = 1
SALTS = np.array(
    (
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    ),
    np.uint32,
)

_HEADER = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")
_WORDS = len(SALTS)
_BLOCK_BYTES = 4 * _WORDS
_MOST_BLOCKS = (1 << 31) // _BLOCK_BYTES
"""Two gibibytes: a block of an HFile holds no more, and a billion keys fit."""
_LEAST_RATE = 1e-12
_MOST_KEYS_A_BLOCK = 1024.0
"""Nearly all bits are set then: no rate below 1 needs more."""
_PIECE = 1 << 14
"""Keys taken together: their masks stay in the second level cache."""

_TO_BIT = np.uint32(27)  # a word has 2 ** 5 bits
_HALF = np.uint64(32)
_ONE = np.uint32(1)


@dataclass(frozen=True, slots=True)
class SplitBlock:
    """`words`: uint32 of shape (blocks, 8)."""

    words: UInt32s
    kind: str = KIND

    @classmethod
    def build(cls, hashes: UInt64s, fpp: float) -> SplitBlock:
        """A filter of any hashes, repeated or not. Raises UsageError for rates and sizes out of
        reach."""
        blocks = max(1, math.ceil(len(hashes) / _keys_a_block(fpp)))
        if blocks > _MOST_BLOCKS:
            raise UsageError("too many keys for one filter", found=len(hashes))
        return cls.of(hashes, blocks)

    @classmethod
    def of(cls, hashes: UInt64s, blocks: int) -> SplitBlock:
        """A filter of so many blocks."""
        words = np.zeros((blocks, _WORDS), np.uint32)
        ordered = np.sort(np.asarray(hashes, np.uint64))
        for first in range(0, len(ordered), _PIECE):
            _set(words, ordered[first : first + _PIECE])
        return cls(words)

    def might_contain(self, hashes: UInt64s) -> Bools:
        """Hashes in any order."""
        asked = np.asarray(hashes, np.uint64)
        words, lower = self.words.reshape(-1), asked.astype(np.uint32)
        places = _blocks_of(asked, len(self.words)) * _WORDS
        found = np.full(len(asked), _ONE)
        for salt in SALTS:
            found &= words[places] >> (lower * salt >> _TO_BIT)
            places += 1
        return found.astype(bool)

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return self.words.nbytes + 100

    def encode(self) -> bytes:
        body = _HEADER.pack(VERSION, len(self.words)) + self.words.astype("<u4").tobytes()
        return body + _CHECKSUM.pack(google_crc32c.value(body))

    @classmethod
    def decode(cls, raw: bytes, path: str = "") -> SplitBlock:
        """Raises CorruptError, and UpgradeError for a version that is not known."""
        if len(raw) < _HEADER.size + _BLOCK_BYTES + _CHECKSUM.size:
            raise CorruptError("filter is too short", path=path, found=len(raw))
        version, count = _HEADER.unpack_from(raw)
        if version != VERSION:
            raise UpgradeError("unknown filter version", path=path, expected=VERSION, found=version)
        end = _HEADER.size + _BLOCK_BYTES * count
        if len(raw) != end + _CHECKSUM.size:
            expected = end + _CHECKSUM.size
            raise CorruptError(
                "filter has another size", path=path, expected=expected, found=len(raw)
            )
        (expected,) = _CHECKSUM.unpack_from(raw, end)
        found = google_crc32c.value(raw[:end])
        if found != expected:
            raise CorruptError(
                "filter checksum mismatch", path=path, expected=hex(expected), found=hex(found)
            )
        words = np.frombuffer(raw, "<u4", _WORDS * count, _HEADER.size).reshape(count, _WORDS)
        return cls(words.astype(np.uint32, copy=False))

    def check_invariants(self) -> None:
        """At least one block, and as many bits in each word as in the others, at most."""
        assert self.words.shape == (len(self.words), _WORDS)
        assert len(self.words) >= 1
        assert ((self.words != 0).all(axis=1) | (self.words == 0).all(axis=1)).all()


def _blocks_of(hashes: UInt64s, count: int) -> Int64s:
    return ((hashes >> _HALF) * np.uint64(count) >> _HALF).astype(np.int64)


def _set(words: UInt32s, ascending: UInt64s) -> None:
    """Hashes that ascend lie side by side if they share a block."""
    places = _blocks_of(ascending, len(words))
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    masks = SALTS[:, None] * ascending.astype(np.uint32)
    masks >>= _TO_BIT
    np.left_shift(_ONE, masks, out=masks)
    words[places[starts]] |= np.bitwise_or.reduceat(masks, starts, axis=1).T


# How many keys a block may have


@lru_cache(maxsize=64)
def _keys_a_block(fpp: float) -> float:
    """The most keys a block may have in the mean, so that no more than `fpp` are let through."""
    if fpp < _LEAST_RATE:
        raise UsageError(
            "false-positive rate is lower than a split-block filter goes",
            expected=f"at least {_LEAST_RATE}",
            found=fpp,
        )
    low, high = 0.0, _MOST_KEYS_A_BLOCK
    while high - low > high * 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _rate(middle) <= fpp else (low, middle)
    return low


def _rate(mean: float) -> float:
    """False positives where blocks have `mean` keys: their numbers follow Poisson's law."""
    most = int(mean + 12 * math.sqrt(mean)) + 30
    keys = np.arange(most)
    log_factorials = np.concatenate((np.zeros(1), np.cumsum(np.log(keys[1:]))))
    chances = np.exp(keys * math.log(mean) - mean - log_factorials)
    bits_set = 1 - (1 - 1 / 32) ** keys
    return float(np.sum(chances * bits_set**_WORDS))
