"""Logs: what it costs to read over them, and to write them, beside files alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import batch_rows, make_table, rows_of, table_rows
from benchmarks.harness import (
    FLOOR,
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    package,
    run_module,
    timed,
)
from metatable.data.columns.schema import META_FIELDS
from metatable.data.logs.log_blocks import LogWriter
from metatable.storage import cache
from metatable.storage.hudi_log.log_file import LogFile

QUESTION = (
    "A tenth of the rows stand in logs: how much longer is a scan? Or file groups have many small "
    "logs, as small commits leave them? And what does a log cost beside a Parquet file of the "
    "same rows?"
)

FORMATS = ("avro", "parquet")
SCANNED = "keys of base files are looked up among those of logs; rows replaced there are left out"
SMALL_LOGS = 9
"""By default ten of a file group are due to be merged into it."""
SMALL = "small logs, those of a slice and of its neighbours, are fetched and decoded together"
WRITTEN = "one block, meta columns included; as a base file: statistics and checksums, too"


def cases(setup: Setup) -> Iterator[Case]:
    """Both forms of logs, scanned and written."""
    held, count = setup.tenth(10_000_000), setup.tenth(1_000_000)
    make = partial(make_table, kind="uuid", index="record", rows=held)
    plain = setup.cupboard.made(f"table-{held}-uuid-record", make)
    for form in FORMATS:
        name = f"scan {held:,} rows, a tenth of them in {form} logs"
        if not setup.asks(name):
            continue
        make = partial(_with_logs, held=held, count=count, form=form)
        table = setup.cupboard.made(f"replaced-{held}-{form}", make)
        yield Case(
            name,
            "record index, uuid keys, 10 partitions, one log a file group; all columns; caches of "
            "the process empty",
            _scan(table),
            [Peer(f"{FLOOR}the same without logs", _scan(plain))],
            SCANNED,
        )
    yield from _small_logs(setup)
    rows = _stored(batch_rows("uuid", held, count))
    for form in FORMATS:
        yield Case(
            f"write {count:,} rows as a block of {form}",
            "in memory; zstd in Parquet",
            timed(partial(_block, rows, form)),
            [Peer(f"{FLOOR}pyarrow writes them as Parquet", timed(partial(_parquet, rows)))],
            WRITTEN,
        )


def _small_logs(setup: Setup) -> Iterator[Case]:
    held, count = setup.tenth(1_000_000), setup.tenth(2_000)
    scan = f"scan {held:,} rows, {SMALL_LOGS} small logs on each file group"
    read = f"read 100 of {held:,} rows, {SMALL_LOGS} small logs on each file group"
    if not setup.asks(scan, read):
        return
    file_rows = setup.tenth(50_000)
    make = partial(_with_logs, held=held, count=count, form="avro", commits=0, file_rows=file_rows)
    plain = setup.cupboard.made(f"no-small-logs-{held}", make)
    make = partial(make, commits=SMALL_LOGS)
    table = setup.cupboard.made(f"small-logs-{held}", make)
    setting = f"record index, uuid keys; {count:,} rows an upsert; caches of the process empty"
    if setup.asks(scan):
        peers = [_hudi(table, held), Peer(f"{FLOOR}the same without logs", _scan(plain))]
        yield Case(scan, setting, _scan(table), peers, SMALL)
    if setup.asks(read):
        peers = [Peer(f"{FLOOR}the same without logs", _read(plain, held))]
        yield Case(read, setting, _read(table, held), peers, SMALL)


def _hudi(folder: Path, expected: int) -> Peer:
    hudi = package("hudi")
    if hudi is None:
        return absent("hudi", "hudi is not installed: make peers")

    def read() -> int:
        batches = hudi.HudiTableBuilder.from_base_uri(str(folder)).build().read()
        return sum(batch.num_rows for batch in batches)

    assert read() == expected
    return Peer(f"hudi {version('hudi')} snapshot", timed(read))


def _read(folder: Path, held: int) -> Measure:
    keys = rows_of("uuid", np.random.default_rng(5).choice(held, 100, replace=False), held)

    def read() -> int:
        return int(metatable.open(folder).read_keys(keys.select(["id"])).num_rows)

    return timed(read, prepare=cache.clear)


def _with_logs(
    folder: Path, held: int, count: int, form: str, commits: int = 1, **options: Any
) -> None:
    table = metatable.create(
        folder,
        table_rows("uuid", 1).schema,
        key="id",
        partition_by="day",
        index="record",
        table_type="mor",
        options={"log_format": form, "small_file_bytes": 0, **options},
        storage_options={"durable": "false"},
    )
    table.insert(table_rows("uuid", held))
    draw = np.random.default_rng(7)
    for generation in range(1, commits + 1):
        replaced = draw.choice(held, count, replace=False)
        table.upsert(rows_of("uuid", replaced, held, generation=generation))


def _scan(folder: Path) -> Measure:
    def read() -> int:
        return sum(batch.num_rows for batch in metatable.open(folder).scan().to_batches())

    return timed(read, prepare=cache.clear)


def _stored(rows: pa.Table) -> pa.Table:
    """With meta columns, as rows stand in a log."""
    for place, field in enumerate(META_FIELDS):
        rows = rows.add_column(place, field, rows["id"].cast(pa.string()))
    return rows.combine_chunks()


def _block(rows: pa.Table, form: str) -> int:
    writer = LogWriter(rows.select(rows.schema.names[len(META_FIELDS) :]).schema, "t")
    instant = "20260101000000000"
    if form == "parquet":
        blocks = [writer.parquet_block(rows, instant, "zstd")]
    else:
        blocks = [*writer.avro_blocks(rows, instant)]
    return len(LogFile.encode(blocks))


def _parquet(rows: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return int(sink.getvalue().size)


if __name__ == "__main__":
    run_module(globals())
