"""Moves: rows that name another partition than the one where their key is (global scope).

A row that stays in its group is compared with the stored one when the group is merged. One
that goes to another group must be compared before, for there it would look new: an older row
may not move its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.merge import newer
from metatable.data.slice_reader import read_slice
from metatable.data.slices import FileSlice
from metatable.engine.protocol import Engine
from metatable.index.key_texts import KEY, PATH
from metatable.index.protocol import LOCATION_COLUMN
from metatable.metadata.files import current_slices
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.hashing import xxh64
from metatable.workload import TASK_COLUMN

__all__ = ["without_stale_moves"]

_TASK_FIELD = [pa.field(TASK_COLUMN, pa.int32())]


def without_stale_moves(engine: Engine[Any], located: Any, snapshot: Snapshot) -> Any:
    """Rows without those that would move a key and are older than what is stored."""
    schema = engine.schema(located)
    ordering = snapshot.options.ordering
    assert ordering is not None
    asked = pa.schema(
        [schema.field(KEY), schema.field(ordering), schema.field(LOCATION_COLUMN), *_TASK_FIELD]
    )
    inputs = [KEY, PATH, ordering, LOCATION_COLUMN]
    moves = engine.map(located, inputs, partial(_moves, ordering, engine.slots), asked)
    spread = engine.exchange(moves, TASK_COLUMN, engine.slots)
    judged = pa.schema([schema.field(KEY), pa.field("_stale", pa.bool_())])
    stale = engine.map(spread, asked.names[:3], partial(_stale_moves, snapshot, ordering), judged)
    marked = engine.attach(located, stale, [KEY])
    return engine.map(marked, engine.schema(marked).names, _fresh, schema)


def _moves(
    ordering: str, count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        path = pc.struct_field(batch[LOCATION_COLUMN], "partition_path")
        moving = batch.filter(pc.fill_null(pc.not_equal(path, batch[PATH]), False))
        if not moving.num_rows:
            continue
        file_ids = pc.struct_field(moving[LOCATION_COLUMN], "file_id")
        places = (xxh64(file_ids, 0) % np.uint64(count)).astype(np.int32)
        columns = [moving[name] for name in (KEY, ordering, LOCATION_COLUMN)]
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.array(places)], names=[KEY, ordering, LOCATION_COLUMN, TASK_COLUMN]
        )


def _stale_moves(
    snapshot: Snapshot,
    ordering: str,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    snapshot = snapshot.counting(counters)
    table = pa.Table.from_batches(list(batches)).flatten()
    wanted = pa.schema([pa.field(KEY, pa.string()), snapshot.schema.field(ordering)])
    path, file_id = f"{LOCATION_COLUMN}.partition_path", f"{LOCATION_COLUMN}.file_id"
    groups = table.group_by([path, file_id]).aggregate([]).to_pylist()
    paths, ids = [one[path] for one in groups], [one[file_id] for one in groups]
    for current, one in zip(current_slices(snapshot, paths, ids), ids, strict=True):
        assert current is not None  # the index has just named it
        ours = table.filter(pc.equal(table[file_id], one))
        held = read_slice(snapshot.store, FileSlice(current), wanted)
        places = pc.index_in(ours[KEY].combine_chunks(), value_set=held[KEY].combine_chunks())
        known = places.is_valid()
        ours, places = ours.filter(known), places.filter(known)
        stored = held[ordering].combine_chunks().take(places)
        stale = ~newer(stored, ours[ordering].combine_chunks())
        yield pa.RecordBatch.from_arrays(
            [ours[KEY].combine_chunks(), pa.array(stale)], names=[KEY, "_stale"]
        )


def _fresh(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keep = pc.invert(pc.fill_null(batch["_stale"], False))
        yield batch.filter(keep).drop_columns(["_stale"])
