"""Directory: buckets by extendible hashing (RFC-42).

The directory has 2^d places, d its global depth; the first d bits of a hash (of 31) name one, and
each place points to a bucket. A bucket of local depth l is what 2^(d-l) places beside each other
point to: so it is a range of hashes whose first l bits are the same, and a ring of such ranges says
all that the directory does. A split cuts a bucket by one bit more. Where its local depth was the
global one, that doubles the directory, else places are pointed elsewhere. Two buckets of one
depth that differ in their last bit are merged again; then the directory may halve.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from metatable.data.file_groups.hashing_metadata import LAST_HASH
from metatable.index.bucket.ring import (
    SPACE,
    Ring,
)
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError

__all__ = ["Directory"]

HASH_BITS = LAST_HASH.bit_length()


class Directory(Ring):
    """A ring whose ranges are told by the first bits of a hash."""

    __slots__ = ()
    engine: ClassVar[str] = "extendible_hashing"

    @classmethod
    def _first_values(cls, count: int) -> tuple[int, ...]:
        return tuple(SPACE // count * (one + 1) - 1 for one in range(count))

    @property
    def local_depths(self) -> Int64s:
        """How many bits of a hash each bucket goes by."""
        return HASH_BITS - np.log2(self.widths).astype(np.int64)

    @property
    def depth(self) -> int:
        """The global depth."""
        return int(self.local_depths.max())

    def places(self) -> Int64s:
        """The directory: the bucket that each of the 2^depth places points to."""
        return np.repeat(np.arange(len(self.nodes)), 1 << (self.depth - self.local_depths))

    def may_split(self, number: int, at: int) -> bool:
        return at == self.middle(number)

    def next_of(self, number: int) -> int | None:
        """The bucket that differs in the last bit alone, if this one has 0 there."""
        if number + 1 == len(self.nodes):
            return None
        width, other = self.widths[number : number + 2].tolist()
        is_low = (int(self.values[number]) + 1) // width % 2 == 1
        return number + 1 if is_low and width == other else None

    def check_invariants(self) -> None:
        super().check_invariants()
        widths = self.widths
        by_bits = (widths & (widths - 1) == 0) & ((self.values + 1) % widths == 0)
        if not by_bits.all():
            raise CorruptError(
                "a bucket's range is not told by the first bits of a hash",
                partition_path=self.metadata.partition_path,
                found=self.values[~by_bits][:5].tolist(),
            )
