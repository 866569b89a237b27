"""Neighbours that are worked on together, while they are small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["in_portions"]

T = TypeVar("T")


def in_portions(
    items: Iterable[T], size_of: Callable[[T], int], most_size: int, most: int | None = None
) -> Iterator[list[T]]:
    """So much, and so many of them (None: any number), at most, or one that is larger."""
    some: list[T] = []
    held = 0
    for one in items:
        size = size_of(one)
        if some and (held + size > most_size or len(some) == most):
            yield some
            some, held = [], 0
        some.append(one)
        held += size
    if some:
        yield some
