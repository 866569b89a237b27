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
from functools import lru_cache
from itertools import groupby
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
    """Where each row stands: `at` <= `end`, both offsets in `data`. `rows` is for messages."""

    def __init__(
        self,
        data: Bytes,
        at: Longs,
        end: Longs,
        rows: Longs,
        path: str,
        room: list[int] | None = None,
    ) -> None:
        self.data, self.at, self.end, self.rows, self.path = data, at, end, rows, path
        self.room = room or [FREE_BYTES + NULL_RATIO * int((end - at).sum())]

    def __len__(self) -> int:
        return len(self.at)

    def of(self, rows: Longs) -> _Cursor:
        """A cursor of some (ascending) rows; `back` returns what it has read to this one."""
        if len(rows) == len(self):
            return self
        parts = self.at[rows], self.end[rows], self.rows[rows]
        return _Cursor(self.data, *parts, self.path, self.room)

    def back(self, some: _Cursor, rows: Longs) -> None:
        if some is not self:
            self.at[rows] = some.at

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
        return _every_word(self.data, kind)[self.runs(np.full(len(self), size, np.int64))]

    def runs(self, lengths: Longs) -> Longs:
        """Step over so many bytes a row; where they begin."""
        self.refuse(
            (lengths < 0) | (lengths > self.end - self.at), "length in an Avro datum out of bounds"
        )
        starts = self.at.copy()
        self.at += lengths
        return starts

    def longs(self) -> Longs:
        """Avro's variable-length, zig-zag coded integer; with no strides where all have one of one
        byte, as nearly all cases of unions and many lengths."""
        first = self._byte(slice(None))
        if len(first) and first[0] < 0x80 and (first == first[0]).all():
            one = int(first[0])
            return _one_for_all(one >> 1 ^ -(one & 1), len(first))
        if not (first & 0x81).any():
            return (first >> 1).astype(np.int64)
        value = (first & 0x7F).astype(np.uint64)
        more, shift = self._eight_bytes(np.flatnonzero(first & 0x80), value), 7
        while len(more):
            byte = self._byte(more)
            if shift == 63 and (byte > 1).any():
                self.fail("number in an Avro datum has more than 64 bits", int(more[0]))
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            more, shift = more[byte >= 0x80], shift + 7
        half = (value >> np.uint64(1)).view(np.int64)
        return np.asarray(half ^ -(value & np.uint64(1)).view(np.int64))

    def zeros(self, count: int) -> bool:
        """Step over so many bytes a row if they are zeros in all rows; else nothing is read."""
        if (self.end - self.at < count).any():
            return False
        fits = int(self.at.max(initial=0)) + _WORD_BYTES <= len(self.data)
        if count <= _WORD_BYTES and fits:
            told = self._word_at(self.at) & np.uint64((1 << 8 * count) - 1)
            wrong = bool(told.any())
        else:
            wrong = any(self.data[self.at + place].any() for place in range(count))
        if not wrong:
            self.at += count
        return not wrong

    def _word_at(self, starts: Longs) -> Words:
        """The eight bytes that begin at each place, the first the lowest."""
        words: Words = _every_word(self.data, "<u8")[starts]
        return words

    def _eight_bytes(self, rows: Longs, value: Words) -> Longs:
        """The bytes behind the first one of these rows' numbers, up to eight at once, put into
        `value`. Returns the rows that are left: longer numbers, and those that end too near."""
        last = len(self.data) - _WORD_BYTES
        if last < 0:
            return rows
        at = self.at[rows]
        word = self._word_at(np.minimum(at, last))
        ends = ~word & _HIGHEST_BITS
        below = (ends & (~ends + np.uint64(1))) - np.uint64(1)  # bits below the last byte's highest
        sizes = (np.bitwise_count(below) + 1) >> 3
        whole = (ends != 0) & (at <= last) & (at + sizes <= self.end[rows])
        word &= below & ~_HIGHEST_BITS
        for between, shift in _GAPS:
            moved = word & between
            word ^= moved
            word |= moved >> shift
        done = slice(None) if whole.all() else np.flatnonzero(whole)
        value[rows[done]] |= word[done] << np.uint64(7)
        self.at[rows[done]] += sizes[done]
        left: Longs = rows[~whole]
        return left

    def _byte(self, rows: Longs | slice) -> Bytes:
        at = self.at[rows]
        over = at >= self.end[rows]
        if over.any():
            self.fail("Avro datum ends too early", int(np.arange(len(self))[rows][np.argmax(over)]))
        found = self.data[at]
        self.at[rows] += 1
        return found


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
    for is_skipped, run in groupby(record.fields, lambda field: isinstance(field[1], Skipped)):
        nodes = [node for _, node in run]
        if not is_skipped:
            columns += [_read(node, cursor) for node in nodes]
        elif not (all(map(_may_be_zero, nodes)) and cursor.zeros(len(nodes))):
            for node in nodes:
                _skip(node, cursor)
    return columns


def _may_be_zero(node: Node) -> bool:
    """Whether one zero byte is a datum of it, which then says nothing: null, "", 0, no items."""
    match node:
        case Primitive(name=name):
            return name not in ("null", "float", "double")
        case Skipped(node=stored) | Logical(stored=stored):
            return _may_be_zero(stored)
        case Union(branches=branches):
            return branches[0].name == "null"
        case _:
            return isinstance(node, Enum | Items | Pairs)


def _skip(node: Node, cursor: _Cursor) -> None:
    """As `_read`, but bytes are stepped over where that is all there is to do."""
    match node:
        case Primitive(name="string" | "bytes"):
            cursor.runs(cursor.longs())
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
    starts = cursor.runs(np.full(len(cursor), size, np.int64))
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
        return [(node.branches[int(number[0])], np.arange(len(number)))]
    cursor.refuse((number < 0) | (number >= len(node.branches)), "no such branch in an Avro union")
    return [
        (branch, rows)
        for at, branch in enumerate(node.branches)
        if len(rows := np.flatnonzero(number == at))
    ]


def _union(node: Union, cursor: _Cursor) -> pa.Array:
    found: dict[str | None, pa.Array] = {}
    is_null = np.zeros(len(cursor), bool)
    for branch, rows in _parted(node, cursor):
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
