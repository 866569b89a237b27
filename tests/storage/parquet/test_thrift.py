"""Thrift's compact protocol: what is written by its rules is read, what breaks them is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.thrift import decode_struct


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else -value * 2 - 1)


def written(value: Any) -> tuple[int, bytes]:
    """(type, bytes) of a value that is no bool, by the rules."""
    if isinstance(value, dict):
        return 12, encode(value)
    if isinstance(value, list):
        parts = [written(one) for one in value]
        kind = parts[0][0] if parts else 5
        count = min(len(value), 15)
        head = bytes([count << 4 | kind]) + (varint(len(value)) if count == 15 else b"")
        return 9, head + b"".join(part for _, part in parts)
    if isinstance(value, float):
        return 7, struct.pack("<d", value)
    if isinstance(value, int):
        return 6, zigzag(value)
    return 8, varint(len(value)) + value


def encode(fields: dict[int, Any]) -> bytes:
    out, last = b"", 0
    for field, value in fields.items():
        kind, body = (1 if value else 2, b"") if type(value) is bool else written(value)
        step = field - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(field)
        out, last = out + body, field
    return out + b"\0"


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
LEAVES = st.one_of(NUMBERS, st.binary(max_size=40), st.floats(allow_nan=False))
LISTS = st.one_of(st.lists(NUMBERS, max_size=20), st.lists(st.binary(max_size=3), max_size=20))
STRUCTS = st.recursive(
    st.dictionaries(st.integers(1, 300), st.one_of(LEAVES, LISTS, st.booleans()), max_size=4),
    lambda inner: st.dictionaries(st.integers(1, 300), inner, max_size=3),
    max_leaves=6,
)


@given(STRUCTS, st.binary(max_size=5))
def test_a_struct_is_read_as_it_was_written(fields: dict[int, Any], behind: bytes) -> None:
    raw = encode(fields)
    assert decode_struct(b"ab" + raw + behind, "f", 2) == (fields, 2 + len(raw))


@given(STRUCTS, st.data())
def test_a_struct_that_is_cut_short_is_damage(fields: dict[int, Any], data: st.DataObject) -> None:
    raw = encode(fields)
    size = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(CorruptError, match=r"thrift is damaged: path='f'.*bytes wanted"):
        decode_struct(raw[:size], "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_struct_or_damage(raw: bytes) -> None:
    try:
        fields, end = decode_struct(raw, "f")
    except CorruptError:
        return
    assert isinstance(fields, dict)
    assert 0 < end <= len(raw)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"\x1c" * 100, "too deep"),
        (b"\x19" * 100, "too deep"),
        (b"\x1b\x00\x00", "type 11"),
        (b"\x1f\x00", "type 15"),
        (b"\x15" + b"\xff" * 11, "number without an end"),
        (b"\x19\xf5" + varint(1 << 40), "elements"),
        (b"\x18" + varint(1 << 60), "bytes wanted"),
        (b"".join(b"\x01" + zigzag(field) for field in range(5000)), "too many fields"),
    ],
)
def test_what_no_header_has_is_refused(raw: bytes, found: str) -> None:
    with pytest.raises(CorruptError, match=found):
        decode_struct(raw, "f")


def test_small_and_odd_types_are_read() -> None:
    raw = b"\x13\xff" + b"\x14\x03" + b"\x1a\x21\x01\x02" + b"\0"
    assert decode_struct(raw, "f")[0] == {1: -1, 2: -2, 3: [True, False]}


def test_structs_are_read_sixteen_deep() -> None:
    deep = b"\x1c" * 16 + bytes(17)
    found, end = decode_struct(deep, "a")
    assert end == len(deep)
    for _ in range(16):
        found = found[1]
    assert found == {}
    with pytest.raises(CorruptError):
        decode_struct(b"\x1c" + deep + b"\0", "a")
