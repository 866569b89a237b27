"""Presence: is a key really where it may be?

What an index supposes is proven by reading: the key column of the few candidate files, row groups
first. That is the third level of a bloom lookup, and it makes an answer of an index that follows
from the key alone, where that is not enough (inserts, deletes, `filter_exists`).

Candidates travel as one row a file and chunk of them, so that a hot file spreads over tasks and
nothing has to be counted first.

Counted: `tag.files_opened`, `tag.false_positives`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_file import read_record_keys
from metatable.data.key_texts import KEY, PATH, identity_columns, texts_of
from metatable.data.slices import DataFile
from metatable.engine.batches import gathered
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.index.protocol import (
    LOCATION_COLUMN,
    LOCATION_FIELD,
    Index,
    located_slices,
    locations,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters

__all__ = ["BATCH_KEYS", "chunks", "confirmed", "held", "present", "validate"]

CHUNK_KEYS = 128 << 10
"""Most candidates of one file in one task."""

BATCH_KEYS = 1 << 20
"""Keys looked up together: enough to sort once, bounded for memory."""

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different size; many more only cost overhead."""


def present(index: Index, engine: Engine[Any], rows: Any, snapshot: Snapshot) -> Any:
    """`rows` with `_location`, null where the key is not there; lazy."""
    tagged = index.tag(engine, rows, snapshot)
    if index.proves_presence:
        return tagged
    on = identity_columns(snapshot.options, engine.schema(rows).names)
    supposed = partial(_supposed, snapshot, on)
    return confirmed(engine, rows, tagged, [*on, LOCATION_COLUMN], supposed, snapshot)


def held(
    index: Index, snapshot: Snapshot, keys: pa.Array, partition_paths: pa.Array
) -> npt.NDArray[np.bool_]:
    """Which record keys (texts) a view holds, in this process: `Index.holds` for any index."""
    engine = LocalEngine(1)
    rows = engine.rows(pa.table([keys, partition_paths], names=[KEY, PATH]))
    located = engine.to_table(present(index, engine, rows, snapshot))
    known = located[LOCATION_COLUMN].combine_chunks().is_valid()
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)


def confirmed(
    engine: Engine[Any],
    rows: Any,
    asked: Any,
    inputs: Sequence[str],
    find: Callable[..., Iterator[pa.RecordBatch]],
    snapshot: Snapshot,
) -> Any:
    """`rows` with `_location` where a candidate file holds the key; lazy.

    `find`: a task over the columns `inputs` of `asked` that takes `tasks` as well, how many there
    are for validation, and yields `chunks`.
    """
    schema = engine.schema(rows)
    on = identity_columns(snapshot.options, schema.names)
    identity = pa.schema([schema.field(name) for name in on])
    tasks = engine.slots * TASKS_PER_SLOT
    chunked = _candidate_schema(identity)
    found = engine.map(asked, inputs, partial(find, tasks=tasks), chunked)
    spread = engine.exchange(found, "_task", tasks)
    prove = partial(validate, snapshot)
    matches = engine.map(spread, chunked.names, prove, _match_schema(identity))
    return engine.attach(rows, matches, on)


def chunks(
    file: DataFile, tasks: int, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """These rows of `batch` as candidates of a file, for `validate`."""
    for start in range(0, len(rows), CHUNK_KEYS):
        yield _chunk(file, start // CHUNK_KEYS, tasks, batch, rows[start : start + CHUNK_KEYS])


def _chunk(
    file: DataFile, number: int, tasks: int, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    asked = batch.take(pa.array(rows))
    keys = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), asked.to_struct_array())
    task = zlib.crc32(f"{file.path}/{number}".encode()) % tasks
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file.path]),
            pa.array([file.size_bytes], pa.int64()),
            pa.array([task], pa.int32()),
            keys,
        ],
        names=["_path", "_size", "_task", "_keys"],
    )


def validate(
    snapshot: Snapshot, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task, level 3: `chunks` in, identity columns and the location out."""
    snapshot = snapshot.counting(counters)
    for batch in batches:
        for number in range(batch.num_rows):
            path, size = batch["_path"][number].as_py(), batch["_size"][number].as_py()
            asked = pa.RecordBatch.from_struct_array(batch["_keys"][number].values)
            matches = _validate(snapshot, DataFile.decode(path, size), asked)
            counters.add("tag.false_positives", asked.num_rows - matches.num_rows)
            yield matches


def _candidate_schema(identity: pa.Schema) -> pa.Schema:
    """Rows between the tasks (`chunks`): a file, and the identity columns of its candidates."""
    return pa.schema(
        [
            pa.field("_path", pa.string()),
            pa.field("_size", pa.int64()),
            pa.field("_task", pa.int32()),
            pa.field("_keys", pa.list_(pa.struct(list(identity)))),
        ]
    )


def _match_schema(identity: pa.Schema) -> pa.Schema:
    """What `validate` yields: identity columns and the location."""
    return pa.schema([*identity, *LOCATION_FIELD])


def _validate(snapshot: Snapshot, file: DataFile, asked: pa.RecordBatch) -> pa.RecordBatch:
    keys, _ = texts_of(snapshot.options, snapshot.schema, asked)
    ends = pc.min_max(keys).as_py()
    snapshot.store.counters.add("tag.files_opened")
    held, positions = read_record_keys(snapshot.store, file, ends["min"], ends["max"])
    distinct = keys.dictionary_encode()
    places = pc.index_in(held, value_set=distinct.dictionary)  # the asked are the smaller side
    here = places.is_valid().to_numpy(zero_copy_only=False)
    position = np.full(len(distinct.dictionary), -1, dtype=np.int64)
    position[places.drop_null().to_numpy()] = positions[here]
    found = position[distinct.indices.to_numpy()]
    rows = np.flatnonzero(found >= 0)
    located = locations(
        np.zeros(len(rows), dtype=np.int64),
        [file.partition_path],
        [file.file_id],
        [file.instant],
        pa.array(found[rows]),
    )
    matched = asked.take(pa.array(rows))
    return pa.RecordBatch.from_arrays(
        [*matched.columns, located], schema=_match_schema(matched.schema)
    )


def _supposed(
    snapshot: Snapshot,
    on: list[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    tasks: int,
) -> Iterator[pa.RecordBatch]:
    """Task: identity and location in, candidates by file out."""
    snapshot = snapshot.counting(counters)
    for batch in gathered(batches, BATCH_KEYS):
        known = batch.filter(batch[LOCATION_COLUMN].is_valid())
        asked = known.select(on)
        for _, file, here in located_slices(snapshot, known[LOCATION_COLUMN]):
            if file is not None:
                yield from chunks(file, tasks, asked, here)
