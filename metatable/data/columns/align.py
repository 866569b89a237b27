"""Making given columns the table's columns: same names, same order, same types, or an error.

Only conversions that can lose nothing are made, and which ones is decided by the types, never
by the values at hand, so that a job does not fail on its thousandth batch:

    integers          to wider ones; up to 32 bits also to float64
    floats            to wider ones
    decimals          to ones with no fewer digits on either side of the point
    strings, binaries of any layout; dictionaries are decoded
    timestamps        to a finer unit; between zones, keeping the instant; never naive to zoned
    date64, time32    to date32, time64
    null              to a column of nulls

Three exceptions, because nobody chose the type: a library has one unit of time (Spark has
microseconds alone), which becomes the table's; pandas, Polars, DuckDB and Spark have no binaries of
fixed size, which binaries become; and decimals of computed values have as many digits as there may
be (Polars, and sums of DuckDB's integers, 38), and become ones of fewer, though not behind the
point, or integers where they have none there. A value that does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.nulls import has_stray_nulls, nulls, without_nulls
from metatable.storage.errors import UsageError

__all__ = ["align", "is_list", "null_mask", "offsets_of", "refuse_wrong", "widens"]

_UNITS = ("s", "ms", "us", "ns")

_MOST_VALUES = (1 << 31) - 1
"""Of the lists of a column: a table's lists have offsets of 32 bits."""


