"""`record`: a record-level index of HFiles (RFC-08).

One lookup per key: its hash names a bucket, the bucket's HFiles are asked from the newest to
the oldest, and the entry names the file group. Nothing is read of the data files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import identity_columns, texts_of
from metatable.engine.batches import gathered
from metatable.engine.protocol import Engine
from metatable.index.locations import (
    CODED_LOCATION_FIELD,
    LOCATION_FIELD,
    coded_locations,
    known_locations,
    locations,
)
from metatable.index.protocol import Index, register
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.view import Located, TableView
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError

__all__ = ["KeyedIndex", "RecordIndex", "keyed_index"]

BATCH_KEYS = 512 << 10
"""Keys looked up together: each batch decodes the blocks it touches, with random keys all."""


class KeyedIndex:
    """An index with an entry a key. Derived classes have a `name`, a partition, and `locate`."""

    name: str
    proves_presence = True
    asks_footers = False
    indexes_logs = True
    partition: type[MetadataPartition]

    def __init__(self, options: Options) -> None:
        self._options = options
        self.partitions: tuple[MetadataPartition, ...] = (self.partition(options),)

    @staticmethod
    def locate(view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Located:
        """The file group of each record key (texts)."""
        raise NotImplementedError

    def tag(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        inputs = identity_columns(self._options, engine.columns(rows))
        place = partial(place_batches, self.locate, view)
        placed = engine.pick(rows, inputs, place, LOCATION_FIELD, partial(known_locations, view))
        if placed is not None:
            return placed
        find = partial(locate_batches, self.locate, view)
        return engine.extend(rows, inputs, find, LOCATION_FIELD, at_once=True)

    def find(
        self, view: TableView, batch: pa.RecordBatch
    ) -> tuple[pa.Array, list[FileSlice], Int64s]:
        """What `tag` tells of a few rows, without a column for it: their record keys (texts), some
        slices, and in which of these each key is, -1 for nowhere. Raises CorruptError."""
        keys, found = _looked_up(self.locate, view, batch)
        return keys, _slices(view, found), found.group

    def tag_coded(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        """`tag` where rows stay in this process: with `CODED_LOCATION`."""
        inputs = identity_columns(self._options, engine.columns(rows))
        find = partial(locate_batches, self.locate, view, coded=True)
        return engine.extend(rows, inputs, find, CODED_LOCATION_FIELD, at_once=True)

    def placement(self, view: TableView) -> None:
        return None

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        return np.asarray(self.locate(view, keys, partition_paths).group >= 0)


def keyed_index(index: Index) -> KeyedIndex | None:
    """The index itself where it has an entry a key, which can be asked for a few keys at once, and
    answer in codes (`find`, `tag_coded`); None for any other."""
    return index if isinstance(index, KeyedIndex) else None


class RecordIndex(KeyedIndex):
    """`index="record"`: an entry a key, in the metadata partition `record_index`."""

    name = "record"
    partition = RecordIndexPartition

    @staticmethod
    def locate(view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Located:
        return view.locate(keys, partition_paths)


Locate = Callable[[TableView, pa.Array, pa.Array], Located]
"""`KeyedIndex.locate`: at a version, the file groups of record keys (texts), each of which is
looked for in a partition path."""


def locate_batches(
    locate: Locate,
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    *,
    coded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Task: the location of each row's key, row by row."""
    view = view.counting(counters)
    fields = CODED_LOCATION_FIELD if coded else LOCATION_FIELD
    for found in _found(locate, view, batches):
        yield pa.RecordBatch.from_arrays([_located(view, found, coded)], schema=fields)


def place_batches(
    locate: Locate,
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    values: pa.Array,
) -> Iterator[pa.RecordBatch]:
    """Task: where in `known_locations` the location of each row's key is, row by row."""
    names = (pc.struct_field(values, name).to_pylist() for name in ("partition_path", "file_id"))
    places = {group: place for place, group in enumerate(zip(*names, strict=True))}
    for found in _found(locate, view.counting(counters), batches):
        placed = _placed(places, found)
        yield pa.RecordBatch.from_arrays([placed], names=LOCATION_FIELD.names)


def _found(locate: Locate, view: TableView, batches: Iterator[pa.RecordBatch]) -> Iterator[Located]:
    """Where the keys of the rows are, many at a time."""
    for batch in gathered(batches, BATCH_KEYS):
        yield _looked_up(locate, view, batch)[1]


def _looked_up(locate: Locate, view: TableView, batch: pa.RecordBatch) -> tuple[pa.Array, Located]:
    """(the record keys of these rows, texts; where they are)."""
    keys, paths = texts_of(view.options, view.schema, batch)
    view.store.counters.add("tag.keys", len(keys))
    return keys, locate(view, keys, paths)


def _placed(places: Mapping[tuple[str, str], int], found: Located) -> pa.Array:
    """For each key the place of its group, int32, null for nowhere. Raises CorruptError."""
    for group in found.groups:
        if group not in places:
            raise _nowhere(group)
    of_group = np.array([*(places[group] for group in found.groups), -1], np.int32)  # -1: the last
    told = of_group.take(found.group)
    return pa.array(told, mask=told < 0)


def _nowhere(group: tuple[str, str]) -> CorruptError:
    return CorruptError("index names a file group that is not there", found=group)


def _located(view: TableView, found: Located, coded: bool) -> pa.Array:
    instants = [one.instant for one in _slices(view, found)]
    made = coded_locations if coded else locations
    return made(found.group, *_names(found), instants)


def _names(found: Located) -> tuple[list[str], list[str]]:
    """The partition path and the file id of each group."""
    return [path for path, _ in found.groups], [file_id for _, file_id in found.groups]


def _slices(view: TableView, found: Located) -> list[FileSlice]:
    """The current slice of each group. Raises CorruptError where there is none."""
    slices = []
    for group, one in zip(found.groups, view.current(*_names(found)), strict=True):
        if one is None:
            raise _nowhere(group)
        slices.append(one)
    return slices


register(RecordIndex.name, RecordIndex)
