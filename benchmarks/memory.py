"""Memory of an upsert: what its processes hold at most, sampled while they work.

The work is done by a process of its own, which streams its rows from a Parquet file. Counted is
the proportional set size (PSS) of it and of all that it starts: of our Pythons together, and of
Spark's JVM apart, whose heap is what the session was given.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import metatable
from benchmarks.data import SCHEMA, rows_of
from benchmarks.harness import Case, Setup, package, run_module

QUESTION = (
    "Many rows are upserted at once, from a stream: how much memory do our processes hold at most?"
)

MIB = 1 << 20
TARGET_MIB = 2048
"""Asked of 50 million rows, and so of fewer."""

HEAP = "1g"
SAMPLE_SECONDS = 0.2
_CHUNK_ROWS = 1 << 20

HELD = 0.2
"""Share of the batch that the table holds before: a half of these rows are replaced."""


def cases(setup: Setup) -> Iterator[Case]:
    """In this process's kind and on Spark; each index that keeps something of its own."""
    count = 50_000_000 if setup.full else 1_000_000
    folder = setup.cupboard.made(f"memory-{count}", partial(_make, count=count))
    engines = ("local", "spark") if package("pyspark") else ("local",)
    for engine in engines:
        for index in ("metadata_bloom", "record"):
            name = f"{count:,} rows, {index}, {engine}"
            if setup.only in name:
                yield _case(setup, name, folder, engine, index)


def _case(setup: Setup, name: str, folder: Path, engine: str, index: str) -> Case:
    def measure() -> float:
        table = setup.cupboard.scratch()
        work = [sys.executable, "-m", "benchmarks.memory", "--work", engine, index]
        peaks, seconds = _peaks([*work, str(folder / "rows.parquet"), str(table / "table")])
        setup.cupboard.drop(table)
        told = {kind: f"{peak / MIB:,.0f} MiB" for kind, peak in peaks.items()}
        print(f"  {name}: {told}, {seconds:,.0f} s", file=sys.stderr, flush=True)
        return peaks["python"] / MIB

    where = "in process" if engine == "local" else f"on local[2], heap {HEAP}"
    setting = (
        f"rows of some 100 bytes, random uuids, of which the table holds {HELD / 2:.0%}, {where}; "
        f"PSS of our Python processes together, sampled every {SAMPLE_SECONDS} s"
    )
    return Case(name, setting, measure, unit="MiB", target=TARGET_MIB)


def _make(folder: Path, count: int) -> None:
    """The rows, a chunk at a time: they never are in memory together."""
    with pq.ParquetWriter(folder / "rows.parquet", SCHEMA, compression="snappy") as writer:
        for start in range(0, count, _CHUNK_ROWS):
            numbers = np.arange(start, min(start + _CHUNK_ROWS, count))
            writer.write_table(rows_of("uuid", numbers, count), row_group_size=1 << 17)


# The work, in a process of its own


def work(engine: str, index: str, rows: str, uri: str) -> None:
    """Two upserts: a part of the rows, then all of them."""
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="day",
        index=index,
        storage_options={"durable": "false"},
    )
    source: Callable[[int | None], object] = partial(_stream, rows)
    if engine == "spark":
        source = partial(_frame, rows)
    count = pq.read_metadata(rows).num_rows
    table.upsert(source(int(count * HELD / 2)))
    print(table.upsert(source(None)), file=sys.stderr)


def _stream(rows: str, first: int | None) -> pa.RecordBatchReader:
    batches = ds.dataset(rows).scanner(batch_size=1 << 17, batch_readahead=2, fragment_readahead=1)
    return pa.RecordBatchReader.from_batches(SCHEMA, _first(batches.to_batches(), first))


def _first(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count is not None and count <= 0:
            return
        yield batch if count is None else batch.slice(0, count)
        count = None if count is None else count - batch.num_rows


def _frame(rows: str, first: int | None) -> object:
    from metatable.spark.session import local_session  # noqa: PLC0415  (only here)

    spark = local_session("memory", **{"spark.master": "local[2]", "spark.driver.memory": HEAP})
    frame = spark.read.parquet(rows)
    return frame if first is None else frame.limit(first)


# Looking on


def _peaks(command: list[str]) -> tuple[dict[str, int], float]:
    """(greatest sum of PSS in bytes by kind of process, seconds) of a command."""
    began = time.perf_counter()
    peaks = {"python": 0, "java": 0}
    with subprocess.Popen(command) as process:
        over = threading.Event()
        watching = threading.Thread(target=_watch, args=(process.pid, peaks, over))
        watching.start()
        code = process.wait()
        over.set()
        watching.join()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return peaks, time.perf_counter() - began


def _watch(root: int, peaks: dict[str, int], over: threading.Event) -> None:
    while not over.wait(SAMPLE_SECONDS):
        held = {"python": 0, "java": 0}
        for process in _family(root):
            kind = "java" if "java" in _read(process, "comm") else "python"
            held[kind] += _pss(process)
        for kind, size in held.items():
            peaks[kind] = max(peaks[kind], size)


def _family(root: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    parents = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            told = _read(int(place.name), "stat").rpartition(")")[2].split()
            if told:
                parents[int(place.name)] = int(told[1])
    family = {root}
    while grown := {one for one, parent in parents.items() if parent in family} - family:
        family |= grown
    return sorted(family)


def _pss(process: int) -> int:
    for line in _read(process, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text("utf-8", "replace")
    except OSError:  # it is gone
        return ""


if __name__ == "__main__":
    if "--work" in sys.argv:
        work(*sys.argv[2:])
    else:
        run_module(globals())
