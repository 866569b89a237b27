"""Groups anew: the file groups that `repair` writes again, with the rows that are left of them.

A file of such a group is lost or damaged, or tells of its rows what is not so. The group gets one
base file in place of all, with the rows of those that can be read: none where none can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from metatable.compaction.checks.examined import Anew
from metatable.data.base_files.base_file_writer import write_base_file
from metatable.data.base_files.meta_columns import with_file_name
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import (
    DataFile,
    FileSlice,
    marker_path,
    partition_metadata,
    partition_metadata_path,
)
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.keys.key_texts import KEY
from metatable.data.reading.slice_reader import stream_left
from metatable.data.rows.row_counts import RowCounts
from metatable.data.rows.taking import whole
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import read_columns
from metatable.metadata.written import WrittenSlice, entries_of, stats_columns, stats_of_rows
from metatable.storage.store import Store

__all__ = ["written_anew"]

WRITE_TOKEN = "0-0-0"
"""In the names of these files, where Hudi's writers have the numbers of their tasks: one process
writes all."""


def written_anew(
    transaction: Transaction,
    groups: Sequence[Anew],
    partitions: Sequence[MetadataPartition],
    scratch: Store,
) -> tuple[list[WriteStat], list[Run]]:
    """Write a base file for each of these groups, by the commit that the transaction has begun.
    Returns what Hudi is told of the files, and runs of what the metadata partitions are told."""
    snapshot, instant = transaction.snapshot, transaction.instant
    places = [(one.file.partition_path, one.file.file_id) for one in groups]
    targets = [DataFile(path, file_id, WRITE_TOKEN, instant) for path, file_id in places]
    transaction.planned = tuple(file.path for file in targets)
    transaction.begin_files()
    written = [_write(snapshot, *told) for told in zip(groups, targets, strict=True)]
    stats = [
        WriteStat.of(new.made.base, one.file.instant, RowCounts(deleted=max(one.rows, 0)))
        for one, new in zip(groups, written, strict=True)
    ]
    made = entries_of(written, partitions)
    return stats, [write_run(scratch, name, held) for name, held in made if held.num_rows]


def _write(snapshot: Snapshot, group: Anew, file: DataFile) -> WrittenSlice:
    """Store the rows that are left of a group as this file."""
    store, columns, folder = snapshot.store, snapshot.table_schema, file.partition_path
    rows = with_file_name(_rows_left(snapshot, group), file.name)
    store.put(marker_path(file, file.instant, "MERGE"), b"")
    store.create(partition_metadata_path(folder), partition_metadata(file.instant, folder))
    size_bytes, _ = write_base_file(store, file, rows, options=snapshot.options, columns=columns)
    keys = whole(rows[KEY])
    return WrittenSlice(
        FileSlice(replace(file, size_bytes=size_bytes, row_count=rows.num_rows)),
        group.file if group.left else None,
        keys=keys,
        arrived=keys,
        stats=tuple(stats_of_rows(rows, stats_columns(columns, snapshot.options))),
        past_stats=columns.past_stats,
    )


def _rows_left(snapshot: Snapshot, anew: Anew) -> pa.Table:
    """The rows of the files of a group that can be read, with their meta columns."""
    schema = with_meta_columns(snapshot.schema)
    read = read_columns(snapshot, schema)
    rows = stream_left(snapshot.store, anew.left, read)
    return pa.concat_tables([schema.empty_table(), *rows])
