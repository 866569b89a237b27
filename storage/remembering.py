"""Stored files that remember what was read of them: who looks at what pyarrow has just decoded
need not read them once more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from metatable.storage.store import Store, StoreFile

__all__ = ["RememberingFile"]


class RememberingFile(StoreFile):
    """As `StoreFile`; holds what was read since the last `forget`."""

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        super().__init__(store, path, size_bytes)
        self._pieces: dict[int, bytes] = {}

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        body = super().read(size)
        if len(body) > len(self._pieces.get(start, b"")):
            self._pieces[start] = body
        return body

    def again(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of these (offset, size); those that are not remembered are read."""
        starts = sorted(self._pieces)
        return [self._piece(starts, *one) for one in spans]

    def _piece(self, starts: Sequence[int], offset: int, size: int) -> memoryview:
        place = bisect_right(starts, offset) - 1
        begin = starts[place] if place >= 0 else 0
        held = memoryview(self._pieces.get(begin, b""))[offset - begin :][:size]
        if len(held) == size:
            return held
        self.seek(offset)
        return memoryview(self.read(size))

    def forget(self) -> None:
        """What was read until now."""
        self._pieces.clear()
