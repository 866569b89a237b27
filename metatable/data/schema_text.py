"""A table's schema as JSON text, for the manifest: exact, and a person can read it.

    {"fields": [{"name": "id", "type": "int64", "nullable": true}, ...]}

A type is Arrow's own word for it (`int32`, `string`, `timestamp[us, tz=UTC]`,
`decimal128(10, 2)`, `fixed_size_binary[16]`), or an object with one entry:

    {"list": ELEMENT}    {"map": VALUE} (keys are strings)    {"struct": [FIELD, ...]}

ELEMENT and VALUE are fields without a name.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from metatable.storage.errors import CorruptError, UpgradeError

__all__ = ["decode_schema", "encode_schema"]

_PLAIN: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.time64("us"),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in (None, "UTC")),
    )
}
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    pa.ArrowException,
)
_DECIMAL = re.compile(r"decimal128\((\d{1,2}), (\d{1,2})\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")


def encode_schema(schema: pa.Schema) -> str:
    """As text. `schema` is one that `metatable.data.schema.normal` made."""
    return json.dumps({"fields": [_field(field) for field in schema]})


def decode_schema(text: str, path: str) -> pa.Schema:
    """Read back. Raises CorruptError, and UpgradeError for a type that is not known here."""
    try:
        return pa.schema([_read_field(field, path) for field in json.loads(text)["fields"]])
    except _UNREADABLE as error:
        raise CorruptError("schema is not readable", path=path, found=str(error)) from error


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable}


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return {"list": _unnamed(kind.value_field)}
    if pa.types.is_map(kind):
        return {"map": _unnamed(kind.item_field)}
    if pa.types.is_struct(kind):
        return {"struct": [_field(field) for field in kind]}
    return str(kind)


def _unnamed(field: pa.Field) -> dict[str, Any]:
    return {"type": _type(field.type), "nullable": field.nullable}


def _read_field(stored: dict[str, Any], path: str) -> pa.Field:
    return pa.field(stored["name"], _read_type(stored["type"], path), stored["nullable"])


def _read_type(stored: Any, path: str) -> pa.DataType:
    if isinstance(stored, dict):
        return _read_nested(stored, path)
    if stored in _PLAIN:
        return _PLAIN[stored]
    if numbers := _DECIMAL.fullmatch(stored):
        return pa.decimal128(int(numbers[1]), int(numbers[2]))
    if numbers := _FIXED.fullmatch(stored):
        return pa.binary(int(numbers[1]))
    raise UpgradeError("unknown column type", path=path, found=stored)


def _read_nested(stored: dict[str, Any], path: str) -> pa.DataType:
    [(word, inner)] = stored.items()
    if word == "struct":
        return pa.struct([_read_field(field, path) for field in inner])
    if word == "list":
        return pa.list_(_read_field(inner | {"name": "element"}, path))
    if word == "map":
        return pa.map_(pa.string(), _read_field(inner | {"name": "value"}, path))
    raise UpgradeError("unknown column type", path=path, found=word)
