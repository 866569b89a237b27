"""Upserts on Spark, whole: from a DataFrame to a published commit, beside MERGE of Delta, Iceberg.

Each run is a process of its own with one session (each format has another Spark), in which the
same rows are merged twice, into two fresh copies of the same table: once to warm up, once
measured. One process after the other, so that none has to share the processors.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq

import metatable
from benchmarks.data import KEY_BYTES, UPDATES, Cupboard, batch_rows, make_table, table_rows
from benchmarks.harness import Case, Peer, Setup, absent, left_out, our_spark, run_module
from benchmarks.peers import spark
from benchmarks.peers.jars import MissingError
from benchmarks.peers.spark_merge import ANSWER, KINDS, MASTER, SETTINGS, serve
from benchmarks.watching import SAMPLE_SECONDS, Peaks, processor_seconds, watched

QUESTION = (
    "Rows of a DataFrame are inserted or replaced by key: how long until everybody can read them, "
    "beside Spark's own MERGE?"
)

RUNS = 1
"""A run is a process that warms up by itself, and takes minutes."""

HEAP = "3g"
WATCHING = 1 / 20
"""The share of the time that looking at memory may take: at 3 GiB it would be a fifth of a
processor, were it done as often as elsewhere."""
ASKED = 5.0
MIB = 1 << 20

READINGS = {
    "cow": (
        "ours looks keys up in its index and copies what stays of each file; a merge joins the "
        "rows with the table and writes files anew"
    ),
    "mor": "ours puts logs on file groups; a merge joins, marks rows as deleted and adds files",
}


def cases(setup: Setup) -> Iterator[Case]:
    """Both kinds of table, both sizes of batch; of each time, then memory of the same runs."""
    _, why = our_spark()
    if why:
        yield left_out("on Spark", why)
        return
    held = setup.tenth(10_000_000)
    for kind, name in KINDS.items():
        if kind == "mor" and not setup.full:
            yield left_out(name, "left to --size full: each process takes 10 s to start")
            continue
        for count in (setup.tenth(1_000_000), 1_000):
            title = f"{count:,} rows, {name}"
            if setup.only in f"{title}, memory":
                yield from _pair(setup, title, kind, held, count)


def _pair(setup: Setup, title: str, kind: str, held: int, count: int) -> Iterator[Case]:
    batch = batch_rows("uuid", held, count)
    rows = setup.cupboard.scratch() / "rows.parquet"
    pq.write_table(batch, rows, row_group_size=max(count // 8, 1))
    after = held + count - int(count * UPDATES)
    ours = Runs(setup.cupboard, OURS, _our_table(setup, kind, held), (str(rows), kind), after)
    asked = ASKED if setup.full and kind == "cow" else None
    timed, sized = [], []
    for one in spark.ALL:
        try:
            command = [*one.command(), HEAP]
            table = _their_table(setup, one, command, held)
        except MissingError as error:
            timed.append(absent(one.title, str(error)))
            continue
        theirs = Runs(setup.cupboard, command, table, (str(rows), kind), after)
        theirs.stays = one is spark.ICEBERG
        timed.append(Peer(f"MERGE of {one.title}", theirs, target=asked))
        sized.append(Peer(f"MERGE of {one.title}", theirs.mebibytes))
    setting = (
        f"{count:,} rows of {batch.num_columns} columns in a Parquet file, 70 % updates, random "
        f"keys of {KEY_BYTES} bytes, into {held:,} rows in 10 partitions (ours: record index); "
        f"{MASTER}, heap {HEAP}, page cache warm, after one merge in the same process"
    )
    yield Case(title, setting, ours, timed, READINGS[kind], warm_up=False)
    sampled = (
        f"PSS of JVM and of Pythons, each at most, sampled every {SAMPLE_SECONDS} s, less often "
        f"where that takes {WATCHING:.0%} of the time"
    )
    held_most = f"{setting}; {sampled}"
    yield Case(f"{title}, memory", held_most, ours.mebibytes, sized, unit="MiB", warm_up=False)


def _our_table(setup: Setup, kind: str, held: int) -> Path:
    name = f"table-{held}-uuid-record" + ("-mor" if kind == "mor" else "")
    make = partial(make_table, kind="uuid", index="record", rows=held)
    if kind == "mor":
        make = partial(make, table_type="mor")
    return setup.cupboard.made(name, make)


def _their_table(setup: Setup, peer: spark.SparkPeer, command: list[str], held: int) -> Path:
    """A table of the rows of ours, written by the peer itself, a task for each day."""

    def make(folder: Path) -> None:
        rows = setup.cupboard.scratch() / "held.parquet"
        pq.write_table(table_rows("uuid", held), rows, row_group_size=1 << 20)
        with worker(command) as ask:
            ask("make", str(folder), str(rows))
        setup.cupboard.drop(rows.parent)

    return setup.cupboard.made(f"{peer.name}-{peer.library.version}-{held}-uuid", make)


@dataclass(slots=True)
class Runs:
    """Merges into copies of a table, by a process each: its seconds, and what it was seen to do.

    `stays`: the table is changed where it is, and put back; its metadata have whole addresses.
    """

    cupboard: Cupboard
    command: Sequence[str]
    table: Path
    told: tuple[str, str]
    """The rows' file, and the kind of table."""
    after: int
    """Rows that the table has then."""
    stays: bool = False
    processor: list[float] = field(default_factory=list)
    peaks: list[Peaks] = field(default_factory=list)

    def __call__(self) -> float:
        """Seconds of the second of two merges: each process warms up by itself."""
        with worker(self.command) as ask, watched(ask.process, WATCHING) as peaks:
            for _ in range(2):
                with self._copy() as folder:
                    worked = processor_seconds(ask.process)
                    seconds, _ = ask("merge", str(folder), *self.told)
                    worked = processor_seconds(ask.process) - worked
                    _, found = ask("count", str(folder))
                    assert found == self.after, (found, self.after)
        told = {kind: f"{peak / MIB:,.0f} MiB" for kind, peak in peaks.items()}
        doing = " ".join([Path(self.table).parent.name, *self.told[1:]])
        print(f"  {doing}: {seconds:.2f} s, {worked:.1f} of processor, {told}", file=sys.stderr)
        self.processor.append(worked)
        self.peaks.append(peaks)
        return seconds

    def mebibytes(self) -> float:
        """The most memory, at the median, of the processes that there were already, or of one more
        where there was none."""
        if not self.peaks:
            self()
        return statistics.median(sum(peaks.values()) for peaks in self.peaks) / MIB

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        copy = self.cupboard.copy(self.table)
        try:
            yield self.table if self.stays else copy
        finally:
            if self.stays:
                shutil.rmtree(self.table)
                shutil.copytree(copy, self.table, copy_function=os.link)
            self.cupboard.drop(copy)


