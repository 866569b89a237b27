"""Tables of some commits whose timeline is short, for tests of what cleans them or goes back."""

from __future__ import annotations

from typing import Any

import metatable
from metatable import Table
from metatable.storage import cache
from metatable.storage.store import Store
from tests.cleaned import strange_files
from tests.face.protocol.making import FAST, rows
from tests.model import arrow, read_by_hudi, scanned

KEEP = 3
"""Commits on Hudi's timeline."""
SMALL = {"timeline_commits": KEEP, "lease_seconds": 0, "upkeep_files": 0}
"""Options of such tables."""


def grown(table: Table) -> Table:
    """Nine commits, of which some replace files of others; a compaction in the middle."""
    for number in range(8):
        table.upsert(arrow(rows(number * 3, number * 3 + 8, number)))
        if number == 4:
            table.compact(major=True)
    table.delete(arrow(rows(0, 5, 0)))
    return table


def every_row(table: Table, version: int | None = None) -> list[tuple[Any, ...]]:
    """The rows of a version as a process reads them that knows nothing yet."""
    cache.clear()
    return scanned(metatable.open(table.uri, FAST), version)


def strange(table: Table) -> list[str]:
    """Files that are too many, and those that are missing."""
    return strange_files(Store(table.uri))


def clean(table: Table, versions: int = 1, hours: float = 0, **how: Any) -> Any:
    """Clean as if no version were young, unless told otherwise."""
    cache.clear()
    return table.clean(versions=versions, hours=hours, **how)


def is_sound(table: Table, expected: list[tuple[Any, ...]]) -> None:
    """We and Hudi's readers read these rows, and nothing is wrong."""
    assert every_row(table) == read_by_hudi(table.uri) == expected
    assert metatable.open(table.uri, FAST).verify().findings == ()
