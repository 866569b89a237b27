"""Arrow binary columns as numpy sees them, and back; and exact searching in sorted ones.

Every key or value column inside this package is a `pa.binary()` array without nulls. Order
is the order of unsigned bytes, shorter first; Arrow's own comparison does just that. numpy's
`S` type is never used: it takes `a` and `a\\0` for equal.
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt8s, UInt32s
from metatable.storage.byte_columns import LOW_BYTES, at_every_byte, fresh
from metatable.storage.errors import UsageError

__all__ = [
    "bound",
    "bytes_of",
    "check_bytes",
    "check_width",
    "checked_binary",
    "column_offsets",
    "column_sizes",
    "common_prefix_size",
    "fixed_binary",
    "numbers_at",
    "once",
    "repeated",
    "views",
]

Number = TypeVar("Number", bound=np.integer)

_LAST_OFFSET = (1 << 31) - 1
"""Arrow's offsets of `pa.binary()` have 32 bits."""
_INLINE_BYTES = 12

_BYTES = (
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.string(), pa.large_string(), pa.string_view()),
)


def checked_binary(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    """`column` as one `pa.binary()` array.

    Raises UsageError for nulls, other types, and more bytes than such an array can have.
    """
    check_bytes(column, what)
    if isinstance(column, pa.BinaryArray):
        return column
    try:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        kind = column.type
        if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
            column = _within_reach(column)
        return column if pa.types.is_binary(kind) else column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        expected = f"at most {_LAST_OFFSET} bytes"
        message = f"{what} are too large for one array"
        raise UsageError(message, expected=expected, found=str(error)) from error


def check_bytes(column: pa.Array | pa.ChunkedArray, what: str) -> None:
    """Raise UsageError for nulls and for other types than bytes and text."""
    kind = column.type
    if kind not in _BYTES and not pa.types.is_fixed_size_binary(kind):
        raise UsageError(f"{what} are not bytes", expected="binary", found=str(kind))
    if column.null_count:
        raise UsageError(f"{what} must not be null", expected=0, found=column.null_count)


def _within_reach(column: pa.Array) -> pa.Array:
    """A large column, over its own bytes only if it lies too far behind in the array it was cut
    from: Arrow refuses to convert it by where it ends, not by how large it is."""
    if not len(column):
        return column
    _, places, raw = column.buffers()
    offsets = np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1]
    first, end = int(offsets[0]), int(offsets[-1])
    if end <= _LAST_OFFSET:
        return column
    own = [None, pa.py_buffer(offsets - first), raw.slice(first, end - first)]
    return pa.Array.from_buffers(column.type, len(column), own)


def column_offsets(column: pa.Array) -> Int64s:
    """The n + 1 offsets of a binary array into `bytes_of` it, as int64."""
    if not len(column):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def column_sizes(column: pa.Array) -> Int64s:
    """Bytes of each value of a binary array, without memory of their own if it is of fixed size."""
    if pa.types.is_fixed_size_binary(column.type):
        return repeated(column.type.byte_width, len(column))
    return np.diff(column_offsets(column))


def repeated(number: int, count: int) -> Int64s:
    """`count` times `number`, in eight bytes."""
    return np.ndarray((count,), np.int64, np.array([number], np.int64), strides=(0,))


def once(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """`numbers`; of `repeated` ones the first alone."""
    return numbers[:1] if numbers.strides == (0,) else numbers


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


def check_width(raw: UInt8s) -> None:
    """Raise UsageError where places in `raw` would not fit into Arrow's 32-bit offsets."""
    if len(raw) >= 1 << 31:
        raise UsageError("too many bytes for one array", expected="below 2 GiB", found=len(raw))


def views(raw: UInt8s, starts: Int64s, sizes: Int64s) -> pa.Array:
    """`raw[starts[i]:][:sizes[i]]` of every i as a `pa.binary_view()` array over `raw`.

    A view is the size and, up to 12 bytes, the bytes themselves (zeros behind); else the first
    four, the buffer's number and the place in it (Arrow columnar format, "Binary View").
    """
    check_width(raw)
    made = fresh(16 * len(starts)).view("<u4").reshape(-1, 4)
    made[:, 0] = once(sizes)
    heads = made[:, 1:]
    if len(starts) and int(once(sizes).min()) > _INLINE_BYTES:
        heads[:, 0] = at_every_byte(raw, "<u4")[starts]
        heads[:, 1], heads[:, 2] = 0, starts
    else:
        _put_heads(heads, raw, starts, sizes)
    buffers = [None, pa.py_buffer(made), pa.py_buffer(raw)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def _put_heads(heads: UInt32s, raw: UInt8s, starts: Int64s, sizes: Int64s) -> None:
    """The twelve bytes behind the size of each view, of which some hold the bytes themselves."""
    safe = np.minimum(starts, max(len(raw) - _INLINE_BYTES, 0))
    source = raw if len(raw) >= _INLINE_BYTES else np.zeros(_INLINE_BYTES, np.uint8)
    words = at_every_byte(source, "<u8")
    halves = at_every_byte(source, "<u4")
    heads[:, 0] = halves[safe]
    is_long = sizes > _INLINE_BYTES
    if not is_long.all():
        low = words[safe] & LOW_BYTES[np.minimum(sizes, 8)]
        heads[:, 0], heads[:, 1] = low, low >> 32
        heads[:, 2] = halves[safe + 8] & LOW_BYTES[np.clip(sizes - 8, 0, 4)]
    near_end = starts != safe if source is raw else np.ones(len(starts), bool)
    for place in np.flatnonzero(near_end).tolist():  # a few
        start, size = int(starts[place]), int(sizes[place])
        piece = raw[start : start + min(size, _INLINE_BYTES)].tobytes()
        heads[place] = np.frombuffer(piece.ljust(_INLINE_BYTES, b"\0"), "<u4")
    heads[is_long, 1] = 0
    heads[is_long, 2] = starts[is_long]


def numbers_at(raw: UInt8s, starts: Int64s, kind: str) -> Int64s:
    """The numbers that begin at `starts`, as int64; `kind` is numpy's, such as `>u4`."""
    return at_every_byte(raw, kind)[starts].astype(np.int64)


def common_prefix_size(first: bytes, last: bytes) -> int:
    """How many bytes both begin with."""
    size = min(len(first), len(last))
    differ = int.from_bytes(first[:size], "big") ^ int.from_bytes(last[:size], "big")
    return size - (differ.bit_length() + 7 >> 3)


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
