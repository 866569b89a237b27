"""Kept blocks: a few keys of several HFiles, looked for in blocks that wait in the cache.

Asking a file takes some fifty small steps, whatever is asked of it. Where the blocks of files open
with keys that ascend from file to file, the first eight bytes of these are one table, in which all
keys find their block by one search. The table is kept; blocks are not read here. A key whose block
is not kept, or opens with the same eight bytes, is not answered, and neither are the others of its
file: `HFileReader.find_alike` is the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt64s
from metatable.storage.byte_columns import Voids, words_of
from metatable.storage.cache import blocks as block_cache
from metatable.storage.hfile.block_index import BlockIndex
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading.alike import Alike
from metatable.storage.hfile.reading.file_filter import META as FILTER
from metatable.storage.hfile.reading.packed import PACKED

__all__ = ["MOST_BLOCKS", "KeptBlocks"]

MOST_BLOCKS = 64 << 10
"""How many blocks the table has at most, of all files: it takes sixteen bytes for each."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptBlocks:
    """The blocks of some files, one file after the other."""

    files: tuple[tuple[str, str], ...]
    """Their identities (`HFileReader.identity`)."""
    sizes: tuple[int, int]
    """Bytes of every key, and of every value."""
    borders: Int64s
    """File number i has the blocks from `borders[i]` up to `borders[i + 1]`."""
    words: UInt64s
    """The first eight bytes of the key that each block opens with, as a number; ascending."""
    offsets: Int64s
    """Where each block is in its file."""

    @classmethod
    def of(cls, readers: Sequence[HFileReader]) -> KeptBlocks | None:
        """The blocks of files whose keys ascend from file to file; None where they do not, or where
        one of the files is not to be searched so."""
        sizes = readers[0].opened.record_sizes
        if sizes is None or not Alike(*sizes, "").can_be_searched:
            return None
        indexes = [_index_of(one, sizes) for one in readers]
        known = [one for one in indexes if one is not None]
        ends = np.cumsum([0, *map(len, known)])
        if len(known) < len(readers) or ends[-1] > MOST_BLOCKS:
            return None
        words = np.concatenate([one.words for one in known])
        if (words[1:] <= words[:-1]).any():
            return None
        offsets = np.concatenate([one.offsets for one in known])
        return cls(tuple(one.identity for one in readers), sizes, ends, words, offsets)

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return int(self.words.nbytes + self.offsets.nbytes) + 200 * len(self.files)

    def find(self, wanted: Voids, of: Int64s) -> tuple[Bools, Bools, Voids]:
        """Which of the `wanted`, each of which could be in file `of` alone, are answered, which of
        these are there, and their values. Raises CorruptError."""
        sought = words_of(wanted)
        block = np.searchsorted(self.words, sought, "right") - 1
        is_before, is_behind = block < self.borders[of], block >= self.borders[of + 1]
        is_answered = np.ones(len(self.files), bool)
        is_answered[of[is_behind | (~is_before & (self.words[block] == sought))]] = False
        found, values = np.zeros(len(wanted), bool), bytearray(len(wanted) * self.sizes[1])
        (key_size, size), raw = self.sizes, wanted.tobytes()
        rows = np.flatnonzero(is_answered[of] & ~is_before)
        places = rows.tolist(), of[rows].tolist(), self.offsets[block[rows]].tolist()
        for row, file, offset in zip(*places, strict=True):
            if not is_answered[file]:
                continue
            held = block_cache.get((PACKED, *self.files[file], offset))
            if held is None:
                is_answered[file] = False
                continue
            value = held.value(raw[row * key_size : (row + 1) * key_size])
            if value is not None:
                found[row], values[row * size : (row + 1) * size] = True, value
        return is_answered[of], found & is_answered[of], np.frombuffer(values, f"V{size}")


def _index_of(reader: HFileReader, sizes: tuple[int, int]) -> BlockIndex | None:
    """The index of a file of which a lookup asks that alone, and blocks of zstd."""
    opened, index = reader.opened, reader.tree.complete
    if opened.record_sizes != sizes or opened.trailer.compression_codec is not Codec.ZSTD:
        return None
    is_told = index is not None and len(index) > 0 and index.is_ascending
    return index if is_told and FILTER not in opened.meta else None
