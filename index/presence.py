"""Presence: proves by reading whether keys are in the files that may hold them.

Of the few candidate files the pages are read that may hold the keys, where these are few, else the
column of keys, row groups first. That is the third level of a bloom lookup. It is also asked of an
index whose answer follows from the key alone, where that is not enough (inserts, deletes,
`filter_exists`).

Candidates travel as one row per file and chunk of them, so that a hot file spreads over tasks and
nothing has to be counted first.

Counted: `tag.files_opened`, `tag.false_positives`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH, identity_columns, texts_of
from metatable.data.reading.keyed_rows import Asked, places_of_keys
from metatable.engine.batches import gathered
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.index.locations import LOCATION_COLUMN, LOCATION_FIELD, located_slices, locations
from metatable.index.protocol import Index
from metatable.metadata.view import TableView
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.counters import Counters

__all__ = ["BATCH_KEYS", "chunks", "confirmed", "held", "hold", "present", "validate"]

CHUNK_KEYS = 128 << 10
"""Most candidates of one file in one task."""

BATCH_KEYS = 1 << 20
"""Keys looked up together: enough to sort once, bounded for memory."""

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different size; many more only cost overhead."""


def present(index: Index, engine: Engine[Any], rows: Any, view: TableView) -> Any:
    """`rows` with `_location`, null where the key is not there; lazy."""
    tagged = index.tag(engine, rows, view)
    if index.proves_presence:
        return tagged
    on = identity_columns(view.options, engine.columns(rows))
    supposed = partial(_supposed, view, on)
    return confirmed(engine, rows, tagged, [*on, LOCATION_COLUMN], supposed, view)


def held(index: Index, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
    """Which record keys (texts) a view holds, in this process: `Index.holds` for any index."""
    engine = LocalEngine(1)
    rows = engine.rows(pa.table([keys, partition_paths], names=[KEY, PATH]))
    located = engine.to_table(present(index, engine, rows, view))
    known = located[LOCATION_COLUMN].combine_chunks().is_valid()
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)


def confirmed(
    engine: Engine[Any],
    rows: Any,
    asked: Any,
    inputs: Sequence[str],
    find: Callable[..., Iterator[pa.RecordBatch]],
    view: TableView,
) -> Any:
    """`rows` with `_location` where a candidate file holds the key; lazy.

    `find`: a task over the columns `inputs` of `asked` that takes `tasks` as well, how many there
    are for validation, and yields `chunks`.
    """
    on = identity_columns(view.options, engine.columns(rows))
    identity = engine.schema(engine.select(rows, on))
    tasks = engine.slots * TASKS_PER_SLOT
    chunked = _candidate_schema(identity)
    found = engine.map(asked, inputs, partial(find, tasks=tasks), chunked)
    spread = engine.exchange(found, "_task", tasks)
    prove = partial(validate, view)
    matches = engine.map(spread, chunked.names, prove, _match_schema(identity))
    return engine.attach(rows, matches, on)


def chunks(
    held: FileSlice, tasks: int, batch: pa.RecordBatch, rows: Int64s
) -> Iterator[pa.RecordBatch]:
    """These rows of `batch` as candidates of a slice, for `validate`."""
    for start in range(0, len(rows), CHUNK_KEYS):
        yield _chunk(held, start // CHUNK_KEYS, tasks, batch, rows[start : start + CHUNK_KEYS])


def _chunk(
    held: FileSlice, number: int, tasks: int, batch: pa.RecordBatch, rows: Int64s
) -> pa.RecordBatch:
    """One chunk of a slice's candidates, with the task that it falls to."""
    asked = batch.take(pa.array(rows))
    keys = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), asked.to_struct_array())
    task = zlib.crc32(f"{held.path}/{number}".encode()) % tasks
    columns = [pa.array([held.encode()]), pa.array([task], pa.int32()), keys]
    return pa.RecordBatch.from_arrays(columns, names=["_slice", "_task", "_keys"])


def validate(
    view: TableView, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task, level 3: `chunks` in, identity columns and the location out."""
    view = view.counting(counters)
    for batch in batches:
        slices = [FileSlice.decode(one) for one in batch["_slice"].to_pylist()]
        hold(view, slices)
        view.store.counters.add("tag.files_opened", len(slices))
        coded = [
            texts_of(view.options, view.schema, _keys(batch, number))[0].dictionary_encode()
            for number in range(len(slices))
        ]
        asked = (Asked(*one) for one in zip(slices, (one.dictionary for one in coded), strict=True))
        told = places_of_keys(view.store, asked, view.table_schema, view.options.ordering, 1)
        for number, (one, places, positions) in enumerate(told):
            position = np.full(len(one.keys), -1, np.int64)
            position[places] = positions
            rows = _keys(batch, number)
            matches = _matches(one.of, rows, position[coded[number].indices.to_numpy()])
            counters.add("tag.false_positives", rows.num_rows - matches.num_rows)
            yield matches


def _keys(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The identity columns of the candidates in one row of `chunks`."""
    return pa.RecordBatch.from_struct_array(batch["_keys"][number].values)


def hold(view: TableView, slices: Sequence[FileSlice]) -> None:
    """Fetch the files that will be looked into, together, where they are small and far away."""
    view.store.hold((file.path, file.size_bytes) for one in slices for file in one.files)


def _candidate_schema(identity: pa.Schema) -> pa.Schema:
    """Rows between the tasks (`chunks`): a slice, and the identity columns of its candidates."""
    return pa.schema(
        [
            pa.field("_slice", pa.string()),
            pa.field("_task", pa.int32()),
            pa.field("_keys", pa.list_(pa.struct(list(identity)))),
        ]
    )


def _match_schema(identity: pa.Schema) -> pa.Schema:
    """What `validate` yields: identity columns and the location."""
    return pa.schema([*identity, *LOCATION_FIELD])


def _matches(current: FileSlice, rows: pa.RecordBatch, positions: Int64s) -> pa.RecordBatch:
    """Those of the rows whose keys have a position in a slice (-1: they have none), with their
    location; in a slice with logs the position is told to nobody."""
    here = np.flatnonzero(positions >= 0)
    located = locations(
        np.zeros(len(here), dtype=np.int64),
        [current.partition_path],
        [current.file_id],
        [current.instant],
        None if current.logs else pa.array(positions[here]),
    )
    matched = rows.take(pa.array(here))
    return pa.RecordBatch.from_arrays(
        [*matched.columns, located], schema=_match_schema(matched.schema)
    )


def _supposed(
    view: TableView,
    on: list[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    tasks: int,
) -> Iterator[pa.RecordBatch]:
    """Task: identity and location in, candidates by file out."""
    view = view.counting(counters)
    for batch in gathered(batches, BATCH_KEYS):
        known = batch.filter(batch[LOCATION_COLUMN].is_valid())
        asked = known.select(on)
        for _, current, here in located_slices(view, known[LOCATION_COLUMN]):
            if current is not None:
                yield from chunks(current, tasks, asked, here)
