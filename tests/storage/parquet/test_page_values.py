"""Page values: what is taken out of pages is what stands there, or nothing is said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.parquet import page_values
from metatable.storage.parquet.page_values import Block, ValueForm, places_of, values_at
from metatable.storage.parquet.varints import write_varint

NUMBERS = ValueForm(False, 4, pa.int32())
MAYBE = ValueForm(True, 4, pa.int32())
TEXTS = ValueForm(False, 0, pa.string())
MAYBE_TEXTS = ValueForm(True, 0, pa.string())
PLAIN, INDEXES = 0, 8

Page = tuple[bytes, int, int]
"""Bytes, values, encoding."""


def block(
    *pages: Page, dictionaries: Sequence[Page] = (), of: Sequence[int] | None = None
) -> Block:
    every = [*dictionaries, *pages]
    raw, counts, encodings = zip(*every, strict=True)
    owners = [-1] * len(pages) if of is None else of
    return Block(
        np.frombuffer(b"".join(raw), np.uint8),
        np.cumsum([0, *map(len, raw)]),
        *(np.array(one, np.int64) for one in (counts, encodings, owners)),
    )


def taken(form: ValueForm, pages: Block, *asked: tuple[int, int]) -> list[Any] | None:
    of, positions = np.array(asked, np.int64).reshape(-1, 2).T
    found = values_at(form, pages, of, positions)
    return None if found is None else found.to_pylist()


def found(pages: Block, *texts: list[bytes]) -> list[tuple[int, int, str]] | None:
    told = places_of(TEXTS, pages, texts)
    return None if told is None else [*zip(*(one.tolist() for one in told), strict=True)]


def texts(*values: bytes) -> bytes:
    return b"".join(len(one).to_bytes(4, "little") + one for one in values)


def levels(runs: bytes) -> bytes:
    return len(runs).to_bytes(4, "little") + runs


def all_there(count: int) -> bytes:
    made = bytearray()
    write_varint(made, count << 1)
    return levels(bytes(made) + b"\x01")


def test_values_stand_behind_those_that_there_are() -> None:
    raw = levels(b"\x03\x0b\x06\x00") + np.arange(3, dtype="<i4").tobytes()
    whole = all_there(2) + np.array([7, 8], "<i4").tobytes()
    pages = block((whole, 2, PLAIN), (raw, 11, PLAIN), (whole, 2, PLAIN))
    asked = [(0, 1), *((1, position) for position in (0, 1, 2, 3, 10)), (2, 0)]
    assert taken(MAYBE, pages, *asked) == [8, 0, 1, None, 2, None, 7]
    assert taken(MAYBE, block((raw + b"\0", 11, PLAIN)), (0, 0)) is None
    assert taken(MAYBE, block((raw, 12, PLAIN)), (0, 0)) is None  # runs end before
    assert taken(MAYBE, block((b"\xff\0\0\0", 1, PLAIN)), (0, 0)) is None
    assert taken(MAYBE, block((raw, 11, 5)), (0, 0)) is None
    none = levels(b"\x08\x00")
    assert taken(MAYBE_TEXTS, block((none, 4, PLAIN)), (0, 0), (0, 3)) == [None, None]


@pytest.mark.parametrize("count", [1, 63, 64, 8191, 8192])
def test_levels_of_values_that_are_all_there_take_any_varint(count: int) -> None:
    body = np.arange(count, dtype="<i4").tobytes()
    pages = block((all_there(count) + body, count, PLAIN), (all_there(1) + body[:4], 1, PLAIN))
    assert taken(MAYBE, pages, (0, count - 1), (1, 0)) == [count - 1, 0]
    assert taken(MAYBE, block((all_there(count) + body, count + 1, PLAIN)), (0, 0)) is None


def test_levels_that_end_too_early_are_not_read_on_into_values() -> None:
    page = (1).to_bytes(4, "little") + b"\x04" + b"\x01" + bytes(7)
    assert taken(MAYBE, block((page, 2, PLAIN)), (0, 0)) is None


def test_pages_whose_levels_take_more_bytes_are_found_where_they_lie() -> None:
    own = texts(b"abcd", b"cdef")
    short, long = all_there(2) + own, levels(b"\x02\x01\x02\x01") + own
    pages = block(*((one, 2, PLAIN) for one in (short, short, long, short, short)))
    told = places_of(MAYBE_TEXTS, pages, [[b"cdef"]] * 5)
    assert told is not None
    assert [one.tolist() for one in told] == [[*range(5)], [1] * 5, ["cdef"] * 5]


def test_texts_of_several_sizes_are_left_to_others() -> None:
    even, odd = texts(b"abcd", b"cdef", b"abcd"), texts(b"abcd", b"c", b"abcdefg")
    pages = block((even, 3, PLAIN), (even, 3, PLAIN))
    assert taken(TEXTS, pages, (0, 1), (1, 2)) == ["cdef", "abcd"]
    assert len(even) == len(odd)
    assert taken(TEXTS, block((even, 3, PLAIN), (odd, 3, PLAIN)), (0, 1)) is None
    assert found(block((odd, 3, PLAIN)), [b"abcd"]) is None
    assert found(block((texts(b"abc"), 1, PLAIN)), [b"abc"]) is None  # less than a word
    assert places_of(NUMBERS, block((bytes(4), 1, PLAIN)), [[b""]]) is None
    assert found(block((even, 3, INDEXES)), [b"abcd"]) is None


def test_texts_are_found_in_the_pages_where_they_are_looked_for() -> None:
    one = texts(b"abcd", b"cdef", b"abcd"), 3, PLAIN
    long = texts(b"abcdefghijk", b"Abcdefghijk"), 2, PLAIN
    pages = block(one, long, one, one)
    asked = [b"abcd", b"cdef", b"x"], [b"Abcdefghijk", b"abcd"], [], [b"cdef", b"abc"]
    expected = [(0, 0, "abcd"), (0, 1, "cdef"), (0, 2, "abcd")]
    expected += [(1, 1, "Abcdefghijk"), (3, 1, "cdef")]
    assert found(pages, *asked) == expected


def test_any_texts_are_found_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one size a page, with ends that many share or none; keys that are there and others."""
    random_ = random.Random(7)
    for turn in range(60):
        monkeypatch.setattr(page_values, "MOST_HITS", turn % 3)
        size = random_.choice([4, 5, 7, 8, 9, 36])
        letters, end = random_.choice([b"ab", b"abcdefgh"]), random_.choice([b"", b"tail"])
        pages = [
            [
                bytes(random_.choices(letters, k=size - len(end))) + end
                for _ in range(random_.choice([1, 2, 30, 30]))
            ]
            for _ in range(6)
        ]
        asked = [
            sorted({*random_.sample(own, len(own) // 2), *random_.choices(pages[0], k=2)})
            for own in pages
        ]
        expected = [
            (number, place, text.decode())
            for number, own in enumerate(pages)
            for place, text in enumerate(own)
            if text in asked[number]
        ]
        assert found(block(*((texts(*own), len(own), PLAIN) for own in pages)), *asked) == expected


@pytest.mark.parametrize("place", range(5))
def test_one_text_of_another_size_leaves_the_page_to_others(place: int) -> None:
    """The page is as long as if all were of one size; one of another page makes no difference."""
    own = [b"abcdefgh"] * 5
    own[place], own[place - 1] = b"abcdef", b"abcdefghij"
    even = texts(*[b"abcdefgh"] * 5), 5, PLAIN
    assert found(block(even, (texts(*own), 5, PLAIN)), [b"abcdefgh"], [b"abcdefgh"]) is None
    assert found(block(even, (texts(*own), 5, PLAIN)), [], []) is None


def test_a_text_that_lies_across_two_is_not_found() -> None:
    size = b"\x04\0\0\0"
    page = texts(size, b"abcd")
    assert page.find(size + size, 1) == 4  # a text, and the size of the next one
    assert found(block((page, 2, PLAIN)), [size]) == [(0, 0, size.decode())]


def test_pages_lie_equally_far_from_each_other_or_not() -> None:
    draw = random.Random(4)
    for _ in range(50):
        made, expected = [], list[tuple[int, int, str]]()
        wanted = []
        for page in range(draw.randrange(1, 9)):
            count, size = draw.choice([1, 2, 2, 2, 5]), draw.choice([5, 5, 5, 12])
            own = [draw.randbytes(size).hex()[:size].encode() for _ in range(count)]
            wanted.append(sorted({draw.choice(own), b"zzzzz"}))
            expected += [
                (page, place, one.decode()) for place, one in enumerate(own) if one in wanted[-1]
            ]
            made.append((texts(*own), count, PLAIN))
        assert found(block(*made), *wanted) == expected


def test_indexes_are_walked_to_by_runs() -> None:
    words = texts(b"a", b"bcd", b""), 3, PLAIN
    packed = sum((place % 3) << 2 * place for place in range(8)).to_bytes(2, "little")
    raw = b"\x02" + b"\x06\x01" + b"\x03" + packed + b"\x04\x02"
    expected = ["bcd"] * 3 + [["a", "bcd", ""][n % 3] for n in range(8)] + [""] * 2
    every = [(0, position) for position in range(13)]

    def told(raw: bytes, count: int, *asked: tuple[int, int], of: int = 0) -> list[Any] | None:
        pages = block((raw, count, INDEXES), dictionaries=[words], of=[of])
        return taken(TEXTS, pages, *asked)

    assert told(raw, 13, *every) == expected
    assert told(raw[:-1], 13, (0, 12)) is None
    assert told(raw, 14, (0, 13)) is None
    assert told(b"\x02\x02\x03", 1, (0, 0)) is None  # of three words
    assert told(b"\x21" + raw[1:], 13, (0, 0)) is None
    assert told(raw, 13, (0, 0), of=-1) is None
    assert told(b"\0", 9, (0, 8)) == ["a"]
    assert told(b"", 9, (0, 8)) is None
    cut = texts(b"a", b"bcd")[:-1], 2, PLAIN
    pages = block((raw, 13, INDEXES), dictionaries=[cut], of=[0])
    assert taken(TEXTS, pages, (0, 0)) is None
    odd = block((raw, 13, INDEXES), dictionaries=[(bytes(9), 2, PLAIN)], of=[0])
    assert taken(NUMBERS, odd, (0, 0)) is None


def test_pages_of_indexes_have_their_own_dictionaries() -> None:
    words = [(texts(*one), len(one), PLAIN) for one in ([b"x", b"y"], [b"ab", b"c"], [b"a"])]
    pages = block(
        (b"\x01\x08\x01", 4, INDEXES),
        (b"\x01\x08\x00", 4, INDEXES),
        (texts(b"plain"), 1, PLAIN),
        (b"\x01\x03\x04", 8, INDEXES),
        (b"\0", 1, INDEXES),
        dictionaries=words,
        of=[0, 0, 0, 1, 2],
    )
    asked = (0, 3), (1, 0), (2, 0), (3, 1), (3, 2), (4, 0)
    assert taken(TEXTS, pages, *asked) == ["y", "x", "plain", "ab", "c", "a"]


@pytest.mark.parametrize("width", [1, 3, 8, 13, 20, 31, 32])
def test_indexes_of_any_width_are_those_that_were_packed(width: int) -> None:
    draw = random.Random(width)
    own = [draw.randrange(min(1 << width, 5)) for _ in range(24)]
    bits = sum(one << width * place for place, one in enumerate(own))
    raw = bytes([width, 7]) + bits.to_bytes(3 * width, "little")
    words = np.arange(5, dtype="<i4") * 3
    pages = block((raw, 24, INDEXES), dictionaries=[(words.tobytes(), 5, PLAIN)], of=[0])
    assert taken(NUMBERS, pages, *((0, n) for n in range(24))) == [3 * one for one in own]
