"""Rows and keys as users give them, before an engine adopts them.

    rows, keys   a dict of columns becomes a table. A number of Python's has a kind, but no width:
                 integers in lists become the column's integers, floats or decimals where they fit,
                 and its floats the column's
    keys         where one column tells which key it is: a list, tuple, numpy array, Arrow array, or
                 Series of its values, too
    pandas       a level of the index whose name is a column of the table, or with `evolve` may be
                 one, becomes a column; others are left out

Anything else is handed on as it is. Types are those of rows: `align` widens them, and refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from datetime import date
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema import KEY_COLUMN, PATH_COLUMN, may_be_column
from metatable.data.config.options import Options
from metatable.data.keys.key_texts import own_identity_columns
from metatable.storage.errors import UsageError

__all__ = ["given_keys", "given_rows"]

_SCALARS = (str, bytes, int, float, date)


def given_rows(data: Any, schema: pa.Schema, evolve: bool = False) -> Any:
    """Rows to be written to a table of these columns. `evolve`: unknown columns are added to it.
    Raises UsageError."""
    if _is_list_of_dicts(data):
        expected = "a dict of columns, or pyarrow.Table.from_pylist(rows)"
        raise UsageError("these are no rows", expected=expected, found="a list of dicts")
    return _rows(data, schema, None if evolve else schema.names)


def given_keys(data: Any, options: Options, schema: pa.Schema) -> Any:
    """Rows whose keys are asked for, or deleted, in a table of these columns. Raises UsageError."""
    _refuse_no_keys(data)
    if not _are_values(data) or _are_structs(data):
        return _rows(data, schema, [*schema.names, KEY_COLUMN, PATH_COLUMN])
    name, *others = own_identity_columns(options, schema.names)
    if others:
        columns = ", ".join(f'"{one}": […]' for one in (name, *others))
        what = "keys of this table are told by several columns"
        raise UsageError(what, expected=f"pyarrow.table({{{columns}}})", found=_told(data))
    return pa.table({name: _array(data, name, schema)})


def _rows(data: Any, schema: pa.Schema, known: Collection[str] | None) -> Any:
    if isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):
        return _table(data, schema)
    if _is_of("polars", data) and hasattr(data, "collect"):
        raise UsageError("these are no rows yet", expected=".collect()", found=_told(data))
    if _is_of("pandas", data) and hasattr(data, "columns"):
        return _with_index(data, known)
    return data


def _with_index(frame: Any, known: Collection[str] | None) -> Any:
    """A pandas DataFrame with these levels of its index as columns; None: all that may be some."""
    made = frame
    for place, name in enumerate(frame.index.names):
        is_one = may_be_column(name) if known is None else isinstance(name, str) and name in known
        if is_one and name not in made.columns:
            made = frame.copy(deep=False) if made is frame else made
            made[name] = frame.index.get_level_values(place)
    return made


def _table(columns: Mapping[Any, Any], schema: pa.Schema) -> pa.Table:
    for name, values in columns.items():
        if not isinstance(name, str) or not _are_values(values):
            what, expected = "not a column of a dict of rows", "a name, and a list of its values"
            raise UsageError(what, column=name, expected=expected, found=_told(values))
    arrays = {name: _array(values, name, schema) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len({*lengths.values()}) > 1:
        raise UsageError("columns of rows are equally long", found=lengths)
    return pa.table(arrays)


def _array(values: Any, column: str, schema: pa.Schema) -> pa.Array | pa.ChunkedArray:
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if _is_of("polars", values):
            return pa.chunked_array(values)
        made = pa.array(values, from_pandas=_is_of("pandas", values))
        if isinstance(values, Sequence) and column in schema.names:
            kind = schema.field(column).type
            return pa.array(values, kind) if _is_of_widths(made.type, kind) else made
        return made
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        what, reason = "values cannot be taken over as Arrow", str(error)
        raise UsageError(what, column=column, found=_told(values), reason=reason) from error


def _is_of_widths(made: pa.DataType, kind: pa.DataType) -> bool:
    """Whether what Arrow takes Python's values for is another type by the widths of numbers."""
    t = pa.types
    if t.is_integer(made):
        return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))
    if t.is_floating(made):
        return bool(t.is_floating(kind))
    if t.is_list(made) and t.is_list(kind):
        return _is_of_widths(made.value_type, kind.value_type)
    if t.is_struct(made) and t.is_struct(kind):
        names = [one.name for one in kind]
        return all(
            one.name in names and _is_of_widths(one.type, kind.field(one.name).type) for one in made
        )
    return bool(made == kind or t.is_null(made))


def _refuse_no_keys(data: Any) -> None:
    what, found = "keys come in a list, or as rows", _told(data)
    if isinstance(data, _SCALARS):
        raise UsageError(what, expected="[key]", found=found)
    if isinstance(data, Set | Iterator) and not hasattr(data, "__arrow_c_stream__"):
        raise UsageError(what, expected="list(keys)", found=found)
    if _is_list_of_dicts(data):
        expected = "pyarrow.Table.from_pylist(keys)"
        raise UsageError(what, expected=expected, found="a list of dicts")


def _is_list_of_dicts(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Mapping)


def _are_values(data: Any) -> bool:
    """Whether it is a sequence of values, as a column is."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return True
    if isinstance(data, list | tuple | range):
        return not hasattr(data, "__arrow_c_stream__")
    if _is_of("numpy", data):
        return getattr(data, "ndim", 0) == 1
    is_series = _is_of("pandas", data) or _is_of("polars", data)
    return is_series and hasattr(data, "dtype") and not hasattr(data, "columns")


def _are_structs(data: Any) -> bool:
    """Whether values are rows, as a column of structs is."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return bool(pa.types.is_struct(data.type))
    dtype = getattr(data, "dtype", None)
    if _is_of("polars", data):
        return type(dtype).__name__ == "Struct"
    kind = getattr(dtype, "pyarrow_dtype", None)
    return kind is not None and bool(pa.types.is_struct(kind))


def _told(data: Any) -> str:
    return type(data).__qualname__


def _is_of(library: str, data: Any) -> bool:
    """Whether it is an object of this library's; told without loading the library."""
    return library in {one.__module__.partition(".")[0] for one in type(data).__mro__}
