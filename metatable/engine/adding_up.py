"""Adding up: one row of each thing that tasks tell of, though each of them meets most things.

    folded     within a task: what its pieces tell, one after the other
    added_up   across tasks: what all of them tell is dealt to some by the thing that it is of, so
               that the driver gets things, not as many times that as there are tasks

Across tasks it takes a shuffle, of rows that are few beside those that were counted; where these
are few themselves, all that tasks tell comes to the driver as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.engine.matching import hashes_of
from metatable.engine.partitions import pieces, task_numbers
from metatable.engine.protocol import TASK_COLUMN, Engine, Task
from metatable.storage.counters import Counters

__all__ = ["Sums", "added_up", "folded"]

MOST_TOLD = 1 << 21
"""Of so many rows no more can be told: some hundred MiB, of names and numbers. A limit of Spark's,
for each job, is 1 GiB."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What tasks tell, and how it is added up."""

    schema: pa.Schema
    thing: tuple[str, ...]
    """The columns that say what a row is of: texts."""
    add: Callable[[pa.Table], pa.Table]
    """Rows in, those of one thing as one row out: a top-level function."""
    apart: Callable[[pa.Table], pa.ChunkedArray] | None = None
    """Which rows go on as they are."""


def folded(told: Iterable[pa.Table], sums: Sums) -> Iterator[pa.RecordBatch]:
    """What all of these tell, each of which has its own rows added up."""
    source = iter(told)
    held = next(source, None)
    for one in source:
        both = pa.concat_tables([held, one])
        if sums.apart is not None:
            alone = sums.apart(both)
            yield from _batches(both.filter(alone))
            both = both.filter(pc.invert(alone))
        held = sums.add(both)
    if held is not None:
        yield from _batches(held)


def added_up(engine: Engine[Any], rows: Any, task: Task, sums: Sums, given: int) -> pa.Table:
    """What `task` tells of all rows, of which there are about so many; a thing may come several
    times. What the task counts may be lost."""
    if engine.in_process or given <= MOST_TOLD:
        return engine.run(rows, task, sums.schema)
    tasks = engine.slots
    schema = sums.schema.append(pa.field(TASK_COLUMN, pa.int32()))
    deal = partial(_dealt, task, sums.thing, tasks)
    dealt = engine.map(rows, engine.columns(rows), deal, schema)
    spread = engine.exchange(dealt, TASK_COLUMN, tasks)
    told = engine.select(spread, sums.schema.names)
    return engine.run(told, partial(_added, sums), sums.schema)


def _dealt(
    task: Task,
    thing: tuple[str, ...],
    tasks: int,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: what `task` tells, and which of so many tasks adds it up."""
    for batch in task(batches, counters):
        places = task_numbers(hashes_of(batch, thing), tasks)
        yield batch.append_column(TASK_COLUMN, pa.array(places))


def _added(
    sums: Sums, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: what others have told of some things, added up."""
    nothing = sums.schema.empty_table()  # or the first piece would pass for added up
    told = (piece.cast(sums.schema) for piece in pieces(batches))
    yield from folded(chain([nothing], told), sums)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches() if table.num_rows else []
