"""Blocks into a file: where each comes to lie, what links and protects it, and the sums.

Only here is known where the file ends so far; a block's header needs it, and its checksums
cover the header. Large payloads are written from where they are.
"""

from __future__ import annotations

from typing import IO

import google_crc32c
import numpy as np

from metatable.storage.errors import UsageError
from metatable.storage.hfile.block import HEADER_SIZE, BlockType, seal
from metatable.storage.hfile.codec import Codec, compress
from metatable.storage.hfile.forms import Form
from metatable.storage.hfile.writing.runs import MAX_PAYLOAD

__all__ = ["BlockWriter"]


JOINED_BYTES = 1 << 20
"""To copy so much costs less than two more calls of the system."""


class BlockWriter:
    """Appends blocks to `file`."""

    def __init__(self, file: IO[bytes], codec: Codec, form: Form) -> None:
        self._file = file
        self._codec = codec
        self._form = form
        self._chunks = form.chunk_bytes
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
        return self.emit_stored(kind, stored, len(payload))

    def emit_stored(
        self,
        kind: BlockType,
        stored: bytes | memoryview,
        payload_size: int,
        last_entry_size: int | None = None,
    ) -> tuple[int, int]:
        """Write a block whose payload is compressed; (its offset, its size)."""
        offset = self.offset
        header, area = seal(
            kind,
            stored,
            payload_size,
            previous_offset=self._link(kind),
            checksum=self._form.checksum,
            chunk_bytes=self._chunks,
            last_entry_size=last_entry_size,
        )
        self._last[kind] = offset
        self.unpacked_bytes += HEADER_SIZE + payload_size
        if len(stored) <= JOINED_BYTES:
            self.write(b"".join((header, stored, area)))
        else:
            for part in (header, stored, area):
                self.write(part)
        return offset, self.offset - offset

    def write(self, body: bytes | memoryview) -> None:
        """Append bytes that are no block."""
        self._file.write(body)
        self.checksum = google_crc32c.extend(self.checksum, np.frombuffer(body, np.uint8))
        self.offset += len(body)

    def _link(self, kind: BlockType) -> int:
        if self._form.links_blocks:
            return self._last.get(kind, -1)
        return self.offset if kind is BlockType.DATA and kind in self._last else -1
