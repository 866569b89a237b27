"""Bounds of column statistics as Hudi wraps them: a union of wrappers, and a value type.

    Arrow type                  wrapper          ordinal   physical value
    bool                        BooleanWrapper         2
    int8, int16, int32          IntWrapper             3
    int64, uint32               LongWrapper            4
    float32                     FloatWrapper           5
    float64                     DoubleWrapper          6
    string                      StringWrapper          7
    binary, fixed               BytesWrapper        8, 9
    decimal                     BytesWrapper          10   unscaled, big-endian, fewest bytes;
                                                           additional info "precision,scale"
    date32                      IntWrapper            12   days since 1970
    time32(ms), time64(us)      Int-, LongWrapper 13, 14
    timestamp(ms, us, ns)       LongWrapper   15, 16, 17   since 1970, zone or not

This is version 2 of Hudi's column statistics (tables of version 9). Reading also takes
DateWrapper, LocalDateWrapper, TimestampMicrosWrapper, and the local timestamps 18 to 20. A
bound is read for the type that the column has now: as it was stored, or safely widened.
Whatever else is stored says nothing about that type, and reads as null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import byte_layout
from metatable.storage.errors import CorruptError, UsageError

__all__ = [
    "Form",
    "by_value_type",
    "decimal_bytes",
    "form_of",
    "physical",
    "unwrap",
    "wrap",
    "wrappers_of",
]

DECIMAL = 10
"""The ordinal of decimals."""
_TIMESTAMP_UNITS = {15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}
"""The units of timestamps, by ordinal."""


@dataclass(frozen=True, slots=True)
class Form:
    """How bounds of one Arrow type are stored."""

    wrapper: str
    ordinal: int
    info: str | None = None


NO_BOUNDS = Form("", 1)
"""Hudi's value type NULL."""


def form_of(kind: pa.DataType) -> Form:
    """Raises UsageError for a type that Hudi has no wrapper for."""
    if pa.types.is_decimal(kind):
        return Form("BytesWrapper", DECIMAL, f"{kind.precision},{kind.scale}")
    if pa.types.is_timestamp(kind) and kind.unit != "s":
        return Form("LongWrapper", {"ms": 15, "us": 16, "ns": 17}[kind.unit])
    if pa.types.is_fixed_size_binary(kind):
        return Form("BytesWrapper", 9)
    if str(kind) not in _FORMS:
        raise UsageError("no statistics are kept of this type", found=str(kind))
    return _FORMS[str(kind)]


_INT, _LONG = Form("IntWrapper", 3), Form("LongWrapper", 4)
_FORMS = {
    "bool": Form("BooleanWrapper", 2),
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), _INT),
    **dict.fromkeys(("int64", "uint32"), _LONG),
    "float": Form("FloatWrapper", 5),
    "double": Form("DoubleWrapper", 6),
    **dict.fromkeys(("string", "large_string", "string_view"), Form("StringWrapper", 7)),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), Form("BytesWrapper", 8)),
    "date32[day]": Form("IntWrapper", 12),
    "time32[ms]": Form("IntWrapper", 13),
    "time64[us]": Form("LongWrapper", 14),
}

_PHYSICAL = {
    "BooleanWrapper": pa.bool_(),
    "IntWrapper": pa.int32(),
    "LongWrapper": pa.int64(),
    "FloatWrapper": pa.float32(),
    "DoubleWrapper": pa.float64(),
    "BytesWrapper": pa.binary(),
    "StringWrapper": pa.string(),
}


# Writing


