"""Block indexes: where a file's blocks lie and the key that each begins with.

    root entry      i64 offset, i32 size of the whole block, Hadoop VInt key length, key
    leaf or inner   i32 n; n + 1 i32 positions of entries, from 0 to the length of them all;
                    entries of i64 offset, i32 size, key up to the next position

Root entries stand back to back; their number is in the trailer. The 16 bytes that follow them
in a root of two levels and more (HBase's mid key) are passed over. A data index key is a
full key, or, from Hudi's writer, one without the 10-byte suffix; it may be shorter than the
block's real first key (HBase), but is above the last key of the block before. A meta index
key is a bare name. Hudi 1.1 wrote lengths of 128 and more as protobuf varints: both forms are read.

With more than one level the root's entries lead to leaf or inner blocks, which have one form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from metatable.storage.errors import CorruptError
from metatable.storage.hfile import wire
from metatable.storage.hfile.columns import Int64s
from metatable.storage.hfile.key_values import KEY_SUFFIX, full_key, row_of

__all__ = [
    "BlockIndex",
    "Entry",
    "check_places",
    "decode_inner",
    "decode_root",
    "descend",
    "encode_root",
    "entry_of",
]

_PLACE = struct.Struct(">qi")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
_LEAST_ENTRY = _PLACE.size + 1
MID_KEY_SIZE = 16
"""What HBase writes behind the root's entries if there are more levels: where the middle is."""

Entry = tuple[int, int, bytes]
"""(offset, size of the whole block, key as stored)."""


@dataclass(frozen=True)
class BlockIndex:
    """The data blocks of a file, ascending: offset, size, and the row that opens each.

    `rows` are at most the first row of their block, and above the last row of the one before.
    """

    offsets: Int64s
    sizes: Int64s
    rows: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> pa.Array:
        """`rows` as a column."""
        return pa.array(self.rows, pa.binary())

    @property
    def size_bytes(self) -> int:
        """About what this takes in memory."""
        return sum(map(len, self.rows)) * 2 + 80 * len(self.rows)

    @classmethod
    def of(cls, entries: Sequence[Entry], limit: int, path: str, offset: int) -> BlockIndex:
        """From entries of data blocks, which must not overlap nor pass `limit`."""
        rows: list[bytes] = []
        for number, (_, _, key) in enumerate(entries):
            row = row_of(key)
            if row is None:
                raise _corrupt(path, offset, f"a key in entry {number}", key)
            rows.append(row)
        offsets = np.array([entry[0] for entry in entries], np.int64)
        sizes = np.array([entry[1] for entry in entries], np.int64)
        check_places(entries, limit, path, offset)
        return cls(offsets, sizes, tuple(rows))


def encode_root(entries: Sequence[Entry]) -> bytes:
    """The payload of a root index."""
    return b"".join(
        part
        for offset, size, key in entries
        for part in (_PLACE.pack(offset, size), wire.write_hadoop(len(key)), key)
    )


def decode_root(
    payload: bytes, count: int, path: str, offset: int, *, names: bool = False
) -> list[Entry]:
    """The `count` entries of a root index. `names`: of the meta index, whose keys are no rows."""
    if count < 0 or count * _LEAST_ENTRY > len(payload):
        raise _corrupt(path, offset, f"{count} entries", f"{len(payload)} bytes")
    entries: list[Entry] = []
    at = 0
    for number in range(count):
        try:
            place, size = _PLACE.unpack_from(payload, at)
            key, at = _root_key(payload, at + _PLACE.size, names)
        except (wire.Malformed, struct.error) as error:
            raise _corrupt(path, offset, f"{count} entries", f"entry {number}: {error}") from error
        entries.append((place, size, key))
    if len(payload) - at not in (0, MID_KEY_SIZE):
        raise _corrupt(path, offset, f"{count} entries", f"{len(payload) - at} bytes behind them")
    return entries


def decode_inner(payload: bytes, path: str, offset: int) -> list[Entry]:
    """The entries of a leaf or inner index block."""
    count = int.from_bytes(payload[:4], "big")
    area = 4 + 4 * (count + 1)
    if area > len(payload):
        raise _corrupt(path, offset, f"{count} entries", f"{len(payload)} bytes")
    positions = np.frombuffer(payload, ">i4", count + 1, 4).astype(np.int64)
    sound = positions[0] == 0 and positions[-1] == len(payload) - area
    if not sound or (np.diff(positions) < _PLACE.size).any():
        raise _corrupt(path, offset, "ascending positions of entries", positions.tolist()[:5])
    starts = (positions + area).tolist()
    return [
        (*_PLACE.unpack_from(payload, start), payload[start + _PLACE.size : end])
        for start, end in pairwise(starts)
    ]


def descend(
    entries: list[Entry],
    levels: int,
    fetch: Callable[[list[Entry]], list[bytes]],
    *,
    limit: int,
    path: str,
    offset: int,
) -> list[Entry]:
    """The entries of data blocks, from those of the root; `fetch` gives index payloads."""
    for _ in range(levels - 1):
        check_places(entries, limit, path, offset)
        payloads = fetch(entries)
        entries = [
            inner
            for (place, _, _), payload in zip(entries, payloads, strict=True)
            for inner in decode_inner(payload, path, place)
        ]
    return entries


def check_places(entries: Sequence[Entry], limit: int, path: str, offset: int) -> None:
    """Raise CorruptError unless the blocks lie one behind the other, below `limit`."""
    end = 0
    for number, (place, size, _) in enumerate(entries):
        if place < end or size <= 0 or place + size > limit:
            expected = f"block {number} between {end} and {limit}"
            raise _corrupt(path, offset, expected, f"offset {place}, {size} bytes")
        end = place + size


def _root_key(payload: bytes, at: int, names: bool) -> tuple[bytes, int]:
    """A key in whichever of the two length forms makes one; Hadoop's first."""
    for read in (wire.read_hadoop, wire.read_varint):
        size, start = read(payload, at)
        key = payload[start : start + size] if size >= 0 else b""
        if len(key) == size and (names or _is_key(key)):
            return key, start + size
    raise wire.Malformed(f"no key at byte {at}")


def _is_key(key: bytes) -> bool:
    row = row_of(key)
    if row is None:
        return False
    rest = len(key) - 2 - len(row)
    return rest == 0 or rest >= len(KEY_SUFFIX)


def _corrupt(path: str, offset: int, expected: str, found: object) -> CorruptError:
    return CorruptError(
        "block index is malformed", path=path, offset=offset, expected=expected, found=found
    )


def entry_of(offset: int, size: int, row: bytes) -> Entry:
    """The entry that a writer makes for a data block."""
    return offset, size, full_key(row)
