"""Many keys looked up among records, by what they begin and end with, beside a list of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import marked_words
from metatable.storage.byte_columns import last_words
from metatable.storage.hfile.columns import common_prefix_size
from metatable.storage.hfile.key_values import KeyValues, encode_records
from metatable.storage.hfile.reading import searching
from metatable.storage.hfile.reading.finding import check_records, find_records
from metatable.storage.hfile.reading.searching import Found, find_any
from tests.storage.hfile.making import binary

PARTS = st.lists(st.sampled_from([b"a", b"b", b"\0", b"same-for-long", b"\xff"]), max_size=7)
KEYS = st.lists(PARTS.map(b"".join), min_size=1, max_size=60)
WAYS = st.sampled_from(["as they seem", "by beginnings", "by ends"])


def records_of(keys: list[bytes]) -> KeyValues:
    """With the number of each as its value."""
    raw = encode_records(binary(keys), binary([b"%d" % number for number in range(len(keys))]))
    return find_records(np.frombuffer(raw, np.uint8), True, "p", 0)


def found_in(keys: list[bytes], asked: list[bytes]) -> list[int]:
    """The places of the asked keys; what is found is theirs, wherever its copies lie."""
    records = records_of(keys)
    found = find_any(records, binary(asked))
    held = [place for place in found.places.tolist() if place >= 0]
    for one in (found.records, found.there):
        assert one.keys().to_pylist() == [keys[place] for place in held]
        assert one.values().to_pylist() == [b"%d" % place for place in held]
    assert found.there.raw is records.raw
    check_records(found.records, "p", 0, found.there)
    return found.places.tolist()


def first_of(keys: list[bytes], asked: list[bytes]) -> list[int]:
    return [keys.index(key) if key in keys else -1 for key in asked]


@pytest.fixture(params=["by beginnings", "by ends"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    _go(monkeypatch, request.param)
    return str(request.param)


def _go(patch: pytest.MonkeyPatch, way: str) -> None:
    if way != "as they seem":
        patch.setattr(searching, "_seem_tied", lambda _: way == "by ends")


@given(KEYS, KEYS, WAYS, st.data())
def test_the_first_record_of_every_key_is_found(
    stored: list[bytes], more: list[bytes], way: str, data: st.DataObject
) -> None:
    """Whatever keys begin and end with, whether they are in order, asked in order, and twice."""
    with pytest.MonkeyPatch.context() as patch:
        _go(patch, way)
        patch.setattr(marked_words, "MOST_TWINS", data.draw(st.sampled_from([1 / 64, 1])))
        patch.setattr(searching, "_SEEMING", data.draw(st.sampled_from([1, 4, 100])))
        asked = data.draw(st.permutations([*stored, *more]))
        for keys in (sorted(stored), sorted(set(stored)), stored):
            assert found_in(keys, asked) == first_of(keys, asked)
            assert found_in(keys, sorted(asked)) == first_of(keys, sorted(asked))


@pytest.mark.usefixtures("way")
def test_nothing_is_found_of_nothing() -> None:
    assert found_in([b"a"], []) == []
    assert found_in([b"", b"a"], [b"", b"\0"]) == [0, -1]
    none = records_of([b"a"]).at(np.zeros(0, np.int64))
    assert find_any(none, binary([b"a"])).places.tolist() == [-1]


@pytest.mark.usefixtures("way")
def test_keys_that_differ_late_are_all_found() -> None:
    keys = [b"a" * 3 + b"b" * 30 + b"%06d" % number for number in range(3000)] + [b"b"]
    assert found_in(keys, keys) == [*range(3001)]
    assert found_in(keys, [b"a" * 3 + b"b" * 30, keys[5] + b"x"]) == [-1, -1]


@pytest.mark.usefixtures("way")
def test_a_key_and_the_same_key_with_a_zero_byte_are_two() -> None:
    keys = [b"a", b"a\0", b"a\0\0"]
    assert found_in(keys, [b"a\0\0", b"a", b"a\0", b"a\0\0\0"]) == [2, 0, 1, -1]


ADDRESSES = [
    b"https://%s.example.org/%s/%04d" % (site, folder, at)
    for site in (b"a", b"z")
    for folder in (b"one", b"three")
    for at in range(90)
]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many keys of records were copied whole, each time."""
    told: list[int] = []
    keys_of = KeyValues.keys

    def keys(records: KeyValues) -> pa.Array:
        told.append(len(records))
        return keys_of(records)

    monkeypatch.setattr(KeyValues, "keys", keys)
    return told


