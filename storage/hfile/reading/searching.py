"""Many keys looked up among records whose keys have any sizes.

beginnings  eight bytes per key, the first that can differ, ascend as keys do: wanted ones are
            searched in them, and whole keys compared where they landed
ends        where many keys agree in those bytes, as addresses and composite keys do, they are
            found by what they end with, in whatever order they are
whole keys  records out of order, in a hash table: Hudi sorts by UTF-16, which puts characters
            beyond U+FFFF before those from U+E000 on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import first_words, last_words
from metatable.storage.hfile.columns import (
    bytes_of,
    column_offsets,
    common_prefix_size,
)
from metatable.storage.hfile.key_values import KeyValues
from metatable.storage.marked_words import MarkedWords
from metatable.storage.word_places import ODD

__all__ = ["Found", "find_any"]

Prove = Callable[[KeyValues], None]

_WORD = 8
TIED_SHARE = 16
"""If more than this fraction of rows agree in a word with the next one, they are searched by what
they end with."""
_SAMPLE = 512
"""So many rows are looked at for that."""
_END_WORDS = (1, 2, 4, 8)
"""The last words of a row that are looked at: more, where fewer tell too few apart."""
_SEEMING = 4
"""Rows that end like wanted keys, for each of these: where there are more, they tell too few."""
_ODD, _HALF = np.uint64(ODD[0]), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Found:
    """The (first) record of each wanted key: `places`, int64, -1 where there is none; `records`,
    those that are there, perhaps copies that lie side by side; and these where they lie."""

    places: Int64s
    records: KeyValues
    there: KeyValues

    @classmethod
    def at(cls, records: KeyValues, places: Int64s) -> Found:
        """Records at these places."""
        there = records.at(places[places >= 0])
        return cls(places, there, there)


def find_any(records: KeyValues, wanted: pa.Array, prove: Prove | None = None) -> Found:
    """What is there of the wanted keys.

    `prove` is called with all records where they are out of order, and so a key may be missing: by
    the wrong word of a file on the sizes of its records, which it tells.
    """
    if not len(records) or not len(wanted):
        return Found.at(records, np.full(len(wanted), -1, np.int64))
    if _seem_tied(records):
        found = _by_ends(records, wanted)
        if found is not None:
            if prove and len(found.records) < len(wanted) and not _ascend(_words(records)):
                prove(records)
            return found
    found = _by_beginnings(records, wanted)
    if found is not None:
        return found
    if prove:
        prove(records)
    return Found.at(records, _among(wanted, records.keys()))


def _by_beginnings(records: KeyValues, wanted: pa.Array) -> Found | None:
    """By the first bytes that differ; None where the rows are out of order."""
    words, sought = _words(records), _sought(records, wanted)
    if not _ascend(words):
        return None
    ties = np.flatnonzero(words[1:] == words[:-1])
    if ties.size and not _next_are_not_less(records, ties):
        return None
    landed = np.minimum(np.searchsorted(words, sought), len(words) - 1)
    seeming = np.flatnonzero(words[landed] == sought)
    rows = landed[seeming]
    tied = np.flatnonzero(np.isin(rows, ties)) if ties.size else ties
    if tied.size:  # the first of several with this word
        behind = np.searchsorted(words, words[rows[tied]], "right")
        few = wanted.take(pa.array(seeming[tied]))
        rows[tied] = np.minimum(_lower_bound(records, few, rows[tied], behind), len(words) - 1)
    return _those_that_are(wanted, records.at(rows), rows, seeming)


def _by_ends(records: KeyValues, wanted: pa.Array) -> Found | None:
    """By what rows end with; None where that tells too few apart."""
    for count in _END_WORDS:
        asked = MarkedWords.of(_ends_of(wanted, count))
        if asked is None:
            continue
        ends = records.row_starts + records.row_sizes
        rows, which = asked.find(_ends(records.raw, ends, records.row_sizes, count))
        if len(rows) > _SEEMING * len(wanted):
            continue
        found = _those_that_are(wanted, records.at(rows), rows, which, copied=True)
        return _with_twins(records, wanted, asked, found, rows, which)
    return None


def _those_that_are(
    wanted: pa.Array, there: KeyValues, rows: Int64s, which: Int64s, *, copied: bool = False
) -> Found:
    """Which of the records `there` are wanted keys: record i of them, which is row `rows[i]` of
    all, may be the key `which[i]`, unless an earlier one is. `copied`: they are copied side by side
    first."""
    records = there.side_by_side() if copied else there
    is_it = _equal(records, _taken(wanted, which))
    places = np.full(len(wanted), -1, np.int64)
    if is_it.all() and _is_all(which, len(wanted)):
        places[:] = rows
        return Found(places, records, there)
    hits = np.flatnonzero(is_it)
    mine = places.copy()
    mine[which[hits][::-1]] = hits[::-1]  # the first of several is written last
    chosen = mine[mine >= 0]
    places[mine >= 0] = rows[chosen]
    return Found(places, records.at(chosen), there.at(chosen))


def _with_twins(
    records: KeyValues,
    wanted: pa.Array,
    asked: MarkedWords,
    found: Found,
    rows: Int64s,
    which: Int64s,
) -> Found:
    """What was found, and the wanted keys that end like another one: rows were compared with that
    other one alone."""
    if not len(asked.twins):
        return found
    is_unsure = np.isin(asked.words, asked.words[asked.twins])
    unsure, seeming = np.flatnonzero(is_unsure), rows[is_unsure[which]]
    hits = _among(wanted.take(pa.array(unsure)), records.at(seeming).keys())
    found.places[unsure] = np.append(seeming, -1)[hits]
    return Found.at(records, found.places)


def _taken(wanted: pa.Array, which: Int64s) -> pa.Array:
    """`wanted.take(which)`, without a copy where these are all."""
    return wanted if _is_all(which, len(wanted)) else wanted.take(pa.array(which))


def _is_all(which: Int64s, count: int) -> bool:
    """Whether these are all of so many, in order."""
    return len(which) == count and np.array_equal(which, np.arange(count))


def _among(wanted: pa.Array, keys: pa.Array) -> Int64s:
    """The first of `keys` that each wanted one is, -1 where there is none, by a hash table."""
    hits = pc.fill_null(pc.index_in(wanted, value_set=keys), -1)
    return cast("Int64s", hits.to_numpy(zero_copy_only=False).astype(np.int64))


def _equal(records: KeyValues, wanted: pa.Array) -> Bools:
    """For each record whether its key is the wanted one of the same number."""
    same = pc.equal(records.keys(), wanted).to_numpy(zero_copy_only=False)
    return cast("npt.NDArray[np.bool_]", same)


def _lower_bound(records: KeyValues, wanted: pa.Array, low: Int64s, high: Int64s) -> Int64s:
    """The first record from `low` on, before `high`, that is not less than the wanted key."""
    low, high = low.copy(), high.copy()
    while (active := np.flatnonzero(low < high)).size:
        middle = (low[active] + high[active]) >> 1
        less = pc.less(records.at(middle).keys(), wanted.take(pa.array(active)))
        goes_up = less.to_numpy(zero_copy_only=False)
        low[active[goes_up]] = middle[goes_up] + 1
        high[active[~goes_up]] = middle[~goes_up]
    return low


def _next_are_not_less(records: KeyValues, places: Int64s) -> bool:
    """Whether the rows at these places are not greater than the next ones, compared whole."""
    before, after = records.at(places).keys(), records.at(places + 1).keys()
    return bool(pc.all(pc.less_equal(before, after)).as_py())


def _ascend(words: UInt64s) -> bool:
    return not (words[1:] < words[:-1]).any()


# What is made of keys


def _seem_tied(records: KeyValues) -> bool:
    """Whether many rows agree in `_words` with the next one, by a look at some of them."""
    some = np.arange(0, len(records) - 1, max(len(records) // _SAMPLE, 1))
    skip = _skip(records)
    words = _beginnings(records.at(np.concatenate((some, some + 1))), skip)
    ties = int(np.count_nonzero(words[: len(some)] == words[len(some) :]))
    return ties * TIED_SHARE > len(some)


def _skip(records: KeyValues) -> int:
    """How many bytes all rows begin with, if they ascend."""
    return common_prefix_size(records.key(0), records.key(-1))


def _words(records: KeyValues) -> UInt64s:
    """Eight bytes of every row, behind what all rows begin with."""
    return _beginnings(records, _skip(records))


def _beginnings(records: KeyValues, skip: int) -> UInt64s:
    return first_words(records.raw, records.row_starts + skip, _less(records.row_sizes, skip))


def _sought(records: KeyValues, wanted: pa.Array) -> UInt64s:
    """`_words` of wanted keys; one that begins otherwise gets some word, and equals no row."""
    skip = _skip(records)
    data, offsets = _padded(wanted)
    starts = np.minimum(offsets[:-1] + skip, offsets[1:])
    return first_words(data, starts, np.diff(offsets) - skip)


def _ends_of(keys: pa.Array, count: int) -> UInt64s:
    """`_ends` of keys."""
    data, offsets = _padded(keys)
    return _ends(data, offsets[1:], np.diff(offsets), count)


def _ends(raw: UInt8s, ends: Int64s, sizes: Int64s, count: int) -> UInt64s:
    """For each piece of `raw` one word that is made of its last `count` words: equal pieces have
    equal ones."""
    words = last_words(raw, ends, sizes)
    for place in range(_WORD, _WORD * count, _WORD):
        words *= _ODD
        words ^= words >> _HALF
        words += last_words(raw, ends - place, _less(sizes, place))
    return words


def _padded(keys: pa.Array) -> tuple[UInt8s, Int64s]:
    """The bytes of keys with a word's room before and behind, and the n + 1 offsets into them."""
    offsets, room = column_offsets(keys), np.zeros(_WORD, np.uint8)
    data = bytes_of(keys)[offsets[0] : offsets[-1]]
    return np.concatenate((room, data, room)), offsets - (offsets[0] - _WORD)


def _less(sizes: Int64s, skip: int) -> Int64s:
    """`sizes - skip`, without memory of its own where `sizes` have none."""
    if sizes.strides == (0,) and len(sizes):
        return np.broadcast_to(sizes[0] - skip, sizes.shape)
    return sizes - skip
