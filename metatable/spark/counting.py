"""An engine on Spark whose lazy steps tell their counters too: for `explain` alone.

    map      makes one more row per partition, null but for the counters
    extend   puts the counters beside the last answer of a partition
    run      runs the plan, then reads the counters of all its steps, and lets go of them

The extra column is in plans that nobody but metatable sees. What a step made is persisted, and
its counters are read from there after the action: a second small one. So they count the work
that was done, once, where a plan reads a step twice, or a task was tried twice; a partition
that Spark lost and made again counts as it was made last.

Not by `DataFrame.observe`, which would need no cache: on Spark 4 its numbers are lost when
adaptive execution finds a side of a join empty and drops it from the plan, after the work was
done. That is every lookup which finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from metatable.engine.batches import filled
from metatable.engine.protocol import Task
from metatable.spark.engine import SparkEngine
from metatable.spark.workers import COUNTED, counters_in, counters_last
from metatable.storage.counters import Counters

__all__ = ["CountingEngine"]


class CountingEngine(SparkEngine):
    """Serves one operation with one `run`; `counters` are complete after it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._steps: list[DataFrame] = []

    def map(
        self, rows: DataFrame, inputs: Sequence[str], task: Task, schema: pa.Schema
    ) -> DataFrame:
        made = super().map(rows, inputs, *counters_last(task, schema))
        return self.select(self._step(made).where(F.col(COUNTED).isNull()), schema.names)

    def extend(
        self,
        rows: DataFrame,
        inputs: Sequence[str],
        task: Task,
        fields: pa.Schema,
        *,
        at_once: bool = False,
    ) -> DataFrame:
        told = fields.append(pa.field(COUNTED, pa.string()))
        made = super().extend(rows, inputs, partial(_counters_beside, task), told, at_once=at_once)
        return self.select(self._step(made), [*rows.columns, *fields.names])

    def run(self, rows: DataFrame, task: Task, schema: pa.Schema) -> pa.Table:
        try:
            receipts = super().run(rows, task, schema)
            if self._steps:
                told = [step.select(COUNTED).dropna() for step in self._steps]
                self.counters.merge(counters_in(self.to_table(reduce(DataFrame.union, told))))
        finally:
            while self._steps:
                self._steps.pop().unpersist()
        return receipts

    def _step(self, made: DataFrame) -> DataFrame:
        self._steps.append(made.persist())
        return self._steps[-1]


def _counters_beside(
    task: Task, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """`task`, whose last row has the counters beside it: one batch is held back for it."""
    held: pa.RecordBatch | None = None
    for batch in filled(task(batches, counters)) or ():
        if held is not None:
            yield _beside(held, None)
        held = batch
    if held is not None:
        yield _beside(held, json.dumps(dict(counters)))


def _beside(batch: pa.RecordBatch, told: str | None) -> pa.RecordBatch:
    blank = pa.nulls(batch.num_rows - 1, pa.string())
    return batch.append_column(COUNTED, pa.concat_arrays([blank, pa.array([told], pa.string())]))
