"""Places of texts among sorted texts: held against bisect, ties and all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.ordering import PrefixIndex, sort_order

TEXTS = st.text(alphabet="ab\0\u00fc", max_size=5)
PREFIXES = st.sampled_from(["", "a", "eightbytes", "a\0", "\u00fc" * 4])


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


@given(st.lists(st.tuples(PREFIXES, TEXTS), max_size=40), PREFIXES)
def test_keys_are_put_in_byte_order_and_equal_ones_keep_theirs(
    texts: list[tuple[str, str]], prefix: str
) -> None:
    keys = [(prefix + head + text).encode() for head, text in texts]
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    column = pa.array([b"z", *keys, b"z"], pa.binary()).slice(1, len(keys))
    for given_ in (column, column.cast(pa.string()), column.cast(pa.large_string())):
        assert sort_order(given_).tolist() == expected
