"""Keys of the metadata partitions.

    partition      key                                                            characters
    files          base64(hash64(partition) ‖ hash128(file id))                          32
    bloom_filter   base64(hash64(partition) ‖ hash128(file name))                        32
    column_stats   base64(hash64(column) ‖ hash64(partition) ‖ hash128(file name))       44
    record_index   the record key's text, or the 16 bytes of `record_key_hash`

This is RFC-37 to the letter: one base64, with padding, over the joined hashes (Hudi itself
encodes each of them alone). hash64 is XXH64 with Hudi's seed, big-endian; hash128 is MD5.
A partition path is relative to the table; the empty one of an unpartitioned table is
hashed as ".". Ten characters hold 60 bits, so a scan by `partition_prefix` or
`column_prefix` meets a few strangers and has to look at what it found.

Arguments are Arrow string columns of one length; a single `str` stands for a column that
holds nothing else. Nulls are refused.
"""

from __future__ import annotations

import binascii
import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from metatable.metadata.manifests.home import HOME
from metatable.storage.arrays import Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import byte_layout, first_words, from_layout
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hashing import (
    SPARK_SEED,
    md5,
    md5_one,
    xxh64,
    xxh64_one,
    xxh64_pair,
)

__all__ = [
    "HUDI_SEED",
    "column_partition_prefix",
    "column_prefix",
    "decode_keys",
    "file_group_keys",
    "file_keys",
    "hash_seeds",
    "partition_prefix",
    "partition_text",
    "partition_words",
    "record_key_hash",
    "stats_keys",
]

Column: TypeAlias = "pa.Array | pa.ChunkedArray | str"

HUDI_SEED = 0xFFFFFFFF_DABADABA
"""Java's int 0xdabadaba, sign-extended."""

PREFIX_CHARS = 10
"""Characters of a key that the first of its hashes alone decides: 60 of the 64 bits."""
COLUMN_PARTITION_CHARS = 21
"""Characters of a key of `column_stats` that the first two of its hashes alone decide."""
STATS_CHARS = 44
"""Characters of a key of `column_stats`."""
_PARTITION_AT = 12
"""Where in it eight characters begin that the second hash, of the partition, alone decides."""


def file_keys(partition_paths: Column, file_names: Column) -> pa.Array:
    """Keys of `bloom_filter`: one a file slice. Returns n binaries of 32 characters."""
    return _encode(_joined((_partition_64, partition_paths), (_hash_128, file_names)))


def file_group_keys(partition_paths: Column, file_ids: Column) -> pa.Array:
    """Keys of `files`: one a file group. Returns n binaries of 32 characters."""
    return file_keys(partition_paths, file_ids)


def stats_keys(columns: Column, partition_paths: Column, file_names: Column) -> pa.Array:
    """Keys of `column_stats`: one a column and file slice; n binaries of 44 characters."""
    return _encode(
        _joined((_hash_64, columns), (_partition_64, partition_paths), (_hash_128, file_names))
    )


def partition_prefix(partition_path: str) -> bytes:
    """What `files` and `bloom_filter` keys of a table partition begin with (10 characters)."""
    return _prefix(PREFIX_CHARS, partition_text(partition_path))


def column_prefix(column: str) -> bytes:
    """What `column_stats` keys of a column begin with (10 characters)."""
    return _prefix(PREFIX_CHARS, column)


def column_partition_prefix(column: str, partition_path: str) -> bytes:
    """What `column_stats` keys of a column in a table partition begin with (21 characters)."""
    return _prefix(COLUMN_PARTITION_CHARS, column, partition_text(partition_path))


def partition_words(keys: pa.Array) -> UInt64s:
    """Eight characters of each `column_stats` key, as n uint64, that come from the hash of its
    table partition alone: keys with other words are of other partitions. Raises CorruptError where
    a key has not the length of such keys."""
    starts, data = byte_layout(keys)
    if not len(keys):
        return np.zeros(0, np.uint64)
    if (np.diff(starts) != STATS_CHARS).any():
        path = f"{HOME}/column_stats"
        raise CorruptError("metadata keys have no hash's length", path=path, expected=STATS_CHARS)
    return first_words(data, starts[:-1].astype(np.int64) + _PARTITION_AT, np.full(1, 8))


def decode_keys(keys: pa.Array, partition: str) -> UInt8s:
    """The joined hashes inside keys of one length, of this metadata partition: n rows of 24 or 32
    bytes.

    Raises CorruptError where a key is not the base64 of so many bytes.
    """
    offsets, data = byte_layout(keys)
    if not len(keys):
        return np.zeros((0, 0), np.uint8)
    path = f"{HOME}/{partition}"
    chars = int(offsets[1]) - int(offsets[0])
    if chars not in (32, 44) or (np.diff(offsets) != chars).any():
        raise CorruptError("metadata keys have no hash's length", path=path, expected="32 or 44")
    text = data[offsets[0] : offsets[-1]].reshape(-1, chars)
    padded = chars == 44
    if padded:
        if (text[:, -1] != _PAD).any():
            raise CorruptError("metadata key is not base64", path=path, expected="padding")
        text = text.copy()
        text[:, -1] = _ZERO
    try:
        raw = binascii.a2b_base64(text.tobytes(), strict_mode=True)
    except binascii.Error as error:
        raise CorruptError("metadata key is not base64", path=path, found=str(error)) from error
    parts = np.frombuffer(raw, np.uint8).reshape(len(keys), -1)
    return parts[:, :-1] if padded else parts


