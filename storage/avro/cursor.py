"""Where rows stand in their Avro datums, and what is read there: of all rows in one step.

Most rows of a block are alike in much: the same cases of unions, the same lengths, the same bytes
of a time. So what all have next is looked at once, and told without a look at each row while it
stays the same.

Nothing stored is believed: no row steps over more bytes than it has. Nulls take more memory than
bytes, where a schema has large types: they get `NULL_RATIO` times the input and no more. So memory
stays within a multiple of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import at_every_byte
from metatable.storage.errors import CorruptError
from metatable.storage.made_once import made_once

__all__ = ["Cursor", "one_for_all"]

_WORD_BYTES = 8
_WINDOW_BYTES = 256
"""Bytes of what a row has next that are looked at at once, at most."""
_SOON_BYTES = 16
"""And at least, if rows have as many: that takes hardly longer than a word."""

_NO_WINDOW: UInt8s = np.zeros((0, 0), np.uint8)
_HIGHEST_BITS = np.uint64(0x8080808080808080)
_GAPS = tuple(
    (np.uint64(between), np.uint64(shift))
    for between, shift in (
        (0x7F007F007F007F00, 1),
        (0x3FFF00003FFF0000, 2),
        (0x0FFFFFFF00000000, 4),
    )
)
"""Which of the bits of eight bytes that hold seven bits each are moved by how many, so that all lie
side by side."""

NULL_RATIO = 64
FREE_BYTES = 64 << 20
"""What nulls may take of memory: so many times the bytes of the datums, and this."""


class Cursor:
    """Where each row stands: `at` <= `end`, both offsets in `data`. `rows` is for messages.
    `walks`: items may be found by a walk (`item_bounds`).

    What all rows have alike is told once: while they step over as many bytes they move by one
    number, and the bytes that all of them have next are those of the first row.
    """

    def __init__(
        self,
        data: UInt8s,
        at: Int64s,
        end: Int64s,
        rows: Int64s,
        path: str,
        room: list[int] | None = None,
        *,
        walks: bool = False,
    ) -> None:
        self.data, self.end, self.rows, self.path = data, end, rows, path
        self.walks = walks
        self.room = room or [FREE_BYTES + NULL_RATIO * int((end - at).sum())]
        self._from, self._moved = at, 0
        self._left: int | None = None
        self._alike = b""
        self._window, self._passed = _NO_WINDOW, 0

    def __len__(self) -> int:
        return len(self.end)

    @made_once
    def every(self) -> Int64s:
        """All its rows."""
        return np.arange(len(self))

    @property
    def at(self) -> Int64s:
        """Where each row stands. The array is never changed in place: who has asked keeps it."""
        if self._moved:
            self._from, self._moved = self._from + self._moved, 0
        return self._from

    @property
    def left(self) -> int:
        """The bytes of the row that has the fewest left."""
        if self._left is None:
            self._left = int((self.end - self.at).min(initial=np.iinfo(np.int64).max))
        return self._left

    def move_to(self, at: Int64s) -> None:
        """Let each row stand at its place of these."""
        self._from, self._moved = at, 0
        self._left, self._alike = None, b""
        self._window = _NO_WINDOW

    def _step(self, count: int) -> None:
        """Move all rows by so many bytes; none may have fewer `left`."""
        self._moved += count
        self._left = self.left - count
        self._alike = self._alike[count:]
        self._passed += count

    def of(self, rows: Int64s) -> Cursor:
        """A cursor of some (ascending) rows; `back` returns what it has read to this one."""
        if len(rows) == len(self):
            return self
        parts = self.at[rows], self.end[rows], self.rows[rows]
        return Cursor(self.data, *parts, self.path, self.room, walks=self.walks)

    def back(self, some: Cursor, rows: Int64s) -> None:
        if some is not self:
            at = self.at.copy()
            at[rows] = some.at
            self.move_to(at)

    def refuse(self, wrong: Bools, what: str) -> None:
        """Raise CorruptError if any row is wrong."""
        if wrong.any():
            self.fail(what, int(np.argmax(wrong)))

    def fail(self, what: str, row: int) -> NoReturn:
        raise CorruptError(
            what,
            path=self.path,
            row=int(self.rows[row]),
            offset=int(self.at[row]),
            end=int(self.end[row]),
        )

    def make_room(self, kind: pa.DataType) -> None:
        """For values of `kind` in all rows, of which some are null."""
        self.room[0] -= _null_bytes(kind) * len(self)
        if self.room[0] < 0:
            self.fail("nulls in Avro datums would take too much memory", 0)

    def words(self, kind: str) -> npt.NDArray[Any]:
        """The fixed-size word at each cursor."""
        size = np.dtype(kind).itemsize
        seen = self._seen(kind) if size <= self.left else None
        if seen is not None:
            self._step(size)
            return seen
        return at_every_byte(self.data, kind)[self.runs(one_for_all(size, len(self)))]

    def runs(self, lengths: Int64s) -> Int64s:
        """Step over so many bytes a row; where they begin."""
        starts = self.at
        self.skip(lengths)
        return starts

    def skip(self, lengths: Int64s) -> None:
        """Step over so many bytes a row."""
        if len(lengths) and lengths.strides == (0,) and 0 <= lengths[0] <= self.left:
            self._step(int(lengths[0]))
            return
        self.refuse(
            (lengths < 0) | (lengths > self.end - self.at), "length in an Avro datum out of bounds"
        )
        self.move_to(self.at + lengths)

    def longs(self) -> Int64s:
        """Avro's variable-length, zig-zag coded integer; with no strides where all rows have the
        same, as in nearly all cases of unions and in many lengths."""
        size, words = _long_size(self._alike), None
        if not size and self.left > 0 and len(self):
            words = self._next_words()
            size = _long_size(self._alike)
        if size:
            number = _long_of(self._alike[:size])
            self._step(size)
            return one_for_all(number, len(self))
        if words is None:
            return _from_zigzag(self._long_bytes())
        if not int(np.bitwise_or.reduce(words)) & 0x80:
            self._step(1)
            return _from_zigzag(words & np.uint64(0x7F))
        return _from_zigzag(self._long_words(words))

    def _next_words(self) -> UInt64s | None:
        """The eight bytes that each row has next, the first the lowest; None: the data end before.
        Also learns how many bytes are alike."""
        words = self._seen("<u8")
        if words is None:
            self._look()
            words = self._seen(f"<u{min(_WORD_BYTES, self._window.shape[1])}")
        assert words is not None
        size = words.itemsize
        differ = int(np.bitwise_or.reduce(words ^ words[0]))
        alike = ((differ & -differ).bit_length() - 1) // 8 if differ else size
        self._alike = words[:1].tobytes()[: min(alike, self.left)]
        return words if size == _WORD_BYTES else None

    def _look(self) -> None:
        """Copy what each row has next: to take many bytes from where they lie costs hardly more
        than a few. Twice as far as all rows have moved together since they looked before, so that
        little is copied for nothing; in all no more than the datums, or a word a row."""
        at = self.at
        most = min(max(2 * self._passed, _SOON_BYTES), _WINDOW_BYTES, len(self.data) // len(self))
        size = 1 << min(max(most, _WORD_BYTES), len(self.data) - int(at[-1])).bit_length() - 1
        pieces = at_every_byte(self.data, f"V{size}")[at]
        self._window, self._passed = pieces.view(np.uint8).reshape(len(self), size), 0

    def look_far(self) -> None:
        """Make the next look a far one, for rows of which much may be alike."""
        self._passed = _WINDOW_BYTES

    def _seen(self, kind: str) -> npt.NDArray[Any] | None:
        """The word at each cursor, if it was looked at."""
        rows, reach = self._window.shape
        if self._passed + np.dtype(kind).itemsize > reach:
            return None
        return np.ndarray((rows,), kind, self._window, self._passed, (reach,)).copy()

    def _long_words(self, words: UInt64s) -> UInt64s:
        """The number, zig-zag coded, that begins in these `_next_words`, but for longer ones all of
        it: eight bytes are seven bits each."""
        ends = ~words & _HIGHEST_BITS
        below = (ends & (~ends + np.uint64(1))) - np.uint64(1)  # bits below the last byte's highest
        sizes = (np.bitwise_count(below) + 1) >> 3
        if (sizes > self.end - self.at).any():
            return self._long_bytes()  # which says where
        words &= below & ~_HIGHEST_BITS
        for between, shift in _GAPS:
            moved = words & between
            words ^= moved
            words |= moved >> shift
        self.move_to(self.at + sizes)
        return self._more_bytes(words, np.flatnonzero(ends == 0), 7 * _WORD_BYTES)

    def _long_bytes(self) -> UInt64s:
        """`_long_words` byte by byte."""
        self.move_to(self.at.copy())
        return self._more_bytes(np.zeros(len(self), np.uint64), np.arange(len(self)), 0)

    def _more_bytes(self, value: UInt64s, rows: Int64s, shift: int) -> UInt64s:
        """The bytes that are left of the numbers of some rows, put into `value`."""
        while len(rows):
            at = self.at[rows]
            over = at >= self.end[rows]
            if over.any():
                self.fail("Avro datum ends too early", int(rows[np.argmax(over)]))
            byte = self.data[at]
            if shift == 63 and (byte > 1).any():
                self.fail("number in an Avro datum has more than 64 bits", int(rows[0]))
            self.at[rows] += 1
            value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            rows, shift = rows[byte >= 0x80], shift + 7
        return value


def _long_size(alike: bytes) -> int:
    """How many bytes the number takes that these begin with; 0: they do not tell."""
    return next((place for place, byte in enumerate(alike, 1) if byte < 0x80), 0)


def _long_of(raw: bytes) -> int:
    number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw))
    return number >> 1 ^ -(number & 1)


def _from_zigzag(value: UInt64s) -> Int64s:
    half = (value >> np.uint64(1)).view(np.int64)
    return np.asarray(half ^ -(value & np.uint64(1)).view(np.int64))


def one_for_all(number: int, count: int) -> Int64s:
    """A number so many times, in the room of one."""
    return np.ndarray((count,), np.int64, np.int64(number).tobytes(), strides=(0,))


@lru_cache(maxsize=4096)
def _null_bytes(kind: pa.DataType) -> int:
    """Bytes that a null of this type takes, at most."""
    if pa.types.is_struct(kind):
        return 1 + sum(_null_bytes(field.type) for field in kind)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return int(kind.byte_width)
    return _WORD_BYTES
