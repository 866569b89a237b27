"""Opening a data file as Parquet: counted, and every failure told as damage.

Column chunks are fetched in few, joined requests (`pre_buffer`), so that reading the key
column alone stays cheap on an object store. Page checksums are verified where there are some.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.slices import DataFile
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["open_parquet"]


@contextmanager
def open_parquet(store: Store, data_file: DataFile) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile` over a stored file; counts `data.files_opened`.

    What goes wrong inside the block is raised as CorruptError: missing, truncated, not Parquet.
    """
    store.counters.add("data.files_opened")
    file = store.open(data_file.path, data_file.size_bytes or None)
    try:
        yield pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        what = "data file is not readable"
        raise CorruptError(what, path=data_file.path, found=str(error)) from error
