"""Block indexes: where a file's blocks lie and the key that each begins with.

    root entry      i64 offset, i32 size of the whole block, Hadoop VInt key length, key
    leaf or inner   i32 n; n + 1 i32 positions of entries, from 0 to the length of them all;
                    entries of i64 offset, i32 size, key up to the next position

Root entries stand back to back; their number is in the trailer. The 16 bytes that follow them
in a root of two levels and more (HBase's mid key) are passed over. A data index key is a
full key, or, from Hudi's writer, one without the 10-byte suffix; it may be shorter than the
block's real first key (HBase), but is above the last key of the block before. A meta index
key is a bare name. Hudi 1.1 wrote lengths of 128 and more as protobuf varints: both forms are read.

With more than one level the root's entries lead to leaf or inner blocks, which have one form.

An index is held as columns over the bytes it came from; nothing is made an entry at a time,
but for finding the entries of a root whose keys differ in length.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import Voids, first_words, words_of
from metatable.storage.errors import CorruptError
from metatable.storage.hfile import wire
from metatable.storage.hfile.columns import (
    bound,
    check_width,
    numbers_at,
)
from metatable.storage.hfile.key_values import KEY_SUFFIX
from metatable.storage.made_once import made_once
from metatable.storage.ordering import is_ascending

__all__ = [
    "BlockIndex",
    "Entry",
    "check_places",
    "decode_inner",
    "decode_names",
    "decode_root",
]

_PLACE = struct.Struct(">qi")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
_LEAST_ENTRY = _PLACE.size + 1
_LEAST_BLOCK = 33
MID_KEY_SIZE = 16
"""What HBase writes behind the root's entries if there are more levels: where the middle is."""
MOST_NAMES = 1 << 16
"""META blocks that are believed: each name becomes an object. Files have a handful."""

MOST_TIES = 16
"""Rows that a bisection looks for, because a key that begins like them is before them."""

Entry = tuple[int, int, bytes]
"""(offset, size of the whole block, key as stored)."""


