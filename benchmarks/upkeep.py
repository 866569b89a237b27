"""Many small commits: what does a table cost that nobody has looked after?

Requests are counted, of a process that knows nothing; bytes and seconds of the same question are
told beside them, and what the metadata weighs. Contended commits are those of four processes at
once, into the same file groups; how often they had to begin anew is told as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

import metatable
from benchmarks.harness import Case, Setup, run_module
from metatable.metadata.transaction import Transaction
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

UPKEEP, ALONE, CONTENDED = "upkeep", "upkeep turned off", "contended"
PROCESSES = 4

NOT_DURABLE = {"durable": "false"}


def cases(setup: Setup) -> Iterator[Case]:
    """The same questions after each number of commits, with upkeep; and without, for the least."""
    counts = (100, 1000, 10_000) if setup.full else (50, 100, 200)
    kinds = [(count, UPKEEP) for count in counts] + [(counts[0], ALONE)]
    for commits, kind in [*kinds, (500 if setup.full else 60, CONTENDED)]:
        how = "" if kind == UPKEEP else f", {kind}"
        name = f"after {commits:,} commits{how}"
        if setup.only not in name:
            continue
        kept = f"commits-{commits}-{kind.replace(' ', '-')}"
        make = partial(_contended if kind == CONTENDED else _make, commits=commits, kind=kind)
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


def _created(folder: Path, kind: str) -> metatable.Table:
    options = {"file_rows": GROUP_ROWS, "small_file_bytes": 1 << 15}
    options |= {"upkeep_files": 0} if kind == ALONE else {}
    options |= {"commit_retries": 1000} if kind == CONTENDED else {}
    return metatable.create(
        folder / "table",
        SCHEMA,
        key="id",
        partition_by="day",
        index="record",
        options=options,
        storage_options=NOT_DURABLE,
    )


def _make(folder: Path, commits: int, kind: str) -> None:
    table, began = _created(folder, kind), time.perf_counter()
    for number in range(commits):
        table.upsert(_rows(number))
        if number + 1 in (commits // 10, commits // 4, commits // 2, commits):
            _tell(folder, number + 1, time.perf_counter() - began)


def _contended(folder: Path, commits: int, kind: str) -> None:
    table, began = _created(folder, kind), time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        shares = [range(start, commits, PROCESSES) for start in range(PROCESSES)]
        attempts = sum(pool.map(partial(_share, table.uri), shares))
    _tell(folder, commits, time.perf_counter() - began)
    print(f"  {attempts - commits:,} attempts were forestalled", file=sys.stderr)


def _share(uri: str, numbers: range) -> int:
    """Attempts of so many commits."""
    table = metatable.open(uri, storage_options=NOT_DURABLE)
    return sum(table.upsert(_rows(number)).attempts for number in numbers)


def _tell(folder: Path, commits: int, seconds: float) -> None:
    files = (folder / "table/.hoodie/metatable").rglob("*.*")
    held = sum(file.stat().st_size for file in files) / 1e6
    each = seconds / commits * 1000
    told = f"{each:.0f} ms a commit, {held:.1f} MB of metadata written and kept"
    print(f"  {commits:,} commits: {told}", file=sys.stderr)


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


def _begin(table: metatable.Table) -> None:
    with Transaction.begin(table._store):
        pass


QUESTIONS: dict[str, Callable[[metatable.Table], object]] = {
    "open": lambda table: table.schema,
    "begin": _begin,
    "tag of 100 keys": _tag,
    "history(limit=20)": lambda table: table.history(limit=20),
    "a commit": lambda table: table.upsert(_rows(time.time_ns() % (1 << 60))),
}


if __name__ == "__main__":
    run_module(globals())
