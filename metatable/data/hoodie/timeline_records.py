"""Records of Hudi's timeline that are Avro containers: how their schemas are put together, and how
one is read.

Readers of Hudi's go by names, its own classes by the whole schema: so ours are equal to theirs.

A container tells the schema that it is read by. Of a schema that contains itself, of lists of items
without bytes, of a block that is packed a few bytes ask for any amount of work, memory, or depth of
the stack; so these are refused before anybody reads by it. Hudi writes none of them.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro

from metatable.storage.avro.schema import parse

__all__ = [
    "SPACE",
    "TEXT",
    "TEXTS",
    "VERSION",
    "decoded",
    "encoded",
    "field",
    "map_of",
    "maybe",
    "record",
    "some",
]

SPACE = "org.apache.hudi.avro.model"
TEXT = {"type": "string", "avro.java.string": "String"}
TEXTS = {"type": "array", "items": TEXT}
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        ],
    }
)
"""What a container begins with (Avro 1.11, "Object Container Files")."""
_PLAIN = b"null"
VERSION = {"name": "version", "type": ["int", "null"], "default": 1}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """A record of Hudi's name space."""
    return {"type": "record", "name": name, "namespace": SPACE, "fields": list(fields)}


def field(name: str, type_: Any) -> dict[str, Any]:
    """One that is always there."""
    return {"name": name, "type": type_}


def map_of(values: Any) -> dict[str, Any]:
    """Keys are strings."""
    return {"type": "map", "values": values, "avro.java.string": "String"}


def maybe(name: str, type_: Any) -> dict[str, Any]:
    """A field that is null where it is not told."""
    return {"name": name, "type": ["null", type_], "default": None}


def some(name: str, items: Any) -> dict[str, Any]:
    """A list that is empty where it is not told."""
    return {"name": name, "type": {"type": "array", "items": items}, "default": []}


def encoded(schema: Any, told: dict[str, Any]) -> bytes:
    """A container of one record."""
    with io.BytesIO() as file:
        fastavro.writer(file, schema, [told])
        return file.getvalue()


def decoded(body: bytes) -> Any:
    """The record of a container of one. Raises whatever comes: fastavro does."""
    header: Any = fastavro.schemaless_reader(io.BytesIO(body), _HEADER, None)
    told = header["meta"]
    if told.get("avro.codec", _PLAIN) != _PLAIN:
        raise ValueError(f"blocks are packed: {told['avro.codec'][:20]!r}")
    parse(told["avro.schema"].decode())
    [record] = fastavro.reader(io.BytesIO(body))
    return record
