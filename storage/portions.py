"""Neighbours that are worked on together, while they are small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = [
    "MOST_TOGETHER",
    "TOGETHER_BYTES",
    "far_portions",
    "in_order_far",
    "in_portions",
    "together_far",
]

T = TypeVar("T")
R = TypeVar("R")

TOGETHER_BYTES, MOST_TOGETHER = 16 << 20, 16
"""How many bytes of files far away, and of how many slices, are read at once."""


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


def far_portions(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """What is fetched at once from far away, where each item is some waits (`size_of`: bytes that
    are read for it)."""
    return in_portions(items, size_of, TOGETHER_BYTES, MOST_TOGETHER)


def together_far(
    store: Store, work: Callable[[T], R], items: Iterable[T], size_of: Callable[[T], int]
) -> Iterator[R]:
    """What `work` makes of each item, in their order: far away of those of a portion at once, near
    by of one after the other."""
    if not store.is_distant:
        yield from map(work, items)
        return
    for some in far_portions(items, size_of):
        yield from store.together([partial(work, one) for one in some])


def in_order_far(
    store: Store,
    work: Callable[[T], R],
    items: Iterable[T],
    size_of: Callable[[T], int] = lambda _: 0,
) -> Iterator[R]:
    """`together_far`, near by of as many at once as there are processors: for many small files,
    each of which is looked into for a while. `size_of`: by default they are that small."""
    if not store.is_distant:
        yield from in_order(work, items)
        return
    yield from together_far(store, work, items, size_of)
