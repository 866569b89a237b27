"""Checks of arguments that several calls take: one name or several, words that exclude each other,
a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from metatable.storage.errors import UsageError

__all__ = ["in_order", "noted", "noted_text", "one_of", "some"]

NOTE_BYTES = 16 << 10
"""The most bytes of a note. Notes are in the roots of versions, which everybody reads."""

TAKEN = ("schema", "latest_schema", "metatable.columns")
"""Names that a note may not have: on Hudi's timeline a commit's own words stand beside it, and as
`latest_schema` Hudi's readers take a history of columns (`hoodie.schema.on.read.enable`)."""


def some(word: str, found: Any, kind: type) -> tuple[Any, ...] | None:
    """The things that were named, one or several, as a tuple; None for all. Raises UsageError."""
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


def in_order(word: str, found: Any) -> tuple[str, ...]:
    """Columns of which the order counts, one or several; empty for none. Raises UsageError."""
    if isinstance(found, set | frozenset):
        raise UsageError("a set has no order", option=word, expected="a list", found=found)
    return some(word, found, str) or ()


def one_of(**given: Any) -> None:
    """Raises UsageError where more than one of these arguments is given; one of them must be."""
    word, *others = (
        name for name, value in given.items() if value is not None and value is not False
    )
    if others:
        raise UsageError(f"{word} stands alone", leave_out=others)


def noted(note: Mapping[str, Any] | None) -> dict[str, str]:
    """A commit's note: names and values as texts. Raises UsageError."""
    if note is None:
        return {}
    expected = 'names and short values, such as {"job": "nightly", "run": 7}'
    if not isinstance(note, Mapping):
        raise UsageError(
            "a note has names and values", found=type(note).__name__, expected=expected
        )
    for name, value in note.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise UsageError("not what a note can hold", found={name: value}, expected=expected)
    taken = [name for name in TAKEN if name in note]
    if taken:
        raise UsageError("a note cannot be called so", found=taken[0])
    texts = {
        name: str.__str__(value) if isinstance(value, str) else json.dumps(value)
        for name, value in note.items()
    }
    _check_short(json.dumps(texts, ensure_ascii=False))
    return texts


def noted_text(note: str) -> str:
    """A savepoint's note. Raises UsageError."""
    if not isinstance(note, str):
        raise UsageError("a note is a text", found=note)
    _check_short(note)
    return note


def _check_short(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError("a note is not UTF-8", found=text[:100]) from error
    if size > NOTE_BYTES:
        raise UsageError("a note is short", found=f"{size} bytes", expected=f"{NOTE_BYTES} or less")
