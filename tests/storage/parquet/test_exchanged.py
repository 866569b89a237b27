"""Chunks whose footer tells nonsense: none of their pages are exchanged, and nothing is raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.parquet.exchanged import Exchange, Gone, exchanged, is_exchangeable
from metatable.storage.parquet.fields import Bounds, Column, Footer, Group, Meta, Statistics
from metatable.storage.parquet.offset_index import decode_offset_indexes
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)
from tests.storage.parquet.files import footer_of, with_footer, written

PAGE = 20
OPTIONS = {"use_dictionary": False, "write_page_index": True, "max_rows_per_page": PAGE}
RAW = written(pa.table({"a": range(100)}), **OPTIONS)
NONSENSE = [
    (BINARY, b"zz"),
    (STRUCT, Struct()),
    (LIST, Elements(STRUCT, [Struct(), Struct()])),
    (LIST, Elements(LIST, [Elements(I64, [1])])),
]


def chunk_of(raw: bytes) -> Chunk:
    [chunk] = ParquetParts.of_bytes(raw).chunks(0)
    return chunk


def exchange(chunk: Chunk) -> list[Chunk | None]:
    """The second page comes from elsewhere."""
    by = chunk_of(written(pa.table({"a": range(PAGE)}), **OPTIONS))
    _, places = decode_offset_indexes(chunk.parts.read([chunk.page_index[1]]))
    return exchanged([Exchange(chunk, places, np.array([1]), by, Gone(PAGE, 2 * PAGE - 1, 0))])


def test_a_page_is_exchanged() -> None:
    chunk = chunk_of(RAW)
    assert is_exchangeable(chunk)
    [made] = exchange(chunk)
    assert made is not None
    assert made.rows == 100


@pytest.mark.parametrize("field", [Meta.ENCODINGS, Meta.CODEC, Statistics.NULLS])
@pytest.mark.parametrize("told", [*NONSENSE, None])
def test_what_is_no_number_is_not_exchangeable(field: int, told: tuple[int, Any] | None) -> None:
    footer = footer_of(RAW)
    meta = footer[Footer.GROUPS][0][Group.COLUMNS][0][Column.META]
    owner = meta[Meta.STATISTICS] if field == Statistics.NULLS else meta
    if told is None:
        del owner[field], owner.kinds[field]
    else:
        owner.kinds[field], owner[field] = told
    if field == Meta.ENCODINGS and not isinstance(owner.get(field), Elements):
        return  # which is damage
    assert not is_exchangeable(chunk_of(with_footer(RAW, footer)))


def test_bounds_of_another_kind_are_not_exchanged() -> None:
    footer = footer_of(RAW)
    column = footer[Footer.GROUPS][0][Group.COLUMNS][0]
    at, size = column[Column.COLUMN_INDEX], column[Column.COLUMN_INDEX_SIZE]
    index, _ = decode_struct(RAW, "", at)
    index[Bounds.LEAST] = Elements(I64, range(5))
    raw = encode_struct(index)
    assert len(raw) <= size
    column[Column.COLUMN_INDEX_SIZE] = len(raw)
    other = with_footer(RAW[:at] + raw.ljust(size, b"\0") + RAW[at + size :], footer)
    assert exchange(chunk_of(other)) == [None]
