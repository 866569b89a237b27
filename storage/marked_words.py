"""Words of 64 bits that few of many others equal: which of those do, and what they equal.

Every word has a slot in one of a few tables, the first in which no other had taken it: so a word
asked goes on to the next table only where its slot holds another one. Most that are asked are not
there, and are denied by a mark for each slot of the first table, which the processor keeps near.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metatable.storage.arrays import Bools, Int32s, Int64s, UInt64s
from metatable.storage.word_places import ODD, slots_of

__all__ = ["MOST_TWINS", "TOGETHER", "MarkedWords"]

TOGETHER = 1 << 15
"""Words that are looked up at once: they and their slots stay in the processor's cache."""

MOST_TWINS = 1 / 64
"""The share of words that may equal another one; where there are more, they tell too little."""


@dataclass(frozen=True, slots=True)
class MarkedWords:
    """Words, nearly all of them distinct, ready to be looked for.

    `marks`: which slots of the first table are taken, a byte each. `twins`: places of words that
    equal another one, which is in the tables.
    """

    words: UInt64s
    marks: Bools
    tables: tuple[Int32s, ...]
    twins: Int64s

    @classmethod
    def of(cls, words: UInt64s) -> MarkedWords | None:
        """None: too many equal another one, or have found no slot. Memory: 50 to 100 bytes each."""
        made = _tables(words) if len(words) else None
        if made is None or len(made[1]) > len(words) * MOST_TWINS:
            return None
        tables, twins = made
        return cls(words, tables[0] >= 0, tables, twins)

    def find(self, asked: UInt64s) -> tuple[Int64s, Int64s]:
        """(which of `asked` are among the words, ascending; where these are, of twins the one that
        is in the tables)."""
        parts = range(0, len(asked), TOGETHER)
        seeming = [_seeming(self.marks, asked[start : start + TOGETHER], start) for start in parts]
        if not seeming:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows, slots = (np.concatenate(one) for one in zip(*seeming, strict=True))
        asked, places = asked[rows], self.tables[0][slots].astype(np.int64)
        left = np.flatnonzero(self.words[places] != asked)
        for table, odd in zip(self.tables[1:], ODD[1:], strict=False):
            found = table[slots_of(asked[left], len(table), odd)]
            places[left] = found
            left = left[(found >= 0) & (self.words[found] != asked[left])]
        places[left] = -1
        is_held = np.flatnonzero(places >= 0)
        return rows[is_held], places[is_held]


def _tables(words: UInt64s) -> tuple[tuple[Int32s, ...], Int64s] | None:
    """(tables, words that are in none because they equal another one). None: some have found no
    slot, as they would if somebody had chosen them."""
    tables: list[Int32s] = []
    twins, left = [], np.arange(len(words))
    for odd in ODD:
        share = 16 if tables else 8
        table = np.full(1 << max(12, (share * len(left)).bit_length()), -1, np.int32)
        slots = slots_of(words[left], len(table), odd)
        table[slots] = left
        tables.append(table)
        first = table[slots]
        lost = first != left
        is_twin = words[first[lost]] == words[left[lost]]
        left = left[lost]
        twins.append(left[is_twin])
        left = left[~is_twin]
        if not len(left):
            return tuple(tables), np.concatenate(twins)
    return None


def _seeming(marks: Bools, asked: UInt64s, start: int) -> tuple[Int64s, Int64s]:
    """(rows, from `start` on, whose slots of the first table are taken; these slots)."""
    slots = slots_of(asked, len(marks), ODD[0])
    rows = np.flatnonzero(marks[slots])
    return rows + start, slots[rows]