def align(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the columns of `schema`.

    A missing nullable column becomes null. Raises UsageError, naming the column, for a missing
    required one, an extra one, one given twice, nulls where they are not allowed, a type that is
    not safely widened to the table's, and values that are none of their type (`refuse_wrong`).
    """
    known = {*schema.names}
    for name in data.schema.names:
        if name not in known:
            raise UsageError("column is not in the table", column=name, expected=schema.names)
        if len(data.schema.get_all_field_indices(name)) > 1:
            raise UsageError("column is given twice", column=name)
    columns = [_column(data, field) for field in schema]
    for column, field in zip(columns, schema, strict=True):
        refuse_wrong(column, field.name)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def refuse_wrong(array: pa.Array, column: str) -> None:
    """Raise UsageError, naming the row, for text that is not UTF-8, which no reader would take, for
    decimals of more digits than their type has, as Arrow's readers of texts make them: files
    have no room for these, and would hold other numbers; for times beyond a day, as DuckDB's 24:00,
    which Python and Hudi's readers take for others; and for moments that microseconds do not reach:
    Spark has no others, and a column of milliseconds may be widened."""
    if not any(_holds(array.type, is_kind) for is_kind, _ in _CHECKED) or _is_valid(array):
        return
    if not _rows_are_valid(array, 0, len(array)):
        raise _wrong_value(array, column)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is any of Arrow's list types."""
    t = pa.types
    kinds = (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)
    return any(is_kind(kind) for is_kind in kinds)


def _column(data: pa.RecordBatch, field: pa.Field) -> pa.Array:
    place = data.schema.get_field_index(field.name)
    if place >= 0:
        return _aligned(data.column(place), field, field.name)
    if field.nullable:
        return nulls(data.num_rows, field.type)
    raise UsageError("column is missing", column=field.name, expected=str(field.type))


def _wrong_value(array: pa.Array, column: str) -> UsageError:
    first, behind = 0, len(array)
    while behind - first > 1:  # the first row that is not valid lies in [first, behind)
        middle = (first + behind) // 2
        if _rows_are_valid(array, first, middle):
            first = middle
        else:
            behind = middle
    what = ", or ".join(told for is_kind, told in _CHECKED if _holds(array.type, is_kind))
    is_text = not any(_holds(array.type, is_kind) for is_kind, _ in _CHECKED[1:])
    expected = "UTF-8, or binary" if is_text else str(array.type)
    return UsageError(what, column=column, row=first, expected=expected)


def _rows_are_valid(array: pa.Array, first: int, behind: int) -> bool:
    """Of these rows alone: a slice of a list is validated with all that lies below the list."""
    return _is_valid(array.take(pa.array(range(first, behind), pa.int64())))


def _is_valid(array: pa.Array) -> bool:
    """Whether no value is wrong, wherever it is; what lies below a null may be anything."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return pa.types.is_nested(array.type) and all(map(_is_valid, _inner(array)))
    return not _holds(array.type, _is_coarse) or _reach(array)


def _inner(array: pa.Array) -> list[pa.Array]:
    """What a nested column holds, without what is below its nulls."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    inner = array.flatten()
    return inner if isinstance(inner, list) else [inner]


def _reach(array: pa.Array) -> bool:
    """Whether microseconds reach its moments of milliseconds, wherever they are."""
    if pa.types.is_nested(array.type):
        return all(map(_reach, _inner(array)))
    return not _is_coarse(array.type) or _can_be(array, pa.timestamp("us", array.type.tz))


def _can_be(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _is_coarse(kind: pa.DataType) -> bool:
    return cast(bool, pa.types.is_timestamp(kind) and kind.unit == "ms")


def _holds(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether it is of this kind, or something in it is."""
    if pa.types.is_nested(kind):
        return any(_holds(kind.field(place).type, is_kind) for place in range(kind.num_fields))
    return is_kind(kind)


_CHECKED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_string, "text is not UTF-8"),
    (pa.types.is_decimal, "decimal has more digits than its type"),
    (pa.types.is_time, "time is not within a day"),
    (_is_coarse, "moment is beyond what microseconds reach"),
)
"""Kinds of which values are looked at, and what is wrong where they are found so."""


def _aligned(array: pa.Array, field: pa.Field, column: str) -> pa.Array:
    if array.type != field.type or has_stray_nulls(array):
        array = _converted(array, field.type, column)
    if array.null_count and not field.nullable:
        raise UsageError(
            "column must not be null", column=column, found=f"{array.null_count} nulls"
        )
    return array


def _converted(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return nulls(len(array), kind)
    for is_kind, nested in _NESTED:
        if is_kind(kind) and is_kind(array.type):
            return nested(array, kind, column)
    return array if array.type == kind else _cast(array, kind, column)


def _cast(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    steps = [kind]
    if _is_varying(array.type) and pa.types.is_fixed_size_binary(kind):
        _refuse_other_sizes(array, kind.byte_width, column)
    elif _is_shorter(array.type, kind):
        steps = [*_rescaled(array.type, kind), kind]
    elif not (widens(array.type, kind) or _is_coarser(array.type, kind)):
        raise _other_type(column, kind, str(array.type), **_way(array.type, kind))
    try:
        for step in steps:
            array = array.cast(step)
        return array
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _other_type(column, kind, str(error)) from error


def _refuse_other_sizes(array: pa.Array, size: int, column: str) -> None:
    if pa.types.is_binary_view(array.type):  # Arrow tells no lengths of these
        array = array.cast(pa.large_binary())
    sizes = pc.binary_length(array)
    row = pc.index(pc.not_equal(sizes, size), True).as_py()
    if row >= 0:
        what, found = "binary has another size than the table's", f"{sizes[row]} bytes"
        raise UsageError(what, column=column, row=row, expected=f"{size} bytes", found=found)


def _struct(array: pa.StructArray, kind: pa.StructType, column: str) -> pa.Array:
    for given in array.type:
        if kind.get_field_index(given.name) < 0:
            name = f"{column}.{given.name}"
            raise UsageError("column is not in the table", column=name, expected=kind.names)
        if len(array.type.get_all_field_indices(given.name)) > 1:
            raise UsageError("column is given twice", column=f"{column}.{given.name}")
    columns = [_member(array, field, f"{column}.{field.name}") for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=null_mask(array))


def _member(array: pa.StructArray, field: pa.Field, column: str) -> pa.Array:
    place = array.type.get_field_index(field.name)
    if place < 0:
        if field.nullable:
            return nulls(len(array), field.type)
        raise UsageError("column is missing", column=column, expected=str(field.type))
    inner = array.field(place)
    if field.nullable or not array.null_count:
        return _aligned(inner, field, column)
    converted = _aligned(inner, field.with_nullable(True), column)  # nulls below null structs
    _aligned(converted.filter(array.is_valid()), field, column)
    return without_nulls(converted)


def _list(array: pa.Array, kind: pa.ListType, column: str) -> pa.Array:
    """Of any list type: views lie in any order, and Arrow's cast of them drops their last end."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    if offsets[-1] > _MOST_VALUES:
        expected = f"{_MOST_VALUES} at most, of all rows together: fewer rows at once"
        what = "lists hold too many values"
        raise UsageError(what, column=column, expected=expected, found=int(offsets[-1]))
    values = _aligned(array.flatten(), kind.value_field, f"{column}.element")
    offsets = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=null_mask(array))


def _map(array: pa.MapArray, kind: pa.MapType, column: str) -> pa.Array:
    offsets, first, last = offsets_of(array)
    keys = array.keys.slice(first, last - first)
    items = array.items.slice(first, last - first)
    keys = _aligned(keys, kind.key_field, f"{column}.key")
    items = _aligned(items, kind.item_field, f"{column}.value")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=null_mask(array))


def offsets_of(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets that begin at 0, and which part of the values they were into."""
    bounds = array.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    return pa.array(bounds - first, pa.int32()), first, last


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which rows are null; None: none is."""
    return array.is_null() if array.null_count else None


_NESTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., pa.Array]], ...] = (
    (pa.types.is_struct, _struct),
    (is_list, _list),
    (pa.types.is_map, _map),
)


