"""Page values: what is taken out of a page is what stands there, or nothing is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.parquet.page_values import (
    Dictionary,
    ValueForm,
    array_of,
    places_of,
    unpacked,
    values_at,
)

NUMBERS = ValueForm(False, 4, pa.int32())
MAYBE = ValueForm(True, 4, pa.int32())
TEXTS = ValueForm(False, 0, pa.string())
PLAIN, INDEXES = 0, 8


def texts(*values: bytes) -> bytes:
    return b"".join(len(one).to_bytes(4, "little") + one for one in values)


def levels(runs: bytes) -> bytes:
    return len(runs).to_bytes(4, "little") + runs


def test_values_stand_behind_those_that_there_are() -> None:
    raw = levels(b"\x03\x0b\x06\x00") + np.arange(3, dtype="<i4").tobytes()
    found = values_at(MAYBE, raw, PLAIN, 11, [0, 1, 2, 3, 10], None)
    assert found is not None
    assert array_of(MAYBE, found).to_pylist() == [0, 1, None, 2, None]
    assert values_at(MAYBE, raw + b"\0", PLAIN, 11, [0], None) is None
    assert values_at(MAYBE, raw, PLAIN, 12, [0], None) is None  # runs end before
    assert values_at(MAYBE, b"\xff\0\0\0", PLAIN, 1, [0], None) is None
    assert values_at(MAYBE, raw, 5, 11, [0], None) is None


def test_texts_of_several_sizes_are_left_to_others() -> None:
    even, odd = texts(b"ab", b"cd", b"ab"), texts(b"ab", b"c", b"def")
    assert values_at(TEXTS, even, PLAIN, 3, [1, 2], None) == [b"cd", b"ab"]
    assert values_at(TEXTS, odd, PLAIN, 3, [1], None) is None
    assert places_of(TEXTS, even, PLAIN, 3, [b"ab", b"xy", b"a"]) == [(0, b"ab"), (2, b"ab")]
    assert places_of(TEXTS, odd, PLAIN, 3, [b"ab"]) is None
    assert places_of(NUMBERS, bytes(4), PLAIN, 1, [b""]) is None


def test_a_text_that_lies_across_two_is_not_found() -> None:
    size = b"\x04\0\0\0"
    page = texts(size, b"abcd")
    assert page.count(size + size) == 1
    assert page.find(size + size, 1) == 4  # a text, and the size of the next one
    assert places_of(TEXTS, page, PLAIN, 2, [size]) == [(0, size)]


def test_indexes_are_walked_to_by_runs() -> None:
    words = Dictionary.of(TEXTS, texts(b"a", b"bcd", b""), 3)
    packed = sum((place % 3) << 2 * place for place in range(8)).to_bytes(2, "little")
    raw = b"\x02" + b"\x06\x01" + b"\x03" + packed + b"\x04\x02"
    expected = [b"bcd"] * 3 + [[b"a", b"bcd", b""][n % 3] for n in range(8)] + [b""] * 2
    assert values_at(TEXTS, raw, INDEXES, 13, range(13), words) == expected
    assert values_at(TEXTS, raw[:-1], INDEXES, 13, [12], words) in (None, [b"a"])
    assert values_at(TEXTS, raw, INDEXES, 14, [13], words) is None
    assert values_at(TEXTS, b"\x02\x02\x03", INDEXES, 1, [0], words) is None  # of three words
    assert values_at(TEXTS, raw, INDEXES, 13, [0], None) is None
    assert Dictionary.of(TEXTS, texts(b"a", b"bcd")[:-1], 2) is None
    assert Dictionary.of(NUMBERS, bytes(9), 2) is None


@pytest.mark.parametrize(("codec", "name"), [(1, "snappy"), (2, "gzip"), (6, "zstd")])
def test_a_page_of_another_size_than_it_says_is_not_unpacked(codec: int, name: str) -> None:
    page = b"some words " * 40
    stored = memoryview(pa.Codec(name).compress(page, asbytes=True))
    assert unpacked(codec, stored, len(page)) == page
    for size in (len(page) - 1, len(page) + 1, 0, 1 << 40):
        assert unpacked(codec, stored, size) is None
    assert unpacked(codec, stored[:-9], len(page)) in (None, page)
    assert unpacked(codec, memoryview(b"\xff" * 20), 20) is None
    assert unpacked(4, stored, len(page)) is None
