"""Made before: a base file that a plan names is there already, as another attempt has made it.

It is taken for made, unless it cannot be what this attempt is to make: it lacks a column that the
slices have which it was made of, or has one in a type that is not the table's, nor widened to it.
So are files that were made behind `alter`, where the table has gone back since. One of these is
put over: no version names it while the plan waits with the columns of now, for whoever made it
fails, the table having gone back, and whoever has these columns does not take it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from typing import IO

from metatable.data.base_files.base_file_writer import store_base_file
from metatable.data.base_files.hadoop_checksum import forget_checksum
from metatable.data.base_files.parquet import open_parquet
from metatable.data.columns.schema_text import TableSchema, walk
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.reading.slice_reader import columns_of_log
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store

__all__ = ["is_fit", "store_fit"]


def is_fit(view: Snapshot, made: DataFile, sources: Iterable[FileSlice]) -> bool:
    """Whether a stored file has all columns of the table that these slices have, of which it was
    made, and each as it can be read. Raises CorruptError."""
    stored = _columns_of_base(view.store, made)
    if not stored.by_id:
        return True
    if stored.misfit(view.table_schema):
        return False
    lacks = {one.id for _, one in walk(view.table_schema.columns)}.difference(stored.ids().values())
    return not lacks or not any(
        not held.by_id or lacks.intersection(held.ids().values())
        for one in sources
        for held in _columns_of_slice(view.store, one)
    )


def store_fit(
    view: Snapshot, sources: Iterable[FileSlice], store: Store, target: DataFile, body: IO[bytes]
) -> tuple[int, bool]:
    """`store_base_file`, but what is there and is not fit is put over. Raises ConflictError where
    the view is not of the newest columns any more: others may have published what is there."""
    size_bytes, ours = store_base_file(store, target, body)
    if ours or is_fit(view, target, sources):
        return size_bytes, ours
    _check_waits(view, target)
    forget_checksum(store, target.path)
    body.seek(0)
    with store.sink(target.path) as file:
        shutil.copyfileobj(body, file)
    return body.tell(), True


def _check_waits(view: Snapshot, target: DataFile) -> None:
    """What the plan is to make is named by no version while it waits."""
    newest = newest_of(view.store)
    ours, theirs = (TableSchema.decode(one.schema, one.path) for one in (view.manifest, newest))
    is_behind = newest.restored_at > view.version or ours != theirs
    if is_behind or target.instant not in newest.compactions:
        what = "the file is there, as another attempt has made it with other columns: retry"
        raise ConflictError(what, path=target.path)


def _columns_of_slice(store: Store, one: FileSlice) -> Iterator[StoredColumns]:
    for file in one.files:
        if isinstance(file, LogFile):
            yield from columns_of_log(store, file)
        else:
            yield _columns_of_base(store, file)


def _columns_of_base(store: Store, file: DataFile) -> StoredColumns:
    with open_parquet(store, file) as parquet:
        return StoredColumns.of(parquet, file.path)
