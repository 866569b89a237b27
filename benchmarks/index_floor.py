"""The floor of asking a record index: the blocks that may hold a key are read, and that is all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import metatable
from benchmarks.hfiles import BLOCK_HEADER, PIECES
from metatable.data.config.options import Options
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.record_index import RecordIndexPartition, index_keys
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.hfile.codec import Codec, decompress
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["IndexFloor"]

_Piece = tuple[str, Codec, list[tuple[int, int]]]
"""An HFile, its codec, (offset, bytes) of blocks."""


@dataclass(frozen=True, slots=True)
class IndexFloor:
    """Some record keys, and the blocks of a table's record index that may hold one of them."""

    options: Options
    keys: pa.Array
    pieces: list[_Piece]

    @classmethod
    def of(cls, table: metatable.Table, keys: pa.Array) -> IndexFloor:
        """Look for the blocks."""
        store = Store(table.uri)
        entries = Snapshot(store, newest_of(store))
        partition = RecordIndexPartition(entries.options)
        ids = _ids(entries.options, keys).cast("binary")
        ids = ids.take(pc.array_sort_indices(ids))
        places, pieces = partition.places(ids), list[_Piece]()
        for ref in entries.placed(partition):
            reader = entries.reader(ref)
            mine = ids.filter(pa.array((places >= ref.lo) & (places < ref.hi)))
            index = reader.tree.of_keys(mine)
            blocks, _ = index.touched(mine)
            sizes = index.sizes[blocks].tolist()
            spans = list(zip(index.offsets[blocks].tolist(), sizes, strict=True))
            codec, path = reader.trailer.compression_codec, str(Path(table.uri, ref.path))
            starts = range(0, len(spans), PIECES)
            pieces += [(path, codec, spans[at : at + PIECES]) for at in starts]
        cache.clear()
        return cls(entries.options, keys, pieces)

    def read(self) -> None:
        """Read the blocks, and make their checksums."""
        self._each(lambda _, block: google_crc32c.value(block))

    def unpack(self) -> None:
        """The same, unpack the blocks, and put the keys' hashes in order before."""
        words = np.frombuffer(_ids(self.options, self.keys).buffers()[1], ">u8")
        np.sort(words[::2].astype(np.uint64))
        self._each(_unpacked)

    def _each(self, work: Callable[[Codec, bytes], int]) -> None:
        def read(piece: _Piece) -> int:
            path, codec, spans = piece
            with Path(path).open("rb", buffering=0) as file:
                blocks = (os.pread(file.fileno(), size, offset) for offset, size in spans)
                return sum(work(codec, block) > 0 for block in blocks)

        assert sum(in_order(read, self.pieces)) > 0


def _ids(options: Options, keys: pa.Array) -> pa.Array:
    """The keys of an index that is one for the whole table."""
    return index_keys(options, keys, pa.scalar(""))


def _unpacked(codec: Codec, block: bytes) -> int:
    checked = google_crc32c.value(block) > 0
    if codec is Codec.NONE:
        return int(checked)
    _, _, size, _, _, _, end = BLOCK_HEADER.unpack_from(block)
    return len(decompress(codec, memoryview(block)[BLOCK_HEADER.size : end], size))
