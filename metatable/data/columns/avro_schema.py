"""A table's schema in Avro, as Hudi's commits and log blocks tell it, and back.

`schema.py` has the table of types. `to_avro` names records and fixed types as Spark does;
`from_avro` reads what any Hudi writer has left in a commit. What Avro has beyond a table's schema
(enumerations, unions of several types, a name that stands for a type told before), and local
timestamps, which `to_avro` does not write, are refused there: no column of such a type could be
written again as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from metatable.data.columns.align import is_list
from metatable.data.columns.schema import META_COLUMNS
from metatable.data.columns.schema_text import TableSchema, walk
from metatable.storage.errors import CorruptError, UpgradeError, in_short

__all__ = ["from_avro", "in_avro", "tells_all", "to_avro"]

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

_LOGICAL: dict[tuple[str, str | None], pa.DataType | None] = {
    ("int", "date"): pa.date32(),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): None,
    ("long", "local-timestamp-micros"): None,
}
"""None: of a type that is not taken for a plain one either."""

_UNREADABLE = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    pa.ArrowException,
)

_AVRO: dict[pa.DataType, Any] = {
    **{kind: word for word, kind in _PLAIN.items()},
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_LOGICAL_UNITS = {"ms": "timestamp-millis", "us": "timestamp-micros"}


def from_avro(text: str, path: str) -> pa.Schema:
    """The Arrow schema of a record's Avro schema (JSON), without Hudi's meta columns.

    `path` is the file that holds it. Raises CorruptError, and UpgradeError for types that a
    table of ours cannot have, naming the column.
    """
    try:
        record = json.loads(text)
        fields = [_field(one, "", path) for one in record["fields"]]
    except _UNREADABLE as error:
        raise CorruptError("schema is not readable", path=path, found=in_short(error)) from error
    return pa.schema([one for one in fields if one.name not in META_COLUMNS])


def _field(stored: Mapping[str, Any], parent: str, path: str) -> pa.Field:
    name = stored["name"]
    kind, nullable = _type(stored["type"], f"{parent}.{name}" if parent else name, path)
    return pa.field(name, kind, nullable)


def _type(stored: Any, column: str, path: str) -> tuple[pa.DataType, bool]:
    """(type, whether it may be null)."""
    if not isinstance(stored, list):
        return _of_one(stored, column, path), False
    others = [one for one in stored if one != "null"]
    if len(others) != 1:
        raise _unknown(stored, column, path)
    return _of_one(others[0], column, path), len(others) < len(stored)


def _of_one(stored: Any, column: str, path: str) -> pa.DataType:
    body = stored if isinstance(stored, Mapping) else {"type": stored}
    word = body["type"]
    if isinstance(word, Mapping | list):  # {"type": {"type": …}}, as some writers have it
        return _type(word, column, path)[0]
    if body.get("logicalType") == "decimal":
        return _decimal(body)
    if word in _NESTED:
        return _NESTED[word](body, column, path)
    kind = _LOGICAL.get((word, body.get("logicalType")), _PLAIN.get(word))
    if kind is None:
        raise _unknown(stored, column, path)
    return kind


def _array(body: Mapping[str, Any], column: str, path: str) -> pa.DataType:
    kind, nullable = _type(body["items"], f"{column}.element", path)
    return pa.list_(pa.field("element", kind, nullable))


def _map(body: Mapping[str, Any], column: str, path: str) -> pa.DataType:
    kind, nullable = _type(body["values"], f"{column}.value", path)
    return pa.map_(pa.string(), pa.field("value", kind, nullable))


def _record(body: Mapping[str, Any], column: str, path: str) -> pa.DataType:
    return pa.struct([_field(one, column, path) for one in body["fields"]])


def _fixed(body: Mapping[str, Any], column: str, path: str) -> pa.DataType:
    size = int(body["size"])
    if size < 0:  # Arrow would take one of them for bytes of any length
        raise ValueError(f"a fixed type of {size} bytes")
    return pa.binary(size)


def _decimal(body: Mapping[str, Any]) -> pa.DataType:
    precision, scale = body["precision"], body.get("scale", 0)
    if not 0 <= scale <= precision:
        raise ValueError(f"a decimal of {precision} digits, {scale} of them behind the point")
    return pa.decimal128(precision, scale)


_NESTED: dict[str, Callable[[Mapping[str, Any], str, str], pa.DataType]] = {
    "array": _array,
    "map": _map,
    "record": _record,
    "fixed": _fixed,
}


def _unknown(stored: Any, column: str, path: str) -> UpgradeError:
    return UpgradeError(
        "the table has a column of a type that metatable does not write: create one from its rows",
        path=path,
        column=column,
        found=json.dumps(stored)[:200],
    )


# The other way round


def to_avro(schema: pa.Schema, name: str) -> dict[str, Any]:
    """The Avro record schema of the table called `name`, named as Hudi on Spark names it.

    The same names matter: a decimal is a named `fixed` there, and another name is another type
    to the next writer. Without meta columns.
    """
    table = _avro_name(name)
    record = pa.struct(list(schema))
    made: dict[str, Any] = _to_avro_type(record, f"{table}_record", f"hoodie.{table}")
    return made


def in_avro(schema: pa.Schema) -> pa.Schema:
    """What `from_avro` makes of the schema in Avro."""
    return from_avro(json.dumps(to_avro(schema, "")), "")


def tells_all(columns: TableSchema) -> bool:
    """Whether Avro tells the columns whole: their ids are in order, as those of a new table, and no
    timestamp is without a zone, for there is one type for both."""
    every = [one for _, one in walk(columns.columns)]
    is_in_order = [one.id for one in every] == [*range(1, len(every) + 1)]
    stamps = (one.type for one in every if pa.types.is_timestamp(one.type))
    return is_in_order and all(one.tz for one in stamps)


def _to_avro_type(kind: pa.DataType, name: str, namespace: str) -> Any:
    """`name` and `namespace` are those that Spark would give to a named type in this place."""
    if kind in _AVRO:
        return _AVRO[kind]
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": _LOGICAL_UNITS[kind.unit]}
    if is_list(kind):
        return {"type": "array", "items": _element(kind.value_field, name, namespace)}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _element(kind.item_field, name, namespace)}
    if pa.types.is_struct(kind):
        fields = [_to_avro_field(field, f"{namespace}.{name}") for field in kind]
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return _to_avro_fixed(kind, f"{namespace}.{name}")


def _to_avro_fixed(kind: pa.DataType, namespace: str) -> dict[str, Any]:
    fixed: dict[str, Any] = {"type": "fixed", "name": "fixed", "namespace": namespace}
    if pa.types.is_decimal(kind):
        decimal = {"precision": kind.precision, "scale": kind.scale}
        return fixed | {"size": _decimal_bytes(kind.precision), "logicalType": "decimal"} | decimal
    return fixed | {"size": kind.byte_width}


def _decimal_bytes(precision: int) -> int:
    """Fewest bytes whose signed integers hold so many digits."""
    return (int(10**precision - 1).bit_length() + 8) // 8


def _to_avro_field(field: pa.Field, namespace: str) -> dict[str, Any]:
    inner = _to_avro_type(field.type, field.name, namespace)
    if not field.nullable:
        return {"name": field.name, "type": inner}
    return {"name": field.name, "type": ["null", inner], "default": None}


def _element(field: pa.Field, name: str, namespace: str) -> Any:
    inner = _to_avro_type(field.type, name, namespace)
    return ["null", inner] if field.nullable else inner


def _avro_name(name: str) -> str:
    """As Hudi makes one of a table's name: what Avro does not allow becomes two underscores."""
    head = re.sub(r"^[^A-Za-z_]", "__", name)
    return re.sub(r"[^A-Za-z0-9_]", "__", head)
