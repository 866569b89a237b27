"""The worker's part of a data commit: rows of some file groups in, new slices out.

For each group: marker, current slice, merge, new file by put-if-absent, entries for every
metadata partition. What a task made leaves as receipts: one per file, one per run of entries.
A second attempt finds the files of the first, adopts them, and makes its entries from what
they hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import IO, Any

import pyarrow as pa

from metatable.data.base_file import store_base_file
from metatable.data.commit_metadata import WriteStat
from metatable.data.key_texts import KEY, PATH
from metatable.data.operations import DELETE, UPSERT
from metatable.data.row_counts import RowCounts
from metatable.data.slices import (
    DataFile,
    FileSlice,
    LogFile,
    marker_path,
    partition_metadata,
    partition_metadata_path,
)
from metatable.data.statistics import ColumnStats
from metatable.data.taking import joined
from metatable.engine.protocol import TASK_COLUMN
from metatable.index.bucket.rings import put_first_ring
from metatable.metadata.entry_files import RUN_SCHEMA, write_run
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.metadata.written import (
    WrittenSlice,
    entries_of,
    facts_of_stored,
    stats_columns,
)
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write.few_keys import Known
from metatable.write.new_log import LoggedGroup, LogMaker, NewLog, fits_log, stats_of_log
from metatable.write.new_slice import Entering, Filed, merged_slice, opened_slice
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.spliced_slice import spliced_file
from metatable.write.task_rows import TaskRows

__all__ = [
    "ARRIVALS",
    "MOST_TOGETHER",
    "PLACES",
    "RECEIPT",
    "FileReceipt",
    "empty_groups",
    "held_groups",
    "preparations",
    "write_groups",
]

ARRIVALS = "arrivals"
"""A run of its own: keys new to the table, for the check against concurrent inserts. A key that
moves is no such key: whoever else touches it must replace the slice that it leaves."""

ARRIVALS_SCHEMA = pa.schema([pa.field(KEY, pa.string()), pa.field(PATH, pa.string())])

TOGETHER_BYTES, MOST_TOGETHER = 16 << 20, 64
"""Stored bytes of groups, and how many groups, that a task merges before it stores them."""

UNPACKED = 4
"""How many bytes of rows, which come to a log, weigh as one that is stored in a base file."""

KEY_BYTES = 8 << 20
"""Keys of written slices that wait to become entries together."""

_NO_KEYS = pa.array([], pa.string())

RECEIPT = pa.schema([pa.field("file", pa.string()), *RUN_SCHEMA])
"""Either `file` (JSON of a `FileReceipt`) or the columns of a run are set."""

PLACES = pa.schema([pa.field("place", pa.int32()), pa.field(TASK_COLUMN, pa.int32())])
"""Groups that are to be written of rows that a task is not dealt."""


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """One written file: as Hudi's timeline tells of it, and its part of the commit's counts.

    To Hudi a row that moves is deleted here and inserted there.
    """

    stat: WriteStat
    counts: RowCounts

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> FileReceipt:
        """The receipt from what `encode` made, which only passes from a task to its commit."""
        held = json.loads(text)
        return cls(WriteStat(**held["stat"]), RowCounts(**held["counts"]))


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
        if group.task == task and (group.base or len(rows.entering.of_group(place)))
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
    runs, receipts = _Runs(partitions), list[FileReceipt]()
    for place, told, written in _written(view, plan, places, rows):
        receipts += told
        runs.add(written, rows.keys(rows.new(place)))
    lines: list[dict[str, Any]] = [{"file": one.encode()} for one in receipts]
    lines += runs.receipts(scratch.counting(counters))
    yield pa.RecordBatch.from_pylist(lines, schema=RECEIPT)


def _written(
    view: TableView, plan: WritePlan, places: Iterable[int], rows: TaskRows
) -> Iterator[tuple[int, list[FileReceipt], WrittenSlice]]:
    """These groups of the plan, by number, with the rows that are theirs. While a disk settles what
    was made, what comes next is."""
    maker = LogMaker(view, plan.instant, _columns(view, plan, rows), rows.all_keys)
    begun: Callable[[], Iterable[tuple[int, list[FileReceipt], WrittenSlice]]] = list
    try:
        for some in _some(view, ((place, plan.groups[place]) for place in places), rows):
            if not plan.prepared:
                before = preparations(view, plan, [group for _, group in some])
                view.store.together(before, writes=True)
            made = _all_made(view, plan, some, rows, maker)
            yield from begun()
            begun = view.store.begun(partial(_all_stored, view, [one for one, _ in some], made))
            del made  # it goes with whoever stores it
        yield from begun()
    except BaseException:
        with suppress(Exception):  # what it came to is not asked any more, but it has ended
            begun()
        raise


def _all_stored(
    view: TableView, places: Sequence[int], made: Sequence[_Made]
) -> list[tuple[int, list[FileReceipt], WrittenSlice]]:
    stored = view.store.together([partial(_stored, view, one) for one in made], writes=True)
    return [(place, *told) for place, told in zip(places, stored, strict=True)]


def _some(
    view: TableView, groups: Iterable[tuple[int, GroupPlan]], rows: TaskRows
) -> Iterator[list[tuple[int, GroupPlan]]]:
    """One group after the other; some at a time where who writes waits, or logs are made of their
    rows together, while what is held of them is small."""
    some: list[tuple[int, GroupPlan]] = []
    held = 0
    for place, group in groups:
        size = group.base.size_bytes if group.kind == "MERGE" and group.base else 0
        if group.kind == "APPEND":
            size = rows.size_bytes(place) // UNPACKED
        together = view.store.waits or group.kind == "APPEND"
        if some and (not together or held + size > TOGETHER_BYTES):
            yield some
            some, held = [], 0
        some.append((place, group))
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
        calls.append(partial(store.create, partition_metadata_path(path), body, soon=True))
        if view.options.hudi_hashing_metadata:
            calls.append(partial(put_first_ring, view, path))
    read = [group.base for group in groups if group.kind == "MERGE" and not plan.replaces]
    held = [(file.path, file.size_bytes) for one in read if one for file in one.files]
    calls.append(partial(store.hold, held))
    return calls


@dataclass(frozen=True, slots=True)
class _Made:
    """A group's new base file, or logs, complete but for their names in the store."""

    bodies: tuple[bytes | IO[bytes], ...]
    """None of a base file that is too large to wait: it is stored already."""
    ours: bool
    """Of one that is stored: whether by us."""
    written: WrittenSlice
    counts: RowCounts
    """What happened to get there, as the merge tells it."""
    told: RowCounts
    """The group's part of the commit's counts."""


