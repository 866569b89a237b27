"""Expressions over the columns of a DataFrame that Spark's own functions have no word for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

from metatable.spark.types import spark_schema
from metatable.storage.errors import UsageError

__all__ = ["literal", "named", "weight_of_row", "within"]

FIXED_BYTES = 8
"""Of a column in a row, besides its text: a number, or where the text lies."""


def named(name: str) -> Column:
    """The column called exactly so, dots and all, where Spark would take them for a path."""
    return F.col("`" + name.replace("`", "``") + "`")


def literal(values: pa.Array) -> Column:
    """An array of texts and numbers. As one text, which Spark's optimizer parses, once: a literal
    of its own for each would be many calls, and is looked at by every rule."""
    [item] = spark_schema(pa.schema([pa.field("item", values.type)])).fields
    told, kind = F.lit(json.dumps(values.to_pylist())), ArrayType(item.dataType)
    return F.from_json(told, kind, {"mode": "FAILFAST"})  # else a fault would be null, as no place


def weight_of_row(schema: StructType) -> Column:
    """About the bytes of a row as Arrow, as a sum without an overflow."""
    parts: list[Column] = [F.lit(FIXED_BYTES * len(schema.fields)).cast("long")]
    for field in schema.fields:
        column = named(field.name)
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            column = F.to_json(F.struct(column))
        elif not isinstance(field.dataType, BinaryType | StringType | CharType | VarcharType):
            continue
        parts.append(F.coalesce(F.octet_length(column).cast("long"), F.lit(0)))
    return _sum(parts)


def _sum(parts: Sequence[Column]) -> Column:
    """The sum of these columns, as flat as can be: Spark goes down an expression by calls, and of a
    thousand ends its stack, or refuses what a client of Spark Connect sends."""
    while len(parts) > 1:
        pairs = zip_longest(parts[::2], parts[1::2])
        parts = [left if right is None else left + right for left, right in pairs]
    return parts[0]


def within(column: Column, name: str, count: int) -> Column:
    """`column`; a row that names no partition fails (Spark would send it to some other)."""
    kind = f"{UsageError.__module__}.{UsageError.__name__}"
    told = f"{kind}: no such partition: column={name!r} expected='0 to {count - 1}' found="
    found = F.coalesce(column.cast("string"), F.lit("None"))
    strange = F.raise_error(F.concat(F.lit(told), found)).cast("int")
    return F.when(column.between(0, count - 1), column.cast("int")).otherwise(strange)
