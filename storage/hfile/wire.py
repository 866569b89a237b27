"""Two kinds of variable-length integers, which must not be mixed, and protobuf's fields.

    Hadoop VInt      key lengths in root indexes, the MVCC field of a key value
    protobuf varint  the length before FILE_INFO and before the trailer's message, and inside

They agree from 0 to 127 only: 131 is `8f 83` for Hadoop and `83 01` for protobuf. Hudi 1.1
wrote protobuf's where Hadoop's belongs, so readers of indexes try both (block_index.py).

Decoders raise `Malformed`, which says what is wrong but not where: callers know the file.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = [
    "Malformed",
    "fields",
    "read_hadoop",
    "read_varint",
    "write_bytes_field",
    "write_hadoop",
    "write_varint",
    "write_varint_field",
]

_MOST_VARINT_BYTES = 10
_U64 = (1 << 64) - 1

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):  # noqa: N818  (never leaves the package: callers add path and offset)
    """Bytes that are no such integer or field."""


def write_hadoop(value: int) -> bytes:
    """Hadoop's WritableUtils.writeVLong, for values from 0."""
    if value <= 127:
        return bytes((value,))
    size = (value.bit_length() + 7) // 8
    return bytes((256 - 112 - size,)) + value.to_bytes(size, "big")


def read_hadoop(raw: bytes, at: int) -> tuple[int, int]:
    """(value, position after it)."""
    if at >= len(raw):
        raise Malformed("a Hadoop integer begins after the end")
    first = raw[at] - 256 if raw[at] > 127 else raw[at]
    if first >= -112:
        return first, at + 1
    size = -112 - first if first >= -120 else -120 - first
    end = at + 1 + size
    if end > len(raw):
        raise Malformed("a Hadoop integer goes past the end")
    value = int.from_bytes(raw[at + 1 : end], "big")
    return (value if first >= -120 else ~value), end


def write_varint(value: int) -> bytes:
    """Protobuf's varint; negative values as 64-bit two's complement."""
    value &= _U64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """(unsigned value, position after it)."""
    value = 0
    for count, byte in enumerate(raw[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            return value & _U64, at + count + 1
    raise Malformed("a varint does not end")


def write_varint_field(number: int, value: int) -> bytes:
    """A protobuf field of wire type 0."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def write_bytes_field(number: int, value: bytes) -> bytes:
    """A protobuf field of wire type 2."""
    return write_varint(number << 3 | BYTES) + write_varint(len(value)) + value


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of every field of a protobuf message, in order."""
    at = 0
    while at < len(raw):
        tag, at = read_varint(raw, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = read_varint(raw, at)
            yield tag >> 3, value
            continue
        size, at = (8 if kind == FIXED64 else 4, at) if kind != BYTES else read_varint(raw, at)
        if kind not in (FIXED64, BYTES, FIXED32) or at + size > len(raw):
            raise Malformed(f"field {tag >> 3} goes past the end or has no known kind")
        yield tag >> 3, raw[at : at + size]
        at += size
