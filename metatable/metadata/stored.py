"""Which metadata partitions a table keeps: two always, and those that its index needs."""

from __future__ import annotations

from typing import Protocol

from metatable.data.options import Options
from metatable.metadata.column_stats import ColumnStatsPartition
from metatable.metadata.files import FilesPartition
from metatable.metadata.partition import MetadataPartition

__all__ = ["partitions_of"]


class _HasPartitions(Protocol):
    partitions: tuple[MetadataPartition, ...]


def partitions_of(options: Options, index: _HasPartitions) -> list[MetadataPartition]:
    """Metadata partitions that every commit of this table fills."""
    return [FilesPartition(options), ColumnStatsPartition(options), *index.partitions]
