"""Packed blocks (zstd_records.py) of a span looked at together, for many keys.

Full blocks of a file are nearly all of one shape: as many records, as many bytes shared. Where
neighbours are as far from each other as others, too, they are a run, which is one table: what its
blocks have to say of themselves is compared in a few calls, and eight bytes of all their keys are
copied in one. In these words the keys asked are searched by numpy. Only what seems to be there
is compared by its other bytes, and of nothing else the value is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import Voids, at_every_byte, pieces_at, words_of
from metatable.storage.hfile.block import HEADER_SIZE, Headers
from metatable.storage.hfile.reading.alike import Alike, Hits
from metatable.storage.hfile.reading.fetch import Stored
from metatable.storage.hfile.zstd_records import Shape, shape_of

__all__ = ["Run", "Span", "find_in_span", "runs_of"]

_WORD = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Stored payloads of blocks in one array: that of block i is `raw[starts[i]:][:sizes[i]]`."""

    raw: UInt8s
    starts: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def body(self, number: int) -> UInt8s:
        """The payload of one block."""
        start = int(self.starts[number])
        return self.raw[start : start + int(self.sizes[number])]

    def up_to(self, count: int) -> Span:
        """The first so many blocks."""
        return Span(self.raw, self.starts[:count], self.sizes[:count])

    @classmethod
    def of_stored(cls, stored: Stored, headers: Headers) -> Span:
        """The payloads of fetched blocks: where they lie, if they came in one piece, or copied."""
        raw, starts = stored.one_piece(), stored.starts
        if raw is None:
            before = np.cumsum([0, *map(len, stored.pieces)])
            raw, starts = np.concatenate(stored.pieces), starts + before[stored.piece_of]
        sizes = headers["covered_size"].astype(np.int64) - HEADER_SIZE
        return cls(raw, starts + HEADER_SIZE, sizes)

    @classmethod
    def joined(cls, bodies: Sequence[bytes]) -> Span:
        """Payloads that lie each for itself, copied into one array."""
        sizes = np.array([len(one) for one in bodies], np.int64)
        return cls(np.frombuffer(b"".join(bodies), np.uint8), np.cumsum(sizes) - sizes, sizes)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """(first, stop, bytes from one to the next) of neighbours of one size at even distances."""
        distances = np.diff(self.starts) - self.sizes[:-1]
        gap = int(distances.min(initial=1 << 62))
        breaks = np.flatnonzero((distances != gap) | (self.sizes[1:] != self.sizes[:-1])) + 1
        bounds = [0, *breaks.tolist(), len(self)]
        for first, stop in pairwise(bounds) if len(self) else ():
            yield first, stop, int(self.sizes[first]) + gap if stop - first > 1 else 0


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks `first` to `stop` of a span, all of this shape, each `step` bytes behind the one
    before; one block alone where they are not packed: `shape` is None."""

    first: int
    stop: int
    step: int
    shape: Shape | None


def runs_of(span: Span, key_size: int, value_size: int) -> list[Run]:
    """The blocks of a span, those apart that are no packed records of these sizes: of the others
    every byte that is neither key nor value was seen to be what it must be."""
    runs: list[Run] = []
    known: dict[int, Shape | None] = {}
    for first, stop, step in span.runs():
        size = int(span.sizes[first])
        if known.get(size) is None:
            known[size] = shape_of(span.body(first), key_size, value_size)
        shape = known[size]
        if shape is not None and _are_of(shape, span, first, stop, step):
            runs.append(Run(first, stop, step, shape))
            continue
        for one in range(first, stop):
            runs.append(Run(one, one + 1, 0, shape_of(span.body(one), key_size, value_size)))
    return runs


def _are_of(shape: Shape, span: Span, first: int, stop: int, step: int) -> bool:
    """Whether the blocks of a run are."""
    if stop - first == 1:
        return shape.is_of(span.body(first))
    size = len(shape.frame)
    if int(span.sizes[first]) != size:
        return False
    places, strides = (stop - first, size), (step, 1)
    stored = np.ndarray(places, np.uint8, span.raw, int(span.starts[first]), strides)
    told = np.frombuffer(shape.frame, np.uint8)
    head, tail = shape.told
    return bool((stored[:, tail] == told[tail]).all() and (stored[:, head] == told[head]).all())


def find_in_span(span: Span, runs: Sequence[Run], alike: Alike, wanted: Voids) -> Hits | None:
    """Which of the ascending `wanted` are in these blocks, all of which are packed; None where
    eight bytes do not order their keys."""
    shapes = [one.shape for one in runs if one.shape is not None]
    if not len(wanted) or not shapes:
        return alike.nothing(len(wanted))
    if alike.key_size < _WORD or any(shape.key_shared > _WORD - 1 for shape in shapes):
        return None
    table = _Table(span, [(one, one.shape) for one in runs if one.shape is not None])
    words, sought = table.words(), words_of(wanted)
    if (words[1:] <= words[:-1]).any():
        return None
    places = np.searchsorted(words, sought)
    np.minimum(places, len(words) - 1, out=places)
    seeming = np.flatnonzero(words[places] == sought)
    found, values = alike.nothing(len(wanted))
    if not len(seeming):
        return found, values
    rows = table.rows(places[seeming])
    same = rows.are(wanted[seeming])
    seeming, rows = seeming[same], rows.at(same)
    found[seeming], values[seeming] = True, rows.values(alike.value_size)
    return found, values


class _Table:
    """All keys of packed blocks."""

    def __init__(self, span: Span, runs: Sequence[tuple[Run, Shape]]) -> None:
        self.raw, self._runs, self.key_size = span.raw, runs, runs[0][1].key_size
        columns = np.empty((8, len(span)), np.int64)
        for run, shape in runs:
            told = [one.start for one in shape.places]
            told += [shape.count, shape.rest_size, shape.key_shared, shape.value_shared]
            columns[:, run.first : run.stop] = np.array(told)[:, None]
        columns[:4] += span.starts
        self.first_keys, self.first_values, self.seconds, self.rests = columns[:4]
        self.counts, self.steps, self.key_shared, self.value_shared = columns[4:]
        self._before = np.cumsum(self.counts) - self.counts
        self.every = at_every_byte(span.raw, np.uint64)

    def words(self) -> UInt64s:
        """The first eight bytes of each key."""
        made = np.empty(int(self.counts.sum()), np.uint64)
        firsts, begins = (_numbers(self.every[at]) for at in (self.first_keys, self.seconds))
        done = 0
        for run, shape in self._runs:
            blocks = slice(run.first, run.stop)
            size = (run.stop - run.first) * shape.count
            table = made[done : done + size].reshape(-1, shape.count)
            start, strides = int(self.rests[run.first]), (run.step, shape.rest_size)
            places = (len(table), shape.count - 1)
            table[:, 1:] = np.ndarray(places, ">u8", self.raw, start, strides)
            if shape.key_shared:
                bits = 8 * shape.key_shared
                table >>= np.uint64(bits)
                table |= (begins[blocks] >> np.uint64(64 - bits) << np.uint64(64 - bits))[:, None]
            table[:, 0] = firsts[blocks]
            done += size
        return made

    def rows(self, places: Int64s) -> _Rows:
        """The records whose words are at these places."""
        block = np.searchsorted(self._before, places, "right") - 1
        row = places - self._before[block]
        keys = self.rests[block] + (row - 1) * self.steps[block] - self.key_shared[block]
        values = keys + self.key_size
        first = np.flatnonzero(row == 0)
        keys[first] = self.first_keys[block[first]]
        values[first] = (self.first_values + self.value_shared)[block[first]]
        return _Rows(self, block, keys, values)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some records: their blocks, where their keys would begin if they had what they share, and
    where what their values do not share does."""

    table: _Table
    block: Int64s
    keys: Int64s
    rests: Int64s

    def at(self, which: Bools) -> _Rows:
        return _Rows(self.table, self.block[which], self.keys[which], self.rests[which])

    def are(self, wanted: Voids) -> Bools:
        """Whether these are their keys; their first eight bytes are. No word may begin earlier, as
        in `same_keys`: what keys of a block share is not there."""
        raw, size = self.table.raw, wanted.dtype.itemsize
        same, told = np.ones(len(wanted), bool), wanted.view(np.uint8).reshape(-1, size)
        whole = size - size % _WORD
        for place in range(_WORD, whole, _WORD):
            column = np.ndarray((len(wanted),), np.uint64, wanted, place, (size,))
            same &= self.table.every[self.keys + place] == column
        for place in range(whole, size):
            same &= raw[self.keys + place] == told[:, place]
        return same

    def values(self, size: int) -> Voids:
        """The value of each."""
        raw, shared = self.table.raw, self.table.value_shared[self.block]
        values = pieces_at(raw, self.table.first_values[self.block], size)
        told = values.view(np.uint8).reshape(-1, size)
        for kind in np.unique(shared).tolist():
            mine = np.flatnonzero(shared == kind)
            rests = pieces_at(raw, self.rests[mine], size - kind)
            told[mine, kind:] = rests.view(np.uint8).reshape(-1, size - kind)
        return values


def _numbers(words: UInt64s) -> UInt64s:
    """Big-endian words as numbers."""
    return words.byteswap() if sys.byteorder == "little" else words