# Record keys


def hash_seeds(salts: tuple[int, int]) -> tuple[int, int]:
    """The two seeds that a table's salts stand for.

    XXH64 of the salt's 8 little-endian bytes is what Spark makes of a bigint, so that there
    `xxhash64(lit(salt).cast("long"), key)` is one half of `record_key_hash`.
    """
    first, second = (
        xxh64_one(salt.to_bytes(8, "little", signed=True), SPARK_SEED) for salt in salts
    )
    return first, second


_FEW = 8
"""Texts that are hashed without a look whether they repeat."""


def record_key_hash(keys: pa.Array | pa.ChunkedArray, salts: tuple[int, int]) -> pa.Array:
    """The 128-bit hash of each key's text under the table's salts, as 16 bytes, big-endian."""
    halves = np.empty((len(keys), 2), ">u8")
    halves.T[:] = xxh64_pair(keys, hash_seeds(salts))
    return _fixed(halves.view(np.uint8).reshape(len(keys), 16))


# Hashes of the parts: n rows of 8 or 16 bytes, one row for a single text


def _hash_64(column: Column) -> UInt8s:
    if isinstance(column, str):
        return _rows(xxh64_one(column.encode(), HUDI_SEED).to_bytes(8, "big"), 8)
    return xxh64(column, HUDI_SEED).astype(">u8").view(np.uint8).reshape(-1, 8)


def _partition_64(column: Column) -> UInt8s:
    if isinstance(column, str):
        return _hash_64(partition_text(column))
    parts = _hash_64(column).copy()
    parts[_lengths(column) == 0] = _hash_64(".")
    return parts


def _hash_128(column: Column) -> UInt8s:
    if isinstance(column, str):
        return _rows(md5_one(column.encode()), 16)
    digests = md5(column)
    return _rows(digests.buffers()[1], 16)[: len(digests)]


def _joined(*columns: tuple[Callable[[Column], UInt8s], Column]) -> UInt8s:
    """The hashes of all columns side by side. Columns that repeat texts are hashed once each."""
    lengths = {len(column) for _, column in columns if not isinstance(column, str)}
    if len(lengths) > 1:
        raise UsageError("columns of a key differ in length", found=sorted(lengths))
    rows = lengths.pop() if lengths else 1
    hashed = [_distinct(hash_of, column) for hash_of, column in columns]
    joined = np.empty((rows, sum(parts.shape[1] for parts in hashed)), np.uint8)
    ends = itertools.accumulate(parts.shape[1] for parts in hashed)
    for parts, end in zip(hashed, ends, strict=True):
        joined[:, end - parts.shape[1] : end] = parts
    return joined


def _distinct(hash_of: Callable[[Column], UInt8s], column: Column) -> UInt8s:
    """`hash_of` a column, each text once where many are equal."""
    if isinstance(column, str):
        return hash_of(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) <= _FEW:
        return hash_of(column)
    texts = column.dictionary_encode()
    if texts.null_count or 2 * len(texts.dictionary) > len(column):
        return hash_of(column)
    parts: UInt8s = hash_of(texts.dictionary)[texts.indices.to_numpy(zero_copy_only=False)]
    return parts


def _lengths(column: pa.Array) -> Int64s:
    return np.diff(byte_layout(column)[0]).astype(np.int64)


def partition_text(partition_path: str) -> str:
    """A table partition as it is hashed: "." stands for the one of tables without partitions."""
    return partition_path or "."


# Base64 of many rows by one call

_PAD, _ZERO = ord("="), ord("A")


def _encode(parts: UInt8s) -> pa.Array:
    """Rows of 24 bytes fill whole groups of three; rows of 32 lack a byte, shown by "="."""
    rows, width = parts.shape
    lacking = -width % 3
    if lacking:
        parts = np.concatenate([parts, np.zeros((rows, lacking), np.uint8)], axis=1)
    text = np.frombuffer(bytearray(binascii.b2a_base64(parts.tobytes(), newline=False)), np.uint8)
    chars = parts.shape[1] // 3 * 4
    if lacking:
        text.reshape(rows, chars)[:, -lacking:] = _PAD
    return from_layout(np.arange(0, (rows + 1) * chars, chars), text)


def _prefix(chars: int, *texts: str) -> bytes:
    """The first characters of every key that begins with the hashes of these texts."""
    raw = b"".join(_hash_64(text).tobytes() for text in texts)
    return binascii.b2a_base64(raw, newline=False)[:chars]


def _rows(raw: bytes | pa.Buffer, width: int) -> UInt8s:
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def _fixed(rows: UInt8s) -> pa.Array:
    """n rows of bytes as a fixed-size binary column; no copy."""
    kind = pa.binary(rows.shape[1])
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)])
