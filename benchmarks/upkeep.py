"""Many small commits: what does a table cost that nobody has looked after?

Requests are counted, of a process that knows nothing; seconds of the same question are told
beside them, and what the metadata weighs. Files of an index come together and are merged, so what
a question asks for goes up and down: each is asked after every one of the last commits, and the
most is reported. The bytes of a tag have a floor: the blocks that hold its keys, each once.
Contended commits are those of four processes at once, into the same file groups; how often they
had to begin anew is told as well.
"""

from __future__ import annotations

import json
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
from benchmarks.harness import FLOOR, Case, Peer, Setup, run_module
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.record_index import index_keys
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.ordering import sort_order

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

TAG, TAGGED = "tag of 100 keys", 5
"""The question, and the commit whose keys it asks for."""
MOST = "most.json"
"""The file that tells, for each question, the most requests, bytes, and the floor of the bytes."""

NOT_DURABLE = {"durable": "false"}


def cases(setup: Setup) -> Iterator[Case]:
    """All questions after each number of commits, with upkeep; and without, for the least."""
    counts = (100, 200, 1000, 10_000) if setup.full else (50, 100, 200)
    kinds = [(count, UPKEEP) for count in counts] + [(counts[0], ALONE)]
    for commits, kind in [*kinds, (500 if setup.full else 60, CONTENDED)]:
        how = "" if kind == UPKEEP else f", {kind}"
        name = f"after {commits:,} commits{how}"
        if setup.only not in name:
            continue
        kept = f"commits-{commits}-{kind.replace(' ', '-')}"
        make = partial(_contended if kind == CONTENDED else _make, commits=commits, kind=kind)
        most = json.loads((setup.cupboard.made(kept, make) / MOST).read_text())
        setting = (
            f"{commits:,} commits of {ROWS} rows, random keys in {PARTITIONS} partitions, record "
            f"index, groups of {GROUP_ROWS:,} rows{how}; caches of the process empty; the most "
            f"after any of the last {_asked(commits)} commits"
        )
        for question in QUESTIONS:
            requests = partial(float, most[question][0])
            yield Case(f"{question} {name}", setting, requests, unit="requests")
        floor = Peer(f"{FLOOR}blocks that hold the keys", partial(float, most[TAG][2]))
        read = partial(float, most[TAG][1])
        yield Case(f"bytes of a {TAG} {name}", setting, read, [floor], unit="bytes")


def _asked(commits: int) -> int:
    return min(100, commits // 2)


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
    for number in range(commits - _asked(commits)):
        table.upsert(_rows(number))
        if number + 1 in (commits // 10, commits // 4, commits // 2):
            _tell(folder, number + 1, time.perf_counter() - began)
    _tell(folder, commits - _asked(commits), time.perf_counter() - began)
    _ask(folder, range(commits - _asked(commits), commits))


def _contended(folder: Path, commits: int, kind: str) -> None:
    table, began = _created(folder, kind), time.perf_counter()
    beside = commits - _asked(commits)
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        shares = [range(start, beside, PROCESSES) for start in range(PROCESSES)]
        attempts = sum(pool.map(partial(_share, table.uri), shares))
    _tell(folder, beside, time.perf_counter() - began)
    print(f"  {attempts - beside:,} attempts were forestalled", file=sys.stderr)
    _ask(folder, range(beside, commits))


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


def _ask(folder: Path, numbers: range) -> None:
    """Make these commits, and ask after each of them; keep the most of each answer."""
    uri = folder / "table"
    most = dict.fromkeys(QUESTIONS, (0, 0, 0))
    for number in numbers:
        for question, ask in QUESTIONS.items():
            cache.clear()
            table = metatable.open(uri, storage_options=NOT_DURABLE)
            ask(table, number)
            counted = table.counters["store.requests"], table.counters["store.bytes_read"]
            floor = _least_bytes(table) if question == TAG else 0
            most[question] = max(most[question], (*counted, floor))
    (folder / MOST).write_text(json.dumps(most))


def _least_bytes(table: metatable.Table) -> int:
    """Stored bytes of the blocks of the record index that hold the keys of a tag."""
    store, newest = table._store, newest_of(table._store)
    asked = _rows(TAGGED)
    keys = index_keys(newest.options, asked["id"].combine_chunks(), asked["day"].combine_chunks())
    keys = keys.cast(pa.binary()).take(pa.array(sort_order(keys)))
    held = 0
    for ref in Snapshot(store, newest).refs("record_index"):
        reader = HFileReader.open(store, ref.path, ref.size_bytes)
        here = keys.filter(reader.get_sorted(keys).is_valid())
        index = reader.tree.of_keys(here)
        held += int(index.sizes[index.touched(here)[0]].sum())
    return held


def _tag(table: metatable.Table, number: int) -> object:
    return table.tag_locations(_rows(TAGGED).drop_columns(["value"]))


def _begin(table: metatable.Table, number: int) -> None:
    with Transaction.begin(table._store):
        pass


QUESTIONS: dict[str, Callable[[metatable.Table, int], object]] = {
    "open": lambda table, _: table.schema,
    "begin": _begin,
    "history(limit=20)": lambda table, _: table.history(limit=20),
    "a commit": lambda table, number: table.upsert(_rows(number)),
    TAG: _tag,
}


if __name__ == "__main__":
    run_module(globals())