def _all_made(
    view: TableView,
    plan: WritePlan,
    some: Sequence[tuple[int, GroupPlan]],
    rows: TaskRows,
    maker: LogMaker,
) -> list[_Made]:
    logged = [_logged(view, plan, place, group, rows) for place, group in some]
    logs = maker.logs([one for one in logged if one])
    return [
        _made_logs(view, plan, told, next(logs), rows)
        if told
        else _made(view, plan, place, group, rows)
        for told, (place, group) in zip(logged, some, strict=True)
    ]


def _made(view: TableView, plan: WritePlan, place: int, group: GroupPlan, rows: TaskRows) -> _Made:
    waits = isinstance(group.target, DataFile)  # who plans logs plans many together
    if not waits:
        group = plan.anew(place)
        view.store.put(marker_path(group.target, plan.instant, group.kind), b"")
    assert isinstance(group.target, DataFile)
    target, base = group.target, group.base
    new = _filed(view, plan, place, group, rows)
    if new.body is not None and not waits:
        size_bytes, ours = store_base_file(view.store, target, new.body)
        new = replace(new, body=None, size_bytes=size_bytes, ours=ours)
    arriving = rows.arriving(place)
    written = WrittenSlice(
        made=FileSlice(replace(target, size_bytes=new.size_bytes, row_count=new.row_count)),
        replaced=base,
        keys=new.keys,
        arrived=rows.keys(arriving),
        departed=new.deleted_keys if plan.operation == DELETE else _NO_KEYS,
        stats=new.stats,
        past_stats=view.table_schema.past_stats,
    )
    moved = len(arriving) - len(rows.new(place))
    told = _counts(plan, new.counts, len(arriving), moved)
    bodies = () if new.body is None else (new.body,)
    return _Made(bodies, new.ours, written, new.counts, told)


