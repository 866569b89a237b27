"""Avro datums to columns: all rows at once, with a cursor per row.

A datum has no index, so field k of a row begins where field k - 1 ended. But every row has
the same fields: so each step (a byte of a number, a run of bytes) is one numpy operation over
the cursors of all rows that take it. Rows part ways at unions and meet again after them.
Items of arrays and maps are read in rounds: the first item of every row, then the second of
those that have one. Where these would have few rows each, a walk over the bytes finds where items
lie (`item_bounds`), and all of them are read at once.

Nothing stored is believed: a length or a count is compared with the bytes that its row has
left before anything is made of it (`cursor`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Bools, Int64s
from metatable.storage.avro.cursor import Cursor, one_for_all
from metatable.storage.avro.item_bounds import UnsureError, item_bounds
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
from metatable.storage.byte_columns import Runs, from_gaps, is_ascii, offsets_of
from metatable.storage.errors import CorruptError

__all__ = ["decode_records"]

FEW_A_ROUND = 32
"""Items a round, at most, that are found by a walk: so many are walked over in less time than the
steps of a round take."""


def decode_records(record: Record, datums: Runs, path: str) -> pa.Table:
    """The fields of every datum as columns, but for those that are skipped. Raises CorruptError."""
    with suppress(CorruptError, UnsureError):
        return _decoded(record, datums, path, walks=True)
    return _decoded(record, datums, path, walks=False)  # rounds know which row is wrong, and where


def _decoded(record: Record, datums: Runs, path: str, *, walks: bool) -> pa.Table:
    at, end = datums.starts.astype(np.int64), datums.ends.astype(np.int64)
    cursor = Cursor(datums.data, at, end, np.arange(len(datums)), path, walks=walks)
    cursor.look_far()
    columns = _fields(record, cursor)
    cursor.refuse(cursor.at != cursor.end, "bytes after the end of an Avro datum")
    return pa.Table.from_arrays(columns, schema=pa.schema(list(record.type)))


def _read(node: Node, cursor: Cursor) -> pa.Array:
    """The column of what a node is in each row; the cursor moves behind it. Raises CorruptError."""
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


def _fields(record: Record, cursor: Cursor) -> list[pa.Array]:
    """The columns of a record, but for fields that are skipped."""
    columns = []
    for _, node in record.fields:
        if isinstance(node, Skipped):
            _skip(node, cursor)
        else:
            columns.append(_read(node, cursor))
    return columns


def _skip(node: Node, cursor: Cursor) -> None:
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


def _leaf(node: Primitive | Fixed, cursor: Cursor) -> pa.Array:
    return _fixed(cursor, node.size) if isinstance(node, Fixed) else _READ[node.name](cursor)


def _ints(cursor: Cursor) -> pa.Array:
    longs = cursor.longs()
    ints = longs.astype(np.int32)
    cursor.refuse(ints != longs, "number in an Avro datum has more than 32 bits")
    return pa.array(ints)


def _booleans(cursor: Cursor) -> pa.Array:
    byte = cursor.words("u1")
    cursor.refuse(byte > 1, "boolean in an Avro datum is neither 0 nor 1")
    return pa.array(byte.astype(bool))


def _binary(cursor: Cursor) -> pa.Array:
    lengths = cursor.longs()
    return from_gaps(cursor.data, cursor.runs(lengths), lengths)


def _text(cursor: Cursor) -> pa.Array:
    column = _binary(cursor)
    if is_ascii(column):
        return column.view(pa.string())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptError(
            "string in an Avro datum is not UTF-8", path=cursor.path, found=str(error)
        ) from error


def _fixed(cursor: Cursor, size: int) -> pa.Array:
    starts = cursor.runs(one_for_all(size, len(cursor)))
    if not len(cursor):  # there are no bytes that the size was held against
        return pa.array([], pa.binary(size))
    values = np.ascontiguousarray(cursor.data[starts[:, None] + np.arange(size)])
    return pa.Array.from_buffers(pa.binary(size), len(cursor), [None, pa.py_buffer(values)])


def _symbols(cursor: Cursor, symbols: tuple[str, ...]) -> pa.Array:
    number = cursor.longs()
    cursor.refuse((number < 0) | (number >= len(symbols)), "no such symbol in an Avro enum")
    return pa.array(symbols, pa.string()).take(pa.array(number))


_READ: dict[str, Callable[[Cursor], pa.Array]] = {
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


def _parted(node: Union, cursor: Cursor) -> list[tuple[Node, Int64s]]:
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


def _union(node: Union, cursor: Cursor) -> pa.Array:
    """The column of a union: that of its only branch beside null, or a struct of all branches."""
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


def _nulls_between(values: pa.Array, rows: Int64s, count: int) -> pa.Array:
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
    is_null: Bools | None = None,
) -> pa.Array:
    if not columns:
        return pa.nulls(count, kind).fill_null({}) if count else pa.nulls(0, kind)
    mask = None if is_null is None else pa.array(is_null)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _items(node: Items | Pairs, cursor: Cursor) -> pa.Array:
    if isinstance(node, Items):
        offsets, (values,) = _blocks(cursor, [node.item])
        return pa.ListArray.from_arrays(offsets, values, type=node.type)
    offsets, (keys, values) = _blocks(cursor, node.parts)
    return pa.MapArray.from_arrays(offsets, keys, values, type=node.type)


def _blocks(cursor: Cursor, parts: Sequence[Node]) -> tuple[pa.Array, list[pa.Array]]:
    """(offsets, columns of items) of arrays or maps, whose items are made of `parts`."""
    rounds, items = [], cursor.longs()
    while _all_are(items, 1) and cursor.left:
        rounds.append(_of_each(parts, cursor))
        items = cursor.longs()
    if len(rounds) == 1 and _all_are(items, 0):  # one each, as of files that have no logs
        return pa.array(np.arange(len(cursor) + 1, dtype=np.int32)), rounds[0]
    owners = [cursor.every] * len(rounds)
    left = _opened(cursor, items)
    read = _walked if _is_walked(cursor, left) else _rounds
    for rows, found in read(cursor, parts, left):
        rounds.append(found)
        owners.append(rows)
    if not rounds:
        nothing = pa.array(np.zeros(len(cursor) + 1, np.int32))
        return nothing, [pa.nulls(0, part.type) for part in parts]
    of = np.concatenate(owners)
    counts = np.bincount(of, minlength=len(cursor))
    offsets = pa.array(offsets_of(counts).astype(np.int32))
    if len(rounds) == 1:
        return offsets, rounds[0]
    order = pa.array(np.argsort(of, kind="stable"))
    return offsets, [pa.concat_arrays(parts).take(order) for parts in zip(*rounds, strict=True)]


def _of_each(parts: Sequence[Node], cursor: Cursor) -> list[pa.Array]:
    """An item of each row."""
    return [_read(part, cursor) for part in parts]


def _is_walked(cursor: Cursor, left: Int64s) -> bool:
    """Whether these items are read side by side: would rounds have few each?"""
    most = int(left.max(initial=0))
    return cursor.walks and most > 1 and int(left.sum()) <= FEW_A_ROUND * most


def _walked(
    cursor: Cursor, parts: Sequence[Node], left: Int64s
) -> Iterator[tuple[Int64s, list[pa.Array]]]:
    """(the row of each item, all items), as of `_rounds`, in one. Raises UnsureError."""
    found = item_bounds(cursor, parts, left)
    rows, room = cursor.rows[found.owners], cursor.room
    some = Cursor(cursor.data, found.starts, found.ends, rows, cursor.path, room, walks=True)
    yield found.owners, _of_each(parts, some)
    if (some.at != found.ends).any():
        raise UnsureError
    cursor.move_to(found.behind)


def _rounds(
    cursor: Cursor, parts: Sequence[Node], left: Int64s
) -> Iterator[tuple[Int64s, list[pa.Array]]]:
    """(rows, the next item of each) until none has any, where a block of so many is `left` of each.

    A round looks at the rows alone that have some: of a million rows one may have a thousand.
    """
    rows = np.flatnonzero(left)
    if not len(rows):
        return
    some, left, ends = cursor.of(rows), left[rows], cursor.at.copy()
    while len(rows):
        yield rows, _of_each(parts, some)
        left -= 1
        ended = np.flatnonzero(left == 0)
        if not len(ended):
            continue
        behind = some.of(ended)
        left[ended] = _opened(behind, behind.longs())
        some.back(behind, ended)
        ends[rows[ended]] = some.at[ended]
        on = np.flatnonzero(left)
        rows, left, some = rows[on], left[on], some.of(on)
    cursor.move_to(ends)


def _all_are(numbers: Int64s, number: int) -> bool:
    """Whether a cursor has said so of all its rows at once."""
    return len(numbers) > 0 and numbers.strides == (0,) and int(numbers[0]) == number


def _opened(cursor: Cursor, items: Int64s) -> Int64s:
    """How many items the next block of each row has, which `items` begins; 0 ends an array."""
    sized = np.flatnonzero(items < 0)
    if len(sized):
        with_size = cursor.of(sized)
        with_size.longs()  # the block's bytes, for those who skip it
        cursor.back(with_size, sized)
        items = np.abs(items)
    cursor.refuse(
        (items < 0) | (items > cursor.end - cursor.at),
        "number of items in an Avro datum out of bounds",
    )
    return items
