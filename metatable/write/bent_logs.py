"""Bent logs: what a change of columns makes of logs of before, for Hudi's readers.

They take a column from logs as it is now, or refuse the table: so where a type changes
(`bends_logs`) all file groups with logs are bent, and where a column comes beside nested ones
(`bends_lone_logs`) those whose logs have no base file. Whoever changes columns writes these groups
anew, or gives up.
"""

from __future__ import annotations

import numpy as np

from metatable.data.file_system_view import FileSystemView
from metatable.data.schema_changes import bends_logs, bends_lone_logs
from metatable.data.schema_text import TableSchema
from metatable.metadata.snapshot import Snapshot

__all__ = ["bent_slices"]


def bent_slices(base: Snapshot, columns: TableSchema) -> FileSystemView | None:
    """Slices of which Hudi's readers could not read the logs as these columns; None where whatever
    comes meanwhile could not be such a one either."""
    before, options = base.table_schema, base.options
    if bends_logs(before, columns, options):
        files = base.slices()
        return files.take(np.flatnonzero(files.has_logs))
    if bends_lone_logs(before, columns, options):
        files = base.slices()
        if options.opens_by_logs or files.alone.any():
            return files.take(np.flatnonzero(files.alone))
    return None
