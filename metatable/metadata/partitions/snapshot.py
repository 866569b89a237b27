"""Snapshot: a `TableView` of our own tables, answered from their metadata partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.hashing_metadata import HashingMetadata
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.partitions import (
    bloom_filter,
    column_stats,
    files,
    outside,
    record_index,
    rings,
)
from metatable.metadata.view import Located, StatsColumn
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.filters import Filter

__all__ = ["Snapshot"]


class Snapshot(Entries):
    """One version of the table, whole, or what came after a version (`since`)."""

    def slices(self, partition_path: str | None = None) -> FileSystemView:
        if partition_path is None:
            return files.view_of_table(self)
        return files.view_of_partition(self, partition_path)

    def few_slices(self, at_most: int) -> FileSystemView | None:
        if not self.is_small(files.FilesPartition.name):
            return None
        held = self.slices()
        return held if len(held) <= at_most else None

    def current(
        self, partition_paths: Sequence[str], file_ids: Sequence[str]
    ) -> list[FileSlice | None]:
        return files.current_slices(self, partition_paths, file_ids)

    def came(self, slices: Sequence[FileSlice]) -> Bools:
        return files.published_since(self, slices)

    def stats(
        self, column: str, type: pa.DataType, partition_paths: Iterable[str] | None = None
    ) -> StatsColumn:
        return column_stats.stats_column(self, self._name_in_stats(column), type, partition_paths)

    def hold_stats(self, columns: Sequence[str], partition_paths: Sequence[str]) -> None:
        column_stats.hold_stats(self, [*map(self._name_in_stats, columns)], partition_paths)

    def maxima(self, column: str, type: pa.DataType, slices: Sequence[FileSlice]) -> pa.Array:
        return column_stats.maxima(self, self._name_in_stats(column), type, slices)

    def null_counts(self, column: str, type: pa.DataType, slices: Sequence[FileSlice]) -> pa.Array:
        return column_stats.null_counts(self, self._name_in_stats(column), type, slices)

    def row_counts(self, slices: Sequence[FileSlice], at_most: bool = False) -> Int64s:
        return column_stats.row_counts(self, slices, at_most)

    def filters(self, slices: Sequence[FileSlice]) -> Iterator[tuple[int, Filter]]:
        return bloom_filter.filters_of(self, slices)

    def _name_in_stats(self, column: str) -> str:
        """What a column is called in statistics."""
        own = self.table_schema.column(column)
        return column if own is None else own.first_name

    def locate(self, keys: pa.Array, partition_paths: pa.Array | pa.Scalar) -> Located:
        return record_index.locate(self, keys, partition_paths)

    def published(self, commits: pa.Array) -> Bools:
        return outside.published(self, commits)

    def latest_commit(self) -> bytes | None:
        return outside.latest_commit(self)

    def rings(self, partition_paths: Sequence[str]) -> list[HashingMetadata | None]:
        return rings.stored_rings(self, partition_paths)
