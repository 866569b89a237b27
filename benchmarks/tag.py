"""Tagging: which file holds each key, and how soon do we know beside engines that join?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import metatable
from benchmarks.data import KEY_BYTES, batch_rows, make_table
from benchmarks.harness import (
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    left_out,
    package,
    run_module,
    timed,
)
from benchmarks.upsert import make_lance
from metatable.storage import cache

QUESTION = (
    "Rows of a batch may be in the table already: how long until we know, for each of them, which "
    "file holds its key?"
)

INDEXES: dict[str, dict[str, str]] = {
    "record": {"index": "record"},
    "record of HFiles without compression": {"index": "record", "hfile_codec": "none"},
    "metadata_bloom": {"index": "metadata_bloom"},
    "bloom": {"index": "bloom"},
}
"""A name, and what the table is created with."""

VARIANTS = ("record of HFiles without compression",)
"""Asked in full size, with uuid keys only: what a choice would change."""

KINDS = ("uuid", "time")
STATES = ("warm", "cold")
FEW = 1_000
READING = "the join reads the key column of every file and hashes the batch"


def cases(setup: Setup) -> Iterator[Case]:
    """Each index, kind of key and size of batch; in this process, then on Spark."""
    yield from _local_cases(setup)
    if setup.full:
        yield from _spark_cases(setup)
    else:
        yield left_out("on Spark", "left to --size full: a session alone takes 10 s to start")


def _local_cases(setup: Setup) -> Iterator[Case]:
    held = setup.tenth(10_000_000)
    for kind in KINDS:
        batches = [batch_rows(kind, held, count) for count in (setup.tenth(1_000_000), FEW)]
        for index in INDEXES:
            if index in VARIANTS and not (setup.full and kind == "uuid"):
                continue
            counts = [batch.num_rows for batch in batches]
            if not setup.asks(*(_name(n, kind, index, how) for n in counts for how in STATES)):
                continue
            table = _table(setup, kind, index, held)
            for batch in batches:
                yield _local_case(setup, table, kind, index, batch, cold=False)
            yield _local_case(setup, table, kind, index, batches[-1], cold=True)


def _local_case(
    setup: Setup, table: metatable.Table, kind: str, index: str, batch: pa.Table, cold: bool
) -> Case:
    uri, found = table.uri, list[int]()

    def ours() -> pa.Table:
        return (metatable.open(uri) if cold else table).tag_locations(batch)

    def keep(answer: pa.Table) -> None:
        found.append(len(answer) - answer["_location"].null_count)

    prepare = cache.clear if cold else None
    peers = [joined(table, batch, cold, found)]
    if kind == "uuid" and batch.num_rows == FEW:
        peers.append(_lance(setup, table.describe().rows or 0, batch, cold, found))
    return Case(
        _name(batch.num_rows, kind, index, "cold" if cold else "warm"),
        _setting(table, kind, batch, "cold: caches of the process are empty" if cold else "warm"),
        timed(ours, prepare=prepare, check=keep),
        peers,
        READING,
    )


def _table(setup: Setup, kind: str, index: str, held: int) -> metatable.Table:
    given = INDEXES[index]

    def make(folder: Path) -> None:
        make_table(folder, kind=kind, rows=held, **given)

    name = "-".join(["table", str(held), kind, *given.values()])
    return metatable.open(setup.cupboard.made(name, make))


def _name(count: int, kind: str, index: str, state: str) -> str:
    return f"{count:,} {kind} keys, {index}, {state}"


def _setting(table: metatable.Table, kind: str, batch: pa.Table, state: str) -> str:
    facts = table.describe()
    order = "random" if kind == "uuid" else "time-ordered"
    return (
        f"{batch.num_rows:,} rows of {batch.num_columns} columns, 70 % updates, {order} keys of "
        f"{KEY_BYTES} bytes; table of {facts.rows:,} rows in {facts.file_groups} files of "
        f"{facts.partitions} partitions, {facts.data_bytes / 1e6:,.0f} MB, in the page cache; "
        f"{state}"
    )


def _paths(table: metatable.Table) -> list[str]:
    return [str(Path(table.uri, file.path)) for file in table.files()]


def joined(
    table: metatable.Table,
    batch: pa.Table,
    cold: bool,
    found: list[int],
    target: float | None = None,
) -> Peer:
    """DuckDB's join of the batch with the key columns of the same files. `found`: how many keys we
    have found, the last one counts."""
    duckdb = package("duckdb")
    if duckdb is None:
        return absent("DuckDB", "duckdb is not installed: make venv")
    paths = _paths(table)
    connection = duckdb.connect()

    def join() -> pa.Table:
        made = duckdb.connect() if cold else connection
        made.register("batch", batch)
        return made.sql(_JOIN, params=[paths]).to_arrow_table()

    def check(answer: pa.Table) -> None:
        hits = len(answer) - answer["filename"].null_count
        assert [hits] == found[-1:], (hits, found)

    name = f"DuckDB {duckdb.__version__} join of key columns"
    return Peer(name, timed(join, check=check), target=target)


def _lance(setup: Setup, held: int, batch: pa.Table, cold: bool, found: list[int]) -> Peer:
    """Where Lance has the rows of these keys, by its index of them, in its own format."""
    lance = package("lance")
    if lance is None:
        return absent("Lance", "pylance is not installed: make peers")
    place = str(setup.cupboard.made(f"lance-{held}-uuid", partial(make_lance, held)) / "rows")
    words = ", ".join(f"'{one}'" for one in batch["id"].to_pylist())
    asked = {"columns": ["id"], "filter": f"id in ({words})", "with_row_address": True}
    opened = lance.dataset(place)

    def ask() -> pa.Table:
        return (lance.dataset(place) if cold else opened).to_table(**asked)

    def check(answer: pa.Table) -> None:
        assert [len(answer)] == found[-1:], (len(answer), found)

    return Peer(f"Lance {lance.__version__}, BTREE", timed(ask, check=check))


_JOIN = """
    select batch.*, filename, file_row_number from batch
    left join read_parquet(?, filename = true, file_row_number = true) held
    on batch.id = held.id
