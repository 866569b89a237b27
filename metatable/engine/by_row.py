"""Answers that name their rows: they are put beside these by number, and no values are compared.

    rows      k      answers   row   w        beside them   k    w
              a                0     null                   a    null
              b                1     x                      b    x
              c                1     y                      b    y
                               2     z                      c    z

A task that sees all the rows of a call can say which of them it answers. So nothing is hashed,
sorted or compared to bring answers back to rows, and rows that are answered once are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from metatable.engine.batches import Partition, joined
from metatable.storage.arrays import Int64s
from metatable.storage.errors import UsageError

__all__ = ["ROW", "ROW_FIELD", "beside", "listed"]

ROW = "_metatable_row"
ROW_FIELD = pa.field(ROW, pa.int64(), nullable=False)
"""The row's number among those of the call. Ascending, and each is there, or there again."""


def beside(
    made: Sequence[list[pa.RecordBatch]],
    inputs: Sequence[str],
    answer: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    fields: pa.Schema,
) -> Iterator[Partition]:
    """Partitions that are made, of columns `schema`, with the `fields` behind them that `answer`
    tells of the rows of all together, ROW before them. Raises UsageError where a row is missing."""
    pieces = [batch for part in made for batch in part]
    asked = joined([batch.select(list(inputs)) for batch in pieces])
    answers = pa.Table.from_batches(answer(asked), pa.schema([ROW_FIELD, *fields]))
    rows = answers[ROW].to_numpy()
    answers, at = answers.drop_columns([ROW]), 0
    _check(rows, sum(map(len, pieces)))
    for part in made:
        count = sum(map(len, part))
        first, last = (int(np.searchsorted(rows, row)) for row in (at, at + count))
        table = pa.Table.from_batches(part, schema)
        if last - first != count:  # some are there twice; else each is there once, in order
            table = table.take(pa.array(rows[first:last] - at))
        columns = [*table.columns, *answers.slice(first, last - first).columns]
        yield pa.Table.from_arrays(columns, schema=pa.schema([*schema, *fields])).to_batches
        at += count


def listed(answers: Iterable[pa.RecordBatch], field: pa.Field) -> Iterator[pa.RecordBatch]:
    """Row for row the list of its answers: of batches with ROW and the `field`, all answers of a
    row in one batch. Raises UsageError where a row is missing."""
    schema, at = pa.schema([pa.field(field.name, pa.list_(field))]), 0
    for batch in answers:
        rows = batch[ROW].to_numpy() - at
        count = int(rows[-1]) + 1 if len(rows) else 0
        _check(rows, count)
        ends = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), batch[field.name], schema.field(0).type)
        yield pa.RecordBatch.from_arrays([lists], schema=schema)
        at += count


def _check(rows: Int64s, count: int) -> None:
    steps = np.diff(rows, prepend=-1, append=count)
    if (steps < 0).any() or (steps > 1).any() or steps[[0, -1]].min() < 1:
        raise UsageError(
            "answers must name each of the rows, in order",
            expected=f"rows 0 to {count - 1}",
            found=f"{len(rows)} answers",
        )
