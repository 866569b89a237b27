"""Engine: where a pure function over Arrow batches runs, and how rows get to it.

Algorithms are plain top-level functions of the form `Task`; an engine only decides where
they run. `Rows` is the engine's own type (chained partitions of batches, or a DataFrame):
algorithms hand it on and never look inside. Everything but `run` is lazy and free of side
effects, because a task may be run twice (a retry, a speculative twin, a recomputed stage);
`run` is the only action, and the only place where a task may write.

Laws, held by tests/engine_contract.py for every engine:

    map       only the columns `inputs` reach the task; any number of rows comes out
    extend    one row out per row in, in order; the other columns pass by untouched; a task that
              wants rows `at_once` may get those of several partitions in one call
    pick      as `extend`, with the values at the places that the task answers, null for null
    find      a row out per answer; all answers of a row, of which each has one, come together
    exchange  partition p gets the rows with by == p; a list column sends copies
    attach    left join by value, null-safe; equal matches count once
    keep      computed once, read several times
    estimate  what the source of rows says of their size, or nothing
    is_stored whether rows are read as they lie in their source: as well asked for twice as kept
    few       all that is kept, or nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from metatable.storage.counters import Counters
from metatable.storage.store import Store

__all__ = ["TASK_COLUMN", "Engine", "Rows", "Task"]

Rows = TypeVar("Rows")

TASK_COLUMN = "_metatable_task"
"""By which rows are dealt to tasks, where nothing else says to which: `exchange` takes its name."""

Task = Callable[[Iterator[pa.RecordBatch], Counters], Iterator[pa.RecordBatch]]
"""A top-level function, or a `functools.partial` of one: it must pickle."""


class Engine(Protocol[Rows]):
    """One object serves one operation, so its counters are that operation's cost."""

    name: str
    """What results tell of where they were made."""

    @property
    def slots(self) -> int:
        """Tasks worth running at once."""
        ...

    counters: Counters
    """Sum over all tasks that have finished so far."""

    def scratch(self, store: Store) -> Store:
        """A place that all workers reach, for what one job hands to the next."""
        ...

    def rows(self, data: Any) -> Rows:
        """Adopt what the user gave; runs nothing. Raises UsageError for what is not rows."""
        ...

    def schema(self, rows: Rows) -> pa.Schema:
        """The columns that `rows` has, as Arrow types; runs nothing."""
        ...

    def map(self, rows: Rows, inputs: Sequence[str], task: Task, schema: pa.Schema) -> Rows: ...

    def extend(
        self,
        rows: Rows,
        inputs: Sequence[str],
        task: Task,
        fields: pa.Schema,
        *,
        at_once: bool = False,
    ) -> Rows: ...

    def pick(
        self,
        rows: Rows,
        inputs: Sequence[str],
        task: Callable[..., Iterator[pa.RecordBatch]],
        fields: pa.Schema,
        values: Callable[[int], pa.Array | None],
    ) -> Rows | None:
        """`extend` at once by one field, of a task that takes `values` as well (an array, what the
        function of them makes), and answers with int32 places in it. The function makes None where
        there are more than so many; None then, and where answers do not travel."""
        ...

    def find(self, rows: Rows, inputs: Sequence[str], task: Task, fields: pa.Schema) -> Rows | None:
        """`extend` at once, of a task whose answers name their rows (`by_row.ROW`, before the
        fields); None where too many tasks would each open the same files for it."""
        ...

    def exchange(self, rows: Rows, by: str, count: int) -> Rows: ...

    def attach(self, rows: Rows, matches: Rows, on: Sequence[str]) -> Rows: ...

    def select(self, rows: Rows, columns: Sequence[str]) -> Rows:
        """Only these columns, in this order."""
        ...

    def keep(self, rows: Rows) -> AbstractContextManager[Rows]: ...

    def estimate(self, rows: Rows) -> int | None:
        """About how large rows elsewhere are, if where they come from says so; runs nothing."""
        ...

    def is_stored(self, rows: Rows) -> bool:
        """Whether rows elsewhere are read as they lie in their source, and nothing more, so that
        to ask for them twice costs less than keeping them; runs nothing."""
        ...

    def few(self, rows: Rows, count: int, size_bytes: int) -> pa.Table | None:
        """Rows that it keeps, or that are stored, if they are elsewhere, at most `count`, and of
        so many bytes."""
        ...

    def run(self, rows: Rows, task: Task, schema: pa.Schema) -> pa.Table:
        """Run `task` over every partition; all columns reach it; small receipts come back."""
        ...
