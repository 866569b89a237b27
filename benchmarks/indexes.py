"""Which index for which table? All of them beside each other, on the same rows.

Each measurement is a process of its own, on a copy of the table: it opens the table, tags the
batch, forgets all that it has read, and upserts the batch. So both are cold, as in a job that runs
once, and what the process holds at most is the index's doing. What was read and written, and how
large the index is, is told beside the seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import KEY_BYTES, batch_rows, make_table
from benchmarks.harness import Case, Setup, left_out, run_module
from benchmarks.hbase import MissingError, table_in_hbase
from benchmarks.hbase import setting as hbase_setting
from benchmarks.watching import most_resident_bytes
from metatable.storage import cache

QUESTION = (
    "A batch of rows comes to the same table under each index: how long to find their keys, and to "
    "write them, and what is read, written and held for it?"
)

SHARES = (0.001, 0.01, 0.1)
"""Shares of the table's rows that a batch has."""

BUCKETS = 4
"""Buckets of each table partition: as many files as the other tables have."""

INDEXES: dict[str, dict[str, Any]] = {
    "bloom": {"index": "bloom"},
    "metadata_bloom": {"index": "metadata_bloom"},
    "record": {"index": "record"},
    "hbase": {"index": "hbase"},
    "bucket, simple": {"index": "bucket", "bucket_count": BUCKETS},
    **{
        f"bucket, {engine}": {
            "index": "bucket",
            "bucket_count": BUCKETS,
            "bucket_engine": f"{engine}_hashing",
        }
        for engine in ("consistent", "extendible")
    },
}
"""A name, and what the table is created with."""

OF_THE_INDEX = ("bloom_filter", "record_index", "hashing_metadata")
"""Metadata partitions that are there for an index; the others every table has."""


def cases(setup: Setup) -> Iterator[Case]:
    """Each kind of key and of table, share of the table in the batch, and index."""
    held = setup.tenth(10_000_000)
    for kind in ("uuid", "time"):
        for table_type in ("cow", "mor"):
            for share in SHARES:
                for index in INDEXES:
                    yield from _cases(setup, held, kind, table_type, share, index)


def _cases(
    setup: Setup, held: int, kind: str, table_type: str, share: float, index: str
) -> Iterator[Case]:
    """Tag and upsert of one table. For `hbase` a real one is started, with all keys in it."""
    count = int(held * share)
    told = f"{count:,} {kind} keys, {table_type}, {index}"
    if setup.only not in f"tag {told}" and setup.only not in f"upsert {told}":
        return
    given: dict[str, Any] = {**INDEXES[index], "table_type": table_type}
    kept = "-".join(["indexes", str(held), kind, *map(str, given.values())])
    make = partial(make_table, kind=kind, rows=held, **given)
    setting = (
        f"{share:.1%} of {held:,} rows in 10 partitions, 70 % updates, {_order(kind)} keys of "
        f"{KEY_BYTES} bytes; a process and a copy of the table for each run, page cache warm"
    )
    with ExitStack() as stack:
        if index == "hbase":

            def fill(folder: Path, place: Mapping[str, str]) -> None:
                make_table(folder, kind=kind, rows=held, **(given | dict(place)))

            outside = table_in_hbase(setup.cupboard, kept, fill)
            try:
                table = stack.enter_context(outside)
            except MissingError as error:
                yield left_out(f"tag {told}", str(error))
                return
            setting += f"; {hbase_setting()}"
        else:
            table = setup.cupboard.made(kept, make)
        jobs = _Jobs(setup, table, batch_rows(kind, held, count), told)
        yield Case(f"tag {told}", setting, jobs.measure("tag"))
        yield Case(f"upsert {told}", setting, jobs.measure("upsert"))


def _order(kind: str) -> str:
    return "random" if kind == "uuid" else "time-ordered"


@dataclass(slots=True)
class _Jobs:
    """The processes of a case, and what each of them said: asked for one thing after the other."""

    setup: Setup
    table: Path
    batch: pa.Table
    name: str
    said: list[Mapping[str, float]] = field(default_factory=list)

    def measure(self, what: str) -> Callable[[], float]:
        """`what` of the first job, then of the second, …; those that were not there are done."""
        asked = iter(range(1 << 30))

        def one() -> float:
            number = next(asked)
            while len(self.said) <= number:
                self.said.append(self._run())
            return self.said[number][what]

        return one

    def _run(self) -> Mapping[str, float]:
        copy, scratch = self.setup.cupboard.copy(self.table), self.setup.cupboard.scratch()
        rows = scratch / "batch.parquet"
        pq.write_table(self.batch, rows)
        work = [sys.executable, "-m", "benchmarks.indexes", "--work", str(copy), str(rows)]
        answer = subprocess.run(work, check=True, stdout=subprocess.PIPE)
        for place in (copy, scratch):
            self.setup.cupboard.drop(place)
        said: dict[str, float] = json.loads(answer.stdout)
        print(f"  {self.name}: {json.dumps(said)}", file=sys.stderr, flush=True)
        return said


# The work, in a process of its own


def _work(folder: str, rows: str) -> Mapping[str, float]:
    """Seconds; what was read and written, in MB; what this process held at most, in MiB."""
    batch, told = pq.read_table(rows), dict[str, float]()
    metatable.open(folder).tag_locations(batch.slice(0, 1))  # imports what it needs
    asked: dict[str, Callable[[metatable.Table], object]] = {
        "tag": lambda table: table.tag_locations(batch),
        "upsert": lambda table: table.upsert(batch),
    }
    for name, ask in asked.items():
        cache.clear()
        began, worked = time.perf_counter(), time.process_time()
        table = metatable.open(folder)
        ask(table)
        told[name] = round(time.perf_counter() - began, 4)
        told[f"{name} processor"] = round(time.process_time() - worked, 4)
        for what in ("read", "written"):
            moved = sum(table.counters[f"{place}.bytes_{what}"] for place in ("store", "kv"))
            told[f"{name} {what}"] = round(moved / 1e6, 2)
    told["held"] = most_resident_bytes() >> 20
    metadata = metatable.open(folder).describe().metadata
    sizes = [metadata[name]["bytes"] for name in OF_THE_INDEX if name in metadata]
    return {**told, "index": round(sum(sizes) / 1e6, 2)}


if __name__ == "__main__":
    if "--work" in sys.argv:
        print(json.dumps(_work(*sys.argv[2:])))
    else:
        run_module(globals())
