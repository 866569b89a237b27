"""What Spark's Python workers run: tasks of the engine protocol, as functions over Arrow batches.

    mapped     for mapInArrow: the rows of a partition in, what the task makes of them out
    answering  for an iterator UDF: columns in, an answer for each row out

Tasks get large batches, in the types that the driver knew, and none where a partition has no rows.
A worker runs one task at a time, and lives on for others (`spark.python.worker.reuse`): an executor
has as many as it has cores, each with caches of its own, which hold less. Whatever a task counts
stays in the worker, unless it travels as rows: `counters_last`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from metatable.engine.batches import conform, filled, gathered
from metatable.engine.by_row import listed
from metatable.engine.protocol import Task
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError

__all__ = [
    "BATCH_ROWS",
    "COUNTED",
    "PARSED_BYTES",
    "answering",
    "counters_in",
    "counters_last",
    "in_lists",
    "mapped",
    "packed",
    "unpacked",
]

BATCH_ROWS, BATCH_BYTES = 50_000, 32 << 20
"""Rows that reach a task at once, or fewer where they are wide: below it numpy's fixed costs show,
above it little changes."""

PARSED_BYTES = 128 << 20
"""What a worker holds of what was parsed, which each batch asks for, such as the key ranges of all
files, 180 bytes each. Of blocks it holds as much as any process: far away all would be fetched
again for each batch."""

COUNTED = "_metatable_counted"
"""The extra column in which counters travel, as JSON; null in rows that carry none."""


def counters_last(task: Task, schema: pa.Schema) -> tuple[Task, pa.Schema]:
    """`task` that makes one row more a partition, with nothing but its counters; its columns."""
    nullable = [field.with_nullable(True) for field in schema]
    made = pa.schema([*nullable, pa.field(COUNTED, pa.string())])
    return partial(_counters_last, task, made), made


def _counters_last(
    task: Task, made: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in task(batches, counters):
        yield batch.append_column(COUNTED, pa.nulls(batch.num_rows, pa.string()))
    told = {name: pa.nulls(1, made.field(name).type) for name in made.names}
    told[COUNTED] = pa.array([json.dumps(dict(counters))])
    yield pa.record_batch(told, schema=made)


def counters_in(told: pa.Table) -> Counters:
    """The sum of what the column `COUNTED` tells."""
    total = Counters()
    for counted in told.column(COUNTED).drop_null().to_pylist():
        total.merge(json.loads(counted))
    return total


def in_lists(
    task: Task, field: pa.Field, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """A task whose answers name their rows, as one that answers row for row with a list of them."""
    return listed(task(batches, counters), field)


def mapped(
    batches: Iterable[pa.RecordBatch], task: Task, given: pa.Schema, made: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The batches that `task` makes of a partition. `given`: what it is given; `made`: what Spark
    was told that comes."""
    asked = _large_batches(batches, given)
    if asked is not None:
        for batch in task(asked, Counters()):
            yield conform(batch, made)


def packed(batch: pa.RecordBatch, schema: pa.Schema) -> bytes:
    """A batch as Arrow's stream, in the types of `schema`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(conform(batch, schema))
    return bytes(sink.getvalue())


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the batches that a column of such streams holds."""
    for batch in batches:
        for stream in batch.column(0):
            yield from pa.ipc.open_stream(stream.as_buffer())


def answering(
    task: Task, given: pa.Schema, made: pa.Schema, single: bool
) -> Callable[..., Iterator[pa.Array]]:
    """An iterator UDF that answers with columns of `made`: `single`, with its one column, else with
    a struct of them. Raises UsageError where the task does not answer row for row."""

    def answer(arrays: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for batch in _answers(arrays, task, given, made):
            yield batch.column(0) if single else batch.to_struct_array()

    # Spark tells the kind of a UDF by its hints; they differ for one input and for several
    taken = Iterator[pa.Array] if len(given) == 1 else Iterator[tuple[pa.Array, ...]]
    answer.__annotations__ = {"arrays": taken, "return": Iterator[pa.Array]}
    return answer


def _answers(
    arrays: Iterable[Any], task: Task, given: pa.Schema, made: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """What a task answers of columns that come batch by batch. Spark would wait for answers that do
    not come, and go wrong with more: so rows are counted on both sides."""
    asking = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal asking
        for columns in arrays:
            asking += len(columns) if isinstance(columns, pa.Array) else len(columns[0])
            yield _batch(columns, given)

    asked = _large_batches(counted(), given)
    if asked is None:
        return
    answered = 0
    for batch in task(asked, Counters()):
        answered += batch.num_rows
        if answered > asking:
            break
        yield conform(batch, made)
    if answered != asking:
        what = "a task that extends rows must answer row for row"
        raise UsageError(what, expected=asking, found=answered)


def _batch(columns: pa.Array | tuple[pa.Array, ...], given: pa.Schema) -> pa.RecordBatch:
    arrays = list(columns) if isinstance(columns, tuple) else [columns]
    return pa.RecordBatch.from_arrays(arrays, given.names)


def _large_batches(
    batches: Iterable[pa.RecordBatch], given: pa.Schema
) -> Iterator[pa.RecordBatch] | None:
    """What a task is given: large batches in the types that the driver knew; None: no rows."""
    if TaskContext.get() is not None:  # not in the driver
        cache.shared.keep_at_most(PARSED_BYTES)
    return filled(conform(batch, given) for batch in gathered(batches, BATCH_ROWS, BATCH_BYTES))
