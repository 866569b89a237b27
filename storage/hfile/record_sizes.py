"""Record sizes: how long each key and value is, so that nothing needs to be found in a block.

Records lie back to back and say their own sizes, so the place of one is known only after all
before it were looked at. A file of ours says the sizes once more, for all of its records:

    FILE_INFO fact `metatable.record_sizes`, 8 bytes (big-endian, signed)
         0     4  key_size     of every record, -1 where they differ
         4     4  value_size   of every record, -1 where they differ

    META block `metatable.record_sizes`, where one of them is -1 and there are several blocks
    offset  size  field        (integers big-endian, unsigned)
         0     1  version      1
         1     1  key_width    bytes of one key size: 0 (all equal), 1 or 2
         2     1  value_width  bytes of one value size: 0 (all equal), 1, 2 or 4
         3     1  zero
         4     4  block_count  data blocks
         8     8  entry_count  records of all blocks
        16   4·b  counts       records of each block
         …   w·n  key sizes    (key_width 0: one u32 that holds for all)
         …   w·n  value sizes  (value_width 0: one u32 that holds for all)

It is a hint. Readers check every record that they answer with against the bytes of its block.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError, UpgradeError

__all__ = ["FACT", "META", "RecordSizes", "Sizes", "decode_fact", "encode_fact"]

FACT = b"metatable.record_sizes"
META = "metatable.record_sizes"
VERSION = 1
_FACT = struct.Struct(">ii")
_HEADER = struct.Struct(">BBBBIQ")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
_KINDS = {1: ">u1", 2: ">u2", 4: ">u4"}
_KEY_WIDTHS, _VALUE_WIDTHS = (0, 1, 2), (0, 1, 2, 4)
_COUNT = np.dtype(">u4")

Sizes = npt.NDArray[np.integer] | int
"""One for each record, as narrow as they are stored; an int where all are equal."""


def encode_fact(key_size: int | None, value_size: int | None) -> bytes:
    """The fact for FILE_INFO; None where sizes differ."""
    return _FACT.pack(*(-1 if size is None else size for size in (key_size, value_size)))


def decode_fact(facts: Mapping[bytes, bytes]) -> tuple[int, int] | None:
    """(key_size, value_size), -1 where they differ; None where the file does not say."""
    raw = facts.get(FACT, b"")
    if len(raw) != _FACT.size:
        return None
    key_size, value_size = _FACT.unpack(raw)
    return max(key_size, -1), max(value_size, -1)


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """Sizes of all records of a file in order; an int where they are all equal."""

    block_counts: Int64s
    key_sizes: Sizes
    value_sizes: Sizes

    @property
    def memory_bytes(self) -> int:
        """What this takes."""
        parts = (self.block_counts, self.key_sizes, self.value_sizes)
        return sum(0 if isinstance(one, int) else one.nbytes for one in parts)

    def encode(self) -> bytes:
        """The payload of the META block."""
        keys, key_width = _packed(self.key_sizes, _KEY_WIDTHS)
        values, value_width = _packed(self.value_sizes, _VALUE_WIDTHS)
        blocks, entries = len(self.block_counts), int(self.block_counts.sum())
        header = _HEADER.pack(VERSION, key_width, value_width, 0, blocks, entries)
        return b"".join((header, self.block_counts.astype(_COUNT).tobytes(), keys, values))

    @classmethod
    def decode(cls, raw: bytes, path: str, offset: int) -> RecordSizes:
        """Raises CorruptError, and UpgradeError for a version that is not known."""
        if len(raw) < _HEADER.size:
            raise _corrupt(path, offset, f"{_HEADER.size} bytes or more", len(raw))
        version, key_width, value_width, _, blocks, entries = _HEADER.unpack_from(raw)
        if version != VERSION:
            raise UpgradeError(
                "unknown version of record sizes", path=path, expected=VERSION, found=version
            )
        if key_width not in _KEY_WIDTHS or value_width not in _VALUE_WIDTHS:
            raise _corrupt(path, offset, "known widths", f"{key_width} and {value_width}")
        parts = (4 * blocks, key_width * entries or 4, value_width * entries or 4)
        if _HEADER.size + sum(parts) != len(raw):
            raise _corrupt(path, offset, f"{_HEADER.size + sum(parts)} bytes", len(raw))
        keys_at = _HEADER.size + parts[0]
        counts = np.frombuffer(raw, _COUNT, blocks, _HEADER.size).astype(np.int64)
        if int(counts.sum()) != entries:
            raise _corrupt(path, offset, f"{entries} entries", int(counts.sum()))
        return cls(
            counts,
            _unpacked(raw, key_width, entries, keys_at),
            _unpacked(raw, value_width, entries, keys_at + parts[1]),
        )


def _packed(sizes: Sizes, widths: tuple[int, ...]) -> tuple[bytes, int]:
    if isinstance(sizes, int):
        return struct.pack(">I", sizes), 0
    most = int(sizes.max(initial=0))
    width = next(one for one in widths if one and most < 1 << 8 * one)
    return sizes.astype(_KINDS[width]).tobytes(), width


def _unpacked(raw: bytes, width: int, count: int, at: int) -> Sizes:
    if not width or not count:
        return int(np.frombuffer(raw, ">u4", 1, at)[0])
    found: npt.NDArray[np.unsignedinteger] = np.frombuffer(raw, _KINDS[width], count, at)
    return found


def _corrupt(path: str, offset: int, expected: object, found: object) -> CorruptError:
    return CorruptError(
        "record sizes are malformed", path=path, offset=offset, expected=expected, found=found
    )
