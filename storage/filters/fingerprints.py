"""Fingerprints: the sorted distinct hashes themselves, cut to as many bytes as the rate needs.

    offset  size   field      (integers little-endian, unsigned)
         0     1   version    1
         1     1   width      bytes kept of each hash, its most significant ones: 1 to 8
         2     4   count      fingerprints
         6     w·n planes     byte 0 (most significant) of all fingerprints, then byte 1, …
       end     4   checksum   CRC-32C of all before

A hash that is not in the set is taken for one that is with probability count / 256^width;
the width is the least that keeps this below the rate asked for. Fingerprints ascend. Bytes
are stored plane by plane because the high planes then repeat themselves and the block's
compression finds that. There is no loop over keys anywhere: building is a sort, probing one
merge of two sorted columns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import google_crc32c
import numpy as np

from metatable.storage.arrays import Bools, UInt64s
from metatable.storage.errors import CorruptError, UpgradeError, UsageError

__all__ = ["KIND", "Fingerprints"]

KIND = "fingerprints"
VERSION = 1
_HEADER = struct.Struct("<BBI")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """`values`: ascending distinct uint64, the top `width` bytes of each hash, moved down."""

    values: UInt64s
    width: int
    kind: str = KIND

    @classmethod
    def build(cls, hashes: UInt64s, fpp: float) -> Fingerprints:
        """A filter of any hashes, repeated or not. Raises UsageError for 2^32 of them or more."""
        distinct = _without_repeats(np.sort(np.asarray(hashes, np.uint64)))
        if len(distinct) >= 1 << 32:
            raise UsageError("too many keys for one filter", found=len(distinct))
        width = next((w for w in range(1, 8) if len(distinct) <= fpp * 256.0**w), 8)
        return cls(_without_repeats(_cut(distinct, width)), width)

    def might_contain(self, hashes: UInt64s) -> Bools:
        """Cheapest for ascending hashes; others are sorted first."""
        if not len(self.values) or not len(hashes):
            return np.zeros(len(hashes), bool)
        asked = _cut(np.asarray(hashes, np.uint64), self.width)
        if (asked[1:] >= asked[:-1]).all():
            return self._holds(asked)
        order = np.argsort(asked)
        found = np.empty(len(asked), bool)
        found[order] = self._holds(asked[order])
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return self.values.nbytes + 100

    def encode(self) -> bytes:
        planes = self.values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - self.width :]
        body = _HEADER.pack(VERSION, self.width, len(self.values)) + planes.T.tobytes()
        return body + _CHECKSUM.pack(google_crc32c.value(body))

    @classmethod
    def decode(cls, raw: bytes, path: str = "") -> Fingerprints:
        """Raises CorruptError, and UpgradeError for a version that is not known."""
        if len(raw) < _HEADER.size + _CHECKSUM.size:
            raise CorruptError("filter is too short", path=path, found=len(raw))
        version, width, count = _HEADER.unpack_from(raw)
        if version != VERSION:
            raise UpgradeError("unknown filter version", path=path, expected=VERSION, found=version)
        size = _HEADER.size + width * count + _CHECKSUM.size
        if not 1 <= width <= 8 or len(raw) != size:
            raise CorruptError("filter has another size", path=path, expected=size, found=len(raw))
        (expected,) = _CHECKSUM.unpack_from(raw, size - _CHECKSUM.size)
        found = google_crc32c.value(raw[: size - _CHECKSUM.size])
        if found != expected:
            raise CorruptError(
                "filter checksum mismatch", path=path, expected=hex(expected), found=hex(found)
            )
        planes = np.frombuffer(raw, np.uint8, width * count, _HEADER.size).reshape(width, count)
        words = np.zeros((count, 8), np.uint8)
        for place, plane in enumerate(planes):  # a sweep a plane takes a fifth of `planes.T`'s time
            words[:, width - 1 - place] = plane
        return cls(words.view("<u8").reshape(count).astype(np.uint64, copy=False), width)

    def check_invariants(self) -> None:
        """Ascending, distinct, no wider than they say."""
        assert (self.values[1:] > self.values[:-1]).all()
        assert self.width == 8 or (self.values >> np.uint64(8 * self.width) == 0).all()

    def _holds(self, ascending: UInt64s) -> Bools:
        places = np.searchsorted(self.values, ascending)
        np.minimum(places, len(self.values) - 1, out=places)
        found: Bools = self.values[places] == ascending
        return found


def _without_repeats(ascending: UInt64s) -> UInt64s:
    """What `np.unique` gives, which knows nothing of order and takes ten times as long."""
    first = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]


def _cut(hashes: UInt64s, width: int) -> UInt64s:
    """The top `width` bytes; keeps the order of sorted hashes."""
    return hashes >> np.uint64(64 - 8 * width)