def physical(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python values of one type (None: no bound) as what their wrapper holds."""
    column = pa.array(values, kind)
    if pa.types.is_decimal(kind):
        return decimal_bytes(column)
    return column.cast(_PHYSICAL[form_of(kind).wrapper])


def wrap(parts: Sequence[tuple[str, pa.Array, Int64s]], count: int) -> pa.Array:
    """One union over `count` rows from parts: (wrapper, physical values, the rows that they are
    of). A row that no part has is null."""
    by_wrapper: dict[str, list[tuple[pa.Array, Int64s]]] = {}
    for wrapper, values, rows in parts:
        by_wrapper.setdefault(wrapper, []).append((values, rows))
    children = {
        wrapper: _one_child(held, count) for wrapper, held in sorted(by_wrapper.items())
    } or {"IntWrapper": _one_child([], count)}
    absent = pa.array(np.ones(count, bool))
    for child in children.values():
        absent = pc.and_(absent, child.is_null())
    return pa.StructArray.from_arrays(list(children.values()), list(children), mask=absent)


def decimal_bytes(column: pa.Array) -> pa.Array:
    """Unscaled values in the fewest two's-complement bytes, big-endian, as Java has them."""
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], np.uint8) if len(column) else np.zeros(0, np.uint8)
    raw = raw[column.offset * width : (column.offset + len(column)) * width]
    words = [raw[i : i + width].tobytes() for i in range(0, len(raw), width)]
    numbers = [int.from_bytes(word, "little", signed=True) for word in words]
    return pa.array(
        [
            None if absent else number.to_bytes(_java_length(number), "big", signed=True)
            for number, absent in zip(numbers, column.is_null().to_pylist(), strict=True)
        ],
        pa.binary(),
    )


def _java_length(number: int) -> int:
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _one_child(held: Sequence[tuple[pa.Array, Int64s]], count: int) -> pa.Array:
    """A wrapper's struct over all rows; null where the bound is absent or wrapped otherwise."""
    if not held:
        return pa.nulls(count, pa.struct([pa.field("value", pa.int32())]))
    rows = np.concatenate([rows for _, rows in held])
    places, absent = np.zeros(count, np.int64), np.ones(count, bool)
    places[rows], absent[rows] = np.arange(len(rows)), False
    values = pa.concat_arrays([values for values, _ in held])
    values = values.take(pa.array(places, mask=absent))
    return pa.StructArray.from_arrays([values], ["value"], mask=values.is_null())


# Reading


def unwrap(
    bounds: pa.Array, value_types: pa.Array | None, kind: pa.DataType, path: str
) -> pa.Array:
    """The bounds of a column whose type is `kind`, from those of its `wrappers_of`; value types
    are looked at only where they are needed. Raises CorruptError for impossible ones."""
    try:
        return _unwrap(bounds, value_types, kind, path)
    except pa.ArrowInvalid as error:
        raise CorruptError(
            "stored bounds do not fit the column", path=path, expected=str(kind), found=str(error)
        ) from error


def _unwrap(
    bounds: pa.Array, value_types: pa.Array | None, kind: pa.DataType, path: str
) -> pa.Array:
    if pa.types.is_decimal(kind):
        return _decimals(bounds, value_types, kind, path)
    if pa.types.is_timestamp(kind):
        return _timestamps(bounds, value_types, kind)
    return _first_of(bounds, wrappers_of(kind), kind)


def wrappers_of(kind: pa.DataType) -> tuple[str, ...]:
    """The wrappers that bounds of this type are read from; none for a type without bounds."""
    return next((names for test, names in _WRAPPERS if test(kind)), ())


def by_value_type(kind: pa.DataType) -> bool:
    """Whether it takes the value type to read such bounds."""
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind))


_WRAPPERS: list[tuple[Any, tuple[str, ...]]] = [
    (pa.types.is_decimal, ("BytesWrapper",)),
    (pa.types.is_timestamp, ("LongWrapper", "TimestampMicrosWrapper")),
    (pa.types.is_boolean, ("BooleanWrapper",)),
    (pa.types.is_integer, ("IntWrapper", "LongWrapper")),
    (pa.types.is_float64, ("DoubleWrapper", "FloatWrapper", "IntWrapper")),
    (pa.types.is_float32, ("FloatWrapper",)),
    (lambda kind: str(kind) in _FORMS and _FORMS[str(kind)].ordinal == 7, ("StringWrapper",)),
    (lambda kind: str(kind) in _FORMS and _FORMS[str(kind)].ordinal == 8, ("BytesWrapper",)),
    (pa.types.is_fixed_size_binary, ("BytesWrapper",)),
    (pa.types.is_date32, ("IntWrapper", "DateWrapper", "LocalDateWrapper")),
    (pa.types.is_time32, ("IntWrapper",)),
    (pa.types.is_time64, ("LongWrapper", "TimeMicrosWrapper")),
]


