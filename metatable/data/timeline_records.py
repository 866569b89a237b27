"""Records of Hudi's timeline that are Avro containers: how their schemas are put together.

Readers of Hudi's go by names, its own classes by the whole schema: so ours are equal to theirs.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro

__all__ = [
    "SPACE",
    "TEXT",
    "TEXTS",
    "VERSION",
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