def _logged(
    view: TableView, plan: WritePlan, place: int, group: GroupPlan, rows: TaskRows
) -> LoggedGroup | None:
    """What a log on the group is to say; None: it is written whole."""
    target, here = group.target, rows.entering.of_group(place)
    if not isinstance(target, LogFile):
        return None
    base = _on_top(group.base, target)
    if not fits_log(view, base, _entering(view, plan, place, group, rows)):
        return None
    return LoggedGroup(place, target, base, group.forwards, here, rows.gone(place))


def _made_logs(
    view: TableView, plan: WritePlan, group: LoggedGroup, logs: Sequence[NewLog], rows: TaskRows
) -> _Made:
    gone, arriving = rows.keys(group.gone), rows.arriving(group.place)
    replaced = plan.groups[group.place].base
    written = WrittenSlice(
        made=group.base.with_logs([one.file for one in logs]),
        replaced=replaced,
        keys=rows.keys(group.here),
        arrived=rows.keys(arriving),
        departed=gone if plan.operation == DELETE else _NO_KEYS,
        stats=(),
        past_stats=view.table_schema.past_stats,
        logs=tuple((one.file, one.stats) for one in logs),
    )
    stay = len(group.here) - len(arriving)
    # whose keys alone nobody looks for, where there may be some
    known = plan.proven or plan.operation != UPSERT or not replaced
    counts = RowCounts(
        inserted=len(arriving) if known else None,
        updated=stay if known else None,
        deleted=len(gone),
    )
    moved = len(arriving) - len(rows.new(group.place))
    bodies = tuple(one.body for one in logs)
    return _Made(bodies, True, written, counts, _counts(plan, counts, len(arriving), moved))


def _on_top(base: FileSlice | None, log: LogFile) -> FileSlice:
    """What a log of a group is put on: nothing, if it opens it."""
    return base or FileSlice.unopened(log.partition_path, log.file_id, log.instant)


def _stored_logs(
    view: TableView, made: _Made, on_top: FileSlice
) -> tuple[list[FileReceipt], WrittenSlice]:
    written, counts, told = made.written, made.counts, made.told
    stored = [
        _stored_log(view, file, stats, body)
        for (file, stats), body in zip(written.logs, made.bodies, strict=True)
    ]
    made_of = on_top.with_logs([file for file, _ in stored])
    receipts = []
    for file, stats in stored:
        rows = next(one.value_count for one in stats if one.column == KEY)
        receipts.append(FileReceipt(WriteStat.of_log(made_of, file, rows, counts), told))
        counts = told = RowCounts()
    return receipts, replace(written, made=made_of, logs=tuple(stored))


def _stored_log(
    view: TableView, file: LogFile, stats: tuple[ColumnStats, ...], body: bytes | IO[bytes]
) -> tuple[LogFile, tuple[ColumnStats, ...]]:
    if view.store.create(file.path, body):
        return file, stats
    file = replace(file, size_bytes=view.store.size(file.path) or 0)
    return file, stats_of_log(view, file)


