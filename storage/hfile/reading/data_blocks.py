"""Data blocks, many at a time: headers checked as columns, checksums verified, payloads made.

What one block costs in Python is a checksum call and a decompression call; both let other
threads run or are short. A block that fails any check is looked at again alone, so that the
message says what is wrong with it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import google_crc32c
import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import Voids, at_every_byte, fresh
from metatable.storage.hfile.block import (
    HEADER_SIZE,
    HEADERS,
    BlockType,
    Headers,
    decode_block,
)
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, Checksum, crc32c_each, verify_chunks
from metatable.storage.hfile.codec import Codec, decompress, decompress_into
from metatable.storage.hfile.reading.fetch import Stored
from metatable.storage.hfile.zstd_frames import are_frames, unpack_frames
from metatable.storage.hfile.zstd_records import unpack_blocks

__all__ = [
    "Payloads",
    "bodies",
    "columns_of_blocks",
    "decode_blocks",
    "decode_together",
    "payloads_in_place",
    "read_headers",
    "verify",
]

_DATA = (BlockType.DATA,)
ROOM_BYTES = 8 << 20
"""What a thread keeps to join blocks in: a group, with room for a large last block."""
_here = threading.local()
WIDEST_BYTES = 1 << 30
"""Places in what is used as one piece must fit into 32 bits: Arrow's offsets have no more."""

