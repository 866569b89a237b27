"""A file in memory that stays the pieces it was written in.

What is put together from parts of other files is not copied to lie in one place: each piece is the
memory that it was given as, and is read from there when the file is stored.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from typing import IO, Any

__all__ = ["Pieces"]


class Pieces(io.RawIOBase):
    """Written from begin to end, then read. Nobody may change what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[memoryview] = []
        self._starts: list[int] = []
        self._size = 0
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Put it behind all that is there."""
        piece = memoryview(data).cast("B")
        if len(piece):
            self._pieces.append(piece)
            self._starts.append(self._size)
            self._size += len(piece)
        self._place = self._size
        return len(piece)

    def copy_to(self, sink: IO[bytes]) -> None:
        """All of it is written to `sink`, each piece as it lies."""
        for piece in self._pieces:
            sink.write(piece)

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._place, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        parts: list[memoryview] = []
        at = bisect_right(self._starts, self._place) - 1
        while wanted:
            start = self._place - self._starts[at]
            parts.append(self._pieces[at][start : start + wanted])
            self._place += len(parts[-1])
            wanted -= len(parts[-1])
            at += 1
        return b"".join(parts)

    def readall(self) -> bytes:
        return self.read()
