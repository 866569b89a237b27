"""Records: the content of an Avro data block, one datum per row.

size  field          (integers big-endian, signed)
   4  content_version  3
   4  count            records
 var  records          for each: i32 size, datum of the schema in the block's header
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import Runs, at_every_byte, byte_layout
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import LogBlock

__all__ = ["CONTENT_VERSION", "decode_datums", "encode_datums"]

CONTENT_VERSION = 3
_HEAD = struct.Struct(">ii")
_SIZE = struct.Struct(">i")

LEAST_WALKED = 1024
"""Fewer records are walked past one by one."""

SEEMING_BYTES = 16
"""The first bytes of a record, by which others are looked for: the case of its first column, how
long its instant is, and most of the instant."""


def encode_datums(datums: pa.Array, cuts: Sequence[int] | None = None) -> list[bytes]:
    """The content for a `pa.binary()` column without nulls: one for the datums between each two of
    `cuts` (ascending), if not one for all."""
    offsets, _ = byte_layout(datums)
    sizes = np.ascontiguousarray(np.diff(offsets), ">i4")
    told = pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    joined = pc.binary_join_element_wise(
        told.cast(pa.binary()), datums, pa.scalar(b"", pa.binary())
    )
    offsets, data = byte_layout(joined)
    return [
        b"".join((_HEAD.pack(CONTENT_VERSION, hi - lo), data[offsets[lo] : offsets[hi]].data))
        for lo, hi in pairwise((0, len(datums)) if cuts is None else cuts)
    ]


def decode_datums(block: LogBlock) -> Runs:
    """The datums of a block, where they lie. Raises CorruptError, UpgradeError."""
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
    return Runs(np.frombuffer(content, np.uint8), starts, ends)


def _ends(block: LogBlock, content: memoryview, count: int) -> Int64s:
    """Where each record ends."""
    found = _ends_by_many_walks(content, count) if count >= LEAST_WALKED else None
    return _ends_by_one_walk(block, content, count) if found is None else found


def _ends_by_many_walks(content: memoryview, count: int) -> Int64s | None:
    """As below, in a quarter of the time, if all goes well; None: it did not, or too few set out.

    Walks set out side by side from where a record seems to begin. That one does is proved by the
    walk before, which ends there: the first one began at a record.
    """
    behind, most_rounds = len(content), 2 * math.isqrt(count)
    at = _seeming_records(content, 3 * math.isqrt(count))
    stop = np.append(at[1:], behind)
    size_at = at_every_byte(np.frombuffer(content, np.uint8), ">i4")
    found: list[Int64s] = []
    while len(at):
        if at[-1] + _SIZE.size > behind or len(found) > most_rounds:
            return None
        sizes = size_at[at].astype(np.int64)
        if sizes.min() < 0:
            return None
        at = at + _SIZE.size + sizes
        found.append(at)
        goes_on = at < stop
        if not goes_on.all():
            if (at > stop).any():
                return None
            at, stop = at[goes_on], stop[goes_on]
    ends = np.sort(np.concatenate(found))
    return ends if len(ends) == count else None


def _seeming_records(content: memoryview, most: int) -> Int64s:
    """Where the first record begins, and others that have its first bytes, which tell the commit:
    one of each of so many parts of the content."""
    first = _HEAD.size + _SIZE.size
    looks = re.compile(re.escape(bytes(content[first : first + SEEMING_BYTES])))
    bounds = np.linspace(first + 1, len(content), most + 1, dtype=np.int64).tolist()
    seen = (looks.search(content, *part) for part in pairwise(bounds))
    begins = [one.start() - _SIZE.size for one in seen if one]
    return np.array([_HEAD.size, *begins], np.int64)


def _ends_by_one_walk(block: LogBlock, content: memoryview, count: int) -> Int64s:
    """A record's place is known only from the one before, so this is a walk: it looks at nothing
    but sizes, and what it came past is checked behind it. Raises CorruptError."""
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
