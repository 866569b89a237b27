"""Stored blocks as they come from a file: neighbours in one piece, cut without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import fresh
from metatable.storage.hfile.block import BlockType, decode_block
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.store import Store

__all__ = ["Stored", "cut", "fetch", "fetch_one", "meta_payload"]

LARGE_BYTES = 1 << 20
"""So much, of a file that is near by, is read into memory that waits for the next part."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Some blocks, as they lie in the file.

    Block i is `pieces[piece_of[i]][starts[i]:starts[i] + sizes[i]]` and was at `offsets[i]`.
    """

    pieces: list[UInt8s]
    piece_of: Int64s
    starts: Int64s
    offsets: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> Stored:
        """Blocks `start` to `stop` of these."""
        part = slice(start, stop)
        return Stored(
            self.pieces,
            self.piece_of[part],
            self.starts[part],
            self.offsets[part],
            self.sizes[part],
        )

    def blocks(self) -> list[UInt8s]:
        """Each block's bytes."""
        pieces = self.pieces
        return [
            pieces[piece][start : start + size]
            for piece, start, size in zip(
                self.piece_of.tolist(), self.starts.tolist(), self.sizes.tolist(), strict=True
            )
        ]

    def one_piece(self) -> UInt8s | None:
        """The bytes that hold all of the blocks, if they came in one piece."""
        if not len(self) or self.piece_of[0] != self.piece_of[-1]:
            return None
        return self.pieces[int(self.piece_of[0])]


def fetch(
    store: Store, opened: OpenedHFile, offsets: Int64s, sizes: Int64s, *, as_mapped: bool = True
) -> Stored:
    """The blocks at these ascending places of the file; runs of neighbours are one range.

    Unless `as_mapped` they are read even where the file is mapped.
    """
    if opened.whole.size and (as_mapped or not opened.mapped):
        if opened.mapped:
            store.count_mapped(int(sizes.sum()))
        none = np.zeros(len(offsets), np.int64)
        return Stored([opened.whole], none, offsets, offsets, sizes)
    opens = np.ones(len(offsets), bool)
    np.not_equal(offsets[1:], offsets[:-1] + sizes[:-1], out=opens[1:])
    firsts = np.flatnonzero(opens)
    lengths = np.add.reduceat(sizes, firsts) if len(firsts) else firsts
    ranges = list(zip(offsets[firsts].tolist(), lengths.tolist(), strict=True))
    pieces = _pieces(store, opened.path, ranges)
    piece_of = np.cumsum(opens) - 1
    return Stored(pieces, piece_of, offsets - offsets[firsts][piece_of], offsets, sizes)


def _pieces(store: Store, path: str, ranges: Sequence[tuple[int, int]]) -> list[UInt8s]:
    if len(ranges) == 1 and ranges[0][1] >= LARGE_BYTES and not store.is_distant:
        room = fresh(ranges[0][1])
        store.read_into(path, ranges, room.data, [0])
        return [room]
    return [np.frombuffer(one, np.uint8) for one in store.read(path, ranges)]


def fetch_one(store: Store, opened: OpenedHFile, offset: int, size: int) -> bytes | memoryview:
    """Fetch one block."""
    if not opened.whole.size:
        return store.read_one(opened.path, offset, size)
    if opened.mapped:
        store.count_mapped(size)
    return opened.whole[offset : offset + size].data


def meta_payload(store: Store, opened: OpenedHFile, place: tuple[int, int]) -> bytes:
    """The content of the META block at (offset, size). Raises CorruptError."""
    raw = fetch_one(store, opened, *place)
    codec = opened.trailer.compression_codec
    return decode_block(raw, codec, opened.path, place[0], (BlockType.META,))[1]


def cut(sizes: Int64s, limit: int) -> list[tuple[int, int]]:
    """(start, stop) of consecutive parts of about `limit` bytes, one block at least."""
    ends = np.cumsum(sizes)
    parts: list[tuple[int, int]] = []
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + limit, "right")), start + 1)
        parts.append((start, stop))
        start = stop
    return parts
