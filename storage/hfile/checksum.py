"""Checksums of a block: one big-endian u32 for every `chunk_bytes` of header and payload.

    id  name    value of a chunk
     0  NULL    zero; the area is there all the same, and anything else in it is refused
     1  CRC32   zlib's
     2  CRC32C  Castagnoli's; what we write

The first chunk begins at the block's first byte; the last one may be short. The checksums
themselves are not covered.
"""

from __future__ import annotations

from enum import IntEnum

import google_crc32c
from isal import isal_zlib

from metatable.storage.errors import CorruptError

__all__ = ["CHECKSUM_BYTES", "Checksum", "checksums", "chunk_count", "verify_chunks"]

CHECKSUM_BYTES = 4


class Checksum(IntEnum):
    """A block header's `checksumType`."""

    NULL = 0
    CRC32 = 1
    CRC32C = 2

    def of(self, chunk: bytes) -> int:
        """The checksum of one chunk."""
        if self is Checksum.CRC32C:
            return int(google_crc32c.value(chunk))
        return int(isal_zlib.crc32(chunk)) if self is Checksum.CRC32 else 0


def chunk_count(size: int, chunk_bytes: int) -> int:
    """How many chunks cover `size` bytes."""
    return -(-size // chunk_bytes)


def checksums(kind: Checksum, covered: bytes, chunk_bytes: int) -> bytes:
    """The checksum area of a block whose header and payload are `covered`."""
    return b"".join(
        kind.of(covered[start : start + chunk_bytes]).to_bytes(CHECKSUM_BYTES, "big")
        for start in range(0, len(covered), chunk_bytes)
    )


def verify_chunks(
    kind: Checksum,
    covered: memoryview,
    area: memoryview,
    chunk_bytes: int,
    *,
    path: str,
    offset: int,
) -> None:
    """Raise CorruptError, naming the chunk, unless `area` holds the checksums of `covered`."""
    if kind is Checksum.NULL:
        _verify_zeros(area, path, offset)
        return
    for number, start in enumerate(range(0, len(covered), chunk_bytes)):
        found = kind.of(bytes(covered[start : start + chunk_bytes]))
        stored = area[number * CHECKSUM_BYTES : (number + 1) * CHECKSUM_BYTES]
        expected = int.from_bytes(stored, "big")
        if found != expected:
            raise CorruptError(
                "block checksum mismatch",
                path=path,
                offset=offset,
                chunk=number,
                expected=f"0x{expected:08x}",
                found=f"0x{found:08x}",
            )


def _verify_zeros(area: memoryview, path: str, offset: int) -> None:
    """A type byte that was damaged into NULL must not switch the verification off."""
    if any(area):
        found = bytes(area[:CHECKSUM_BYTES]).hex()
        raise CorruptError(
            "block has checksums but its type says none",
            path=path,
            offset=offset,
            expected="zeros",
            found=found,
        )
