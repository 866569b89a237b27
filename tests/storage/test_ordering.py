"""Places of texts among sorted texts: held against bisect, ties and all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import ordering
from metatable.storage.ordering import (
    PrefixIndex,
    _order,
    has_repeats,
    is_ascending,
    number_order,
    order_within,
    same_as_previous,
    sort_order,
    which_are_among,
)

TEXTS = st.text(alphabet="ab\0\u00fc", max_size=5)
WORDS = st.sampled_from([0, 1, 2, 1 << 63, (1 << 63) + 1, (1 << 64) - 1])
"""Far apart, and one apart: there is no room for all their bits and a position."""
PREFIXES = st.sampled_from(["", "a", "eightbytes", "a\0", "\u00fc" * 4])


@pytest.fixture(autouse=True, params=["as objects", "in columns", "by radix"], scope="module")
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """A handful of keys is sorted as they are few, and as if they were many."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "as objects":
            patch.setattr(ordering, "FEW_ROWS", -1)
        if request.param == "by radix":
            patch.setattr(ordering, "RADIX_ROWS", 2)
            patch.setattr(ordering, "SAMPLE_ROWS", 1)
        yield


@given(st.lists(TEXTS, max_size=40), st.lists(st.tuples(PREFIXES, TEXTS), min_size=1), PREFIXES)
def test_places_are_those_of_whole_texts(
    texts: list[str], bounds: list[tuple[str, str]], prefix: str
) -> None:
    keys = sorted((prefix + "x" * 8 + text).encode() for text in texts)
    asked = [(head + "x" * 8 + text).encode() for head, text in bounds]
    index = PrefixIndex(pa.array(keys, pa.binary()).cast(pa.string()))
    column = pa.array(asked, pa.binary()).cast(pa.string())
    assert index.place(column, "left").tolist() == [bisect_left(keys, one) for one in asked]
    assert index.place(column, "right").tolist() == [bisect_right(keys, one) for one in asked]


def test_keys_that_differ_behind_their_first_eight_bytes_are_told_apart() -> None:
    keys = pa.array([f"{number % 2}-eightbytes-{number // 2:04d}" for number in range(2000)])
    keys = keys.sort()
    index = PrefixIndex(keys)
    assert index.place(keys, "left").tolist() == list(range(2000))
    assert index.place(keys, "right").tolist() == list(range(1, 2001))
    assert index.place(pa.array(["", "0", "0-eight", "1-eightbytes-1", "2"]), "left").tolist() == [
        *(0, 0, 0, 2000, 2000)
    ]


@given(st.lists(st.tuples(st.integers(0, 2), PREFIXES, TEXTS), max_size=40), PREFIXES)
def test_pieces_are_put_in_byte_order_within_their_groups(
    texts: list[tuple[int, str, str]], prefix: str
) -> None:
    groups = np.array([group for group, *_ in texts], np.int32)
    keys = [(prefix + head + text).encode() for _, head, text in texts]
    expected = sorted(zip(groups.tolist(), keys, strict=True))
    sizes = np.array([*map(len, keys)], np.int64)
    for gap in (b"", b"/"):
        data = np.frombuffer(b"".join(key + gap for key in keys), np.uint8)
        order = order_within(groups, data, np.cumsum(sizes + len(gap)) - sizes - len(gap), sizes)
        assert [(int(groups[one]), keys[one]) for one in order] == expected
        assert sorted(order) == list(range(len(keys)))


@given(st.lists(st.tuples(PREFIXES, TEXTS), max_size=40), PREFIXES)
def test_keys_are_put_in_byte_order_and_equal_ones_keep_theirs(
    texts: list[tuple[str, str]], prefix: str
) -> None:
    keys = [(prefix + head + text).encode() for head, text in texts]
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    column = pa.array([b"z", *keys, b"z"], pa.binary()).slice(1, len(keys))
    for given_ in (column, column.cast(pa.string()), column.cast(pa.large_string())):
        assert sort_order(given_).tolist() == expected


@given(st.lists(st.tuples(WORDS, WORDS), max_size=40))
def test_hashes_are_put_in_byte_order_and_equal_ones_keep_theirs(
    words: list[tuple[int, int]],
) -> None:
    keys = [high.to_bytes(8) + low.to_bytes(8) for high, low in words]
    column = pa.array([bytes(16), *keys, bytes(16)], pa.binary(16))[1:-1]
    assert sort_order(column).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    for texts in (keys, sorted(keys), sorted({*keys})):
        hashes, pairs = pa.array(texts, pa.binary(16)), list(pairwise(texts))
        assert is_ascending(hashes, strictly=True) == all(one < two for one, two in pairs)
        assert is_ascending(hashes, strictly=False) == all(one <= two for one, two in pairs)
        assert same_as_previous(hashes)[1:].tolist() == [one == two for one, two in pairs]


@given(st.lists(WORDS, max_size=40), st.integers(0, 300))
def test_numbers_are_sorted_stably_where_not_all_their_bits_have_room(
    words: list[int], more: int
) -> None:
    numbers = np.array([*words, *range(more), *words], np.uint64)
    order, in_order = _order(numbers)
    assert order.tolist() == np.argsort(numbers, kind="stable").tolist()
    assert in_order.tolist() == np.sort(numbers).tolist()


@given(st.lists(st.integers(0, (1 << 40) - 1), max_size=60))
def test_numbers_are_put_in_order_as_numpy_would(numbers: list[int]) -> None:
    given_ = np.array(numbers, np.int64)
    assert number_order(given_).tolist() == np.argsort(given_, kind="stable").tolist()


@given(st.lists(st.one_of(WORDS, st.integers(0, (1 << 64) - 1)), max_size=60))
def test_words_repeat_where_a_set_of_them_is_smaller(words: list[int]) -> None:
    for some in (words, sorted({*words}), [*words, *words[:1]]):
        assert has_repeats(np.array(some, np.uint64)) == (len({*some}) < len(some))


def test_words_that_meet_in_every_table_are_compared_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordering, "_ODD", np.uint64(1))
    words = np.arange(5000, dtype=np.uint64)
    assert not has_repeats(words)
    assert has_repeats(np.append(words, words[-1]))


def test_a_sample_with_few_first_bits_has_all_sorted_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = np.arange(20_000, dtype=np.uint64)[::-1] % 70 << np.uint64(40)
    numbers |= np.arange(20_000, dtype=np.uint64)
    expected = np.argsort(numbers, kind="stable").tolist()
    assert _order(numbers)[0].tolist() == expected
    monkeypatch.setattr(ordering, "MOST_TIED", 20_000)
    assert _order(numbers)[0].tolist() == expected


@given(st.lists(WORDS), st.lists(WORDS))
def test_numbers_among_others_are_found(asked: list[int], held: list[int]) -> None:
    ascending = np.array(sorted(held), np.uint64)
    found = which_are_among(np.array(asked, np.uint64), ascending)
    assert found.tolist() == [one in held for one in asked]
