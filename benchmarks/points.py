"""Point reads: whole rows of a few keys, beside engines that scan and one that has an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import KEY_BYTES, make_lance, make_table, rows_of
from benchmarks.harness import FLOOR, Case, Peer, Setup, absent, package, run_module, timed
from metatable.data.base_files.base_file_writer import PAGE_ROWS, encoded_base_file
from metatable.data.columns.schema import KEY_COLUMN, META_COLUMNS
from metatable.data.config.options import Options
from metatable.storage import cache

QUESTION = "Some keys are given: how long until their rows are here, whole, out of millions?"

INDEXES = ("record", "metadata_bloom")
COUNTS = (1, 100, 1_000)
STATES = ("cold", "warm")
TARGETS = {("record", 100, "cold"): 3.0, ("record", 100, "warm"): 8.0}
READING = "only DuckDB has no index, and reads the column of keys of every file"


def cases(setup: Setup) -> Iterator[Case]:
    """Each index and number of keys; cold: the table is opened, and nothing of it is known."""
    held = setup.tenth(10_000_000)
    for index in INDEXES:
        if not setup.asks(*(_name(count, index, state) for count in COUNTS for state in STATES)):
            continue
        make = partial(make_table, kind="uuid", index=index, rows=held)
        table = metatable.open(setup.cupboard.made(f"table-{held}-uuid-{index}", make))
        files = [str(Path(table.uri, file.path)) for file in table.files()]
        for count in COUNTS:
            numbers = np.random.default_rng(5).choice(held, count, replace=False)
            rows = rows_of("uuid", np.sort(numbers), held)
            for state in STATES:
                yield _case(setup, table, files, rows, index, state)


def _case(
    setup: Setup, table: metatable.Table, files: list[str], rows: pa.Table, index: str, state: str
) -> Case:
    uri, keys, cold = table.uri, rows.select(["id", "day"]), state == "cold"
    facts = table.describe()
    ids = rows["id"].combine_chunks()

    def ours() -> pa.Table:
        return (metatable.open(uri) if cold else table).read_keys(keys)

    check = partial(same, rows)
    peers = [
        filtered(files, ids, cold, check, TARGETS.get((index, rows.num_rows, state))),
        _lance(setup, facts.rows or 0, ids, cold, check),
        _floor(files, rows.num_rows),
    ]
    return Case(
        _name(rows.num_rows, index, state),
        f"{rows.num_rows:,} random keys of {KEY_BYTES} bytes, rows of {rows.num_columns} columns; "
        f"{facts.rows:,} rows in {facts.file_groups} files, {facts.data_bytes / 1e6:,.0f} MB, in "
        f"the page cache; {'cold: open included, caches of the process empty' if cold else state}",
        timed(ours, prepare=cache.clear if cold else None, check=check),
        peers,
        READING,
    )


def _name(count: int, index: str, state: str) -> str:
    return f"{count:,} keys, {index}, {state}"


def same(rows: pa.Table, found: pa.Table) -> None:
    """Are these rows found, as they are?"""
    ours, theirs = (one.select(rows.column_names).sort_by("id") for one in (found, rows))
    assert ours.cast(theirs.schema).equals(theirs)


def filtered(
    files: list[str],
    ids: pa.Array,
    cold: bool,
    check: Callable[[Any], None],
    target: float | None,
) -> Peer:
    """DuckDB asks the files for the rows of these keys."""
    duckdb = package("duckdb")
    if duckdb is None:
        return absent("DuckDB", "duckdb is not installed: make venv")
    connection = duckdb.connect()
    words = ", ".join(f"'{one}'" for one in ids.to_pylist())
    query = f"select * from read_parquet($1, hive_partitioning = false) where id in ({words})"

    def ask() -> pa.Table:
        made = duckdb.connect() if cold else connection
        return made.sql(query, params=[files]).to_arrow_table()

    return Peer(f"DuckDB {duckdb.__version__}", timed(ask, check=check), target=target)


def _lance(
    setup: Setup, held: int, ids: pa.Array, cold: bool, check: Callable[[Any], None]
) -> Peer:
    lance = package("lance")
    if lance is None:
        return absent("Lance", "pylance is not installed: make peers")
    place = str(setup.cupboard.made(f"lance-{held}-uuid", partial(make_lance, held)) / "rows")
    words = ", ".join(f"'{one}'" for one in ids.to_pylist())
    opened = lance.dataset(place)

    def ask() -> pa.Table:
        return (lance.dataset(place) if cold else opened).to_table(filter=f"id in ({words})")

    return Peer(f"Lance {lance.__version__}, its own format, BTREE", timed(ask, check=check))


def _floor(files: list[str], count: int) -> Peer:
    """As many rows as the pages hold that each key's row is in, side by side in memory."""
    held = pq.read_table(files[0])
    wanted = PAGE_ROWS * count
    rows = pa.concat_tables([held] * -(-wanted // held.num_rows)).slice(0, wanted)
    source = pa.py_buffer(encoded_base_file(rows.combine_chunks(), Options("t", ("id",)), None))
    columns = [KEY_COLUMN, *(name for name in held.column_names if name not in META_COLUMNS)]
    read = timed(lambda: pq.read_table(pa.BufferReader(source), columns=columns))
    return Peer(f"{FLOOR}pyarrow decodes {wanted:,} rows", read)


if __name__ == "__main__":
    run_module(globals())
