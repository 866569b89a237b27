"""Partition `column_stats`: bounds and counts of each column of every live slice.

    key    base64(hash64(column) ‖ hash64(partition path) ‖ hash128(file name))   (RFC-37)
    value  MetadataRecord, ColumnStatsMetadata

Keys put a column's statistics together, a partition's within it, so both are read by one
prefix. Bounds of `_hoodie_record_key` are exact; those of other columns may be wider than
the data, never narrower; an absent bound says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_system_view import FileSystemView
from metatable.data.schema import META_COLUMNS
from metatable.data.slices import FileSlice
from metatable.metadata.entries import Entries
from metatable.metadata.files import view_of_partition, view_of_table
from metatable.metadata.keys import column_partition_prefix, column_prefix, stats_keys
from metatable.metadata.partition import ENTRIES, MetadataPartition
from metatable.metadata.payload import (
    STATS_TOMBSTONE,
    decode_stats,
    encode_stats,
    schema_text,
)
from metatable.metadata.view import StatsColumn
from metatable.metadata.written import WrittenSlice
from metatable.storage.cache import cached

__all__ = [
    "RECORD_KEY",
    "ColumnStatsPartition",
    "maxima",
    "row_counts",
    "stats_column",
    "stats_of",
]

RECORD_KEY = META_COLUMNS[2]

FEW_PARTITIONS = 16
"""Up to so many table partitions are read one by one; beyond, the whole column is."""


_OF_FILES = ["minimum", "maximum", "value_count"]


_NAME = "column_stats"


class ColumnStatsPartition(MetadataPartition):
    name: ClassVar[str] = _NAME
    tombstone: ClassVar[bytes] = STATS_TOMBSTONE

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        stats = [one for each in written for one in each.stats]
        names = [each.made.base.name for each in written for _ in each.stats]
        made = [(one.column, each.made) for each in written for one in each.stats]
        replaced = [
            (column, old)
            for each in written
            if (old := each.replaced)
            for column in dict.fromkeys((*(one.column for one in each.stats), *each.past_stats))
        ]
        keys = _keys([*made, *replaced])
        values = encode_stats(names, stats)
        values = pa.concat_arrays([values, pa.nulls(len(replaced), pa.binary())])
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        return self.tombstones_of(_keys([(name, one) for one in slices for name in columns]))

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def _keys(named: Sequence[tuple[str, FileSlice]]) -> pa.Array:
    return stats_keys(
        pa.array([column for column, _ in named], pa.string()),
        pa.array([one.partition_path for _, one in named], pa.string()),
        pa.array([one.base.name for _, one in named], pa.string()),
    )


def stats_column(
    entries: Entries, column: str, type: pa.DataType, partition_paths: Iterable[str] | None
) -> StatsColumn:
    """A column's statistics in the named table partitions (None: in all), live slices only."""
    paths = None if partition_paths is None else sorted(set(partition_paths))
    # a key's bounds are asked for by whoever asks for its filters next
    entries.warm("files", _NAME, *(["bloom_filter"] if column == RECORD_KEY else []))
    if paths is None or len(paths) > FEW_PARTITIONS or entries.is_small(_NAME):
        whole = _kept(entries, column, type, None)
        return whole if paths is None else whole.take(whole.files.within(paths))
    parts = [_kept(entries, column, type, path) for path in paths]
    return parts[0] if len(parts) == 1 else _joined(parts, type)


def _kept(
    entries: Entries, column: str, type: pa.DataType, partition_path: str | None
) -> StatsColumn:
    return cached(
        ("stats", entries.identity, column, partition_path),
        lambda: _load(entries, column, type, partition_path),
        _size_bytes,
    )


def _joined(parts: Sequence[StatsColumn], type: pa.DataType) -> StatsColumn:
    """Partitions in byte order, so that the files are in order as they are joined."""
    none = [pa.array([], kind) for kind in (type, type, pa.int64(), pa.int64())]
    arrays = zip(none, *(part.columns for part in parts), strict=True)
    paths = pa.concat_arrays([pa.array([], pa.string()), *(part.files.paths for part in parts)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(part.files.sizes for part in parts)])
    return StatsColumn(FileSystemView.of(paths, sizes), *map(pa.concat_arrays, arrays))


def stats_of(
    entries: Entries, column: str, type: pa.DataType, files: Sequence[FileSlice]
) -> pa.Table:
    """`minimum`, `maximum`, `value_count` of the column, a row a file: one lookup. Null: nothing is
    known."""
    if not len(files):
        return decode_stats(pa.array([], pa.binary()), type).select(_OF_FILES)
    folders, names = _places(files)
    if entries.is_small(_NAME):
        whole = _kept(entries, column, type, None)
        places = pc.index_in(names, value_set=whole.files.names())
        return pa.table([getattr(whole, one).take(places) for one in _OF_FILES], names=_OF_FILES)
    keys = stats_keys(pa.repeat(column, len(files)), folders, names)
    found = entries.lookup(ColumnStatsPartition(entries.options), keys)
    known = found.values.is_valid()
    held = decode_stats(found.values.drop_null(), type).select(_OF_FILES).combine_chunks()
    places = np.cumsum(known.to_numpy(zero_copy_only=False)) - 1
    return held.take(pa.array(places, mask=pc.invert(known).to_numpy(zero_copy_only=False)))


def maxima(
    entries: Entries, column: str, type: pa.DataType, files: Sequence[FileSlice]
) -> pa.Array:
    """The column's maximum in each file, of its type: one lookup. Null: nothing is known."""
    return stats_of(entries, column, type, files)["maximum"].combine_chunks()


def row_counts(entries: Entries, files: Sequence[FileSlice]) -> npt.NDArray[np.int64]:
    """Rows of each file, from the statistics of its record keys; -1 where they are missing."""
    counts = stats_of(entries, RECORD_KEY, pa.string(), files)["value_count"]
    return np.asarray(counts.fill_null(-1).to_numpy(), np.int64)


def _places(files: Sequence[FileSlice]) -> tuple[pa.Array, pa.Array]:
    """(partition paths, file names); of files in columns, without an object a file."""
    if isinstance(files, FileSystemView):
        return files.folders.take(pa.array(files.folder_of)), files.names()
    folders = pa.array([one.partition_path for one in files], pa.string())
    return folders, pa.array([one.base.name for one in files], pa.string())


def _load(
    entries: Entries, column: str, type: pa.DataType, partition_path: str | None
) -> StatsColumn:
    if partition_path is None:
        files, prefix = view_of_table(entries), column_prefix(column)
    else:
        files = view_of_partition(entries, partition_path)
        prefix = column_partition_prefix(column, partition_path)
    found = entries.prefix(ColumnStatsPartition(entries.options), prefix)
    rows = decode_stats(found["value"].combine_chunks(), type)
    # a prefix may be shared with another column, and file names are unique by their uuid
    rows = rows.filter(pc.equal(rows["column"], column))
    places = pc.index_in(files.names(), value_set=rows["file_name"])
    names = ("minimum", "maximum", "null_count", "value_count")
    return StatsColumn(files, *(rows[name].combine_chunks().take(places) for name in names))


def _size_bytes(stats: StatsColumn) -> int:
    return int(sum(one.nbytes for one in stats.columns) + stats.files.nbytes + 200)
