"""The one way rows of a file slice are read, whole or as a stream.

They are those of the base file, with its logs merged in. Log files come with merge-on-read
tables; a slice that has some is refused, because without them its rows would be stale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.data.base_file import read_base_file, read_record_keys, stream_base_file
from metatable.data.schema_text import TableSchema
from metatable.data.slices import FileSlice
from metatable.storage.errors import UpgradeError
from metatable.storage.store import Store

__all__ = ["read_slice", "read_slice_keys", "stream_slice"]


def read_slice(
    store: Store, file_slice: FileSlice, schema: pa.Schema, columns: TableSchema | None
) -> pa.Table:
    """Exactly these columns (meta columns where named), in this order.

    `columns` are the table's, by whose ids its files are read; None where only meta columns are
    asked. Raises CorruptError, and UpgradeError for a slice with log files.
    """
    _refuse_logs(file_slice)
    return read_base_file(store, file_slice.base, schema, columns)


def stream_slice(
    store: Store, file_slice: FileSlice, schema: pa.Schema, columns: TableSchema | None
) -> Iterator[pa.Table]:
    """The same rows, in the same order, a few row groups at a time."""
    _refuse_logs(file_slice)
    return stream_base_file(store, file_slice.base, schema, columns)


def read_slice_keys(
    store: Store, file_slice: FileSlice, first: str | None = None, last: str | None = None
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Key text (string array) and row position of the rows that may lie in [first, last]."""
    _refuse_logs(file_slice)
    return read_record_keys(store, file_slice.base, first, last)


def _refuse_logs(file_slice: FileSlice) -> None:
    if file_slice.logs:
        what = "log files are not read by this version"
        raise UpgradeError(what, path=file_slice.base.path, found=list(file_slice.logs))
