"""Bucket functions: which bucket of the record index a key is in.

A function places each stored key in [0, space). Those that hash place it in `HASH_SPACE`, which is
cut into one equal range per bucket, so the number of buckets only says where the cuts are. The
space of a *modulo* is the number of buckets itself, fixed for the life of the table. RFC-08 leaves
the function to the developer, who registers one by a name; Java's string hash is the one that
RFC-08 and Hudi's metadata table have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import byte_layout
from metatable.storage.errors import UsageError
from metatable.storage.hashing import SPARK_SEED, xxh64
from metatable.storage.java_hash import java_string_hash

__all__ = [
    "HASH_SPACE",
    "BucketFunction",
    "bucket_function",
    "bucket_functions",
    "carried",
    "place_by_hash",
    "place_by_text",
    "register_bucket_function",
    "taken_along",
]

HASH_SPACE = 1 << 32


@dataclass(frozen=True, slots=True)
class BucketFunction:
    """Says where keys are: `place(keys, space)` gives n integers in [0, space) for n keys (strings,
    no nulls).

    `modulo`: it names one of `space` buckets, whose number is then fixed for the life of a table.
    Keys are as the index stores them: in partition scope the table partition's path and a zero
    byte stand before the record key. On Spark the function goes along with tasks, so it must
    pickle.
    """

    place: Callable[[pa.Array, int], npt.NDArray[Any]]
    modulo: bool = False

    def space(self, buckets: int) -> int:
        """How many places there are in a partition of so many buckets."""
        return buckets if self.modulo else HASH_SPACE

    def places(self, keys: pa.Array, space: int) -> Int64s:
        """The places of these keys as int64. Raises UsageError where the function, which may be a
        user's, gives anything but n integers in [0, space)."""
        found = np.asarray(self.place(keys, space))
        wrong = found.shape != (len(keys),) or found.dtype.kind not in "iu"
        if wrong or (len(found) and (found.min() < 0 or found.max() >= space)):
            raise UsageError(
                "the bucket function has placed keys outside of the partition",
                expected=f"{len(keys)} integers from 0 to {space - 1}",
                found=f"{found.dtype}, shape {found.shape}"
                if wrong
                else f"{found.min()} to {found.max()}",
            )
        return found.astype(np.int64)


def place_by_text(keys: pa.Array | pa.ChunkedArray, space: int = HASH_SPACE) -> Int64s:
    """The top 32 bits of XXH64 of each text, scaled to the space: n int64 in [0, space)."""
    top = xxh64(keys, SPARK_SEED) >> np.uint64(32)
    return ((top * np.uint64(space)) >> np.uint64(32)).astype(np.int64)


def place_by_hash(hashes: pa.Array | pa.ChunkedArray) -> Int64s:
    """The top bits of each 128-bit hash, which is a key itself: n int64 in [0, 2**32)."""
    if isinstance(hashes, pa.ChunkedArray):
        hashes = hashes.combine_chunks()
    offsets, data = byte_layout(hashes)
    if (np.diff(offsets) != 16).any():
        raise UsageError("not a column of 128-bit hashes", found=str(hashes.type))
    return data[offsets[0] : offsets[-1]].view(">u4")[::4].astype(np.int64)


def _java_string(keys: pa.Array | pa.ChunkedArray, count: int) -> Int64s:
    """Java's string hash, its absolute value modulo the number of buckets."""
    return np.asarray(np.abs(java_string_hash(keys).astype(np.int64)) % count)


_FUNCTIONS = {
    "xxh64": BucketFunction(place_by_text),
    "java_string": BucketFunction(_java_string, modulo=True),
}
_OURS = frozenset(_FUNCTIONS)


def register_bucket_function(name: str, function: BucketFunction) -> None:
    """Give a function the name by which the option `record_bucket_function` finds it. Call this
    before such a table is created or opened.

    What a function answers for a key decides where the key is stored, so it must never change.
    Raises UsageError where the name is another function's.
    """
    if not isinstance(function, BucketFunction):
        raise UsageError("no bucket function", name=name, found=type(function).__name__)
    if _FUNCTIONS.setdefault(name, function) != function:
        raise UsageError("a bucket function of this name is there already", name=name)


def bucket_function(name: str) -> BucketFunction:
    """The one that a table names. Raises UsageError where this process does not know it."""
    if name not in _FUNCTIONS:
        raise UsageError(
            "no such bucket function: register it (metatable.register_bucket_function)",
            option="record_bucket_function",
            found=name,
            expected=bucket_functions(),
        )
    return _FUNCTIONS[name]


def carried(name: str) -> BucketFunction | None:
    """The function of this name where it is a user's: it goes along with what is pickled."""
    return None if name in _OURS else _FUNCTIONS.get(name)


def taken_along(name: str, function: BucketFunction | None) -> None:
    """Where it was carried to, in another process: known there from now on."""
    if function is not None:
        _FUNCTIONS.setdefault(name, function)


def bucket_functions() -> list[str]:
    """The names that are known."""
    return sorted(_FUNCTIONS)
