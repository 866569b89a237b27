"""Types: Arrow's and Spark's names for the columns that both have.

pyspark has such functions of its own, but they change from version to version, and they let
types through that come back as other ones. Here a type is either in the table or refused.
A timestamp with a zone is an instant (Spark's TimestampType), one without is a reading of a
clock (TimestampNTZType); both are in microseconds, in Spark as in Arrow.

Two types a table may have and Spark has not: binaries of fixed size, and milliseconds. Such columns
are binaries and microseconds there. Between our tasks Spark carries beside them what they were
(`carried`), and a task is given that (`task_schema`).
"""

from __future__ import annotations

import base64

import pyarrow as pa
from pyspark.sql import types as spark

from metatable.storage.errors import UsageError

__all__ = ["arrow_schema", "carried", "has_types", "readable", "spark_schema", "task_schema"]

_WAS = "metatable.arrow"
"""Metadata of a column: its field as Arrow writes a schema, in base64."""

_PAIRS: list[tuple[pa.DataType, spark.DataType]] = [
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (pa.timestamp("us", tz="UTC"), spark.TimestampType()),
    (pa.timestamp("us"), spark.TimestampNTZType()),
    (pa.null(), spark.NullType()),
]
_TO_SPARK: dict[pa.DataType, spark.DataType] = dict(_PAIRS) | {
    pa.large_string(): spark.StringType(),
    pa.large_binary(): spark.BinaryType(),
}
_TO_ARROW = {type(theirs): ours for ours, theirs in _PAIRS} | {
    spark.CharType: pa.string(),  # which Spark tells only if it was asked to
    spark.VarcharType: pa.string(),
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Arrow's columns for Spark's, as it sends and takes them. Raises UsageError for a type that is
    not in the table."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def task_schema(schema: spark.StructType) -> pa.Schema:
    """`arrow_schema`, with the types of before of what is `carried`."""
    return pa.schema([_was(field) or _arrow_field(field) for field in schema.fields])


def readable(schema: pa.Schema) -> pa.Schema:
    """The columns as Spark has them, for rows that are not ours any more: nothing is carried."""
    return arrow_schema(spark_schema(schema))


def carried(schema: pa.Schema) -> spark.StructType:
    """`spark_schema` of what tasks make and others are given: where Spark has no such type, with
    what it was."""
    made = spark_schema(schema)
    for ours, theirs in zip(schema, made.fields, strict=True):
        if _is_only_ours(ours.type):
            alone = pa.schema([ours.remove_metadata()]).serialize()
            theirs.metadata = {_WAS: base64.b64encode(alone).decode()}
    return made


def spark_schema(schema: pa.Schema, nullable: bool = False) -> spark.StructType:
    """Spark's columns for Arrow's (all `nullable` if asked for). Raises UsageError."""
    fields = [field.with_nullable(True) for field in schema] if nullable else list(schema)
    return spark.StructType([_spark_field(field) for field in fields])


def has_types(schema: pa.Schema) -> bool:
    """Whether Spark has all types of these columns."""
    try:
        spark_schema(schema)
    except UsageError:
        return False
    return True


def _is_only_ours(kind: pa.DataType) -> bool:
    """Whether Spark has no such type, or not one of those in it."""
    if pa.types.is_nested(kind):
        return any(_is_only_ours(kind.field(place).type) for place in range(kind.num_fields))
    is_coarse = pa.types.is_timestamp(kind) and kind.unit == "ms"
    return bool(is_coarse or pa.types.is_fixed_size_binary(kind))


def _was(field: spark.StructField) -> pa.Field | None:
    """What is carried of it. The name is what it has now, and there may be nulls by now."""
    told = field.metadata.get(_WAS)
    if told is None:
        return None
    [found] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told)))
    return found.with_name(field.name).with_nullable(field.nullable)


def _arrow_field(field: spark.StructField) -> pa.Field:
    return _field(field.name, _arrow(field.dataType, field.name), field.nullable)


def _field(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    """Of what is empty, `array()` for one, Spark says that no element is null."""
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def _arrow(kind: spark.DataType, column: str) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        element = _arrow(kind.elementType, column)
        return pa.list_(_field("element", element, kind.containsNull))
    if isinstance(kind, spark.MapType):
        key = _arrow(kind.keyType, column)
        value = _field("value", _arrow(kind.valueType, column), kind.valueContainsNull)
        return pa.map_(pa.string() if pa.types.is_null(key) else key, value)
    if isinstance(kind, spark.StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if type(kind) not in _TO_ARROW:
        raise UsageError("Arrow has no such type", column=column, found=kind.simpleString())
    return _TO_ARROW[type(kind)]


def _spark_field(field: pa.Field) -> spark.StructField:
    return spark.StructField(field.name, _spark(field.type, field.name), field.nullable)


def _spark(kind: pa.DataType, column: str) -> spark.DataType:
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(_spark(kind.value_type, column), kind.value_field.nullable)
    if pa.types.is_map(kind):
        key, value = _spark(kind.key_type, column), _spark(kind.item_type, column)
        return spark.MapType(key, value, kind.item_field.nullable)
    if pa.types.is_struct(kind):
        return spark.StructType([_spark_field(field) for field in kind])
    if pa.types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    known = pa.binary() if pa.types.is_fixed_size_binary(kind) else kind
    if known not in _TO_SPARK:
        raise UsageError("Spark has no such type", column=column, found=str(kind))
    return _TO_SPARK[known]
