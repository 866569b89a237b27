"""Schemas: which columns a table may have, and how given columns become the table's.

A table's schema is a list of Arrow fields in one of these forms (`normal` brings what a user
gives into it), because every Hudi reader must be able to read them; beside it, what Avro,
and so a Hudi commit, calls the type (`avro_schema.py`):

    bool int32 int64 float32 float64   boolean int long float double
    string binary                      string bytes
    fixed_size_binary(n)               fixed(n)
    decimal128(p, s), 0 <= s <= p      fixed + decimal
    date32                             int + date
    time64[us]                         long + time-micros
    timestamp[ms | us]                 long + timestamp-millis | timestamp-micros
    timestamp[ms | us, UTC]            the same: the local-timestamp types break Hudi's readers
    list<T>, map<string, T>            array, map
    struct<...>                        record

Narrower integers and half floats are widened, seconds become milliseconds, nanoseconds become
microseconds (only where nothing is lost), other zones become UTC, which keeps the instant. What
orders the rows of logs becomes microseconds, too (`opening.py`).
Five string columns of Hudi's, `META_COLUMNS`, stand before these in every data file.
"""

from __future__ import annotations

import re

import pyarrow as pa

from metatable.data.columns.align import align, is_list
from metatable.data.columns.schema_text import decode_schema, encode_schema
from metatable.storage.errors import UsageError

__all__ = [
    "COMMIT_COLUMN",
    "KEY_COLUMN",
    "META_COLUMNS",
    "META_FIELDS",
    "NAME_COLUMN",
    "PATH_COLUMN",
    "align",
    "decode_schema",
    "encode_schema",
    "normal",
    "with_meta_columns",
]

META_COLUMNS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""Commit that last wrote the row, a number for it within that commit, key text, partition path,
name of the file that now holds the row."""

COMMIT_COLUMN, _, KEY_COLUMN, PATH_COLUMN, NAME_COLUMN = META_COLUMNS

META_FIELDS: list[pa.Field] = [pa.field(name, pa.string()) for name in META_COLUMNS]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_DIGITS = 38

_WIDENED = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.time64("ns"): pa.time64("us"),
    pa.date64(): pa.date32(),
}

_KEPT = frozenset(
    {
        *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), pa.time64("us")),
    }
)
"""Types that stay as they are given."""

_UNITS = {"s": "ms", "ms": "ms", "us": "us", "ns": "us"}


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """What a data file holds: the meta columns, then the table's."""
    return pa.schema([*META_FIELDS, *schema])


def normal(schema: pa.Schema) -> pa.Schema:
    """The table's schema for a schema as a user gives it. Raises UsageError, naming the column."""
    if not len(schema):
        raise UsageError("a table needs columns", found=[])
    _check_names(schema.names, "")
    for name in schema.names:
        if owner := _owner_of(name):
            raise UsageError(f"column name is taken by {owner}", column=name)
    return pa.schema([_normal_field(field, "") for field in schema])


def may_be_column(name: object) -> bool:
    """Whether a column of a table may be called so."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and not _owner_of(name)


def _owner_of(name: str) -> str:
    """Who has taken this name for columns of his own; empty: nobody."""
    plain = name.lower()
    if plain.startswith("_hoodie_"):
        return "Hudi"
    return "metatable" if plain == "_location" or plain.startswith("_metatable_") else ""


def _normal_field(field: pa.Field, parent: str) -> pa.Field:
    column = f"{parent}.{field.name}" if parent else field.name
    return pa.field(field.name, _normal_type(field.type, column), field.nullable)


def _normal_type(kind: pa.DataType, column: str) -> pa.DataType:
    if kind in _WIDENED or kind in _KEPT:
        return _WIDENED.get(kind, kind)
    if pa.types.is_dictionary(kind):
        return _normal_type(kind.value_type, column)
    if pa.types.is_timestamp(kind):
        return pa.timestamp(_UNITS[kind.unit], "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width:
        return pa.binary(kind.byte_width)
    if pa.types.is_nested(kind):
        return _normal_nested(kind, column)
    raise _unreadable(kind, column)


def _normal_nested(kind: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_struct(kind) and kind.num_fields:
        _check_names([field.name for field in kind], column)
        return pa.struct([_normal_field(field, column) for field in kind])
    if is_list(kind):
        item = kind.value_field
        inner = _normal_type(item.type, f"{column}.element")
        return pa.list_(pa.field("element", inner, item.nullable))
    if pa.types.is_map(kind) and _normal_type(kind.key_type, f"{column}.key") == pa.string():
        inner = _normal_type(kind.item_type, f"{column}.value")
        return pa.map_(pa.string(), pa.field("value", inner, kind.item_field.nullable))
    raise _unreadable(kind, column)


def _check_names(names: list[str], parent: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        column = f"{parent}.{name}" if parent else name
        if not _NAME.fullmatch(name):
            expected = "letters, digits and _, not a digit first, as Avro has it"
            raise UsageError("not a column name", column=column, expected=expected)
        if name.lower() in seen:
            what = "two columns have one name (Spark does not tell case apart)"
            raise UsageError(what, column=column, found=seen[name.lower()])
        seen[name.lower()] = name


def _unreadable(kind: pa.DataType, column: str) -> UsageError:
    return UsageError(
        "Hudi's readers cannot read a column of this type",
        column=column,
        expected=_WAY_OUT.get(str(kind), _TAKEN),
        found=str(kind),
    )


_TAKEN = (
    "bool, integer, float, string, binary, decimal128, date, time, timestamp, or a list, map with"
    " string keys or struct of these"
)

_WAY_OUT = {
    "uint64": "int64, or decimal128(20, 0)",
    "null": "a type: an empty column has none",
    "extension<arrow.uuid>": "string",
}
