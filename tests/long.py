"""How much of a test is played: what a run of some minutes has room for, or all of it.

METATABLE_LONG=1 (`make test-long`) plays all. In the short run each kind of case is there, and of
cases that are alike some:

    one_in, each_once, examples   of a list of cases, of a product of several, of drawn ones
    @pytest.mark.each_once        the product of all that a test is parametrized by, fixtures too
    @pytest.mark.in_turn("name")  of what the name goes through one value a test, by turns, or,
                                  with `one_in`, one in so many
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, TypeVar

T = TypeVar("T")
Place = tuple[int, ...]
"""Of a case, what number its value has on each of some dimensions."""

LONG = os.environ.get("METATABLE_LONG") == "1"


def one_in(count: int, cases: Sequence[T], turn: int = 0) -> Sequence[T]:
    """Every `count`-th of these, and of the first ones that of `turn`: tests that are alike take
    different ones; of fewer than `count` one. In a long run all."""
    return cases if LONG else cases[turn % max(1, min(count, len(cases))) :: count]


def each_once(*dimensions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """So many cases that each value of each dimension is among them. In a long run all."""
    if LONG:
        return [*product(*dimensions)]
    most = max(map(len, dimensions))
    return [tuple(one[step % len(one)] for one in dimensions) for step in range(most)]


def examples(some: int, full: int = 100) -> int:
    """How many examples of a property are drawn, in a short run and in a long one."""
    return full if LONG else some


def in_turn_of(places: Sequence[Place], turn: int, one_in: int | None = None) -> set[Place]:
    """One of these, or one in so many of them, and other ones each turn."""
    kinds = sorted(set(places))
    step = min(one_in or len(kinds), len(kinds))
    return {*kinds[turn % step :: step]}


def each_once_of(places: Sequence[Place], turn: int) -> set[Place]:
    """So many of these that each value of each dimension is among them; another turn puts others
    together. All, if they are no whole product: then they were chosen by hand."""
    dimensions = [sorted(set(column)) for column in zip(*places, strict=True)]
    if not dimensions or len(set(places)) < prod(map(len, dimensions)):
        return set(places)
    return {
        tuple(one[(step + number * turn) % len(one)] for number, one in enumerate(dimensions))
        for step in range(max(map(len, dimensions)))
    }
