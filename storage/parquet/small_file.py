"""Small files: some pages of one column, from anywhere, as a Parquet file in memory.

    b"PAR1"
    a row group for each chunk that pages are of: of each leaf its dictionary, if it has one, and
                the pages
    footer      the column alone, and of row groups nothing but places, sizes and codecs

pyarrow reads them as any file. Their row groups differ in some numbers only, and a varint may be
longer than it must: so all of them are one piece of bytes, with the numbers put in by numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.parquet.fields import Column, Element, Footer, Group, Meta
from metatable.storage.parquet.footer import MAGIC, whole_footer
from metatable.storage.parquet.parts import Leaf
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    encode_struct,
)

__all__ = ["CODEC", "DICTIONARY", "PAGES", "VALUES", "small_file"]

CODEC, VALUES, DICTIONARY, PAGES = range(4)
"""Numbers of a chunk: its codec, its values, the bytes of its dictionary and of its pages."""

_CODEC, _VALUES, _STORED, _DATA_AT, _DICTIONARY_AT = range(5)
"""Numbers of a chunk as the footer tells them."""

_WIDTH = 6
_FIRST = 1 << 35
"""Numbers that are put in take six bytes, as this one does."""

_ENCODINGS = (0, 3, 8)
"""Plain, of levels, of a dictionary; each page tells its own, and nobody looks here."""


def small_file(
    leaves: Sequence[Leaf], rows: Int64s, chunks: Int64s, bodies: Sequence[bytes | memoryview]
) -> bytes:
    """A file of the column with these leaves. `rows` of each row group, one at least; `chunks`: row
    group, leaf, and the numbers from CODEC to PAGES; `bodies`: all their bytes, in that order."""
    groups = len(rows)
    sizes = chunks[:, :, [DICTIONARY, PAGES]].reshape(-1)
    ends = len(MAGIC) + np.cumsum(sizes)
    dictionary_at, data_at = (ends - sizes).reshape(groups, -1, 2).transpose(2, 0, 1)
    told = np.empty((groups, len(leaves), 5), np.int64)
    told[..., _CODEC], told[..., _VALUES] = chunks[..., CODEC], chunks[..., VALUES]
    told[..., _STORED] = chunks[..., DICTIONARY] + chunks[..., PAGES]
    told[..., _DATA_AT] = data_at
    told[..., _DICTIONARY_AT] = np.where(chunks[..., DICTIONARY] > 0, dictionary_at, 0)
    footer = _footer(leaves, np.column_stack([told.reshape(groups, -1), rows]))
    return b"".join([MAGIC, *bodies, whole_footer(footer)])


def _footer(leaves: Sequence[Leaf], numbers: Int64s) -> bytes:
    """The footer of row groups, one a row of `numbers`: for each leaf those from _CODEC on, and
    then the rows."""
    holes = [_FIRST + number for number in range(numbers.shape[1])]
    columns = [_column(leaf, holes[5 * place :]) for place, leaf in enumerate(leaves)]
    group = Struct(
        (Group.COLUMNS, LIST, Elements(STRUCT, columns)),
        (Group.UNCOMPRESSED, I64, 0),
        (Group.ROWS, I64, holes[-1]),
    )
    every = {id(one): one for leaf in leaves for one in leaf.elements}
    root = Struct((Element.NAME, BINARY, b"schema"), (Element.CHILDREN, I32, 1))
    footer = Struct(
        (Footer.VERSION, I32, 2),
        (Footer.SCHEMA, LIST, Elements(STRUCT, [root, *every.values()])),
        (Footer.ROWS, I64, int(numbers[:, -1].sum())),
        (Footer.GROUPS, LIST, Elements(STRUCT, [group])),
    )
    one = encode_struct(group)
    before, behind = encode_struct(footer).rsplit(bytes([1 << 4 | STRUCT]) + one, 1)
    count = _varints(np.array([len(numbers)]))
    many = bytes([15 << 4 | STRUCT]) + count.tobytes()
    return before + many + _filled(one, holes, numbers) + behind


def _column(leaf: Leaf, holes: Sequence[int]) -> Struct:
    meta = Struct(
        (Meta.TYPE, I32, leaf.elements[-1][Element.TYPE]),
        (Meta.ENCODINGS, LIST, Elements(I32, _ENCODINGS)),
        (Meta.PATH, LIST, Elements(BINARY, leaf.path)),
        (Meta.CODEC, I32, holes[_CODEC]),
        (Meta.VALUES, I64, holes[_VALUES]),
        (Meta.UNCOMPRESSED, I64, 0),
        (Meta.STORED, I64, holes[_STORED]),
        (Meta.DATA_PAGE, I64, holes[_DATA_AT]),
        (Meta.DICTIONARY, I64, holes[_DICTIONARY_AT]),
    )
    return Struct((Column.OFFSET, I64, 0), (Column.META, STRUCT, meta))


def _filled(one: bytes, holes: Sequence[int], numbers: Int64s) -> bytes:
    """The bytes of a row group once for each row of `numbers`, put in for the holes."""
    made = np.tile(np.frombuffer(one, np.uint8), (len(numbers), 1))
    for hole, values in zip(holes, numbers.T, strict=True):
        at = one.index(_varints(np.array([hole << 1])).tobytes())
        made[:, at : at + _WIDTH] = _varints(values << 1)
    return made.tobytes()


def _varints(numbers: Int64s) -> UInt8s:
    """Each number in _WIDTH bytes, a row each."""
    parts = numbers[:, None] >> np.arange(0, 7 * _WIDTH, 7) & 127
    parts[:, :-1] |= 128
    return parts.astype(np.uint8)
