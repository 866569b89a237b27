"""Many small commits: what does a table cost that nobody has looked after?

Requests are counted, of a process that knows nothing; bytes and seconds of the same question are
told beside them, and what the metadata weighs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import metatable
from benchmarks.harness import Case, Setup, run_module
from metatable.storage import cache

QUESTION = (
    "A table has had so many commits of 100 rows: how many requests does a process make that comes "
    "to it, and the next commit?"
)

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("value", pa.int64())])
ROWS = 100
PARTITIONS = 3
GROUP_ROWS = 1000
"""Small groups, so that what a commit writes does not grow with the rows before it."""

NOT_DURABLE = {"durable": "false"}


def cases(setup: Setup) -> Iterator[Case]:
    """The same questions after each number of commits, with upkeep; and without, for the least."""
    counts = (100, 1000, 10_000) if setup.full else (50, 100, 200)
    for commits, kept_up in [(count, True) for count in counts] + [(counts[0], False)]:
        how = "" if kept_up else ", upkeep turned off"
        name = f"after {commits:,} commits{how}"
        if setup.only not in name:
            continue
        kept = f"commits-{commits}-{'upkeep' if kept_up else 'alone'}"
        make = partial(_make, commits=commits, kept_up=kept_up)
        uri = setup.cupboard.copy(setup.cupboard.made(kept, make)) / "table"
        setting = (
            f"{commits:,} commits of {ROWS} rows, random keys in {PARTITIONS} partitions, record "
            f"index, groups of {GROUP_ROWS:,} rows{how}; caches of the process empty"
        )
        for question, ask in QUESTIONS.items():
            measure = partial(_requests, uri, f"{question} {name}", ask)
            yield Case(f"{question} {name}", setting, measure, unit="requests")


def _rows(seed: int) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 1 << 60, ROWS)
    days = [f"d{key % PARTITIONS}" for key in keys]
    return pa.table([[f"{key:016x}" for key in keys], days, keys], schema=SCHEMA)


def _make(folder: Path, commits: int, kept_up: bool) -> None:
    options = {"file_rows": GROUP_ROWS, "small_file_bytes": 1 << 15}
    options |= {} if kept_up else {"upkeep_files": 0}
    table = metatable.create(
        folder / "table",
        SCHEMA,
        key="id",
        partition_by="day",
        index="record",
        options=options,
        storage_options=NOT_DURABLE,
    )
    written, began = 0, time.perf_counter()
    for number in range(commits):
        written += table.upsert(_rows(number)).counters["store.bytes_written"]
    held = sum(file.stat().st_size for file in (folder / "table/.hoodie/metatable").rglob("*.*"))
    seconds = (time.perf_counter() - began) / commits
    told = f"{seconds * 1000:.0f} ms a commit, {held / 1e6:.1f} MB of metadata"
    print(f"  {commits:,} commits: {told}, {written / 1e6:.1f} MB written", file=sys.stderr)


def _requests(uri: Path, name: str, ask: Callable[[metatable.Table], object]) -> float:
    cache.clear()
    began = time.perf_counter()
    table = metatable.open(uri, storage_options=NOT_DURABLE)
    ask(table)
    seconds, counters = time.perf_counter() - began, table.counters
    told = f"{counters['store.bytes_read']:,} bytes read, {seconds * 1000:.0f} ms"
    print(f"  {name}: {counters['store.requests']} requests, {told}", file=sys.stderr)
    return float(counters["store.requests"])


def _tag(table: metatable.Table) -> object:
    return table.tag_locations(_rows(5).drop_columns(["value"]))


QUESTIONS: dict[str, Callable[[metatable.Table], object]] = {
    "open": lambda table: table.schema,
    "tag of 100 keys": _tag,
    "history(limit=20)": lambda table: table.history(limit=20),
    "a commit": lambda table: table.upsert(_rows(time.time_ns() % (1 << 60))),
}


if __name__ == "__main__":
    run_module(globals())
