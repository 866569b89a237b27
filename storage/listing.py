"""What a listing tells of one file."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Listed"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A file: path below the store's root, size in bytes, time of writing in epoch seconds."""

    path: str
    size_bytes: int
    modified: float

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]