_MAGIC = int.from_bytes(BlockType.DATA.value, "big")


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads of data blocks in one array: block i is `raw[starts[i]:ends[i]]`.

    There may be bytes between them that are no payload. Both arrays are int64.
    """

    raw: UInt8s
    starts: Int64s
    ends: Int64s

    @classmethod
    def joined(cls, parts: Sequence[bytes | UInt8s], *, lasting: bool) -> Payloads:
        """Laid end to end; copied, unless there is only one.

        If they need not be `lasting`, they are good until this thread joins others.
        """
        arrays = [np.frombuffer(part, np.uint8) for part in parts]
        sizes = [len(part) for part in parts]
        if len(parts) == 1:
            return cls.of(arrays[0], sizes)
        room = _room(sum(sizes), lasting=lasting)  # unlike bytes.join, this lets other threads run
        return cls.of(np.concatenate(arrays, out=room), sizes)

    @classmethod
    def of(cls, raw: UInt8s, sizes: Sequence[int]) -> Payloads:
        """Payloads of these sizes that lie end to end."""
        bounds = np.array([0, *accumulate(sizes)], np.int64)
        return cls(raw, bounds[:-1], bounds[1:])

    def parts(self) -> list[UInt8s]:
        """Each payload."""
        bounds = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.raw[start:end] for start, end in bounds]


def _room(size: int, *, lasting: bool) -> UInt8s:
    """Memory of this thread's own, unless it is to last: fresh memory for every group costs more
    than filling it."""
    if lasting or size > ROOM_BYTES:
        return fresh(size)
    room: UInt8s | None = getattr(_here, "room", None)
    if room is None:
        room = _here.room = np.empty(ROOM_BYTES, np.uint8)
    return room[:size]


def decode_blocks(
    stored: Stored, headers: Headers, codec: Codec, path: str
) -> Sequence[bytes | UInt8s]:
    """The payload of each data block, verified. Raises CorruptError.

    What is not compressed is not copied either: it stays where it was read to.
    """
    verify(stored, headers, path)
    offsets = stored.offsets.tolist()
    packed, sizes = bodies(stored.blocks(), headers), headers["payload_size"].tolist()
    if codec is Codec.NONE:
        return packed
    return [
        decompress(codec, body, size, path=path, offset=offset)
        for body, size, offset in zip(packed, sizes, offsets, strict=True)
    ]


def decode_together(
    stored: Stored, headers: Headers, codec: Codec, path: str, *, lasting: bool
) -> Payloads | None:
    """The payloads of data blocks, verified, in memory of this thread, unless they are to be
    `lasting` (as with `Payloads.joined`); None where `decode_blocks` is to make them. Raises
    CorruptError."""
    if codec is Codec.NONE or len(stored) < 2:
        return None
    sizes: list[int] = headers["payload_size"].tolist()
    verify(stored, headers, path)
    packed = [body.data for body in bodies(stored.blocks(), headers)]
    room = _room(sum(sizes), lasting=lasting)
    is_made = codec is Codec.ZSTD and are_frames(packed, sizes) and unpack_frames(packed, room)
    if not is_made:
        decompress_into(codec, packed, sizes, room, path=path, offsets=stored.offsets.tolist())
    return Payloads.of(room, sizes)


def columns_of_blocks(
    stored: Stored, headers: Headers, codec: Codec, path: str, key_size: int, value_size: int
) -> tuple[Voids, Voids] | None:
    """The keys and the values of data blocks, verified, whose records are of these sizes, where
    they can be taken from what is stored; None where they have to be decoded. Raises
    CorruptError."""
    if codec is not Codec.ZSTD or not len(stored):
        return None
    made = unpack_blocks(bodies(stored.blocks(), headers), key_size, value_size)
    if made is not None:
        verify(stored, headers, path)
    return made


def bodies(blocks: list[UInt8s], headers: Headers) -> list[UInt8s]:
    """Each block without its header and its checksums."""
    covered = headers["covered_size"].tolist()
    return [block[HEADER_SIZE:end] for block, end in zip(blocks, covered, strict=True)]


def payloads_in_place(
    stored: Stored, headers: Headers, path: str, verified: set[int] | None = None
) -> Payloads | None:
    """The payloads of blocks that are not compressed, where they lie; None if they are not in
    one piece, or too far apart.

    Blocks whose offsets are in `verified` are not verified again, the others are added to it.
    """
    raw = stored.one_piece()
    if raw is None or int(stored.starts[-1] - stored.starts[0]) > WIDEST_BYTES:
        return None
    offsets = stored.offsets.tolist()
    if verified is None or not verified.issuperset(offsets):
        verify(stored, headers, path)
        if verified is not None:
            verified.update(offsets)
    first = int(stored.starts[0])
    starts = stored.starts - first
    last = int(starts[-1] + stored.sizes[-1])
    ends = starts + headers["covered_size"]
    return Payloads(raw[first : first + last], starts + HEADER_SIZE, ends)


def read_headers(stored: Stored, codec: Codec, path: str) -> Headers:
    """The headers as a column, in agreement with themselves. Raises CorruptError."""
    if not len(stored):
        return np.empty(0, HEADERS)
    raw = stored.one_piece()
    if raw is None:
        table = np.stack([block[:HEADER_SIZE] for block in stored.blocks()])
    else:
        table = raw[stored.starts[:, None] + np.arange(HEADER_SIZE)]
    headers = np.ascontiguousarray(table).view(HEADERS).reshape(-1)
    chunk = headers["chunk_bytes"].astype(np.int64)
    covered = headers["covered_size"].astype(np.int64)
    chunks = -(-covered // np.maximum(chunk, 1))
    on_disk = headers["on_disk_size"]
    sound = (
        (headers["magic"] == _MAGIC)
        & (headers["checksum"] < len(Checksum))
        & (chunk > 0)
        & (headers["payload_size"] >= 0)
        & (covered >= HEADER_SIZE)
        & (on_disk == covered - HEADER_SIZE + CHECKSUM_BYTES * chunks)
        & (on_disk == stored.sizes - HEADER_SIZE)
    )
    if codec is Codec.NONE:
        sound &= headers["payload_size"] == covered - HEADER_SIZE
    if not sound.all():
        wrong = int(np.argmin(sound))
        block = stored.slice(wrong, wrong + 1).blocks()[0]
        decode_block(block.data, codec, path, int(stored.offsets[wrong]), _DATA)
        raise AssertionError("a block passed alone that failed among others")
    return headers


def verify(stored: Stored, headers: Headers, path: str) -> None:
    """Hold blocks against their checksums. Raises CorruptError."""
    covered = headers["covered_size"].astype(np.int64)
    is_usual = (headers["checksum"] == Checksum.CRC32C) & (covered <= headers["chunk_bytes"])
    if is_usual.all() and _have_one_sum(stored, covered):
        return
    blocks, ends = stored.blocks(), covered.tolist()
    if (headers["checksum"] == Checksum.NULL).all():  # zeros stand for them
        areas = b"".join([block[end:].data for block, end in zip(blocks, ends, strict=True)])
        if areas.count(0) == len(areas):
            return
    kinds, chunks = headers["checksum"].tolist(), headers["chunk_bytes"].tolist()
    for block, offset, kind, end, chunk in zip(
        blocks, stored.offsets.tolist(), kinds, ends, chunks, strict=True
    ):
        verify_chunks(Checksum(kind), block, end, chunk, path=path, offset=offset)


def _have_one_sum(stored: Stored, covered: Int64s) -> bool:
    """Whether each block ends with the CRC-32C of what it covers."""
    raw = stored.one_piece()
    if raw is None:
        ends = list(zip(stored.blocks(), covered.tolist(), strict=True))
        told = np.frombuffer(b"".join([block[end:].data for block, end in ends]), ">u4")
        return bool(told.tolist() == [google_crc32c.value(block[:end]) for block, end in ends])
    told = at_every_byte(raw, ">u4")[stored.starts + covered]
    return bool(told.tolist() == crc32c_each(raw, stored.starts, covered))
