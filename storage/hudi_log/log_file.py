"""LogFile: the blocks of a log file, and whether its writer died in the last of them.

Blocks lie back to back. Bytes at the end that begin as a block and are not one whole are what a
dead writer leaves, or a file system that lost its last write: Hudi's readers pass over them, and
`torn_at` tells them. A whole block behind such bytes proves that they are damage, not an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metatable.storage.errors import CorruptError
from metatable.storage.hudi_log.block import MAGIC, TOTAL_SIZE, LogBlock, size_at, total_size

__all__ = ["LogFile"]


@dataclass(frozen=True, slots=True)
class LogFile:
    """`torn_at`: where the bytes of a block begin that was never finished, or None."""

    blocks: tuple[LogBlock, ...]
    torn_at: int | None = None

    @staticmethod
    def encode(blocks: Sequence[LogBlock]) -> bytes:
        """The bytes of a file of these blocks."""
        return b"".join(block.encode() for block in blocks)

    @classmethod
    def decode(cls, body: bytes | memoryview, path: str) -> LogFile:
        """All blocks; their contents are views of `body`. Raises CorruptError, UpgradeError."""
        raw = memoryview(body)
        blocks: list[LogBlock] = []
        at = 0
        while at < len(raw):
            size = size_at(raw, at, path)
            if size is None:
                _check_nothing_follows(raw, at, path)
                return cls(tuple(blocks), at)
            blocks.append(LogBlock.decode(raw[at : at + size], path, at))
            at += size
        return cls(tuple(blocks))


def _check_nothing_follows(raw: memoryview, at: int, path: str) -> None:
    """Raise CorruptError if there is a whole block behind the place `at`."""
    rest = bytes(raw[at:])
    place = rest.find(MAGIC, 1)
    while place >= 0:
        if _is_block(raw, at + place, path):
            raise CorruptError(
                "log block runs over the one behind it",
                path=path,
                offset=at,
                expected=f"an end before {at + place}",
                found=f"one behind {len(raw)}",
            )
        place = rest.find(MAGIC, place + 1)


def _is_block(raw: memoryview, at: int, path: str) -> bool:
    """By its two sizes alone, so that a search costs no more than the bytes searched."""
    try:
        size = size_at(raw, at, path)
    except CorruptError:
        return False
    return size is not None and total_size(raw[at : at + size]) == size - TOTAL_SIZE
