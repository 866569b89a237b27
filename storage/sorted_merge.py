"""Merge sorted streams of entries, newest stream first: one entry a key comes out.

The k-way merge works in columns. Each round takes from every stream the entries up to the
smallest of the last keys of those that go on, or up to a lesser one where these are too many,
sorts them together (stably, the newest stream first) and keeps the first of each key. Columns of
fixed size stay so: they are sorted, taken and compared several times as fast. No stream is read
further than its current batch, or the next one where half of it is used up: memory is bounded by
one batch and a half of each stream, not by the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.byte_columns import joined, single
from metatable.storage.ordering import is_ascending, order_without_repeats

__all__ = ["merge_newest_first"]

ROUND_ENTRIES = 96 << 10
"""Entries of all streams that a round takes at most: what it makes of them stays near the
processor, in memory that the next round uses again."""

Merged = tuple[pa.Array, pa.Array, npt.NDArray[np.int32]]


def merge_newest_first(streams: Sequence[Iterable[pa.RecordBatch]]) -> Iterator[Merged]:
    """(keys, values, number of the stream that won) for batches with columns key and value.

    Columns are of type `pa.binary()`, or of fixed size in all batches of a stream; what comes out
    is of fixed size where all streams agree in it.
    Every stream ascends by key in unsigned byte order; of equal keys the one from the first
    stream is kept, and within a stream the first.
    """
    cursors = [_Cursor(number, iter(stream)) for number, stream in enumerate(streams)]
    cursors = [cursor for cursor in cursors if cursor.fill()]
    while cursors:
        share = max(ROUND_ENTRIES // len(cursors), 1)
        reached = (cursor.reaches(share) for cursor in cursors)
        bound = min((key for key in reached if key is not None), default=None)
        yield _first_of_each_key([cursor.take(bound) for cursor in cursors])
        cursors = [cursor for cursor in cursors if cursor.fill()]


class _Cursor:
    """A stream and what is left of its current batch."""

    def __init__(self, number: int, stream: Iterator[pa.RecordBatch]) -> None:
        self._number = number
        self._stream = stream
        self._keys = pa.array([], pa.binary())
        self._values = pa.array([], pa.binary())
        self._batch_entries = 1
        self.last_key = b""
        self.at_end = False

    def fill(self) -> bool:
        """Have half a batch or all that is left; False where nothing is."""
        while not self.at_end and 2 * len(self._keys) < self._batch_entries:
            batch = next(self._stream, None)
            if batch is None:
                self.at_end = True
            elif len(batch):
                self._batch_entries = len(batch)
                self._keys = _behind(self._keys, batch["key"])
                self._values = _behind(self._values, batch["value"])
        if len(self._keys):
            self.last_key = self._keys[-1].as_py()
        return len(self._keys) > 0

    def reaches(self, count: int) -> bytes | None:
        """The key up to which it can give all entries, `count` at most; None: give all it has."""
        if len(self._keys) > count:
            last: bytes = self._keys[count - 1].as_py()
            return last
        return None if self.at_end else self.last_key

    def take(self, bound: bytes | None) -> tuple[pa.Array, pa.Array, int]:
        """Entries with key <= bound (None: all that are held), removed from the stream."""
        whole = bound is None or self.last_key <= bound
        count = len(self._keys) if whole else _upper(self._keys, bound or b"")
        keys, values = self._keys[:count], self._values[:count]
        self._keys, self._values = self._keys[count:], self._values[count:]
        return keys, values, self._number


def _behind(held: pa.Array, more: pa.Array) -> pa.Array:
    return joined([held, more]) if len(held) else more


def _upper(keys: pa.Array, bound: bytes) -> int:
    """How many of the sorted keys are <= bound, by bisection."""
    return bisect_right(range(len(keys)), bound, key=single(keys))


def _first_of_each_key(parts: Sequence[tuple[pa.Array, pa.Array, int]]) -> Merged:
    parts = [part for part in parts if len(part[0])]
    keys, values = joined([part[0] for part in parts]), joined([part[1] for part in parts])
    numbers = np.array([number for _, _, number in parts], np.int32)
    sources = np.repeat(numbers, [len(part[0]) for part in parts])
    if len(parts) == 1 and is_ascending(keys, strictly=True):
        return keys, values, sources
    order = order_without_repeats(keys)
    places = pa.array(order)
    return keys.take(places), values.take(places), sources.take(order)
