"""Chunks that pyarrow may be asked about: what it would throw where nobody can catch it.

pyarrow holds the sizes that a footer tells of a column chunk (`SizeStatistics`) against the schema
when it is asked for the chunk, outside of all that turns its exceptions into Python's: one turned
bit, of a column that may be null say, would end the process. Reads of rows are told of the same
damage by an error. So who asks for chunks before rows are read looks here first, at no more of the
footer than the chunks of these columns: each lies behind its column's path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow.parquet as pq

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Column, Footer, Group, Meta, Sizes
from metatable.storage.parquet.thrift import (
    BINARY,
    LIST,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)

__all__ = ["WRONG_SIZES", "check_chunks", "sizes_fit"]

WRONG_SIZES = "column chunk tells sizes of another column than its schema"


def check_chunks(
    raw: bytes, footer: pq.FileMetaData, path: str, leaves: Iterable[int] | None = None
) -> None:
    """Raise CorruptError unless pyarrow can be asked for the chunks of these leaves (by number;
    None: of all). `raw`: the Thrift bytes of the footer, whatever is behind them."""
    for group in range(footer.num_row_groups):
        found = footer.row_group(group).num_columns
        if found != footer.num_columns:
            what = "row group has another number of columns than its file"
            facts = {"row_group": group, "expected": footer.num_columns, "found": found}
            raise CorruptError(what, path=path, **facts)
    for leaf in range(footer.num_columns) if leaves is None else leaves:
        column = footer.schema.column(leaf)
        for meta in _metas(raw, footer.num_row_groups, leaf, column.path, path):
            _check_sizes(meta.get(Meta.SIZES), column, path)


def _metas(raw: bytes, groups: int, leaf: int, name: str, path: str) -> Iterator[Struct]:
    """What is told behind its path of the leaf's chunk in each row group."""
    names = Elements(BINARY, (part.encode() for part in name.split(".")))
    told = encode_struct(Struct((1, LIST, names)))[:-1]  # by one more than the field before
    at = [*islice(_places(raw, told), groups)]  # row groups stand before what is long
    if len(at) == groups:
        try:
            found = [decode_struct(raw, path, start, behind=Meta.PATH)[0] for start in at]
        except CorruptError:  # it was no path
            pass
        else:
            yield from found
            return
    stored, _ = decode_struct(raw, path)
    for group in stored[Footer.GROUPS]:
        yield group[Group.COLUMNS][leaf].get(Column.META, Struct())


def _places(raw: bytes, told: bytes) -> Iterator[int]:
    """Where these bytes end, wherever they are."""
    at = raw.find(told)
    while at >= 0:
        yield at + len(told)
        at = raw.find(told, at + 1)


def _check_sizes(sizes: Any, column: Any, path: str) -> None:
    levels = column.max_repetition_level, column.max_definition_level
    if not sizes_fit(sizes, *levels, column.physical_type == "BYTE_ARRAY"):
        raise CorruptError(WRONG_SIZES, path=path, column=column.path)


def sizes_fit(sizes: Any, repetition: int, definition: int, is_binary: bool) -> bool:
    """Whether what is told of a chunk's sizes, if anything, is told of a column of these greatest
    levels, whose values have any length, or one."""
    if not isinstance(sizes, Struct):
        return True
    levels = (Sizes.REPETITION, repetition), (Sizes.DEFINITION, definition)
    for field, most in levels:
        told = sizes.get(field, ())
        if not isinstance(told, Elements | tuple) or len(told) not in (0, most + 1):
            return False
    return is_binary or Sizes.UNENCODED not in sizes
