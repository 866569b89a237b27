"""Checksums of a block: one big-endian u32 for every `chunk_bytes` of header and payload.

    id  name    value of a chunk
     0  NULL    zero; the area is there all the same, and anything else in it is refused
     1  CRC32   zlib's
     2  CRC32C  Castagnoli's; what we write

The first chunk begins at the block's first byte; the last one may be short. The checksums
themselves are not covered.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import google_crc32c
import numpy as np
from isal import isal_zlib

from metatable.storage.errors import CorruptError
from metatable.storage.hfile.columns import UInt8s

__all__ = ["CHECKSUM_BYTES", "Checksum", "checksums", "chunk_count", "verify_chunks"]

CHECKSUM_BYTES = 4


class Checksum(IntEnum):
    """A block header's `checksumType`."""

    NULL = 0
    CRC32 = 1
    CRC32C = 2

    def of(self, chunk: bytes | UInt8s) -> int:
        """The checksum of one chunk (no memoryview: google_crc32c would not take it)."""
        return _FUNCTIONS[self](chunk)


def _none(chunk: bytes | UInt8s) -> int:
    return 0


_FUNCTIONS: dict[Checksum, Callable[[bytes | UInt8s], int]] = {
    Checksum.NULL: _none,
    Checksum.CRC32: isal_zlib.crc32,
    Checksum.CRC32C: google_crc32c.value,
}


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
    kind: Checksum, block: UInt8s, covered_size: int, chunk_bytes: int, *, path: str, offset: int
) -> None:
    """Raise CorruptError, naming the chunk, unless a block ends with its checksums.

    `block` is uint8 of shape (n,); its first `covered_size` bytes are covered.
    """
    area = block[covered_size:]
    if kind is Checksum.NULL:
        _verify_zeros(area, path, offset)
        return
    covered, of = block[:covered_size], _FUNCTIONS[kind]
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
