"""Stale rows: rows that come in and are older, by the ordering column, than what is stored.

They change nothing, so they are left out before anything is planned: a file group that only
stale rows name is not rewritten, and rows that are all stale make no version. A row that moves
its key must be judged here in any case, for in the group that it goes to it would look new.

Where the column's statistics show that nothing in a file is newer than what comes, as in every
table whose rows come in the order of time, no row is looked at and no file opened for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.reading.slice_reader import read_slice
from metatable.data.rows.merge import newer
from metatable.data.rows.taking import joined, taken
from metatable.engine.adding_up import Sums, added_up, folded
from metatable.engine.partitions import pieces, task_numbers
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index.locations import LOCATION_COLUMN, located_slices, location_texts
from metatable.metadata.view import TableView, read_columns
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError
from metatable.storage.hashing import xxh64

__all__ = ["with_newer", "without_stale_rows"]

STALE = "_metatable_stale"

ROWS_TOGETHER = 1 << 20
"""Rows, about, that a task holds against what is stored: all those of some files."""

_TASK_FIELD = [pa.field(TASK_COLUMN, pa.int32())]
_GROUP = "path", "file_id"
_COUNT = pa.schema([pa.field("rows", pa.int64())])


@contextmanager
def without_stale_rows(
    engine: Engine[Any], located: Any, view: TableView, ordering: str, known: int
) -> Iterator[tuple[Any, int]]:
    """(`located` without its stale rows, how many these were); reads two columns of the files.
    `known`: of how many rows the key is stored."""
    schema = engine.schema(located)
    identity = [KEY] if view.options.is_global else [KEY, PATH]
    inputs = [KEY, PATH, ordering, LOCATION_COLUMN]
    asked = pa.schema([*(schema.field(name) for name in inputs), *_TASK_FIELD])
    tasks = max(engine.slots, -(-known // ROWS_TOGETHER))
    dealt = engine.map(located, inputs, partial(_located, tasks), asked)
    spread = engine.exchange(dealt, TASK_COLUMN, tasks)
    judged = pa.schema([*(schema.field(name) for name in identity), pa.field(STALE, pa.bool_())])
    judge = partial(_stale, view, ordering, identity)
    with engine.keep(engine.map(spread, inputs, judge, judged)) as stale:
        counted = engine.run(stale, _count, _COUNT)
        count = int(pc.sum(counted["rows"]).as_py() or 0)
        if not count:
            yield located, 0
            return
        marked = engine.attach(located, stale, identity)
        yield engine.map(marked, engine.schema(marked).names, _fresh, schema), count


def with_newer(
    engine: Engine[Any], located: Any, view: TableView, ordering: str, count: int
) -> list[FileSlice]:
    """Slices in which a row may be newer than one that comes, by the statistics of their files:
    those that `without_stale_rows` opens. `count`: of how many rows the key is stored."""
    kind = engine.schema(located).field(ordering).type
    asked = engine.select(located, [LOCATION_COLUMN, ordering])
    sums = _least_sums(kind)
    least = added_up(engine, asked, partial(_least, ordering, sums), sums, count)
    groups = least.group_by(_GROUP).aggregate([])
    paths, ids = groups["path"].to_pylist(), groups["file_id"].to_pylist()
    slices = list(_there(view.current(paths, ids), list(zip(paths, ids, strict=True))))
    known = groups.select(_GROUP)
    stored = view.schema.field(ordering).type
    known = known.append_column("greatest", view.maxima(ordering, stored, slices))
    known = known.append_column("place", pa.array(range(len(slices)), pa.int64()))
    beside = least.join(known, [*_GROUP])
    newer = pc.greater_equal(beside["least"], beside["greatest"])  # null: not known
    is_sure = pc.fill_null(pc.and_(newer, pc.invert(beside["null"])), False)
    opened = pc.unique(beside["place"].filter(pc.invert(is_sure)))
    return [slices[place] for place in opened.to_pylist()]


def _least_sums(kind: pa.DataType) -> Sums:
    texts = [pa.field(name, pa.string()) for name in _GROUP]
    told = [pa.field("least", kind), pa.field("null", pa.bool_())]
    return Sums(pa.schema([*texts, *told]), _GROUP, _least_added)


def _least(
    ordering: str, sums: Sums, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: of each file group the least value that comes, and whether there is a null."""
    least = (_least_of(ordering, table).cast(sums.schema) for table in pieces(batches))
    yield from folded(least, sums)


def _least_of(ordering: str, table: pa.Table) -> pa.Table:
    """What these rows tell."""
    location = table[LOCATION_COLUMN].combine_chunks()
    columns = {
        "path": location_texts(location, "partition_path"),
        "file_id": location_texts(location, "file_id"),
        "least": table[ordering],
        "null": pc.is_null(table[ordering]),
    }
    return _least_added(pa.table(columns).filter(location.is_valid()))


def _least_added(told: pa.Table) -> pa.Table:
    """Each file group once."""
    least = told.group_by(_GROUP).aggregate([("least", "min"), ("null", "any")])
    chosen = least.select([*_GROUP, "least_min", "null_any"])
    return chosen.rename_columns(told.schema.names)


def _located(
    count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Rows whose key is stored, and the task that looks at its file."""
    for batch in batches:
        known = batch.filter(batch[LOCATION_COLUMN].is_valid())
        if known.num_rows:
            file_ids = location_texts(known[LOCATION_COLUMN], "file_id")
            places = task_numbers(xxh64(file_ids, 0), count)
            yield known.append_column(TASK_COLUMN, pa.array(places))


def _stale(
    view: TableView,
    ordering: str,
    identity: Sequence[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: the identity of every row that is older than the stored one, file by file."""
    view = view.counting(counters)
    table = joined(pa.Table.from_batches(list(batches)))
    wanted = pa.schema([pa.field(KEY, pa.string()), view.schema.field(ordering)])
    read = read_columns(view, wanted)
    located = located_slices(view, table[LOCATION_COLUMN].combine_chunks())
    slices = list(_there([one for _, one, _ in located], [group for group, _, _ in located]))
    greatest = view.maxima(ordering, wanted.field(ordering).type, slices)
    for current, bound, (_, _, here) in zip(slices, greatest, located, strict=True):
        ours = taken(table, pa.array(here))
        if _is_newer(ours[ordering], bound):
            continue
        held = read_slice(view.store, current, read)
        places = pc.index_in(ours[KEY].combine_chunks(), value_set=held[KEY].combine_chunks())
        known = places.is_valid()
        ours, places = ours.filter(known), places.filter(known)
        stored = held[ordering].combine_chunks().take(places)
        older = ours.filter(pa.array(~newer(stored, ours[ordering].combine_chunks())))
        for batch in older.select(list(identity)).to_batches():
            yield batch.append_column(STALE, pa.repeat(True, batch.num_rows))


def _there(slices: Sequence[FileSlice | None], groups: Sequence[Any]) -> Iterator[FileSlice]:
    for current, group in zip(slices, groups, strict=True):
        if current is None:
            raise CorruptError("index names a file group that is not there", found=group)
        yield current


def _is_newer(offered: pa.ChunkedArray, bound: pa.Scalar) -> bool:
    """Whether no stored row can be newer than any of these; False where it is not known."""
    if not bound.is_valid or offered.null_count:
        return False
    return bool(pc.all(pc.greater_equal(offered, bound)).as_py())


def _count(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pylist([{"rows": rows}], schema=_COUNT)


def _fresh(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(batch[STALE].is_null()).drop_columns([STALE])
