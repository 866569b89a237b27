"""`metadata_bloom` (RFC-37, the default): ranges and filters from the metadata table.

Level 1 reads the record key's `column_stats`, level 2 the `bloom_filter` entries of the files
that are left; no data file is opened before level 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import KEY, PATH, identity_columns
from metatable.data.options import Options
from metatable.data.slices import DataFile
from metatable.engine.protocol import Engine
from metatable.index.bloom_lookup import (
    Ranges,
    candidate_schema,
    candidates,
    match_schema,
    validate,
)
from metatable.index.protocol import register
from metatable.metadata.bloom_filter import BloomFilterPartition, filters_of, has_filters
from metatable.metadata.column_stats import RECORD_KEY, stats_column
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.filters import Filter

__all__ = ["MetadataBloomIndex"]

TASKS_PER_SLOT = 3
"""More tasks than slots even out files of different size; many more only cost overhead."""


class MetadataSource:
    """Ranges from `column_stats`, filters from `bloom_filter`."""

    def ranges(self, snapshot: Snapshot, partition_paths: Sequence[str] | None) -> Ranges:
        stats = stats_column(snapshot, RECORD_KEY, pa.string(), partition_paths)
        return Ranges(stats.files, stats.minimum, stats.maximum)

    def filters(self, snapshot: Snapshot, files: Sequence[DataFile]) -> list[Filter]:
        return filters_of(snapshot, files)


class _LateSource(MetadataSource):
    """The same for a view of what was published after a version.

    A compaction may lift entries of older files into such a view, in one partition and not in
    the other. What was published after the version has its filter in it, so a file without one
    is older.
    """

    def ranges(self, snapshot: Snapshot, partition_paths: Sequence[str] | None) -> Ranges:
        found = super().ranges(snapshot, partition_paths)
        late = np.flatnonzero(has_filters(snapshot, found.files))
        places = pa.array(late)
        files = tuple(found.files[place] for place in late.tolist())
        return Ranges(files, found.minimum.take(places), found.maximum.take(places))


class MetadataBloomIndex:
    name = "metadata_bloom"
    proves_presence = True

    def __init__(self, options: Options) -> None:
        self._options = options
        self.partitions: tuple[MetadataPartition, ...] = (BloomFilterPartition(options),)

    def tag(self, engine: Engine[Any], rows: Any, snapshot: Snapshot) -> Any:
        schema = engine.schema(rows)
        on = identity_columns(self._options, schema.names)
        identity = pa.schema([schema.field(name) for name in on])
        tasks = engine.slots * TASKS_PER_SLOT
        find = partial(candidates, MetadataSource(), snapshot, tasks)
        found = engine.map(rows, on, find, candidate_schema(identity))
        spread = engine.exchange(found, "_task", tasks)
        inputs = candidate_schema(identity).names
        matches = engine.map(spread, inputs, partial(validate, snapshot), match_schema(identity))
        return engine.attach(rows, matches, on)

    def placement(self, snapshot: Snapshot) -> None:
        return None

    def holds(
        self, snapshot: Snapshot, keys: pa.Array, partition_paths: pa.Array
    ) -> npt.NDArray[np.bool_]:
        batch = pa.RecordBatch.from_arrays([keys, partition_paths], names=[KEY, PATH])
        counters = Counters()
        asked = batch.select(identity_columns(self._options, batch.schema.names))
        found = candidates(_LateSource(), snapshot, 1, iter([asked]), counters)
        held = np.zeros(len(keys), dtype=bool)
        for match in validate(snapshot, found, counters):
            held |= _contained(batch, match)
        return held


def _contained(batch: pa.RecordBatch, match: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Rows of `batch` whose identity is in `match` (one file's, so of one partition)."""
    here = pc.is_in(batch[KEY], value_set=match[KEY])
    if PATH in match.schema.names and match.num_rows:
        here = pc.and_(here, pc.equal(batch[PATH], match[PATH][0]))
    return np.asarray(here.to_numpy(zero_copy_only=False), dtype=bool)


register(MetadataBloomIndex.name, MetadataBloomIndex)
