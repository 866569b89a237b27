"""Scan: reads the rows of one version, from the files that may hold rows that are asked for.

A scan reads current slices of its version and nothing else. `where` leaves out files first
(`skipping`), then rows, exactly; `limit` ends it. In memory are some row groups of one file at a
time (`base_file.STEP_BYTES`), and what is begun of the files that come next (`slices_ahead`).
Besides what all rows can become (`rows.Rows`), `to_spark` hands the files to Spark's own reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.schema import META_FIELDS
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, key_column
from metatable.data.reading.slice_reader import stream_slice
from metatable.data.reading.slices_ahead import Begin, slices_ahead
from metatable.engine.protocol import TASK_COLUMN
from metatable.metadata.partitions.overlap import mean_depths
from metatable.metadata.view import TableView, read_columns
from metatable.metadata.written import stats_columns
from metatable.query.expressions import Expression, parse_where
from metatable.query.predicates import bind, columns_of, evaluate
from metatable.query.row_dialect import matcher
from metatable.query.rows import Rows, chosen_columns, spark_session
from metatable.query.skipping import Selection, keep_files
from metatable.results import DataFiles, Explain
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.made_once import made_once
from metatable.storage.portions import MOST_TOGETHER

__all__ = ["Scan"]

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different sizes."""

_FILES = pa.schema([("file", pa.string()), (TASK_COLUMN, pa.int32())])


