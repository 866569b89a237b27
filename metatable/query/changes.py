"""Changes: the rows that differ between two versions, and how they differ: inserted, updated or
deleted. It is Hudi's incremental pull, with deletes.

Only file groups whose slice is another one are looked at, by tasks (`changed_rows.py`). Within a
group rows are paired by record key, and a row has changed if Hudi's meta column names another
commit for it: so it does not matter in which order commits were published, nor whether some were
undone between. What has left a group and what has come to one are paired in a second step, for a
row may have moved, or been deleted and inserted again:

    files ── compared, group by group ──> rows of one group that differ
          ── exchanged by key, settled ──> insert, update, delete

A service such as `cluster` gives all rows to other groups and changes none. So where groups have
gone and others have come, their rows are settled first by what tells them apart, and only those
that are left are read whole:

    groups of one version alone ── keys and commits, exchanged by key, settled ──> rows that differ
                                ── exchanged by group, read ──> as above

The answer is net: of a row that was changed twice the last state counts, and one that came and
went between the versions is not told. Rows come in no particular order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.metadata.view import TableView
from metatable.query.changed_rows import (
    CHANGE_TYPE,
    GROUP,
    IDENTITY,
    ROW,
    TOLD,
    compared,
    pairs_left,
    pairs_of,
    settled,
    with_rows_alone,
)
from metatable.query.later import later
from metatable.query.rows import Rows, chosen_columns, spark_session
from metatable.storage.errors import UsageError

__all__ = ["Changes"]

PART_BYTES = 32 << 20
"""Bytes of data files per task, and per partition of what differs; in memory it is some times as
much."""


class Changes(Rows):
    """What was inserted, updated and deleted between two versions, in the column `_change_type`.

    Inserted and updated rows are as they are in the later version, deleted ones as they were in the
    earlier one. `before`: None for a table without rows. `columns`: those of the table, and Hudi's
    meta columns. Files are read when rows are asked for. In memory are, for each task at work, the
    rows of a file group that differ and all its keys; what is exchanged goes to disk beyond the
    engine's bound. Raises UsageError for columns that are not there, and where the table has a
    column named `_change_type` itself.
    """

    def __init__(
        self,
        before: TableView | None,
        after: TableView,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._before, self._after = before, after
        if CHANGE_TYPE in after.schema.names:
            raise UsageError("the table has a column of this name", column=CHANGE_TYPE)
        self._wanted = chosen_columns(after.schema, columns)

    @property
    def since(self) -> int:
        """The number of the earlier version; 0 for none."""
        return 0 if self._before is None else self._before.version

    @property
    def until(self) -> int:
        """The number of the later version: where the next pull begins."""
        return self._after.version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, in order, and `_change_type` as the last one."""
        return pa.schema([*self._wanted, pa.field(CHANGE_TYPE, pa.string(), nullable=False)])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time. Raises StaleError where files of a version are gone,
        CorruptError where they are damaged.
        """
        engine = LocalEngine()
        earlier = self._after if self._before is None else self._before
        try:
            with earlier.reading(), self._after.reading():
                for batch in engine.stream(self._on(engine, self._wanted)):
                    yield batch.cast(self.schema)
        finally:
            self._after.store.counters.merge(engine.counters)

    def to_spark(self, session: Any) -> Any:
        """The rows as a lazy DataFrame of this Spark session; its Python workers read the files,
        with the table's own credentials. Raises UsageError for a type that Spark lacks."""
        session = spark_session(session)
        from metatable.spark.engine import SparkEngine  # noqa: PLC0415  (first use of Spark)
        from metatable.spark.types import readable  # noqa: PLC0415

        engine = SparkEngine(session)
        earlier = self._after if self._before is None else self._before
        with earlier.reading(), self._after.reading():
            reading = later(later(engine, self._after), earlier)
            return self._on(reading, readable(self._wanted))

    def __repr__(self) -> str:
        told = [repr(self._after.store.uri), f"since={self.since}", f"until={self.until}"]
        return f"Changes({', '.join(told)}, columns={self._wanted.names})"

    def _on(self, engine: Engine[Any], wanted: pa.Schema) -> Any:
        """The engine's rows; lazy."""
        groups, parts = self._groups(engine.slots)
        held = {field.name: field for field in (*IDENTITY, *wanted)}
        read = pa.schema([*held.values()])
        made = pa.schema([*read, (CHANGE_TYPE, pa.string()), (TASK_COLUMN, pa.int32())])
        settle = partial(settled, self._after.options.is_global)
        rows, asked = engine.exchange(engine.rows(groups), TASK_COLUMN, parts), pairs_of
        if groups["before"].null_count and groups["after"].null_count:
            tell = partial(with_rows_alone, self._after, parts)
            rows = engine.map(rows, [*GROUP.names, TASK_COLUMN], tell, TOLD)
            rows = engine.map(engine.exchange(rows, TASK_COLUMN, parts), TOLD.names, settle, TOLD)
            rows, asked = engine.exchange(engine.select(rows, ROW.names), "of", parts), pairs_left
        compare = partial(compared, self._after, read, parts, asked)
        rows = engine.map(rows, engine.columns(rows), compare, made)
        if groups["before"].null_count < len(groups):  # else nothing has left a group
            rows = engine.map(engine.exchange(rows, TASK_COLUMN, parts), made.names, settle, made)
        return engine.select(rows, [*wanted.names, CHANGE_TYPE])

    def _groups(self, slots: int) -> tuple[pa.Table, int]:
        """The file groups whose slices differ, dealt to tasks; and how many tasks."""
        after = self._after.slices()
        before = after.take(np.zeros(0, np.int64))
        if self._before is not None:
            before = self._before.slices()
        gone, come = _not_in(before, after), _not_in(after, before)
        slices = {(one.partition_path, one.file_id): [one.encode(), None] for one in gone}
        for one in come:
            slices.setdefault((one.partition_path, one.file_id), [None, None])[1] = one.encode()
        size_bytes = gone.total_bytes + come.total_bytes
        parts = max(slots, -(-size_bytes // PART_BYTES))
        numbers = np.arange(len(slices), dtype=np.int32)
        columns = [*zip(*slices.values(), strict=True)] or [(), ()]
        groups = pa.table([*map(list, columns), numbers], schema=GROUP)
        return groups.append_column(TASK_COLUMN, pa.array(numbers % parts, pa.int32())), parts


def _not_in(some: FileSystemView, others: FileSystemView) -> FileSystemView:
    """Those slices of one version that another one has not, to the last file."""
    known = pc.is_in(some.contents(), value_set=others.contents())
    return some.take(np.flatnonzero(~known.to_numpy(zero_copy_only=False)))
