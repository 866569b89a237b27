"""Jobs: a list of small things to do, spread over tasks; receipts come back.

A job is a frozen dataclass, and travels as a row of a small table: so an engine spreads, sends
and repeats jobs as it does any other rows, and a worker is sent its own alone. What all jobs
share rides in the function. A receipt is a frozen dataclass too, and a row of `Engine.run`.

Fields are of these kinds, by annotation: int, str, bytes, each also `| None`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.storage.counters import Counters

__all__ = ["run_jobs", "run_rows"]

Job = TypeVar("Job")
Receipt = TypeVar("Receipt")

_KINDS = {"int": pa.int64(), "str": pa.string(), "bytes": pa.binary()}


def run_jobs(
    engine: Engine[Any],
    jobs: Sequence[Job],
    work: Callable[[Iterator[Job], Counters], Iterator[Receipt]],
    receipt: type[Receipt],
    tasks: int | None = None,
) -> list[Receipt]:
    """What `work` yields, of every task; nothing runs where there are no jobs.

    `jobs`: values of one class. `work`: called once per task, with the task's jobs one by one;
    a top-level function or a `functools.partial` of one, which may be called twice for the same
    jobs. `receipt`: the class of what it yields. `tasks`: how many at most, a job each unless
    said; neighbours go to different ones. Raises what `work` raises.
    """
    if not jobs:
        return []
    kind = type(jobs[0])
    count = min(len(jobs), tasks or len(jobs))
    dealt = pa.array([place % count for place in range(len(jobs))], pa.int32())
    table = _rows(jobs, kind).append_column(TASK_COLUMN, dealt)
    spread = engine.exchange(engine.rows(table), TASK_COLUMN, count)
    task = partial(_work, work, kind, receipt)
    return _receipts(engine.run(spread, task, _schema(receipt)), receipt)


def run_rows(
    engine: Engine[Any],
    rows: Any,
    work: Callable[[Iterator[pa.RecordBatch], Counters], Iterator[Receipt]],
    receipt: type[Receipt],
) -> list[Receipt]:
    """What `work` yields of every partition of rows: the same for what is no list of jobs."""
    return _receipts(engine.run(rows, partial(_tell, work, receipt), _schema(receipt)), receipt)


def _receipts(told: pa.Table, receipt: type[Receipt]) -> list[Receipt]:
    """What was told, as values. Of what is long no two copies are held but of one batch."""
    batches = told.to_batches()[::-1]
    del told  # nobody else has it
    found: list[Receipt] = []
    while batches:
        found += _values(batches.pop(), receipt)
    return found


def _tell(
    work: Callable[[Iterator[pa.RecordBatch], Counters], Iterator[Any]],
    receipt: type[Any],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    for one in work(batches, counters):
        yield from _rows([one], receipt).to_batches()


def _work(
    work: Callable[[Iterator[Any], Counters], Iterator[Any]],
    kind: type[Any],
    receipt: type[Any],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Engine task: receipts, each sent as soon as it is there."""
    jobs = (job for batch in batches for job in _values(batch, kind))
    for one in work(jobs, counters):
        yield from _rows([one], receipt).to_batches()


_schemas: dict[type[Any], pa.Schema] = {}


def _schema(kind: type[Any]) -> pa.Schema:
    known = _schemas.get(kind)
    if known is None:
        words = {
            one.name: str(one.type).removesuffix(" | None") for one in dataclasses.fields(kind)
        }
        known = pa.schema({name: _KINDS[word] for name, word in words.items()})
        _schemas[kind] = known
    return known


def _rows(values: Sequence[Any], kind: type[Any]) -> pa.Table:
    names = _schema(kind).names
    held = [{name: getattr(one, name) for name in names} for one in values]
    return pa.Table.from_pylist(held, _schema(kind))


def _values(rows: pa.Table | pa.RecordBatch, kind: type[Receipt]) -> Iterator[Receipt]:
    names = [one.name for one in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return (kind(**row) for row in rows.select(names).to_pylist())
