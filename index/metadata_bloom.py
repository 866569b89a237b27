"""`metadata_bloom` (RFC-37, the default): ranges and filters from the metadata table.

Level 1 reads the record key's `column_stats`, level 2 the `bloom_filter` entries of the files
that are left; no data file is opened before level 3. Filters wait among the blocks, decoded: the
next lookup, of whatever version, asks the same ones, until entries are made anew (`TableView.era`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.index.bloom_lookup import BloomIndex, Ranges, keep_apart, kept_ranges
from metatable.index.key_filters import HashFilters, KeyFilter
from metatable.index.protocol import register
from metatable.metadata.partitions.bloom_filter import SEED, BloomFilterPartition
from metatable.metadata.partitions.column_stats import RECORD_KEY
from metatable.metadata.view import FEW_PARTITIONS, TableView
from metatable.storage import cache

__all__ = ["MetadataBloomIndex", "MetadataSource"]


@dataclass(frozen=True, slots=True)
class MetadataSource:
    """Ranges from `column_stats`, filters from `bloom_filter`. `late`: of a view since a version,
    only slices that came after it."""

    late: bool = False

    def fetch(self, view: TableView, partition_paths: Sequence[str | None]) -> None:
        """The ranges of many table partitions are read as one: each by itself takes requests, and
        a tenth as long as all of a hundred thousand files. What those of a few begin with is
        fetched together, from afar."""
        keys = {path: self._key(view, path) for path in partition_paths}
        unknown = {path: key for path, key in keys.items() if cache.shared.get(key) is None}
        if len(unknown) > FEW_PARTITIONS:
            keep_apart(self._read(view, None), unknown)
        else:
            view.hold_stats([RECORD_KEY], [path for path in unknown if path is not None])

    def ranges(self, view: TableView, partition_path: str | None) -> Ranges:
        key = self._key(view, partition_path)
        return kept_ranges(key, lambda: self._read(view, partition_path))

    def _key(self, view: TableView, partition_path: str | None) -> Hashable:
        return "key-ranges", view.identity, partition_path, self.late

    def _read(self, view: TableView, partition_path: str | None) -> Ranges:
        ranges = _ranges(view, partition_path)
        return ranges.take(np.flatnonzero(view.came(ranges.files))) if self.late else ranges

    def filters(
        self, view: TableView, slices: Sequence[FileSlice]
    ) -> Iterator[tuple[int, KeyFilter]]:
        """Those that are kept come first, then the others, which are read together."""
        missing = []
        for place, one in enumerate(slices):
            kept: KeyFilter | None = cache.blocks.get(_filter_key(view, one))
            if kept is None:
                missing.append(place)
            else:
                yield place, kept
        if missing:
            for number, found in view.filters([slices[place] for place in missing]):
                place, made = missing[number], HashFilters((found,), SEED)
                key = _filter_key(view, slices[place])
                yield place, cache.blocks.offer(key, made, found.size_bytes)


def _ranges(view: TableView, partition_path: str | None) -> Ranges:
    paths = None if partition_path is None else [partition_path]
    stats = view.stats(RECORD_KEY, pa.string(), paths)
    return Ranges(stats.files, stats.minimum, stats.maximum)


def _filter_key(view: TableView, held: FileSlice) -> Hashable:
    return "filter", view.era, held.base.path


class MetadataBloomIndex(BloomIndex):
    """`index="metadata_bloom"`: asks the metadata partitions."""

    name = "metadata_bloom"
    _source = MetadataSource()
    _late = MetadataSource(late=True)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.partitions = (BloomFilterPartition(options),)


register(MetadataBloomIndex.name, MetadataBloomIndex)
