"""Chunks checked many at once: what is found is what is found page by page, and damage is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet import known_pages
from metatable.storage.parquet.fields import Location, Meta
from metatable.storage.parquet.known_pages import checked_chunks
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.thrift import I64, decode_struct, encode_struct
from metatable.storage.parquet.varints import encoded_zigzags, zigzags
from tests.storage.parquet.files import OPTIONS, written

Given = tuple[Chunk, bytes, bytes]

INDEXED = {"write_page_index": True, "max_rows_per_page": 20, "write_batch_size": 20}
ROWS = pa.table(
    {
        "n": pa.array([n % 3 for n in range(90)], pa.int32()),
        "text": [None if n % 8 == 0 else f"row {n * n}" for n in range(90)],
    }
)


def given_of(raw: bytes) -> list[Given]:
    """Every chunk of a file, its bytes and its offset index."""
    parts = ParquetParts.of_bytes(raw)
    chunks = [chunk for group in range(len(parts.groups)) for chunk in parts.chunks(group)]
    found = []
    for chunk in chunks:
        spans = [(chunk.offset, chunk.size), *chunk.page_index[1:]]
        body, *index = (raw[at : at + size] for at, size in spans)
        found.append((chunk, body, *(index or [b""])))
    return found


def checked(given: list[Given], shift: int = 1000) -> list[bytes]:
    chunks, raws, indexes = zip(*given, strict=True)
    return checked_chunks(chunks, raws, indexes, [shift + n for n in range(len(given))])


def one_by_one(given: list[Given], shift: int = 1000) -> list[bytes]:
    return [known_pages._one_by_one(*one, shift + n) for n, one in enumerate(given)]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_is_found_is_what_is_found_page_by_page(options: dict[str, Any]) -> None:
    told = {name: word for name, word in options.items() if name != "column_encoding"}
    for one in ({}, INDEXED):
        given = given_of(written(ROWS, 70, **(told | one)))
        assert checked(given) == one_by_one(given)
        assert checked(given, -4) == one_by_one(given, -4)


@pytest.mark.parametrize("written_as", ["as ours", "plain", "dictionary falls back"])
def test_pages_of_the_usual_form_are_not_looked_at_one_by_one(
    written_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = given_of(written(ROWS, 70, **(OPTIONS[written_as] | INDEXED)))
    expected = one_by_one(given)
    monkeypatch.setattr(known_pages, "_one_by_one", None)
    assert checked(given) == expected
    assert checked_chunks([], [], [], []) == []


@pytest.mark.parametrize("most", [60, 30, 1])
def test_indexes_are_read_together_up_to_a_size(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = given_of(written(ROWS, 70, **(OPTIONS["as ours"] | INDEXED)))
    expected = one_by_one(given)
    assert {len(index) > 30 for _, _, index in given} == {True, False}
    read: list[int] = []
    sound = known_pages._sound
    monkeypatch.setattr(
        known_pages, "_sound", lambda *every: read.append(len(every[0])) or sound(*every)
    )
    monkeypatch.setattr(known_pages, "MOST_INDEX_BYTES", most)
    assert checked(given) == expected
    assert (len(read), sum(read)) == {60: (3, 4), 30: (1, 2), 1: (0, 0)}[most]


@pytest.mark.parametrize("written_as", ["as ours", "plain"])
@pytest.mark.parametrize("column", [0, 1])
def test_a_bit_that_is_another_one_is_told_as_page_by_page(written_as: str, column: int) -> None:
    small = OPTIONS[written_as] | INDEXED | {"max_rows_per_page": 4, "write_batch_size": 4}
    good = given_of(written(ROWS.slice(0, 8), 70, **small))
    chunk, raw, index = good[column]
    damaged = 0
    for which, body in enumerate((raw, index)):
        for bit in range(8 * len(body)):
            flipped = bytearray(body)
            flipped[bit // 8] ^= 1 << bit % 8
            one = (chunk, bytes(flipped), index) if not which else (chunk, raw, bytes(flipped))
            given = [good[1 - column], one]
            told = _told(checked, given)
            assert told == _told(one_by_one, given), (which, bit)
            damaged += told is not None
    assert damaged > 4 * len(raw)


def _told(check: Any, given: list[Given]) -> str | None:
    """What is said of damage; what else is found may differ in bytes that say the same."""
    try:
        check(given)
    except CorruptError as error:
        return str(error)
    return None


@pytest.mark.parametrize("field", [Meta.VALUES, Meta.UNCOMPRESSED, Meta.DATA_PAGE, Meta.DICTIONARY])
def test_a_footer_that_tells_otherwise_is_damage(field: int) -> None:
    raw = written(pa.table({"n": pa.array([[n % 3] for n in range(60)])}), 70, **INDEXED)
    [(chunk, body, index)] = given_of(raw)
    chunk.meta[field] += 1
    with pytest.raises(CorruptError):
        checked([(chunk, body, index)])


def test_an_encoding_that_the_footer_does_not_tell_is_damage() -> None:
    [(chunk, body, index)] = given_of(written(ROWS.select(["n"]), 90, **INDEXED))
    chunk.meta[Meta.ENCODINGS].remove(8)
    with pytest.raises(CorruptError, match="header of a data page is damaged"):
        checked([(chunk, body, index)])


def test_what_an_offset_index_tells_else_is_kept() -> None:
    [(chunk, body, index)] = given_of(written(ROWS.select(["n"]), 90, **INDEXED))
    more = encode_struct(decode_struct(index, "")[0].changed((7, I64, 5)))
    [moved] = checked([(chunk, body, more)], 300)
    found, _ = decode_struct(moved, "")
    assert found[7] == 5
    before = decode_struct(index, "")[0][Location.ALL]
    assert [one[1] for one in found[Location.ALL]] == [one[1] + 300 for one in before]
    assert [one[2] for one in found[Location.ALL]] == [one[2] for one in before]


def test_numbers_of_any_size_are_encoded_and_decoded() -> None:
    numbers = np.array([0, 1, 63, 64, 8191, 8192, *(2**power - 1 for power in range(62))])
    body, kept = encoded_zigzags(numbers)
    lengths = kept.sum(axis=1)
    flat = body[kept]
    assert zigzags(flat, np.cumsum(lengths) - lengths, lengths).tolist() == numbers.tolist()
    assert zigzags(np.array([1, 3], np.uint8), np.arange(2), np.ones(2, np.int64)).tolist() == [
        -1,
        -2,
    ]
