"""Scan: rows of one version, column by column, of the files that may hold rows asked for.

A scan reads current slices of its version and nothing else. `where` leaves files out first
(`skipping`), then rows, exactly. It holds one file at a time; `to_batches` streams,
`to_arrow` gathers, `to_spark` hands the files to Spark's own reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.schema import META_FIELDS
from metatable.data.slice_reader import read_slice
from metatable.data.slices import DataFile, FileSlice
from metatable.expressions import parse_where
from metatable.metadata.column_stats import row_counts
from metatable.metadata.manifest import load_newest
from metatable.metadata.snapshot import Snapshot
from metatable.predicates import bind, columns_of, evaluate, matches
from metatable.results import Explain
from metatable.skipping import Selection, keep_files
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, StaleError, UsageError

__all__ = ["Scan"]


class Scan:
    """Rows of a version; runs when it is asked for them.

    `where` is an expression or DNF tuples (`expressions.parse_where`). Raises UsageError for
    columns that are not there and literals that do not fit them.
    """

    def __init__(
        self, snapshot: Snapshot, columns: Sequence[str] | None = None, where: Any = None
    ) -> None:
        self._snapshot = snapshot
        self.schema = _chosen(snapshot.schema, columns)
        parsed = parse_where(where)
        self._where = None if parsed is None else bind(parsed, snapshot.schema)

    def files(self) -> list[DataFile]:
        """The data files that may hold the rows, by partition path and file name."""
        return self._selection().files()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a file at a time. Raises StaleError where the version's files are gone."""
        for file in self.files():
            yield from self._rows(file, self.schema)

    def to_arrow(self) -> pa.Table:
        """The rows as one table. Raises StaleError where the version's files are gone."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_spark(self, session: Any) -> Any:
        """The rows as a lazy DataFrame of this Spark session, read by Spark's own reader."""
        from metatable.spark import parquet  # noqa: PLC0415  (first use of Spark)

        read = self._with_condition(self.schema)
        rows = parquet.read(session, self._snapshot.store.uri, self._paths(), read)
        if self._where is not None:
            rows = rows.where(evaluate(self._where, parquet.Conditions(read)))
        return parquet.select(rows, self.schema.names)

    def count(self) -> int:
        """How many rows there are.

        Without a `where` from the metadata, no data file is opened; else only the columns
        that it names are read.
        """
        if self._where is not None:
            wanted = self._with_condition(pa.schema([]))
            return sum(one.num_rows for file in self.files() for one in self._rows(file, wanted))
        counts = row_counts(self._snapshot, self.files())
        if (counts < 0).any():
            raise CorruptError("a live slice has no statistics", path=self._snapshot.store.uri)
        return int(counts.sum())

    def explain(self) -> Explain:
        """Which files would be read, and what it cost to find out; reads no data file."""
        began, counters = time.perf_counter(), Counters()
        selection = keep_files(self._where, self._snapshot.counting(counters))
        self._snapshot.store.counters.merge(counters)
        return Explain(
            keys=None,
            found=None,
            seconds=time.perf_counter() - began,
            counters=dict(counters),
            operation="scan",
            files={
                "all": len(selection.view),
                "after partitions": len(selection.after_partitions),
                "after statistics": len(selection.after_statistics),
            },
            file_bytes=selection.size_bytes,
        )

    def _selection(self) -> Selection:
        return keep_files(self._where, self._snapshot)

    def _paths(self) -> list[str]:
        selection = self._selection()
        paths: list[str] = selection.view.take(selection.after_statistics).paths.to_pylist()
        return paths

    def _with_condition(self, schema: pa.Schema) -> pa.Schema:
        """`schema`, and behind it the columns that only the condition needs."""
        if self._where is None:
            return schema
        every = {field.name: field for field in (*META_FIELDS, *self._snapshot.schema)}
        needed = dict.fromkeys([*schema.names, *columns_of(self._where)])
        return pa.schema([every[name] for name in needed] or [META_FIELDS[0]])

    def _rows(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a file for which the condition is true."""
        if self._where is None:
            yield from self._read(file, schema).to_batches()
            return
        for batch in self._read(file, self._with_condition(schema)).to_batches():
            wanted = matches(self._where, batch)
            if pc.any(wanted).as_py():
                yield batch.select(schema.names).filter(wanted)

    def _read(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        store = self._snapshot.store
        try:
            return read_slice(store, FileSlice(file), schema)
        except CorruptError as error:
            newest = load_newest(store)
            if newest is not None and newest.version > self._snapshot.version:
                raise StaleError(
                    "a file of this version is gone: open the table again",
                    path=file.path,
                    version=self._snapshot.version,
                    newest=newest.version,
                ) from error
            raise


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if not columns:
        raise UsageError("a scan needs a column", expected=schema.names)
    every = {field.name: field for field in (*META_FIELDS, *schema)}
    for name in columns:
        if name not in every:
            raise UsageError("no such column", column=name, expected=list(every))
    return pa.schema([every[name] for name in columns])
