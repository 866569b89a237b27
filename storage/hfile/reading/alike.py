"""Records that are all of one size, searched where they lie.

Such records are a table with rows of known length: where one is needs no column of places, and
eight bytes of every key are one strided view of a block. What is looked up are keys of the same
size, ascending, each with the block that alone can hold it.

    many keys of a block    eight bytes of all its keys are copied, and searched by numpy
    few                     a bisection for each, which looks at a dozen records

A record that is answered with is compared with the whole key, and proven (finding.py); of a
block one record is proven besides. Many keys are searched by eight bytes if these ascend and tell
records apart; else `find` says None, and the records are found and searched as those of any size.
That a few ascend is the writer's word, like their size, and `hfile verify` holds a file to both.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import Voids, at_every_byte, pieces_at, words_of
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.columns import (
    common_prefix_size,
    repeated,
)
from metatable.storage.hfile.key_values import (
    KEY_SUFFIX,
    MAX_ROW_SIZE,
    RECORD_OVERHEAD,
    ROW_AT,
    KeyValues,
    record_header,
)
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.finding import check_records, check_stride

__all__ = ["FEW_KEYS", "Alike", "Hits", "Searched", "proven", "same_keys"]

Hits = tuple[Bools, Voids]
"""Which of the keys asked are there, and the value of each of them, zeros where it is not."""

FEW_KEYS = 2
"""Keys of a block, on average: so many bisections cost less than copying words of all its keys."""

_WORD = 8
_FEW_WORDS = 2
"""Keys of so many words are compared word by word: copying them costs as much."""


class Searched(Protocol):
    """A block that is asked for a key at a time."""

    def value(self, key: bytes) -> bytes | memoryview | None:
        """The value of `key`, None where it is not there. Raises CorruptError."""
        ...


@dataclass(frozen=True, slots=True)
class Alike:
    """The sizes of all records of a file, which is at `path`, by its own word."""

    key_size: int
    value_size: int
    path: str

    @property
    def can_be_searched(self) -> bool:
        return _WORD <= self.key_size <= MAX_ROW_SIZE and self.value_size > 0

    @property
    def stride(self) -> int:
        return self.key_size + self.value_size + RECORD_OVERHEAD

    def nothing(self, count: int) -> Hits:
        """So many keys, none of which is there."""
        return np.zeros(count, bool), np.zeros(count, np.dtype((np.void, self.value_size)))

    def find(self, payloads: Payloads, offset: int, wanted: Voids, cuts: Int64s) -> Hits | None:
        """Look up `wanted`; those from `cuts[i]` to `cuts[i + 1]` can be in block i alone.

        None where eight bytes do not order the keys. `offset`: of the first block in the file.
        Raises CorruptError.
        """
        check_stride(payloads, self.stride, self.path, offset)
        counts = (payloads.ends - payloads.starts) // self.stride
        before = np.cumsum(counts) - counts
        starts = payloads.starts + ROW_AT
        check_records(self._records(payloads.raw, starts[counts > 0]), self.path, offset)
        skip = self._skip(payloads.raw, starts, counts)
        words = self._words(payloads.raw, starts, counts, skip)
        if not len(words) or (words[1:] < words[:-1]).any():
            return None if len(words) else self.nothing(len(wanted))
        sought = words_of(wanted, skip)
        places = np.searchsorted(words, sought)
        np.minimum(places, len(words) - 1, out=places)
        seeming = np.flatnonzero(words[places] == sought)
        if not len(seeming):
            return self.nothing(len(wanted))
        places = places[seeming]
        block = np.searchsorted(before, places, "right") - 1
        rows = places * self.stride + (starts - before * self.stride)[block]
        there = self._records(payloads.raw, rows)
        same, records = proven(there, wanted[seeming], skip, self.path, offset)
        if not same.all():
            others = places[~same]
            others = others[others + 1 < len(words)]
            if (words[others] == words[others + 1]).any():
                return None
            seeming = seeming[same]
        found, values = self.nothing(len(wanted))
        found[seeming] = True
        starts = records.row_starts + self._value_at
        values[seeming] = pieces_at(records.raw, starts, self.value_size)
        return found, values

    def find_few(
        self, parts: Sequence[bytes | UInt8s], offsets: Sequence[int], wanted: Voids, cuts: Int64s
    ) -> Hits:
        """`find` for few keys, in blocks that need not lie together. Raises CorruptError."""
        return self.answers(map(self.block, parts, offsets), wanted, cuts)

    def block(self, payload: bytes | UInt8s, offset: int) -> Searched:
        """A payload, to be asked for a key at a time. Raises CorruptError."""
        return _Block(self, record_header(self.key_size, self.value_size), payload, offset)

    def answers(self, blocks: Iterable[Searched], wanted: Voids, cuts: Int64s) -> Hits:
        """What each of the blocks says of its keys. Raises CorruptError."""
        first, end = int(cuts[0]), int(cuts[-1])
        found, values = self.nothing(end - first)
        keys, size, room = wanted[first:end].tobytes(), self.key_size, bytearray(values.nbytes)
        bounds = (cuts - first).tolist()
        for one, first, end in zip(blocks, bounds, bounds[1:], strict=False):
            for number in range(first, end):
                value = one.value(keys[number * size : (number + 1) * size])
                if value is not None:
                    found[number] = True
                    room[number * self.value_size : (number + 1) * self.value_size] = value
        return found, np.frombuffer(room, values.dtype)

    def answers_of(self, block: Searched, wanted: Voids) -> Hits:
        """What one block says of ascending keys, which may be many. Raises CorruptError."""
        cuts = np.array([0, len(wanted)])
        if isinstance(block, _Block) and len(wanted) > FEW_KEYS:
            raw = np.frombuffer(block.payload, np.uint8)
            hits = self.find(Payloads.of(raw, [len(raw)]), block.offset, wanted, cuts)
            if hits is not None:
                return hits
        return self.answers([block], wanted, cuts)

    @property
    def _value_at(self) -> int:
        return self.key_size + len(KEY_SUFFIX)

    def _skip(self, raw: UInt8s, starts: Int64s, counts: Int64s) -> int:
        """Bytes that all keys begin with, if they ascend; a word of what follows is in the key."""
        filled = np.flatnonzero(counts)
        if not len(filled):
            return 0
        first, last = int(starts[filled[0]]), int(starts[filled[-1]])
        last += (int(counts[filled[-1]]) - 1) * self.stride
        ends = (raw[at : at + self.key_size].tobytes() for at in (first, last))
        return min(common_prefix_size(*ends), self.key_size - _WORD)

    def _words(self, raw: UInt8s, starts: Int64s, counts: Int64s, skip: int) -> UInt64s:
        words, done = np.empty(int(counts.sum()), np.uint64), 0
        for start, count in zip((starts + skip).tolist(), counts.tolist(), strict=True):
            if count:
                column = np.ndarray((count,), np.uint64, raw, start, (self.stride,))
                words[done : done + count] = column
                done += count
        if sys.byteorder == "little":
            words.byteswap(inplace=True)
        return words

    def _records(self, raw: UInt8s, rows: Int64s) -> KeyValues:
        sizes = (self.key_size, len(KEY_SUFFIX), self.value_size)
        return KeyValues(raw, rows, *(repeated(size, len(rows)) for size in sizes))


class _Block:
    """A block that is bisected for a key at a time, by the interpreter: for few keys that costs
    less than numpy does."""

    __slots__ = ("_alike", "_count", "_header", "_offset", "_raw", "_stride")

    def __init__(self, alike: Alike, header: bytes, raw: bytes | UInt8s, offset: int) -> None:
        self._alike, self._header, self._offset = alike, header, offset
        self._raw = raw if isinstance(raw, bytes) else raw.data
        self._stride = alike.stride
        self._count, left = divmod(len(raw), self._stride)
        if left:
            self._refuse(f"blocks of {self._stride}-byte records", len(raw))
        if self._count:
            self._prove(0)

    @property
    def payload(self) -> bytes | memoryview:
        return self._raw

    @property
    def offset(self) -> int:
        """Where it is in the file."""
        return self._offset

    def value(self, key: bytes) -> bytes | memoryview | None:
        raw, stride, size = self._raw, self._stride, len(key)

        def row(place: int) -> bytes:
            at = place * stride + ROW_AT
            return bytes(raw[at : at + size])

        place = bisect_left(range(self._count), key, key=row)
        if place == self._count or row(place) != key:
            return None
        self._prove(place)
        at = place * stride + ROW_AT + size + len(KEY_SUFFIX)
        return raw[at : at + self._alike.value_size]

    def _prove(self, place: int) -> None:
        at = place * self._stride
        row = at + ROW_AT + self._alike.key_size
        head, tail = self._raw[at : at + ROW_AT], self._raw[row : row + len(KEY_SUFFIX)]
        if head != self._header or tail != KEY_SUFFIX:
            self._refuse(f"a record at byte {at}", head.hex())

    def _refuse(self, expected: str, found: object) -> None:
        raise CorruptError(
            "records do not have the sizes that their file says",
            path=self._alike.path,
            offset=self._offset,
            expected=expected,
            found=found,
        )


def proven(
    there: KeyValues, keys: Voids, known: int, path: str, offset: int
) -> tuple[Bools, KeyValues]:
    """Which of these records have these keys, whose word at `known` they have, and those that do,
    copied side by side. Raises CorruptError unless their bytes say that they are some."""
    records = there.side_by_side()
    same = same_keys(records.raw, records.row_starts, keys, known)
    if not same.all():
        chosen = np.flatnonzero(same)
        records, there = records.at(chosen), there.at(chosen)
    check_records(records, path, offset, there)
    return same, records


def same_keys(raw: UInt8s, rows: Int64s, keys: Voids, known: int) -> Bools:
    """Whether the keys at `rows` are `keys`, all of their bytes; the word at `known` is. Mostly all
    of them are, which a comparison of all bytes tells."""
    size = keys.dtype.itemsize
    if size > _FEW_WORDS * _WORD:
        there = pieces_at(raw, rows, size)
        if np.array_equal(there.view(np.uint8), keys.view(np.uint8)):
            return np.ones(len(rows), bool)
    words = at_every_byte(raw, np.uint64)
    same = np.ones(len(rows), bool)
    last = size - _WORD
    for at in {*range(0, last, _WORD), last} - {known}:
        same &= words[rows + at] == _column(keys, at)
    return same


def _column(keys: Voids, at: int) -> UInt64s:
    """Eight bytes of each key, from `at` on, as they lie there."""
    return np.ndarray((len(keys),), np.uint64, keys, at, (keys.dtype.itemsize,))
