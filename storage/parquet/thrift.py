"""Thrift's compact protocol, as far as Parquet needs it: one struct to a dict, and back.

    struct   fields, then a zero byte
    field    one byte: id as a step from the last one (upper half), type (lower half); where the
             step is 0 the id follows as a zigzag varint; then the value
    values   bools are their type; i8 one byte; i16, i32, i64 zigzag varints; double 8 bytes;
             binary a varint and so many bytes; list and set a head and elements, of which a
             bool has a byte of its own; struct

Fields that nobody here knows are kept, with their types and in their order, so that what any
known writer wrote comes back byte for byte. Bytes are not believed: every length and count is
held against what is there, depth is bounded, and whatever breaks a rule is CorruptError. Maps
are refused: nothing of Parquet's has one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.varints import write_varint

__all__ = [
    "BINARY",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "Elements",
    "Struct",
    "decode_struct",
    "encode_struct",
]

_TRUE, _FALSE, _BYTE, _I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_BOOLS = (_TRUE, _FALSE)
_VARINTS = (_I16, I32, I64)
_FIXED = {_BYTE: struct.Struct("<b"), _DOUBLE: struct.Struct("<d")}

_MOST_DEPTH = 16
_LONG = 15
"""From so many elements on, or such a step on, the number does not fit into the head."""
_BITS = 64
_CONTINUED = 0x80
"""A varint goes on behind a byte that is not below."""


class Struct(dict[int, Any]):
    """{field id: value} in the order of the bytes; `kinds`: with which type each is written.

    Values: bool, int, float, bytes, Elements, Struct. Equal are those of equal values.
    """

    __slots__ = ("kinds",)

    def __init__(self, *fields: tuple[int, int, Any]) -> None:
        """A struct of these fields: (id, type, value)."""
        self.kinds: dict[int, int] = {}
        for field, kind, value in fields:
            self[field] = value
            self.kinds[field] = kind

    def changed(self, *fields: tuple[int, int, Any]) -> Struct:
        """A copy with these values, by field id; a field whose value is None is left out."""
        made, kinds = Struct(), dict(self.kinds)
        every = dict(self)
        for field, kind, value in fields:
            every[field], kinds[field] = value, kind
        for field in sorted(every):
            if (value := every[field]) is not None:
                made[field], made.kinds[field] = value, kinds[field]
        return made


class Elements(list[Any]):
    """A list or a set; `kind`: the type that all elements are written with."""

    __slots__ = ("kind",)

    def __init__(self, kind: int, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        self.kind = kind


def decode_struct(
    raw: bytes | memoryview, path: str, start: int = 0, behind: int = 0
) -> tuple[Struct, int]:
    """The struct that begins at `start`, and where it ends; or what follows there in one, `behind`
    the field of this id. Raises CorruptError, naming `path`."""
    reader = _Reader(raw, path, start)
    return reader.struct(0, behind), reader.place


def encode_struct(value: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, value)
    return bytes(out)


class _Reader:
    def __init__(self, raw: bytes | memoryview, path: str, place: int) -> None:
        self.raw = raw
        self.path = path
        self.place = place

    def struct(self, depth: int, last: int = 0) -> Struct:
        fields = Struct()
        kinds, raw = fields.kinds, self.raw
        end = len(raw)
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.zigzag()
            kinds[last] = kind = head & 15
            if kind in _VARINTS:  # most are
                place = self.place
                if place < end and (number := raw[place]) < _CONTINUED:  # without a call
                    self.place = place + 1
                else:
                    number = self.varint()
                fields[last] = number >> 1 ^ -(number & 1)
            elif kind == STRUCT and depth < _MOST_DEPTH:
                fields[last] = self.struct(depth + 1)
            else:
                fields[last] = kind == _TRUE if kind in _BOOLS else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in _VARINTS:
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, _SET, STRUCT):
            return self.nested(kind, depth + 1)
        if kind not in _FIXED:
            raise self.wrong(f"type {kind}")
        layout = _FIXED[kind]
        return layout.unpack(self.take(layout.size))[0]

    def nested(self, kind: int, depth: int) -> Struct | Elements:
        if depth > _MOST_DEPTH:
            raise self.wrong("too deep")
        return self.struct(depth) if kind == STRUCT else self.elements(depth)

    def elements(self, depth: int) -> Elements:
        head = self.byte()
        kind = head & 15
        count = head >> 4 if head >> 4 < _LONG else self.varint()
        if count > len(self.raw) - self.place:  # none takes less than a byte
            raise self.wrong(f"{count} elements")
        if kind in _BOOLS:
            return Elements(kind, [byte == _TRUE for byte in self.take(count)])
        if kind == BINARY:
            return Elements(kind, self.texts(count))
        if kind in _VARINTS:
            return Elements(kind, self.numbers(count))
        return Elements(kind, [self.value(kind, depth) for _ in range(count)])

    def texts(self, count: int) -> list[bytes]:
        """The texts of a list, without a call for each, where its length is told by a byte: bounds
        of pages are many."""
        raw, place, found = self.raw, self.place, list[bytes]()
        end = len(raw)
        for _ in range(count):
            size = raw[place] if place < end else _CONTINUED
            if size < _CONTINUED and place + size < end:
                found.append(bytes(raw[place + 1 : place + 1 + size]))
                place += 1 + size
                continue
            self.place = place
            found.append(self.take(self.varint()))
            place = self.place
        self.place = place
        return found

    def numbers(self, count: int) -> list[int]:
        """The numbers of a list, zigzag varints, without a call for each that takes a byte."""
        raw, place, found = self.raw, self.place, list[int]()
        end = len(raw)
        for _ in range(count):
            byte = raw[place] if place < end else _CONTINUED
            if byte < _CONTINUED:
                found.append(byte >> 1 ^ -(byte & 1))
                place += 1
                continue
            self.place = place
            found.append(self.zigzag())
            place = self.place
        self.place = place
        return found

    def varint(self) -> int:
        """A number, without a call per byte: headers of pages are all numbers, and thousands are
        read."""
        raw, place = self.raw, self.place
        value = shift = 0
        try:
            while (byte := raw[place]) > 127:
                value |= (byte & 127) << shift
                shift += 7
                place += 1
                if shift >= _BITS:
                    raise self.wrong("number without an end")
        except IndexError:
            raise self.wrong("1 bytes wanted, 0 there") from None
        self.place = place + 1
        value |= byte << shift
        if value >> _BITS:
            raise self.wrong("number of more than 64 bits")
        return value

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def byte(self) -> int:
        place = self.place
        try:
            byte = self.raw[place]
        except IndexError:
            raise self.wrong("1 bytes wanted, 0 there") from None
        self.place = place + 1
        return byte

    def take(self, size: int) -> bytes:
        part = bytes(self.raw[self.place : self.place + size])
        if len(part) != size:
            raise self.wrong(f"{size} bytes wanted, {len(part)} there")
        self.place += size
        return part

    def wrong(self, found: str) -> CorruptError:
        return CorruptError("thrift is damaged", path=self.path, place=self.place, found=found)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last, kinds = 0, fields.kinds
    for field, value in fields.items():
        kind = kinds[field]
        if kind in _BOOLS:
            kind = _TRUE if value else _FALSE
        if 0 < field - last <= _LONG:
            out.append(field - last << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, field)
        if kind in _VARINTS:  # most are
            write_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)
        elif kind not in _BOOLS:
            _write(out, kind, value)
        last = field
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind in _VARINTS:
        _write_zigzag(out, value)
    elif kind == BINARY:
        write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in _FIXED:
        out += _FIXED[kind].pack(value)
    else:
        _write_elements(out, value)


def _write_elements(out: bytearray, values: Elements) -> None:
    out.append(min(len(values), _LONG) << 4 | values.kind)
    if len(values) >= _LONG:
        write_varint(out, len(values))
    if values.kind in _BOOLS:
        out += bytes(_TRUE if value else _FALSE for value in values)
        return
    if values.kind == BINARY:
        for value in values:
            if len(value) < _CONTINUED:
                out.append(len(value))
            else:
                write_varint(out, len(value))
            out += value
        return
    for value in values:
        _write(out, values.kind, value)


def _write_zigzag(out: bytearray, value: int) -> None:
    write_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)
