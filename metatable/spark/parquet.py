"""A scan on Spark: chosen files for Spark's own Parquet reader, and a predicate as its Column.

Which files and which columns, the caller decides; the rows never pass through Python. Only the
DataFrame API is used, and what a literal means does not hang on the session's settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql import types as spark

from metatable.spark.addresses import root_for
from metatable.spark.columns import named
from metatable.spark.demands import check_session
from metatable.spark.types import spark_schema
from metatable.storage.store import Store

__all__ = ["Conditions", "read", "reads_structs", "select"]

_AS_STORED = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""What a session may have set otherwise: to take days before 1582 for another calendar's, where a
file does not say that Spark wrote it, and to leave out files that are gone or damaged, in silence.
"""

_NULLS_STRUCTS = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"


def reads_structs(session: SparkSession, schema: pa.Schema) -> bool:
    """Whether the session's reader finds a struct in a file that has none of the fields asked for:
    a setting, which no option of a reader outdoes, makes it null, and the list around it."""
    if str(session.conf.get(_NULLS_STRUCTS, "false")).lower() != "true":
        return True
    return not any(_has_struct(field.type) for field in schema)


def _has_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return pa.types.is_struct(kind) or any(map(_has_struct, inner))


def read(session: SparkSession, store: Store, paths: Sequence[str], schema: pa.Schema) -> DataFrame:
    """These columns of these Parquet files of the store; no files, no rows.

    A column that a file lacks is null there. Raises UsageError for a type that Spark lacks, and
    where it cannot reach the store.
    """
    check_session(session)
    wanted = spark_schema(schema, nullable=True)
    if not paths:
        return session.createDataFrame([], wanted)
    root = root_for(session, store)
    reader = session.read.schema(wanted).options(**_AS_STORED)
    return reader.parquet(*[_literally(f"{root}/{path}") for path in paths])


def select(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Only these columns, in this order."""
    return rows.select(*[named(name) for name in columns])


def _literally(path: str) -> str:
    """Spark takes a path for a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _in_milliseconds(literal: Any) -> bool:
    """Whether it is the same in milliseconds, if it is a moment."""
    return not isinstance(literal, datetime) or literal.microsecond % 1000 == 0


class Conditions:
    """A dialect of predicates (`query.predicates.Dialect`): Spark's Columns over `schema`.

    What is asked of some columns is kept from being pushed down into the Parquet reader, which
    skips row groups by their footers:

        floats       those leave NaN out, and the reader takes -0 for another number than 0
        decimals     it makes the literal one of the file's, which has fewer digits where the column
                     was widened: the job ends there, or rows are missing
        timestamps   where a file has milliseconds, it cuts the literal down to them
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = {field.name: field.dataType for field in spark_schema(schema)}

    def constant(self, value: bool) -> Column:
        return F.lit(value)

    def compare(self, column: str, op: str, value: Any) -> Column:
        held, literal = self._held(column, [value]), self._literal(column, value)
        compared: dict[str, Column] = {
            "=": held == literal,
            "!=": held != literal,
            "<": held < literal,
            "<=": held <= literal,
            ">": held > literal,
            ">=": held >= literal,
        }
        return compared[op]

    def is_in(self, column: str, values: Sequence[Any], negated: bool) -> Column:
        among = self._held(column, values).isin([self._literal(column, value) for value in values])
        return ~among if negated else among

    def is_null(self, column: str, negated: bool) -> Column:
        return named(column).isNotNull() if negated else named(column).isNull()

    def starts_with(self, column: str, prefix: str | bytes, negated: bool) -> Column:
        begins = F.startswith(named(column), self._literal(column, prefix))
        return ~begins if negated else begins

    def both(self, left: Column, right: Column) -> Column:
        return left & right

    def either(self, left: Column, right: Column) -> Column:
        return left | right

    def _held(self, column: str, literals: Sequence[Any]) -> Column:
        """The column, so that what is asked of it with these literals is not pushed down where
        the reader would go wrong."""
        kind, held = self._types[column], named(column)
        if isinstance(kind, spark.FloatType | spark.DoubleType):
            return held + F.lit(0.0)
        if isinstance(kind, spark.DecimalType) or not all(map(_in_milliseconds, literals)):
            return F.greatest(held, held)  # itself, which no optimizer knows
        return held

    def _literal(self, column: str, value: Any) -> Column:
        """A literal of the column's type; floats are compared as doubles."""
        kind = self._types[column]
        if isinstance(value, bytes):
            return F.unhex(F.lit(value.hex()))
        if isinstance(value, float):
            kind = spark.DoubleType()
        if isinstance(value, Decimal):
            value = f"{value:f}"
        if isinstance(value, date | datetime):
            value = value.isoformat()
        return F.lit(value).cast(kind)
