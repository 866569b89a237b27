"""Pages of a chunk are walked: what is not as the footer and the checksums say is damage."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Meta, Page
from metatable.storage.parquet.pages import checked_page, checked_pages
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    STRUCT,
    Struct,
    decode_struct,
    encode_struct,
)
from tests.storage.parquet.files import OPTIONS, written


def a_chunk(**options: Any) -> tuple[Chunk, bytes]:
    raw = written(pa.table({"n": [n % 3 for n in range(60)]}), **options)
    [chunk] = ParquetParts.of_bytes(raw).chunks(0)
    return chunk, raw[chunk.offset : chunk.offset + chunk.size]


def pages_of(raw: bytes) -> list[tuple[Struct, bytes]]:
    """(header, body) of each page."""
    pages, at = [], 0
    while at < len(raw):
        header, body = decode_struct(raw, "", at)
        at = body + header[Page.STORED]
        pages.append((header, raw[body:at]))
    return pages


def joined(pages: list[tuple[Struct, bytes]]) -> bytes:
    return b"".join(encode_struct(header) + body for header, body in pages)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_data_pages_are_found(options: dict[str, Any]) -> None:
    options = {name: word for name, word in options.items() if name != "column_encoding"}
    chunk, raw = a_chunk(**options)
    pages = pages_of(raw)
    assert joined(pages) == raw
    found = checked_pages(chunk, raw)
    assert len(found) == len([1 for header, _ in pages if header[Page.KIND] != Page.DICTIONARY])
    assert sum(found[-1]) == chunk.offset + chunk.size
    assert found[0][0] == chunk.meta[9]


@pytest.mark.parametrize("options", [OPTIONS["as ours"], OPTIONS["pages v2"]], ids=["v1", "v2"])
def test_any_byte_of_a_header_is_damage_or_a_header(options: dict[str, Any]) -> None:
    chunk, raw = a_chunk(**options)
    bodies = at = 0
    for header, body in pages_of(raw):
        start, at = at, at + len(encode_struct(header))
        for place in range(start, at):
            for byte in range(256):
                with suppress(CorruptError):
                    checked_pages(chunk, raw[:place] + bytes([byte]) + raw[place + 1 :])
        at += len(body)
        bodies += 1
    assert bodies > 1


@pytest.mark.parametrize(
    ("field", "kind", "value", "told"),
    [
        (Page.CRC, BINARY, b"1234", "page checksum mismatch.*expected='-0x1'"),
        (Page.CRC, I32, 5, "page checksum mismatch.*expected='0x5'"),
        (Page.STORED, I32, -1, "page does not end in its column chunk.*found=-1"),
        (Page.STORED, I32, None, "page does not end in its column chunk.*found=None"),
        (Page.STORED, BINARY, b"1", "page does not end in its column chunk"),
        (Page.STORED, I32, 1 << 30, "page does not end in its column chunk"),
        (Page.UNCOMPRESSED, BINARY, b"", "page does not end in its column chunk"),
        (Page.UNCOMPRESSED, I32, 1 << 30, r"other sums.*expected=\(60, .*found=\(60, 1073"),
        (Page.KIND, STRUCT, Struct(), r"other sums.*expected=\(60, .*found=\(0, "),
        (Page.KIND, I32, Page.DICTIONARY, "dictionary behind other pages"),
        (Page.DATA_HEADER, STRUCT, None, "header of a data page is damaged"),
        (Page.DATA_HEADER, BINARY, b"", "header of a data page is damaged"),
        (Page.DATA_HEADER, STRUCT, Struct((1, I32, -60), (2, I32, 8)), r"found=\(-60, 8\)"),
        (Page.DATA_HEADER, STRUCT, Struct((1, BINARY, b""), (2, I32, 8)), r"found=\(b\'\', 8\)"),
        (Page.DATA_HEADER, STRUCT, Struct((1, I32, 60), (2, I32, 5)), "encoding of .0, 3, 8"),
        (Page.DATA_HEADER, STRUCT, Struct((1, I32, 60)), "header of a data page is damaged"),
        (Page.DATA_HEADER, STRUCT, Struct((1, I32, 59), (2, I32, 8)), r"found=\(59, "),
    ],
)
def test_a_header_that_says_otherwise_is_damage(
    field: int, kind: int, value: Any, told: str
) -> None:
    chunk, raw = a_chunk()
    dictionary, (header, body) = pages_of(raw)
    changed = header.changed((field, kind, value))
    with pytest.raises(CorruptError, match=told) as raised:
        checked_pages(chunk, joined([dictionary, (changed, body)]))
    assert raised.value.facts["column"] == "n"
    assert raised.value.facts["row_group"] == 0


def test_pages_of_other_kinds_are_passed_over() -> None:
    chunk, raw = a_chunk()
    index = Struct((Page.KIND, I32, 1), (Page.STORED, I32, 3))
    chunk.meta[Meta.UNCOMPRESSED] += len(encode_struct(index))
    pages = [*pages_of(raw), (index, b"abc")]
    assert len(checked_pages(chunk, joined(pages))) == 1


def test_a_checksum_may_be_negative() -> None:
    chunk, raw = a_chunk()
    signs = {header[Page.CRC] < 0 for header, _ in pages_of(raw)}
    for n in range(40):
        more, body = a_chunk(data_page_size=n + 1, write_batch_size=n + 1)
        checked_pages(more, body)
        signs |= {header[Page.CRC] < 0 for header, _ in pages_of(body)}
    assert signs == {True, False}
    assert chunk.values == 60


@pytest.mark.parametrize("options", [OPTIONS["as ours"], OPTIONS["pages v2"]], ids=["v1", "v2"])
def test_a_single_page_is_of_the_size_and_encoding_that_its_chunk_tells(
    options: dict[str, Any],
) -> None:
    chunk, raw = a_chunk(**options)
    (_, dictionary), (header, body) = pages_of(raw)
    first = len(raw) - len(joined([(header, body)]))
    page, most = raw[first:], header[Page.UNCOMPRESSED]
    assert dictionary
    rows = 60 if header[Page.KIND] == Page.DATA_V2 else None
    assert checked_page(chunk, page, most, 1 << 8) == (header[Page.KIND], 60, rows)
    assert checked_page(chunk, raw[:first], 24, 1)[:2] == (Page.DICTIONARY, 3)
    with pytest.raises(CorruptError, match="page is larger than its column chunk"):
        checked_page(chunk, page, most - 1, 1 << 8)
    with pytest.raises(CorruptError, match="header of a page is damaged"):
        checked_page(chunk, page, most, 1 << 7)
    with pytest.raises(CorruptError, match="page ends before its place does"):
        checked_page(chunk, page + b"x", most, 1 << 8)
