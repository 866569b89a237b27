"""Where keys stand among others: tables of their last eight bytes, made once for many questions.

Arrow's `index_in` reads all of every key that it is asked, and makes its table anew for each
question. Here most keys that are not there are denied by their last eight bytes, which differ
where keys are random, counted, or begin with their time; and those that seem to be there are
compared whole. Keys of which these do not tell enough are left to Arrow.

Every key has a slot in one of a few tables, the first in which no other had taken it: so a key
asked goes on to the next table only where its slot holds another word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import byte_layout, size_of_all

__all__ = ["KeyPlaces", "found_among"]

Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Table = npt.NDArray[np.int32]
Marks = npt.NDArray[np.bool_]

_WORD = 8
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""What words are multiplied by, a number a table: the constants of xxHash and of the golden
ratio."""


TOGETHER = 1 << 15
"""Words that are looked up at once: they and their slots stay in the processor's cache."""

MOST_TWINS = 1 / 64
"""Of keys that end alike; where there are more, Arrow looks for all."""

_NO_MARKS: Marks = np.zeros(0, np.bool_)


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Distinct keys (a string or binary array without nulls), ready to be asked for.

    `marks`: which slots of the first table are taken, a byte each, which stay in the processor's
    cache: most keys asked are denied by these. `twins`: keys that end like another one, which is
    in the tables; Arrow looks for these alone.
    """

    keys: pa.Array
    words: Words
    marks: Marks
    tables: tuple[Table, ...]
    twins: Positions

    @classmethod
    def of(cls, keys: pa.Array) -> KeyPlaces:
        """Memory: 50 to 100 bytes a key."""
        words = _last_words(keys)
        made = None if words is None else _tables(words)
        if words is None or made is None or len(made[1]) > len(keys) * MOST_TWINS:
            return cls(keys, np.zeros(0, np.uint64), _NO_MARKS, (), np.arange(len(keys)))
        tables, twins = made
        return cls(keys, words, tables[0] >= 0, tables, twins)

    @property
    def are_distinct(self) -> bool:
        """Whether this is proved; else two keys may be one, of which `find` gives either."""
        if not self.tables or not len(self.twins):
            return bool(self.tables)
        alike = self.keys.take(
            pa.array(np.flatnonzero(np.isin(self.words, self.words[self.twins])))
        )
        return len(alike.unique()) == len(alike)

    def find(self, asked: pa.Array) -> tuple[Positions, Positions]:
        """(which of `asked` are among the keys, ascending; where these are)."""
        words = _last_words(asked) if self.tables else None
        if words is None:
            return found_among(asked, self.keys)
        rows, places = _found(self.words, self.marks, self.tables, words)
        theirs, ours = asked.take(pa.array(rows)), self.keys.take(pa.array(places))
        same = pc.equal(theirs, ours.cast(asked.type)).to_numpy(zero_copy_only=False)
        if same.all() or not len(self.twins):
            return rows[same], places[same]
        others = np.flatnonzero(~same)
        twins = self.keys.take(pa.array(self.twins))
        found, at = found_among(theirs.take(pa.array(others)), twins)
        places[others[found]] = self.twins[at]
        same[others[found]] = True
        return rows[same], places[same]


def found_among(asked: pa.Array, keys: pa.Array) -> tuple[Positions, Positions]:
    """What `KeyPlaces.find` answers, by Arrow: sooner where both are few."""
    found = pc.index_in(asked, value_set=keys.cast(asked.type))
    if not found.null_count:  # most often, where rows were looked for
        return np.arange(len(found)), found.to_numpy().astype(np.int64)
    places = found.fill_null(-1).to_numpy().astype(np.int64)
    rows = np.flatnonzero(places >= 0)
    return rows, places[rows]


def _last_words(keys: pa.Array) -> Words | None:
    """The last eight bytes of each; None where one is shorter, or null."""
    if keys.null_count or not len(keys):
        return None
    offsets, data = byte_layout(keys)
    size = size_of_all(offsets)
    if 0 <= size < _WORD or (size < 0 and int(np.diff(offsets).min()) < _WORD):
        return None
    if size >= 0:  # read in one sweep
        first = int(offsets[0]) + size - _WORD
        every: Words = np.ndarray((len(keys),), np.uint64, data, first, (size,))
        return every.copy()
    at_every_byte: Words = np.ndarray((len(data) + 1 - _WORD,), np.uint64, data, strides=(1,))
    return np.asarray(at_every_byte[offsets[1:] - _WORD])


def _tables(words: Words) -> tuple[tuple[Table, ...], Positions] | None:
    """(tables, words that are in none because they equal another one). None: some have found no
    slot, as they would if somebody had chosen them."""
    tables: list[Table] = []
    twins, left = [], np.arange(len(words))
    for odd in _ODD:
        share = 16 if tables else 8
        table = np.full(1 << max(12, (share * len(left)).bit_length()), -1, np.int32)
        slots = _slots(words[left], len(table), odd)
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


def _found(
    held: Words, marks: Marks, tables: tuple[Table, ...], asked: Words
) -> tuple[Positions, Positions]:
    """(which words are held, ascending; where)."""
    parts = range(0, len(asked), TOGETHER)
    seeming = [_seeming(marks, asked[start : start + TOGETHER], start) for start in parts]
    rows, slots = (np.concatenate(one) for one in zip(*seeming, strict=True))
    asked, places = asked[rows], tables[0][slots].astype(np.int64)
    left = np.flatnonzero(held[places] != asked)
    for table, odd in zip(tables[1:], _ODD[1:], strict=False):
        found = table[_slots(asked[left], len(table), odd)]
        places[left] = found
        left = left[(found >= 0) & (held[found] != asked[left])]
    places[left] = -1
    is_held = np.flatnonzero(places >= 0)
    return rows[is_held], places[is_held]


def _seeming(marks: Marks, asked: Words, start: int) -> tuple[Positions, Positions]:
    """(rows, from `start` on, whose slots of the first table are taken; these slots)."""
    slots = _slots(asked, len(marks), _ODD[0])
    rows = np.flatnonzero(marks[slots])
    return rows + start, slots[rows]


def _slots(words: Words, count: int, odd: int) -> Positions:
    """Of so many, a power of two."""
    slots = words * np.uint64(odd)
    slots >>= np.uint64(_WORD * 8 + 1 - count.bit_length())
    return slots.view(np.int64)
