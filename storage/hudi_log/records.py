"""Records: the content of an Avro data block, one datum a row.

size  field          (integers big-endian, signed)
   4  content_version  3
   4  count            records
 var  records          for each: i32 size, datum of the schema in the block's header
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import byte_layout, from_gaps
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import LogBlock

__all__ = ["CONTENT_VERSION", "decode_datums", "encode_datums"]

CONTENT_VERSION = 3
_HEAD = struct.Struct(">ii")
_SIZE = struct.Struct(">i")


def encode_datums(datums: pa.Array) -> bytes:
    """The content for a `pa.binary()` column without nulls."""
    offsets, _ = byte_layout(datums)
    sizes = np.ascontiguousarray(np.diff(offsets), ">i4")
    told = pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    joined = pc.binary_join_element_wise(
        told.cast(pa.binary()), datums, pa.scalar(b"", pa.binary())
    )
    offsets, data = byte_layout(joined)
    body = data[offsets[0] : offsets[-1]]
    return b"".join((_HEAD.pack(CONTENT_VERSION, len(datums)), body.data))


def decode_datums(block: LogBlock) -> pa.Array:
    """The datums of a block as `pa.binary()`. Raises CorruptError, UpgradeError."""
    content = memoryview(block.content)
    if len(content) < _HEAD.size:
        raise _wrong(block, "records have no head", _HEAD.size, len(content))
    version, count = _HEAD.unpack_from(content)
    if version != CONTENT_VERSION:
        raise UpgradeError(
            "unknown version of a log block's records",
            path=block.path,
            offset=block.offset,
            expected=CONTENT_VERSION,
            found=version,
        )
    if not 0 <= count <= (len(content) - _HEAD.size) // _SIZE.size:
        raise _wrong(block, "impossible number of records", f"bytes of {count}", len(content))
    ends = _ends(block, content, count)
    starts = np.concatenate([[_HEAD.size], ends[:-1]])[:count] + _SIZE.size
    return from_gaps(np.frombuffer(content, np.uint8), starts, ends - starts)


def _ends(block: LogBlock, content: memoryview, count: int) -> npt.NDArray[np.int64]:
    """Where each record ends. Its place is known only from the one before, so this is a walk: it
    looks at nothing but sizes, and what it came past is checked behind it."""
    at, behind, size_at = _HEAD.size, len(content), _SIZE.unpack_from
    places = [at]
    try:
        for _ in range(count):
            at += _SIZE.size + size_at(content, at)[0]
            places.append(at)
    except struct.error:  # there are no four bytes
        places.append(behind + _SIZE.size)
    ends = np.array(places, np.int64)
    sizes = np.diff(ends) - _SIZE.size
    wrong = np.flatnonzero((sizes < 0) | (ends[1:] > behind))
    if len(wrong):
        row = int(wrong[0])
        if ends[row] + _SIZE.size > behind:
            raise _wrong(block, "records end too early", f"record {row} of {count}", behind)
        what = f"size of record {row} is out of bounds"
        raise _wrong(block, what, f"<= {behind}", int(sizes[row]))
    if at != behind:
        raise _wrong(block, "bytes behind the last record", at, behind)
    return ends[1:]


def _wrong(block: LogBlock, what: str, expected: object, found: object) -> CorruptError:
    return CorruptError(
        f"log block: {what}",
        path=block.path,
        offset=block.offset,
        expected=expected,
        found=found,
    )
