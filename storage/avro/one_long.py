"""One long of Avro, coded: zig-zag, seven bits a byte, the lowest first (Avro 1.11, "Binary
encoding"). Columns of them are coded at once by `encode.py`."""

from __future__ import annotations

__all__ = ["encoded_long", "write_long"]


def write_long(value: int, out: bytearray) -> None:
    """Append `value`, an int of 64 bits, to `out`."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def encoded_long(value: int) -> bytes:
    """`value`, an int of 64 bits, as its bytes."""
    out = bytearray()
    write_long(value, out)
    return bytes(out)
