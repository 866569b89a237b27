"""Sort texts: some columns of a row as one text, whose byte order is the order of the rows.

    null            0, before all values
    a value         1, then
      number, date,   16 hexadecimal digits of its bits, turned so that they ascend; of a decimal 32
      time, bool      (NaN is the greatest number, and -0 is 0)
      text, binary    its bytes (of a binary their digits), each zero byte followed by 0x01, and two
                      zero bytes behind them

The record key's text comes last: no two rows have one sort text, so rows can be cut anywhere, and
texts that are sampled cut them evenly, however often a value repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keys.key_texts import KEY
from metatable.data.keys.value_texts import hex_digits, text
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Float64s, UInt64s
from metatable.storage.errors import UsageError

__all__ = ["check_sortable", "column_texts", "hexadecimal", "sort_texts"]

_SIGN = np.uint64(1 << 63)
_END = "\0\0"


def check_sortable(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raises UsageError for columns that are not there, are named twice, or have no order."""
    for place, name in enumerate(columns):
        if name not in schema.names or name in columns[:place]:
            raise UsageError("no column to sort by", column=name, expected=schema.names)
        _texts(pa.nulls(0, schema.field(name).type), name)


def sort_texts(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The sort text of each row, from these columns and its key text."""
    parts = [column_texts(whole(rows[name]), name) for name in columns]
    return pc.binary_join_element_wise(*parts, whole(rows[KEY]), "")


def column_texts(column: pa.Array, name: str) -> pa.Array:
    """The part that one column (called `name`) has in sort texts: a text for each row, for a null
    too. Raises UsageError for a type without an order."""
    marked = pc.binary_join_element_wise("1", _texts(column, name), "")
    return pc.fill_null(marked, "0")


def _texts(column: pa.Array, name: str) -> pa.Array:
    """The text of each value, null where it is null."""
    kind, t = column.type, pa.types
    if t.is_dictionary(kind):
        return _texts(column.dictionary_decode(), name)
    if t.is_string(kind) or t.is_large_string(kind):
        return _ended(column.cast(pa.string()))
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return _ended(text(column, name))
    if t.is_decimal128(kind):
        return _decimals(column)
    bits = _bits(column)
    if bits is None:
        expected = "texts, binaries, numbers, dates or times"
        raise UsageError("column has no order", column=name, expected=expected, found=str(kind))
    return _masked(hexadecimal(bits), column)


def _ended(texts: pa.Array) -> pa.Array:
    escaped = pc.replace_substring(texts, "\0", "\0\x01")
    return pc.binary_join_element_wise(escaped, _END, "")


def _bits(column: pa.Array) -> UInt64s | None:
    """For each value 64 bits that ascend as the values do (of a null any); None for a type
    without an order."""
    kind, t = column.type, pa.types
    if t.is_floating(kind):
        return _of_floats(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy())
    if t.is_boolean(kind) or t.is_unsigned_integer(kind):
        return np.asarray(pc.fill_null(column.cast(pa.uint64()), 0).to_numpy())
    if t.is_temporal(kind):
        narrow = t.is_date32(kind) or t.is_time32(kind)
        column = column.cast(pa.int32()) if narrow else column
    elif not t.is_signed_integer(kind):
        return None
    signed = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return np.asarray(signed.astype(np.int64).view(np.uint64) ^ _SIGN)


def _of_floats(values: Float64s) -> UInt64s:
    values = np.where(np.isnan(values), np.nan, values) + 0.0  # one NaN, one zero
    bits = values.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _decimals(column: pa.Array) -> pa.Array:
    _, values = column.buffers()
    halves = np.frombuffer(values, np.uint64) if values else np.zeros(0, np.uint64)
    halves = halves[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    high, low = hexadecimal(halves[:, 1] ^ _SIGN), hexadecimal(halves[:, 0])
    return _masked(pc.binary_join_element_wise(high, low, ""), column)


def _masked(texts: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def hexadecimal(bits: UInt64s) -> pa.Array:
    """16 digits each, the highest first."""
    raw = np.ascontiguousarray(bits.astype(">u8")).view(np.uint8)
    digits = hex_digits(raw)
    ends = (np.arange(len(bits) + 1) * 16).astype(np.int32)
    return pa.StringArray.from_buffers(len(bits), pa.py_buffer(ends), pa.py_buffer(digits))
