"""Byte order of whole key columns, in numpy and Arrow."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import byte_layout, first_words

__all__ = ["PrefixIndex", "as_binary", "same_as_previous", "sort_order"]


def as_binary(keys: pa.Array) -> pa.Array:
    """The keys as one `pa.binary()` array without offset games; copies only when it must."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_binary(keys.type):
        return keys
    return keys.cast(pa.binary())


def sort_order(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Positions that put `keys` in unsigned byte order; stable, so equal keys keep theirs."""
    if pa.types.is_fixed_size_binary(keys.type) and keys.type.byte_width == 16:
        return _order_of_16_bytes(keys)
    keys = as_binary(keys)
    numbers = _eight_bytes(keys, _shared_bytes(pc.min_max(keys)) if len(keys) else 0)
    order = np.argsort(numbers, kind="stable").astype(np.int64, copy=False)
    same = np.zeros(len(keys) + 1, dtype=bool)
    same[1:-1] = np.diff(numbers[order]) == 0
    tied = np.flatnonzero(same[1:] | same[:-1])
    order[tied] = _sorted_whole(keys, order[tied])
    return order


def same_as_previous(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Of a sorted column: True where a key equals the one before it."""
    same = np.zeros(len(keys), dtype=bool)
    if len(keys) > 1:
        same[1:] = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return same


def _order_of_16_bytes(keys: pa.Array) -> npt.NDArray[np.int64]:
    halves = np.frombuffer(keys.buffers()[1], dtype=">u8")
    halves = halves[2 * keys.offset : 2 * (keys.offset + len(keys))].reshape(-1, 2)
    high = halves[:, 0].astype(np.uint64)
    order = np.argsort(high, kind="stable")
    sorted_high = high[order]
    if len(order) > 1 and (sorted_high[1:] == sorted_high[:-1]).any():
        order = np.lexsort((halves[:, 1].astype(np.uint64), high))
    return order.astype(np.int64, copy=False)


def _sorted_whole(keys: pa.Array, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    taken = keys.take(pa.array(rows))
    indices = pc.sort_indices(pa.table({"key": taken}), [("key", "ascending")]).to_numpy()
    return _settle_ties(keys, rows[indices])


def _shared_bytes(ends: pa.StructScalar) -> int:
    """Bytes that the least and the greatest text, and so all, begin with alike."""
    first, last = ends["min"].as_py(), ends["max"].as_py()
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return shared


def _settle_ties(keys: pa.Array, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
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
        shared = _shared_bytes(pc.min_max(self._keys)) if len(keys) else 0
        self._shared = self._keys[0].as_py()[:shared] if shared else b""
        self._numbers = _eight_bytes(self._keys, shared)

    def place(self, bounds: pa.Array, side: Literal["left", "right"]) -> npt.NDArray[np.int64]:
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
        first: npt.NDArray[np.int64],
        last: npt.NDArray[np.int64],
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


def _true(mask: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)


def _eight_bytes(texts: pa.Array, skip: int) -> npt.NDArray[np.uint64]:
    """Bytes [skip, skip + 8) of each text as a big-endian integer, zeros where it ends; null: 0."""
    if not len(texts):
        return np.zeros(0, dtype=np.uint64)
    offsets, data = byte_layout(pc.fill_null(texts.cast(pa.binary()), b""))
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    places = offsets.astype(np.int64)
    return first_words(padded, places[:-1] + skip, np.diff(places) - skip)
