"""How long do a commit, a tag, a scan and a service wait for an object store?

Every request of the store is answered after 30 ms, as a near region of a cloud does, whatever is
asked; requests that go out together wait together. Beside the seconds the rounds are counted: how
often the next request had to wait for an answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import IO, Any, TypeVar

import pyarrow as pa

import metatable
from benchmarks.harness import Case, Setup, run_module
from metatable.engine import local
from metatable.storage import cache
from metatable.storage.backend import Backend
from metatable.storage.listing import Listed
from metatable.storage.store import Store
from metatable.storage.together import at_once, begun

__all__ = ["Distant", "Rounds", "Sleeping"]

QUESTION = (
    "A table is in a bucket that answers after 30 ms: how long does a small commit take, and a tag "
    "of 1,000 keys, or what reads many files, by a process that knows nothing?"
)

READING = "it is rounds that cost: what need not wait for each other goes together"

R = TypeVar("R")

LATENCY_SECONDS = 0.03
COMMIT_SECONDS, TAG_SECONDS = 0.5, 0.25
INDEXES = ("metadata_bloom", "bloom", "record")
PARTITIONS, FILES = 3, 30
BEFORE = 5
"""Commits before the one that is measured."""

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("value", pa.int64())])

_names = count()


class Distant(Backend):
    """A backend behind a way: `wait` is what a request costs, of `number` that go together."""

    distant, settles = True, False

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    def wait(self, verb: str, path: str, number: int = 1) -> None:
        raise NotImplementedError

    def size(self, path: str) -> int | None:
        self.wait("size", path)
        return self._inner.size(path)

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        self.wait("read", path, len(ranges))
        return self._inner.read(path, ranges)

    def read_whole(self, path: str) -> bytes | None:
        self.wait("get", path)
        return self._inner.read_whole(path)

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        self.wait("put", path)
        self._inner.put(path, body, lasting=lasting)

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        self.wait("create", path)
        return self._inner.create(path, body, soon=soon)

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        with self._inner.sink(path) as file:
            yield file
            self.wait("put", path)

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        self.wait("list", folder)
        return self._inner.list(folder, recursive)

    def delete(self, path: str) -> None:
        self.wait("delete", path)
        self._inner.delete(path)

    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        raise NotImplementedError


class Sleeping(Distant):
    """Requests take real time, on threads where they go together."""

    def wait(self, verb: str, path: str, number: int = 1) -> None:
        time.sleep(LATENCY_SECONDS)

    def together(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        return at_once(calls)

    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        return begun(call)


class Rounds(Distant):
    """Requests take no time; `now` is how many have followed each other, `log` when each was made.

    For one thread: calls that go together are made one after the other, each from the same round.
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.now = 0
        self.log: list[tuple[int, str, str]] = []

    def wait(self, verb: str, path: str, number: int = 1) -> None:
        self.log += [(self.now, verb, path)] * number
        self.now += 1

    def together(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        began, ends, answers = self.now, [self.now], []
        for call in calls:
            self.now = began
            answers.append(call())
            ends.append(self.now)
        self.now = max(ends)
        return answers


def cases(setup: Setup) -> Iterator[Case]:
    """A commit and a tag with each index, and what reads many files."""
    rows = 300_000 if setup.full else 30_000
    for index in INDEXES:
        for question, ask, target in QUESTIONS:
            name = f"{question}, {index}"
            if setup.only not in name:
                continue
            uri = made(index, rows)
            setting = (
                f"{rows:,} rows in {PARTITIONS} partitions, {BEFORE} commits before; objects in "
                f"memory, {LATENCY_SECONDS * 1000:.0f} ms a request"
            )
            waiting = partial(_waiting, uri, name, ask)
            yield Case(f"{name}, waiting", setting, waiting, reading=READING, target=target)
            whole = partial(_seconds, uri, ask)
            yield Case(f"{name}, in all", f"{setting}; with our own work", whole)

    for question, table_type, ask in OF_MANY_FILES:
        name = f"{question} of {FILES} files, {table_type}"
        if setup.only in name:
            anew = partial(_seconds_anew, table_type, rows, ask)
            setting = f"{rows:,} rows; in logs, too, of {BEFORE} commits, with merge-on-read"
            yield Case(f"{name}, in all", setting, anew, reading=READING)


def wide(table_type: str, rows: int) -> str:
    """The address of a table of many files."""
    uri = f"memory://rounds-wide-{next(_names)}"
    table = metatable.create(
        uri, SCHEMA, key="id", partition_by="day", index="record", table_type=table_type
    )
    table.insert(rows_of(range(rows), FILES))
    for number in range(BEFORE if table_type == "mor" else 1):
        table.upsert(rows_of(range(number * 100, number * 100 + 200), FILES))
    return uri


def made(index: str, rows: int) -> str:
    """The address of a table in memory, that has had some commits."""
    uri = f"memory://rounds-{index}-{next(_names)}"
    table = metatable.create(uri, SCHEMA, key="id", partition_by="day", index=index)
    for number in range(BEFORE):
        table.upsert(rows_of(range(rows * number // BEFORE, rows * (number + 1) // BEFORE)))
    return uri


def rows_of(numbers: Sequence[int], partitions: int = PARTITIONS) -> pa.Table:
    keys = [f"k{number:09}" for number in numbers]
    days = [f"d{number % partitions}" for number in numbers]
    return pa.table([keys, days, list(numbers)], schema=SCHEMA)


def reached(uri: str, through: Callable[[Backend], Distant]) -> tuple[metatable.Table, Any]:
    """The table through a backend of this kind, and that backend."""
    store, backend = _through(uri, through)
    return metatable.Table(store), backend


def _through(uri: str, through: Callable[[Backend], Distant]) -> tuple[Store, Distant]:
    store = Store(uri)
    store.backend = backend = through(store.backend)
    return store, backend


def _cold(uri: str, through: Callable[[Backend], Distant]) -> tuple[Store, Distant]:
    """For a process that knows nothing."""
    cache.clear()
    return _through(uri, through)


def commit(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """A commit of 100 rows, half of them new, by a process that has the table open."""
    cache.clear()
    table, backend = reached(uri, through)
    start = next(_names) * 1000
    rows = rows_of([*range(start % 20_000, start % 20_000 + 50), *range(-start - 50, -start)])
    return lambda: table.upsert(rows), backend


def tag(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """A tag of 1,000 keys by a process that has to open the table first."""
    store, backend = _cold(uri, through)
    rows = rows_of(range(0, 29_000, 29)).drop_columns(["value"])
    return lambda: metatable.Table(store).tag_locations(rows), backend


def scan(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """A scan of all rows by a process that has to open the table first."""
    store, backend = _cold(uri, through)
    return lambda: metatable.Table(store).scan().to_arrow(), backend


def changes(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """What has changed since the first rows, by the same."""
    store, backend = _cold(uri, through)
    return lambda: metatable.Table(store).changes(2).to_arrow(), backend


def verify(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """Whether data and index agree, by the same."""
    store, backend = _cold(uri, through)
    return lambda: metatable.Table(store).verify(), backend


def compact(uri: str, through: Callable[[Backend], Distant]) -> tuple[Callable[[], object], Any]:
    """New base files of bases and logs, by the same."""
    store, backend = _cold(uri, through)
    return lambda: metatable.Table(store).compact_logs(count=1), backend


Ask = Callable[[str, Callable[[Backend], Distant]], tuple[Callable[[], object], Any]]

QUESTIONS: tuple[tuple[str, Ask, float], ...] = (
    ("commit of 100 rows", commit, COMMIT_SECONDS),
    ("cold tag of 1,000 keys", tag, TAG_SECONDS),
)

OF_MANY_FILES: tuple[tuple[str, str, Ask], ...] = (
    ("cold scan", "cow", scan),
    ("cold scan", "mor", scan),
    ("cold changes", "cow", changes),
    ("cold changes", "mor", changes),
    ("cold verify", "cow", verify),
    ("cold verify", "mor", verify),
    ("cold compaction of logs", "mor", compact),
)


def _seconds_anew(table_type: str, rows: int, ask: Ask) -> float:
    return _seconds(wide(table_type, rows), ask)


def _seconds(uri: str, ask: Ask) -> float:
    run, _ = ask(uri, Sleeping)
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _waiting(uri: str, name: str, ask: Ask) -> float:
    """Rounds, in seconds."""
    with _one_thread():
        run, backend = ask(uri, Rounds)
        before, asked = backend.now, len(backend.log)
        run()
    rounds, requests = backend.now - before, len(backend.log) - asked
    print(f"  {name}: {requests} requests in {rounds} rounds", file=sys.stderr)
    return float(rounds * LATENCY_SECONDS)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The clock of rounds is for one."""
    processors = local._processors
    local._processors = lambda: 1
    try:
        yield
    finally:
        local._processors = processors


if __name__ == "__main__":
    run_module(globals())
