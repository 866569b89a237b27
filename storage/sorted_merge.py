"""Merge sorted streams of entries, newest stream first: one entry per key comes out.

The k-way merge works in columns. Each round takes from every stream the entries up to the
smallest of the last keys of those that go on, or up to a lesser one where these are too many,
sorts them together (stably, the newest stream first) and keeps the first of each key. Columns of
fixed size stay so: they are sorted, taken and compared several times as fast. No stream is read
further than its current batch, or the next one where half of it is used up: memory is bounded by
two batches of each stream, not by the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int32s
from metatable.storage.byte_columns import joined, single
from metatable.storage.ordering import is_ascending, order_without_repeats

__all__ = ["merge_newest_first"]

ROUND_ENTRIES = 96 << 10
"""Entries of all streams that a round takes at most: what it makes of them stays near the
processor, in memory that the next round uses again."""

Merged = tuple[pa.Array, pa.Array, Int32s]
Part = tuple[pa.Array, pa.Array, int]
"""Keys, values, and the number of the stream that has them."""


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
        yield _first_of_each_key([part for cursor in cursors for part in cursor.take(bound)])
        cursors = [cursor for cursor in cursors if cursor.fill()]


class _Cursor:
    """A stream and what is left of its current batches."""

    def __init__(self, number: int, stream: Iterator[pa.RecordBatch]) -> None:
        self._number = number
        self._stream = stream
        self._held: list[tuple[pa.Array, pa.Array]] = []
        self._count = 0
        self._batch_entries = 1
        self._last_key = b""
        self._at_end = False

    def fill(self) -> bool:
        """Have half a batch or all that is left; False where nothing is."""
        while not self._at_end and 2 * self._count < self._batch_entries:
            batch = next(self._stream, None)
            if batch is None:
                self._at_end = True
            elif len(batch):
                self._batch_entries = len(batch)
                self._count += len(batch)
                self._held.append((batch["key"], batch["value"]))
                self._last_key = batch["key"][-1].as_py()
        return self._count > 0

    def reaches(self, count: int) -> bytes | None:
        """The key up to which it can give all entries, `count` at most; None: give all it has."""
        for keys, _ in self._held if count < self._count else ():
            if count <= len(keys):
                last: bytes = keys[count - 1].as_py()
                return last
            count -= len(keys)
        return None if self._at_end else self._last_key

    def take(self, bound: bytes | None) -> Iterator[Part]:
        """Entries with key <= bound (None: all that are held), removed from the stream."""
        while self._held:
            keys, values = self._held.pop(0)
            count = len(keys) if bound is None else _upper(keys, bound)
            self._count -= count
            yield keys[:count], values[:count], self._number
            if count < len(keys):
                self._held.insert(0, (keys[count:], values[count:]))
                return


def _upper(keys: pa.Array, bound: bytes) -> int:
    """How many of the sorted keys are <= bound, by bisection."""
    key = single(keys)
    if key(len(keys) - 1) <= bound:
        return len(keys)
    return bisect_right(range(len(keys)), bound, key=key)


def _first_of_each_key(parts: Sequence[Part]) -> Merged:
    parts = [part for part in parts if len(part[0])]
    numbers = np.array([number for _, _, number in parts], np.int32)
    sources = np.repeat(numbers, [len(part[0]) for part in parts])
    if len(parts) == 1 and is_ascending(parts[0][0], strictly=True):
        return *parts[0][:2], sources
    keys, values = joined([part[0] for part in parts]), joined([part[1] for part in parts])
    order = order_without_repeats(keys)
    places = pa.array(order)
    return keys.take(places), values.take(places), sources.take(order)