"""


# Spark


def _spark_cases(setup: Setup) -> Iterator[Case]:
    spark, why = _session()
    if spark is None:
        yield left_out("on Spark", why)
        return
    held = 10_000_000
    try:
        for index in (name for name in INDEXES if name not in VARIANTS):
            table = _table(setup, "uuid", index, held)
            for count in (1_000_000, FEW):
                yield _spark_case(setup, spark, table, index, batch_rows("uuid", held, count))
    finally:
        spark.stop()


def _session() -> tuple[Any, str]:
    session = package("metatable.spark.session")
    if session is None:
        return None, "pyspark is not installed: make venv"
    if session.find_java() is None:
        return None, "no Java 17 or newer here"
    return session.local_session("benchmarks.tag"), ""


def _spark_case(
    setup: Setup, spark: Any, table: metatable.Table, index: str, batch: pa.Table
) -> Case:
    source = setup.cupboard.scratch() / "batch.parquet"
    pa.parquet.write_table(batch, source, row_group_size=max(batch.num_rows // 8, 1))
    rows = spark.read.parquet(str(source))
    held = spark.read.parquet(*_paths(table)).selectExpr("id", "_metadata.file_path")
    join = Peer(
        f"Spark {spark.version} join of key columns", _noop(lambda: rows.join(held, "id", "left"))
    )
    return Case(
        _name(batch.num_rows, "uuid", index, "Spark"),
        _setting(table, "uuid", batch, f"one session, {spark.sparkContext.master}"),
        _noop(lambda: table.tag_locations(rows)),
        [join],
        READING,
    )


def _noop(make: Callable[[], Any]) -> Measure:
    """Every row worked out, and kept nowhere; Spark works in other processes than this."""
    run = timed(lambda: make().write.format("noop").mode("overwrite").save())
    return run.__call__


if __name__ == "__main__":
    run_module(globals())
