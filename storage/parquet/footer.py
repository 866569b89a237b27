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

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["TAIL_BYTES", "damaged", "read_footer"]

TAIL_BYTES = 64 << 10
"""Read at first: most footers are shorter, and a request costs more than these bytes."""

_MAGIC = b"PAR1"
_END = struct.Struct("<I4s")


def read_footer(store: Store, path: str, size_bytes: int) -> pq.FileMetaData:
    """The footer of a file of this size. Raises CorruptError: missing, cut short, not Parquet."""
    raw = _footer_bytes(store, path, size_bytes)
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + raw))  # as if it were a file of its own
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error


def damaged(path: str, error: Exception) -> CorruptError:
    """What is raised where pyarrow finds the content of a footer to be nonsense."""
    return CorruptError("footer is not readable", path=path, found=str(error))


def _footer_bytes(store: Store, path: str, size_bytes: int) -> bytes:
    """From the Thrift bytes to the end of the file."""
    least = len(_MAGIC) + _END.size
    if size_bytes < least:
        what = "not a Parquet file: too short"
        raise CorruptError(what, path=path, expected=f"{least} bytes", found=f"{size_bytes} bytes")
    first = max(size_bytes - TAIL_BYTES, 0)
    [tail] = store.read(path, [(first, size_bytes - first)])
    length, magic = _END.unpack_from(tail, len(tail) - _END.size)
    if magic != _MAGIC:
        raise CorruptError("not a Parquet file", path=path, expected=_MAGIC, found=magic)
    start = size_bytes - _END.size - length
    if start < len(_MAGIC):
        what = "footer is longer than its file"
        raise CorruptError(what, path=path, expected=f"at most {size_bytes} bytes", found=length)
    if start >= first:
        return tail[start - first :]
    [head] = store.read(path, [(start, first - start)])
    return head + tail
