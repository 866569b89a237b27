"""Key values: the payload of data blocks, as columns. No loop over records on the usual ways.

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

Three ways to find the records of a payload, each proven record by record before it is
believed: equal records are a strided array; else every key ends in `7f ff*7 04`, and with
equal key lengths, or equal value lengths, the places of these endings give all the starts;
else the records are walked one by one, which also takes what only HBase writes (families,
other timestamps, longer mvcc numbers).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import first_words
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.columns import (
    Int64s,
    UInt8s,
    UInt64s,
    bytes_of,
    common_prefix_size,
    fixed_binary,
    offsets_of,
)
from metatable.storage.hfile.wire import Malformed, read_hadoop

__all__ = [
    "KEY_SUFFIX",
    "MAX_ROW_SIZE",
    "RECORD_OVERHEAD",
    "KeyValues",
    "encode_records",
    "full_key",
    "parse",
    "row_of",
]

_HEADER = struct.Struct(">IIH")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
_PUT = 4
KEY_SUFFIX = bytes.fromhex("00 7fffffffffffffff 04")
"""What follows the row in a full key: no family, the latest time, Put."""
_ENDING = np.uint64(int.from_bytes(KEY_SUFFIX[2:], "big"))
MAX_ROW_SIZE = (1 << 15) - 1
_ROW_AT = _HEADER.size
RECORD_OVERHEAD = _ROW_AT + len(KEY_SUFFIX) + 1
"""Bytes of a record besides its row and its value."""


@dataclass(frozen=True)
class KeyValues:
    """The records of one or more data blocks, ascending by row as far as the file is sound.

    `raw` holds the payload; rows and values lie in it at the given places. `stride` is the
    size of a record where all are equal, else 0.
    """

    raw: UInt8s
    row_starts: Int64s
    row_sizes: Int64s
    value_starts: Int64s
    value_sizes: Int64s
    stride: int = 0

    def __len__(self) -> int:
        return len(self.row_starts)

    def keys(self) -> pa.Array:
        """All rows, as a `pa.binary()` array."""
        return self._pieces(_ROW)

    def values(self) -> pa.Array:
        """All values, as a `pa.binary()` array."""
        return self._pieces(_VALUE)

    def batch(self) -> pa.RecordBatch:
        """Columns `key` and `value`."""
        return pa.record_batch([self.keys(), self.values()], names=["key", "value"])

    def key(self, place: int) -> bytes:
        """One row; from the end if `place` is negative."""
        start = int(self.row_starts[place])
        return self.raw[start : start + int(self.row_sizes[place])].tobytes()

    def values_at(self, places: Int64s) -> pa.Array:
        """The values of records `places`; null where a place is -1."""
        absent = places < 0
        if absent.any():
            return self._segments.take(pa.array(places * 4 + _VALUE, mask=absent))
        return self._pieces(_VALUE, places)

    def find(self, wanted: pa.Array) -> Int64s:
        """The (first) record of each wanted key, -1 where there is none.

        Searches eight bytes a key, the first that can differ, and compares whole keys where
        it landed. Keys that are told apart by later bytes only are looked up in a hash table.
        """
        if not len(self) or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        words, sought = self._words(wanted)
        places = np.minimum(np.searchsorted(words, sought), len(words) - 1)
        landed = self._pieces(_ROW, places)
        equal = pc.equal(landed, wanted).to_numpy(zero_copy_only=False)
        found = np.where(equal, places, -1)
        after = np.minimum(places + 1, len(words) - 1)
        tied = (words[places] == sought) & (words[after] == sought) & (after > places)
        unsure = np.flatnonzero(tied & ~equal)
        if unsure.size:
            hits = pc.index_in(wanted.take(pa.array(unsure)), value_set=self.keys())
            found[unsure] = pc.fill_null(hits, -1).to_numpy(zero_copy_only=False)
        return found

    def _words(self, wanted: pa.Array) -> tuple[UInt64s, UInt64s]:
        """Eight bytes of every key and wanted key, behind what all keys begin with.

        A wanted key that begins otherwise gets some word as well; it is equal to no key.
        """
        skip = common_prefix_size(self.key(0), self.key(-1))
        words = first_words(self.raw, self.row_starts + skip, self.row_sizes - skip)
        offsets = offsets_of(wanted)
        data = bytes_of(wanted)[offsets[0] : offsets[-1]]
        starts = np.minimum(offsets[:-1] + skip, offsets[1:]) - offsets[0]
        padded = np.concatenate((data, np.zeros(8, np.uint8)))
        return words, first_words(padded, starts, np.diff(offsets) - skip)

    def _pieces(self, kind: int, places: Int64s | None = None) -> pa.Array:
        """All rows or values, or those of records `places`."""
        if not self.stride:
            chosen = np.arange(len(self)) if places is None else places
            return self._segments.take(pa.array(chosen * 4 + kind))
        starts, sizes = (
            (self.row_starts, self.row_sizes)
            if kind == _ROW
            else (self.value_starts, self.value_sizes)
        )
        start, size = int(starts[0]), int(sizes[0])
        table = self.raw.reshape(-1, self.stride)[:, start : start + size]
        return fixed_binary(np.ascontiguousarray(table if places is None else table[places]))

    @cached_property
    def _segments(self) -> pa.Array:
        """The whole payload cut into (gap, row, gap, value) for each record."""
        cuts = np.empty(4 * len(self) + 1, np.int32)
        cuts[0] = 0
        cuts[1::4] = self.row_starts
        cuts[2::4] = self.row_starts + self.row_sizes
        cuts[3::4] = self.value_starts
        cuts[4::4] = self.value_starts + self.value_sizes
        buffers = [None, pa.py_buffer(cuts), pa.py_buffer(self.raw)]
        return pa.Array.from_buffers(pa.binary(), 4 * len(self), buffers)


_ROW, _VALUE = 1, 3
"""Which of a record's four segments."""


