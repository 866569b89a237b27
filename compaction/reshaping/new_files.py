"""What services that write data files share: a base file, which a second attempt adopts
(`made_before.py`), and the receipts of tasks that write some."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from metatable.compaction.reshaping.made_before import is_fit, store_fit
from metatable.data.base_files.base_file_writer import columns_with_nan, stream_to_base_file
from metatable.data.base_files.meta_columns import with_file_name
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat
from metatable.data.keys.key_texts import KEY
from metatable.engine.protocol import Engine
from metatable.metadata.commits.steps import staged
from metatable.metadata.hfiles.entry_files import Run, RunReceipt, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Step
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.metadata.written import (
    PassingRows,
    WrittenSlice,
    entries_of,
    facts_of_stored,
    stats_columns,
)
from metatable.storage.store import Store

__all__ = [
    "NewBase",
    "Receipt",
    "adopted",
    "entry_receipts",
    "file_receipt",
    "new_base",
    "rows_to_store",
    "sorted_out",
    "staged_commit",
    "tasks_for",
]

TASK_BYTES = 64 << 20
"""Bytes of slices that one task is given, where there are many; a larger one is alone."""

READ_ONCE_BYTES = 16 << 20
"""Bytes of stored files that are read once. More is read twice, piece by piece: in memory it is
several times as much."""


def tasks_for(
    engine: Engine[Any], store: Store, size_bytes: int, task_bytes: int = TASK_BYTES
) -> int:
    """How many tasks at most read slices of so many bytes, to write them anew. Far away a task has
    some of them under way at once, so it is given more of them."""
    return max(engine.slots * (1 if store.is_distant else 4), size_bytes // task_bytes)


@dataclass(frozen=True, slots=True)
class NewBase:
    """A base file that is stored, alone, and what its rows tell."""

    made: FileSlice
    keys: pa.Array
    stats: tuple[ColumnStats, ...]


def new_base(
    view: Snapshot,
    target: DataFile,
    rows: Iterator[pa.Table],
    with_nan: Collection[str],
    sources: Sequence[FileSlice] = (),
) -> NewBase:
    """Store these rows, with their meta columns. What another attempt has stored under the name is
    taken for them, if it is fit. `with_nan`: as in `stream_to_base_file`; `sources`: the slices
    that a plan has made the name for, of which the rows are."""
    first = [*islice(rows, 1)] or [with_meta_columns(view.schema).empty_table()]
    passing = PassingRows(stats_columns(view.table_schema, view.options))
    size_bytes, ours = stream_to_base_file(
        view.store,
        target,
        passing.passing(with_file_name(one, target.name) for one in chain(first, rows)),
        options=view.options,
        columns=view.table_schema,
        with_nan=with_nan,
        store_as=partial(store_fit, view, sources),
    )
    target = replace(target, size_bytes=size_bytes)
    return _counted(target, *passing.facts()) if ours else _stored_base(view, target)


def rows_to_store(
    schema: pa.Schema, read: Callable[[pa.Schema], Iterator[pa.Table]], size_bytes: int
) -> tuple[Iterator[pa.Table], set[str]]:
    """What `read` gives of so many bytes of files, and `with_nan` of it, for `new_base`."""
    if size_bytes <= READ_ONCE_BYTES:
        rows = pa.concat_tables([schema.empty_table(), *read(schema)])
        return iter([rows] if rows.num_rows else []), {*columns_with_nan(rows)}
    floats = [one for one in schema if pa.types.is_floating(one.type)]
    pieces = read(pa.schema([schema.field(KEY), *floats])) if floats else iter([])
    return read(schema), {name for piece in pieces for name in columns_with_nan(piece)}


def adopted(view: Snapshot, target: DataFile, sources: Sequence[FileSlice]) -> NewBase | None:
    """What another attempt has stored under a name that a plan tells; None where it is not there,
    or not fit: `new_base` makes it. `sources` as there."""
    size_bytes = view.store.size(target.path)
    there = replace(target, size_bytes=size_bytes or 0)
    if size_bytes is None or not is_fit(view, there, sources):
        return None
    return _stored_base(view, there)


def _stored_base(view: TableView, target: DataFile) -> NewBase:
    """A base file that another attempt has stored, of which the facts are read back."""
    columns = stats_columns(view.table_schema, view.options)
    facts = facts_of_stored(view.store, FileSlice(target), columns, view.table_schema)
    return _counted(target, *facts)


def _counted(target: DataFile, keys: pa.Array, stats: tuple[ColumnStats, ...]) -> NewBase:
    return NewBase(FileSlice(replace(target, row_count=len(keys))), keys, stats)


@dataclass(frozen=True, slots=True)
class Receipt(RunReceipt):
    """A file that was written (JSON of its stat), or a run of entries."""

    stat: str | None = None


def file_receipt(stat: WriteStat) -> Receipt:
    """The receipt of a file that was written."""
    return Receipt(json.dumps(asdict(stat)))


def entry_receipts(
    written: Sequence[WrittenSlice],
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    times: int,
) -> Iterator[Receipt]:
    """Receipts of the runs of what these slices add and take. `times`: how often all tasks together
    call this, at most."""
    for name, entries in entries_of(written, partitions):
        if entries.num_rows:
            yield Receipt(**asdict(write_run(scratch, name, entries, times)))


def sorted_out(told: Sequence[Receipt]) -> tuple[tuple[WriteStat, ...], tuple[Run, ...]]:
    """The files of these receipts, by path, and the runs of entries."""
    stats = [WriteStat(**json.loads(one.stat)) for one in told if one.stat is not None]
    runs = tuple(one.run for one in told if one.run is not None)
    return tuple(sorted(stats, key=lambda one: one.path)), runs


def staged_commit(
    view: TableView,
    operation: str,
    instant: str,
    stats: Sequence[WriteStat],
    action: str,
    replaced: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Step, dict[str, bytes]]:
    """What Hudi is told of a service's commit: the step that completes it on the timeline, and the
    file that is staged for it. `replaced`: ids of the groups that leave, by partition path."""
    name = view.options.name
    commit = CommitMetadata.of_ours(operation, stats, {}, view.schema, name, replaced)
    return staged(instant, commit.encode(), action)