@dataclass(frozen=True, slots=True)
class Asking:
    """A process that answers a line with a line."""

    process: int
    words: IO[str]
    answers: IO[str]

    def __call__(self, *told: str) -> tuple[float, int]:
        """Seconds, and a count."""
        print(*told, sep="\t", file=self.words, flush=True)
        for line in self.answers:
            if line.startswith(ANSWER):
                seconds, count = line.removeprefix(ANSWER).split()
                return float(seconds), int(count)
        raise RuntimeError(f"a process ended before it answered: {told}")


@contextmanager
def worker(command: Sequence[str]) -> Iterator[Asking]:
    """One process with a session, until the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        words, answers = process.stdin, process.stdout
        assert words is not None
        assert answers is not None
        try:
            yield Asking(process.pid, words, answers)
            words.close()
            process.wait()
        except BaseException:
            process.terminate()
            raise


# Ours, in a process of its own

OURS = [sys.executable, "-m", "benchmarks.merge_spark", "--work"]


def _work() -> None:
    from metatable.spark.session import local_session  # noqa: PLC0415  (only here)

    session = local_session("merge_spark", **SETTINGS, **{"spark.driver.memory": HEAP})

    def merge(folder: str, rows: str, _kind: str) -> None:
        metatable.open(folder).upsert(session.read.parquet(rows))

    serve({"merge": merge, "count": lambda folder: metatable.open(folder).scan().count()})
    session.stop()


if __name__ == "__main__":
    if "--work" in sys.argv:
        _work()
    else:
        run_module(globals())
