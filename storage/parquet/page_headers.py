"""Page headers, many at once: where all are of one form, as most writers have them.

    header of a data page    1 kind, 2 bytes decompressed, 3 bytes, 4 CRC32, 5 struct:
                             1 values, 2 encoding, 3 and 4 encodings of levels; no statistics,
                             which writers leave out where page indexes tell them
    of a dictionary          the same, but 7 struct: 1 values, 2 encoding, 3 false

One byte tells a field, and a varint follows it. So headers that differ in numbers alone are taken
apart by some twenty steps, each over all of them. One of another form, as of a page of version 2 or
without a checksum, is not understood; `pages.py` is asked then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt8s
from metatable.storage.byte_columns import at_every_byte
from metatable.storage.parquet.varints import leading_zigzags

__all__ = ["LAST_ENCODING", "WIDTH", "Headers"]

_DATA = [0x15, 0, 0x15, None, 0x15, None, 0x15, None, 0x1C, 0x15, None, 0x15, None]
_DATA += [0x15, None, 0x15, None, 0, 0]
_DICTIONARY = [0x15, 4, 0x15, None, 0x15, None, 0x15, None, 0x3C, 0x15, None, 0x15, None]
_DICTIONARY += [0x12, 0, 0]
"""The varints of a header: those that are the same in each."""

WIDTH = 48
"""More than a header of either form takes."""

LAST_ENCODING = 31
"""The greatest number of an encoding that is told apart here."""

_WORD = 8

_PLAIN, _STORED, _CRC, _VALUES, _ENCODING = range(5)
"""The numbers of a header, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """The headers of some pages."""

    sizes: Int64s
    """How many bytes each takes, 0 where it is not of this form."""
    numbers: Int64s
    """Bytes of the page before it was compressed and as it is stored, both without the header; its
    CRC32; values; encoding."""

    @classmethod
    def of(cls, heads: UInt8s, is_dictionary: Bools) -> Headers:
        """`heads`: the first WIDTH bytes of each page and what lies behind it."""
        sizes, numbers = _read(heads, _DATA)
        if is_dictionary.any():
            sizes[is_dictionary], numbers[is_dictionary] = _read(heads[is_dictionary], _DICTIONARY)
        return cls(sizes, numbers)

    @property
    def plain(self) -> Int64s:
        return self.numbers[:, _PLAIN]

    @property
    def values(self) -> Int64s:
        return self.numbers[:, _VALUES]

    @property
    def encodings(self) -> Int64s:
        return self.numbers[:, _ENCODING]

    @property
    def sums(self) -> list[int]:
        """CRC32, unsigned."""
        told: list[int] = (self.numbers[:, _CRC] & 0xFFFFFFFF).tolist()
        return told

    def fill(self, sizes: Int64s) -> Bools:
        """Which pages are of this form and of so many bytes, header included."""
        counts = self.numbers[:, [_PLAIN, _STORED, _VALUES]]
        is_whole = self.sizes + self.numbers[:, _STORED] == sizes
        sound: Bools = (self.sizes > 0) & is_whole & (counts >= 0).all(axis=1)
        return sound

    def are_encoded(self, ways: Int64s) -> Bools:
        """Which are encoded in one of the ways of which this has the bit."""
        encoding = self.numbers[:, _ENCODING]
        is_known = (encoding >= 0) & (encoding <= LAST_ENCODING)
        known: Bools = is_known & (ways >> encoding.clip(0, LAST_ENCODING) & 1 == 1)
        return known


def _read(heads: UInt8s, form: Sequence[int | None]) -> tuple[Int64s, Int64s]:
    """(how many bytes each header takes, 0 where it is not of this form; its numbers)."""
    body = np.append(heads.reshape(-1), np.zeros(_WORD, np.uint8))
    words = at_every_byte(body, "<u8")
    starts = np.arange(len(heads)) * WIDTH
    at, fits, numbers = starts.copy(), np.ones(len(heads), np.bool_), []
    for head in form:
        if head is None:
            found, lengths = leading_zigzags(words.take(at, mode="clip"))
            fits &= lengths > 0
            numbers.append(found)
            at += lengths
        else:
            fits &= body.take(at, mode="clip") == head
            at += 1
    fits &= at <= starts + WIDTH
    return np.where(fits, at - starts, 0), np.stack(numbers[: _ENCODING + 1], axis=1)
