"""Row counts: what became of the rows that a commit was given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["RowCounts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """One value from the merge of a file group to the result of a commit; counts of rows.

    `moved` counts a row that came in from another group, where it arrives; `stale` one that lost
    against a newer stored one; `absent` a key to delete that was not there; `index_misses` a key
    that the index knew and its file did not hold: zero, unless two keys share a hash.

    None is what a commit cannot know that puts logs on file groups, or overwrites such: where no
    index proves that a key is there (buckets), which rows were inserted and which updated; how many
    rows were there.
    """

    inserted: int | None = 0
    updated: int | None = 0
    deleted: int | None = 0
    moved: int = 0
    stale: int = 0
    absent: int = 0
    index_misses: int = 0

    @classmethod
    def total(cls, parts: Iterable[RowCounts]) -> RowCounts:
        """Of several groups together."""
        names, held = [one.name for one in fields(RowCounts)], list(parts)
        return RowCounts(**{name: _sum([getattr(one, name) for one in held]) for name in names})


def _sum(counts: list[int | None]) -> Any:
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None
