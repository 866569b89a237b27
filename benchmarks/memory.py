"""Memory of an upsert: what its processes hold at most, sampled while they work.

The work is done by a process of its own, which streams its rows from a Parquet file. Counted is
the proportional set size (PSS) of it and of all that it starts: of our Pythons together, and of
Spark's JVM apart, whose heap is what the session was given.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import SCHEMA, rows_of
from benchmarks.harness import Case, Setup, package, run_module
from benchmarks.synthetic import DAYS, FILE_SPAN, make_ours
from benchmarks.watching import SAMPLE_SECONDS, Peaks, watched

QUESTION = (
    "Many rows are upserted at once, from a stream: how much memory do our processes hold at most?"
)

MIB = 1 << 20
TARGET_MIB = 2048
"""Asked of 50 million rows, and so of fewer; and of a group of any size."""

HEAP = "1g"
_CHUNK_ROWS = 1 << 20

TEXT_BYTES = 10_240
CHANGED = 1000
PORTION_MIB = 128
GROUP_ROWS = 1000

HELD = 0.2
"""Share of the batch that the table holds before: a half of these rows are replaced."""


def cases(setup: Setup) -> Iterator[Case]:
    """In this process's kind and on Spark; each index that keeps something of its own; the two
    commits whose memory does not follow the rows: of one large group, and of many groups; and
    questions to a table of very many files."""
    yield from _cases_of_rows(setup)
    size = 3072 if setup.full else 256
    name = f"one file group of {size:,} MiB of text"
    setting = (
        f"rows of {TEXT_BYTES:,} bytes in one bucket, {PORTION_MIB} MiB a commit, of which then "
        f"{CHANGED:,} are replaced"
    )
    if setup.only in name:
        yield _case(setup, name, setting, ["group", str(size)])
    count = 2000 if setup.full else 200
    name = f"{count:,} file groups touched by one commit"
    setting = f"groups of {GROUP_ROWS:,} rows; a row in ten is replaced"
    if setup.only in name:
        yield _case(setup, name, setting, ["groups", str(count)])
    yield from _case_of_files(setup)


def _case_of_files(setup: Setup) -> Iterator[Case]:
    count = 1_000_000 if setup.full else 20_000
    name = f"{count:,} files are asked for"
    setting = (
        "a process that opens the table and asks for describe, count, all files, one in a hundred "
        f"by its bounds, and by the metadata's ranges and filters for {CHANGED:,} keys"
    )
    if setup.only in name:
        make = partial(make_ours, files=count, index="metadata_bloom")
        folder = setup.cupboard.made(f"bloom-files-{count}", make)
        yield _case(setup, name, setting, ["files", str(folder), str(count)])


def _cases_of_rows(setup: Setup) -> Iterator[Case]:
    count = 50_000_000 if setup.full else 1_000_000
    engines = ("local", "spark") if package("pyspark") else ("local",)
    for engine in engines:
        where = "in process" if engine == "local" else f"on local[2], heap {HEAP}"
        setting = (
            f"rows of some 100 bytes, random uuids, of which the table holds {HELD / 2:.0%}, "
            f"{where}"
        )
        for index in ("metadata_bloom", "record"):
            name = f"{count:,} rows, {index}, {engine}"
            if setup.only in name:
                folder = setup.cupboard.made(f"memory-{count}", partial(_make, count=count))
                rows = str(folder / "rows.parquet")
                yield _case(setup, name, setting, ["rows", engine, index, rows])


def _case(setup: Setup, name: str, setting: str, told: list[str]) -> Case:
    def measure() -> float:
        table = setup.cupboard.scratch()
        work = [sys.executable, "-m", "benchmarks.memory", "--work", *told, str(table / "table")]
        peaks, seconds = _peaks(work)
        setup.cupboard.drop(table)
        found = {kind: f"{peak / MIB:,.0f} MiB" for kind, peak in peaks.items()}
        print(f"  {name}: {found}, {seconds:,.0f} s", file=sys.stderr, flush=True)
        return peaks["python"] / MIB

    sampled = f"PSS of our Python processes together, sampled every {SAMPLE_SECONDS} s"
    watching = f"{setting}; {sampled}"
    return Case(name, watching, measure, unit="MiB", target=TARGET_MIB, warm_up=False)


def _make(folder: Path, count: int) -> None:
    """The rows, a chunk at a time: they never are in memory together."""
    with pq.ParquetWriter(folder / "rows.parquet", SCHEMA, compression="snappy") as writer:
        for start in range(0, count, _CHUNK_ROWS):
            numbers = np.arange(start, min(start + _CHUNK_ROWS, count))
            writer.write_table(rows_of("uuid", numbers, count), row_group_size=1 << 17)


# The work, in a process of its own


NOT_DURABLE = {"durable": "false"}


def upsert_rows(engine: str, index: str, rows: str, uri: str) -> None:
    """Two upserts: a part of the rows, then all of them."""
    table = metatable.create(
        uri, SCHEMA, key="id", partition_by="day", index=index, storage_options=NOT_DURABLE
    )
    source: Callable[[int | None], object] = partial(_stream, rows)
    if engine == "spark":
        source = partial(_frame, rows)
    count = pq.read_metadata(rows).num_rows
    table.upsert(source(int(count * HELD / 2)))
    print(table.upsert(source(None)), file=sys.stderr)


def upsert_group(mebibytes: str, uri: str) -> None:
    """A bucket of so much text, in portions; then a few of its rows."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    options = {"bucket_count": 1}
    table = metatable.create(
        uri, schema, key="id", index="bucket", options=options, storage_options=NOT_DURABLE
    )
    count = int(mebibytes) * MIB // TEXT_BYTES
    step = PORTION_MIB * MIB // TEXT_BYTES
    portions = [range(start, min(start + step, count)) for start in range(0, count, step)]
    for numbers in (*portions, range(0, count, count // CHANGED)):
        batches = (_texts(numbers[start : start + 1024]) for start in range(0, len(numbers), 1024))
        print(table.upsert(pa.RecordBatchReader.from_batches(schema, batches)), file=sys.stderr)


def _texts(numbers: range) -> pa.RecordBatch:
    """Texts that do not compress much: random bytes as hexadecimal digits."""
    raw = np.random.default_rng(numbers.start).bytes(len(numbers) * TEXT_BYTES // 2).hex()
    texts = [raw[at : at + TEXT_BYTES] for at in range(0, len(raw), TEXT_BYTES)]
    return pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64()), "text": texts})


