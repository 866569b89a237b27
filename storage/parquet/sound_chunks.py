"""Chunks that pyarrow may be asked about: what it would throw where nobody can catch it.

pyarrow holds the sizes that a footer tells of a column chunk (`SizeStatistics`) against the schema
when it is asked for the chunk, outside of all that turns its exceptions into Python's: one turned
bit, of a column that may be null say, would end the process. Reads of rows are told of the same
damage by an error. So who asks for chunks before rows are read looks here first, at no more of the
footer than the chunks of these columns: each lies behind its column's path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    asked = sorted(range(footer.num_columns) if leaves is None else leaves)
    columns = [footer.schema.column(leaf) for leaf in asked]
    told = _sizes(raw, footer.num_row_groups, asked, [one.path for one in columns], path)
    for column, sizes in zip(columns, told, strict=True):
        for one in sizes:
            _check_sizes(one, column, path)


def _sizes(
    raw: bytes, groups: int, leaves: Sequence[int], names: Sequence[str], path: str
) -> Iterator[list[Any]]:
    """What is told of the sizes of the chunks of each of these leaves, which ascend, in all row
    groups."""
    found = 0
    for one in _looked_for(raw, groups, names, path):
        yield one
        found += 1
    if found < len(leaves):
        yield from _decoded(raw, groups, leaves[found:], path)


def _looked_for(raw: bytes, groups: int, names: Sequence[str], path: str) -> Iterator[list[Any]]:
    """`_sizes` up to a leaf that is not found. Its path is looked for behind that of the leaf
    before it: so the footer is looked through once, however many there are."""
    at = [0] * groups
    for name in names:
        parts = Elements(BINARY, (part.encode() for part in name.split(".")))
        told = encode_struct(Struct((1, LIST, parts)))[:-1]  # by one more than the field before
        at = _behind(raw, told, at)
        if len(at) < groups:
            return
        try:
            metas = [decode_struct(raw, path, start, behind=Meta.PATH)[0] for start in at]
        except CorruptError:  # it was no path
            return
        yield [meta.get(Meta.SIZES) for meta in metas]


def _behind(raw: bytes, told: bytes, starts: Sequence[int]) -> list[int]:
    """Where these bytes end that come next from each of these places on, one behind the other;
    fewer where they do not."""
    found, end = list[int](), 0
    for start in starts:
        at = raw.find(told, max(start, end))
        if at < 0:
            break
        end = at + len(told)
        found.append(end)
    return found


def _decoded(raw: bytes, groups: int, leaves: Sequence[int], path: str) -> list[list[Any]]:
    """`_sizes` from the whole footer, taken apart once."""
    stored, _ = decode_struct(raw, path)
    try:
        columns = [stored[Footer.GROUPS][group][Group.COLUMNS] for group in range(groups)]
        metas = [[own[leaf].get(Column.META, Struct()) for own in columns] for leaf in leaves]
        return [[meta.get(Meta.SIZES) for meta in own] for own in metas]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        # a field that comes again as something else: pyarrow passes over that one
        raise CorruptError("footer is damaged", path=path, found=str(error)) from error


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
