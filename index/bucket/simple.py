"""`bucket`, engine `simple` (RFC-29): N file groups a partition, told by the key's hash.

The number of a key's bucket is Hudi's: `List.hashCode` of the texts of the key's columns, as Java
counts, without its sign, modulo N. The id of its file group is one that Hudi has for writers
that do not wait for each other: the number in eight digits, then zeros. So whoever opens a bucket
gives it one name, and of two who do it at once one is first.

(Hudi takes the texts apart at commas and colons; a single key column whose text has a colon is
whole here, and is not in all versions of Hudi.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.data.key_texts import identity_columns, parts_of, texts_of
from metatable.data.options import BUCKET, Options
from metatable.engine.protocol import Engine
from metatable.index.presence import held
from metatable.index.protocol import LOCATION_FIELD, locations, register
from metatable.metadata.files import current_slices
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.hashing import java_string_hash

__all__ = ["BucketIndex", "SimpleBuckets", "bucket_numbers", "file_id_of"]

_POSITIVE = np.uint32(0x7FFFFFFF)


def bucket_numbers(keys: pa.Array, columns: Sequence[str], count: int) -> npt.NDArray[np.int64]:
    """The bucket of every record key (texts, as `KeyGenerator` makes them of `columns`)."""
    hashes = np.ones(len(keys), np.uint32)
    for part in parts_of(keys, columns):
        hashes = hashes * np.uint32(31) + java_string_hash(part).view(np.uint32)
    return (hashes & _POSITIVE).astype(np.int64) % count


def file_id_of(bucket: int) -> str:
    """The id of a bucket's file group, the same in every partition."""
    return f"{bucket:08}-0000-0000-0000-000000000000-0"


@dataclass(frozen=True, slots=True)
class SimpleBuckets:
    """The placement: every row goes to its key's bucket, whether or not it is there yet."""

    columns: tuple[str, ...]
    count: int

    def place(
        self, keys: pa.Array, partition_paths: pa.Array
    ) -> tuple[npt.NDArray[np.int64], pa.Array]:
        buckets, places = np.unique(
            bucket_numbers(keys, self.columns, self.count), return_inverse=True
        )
        ids = pa.array([file_id_of(bucket) for bucket in buckets.tolist()], pa.string())
        return np.arange(len(keys)), ids.take(pa.array(places))


class BucketIndex:
    name = BUCKET
    proves_presence = False

    def __init__(self, options: Options) -> None:
        self._options = options
        self.partitions: tuple[MetadataPartition, ...] = ()

    def tag(self, engine: Engine[Any], rows: Any, snapshot: Snapshot) -> Any:
        inputs = identity_columns(self._options, engine.schema(rows).names)
        where = partial(locate_batches, self.placement(snapshot), snapshot)
        return engine.extend(rows, inputs, where, LOCATION_FIELD)

    def placement(self, snapshot: Snapshot) -> SimpleBuckets:
        return SimpleBuckets(self._options.key, self._options.bucket_count)

    def holds(
        self, snapshot: Snapshot, keys: pa.Array, partition_paths: pa.Array
    ) -> npt.NDArray[np.bool_]:
        return held(self, snapshot, keys, partition_paths)


def locate_batches(
    buckets: SimpleBuckets,
    snapshot: Snapshot,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: the file group of each row's bucket, null where there is none yet."""
    snapshot = snapshot.counting(counters)
    for batch in batches:
        keys, paths = texts_of(snapshot.options, snapshot.schema, batch)
        counters.add("tag.keys", len(keys))
        _, file_ids = buckets.place(keys, paths)
        yield pa.RecordBatch.from_arrays(
            [_locate(snapshot, paths, file_ids)], schema=LOCATION_FIELD
        )


def _locate(snapshot: Snapshot, paths: pa.Array, file_ids: pa.Array) -> pa.Array:
    folders, ids = paths.dictionary_encode(), file_ids.dictionary_encode()
    pairs = (
        folders.indices.to_numpy().astype(np.int64) * len(ids.dictionary) + ids.indices.to_numpy()
    )
    distinct, places = np.unique(pairs, return_inverse=True)
    folder, group = np.divmod(distinct, max(len(ids.dictionary), 1))
    named = folders.dictionary.take(pa.array(folder)).to_pylist()
    wanted = ids.dictionary.take(pa.array(group)).to_pylist()
    slices = current_slices(snapshot, named, wanted)
    there = np.array([one is not None for one in slices], dtype=bool)
    instants = [one.instant if one else "" for one in slices]
    return locations(np.where(there[places], places, -1), named, wanted, instants)


register(BucketIndex.name, BucketIndex)