def _first_of(bounds: pa.Array, wrappers: Sequence[str], kind: pa.DataType) -> pa.Array:
    found = [_held(bounds, wrapper) for wrapper in wrappers]
    held = [column.cast(kind) for column in found if column.null_count < len(column)]
    if not held:
        return pa.nulls(len(bounds), kind)
    return held[0] if len(held) == 1 else pc.coalesce(*held)


def _held(bounds: pa.Array, wrapper: str) -> pa.Array:
    return pc.struct_field(bounds, [wrapper, "value"])


def _timestamps(bounds: pa.Array, value_types: pa.Array, kind: pa.DataType) -> pa.Array:
    longs = _held(bounds, "LongWrapper")
    ordinals = pc.struct_field(value_types, "typeOrdinal")
    columns = [_held(bounds, "TimestampMicrosWrapper").cast(pa.timestamp("us", kind.tz))]
    for ordinal in pc.unique(ordinals).to_pylist():
        if ordinal in _TIMESTAMP_UNITS:
            of_unit = pc.if_else(pc.equal(ordinals, ordinal), longs, None)
            columns.append(of_unit.cast(pa.timestamp(_TIMESTAMP_UNITS[ordinal], kind.tz)))
    return pc.coalesce(*[column.cast(kind) for column in columns])


def _decimals(bounds: pa.Array, value_types: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Stored decimals as this type, each by the precision and scale that it was stored with."""
    raw = _held(bounds, "BytesWrapper")
    ordinals = pc.struct_field(value_types, "typeOrdinal")
    infos = pc.if_else(
        pc.equal(ordinals, DECIMAL), pc.struct_field(value_types, "additionalInfo"), None
    )
    columns = [pa.nulls(len(bounds), kind)]
    for info in pc.unique(infos.drop_null()).to_pylist():
        stored = _decimal_type(info, path)
        of_type = pc.if_else(pc.equal(infos, info), raw, None)
        columns.append(_decimals_of(of_type, stored, path).cast(kind))
    return pc.coalesce(*columns)


def _decimal_type(info: str, path: str) -> pa.DataType:
    try:
        precision, scale = (int(number) for number in info.split(","))
        if not 0 <= scale <= precision:  # Arrow moves the point by a table of powers of ten
            raise ValueError(info)
        make = pa.decimal128 if precision <= 38 else pa.decimal256
        return make(precision, scale)
    except (ValueError, OverflowError) as error:
        raise CorruptError("not a decimal's precision and scale", path=path, found=info) from error


def _decimals_of(column: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Big-endian two's complement of any length to Arrow's fixed little-endian form."""
    absent = column.is_null()
    offsets, data = byte_layout(column.fill_null(b"\x00"))
    lengths, width = np.diff(offsets), kind.byte_width
    if (lengths < 1).any() or (lengths > width).any():
        raise CorruptError("decimal of impossible length", path=path, expected=f"1 to {width}")
    signs = np.where(data[offsets[:-1]] & 0x80, 0xFF, 0).astype(np.uint8)
    words = np.repeat(signs[:, None], width, axis=1)
    for k in range(int(lengths.max(initial=0))):  # byte k from the end
        rows = np.flatnonzero(lengths > k)
        words[rows, k] = data[offsets[1:][rows] - 1 - k]
    made = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(words)])
    return pc.if_else(absent, pa.scalar(None, kind), made)
