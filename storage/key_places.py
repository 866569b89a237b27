"""Where keys stand among others: tables of their last eight bytes, made once for many questions.

Arrow's `index_in` reads all of every key that it is asked, and makes its table anew for each
question. Here most keys that are not there are denied by their last eight bytes, which differ
where keys are random, counted, or begin with their time; and those that seem to be there are
compared whole. Keys of which these do not tell enough are left to Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.byte_columns import at_every_byte, byte_layout, size_of_all
from metatable.storage.marked_words import MarkedWords

__all__ = ["KeyPlaces", "found_among"]

_WORD = 8


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Distinct keys (a string or binary array without nulls), ready to be asked for.

    `marked`: what they end with, None where Arrow looks for all of them. Of `marked.twins`, keys
    that end like another one, Arrow looks for these alone.
    """

    keys: pa.Array
    marked: MarkedWords | None

    @classmethod
    def of(cls, keys: pa.Array) -> KeyPlaces:
        """Memory: 50 to 100 bytes per key."""
        words = _last_words(keys)
        return cls(keys, None if words is None else MarkedWords.of(words))

    @property
    def are_distinct(self) -> bool:
        """Whether this is proved; else two keys may be one, of which `find` gives either."""
        if self.marked is None or not len(self.marked.twins):
            return self.marked is not None
        words = self.marked.words
        alike = self.keys.take(pa.array(np.flatnonzero(np.isin(words, words[self.marked.twins]))))
        return len(alike.unique()) == len(alike)

    def find(self, asked: pa.Array) -> tuple[Int64s, Int64s]:
        """(which of `asked` are among the keys, ascending; where these are)."""
        words = None if self.marked is None else _last_words(asked)
        if self.marked is None or words is None:
            return found_among(asked, self.keys)
        rows, places = self.marked.find(words)
        theirs, ours = asked.take(pa.array(rows)), self.keys.take(pa.array(places))
        same = pc.equal(theirs, ours.cast(asked.type)).to_numpy(zero_copy_only=False)
        among_twins = self.marked.twins
        if same.all() or not len(among_twins):
            return rows[same], places[same]
        others = np.flatnonzero(~same)
        twins = self.keys.take(pa.array(among_twins))
        found, at = found_among(theirs.take(pa.array(others)), twins)
        places[others[found]] = among_twins[at]
        same[others[found]] = True
        return rows[same], places[same]


def found_among(asked: pa.Array, keys: pa.Array) -> tuple[Int64s, Int64s]:
    """What `KeyPlaces.find` answers, by Arrow: sooner where both are few."""
    found = pc.index_in(asked, value_set=keys.cast(asked.type))
    if not found.null_count:  # most often, where rows were looked for
        return np.arange(len(found)), found.to_numpy().astype(np.int64)
    places = found.fill_null(-1).to_numpy().astype(np.int64)
    rows = np.flatnonzero(places >= 0)
    return rows, places[rows]


def _last_words(keys: pa.Array) -> UInt64s | None:
    """The last eight bytes of each; None where one is shorter, or null."""
    if keys.null_count or not len(keys):
        return None
    offsets, data = byte_layout(keys)
    size = size_of_all(offsets)
    if 0 <= size < _WORD or (size < 0 and int(np.diff(offsets).min()) < _WORD):
        return None
    if size >= 0:  # read in one sweep
        first = int(offsets[0]) + size - _WORD
        every: UInt64s = np.ndarray((len(keys),), np.uint64, data, first, (size,))
        return every.copy()
    return np.asarray(at_every_byte(data, np.uint64)[offsets[1:] - _WORD])
