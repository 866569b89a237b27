"""Surplus entries: what the partitions still say of what is gone.

Every live entry is held against hashes of all that it may stand for: files by their names, keys of
a record index by those of the rows of live slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.data.keys.key_texts import identities
from metatable.engine.batches import filled, gathered
from metatable.index.hbase import live_entries
from metatable.index.protocol import Index
from metatable.metadata.hfiles.keys import decode_keys, file_keys, stats_keys
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.outside import OutsidePartition
from metatable.metadata.partitions.record_index import RecordIndexPartition, index_keys
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.arrays import Bools, UInt8s, UInt64s
from metatable.storage.errors import CorruptError
from metatable.storage.hashing import xxh64

__all__ = ["hashes_of_keys", "surplus_keys"]

BATCH_ROWS = 1 << 16
"""Entries looked at, and tombstones kept, at once."""

OF_FILE = slice(8, 32)
"""Where a key of `column_stats` has the hashes of a file's partition and name."""


def hashes_of_keys(
    view: Snapshot, index: Index, partition_path: str, keys: pa.Array, paths: pa.Array
) -> UInt64s:
    """Eight bytes of hash for each row of a slice: of its entry in the record index, where there is
    one, else of its identity."""
    if _has(index, RecordIndexPartition):
        keys = index_keys(view.options, keys, pa.scalar(partition_path, pa.string()))
        return _of_keys(keys.cast(pa.binary()))
    return xxh64(identities(view.options.is_global, keys, paths), 0)


def surplus_keys(
    view: Snapshot,
    partition: MetadataPartition,
    files: Sequence[DataFile | LogFile],
    rows: UInt64s,
) -> Iterator[tuple[int, pa.Array]]:
    """For each batch of a partition's live entries: how many there are, and the stored keys of
    those that no live file, or no row, stands for.

    `rows`: of `hashes_of_keys`, ascending. Gives nothing for a partition of which only its own
    index knows what its entries stand for.
    """
    strange = _strange_of(partition, files, rows)
    if strange is None:
        return
    outside = isinstance(partition, OutsidePartition)
    scanned = live_entries(view) if outside else view.scan(partition)
    for batch in filled(gathered(scanned, BATCH_ROWS)) or ():
        keys = batch["key"]
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        yield len(keys), keys.filter(pa.array(strange(keys)))


def _strange_of(
    partition: MetadataPartition, files: Sequence[DataFile | LogFile], rows: UInt64s
) -> Callable[[pa.Array], Bools] | None:
    """Tells of stored keys, for each, whether no live file or row stands for it."""
    if isinstance(partition, RecordIndexPartition):
        return _none_of(rows, _of_keys)
    if partition.name == BloomFilterPartition.name:
        bases = [one for one in files if isinstance(one, DataFile)]
        return _none_of(np.sort(_of_keys(file_keys(*_places(bases)))), _of_keys)
    if partition.name == ColumnStatsPartition.name:
        return _none_of(np.sort(_of_files(stats_keys("", *_places(files)))), _of_files)
    return None


def _places(files: Sequence[DataFile | LogFile]) -> tuple[pa.Array, pa.Array]:
    """The partition paths and the names of files, each an array of strings."""
    folders = pa.array([one.partition_path for one in files], pa.string())
    return folders, pa.array([one.name for one in files], pa.string())


def _none_of(
    expected: UInt64s, hashes: Callable[[pa.Array], UInt64s]
) -> Callable[[pa.Array], Bools]:
    """Tells of stored keys, for each, whether its hash is none of `expected` (ascending)."""

    def strange(keys: pa.Array) -> Bools:
        asked = hashes(keys)
        at = np.minimum(np.searchsorted(expected, asked), max(len(expected) - 1, 0))
        return expected[at] != asked if len(expected) else np.ones(len(asked), bool)

    return strange


def _of_keys(keys: pa.Array) -> UInt64s:
    return xxh64(keys, 0)


def _of_files(keys: pa.Array) -> UInt64s:
    """A hash of the part of each key of `column_stats` that names a file; 0 of what is no key."""
    try:
        return _hashed(decode_keys(keys, ColumnStatsPartition.name))
    except CorruptError:
        return np.array([_of_file(keys.slice(row, 1)) for row in range(len(keys))], np.uint64)


def _of_file(key: pa.Array) -> int:
    """The hash of the file in an array of one key; 0 where it is no key."""
    try:
        return int(_hashed(decode_keys(key, ColumnStatsPartition.name))[0])
    except (CorruptError, IndexError):
        return 0


def _hashed(parts: UInt8s) -> UInt64s:
    """The hashes of files in decoded keys of `column_stats`, one row of bytes each."""
    if not len(parts):
        return np.zeros(0, np.uint64)
    files = pa.py_buffer(np.ascontiguousarray(parts[:, OF_FILE]))
    return xxh64(pa.Array.from_buffers(pa.binary(24), len(parts), [None, files]), 0)


def _has(index: Index, kind: type[MetadataPartition]) -> bool:
    return any(isinstance(one, kind) for one in index.partitions)
