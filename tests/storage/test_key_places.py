"""Places of keys beside a dict: whatever keys end like, and however many are asked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import marked_words
from metatable.storage.key_places import KeyPlaces

ENDINGS = st.sampled_from(["", "-0000000", "-0000001", "-ending-like-others", "ä"])
KEYS = st.builds("{}{}".format, st.text("ab0", max_size=9), ENDINGS)


def check(keys: list[str], asked: Sequence[str | None]) -> KeyPlaces:
    """As a dict finds them, in slices, too."""
    places = KeyPlaces.of(pa.array(["before", *keys])[1:])
    rows, found = places.find(pa.array(["before", *asked], pa.string())[1:])
    numbers = {key: number for number, key in enumerate(keys)}
    expected = [(row, numbers[key]) for row, key in enumerate(asked) if key in numbers]
    assert [*zip(rows.tolist(), found.tolist(), strict=True)] == expected
    return places


@given(st.lists(KEYS, unique=True, max_size=30), st.lists(KEYS, max_size=30), st.data())
def test_places_are_those_of_a_dict(
    keys: list[str], others: list[str], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marked_words, "TOGETHER", data.draw(st.integers(1, 40)))
        patch.setattr(marked_words, "MOST_TWINS", data.draw(st.sampled_from([0, 0.5, 1])))
        check(keys, data.draw(st.permutations([*keys, *others])))
        check(keys, [*keys, None, *others])


def test_keys_that_collide_go_on_to_the_next_table() -> None:
    keys = [str(uuid.UUID(int=number * 7919 << 64 | number)) for number in range(20_000)]
    places = check(keys, [f"0{key[1:]}" for key in keys[::2]] + keys)
    assert places.marked is not None
    assert len(places.marked.tables) > 1
    assert places.are_distinct
    assert not KeyPlaces.of(pa.array([*keys, keys[7]])).are_distinct


def test_keys_that_end_alike_are_compared_whole() -> None:
    keys = [f"{number:05}-0123456789" for number in range(3)] + [
        f"{number:015}" for number in range(1000)
    ]
    places = check(keys, [*keys, "00003-0123456789"])
    assert places.marked is not None
    assert len(places.marked.twins) == 2
    assert places.are_distinct
    assert not KeyPlaces.of(pa.array([*keys, keys[1]])).are_distinct
    assert not KeyPlaces.of(pa.array([*keys, keys[700]])).are_distinct
    many = check([f"{number:05}-0123456789" for number in range(99)], ["00098-0123456789"])
    assert many.marked is None
    assert not many.are_distinct


def test_words_that_somebody_has_chosen_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        marked_words, "slots_of", lambda words, table, odd: np.zeros(len(words), np.uint64)
    )
    keys = [f"{number:08}" for number in range(9)]
    assert check(keys, [*keys, "00000009"]).marked is None
