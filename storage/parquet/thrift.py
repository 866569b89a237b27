"""Thrift's compact protocol, as far as Parquet's small headers need it: one struct to a dict.

    struct   fields, then a zero byte
    field    one byte: id as a step from the last one (upper half), type (lower half); where the
             step is 0 the id follows as a zigzag varint; then the value
    values   bools are their type; i8 one byte; i16, i32, i64 zigzag varints; double 8 bytes;
             binary a varint and so many bytes; list and set a head and elements; struct

Bytes are not believed: every length is held against what is there, depth and fields are
bounded, and whatever breaks a rule is CorruptError. Maps are refused: no header has one.
"""

from __future__ import annotations

import struct
from typing import Any

from metatable.storage.errors import CorruptError

__all__ = ["Struct", "decode_struct"]

Struct = dict[int, Any]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_VARINTS = (_I16, _I32, _I64)
_FIXED = {_BYTE: struct.Struct("<b"), _DOUBLE: struct.Struct("<d")}

_MOST_DEPTH = 16
_MOST_FIELDS = 1 << 12
"""Of one struct, or elements of one list: Parquet's headers have a dozen."""
_VARINT_BYTES = 10
"""Of 64 bits."""


def decode_struct(raw: bytes, path: str, start: int = 0) -> tuple[Struct, int]:
    """The struct that begins at `start` as {field id: value}, and where it ends.

    Values: bool, int, float, bytes, list, Struct. Raises CorruptError, naming `path`.
    """
    reader = _Reader(raw, path, start)
    return reader.struct(0), reader.place


class _Reader:
    def __init__(self, raw: bytes, path: str, place: int) -> None:
        self.raw = raw
        self.path = path
        self.place = place

    def struct(self, depth: int) -> Struct:
        fields: Struct = {}
        last = 0
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.zigzag()
            fields[last] = self.value(head & 15, depth)
            if len(fields) > _MOST_FIELDS:
                raise self.wrong("too many fields")
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _VARINTS:
            return self.zigzag()
        if kind in (_LIST, _SET, _STRUCT):
            return self.nested(kind, depth + 1)
        if kind == _BINARY:
            return self.take(self.varint())
        if kind not in _FIXED:
            raise self.wrong(f"type {kind}")
        layout = _FIXED[kind]
        return layout.unpack(self.take(layout.size))[0]

    def nested(self, kind: int, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise self.wrong("too deep")
        return self.struct(depth) if kind == _STRUCT else self.elements(depth)

    def elements(self, depth: int) -> list[Any]:
        head = self.byte()
        count = head >> 4 if head >> 4 < 15 else self.varint()
        if count > _MOST_FIELDS:
            raise self.wrong(f"{count} elements")
        if head & 15 in (_TRUE, _FALSE):  # here a bool has a byte of its own
            return [self.byte() == _TRUE for _ in range(count)]
        return [self.value(head & 15, depth) for _ in range(count)]

    def varint(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES):
            byte = self.byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise self.wrong("number without an end")

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        part = self.raw[self.place : self.place + size]
        if len(part) != size:
            raise self.wrong(f"{size} bytes wanted, {len(part)} there")
        self.place += size
        return part

    def wrong(self, found: str) -> CorruptError:
        return CorruptError("thrift is damaged", path=self.path, place=self.place, found=found)
