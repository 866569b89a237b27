"""The engine of one process: partitions of batches, run by an ordered pool of threads.

Rows are a schema and a recipe for partitions; a recipe is followed when `run` needs it, and
again by the next `run` unless `keep` holds its result. Tables are cut, without copying, into
partitions of up to PARTITION_ROWS rows, so that the threads have something to share; a
stream is read when it is first needed, and held, because it can be read only once.

Results leave in the order of the partitions, and no more than two per thread are under way.
A task sees no empty batch, and is not called for a partition without rows. An exception
ends the run: what has not begun is dropped, what has begun is waited for, the exception of
the earliest partition is raised.

For tests: `twice` calls every task a second time over the same batches and takes the second
answer, as after a retry; `shuffle_seed` runs partitions in a random order. Neither may
change an answer.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import pyarrow as pa

from metatable.engine import by_row, many_matches
from metatable.engine.batches import (
    Partition,
    adopted,
    conform,
    deal,
    filled,
    gathered,
    joined,
    viewless,
)
from metatable.engine.beside import Beside, uneven
from metatable.engine.folders import folder_of
from metatable.engine.matching import Matches, attached_schema
from metatable.engine.partitions import cut, is_full, once
from metatable.engine.pool import logged, pooled, tidied
from metatable.engine.protocol import Task
from metatable.engine.spill import Hand, Memory, Spill
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = ["LocalEngine", "LocalRows"]

T = TypeVar("T")

AT_ONCE_ROWS = 1 << 20
"""Rows of partitions that are given to a task together, if it wants them at once."""

AT_ONCE_BYTES = 192 << 20
"""Bytes of the same, of all their columns: as much as four large partitions have, and as is under
way on two threads anyway."""

MEMORY_BYTES = 256 << 20
"""What an engine holds of rows for later; beyond it a disk is fast enough."""

DEALT_ROWS, DEALT_BYTES = 16 << 10, 4 << 20
"""Rows that are dealt together, if that many are in one partition: a batch makes a piece for each
place that it has rows for."""

RANGE_BYTES = 24 << 20
"""Matches of one range of hashes, of which several are looked through at a time."""


@dataclass(frozen=True, slots=True)
class LocalRows:
    """A recipe: the columns, and partitions that are made when they are asked for."""

    schema: pa.Schema
    partitions: Callable[[], Iterable[Partition]]
    hands: Callable[[], list[Hand]] | None = None
    """Where the rows lie, if they are kept."""


class LocalEngine:
    """Runs tasks on `threads` threads of this process; one object serves one operation.

    `memory_bytes` bounds what all that it keeps, exchanges or reads of streams holds in memory,
    beside the tables that it is given; more goes to disk.
    """

    name = "local"
    in_process = True
    speculates = False

    def __init__(
        self,
        threads: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        counters: Counters | None = None,
        *,
        shuffle_seed: int | None = None,
        twice: bool = False,
    ) -> None:
        self.slots = threads or _processors()
        self.counters = Counters() if counters is None else counters
        self._memory = Memory(memory_bytes)
        self._streams: list[Spill] = []
        self._random = None if shuffle_seed is None else random.Random(shuffle_seed)
        self._twice = twice
        self._scratch: str | None = None

    def scratch(self, store: Store, owner: str = "") -> Store:
        """A folder of this machine, gone with this engine; `store` only lends its counters."""
        if self._scratch is None:  # made by what is first put there: small commits put nothing
            self._scratch = folder_of(self)
        return Store(self._scratch, {"durable": "false"}, store.counters)

    def rows(self, data: Any) -> LocalRows:
        """Adopt anything Arrow-like. Raises UsageError for what is not rows."""
        if isinstance(data, LocalRows):
            return data
        found = adopted(data)
        schema = viewless(found.schema)
        if isinstance(found, pa.RecordBatchReader):
            return LocalRows(schema, once(lambda: self._streamed(found, schema)))
        self._memory.lend(found)
        return LocalRows(schema, lambda: cut(found, schema, self.slots))

    def columns(self, rows: LocalRows) -> list[str]:
        return list(rows.schema.names)

    def schema(self, rows: LocalRows) -> pa.Schema:
        return rows.schema

    def map(
        self, rows: LocalRows, inputs: Sequence[str], task: Task, schema: pa.Schema
    ) -> LocalRows:
        """What `task` makes of the columns `inputs`, a call for each partition."""
        _known(rows.schema, inputs)

        def mapped(source: Partition) -> Iterator[pa.RecordBatch]:
            batches = (batch.select(list(inputs)) for batch in source())
            return self._call(task, batches, schema)

        return LocalRows(schema, lambda: (partial(mapped, one) for one in rows.partitions()))

    def extend(
        self,
        rows: LocalRows,
        inputs: Sequence[str],
        task: Task,
        fields: pa.Schema,
        *,
        at_once: bool = False,
    ) -> LocalRows:
        """`rows` with the columns `fields` behind its own; `task` answers row for row.

        `at_once`: what a call looks up costs more than its rows, so it gets as many as there are,
        up to AT_ONCE_ROWS and what comes with them; it spreads over threads itself.
        """
        _known(rows.schema, inputs)
        schema = _longer(rows.schema, fields)

        def extended(source: Partition) -> Iterator[pa.RecordBatch]:
            beside = Beside(source(), inputs)
            for answers in self._call(task, beside.asked(), fields):
                yield from beside.answered(answers, schema)
            beside.finish()

        def apart() -> Iterable[Partition]:
            return (partial(extended, one) for one in rows.partitions())

        def together() -> Iterable[Partition]:
            for made in self._gathered(rows.partitions()):
                pieces = [batch for part in made for batch in part]
                asked = joined([batch.select(list(inputs)) for batch in pieces])
                answers = pa.Table.from_batches(self._call(task, asked, fields), fields)
                if len(answers) != sum(map(len, pieces)):
                    raise uneven(f"{len(answers)} answers")
                at = 0
                for part in made:
                    table = pa.Table.from_batches(part, rows.schema)
                    told = answers.slice(at, len(table))
                    beside = [*table.columns, *told.columns]
                    yield pa.Table.from_arrays(beside, schema=schema).to_batches
                    at += len(table)

        return LocalRows(schema, together if at_once else apart)

    def pick(
        self,
        rows: LocalRows,
        inputs: Sequence[str],
        task: Callable[..., Iterator[pa.RecordBatch]],
        fields: pa.Schema,
        values: Callable[[int], pa.Array | None],
    ) -> None:
        """Answers stay in this process: nothing is spared by their places."""

    def find(
        self, rows: LocalRows, inputs: Sequence[str], task: Task, fields: pa.Schema
    ) -> LocalRows:
        """`rows` with the columns `fields` behind their own: `extend` at once, of a task whose
        answers name their rows (`by_row.ROW`, before the fields), so that a row that has two comes
        out twice."""
        _known(rows.schema, inputs)
        schema = _longer(rows.schema, fields)
        answers = pa.schema([by_row.ROW_FIELD, *fields])

        def found() -> Iterable[Partition]:
            for made in self._gathered(rows.partitions()):
                call = partial(self._call, task, schema=answers)
                yield from by_row.beside(made, inputs, call, rows.schema, fields)

        return LocalRows(schema, found)

    def _gathered(self, parts: Iterable[Partition]) -> Iterator[list[list[pa.RecordBatch]]]:
        """Partitions, made: at a time some that have AT_ONCE_ROWS, or AT_ONCE_BYTES, together."""
        source = iter(parts)
        held: list[list[pa.RecordBatch]] = []
        while some := list(islice(source, self.slots)):
            held += self._each(some, lambda one: list(one()))
            batches = [batch for part in held for batch in part]
            size_bytes = sum(batch.nbytes for batch in batches)
            if sum(map(len, batches)) >= AT_ONCE_ROWS or size_bytes >= AT_ONCE_BYTES:
                yield held
                held = []
        if held:
            yield held

    def exchange(self, rows: LocalRows, by: str, count: int) -> LocalRows:
        """`count` partitions, each with the rows that name it in `by`, in order.

        `by` is int32, or a list of int32 that sends copies; it leaves as int32.
        """
        _known(rows.schema, [by])
        place = rows.schema.get_field_index(by)
        schema = rows.schema.set(place, pa.field(by, pa.int32()))

        def dealt(source: Partition) -> list[tuple[int, pa.RecordBatch]]:
            batches = gathered(source(), DEALT_ROWS, DEALT_BYTES)
            return [piece for batch in batches for piece in deal(batch, by, count)]

        def exchanged() -> Iterable[Partition]:
            spill = Spill(self._memory)
            hands = [spill.hand() for _ in range(count)]
            for pieces in self._each(rows.partitions(), dealt):
                for place, piece in pieces:
                    spill.add(hands[place], piece)
            spill.finish()
            return [_nothing if hand.is_empty else hand.batches for hand in hands]

        return LocalRows(schema, exchanged)

    def attach(self, rows: LocalRows, matches: LocalRows, on: Sequence[str]) -> LocalRows:
        """`rows`, in order, with the columns of the `matches` that are equal in `on`."""
        schema = attached_schema(rows.schema, matches.schema, on)

        def attached(right: Matches, source: Partition) -> Iterator[pa.RecordBatch]:
            return (right.attach(batch, schema) for batch in source())

        def alone(source: Partition, told: Partition) -> Iterator[pa.RecordBatch]:
            table = pa.Table.from_batches(told(), matches.schema)
            return attached(Matches(table, on), source)

        def recipe() -> Iterable[Partition]:
            hands, size_bytes = self._held(matches)
            held = _partitions(hands)
            if size_bytes <= self._memory.size_bytes:  # more go to the rows that may need them
                batches = (batch for one in held for batch in one())
                right = Matches(pa.Table.from_batches(batches, matches.schema), on)
                return (partial(attached, right, one) for one in rows.partitions())
            ranges = 2 + size_bytes // RANGE_BYTES
            sources = list(rows.partitions())
            told = self._told(sources, LocalRows(matches.schema, lambda: held), on, ranges)
            return (partial(alone, *one) for one in zip(sources, told, strict=True))

        return LocalRows(schema, recipe)

    def _told(
        self, sources: Sequence[Partition], matches: LocalRows, on: Sequence[str], ranges: int
    ) -> Iterable[Partition]:
        """For each partition of rows the matches it may need; hashes and matches meet by range."""
        asking = LocalRows(
            many_matches.ASKED,
            lambda: (
                partial(many_matches.asked, one, number, on, ranges)
                for number, one in enumerate(sources)
            ),
        )
        offering = LocalRows(
            many_matches.offering(matches.schema),
            lambda: (
                partial(many_matches.offered, one, on, ranges) for one in matches.partitions()
            ),
        )
        asked, offered = (
            self.exchange(one, many_matches.RANGE, ranges).partitions()
            for one in (asking, offering)
        )
        told = LocalRows(
            many_matches.telling(matches.schema),
            lambda: (
                partial(many_matches.told, one, other, on)
                for one, other in zip(asked, offered, strict=True)
            ),
        )
        sent = self.exchange(told, many_matches.ASKING, len(sources))
        return self.select(sent, matches.schema.names).partitions()

    def select(self, rows: LocalRows, columns: Sequence[str]) -> LocalRows:
        """Only these columns, in this order."""
        _known(rows.schema, columns)
        schema = pa.schema([rows.schema.field(name) for name in columns])

        def selected(source: Partition) -> Iterator[pa.RecordBatch]:
            return (batch.select(list(columns)) for batch in source())

        return LocalRows(schema, lambda: (partial(selected, one) for one in rows.partitions()))

    @contextmanager
    def keep(self, rows: LocalRows) -> Iterator[LocalRows]:
        """The same rows, made at their first use and held until the block ends."""
        held: list[Hand] | None = None

        def hands() -> list[Hand]:
            nonlocal held
            if held is None:
                held, _ = self._held(rows)
            return held

        try:
            yield LocalRows(rows.schema, lambda: _partitions(hands()), hands)
        finally:
            held = None

    def held(self, rows: LocalRows) -> list[pa.RecordBatch] | None:
        """The batches of rows that are kept, if they all are in memory."""
        hands = rows.hands() if rows.hands else None
        if hands is None or any(hand.is_on_disk for hand in hands):
            return None
        return [batch for hand in hands for batch in hand.pieces]

    def _held(self, rows: LocalRows) -> tuple[list[Hand], int]:
        """Its partitions, made and held, and how many bytes they are."""
        spill = Spill(self._memory)
        hands: list[Hand] = []
        size_bytes = 0
        for batches in self._each(rows.partitions(), lambda source: list(source())):
            hands.append(spill.hand())
            for batch in batches:
                spill.add(hands[-1], batch)
                size_bytes += batch.nbytes
            spill.full(hands[-1])
        spill.finish()
        return hands, size_bytes

    def _streamed(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> list[Partition]:
        """All of a stream: cut like a table where it fits into memory, else as it comes."""
        spill = Spill(self._memory)
        hands, rows, size = [spill.hand()], 0, 0
        for batch in reader:
            if is_full(rows, size):
                spill.full(hands[-1])
                hands.append(spill.hand())
                rows = size = 0
            conformed = conform(batch, schema)
            spill.add(hands[-1], conformed)
            rows, size = rows + batch.num_rows, size + conformed.nbytes
        spill.finish()
        if spill.spilled_bytes:
            return [hand.batches for hand in hands]
        self._streams.append(spill)  # what it holds counts as long as this engine works
        whole = pa.Table.from_batches([one for hand in hands for one in hand.pieces], schema)
        return cut(whole, schema, self.slots)

    def estimate(self, rows: LocalRows) -> None:
        """They are in this process."""

    def is_stored(self, rows: LocalRows) -> bool:
        """They are in this process."""
        return False

    def few(self, rows: LocalRows, count: int, size_bytes: int) -> None:
        """They are in this process."""

    def run(self, rows: LocalRows, task: Task, schema: pa.Schema) -> pa.Table:
        """What `task` makes of every partition with rows, in order. The only action."""

        def receipts(source: Partition) -> list[pa.RecordBatch]:
            return list(self._call(task, source(), schema))

        tasks = rows.partitions()
        if isinstance(tasks, list):  # no thread is made for what asks for none
            tasks = [one for one in tasks if one is not _nothing]
        parts = logged(self._each(tasks, receipts), tasks)
        return pa.Table.from_batches([batch for part in parts for batch in part], schema=schema)

    def to_table(self, rows: LocalRows) -> pa.Table:
        """All rows, in order."""
        return pa.Table.from_batches(self.stream(rows), schema=rows.schema)

    def stream(self, rows: LocalRows) -> Iterator[pa.RecordBatch]:
        """All rows, in order, a few partitions ahead of whoever reads them."""
        for batches in self._each(rows.partitions(), lambda source: list(source())):
            yield from (batch for batch in batches if batch.num_rows)

    def _call(
        self, task: Task, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """One call of a task (in test mode, two), counted when it has finished."""
        asked = filled(batches)
        if asked is None:
            return
        if self._twice:
            held = list(asked)
            deque(task(iter(held), Counters()), maxlen=0)
            asked = iter(held)
        counters = Counters()
        for batch in task(asked, counters):
            yield conform(batch, schema)
        self.counters.merge(counters)

    def _each(self, parts: Iterable[Partition], work: Callable[[Partition], T]) -> Iterator[T]:
        """`work(part)` for every part, in the order of the parts, whatever order they ran in."""
        tidy = partial(tidied, work)
        left = iter(parts)
        few = list(islice(left, 2)) if self.slots > 1 else []
        if self._random is not None:
            yield from self._each_in_random_order([*few, *left], tidy)
        elif len(few) < 2:  # one of them on a thread has nobody to work beside
            yield from map(tidy, chain(few, left))
        else:
            yield from pooled(chain(few, left), tidy, self.slots)

    def _each_in_random_order(
        self, parts: Sequence[Partition], work: Callable[[Partition], T]
    ) -> Iterator[T]:
        assert self._random is not None
        order = self._random.sample(range(len(parts)), len(parts))
        results = pooled([parts[place] for place in order], work, self.slots)
        by_place = dict(zip(order, results, strict=True))
        return (by_place[place] for place in range(len(parts)))


def _partitions(hands: Sequence[Hand]) -> list[Partition]:
    return [hand.batches for hand in hands]


def _nothing() -> Iterator[pa.RecordBatch]:
    """A partition that surely has no rows."""
    return iter(())


def _longer(schema: pa.Schema, fields: pa.Schema) -> pa.Schema:
    for name in fields.names:
        if name in schema.names:
            raise UsageError("a column is there already", column=name, found=schema.names)
    return pa.schema([*schema, *fields])


def _known(schema: pa.Schema, columns: Sequence[str]) -> None:
    known = {*schema.names}
    for column in columns:
        if column not in known:
            raise UsageError("no such column", column=column, expected=schema.names)


def _processors() -> int:
    counted = getattr(os, "sched_getaffinity", None)
    return len(counted(0)) if counted else os.cpu_count() or 1
