"""Partition `bloom_filter`: one filter over the record keys of every live slice.

    key    base64(hash64(partition path) ‖ hash128(file name))          (RFC-37)
    value  MetadataRecord, BloomFilterMetadata: kind, instant, filter bytes

Filters hold the 64-bit XXH64 (seed 42) of the record-key text. The entries of a replaced
slice become tombstones in the commit that replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.data.slices import DataFile
from metatable.metadata.keys import file_keys
from metatable.metadata.partition import ENTRIES, MetadataPartition, WrittenFile
from metatable.metadata.payload import (
    BLOOM_TOMBSTONE,
    decode_blooms,
    encode_blooms,
    schema_text,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.filters import Filter, build, decode
from metatable.storage.hashing import xxh64

__all__ = ["SEED", "BloomFilterPartition", "filters_of", "hashes_of"]

SEED = 42
"""Of the XXH64 that filters are built from and asked with."""


class BloomFilterPartition(MetadataPartition):
    name: ClassVar[str] = "bloom_filter"
    tombstone: ClassVar[bytes] = BLOOM_TOMBSTONE

    def entries(self, written: WrittenFile) -> pa.Table:
        made = written.data_file
        body = build(self.options.filter_kind, hashes_of(written.keys), self.options.filter_fpp)
        value = encode_blooms(
            pa.array([body.kind]), pa.array([made.instant]), pa.array([body.encode()], pa.binary())
        )
        slices = [made, *filter(None, (written.replaced,))]
        keys = _keys(slices)
        values = pa.concat_arrays([value, pa.nulls(len(slices) - 1, pa.binary())])
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def hashes_of(record_keys: pa.Array) -> npt.NDArray[np.uint64]:
    """What filters are built from and asked with: XXH64 of the record-key text."""
    return xxh64(record_keys, SEED)


def filters_of(snapshot: Snapshot, files: Sequence[DataFile]) -> list[Filter]:
    """The filter of each live slice, in order. Raises CorruptError where one is missing."""
    if not files:
        return []
    found = snapshot.lookup(BloomFilterPartition(snapshot.options), _keys(files))
    if found.values.null_count:
        missing = found.values.is_valid().to_pylist().index(False)
        raise CorruptError("live slice has no filter", path=files[missing].path)
    rows = decode_blooms(found.values)
    kinds, bodies = rows["kind"].to_pylist(), rows["filter"]
    return [
        decode(kind, bodies[place].as_py(), files[place].path) for place, kind in enumerate(kinds)
    ]


def _keys(files: Sequence[DataFile]) -> pa.Array:
    return file_keys(
        pa.array([one.partition_path for one in files], pa.string()),
        pa.array([one.name for one in files], pa.string()),
    )
