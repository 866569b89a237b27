"""Few rows of an engine elsewhere: handled in this process, sooner than others have begun.

A job of Spark's costs more than looking a few keys up and copying what stays as it is. What
decides is how much there is to do, not only the rows: those are few, the index opens no more files
than one process can, and no more bytes of files are made anew than one process should. The last is
known when keys have been looked up; then the rows, still few, go back to where they came from.

How many are few depends on who else would do it: a cluster that runs no more tasks at once than
this process has processors (a local master, above all) does the same work on the same processors,
and sends rows between processes besides.
"""

from __future__ import annotations

from typing import Any

from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.snapshot import Snapshot
from metatable.write.plan import WritePlan

__all__ = ["is_much", "nearest"]

ROWS, ROW_BYTES = 10_000, 8 << 20
"""Of a cluster that has more processors than this process."""

NEAR_ROWS, NEAR_BYTES = 1 << 20, 256 << 20
"""Of one that has not: what a driver can hold, as an engine of this process does of rows for later.
As Arrow."""

LISTED_BYTES = 1 << 20
"""Of entries of `files`, some twenty thousand files: where lookups may ask each file's filter."""

REWRITTEN_BYTES = 1 << 30
"""Of files that are made anew."""


def nearest(engine: Engine[Any], rows: Any, snapshot: Snapshot) -> tuple[Engine[Any], Any]:
    """Where to look rows up that `engine` keeps, and the rows there: in this process if they are
    few, else as they are."""
    by_key = create_index(snapshot.options).indexes_logs  # what knows keys of logs opens no files
    if not ROWS or not (by_key or _listed_bytes(snapshot) <= LISTED_BYTES):
        return engine, rows
    near = LocalEngine(counters=engine.counters)
    few = engine.few(rows, ROWS, ROW_BYTES)
    if few is None and engine.slots <= near.slots:
        few = engine.few(rows, NEAR_ROWS, NEAR_BYTES)
    return (engine, rows) if few is None else (near, near.rows(few))


def is_much(plan: WritePlan) -> bool:
    """Whether an engine elsewhere should share out what the plan writes anew."""
    anew = (one.base for one in plan.groups if one.kind == "MERGE" and one.base)
    return sum(base.size_bytes for base in anew) > REWRITTEN_BYTES


def _listed_bytes(snapshot: Snapshot) -> int:
    return sum({ref.path: ref.size_bytes for ref in snapshot.refs("files")}.values())
