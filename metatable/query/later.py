"""An engine whose tasks run later than the call that plans them: their version may be gone then.

What a call reads itself it reads in `TableView.reading`, so that a file which went with its version
is no damage. Tasks of a plan that is handed out read theirs in it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.engine.protocol import Engine, Task
from metatable.engine.shared_store import check_shared
from metatable.metadata.view import TableView
from metatable.storage.counters import Counters

__all__ = ["later"]


def later(engine: Engine[Any], view: TableView) -> Any:
    """The engine for a plan that reads this view; one of this process as it is, for it is asked
    within the call. Raises UsageError where its tasks would not see the table."""
    if engine.in_process:
        return engine
    check_shared(view.store)
    return _Later(engine, view)


class _Later:
    """Its tasks raise StaleError where files have gone with their version; all else is the
    engine's."""

    def __init__(self, engine: Engine[Any], view: TableView) -> None:
        self._engine, self._view = engine, view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def map(self, rows: Any, inputs: Sequence[str], task: Task, schema: pa.Schema) -> Any:
        return self._engine.map(rows, inputs, self._reading(task), schema)

    def extend(
        self, rows: Any, inputs: Sequence[str], task: Task, fields: pa.Schema, **how: Any
    ) -> Any:
        return self._engine.extend(rows, inputs, self._reading(task), fields, **how)

    def find(self, rows: Any, inputs: Sequence[str], task: Task, fields: pa.Schema) -> Any:
        return self._engine.find(rows, inputs, self._reading(task), fields)

    def pick(
        self,
        rows: Any,
        inputs: Sequence[str],
        task: Callable[..., Iterator[pa.RecordBatch]],
        fields: pa.Schema,
        values: Callable[[int], pa.Array | None],
    ) -> Any:
        return self._engine.pick(rows, inputs, self._reading(task), fields, values)

    def _reading(self, task: Callable[..., Iterator[pa.RecordBatch]]) -> Any:
        return partial(_read, self._view, task)


def _read(
    view: TableView,
    task: Callable[..., Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    **more: Any,
) -> Iterator[pa.RecordBatch]:
    """Task: what `task` makes."""
    with view.reading():
        yield from task(batches, counters, **more)
