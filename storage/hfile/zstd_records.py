"""Zstd frames of records of one size, whose repeats are known and need not be looked for.

Of such records only keys and values differ, and of a block of sorted hashes and small numbers only
what is behind the bytes that all of its keys, and all of its values, begin with. All else is
repeated from one record before, at the same places in every block of so many records: what
tells so is made once, and to pack a block is to lay the rest of its keys and values side by side.

    size  field          (framing big-endian, the frame little-endian)
    8     group          Hadoop's framing: payload, bytes of the frame
    4     magic          28 b5 2f fd
    1     descriptor     0x60, 0xa0: of 2, 4 bytes of content size; no checksum, no window
    2..4  content        payload bytes, of 2 bytes less 256
    3     block          the last one, compressed
    3     literals       so many bytes, as they are:
    ..      head           the first record; header and shared bytes of the key of the second one
    ..      rest           of each record but the first: the rest of its key, the rest of its value
    1       end            the last record's zero
    ..    sequences      two per record: the key's suffix and the value's shared bytes; zero, header
                         and the key's shared bytes

Every zstd reads it. Who knows the sizes of the records takes keys and values from where they lie,
once all other bytes were seen to be these.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import Voids
from metatable.storage.hfile.key_values import KEY_SUFFIX, RECORD_OVERHEAD, ROW_AT, empty_record
from metatable.storage.hfile.zstd_sequences import MOST_REPEATED, encode_sequences
from metatable.storage.made_once import made_once

__all__ = [
    "LEAST_RECORDS",
    "Shape",
    "can_pack",
    "pack_blocks",
    "shape_of",
    "unpack_blocks",
]

LEAST_RECORDS, MOST_PAYLOAD = 64, 128 << 10
"""A block of fewer records has little to spare; of more bytes zstd makes several blocks."""
_SHAPES = 64
"""So many are kept: each is about as large as a block."""
_GROUP = struct.Struct(">II")
_MAGIC = bytes.fromhex("28b52ffd")
_SHORT, _LONG, _LESS, _LONG_FROM = 0x60, 0xA0, 256, (1 << 16) + 256
_LAST_COMPRESSED, _RAW = 0b101, 0b1100
"""The lowest bits of a block's header, and of that of its literals."""
_HEADER_BYTES = 3
Pieces = npt.NDArray[Any]
"""Bytes, or pieces of several."""
_BEFORE_KEY = 1 + ROW_AT
"""A record's zero and the header of the next."""


