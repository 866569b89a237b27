"""Delete lists: the content of a delete block, as columns.

    size  field            (integers big-endian, signed)
       4  content_version  3
       4  size             bytes behind this field
     var  list             an Avro array of HoodieDeleteRecord

A record is a key, a partition path and an ordering value, each of them null or not. Ordering
values are a union, whose branches are Java's types (`ORDERING_TYPES`). A list of several ordering
values a record, which Hudi has since 1.1, is refused.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.storage.avro import RecordCodec
from metatable.storage.avro.one_long import encoded_long
from metatable.storage.byte_columns import Runs, byte_layout, joined_runs
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import LogBlock
from metatable.storage.hudi_log.records import CONTENT_VERSION

__all__ = ["DELETES", "ORDERING_TYPES", "decode_deletes", "decode_many_deletes", "encode_deletes"]

_HEAD = struct.Struct(">ii")

ORDERING_TYPES: dict[str, Any] = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": {"type": "int", "logicalType": "date"},
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": {"type": "long", "logicalType": "timestamp-micros"},
}
"""Branches 1 to 11 of the union, each a record of one field, `value`; 0 is null."""

_ARRAY_WRAPPER = 12


def _record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


_WRAPPERS = [_record(name, value=kind) for name, kind in ORDERING_TYPES.items()]
_TEXT = ["null", "string"]
_CODEC = RecordCodec(
    _record(
        "HoodieDeleteRecord",
        recordKey=_TEXT,
        partitionPath=_TEXT,
        orderingVal=["null", *_WRAPPERS],
    ),
    logical=True,
)

DELETES: pa.Schema = _CODEC.arrow_schema
"""Columns recordKey, partitionPath (string) and orderingVal: a struct of which one child at most
is not null, the wrapper that was stored. A null struct: none was."""


def encode_deletes(deletes: pa.Table, cuts: Sequence[int] | None = None) -> list[bytes]:
    """The content for columns of `DELETES`, of which absent ones are null: one for the rows between
    each two of `cuts` (ascending), if not one for all."""
    offsets, data = byte_layout(_CODEC.encode(deletes))
    contents = []
    for lo, hi in pairwise((0, deletes.num_rows) if cuts is None else cuts):
        count = encoded_long(hi - lo) if hi > lo else b""
        parts = (count, data[offsets[lo] : offsets[hi]].data, b"\0")
        contents.append(b"".join((_HEAD.pack(CONTENT_VERSION, sum(map(len, parts))), *parts)))
    return contents


def decode_deletes(block: LogBlock) -> pa.Table:
    """The records of a block, columns `DELETES`. Raises CorruptError, UpgradeError."""
    return _CODEC.decode(_datums(block), path=block.path)


def decode_many_deletes(blocks: Sequence[LogBlock]) -> tuple[pa.Table, list[int]]:
    """The records of some blocks (one at least), and how many are each block's. Decoded together
    they take hardly longer than those of one; errors may name another block."""
    datums = [_datums(one) for one in blocks]
    found = _CODEC.decode(joined_runs(datums), path=blocks[0].path)
    return found, [*map(len, datums)]


def _datums(block: LogBlock) -> Runs:
    """The records of a block, where they lie."""
    content = bytes(block.content)
    if len(content) < _HEAD.size:
        raise _wrong(block, "has no head", _HEAD.size, len(content))
    version, size = _HEAD.unpack_from(content)
    if version != CONTENT_VERSION:
        raise _later(block, "unknown version of a delete list", CONTENT_VERSION, version)
    if size != len(content) - _HEAD.size:
        raise _wrong(block, "has another size than told", len(content) - _HEAD.size, size)
    places = np.frombuffer(_Walk(block, content).places(), np.int64).reshape(-1, 2)
    return Runs(np.frombuffer(content, np.uint8), places[:, 0], places[:, 1])


class _Walk:
    """Finds where records begin and end: they lie back to back, and say only how long their parts
    are. What is in them is for the codec to read, all rows at once."""

    def __init__(self, block: LogBlock, content: bytes) -> None:
        self.block, self.content, self.at = block, content, _HEAD.size

    def places(self) -> array[int]:
        """(start, end) of each record, one behind the other."""
        found = array("q")
        try:
            while count := self.long():
                if count < 0:
                    count = -count
                    self.long()  # the bytes of this part of the list
                if count > len(self.content) - self.at:
                    raise _wrong(self.block, "has an impossible count", "records", count)
                for _ in range(count):
                    found.append(self.at)
                    self.text()
                    self.text()
                    self.ordering()
                    found.append(self.at)
        except IndexError as error:
            raise _wrong(self.block, "ends too early", "its end", len(self.content)) from error
        if self.at != len(self.content):
            raise _wrong(self.block, "has bytes behind its end", self.at, len(self.content))
        return found

    def long(self) -> int:
        byte = self.content[self.at]
        self.at += 1
        value, shift = byte & 0x7F, 7
        while byte & 0x80 and shift < 70:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        return (value >> 1) ^ -(value & 1)

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self.content) - self.at:
            left = len(self.content) - self.at
            raise _wrong(self.block, "holds a size out of bounds", f"0 to {left}", size)
        self.at += size

    def text(self) -> None:
        if self.long():
            self.skip(self.long())

    def ordering(self) -> None:
        branch = self.long()
        if branch == _ARRAY_WRAPPER:
            raise _later(self.block, "deletes by several ordering values", 1, "ArrayWrapper")
        if not 0 <= branch < len(_SKIP):
            raise _wrong(self.block, "has no such ordering value", f"< {len(_SKIP)}", branch)
        size = _SKIP[branch]
        if size >= 0:
            self.skip(size)
        elif size == _SIZED:
            self.skip(self.long())
        else:
            self.long()


_SIZED, _NUMBER = -1, -2
_FIXED = {"boolean": 1, "float": 4, "double": 8, "int": _NUMBER, "long": _NUMBER}
_STORED = [kind["type"] if isinstance(kind, dict) else kind for kind in ORDERING_TYPES.values()]
_SKIP = [0, *(_FIXED.get(kind, _SIZED) for kind in _STORED)]
"""By branch: bytes of a value, or how they are told."""


def _wrong(block: LogBlock, what: str, expected: object, found: object) -> CorruptError:
    told = {"path": block.path, "offset": block.offset, "expected": expected, "found": found}
    return CorruptError(f"delete list {what}", **told)


def _later(block: LogBlock, what: str, expected: object, found: object) -> UpgradeError:
    told = {"path": block.path, "offset": block.offset, "expected": expected, "found": found}
    return UpgradeError(what, **told)
