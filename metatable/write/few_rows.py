"""Few rows of a Spark DataFrame are handled in this process, sooner than Spark's jobs begin.

A job of Spark's costs more than looking a few keys up and copying what stays as it is. What
decides is how much there is to do, not only the rows: those are few, the index opens no more files
than one process can, and no more bytes of files are read for them, or made anew, than one process
should. The last is known when keys have been looked up, before anything is read; then the rows,
still few, go back to where they came from.

How many are few depends on who else would do it: a cluster that runs no more tasks at once than
this process has processors (a local master, above all) does the same work on the same processors,
and sends rows between processes besides.

If the source's size says that rows may be few, they are fetched and prepared here. Otherwise, and
where they turn out to be many, they are prepared on Spark, which keeps what it has prepared. Rows
are counted before they are fetched. That reads stored files twice, which costs less than caching
them; any other rows are cached, so that they are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from metatable.data.file_groups.slices import FileSlice
from metatable.data.rows.taking import whole
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.engine.shared_store import check_shared
from metatable.index import create_index
from metatable.index.locations import LOCATION_COLUMN, located_slices, without_codes
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.write.plan import WritePlan

__all__ = ["is_much", "prepared_near", "reads_much", "slices_named"]

ROWS, ROW_BYTES = 10_000, 8 << 20
"""What counts as few where the cluster has more processors than this process."""

NEAR_ROWS, NEAR_BYTES = 1 << 20, 256 << 20
"""What counts as few where it has not: what a driver can hold, as the engine of this process holds
rows for later. Bytes are those of Arrow."""

TOLD_SHARE = 2
"""What may be few by its source is less than the limit by so much: files are compressed, and what
turns out to be many is kept twice."""

LISTED_BYTES = 1 << 20
"""The most bytes of entries of `files`, some twenty thousand files, where lookups may ask each
file's filter."""

REWRITTEN_BYTES = 1 << 30
"""The most bytes of files that this process makes anew, or reads for rows that come."""


@contextmanager
def prepared_near(
    engine: Engine[Any],
    rows: Any,
    snapshot: Snapshot,
    prepare: Callable[[Engine[Any], Any], Any],
) -> Iterator[tuple[Engine[Any], Any]]:
    """Where to look the rows of `engine` up, and what `prepare` makes of them, kept there: in this
    process if they are few, else where they are. The input is evaluated once; what is read as it
    is stored may be read twice, but is taken from one reading.

    Raises what `prepare` does of columns that are not as they must be, before anything runs, and
    UsageError where they are many and their tasks would not see the table.
    """
    made, near = prepare(engine, rows), LocalEngine(counters=engine.counters)
    limits = _limits(engine, near, snapshot)
    with ExitStack() as held:
        if _may_be_few(engine, rows, limits):
            if not engine.is_stored(rows):
                rows = held.enter_context(engine.keep(rows))
            few = _few(engine, rows, limits)
            if few is not None:
                held.close()  # nobody asks the cluster for them again
                yield near, held.enter_context(near.keep(prepare(near, near.rows(few))))
                return
            made, limits = prepare(engine, rows), ()
        made = held.enter_context(engine.keep(made))
        few = _few(engine, made, limits)
        if few is None and not engine.in_process:
            check_shared(snapshot.store)
        yield (engine, made) if few is None else (near, near.rows(few))


def _limits(
    engine: Engine[Any], near: Engine[Any], snapshot: Snapshot
) -> tuple[tuple[int, int], ...]:
    """Rows, and bytes of them, that are few; the smaller first, none where none are."""
    by_key = create_index(snapshot.options).indexes_logs  # what knows keys of logs opens no files
    if not ROWS or not (by_key or _listed_bytes(snapshot) <= LISTED_BYTES):
        return ()
    few = ROWS, ROW_BYTES
    return (few, (NEAR_ROWS, NEAR_BYTES)) if engine.slots <= near.slots else (few,)


def _may_be_few(engine: Engine[Any], rows: Any, limits: tuple[tuple[int, int], ...]) -> bool:
    told = engine.estimate(rows) if limits else None
    return told is not None and told <= limits[-1][1] // TOLD_SHARE


def _few(engine: Engine[Any], rows: Any, limits: tuple[tuple[int, int], ...]) -> pa.Table | None:
    for most in limits:
        few = engine.few(rows, *most)
        if few is not None:
            return few
    return None


def slices_named(engine: Engine[Any], located: Any, view: TableView) -> list[FileSlice]:
    """The slices that hold these few rows' keys."""
    few = engine.to_table(engine.select(located, [LOCATION_COLUMN]))
    location = whole(without_codes(few)[LOCATION_COLUMN]).drop_null()
    return [one for _, one, _ in located_slices(view, location) if one is not None]


def reads_much(slices: Iterable[FileSlice], more: int = 0) -> bool:
    """Whether an engine elsewhere should share out reading these slices, and `more` bytes."""
    return more + sum(one.size_bytes for one in slices) > REWRITTEN_BYTES


def is_much(plan: WritePlan, gone: int) -> bool:
    """Whether it should share out what the plan writes anew, and so many bytes of files that go, of
    which all keys are read."""
    return reads_much((one.base for one in plan.groups if one.kind == "MERGE" and one.base), gone)


def _listed_bytes(snapshot: Snapshot) -> int:
    return sum({ref.path: ref.size_bytes for ref in snapshot.refs("files")}.values())
