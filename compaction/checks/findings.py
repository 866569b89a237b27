"""Findings: gathered while a table is looked through; all are counted, the first of each kind kept.

So a table of which everything is wrong tells no more than a page; whoever mends goes by what the
checks hand over beside them, never by what is kept here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from metatable.results import Fault, TableFinding

__all__ = ["BY_ENTRIES", "KEPT", "Findings"]

KEPT = 100
"""How many findings of each fault are kept."""

BY_ENTRIES = (
    Fault.FILES,
    Fault.COLUMN_STATS,
    Fault.BLOOM_FILTER,
    Fault.RECORD_INDEX,
    Fault.ENTRIES,
    Fault.ENTRY_COUNT,
)
"""What is mended by entries alone, whatever else is wrong."""


class Findings:
    """What was found: counts of all, and the first `KEPT` of each fault."""

    def __init__(self) -> None:
        self._kept: dict[Fault, list[TableFinding]] = {}
        self._counts: Counter[Fault] = Counter()
        self.rows_lost = 0
        self.left = 0
        """How many nothing is done about."""

    def add(self, fault: Fault, where: str, detail: str, remedy: str = "", rows: int = 0) -> None:
        """Take one more. `rows`: those that are gone with it; -1 where nobody knows how many."""
        self._counts[fault] += 1
        self.rows_lost += max(rows, 0)
        self.left += not remedy
        kept = self._kept.setdefault(fault, [])
        if len(kept) < KEPT:
            kept.append(TableFinding(fault, where, detail, remedy, rows))

    def leave(self, fault: Fault, where: str, why: str) -> None:
        """Nothing could be done about one that was found here."""
        self.left += 1
        kept = self._kept[fault]
        for place, one in enumerate(kept):
            if one.where == where:
                kept[place] = replace(one, detail=f"{one.detail}; {why}", remedy="")

    def plus(self, later: Findings) -> Findings:
        """These and those of a later look, which has found none of these again."""
        both = Findings()
        for one in (self, later):
            both._counts += one._counts
            both.rows_lost += one.rows_lost
            both.left += one.left
            for fault, kept in one._kept.items():
                held = both._kept.setdefault(fault, [])
                held += kept[: KEPT - len(held)]
        return both

    def add_kinds(self, later: Findings, kinds: Collection[Fault]) -> None:
        """Add the findings of a later look that are of these kinds."""
        for fault in kinds:
            self._counts[fault] += later._counts[fault]
            held = self._kept.setdefault(fault, [])
            told = later._kept.get(fault, [])
            held += told[: KEPT - len(held)]

    @property
    def told(self) -> tuple[TableFinding, ...]:
        """Those that were kept, in the order of `Fault`."""
        return tuple(one for fault in Fault for one in self._kept.get(fault, ()))

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are of each fault that was found, by its name."""
        return {str(fault): self._counts[fault] for fault in Fault if self._counts[fault]}

    def __len__(self) -> int:
        return self._counts.total()
