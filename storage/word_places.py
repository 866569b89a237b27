"""Where words of 64 bits stand among others: tables of distinct ones, in which others are found.

Every word has a slot in one of a few tables, the first in which no other had taken it: so a word
asked goes on to the next table only where its slot holds another one. Nothing is sorted but the
few that found no slot, and what is held is read where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metatable.storage.arrays import Int32s, Int64s, UInt64s
from metatable.storage.threads import in_order

__all__ = ["ODD", "WordPlaces", "slots_of"]

ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""What words are multiplied by, one number per table: the constants of xxHash and of the golden
ratio."""

SHARE = 2
"""Slots a word, at least: in a larger table fewer are taken, and it does not stay near the
processor."""
LEAST_BITS = 8
TOGETHER = 1 << 16
"""Words that are looked up at once: what is made of them is in memory that is used again."""
FEW = 64
"""So many words that found no slot are sorted."""


@dataclass(frozen=True, slots=True)
class WordPlaces:
    """Distinct words, fewer than 2 ** 31. `rest`: those that are in no table, sorted, and where
    they stand among the words."""

    words: UInt64s
    tables: tuple[Int32s, ...]
    rest: tuple[UInt64s, Int32s]

    @classmethod
    def of(cls, words: UInt64s) -> WordPlaces | None:
        """None: two of them are equal. Memory besides: 12 to 22 bytes per word."""
        tables: list[Int32s] = []
        left = np.arange(len(words), dtype=np.int32)
        for odd in ODD:
            if len(left) <= FEW:
                break
            made = _table(words, left, odd)
            if made is None:
                return None
            tables.append(made[0])
            left = made[1]
        order = np.argsort(words[left])
        rest, places = words[left[order]], left[order]
        if (rest[1:] == rest[:-1]).any():
            return None
        return cls(words, tuple(tables), (rest, places))

    def find(self, asked: UInt64s) -> Int32s:
        """Where each stands, -1 where it does not."""
        return np.concatenate([np.zeros(0, np.int32), *in_order(self._found, _parts(asked))])

    def _found(self, asked: UInt64s) -> Int32s:
        found, left = np.full(len(asked), -1, np.int32), np.arange(len(asked))
        for table, odd in zip(self.tables, ODD, strict=False):
            some = asked.take(left)
            places = table.take(slots_of(some, len(table), odd))
            same = self.words.take(places) == some
            found[left[same]] = places[same]
            left = left[~same]
        words, places = self.rest
        if len(left) and len(words):
            some = asked.take(left)
            at = np.minimum(np.searchsorted(words, some), len(words) - 1)
            same = words[at] == some
            found[left[same]] = places[at[same]]
        return found


def _table(words: UInt64s, rows: Int32s, odd: int) -> tuple[Int32s, Int32s] | None:
    """(a table of these words, those of them that it does not hold). None: one of these equals one
    that it holds. An empty slot says 0, which is a place like others: whoever asks compares."""
    table = np.zeros(1 << max((SHARE * len(rows) - 1).bit_length(), LEAST_BITS), np.int32)
    for some in _parts(rows):
        table[slots_of(words.take(some), len(table), odd)] = some
    left = []
    for some in _parts(rows):
        asked = words.take(some)
        there = table.take(slots_of(asked, len(table), odd))
        lost = there != some
        if (words[there[lost]] == asked[lost]).any():
            return None
        left.append(some[lost])
    return table, np.concatenate(left)


def slots_of(words: UInt64s, count: int, odd: int) -> Int64s:
    """The slot of each word among `count`, a power of two; `odd` is what it is multiplied with."""
    slots = words * np.uint64(odd)
    slots >>= np.uint64(65 - count.bit_length())
    return slots.view(np.int64)


def _parts(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (rows[start : start + TOGETHER] for start in range(0, len(rows), TOGETHER))
