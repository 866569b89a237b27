"""Rows: what the answer of a query, a `Scan` or `Changes`, can be turned into.

to_batches, to_reader             a stream, in this process
__arrow_c_stream__                the same for any library with Arrow's C interface: DuckDB, …
to_arrow, to_pandas, to_polars    all rows in memory
to_duckdb                         a lazy relation, each query of which reads anew
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema import META_FIELDS
from metatable.storage.errors import UsageError

__all__ = ["Rows", "chosen_columns", "spark_session"]


class Rows(ABC):
    """Rows that are worked out when they are asked for, and again when they are asked for again."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows, in order."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time. Raises StaleError where the version is not kept any more, or
        was undone, CorruptError where its files are damaged or lost.
        """

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that can be read once. Raises as `to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library with Arrow's C interface; each call begins anew.

        Where reading such a stream fails, that library raises an error of its own.
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The rows as one table. Raises as `to_batches`."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame. Raises as `to_batches`, UsageError without pandas."""
        _package("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The rows as a Polars DataFrame. Raises as `to_batches`, UsageError without Polars."""
        return _package("polars").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A lazy DuckDB relation of the rows, on this connection or DuckDB's default one.

        Raises UsageError without DuckDB. Each query of it begins anew.
        """
        duckdb = _package("duckdb")
        return (duckdb if connection is None else connection).from_arrow(self)


def chosen_columns(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields of the columns that are named, one or several; of None all of the table's.

    Hudi's meta columns may be named, too. Raises UsageError for a name that is not there, one that
    is named twice, and for an empty list.
    """
    if columns is None:
        return schema
    names = _named(columns)
    if not names:
        raise UsageError("no column is asked for", expected=schema.names)
    every = {field.name: field for field in (*META_FIELDS, *schema)}
    for name in names:
        if name not in every:
            raise UsageError("no such column", column=name, expected=list(every))
    if len(set(names)) < len(names):
        raise UsageError("a column is named twice", found=list(names))
    return pa.schema([every[name] for name in names])


def _named(columns: Any) -> tuple[str, ...]:
    """One name or several, of whatever can be gone through once."""
    if isinstance(columns, str):
        return (columns,)
    found = type(columns).__name__
    if isinstance(columns, Iterable) and not isinstance(columns, bytes):
        names = tuple(columns)
        if all(isinstance(one, str) for one in names):
            return names
        found = next(one for one in names if not isinstance(one, str))
    raise UsageError("columns are named", expected="a name, or several", found=found)


def spark_session(session: Any) -> Any:
    """This Spark session. Raises UsageError for anything else."""
    if not hasattr(type(session), "createDataFrame"):
        found = type(session).__qualname__
        raise UsageError("not a Spark session", expected="a SparkSession", found=found)
    return session


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed", expected=f"pip install {name}") from error
