"""`record`: a record-level index of HFiles (RFC-08).

One lookup a key: its hash names a bucket, the bucket's HFiles are asked from the newest to
the oldest, and the entry names the file group. Nothing is read of the data files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.data.key_texts import identity_columns, texts_of
from metatable.data.options import Options
from metatable.engine.batches import gathered
from metatable.engine.protocol import Engine
from metatable.index.protocol import LOCATION_FIELD, locations, register
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.record_index import RecordIndexPartition
from metatable.metadata.view import Located, TableView
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError

__all__ = ["KeyedIndex", "RecordIndex"]

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
        inputs = identity_columns(self._options, engine.schema(rows).names)
        find = partial(locate_batches, self.locate, view)
        return engine.extend(rows, inputs, find, LOCATION_FIELD, at_once=True)

    def placement(self, view: TableView) -> None:
        return None

    def holds(
        self, view: TableView, keys: pa.Array, partition_paths: pa.Array
    ) -> npt.NDArray[np.bool_]:
        return np.asarray(self.locate(view, keys, partition_paths).group >= 0)


class RecordIndex(KeyedIndex):
    name = "record"
    partition = RecordIndexPartition

    @staticmethod
    def locate(view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Located:
        return view.locate(keys, partition_paths)


def locate_batches(
    locate: Callable[[TableView, pa.Array, pa.Array], Located],
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: the location of each row's key, row by row."""
    view = view.counting(counters)
    for batch in gathered(batches, BATCH_KEYS):
        keys, paths = texts_of(view.options, view.schema, batch)
        counters.add("tag.keys", len(keys))
        found = _located(view, locate(view, keys, paths))
        yield pa.RecordBatch.from_arrays([found], schema=LOCATION_FIELD)


def _located(view: TableView, found: Located) -> pa.Array:
    partition_paths = [path for path, _ in found.groups]
    file_ids = [file_id for _, file_id in found.groups]
    slices = view.current(partition_paths, file_ids)
    instants = []
    for group, one in zip(found.groups, slices, strict=True):
        if one is None:
            raise CorruptError("index names a file group that is not there", found=group)
        instants.append(one.instant)
    return locations(found.group, partition_paths, file_ids, instants)


register(RecordIndex.name, RecordIndex)
