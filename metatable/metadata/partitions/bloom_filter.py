"""Partition `bloom_filter`: one filter over the record keys of every live slice.

    key    base64(hash64(partition path) ‖ hash128(file name))          (RFC-37)
    value  MetadataRecord, BloomFilterMetadata: kind, instant, filter bytes

Filters hold the 64-bit XXH64 (seed 42) of the record-key text. The entries of a replaced
slice become tombstones in the commit that replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.keys import file_keys
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition
from metatable.metadata.hfiles.payload import (
    BLOOM_TOMBSTONE,
    decode_blooms,
    encode_blooms,
    schema_text,
)
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.errors import CorruptError
from metatable.storage.filters import Filter, build, decode
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import sort_order

__all__ = ["SEED", "BloomFilterPartition", "filters_of", "hashes_of"]

SEED = 42
"""The seed of the XXH64 that filters are built from and asked with."""

FILTER_BYTES = 64 << 20
"""Filters that are read together, about."""

FIRST_FILTERS = 64
"""How many filters are read at first, before the size of one is known."""


class BloomFilterPartition(MetadataPartition):
    """`bloom_filter`: for each base file a filter over its record keys, under the hashes of its
    partition and its name."""

    name: ClassVar[str] = "bloom_filter"
    tombstone: ClassVar[bytes] = BLOOM_TOMBSTONE
    reads_keys: ClassVar[bool] = True

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        kind, fpp = self.options.filter_kind, self.options.filter_fpp
        replaced = [old for one in written for old in one.superseded if isinstance(old, DataFile)]
        # keys of a log are in its base, too: where this partition is asked, others go to new bases
        written = [one for one in written if not one.logs]
        bodies = [build(kind, hashes_of(one.keys), fpp) for one in written]
        values = encode_blooms(
            pa.array([body.kind for body in bodies]),
            pa.array([one.made.instant for one in written]),
            pa.array([body.encode() for body in bodies], pa.binary()),
        )
        keys = _keys([*(one.made.base for one in written), *replaced])
        values = pa.concat_arrays([values, pa.nulls(len(replaced), pa.binary())])
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        return self.tombstones_of(_keys([one.base for one in slices]))

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def hashes_of(record_keys: pa.Array) -> UInt64s:
    """What filters are built from and asked with: XXH64 of the record-key text."""
    return xxh64(record_keys, SEED)


def filters_of(entries: Entries, slices: Sequence[FileSlice]) -> Iterator[tuple[int, Filter]]:
    """The filters of live slices, each with the slice's place, in the order of their keys.

    Some at a time: so many as FILTER_BYTES are for, by the largest that was met. Raises
    CorruptError where one is missing.
    """
    partition = BloomFilterPartition(entries.options)
    keys = _keys([one.base for one in slices])
    order = sort_order(keys)
    start = largest = 0
    while start < len(order):
        count = max(1, FILTER_BYTES // largest) if largest else FIRST_FILTERS
        places = order[start : start + count]
        found = entries.lookup(partition, keys.take(pa.array(places))).values
        yield from zip(places.tolist(), _decoded(found, slices, places), strict=True)
        largest = max(largest, pc.max(pc.binary_length(found)).as_py())
        start += len(places)


def _decoded(values: pa.Array, slices: Sequence[FileSlice], places: Int64s) -> Iterator[Filter]:
    if values.null_count:
        missing = int(places[values.is_valid().to_pylist().index(False)])
        raise CorruptError("live slice has no filter", path=slices[missing].path)
    rows = decode_blooms(values)
    for place, kind, body in zip(places.tolist(), rows["kind"], rows["filter"], strict=True):
        yield decode(kind.as_py(), body.as_py(), slices[place].path)


def _keys(files: Sequence[DataFile]) -> pa.Array:
    return file_keys(
        pa.array([one.partition_path for one in files], pa.string()),
        pa.array([one.name for one in files], pa.string()),
    )
