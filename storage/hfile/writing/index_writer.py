"""The index of data blocks as a writer makes it: levels on levels, as HBase does.

Entries of data blocks gather in a leaf. One that has reached the chunk size is written right
behind the data it covers, and an entry for it goes to the root. If no leaf was ever written,
the leaf is the root: one level. At the end a root larger than a chunk is cut into inner blocks
that an entry each stands for, again and again. Behind a root of more levels follows

    offset  size  field   (the mid key: which data block is in the middle)
         0     8  offset  of the leaf that holds its entry
         8     4  size    of that leaf, header and checksums included
        12     4  entry   its number in that leaf

Held in memory: one leaf and an entry for each leaf before it. The forms of root and inner
entries are those of block_index.py; the rules with their sizes are in FORMAT.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np

from metatable.storage.hfile import wire
from metatable.storage.hfile.block import HEADER_SIZE, BlockType
from metatable.storage.hfile.block_index import Entry
from metatable.storage.hfile.columns import common_prefix_size
from metatable.storage.hfile.key_values import KEY_SUFFIX

__all__ = [
    "INDEX_CHUNK_BYTES",
    "IndexWriter",
    "encode_inner",
    "encode_root",
    "separator",
]

INDEX_CHUNK_BYTES = 128 << 10
_LEAST_ENTRIES = 16
"""A root of no more entries stays whole, whatever its size: keys may be long."""
_MOST_LEVELS = 16
_PLACE = struct.Struct(">qi")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
_MID_KEY = struct.Struct(">qii")
_POSITION = np.dtype(">i4")
_EMPTY_INNER_BYTES = 8
"""Of an inner payload without entries: how many there are, and a position, that of its end."""
_SHORTENED_SUFFIX = KEY_SUFFIX[:-1] + b"\xff"
"""The type that sorts before all others: a shortened key is below the equal row of a record."""

Emit = Callable[[BlockType, bytes], tuple[int, int]]
"""Writes a block; gives its offset and its size."""


def encode_root(entries: Sequence[Entry]) -> bytes:
    """The payload of a root index."""
    return b"".join(
        part
        for offset, size, key in entries
        for part in (_PLACE.pack(offset, size), wire.write_hadoop(len(key)), key)
    )


def encode_inner(entries: Sequence[Entry]) -> bytes:
    """The payload of a leaf or inner index block."""
    positions = np.zeros(len(entries) + 1, _POSITION)
    positions[1:] = np.cumsum([_PLACE.size + len(key) for _, _, key in entries])
    body = (part for offset, size, key in entries for part in (_PLACE.pack(offset, size), key))
    return b"".join((struct.pack(">i", len(entries)), positions.tobytes(), *body))


def separator(before: bytes, first: bytes) -> tuple[bytes, bytes]:
    """(row, suffix) of the shortest key above row `before` that is not above row `first`."""
    if before == first:
        return first, KEY_SUFFIX
    common = common_prefix_size(before, first)
    if common == len(before):
        return first[: common + 1], _SHORTENED_SUFFIX
    return before[:common] + bytes((before[common] + 1,)), _SHORTENED_SUFFIX


@dataclass(frozen=True, slots=True)
class Root:
    """The root's payload, and what the trailer says of the index."""

    payload: bytes
    entry_count: int
    levels: int


class IndexWriter:
    """`add` for data blocks, as many as it `takes`, `end_of_data` behind the last, `finish`
    behind META blocks."""

    def __init__(self, emit: Emit, chunk_bytes: int | None) -> None:
        """`chunk_bytes`: None for one level whatever its size."""
        self._emit = emit
        self._chunk_bytes = chunk_bytes
        self._leaf: list[Entry] = []
        self._leaf_size = _EMPTY_INNER_BYTES
        self._roots: list[Entry] = []
        self._leaf_counts: list[int] = []
        self.payload_bytes = 0
        """Bytes of the payloads of all index blocks so far."""
        self.upper_bytes = 0
        """Bytes of headers and payloads of the index blocks above the leaves."""

    def takes(self, keys: Sequence[bytes]) -> int:
        """How many blocks with entries of these keys may be written before the leaf is."""
        if self._chunk_bytes is None:
            return len(keys)
        sizes = accumulate(map(_entry_size, keys), initial=self._leaf_size)
        return max(1, sum(size < self._chunk_bytes for size in islice(sizes, len(keys))))

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries of data blocks that were just written; writes the leaf if they filled it."""
        self._leaf += entries
        self._leaf_size += sum(_entry_size(key) for _, _, key in entries)
        if self._chunk_bytes is not None and self._leaf_size >= self._chunk_bytes:
            self._write_leaf()

    def end_of_data(self) -> None:
        """Write the last leaf, unless it is to be the root."""
        if self._roots and self._leaf:
            self._write_leaf()

    def finish(self) -> Root:
        """Write the inner blocks; the root, which is for the caller to write."""
        entries, levels = self._roots or self._leaf, 2 if self._roots else 1
        while levels > 1 and self._is_too_large(entries, levels):
            entries = [self._write(BlockType.INTERMEDIATE_INDEX, one) for one in self._cut(entries)]
            levels += 1
        payload = encode_root(entries) + self._mid_key()
        self.payload_bytes += len(payload)
        self.upper_bytes += HEADER_SIZE + len(payload)
        return Root(payload, len(entries), levels)

    def _write_leaf(self) -> None:
        self._roots.append(self._write(BlockType.LEAF_INDEX, self._leaf))
        self._leaf_counts.append(len(self._leaf))
        self._leaf, self._leaf_size = [], _EMPTY_INNER_BYTES

    def _write(self, kind: BlockType, entries: list[Entry]) -> Entry:
        payload = encode_inner(entries)
        self.payload_bytes += len(payload)
        if kind is BlockType.INTERMEDIATE_INDEX:
            self.upper_bytes += HEADER_SIZE + len(payload)
        offset, size = self._emit(kind, payload)
        return offset, size, entries[0][2]

    def _is_too_large(self, entries: list[Entry], levels: int) -> bool:
        assert self._chunk_bytes is not None
        size = sum(map(_root_size, entries))
        return size > self._chunk_bytes and len(entries) > _LEAST_ENTRIES and levels < _MOST_LEVELS

    def _cut(self, entries: list[Entry]) -> Iterator[list[Entry]]:
        """Groups of two entries or more, closed once they have reached the chunk size."""
        assert self._chunk_bytes is not None
        group: list[Entry] = []
        size = 0
        for entry in entries:
            group.append(entry)
            size += _root_size(entry)
            if size >= self._chunk_bytes and len(group) > 1:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _mid_key(self) -> bytes:
        """What the root tells of data block (N - 1) // 2; nothing where there are no leaves."""
        if not self._roots:
            return b""
        ends = np.cumsum(self._leaf_counts)
        middle = (int(ends[-1]) - 1) // 2
        leaf = int(np.searchsorted(ends, middle, "right"))
        offset, size, _ = self._roots[leaf]
        return _MID_KEY.pack(offset, size, middle - int(ends[leaf]) + self._leaf_counts[leaf])


def _entry_size(key: bytes) -> int:
    """Bytes that an entry adds to an inner payload."""
    return _POSITION.itemsize + _PLACE.size + len(key)


def _root_size(entry: Entry) -> int:
    return _PLACE.size + len(wire.write_hadoop(len(entry[2]))) + len(entry[2])
