"""Types: Arrow's and Spark's names for the columns that both have.

pyspark has such functions of its own, but they change from version to version, and they let
types through that come back as other ones. Here a type is either in the table or refused.
A timestamp with a zone is an instant (Spark's TimestampType), one without is a reading of a
clock (TimestampNTZType); both are in microseconds, in Spark as in Arrow.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from metatable.storage.errors import UsageError

__all__ = ["arrow_schema", "spark_schema"]

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
_TO_ARROW = {type(theirs): ours for ours, theirs in _PAIRS}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Arrow's columns for Spark's. Raises UsageError for a type that is not in the table."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def spark_schema(schema: pa.Schema, nullable: bool = False) -> spark.StructType:
    """Spark's columns for Arrow's (all `nullable` if asked for). Raises UsageError."""
    fields = [field.with_nullable(True) for field in schema] if nullable else list(schema)
    return spark.StructType([_spark_field(field) for field in fields])


def _arrow_field(field: spark.StructField) -> pa.Field:
    return pa.field(field.name, _arrow(field.dataType, field.name), field.nullable)


def _arrow(kind: spark.DataType, column: str) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        element = _arrow(kind.elementType, column)
        return pa.list_(pa.field("element", element, kind.containsNull))
    if isinstance(kind, spark.MapType):
        value = pa.field("value", _arrow(kind.valueType, column), kind.valueContainsNull)
        return pa.map_(_arrow(kind.keyType, column), value)
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
    if kind not in _TO_SPARK:
        raise UsageError("Spark has no such type", column=column, found=str(kind))
    return _TO_SPARK[kind]