def widens(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether every value of the one is one of the other, by the table above."""
    return any(is_kind(given) and allows(given, kind) for is_kind, allows in _WIDENING)


def _is_coarser(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether it is the same in another unit: Arrow's cast refuses a value that would change."""
    t = pa.types
    if t.is_timestamp(given) and t.is_timestamp(kind):
        return (given.tz is None) == (kind.tz is None)
    return cast(bool, t.is_time(given) and t.is_time(kind))


def _is_shorter(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether decimals lose no digit behind the point, but may have more before it."""
    t = pa.types
    if not t.is_decimal(given) or widens(given, kind):
        return False
    if t.is_decimal(kind):
        return cast(bool, given.scale <= kind.scale)
    return cast(bool, t.is_signed_integer(kind) and given.scale == 0)


def _rescaled(given: pa.DataType, kind: pa.DataType) -> list[pa.DataType]:
    """What comes first: those decimals of this scale that fit into the other one. Arrow's cast to
    another scale does not see each value that is too large, and makes another one of it."""
    if not pa.types.is_decimal(kind):
        return []
    digits = kind.precision - kind.scale + given.scale
    if digits > 0:
        return [pa.decimal128(digits, given.scale)]
    # zero alone fits, but no type has no digits: of the one digit that may be there a cast within
    # 128 bits makes another value, which would fit
    return [pa.decimal128(1, given.scale), pa.decimal256(76, kind.scale)]


def _integer(given: pa.DataType, kind: pa.DataType) -> bool:
    signed = pa.types.is_signed_integer(given)
    needed = given.bit_width if signed else given.bit_width + 1
    if pa.types.is_signed_integer(kind):
        return cast(bool, needed <= kind.bit_width)
    return cast(bool, kind == pa.float64() and needed <= 33)


def _floating(given: pa.DataType, kind: pa.DataType) -> bool:
    return cast(bool, pa.types.is_floating(kind) and given.bit_width <= kind.bit_width)


def _decimal(given: pa.DataType, kind: pa.DataType) -> bool:
    if not pa.types.is_decimal(kind):
        return False
    before = given.precision - given.scale <= kind.precision - kind.scale
    return cast(bool, before and given.scale <= kind.scale)


def _timestamp(given: pa.DataType, kind: pa.DataType) -> bool:
    if not pa.types.is_timestamp(kind):
        return False
    return (given.tz is None) == (kind.tz is None) and _finer(given.unit, kind.unit)


def _time(given: pa.DataType, kind: pa.DataType) -> bool:
    return pa.types.is_time(kind) and _finer(given.unit, kind.unit)


def _finer(given: str, unit: str) -> bool:
    return _UNITS.index(given) <= _UNITS.index(unit)


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return cast(bool, t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def _is_varying(kind: pa.DataType) -> bool:
    t = pa.types
    return cast(bool, t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_varying(kind) or cast(bool, pa.types.is_fixed_size_binary(kind))


_WIDENING: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]], ...
] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_date, lambda _, kind: kind == pa.date32()),
    (_is_text, lambda _, kind: kind == pa.string()),
    (_is_bytes, lambda _, kind: kind == pa.binary()),
)


def _way(given: pa.DataType, kind: pa.DataType) -> dict[str, str]:
    """What to write where pandas has no such type by itself: its integers with gaps are floats, its
    dates are timestamps."""
    t = pa.types
    if t.is_floating(given) and t.is_signed_integer(kind):
        return {"in_pandas": f'.astype("Int{kind.bit_width}")'}
    if t.is_timestamp(given) and t.is_date(kind):
        return {"in_pandas": ".dt.date"}
    if t.is_timestamp(given) and t.is_timestamp(kind) and given.tz is None:
        return {"in_pandas": f'.dt.tz_localize("{kind.tz}")'}
    return {}


def _other_type(column: str, kind: pa.DataType, found: str, **way: str) -> UsageError:
    what = "column has another type than the table's"
    return UsageError(what, column=column, expected=str(kind), found=found, **way)