class Scan(Rows):
    """Rows of a version, read when they are asked for, and again when they are asked for again.

    `where` is an expression or lists of tuples (`expressions.parse_where`). `limit`: the most rows,
    the first by partition path and file name. `read_optimized`: base files as they are, and no
    logs. Raises UsageError for columns that are not there, literals that do not fit them, and a
    limit that is no number of rows.

        for batch in table.scan(["id"], where=[("fare", ">", 5)]).to_batches(): ...
        polars.DataFrame(table.scan(limit=1000))
    """

    def __init__(
        self,
        view: TableView,
        columns: Sequence[str] | None = None,
        where: Any = None,
        limit: int | None = None,
        read_optimized: bool = False,
    ) -> None:
        self._view = view
        self._read_optimized = read_optimized
        self._schema = chosen_columns(view.schema, columns)
        self._asked = parse_where(where)
        self._where = None if self._asked is None else bind(self._asked, view.schema)
        self._limit = _rows_or_none(limit)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, in order."""
        return self._schema

    def files(self) -> DataFiles:
        """The data files that may hold the rows, by partition path and file name, with their row
        counts. Only metadata is read."""
        return self._within_limit(self._counted(self._selection, self._view))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some row groups at a time. Raises StaleError where the version is not kept any
        more, or was undone, CorruptError where its files are damaged or lost.
        """
        return _first(self._limit, self._rows(self._slices, self.schema))

    def to_spark(self, session: Any) -> Any:
        """The rows as a lazy DataFrame of this Spark session, read by Spark's own reader.

        Spark opens the files with its own credentials. Raises UsageError where its Hadoop does
        not know the table's store, and for columns of types that Spark lacks. Where files have
        logs, or other names for some columns, or the session makes nulls of structs, Spark's reader
        would go wrong, and it cannot ask a condition on a column that it has no type for: its
        Python workers read them then, with the table's credentials.

        Conditions belong in `where`: it leaves out files, and keeps from Spark's reader what that
        would get wrong by footers (`spark.parquet.Conditions`). Conditions on the DataFrame are
        Spark's own.
        """
        session = spark_session(session)
        if self._view.table_schema.by_id or self._slices.has_logs.any():
            return self._by_workers(session)
        from metatable.spark import parquet  # noqa: PLC0415  (first use of Spark)
        from metatable.spark.types import has_types  # noqa: PLC0415

        read = self._with_condition(self.schema)
        if not (has_types(read) and parquet.reads_structs(session, read)):
            return self._by_workers(session)
        rows = parquet.read(session, self._view.store, self._paths(), read)
        if self._where is not None:
            rows = rows.where(evaluate(self._where, parquet.Conditions(read)))
        return parquet.select(self._limited(rows), self.schema.names)

    def _by_workers(self, session: Any) -> Any:
        """The rows as a lazy DataFrame, read by Spark's Python workers, some files a task."""
        from metatable.spark.engine import SparkEngine  # noqa: PLC0415  (first use of Spark)
        from metatable.spark.types import readable  # noqa: PLC0415

        engine, files = SparkEngine(session), [*self._slices]
        tasks = max(1, min(len(files), engine.slots * TASKS_PER_SLOT))
        dealt = [place % tasks for place in range(len(files))]
        listed = pa.table([[one.encode() for one in files], dealt], schema=_FILES)
        spread = engine.exchange(engine.rows(listed), _FILES.names[1], tasks)
        made = readable(self.schema)
        read = partial(_read_files, self._view, self._asked, self.schema.names, made)
        return self._limited(engine.map(spread, _FILES.names[:1], read, made))

    def _limited(self, rows: Any) -> Any:
        """No more rows of this DataFrame than the limit, which Spark wants in 32 bits: beyond that
        none is needed where no more rows are in the files. Raises UsageError where they may be."""
        if self._limit is None:
            return rows
        if self._limit <= MOST_OF_SPARK:
            return rows.limit(self._limit)
        counts = self._view.row_counts(self._slices, at_most=True)
        if (counts < 0).any() or int(counts.sum()) > self._limit:
            what, expected = "Spark knows no such limit", f"{MOST_OF_SPARK} or less, or None"
            raise UsageError(what, expected=expected, found=self._limit)
        return rows

    def count(self) -> int:
        """How many rows there are, no more than the limit. Raises as `to_batches`.

        Without a `where` the metadata tells, and only the files of groups with logs are opened;
        with one only the columns that it names are read.
        """
        if self._where is not None:
            batches = self._rows(self._slices, pa.schema([]))
            return sum(batch.num_rows for batch in _first(self._limit, batches))
        counted = self._counted(self._selection, self._view)
        unknown = np.flatnonzero(counted.row_counts < 0)
        if not self._slices.has_logs[unknown].all():
            raise CorruptError("a live slice has no statistics", path=self._view.store.uri)
        rows = int(counted.row_counts.clip(0).sum())
        for piece in self._rows(self._slices.take(unknown), pa.schema([META_FIELDS[0]])):
            rows += piece.num_rows  # keys of a log may be in its base, too
        return rows if self._limit is None else min(rows, self._limit)

    def explain(self) -> Explain:
        """Which files would be read, and what it cost to find out. No data file is read. Raises
        StaleError where the version is not kept any more."""
        began, counters = time.perf_counter(), Counters()
        view = self._view.counting(counters)
        with self._view.reading():
            selection, depths = self._kept(view), self._depths(view)
        left = {
            "all": len(selection.slices),
            "after partitions": len(selection.after_partitions),
            "after statistics": len(selection.after_statistics),
        }
        size_bytes = self._of(selection).total_bytes
        if self._limit is not None and self._where is None:
            files = self._within_limit(self._counted(selection, view))
            left["within the limit"], size_bytes = len(files), files.size_bytes
        self._view.store.counters.merge(counters)
        return Explain(
            keys=None,
            found=None,
            seconds=time.perf_counter() - began,
            counters=dict(counters),
            operation="scan",
            files=left,
            file_bytes=size_bytes,
            depths=depths,
        )

    def _depths(self, view: TableView) -> Mapping[str, float]:
        """The mean depths of those columns of the condition whose statistics leave out files."""
        named = () if self._where is None else columns_of(self._where)
        kept = {*stats_columns(view.table_schema, view.options)} - {*view.options.partition_by}
        return mean_depths(view, [one for one in named if one in kept and one != KEY])

    @made_once
    def _selection(self) -> Selection:
        with self._view.reading():
            return self._kept(self._view)

    def _kept(self, view: TableView) -> Selection:
        """Which files are left, asked of this view, which may count elsewhere."""
        kept = keep_files(self._where, view)
        return kept.of_bases() if self._read_optimized else kept

    @made_once
    def _slices(self) -> FileSystemView:
        return self._of(self._selection)

    def _of(self, selection: Selection) -> FileSystemView:
        """The slices to read of those that are left."""
        slices = selection.files()
        return slices.bases() if self._read_optimized else slices

    def _counted(self, selection: Selection, view: TableView) -> DataFiles:
        """The files that are left with their row counts, -1 where nobody knows. Statistics that
        were read already may tell them; if not, they are read."""
        slices, counts = self._of(selection), selection.row_counts.copy()
        unknown = np.flatnonzero(counts < 0)
        with view.reading():
            counts[unknown] = view.row_counts(slices.take(unknown))
        return DataFiles(view.store.uri, slices.paths, slices.sizes, counts, slices.has_logs)

    def _within_limit(self, files: DataFiles) -> DataFiles:
        """The first files, as many as are sure to hold all rows that are asked for."""
        if self._limit is None or self._where is not None:
            return files
        before = np.cumsum([0, *files.row_counts.clip(0)])
        return files[: int(np.searchsorted(before, self._limit))]

    def _paths(self) -> list[str]:
        """The base files that Spark's own reader is given."""
        few = self._limit is not None and self._where is None
        paths: list[str] = (self.files() if few else self._slices).paths.to_pylist()
        return paths

    def _with_condition(self, schema: pa.Schema) -> pa.Schema:
        """`schema`, and behind it the columns that only the condition needs."""
        if self._where is None:
            return schema
        every = {field.name: field for field in (*META_FIELDS, *self._view.schema)}
        needed = dict.fromkeys([*schema.names, *columns_of(self._where)])
        return pa.schema([every[name] for name in needed] or [META_FIELDS[0]])

    def _rows(self, files: Iterable[FileSlice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of the files for which the condition is true. Raises as `to_batches`."""
        read = self._with_condition(schema)
        batches = self._told(chain.from_iterable(self._opened(files, read)))
        return batches if self._where is None else _matching(self._where, batches, schema)

    def _told(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; of a file that is gone it is told whether that is damage."""
        with self._view.reading():
            yield from batches

    def _opened(
        self, files: Iterable[FileSlice], schema: pa.Schema
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """Each slice; with no limit to end it before, what comes next is begun beside it. Far away
        so it is where nobody knows how many rows of a slice count, of more and more slices."""
        view = self._view
        key = key_column(view.options, schema)
        read = read_columns(view, schema, key)
        if self._limit is None:
            return (_batches(begin) for _, begin in slices_ahead(view.store, files, read))
        if self._where is not None and view.store.is_distant:
            ahead = (slices_ahead(view.store, some, read) for some in _more_and_more(files))
            return (_batches(begin) for _, begin in chain.from_iterable(ahead))
        begin = partial(stream_slice, view.store, read=read, in_place=False)
        return (_batches(partial(begin, one)) for one in files)

    def __repr__(self) -> str:
        told = [repr(self._view.store.uri), f"version={self._view.version}"]
        told.append(f"columns={self.schema.names}")
        if self._read_optimized:
            told.append("read_optimized=True")
        if self._asked is not None:
            told.append(f"where={self._asked}")
        if self._limit is not None:
            told.append(f"limit={self._limit}")
        return f"Scan({', '.join(told)})"


def _read_files(
    view: TableView,
    where: Expression | None,
    columns: Sequence[str],
    made: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: the rows of some files for which the condition is true."""
    scan = Scan(view.counting(counters), columns, where)
    for batch in batches:
        files = map(FileSlice.decode, batch[_FILES.names[0]].to_pylist())
        for rows in scan._rows(files, scan.schema):
            yield rows.cast(made)


MOST_ROWS = (1 << 63) - 1
"""The most rows that Arrow counts."""

MOST_OF_SPARK = (1 << 31) - 1
"""The most rows that a limit of Spark's may name."""


def _rows_or_none(limit: Any) -> int | None:
    """The limit as a number of rows. Raises UsageError for what is none."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 0:
        raise UsageError("limit is no number of rows", expected="0 or more, or None", found=limit)
    return min(int(limit), MOST_ROWS)


def _more_and_more(files: Iterable[FileSlice]) -> Iterator[list[FileSlice]]:
    """Portions of 1, 2, 4, ... slices, up to what is read at once."""
    source, count = iter(files), 1
    while some := [*islice(source, count)]:
        yield some
        count = min(2 * count, MOST_TOGETHER)


def _batches(begin: Begin) -> Iterator[pa.RecordBatch]:
    for table in begin():
        yield from table.to_batches()


def _matching(
    where: Expression, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    matches = matcher(where)
    for batch in batches:
        wanted = matches(batch)
        if pc.any(wanted).as_py():
            yield batch.select(schema.names).filter(wanted)


def _first(limit: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; what is behind them is not asked for."""
    return batches if limit is None else _cut(batches, limit)


def _cut(batches: Iterator[pa.RecordBatch], left: int) -> Iterator[pa.RecordBatch]:
    while left and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
