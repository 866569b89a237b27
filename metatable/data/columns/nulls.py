"""Nulls of nested columns: what lies below a null struct in a field that may not be null.

Arrow has a place for it there. Who makes such arrays puts a null into it (Polars, `pa.nulls`, a
`take` of a null) or any value (pyarrow's lists of dicts, Parquet's reader). In a table's columns it
is a value, for Arrow's casts go by the field alone, and refuse the null.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["has_stray_nulls", "nulls", "without_nulls"]


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls."""
    if not _has_required(kind):
        return pa.nulls(count, kind)
    return pa.array([None], kind).take(pa.array(np.zeros(count, np.int64)))


def has_stray_nulls(array: pa.Array) -> bool:
    """Whether a field within it that may not be null holds one, be it below a null. Of lists all
    that their memory holds is looked at, also what no row has."""
    kind = array.type
    if not _has_required(kind):
        return False
    if pa.types.is_struct(kind):
        parts = [(field, array.field(place)) for place, field in enumerate(kind)]
    elif pa.types.is_map(kind):
        parts = [(kind.item_field, array.items)]
    else:
        parts = [(kind.value_field, array.values)]
    return any(
        (not field.nullable and part.null_count > 0) or has_stray_nulls(part)
        for field, part in parts
    )


def without_nulls(array: pa.Array) -> pa.Array:
    """The array with some value in place of each null."""
    if not array.null_count:
        return array
    return pc.if_else(array.is_valid(), array, pa.scalar(_some_value(array.type), array.type))


@lru_cache(1 << 10)
def _has_required(kind: pa.DataType) -> bool:
    """Whether something within it may not be null."""
    if not pa.types.is_nested(kind):
        return False
    fields = [kind.item_field] if pa.types.is_map(kind) else map(kind.field, range(kind.num_fields))
    return any(not one.nullable or _has_required(one.type) for one in fields)


def _some_value(kind: pa.DataType) -> Any:
    """A value of one of the types that tables have; all numbers and times take 0."""
    t = pa.types
    if t.is_struct(kind):
        # a null would have one below it again where that may be none
        absent = [one.name for one in kind if one.nullable and not _has_required(one.type)]
        return {one.name: None if one.name in absent else _some_value(one.type) for one in kind}
    if t.is_list(kind) or t.is_map(kind):
        return []
    if t.is_boolean(kind):
        return False
    if t.is_string(kind):
        return ""
    if t.is_binary(kind):
        return b""
    return bytes(kind.byte_width) if t.is_fixed_size_binary(kind) else 0
