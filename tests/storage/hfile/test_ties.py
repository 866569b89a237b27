"""Keys of blocks that begin alike for long, looked up beside a dict of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.hfile import key_values
from metatable.storage.hfile.columns import common_prefix_size
from metatable.storage.hfile.key_values import KeyValues, encode_records
from metatable.storage.hfile.reading.finding import find_records
from tests.storage.hfile.making import binary

PARTS = st.lists(st.sampled_from([b"a", b"b", b"\0", b"same-for-long", b"\xff"]), max_size=7)
KEYS = st.lists(PARTS.map(b"".join), min_size=1, max_size=60)


def records_in_blocks(keys: list[bytes], firsts: list[int]) -> KeyValues:
    raw = encode_records(binary(keys), binary([b""] * len(keys)))
    records = find_records(np.frombuffer(raw, np.uint8), True, "p", 0)
    return replace(records, firsts=np.array(firsts, np.int64))


def cuts_of(keys: list[bytes], firsts: list[int], asked: list[bytes]) -> np.ndarray:
    """Where the keys begin that can be in each block alone; the first block has all before it."""
    opening = [keys[first] for first in firsts[1:]]
    inner = [sum(key < opened for key in asked) for opened in opening]
    return np.array([0, *inner, len(asked)], np.int64)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_values, "_LONG_RUN", 3)


@given(KEYS, KEYS, st.data())
def test_keys_are_found_in_blocks_whose_rows_begin_alike(
    stored: list[bytes], more: list[bytes], data: st.DataObject
) -> None:
    keys = sorted(set(stored))
    size = data.draw(st.integers(1, len(keys)))
    firsts = [*range(0, len(keys), size)]
    asked = sorted(stored + more)
    found = records_in_blocks(keys, firsts).find(binary(asked), None, cuts_of(keys, firsts, asked))
    places = {key: place for place, key in enumerate(keys)}
    assert found.tolist() == [places.get(key, -1) for key in asked]


@given(KEYS, KEYS)
def test_the_first_of_equal_rows_is_found(stored: list[bytes], more: list[bytes]) -> None:
    keys, asked = sorted(stored), sorted(stored + more)
    found = records_in_blocks(keys, [0]).find(binary(asked), None, np.array([0, len(asked)]))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in asked]


@given(KEYS, KEYS)
def test_rows_in_any_order_are_found_as_well(keys: list[bytes], more: list[bytes]) -> None:
    asked = sorted(keys + more)
    found = records_in_blocks(keys, [0]).find(binary(asked), None, np.array([0, len(asked)]))
    assert [keys[at] if at >= 0 else None for at in found.tolist()] == [
        key if key in keys else None for key in asked
    ]


def test_a_block_of_two_beginnings_is_searched_without_comparing_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block that lies across two sites has none of its own beginning, each half has."""
    keys = [
        b"https://%s.example.org/%04d" % (site, at) for site in (b"a", b"z") for at in range(90)
    ]
    compared: list[int] = []
    keys_of = KeyValues.keys

    def keys_compared(records: KeyValues) -> pa.Array:
        compared.append(len(records))
        return keys_of(records)

    monkeypatch.setattr(KeyValues, "keys", keys_compared)
    records = records_in_blocks(keys, [0])
    found = records.find(binary(keys), None, np.array([0, len(keys)]))
    assert found.tolist() == [*range(len(keys))]
    assert not compared


TWO_RUNS = [b"k/%s%02d" % (run, at) for run in (b"a" * 8, b"b" * 8) for at in range(9)]


def found_of(keys: list[bytes], asked: list[bytes]) -> list[int]:
    places = records_in_blocks(keys, [0]).find(binary(asked), None, np.array([0, len(asked)]))
    return [int(place) for place in places]


def test_keys_of_other_beginnings_may_have_the_words_of_a_later_run() -> None:
    asked = [b"a/bbbbbbbb07", b"k/aaaaaaaa05", b"k/bbbbbbbb03", b"z/aaaaaaaa02"]
    assert found_of(TWO_RUNS, asked) == [-1, 5, 12, -1]


def test_rows_out_of_order_beside_long_runs_are_found() -> None:
    keys = [*TWO_RUNS, b"k/cccccccc2", b"k/cccccccc1", b"k/dddddddd"]
    assert found_of(keys, [b"k/bbbbbbbb03", b"k/cccccccc1", b"k/cccccccc2"]) == [12, 19, 18]


@given(st.binary(max_size=20), st.binary(max_size=9), st.binary(max_size=9))
def test_common_beginnings_are_counted(common: bytes, one: bytes, other: bytes) -> None:
    first, last = common + one, common + other
    size = common_prefix_size(first, last)
    assert first[:size] == last[:size]
    assert size == min(len(first), len(last)) or first[size] != last[size]