def full_key(row: bytes) -> bytes:
    """A row as indexes and LASTKEY have it: 2-byte length, row, suffix."""
    return len(row).to_bytes(2, "big") + row + KEY_SUFFIX


def row_of(key: bytes) -> bytes | None:
    """The row of a full or suffix-less key; None where the bytes are no key."""
    size = int.from_bytes(key[:2], "big")
    return key[2 : 2 + size] if len(key) >= 2 and 2 + size <= len(key) else None


def encode_records(keys: pa.Array, values: pa.Array) -> tuple[memoryview, Int64s]:
    """(records back to back, where each ends). Arrays of `pa.binary()` without nulls."""
    key_sizes, value_sizes = np.diff(offsets_of(keys)), np.diff(offsets_of(values))
    ends = np.cumsum(key_sizes + value_sizes + RECORD_OVERHEAD)
    if _all_equal(key_sizes) and _all_equal(value_sizes):
        return _encode_equal(keys, values, int(key_sizes[0]), int(value_sizes[0])), ends
    headers = np.empty(len(keys), np.dtype([("key", ">u4"), ("value", ">u4"), ("row", ">u2")]))
    headers["key"] = key_sizes + 2 + len(KEY_SUFFIX)
    headers["value"] = value_sizes
    headers["row"] = key_sizes
    joined = pc.binary_join_element_wise(
        fixed_binary(headers.view(np.uint8).reshape(len(keys), _ROW_AT)),
        keys,
        pa.scalar(KEY_SUFFIX, pa.binary()),
        values,
        pa.scalar(b"\0", pa.binary()),
        pa.scalar(b"", pa.binary()),
    )
    return bytes_of(joined)[: int(ends[-1])].data, ends


def parse(payload: bytes, with_mvcc: bool, path: str, offset: int) -> KeyValues:
    """The records of a payload. Raises CorruptError, naming the record, where they do not fit."""
    raw = np.frombuffer(payload, np.uint8)
    if not payload:
        empty = np.empty(0, np.int64)
        return KeyValues(raw, empty, empty, empty, empty)
    if with_mvcc and len(payload) > RECORD_OVERHEAD:
        found = _parse_strided(payload, raw) or _parse_by_endings(payload, raw)
        if found is not None:
            return found
    return _walk(payload, raw, with_mvcc, path, offset)


def _all_equal(sizes: Int64s) -> bool:
    return bool((sizes == sizes[0]).all())


def _encode_equal(keys: pa.Array, values: pa.Array, key_size: int, value_size: int) -> memoryview:
    value_at = _ROW_AT + key_size + len(KEY_SUFFIX)
    records = np.empty((len(keys), value_at + value_size + 1), np.uint8)
    header = _HEADER.pack(key_size + 2 + len(KEY_SUFFIX), value_size, key_size)
    records[:, :_ROW_AT] = np.frombuffer(header, np.uint8)
    records[:, _ROW_AT : _ROW_AT + key_size] = _table(keys, key_size)
    records[:, _ROW_AT + key_size : value_at] = np.frombuffer(KEY_SUFFIX, np.uint8)
    records[:, value_at:-1] = _table(values, value_size)
    records[:, -1] = 0
    return records.reshape(-1).data


def _table(column: pa.Array, width: int) -> UInt8s:
    first = int(offsets_of(column[:1])[0])
    data = bytes_of(column)[first : first + width * len(column)]
    return data.reshape(len(column), width)


