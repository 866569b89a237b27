"""Tagging: which file holds each key, and how soon do we know beside engines that join?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from isal.isal_zlib import crc32

import metatable
from benchmarks.data import KEY_BYTES, batch_rows, make_lance, make_table, rows_of
from benchmarks.harness import (
    FLOOR,
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    left_out,
    our_spark,
    package,
    run_module,
    timed,
)
from benchmarks.index_floor import IndexFloor
from metatable.data.columns.schema import KEY_COLUMN
from metatable.storage import cache
from metatable.storage.parquet.offset_index import OFFSET, SIZE
from metatable.storage.parquet.page_headers import WIDTH, Headers
from metatable.storage.parquet.page_places import group_pages, key_pages
from metatable.storage.parquet.paged_file import paged
from metatable.storage.store import Store
from metatable.storage.threads import in_order

QUESTION = (
    "Rows of a batch may be in the table already: how long until we know, for each of them, which "
    "file holds its key?"
)

INDEXES: dict[str, dict[str, Any]] = {
    "record": {"index": "record"},
    "record of HFiles without compression": {"index": "record", "hfile_codec": "none"},
    "record of HFiles with filters": {"index": "record", "record_filter_fpp": 0.01},
    "metadata_bloom": {"index": "metadata_bloom"},
    "bloom": {"index": "bloom"},
}
"""A name, and what the table is created with."""

VARIANTS = ("record of HFiles without compression", "record of HFiles with filters")
"""Asked in full size, with uuid keys only: what a choice would change."""

TARGETS = {
    ("uuid", "record", "warm"): (1.0, 10.0),
    ("uuid", "record", "cold"): (None, 5.0),
    ("uuid", "record of HFiles without compression", "warm"): (2.0, 10.0),
    ("uuid", "record of HFiles without compression", "cold"): (None, 5.0),
    ("uuid", "metadata_bloom", "warm"): (0.6, 2.0),
    ("time", "metadata_bloom", "warm"): (1.5, 10.0),
    ("uuid", "record", "Spark"): (5.0, 30.0),
    ("uuid", "metadata_bloom", "Spark"): (2.0, 5.0),
}
"""How many times as fast as the join, for many keys and for FEW."""

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
            kinds = (kind, f"new {kind}")
            if not setup.asks(
                *(_name(n, one, index, how) for n in counts for one in kinds for how in STATES)
            ):
                continue
            table = _table(setup, kind, index, held)
            for batch in batches:
                yield _local_case(setup, table, kind, index, batch, cold=False)
            yield _local_case(setup, table, kind, index, batches[-1], cold=True)
            if kind == "uuid" and INDEXES[index]["index"] == "record":
                news = rows_of(kind, np.arange(held, held + FEW), held)
                for cold in (False, True):
                    yield _local_case(setup, table, kind, index, news, cold=cold, new=True)


def _local_case(
    setup: Setup,
    table: metatable.Table,
    kind: str,
    index: str,
    batch: pa.Table,
    *,
    cold: bool,
    new: bool = False,
) -> Case:
    """`new`: no key of the batch is in the table."""
    uri, found, state = table.uri, list[int](), "cold" if cold else "warm"
    targets = TARGETS.get((kind, index, state), (None, None))

    def ours() -> pa.Table:
        return (metatable.open(uri) if cold else table).tag_locations(batch)

    def keep(answer: pa.Table) -> None:
        found.append(len(answer) - answer["_location"].null_count)

    prepare = cache.clear if cold else None
    target = targets[batch.num_rows == FEW] if setup.full and not new else None
    peers = [joined(table, batch, cold, found, target)]
    if batch.num_rows == FEW and not new:
        peers += _floors(table, batch, cold)
    if kind == "uuid" and batch.num_rows == FEW and not new:
        peers.append(_lance(setup, table.describe().rows or 0, batch, cold, found))
    return Case(
        _name(batch.num_rows, f"new {kind}" if new else kind, index, state),
        _setting(
            table,
            kind,
            batch,
            "cold: caches of the process are empty" if cold else "warm",
            0 if new else 70,
        ),
        timed(ours, prepare=prepare, check=keep),
        peers,
        READING,
    )


def _table(setup: Setup, kind: str, index: str, held: int) -> metatable.Table:
    given = INDEXES[index]

    def make(folder: Path) -> None:
        make_table(folder, kind=kind, rows=held, **given)

    name = "-".join(["table", str(held), kind, *map(str, given.values())])
    return metatable.open(setup.cupboard.made(name, make))


def _name(count: int, kind: str, index: str, state: str) -> str:
    return f"{count:,} {kind} keys, {index}, {state}"


def _setting(
    table: metatable.Table, kind: str, batch: pa.Table, state: str, updates: int = 70
) -> str:
    facts = table.describe()
    order = "random" if kind == "uuid" else "time-ordered"
    return (
        f"{batch.num_rows:,} rows of {batch.num_columns} columns, {updates} % updates, {order} "
        f"keys of {KEY_BYTES} bytes; table of {facts.rows:,} rows in {facts.file_groups} files of "
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


def _floors(table: metatable.Table, batch: pa.Table, cold: bool) -> Iterator[Peer]:
    """What nobody spares who has no more than the files, without a word of ours."""
    if table.options.index != "record":
        name = f"{FLOOR}pages that may hold a key are read, their checksums made, and decompressed"
        yield Peer(name, timed(partial(_read_pages, _pages(table, batch))))
    elif cold:
        name = f"{FLOOR}index blocks that may hold a key are read, and their checksums made"
        yield Peer(name, timed(IndexFloor.of(table, batch["id"].combine_chunks()).read))


Page = tuple[int, int, int, int]
"""Offset, bytes, bytes of the header, and how many behind it there are when decompressed."""


def _pages(table: metatable.Table, batch: pa.Table) -> list[tuple[str, list[Page]]]:
    """For each file the pages of the key column (zstd) whose bounds hold a key that is there."""
    located = table.tag_locations(batch)
    keys = located.filter(located["_location"].is_valid())["id"]
    texts = sorted(one.encode() for one in keys.to_pylist())
    store, made = Store(table.uri), []
    sized = [(file.path, file.size_bytes) for file in table.files()]
    files = [file for file in paged(store, sized) if file is not None]
    for file, pages in zip(files, key_pages(store, files, KEY_COLUMN), strict=True):
        assert pages is not None
        wanted = sorted(pages.wanted(texts))
        if not wanted:
            continue
        leaf = file.shape.columns[file.shape.names.index(KEY_COLUMN)].start
        groups = group_pages(store, [(file, group) for group in range(len(file.rows))])
        every = np.concatenate([one.of(leaf) for one in groups])[wanted]
        spans = [(int(one[OFFSET]), int(one[SIZE])) for one in every]
        heads = b"".join(body[:WIDTH] for body in store.read(file.path, spans))
        read = np.frombuffer(heads, np.uint8).reshape(-1, WIDTH)
        told = Headers.of(read, np.zeros(len(spans), np.bool_))
        sizes = zip(told.sizes.tolist(), told.plain.tolist(), strict=True)
        own = [(*span, *one) for span, one in zip(spans, sizes, strict=True)]
        made.append((str(Path(table.uri, file.path)), own))
    return made


def _read_pages(chosen: list[tuple[str, list[Page]]]) -> None:
    def read(one: tuple[str, list[Page]]) -> int:
        made, codec = 0, pa.Codec("zstd")
        with Path(one[0]).open("rb", buffering=0) as file:
            for offset, size, head, plain in one[1]:
                body = memoryview(os.pread(file.fileno(), size, offset))[head:]
                made += crc32(body) > 0 and len(codec.decompress(body, plain))
        return made

    assert sum(in_order(read, chosen)) > 0


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
    counts = (1_000_000, FEW)
    asked = {
        index: [count for count in counts if setup.asks(_name(count, "uuid", index, "Spark"))]
        for index in INDEXES
        if index not in VARIANTS
    }
    if not any(asked.values()):
        return
    spark, why = _session()
    if spark is None:
        yield left_out("on Spark", why)
        return
    held = 10_000_000
    try:
        for index in filter(asked.get, asked):
            table = _table(setup, "uuid", index, held)
            for count in asked[index]:
                yield _spark_case(setup, spark, table, index, batch_rows("uuid", held, count))
    finally:
        spark.stop()


def _session() -> tuple[Any, str]:
    session, why = our_spark()
    return session and session.local_session("benchmarks.tag"), why


def _spark_case(
    setup: Setup, spark: Any, table: metatable.Table, index: str, batch: pa.Table
) -> Case:
    source = setup.cupboard.scratch() / "batch.parquet"
    pa.parquet.write_table(batch, source, row_group_size=max(batch.num_rows // 8, 1))
    rows = spark.read.parquet(str(source))
    held = spark.read.parquet(*_paths(table)).selectExpr("id", "_metadata.file_path")
    name = f"Spark {spark.version} join of key columns"
    target = TARGETS.get(("uuid", index, "Spark"), (None, None))[batch.num_rows == FEW]
    join = Peer(name, _noop(lambda: rows.join(held, "id", "left")), target=target)
    floor = Peer(
        f"{FLOOR}Spark hands keys to Python, and takes a number each", _noop(_handed(rows))
    )
    return Case(
        _name(batch.num_rows, "uuid", index, "Spark"),
        _setting(table, "uuid", batch, f"one session, {spark.sparkContext.master}"),
        _noop(lambda: table.tag_locations(rows)),
        [join, floor],
        READING,
    )


def _handed(rows: Any) -> Callable[[], Any]:
    """The rows with what the cheapest step of Python answers, which has nothing to look up."""
    from pyspark.sql import functions  # noqa: PLC0415  (an extra)

    def sizes(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from map(pyarrow.compute.binary_length, keys)

    counted = functions.arrow_udf(sizes, "int").asNondeterministic()  # type: ignore[attr-defined]
    return lambda: rows.select("*", counted("id").alias("size"))


def _noop(make: Callable[[], Any]) -> Measure:
    """Every row worked out, and kept nowhere; Spark works in other processes than this."""
    run = timed(lambda: make().write.format("noop").mode("overwrite").save())
    return run.__call__


if __name__ == "__main__":
    run_module(globals())
