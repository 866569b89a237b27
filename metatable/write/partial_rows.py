"""Partial rows: rows of some of the table's columns, made whole from what is stored.

A merge gives, beside the key, the columns that shall change. What it leaves out is read from the
files that hold its keys, before anything is planned: then it goes on as an upsert of whole rows,
which may move, be older than what is stored, or lose a race, as any others. A key that is not
stored has null there, where the column allows it.

Rows go to the file that holds them, so a file's columns are read once for as many rows as are
looked at together, and only those that were left out; what is read goes on piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.nulls import nulls
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.reading.slice_reader import stream_slice
from metatable.data.rows.taking import joined, taken, whole
from metatable.engine.batches import gathered
from metatable.engine.partitions import task_numbers
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index.locations import LOCATION_COLUMN, located_slices
from metatable.metadata.view import TableView, read_columns
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.key_places import KeyPlaces
from metatable.write.profile import NAMED_KEYS

__all__ = ["made_whole"]

TASK_ROWS = 1 << 17
"""Rows, about, that a task is given: all those of some files, each of which it reads once."""

ROWS_TOGETHER = 1 << 20
"""Rows that it holds while it reads; of more, where many fall to it, it reads files again,"""

BYTES_TOGETHER = 64 << 20
"""or fewer, where they are more than this."""

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different size."""

_TASK = pa.schema([pa.field(TASK_COLUMN, pa.int32())])


def made_whole(engine: Engine[Any], located: Any, view: TableView, given: int) -> Any:
    """`located` (texts, some columns, where each key is), which are `given` rows, with all columns
    of the table; lazy.

    Raises UsageError, when it runs, for new keys that lack what no stored row can give them.
    """
    names = engine.schema(located).names
    absent = [name for name in view.schema.names if name not in names]
    if not absent:
        return located
    tasks = max(engine.slots * TASKS_PER_SLOT, -(-given // TASK_ROWS))
    spread = engine.extend(located, [KEY, LOCATION_COLUMN], partial(_by_file, tasks), _TASK)
    schema = engine.schema(located)
    texts = [schema.field(name) for name in (KEY, PATH)]
    whole_rows = pa.schema([*texts, *view.schema, schema.field(LOCATION_COLUMN)])
    fill = partial(_filled, view, absent)
    return engine.map(engine.exchange(spread, TASK_COLUMN, tasks), names, fill, whole_rows)


def _by_file(
    count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the task of the file that holds a key; of a new key any."""
    for batch in batches:
        file_ids = pc.struct_field(batch[LOCATION_COLUMN], "file_id")
        places = task_numbers(xxh64(pc.coalesce(file_ids, batch[KEY]), 0), count)
        yield pa.RecordBatch.from_arrays([pa.array(places)], schema=_TASK)


def _filled(
    view: TableView,
    absent: Sequence[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: rows with the stored values of the absent columns, as these are read; then new ones."""
    view = view.counting(counters)
    wanted = pa.schema([pa.field(KEY, pa.string()), *map(view.schema.field, absent)])
    for batch in gathered(batches, ROWS_TOGETHER, BYTES_TOGETHER):
        rows, new = joined(pa.Table.from_batches([batch])), np.ones(batch.num_rows, np.bool_)
        for numbers, stored in _stored(view, wanted, rows):
            new[numbers] = False
            yield from _with_columns(view, taken(rows, pa.array(numbers)), stored)
        if new.any():
            rest = taken(rows, pa.array(np.flatnonzero(new)))
            _refuse_new(view, absent, rest)
            yield from _with_columns(view, rest, _nulls(wanted, rest.num_rows))


def _stored(
    view: TableView, wanted: pa.Schema, rows: pa.Table
) -> Iterator[tuple[Int64s, pa.Table]]:
    """(numbers of rows, the stored rows of their keys), a piece of a file at a time."""
    known = np.flatnonzero(whole(rows[LOCATION_COLUMN]).is_valid().to_numpy(zero_copy_only=False))
    location, keys = whole(rows[LOCATION_COLUMN]).take(pa.array(known)), whole(rows[KEY])
    read = read_columns(view, wanted)
    for group, current, numbers in located_slices(view, location):
        if current is None:
            raise CorruptError("index names a file group that is not there", found=group)
        here = known[numbers]
        asked = KeyPlaces.of(keys.take(pa.array(here)))
        for piece in stream_slice(view.store, current, read):
            found, of = asked.find(whole(piece[KEY]))
            if len(found):
                yield here[of], taken(piece, pa.array(found))


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    columns = [nulls(count, field.type) for field in schema]
    return pa.table(columns, pa.schema([field.with_nullable(True) for field in schema]))


def _refuse_new(view: TableView, absent: Sequence[str], rows: pa.Table) -> None:
    """A new key needs all that may not be null, and its partition: null is a partition, too."""
    needed = [
        name
        for name in absent
        if name in view.options.partition_by or not view.schema.field(name).nullable
    ]
    if needed:
        keys = rows[KEY][:NAMED_KEYS].to_pylist()
        raise UsageError("new keys need columns that were left out", columns=needed, keys=keys)


def _with_columns(view: TableView, rows: pa.Table, others: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows, whole, in the partition that they have now."""
    absent = [name for name in others.column_names if name != KEY]
    for name in absent:
        rows = rows.append_column(view.schema.field(name), others[name])
    if set(absent) & set(view.options.partition_by):
        paths = KeyGenerator(view.options).partition_paths(rows)
        rows = rows.set_column(rows.schema.get_field_index(PATH), PATH, paths)
    yield from rows.select([KEY, PATH, *view.schema.names, LOCATION_COLUMN]).to_batches()
