"""Entries into blocks: where each data block begins, before anything is encoded.

Columns of keys and values come in batches of any size; what leaves is runs, each of a few
whole blocks, so that a thread can encode and compress one by itself. A block's end depends on
the entries alone: never on how they were batched, or on threads. A run holds slices of the
columns that were given. What has to wait for more entries is copied if it would keep alive
much more than itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Bools, Int64s
from metatable.storage.byte_columns import joined, offsets_of
from metatable.storage.errors import UsageError
from metatable.storage.hfile.columns import (
    check_bytes,
    checked_binary,
    column_sizes,
    once,
)
from metatable.storage.hfile.key_values import MAX_ROW_SIZE, RECORD_OVERHEAD
from metatable.storage.ordering import is_ascending

__all__ = ["MAX_PAYLOAD", "BlockPlan", "Cutter", "Run", "batches"]

BATCH_ROWS = 128 << 10
"""Rows looked at together."""
BATCH_BYTES = 256 << 20
"""Fewer rows than that if they come to more: Arrow can put 2 GiB into an array, and where
columns have to be converted, so much is copied at a time."""
RUN_BYTES = 2 << 20
"""Blocks for one turn of a thread: enough that its calls cost nothing beside the work."""
MAX_PAYLOAD = (1 << 31) - (1 << 31) // 6
"""A block's sizes are signed 32-bit numbers, and the largest is that of the whole block as it
is stored. Of what a codec may add, Snappy's is the most, a sixth; a sixth of 2 GiB is more than
a sixth of this, and leaves 59 MB, of which header, checksums (4 bytes in 16 KiB) and the
framing of chunks need less than two."""
_KEPT_RATIO = 2
"""Slices that wait may keep so many times their own bytes alive."""

_VIEWS = (pa.binary_view(), pa.string_view())

Piece = tuple[pa.Array, pa.Array]
"""Slices of a key and a value column, `pa.binary()` or of fixed size."""


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A data block that is to be written."""

    size: int
    entry_count: int
    last_entry_size: int
    first_key: bytes
    last_key: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """Whole blocks, one behind the other, and the entries of all of them."""

    pieces: list[Piece]
    blocks: list[BlockPlan]

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(block.size for block in self.blocks)

    def columns(self) -> Piece:
        """All keys and all values."""
        if len(self.pieces) == 1:
            return self.pieces[0]
        keys, values = zip(*self.pieces, strict=True)
        return joined(keys), joined(values)

    def apart(self) -> Run:
        """This run as it may wait: not keeping much larger arrays alive."""
        return Run(_apart(self.pieces, self.size), self.blocks)


