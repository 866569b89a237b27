"""The worker's part of a data commit: rows of some file groups in, new slices out.

For each group: marker, current slice, merge, new file by put-if-absent, entries for every
metadata partition. What a task made leaves as receipts: one per file, one per run of entries.
A second attempt finds the files of the first, adopts them, and makes its entries from what
they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.data.file_groups.slices import (
    marker_path,
    partition_metadata,
    partition_metadata_path,
)
from metatable.data.hoodie.operations import DELETE
from metatable.data.keys.key_texts import KEY
from metatable.data.rows.taking import joined
from metatable.engine.protocol import TASK_COLUMN
from metatable.index.bucket.rings import put_first_ring
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.metadata.written import WrittenSlice
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write.group_maker import GroupMaker
from metatable.write.made_group import MadeGroup
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.receipts import RECEIPT, FileReceipt, TaskRuns
from metatable.write.same_rows import key_sum
from metatable.write.task_rows import TaskRows

__all__ = [
    "MOST_TOGETHER",
    "PLACES",
    "empty_groups",
    "held_groups",
    "preparations",
    "write_groups",
]

TOGETHER_BYTES, MOST_TOGETHER = 16 << 20, 64
"""Stored bytes of groups, and how many groups, that a task merges before it stores them."""

UNPACKED = 4
"""How many bytes of rows, which come to a log, weigh as one that is stored in a base file."""

PLACES = pa.schema([pa.field("place", pa.int32()), pa.field(TASK_COLUMN, pa.int32())])
"""Groups that are to be written of rows that a task is not dealt."""


def write_groups(
    view: TableView,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: write the groups that the plan gives to this partition of rows; `RECEIPT` out."""
    rows = TaskRows.dealt(plan, joined(pa.Table.from_batches(list(batches))))
    task = rows.table[TASK_COLUMN][0].as_py()
    chosen = (
        place
        for place, group in enumerate(plan.groups)
        if group.task == task and rows.writes(group, place)
    )
    yield from _write_planned(
        view.counting(counters), plan, chosen, rows, partitions, scratch, counters
    )


def held_groups(
    view: TableView,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    rows: TaskRows,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: write groups (numbers in the plan, in `PLACES`) of rows that are in this process;
    `RECEIPT` out."""
    places = (place for batch in batches for place in batch["place"].to_pylist())
    yield from _write_planned(
        view.counting(counters), plan, places, rows, partitions, scratch, counters
    )


def empty_groups(
    view: TableView,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: write groups (numbers in the plan, in `PLACES`) without rows; `RECEIPT` out."""
    nothing = pa.schema([pa.field(KEY, pa.string()), *view.schema]).empty_table()
    rows = TaskRows.none(nothing)
    yield from held_groups(view, plan, partitions, scratch, rows, batches, counters)


def _write_planned(
    view: TableView,
    plan: WritePlan,
    places: Iterable[int],
    rows: TaskRows,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Write these groups; `RECEIPT`. Beside the task's rows it holds those of one group, or of a
    few small ones."""
    runs, receipts = TaskRuns(partitions), list[FileReceipt]()
    for place, told, written in _written(view, plan, places, rows):
        if plan.sums_keys:
            is_delete = plan.operation == DELETE
            given = (rows.leaving if is_delete else rows.entering).of_group(place)
            total = key_sum(rows.keys(given), once=not is_delete)
            told[0] = replace(told[0], key_sum=total)
        receipts += told
        runs.add(written, rows.keys(rows.new(place)))
    lines: list[dict[str, Any]] = [{"file": one.encode()} for one in receipts]
    lines += runs.receipts(scratch.counting(counters), plan.tasks)
    yield pa.RecordBatch.from_pylist(lines, schema=RECEIPT)


def _written(
    view: TableView, plan: WritePlan, places: Iterable[int], rows: TaskRows
) -> Iterator[tuple[int, list[FileReceipt], WrittenSlice]]:
    """These groups of the plan, by number, with the rows that are theirs. While a disk settles what
    was made, what comes next is."""
    maker = GroupMaker(view, plan, rows)
    begun: Callable[[], Iterable[tuple[int, list[FileReceipt], WrittenSlice]]] = list
    try:
        for some in _some(view, plan, places, rows):
            if not plan.prepared:
                before = preparations(view, plan, [plan.groups[place] for place in some])
                view.store.together(before, writes=True)
            made = maker.made(some)
            yield from begun()
            begun = view.store.begun(partial(_stored, view, some, made))
            del made  # it goes with whoever stores it
        yield from begun()
    except BaseException:
        with suppress(Exception):  # what it came to is not asked any more, but it has ended
            begun()
        raise


def _stored(
    view: TableView, places: Sequence[int], made: Sequence[MadeGroup]
) -> list[tuple[int, list[FileReceipt], WrittenSlice]]:
    stored = view.store.together([partial(one.stored, view) for one in made], writes=True)
    return [(place, *told) for place, told in zip(places, stored, strict=True)]


def _some(
    view: TableView, plan: WritePlan, places: Iterable[int], rows: TaskRows
) -> Iterator[list[int]]:
    """One group after the other; some at a time where who writes waits, or logs are made of their
    rows together, while what is held of them is small."""
    some: list[int] = []
    held = 0
    for place in places:
        group = plan.groups[place]
        size = group.base.size_bytes if group.kind == "MERGE" and group.base else 0
        if group.kind == "APPEND":
            size = rows.size_bytes(place) // UNPACKED
        together = view.store.waits or group.kind == "APPEND"
        if some and (not together or held + size > TOGETHER_BYTES):
            yield some
            some, held = [], 0
        some.append(place)
        held += size
        if len(some) == MOST_TOGETHER:
            yield some
            some, held = [], 0
    if some:
        yield some


def preparations(
    view: TableView, plan: WritePlan, groups: Sequence[GroupPlan]
) -> list[Callable[[], object]]:
    """Calls, in any order: the marker of each group, what makes a folder a partition, and the small
    files that will be merged, fetched."""
    store = view.store
    calls: list[Callable[[], object]] = []
    files = [(file, group.kind) for group in groups for file in group.targets]
    calls += store.marking([marker_path(file, plan.instant, kind) for file, kind in files])
    for path in dict.fromkeys(one.target.partition_path for one in groups if not one.base):
        body = partition_metadata(plan.instant, path)
        calls.append(partial(_make_partition, store, partition_metadata_path(path), body))
        if view.options.hudi_hashing_metadata:
            calls.append(partial(put_first_ring, view, path))
    read = [group.base for group in groups if group.kind == "MERGE" and not plan.replaces]
    held = [(file.path, file.size_bytes) for one in read if one for file in one.files]
    calls.append(partial(store.hold, held))
    return calls


def _make_partition(store: Store, path: str, body: bytes) -> None:
    store.create(path, body, soon=True)  # it may be there, and of another one
    store.check_spelling(path)
