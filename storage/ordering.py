"""Byte order of whole key columns, in numpy and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Bools, Int32s, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import (
    byte_layout,
    first_words,
    from_gaps,
    voids,
)

__all__ = [
    "PrefixIndex",
    "as_binary",
    "has_repeats",
    "is_ascending",
    "number_order",
    "order_within",
    "order_without_repeats",
    "same_as_previous",
    "sort_order",
    "which_are_among",
]

_HASH = pa.binary(16)
"""Keys of this type are compared as two numbers."""

FEW_ROWS = 32
"""So few are sorted as objects: passes over columns cost their calls."""


_LANE_BITS, _LANE = 16, 0xFFFF
"""Numbers of so many bits numpy sorts by radix."""

RADIX_ROWS = 4096
"""Fewer numbers are sorted as they are: four passes over 256 counts take as long."""

SAMPLE_ROWS, MOST_TIED = 1024, 4
"""Where of so many numbers more have their first bits in common, as have those of letters, they are
sorted as they are."""

_SLOTS, _ROUNDS, _ODD = 4, 8, np.uint64(0x9E3779B97F4A7C15)


def as_binary(keys: pa.Array) -> pa.Array:
    """The keys as one `pa.binary()` array without offset games; copies only when it must."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_binary(keys.type):
        return keys
    return keys.cast(pa.binary())


def sort_order(keys: pa.Array) -> Int64s:
    """Positions that put `keys` in unsigned byte order; stable, so equal keys keep theirs."""
    if keys.type == _HASH:
        return _order_of_hashes(keys)[0]
    keys = as_binary(keys)
    if len(keys) <= FEW_ROWS and not keys.null_count:
        texts = keys.to_pylist()
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
    least, greatest = pc.min_max(keys).as_py().values()
    numbers = _eight_bytes(keys, 0 if least is None else _shared_bytes(least, greatest))
    order, in_order = _order(numbers)
    same = np.zeros(len(keys) + 1, dtype=bool)
    same[1:-1] = in_order[1:] == in_order[:-1]
    tied = np.flatnonzero(same[1:] | same[:-1])
    order[tied] = _sorted_whole(keys, order[tied])
    return order


def order_within(
    groups: Int32s,
    data: UInt8s,
    starts: Int64s,
    sizes: Int64s,
) -> Int64s:
    """Positions that put `groups`, numbers from 0 on, in ascending order, and in each of them the
    pieces `data[starts[i]:][:sizes[i]]`, which ascend in `data`, in byte order."""
    words = _first_words_that_differ(data, starts, sizes)
    order = _order_by_lanes([groups.astype(np.uint64), words])
    in_order, of = words.take(order), groups.take(order)
    same = np.zeros(len(order) + 1, dtype=bool)
    same[1:-1] = (in_order[1:] == in_order[:-1]) & (of[1:] == of[:-1])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        rows = np.sort(order[tied])
        keys = {"group": groups[rows], "key": from_gaps(data, starts[rows], sizes[rows])}
        ascending = [(name, "ascending") for name in keys]
        order[tied] = rows[pc.sort_indices(pa.table(keys), ascending).to_numpy()]
    return order


def number_order(numbers: Int64s) -> Int64s:
    """Positions that put numbers, none below 0, in ascending order; stable."""
    return _order(numbers.view(np.uint64))[0]


def has_repeats(words: UInt64s) -> bool:
    """Whether any of these, which should be hashes, is there twice. Each is put in a slot of a
    table, and who finds another one in his is compared with that; those go on to the next table.
    """
    for _ in range(_ROUNDS):  # somebody may have chosen those that meet
        if len(words) < RADIX_ROWS:
            break
        bits = (_SLOTS * len(words)).bit_length()
        slots = (words >> np.uint64(64 - bits)).view(np.int64)
        places, table = np.arange(len(words), dtype=np.int32), np.empty(1 << bits, np.int32)
        table[slots] = places
        held = table[slots]
        lost = np.flatnonzero(held != places)
        if (words[held[lost]] == words[lost]).any():
            return True
        words = words[lost] * _ODD
    words = np.sort(words)
    return bool((words[1:] == words[:-1]).any())


def _first_words_that_differ(data: UInt8s, starts: Int64s, sizes: Int64s) -> UInt64s:
    """Eight bytes of each piece, behind what all of them begin with."""
    skip = 0
    while True:
        if int(starts[-1:].sum()) + skip + 8 > len(data):
            data = np.concatenate([data, np.zeros(skip + 8, np.uint8)])
        words = first_words(data, starts + skip, sizes - skip)
        differ = int(words.max(initial=0)) ^ int(words.min(initial=0)) if len(words) else 1
        alike = 8 - (differ.bit_length() + 7) // 8
        if not alike or skip >= int(sizes.max(initial=0)):
            return words
        skip += alike