def _parse_strided(payload: bytes, raw: UInt8s) -> KeyValues | None:
    """Records that are all alike, but for rows and values; else None."""
    key_length, value_size, row_size = _HEADER.unpack_from(payload)
    stride = 8 + key_length + value_size + 1
    if key_length != row_size + 12 or len(payload) % stride:
        return None
    table = raw.reshape(-1, stride)
    row_end = _ROW_AT + row_size
    value_at = row_end + len(KEY_SUFFIX)
    suffix = np.frombuffer(KEY_SUFFIX, np.uint8)
    fixed = (
        (table[:, :_ROW_AT] == table[0, :_ROW_AT]).all()
        and (table[:, row_end:value_at] == suffix).all()
        and not table[:, -1].any()
    )
    if not fixed:
        return None
    starts = np.arange(len(table), dtype=np.int64) * stride
    row_sizes, value_sizes = np.full((2, len(table)), [[row_size], [value_size]], np.int64)
    return KeyValues(raw, starts + _ROW_AT, row_sizes, starts + value_at, value_sizes, stride)


def _parse_by_endings(payload: bytes, raw: UInt8s) -> KeyValues | None:
    """Records whose starts follow from where the keys end; None where that cannot be proven."""
    ends = _key_ends(raw)
    if not ends.size:
        return None
    key_length, value_size, _ = _HEADER.unpack_from(payload)
    by_key = ends - (8 + key_length)
    found = _prove(raw, by_key, ends)
    if found is None:
        by_value = np.concatenate((np.zeros(1, np.int64), ends[:-1] + value_size + 1))
        found = _prove(raw, by_value, ends)
    return found


def _key_ends(raw: UInt8s) -> Int64s:
    """Where `7f ff*7 04` ends, everywhere in the payload."""
    searchable = raw[: max(len(raw) - 9, 0)]
    places = np.flatnonzero(searchable == KEY_SUFFIX[1]) + 1
    words = np.ndarray((max(len(raw) - 7, 0),), ">u8", raw, strides=(1,))
    return cast("Int64s", places[words[places] == _ENDING] + 8)


def _prove(raw: UInt8s, starts: Int64s, ends: Int64s) -> KeyValues | None:
    """The records that begin at `starts` and whose keys end at `ends`, if all bytes agree."""
    if starts[0] != 0 or int(starts.min()) < 0 or int(starts.max()) > len(raw) - RECORD_OVERHEAD:
        return None
    key_lengths = _numbers(raw, starts, ">u4")
    value_sizes = _numbers(raw, starts + 4, ">u4")
    row_sizes = _numbers(raw, starts + 8, ">u2")
    record_ends = ends + value_sizes + 1
    chained = (
        record_ends[-1] == len(raw)
        and np.array_equal(record_ends[:-1], starts[1:])
        and np.array_equal(starts + 8 + key_lengths, ends)
        and np.array_equal(row_sizes + 12, key_lengths)
        and not raw[ends - len(KEY_SUFFIX)].any()
        and not raw[record_ends - 1].any()
    )
    return KeyValues(raw, starts + _ROW_AT, row_sizes, ends, value_sizes) if chained else None


def _numbers(raw: UInt8s, starts: Int64s, kind: str) -> Int64s:
    width = np.dtype(kind).itemsize
    view = np.ndarray((len(raw) - width + 1,), kind, raw, strides=(1,))
    return view[starts].astype(np.int64)


def _walk(payload: bytes, raw: UInt8s, with_mvcc: bool, path: str, offset: int) -> KeyValues:
    """Record by record: the slow way, which takes everything that HBase may write."""
    places: list[tuple[int, int, int, int]] = []
    at = 0
    while at < len(payload):
        try:
            place, at = _step(payload, at, with_mvcc)
        except (Malformed, struct.error) as error:
            raise CorruptError(
                "records do not fit into their block",
                path=path,
                offset=offset,
                record=len(places),
                expected=f"a record at byte {at} of {len(payload)}",
                found=str(error),
            ) from error
        places.append(place)
    row_starts, row_sizes, value_starts, value_sizes = np.array(places, np.int64).T
    return KeyValues(raw, row_starts, row_sizes, value_starts, value_sizes)


def _step(payload: bytes, at: int, with_mvcc: bool) -> tuple[tuple[int, int, int, int], int]:
    key_length, value_size, row_size = _HEADER.unpack_from(payload, at)
    key_end = at + 8 + key_length
    value_end = key_end + value_size
    if value_end > len(payload) or row_size > MAX_ROW_SIZE or key_length < row_size + 12:
        raise Malformed(f"key_length={key_length} value_length={value_size} row_length={row_size}")
    family_size = payload[at + _ROW_AT + row_size]
    if row_size + 12 + family_size > key_length:
        raise Malformed(f"key_length={key_length} row_length={row_size} family={family_size}")
    if payload[key_end - 1] != _PUT:
        raise Malformed(f"cell type {payload[key_end - 1]}, not a put")
    after = read_hadoop(payload, value_end)[1] if with_mvcc else value_end
    return (at + _ROW_AT, row_size, key_end, value_size), after
