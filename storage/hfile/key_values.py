"""Key values: the records of data blocks, as columns: taken, and encoded.

    size          field           (integers big-endian)
    4             key_length      row_length + 12
    4             value_length
    2             row_length      so a row has at most 32767 bytes
    row_length    row             the key, as everybody outside HBase calls it
    1             family_length   0: no family, no qualifier
    8             timestamp       0x7fffffffffffffff
    1             type            4 = Put
    value_length  value
    1             mvcc            0; there if FILE_INFO says KEY_VALUE_VERSION = 1

How the records of a payload are found is in reading/finding.py, how many keys among them in
reading/searching.py.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import (
    Voids,
    from_layout,
    of_one_size,
    pieces_at,
    voids,
)
from metatable.storage.hfile.columns import (
    bytes_of,
    check_width,
    column_sizes,
    fixed_binary,
    once,
    repeated,
    views,
)
from metatable.storage.made_once import made_once

__all__ = [
    "HEADER",
    "KEY_SUFFIX",
    "MAX_ROW_SIZE",
    "RECORD_OVERHEAD",
    "ROW_AT",
    "KeyValues",
    "empty_record",
    "encode_blocks",
    "encode_records",
    "full_key",
    "record_header",
    "row_of",
    "within",
]

HEADER = struct.Struct(">IIH")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
KEY_SUFFIX = bytes.fromhex("00 7fffffffffffffff 04")
"""What follows the row in a full key: no family, the latest time, Put."""
MAX_ROW_SIZE = (1 << 15) - 1
ROW_AT = HEADER.size
"""Where the row of a record begins."""
_SMALL_RECORD = 256
"""To copy one of more bytes costs more than to look at it twice where it lies."""
RECORD_OVERHEAD = ROW_AT + len(KEY_SUFFIX) + 1
"""Bytes of a record besides its row and its value."""


@dataclass(frozen=True)
class KeyValues:
    """Records of data blocks, ascending by row as far as the file is sound.

    `raw` holds them; row i is `raw[row_starts[i]:][:row_sizes[i]]`, its value begins
    `value_gaps[i]` bytes after it. All are int64 of shape (n,), those that are all equal
    perhaps without memory of their own. `rows`: all of them, of one size, where somebody had to
    copy them.
    """

    raw: UInt8s
    row_starts: Int64s
    row_sizes: Int64s
    value_gaps: Int64s
    value_sizes: Int64s
    rows: Voids | None = field(default=None, kw_only=True)

    @classmethod
    def plain(
        cls, raw: UInt8s, row_starts: Int64s, row_sizes: Int64s, value_sizes: Int64s
    ) -> KeyValues:
        """Records whose keys have no family, and end in `KEY_SUFFIX`."""
        gaps = repeated(len(KEY_SUFFIX), len(row_starts))
        return cls(raw, row_starts, row_sizes, gaps, value_sizes)

    def __len__(self) -> int:
        return len(self.row_starts)

    @property
    def value_starts(self) -> Int64s:
        return self.row_starts + self.row_sizes + self.value_gaps

    def keys(self) -> pa.Array:
        """All rows, as a `pa.binary()` array."""
        if self.rows is not None and self.rows.nbytes < 1 << 31:
            return _side_by_side(self.rows)
        return _pieces(self.raw, self.row_starts, self.row_sizes)

    def values(self) -> pa.Array:
        """All values, as a `pa.binary()` array."""
        return _pieces(self.raw, self.value_starts, self.value_sizes)

    def batch(self) -> pa.RecordBatch:
        """Columns `key` and `value`, both `pa.binary()`."""
        return pa.record_batch([self.keys(), self.values()], names=["key", "value"])

    def view_batch(self) -> pa.RecordBatch:
        """Columns `key` and `value`, both `pa.binary_view()` over `raw`: nothing is copied but
        what is shorter than 13 bytes."""
        keys = views(self.raw, self.row_starts, self.row_sizes)
        values = views(self.raw, self.value_starts, self.value_sizes)
        return pa.record_batch([keys, values], names=["key", "value"])

    def header_words(self) -> UInt64s:
        """Eight of the ten bytes before each row, as they are to lie there, if keys are plain: the
        first two of a key length are zeros. One for all where it is the same."""
        rows, values = once(self.row_sizes), once(self.value_sizes)
        told = ((rows + 2 + len(KEY_SUFFIX)) << 48) + rows + (values << 16)
        return told.astype(">u8").view(np.uint64)

    def key(self, place: int) -> bytes:
        """The row of one record; counted from the end if `place` is negative."""
        start = int(self.row_starts[place])
        return self.raw[start : start + int(self.row_sizes[place])].tobytes()

    def value(self, place: int) -> bytes:
        """The value of one record."""
        start = int(self.row_starts[place] + self.row_sizes[place] + self.value_gaps[place])
        return self.raw[start : start + int(self.value_sizes[place])].tobytes()

    def at(self, places: Int64s) -> KeyValues:
        """The records `places`, in that order, of the same bytes."""
        return KeyValues(
            self.raw,
            self.row_starts[places],
            *(_chosen(one, places) for one in (self.row_sizes, self.value_gaps, self.value_sizes)),
        )

    def side_by_side(self) -> KeyValues:
        """These records, if they are small and about of one size copied to even distances in memory
        of their own: whoever looks at several parts of each goes to where it lies once."""
        sizes = once(self.row_sizes) + once(self.value_gaps) + once(self.value_sizes)
        width = ROW_AT + int(sizes.max(initial=0))
        if not len(self) or not _are_near(sizes, width) or width > len(self.raw):
            return self
        begins = np.minimum(self.row_starts - ROW_AT, len(self.raw) - width)
        starts = np.arange(0, len(self) * width, width)
        starts += self.row_starts - begins
        return replace(
            self, raw=pieces_at(self.raw, begins, width).view(np.uint8), row_starts=starts
        )

    def place_of(self, key: bytes) -> int:
        """The (first) record of `key`, -1 where there is none: a bisection, for single keys."""
        if not self._ascends:
            return int(pc.index(self.keys(), pa.scalar(key, pa.binary())).as_py())
        place = bisect_left(range(len(self)), key, key=self.key)
        return place if place < len(self) and self.key(place) == key else -1

    @made_once
    def _ascends(self) -> bool:
        """Whether no row is less than the one before it: told once, for all single keys."""
        keys = self.keys()
        return len(keys) < 2 or bool(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py())


def _chosen(numbers: Int64s, places: Int64s) -> Int64s:
    """`numbers[places]`; of `repeated` ones as many without memory of their own."""
    if numbers.strides == (0,) and len(numbers):
        return np.broadcast_to(numbers[0], places.shape)
    return numbers[places]


def _are_near(sizes: Int64s, width: int) -> bool:
    """Whether copies `width` bytes wide of records of these sizes are small, and mostly full."""
    return width <= _SMALL_RECORD and width * len(sizes) <= 2 * int(sizes.sum())


def _pieces(raw: UInt8s, starts: Int64s, sizes: Int64s) -> pa.Array:
    """`raw[starts[i]:][:sizes[i]]` of every i, copied into a `pa.binary()` array."""
    check_width(raw)
    size = _one_size(sizes)
    if size and size * (len(starts) + 1) < 1 << 31:  # Arrow would look at each size
        return _side_by_side(pieces_at(raw, starts, size))
    cuts = np.zeros(2 * len(starts) + 1, np.int32)
    cuts[1::2] = starts
    np.add(starts, sizes, out=cuts[2::2], casting="unsafe")
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(raw)]
    both = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return both.take(pa.array(np.arange(1, 2 * len(starts), 2)))


def _side_by_side(pieces: Voids) -> pa.Array:
    """Pieces of one size, of less than 2 GiB, as a `pa.binary()` array."""
    size = pieces.itemsize
    cuts = np.arange(0, (len(pieces) + 1) * size, size, dtype=np.int32)
    return from_layout(cuts, np.ascontiguousarray(pieces).view(np.uint8))


def _one_size(sizes: Int64s) -> int:
    """The size that all of these are, 0 where they differ or there are none."""
    if not len(sizes) or sizes[0] != sizes[-1] or sizes[0] != sizes[len(sizes) // 2]:
        return 0
    return int(sizes[0]) if sizes.strides == (0,) or (sizes == sizes[0]).all() else 0


def full_key(row: bytes, suffix: bytes = KEY_SUFFIX) -> bytes:
    """A row as indexes and LASTKEY have it: 2-byte length, row, suffix."""
    return len(row).to_bytes(2, "big") + row + suffix


def row_of(key: bytes) -> bytes | None:
    """The row of a full or suffix-less key; None where the bytes are no key."""
    size = int.from_bytes(key[:2], "big")
    return key[2 : 2 + size] if len(key) >= 2 and 2 + size <= len(key) else None


def encode_records(keys: pa.Array, values: pa.Array) -> memoryview:
    """Records back to back. Arrays of `pa.binary()`, or of fixed size, without nulls."""
    key_sizes, value_sizes = column_sizes(keys), column_sizes(values)
    if _all_equal(key_sizes) and _all_equal(value_sizes):
        return _encode_equal(keys, values, int(key_sizes[0]), int(value_sizes[0]))
    keys, values = keys.cast(pa.binary()), values.cast(pa.binary())
    headers = np.empty(len(keys), np.dtype([("key", ">u4"), ("value", ">u4"), ("row", ">u2")]))
    headers["key"] = key_sizes + 2 + len(KEY_SUFFIX)
    headers["value"] = value_sizes
    headers["row"] = key_sizes
    joined = pc.binary_join_element_wise(
        fixed_binary(headers.view(np.uint8).reshape(len(keys), ROW_AT)),
        keys,
        pa.scalar(KEY_SUFFIX, pa.binary()),
        values,
        pa.scalar(b"\0", pa.binary()),
        pa.scalar(b"", pa.binary()),
    )
    size = int((key_sizes + value_sizes + RECORD_OVERHEAD).sum())
    return bytes_of(joined)[:size].data


def _all_equal(sizes: Int64s) -> bool:
    return sizes.strides == (0,) or bool((sizes == sizes[0]).all())


def record_header(key_size: int, value_size: int) -> bytes:
    """What a record of these sizes begins with, up to its row."""
    return HEADER.pack(key_size + 2 + len(KEY_SUFFIX), value_size, key_size)


def empty_record(key_size: int, value_size: int) -> bytes:
    """A record of these sizes, with zeros for row and value."""
    header = record_header(key_size, value_size)
    return b"".join((header, bytes(key_size), KEY_SUFFIX, bytes(value_size + 1)))


def _encode_equal(keys: pa.Array, values: pa.Array, key_size: int, value_size: int) -> memoryview:
    empty = empty_record(key_size, value_size)
    raw = np.frombuffer(bytearray(empty) * len(keys), np.uint8)
    for column, at, size in (
        (keys, ROW_AT, key_size),
        (values, len(empty) - 1 - value_size, value_size),
    ):
        if size:  # numpy knows no pieces of nothing
            within(raw, at, size, len(empty))[:] = voids(of_one_size(column))
    return raw.data


def encode_blocks(
    keys: pa.Array, values: pa.Array, count: int, *, before: int, behind: int
) -> tuple[memoryview, list[memoryview]]:
    """Records of columns of fixed size in blocks of `count`, which they are cut into without a
    rest, and the memory in which these lie, with so many bytes before and behind each."""
    key_size, value_size = keys.type.byte_width, values.type.byte_width
    empty = empty_record(key_size, value_size)
    block = bytes(before) + empty * count + bytes(behind)
    raw = np.frombuffer(bytearray(block) * (len(keys) // count), np.uint8)
    rows = raw.reshape(-1, len(block))[:, before : len(block) - behind]
    records = rows.reshape(len(rows), count, len(empty))
    value_at = len(empty) - 1 - value_size
    for column, at, size in ((keys, ROW_AT, key_size), (values, value_at, value_size)):
        pieces = records[:, :, at : at + size].view((np.void, size))[:, :, 0]
        pieces[:] = voids(column).reshape(pieces.shape)
    starts = range(before, len(raw), len(block))
    return raw.data, [raw.data[at : at + len(empty) * count] for at in starts]


def within(raw: UInt8s, at: int, size: int, stride: int) -> Voids:
    """`size` bytes, from `at` on, of each of the records that `raw` is: moved as one, not one by
    one, they take a fifth of the time."""
    kind = np.dtype((np.void, size))
    return np.ndarray((len(raw) // stride,), kind, raw, at, (stride,))
