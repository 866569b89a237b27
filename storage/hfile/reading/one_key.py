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
from collections.abc import Iterable

from metatable.storage.hfile.columns import common_prefix_size
from metatable.storage.hfile.key_values import KEY_SUFFIX, MAX_ROW_SIZE

__all__ = ["begins_with_digits", "share_before", "value_of"]

_SIZES = struct.Struct(">II")  # of a record's key, and of its value
_ROW_SIZE = struct.Struct(">H")
_BESIDES = _SIZES.size + 1
"""Bytes of a record besides its key and its value: their sizes before them, mvcc behind them."""
_DIGITS, _HEX = 6, b"0123456789abcdefABCDEF"
"""Bytes of keys by which it is guessed where one of them is."""


def begins_with_digits(key: bytes) -> bool:
    """Whether these are hexadecimal: other keys need not be asked about in `share_before`."""
    return not key[:_DIGITS].translate(None, _HEX)


def share_before(key: bytes, first: bytes, behind: bytes) -> float | None:
    """Which share of the keys from `first` on, below `behind`, is less than `key`, if they are
    hexadecimal digits of hashes or the like; None where they are no such digits."""
    skip = common_prefix_size(first, behind)
    digits = [one[skip : skip + _DIGITS].ljust(_DIGITS, b"0") for one in (first, key, behind)]
    try:
        low, at, high = (int(one, 16) for one in digits)
    except ValueError:
        return None
    return (at - low) / (high - low) if low <= at < high else None


def value_of(
    payloads: Iterable[bytes], size: int, key: bytes, stride: int | None = None
) -> bytes | None:
    """The value of `key` in the records that a payload of `size` bytes is, None where that is not
    proven. `payloads`: longer and longer beginnings of it, taken until one tells.

    `stride`: bytes of every record, where the file says one size.
    """
    if len(key) > MAX_ROW_SIZE or (stride is not None and size % stride):
        return None
    told = b"".join((_ROW_SIZE.pack(len(key)), key, KEY_SUFFIX))
    searched = 0
    for payload in payloads:
        found = payload.find(told, searched)
        if found < 0:
            searched = max(len(payload) - len(told) + 1, 0)
            continue
        end = _value_end(payload, found, told)
        if end is not None and end < len(payload):
            return _value(payload, found - _SIZES.size, len(told), end, stride)
        searched = found
    return None


def _value_end(payload: bytes, found: int, told: bytes) -> int | None:
    """Where the value ends of a record whose key is at `found`, if one is."""
    start = found - _SIZES.size
    if start < 0:
        return None
    key_size, value_size = _SIZES.unpack_from(payload, start)
    return found + key_size + value_size if key_size == len(told) else None


def _value(payload: bytes, start: int, key_size: int, end: int, stride: int | None) -> bytes | None:
    """The value that ends at `end` of the record that begins at `start`, if one does."""
    if payload[end] or (stride is not None and stride != end + 1 - start):
        return None
    return (
        payload[start + _SIZES.size + key_size : end] if _begins(payload, start, stride) else None
    )


def _begins(payload: bytes, start: int, stride: int | None) -> bool:
    """Whether a record begins at `start`."""
    if stride is not None:
        return not start % stride
    at, sizes = 0, _SIZES.unpack_from
    while at < start:
        key_size, value_size = sizes(payload, at)
        at += key_size + value_size + _BESIDES
    return bool(at == start)
