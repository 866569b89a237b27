"""Packing: what a thread does to a run of data blocks, and what a file remembers of it.

A run's records are encoded together and compressed block by block; sizes and hashes of its
keys are taken on the way, for the hints at the end of a file. Nothing here depends on where
in the file the blocks will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.byte_columns import of_one_size, voids
from metatable.storage.hashing import xxh64
from metatable.storage.hfile.block import HEADER_SIZE
from metatable.storage.hfile.checksum import CHECKSUM_BYTES
from metatable.storage.hfile.codec import ZSTD_REPEATS_ONLY, Codec, compress
from metatable.storage.hfile.columns import (
    column_sizes,
    once,
)
from metatable.storage.hfile.forms import Form
from metatable.storage.hfile.key_values import RECORD_OVERHEAD, encode_blocks, encode_records
from metatable.storage.hfile.record_sizes import RecordSizes
from metatable.storage.hfile.writing.block_writer import Stored
from metatable.storage.hfile.writing.runs import BlockPlan, Run
from metatable.storage.hfile.zstd_records import can_pack, pack_blocks

__all__ = ["HINTED_ENTRIES", "Packed", "Packer", "Tally"]

HINTED_ENTRIES = 1 << 26
"""A file of more is written without the size of each record and without a filter; sizes that
all records have in common are told all the same."""

Narrow = npt.NDArray[np.unsignedinteger]
"""Sizes in as few bytes as they need: there may be many."""
_WIDTHS = {0xFF: np.uint8, 0xFFFF: np.uint16, 0xFFFFFFFF: np.uint32}


@dataclass(frozen=True, slots=True)
class Packed:
    """The payloads of a run as they will be stored, and what its entries are like."""

    blocks: list[BlockPlan]
    stored: list[Stored]
    room: memoryview
    """Where the first of these lie, with room around each for what a block has besides."""
    key_sizes: Narrow
    value_sizes: Narrow
    hashes: UInt64s | None


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs runs; `hashes`: those of the keys are wanted too."""

    codec: Codec
    form: Form
    hashes: bool
    zstd_level: int
    block_size: int

    def pack(self, run: Run) -> Packed:
        """Meant for the thread pool."""
        keys, values = map(of_one_size, run.columns())
        room, stored = self._known(keys, values, run.blocks)
        start = sum(block.entry_count for block in run.blocks[: len(stored)])
        if start < len(keys):
            records = encode_records(keys[start:], values[start:])
            ends = np.cumsum([block.size for block in run.blocks[len(stored) :]]).tolist()
            stored += [self._stored(records[begin:end]) for begin, end in pairwise([0, *ends])]
        return Packed(
            run.blocks,
            stored,
            room,
            _narrow(column_sizes(keys)),
            _narrow(column_sizes(values)),
            xxh64(keys) if self.hashes else None,
        )

    def _known(
        self, keys: pa.Array, values: pa.Array, blocks: Sequence[BlockPlan]
    ) -> tuple[memoryview, list[Stored]]:
        """The first blocks of a run, and their room, where records of one size are stored as they
        are, or it is known how they repeat. Only full ones: what is made for one serves many."""
        nothing = memoryview(b"")
        is_known = self.codec is Codec.ZSTD and self.zstd_level == ZSTD_REPEATS_ONLY
        if not is_known and self.codec is not Codec.NONE:
            return nothing, []
        columns = keys, values
        if not all(pa.types.is_fixed_size_binary(one.type) for one in columns):
            return nothing, []
        key_size, value_size = (one.type.byte_width for one in columns)
        count = self.block_size // (key_size + value_size + RECORD_OVERHEAD)
        full = sum(1 for _ in takewhile(lambda block: block.entry_count == count, blocks))
        if not full or (is_known and not can_pack(count, key_size, value_size)):
            return nothing, []
        rows = slice(count * full)
        if not is_known:
            room, records = encode_blocks(
                keys[rows], values[rows], count, before=HEADER_SIZE, behind=CHECKSUM_BYTES
            )
            return room, list(records)
        room, stored = pack_blocks(
            voids(keys[rows]),
            voids(values[rows]),
            count,
            before=HEADER_SIZE,
            behind=CHECKSUM_BYTES,
        )
        return room, list(stored)

    def _stored(self, payload: memoryview) -> Stored:
        if self.codec is Codec.NONE:  # where it lies, not copied
            return payload
        java = self.form.java_deflate
        return compress(self.codec, payload, like_java=java, zstd_level=self.zstd_level)


