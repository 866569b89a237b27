"""The error family: one class per thing a caller can do about it.

    ConflictError   another writer was first           -> retry the operation
    StaleError      what we hold is no longer current  -> open the table again
    UsageError      the call cannot be carried out     -> fix the call or its data
    CorruptError    stored bytes are damaged or gone   -> restore or rebuild the file
    UpgradeError    the table needs other software     -> follow the way out in the message
    NotFoundError   there is no such table or version  -> correct the path or the version
    AccessError     the store will not let us          -> credentials, permissions, bucket
    StoreError      the store is down, full or slow    -> try again later

Every message says what failed, where, what was expected and what was found. A new cause
is a new text; a new class is made only when someone would handle it differently. All of
them survive pickling, because on Spark they are raised in another process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "AccessError",
    "ConflictError",
    "CorruptError",
    "Finding",
    "MetatableError",
    "NotFoundError",
    "StaleError",
    "StoreError",
    "UpgradeError",
    "UsageError",
    "in_short",
]


_MOST_CHARS = 8192
"""Of one fact in a message: twice the longest path."""


class MetatableError(Exception):
    """Base of everything that metatable raises on purpose."""

    others_go_on = False
    """Whether it comes from a task elsewhere, beside which others may still be writing: who catches
    it does not know yet what there will be."""

    def __init__(self, what: str, **facts: Any) -> None:
        super().__init__(what, facts)
        self.what = what
        self.facts = facts

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.what, _spell(self.facts))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.facts)


class ConflictError(MetatableError):
    """Another writer was first. Nothing of this operation is visible: retry it."""


class StaleError(MetatableError):
    """The version or the instant that is asked for, or held here, is not there any more: open the
    table again, and name one that is kept."""


class UsageError(MetatableError):
    """The call, its options or its rows cannot be accepted as they are. Nothing was written."""


class CorruptError(MetatableError):
    """Stored bytes break the format, or a stored file is gone. Retrying will not help: restore the
    file, or let `Table.repair` mend the table."""


class UpgradeError(MetatableError):
    """The table is in a form that this version of metatable must not touch: follow the way out
    that the message names."""


class NotFoundError(MetatableError):
    """There is no table, version or file of that name: correct the call."""


class AccessError(MetatableError):
    """The store refuses access: look at credentials, permissions, the name of the bucket."""


class StoreError(MetatableError):
    """The store did not do what was asked: it is unreachable or full, or timed out. What was asked
    may have been done, or not; nothing is half visible. Try again later."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault as data: what `verify` found and where; `detail` says what was expected there."""

    code: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {self.detail}"


def in_short(error: BaseException) -> str:
    """Another library's error as a short text: its class and what it says, cut at 200 characters.

    The error itself would stand in a message as its `repr`, and that of a UnicodeDecodeError quotes
    the whole input.
    """
    return f"{type(error).__name__}: {error}"[:200]


def _spell(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={_cut(repr(value))}" for name, value in facts.items())


def _cut(text: str) -> str:
    """What a person reads of it: all of a path or a way out, not of a file that was given as one.
    Whole it is in the error's `facts`."""
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[: _MOST_CHARS // 2]}… ({len(text):,} characters)"


def _rebuild(kind: type[MetatableError], what: str, facts: dict[str, Any]) -> MetatableError:
    return kind(what, **facts)
