"""Alter: a commit that changes the table's columns.

Nothing but the schema of the next version changes, as a rule: files are read by the ids of their
columns (`data/columns/stored_columns.py`). It is a data commit without files, so that Hudi's
readers are told the new columns, and a rollback, a restore, a savepoint know it as any other.

Where Hudi's readers would find the wrong column, or none, under a name (`needs_rewriting`), every
file is written anew in the same commit, a file group at a time, as any copy-on-write is; rows keep
their keys, their places and their commits. Where logs of before are all that they would not read
(`bent_logs.py`), these file groups are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema_changes import ColumnChange, changed, needs_rewriting
from metatable.data.columns.schema_past import rewritten
from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.hoodie.operations import ALTER
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index import create_index
from metatable.metadata.commits.change import Change, Requirement
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import (
    NoneLater,
    OptionsAreBase,
    RowsUnchanged,
    SchemaIsBase,
)
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import SetSchema
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import WriteResult
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write.attempts import attempts
from metatable.write.bent_logs import bent_slices
from metatable.write.late_logs import CarryOut, check_none_is_late
from metatable.write.planning import rewriting
from metatable.write.routes import SOURCE_COLUMN
from metatable.write.written_files import Written, written_groups

__all__ = ["alter"]

_EMPTY_TASKS = pa.schema(
    [
        pa.field(KEY, pa.string()),
        pa.field(PATH, pa.string()),
        pa.field(TASK_COLUMN, pa.int32()),
        pa.field(SOURCE_COLUMN, pa.int32()),
    ]
)


def alter(
    store: Store,
    engine: Engine[Any],
    changes: Sequence[ColumnChange],
    note: Mapping[str, str],
    carry_out: CarryOut | None = None,
) -> WriteResult:
    """All of these changes in one version; none where they change nothing. `carry_out`: as
    `attempts` takes it.

    Raises UsageError for what cannot be, ConflictError after lost races.
    """
    began = time.perf_counter()
    if not changes:
        raise UsageError("alter what?", expected="AddColumn, RenameColumn, …")
    counting = store.counting(engine.counters)
    newest = newest_of(counting)

    def attempt(number: int) -> WriteResult:
        with Transaction.begin(counting.holding()) as transaction:
            return _altered(engine, transaction, changes, note, number, began)

    return attempts(ALTER, newest.options.commit_retries, attempt, carry_out)


def _altered(
    engine: Engine[Any],
    transaction: Transaction,
    changes: Sequence[ColumnChange],
    note: Mapping[str, str],
    attempt: int,
    began: float,
) -> WriteResult:
    base = transaction.snapshot
    columns = changed(base.table_schema, changes, base.options)
    version, stats = base.version, tuple[WriteStat, ...]()
    if columns != base.table_schema:
        version, stats = _published(engine, transaction, columns, note)
    return WriteResult(
        **asdict(RowCounts()),
        operation=ALTER,
        version=version,
        instant=transaction.instant or None,
        files=len(stats),
        bytes=sum(one.size_bytes for one in stats),
        attempts=attempt,
        seconds=time.perf_counter() - began,
        engine=engine.name,
        counters=dict(engine.counters),
    )


def _published(
    engine: Engine[Any], transaction: Transaction, columns: TableSchema, note: Mapping[str, str]
) -> tuple[int, tuple[WriteStat, ...]]:
    """(version, what was told of the files that were written)."""
    base = transaction.snapshot
    instant = transaction.start()
    requires: tuple[Requirement, ...] = (SchemaIsBase(), OptionsAreBase(), NoneLater(instant))
    written = Written((), (), engine.scratch(transaction.store), {})
    every = needs_rewriting(columns, base.options)
    slices = base.slices() if every else bent_slices(base, columns)
    if slices is not None:
        requires = (*requires, RowsUnchanged())  # or there would be more to write anew
    if slices is not None and (every or len(slices)):
        anew = base.with_columns(columns.encode())
        written = _rewritten(engine, transaction, anew, slices, instant)
    else:
        transaction.begin_files()
    columns = rewritten(columns) if every else columns
    snapshot = base.with_columns(columns.encode())
    change = Change(
        operation=ALTER,
        instant=instant,
        requires=requires,
        updates=(AddFiles(written.adds), SetSchema(columns.encode())),
    )
    version = written.published(transaction, snapshot, change, RowCounts(), note)
    return version, written.stats


def _rewritten(
    engine: Engine[Any],
    transaction: Transaction,
    snapshot: Snapshot,
    slices: Sequence[FileSlice],
    instant: str,
) -> Written:
    """These file groups written anew, with the columns of `snapshot`. Raises ConflictError before
    anything is written where one cannot be yet."""
    every = [*slices]
    for one in every:
        check_none_is_late(snapshot.options, one)
    plan = rewriting(every, instant, engine.slots)
    tasks = range(plan.tasks)
    empty = [["" for _ in tasks], ["" for _ in tasks], [*tasks], [-1 for _ in tasks]]
    columns = [pa.array(one, field.type) for one, field in zip(empty, _EMPTY_TASKS, strict=True)]
    rows = engine.rows(pa.table(columns, schema=_EMPTY_TASKS))
    spread = engine.exchange(rows, TASK_COLUMN, plan.tasks)
    index = create_index(snapshot.options)
    return written_groups(engine, transaction, snapshot, index, plan, spread)
