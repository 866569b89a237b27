"""PlacedIndex: the base of an index with which a key's file group follows from the key.

To name file groups in a way of your own, derive from `PlacedIndex`, say where rows go, and register
the class; the rest is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.keys.key_texts import identity_columns, texts_of
from metatable.engine.batches import gathered
from metatable.engine.protocol import Engine
from metatable.index.locations import LOCATION_FIELD, locations
from metatable.index.placement import Placement, placed
from metatable.index.presence import BATCH_KEYS, held
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.storage.arrays import Bools
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError

__all__ = ["PlacedIndex"]


class PlacedIndex:
    """An index whose answer is its placement. Derived classes have a `name` and a `placement`; all
    rows of one key must go to one group."""

    name: str
    partitions: tuple[MetadataPartition, ...] = ()
    proves_presence = False
    asks_footers = False
    indexes_logs = True

    def __init__(self, options: Options) -> None:
        if options.is_global and options.partition_by:
            raise UsageError(
                "options contradict each other: this index finds keys of one table partition",
                index=self.name,
                option="key_scope",
                found="global",
                expected="partition, or a table without partitions",
            )
        self.options = options

    def placement(self, view: TableView) -> Placement:
        """Where rows go at this version."""
        raise NotImplementedError

    def tag(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        inputs = identity_columns(self.options, engine.columns(rows))
        where = partial(_locate_batches, self, view)
        return engine.extend(rows, inputs, where, LOCATION_FIELD)

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        return held(self, view, keys, partition_paths)


def _locate_batches(
    index: PlacedIndex,
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: the file group that each row is placed in first, null where it is not there yet."""
    view = view.counting(counters)
    placement = index.placement(view)
    for batch in gathered(batches, BATCH_KEYS):
        keys, paths = texts_of(view.options, view.schema, batch)
        counters.add("tag.keys", len(keys))
        rows, file_ids = placed(placement, keys, paths)
        first = np.searchsorted(rows, np.arange(len(keys)))
        located = _locate(view, paths, file_ids.take(pa.array(first)))
        yield pa.RecordBatch.from_arrays([located], schema=LOCATION_FIELD)


def _locate(view: TableView, paths: pa.Array, file_ids: pa.Array) -> pa.Array:
    """A `LOCATION` column of these file groups (texts, one a row), null where one is not there."""
    folders, ids = paths.dictionary_encode(), file_ids.dictionary_encode()
    count = max(len(ids.dictionary), 1)
    pairs = folders.indices.to_numpy().astype(np.int64) * count + ids.indices.to_numpy()
    distinct, places = np.unique(pairs, return_inverse=True)
    folder, group = np.divmod(distinct, count)
    named = folders.dictionary.take(pa.array(folder)).to_pylist()
    wanted = ids.dictionary.take(pa.array(group)).to_pylist()
    slices = view.current(named, wanted)
    there = np.array([one is not None for one in slices], dtype=bool)
    instants = [one.instant if one else "" for one in slices]
    return locations(np.where(there[places], places, -1), named, wanted, instants)
