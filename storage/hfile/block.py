"""Block: a 33-byte header, a compressed payload, and the checksums of both.

    offset  size  field               (integers big-endian, signed)
         0     8  magic               which kind of block, see BlockType
         8     4  on_disk_size        payload as stored + checksums; the next block follows it
        12     4  payload_size        bytes after decompression
        16     8  previous_offset     the block before it with the same magic, or -1; not used
        24     1  checksum            0 NULL, 1 CRC32, 2 CRC32C
        25     4  chunk_bytes         so many bytes have one checksum
        29     4  covered_size        header + payload as stored, without the checksums

on_disk_size = covered_size - 33 + 4 * ceil(covered_size / chunk_bytes), or the block is
refused. Rules and history: FORMAT.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.checksum import (
    CHECKSUM_BYTES,
    Checksum,
    chunk_count,
    is_verified,
    verify_chunks,
)
from metatable.storage.hfile.codec import Codec, decompress

__all__ = [
    "CHUNK_BYTES",
    "HEADERS",
    "HEADER_SIZE",
    "BlockHeader",
    "BlockType",
    "Headers",
    "chunk_size",
    "chunk_sizes",
    "decode_block",
    "open_block",
]

_LAYOUT = struct.Struct(">8siiqBii")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
HEADER_SIZE = _LAYOUT.size

HEADERS = np.dtype(
    [
        ("magic", ">u8"),
        ("on_disk_size", ">i4"),
        ("payload_size", ">i4"),
        ("previous_offset", ">i8"),
        ("checksum", "u1"),
        ("chunk_bytes", ">i4"),
        ("covered_size", ">i4"),
    ]
)
"""A header as a row of an array, for many blocks at a time."""
Headers = npt.NDArray[Any]

CHUNK_BYTES = (1 << 20, 1 << 30)
"""Bytes of one checksum: what to try, in this order."""


class BlockType(Enum):
    """The kinds of blocks that Hudi's files have, by magic."""

    DATA = b"DATABLK*"
    LEAF_INDEX = b"IDXLEAF2"
    INTERMEDIATE_INDEX = b"IDXINTE2"
    ROOT_INDEX = b"IDXROOT2"
    META = b"METABLKc"
    FILE_INFO = b"FILEINF2"


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What a block says of itself."""

    kind: BlockType
    on_disk_size: int
    payload_size: int
    previous_offset: int
    checksum: Checksum
    chunk_bytes: int
    covered_size: int

    @property
    def size(self) -> int:
        """Bytes of the whole block in the file."""
        return HEADER_SIZE + self.on_disk_size

    def encode(self) -> bytes:
        """The 33 bytes."""
        return _LAYOUT.pack(
            self.kind.value,
            self.on_disk_size,
            self.payload_size,
            self.previous_offset,
            self.checksum,
            self.chunk_bytes,
            self.covered_size,
        )

    @classmethod
    def decode(cls, raw: bytes | memoryview, path: str, offset: int) -> BlockHeader:
        """Raises CorruptError unless the sizes agree with each other."""
        if len(raw) < HEADER_SIZE:
            raise _corrupt("block is too short", path, offset, HEADER_SIZE, len(raw))
        magic, on_disk, payload, previous, kind, chunk_bytes, covered = _LAYOUT.unpack_from(raw)
        if magic not in _KINDS:
            expected = [one.value for one in BlockType]
            raise _corrupt("unknown block magic", path, offset, expected, magic)
        if kind not in _CHECKSUMS:
            raise _corrupt("unknown checksum type", path, offset, list(_CHECKSUMS), kind)
        if chunk_bytes <= 0 or payload < 0 or covered < HEADER_SIZE:
            found = f"chunk_bytes={chunk_bytes} payload_size={payload} covered_size={covered}"
            raise _corrupt("block header has impossible sizes", path, offset, "positive", found)
        implied = covered - HEADER_SIZE + CHECKSUM_BYTES * chunk_count(covered, chunk_bytes)
        if on_disk != implied:
            raise _corrupt("block header contradicts itself", path, offset, implied, on_disk)
        return cls(
            _KINDS[magic], on_disk, payload, previous, _CHECKSUMS[kind], chunk_bytes, covered
        )


_KINDS = {one.value: one for one in BlockType}
_CHECKSUMS = {int(one): one for one in Checksum}


def decode_block(
    raw: bytes | memoryview,
    codec: Codec,
    path: str,
    offset: int,
    expected: Iterable[BlockType],
) -> tuple[BlockHeader, bytes]:
    """(header, payload) of the block that `raw` is, checksums verified. Raises CorruptError."""
    header, stored = open_block(raw, path, offset, expected)
    return header, decompress(codec, stored, header.payload_size, path=path, offset=offset)


def open_block(
    raw: bytes | memoryview, path: str, offset: int, expected: Iterable[BlockType]
) -> tuple[BlockHeader, memoryview]:
    """(header, payload as stored) of the block that `raw` is, checksums verified. Raises
    CorruptError."""
    view = memoryview(raw)
    header = BlockHeader.decode(view, path, offset)
    if header.kind not in expected:
        wanted = [one.name for one in expected]
        raise _corrupt("block is of another kind", path, offset, wanted, header.kind.name)
    if header.size != len(view):
        raise _corrupt(
            "block has another size than its index says", path, offset, len(view), header.size
        )
    covered, kind, chunk_bytes = header.covered_size, header.checksum, header.chunk_bytes
    if covered > chunk_bytes or not is_verified(kind, view, covered):
        block = np.frombuffer(view, np.uint8)
        verify_chunks(kind, block, covered, chunk_bytes, path=path, offset=offset)
    return header, view[HEADER_SIZE:covered]


def chunk_sizes(
    covered: Int64s, last_entry_sizes: Int64s | None, candidates: Sequence[int] = CHUNK_BYTES
) -> Int64s:
    """For blocks of so many covered bytes the first chunk size that every reader survives, or
    else the last of the candidates.

    hudi-io drops entries that begin in a data block's last 4 * chunks bytes, and hudi-rs
    counts the chunks over the checksums too: neither may matter (FORMAT.md, "Two hazards").
    """
    chosen = np.full(len(covered), candidates[-1], np.int64)
    for chunk_bytes in reversed(candidates):
        count = chunk_count(covered, chunk_bytes)
        area = CHECKSUM_BYTES * count
        is_safe = chunk_count(covered + area, chunk_bytes) == count
        if last_entry_sizes is not None:
            is_safe &= area < last_entry_sizes
        chosen[is_safe] = chunk_bytes
    return chosen


def chunk_size(covered: int, candidates: Sequence[int] = CHUNK_BYTES) -> int:
    """The bytes of one checksum that suit a block without entries, as `chunk_sizes` finds them."""
    for chunk_bytes in candidates:
        count = chunk_count(covered, chunk_bytes)
        if chunk_count(covered + CHECKSUM_BYTES * count, chunk_bytes) == count:
            return chunk_bytes
    return candidates[-1]


def _corrupt(what: str, path: str, offset: int, expected: object, found: object) -> CorruptError:
    return CorruptError(what, path=path, offset=offset, expected=expected, found=found)
