"""The error family: one class per thing a caller can do about it.

    ConflictError   another writer was first           -> retry the operation
    StaleError      what we hold is no longer current  -> open the table again
    UsageError      the call cannot be carried out     -> fix the call or its data
    CorruptError    stored bytes are damaged or gone   -> restore or rebuild the file
    UpgradeError    the table needs another software   -> follow the way out in the message
    NotFoundError   there is no such table or version  -> correct the path or the version
    AccessError     the store will not let us          -> credentials, permissions, bucket
    StoreError      the store cannot be reached, is full or too slow -> try again later

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


class MetatableError(Exception):
    """Base of everything that metatable raises on purpose."""

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
    """The version or the instant held here is no longer current: open the table again."""


class UsageError(MetatableError):
    """The call, its options or its rows cannot be accepted as they are. Nothing was written."""


class CorruptError(MetatableError):
    """Stored bytes break the format, or a stored file is gone. Retrying will not help."""


class UpgradeError(MetatableError):
    """The table is in a form that this version of metatable must not touch."""


class NotFoundError(MetatableError):
    """There is no table, version or file of that name: correct the call."""


class AccessError(MetatableError):
    """The store refuses us: look at credentials, permissions, the name of the bucket."""


class StoreError(MetatableError):
    """The store did not do it: unreachable, full, timed out. What was asked may have been done,
    or not; nothing is half visible. Try again later."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault as data: what a `verify` found, where, expected and found."""

    code: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {self.detail}"


def in_short(error: BaseException) -> str:
    """An error of a library's, as a fact: that of decoding a text holds all that it decoded."""
    return f"{type(error).__name__}: {error}"[:200]


def _spell(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in facts.items())


def _rebuild(kind: type[MetatableError], what: str, facts: dict[str, Any]) -> MetatableError:
    return kind(what, **facts)
