"""Logical types: Avro's numbers and bytes as dates, times, timestamps and decimals of Arrow.

    date, time-millis                         int     date32, time32[ms]
    time-micros                               long    time64[us]
    timestamp-millis | -micros                long    timestamp[ms | us, UTC]
    local-timestamp-millis | -micros          long    timestamp[ms | us]
    decimal(p, s), p <= 38                    bytes, fixed(n <= 16)   decimal128(p, s)

Any other stays what it is stored as, as Avro's specification has it. Numbers are viewed, not
copied. A decimal is its unscaled value, big-endian in two's complement; bytes hold the fewest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import (
    byte_layout,
    from_layout,
    offsets_of,
)
from metatable.storage.errors import CorruptError, UsageError

__all__ = ["from_stored", "logical_type", "to_stored"]

_NUMBERS: dict[tuple[str, Any], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MOST_DIGITS = 38
_WORD = 16
"""Bytes of Arrow's decimal128, little-endian."""


def logical_type(words: Mapping[str, Any]) -> pa.DataType | None:
    """Arrow's type for a type of a schema that names a logical one; None: there is none."""
    kind, logical = words["type"], words["logicalType"]
    if logical != "decimal":
        return _NUMBERS.get((kind, logical))
    precision, scale = int(words["precision"]), int(words.get("scale", 0))
    fits = kind == "bytes" or (kind == "fixed" and 0 < int(words["size"]) <= _WORD)
    sound = 0 <= scale <= precision and 0 < precision <= _MOST_DIGITS
    return pa.decimal128(precision, scale) if fits and sound else None


def from_stored(column: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """A column without nulls, as it is stored, in its logical type. Raises CorruptError."""
    if not pa.types.is_decimal(kind):
        return column.view(kind)
    offsets, data = byte_layout(column)
    found = _words(offsets.astype(np.int64), data)
    try:
        if found is None:
            raise pa.ArrowInvalid(f"not 1 to {_WORD} bytes")
        values = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(found)])
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        what = "decimal in an Avro datum is out of bounds"
        raise CorruptError(what, path=path, expected=str(kind), found=str(error)) from error
    return values


def to_stored(column: pa.Array, stored: pa.DataType, where: str) -> pa.Array:
    """The other way: `column` is of the logical type and has no nulls. Raises UsageError."""
    if not pa.types.is_decimal(column.type):
        return column.view(stored)
    raw = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    words = raw[_WORD * column.offset :][: _WORD * len(column)].reshape(-1, _WORD)[:, ::-1]
    if stored == pa.binary():
        sizes = _WORD - _spare(words)
        kept = np.arange(_WORD) >= (_WORD - sizes)[:, None]
        return from_layout(offsets_of(sizes), np.ascontiguousarray(words)[kept])
    size = stored.byte_width
    if (_spare(words) < _WORD - size).any():
        raise UsageError("decimal has too many digits for its Avro type", field=where, bytes=size)
    body = np.ascontiguousarray(words[:, _WORD - size :])
    return pa.Array.from_buffers(stored, len(column), [None, pa.py_buffer(body)])


def _words(offsets: Int64s, data: UInt8s) -> UInt8s | None:
    """The 16 bytes of each value; None unless all have 1 to 16."""
    sizes = np.diff(offsets)
    if len(sizes) and not (int(sizes.min()) >= 1 and int(sizes.max()) <= _WORD):
        return None
    places = offsets[1:, None] - 1 - np.arange(_WORD)
    held = np.arange(_WORD) < sizes[:, None]
    signs = (data[offsets[:-1]] >> 7) * np.uint8(0xFF)
    return np.where(held, data[np.maximum(places, 0)], signs[:, None])


def _spare(words: UInt8s) -> Int64s:
    """How many bytes of each big-endian value only repeat its sign, at most all but one."""
    signs = (words[:, :1] >> 7) * np.uint8(0xFF)
    repeats = (words[:, :-1] == signs) & (words[:, 1:] >> 7 == signs >> 7)
    return np.asarray(np.logical_and.accumulate(repeats, axis=1).sum(axis=1), np.int64)
