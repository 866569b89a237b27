"""Partial rows: rows of some of the table's columns, made whole from what is stored.

A merge gives, beside the key, the columns that shall change. What it leaves out is read from the
files that hold its keys, before anything is planned: then it goes on as an upsert of whole rows,
which may move, be older than what is stored, or lose a race, as any others. A key that is not
stored has null there, where the column allows it.

Rows go to the file that holds them, so a file's columns are read once for as many rows as are
looked at together, and only those that were left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import KEY, PATH
from metatable.data.keygen import KeyGenerator
from metatable.data.slice_reader import stream_slice
from metatable.data.slices import FileSlice
from metatable.data.taking import joined, taken, whole
from metatable.engine.batches import gathered
from metatable.engine.protocol import Engine
from metatable.index.protocol import LOCATION_COLUMN, located_slices
from metatable.metadata.view import TableView
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hashing import xxh64
from metatable.write.plan import TASK_COLUMN
from metatable.write.profile import NAMED_KEYS

__all__ = ["made_whole"]

ROWS_TOGETHER = 1 << 17
"""Rows that are held while the files are read that hold their keys."""

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different size."""

_TASK = pa.schema([pa.field(TASK_COLUMN, pa.int32())])


def made_whole(engine: Engine[Any], located: Any, view: TableView) -> Any:
    """`located` (texts, some columns, where each key is) with all columns of the table; lazy.

    Raises UsageError, when it runs, for new keys that lack what no stored row can give them.
    """
    names = engine.schema(located).names
    absent = [name for name in view.schema.names if name not in names]
    if not absent:
        return located
    tasks = engine.slots * TASKS_PER_SLOT
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
        places = xxh64(pc.coalesce(file_ids, batch[KEY]), 0) % np.uint64(count)
        yield pa.RecordBatch.from_arrays([pa.array(places.astype(np.int32))], schema=_TASK)


def _filled(
    view: TableView,
    absent: Sequence[str],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: rows of one file after the other, with the stored values of the absent columns."""
    view = view.counting(counters)
    wanted = pa.schema([pa.field(KEY, pa.string()), *map(view.schema.field, absent)])
    for batch in gathered(batches, ROWS_TOGETHER):
        rows = joined(pa.Table.from_batches([batch]))
        stored, place = _stored(view, wanted, rows)
        _refuse_new(view, absent, rows, place < 0)
        found = taken(stored, pa.array(place, mask=place < 0))
        for name in absent:
            rows = rows.append_column(view.schema.field(name), found[name])
        rows = _in_its_partition(view, absent, rows)
        yield from rows.select([KEY, PATH, *view.schema.names, LOCATION_COLUMN]).to_batches()


def _stored(
    view: TableView, wanted: pa.Schema, rows: pa.Table
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """(stored rows of these columns whose key is given, and for each given row its number among
    them, -1: it is new)."""
    place = np.full(rows.num_rows, -1, np.int64)
    known = np.flatnonzero(whole(rows[LOCATION_COLUMN]).is_valid().to_numpy(zero_copy_only=False))
    location, keys = whole(rows[LOCATION_COLUMN]).take(pa.array(known)), whole(rows[KEY])
    found, count = [wanted.empty_table()], 0
    for group, current, numbers in located_slices(view, location):
        if current is None:
            raise CorruptError("index names a file group that is not there", found=group)
        here = known[numbers]
        for piece, of in _matches(view, current, wanted, keys.take(pa.array(here))):
            place[here[of]] = count + np.arange(len(of))
            found.append(piece)
            count += len(of)
    return pa.concat_tables(found), place


def _matches(
    view: TableView, held: FileSlice, wanted: pa.Schema, keys: pa.Array
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """(rows of a slice, piece by piece, whose key is among these, the number of each one's key)."""
    for piece in stream_slice(view.store, held, wanted):
        of = pc.index_in(whole(piece[KEY]), value_set=keys)
        rows = np.flatnonzero(of.is_valid().to_numpy(zero_copy_only=False))
        if len(rows):
            yield taken(piece, pa.array(rows)), of.drop_null().to_numpy().astype(np.int64)


def _refuse_new(
    view: TableView, absent: Sequence[str], rows: pa.Table, new: npt.NDArray[np.bool_]
) -> None:
    """A new key needs all that may not be null, and its partition: null is a partition, too."""
    needed = [
        name
        for name in absent
        if name in view.options.partition_by or not view.schema.field(name).nullable
    ]
    if needed and new.any():
        keys = rows[KEY].filter(pa.array(new))[:NAMED_KEYS].to_pylist()
        raise UsageError("new keys need columns that were left out", columns=needed, keys=keys)


def _in_its_partition(view: TableView, absent: Sequence[str], rows: pa.Table) -> pa.Table:
    """With the partition path that the row has, now that it is whole."""
    if not set(absent) & set(view.options.partition_by):
        return rows
    paths = KeyGenerator(view.options).partition_paths(rows)
    return rows.set_column(rows.schema.get_field_index(PATH), PATH, paths)
