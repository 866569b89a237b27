"""Values of a column as Python has them, for JSON and the grid.

    a map that has a key twice     its pairs
    text that is not UTF-8         the text, with U+FFFD where it is not
    a day, moment or time that     Arrow's text of it: the year 10000, 24:00, nanoseconds (these
    Python has no value for        only without pandas)

Files of other writers may hold any of these: rows are told whatever is in them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from metatable.data.columns.align import is_list

__all__ = ["values_of"]

_NO_VALUE = KeyError, ValueError, OverflowError


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column; one by one only where one of them is of those above."""
    try:
        column.validate(full=True)  # Arrow makes 00:00 of 24:00
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        return values
    except _NO_VALUE:
        return [_value(one) for one in column]


def _value(one: pa.Scalar) -> Any:
    kind = one.type
    if not one.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _value(one.value)
    if pa.types.is_map(kind):
        pairs = [(_value(pair[0]), _value(pair[1])) for pair in one.values]
        made = dict(pairs)
        return made if len(made) == len(pairs) else pairs
    if is_list(kind):
        return [_value(inner) for inner in one.values]
    if pa.types.is_struct(kind):
        return {field.name: _value(one[place]) for place, field in enumerate(kind)}
    return _leaf(one)


def _leaf(one: pa.Scalar) -> Any:
    if _is_text(one.type):
        return one.as_buffer().to_pybytes().decode("utf-8", "replace")
    with suppress(*_NO_VALUE):
        pa.array([one], one.type).validate(full=True)
        return one.as_py()
    with suppress(*_NO_VALUE):
        return one.cast(pa.string()).as_py()
    return one.cast(pa.int64()).as_py()  # a moment in a zone that nobody knows


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return any(is_kind(kind) for is_kind in (t.is_string, t.is_large_string, t.is_string_view))
