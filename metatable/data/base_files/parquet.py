"""Opening a data file as Parquet: counted, and every fault of the bytes told as damage.

Column chunks are fetched in few, joined requests (`pre_buffer`), so that reading the key
column alone stays cheap on an object store. Page checksums are verified where there are some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.footer import read_footer
from metatable.storage.parquet.sound_chunks import check_chunks
from metatable.storage.store import Store, StoreFile

__all__ = ["OpenedFile", "open_parquet"]


@contextmanager
def open_parquet(
    store: Store,
    data_file: DataFile,
    dictionaries: Sequence[str] = (),
    file: StoreFile | None = None,
) -> Iterator[OpenedFile]:
    """A `pyarrow.parquet.ParquetFile` over a stored file; counts `data.files_opened`. Columns of
    `dictionaries` (texts) come as they are stored, each value once. `file`: what to read it by.

    Faults of the bytes inside the block are raised as CorruptError: missing, truncated, not
    Parquet. A store that could not be read raises what it raises: that is no damage.
    """
    store.counters.add("data.files_opened")
    file = file or store.open(data_file.path, data_file.size_bytes or None)
    try:
        footer = read_footer(store, data_file.path, file.size())
        yield _opened(file, *footer, data_file, list(dictionaries))
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are no text
        if isinstance(error, OSError) and not _is_arrows_own(error):
            raise
        what = "data file is not readable"
        raise CorruptError(what, path=data_file.path, found=str(error)) from error


class OpenedFile(pq.ParquetFile):  # type: ignore[misc]
    """An open file that knows the bytes of its footer."""

    path = ""
    footer = b""

    def check_chunks(self, leaves: Iterable[int] | None = None) -> None:
        """Before its footer is asked for chunks of these leaves (None: of all). Raises
        CorruptError where pyarrow would end the process."""
        check_chunks(self.footer, self.metadata, self.path, leaves)


def _opened(
    file: Any,
    raw: bytes,
    metadata: pq.FileMetaData,
    data_file: DataFile,
    dictionaries: list[str],
) -> OpenedFile:
    try:
        made = OpenedFile(
            file,
            metadata=metadata,
            pre_buffer=True,
            page_checksum_verification=True,
            read_dictionary=dictionaries,
        )
    except KeyError as error:  # from here alone: the caller's block may have its own
        what = "data file lacks a column"
        raise CorruptError(what, path=data_file.path, expected=dictionaries) from error
    made.path, made.footer = data_file.path, raw
    return made


def _is_arrows_own(error: OSError) -> bool:
    """Arrow tells some damage as a bare OSError; one of the system has a number or a class."""
    return type(error) is OSError and error.errno is None
