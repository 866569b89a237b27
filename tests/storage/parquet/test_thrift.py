"""Thrift's compact protocol: what is written by its rules is read, what breaks them is refused."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    LIST,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)
from tests.storage.parquet.files import OPTIONS, every_type
from tests.storage.parquet.files import written as file_of


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
    found, end = decode_struct(b"ab" + raw + behind, "f", 2)
    assert (found, end) == (fields, 2 + len(raw))
    assert encode_struct(found) == raw


@given(STRUCTS, st.data())
def test_a_struct_that_is_cut_short_is_damage(fields: dict[int, Any], data: st.DataObject) -> None:
    raw = encode(fields)
    size = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(CorruptError, match=r"thrift is damaged: path='f'.*(wanted|elements)"):
        decode_struct(raw[:size], "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_struct_or_damage(raw: bytes) -> None:
    try:
        fields, end = decode_struct(raw, "f")
    except CorruptError:
        return
    assert 0 < end <= len(raw)
    again = encode_struct(fields)
    assert decode_struct(again, "f") == (fields, len(again)) or "nan" in repr(fields)


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
        (b"\x15" + b"\xff" * 9 + b"\x02\0", "more than 64 bits"),
        (b"\x19\x3c\0\0", "3 elements"),
    ],
)
def test_what_no_header_has_is_refused(raw: bytes, found: str) -> None:
    with pytest.raises(CorruptError, match=found):
        decode_struct(raw, "f")


def test_small_and_odd_types_are_read() -> None:
    raw = b"\x13\xff" + b"\x14\x03" + b"\x1a\x21\x01\x02" + b"\0"
    found, _ = decode_struct(raw, "f")
    assert found == {1: -1, 2: -2, 3: [True, False]}
    assert encode_struct(found) == raw


def test_structs_are_read_sixteen_deep() -> None:
    deep = b"\x1c" * 16 + bytes(17)
    found, end = decode_struct(deep, "a")
    assert end == len(deep)
    for _ in range(16):
        found = found[1]
    assert found == {}
    with pytest.raises(CorruptError):
        decode_struct(b"\x1c" + deep + b"\0", "a")


def test_a_changed_struct_has_new_values_in_their_places() -> None:
    before = Struct((1, I32, 7), (3, BINARY, b"x"), (9, I32, 8))
    after = before.changed((4, LIST, Elements(I32, [5, 6])), (1, I32, -1), (9, I32, None))
    assert after == {1: -1, 3: b"x", 4: [5, 6]}
    assert before == {1: 7, 3: b"x", 9: 8}
    assert encode_struct(after) == encode({1: -1, 3: b"x", 4: [5, 6]}).replace(
        b"\x16\x01", b"\x15\x01"
    ).replace(b"\x26", b"\x25")


# footers of real writers


def comes_back(raw: bytes, name: str) -> None:
    """The footer of a file is read and comes back byte for byte."""
    assert raw[-4:] == b"PAR1", name
    length = int.from_bytes(raw[-8:-4], "little")
    footer, end = decode_struct(raw, name, len(raw) - 8 - length)
    assert end == len(raw) - 8, name
    assert encode_struct(footer) == raw[-8 - length : -8], name


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_footers_of_pyarrow_come_back_byte_for_byte(options: dict[str, Any]) -> None:
    for store_schema in (True, False):
        comes_back(file_of(every_type(), store_schema=store_schema, **options), "pyarrow")
    comes_back(file_of(every_type(0), **options), "no rows")


def test_footers_of_duckdb_come_back_byte_for_byte(tmp_path: Path) -> None:
    duckdb.from_arrow(every_type()).write_parquet(str(tmp_path / "f"), row_group_size=2048)
    comes_back((tmp_path / "f").read_bytes(), "duckdb")


def test_footers_of_hudis_files_come_back_byte_for_byte(interop: Path) -> None:
    files = [(path.name, path.read_bytes()) for path in interop.rglob("*.parquet")]
    for packed in interop.rglob("*.zip"):
        with zipfile.ZipFile(packed) as archive:
            names = [name for name in archive.namelist() if name.endswith(".parquet")]
            names = [name for name in names if not name.startswith("__MACOSX/")]
            files += [(f"{packed.name}/{name}", archive.read(name)) for name in names]
    for name, raw in files:
        comes_back(raw, name)
    assert len(files) > 50
