"""The one way rows of a file slice are read: the base file, with its logs merged in.

Log files come with merge-on-read tables; a slice that has some is refused, because without
them its rows would be stale.
"""

from __future__ import annotations

import pyarrow as pa

from metatable.data.base_file import read_base_file
from metatable.data.slices import FileSlice
from metatable.storage.errors import UpgradeError
from metatable.storage.store import Store

__all__ = ["read_slice"]


def read_slice(store: Store, file_slice: FileSlice, schema: pa.Schema) -> pa.Table:
    """Exactly these columns (meta columns where named), in this order.

    Raises CorruptError, and UpgradeError for a slice with log files.
    """
    if file_slice.logs:
        what = "log files are not read by this version"
        raise UpgradeError(what, path=file_slice.base.path, found=list(file_slice.logs))
    return read_base_file(store, file_slice.base, schema)