@dataclass(frozen=True)
class Shape:
    """Where everything lies in the frame of a block of `count` records, whose keys and values
    share so many bytes."""

    key_size: int
    value_size: int
    count: int
    key_shared: int
    value_shared: int

    @property
    def payload_size(self) -> int:
        """Bytes of the block's payload."""
        return self.count * (self.key_size + self.value_size + RECORD_OVERHEAD)

    @property
    def rest_size(self) -> int:
        """Bytes that a record has for itself."""
        return self.key_size + self.value_size - self.key_shared - self.value_shared

    @made_once
    def frame(self) -> bytes:
        """A block as it is stored, with zeros for keys and values."""
        first = empty_record(self.key_size, self.value_size)
        second = first[:ROW_AT] + bytes(self.key_shared)
        literals = first + second + bytes((self.count - 1) * self.rest_size + 1)
        body = literals + encode_sequences(self._sequences(), len(first))
        told = b"".join(
            (
                _MAGIC,
                _content(self.payload_size),
                _header(_LAST_COMPRESSED, 3, _HEADER_BYTES + len(body)),
                _header(_RAW, 4, len(literals)),
                body,
            )
        )
        return _GROUP.pack(self.payload_size, len(told)) + told

    def _sequences(self) -> list[tuple[int, int]]:
        behind_key = len(KEY_SUFFIX) + self.value_shared
        after_key = self.key_size - self.key_shared, behind_key
        after_value = self.value_size - self.value_shared, _BEFORE_KEY + self.key_shared
        begin = self.payload_size // self.count + ROW_AT + self.key_size, behind_key
        return [begin, *[after_value, after_key] * (self.count - 2)]

    @made_once
    def places(self) -> tuple[slice, slice, slice, slice]:
        """Where in a frame the first key is, the first value, the shared bytes of the second key,
        and all rests."""
        key = _literals_at(self.payload_size) + ROW_AT
        value = key + self.key_size + len(KEY_SUFFIX)
        second = value + self.value_size + _BEFORE_KEY
        rest = second + self.key_shared
        end = rest + (self.count - 1) * self.rest_size
        ends = (key, key + self.key_size), (value, value + self.value_size), (second, rest)
        return *(slice(*one) for one in ends), slice(rest, end)  # type: ignore[return-value]

    @made_once
    def known(self) -> list[tuple[slice, bytes]]:
        """(where, which bytes) of all in a frame that is neither key nor value."""
        starts = [0, *(one.stop for one in self.places)]
        stops = [*(one.start for one in self.places), len(self.frame)]
        between = [slice(*one) for one in zip(starts, stops, strict=True)]
        return [(one, self.frame[one]) for one in between]

    @made_once
    def told(self) -> tuple[Int64s, slice]:
        """The places of all that is `known`: of each byte before the rests, and the slice behind
        them."""
        *before, behind = (one for one, _ in self.known)
        return np.concatenate([np.arange(one.start, one.stop) for one in before]), behind

    def pack(self, keys: UInt8s, values: UInt8s, frames: UInt8s) -> None:
        """Fill in blocks, one a row of keys, of values and of what is to be stored."""
        frames[:] = np.frombuffer(self.frame, np.uint8)
        first_key, first_value, second, rest = self.places
        frames[:, first_key] = keys[:, : self.key_size]
        frames[:, first_value] = values[:, : self.value_size]
        frames[:, second] = keys[:, self.key_size :][:, : self.key_shared]
        rests, behind = frames[:, rest], self.key_size - self.key_shared
        if self.rest_size == self.key_size:  # what follows each key is put over the next one's
            own = keys[:, self.key_size + self.key_shared :]
            rests[:, : own.shape[1]] = own
        else:
            of_keys = _behind(keys, self.key_size, self.key_shared)
            _pieces(rests, self.rest_size, slice(behind))[:] = of_keys
        of_values = _behind(values, self.value_size, self.value_shared)
        _pieces(rests, self.rest_size, slice(behind, None))[:] = of_values

    def unpack(self, stored: UInt8s, keys: UInt8s, values: UInt8s) -> None:
        """Fill in the keys of one such block, and its values, which are zeros so far."""
        count, step = self.count - 1, self.rest_size
        first_key, first_value, second, rest = self.places
        size, shared = self.key_size, self.key_shared
        keys[:size] = stored[first_key]
        if step == size:
            keys[size + shared :] = stored[rest.start : rest.stop - shared]
        else:
            rests = _every(stored, rest.start, size - shared, step, count)
            _every(keys, size + shared, size - shared, size, count)[:] = rests
        for place, byte in enumerate(stored[second].tolist(), size):
            keys[place::size] = byte
        behind = rest.start + size - shared
        size, shared = self.value_size, self.value_shared
        values[:size] = stored[first_value]
        for place, byte in enumerate(values[:shared].tolist()):
            if byte:
                values[place::size] = byte
        rests = _every(stored, behind, size - shared, step, count)
        _every(values, size + shared, size - shared, size, count)[:] = rests

    def is_of(self, stored: UInt8s) -> bool:
        """Whether it is stored so."""
        return len(stored) == len(self.frame) and all(
            stored[place].tobytes() == told for place, told in self.known
        )


_shape = lru_cache(_SHAPES)(Shape)


def can_pack(count: int, key_size: int, value_size: int) -> bool:
    """Whether there are such frames of so many records."""
    size = count * (key_size + value_size + RECORD_OVERHEAD)
    return count >= LEAST_RECORDS and size <= MOST_PAYLOAD and min(key_size, value_size) > 0


def pack_blocks(
    keys: Voids, values: Voids, count: int, *, before: int = 0, behind: int = 0
) -> tuple[memoryview, list[memoryview]]:
    """The records of these keys and values as blocks of `count`, which they are cut into without
    a rest and `can_pack`: each as its payload will be stored, and the memory in which they lie,
    with so many bytes before and behind each."""
    key_size, value_size = keys.itemsize, values.itemsize
    rows = [one.view(np.uint8).reshape(-1, count * one.itemsize) for one in (keys, values)]
    of_keys = _shared(rows[0], key_size, ascending=True)
    of_values = _shared(rows[1], value_size, ascending=False)
    shapes = [
        _shape(key_size, value_size, count, *one) for one in zip(of_keys, of_values, strict=True)
    ]
    ends = list(accumulate(before + len(one.frame) + behind for one in shapes))
    room = np.zeros(ends[-1], np.uint8)
    start, at = 0, 0
    for shape, alike in groupby(shapes):
        stop = start + sum(1 for _ in alike)
        blocks = room[at : ends[stop - 1]].reshape(stop - start, -1)
        frames = blocks[:, before : before + len(shape.frame)]
        shape.pack(rows[0][start:stop], rows[1][start:stop], frames)
        start, at = stop, ends[stop - 1]
    view = room.data
    sizes = zip(ends, shapes, strict=True)
    return view, [view[end - behind - len(one.frame) : end - behind] for end, one in sizes]


