"""Partition `files`: the current slice of every file group.

    key    file_group_keys(partition path, file id)        one entry a file GROUP
    value  MetadataRecord, filesystemMetadata: {"<partition path>/<file name>": size}

A new slice overwrites its group's entry, so a location found as a file id leads to the
current slice by one get, and all groups of a table partition share a key prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from metatable.data.slices import DataFile
from metatable.metadata.keys import file_group_keys, partition_prefix
from metatable.metadata.partition import ENTRIES, MetadataPartition, WrittenFile
from metatable.metadata.payload import (
    FILES_TOMBSTONE,
    decode_files,
    encode_files,
    schema_text,
)
from metatable.metadata.snapshot import Snapshot

__all__ = ["FilesPartition", "current_slices", "slices_of_partition", "slices_of_table"]


class FilesPartition(MetadataPartition):
    name: ClassVar[str] = "files"
    tombstone: ClassVar[bytes] = FILES_TOMBSTONE

    def entries(self, written: WrittenFile) -> pa.Table:
        made = written.data_file
        keys = file_group_keys(pa.array([made.partition_path]), pa.array([made.file_id]))
        values = encode_files(pa.array([made.path]), np.array([made.size_bytes], dtype=np.int64))
        return pa.table([pa.array(self.buckets(keys)), keys, values], schema=ENTRIES)

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def current_slices(
    snapshot: Snapshot, partition_paths: Sequence[str], file_ids: Sequence[str]
) -> list[DataFile | None]:
    """The current slice of each file group, None for a group that is not there."""
    if not partition_paths:
        return []
    keys = file_group_keys(pa.array(partition_paths, pa.string()), pa.array(file_ids, pa.string()))
    found = snapshot.lookup(FilesPartition(snapshot.options), keys)
    present = iter(_data_files(found.values.drop_null()))
    return [next(present) if valid else None for valid in found.values.is_valid().to_pylist()]


def slices_of_partition(snapshot: Snapshot, partition_path: str) -> list[DataFile]:
    """The live slices of one table partition, by file id."""
    found = snapshot.prefix(FilesPartition(snapshot.options), partition_prefix(partition_path))
    slices = _data_files(found["value"].combine_chunks())
    # a prefix is 60 of the hash's 64 bits: another partition may share it
    ours = (one for one in slices if one.partition_path == partition_path)
    return sorted(ours, key=lambda one: one.file_id)


def slices_of_table(snapshot: Snapshot) -> list[DataFile]:
    """All live slices, by partition path and file id."""
    slices: list[DataFile] = []
    for batch in snapshot.scan(FilesPartition(snapshot.options)):
        slices.extend(_data_files(batch["value"]))
    return sorted(slices, key=lambda one: (one.partition_path, one.file_id))


def _data_files(values: pa.Array) -> list[DataFile]:
    paths, sizes = decode_files(values)
    return [
        DataFile.decode(path, int(size))
        for path, size in zip(paths.to_pylist(), sizes, strict=True)
    ]
