"""Records, or parts of them, at even distances: what all have in one place is looked at as a column
of numbers, for a fifth of the price of going to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import pieces_at
from metatable.storage.hfile.reading.data_blocks import Payloads

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Pieces of one size at even distances: some, or some in each of several blocks."""

    raw: UInt8s
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of_blocks(cls, payloads: Payloads, stride: int) -> Grid | None:
        """The grid of these records; None where there are none, or not at such distances."""
        starts, sizes = payloads.starts, payloads.ends - payloads.starts
        if not sizes.any() or (sizes % stride).any():
            return None
        first, steps = int(starts[0]), np.diff(starts)
        if (steps == sizes[:-1]).all():
            return cls(payloads.raw, first, (int(sizes.sum()) // stride,), (stride,))
        if (sizes == sizes[0]).all() and (steps == steps[0]).all():
            shape = len(starts), int(sizes[0]) // stride
            return cls(payloads.raw, first, shape, (int(steps[0]), stride))
        return None

    @classmethod
    def of_copies(cls, raw: UInt8s, starts: Int64s, width: int) -> Grid | None:
        """Copies of so many bytes from each of these places on, which lie within `raw`. None where
        they would lie in each other: places may be a file's word, and so may be as many as fill the
        memory."""
        if not len(starts) or width * len(starts) > len(raw):
            return None
        copied = pieces_at(raw, starts, width).view(np.uint8)
        return cls(copied, 0, (len(starts),), (width,))

    def pieces(self, kind: npt.DTypeLike, at: int) -> npt.NDArray[Any]:
        """What is `at` of every one, a view."""
        return np.ndarray(self.shape, kind, self.raw, self.first + at, self.strides)

    def repeats(self, at: int, told: bytes) -> bool:
        """Whether `told` stands at `at` of every one: words are compared, not bytes."""
        for word in (8, 4, 2, 1):
            while len(told) >= word:
                [wanted] = np.frombuffer(told, f"u{word}", 1)
                found = self.pieces(f"u{word}", at)
                if found.flat[found.size // 2] != wanted or (found != wanted).any():
                    return False
                at, told = at + word, told[word:]
        return True
