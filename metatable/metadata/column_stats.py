"""Partition `column_stats`: bounds and counts of each column of every live slice.

    key    base64(hash64(column) ‖ hash64(partition path) ‖ hash128(file name))   (RFC-37)
    value  MetadataRecord, ColumnStatsMetadata

Keys put a column's statistics together, a partition's within it, so both are read by one
prefix. Bounds of `_hoodie_record_key` are exact; those of other columns may be wider than
the data, never narrower; an absent bound says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.schema import META_COLUMNS
from metatable.data.slices import DataFile
from metatable.metadata.files import slices_of_partition, slices_of_table
from metatable.metadata.keys import column_partition_prefix, column_prefix, stats_keys
from metatable.metadata.partition import ENTRIES, MetadataPartition, WrittenFile
from metatable.metadata.payload import (
    STATS_TOMBSTONE,
    decode_stats,
    encode_stats,
    schema_text,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage.cache import cached

__all__ = ["RECORD_KEY", "ColumnStatsPartition", "StatsColumn", "row_counts", "stats_column"]

RECORD_KEY = META_COLUMNS[2]

FEW_PARTITIONS = 16
"""Up to so many table partitions are read one by one; beyond, the whole column is."""


class ColumnStatsPartition(MetadataPartition):
    name: ClassVar[str] = "column_stats"
    tombstone: ClassVar[bytes] = STATS_TOMBSTONE

    def entries(self, written: WrittenFile) -> pa.Table:
        columns = [one.column for one in written.stats]
        made = written.data_file
        values = encode_stats([made.name] * len(columns), written.stats)
        keys = [self._keys(columns, made)]
        if written.replaced is not None:
            keys.append(self._keys(columns, written.replaced))
            values = pa.concat_arrays([values, pa.nulls(len(columns), pa.binary())])
        every = pa.concat_arrays(keys)
        return pa.table([pa.array(self.buckets(every)), every, values], schema=ENTRIES)

    def _keys(self, columns: Sequence[str], data_file: DataFile) -> pa.Array:
        count = len(columns)
        return stats_keys(
            pa.array(columns, pa.string()),
            pa.array([data_file.partition_path] * count, pa.string()),
            pa.array([data_file.name] * count, pa.string()),
        )

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


@dataclass(frozen=True, slots=True)
class StatsColumn:
    """One column's bounds over many files; row i is `files[i]`, null where nothing is known."""

    files: tuple[DataFile, ...]
    minimum: pa.Array
    maximum: pa.Array


def stats_column(
    snapshot: Snapshot, column: str, type: pa.DataType, partition_paths: Iterable[str] | None
) -> StatsColumn:
    """A column's bounds in the named table partitions (None: in all), live slices only."""
    paths = None if partition_paths is None else sorted(set(partition_paths))
    if paths is None or len(paths) > FEW_PARTITIONS:
        whole = cached(
            ("stats", snapshot.identity, column, None),
            lambda: _load(snapshot, column, type, None),
            _size_bytes,
        )
        return whole if paths is None else _only(whole, paths)
    parts = [
        cached(
            ("stats", snapshot.identity, column, path),
            lambda path=path: _load(snapshot, column, type, path),  # type: ignore[misc]
            _size_bytes,
        )
        for path in paths
    ]
    return StatsColumn(
        tuple(one for part in parts for one in part.files),
        pa.concat_arrays([pa.array([], type), *(part.minimum for part in parts)]),
        pa.concat_arrays([pa.array([], type), *(part.maximum for part in parts)]),
    )


def row_counts(snapshot: Snapshot, files: Sequence[DataFile]) -> npt.NDArray[np.int64]:
    """Rows of each file, from the statistics of its record keys; -1 where they are missing."""
    counts = np.full(len(files), -1, dtype=np.int64)
    if not files:
        return counts
    keys = stats_keys(
        pa.array([RECORD_KEY] * len(files)),
        pa.array([one.partition_path for one in files]),
        pa.array([one.name for one in files]),
    )
    found = snapshot.lookup(ColumnStatsPartition(snapshot.options), keys)
    known = found.values.is_valid().to_numpy(zero_copy_only=False)
    rows = decode_stats(found.values.drop_null(), pa.string())
    counts[known] = rows["value_count"].to_numpy()
    return counts


def _load(
    snapshot: Snapshot, column: str, type: pa.DataType, partition_path: str | None
) -> StatsColumn:
    if partition_path is None:
        files, prefix = slices_of_table(snapshot), column_prefix(column)
    else:
        files = slices_of_partition(snapshot, partition_path)
        prefix = column_partition_prefix(column, partition_path)
    entries = snapshot.prefix(ColumnStatsPartition(snapshot.options), prefix)
    rows = decode_stats(entries["value"].combine_chunks(), type)
    # a prefix may be shared with another column, and file names are unique by their uuid
    rows = rows.filter(pc.equal(rows["column"], column)).combine_chunks()
    names = pa.array([one.name for one in files], pa.string())
    places = pc.index_in(names, value_set=rows["file_name"])
    return StatsColumn(
        tuple(files),
        pa.chunked_array(rows["minimum"]).combine_chunks().take(places),
        pa.chunked_array(rows["maximum"]).combine_chunks().take(places),
    )


def _only(whole: StatsColumn, partition_paths: Sequence[str]) -> StatsColumn:
    wanted = set(partition_paths)
    kept = [place for place, one in enumerate(whole.files) if one.partition_path in wanted]
    places = pa.array(kept, pa.int64())
    return StatsColumn(
        tuple(whole.files[place] for place in kept),
        whole.minimum.take(places),
        whole.maximum.take(places),
    )


def _size_bytes(stats: StatsColumn) -> int:
    return int(stats.minimum.nbytes + stats.maximum.nbytes + 500 * len(stats.files) + 200)
