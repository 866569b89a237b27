"""Checksums of a block: one big-endian u32 for every `chunk_bytes` of header and payload.

    id  name    value of a chunk
     0  NULL    zero; the area is there all the same, and anything else in it is refused
     1  CRC32   zlib's
     2  CRC32C  Castagnoli's; what we write

The first chunk begins at the block's first byte; the last one may be short. The checksums
themselves are not covered.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

import google_crc32c
import numpy as np
from isal import isal_zlib

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.errors import CorruptError

__all__ = [
    "CHECKSUM_BYTES",
    "Checksum",
    "chunk_count",
    "chunk_sums",
    "crc32c_each",
    "is_verified",
    "verify_chunks",
]

CHECKSUM_BYTES = 4


class Checksum(IntEnum):
    """A block header's `checksumType`."""

    NULL = 0
    CRC32 = 1
    CRC32C = 2


# no memoryviews: google_crc32c would not take them
_OF_CHUNK: dict[Checksum, Callable[[bytes | UInt8s], int]] = {
    Checksum.CRC32: isal_zlib.crc32,
    Checksum.CRC32C: google_crc32c.value,
}


_ALL_ONES = 0xFFFFFFFF
"""What isal's sum begins with, and what is turned of its result."""


def _isal_sum() -> Callable[[int, int, int], int] | None:
    """CRC-32C of (address, bytes, what it begins with), which lets other threads run, if isal tells
    it, and it is that: no interface of Python promises it."""
    try:
        found = ctypes.CDLL(isal_zlib.__file__).crc32_iscsi
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    found.restype = ctypes.c_uint32
    told = np.arange(5000, dtype=np.uint16).view(np.uint8)
    start = told.ctypes.data
    for size in (0, 1, 9, 64, 300, 1023, 4097, len(told)):
        if found(start, size, _ALL_ONES) ^ _ALL_ONES != google_crc32c.value(told[:size]):
            return None
    return found


_isal = _isal_sum()


def crc32c_each(raw: UInt8s, starts: Int64s, sizes: Int64s) -> list[int]:
    """The CRC-32C of each of these pieces of `raw`; of one that ends behind it, of what is there.
    Others may run meanwhile."""
    if not len(starts):
        return []
    pieces = list(zip(starts.tolist(), sizes.tolist(), strict=True))
    is_inside = int(starts.min()) >= 0 <= int(sizes.min())
    is_inside &= int((starts + sizes).max()) <= len(raw)
    raw = np.ascontiguousarray(raw)
    if _isal is None or not is_inside:
        return [google_crc32c.value(raw[start : start + size]) for start, size in pieces]
    sum_of, base = _isal, int(raw.ctypes.data)
    return [sum_of(base + start, size, _ALL_ONES) ^ _ALL_ONES for start, size in pieces]


def _extend_crc32(value: int, more: bytes | UInt8s) -> int:
    return int(isal_zlib.crc32(more, value))


Sizes = TypeVar("Sizes", int, Int64s)


def chunk_count(size: Sizes, chunk_bytes: int | Sizes) -> Sizes:
    """How many chunks cover `size` bytes."""
    return -(-size // chunk_bytes)


def chunk_sums(kind: Checksum, header: bytes, stored: UInt8s, chunk_bytes: int) -> bytes:
    """The checksum area of a block: of header and payload, which are never put together."""
    if kind is Checksum.NULL:
        return bytes(CHECKSUM_BYTES * chunk_count(len(header) + len(stored), chunk_bytes))
    extend: Callable[[int, bytes | UInt8s], int]
    extend = google_crc32c.extend if kind is Checksum.CRC32C else _extend_crc32
    first = chunk_bytes - len(header)
    values = [extend(extend(0, header), stored[:first])]
    for start in range(first, len(stored), chunk_bytes):
        values.append(extend(0, stored[start : start + chunk_bytes]))
    return struct.pack(f">{len(values)}I", *values)


def is_verified(kind: Checksum, raw: bytes | memoryview, covered_size: int) -> bool:
    """Whether a block ends with one CRC32C of what it covers. `verify_chunks` tells of others."""
    if kind is not Checksum.CRC32C or len(raw) != covered_size + CHECKSUM_BYTES:
        return False
    stored = int.from_bytes(raw[covered_size:], "big")
    return bool(google_crc32c.value(np.frombuffer(raw, np.uint8, covered_size)) == stored)


def verify_chunks(
    kind: Checksum, block: UInt8s, covered_size: int, chunk_bytes: int, *, path: str, offset: int
) -> None:
    """Raise CorruptError, naming the chunk, unless a block ends with its checksums.

    `block` is uint8 of shape (n,); its first `covered_size` bytes are covered.
    """
    area = block[covered_size:]
    if kind is Checksum.NULL:
        _verify_zeros(area, path, offset)
        return
    covered, of = block[:covered_size], _OF_CHUNK[kind]
    if covered_size <= chunk_bytes and of(covered) == int.from_bytes(area.tobytes(), "big"):
        return
    found = [of(covered[at : at + chunk_bytes]) for at in range(0, covered_size, chunk_bytes)]
    stored = np.frombuffer(area, ">u4").tolist()
    if found != stored:
        number = next(at for at, value in enumerate(found) if value != stored[at])
        raise CorruptError(
            "block checksum mismatch",
            path=path,
            offset=offset,
            chunk=number,
            expected=f"0x{stored[number]:08x}",
            found=f"0x{found[number]:08x}",
        )


def _verify_zeros(area: UInt8s, path: str, offset: int) -> None:
    """A type byte that was damaged into NULL must not switch the verification off."""
    if area.any():
        raise CorruptError(
            "block has checksums but its type says none",
            path=path,
            offset=offset,
            expected="zeros",
            found=area[:CHECKSUM_BYTES].tobytes().hex(),
        )
