"""`bucket`, engine `simple` (RFC-29): N file groups per partition, told by the key's hash.

The number of a key's bucket is Hudi's: `List.hashCode` of the texts of the key's columns, as Java
counts, without its sign, modulo N. The id of its file group is one that Hudi has for writers
that do not wait for each other: the number in eight digits, then zeros. So whoever opens a bucket
gives it one name, and of two who do it at once one is first.

(Hudi takes record keys apart at commas and colons. So of several columns a text with a comma and
behind it a colon has another bucket there. In 0.15.0 so have all of several columns with a comma,
and those of one column with a colon: `make hudi-spark`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.data.keys.key_texts import parts_of
from metatable.storage.arrays import Int64s
from metatable.storage.java_hash import java_string_hash

__all__ = ["SimpleBuckets", "bucket_numbers", "file_id_of"]

_POSITIVE = np.uint32(0x7FFFFFFF)


def bucket_numbers(keys: pa.Array, columns: Sequence[str], count: int) -> Int64s:
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

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> tuple[Int64s, pa.Array]:
        buckets, places = np.unique(
            bucket_numbers(keys, self.columns, self.count), return_inverse=True
        )
        ids = pa.array([file_id_of(bucket) for bucket in buckets.tolist()], pa.string())
        return np.arange(len(keys)), ids.take(pa.array(places))
