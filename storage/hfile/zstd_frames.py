"""Zstd frames of many blocks, unpacked in one call.

One call per block costs a context of zstd and three times the interpreter's lock; one stream of
many frames takes two thirds of the time, and the payloads lie end to end where they are wanted.
What a stream does not tell is where a frame ends. So only frames whose size follows from their
first bytes are taken; other blocks are unpacked one by one (codec.py):

    size  field        (framing big-endian, the frame little-endian)
    4     payload      bytes of the whole group
    4     chunk        bytes of the frame that follows
    4     magic        28 b5 2f fd
    1     descriptor   0x20, 0x60, 0xa0: of 1, 2, 4 bytes of content size; no checksum, no window
    1..4  content      payload bytes, of 2 bytes less 256
    3     block        1 bit: the last; 2 bits: 0 stored, 2 compressed; 21 bits: what follows
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from metatable.storage.arrays import UInt8s

__all__ = ["are_frames", "unpack_frames"]

_GROUP = struct.Struct(">II")
_MAGIC = 0xFD2FB528
_HEADS = (
    (1 << 8, struct.Struct("<IBBHB"), 0x20, 0),
    ((1 << 16) + 256, struct.Struct("<IBHHB"), 0x60, 256),
    ((128 << 10) + 1, struct.Struct("<IBIHB"), 0xA0, 0),  # zstd makes several blocks of more
)
"""(payloads below so many bytes, magic to block, descriptor, what content is less)."""
_STORED, _COMPRESSED = 0b001, 0b101
"""The lowest bits of the last block's word."""


def are_frames(stored: Sequence[memoryview], sizes: Sequence[int]) -> bool:
    """Whether each of `stored` is such a frame, of a payload of this size."""
    return all(map(_is_frame, stored, sizes))


def unpack_frames(stored: Sequence[memoryview], out: UInt8s) -> bool:
    """Fill `out` with the payloads of what `are_frames`, end to end. False, with anything in it,
    where they are damaged: which of them it is, is told by who unpacks them one by one."""
    frames = b"".join([one[_GROUP.size :] for one in stored])
    try:
        with pa.CompressedInputStream(pa.BufferReader(frames), "zstd") as stream:
            return bool(stream.readinto(out) == len(out))
    except (OSError, ValueError):
        return False


def _is_frame(stored: memoryview, size: int) -> bool:
    for below, head, descriptor, less in _HEADS:
        if size < below:
            left = len(stored) - _GROUP.size - head.size
            if left < 0 or _GROUP.unpack_from(stored) != (size, left + head.size):
                return False
            *told, low, high = head.unpack_from(stored, _GROUP.size)
            block = (low | high << 16) ^ left << 3
            return told == [_MAGIC, descriptor, size - less] and block in (_STORED, _COMPRESSED)
    return False
