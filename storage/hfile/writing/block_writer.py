"""Blocks into a file: where each comes to lie, what links and protects it, and the sums.

Only here is known where the file ends so far; a block's header needs it, and its checksums
cover the header. Blocks come as they were packed, a few at a time: their headers are made as a
column, and they are written as one piece, unless they are large: then from where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import google_crc32c
import numpy as np

from metatable.storage.arrays import Int64s
from metatable.storage.errors import UsageError
from metatable.storage.hfile.block import (
    HEADER_SIZE,
    HEADERS,
    BlockHeader,
    BlockType,
    Headers,
    chunk_size,
    chunk_sizes,
)
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, Checksum, chunk_count, chunk_sums
from metatable.storage.hfile.codec import Codec, compress
from metatable.storage.hfile.forms import Form
from metatable.storage.hfile.writing.runs import MAX_PAYLOAD

__all__ = ["AROUND_BYTES", "BlockWriter", "Stored"]

Stored = bytes | memoryview
"""A payload as it lies in its block."""

AROUND_BYTES = HEADER_SIZE + CHECKSUM_BYTES
"""Bytes of a block with one checksum, beside its payload."""

JOINED_BYTES = 4 << 20
"""To copy so much, a run and its headers, costs less than two calls of the system a block."""


class BlockWriter:
    """Appends blocks to `file`."""

    def __init__(self, file: IO[bytes], codec: Codec, form: Form) -> None:
        self._file = file
        self._codec = codec
        self._form = form
        self._last: dict[BlockType, int] = {}
        self.offset = 0
        self.checksum = 0
        """CRC32C of the file so far."""
        self.unpacked_bytes = 0
        """Headers and payloads of all blocks so far."""

    def emit(self, kind: BlockType, payload: bytes) -> tuple[int, int]:
        """Compress and write a block; (its offset, its size). Raises UsageError if too large."""
        if len(payload) > MAX_PAYLOAD:
            name, expected = kind.name, f"at most {MAX_PAYLOAD} bytes"
            raise UsageError(f"{name} block is too large", expected=expected, found=len(payload))
        stored = compress(self._codec, payload, like_java=self._form.java_deflate)
        offset, covered, form = self.offset, HEADER_SIZE + len(stored), self._form
        chunk = chunk_size(covered, form.chunk_bytes)
        size = covered + CHECKSUM_BYTES * chunk_count(covered, chunk)
        told = size - HEADER_SIZE, len(payload), self._link(kind)
        header = BlockHeader(kind, *told, form.checksum, chunk, covered).encode()
        sums = chunk_sums(form.checksum, header, np.frombuffer(stored, np.uint8), chunk)
        self._last[kind] = offset
        self.unpacked_bytes += HEADER_SIZE + len(payload)
        self._write_parts([header, stored, sums])
        return offset, size

    def emit_stored(
        self,
        kind: BlockType,
        stored: Sequence[Stored],
        payload_sizes: Int64s,
        last_entry_sizes: Int64s | None = None,
        room: memoryview | None = None,
    ) -> tuple[Int64s, Int64s]:
        """Write blocks whose payloads are compressed; (their offsets, their sizes). `room`: what
        the first of them lie in, one behind the other, with room for one checksum each."""
        headers = np.empty(len(stored), HEADERS)
        covered = HEADER_SIZE + np.array([len(one) for one in stored], np.int64)
        chunks = chunk_sizes(covered, last_entry_sizes, self._form.chunk_bytes)
        sizes = covered + CHECKSUM_BYTES * chunk_count(covered, chunks)
        offsets = self.offset + np.cumsum(sizes) - sizes
        headers["magic"] = int.from_bytes(kind.value, "big")
        headers["on_disk_size"] = sizes - HEADER_SIZE
        headers["payload_size"] = payload_sizes
        headers["previous_offset"] = self._links(kind, offsets)
        headers["checksum"] = self._form.checksum
        headers["chunk_bytes"] = chunks
        headers["covered_size"] = covered
        self._last[kind] = int(offsets[-1])
        self.unpacked_bytes += HEADER_SIZE * len(stored) + int(payload_sizes.sum())
        laid = self._laid(headers, sizes, room or memoryview(b""))
        if laid < len(stored):
            self._write_parts(self._parts(headers[laid:], stored[laid:]))
        return offsets, sizes

    def _laid(self, headers: Headers, sizes: Int64s, room: memoryview) -> int:
        """Write the blocks whose payloads lie in `room`, completed there; how many these are."""
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, len(room), "right"))
        covered = headers["covered_size"][:count].astype(np.int64)
        has_room = (
            self._form.checksum is Checksum.CRC32C
            and (sizes[:count] == covered + CHECKSUM_BYTES).all()
        )
        if not count or not has_room:
            return 0
        starts = ends[:count] - sizes[:count]
        raw = np.frombuffer(room, np.uint8)[: int(ends[count - 1])]
        told = headers[:count].view(np.uint8).reshape(count, HEADER_SIZE)
        raw[starts[:, None] + np.arange(HEADER_SIZE)] = told
        bounds = zip(starts.tolist(), (starts + covered).tolist(), strict=True)
        sums = np.array([google_crc32c.value(raw[start:end]) for start, end in bounds], ">u4")
        behind = (starts + covered)[:, None] + np.arange(CHECKSUM_BYTES)
        raw[behind] = sums.view(np.uint8).reshape(count, CHECKSUM_BYTES)
        self.write(raw.data)
        return count

    def write(self, body: bytes | memoryview) -> None:
        """Append bytes that are no block."""
        self._file.write(body)
        self.checksum = google_crc32c.extend(self.checksum, np.frombuffer(body, np.uint8))
        self.offset += len(body)

    def _parts(self, headers: Headers, stored: Sequence[Stored]) -> list[Stored]:
        """Header, payload and checksums of each block."""
        parts: list[Stored] = []
        kind, raw = self._form.checksum, headers.tobytes()
        for number, (body, chunk) in enumerate(
            zip(stored, headers["chunk_bytes"].tolist(), strict=True)
        ):
            header = raw[HEADER_SIZE * number :][:HEADER_SIZE]
            view = np.frombuffer(body, np.uint8)
            parts += (header, body, chunk_sums(kind, header, view, chunk))
        return parts

    def _write_parts(self, parts: list[Stored]) -> None:
        if sum(map(len, parts)) <= JOINED_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            self.write(part)

    def _link(self, kind: BlockType) -> int:
        """The `previous_offset` of a block that comes now."""
        if self._form.links_blocks or kind not in self._last:
            return self._last.get(kind, -1)
        return self.offset if kind is BlockType.DATA else -1

    def _links(self, kind: BlockType, offsets: Int64s) -> Int64s:
        """The `previous_offset` of blocks that come to lie at these places."""
        first = kind not in self._last
        if not self._form.links_blocks:
            links = offsets.copy() if kind is BlockType.DATA else np.full(len(offsets), -1)
            links[:first] = -1
            return links
        return np.concatenate(([self._last.get(kind, -1)], offsets[:-1]))
