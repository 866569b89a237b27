"""Where the items of Avro arrays and maps lie: a walk over their bytes, one item after the other.

For few rows of many items, of which rounds (`decode.py`) would read one a row at a time, by dozens
of steps over columns each. Once it is known where its items begin and end all of them are read
side by side, as rows of their own. The walk looks at lengths, counts and branches alone, and is as
strict with them as a cursor is; it tells nobody what is wrong, but that rounds should say it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metatable.storage.arrays import Int64s
from metatable.storage.avro.cursor import Cursor
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

__all__ = ["ItemBounds", "UnsureError", "item_bounds"]

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class UnsureError(ValueError):
    """A walk has come to bytes that are no items."""


@dataclass(frozen=True, slots=True)
class ItemBounds:
    """The row of each item, where it begins, where it ends; and where each row goes on behind its
    items."""

    owners: Int64s
    starts: Int64s
    ends: Int64s
    behind: Int64s


def item_bounds(cursor: Cursor, parts: Sequence[Node], left: Int64s) -> ItemBounds:
    """Of the items, which are made of `parts`, of rows that stand in a block where each has `left`
    of them, all together some. Raises UnsureError."""
    owners, starts, ends, behind = (array("q") for _ in range(4))
    data = cursor.data.data
    rows = zip(cursor.at.tolist(), cursor.end.tolist(), left.tolist(), strict=True)
    for row, (at, end, count) in enumerate(rows):
        walk = _Walk(data, at, end)
        while count:
            for _ in range(count):
                owners.append(row)
                starts.append(walk.at)
                walk.over(parts)
                ends.append(walk.at)
            count = walk.opened()
        behind.append(walk.at)
    return ItemBounds(*(np.frombuffer(one, np.int64) for one in (owners, starts, ends, behind)))


class _Walk:
    """Where the walk over one datum stands."""

    __slots__ = ("_data", "_end", "at")

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self._data, self.at, self._end = data, at, end

    def over(self, nodes: Sequence[Node]) -> None:
        """Step over what each of these is."""
        for node in nodes:
            self._over(node)

    def opened(self) -> int:
        """How many items the block has that begins here; 0: none begins."""
        count = self._long()
        if count < 0:
            self._long()  # the block's bytes, for those who skip it
        return self._within(abs(count))

    def _over(self, node: Node) -> None:
        match node:
            case Primitive(name="string" | "bytes"):
                self._skip(self._long())
            case Primitive(name="int" | "long") | Enum():
                self._long()
            case Primitive(name=name):
                self._skip(_SIZES[name])
            case Union(branches=branches):
                number = self._long()
                if not 0 <= number < len(branches):
                    raise UnsureError
                self._over(branches[number])
            case Record(fields=fields):
                for _, field in fields:
                    self._over(field)
            case Skipped(node=stored) | Logical(stored=stored):
                self._over(stored)
            case Fixed(size=size):
                self._skip(size)
            case Items(item=item):
                self._over_blocks([item])
            case Pairs():
                self._over_blocks(node.parts)

    def _over_blocks(self, parts: Sequence[Node]) -> None:
        while count := self.opened():
            for _ in range(count):
                self.over(parts)

    def _skip(self, count: int) -> None:
        self.at += self._within(count)

    def _within(self, count: int) -> int:
        """`count`, if there are so many bytes left."""
        if not 0 <= count <= self._end - self.at:
            raise UnsureError
        return count

    def _long(self) -> int:
        value, shift, at = 0, 0, self.at
        while at < self._end and shift < 64:
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80 and value < 1 << 64:
                self.at = at
                return value >> 1 ^ -(value & 1)
        raise UnsureError
