"""Entries of files that are there already: what a commit would have told of them.

A task reads slices one by one, far away those of a portion at once (`together_far`), each piece by
piece: the key column, and those columns of which statistics are kept that the footer does not tell.
What it has to tell goes to scratch in runs, as in a commit, before it is much. In memory are the
keys and a piece of a file, or of each file of a portion, and what has not been told yet.

Where another software wrote the files, all that our writers would go by is held against them
while they pass: columns of types that can be read as the table's (`files_columns.py`); keys,
partition paths, footers and the placement (`held_to_ours.py`); and no key twice in its scope
(`keys_twice.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from metatable.data.base_files.footer_statistics import of_footer
from metatable.data.base_files.parquet import open_parquet
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import FileSlice
from metatable.data.reading.slice_reader import stream_slice
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.metadata.hfiles.entry_files import NONE_RIDES, Run, read_run, write_run
from metatable.metadata.written import PassingRows, WrittenSlice, entries_of
from metatable.storage.counters import Counters
from metatable.storage.portions import together_far
from metatable.storage.store import Store
from metatable.write.files_columns import check_calendar, check_columns
from metatable.write.held_to_ours import check_footer, check_ids, check_rows
from metatable.write.keys_twice import IDENTITIES, hashed
from metatable.write.stored_files import (
    SliceJob,
    StoredFiles,
    size_of,
    slice_jobs,
    slices_of_jobs,
    task_count,
)

__all__ = ["passed_over", "runs_of"]

TOLD_BYTES = 32 << 20
"""Entries that a task holds before they go to scratch."""

PASSED_OVER = "passed over"
"""The run of fields that files have and the table has not, with their ids: no metadata partition
either."""


def runs_of(
    engine: Engine[Any], files: StoredFiles, scratch: Store, slices: Sequence[FileSlice]
) -> list[Run]:
    """The entries of these slices, and hashes of their keys where others have written them.

    Raises UpgradeError for files that are not as our writers would have written them.
    """
    tasks = task_count(engine, slices)
    work = partial(_entry_runs, files, scratch, tasks)
    return run_jobs(engine, slice_jobs(slices), work, Run, tasks)


def passed_over(scratch: Store, runs: Sequence[Run]) -> tuple[dict[str, int], list[Run]]:
    """(paths of what other writers' files have beside the columns, each with the greatest column
    id that it has in one, 0 where files tell none; the other runs)."""
    told: dict[str, int] = {}
    for run in runs:
        for batch in read_run(scratch, run) if run.partition == PASSED_OVER else ():
            _greatest(told, dict(zip(*batch.to_pydict().values(), strict=True)))
    return told, [run for run in runs if run.partition != PASSED_OVER]


def _greatest(told: dict[str, int], more: Mapping[str, int]) -> None:
    for path, number in more.items():
        told[path] = max(number, told.get(path, 0))


def _entry_runs(
    files: StoredFiles, scratch: Store, tasks: int, jobs: Iterator[SliceJob], counters: Counters
) -> Iterator[Run]:
    """Task, one of so many: runs of the entries of some slices."""
    files, scratch = files.counting(counters), scratch.counting(counters)
    entries: dict[str, list[pa.Table]] = {}
    others: dict[str, int] = {}
    size = 0
    read = partial(_read, files)
    for written, passed in together_far(files.store, read, slices_of_jobs(jobs), size_of):
        _greatest(others, passed)
        for name, told in entries_of([written], files.partitions):
            entries.setdefault(name, []).append(told)
            size += told.nbytes
        if files.foreign:
            hashes = hashed(files, written)
            entries.setdefault(IDENTITIES, []).append(hashes)
            size += hashes.nbytes
        if size > TOLD_BYTES:  # of a task's runs those ride that are told last
            yield from _runs(scratch, NONE_RIDES, entries)
            entries, size = {}, 0
    if others:
        columns = [pa.array([*others], pa.string()), pa.array([*others.values()], pa.int64())]
        entries[PASSED_OVER] = [pa.table(columns, names=["path", "id"])]
    yield from _runs(scratch, tasks, entries)


def _runs(scratch: Store, tasks: int, entries: dict[str, list[pa.Table]]) -> Iterator[Run]:
    for name, parts in entries.items():
        told = pa.concat_tables(parts)
        if told.num_rows:
            yield write_run(scratch, name, told, tasks)


def _read(files: StoredFiles, made: FileSlice) -> tuple[WrittenSlice, Mapping[str, int]]:
    """What there is to tell of a slice; and the fields that its file has beside the columns."""
    told, others = _footer_stats(files, made)
    known = {one.column for one in told}
    passing = {name: called for name, called in files.columns.items() if name not in known}
    asked = files.asked(passing)
    facts = PassingRows(passing)
    nothing = asked.empty_table()  # of a file without rows there are facts too
    read = ReadColumns(asked, files.table, files.options.ordering)
    for piece in facts.passing(chain([nothing], stream_slice(files.store, made, read))):
        check_rows(files, made, piece)
    keys, stats = facts.facts()
    if files.asks_footers and (files.foreign or made.logs):
        check_footer(files, made, keys)
    stats = (*stats, *told)
    return WrittenSlice(FileSlice(made.base), None, keys, keys, keys.slice(0, 0), stats), others


def _footer_stats(
    files: StoredFiles, made: FileSlice
) -> tuple[list[ColumnStats], Mapping[str, int]]:
    """What need not be read, of a file whose columns can be; and the fields that another writer's
    has beside them, with their ids."""
    others: dict[str, int] = {}
    if not (files.columns or files.foreign):
        return [], others
    with open_parquet(files.store, made.base) as parquet:
        footer, held = parquet.metadata, parquet.schema_arrow
        if files.foreign:
            check_calendar(footer, made.path)
            check_columns(files.schema, held, made.path)
            stored = StoredColumns.of(parquet, made.path)
            check_ids(files, made, stored)
            known = files.table.ids()
            others = {path: one for path, one in stored.ids().items() if path not in known}
        wanted = pa.schema([one for one in files.schema if one.name in files.columns])
        parquet.check_chunks()
        return of_footer(footer, held, wanted), others
