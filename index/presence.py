"""Presence: is a key really where the index says that it would be?

An index that follows from the key alone names the one file group that may hold it. Where that
is not enough (inserts, deletes, `filter_exists`), the key column of the group's current file
is read: the third level of a bloom lookup, for any index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import KEY, PATH, identity_columns
from metatable.data.taking import grouped
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.index.bloom_lookup import candidate_schema, chunks, match_schema, validate
from metatable.index.protocol import LOCATION_COLUMN, Index
from metatable.metadata.files import current_slices
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters

__all__ = ["held", "present"]

TASKS_PER_SLOT = 3


def present(index: Index, engine: Engine[Any], rows: Any, snapshot: Snapshot) -> Any:
    """`rows` with `_location`, null where the key is not there; lazy."""
    tagged = index.tag(engine, rows, snapshot)
    if index.proves_presence:
        return tagged
    on = identity_columns(snapshot.options, engine.schema(rows).names)
    schema = engine.schema(rows)
    identity = pa.schema([schema.field(name) for name in on])
    tasks = engine.slots * TASKS_PER_SLOT
    asked = candidate_schema(identity)
    supposed = partial(_supposed, snapshot, tasks, on)
    found = engine.map(tagged, [*on, LOCATION_COLUMN], supposed, asked)
    spread = engine.exchange(found, "_task", tasks)
    matches = engine.map(spread, asked.names, partial(validate, snapshot), match_schema(identity))
    return engine.attach(rows, matches, on)


def held(
    index: Index, snapshot: Snapshot, keys: pa.Array, partition_paths: pa.Array
) -> npt.NDArray[np.bool_]:
    """Which record keys (texts) a view holds, in this process: `Index.holds` for any index."""
    engine = LocalEngine(1)
    rows = engine.rows(pa.table([keys, partition_paths], names=[KEY, PATH]))
    located = engine.to_table(present(index, engine, rows, snapshot))
    known = located[LOCATION_COLUMN].combine_chunks().is_valid()
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)


def _supposed(
    snapshot: Snapshot,
    tasks: int,
    on: list[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: identity and location in, candidates (`candidate_schema`) by file out."""
    snapshot = snapshot.counting(counters)
    for batch in batches:
        known = batch.filter(batch[LOCATION_COLUMN].is_valid())
        location, asked = known[LOCATION_COLUMN], known.select(on)
        names = ("partition_path", "file_id")
        groups, rows = grouped({name: pc.struct_field(location, name) for name in names})
        paths, ids = (groups[name].to_pylist() for name in names)
        for file, here in zip(current_slices(snapshot, paths, ids), rows, strict=True):
            if file is not None:
                yield from chunks(file, tasks, asked, here)