def _stored(view: TableView, made: _Made) -> tuple[list[FileReceipt], WrittenSlice]:
    """The same under its name, unless another attempt was first: then what that has stored."""
    written, ours, base = made.written, made.ours, made.written.replaced
    if written.logs:
        return _stored_logs(view, made, _on_top(base, written.logs[0][0]))
    target = written.made.base
    for body in made.bodies:
        size_bytes, ours = store_base_file(view.store, target, body)
        target = replace(target, size_bytes=size_bytes)
    if not ours:
        columns = stats_columns(view.table_schema, view.options)
        keys, stats = facts_of_stored(view.store, FileSlice(target), columns, view.table_schema)
        written = replace(written, made=FileSlice(target), keys=keys, stats=stats)
    stat = WriteStat.of(target, base.instant if base else None, made.counts)
    return [FileReceipt(stat, made.told)], written


def _counts(plan: WritePlan, here: RowCounts, arriving: int, moved: int) -> RowCounts:
    """A group's part of the commit's counts, from what its merge has seen."""
    if plan.replaces:  # keys that come back have been updated, wherever they were
        return replace(here, inserted=(here.inserted or 0) - moved, updated=moved)
    told = replace(here, deleted=here.deleted if plan.operation == DELETE else 0, moved=moved)
    if here.inserted is None:
        return told
    misses = here.inserted - arriving if plan.proven else 0
    return replace(told, inserted=here.inserted - misses - moved, index_misses=misses)


def _entering(
    view: TableView, plan: WritePlan, place: int, group: GroupPlan, rows: TaskRows
) -> Entering:
    columns = _columns(view, plan, rows)
    target, here = group.target, rows.entering.of_group(place)
    if isinstance(target, LogFile):  # its rows are of this instant all the same
        target = DataFile(target.partition_path, target.file_id, "", plan.instant)
    return Entering(columns, rows.all_keys, here, target, place, rows.texts)


def _columns(view: TableView, plan: WritePlan, rows: TaskRows) -> pa.Table:
    """The table's, of all rows."""
    if plan.operation == DELETE:  # its rows are key texts
        return view.schema.empty_table()
    return rows.table.select(view.schema.names)


def _filed(view: TableView, plan: WritePlan, place: int, group: GroupPlan, rows: TaskRows) -> Filed:
    """The group's new file."""
    assert isinstance(group.target, DataFile)
    entering, target = _entering(view, plan, place, group, rows), group.target
    if group.base is None or plan.replaces:
        return opened_slice(view, entering).filed(view, target)
    told = view, group.base, entering, rows.keys(rows.gone(place))
    known = Known(len(rows.arriving(place)), plan.proven, plan.asks_for_keys)
    return spliced_file(*told, target, known) or merged_slice(*told).filed(view, target)


class _Runs:
    """Entries of a task's files, gathered by metadata partition."""

    def __init__(self, partitions: Sequence[MetadataPartition]) -> None:
        self._partitions = partitions
        self._read_keys = any(one.reads_keys for one in partitions)
        self._entries: dict[str, list[pa.Table]] = {}
        self._untold: list[WrittenSlice] = []
        self._key_bytes = 0

    def add(self, written: WrittenSlice, inserted: pa.Array) -> None:
        if not self._read_keys:
            written = replace(written, keys=_NO_KEYS)
        self._untold.append(written)
        self._key_bytes += written.keys.nbytes + written.arrived.nbytes + written.departed.nbytes
        if self._key_bytes > KEY_BYTES:
            self._tell()
        paths = pa.repeat(pa.scalar(written.made.partition_path, pa.string()), len(inserted))
        arrivals = pa.table([inserted, paths], schema=ARRIVALS_SCHEMA)
        self._entries.setdefault(ARRIVALS, []).append(arrivals)

    def _tell(self) -> None:
        if self._untold:
            for name, entries in entries_of(self._untold, self._partitions):
                self._entries.setdefault(name, []).append(entries)
        self._untold, self._key_bytes = [], 0

    def receipts(self, scratch: Store) -> Iterator[dict[str, Any]]:
        self._tell()
        for name, parts in self._entries.items():
            entries = pa.concat_tables(parts)
            if entries.num_rows:
                run = write_run(scratch, name, entries)
                yield {field: getattr(run, field) for field in RUN_SCHEMA.names}