def upsert_groups(count: str, uri: str) -> None:
    """Many files, then a commit that touches all of them."""
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("note", pa.string())])
    options = {"file_rows": GROUP_ROWS, "small_file_bytes": 0}
    table = metatable.create(uri, schema, key="id", options=options, storage_options=NOT_DURABLE)
    total = int(count) * GROUP_ROWS
    for numbers in (np.arange(total), np.arange(0, total, 10)):
        notes = pa.repeat("a note of some twenty bytes", len(numbers))
        rows = pa.table([numbers, numbers * 2, notes], schema=schema)
        print(table.upsert(rows), file=sys.stderr)


def ask_files(folder: str, count: str, scratch: str) -> None:
    """The questions of one process to a table of many files; of these none is there."""
    table, last = metatable.open(folder), int(count) - 1
    keys = [f"{number:012d}-b" for number in range(0, last, max(last // CHANGED, 1))]
    days = [f"d{int(key[:12]) % DAYS:02d}" for key in keys]
    some = (last // 2 * FILE_SPAN, (last // 2 + last // 100) * FILE_SPAN)
    questions: dict[str, Callable[[], object]] = {
        "describe": lambda: table.describe().file_groups,
        "count": lambda: table.scan().count(),
        "files": lambda: len(table.files().uris),
        "some files": lambda: len(
            table.files([("place", ">=", some[0]), ("place", "<", some[1])]).uris
        ),
        "tag": lambda: table.tag_locations(pa.table({"id": keys, "day": days})).num_rows,
    }
    for name, question in questions.items():
        began = time.perf_counter()
        print(f"  {name}: {question()}, {time.perf_counter() - began:.2f} s", file=sys.stderr)


def _stream(rows: str, first: int | None) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, _first(_row_groups(rows), first))


def _row_groups(rows: str) -> Iterator[pa.RecordBatch]:
    """One after the other. pyarrow's own streams hold on to what they have read of a file."""
    with pq.ParquetFile(rows) as file:
        groups = file.num_row_groups
    for group in range(groups):
        with pq.ParquetFile(rows) as file:
            yield from file.read_row_group(group).to_batches()


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


def _peaks(command: list[str]) -> tuple[Peaks, float]:
    """(greatest sum of PSS in bytes by kind of process, seconds) of a command."""
    began = time.perf_counter()
    with subprocess.Popen(command) as process, watched(process.pid) as peaks:
        code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return peaks, time.perf_counter() - began


WORKS: dict[str, Callable[..., None]] = {
    "rows": upsert_rows,
    "group": upsert_group,
    "groups": upsert_groups,
    "files": ask_files,
}

if __name__ == "__main__":
    if "--work" in sys.argv:
        kind, *told = sys.argv[2:]
        WORKS[kind](*told)
    else:
        run_module(globals())
