"""What callers may give: one name or several, one word and not another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metatable.storage.errors import UsageError

__all__ = ["one_of", "some"]


def some(word: str, found: Any, kind: type) -> tuple[Any, ...] | None:
    """What was named, one or several; None for all. Raises UsageError."""
    named = (found,) if isinstance(found, kind) else found
    if named is None:
        return None
    right = isinstance(named, Iterable) and not isinstance(named, str | bytes)
    named = tuple(named) if right else ()
    if not right or not all(type(one) is kind for one in named):
        found = list(named) or type(found).__name__
        raise UsageError(
            "not what can be named",
            option=word,
            expected=f"{kind.__name__}, or several",
            found=found,
        )
    return named


def one_of(**given: Any) -> None:
    """Refuse the first word together with any of the others. Raises UsageError."""
    word, *others = (
        name for name, value in given.items() if value is not None and value is not False
    )
    if others:
        raise UsageError(f"{word} stands alone", leave_out=others)
