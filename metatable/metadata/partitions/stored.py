"""Which metadata partitions a table keeps: two always, and those that its index needs."""

from __future__ import annotations

from typing import Protocol

from metatable.data.config.options import Options
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.outside import OutsidePartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.rings import RingsPartition

__all__ = ["NAMES", "partitions_of"]

_EVERY: tuple[type[MetadataPartition], ...] = (
    *(FilesPartition, ColumnStatsPartition, BloomFilterPartition, RecordIndexPartition),
    *(OutsidePartition, RingsPartition),
)

NAMES = tuple(one.name for one in _EVERY)
"""Of those that the indexes here keep; an index of somebody else may keep one of its own."""


class _HasPartitions(Protocol):
    partitions: tuple[MetadataPartition, ...]


def partitions_of(options: Options, index: _HasPartitions) -> list[MetadataPartition]:
    """Metadata partitions that every commit of this table fills."""
    return [FilesPartition(options), ColumnStatsPartition(options), *index.partitions]
