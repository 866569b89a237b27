"""Bent logs: what a change of columns makes of logs of before, for Hudi's readers.

They take a column from logs as it is now, or refuse the table: so where a type changes all file
groups with logs are bent, and where a column comes beside nested ones those whose logs may hold
rows that no base file does. Whoever changes columns writes these groups anew, or gives up.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.index import create_index
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = ["bent_slices"]


def bent_slices(base: Snapshot, columns: TableSchema) -> FileSystemView | None:
    """Slices of which Hudi's readers could not read the logs as these columns; None where whatever
    comes meanwhile could not be such a one either."""
    before, options = base.table_schema, base.options
    if not (options.hudi_readable and options.has_logs):
        return None
    if _retypes(before, columns) or (_adds_beside_nested(before, columns) and _takes_rows(base)):
        files = base.slices()
        return files.take(np.flatnonzero(files.has_logs))
    return None


def _takes_rows(base: Snapshot) -> bool:
    """Whether logs may hold new rows: the index, or one of before, finds them there, or another
    writer's did."""
    manifest = base.manifest
    by_index = create_index(base.options).indexes_logs
    return by_index or bool(manifest.restored_at or manifest.adopted)


def _retypes(before: TableSchema, after: TableSchema) -> bool:
    """Whether a column that stays has another type, or what lies in it has."""
    then = {one.id: one.type for one in before.columns}
    return any(then.get(one.id, one.type) != one.type for one in after.columns)


def _adds_beside_nested(before: TableSchema, after: TableSchema) -> bool:
    then = {one.id for one in before.columns}
    comes = any(one.id not in then for one in after.columns)
    return comes and any(pa.types.is_nested(one.type) for one in before.columns)
