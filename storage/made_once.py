"""A property that is made when it is first asked for, and kept with its object.

As `functools.cached_property` is from Python 3.12 on. In 3.11 that has a lock, one for the property
of all objects: who makes one waits for whoever makes another, be it a request away, and a forked
child for ever, where a thread of its parent was at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["made_once"]

T = TypeVar("T")
R = TypeVar("R")


class made_once(Generic[T, R]):  # noqa: N801  (it stands where `property` does)
    """Decorates a method without arguments. Two threads may both make it: the first one in wins,
    and both get that one."""

    def __init__(self, make: Callable[[T], R]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, one: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, one: T, owner: Any) -> R: ...
    def __get__(self, one: T | None, owner: Any) -> Self | R:
        if one is None:
            return self
        made = self._make(one)
        # the object's own attributes are looked at first: from now on nobody comes here
        kept: R = one.__dict__.setdefault(self._name, made)
        return kept