@dataclass(frozen=True)
class BlockIndex:
    """Blocks of a file, ascending: offset, size, and the row that opens each.

    A row is at most the first row of its block, and above the last row of the block before.
    `raw` holds the rows, at the given places. All arrays are int64 of shape (n,).
    """

    offsets: Int64s
    sizes: Int64s
    raw: UInt8s
    row_starts: Int64s
    row_sizes: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def row(self, place: int) -> bytes:
        """The row that opens block `place`; from the end if that is negative."""
        start = int(self.row_starts[place])
        return self.raw[start : start + int(self.row_sizes[place])].tobytes()

    @made_once
    def keys(self) -> pa.Array:
        """All rows, as a `pa.binary()` array. Raises UsageError from 2 GiB of index on."""
        check_width(self.raw)
        cuts = np.zeros(2 * len(self) + 1, np.int32)
        cuts[1::2] = self.row_starts
        cuts[2::2] = self.row_starts + self.row_sizes
        buffers = [None, pa.py_buffer(cuts), pa.py_buffer(self.raw)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(self), buffers)
        return pieces.take(pa.array(np.arange(1, 2 * len(self), 2)))

    @made_once
    def words(self) -> UInt64s:
        """The first eight bytes of each row, zeros behind a shorter one."""
        raw = np.concatenate((self.raw, np.zeros(8, np.uint8)))
        return first_words(raw, self.row_starts, self.row_sizes)

    @made_once
    def _numbers(self) -> memoryview:
        """The words for the lookup of one key: numpy that is called once in a while takes ten times
        as long as in a loop, this about as long."""
        return self.words.data

    @made_once
    def is_ascending(self) -> bool:
        """Whether no row is less than the one before it: else nothing can be looked up."""
        if (self.words[1:] > self.words[:-1]).all():
            return True
        return is_ascending(self.keys, strictly=False)

    def last_at_most(self, key: bytes) -> int:
        """The only block that can hold `key`, -1 if it is before the first; rows must ascend."""
        return bisect_right(range(len(self)), key, *self._alike(key), key=self.row) - 1

    def first_from(self, key: bytes) -> int:
        """The first block that begins at or after `key`; rows must ascend."""
        return bisect_left(range(len(self)), key, *self._alike(key), key=self.row)

    def _alike(self, key: bytes) -> tuple[int, int]:
        """The blocks whose rows have the first eight bytes of `key`: start and stop. Those before
        them are less, those from the stop on greater."""
        word = int.from_bytes(key[:8].ljust(8, b"\0"), "big")
        words = self._numbers
        stop = bisect_right(words, word)
        if not stop or words[stop - 1] != word:
            return stop, stop
        return bisect_left(words, word, 0, stop), stop

    def touched(self, wanted: pa.Array) -> tuple[Int64s, Int64s]:
        """(blocks that can hold a wanted key, where the keys of each begin, and the end).

        `wanted` ascends. Those before the first of these places can be in no block.
        """
        if not pa.types.is_binary(wanted.type):
            wanted = wanted.cast(pa.binary())
        if not len(wanted) or not len(self):
            return np.empty(0, np.int64), np.array([len(wanted)])
        if len(wanted) < len(self):
            return _touched_by(bound(self.keys, wanted, right=True) - 1)
        return _touched_from(bound(wanted, self.keys), len(wanted))

    def touched_alike(self, wanted: Voids) -> tuple[Int64s, Int64s] | None:
        """`touched` for ascending keys of one size, of eight bytes or more: the first eight of each
        key and of each row are compared first. None where these tell too few of them apart."""
        words, rows = words_of(wanted), self.words
        if not len(wanted) or not len(self):
            return np.empty(0, np.int64), np.array([len(wanted)])
        if len(wanted) < len(self):
            of_key = np.searchsorted(rows, words, "right") - 1
            tied = np.flatnonzero((rows[of_key] == words) & (of_key >= 0)).tolist()
            unsure = [at for at in tied if wanted[at].tobytes() < self.row(int(of_key[at]))]
            if len(unsure) > MOST_TIES:
                return None
            for at in unsure:
                of_key[at] = self.last_at_most(wanted[at].tobytes())
            return _touched_by(of_key)
        starts = np.searchsorted(words, rows)
        tied = np.flatnonzero(words[np.minimum(starts, len(words) - 1)] == rows).tolist()
        unsure = [block for block in tied if wanted[starts[block]].tobytes() < self.row(block)]
        if len(unsure) > MOST_TIES:
            return None
        for block in unsure:
            after = range(int(starts[block]), len(wanted))
            starts[block] += bisect_left(
                after, self.row(block), key=lambda at: wanted[at].tobytes()
            )
        return _touched_from(starts, len(wanted))

    @property
    def size_bytes(self) -> int:
        """About what this takes in memory."""
        return 3 * len(self.raw) + 40 * len(self)

    @classmethod
    def joined(cls, parts: list[BlockIndex]) -> BlockIndex:
        """One index of the entries of several, in their order."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(one.raw) for one in parts)])
        starts = [one.row_starts + shift for one, shift in zip(parts, shifts, strict=False)]
        return cls(
            np.concatenate([one.offsets for one in parts]),
            np.concatenate([one.sizes for one in parts]),
            np.concatenate([one.raw for one in parts]),
            np.concatenate(starts),
            np.concatenate([one.row_sizes for one in parts]),
        )


def decode_root(payload: bytes, count: int, path: str, offset: int) -> BlockIndex:
    """The `count` entries of a data root index."""
    if count < 0 or count * _LEAST_ENTRY > len(payload):
        raise _corrupt(path, offset, f"{count} entries", f"{len(payload)} bytes")
    places = _equal_entries(payload, count) if count else None
    if places is None:
        places = _walk_root(payload, count, path, offset)
    starts, key_starts, key_sizes = places
    return _index(payload, starts, key_starts, key_sizes, path, offset)


def decode_names(payload: bytes, count: int, path: str, offset: int) -> list[Entry]:
    """The `count` entries of a meta root index, whose keys are names."""
    if count < 0 or count * _LEAST_ENTRY > len(payload):
        raise _corrupt(path, offset, f"{count} entries", f"{len(payload)} bytes")
    if count > MOST_NAMES:
        raise _corrupt(path, offset, f"at most {MOST_NAMES} names", count)
    starts, key_starts, key_sizes = _walk_root(payload, count, path, offset, names=True)
    return [
        (*_PLACE.unpack_from(payload, start), payload[key : key + size])
        for start, key, size in zip(
            starts.tolist(), key_starts.tolist(), key_sizes.tolist(), strict=True
        )
    ]


def decode_inner(payload: bytes, path: str, offset: int) -> BlockIndex:
    """The entries of a leaf or inner index block."""
    count = int.from_bytes(payload[:4], "big")
    area = 4 + 4 * (count + 1)
    if not count or area > len(payload):
        raise _corrupt(path, offset, f"{count or 'some'} entries", f"{len(payload)} bytes")
    positions = np.frombuffer(payload, ">i4", count + 1, 4).astype(np.int64)
    sound = positions[0] == 0 and positions[-1] == len(payload) - area
    if not sound or (np.diff(positions) < _PLACE.size + 2).any():
        raise _corrupt(path, offset, "ascending positions of entries", positions.tolist()[:5])
    starts = positions + area
    key_starts = starts[:-1] + _PLACE.size
    return _index(payload, starts[:-1], key_starts, starts[1:] - key_starts, path, offset)


def check_places(index: BlockIndex, limit: int, path: str, offset: int) -> BlockIndex:
    """`index`, unless its blocks overlap, fall, or pass `limit`. Raises CorruptError."""
    ends = index.offsets + index.sizes
    before = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(index)]
    wrong = (index.offsets < before) | (index.sizes < _LEAST_BLOCK)
    wrong |= index.offsets > limit - index.sizes  # their sum may be beyond 64 bits
    if wrong.any():
        number = int(np.argmax(wrong))
        expected = f"block {number} between {before[number]} and {limit}"
        found = f"offset {index.offsets[number]}, {index.sizes[number]} bytes"
        raise _corrupt(path, offset, expected, found)
    return index


def _touched_by(of_key: Int64s) -> tuple[Int64s, Int64s]:
    """`BlockIndex.touched`, by the block of each of ascending keys, -1 for none."""
    blocks, starts = np.unique(of_key, return_index=True)
    blocks, starts = (blocks[1:], starts[1:]) if blocks[:1] == -1 else (blocks, starts)
    return blocks, np.append(starts, len(of_key))


def _touched_from(starts: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """`BlockIndex.touched`, by where the keys of each block begin among `count`."""
    cuts = np.append(starts, count)
    blocks = np.flatnonzero(np.diff(cuts))
    return blocks, np.append(starts[blocks], count)


_Places = tuple[Int64s, Int64s, Int64s]
"""For each entry, where it starts, where its key starts, and how long the key is."""


def _equal_entries(payload: bytes, count: int) -> _Places | None:
    """Entries whose keys are all of one length below 128: the usual case, without a loop."""
    key_size = payload[_PLACE.size]
    entry = _LEAST_ENTRY + key_size
    if key_size > 127 or len(payload) - count * entry not in (0, MID_KEY_SIZE):
        return None
    table = np.frombuffer(payload, np.uint8, count * entry).reshape(count, entry)
    if (table[:, _PLACE.size] != key_size).any():
        return None
    starts = np.arange(count, dtype=np.int64) * entry
    return starts, starts + _LEAST_ENTRY, np.full(count, key_size, np.int64)


def _walk_root(
    payload: bytes, count: int, path: str, offset: int, *, names: bool = False
) -> _Places:
    starts, ends = array("q"), array("q")  # of the keys; an entry begins where a key ends
    at, end = 0, len(payload)
    for number in range(count):
        key_at = at + _PLACE.size
        size = payload[key_at] if key_at < end else 128
        if size < 128 and key_at + 1 + size <= end:
            key_at += 1
        else:
            try:
                key_at, size = _long_key(payload, key_at, names)
            except wire.Malformed as error:
                found = f"entry {number}: {error}"
                raise _corrupt(path, offset, f"{count} entries", found) from error
        at = key_at + size
        starts.append(key_at)
        ends.append(at)
    if end - at not in (0, MID_KEY_SIZE):
        raise _corrupt(path, offset, f"{count} entries", f"{end - at} bytes behind them")
    key_starts, key_ends = np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)
    entry_starts = np.concatenate((np.zeros(1, np.int64), key_ends))[:count]
    return entry_starts, key_starts, key_ends - key_starts


def _long_key(payload: bytes, at: int, names: bool) -> tuple[int, int]:
    """Where a key begins and its length, in the form that makes a key of it; Hadoop's first."""
    for read in (wire.read_hadoop, wire.read_varint):
        size, start = read(payload, at)
        if 0 <= size <= len(payload) - start and (
            names or _is_key(payload[start : start + min(size, 2)], size)
        ):
            return start, size
    raise wire.Malformed(f"no key at byte {at}")


