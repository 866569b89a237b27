"""Keys in a real HBase: what lookups cost beside the client's own multi-get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import metatable
from benchmarks.harness import FLOOR, Case, Measure, Peer, Setup, left_out, run_module, timed
from benchmarks.hbase import MissingError, setting, table_in_hbase
from metatable import Table
from metatable.metadata.partitions.record_index import index_keys
from metatable.storage.arrays import Int64s

QUESTION = (
    "Where keys are in HBase: how long do 1,000 and a million of them take, beside the same rows "
    "asked of HBase by the client alone?"
)

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("value", pa.int64())])
AT_MOST = 1.5
"""So many times as long as the floor, at most."""

FLOOR_ROWS = 1000
"""Rows of a multi-get: of 1,000, 2,000 and 5,000 the first is the fastest."""

INSERTED_ROWS = 1_000_000


def cases(setup: Setup) -> Iterator[Case]:
    """Keys that are there, chosen by chance."""
    count = 10_000_000 if setup.full else 200_000
    asked = (1_000, 1_000_000 if setup.full else 50_000)
    with ExitStack() as stack:
        try:
            kept = table_in_hbase(setup.cupboard, f"outside-{count}", partial(_fill, count))
            table = metatable.open(stack.enter_context(kept))
        except MissingError as error:
            yield left_out("keys in HBase", str(error))
            return
        for number in asked:
            keys = _ids(np.random.default_rng(number).choice(count, number, replace=False))
            yield Case(
                f"{number:,} keys into {count:,}",
                f"random keys, all there; {setting()}; tag_locations; warm",
                timed(partial(table.tag_locations, keys), check=_all_found),
                [Peer(f"{FLOOR}happybase's rows()", _floor(table, keys), "", 1 / AT_MOST)],
                "four requests are under way at a time, where the client alone has one",
            )


def _fill(count: int, folder: Path, place: Mapping[str, str]) -> None:
    table = metatable.create(
        folder,
        SCHEMA,
        key="id",
        index="hbase",
        options=place,
        storage_options={"durable": "false"},
    )
    for start in range(0, count, INSERTED_ROWS):
        numbers = np.arange(start, min(start + INSERTED_ROWS, count))
        table.insert(_ids(numbers).append_column("value", pa.array(numbers)))


def _ids(numbers: Int64s) -> pa.Table:
    return pa.table({"id": [f"k{number:012d}" for number in numbers.tolist()]})


def _all_found(tagged: pa.Table) -> None:
    assert tagged["_location"].null_count == 0


def _floor(table: Table, keys: pa.Table) -> Measure:
    """The rows as they are stored, in their order, by a connection that is open: a new one for
    each run, for the gateway hangs up on who is silent for a minute."""
    import happybase  # noqa: PLC0415  (where there is no HBase, it may be missing)

    options = table.options
    stored = index_keys(options, keys["id"].combine_chunks(), pa.scalar(""))
    rows = sorted(stored.to_pylist())
    host, _, port = options.hbase_address.partition(":")
    opened: list[Any] = []

    def connect() -> None:
        opened[:] = [happybase.Connection(host, int(port)).table(options.hbase_table)]
        opened[0].row(rows[0])

    def ask() -> int:
        starts = range(0, len(rows), FLOOR_ROWS)
        return sum(len(opened[0].rows(rows[start : start + FLOOR_ROWS])) for start in starts)

    return timed(ask, prepare=connect, check=lambda found: _same(found, len(rows)))


def _same(found: int, expected: int) -> None:
    assert found == expected, (found, expected)


if __name__ == "__main__":
    run_module(globals())
