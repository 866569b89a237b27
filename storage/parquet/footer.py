"""Footers: what a Parquet file says of itself, read without the rest of the file.

    offset         size  field
    end - 8 - n       n  FileMetaData (Thrift)
    end - 8           4  n, unsigned, little-endian
    end - 4           4  b"PAR1"

One ranged read of the file's tail; a second one for what a footer longer than `TAIL_BYTES` has
before it. A footer has no checksum of its own. Encrypted ones (b"PARE") are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = [
    "END_BYTES",
    "MAGIC",
    "TAIL_BYTES",
    "Read",
    "ToldChunk",
    "damaged",
    "footer_bytes",
    "footer_ends",
    "read_footer",
    "understood",
    "whole_footer",
]

MAGIC = b"PAR1"
"""A file's first four bytes, and its last ones."""

Read = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""The bytes of each (offset, size) of one file."""

TAIL_BYTES = 64 << 10
"""Read at first: most footers are shorter, and a request costs more than these bytes."""

_END = struct.Struct("<I4s")

END_BYTES = _END.size
"""Behind the Thrift bytes."""


def read_footer(store: Store, path: str, size_bytes: int) -> tuple[bytes, pq.FileMetaData]:
    """The footer of a file of this size: its bytes, and what pyarrow makes of them. Raises
    CorruptError: missing, cut short, not Parquet."""
    raw = footer_bytes(partial(store.read, path), path, size_bytes)
    return raw, understood(raw, path)


def understood(raw: bytes, path: str) -> pq.FileMetaData:
    """What pyarrow makes of a footer, which ends with the file. Raises CorruptError."""
    try:
        return pq.read_metadata(pa.BufferReader(MAGIC + raw))  # as if it were a file of its own
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error


@dataclass(frozen=True, slots=True)
class ToldChunk:
    """A column chunk, and the column that it is of, as a footer tells them."""

    chunk: pq.ColumnChunkMetaData
    column: pq.ColumnSchema

    @classmethod
    def of(cls, footer: pq.FileMetaData, group: int, leaf: int) -> ToldChunk:
        """The chunk of a leaf column in a row group, by their numbers."""
        return cls(footer.row_group(group).column(leaf), footer.schema.column(leaf))

    @property
    def statistics(self) -> pq.Statistics | None:
        """What is told of its values. None: nothing, or it tells of another type than the schema
        does, by which pyarrow would end the process."""
        is_of_schema = self.chunk.physical_type == self.column.physical_type
        return self.chunk.statistics if is_of_schema else None

    @property
    def num_values(self) -> int:
        """How many there are, nulls included."""
        return int(self.chunk.num_values)


def damaged(path: str, error: Exception) -> CorruptError:
    """What is raised where pyarrow finds the content of a footer to be nonsense."""
    return CorruptError("footer is not readable", path=path, found=str(error))


def whole_footer(thrift: bytes) -> bytes:
    """These bytes of Thrift, and what a file ends with behind them."""
    return thrift + _END.pack(len(thrift), MAGIC)


def footer_bytes(read: Read, path: str, size_bytes: int) -> bytes:
    """From the Thrift bytes to the end of the file. Raises CorruptError."""
    return footer_ends(read, path, size_bytes, size_bytes)[1]


def footer_ends(read: Read, path: str, size_bytes: int, most: int) -> tuple[int, bytes, bytes]:
    """(where the footer begins; all up to the end of the file, and nothing; or, of a long footer,
    so many of its first bytes and the file's last TAIL_BYTES). Raises CorruptError."""
    least = len(MAGIC) + _END.size
    if size_bytes < least:
        what = "not a Parquet file: too short"
        raise CorruptError(what, path=path, expected=f"{least} bytes", found=f"{size_bytes} bytes")
    first = max(size_bytes - TAIL_BYTES, 0)
    [tail] = read([(first, size_bytes - first)])
    length, magic = _END.unpack_from(tail, len(tail) - _END.size)
    if magic != MAGIC:
        raise CorruptError("not a Parquet file", path=path, expected=MAGIC, found=magic)
    start = size_bytes - _END.size - length
    if start < len(MAGIC):
        what = "footer is longer than its file"
        raise CorruptError(what, path=path, expected=f"at most {size_bytes} bytes", found=length)
    if start >= first:
        return start, tail[start - first :], b""
    [head] = read([(start, min(first - start, most))])
    return (start, head, tail) if len(head) < first - start else (start, head + tail, b"")