def order_without_repeats(keys: pa.Array) -> Int64s:
    """Positions that put `keys` in unsigned byte order, of equal ones the first alone."""
    if keys.type == _HASH:
        order, repeats = _order_of_hashes(keys)
        return np.delete(order, repeats) if len(repeats) else order
    order = sort_order(keys)
    again = same_as_previous(keys.take(pa.array(order)))
    return order[~again] if again.any() else order


def same_as_previous(keys: pa.Array) -> Bools:
    """For each key of a sorted column, whether it equals the one before it."""
    same = np.zeros(len(keys), dtype=bool)
    if len(keys) > 1:
        if keys.type == _HASH:
            high, low = _halves(keys)
            same[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        else:
            same[1:] = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return same


def which_are_among(numbers: UInt64s, ascending: UInt64s) -> Bools:
    """Which of these numbers are among those, which are in order."""
    at = np.searchsorted(ascending, numbers)
    found = np.zeros(len(numbers), dtype=bool)
    inside = at < len(ascending)
    found[inside] = ascending[at[inside]] == numbers[inside]
    return found


def is_ascending(column: pa.Array, strictly: bool) -> bool:
    """Whether no key is less than (strictly: nor equal to) the one before it."""
    if len(column) < 2:
        return True
    if column.type == _HASH:
        high, low = _halves(column)
        first = high.astype(np.uint64)
        if (first[1:] > first[:-1]).all():
            return True
        tied = np.flatnonzero(first[1:] == first[:-1])
        wrong = low[tied + 1] <= low[tied] if strictly else low[tied + 1] < low[tied]
        return not ((first[1:] < first[:-1]).any() or wrong.any())
    compare = pc.less if strictly else pc.less_equal
    return bool(pc.all(compare(column[:-1], column[1:])).as_py())


def _halves(keys: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The first and the last eight bytes of hashes, as big-endian numbers."""
    halves = voids(keys).view(">u8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


def _order_of_hashes(keys: pa.Array) -> tuple[Int64s, Int64s]:
    """What sorts them, and the places in that order that have the same key as the one before."""
    high, low = _halves(keys)
    first = high.astype(np.uint64)
    order, in_order = _order(first)
    tied = np.flatnonzero(in_order[1:] == in_order[:-1])
    if (low[order[tied + 1]] < low[order[tied]]).any():
        order = np.lexsort((low.astype(np.uint64), first)).astype(np.int64, copy=False)
    return order, tied[low[order[tied + 1]] == low[order[tied]]] + 1


def _order(numbers: UInt64s) -> tuple[Int64s, UInt64s]:
    """What sorts `numbers`, equal ones by position, and the sorted: a stable argsort, in a fraction
    of its time. Many are sorted by radix, by their first bits that differ, and then, among those
    whose bits are alike, by the rest."""
    if len(numbers) < RADIX_ROWS:
        return _order_of_few(numbers)
    first = numbers - numbers.min()
    dropped = max(int(first.max()).bit_length() - 2 * _LANE_BITS, 0)
    first >>= np.uint64(dropped)
    if dropped and len(_tied(np.sort(first[:: len(first) // SAMPLE_ROWS]))) > MOST_TIED:
        return _order_of_few(numbers)
    order = np.argsort(first.astype(np.uint16), kind="stable")
    lane = (first >> np.uint64(_LANE_BITS)).astype(np.uint16)
    order = order.take(np.argsort(lane.take(order), kind="stable"))
    in_order = numbers.take(order)
    if dropped and (in_order[1:] < in_order[:-1]).any():
        _sort_tied(_tied(first.take(order)), order, in_order)
    return order, in_order


def _order_of_few(numbers: UInt64s) -> tuple[Int64s, UInt64s]:
    """`_order` of few numbers: as many of the bits that differ as there is room for are sorted in
    one word with the position, and then, among those whose bits are alike, the rest."""
    if len(numbers) < 2:
        return np.arange(len(numbers)), numbers
    bits = (len(numbers) - 1).bit_length()
    packed = numbers - numbers.min()
    dropped = max(int(packed.max()).bit_length() + bits - 64, 0)
    packed >>= np.uint64(dropped)
    packed <<= np.uint64(bits)
    packed |= np.arange(len(numbers), dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << bits) - 1)).view(np.int64)
    in_order = numbers.take(order)
    if dropped and (in_order[1:] < in_order[:-1]).any():
        _sort_tied(_tied(packed >> np.uint64(bits)), order, in_order)
    return order, in_order


def _tied(ascending: UInt64s) -> Int64s:
    """The places of numbers that are there more than once."""
    alike = np.zeros(len(ascending) + 1, np.bool_)
    np.equal(ascending[1:], ascending[:-1], out=alike[1:-1])
    return np.flatnonzero(alike[1:] | alike[:-1])


def _sort_tied(tied: Int64s, order: Int64s, numbers: UInt64s) -> None:
    """Sort, in place, the numbers at these places, and their positions: they are in order but for
    bits that nobody has looked at yet."""
    again = tied[np.argsort(numbers[tied], kind="stable")]
    order[tied], numbers[tied] = order[again], numbers[again]


def _order_by_lanes(columns: Sequence[UInt64s]) -> Int64s:
    """What sorts rows of numbers, by the first column before the next, equal ones by position: by
    radix, 16 bits at a time, the last ones first, but for those that all have alike."""
    order = np.arange(len(columns[0]))
    for column in reversed(columns):
        differ = int(np.bitwise_or.reduce(column ^ column[:1])) if len(column) else 0
        for bits in range(0, differ.bit_length(), _LANE_BITS):
            if differ >> bits & _LANE:
                lane = (column >> np.uint64(bits)).astype(np.uint16)
                order = order.take(np.argsort(lane.take(order), kind="stable"))
    return order


def _sorted_whole(keys: pa.Array, rows: Int64s) -> Int64s:
    taken = keys.take(pa.array(rows))
    indices = pc.sort_indices(pa.table({"key": taken}), [("key", "ascending")]).to_numpy()
    return _settle_ties(keys, rows[indices])


def _shared_bytes(first: bytes, last: bytes) -> int:
    """Bytes that these texts, and so all between them, begin with alike."""
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return shared


def _settle_ties(keys: pa.Array, order: Int64s) -> Int64s:
    """Arrow's sort is not promised to be stable: put runs of equal keys in position order."""
    if len(order) < 2:
        return order
    same = same_as_previous(as_binary(keys).take(pa.array(order)))
    if not same.any():
        return order
    return order[np.lexsort((order, np.cumsum(~same)))]


class PrefixIndex:
    """Sorted texts, found by big-endian integers of the eight bytes after their common prefix.

    Finds places of other texts among them, in batches. Texts that agree in those bytes are
    compared whole, so every place is exact.
    """

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.cast(pa.binary())
        shared = _shared_bytes(self._keys[0].as_py(), self._keys[-1].as_py()) if len(keys) else 0
        self._shared = self._keys[0].as_py()[:shared] if shared else b""
        self._numbers = _eight_bytes(self._keys, shared)

    def place(self, bounds: pa.Array, side: Literal["left", "right"]) -> Int64s:
        """How many of the keys are less than each bound (left), or not greater (right).

        Of a null bound nothing is said.
        """
        shared = len(self._shared)
        raw = bounds.cast(pa.binary())
        numbers = _eight_bytes(raw, shared)
        first = np.searchsorted(self._numbers, numbers, side="left").astype(np.int64)
        last = np.searchsorted(self._numbers, numbers, side="right").astype(np.int64)
        head = pc.binary_slice(raw, 0, shared)
        common = pa.scalar(self._shared, pa.binary())
        first[_true(pc.greater(head, common))] = len(self._keys)
        below = _true(pc.less(head, common))
        first[below], last[below] = 0, 0
        self._settle(raw, side, first, last)
        return first

    def _settle(
        self,
        bounds: pa.Array,
        side: Literal["left", "right"],
        first: Int64s,
        last: Int64s,
    ) -> None:
        """Halve [first, last) of every bound that has ties, until `first` is its place."""
        passes = pc.less if side == "left" else pc.less_equal
        open_ = np.flatnonzero(first < last)
        while len(open_):
            middle = (first[open_] + last[open_]) // 2
            keys, asked = self._keys.take(pa.array(middle)), bounds.take(pa.array(open_))
            passed = _true(passes(keys, asked))
            first[open_] = np.where(passed, middle + 1, first[open_])
            last[open_] = np.where(passed, last[open_], middle)
            open_ = open_[first[open_] < last[open_]]


def _true(mask: pa.Array) -> Bools:
    if not mask.null_count:  # filling takes longer than all else of few
        return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)


def _eight_bytes(texts: pa.Array, skip: int) -> UInt64s:
    """Bytes [skip, skip + 8) of each text as a big-endian integer, zeros where it ends; null: 0."""
    if not len(texts):
        return np.zeros(0, dtype=np.uint64)
    raw = texts.cast(pa.binary())
    offsets, data = byte_layout(pc.fill_null(raw, b"") if raw.null_count else raw)
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    places = offsets.astype(np.int64)
    return first_words(padded, places[:-1] + skip, np.diff(places) - skip)