def unpack_blocks(
    stored: Sequence[UInt8s], key_size: int, value_size: int
) -> tuple[Voids, Voids] | None:
    """The keys and the values of blocks whose payloads are stored so, made by `pack_blocks` of
    records of these sizes; None if any was not."""
    shapes: list[Shape] = []
    for one in stored:
        shape = shape_of(one, key_size, value_size)
        if shape is None:
            return None
        shapes.append(shape)
    if not shapes:
        return None
    total = sum(shape.count for shape in shapes)
    keys, values = np.empty(total * key_size, np.uint8), np.zeros(total * value_size, np.uint8)
    at = 0
    for one, shape in zip(stored, shapes, strict=True):
        end = at + shape.count
        shape.unpack(
            one, keys[at * key_size : end * key_size], values[at * value_size : end * value_size]
        )
        at = end
    return keys.view((np.void, key_size)), values.view((np.void, value_size))


def shape_of(stored: UInt8s, key_size: int, value_size: int) -> Shape | None:
    """Where keys and values of these sizes lie in what is stored; None unless all of its other
    bytes are as `pack_blocks` makes them."""
    payload_size = int.from_bytes(stored[:4].tobytes())
    at = _literals_at(payload_size)
    literals = int.from_bytes(stored[at - _HEADER_BYTES : at].tobytes(), "little") >> 4
    shape = _shape_by_size(key_size, value_size, payload_size, literals)
    return shape if shape is not None and shape.is_of(stored) else None


@lru_cache(1 << 12)
def _shape_by_size(
    key_size: int, value_size: int, payload_size: int, literals: int
) -> Shape | None:
    """The only one with so many literals."""
    count, left = divmod(payload_size, key_size + value_size + RECORD_OVERHEAD)
    if left or not can_pack(count, key_size, value_size):
        return None
    least = key_size + value_size + RECORD_OVERHEAD + ROW_AT + 1
    spared, key_shared = divmod(literals - least, count - 1)
    value_shared = key_size + value_size - spared - key_shared
    if not (0 <= key_shared <= _most(key_size) and 0 <= value_shared <= _most(value_size)):
        return None
    return _shape(key_size, value_size, count, key_shared, value_shared)


def _most(size: int) -> int:
    """Bytes that are shared at most: some must be left, and a repeat has an end."""
    return min(size - 1, MOST_REPEATED - _BEFORE_KEY)


def _shared(rows: UInt8s, size: int, *, ascending: bool) -> list[int]:
    """How many bytes all pieces of `size` in each row begin with."""
    pieces = rows.reshape(len(rows), -1, size)
    if ascending:
        pieces = pieces[:, [0, -1]]
    shared, alike = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
    for place in range(_most(size)):
        alike &= (pieces[:, :, place] == pieces[:, :1, place]).all(axis=1)
        if not alike.any():
            break
        shared += alike
    told: list[int] = shared.tolist()
    return told


def _behind(rows: UInt8s, size: int, shared: int) -> Pieces:
    """What lies behind `shared` bytes in all pieces of `size` but the first of each row."""
    return _pieces(rows[:, size:], size, slice(shared, None))


def _pieces(rows: UInt8s, size: int, part: slice) -> Pieces:
    """A part of each of the pieces of `size` in rows: (rows, pieces), a view, moved as one."""
    pieces = rows.reshape(len(rows), -1, size)[:, :, part]
    return (
        pieces[:, :, 0]
        if pieces.shape[2] == 1
        else pieces.view((np.void, pieces.shape[2]))[:, :, 0]
    )


def _every(raw: UInt8s, at: int, size: int, step: int, count: int) -> Pieces:
    """`count` pieces of `raw`, one every `step` bytes: a view, moved as one."""
    return np.ndarray((count,), np.uint8 if size == 1 else (np.void, size), raw, at, (step,))


def _literals_at(payload_size: int) -> int:
    """Where literals begin in what is stored."""
    content = 2 if payload_size < _LONG_FROM else 4
    return _GROUP.size + len(_MAGIC) + 1 + content + 2 * _HEADER_BYTES


def _content(size: int) -> bytes:
    """The descriptor and the content size, as zstd chooses."""
    if size < _LONG_FROM:
        return bytes((_SHORT,)) + (size - _LESS).to_bytes(2, "little")
    return bytes((_LONG,)) + size.to_bytes(4, "little")


def _header(bits: int, count: int, size: int) -> bytes:
    """A size behind so many bits."""
    return (bits | size << count).to_bytes(_HEADER_BYTES, "little")
