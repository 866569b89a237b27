"""Partition `hashing_metadata`: the ring of every table partition whose buckets were resized.

    key    partition path, UTF-8; `.` where the table has no partitions
    value  hashing metadata, JSON, as Hudi stores it (`data/file_groups/hashing_metadata.py`)

A partition that nobody has resized has no entry: its ring follows from the options. An entry comes
with the version that resizes it, together with the file groups of its new buckets, and no data
commit touches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.file_groups.hashing_metadata import HashingMetadata
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.keys import partition_text
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition
from metatable.metadata.written import WrittenSlice
from metatable.storage.errors import CorruptError

__all__ = ["RingsPartition", "every_ring", "partition_path", "ring_entries", "stored_rings"]


class RingsPartition(MetadataPartition):
    """`hashing_metadata`: for each table partition its ring. Resizes alone make entries of it
    (`ring_entries`): no written slice changes a ring."""

    name: ClassVar[str] = "hashing_metadata"
    tombstone: ClassVar[bytes] = b"{}"

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        return ENTRIES.empty_table()

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        return ENTRIES.empty_table()


def stored_rings(entries: Entries, partition_paths: Sequence[str]) -> list[HashingMetadata | None]:
    """The ring of each table partition, by one lookup; None where there is no entry. Raises
    CorruptError."""
    partition = RingsPartition(entries.options)
    found = entries.whole().lookup(partition, _keys(partition_paths)).values.to_pylist()
    return [
        None if raw is None else _decoded(raw, path)
        for raw, path in zip(found, partition_paths, strict=True)
    ]


def every_ring(entries: Entries) -> Iterator[HashingMetadata]:
    """All that are stored; of a view of what came after a version, those that came. Raises
    CorruptError."""
    for batch in entries.scan(RingsPartition(entries.options)):
        for key, raw in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            yield _decoded(raw, partition_path(key))


def ring_entries(options: Options, rings: Sequence[HashingMetadata]) -> pa.Table:
    """Entries of these rings."""
    partition, keys = RingsPartition(options), _keys([one.partition_path for one in rings])
    values = pa.array([one.encode() for one in rings], pa.binary())
    return pa.table([pa.array(partition.places(keys)), keys, values], schema=ENTRIES)


def partition_path(key: bytes) -> str:
    """The table partition that an entry is of."""
    text = key.decode(errors="replace")
    return "" if text == partition_text("") else text


def _keys(partition_paths: Sequence[str]) -> pa.Array:
    return pa.array([partition_text(one).encode() for one in partition_paths], pa.binary())


def _decoded(raw: bytes, partition_path: str) -> HashingMetadata:
    held = HashingMetadata.decode(raw, f"{RingsPartition.name}: {partition_text(partition_path)}")
    if held.partition_path != partition_path:
        raise CorruptError(
            "hashing metadata is another partition's",
            path=RingsPartition.name,
            expected=partition_path,
            found=held.partition_path,
        )
    return held
