"""Entries gone: the tombstones by which the index learns what an overwriting commit takes away.

Of a file they follow from its name. Of the keys that do not come back, where they have entries of
their own, from the files' key columns, which are read some files ahead (`slices_ahead`) and held
against the keys that come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FILE, FileSystemView, slices_of
from metatable.data.keys.key_texts import KEY, PATH, identity_columns
from metatable.data.reading.slices_ahead import slices_ahead
from metatable.data.rows.taking import whole
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.metadata.hfiles.entry_files import RUN_SCHEMA, Run, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView, read_columns
from metatable.metadata.written import every_stats_column
from metatable.storage.counters import Counters
from metatable.storage.portions import in_portions
from metatable.storage.store import Store
from metatable.write.overwrite import Overwritten
from metatable.write.plan import WritePlan

__all__ = ["entries_gone"]

FILES_TOGETHER = 1024
"""Slices of which one task makes the tombstones."""

KEYS_BYTES = 8 << 20
"""Keys that wait to become tombstones together."""

TASK_BYTES = 128 << 20
"""Data files whose keys one task reads."""

_SLICE = pa.schema([("files", pa.list_(FILE)), (TASK_COLUMN, pa.int32())])
_KEYS = pa.schema([(KEY, pa.string())])
_OLD_KEYS = pa.schema([(KEY, pa.string()), (PATH, pa.string())])
_COMES = pa.schema([("_metatable_comes", pa.bool_())])


def entries_gone(
    engine: Engine[Any],
    located: Any,
    gone: Overwritten,
    view: TableView,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
) -> list[Run]:
    """Runs of tombstones: of the files that leave, and of the keys that do not come back."""
    leaving, runs = gone.leaving(plan), []
    if len(leaving):
        columns = every_stats_column(view.table_schema, view.options)
        files = _dealt(engine, leaving, -(-len(leaving) // FILES_TOGETHER))
        work = partial(_retired, tuple(partitions), columns, scratch)
        runs += engine.run(files, work, RUN_SCHEMA).to_pylist()
    keyed = tuple(one for one in partitions if one.has_keys)
    if keyed and len(gone.files):
        old = _without(engine, _old_keys(engine, view, gone.files), located, view.options)
        work = partial(_departed, keyed, scratch)
        runs += engine.run(old, work, RUN_SCHEMA).to_pylist()
    return [Run(**one) for one in runs]


def _dealt(engine: Engine[Any], files: FileSystemView, tasks: int) -> Any:
    """The files of slices, dealt to so many tasks."""
    tasks = max(1, min(tasks, len(files)))
    places = pa.array(np.arange(len(files)) % tasks, pa.int32())
    table = pa.table([files.lists(), places], schema=_SLICE)
    return engine.exchange(engine.rows(table), TASK_COLUMN, tasks)


def _retired(
    partitions: Sequence[MetadataPartition],
    columns: Sequence[str],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: slices that leave with their groups in, runs of tombstones out."""
    scratch = scratch.counting(counters)
    for batch in batches:
        slices = slices_of(batch["files"])
        for one in partitions:
            yield from _run(scratch, one, one.retired(slices, columns))


def _old_keys(engine: Engine[Any], view: TableView, files: FileSystemView) -> Any:
    size_bytes = files.total_bytes
    spread = _dealt(engine, files, max(engine.slots, -(-size_bytes // TASK_BYTES)))
    return engine.map(spread, _SLICE.names[:1], partial(_keys_of, view), _OLD_KEYS)


def _keys_of(
    view: TableView, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the key texts of all rows of some slices."""
    view = view.counting(counters)
    read = read_columns(view, _KEYS)
    slices = chain.from_iterable(slices_of(batch["files"]) for batch in batches)
    for one, begin in slices_ahead(view.store, slices, read):
        for keys in chain.from_iterable(piece[KEY].chunks for piece in begin()):
            paths = pa.repeat(pa.scalar(one.partition_path, pa.string()), len(keys))
            yield pa.RecordBatch.from_arrays([keys, paths], schema=_OLD_KEYS)


def _without(engine: Engine[Any], old: Any, located: Any, options: Options) -> Any:
    """Old keys that do not come back."""
    on = identity_columns(options, [KEY, PATH])
    comes = engine.extend(engine.select(located, on), on[:1], _mark, _COMES)
    return engine.attach(old, comes, on)


def _mark(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.repeat(True, batch.num_rows)], schema=_COMES)


def _departed(
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: old keys in, runs of tombstones of those that do not come back out."""
    scratch = scratch.counting(counters)
    gone = (batch.filter(batch[_COMES.names[0]].is_null()).select([KEY, PATH]) for batch in batches)
    for held in in_portions(gone, lambda one: one.nbytes, KEYS_BYTES):
        yield from _departed_runs(scratch, partitions, held)


def _departed_runs(
    scratch: Store, partitions: Sequence[MetadataPartition], held: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    gone = pa.Table.from_batches(held, _OLD_KEYS)
    for one in partitions:
        yield from _run(scratch, one, one.departed(whole(gone[KEY]), whole(gone[PATH])))


def _run(
    scratch: Store, partition: MetadataPartition, entries: pa.Table
) -> Iterator[pa.RecordBatch]:
    if entries.num_rows:
        run = asdict(write_run(scratch, partition.name, entries))
        yield pa.RecordBatch.from_pylist([run], schema=RUN_SCHEMA)
