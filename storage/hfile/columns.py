"""Arrow binary columns as numpy sees them, and back; and exact searching in sorted ones.

Every key or value column inside this package is a `pa.binary()` array without nulls. Order
is the order of unsigned bytes, shorter first; Arrow's own comparison does just that. numpy's
`S` type is never used: it takes `a` and `a\\0` for equal.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.errors import UsageError

__all__ = [
    "Int64s",
    "UInt8s",
    "UInt64s",
    "as_binary",
    "bound",
    "bytes_of",
    "common_prefix_size",
    "fixed_binary",
    "is_ascending",
    "offsets_of",
]

UInt8s = npt.NDArray[np.uint8]
UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

_BYTES = (
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.string(), pa.large_string(), pa.string_view()),
)
"""What to keep of a word of which only so many bytes belong to the piece."""


def as_binary(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    """`column` as one `pa.binary()` array. Raises UsageError for nulls and other types."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if kind not in _BYTES and not pa.types.is_fixed_size_binary(kind):
        raise UsageError(f"{what} are not bytes", expected="binary", found=str(kind))
    if column.null_count:
        raise UsageError(f"{what} must not be null", expected=0, found=column.null_count)
    return column if pa.types.is_binary(kind) else column.cast(pa.binary())


def offsets_of(column: pa.Array) -> Int64s:
    """The n + 1 offsets of a binary array into `bytes_of` it, as int64."""
    if not len(column):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def bytes_of(column: pa.Array) -> UInt8s:
    """All data bytes of a binary array, shared, not copied; slices share the whole."""
    buffer = column.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def fixed_binary(rows: UInt8s) -> pa.Array:
    """A (n, width) array of bytes as a `pa.binary()` array; `rows` must be contiguous."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def is_ascending(column: pa.Array, strictly: bool) -> bool:
    """Whether no key is less than (strictly: nor equal to) the one before it."""
    if len(column) < 2:
        return True
    compare = pc.less if strictly else pc.less_equal
    return bool(pc.all(compare(column[:-1], column[1:])).as_py())


def common_prefix_size(first: bytes, last: bytes) -> int:
    """How many bytes both begin with."""
    size = min(len(first), len(last))
    for at in range(size):
        if first[at] != last[at]:
            return at
    return size


def bound(column: pa.Array, needles: pa.Array, right: bool = False) -> Int64s:
    """Where each needle would go into the ascending `column`: before equals, or (`right`) after.

    A binary search of all needles at once, exact on whole keys.
    """
    less = pc.less_equal if right else pc.less
    low = np.zeros(len(needles), np.int64)
    high = np.full(len(needles), len(column), np.int64)
    while (active := np.flatnonzero(low < high)).size:
        middle = (low[active] + high[active]) >> 1
        sought = needles if len(active) == len(needles) else needles.take(pa.array(active))
        smaller = less(column.take(pa.array(middle)), sought)
        goes_up = cast("npt.NDArray[np.bool_]", smaller.to_numpy(zero_copy_only=False))
        low[active[goes_up]] = middle[goes_up] + 1
        high[active[~goes_up]] = middle[~goes_up]
    return low
