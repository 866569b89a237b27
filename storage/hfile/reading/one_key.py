"""The value of one key of one block, without finding the other records of the block.

Finding all records of a block takes as long as inflating it. One key needs less: its bytes are
looked for as they stand in a record, and what was found is one if the records before it, each
as long as it says, end where it begins; a value may hold anything, also what looks like a record.
Of records that all have one size, by the file's word, it is one if it begins at a multiple of it.

Only what was found and is proven is answered. For everything else, keys that are not there
among it, the caller finds all records (finding.py), which says what is wrong where that is so.
Rows that may lie in several cells, and records that end otherwise than in one byte of mvcc, are
not asked for here.
"""

from __future__ import annotations

import struct

from metatable.storage.hfile.key_values import KEY_SUFFIX, MAX_ROW_SIZE, RECORD_OVERHEAD

__all__ = ["value_of"]

_SIZES = struct.Struct(">II")  # of a record's key, and of its value
_ROW_SIZE = struct.Struct(">H")
_BESIDES = _SIZES.size + 1
"""Bytes of a record besides its key and its value: their sizes before them, mvcc behind them."""


def value_of(payload: bytes, key: bytes, stride: int | None = None) -> bytes | None:
    """The value of `key` in the records that `payload` is, None where that is not proven.

    `stride`: bytes of every record, where the file says one size.
    """
    if len(key) > MAX_ROW_SIZE:
        return None
    told = b"".join((_ROW_SIZE.pack(len(key)), key, KEY_SUFFIX))
    start = payload.find(told) - _SIZES.size
    if start < 0 or not _begins(payload, start, stride):
        return None
    key_size, value_size = _SIZES.unpack_from(payload, start)
    value_at = start + _SIZES.size + key_size
    value_end = value_at + value_size
    if key_size != len(told) or value_end >= len(payload) or payload[value_end]:
        return None
    if stride is not None and stride != len(key) + value_size + RECORD_OVERHEAD:
        return None
    return payload[value_at:value_end]


def _begins(payload: bytes, start: int, stride: int | None) -> bool:
    """Whether a record begins at `start`."""
    if stride is not None:
        return not start % stride and not len(payload) % stride
    at, sizes = 0, _SIZES.unpack_from
    while at < start:
        key_size, value_size = sizes(payload, at)
        at += key_size + value_size + _BESIDES
    return bool(at == start)
