"""What a short run plays of a test's cases: `in_turn` and `each_once` choose by places alone."""

from __future__ import annotations

from itertools import product

import pytest

from tests import long
from tests.long import each_once_of, in_turn_of, one_in

WHOLE = [*product(range(2), range(3), range(4))]
"""Cases of three dimensions, each a place on all of them."""


@pytest.mark.parametrize("turn", range(5))
def test_each_value_of_each_dimension_is_played(turn: int) -> None:
    played = each_once_of(WHOLE, turn)
    assert played <= {*WHOLE}
    assert len(played) == 4
    for dimension, size in enumerate((2, 3, 4)):
        assert {place[dimension] for place in played} == {*range(size)}


def test_of_few_cases_one_is_played_whatever_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "LONG", False)
    assert [one_in(4, range(9), turn) for turn in (0, 3, 5)] == [
        range(0, 9, 4),
        range(3, 9, 4),
        range(1, 9, 4),
    ]
    assert [list(one_in(4, [7, 8], turn)) for turn in range(4)] == [[7], [8], [7], [8]]
    assert list(one_in(4, [], 3)) == []
    monkeypatch.setattr(long, "LONG", True)
    assert one_in(4, [7, 8], 1) == [7, 8]


def test_another_turn_puts_other_values_together() -> None:
    square = [*product(range(2), range(2))]
    assert each_once_of(square, 0) == {(0, 0), (1, 1)}
    assert each_once_of(square, 1) == {(0, 1), (1, 0)}


def test_cases_that_are_no_product_are_all_played() -> None:
    chosen = [(0, 0), (0, 1), (1, 1)]
    assert each_once_of(chosen, 3) == {*chosen}
    assert each_once_of([(1, 2)], 1) == {(1, 2)}
    assert each_once_of([()], 1) == {()}


def test_each_turn_has_another_value_until_all_were_played() -> None:
    values = [(0,), (1,), (2,)]
    assert [in_turn_of(values, turn) for turn in range(4)] == [{(0,)}, {(1,)}, {(2,)}, {(0,)}]


def test_one_in_so_many_is_played_and_of_few_one() -> None:
    values = [(number,) for number in range(5)]
    assert in_turn_of(values, 0, one_in=2) == {(0,), (2,), (4,)}
    assert in_turn_of(values, 1, one_in=2) == {(1,), (3,)}
    assert in_turn_of(values[:1], 3, one_in=2) == {(0,)}
    assert in_turn_of([()], 2) == {()}