def test_of_keys_that_begin_alike_only_those_that_end_like_a_wanted_one_are_compared(
    compared: list[int],
) -> None:
    """Neither all of them for their order, nor any several times in a bisection."""
    asked = [*ADDRESSES[::7], b"https://m.example.org/one/9999"]
    found = find_any(records_of(ADDRESSES), binary(asked))
    assert found.places.tolist() == [*range(0, len(ADDRESSES), 7), -1]
    assert len(compared) == 1
    assert compared[0] <= 4 * len(asked)


def test_keys_with_ends_of_few_kinds_are_told_apart_by_more_of_them(compared: list[int]) -> None:
    keys = [b"%s/of-a-kind-%d" % (key, at % 3) for at, key in enumerate(ADDRESSES)]
    for places in (range(0, 360, 7), range(2)):  # the ends of two are not one, and those of many
        asked = binary([keys[place] for place in places])
        assert find_any(records_of(keys), asked).places.tolist() == [*places]
        assert compared.pop() <= 4 * len(places)
        assert not compared


def test_keys_that_differ_neither_early_nor_late_are_found() -> None:
    keys = [b"%s/%s" % (key, b"ending-like-others" * 9) for key in ADDRESSES]
    asked = [*keys[::7], keys[3][:-1] + b"x"]
    assert found_in(keys, asked) == [*range(0, 360, 7), -1]


def test_wanted_keys_that_end_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    _go(monkeypatch, "by ends")
    keys = [b"%04d-of-random-length" % at if at % 100 else b"%d/the-same" % at for at in range(900)]
    asked = [*keys, b"100/not/the-same", *keys[:3]]
    assert found_in(keys, asked) == [*range(900), -1, 0, 1, 2]


def test_records_out_of_order_are_proven_where_a_key_is_missing(way: str) -> None:
    keys = [b"b", b"a", b"d", b"c", b"c"]  # Hudi sorts some keys by UTF-16
    records = records_of(keys)
    proven: list[KeyValues] = []

    def found(*asked: bytes) -> Found:
        return find_any(records, binary([*asked]), proven.append)

    assert found(b"a", b"c", b"e").places.tolist() == [1, 3, -1]
    assert proven == [records]
    proven.clear()
    assert found(b"a", b"c").places.tolist() == [1, 3]
    assert proven == ([records] if way == "by beginnings" else [])


def test_records_in_order_are_not_proven_for_a_key_that_is_missing() -> None:
    proven: list[KeyValues] = []
    found = find_any(records_of(ADDRESSES), binary([b"https://a"]), proven.append)
    assert found.places.tolist() == [-1]
    assert not proven


@given(st.lists(st.binary(max_size=12), min_size=1))
def test_last_words_are_the_last_bytes(pieces: list[bytes]) -> None:
    data = np.frombuffer(bytes(8) + b"".join(pieces), np.uint8)
    sizes = np.array([len(one) for one in pieces], np.int64)
    words = last_words(data, 8 + np.cumsum(sizes), sizes)
    assert words.tolist() == [
        int.from_bytes(one[-8:].rjust(8, b"\0") if one else bytes(8), "little") for one in pieces
    ]
    assert not last_words(data, 8 + np.cumsum(sizes), sizes - 12).any()


@given(st.binary(max_size=20), st.binary(max_size=9), st.binary(max_size=9))
def test_common_beginnings_are_counted(common: bytes, one: bytes, other: bytes) -> None:
    first, last = common + one, common + other
    size = common_prefix_size(first, last)
    assert first[:size] == last[:size]
    assert size == min(len(first), len(last)) or first[size] != last[size]
