"""Engine: runs pure functions over Arrow batches, in this process or on Spark, and brings rows to
them.

Algorithms are plain top-level functions of the form `Task`; an engine only decides where
they run. `Rows` is the engine's own type (chained partitions of batches, or a DataFrame):
algorithms hand it on and never look inside. Everything but `run` is lazy and free of side
effects, because a task may be run twice (a retry, a speculative twin, a recomputed stage);
`run` is the only action, and the only place where a task may write.

Laws, held by tests/engine_contract.py for every engine:

    map        only the columns `inputs` reach the task; any number of rows comes out
    extend     one row out per row in, in order; the other columns pass by untouched; a task that
               wants rows `at_once` may get those of several partitions in one call
    pick       as `extend`, with the values at the places that the task answers, null for null
    find       one row out per answer; each row has one answer or more, which come together
    exchange   partition p gets the rows with by == p; a list column sends copies
    attach     left join by value, null-safe; equal matches count once
    keep       computed once, read several times
    estimate   what the source of rows says of their size, or nothing
    is_stored  whether rows are read as they lie in their source: asking twice is as good as keeping
    few        all that is kept, or nothing
    held       what lies in this process's memory, or nothing
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
    """What `WriteResult.engine` says: "local" or "spark"."""

    in_process: bool
    """Whether tasks run in this process: what they are told costs nothing to send, and what it has
    claimed or holds in memory is theirs, too."""

    @property
    def speculates(self) -> bool:
        """Whether two attempts of a task may run at once: one goes on for a while when the other,
        and the run with it, has ended."""
        ...

    @property
    def slots(self) -> int:
        """How many tasks are worth running at once."""
        ...

    counters: Counters
    """Sum over all tasks that have finished so far."""

    def scratch(self, store: Store, owner: str = "") -> Store:
        """A place that all workers reach, for files that one job hands to the next. `owner`: who
        writes (`Owner.name`), for whoever cleans the table meanwhile."""
        ...

    def rows(self, data: Any) -> Rows:
        """The user's rows in the engine's own type; runs nothing. Raises UsageError for what is no
        rows."""
        ...

    def columns(self, rows: Rows) -> list[str]:
        """The names of the columns that `rows` has, of whatever type; runs nothing."""
        ...

    def schema(self, rows: Rows) -> pa.Schema:
        """The columns that `rows` has, as Arrow types; runs nothing. Raises UsageError for types
        that Arrow lacks."""
        ...

    def map(self, rows: Rows, inputs: Sequence[str], task: Task, schema: pa.Schema) -> Rows:
        """What `task` makes of the columns `inputs`: rows of this schema."""
        ...

    def extend(
        self,
        rows: Rows,
        inputs: Sequence[str],
        task: Task,
        fields: pa.Schema,
        *,
        at_once: bool = False,
    ) -> Rows:
        """`rows` with the columns `fields`, which `task` makes of the columns `inputs`."""
        ...

    def pick(
        self,
        rows: Rows,
        inputs: Sequence[str],
        task: Callable[..., Iterator[pa.RecordBatch]],
        fields: pa.Schema,
        values: Callable[[int], pa.Array | None],
    ) -> Rows | None:
        """`extend` at once by one field whose values are few. The task takes them as well, as the
        array that `values` makes, and answers with int32 places in it. `values` is told how many
        there may be, and makes None of more; then this is None, and so it is where an engine has
        no use for such answers."""
        ...

    def find(self, rows: Rows, inputs: Sequence[str], task: Task, fields: pa.Schema) -> Rows | None:
        """`extend` at once, with a task whose answers name their rows (`by_row.ROW`, before the
        fields); None where too many tasks would each open the same files for it."""
        ...

    def exchange(self, rows: Rows, by: str, count: int) -> Rows:
        """`rows` dealt to `count` partitions, by the partition's number in the column `by`."""
        ...

    def attach(self, rows: Rows, matches: Rows, on: Sequence[str]) -> Rows:
        """`rows` with the columns of `matches`, joined by the columns `on`."""
        ...

    def select(self, rows: Rows, columns: Sequence[str]) -> Rows:
        """Only these columns, in this order."""
        ...

    def keep(self, rows: Rows) -> AbstractContextManager[Rows]:
        """`rows`, computed once while the context lasts, however often they are read."""
        ...

    def estimate(self, rows: Rows) -> int | None:
        """About how many bytes rows that are elsewhere have, if their source says so; runs
        nothing."""
        ...

    def is_stored(self, rows: Rows) -> bool:
        """Whether rows that are elsewhere are read as they lie in their source, and nothing more,
        so that asking for them twice costs less than keeping them; runs nothing."""
        ...

    def held(self, rows: Rows) -> list[pa.RecordBatch] | None:
        """The batches of rows that are kept, if they all are in this process's memory; else
        None."""
        ...

    def few(self, rows: Rows, count: int, size_bytes: int) -> pa.Table | None:
        """All of these rows, if they are elsewhere, kept or stored, and at most `count` with no
        more than `size_bytes`; else None."""
        ...

    def to_table(self, rows: Rows) -> pa.Table:
        """All of these rows, here: of few, or where they were here before."""
        ...

    def run(self, rows: Rows, task: Task, schema: pa.Schema) -> pa.Table:
        """Run `task` over every partition. All columns reach it, and small receipts come back."""
        ...
