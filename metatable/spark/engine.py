"""The engine on Spark: the same tasks, run by Python workers over Arrow batches.

    map        mapInArrow over the columns asked for
    extend     an iterator arrow_udf: the other columns never leave the JVM
    pick       extend by int32, and an item of a literal array
    find       the same as extend, answering with lists, and explode; where tasks are few
    exchange   repartitionById, after explode where a row goes to several partitions
    attach     a null-safe left join with the distinct matches (row order is lost)
    keep       persist
    estimate   statistics of the optimized plan
    is_stored  by the kinds of nodes of the optimized plan
    few        weighed by one aggregate, and one toArrow
    run        mapInArrow, one toArrow

Only the DataFrame API is used, nothing that Spark Connect lacks but for the plan; the session
comes with the user's DataFrame and is never configured. What the workers run stands in
`workers.py`: it joins batches up, because a call of numpy on ten thousand rows costs as much again
as its work.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.types import ArrayType, StructType

from metatable.engine.batches import conform
from metatable.engine.local import LocalEngine
from metatable.engine.matching import attached_schema
from metatable.engine.protocol import Task
from metatable.engine.shared_store import check_shared
from metatable.spark.columns import literal, named, weight_of_row, within
from metatable.spark.demands import check_session, is_connect, is_session, mendable, planning
from metatable.spark.plans import is_stored, size_told
from metatable.spark.types import arrow_schema, carried, spark_schema, task_schema
from metatable.spark.workers import (
    BATCH_ROWS,
    COUNTED,
    answering,
    counters_in,
    counters_last,
    in_lists,
    mapped,
    packed,
    unpacked,
)
from metatable.storage import errors
from metatable.storage.counters import Counters
from metatable.storage.errors import MetatableError, UsageError
from metatable.storage.made_once import made_once
from metatable.storage.store import TEMPORARY, Store

__all__ = ["SparkEngine"]

_BATCH_LIMIT = "spark.sql.execution.arrow.maxRecordsPerBatch"

PLAN_VALUES = 1024
"""Values that a plan may carry as a literal: each costs it some 20 us and, in what `explain`
prints, some hundred letters. Texts from Python cost each row some 0.5 us."""


class SparkEngine:
    """Runs tasks on the cluster of `source`'s session; one object serves one operation."""

    name = "spark"
    in_process = False

    def __init__(self, source: DataFrame | SparkSession, counters: Counters | None = None) -> None:
        self.session = source.sparkSession if isinstance(source, DataFrame) else source
        if not is_session(self.session):
            raise _no_rows(source)
        check_session(self.session)
        self.counters = Counters() if counters is None else counters
        self._name = uuid.uuid4().hex
        self._weighed: tuple[DataFrame, int, int] | None = None

    @made_once
    def slots(self) -> int:
        """Tasks that the cluster runs at once: into so many parts Spark cuts a range. A classic
        session says so; on Spark Connect it takes a small job. Where executors come as they are
        needed it says what there is now, two at first: so many then as Spark makes of a shuffle."""
        if self._grows:
            return int(self.session.conf.get("spark.sql.shuffle.partitions", None) or 200)
        if not is_connect(self.session):
            said = self.session.conf.get("spark.sql.leafNodeDefaultParallelism", None)
            return int(said or self.session.sparkContext.defaultParallelism)
        parts = self.session.range(1 << 12).select(F.spark_partition_id().alias("part"))
        return int(parts.agg(F.max("part").alias("last")).toArrow()["last"][0].as_py()) + 1

    @made_once
    def _grows(self) -> bool:
        """Whether the cluster gets executors as it needs them: how many tasks it runs at once now
        says little then, at first nothing."""
        conf = self.session.conf
        is_dynamic = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
        return is_dynamic and not str(conf.get("spark.master", "")).startswith("local")

    @property
    def speculates(self) -> bool:
        """Whether the cluster runs slow tasks twice."""
        return str(self.session.conf.get("spark.speculation", "false")).lower() == "true"

    def scratch(self, store: Store, owner: str = "") -> Store:
        """A folder in the table's own store, which every worker reaches. Raises UsageError for one
        that is in the memory of this process."""
        check_shared(store)
        folder = f"{TEMPORARY}/{owner or self._name}"
        return Store(f"{store.uri}/{folder}", store.options, store.counters)

    def rows(self, data: Any) -> DataFrame:
        """Adopt a DataFrame, or a small Arrow table. Raises UsageError for what is neither."""
        if isinstance(data, pa.Table):  # a plan: it travels inside the query
            return self._sent(data)
        if not isinstance(data, DataFrame):
            raise _no_rows(data)
        if data.isStreaming:
            what = "a streaming DataFrame has no end"
            raise UsageError(what, expected="a batch, as in foreachBatch", found="a stream")
        twice = sorted(name for name, times in Counter(data.columns).items() if times > 1)
        if twice:
            raise UsageError("a column is there twice", found=twice)
        return data

    def _sent(self, table: pa.Table) -> DataFrame:
        """The rows of a table of this process."""
        schema = carried(table.schema)
        if not table.num_rows:
            return self.session.createDataFrame([], schema)
        if is_connect(self.session) or int(self.session.conf.get(_BATCH_LIMIT) or 0) > 0:
            return self.session.createDataFrame(table.cast(arrow_schema(schema)), schema)
        # 0 and less mean no limit, but pyspark cuts a table into batches of so many rows
        made = arrow_schema(schema)
        pieces = table.to_batches(max_chunksize=BATCH_ROWS)
        sent = self.session.createDataFrame([(packed(one, made),) for one in pieces], "b binary")
        with planning(self.session):
            return sent.mapInArrow(unpacked, schema)

    def columns(self, rows: DataFrame) -> list[str]:
        with _own_errors():
            return list(rows.columns)

    def schema(self, rows: DataFrame) -> pa.Schema:
        with _own_errors():
            return task_schema(rows.schema)

    def map(
        self, rows: DataFrame, inputs: Sequence[str], task: Task, schema: pa.Schema
    ) -> DataFrame:
        """What `task` makes of the columns `inputs`, a call for each partition."""
        asked = self.select(rows, inputs)
        given, made = self.schema(asked), carried(schema)
        call = partial(mapped, task=task, given=given, made=arrow_schema(made))
        with planning(self.session), _own_errors():
            return asked.mapInArrow(call, made)

    def extend(
        self,
        rows: DataFrame,
        inputs: Sequence[str],
        task: Task,
        fields: pa.Schema,
        *,
        at_once: bool = False,
    ) -> DataFrame:
        """`rows` with the columns `fields` behind its own; `task` answers row for row. A call
        gets a partition, whether it wants more `at_once` or not."""
        asked = self.select(rows, inputs)
        for name in fields.names:
            if name in rows.columns:
                raise UsageError("a column is there already", column=name, found=rows.columns)
        made = carried(fields)
        single = len(made.fields) == 1
        answer = answering(task, self.schema(asked), arrow_schema(made), single)
        # not to be worked out twice where a filter on the answer is pushed down
        kind = made.fields[0].dataType if single else made
        udf = F.arrow_udf(answer, kind).asNondeterministic()  # type: ignore[attr-defined]
        with planning(self.session), _own_errors():
            answered = udf(*map(named, inputs))
        if single:
            return _chosen(rows, "*", answered.alias(made.names[0]))
        beside = rows.select("*", answered.alias(COUNTED))
        parts = [F.col(COUNTED).getField(name).alias(name) for name in made.names]
        return _chosen(beside, *map(named, rows.columns), *parts)

    def pick(
        self,
        rows: DataFrame,
        inputs: Sequence[str],
        task: Callable[..., Iterator[pa.RecordBatch]],
        fields: pa.Schema,
        values: Callable[[int], pa.Array | None],
    ) -> DataFrame | None:
        """`extend` by places in `values`, which the plan carries: numbers come from Python, and
        the JVM puts values for them. None where these are more than PLAN_VALUES."""
        known = values(PLAN_VALUES)
        if known is None:
            return None
        [field] = fields
        places = pa.schema([pa.field(field.name, pa.int32())])
        placed = self.extend(rows, inputs, partial(task, values=known), places, at_once=True)
        picked = F.get(literal(known), named(field.name))
        return _chosen(placed, *map(named, rows.columns), picked.alias(field.name))

    def find(
        self, rows: DataFrame, inputs: Sequence[str], task: Task, fields: pa.Schema
    ) -> DataFrame | None:
        """`rows` with the one column of `fields`, in no more tasks than run at once: each of them
        opens what it needs by itself. None where these are more than this process has processors:
        the same files would be opened again and again; and where they would keep a cluster from
        growing that grows by the tasks that wait."""
        if self._grows or self.slots > LocalEngine().slots:
            return None
        [field] = fields
        lists = pa.schema([pa.field(field.name, pa.list_(field))])
        found = self.extend(
            rows.coalesce(self.slots), inputs, partial(in_lists, task, field), lists
        )
        every = F.explode_outer(named(field.name)).alias(field.name)
        return _chosen(found, *map(named, rows.columns), every)

    def exchange(self, rows: DataFrame, by: str, count: int) -> DataFrame:
        """`count` partitions, each with the rows that name it in `by`.

        `by` is int32, or a list of int32 that sends copies; it leaves as int32.
        """
        rows = self.select(rows, rows.columns)
        if isinstance(rows.schema[by].dataType, ArrayType):
            rows = _replaced(rows, by, F.explode(named(by)))
        rows = _replaced(rows, by, within(named(by), by, count))
        return rows.repartitionById(count, named(by))

    def attach(self, rows: DataFrame, matches: DataFrame, on: Sequence[str]) -> DataFrame:
        """`rows`, in any order, with the columns of the `matches` that are equal in `on`."""
        schema = attached_schema(_outline(rows, on), self.schema(matches), on)
        # names of their own: both sides may descend from one DataFrame
        theirs = {
            name: f"_match_{self._name}_{place}" for place, name in enumerate(matches.columns)
        }
        renamed = [named(name).alias(theirs[name]) for name in matches.columns]
        right = matches.select(*renamed).distinct()
        equal: Column = F.lit(True)
        for name in on:
            mine, kind = named(name), matches.schema[name].dataType
            if rows.schema[name].dataType != kind:  # texts that Spark would compare by a collation
                mine = mine.cast(kind)
            equal = equal & mine.eqNullSafe(F.col(theirs[name]))
        held = dict.fromkeys(rows.columns)
        added = [F.col(theirs[name]).alias(name) for name in schema.names if name not in held]
        with _own_errors():
            joined = rows.join(right, on=equal, how="left")
        return _chosen(joined, *map(named, rows.columns), *added)

    def select(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Only these columns, in this order."""
        held = dict.fromkeys(rows.columns)  # which Spark lists anew each time
        for column in columns:
            if column not in held:
                raise UsageError("no such column", column=column, expected=[*held])
        return _chosen(rows, *map(named, columns))

    @contextmanager
    def keep(self, rows: DataFrame) -> Iterator[DataFrame]:
        """The same rows, worked out at their first use and held by the executors. As another
        DataFrame: one that was planned before does not see that it is held. Of a plan that no
        other equals: Spark holds equal plans together, and lets go of them for all, be it their
        owner's or another thread's."""
        kept = rows.where(F.lit(uuid.uuid4().hex).isNotNull()).persist()
        try:
            yield kept.select("*")
        finally:
            with suppress(Exception):  # the session may be gone, with what it held; all is done
                kept.unpersist()

    def estimate(self, rows: DataFrame) -> int | None:
        """By the statistics of Spark's plan (plans.py). None on Spark Connect, where there is none
        to be seen."""
        if is_connect(self.session):
            return None
        with _own_errors():
            return size_told(rows)

    def is_stored(self, rows: DataFrame) -> bool:
        """By the nodes of Spark's plan (plans.py). False on Spark Connect."""
        if is_connect(self.session):
            return False
        with _own_errors():
            return is_stored(rows)

    def held(self, rows: DataFrame) -> list[pa.RecordBatch] | None:
        """None: what the cluster keeps is not here."""
        return None

    def few(self, rows: DataFrame, count: int, size_bytes: int) -> pa.Table | None:
        """Rows that are kept or stored, on the driver, if there are at most `count`, of about so
        many bytes.

        The first to ask: all of them are worked out and weighed by this, once, however often it is
        asked. A driver that may not take so many bytes has them not.
        """
        if self._weighed is None or self._weighed[0] is not rows:
            total = (
                F.count(F.lit(1)).alias("rows"),
                F.sum(weight_of_row(rows.schema)).alias("bytes"),
            )
            told = self.to_table(rows.agg(*total)).to_pylist()[0]
            self._weighed = rows, told["rows"], told["bytes"] or 0
        if self._weighed[1] > count or self._weighed[2] > size_bytes:
            return None
        schema = self.schema(rows)
        plain = spark_schema(schema)  # pyspark itself sends the driver no char(5)
        try:
            found = self.to_table(_cast(rows, plain)).to_batches()
        except Exception as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise
        return pa.Table.from_batches([conform(batch, schema) for batch in found], schema)

    def run(self, rows: DataFrame, task: Task, schema: pa.Schema) -> pa.Table:
        """What `task` makes of every partition with rows, in order. The only action. Of a job that
        has failed Spark tells at once, and ends its other tasks some seconds later."""
        made = SparkEngine.map(self, rows, rows.columns, *counters_last(task, schema))
        try:
            told = self.to_table(made)
        except MetatableError as error:
            error.others_go_on = True
            raise
        self.counters.merge(counters_in(told))
        receipts = told.filter(told.column(COUNTED).is_null()).drop_columns([COUNTED])
        return receipts.cast(schema)

    def to_table(self, rows: DataFrame) -> pa.Table:
        """All rows, on the driver: of few, or in tests."""
        with _own_errors():
            return rows.toArrow()


def _chosen(rows: DataFrame, *columns: Column | str) -> DataFrame:
    """Some columns of the rows; what Spark says of them is told as an error of ours."""
    with _own_errors():
        return rows.select(*columns)


def _cast(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows in these types, which are other names for theirs."""
    fields = zip(rows.schema.fields, schema.fields, strict=True)
    other = [one.dataType != plain.dataType for one, plain in fields]
    if not any(other):
        return rows
    columns = [
        named(one.name).cast(one.dataType).alias(one.name) if differs else named(one.name)
        for one, differs in zip(schema.fields, other, strict=True)
    ]
    return _chosen(rows, *columns)


def _no_rows(data: Any) -> UsageError:
    what = "these are no rows for Spark"
    return UsageError(what, expected="a Spark DataFrame", found=type(data).__qualname__)


def _outline(rows: DataFrame, on: Sequence[str]) -> pa.Schema:
    """The columns of `rows`, with types only where they matter: others may be Spark's alone."""
    fields = {field.name: field for field in rows.schema.fields}
    known = task_schema(StructType([fields[name] for name in on if name in fields]))
    return pa.schema([known.field(name) if name in on else (name, pa.null()) for name in fields])


def _replaced(rows: DataFrame, name: str, by: Column) -> DataFrame:
    return rows.select(*[by.alias(one) if one == name else named(one) for one in rows.columns])


_OWN = re.compile(
    r"metatable\.storage\.errors\.(\w+Error): (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
"""The last line of a Python worker's traceback, or what `columns.within` says in the JVM."""


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise what a task raised, where that is an error of ours, and say what can be mended."""
    try:
        yield
    except Exception as error:
        told = _OWN.findall(str(error))
        kind = getattr(errors, told[-1][0], None) if told else None
        if kind is not None and issubclass(kind, MetatableError):
            raise kind(told[-1][1]) from error
        mend = mendable(error)
        if mend is not None:
            raise mend from None  # of pages of Java, the sentence is all that helps
        raise