class Cutter:
    """Cuts ascending entries into blocks.

    `overfills`: a block takes the record that reaches `block_size`; otherwise it closes before
    one that would pass it. Either way equal keys stay together.
    """

    def __init__(self, block_size: int, *, overfills: bool, unique: bool, path: str) -> None:
        self._block_size = block_size
        self._overfills = overfills
        self._unique = unique
        self._path = path
        self._last_key: bytes | None = None
        # the block that is still open
        self._pieces: list[Piece] = []
        self._size = 0
        self._count = 0
        self._first_key = b""
        self._last_entry_size = 0

    def check(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Raise UsageError unless `runs` can take these entries next."""
        last = self._last_key
        for rows, _ in batches(keys, values):
            self._check_sizes(rows)
            self._check_order(rows, last)
            last = rows[-1].as_py()

    def runs(
        self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray
    ) -> Iterator[Run]:
        """Take entries that were checked; the runs of the blocks that this completes."""
        for rows, cells in batches(keys, values):
            yield from self._runs_of(rows, cells)
            self._last_key = rows[-1].as_py()

    def rest(self) -> Iterator[Run]:
        """The last block, if there is one."""
        if self._pieces:
            assert self._last_key is not None
            plan = self._plan(
                self._size, self._count, self._last_entry_size, self._first_key, self._last_key
            )
            yield Run(self._pieces, [plan])
            self._pieces = []

    def _runs_of(self, keys: pa.Array, values: pa.Array) -> Iterator[Run]:
        size = _record_size(keys, values)
        bounds = _bounds(keys, values, size)
        opens = None if self._unique else np.flatnonzero(self._risen(keys, self._last_key))
        ends = self._block_ends(bounds, opens, are_even=size is not None)
        run_start, start = 0, 0
        blocks: list[BlockPlan] = []
        run_size = 0
        for plan, end in zip(self._close(keys, bounds, ends), ends, strict=True):
            if blocks and run_size + plan.size > RUN_BYTES:
                yield self._run(keys, values, run_start, start, blocks)
                run_start, blocks, run_size = start, [], 0
            blocks.append(plan)
            run_size += plan.size
            start = end
        if blocks:
            yield self._run(keys, values, run_start, start, blocks)
        self._hold(keys, values, bounds, start)

    def _block_ends(self, bounds: Int64s, opens: Int64s | None, *, are_even: bool) -> Sequence[int]:
        """The rows before which blocks close; `are_even`: records have one size."""
        count = len(bounds) - 1
        end = self._block_end(bounds, 0, self._size, opens)
        if opens is None and are_even:
            return range(end, count, self._block_end(bounds, 0, 0, None))
        ends: list[int] = []
        while end < count:
            ends.append(end)
            end = self._block_end(bounds, end, 0, opens)
        return ends

    def _block_end(self, bounds: Int64s, start: int, held: int, opens: Int64s | None) -> int:
        """The row before which a block closes that has `held` bytes and rows from `start` on; their
        number or more where it stays open."""
        before = int(bounds[start])
        room = before + self._block_size - held
        if self._overfills:
            end = int(bounds.searchsorted(room, "left")) if room > before else start
        else:
            end = int(bounds.searchsorted(room, "right")) - 1
        end = max(end, start if held else start + 1)
        if opens is not None:  # to where the next other key begins
            next_open = int(np.searchsorted(opens, end))
            end = int(opens[next_open]) if next_open < len(opens) else len(bounds) - 1
        return end

    def _close(self, keys: pa.Array, bounds: Int64s, ends: Sequence[int]) -> list[BlockPlan]:
        """The blocks that end before these rows; the first begins with what was held."""
        if not ends:
            return []
        stops = np.array(ends)
        starts = np.concatenate(([0], stops[:-1]))
        sizes = bounds[stops] - bounds[starts]
        last_sizes = bounds[stops] - bounds[stops - 1]
        first_keys = keys.take(pa.array(starts)).to_pylist()
        last_keys = keys.take(pa.array(np.maximum(stops - 1, 0))).to_pylist()
        counts = stops - starts
        if self._size:
            sizes[0] += self._size
            counts[0] += self._count
            first_keys[0] = self._first_key
        if not ends[0]:
            last_sizes[0], last_keys[0] = self._last_entry_size, self._last_key
        self._size, self._count = 0, 0
        columns = sizes.tolist(), counts.tolist(), last_sizes.tolist(), first_keys, last_keys
        return [self._plan(*told) for told in zip(*columns, strict=True)]

    def _plan(
        self, size: int, count: int, last_entry_size: int, first_key: bytes, last_key: bytes
    ) -> BlockPlan:
        self._check_payload(size)
        return BlockPlan(size, count, last_entry_size, first_key, last_key)

    def _check_payload(self, size: int) -> None:
        if size > MAX_PAYLOAD:
            raise UsageError(
                "entries are too large for a block",
                path=self._path,
                expected=f"at most {MAX_PAYLOAD} bytes",
                found=size,
            )

    def _run(
        self, keys: pa.Array, values: pa.Array, start: int, end: int, blocks: list[BlockPlan]
    ) -> Run:
        pieces, self._pieces = self._pieces, []
        if end > start:
            pieces.append((keys[start:end], values[start:end]))
        return Run(pieces, blocks)

    def _hold(self, keys: pa.Array, values: pa.Array, bounds: Int64s, start: int) -> None:
        """Keep the rows from `start` on, of the block that is open."""
        if start == len(keys):
            return
        if not self._size:
            self._first_key = keys[start].as_py()
        size = int(bounds[-1] - bounds[start])
        self._pieces += _apart([(keys[start:], values[start:])], size)
        self._size += size
        self._count += len(keys) - start
        self._last_entry_size = int(bounds[-1] - bounds[-2])
        self._check_payload(self._size)

    def _check_sizes(self, keys: pa.Array) -> None:
        sizes = once(column_sizes(keys))
        if sizes.min() < 1 or sizes.max() > MAX_ROW_SIZE:
            worst = int(sizes.argmin() if sizes.min() < 1 else sizes.argmax())
            raise UsageError(
                "key has an impossible size",
                path=self._path,
                expected=f"1 to {MAX_ROW_SIZE} bytes",
                found=f"{sizes[worst]} bytes: {keys[worst].as_py()[:50]!r}",
            )

    def _check_order(self, keys: pa.Array, last: bytes | None) -> None:
        first, strictly = keys[0].as_py(), self._unique
        begun = last is None or last < first or (last == first and not strictly)
        if not (begun and is_ascending(keys, strictly)):
            allowed = self._risen(keys, last, or_equal=not strictly)
            at = int(np.argmin(allowed))
            raise UsageError(
                f"keys must be {'strictly ' if self._unique else ''}ascending",
                path=self._path,
                previous=keys[at - 1].as_py() if at else last,
                offered=keys[at].as_py(),
            )

    def _risen(self, keys: pa.Array, last: bytes | None, or_equal: bool = False) -> Bools:
        """For each key whether it is above (or equal to) the one before it."""
        compare = pc.less_equal if or_equal else pc.less
        risen = np.empty(len(keys), np.bool_)
        first = keys[0].as_py()
        risen[0] = last is None or last < first or (or_equal and last == first)
        keys = keys.cast(pa.binary())
        risen[1:] = compare(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
        return risen


def _record_size(keys: pa.Array, values: pa.Array) -> int | None:
    """The size of all records, where columns of fixed size tell it."""
    if not all(pa.types.is_fixed_size_binary(one.type) for one in (keys, values)):
        return None
    return int(keys.type.byte_width + values.type.byte_width + RECORD_OVERHEAD)


def _bounds(keys: pa.Array, values: pa.Array, size: int | None) -> Int64s:
    """Bytes of the records before each row, and of all: n + 1 numbers."""
    if size is not None:
        return np.arange(0, size * len(keys) + 1, size)
    return offsets_of(column_sizes(keys) + column_sizes(values) + RECORD_OVERHEAD)


def batches(
    keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray
) -> Iterator[Piece]:
    """Both columns as `pa.binary()`, or of fixed size, in pieces of at most BATCH_ROWS and
    BATCH_BYTES (if it is more than a row). Raises UsageError."""
    for at in range(0, len(keys), BATCH_ROWS):
        rows, cells = keys[at : at + BATCH_ROWS], values[at : at + BATCH_ROWS]
        for some_rows, some_cells in _parts(rows, cells):
            yield _plain(some_rows, "keys"), _plain(some_cells, "values")


def _plain(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    """As `pa.binary()`, unless it is of fixed size, and of any."""
    if not isinstance(column, pa.FixedSizeBinaryArray) or not column.type.byte_width:
        return checked_binary(column, what)
    check_bytes(column, what)
    return column


def _parts(keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Iterator[Piece]:
    """Both columns, of whatever types, in pieces of at most BATCH_BYTES or of one row."""
    if _most_bytes(keys) + _most_bytes(values) <= BATCH_BYTES:
        yield keys, values
        return
    check_bytes(keys, "keys")
    check_bytes(values, "values")
    ends = np.cumsum(_sizes(keys) + _sizes(values))
    start, before = 0, 0
    while start < len(ends):
        end = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), start + 1)
        yield keys[start:end], values[start:end]
        start, before = end, int(ends[end - 1])


def _most_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """What all rows together come to at most, found quickly: additions may be small."""
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_most_bytes, column.chunks))
    if column.type in _VIEWS:  # rows may share bytes
        return int(_sizes(column).sum())
    return int(column.get_total_buffer_size())


def _sizes(column: pa.Array | pa.ChunkedArray) -> Int64s:
    """Bytes of each row, of any type that `checked_binary` takes."""
    if not len(column):
        return np.empty(0, np.int64)
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([_sizes(chunk) for chunk in column.chunks])
    if column.type in _VIEWS:  # Arrow has no function for them
        views = np.frombuffer(column.buffers()[1], "<i4").reshape(-1, 4)
        return views[column.offset : column.offset + len(column), 0].astype(np.int64)
    return cast("Int64s", pc.binary_length(column).to_numpy().astype(np.int64))


def _apart(pieces: list[Piece], size: int) -> list[Piece]:
    """`pieces` of so many bytes, copied if the memory they keep alive is much larger."""
    buffers = (buffer for column in chain.from_iterable(pieces) for buffer in column.buffers())
    if sum(map(_kept_bytes, buffers)) <= _KEPT_RATIO * size:
        return pieces
    keys, values = zip(*pieces, strict=True)
    return [(joined(keys), joined(values))]


def _kept_bytes(buffer: pa.Buffer | None) -> int:
    """Bytes of what `buffer` is a part of."""
    if buffer is None:
        return 0
    while buffer.parent is not None:
        buffer = buffer.parent
    return int(buffer.size)
