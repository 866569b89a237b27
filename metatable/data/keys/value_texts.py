"""The texts of values, of which keys and partition paths are made, whole columns at a time.

bool                    true, false
integers                decimal
string                  as it is
date                    2024-03-01
timestamp               microseconds since 1970 in UTC (a naive one is taken as UTC)
decimal                 plain, all digits of its scale, never an exponent
binary                  hex, lower case; not in a partition path
floats, nested, time    refused: their text is not the same everywhere
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import UInt8s
from metatable.storage.errors import UsageError

__all__ = ["hex_digits", "text"]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def text(column: pa.Array, name: str = "") -> pa.Array:
    """The text of every value, null where it is null. Raises UsageError naming column `name`."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    for is_kind, made in _TEXTS:
        if is_kind(column.type):
            return made(column, name)
    expected = "bool, integer, string, date, timestamp, decimal or binary"
    raise UsageError("type makes no key", column=name, expected=expected, found=str(column.type))


def _as_it_is(column: pa.Array, _: str) -> pa.Array:
    return column if column.type == pa.string() else column.cast(pa.string())


def _date(column: pa.Array, _: str) -> pa.Array:
    return column.cast(pa.date32()).cast(pa.string())


def _microseconds(column: pa.Array, name: str) -> pa.Array:
    try:
        micros = column.cast(pa.timestamp("us", column.type.tz))
        return micros.cast(pa.int64()).cast(pa.string())
    except pa.ArrowInvalid as error:
        what = "timestamp is not a whole number of microseconds"
        raise UsageError(what, column=name, found=str(error)) from error


def _plain_decimals(column: pa.Array, _: str) -> pa.Array:
    """Digits before the point and `scale` digits behind it (Arrow's cast writes 1E-7)."""
    scale = column.type.scale
    scaled = column.cast(pa.decimal128(column.type.precision, scale))
    unscaled = pa.Array.from_buffers(
        pa.decimal128(column.type.precision, 0), len(scaled), scaled.buffers(), offset=scaled.offset
    ).cast(pa.string())
    if scale <= 0:
        return unscaled
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    head = pc.utf8_slice_codeunits(digits, 0, -scale)
    tail = pc.utf8_slice_codeunits(digits, -scale, 2**31 - 1)
    return pc.binary_join_element_wise(sign, head, ".", tail, "")


def hex_digits(raw: UInt8s) -> UInt8s:
    """The two digits of each byte, as bytes of text, lower case."""
    return np.stack([_HEX[raw >> 4], _HEX[raw & 15]], axis=1).ravel()


def _hex(column: pa.Array, _: str) -> pa.Array:
    """Two digits a byte, written side by side for the whole column."""
    column = column.cast(pa.binary())
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    raw = (
        np.frombuffer(values or b"", np.uint8)[bounds[0] : bounds[-1]] if len(column) else _HEX[:0]
    )
    digits = hex_digits(raw)
    ends = ((bounds - bounds[:1]) * 2).astype(np.int32)
    mask = column.is_valid()
    made = pa.StringArray.from_buffers(len(column), pa.py_buffer(ends), pa.py_buffer(digits))
    return pc.if_else(mask, made, pa.scalar(None, pa.string()))


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, str], pa.Array]], ...] = (
    (pa.types.is_string, _as_it_is),
    (pa.types.is_large_string, _as_it_is),
    (pa.types.is_string_view, _as_it_is),
    (pa.types.is_boolean, _as_it_is),
    (pa.types.is_integer, _as_it_is),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _microseconds),
    (pa.types.is_decimal, _plain_decimals),
    (pa.types.is_binary, _hex),
    (pa.types.is_large_binary, _hex),
    (pa.types.is_fixed_size_binary, _hex),
)
