"""Avro datums to columns: all rows at once, with a cursor a row.

A datum has no index, so field k of a row begins where field k - 1 ended. But every row has
the same fields: so each step (a byte of a number, a run of bytes) is one numpy operation over
the cursors of all rows that take it. Rows part ways at unions and meet again after them.
Items of arrays and maps are read in rounds: the first item of every row, then the second of
those that have one; a column of very long arrays gains nothing from that.

Nothing stored is believed: a length or a count is compared with the bytes that its row has
left before anything is made of it. Nulls take more memory than bytes, where a schema has large
types: they get `NULL_RATIO` times the input and no more. So memory stays within a multiple of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.avro.logical import from_stored
from metatable.storage.avro.schema import (
    Enum,
    Fixed,
    Items,
    Logical,
    Node,
    Pairs,
    Primitive,
    Record,
    Skipped,
    Union,
)
from metatable.storage.byte_columns import Bytes, Runs, from_gaps, offsets_of
from metatable.storage.errors import CorruptError

__all__ = ["decode_records"]

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_WORD_BYTES = 8
_HIGHEST_BITS = np.uint64(0x8080808080808080)
_GAPS = tuple(
    (np.uint64(between), np.uint64(shift))
    for between, shift in (
        (0x7F007F007F007F00, 1),
        (0x3FFF00003FFF0000, 2),
        (0x0FFFFFFF00000000, 4),
    )
)
"""Of eight bytes that hold seven bits each: which are moved by how many, to lie side by side."""

NULL_RATIO = 64
FREE_BYTES = 64 << 20
"""What nulls may take of memory: so many times the bytes of the datums, and this."""


def decode_records(record: Record, datums: Runs, path: str) -> pa.Table:
    """The fields of every datum as columns, but for those that are skipped. Raises CorruptError."""
    at, end = datums.starts.astype(np.int64), datums.ends.astype(np.int64)
    cursor = _Cursor(datums.data, at, end, np.arange(len(datums)), path)
    columns = _fields(record, cursor)
    cursor.refuse(cursor.at != cursor.end, "bytes after the end of an Avro datum")
    return pa.Table.from_arrays(columns, schema=pa.schema(list(record.type)))


class _Cursor:
    """Where each row stands: `at` <= `end`, both offsets in `data`. `rows` is for messages.

    What all rows have alike is told once: while they step over as many bytes they move by one
    number, and the bytes that all of them have next are those of the first row.
    """

    def __init__(
        self,
        data: Bytes,
        at: Longs,
        end: Longs,
        rows: Longs,
        path: str,
        room: list[int] | None = None,
    ) -> None:
        self.data, self.end, self.rows, self.path = data, end, rows, path
        self.room = room or [FREE_BYTES + NULL_RATIO * int((end - at).sum())]
        self._from, self._moved = at, 0
        self._left: int | None = None
        self._alike = b""

    def __len__(self) -> int:
        return len(self.end)

    @cached_property
    def every(self) -> Longs:
        """All its rows."""
        return np.arange(len(self))

    @property
    def at(self) -> Longs:
        """Never changed where it is: whoever has asked keeps it."""
        if self._moved:
            self._from, self._moved = self._from + self._moved, 0
        return self._from

    @property
    def left(self) -> int:
        """The bytes of the row that has the fewest left."""
        if self._left is None:
            self._left = int((self.end - self.at).min(initial=np.iinfo(np.int64).max))
        return self._left

    def _move_to(self, at: Longs) -> None:
        self._from, self._moved = at, 0
        self._left, self._alike = None, b""

    def _step(self, count: int) -> None:
        """All rows by so many bytes, of which none has fewer `left`."""
        self._moved += count
        self._left = self.left - count
        self._alike = self._alike[count:]

    def of(self, rows: Longs) -> _Cursor:
        """A cursor of some (ascending) rows; `back` returns what it has read to this one."""
        if len(rows) == len(self):
            return self
        parts = self.at[rows], self.end[rows], self.rows[rows]
        return _Cursor(self.data, *parts, self.path, self.room)

    def back(self, some: _Cursor, rows: Longs) -> None:
        if some is not self:
            at = self.at.copy()
            at[rows] = some.at
            self._move_to(at)

    def refuse(self, wrong: npt.NDArray[np.bool_], what: str) -> None:
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
        return _every_word(self.data, kind)[self.runs(_one_for_all(size, len(self)))]

    def runs(self, lengths: Longs) -> Longs:
        """Step over so many bytes a row; where they begin."""
        starts = self.at
        self.skip(lengths)
        return starts

    def skip(self, lengths: Longs) -> None:
        """Step over so many bytes a row."""
        if len(lengths) and lengths.strides == (0,) and 0 <= lengths[0] <= self.left:
            self._step(int(lengths[0]))
            return
        self.refuse(
            (lengths < 0) | (lengths > self.end - self.at), "length in an Avro datum out of bounds"
        )
        self._move_to(self.at + lengths)

    def longs(self) -> Longs:
        """Avro's variable-length, zig-zag coded integer; with no strides where all rows have the
        same, as in nearly all cases of unions and in many lengths."""
        size, words = _long_size(self._alike), None
        if not size and self.left > 0 and len(self):
            words = self._next_words()
            size = _long_size(self._alike)
        if size:
            number = _long_of(self._alike[:size])
            self._step(size)
            return _one_for_all(number, len(self))
        if words is None:
            return _from_zigzag(self._long_bytes())
        if not int(np.bitwise_or.reduce(words)) & 0x80:
            self._step(1)
            return _from_zigzag(words & np.uint64(0x7F))
        return _from_zigzag(self._long_words(words))

    def _next_words(self) -> Words | None:
        """The eight bytes that each row has next, the first the lowest; None: the data end before.
        Also learns how many bytes are alike."""
        at = self.at
        behind = min(_WORD_BYTES, len(self.data) - int(at[-1]))
        size = 1 << behind.bit_length() - 1
        words = _every_word(self.data, f"<u{size}")[at]
        differ = int(np.bitwise_or.reduce(words ^ words[0]))
        alike = ((differ & -differ).bit_length() - 1) // 8 if differ else size
        self._alike = words[:1].tobytes()[: min(alike, self.left)]
        return words if size == _WORD_BYTES else None

    def _long_words(self, words: Words) -> Words:
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
        self._move_to(self.at + sizes)
        return self._more_bytes(words, np.flatnonzero(ends == 0), 7 * _WORD_BYTES)

    def _long_bytes(self) -> Words:
        """The same byte by byte."""
        self._move_to(self.at.copy())
        return self._more_bytes(np.zeros(len(self), np.uint64), np.arange(len(self)), 0)

    def _more_bytes(self, value: Words, rows: Longs, shift: int) -> Words:
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


def _from_zigzag(value: Words) -> Longs:
    half = (value >> np.uint64(1)).view(np.int64)
    return np.asarray(half ^ -(value & np.uint64(1)).view(np.int64))


def _one_for_all(number: int, count: int) -> Longs:
    """A number so many times, in the room of one."""
    return np.ndarray((count,), np.int64, np.int64(number).tobytes(), strides=(0,))


def _every_word(data: Bytes, kind: str) -> npt.NDArray[Any]:
    """The word that begins at each byte."""
    count = max(0, len(data) + 1 - np.dtype(kind).itemsize)
    return np.ndarray((count,), kind, buffer=data, strides=(1,))


def _read(node: Node, cursor: _Cursor) -> pa.Array:
    match node:
        case Primitive() | Fixed():
            return _leaf(node, cursor)
        case Logical(stored=stored, type=kind):
            return from_stored(_read(stored, cursor), kind, cursor.path)
        case Enum(symbols=symbols):
            return _symbols(cursor, symbols)
        case Record():
            return _struct(node.type, _fields(node, cursor), len(cursor))
        case Skipped():
            raise AssertionError("a skipped field was read")
        case Union():
            return _union(node, cursor)
        case Items() | Pairs():
            return _items(node, cursor)


def _fields(record: Record, cursor: _Cursor) -> list[pa.Array]:
    """The columns of a record, but for fields that are skipped."""
    columns = []
    for _, node in record.fields:
        if isinstance(node, Skipped):
            _skip(node, cursor)
        else:
            columns.append(_read(node, cursor))
    return columns


def _skip(node: Node, cursor: _Cursor) -> None:
    """As `_read`, but bytes are stepped over where that is all there is to do."""
    match node:
        case Primitive(name="string" | "bytes"):
            cursor.skip(cursor.longs())
        case Primitive(name="null"):
            pass
        case Primitive(name="long"):
            cursor.longs()
        case Skipped(node=stored) | Logical(stored=stored):
            _skip(stored, cursor)
        case Record():
            for _, field in node.fields:
                _skip(field, cursor)
        case Union():
            for branch, rows in _parted(node, cursor):
                some = cursor.of(rows)
                _skip(branch, some)
                cursor.back(some, rows)
        case _:
            _read(node, cursor)


# Leaves


def _leaf(node: Primitive | Fixed, cursor: _Cursor) -> pa.Array:
    return _fixed(cursor, node.size) if isinstance(node, Fixed) else _READ[node.name](cursor)


def _ints(cursor: _Cursor) -> pa.Array:
    longs = cursor.longs()
    ints = longs.astype(np.int32)
    cursor.refuse(ints != longs, "number in an Avro datum has more than 32 bits")
    return pa.array(ints)


def _booleans(cursor: _Cursor) -> pa.Array:
    byte = cursor.words("u1")
    cursor.refuse(byte > 1, "boolean in an Avro datum is neither 0 nor 1")
    return pa.array(byte.astype(bool))


def _binary(cursor: _Cursor) -> pa.Array:
    lengths = cursor.longs()
    return from_gaps(cursor.data, cursor.runs(lengths), lengths)


def _text(cursor: _Cursor) -> pa.Array:
    column = _binary(cursor)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptError(
            "string in an Avro datum is not UTF-8", path=cursor.path, found=str(error)
        ) from error


def _fixed(cursor: _Cursor, size: int) -> pa.Array:
    starts = cursor.runs(_one_for_all(size, len(cursor)))
    values = np.ascontiguousarray(cursor.data[starts[:, None] + np.arange(size)])
    return pa.Array.from_buffers(pa.binary(size), len(cursor), [None, pa.py_buffer(values)])


def _symbols(cursor: _Cursor, symbols: tuple[str, ...]) -> pa.Array:
    number = cursor.longs()
    cursor.refuse((number < 0) | (number >= len(symbols)), "no such symbol in an Avro enum")
    return pa.array(symbols, pa.string()).take(pa.array(number))


_READ: dict[str, Callable[[_Cursor], pa.Array]] = {
    "null": lambda cursor: pa.nulls(len(cursor)),
    "boolean": _booleans,
    "int": _ints,
    "long": lambda cursor: pa.array(cursor.longs()),
    "float": lambda cursor: pa.array(cursor.words("<f4")),
    "double": lambda cursor: pa.array(cursor.words("<f8")),
    "bytes": _binary,
    "string": _text,
}


# Where rows part ways


def _parted(node: Union, cursor: _Cursor) -> list[tuple[Node, Longs]]:
    """(branch, its rows) for every branch that rows have."""
    number = cursor.longs()
    if len(number) and number.strides == (0,) and 0 <= number[0] < len(node.branches):
        return [(node.branches[int(number[0])], cursor.every)]
    cursor.refuse((number < 0) | (number >= len(node.branches)), "no such branch in an Avro union")
    return [
        (branch, rows)
        for at, branch in enumerate(node.branches)
        if len(rows := np.flatnonzero(number == at))
    ]


def _union(node: Union, cursor: _Cursor) -> pa.Array:
    parted = _parted(node, cursor)
    if len(parted) == 1 and node.only is not None:
        ((branch, rows),) = parted
        if len(rows) == len(cursor) and branch.name != "null" and not isinstance(branch, Skipped):
            return _read(branch, cursor)
    found: dict[str | None, pa.Array] = {}
    is_null = np.zeros(len(cursor), bool)
    for branch, rows in parted:
        if branch.name == "null":
            is_null[rows] = True
            continue
        some = cursor.of(rows)
        if isinstance(branch, Skipped):
            _skip(branch, some)
            cursor.back(some, rows)
            continue
        values = _read(branch, some)
        if some is not cursor:
            cursor.make_room(branch.type)
        cursor.back(some, rows)
        found[node.names[node.branches.index(branch)]] = _nulls_between(values, rows, len(cursor))
    for name, branch in node.children:
        if name not in found:
            cursor.make_room(branch.type)
            found[name] = pa.nulls(len(cursor), branch.type)
    children = [found[name] for name, _ in node.children]
    if node.only is not None:
        return children[0]
    return _struct(node.type, children, len(cursor), is_null if is_null.any() else None)


@lru_cache(maxsize=4096)
def _null_bytes(kind: pa.DataType) -> int:
    """Bytes that a null of this type takes, at most."""
    if pa.types.is_struct(kind):
        return 1 + sum(_null_bytes(field.type) for field in kind)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return int(kind.byte_width)
    return _WORD_BYTES


def _nulls_between(values: pa.Array, rows: Longs, count: int) -> pa.Array:
    """`count` values: those given at the ascending `rows`, nulls elsewhere."""
    if len(rows) == count:
        return values
    places, absent = np.zeros(count, np.int64), np.ones(count, bool)
    places[rows], absent[rows] = np.arange(len(rows)), False
    return values.take(pa.array(places, mask=absent))


def _struct(
    kind: pa.DataType,
    columns: list[pa.Array],
    count: int,
    is_null: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    if not columns:
        return pa.nulls(count, kind).fill_null({}) if count else pa.nulls(0, kind)
    mask = None if is_null is None else pa.array(is_null)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _items(node: Items | Pairs, cursor: _Cursor) -> pa.Array:
    if isinstance(node, Items):
        item = node.item
        offsets, (values,) = _blocks(cursor, lambda some: [_read(item, some)], [item.type])
        return pa.ListArray.from_arrays(offsets, values, type=node.type)
    value = node.value
    offsets, (keys, values) = _blocks(
        cursor, lambda some: [_text(some), _read(value, some)], [pa.string(), value.type]
    )
    return pa.MapArray.from_arrays(offsets, keys, values, type=node.type)


def _blocks(
    cursor: _Cursor, read: Callable[[_Cursor], list[pa.Array]], kinds: Sequence[pa.DataType]
) -> tuple[pa.Array, list[pa.Array]]:
    """(offsets, columns of items) of arrays or maps."""
    counts, left = np.zeros((2, len(cursor)), np.int64)
    rounds: list[list[pa.Array]] = []
    owners: list[Longs] = []
    open_rows = np.arange(len(cursor))
    while len(open_rows):
        _open_blocks(cursor, open_rows[left[open_rows] == 0], left)
        open_rows = open_rows[left[open_rows] > 0]
        if len(open_rows):
            some = cursor.of(open_rows)
            rounds.append(read(some))
            owners.append(open_rows)
            cursor.back(some, open_rows)
            left[open_rows] -= 1
            counts[open_rows] += 1
    offsets = pa.array(offsets_of(counts).astype(np.int32))
    if not rounds:
        return offsets, [pa.nulls(0, kind) for kind in kinds]
    if len(rounds) == 1:
        return offsets, rounds[0]
    order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
    return offsets, [pa.concat_arrays(parts).take(order) for parts in zip(*rounds, strict=True)]


def _open_blocks(cursor: _Cursor, rows: Longs, left: Longs) -> None:
    """Read the next block's number of items; 0 ends a row's array."""
    some = cursor.of(rows)
    items = some.longs()
    sized = np.flatnonzero(items < 0)
    if len(sized):
        with_size = some.of(sized)
        with_size.longs()  # the block's bytes, for those who skip it
        some.back(with_size, sized)
        items = np.abs(items)
    some.refuse(
        (items < 0) | (items > some.end - some.at), "number of items in an Avro datum out of bounds"
    )
    cursor.back(some, rows)
    left[rows] = items
