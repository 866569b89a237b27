"""Key values: the records of data blocks, as columns: searched, taken, and encoded.

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

How the records of a payload are found is in reading/finding.py.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import (
    Voids,
    first_words,
    from_layout,
    of_one_size,
    voids,
)
from metatable.storage.hfile.columns import (
    Int64s,
    UInt8s,
    UInt64s,
    bytes_of,
    check_width,
    common_prefix_size,
    fixed_binary,
    offsets_of,
    once,
    sizes_of,
    views,
)

__all__ = [
    "KEY_SUFFIX",
    "MAX_ROW_SIZE",
    "RECORD_OVERHEAD",
    "KeyValues",
    "empty_record",
    "encode_blocks",
    "encode_records",
    "full_key",
    "row_of",
    "within",
]

_HEADER = struct.Struct(">IIH")  # tests/storage/hfile/test_format_doc.py holds it to FORMAT.md
KEY_SUFFIX = bytes.fromhex("00 7fffffffffffffff 04")
"""What follows the row in a full key: no family, the latest time, Put."""
MAX_ROW_SIZE = (1 << 15) - 1
_ROW_AT = _HEADER.size
_TIED_SHARE = 16
"""If more than this fraction of rows agree in eight bytes with the next one, blocks are searched
each for itself."""
_SAMPLE = 512
"""So many rows are looked at for that."""
_LONG_RUN, _LEVELS = 16, 2
"""Records that agree in those bytes, too, are searched by bytes behind what they have in common, if
there are so many in a run; so many times."""
_SMALL_RECORD = 256
"""To copy one of more bytes costs more than to look at it twice where it lies."""
RECORD_OVERHEAD = _ROW_AT + len(KEY_SUFFIX) + 1
"""Bytes of a record besides its row and its value."""


@dataclass(frozen=True)
class KeyValues:
    """Records of data blocks, ascending by row as far as the file is sound.

    `raw` holds them; row i is `raw[row_starts[i]:][:row_sizes[i]]`, its value begins
    `value_gaps[i]` bytes after it. All are int64 of shape (n,), those that are all equal
    perhaps without memory of their own.
    """

    raw: UInt8s
    row_starts: Int64s
    row_sizes: Int64s
    value_gaps: Int64s
    value_sizes: Int64s
    firsts: Int64s | None = None
    """The first record of each block, where it is known."""

    def __len__(self) -> int:
        return len(self.row_starts)

    @property
    def value_starts(self) -> Int64s:
        return self.row_starts + self.row_sizes + self.value_gaps

    def keys(self) -> pa.Array:
        """All rows, as a `pa.binary()` array."""
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

    def key(self, place: int) -> bytes:
        """One row; from the end if `place` is negative."""
        start = int(self.row_starts[place])
        return self.raw[start : start + int(self.row_sizes[place])].tobytes()

    def value(self, place: int) -> bytes:
        """One value."""
        start = int(self.row_starts[place] + self.row_sizes[place] + self.value_gaps[place])
        return self.raw[start : start + int(self.value_sizes[place])].tobytes()

    def at(self, places: Int64s) -> KeyValues:
        """The records `places`, in that order, of the same bytes."""
        return KeyValues(
            self.raw,
            self.row_starts[places],
            self.row_sizes[places],
            self.value_gaps[places],
            self.value_sizes[places],
        )

    def side_by_side(self) -> KeyValues:
        """The same records, small ones of about one size copied to even distances in memory of
        their own: who looks at several parts of each goes to where it lies once."""
        sizes = once(self.row_sizes) + once(self.value_gaps) + once(self.value_sizes)
        width = _ROW_AT + int(sizes.max(initial=0))
        if not len(self) or not _are_near(sizes, width) or width > len(self.raw):
            return self
        begins = np.minimum(self.row_starts - _ROW_AT, len(self.raw) - width)
        every = np.ndarray((len(self.raw) - width + 1,), f"V{width}", self.raw, strides=(1,))
        starts = np.arange(0, len(self) * width, width)
        starts += self.row_starts - begins
        return replace(self, raw=every[begins].view(np.uint8), row_starts=starts, firsts=None)

    def place_of(self, key: bytes) -> int:
        """The (first) record of `key`, -1 where there is none: a bisection, for single keys."""
        if not self._ascends:
            return int(self._hits(pa.array([key], pa.binary()))[0])
        place = bisect_left(range(len(self)), key, key=self.key)
        return place if place < len(self) and self.key(place) == key else -1

    @cached_property
    def _ascends(self) -> bool:
        """Whether no row is less than the one before it: told once, for all single keys."""
        keys = self.keys()
        return len(keys) < 2 or bool(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py())

    def find(
        self,
        wanted: pa.Array,
        prove: Callable[[KeyValues], None] | None = None,
        cuts: Int64s | None = None,
    ) -> Int64s:
        """The (first) record of each wanted key, -1 where there is none.

        Searches eight bytes a key, the first that can differ, and compares whole keys where
        it landed. Where many keys agree in those, and `cuts` tell which wanted keys belong to
        which block (n + 1 places of n blocks), it is done block by block, whose keys begin
        alike for longer. Keys that are told apart by later bytes still are searched whole.
        Records out of order are looked up in a hash table, once `prove` has been called with
        them: Hudi sorts by UTF-16, which puts characters beyond U+FFFF before those from
        U+E000 on.
        """
        if not len(self) or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        if cuts is not None and self.firsts is not None and self._seem_tied():
            words, sought = self._words_by_block(wanted, cuts)
        else:
            words, sought = self._words(), self._sought(wanted, np.int64(self._skip()))
        found = self._searched(wanted, words, sought, _LEVELS)
        if found is None:
            if prove:
                prove(self)
            return self._hits(wanted)
        return found

    def _searched(
        self, wanted: pa.Array, words: UInt64s, sought: UInt64s, levels: int
    ) -> Int64s | None:
        """`find` by these words, None where the rows are out of order."""
        if (words[1:] < words[:-1]).any():
            return None
        places = np.minimum(np.searchsorted(words, sought), len(words) - 1)
        equal = self._equal(places, wanted)
        found = np.where(equal, places, -1)
        ties = np.flatnonzero(words[1:] == words[:-1])
        if not ties.size:
            return found
        unsure = np.flatnonzero((words[places] == sought) & ~equal)
        firsts, ends = _runs(ties)
        is_long = (ends - firsts >= _LONG_RUN) & (levels > 0)
        if is_long.any():
            ties = ties[np.repeat(~is_long, ends - firsts - 1)]
            runs = firsts[is_long], ends[is_long]
            in_run = np.isin(places[unsure], runs[0])
            more = unsure[in_run]
            in_runs = self._in_runs(wanted.take(pa.array(more)), places[more], *runs, levels)
            if in_runs is None:
                return None
            found[more] = in_runs
            unsure = unsure[~in_run]
        if not self._ascend(ties):
            return None
        if unsure.size:
            behind = np.searchsorted(words, sought[unsure], "right")
            few = wanted.take(pa.array(unsure))
            landed = self._lower_bound(few, places[unsure], behind)
            clipped = np.minimum(landed, len(words) - 1)
            found[unsure] = np.where(self._equal(clipped, few), clipped, -1)
        return found

    def _in_runs(
        self, wanted: pa.Array, places: Int64s, firsts: Int64s, ends: Int64s, levels: int
    ) -> Int64s | None:
        """`_searched` in runs of records, by bytes behind what the rows of each begin with; the run
        of a wanted key begins at its place."""
        sizes = ends - firsts
        before = np.cumsum(sizes) - sizes
        members = np.repeat(firsts - before, sizes) + np.arange(int(sizes.sum()))
        runs = replace(self.at(members), firsts=before)
        order = np.argsort(places, kind="stable")  # keys of other beginnings have any word
        cuts = np.searchsorted(places[order], np.append(firsts, len(self)))
        sorted_keys = wanted.take(pa.array(order))
        landed = runs._searched(sorted_keys, *runs._words_by_block(sorted_keys, cuts), levels - 1)
        if landed is None:
            return None
        found = np.empty(len(order), np.int64)
        found[order] = np.where(landed < 0, -1, members[landed])
        return found

    def _hits(self, wanted: pa.Array) -> Int64s:
        """`find` by a hash table of all rows, in whatever order they are."""
        hits = pc.fill_null(pc.index_in(wanted, value_set=self.keys()), -1)
        return cast("Int64s", hits.to_numpy(zero_copy_only=False).astype(np.int64))

    def _equal(self, places: Int64s, wanted: pa.Array) -> npt.NDArray[np.bool_]:
        rows = _pieces(self.raw, self.row_starts[places], self.row_sizes[places])
        found = pc.equal(rows, wanted).to_numpy(zero_copy_only=False)
        return cast("npt.NDArray[np.bool_]", found)

    def _lower_bound(self, wanted: pa.Array, low: Int64s, high: Int64s) -> Int64s:
        """The first record from `low` on, before `high`, that is not less than the wanted key."""
        low, high = low.copy(), high.copy()
        while (active := np.flatnonzero(low < high)).size:
            middle = (low[active] + high[active]) >> 1
            rows = _pieces(self.raw, self.row_starts[middle], self.row_sizes[middle])
            less = pc.less(rows, wanted.take(pa.array(active))).to_numpy(zero_copy_only=False)
            low[active[less]] = middle[less] + 1
            high[active[~less]] = middle[~less]
        return low

    def _ascend(self, places: Int64s) -> bool:
        """Whether the rows at these places are not greater than the next ones, compared whole."""
        if not places.size:
            return True
        before, after = self.at(places).keys(), self.at(places + 1).keys()
        return bool(pc.all(pc.less_equal(before, after)).as_py())

    def _seem_tied(self) -> bool:
        """Whether many rows agree in `_words` with the next one, by a look at some of them."""
        some = np.arange(0, len(self) - 1, max(len(self) // _SAMPLE, 1))
        pairs = self.at(np.concatenate((some, some + 1)))
        skip = self._skip()
        words = first_words(self.raw, pairs.row_starts + skip, _less(pairs.row_sizes, skip))
        ties = int(np.count_nonzero(words[: len(some)] == words[len(some) :]))
        return ties * _TIED_SHARE > len(some)

    def _skip(self) -> int:
        """How many bytes all rows begin with, if they ascend."""
        return common_prefix_size(self.key(0), self.key(-1))

    def _words(self) -> UInt64s:
        """Eight bytes of every row, behind what all rows begin with."""
        skip = self._skip()
        return first_words(self.raw, self.row_starts + skip, _less(self.row_sizes, skip))

    def _sought(self, wanted: pa.Array, skip: Int64s | np.int64) -> UInt64s:
        """The same of wanted keys; one that begins otherwise gets some word and equals no row."""
        offsets = offsets_of(wanted)
        data = bytes_of(wanted)[offsets[0] : offsets[-1]]
        starts = np.minimum(offsets[:-1] + skip, offsets[1:]) - offsets[0]
        padded = np.concatenate((data, np.zeros(8, np.uint8)))
        return first_words(padded, starts, np.diff(offsets) - skip)

    def _words_by_block(self, wanted: pa.Array, cuts: Int64s) -> tuple[UInt64s, UInt64s]:
        """The block's number and six bytes of every row and wanted key, behind what all rows of
        the block begin with."""
        assert self.firsts is not None
        ends = np.append(self.firsts[1:], len(self))
        skips = self._skips(self.firsts, ends)
        counts = ends - self.firsts
        numbers = np.arange(len(skips), dtype=np.uint64) << np.uint64(48)
        skip = np.repeat(skips, counts)
        words = first_words(self.raw, self.row_starts + skip, self.row_sizes - skip)
        sought = self._sought(wanted, np.repeat(skips, np.diff(cuts)))
        return (
            _numbered(words, np.repeat(numbers, counts)),
            _numbered(sought, np.repeat(numbers, np.diff(cuts))),
        )

    def _skips(self, firsts: Int64s, ends: Int64s) -> Int64s:
        """How many bytes all rows of each of these runs begin with, if they ascend; 0 of none."""
        raw, keys = self.raw.data, []
        last = len(self) - 1
        for places in (np.minimum(firsts, last), np.maximum(ends - 1, 0)):
            starts = self.row_starts[places]
            bounds = zip(starts.tolist(), (starts + self.row_sizes[places]).tolist(), strict=True)
            keys.append([bytes(raw[start:end]) for start, end in bounds])
        skips = np.fromiter(map(common_prefix_size, *keys), np.int64, len(firsts))
        return np.where(firsts < ends, skips, 0)


def _are_near(sizes: Int64s, width: int) -> bool:
    """Whether copies `width` bytes wide of records of these sizes are small, and mostly full."""
    return width <= _SMALL_RECORD and width * len(sizes) <= 2 * int(sizes.sum())


def _runs(ties: Int64s) -> tuple[Int64s, Int64s]:
    """(the first, the one behind the last) of each run of records that agree with the next one
    but for the last of the run; `ties`: those that do."""
    opens = np.flatnonzero(np.diff(ties, prepend=-2) != 1)
    firsts = ties[opens]
    return firsts, firsts + np.diff(opens, append=len(ties)) + 1


def _numbered(words: UInt64s, numbers: UInt64s) -> UInt64s:
    """Ascending where the words of each block do: its number, and six bytes."""
    words >>= np.uint64(16)
    words |= numbers
    return words


def _less(sizes: Int64s, skip: int) -> Int64s:
    """`sizes - skip`, without memory of its own where `sizes` have none."""
    if sizes.strides == (0,) and len(sizes):
        return np.broadcast_to(sizes[0] - skip, sizes.shape)
    return sizes - skip


def _pieces(raw: UInt8s, starts: Int64s, sizes: Int64s) -> pa.Array:
    """`raw[starts[i]:][:sizes[i]]` of every i, copied into a `pa.binary()` array."""
    check_width(raw)
    size = _one_size(sizes)
    if size and size * (len(starts) + 1) < 1 << 31:  # Arrow would look at each size
        at_every_byte = np.ndarray((len(raw) - size + 1,), f"V{size}", raw, strides=(1,))
        cuts = np.arange(0, (len(starts) + 1) * size, size, dtype=np.int32)
        return from_layout(cuts, at_every_byte[starts].view(np.uint8))
    cuts = np.zeros(2 * len(starts) + 1, np.int32)
    cuts[1::2] = starts
    np.add(starts, sizes, out=cuts[2::2], casting="unsafe")
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(raw)]
    both = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return both.take(pa.array(np.arange(1, 2 * len(starts), 2)))


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
    key_sizes, value_sizes = sizes_of(keys), sizes_of(values)
    if _all_equal(key_sizes) and _all_equal(value_sizes):
        return _encode_equal(keys, values, int(key_sizes[0]), int(value_sizes[0]))
    keys, values = keys.cast(pa.binary()), values.cast(pa.binary())
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
    size = int((key_sizes + value_sizes + RECORD_OVERHEAD).sum())
    return bytes_of(joined)[:size].data


def _all_equal(sizes: Int64s) -> bool:
    return sizes.strides == (0,) or bool((sizes == sizes[0]).all())


def empty_record(key_size: int, value_size: int) -> bytes:
    """A record of these sizes, with zeros for row and value."""
    header = _HEADER.pack(key_size + 2 + len(KEY_SUFFIX), value_size, key_size)
    return b"".join((header, bytes(key_size), KEY_SUFFIX, bytes(value_size + 1)))


def _encode_equal(keys: pa.Array, values: pa.Array, key_size: int, value_size: int) -> memoryview:
    empty = empty_record(key_size, value_size)
    raw = np.frombuffer(bytearray(empty) * len(keys), np.uint8)
    for column, at, size in (
        (keys, _ROW_AT, key_size),
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
    for column, at, size in ((keys, _ROW_AT, key_size), (values, value_at, value_size)):
        pieces = records[:, :, at : at + size].view((np.void, size))[:, :, 0]
        pieces[:] = voids(column).reshape(pieces.shape)
    starts = range(before, len(raw), len(block))
    return raw.data, [raw.data[at : at + len(empty) * count] for at in starts]


def within(raw: UInt8s, at: int, size: int, stride: int) -> Voids:
    """`size` bytes, from `at` on, of each of the records that `raw` is: moved as one, not one by
    one, they take a fifth of the time."""
    kind = np.dtype((np.void, size))
    return np.ndarray((len(raw) // stride,), kind, raw, at, (stride,))