def _is_key(head: bytes, size: int) -> bool:
    rest = size - 2 - int.from_bytes(head, "big")
    return len(head) == 2 and (rest == 0 or rest >= len(KEY_SUFFIX))


def _index(
    payload: bytes, starts: Int64s, key_starts: Int64s, key_sizes: Int64s, path: str, offset: int
) -> BlockIndex:
    """Columns of the entries at `starts`, whose keys must be keys."""
    raw = np.frombuffer(payload, np.uint8)
    if not len(starts):
        none = np.empty(0, np.int64)
        return BlockIndex(none, none, raw, none, none)
    if int(key_sizes.min()) >= 2:
        row_sizes = numbers_at(raw, key_starts, ">u2")
        rest = key_sizes - 2 - row_sizes
        wrong = (rest != 0) & (rest < len(KEY_SUFFIX))
    else:
        wrong = key_sizes < 2
    if wrong.any():
        number = int(np.argmax(wrong))
        start, size = int(key_starts[number]), int(key_sizes[number])
        raise _corrupt(path, offset, f"a key in entry {number}", payload[start : start + size][:50])
    return BlockIndex(
        numbers_at(raw, starts, ">i8"),
        numbers_at(raw, starts + 8, ">i4"),
        raw,
        key_starts + 2,
        row_sizes,
    )


def _corrupt(path: str, offset: int, expected: str, found: object) -> CorruptError:
    return CorruptError(
        "block index is malformed", path=path, offset=offset, expected=expected, found=found
    )