@dataclass
class _Ends:
    """The least and the greatest of numbers seen."""

    least: int | None = None
    most: int | None = None

    def add(self, numbers: Narrow) -> None:
        told = once(numbers)
        least, most = int(told.min()), int(told.max())
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    def only(self) -> int | None:
        """The number that all of them are, if they are."""
        return self.least if self.least == self.most else None


@dataclass
class Tally:
    """The entries of a file, summed up: one or two bytes a record, and eight where hashed.

    Beyond HINTED_ENTRIES neither is kept, so that memory does not grow with the file.
    """

    entry_count: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    first_key: bytes = b""
    last_key: bytes = b""
    _key_ends: _Ends = field(default_factory=_Ends)
    _value_ends: _Ends = field(default_factory=_Ends)
    _block_counts: list[int] = field(default_factory=list)
    _key_sizes: list[Narrow] = field(default_factory=list)
    _value_sizes: list[Narrow] = field(default_factory=list)
    _hashes: list[UInt64s] = field(default_factory=list)

    def add(self, packed: Packed, with_sizes: bool) -> None:
        """The entries of one more run."""
        self.first_key = self.first_key or packed.blocks[0].first_key
        self.last_key = packed.blocks[-1].last_key
        self.entry_count += len(packed.key_sizes)
        self.key_bytes += _sum(packed.key_sizes)
        self.value_bytes += _sum(packed.value_sizes)
        self._key_ends.add(packed.key_sizes)
        self._value_ends.add(packed.value_sizes)
        if self.entry_count > HINTED_ENTRIES:
            for kept in (self._block_counts, self._key_sizes, self._value_sizes, self._hashes):
                kept.clear()
            return
        if with_sizes:
            self._block_counts += [block.entry_count for block in packed.blocks]
            self._key_sizes.append(packed.key_sizes)
            self._value_sizes.append(packed.value_sizes)
        if packed.hashes is not None:
            self._hashes.append(packed.hashes)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads of all data blocks."""
        return self.key_bytes + self.value_bytes + self.entry_count * RECORD_OVERHEAD

    def equal_sizes(self) -> tuple[int | None, int | None]:
        """(size of every key, size of every value), None where they differ."""
        return self._key_ends.only(), self._value_ends.only()

    def sizes(self) -> RecordSizes | None:
        """Sizes of all records, None where there are too many."""
        if not self._block_counts:
            return None
        key_size, value_size = self.equal_sizes()
        return RecordSizes(
            np.array(self._block_counts, np.int64),
            np.concatenate(self._key_sizes) if key_size is None else key_size,
            np.concatenate(self._value_sizes) if value_size is None else value_size,
        )

    def hashes(self) -> UInt64s | None:
        """The hashes of all keys, None where there are too many."""
        return np.concatenate(self._hashes) if self._hashes else None


def _narrow(sizes: Int64s) -> Narrow:
    told = once(sizes)
    most = int(told.max())
    width = next(kind for limit, kind in _WIDTHS.items() if most <= limit)
    narrow = told.astype(width)
    return narrow if told is sizes else np.ndarray(sizes.shape, width, narrow, strides=(0,))


def _sum(numbers: Narrow) -> int:
    told = once(numbers)
    return int(told.sum(dtype=np.int64)) * (len(numbers) // max(len(told), 1))
