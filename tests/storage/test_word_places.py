"""Where words stand among others is what a dict says, whatever they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import word_places
from metatable.storage.word_places import WordPlaces

WORDS = st.one_of(st.integers(0, 40), st.integers(0, (1 << 64) - 1))


@given(
    held=st.lists(WORDS, max_size=60),
    asked=st.lists(WORDS, max_size=60),
    few=st.sampled_from((0, 3, 64)),
)
def test_words_are_found_where_a_dict_has_them(held: list[int], asked: list[int], few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_places, "FEW", few)
        patch.setattr(word_places, "LEAST_BITS", 1)
        patch.setattr(word_places, "TOGETHER", 7)
        places = WordPlaces.of(np.array(held, np.uint64))
        assert (places is None) == (len({*held}) < len(held))
        if places is not None:
            known = {word: place for place, word in enumerate(held)}
            words = np.array([*asked, *held], np.uint64)
            expected = [known.get(word, -1) for word in words.tolist()]
            assert places.find(words).tolist() == expected


def test_many_words_are_in_the_tables_and_two_that_are_equal_are_seen() -> None:
    words = np.random.default_rng(7).permutation(np.arange(200_000, dtype=np.uint64))
    places = WordPlaces.of(words)
    assert places is not None
    assert len(places.rest[0]) < 4000
    back = np.random.default_rng(8).permutation(len(words))
    assert np.array_equal(places.find(words[back]), back)
    for twice in (0, 99_999):
        again = words.copy()
        again[-1] = again[twice]
        assert WordPlaces.of(again) is None


@pytest.mark.parametrize("tables", [1, 4])
def test_words_that_share_a_slot_are_found_elsewhere(
    tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody could choose them: in the first table they are all at one place."""
    monkeypatch.setattr(word_places, "ODD", word_places.ODD[:tables])
    back = np.uint64(pow(word_places.ODD[0], -1, 1 << 64))
    words = np.arange(1000, dtype=np.uint64) * back
    places = WordPlaces.of(words)
    assert places is not None
    assert len(places.rest[0]) == 999 if tables == 1 else len(places.rest[0]) <= word_places.FEW
    assert np.array_equal(places.find(words), np.arange(1000))
    assert (places.find(words + np.uint64(1)) == -1).all()
    assert WordPlaces.of(np.concatenate([words, words[5:6]])) is None
