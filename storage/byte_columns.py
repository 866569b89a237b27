"""Strings and binaries as two numpy arrays: where each value begins, and the bytes of all.

Value i of a column is `data[offsets[i]:offsets[i + 1]]`; both are views of the Arrow
buffers where Arrow's layout allows it, slices included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Bools, Int32s, Int64s, UInt8s, UInt64s
from metatable.storage.errors import UsageError

__all__ = [
    "LOW_BYTES",
    "Offsets",
    "Runs",
    "Voids",
    "at_every_byte",
    "byte_chunks",
    "byte_layout",
    "cut_rows",
    "first_words",
    "fresh",
    "from_gaps",
    "from_layout",
    "from_voids",
    "gathered",
    "is_ascii",
    "joined",
    "joined_runs",
    "last_words",
    "of_one_size",
    "offsets_of",
    "pieces_at",
    "single",
    "size_of_all",
    "spread",
    "voids",
    "words_of",
]

Offsets = Int32s | Int64s
Voids = npt.NDArray[np.void]

LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""What to keep of a little-endian word of which only so many bytes belong to the piece."""
NO_BYTES = np.zeros(0, np.uint8)
ROOM_BYTES = 64 << 20
"""So large a piece of memory is the operating system's own, which can lengthen it in place."""

_WORD = 8
_HIGHEST_BITS = 0x8080808080808080
_MASKS = np.array([(1 << 64) - (1 << 8 * (_WORD - size)) for size in range(_WORD + 1)], np.uint64)


def byte_layout(column: pa.Array) -> tuple[Offsets, UInt8s]:
    """(offsets of n + 1, data) of a string, binary, large or fixed-size column without nulls.

    Views (`string_view`, `binary_view`) are copied once. Raises UsageError for nulls and for
    columns that have no bytes.
    """
    if column.null_count:
        raise UsageError("null in a column of bytes", nulls=column.null_count, rows=len(column))
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_layout(column, kind.byte_width)
    if kind in (pa.string_view(), pa.binary_view()):
        column = column.cast(pa.large_binary())
    elif pa.types.is_null(kind):
        column = column.cast(pa.binary())
    elif kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        raise UsageError("not a column of bytes", found=str(kind), expected="string or binary")
    wide = column.type in (pa.large_string(), pa.large_binary())
    if not len(column):
        return np.zeros(1, np.int32), NO_BYTES
    _, offsets, data = column.buffers()
    kind_of_offsets: Any = np.int64 if wide else np.int32
    starts: Offsets = np.frombuffer(offsets, kind_of_offsets)
    return starts[column.offset : column.offset + len(column) + 1], _bytes(data)


def byte_chunks(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """The plain arrays that `column` is made of."""
    yield from column.chunks if isinstance(column, pa.ChunkedArray) else (column,)


def cut_rows(column: pa.Array | pa.ChunkedArray, rows: int) -> Iterator[tuple[Offsets, UInt8s]]:
    """(n + 1 offsets, the data that they are of) of each so many rows, as `byte_layout` has them;
    no copy."""
    for offsets, data in map(byte_layout, byte_chunks(column)):
        for first in range(0, len(offsets) - 1, rows):
            yield offsets[first : first + rows + 1], data


def fresh(size: int) -> UInt8s:
    """Memory of so many bytes, with anything in them. It is Arrow's, which keeps megabytes that
    were given back for who asks next: the system would have to clear each page anew."""
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def at_every_byte(data: UInt8s, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """The number, or the bytes, of this kind that begin at each byte of `data`, as far as there is
    room for one: a view."""
    count = max(0, len(data) + 1 - np.dtype(kind).itemsize)
    return np.ndarray((count,), kind, data, strides=(1,))


def pieces_at(data: UInt8s, starts: Offsets, size: int) -> Voids:
    """Copies of so many bytes from each of these places on, side by side."""
    return at_every_byte(data, f"V{size}")[starts]


def first_words(data: UInt8s, starts: Int64s, sizes: Int64s) -> UInt64s:
    """The first eight bytes of each piece as a big-endian number, zeros behind a shorter one.

    `data` has eight bytes or more behind the start of every piece. Ascending pieces make
    ascending words; equal words prove nothing. Pieces of size 0 or less count as empty.
    """
    words = at_every_byte(data, np.uint64)
    if len(starts) and int(starts.max()) >= len(words):
        starts = np.minimum(starts, len(words) - 1)
    found = words[starts]
    if sys.byteorder == "little":
        found.byteswap(inplace=True)
    return _of_sizes(found, sizes)


def last_words(data: UInt8s, ends: Int64s, sizes: Int64s) -> UInt64s:
    """The last eight bytes of each piece as some number, with zeros for those that are missing.

    `data` has eight bytes or more. One of a piece that is shorter is asked of where it lies, so at
    least eight bytes of `data` are before its end. Pieces of size 0 or less count as empty.
    """
    words = at_every_byte(data, "<u8")
    starts = ends - _WORD
    if len(starts) and int(starts.min()) < 0:
        starts = np.maximum(starts, 0)
    found: UInt64s = words[starts]
    return _of_sizes(found, sizes)


def _of_sizes(words: UInt64s, sizes: Int64s) -> UInt64s:
    """These words, in place, with zeros for low bytes that pieces of these sizes lack."""
    if sizes.strides == (0,):  # one number for all
        sizes = sizes[:1]
    if int(sizes.min(initial=_WORD)) < _WORD:
        words &= _MASKS[np.clip(sizes, 0, _WORD)]
    return words


def from_layout(offsets: Offsets, data: UInt8s) -> pa.Array:
    """A `pa.binary()` column over these arrays, `pa.large_binary()` where the bytes need it."""
    wide = len(offsets) > 0 and int(offsets[-1]) >= 1 << 31
    starts = np.ascontiguousarray(offsets, np.int64 if wide else np.int32)
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(
        kind, len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of bytes, `data[starts[i]:ends[i]]`, ascending, whatever lies between them."""

    data: UInt8s
    starts: Offsets
    ends: Offsets

    @classmethod
    def of(cls, column: pa.Array) -> Runs:
        """The values of a column, as `byte_layout` has them."""
        offsets, data = byte_layout(column)
        return cls(data, offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def column(self) -> pa.Array:
        """Copied, as `pa.binary()`."""
        return from_gaps(self.data, self.starts, self.ends - self.starts)


def joined_runs(some: Sequence[Runs]) -> Runs:
    """Runs of several data (one at least), behind each other."""
    places = np.cumsum([0, *(len(one.data) for one in some[:-1])]).tolist()
    starts = [one.starts + place for one, place in zip(some, places, strict=True)]
    ends = [one.ends + place for one, place in zip(some, places, strict=True)]
    return Runs(*map(np.concatenate, ([one.data for one in some], starts, ends)))


def from_gaps(data: UInt8s, starts: Offsets, lengths: Offsets) -> pa.Array:
    """The runs `data[starts[i]:][:lengths[i]]`, ascending, as a `pa.binary()` column.

    Runs of one length are pieces that numpy takes. Others are copied by Arrow: runs and the gaps
    between them are one binary array over the bytes as they lie there, of which every second value
    is taken.
    """
    if not lengths.any():
        return from_layout(np.zeros(len(lengths) + 1, np.int32), data)
    size = int(lengths[0])
    if (lengths == size).all():
        pieces = pieces_at(data, starts, size)
        return from_layout(size * np.arange(len(starts) + 1), pieces.view(np.uint8))
    wide = len(data) >= 1 << 31
    bounds = np.stack([starts, starts + lengths], axis=1).ravel()
    bounds = bounds.astype(np.int64 if wide else np.int32)
    both = pa.Array.from_buffers(
        pa.large_binary() if wide else pa.binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(bounds), pa.py_buffer(data)],
    )
    return both.take(pa.array(np.arange(0, len(bounds), 2))).cast(pa.binary())


def is_ascii(column: pa.Array) -> bool:
    """Whether a `pa.binary()` column has such bytes alone, which are UTF-8: a look at words, which
    costs a tenth of asking Arrow. False: another type, too."""
    if column.type != pa.binary():
        return False
    offsets, data = byte_layout(column)
    data = data[int(offsets[0]) : int(offsets[-1])]
    words = data[: len(data) - len(data) % _WORD].view(np.uint64)
    rest = data[len(data) - len(data) % _WORD :]
    return not (int(np.bitwise_or.reduce(words)) & _HIGHEST_BITS or (rest & 0x80).any())


def size_of_all(offsets: Offsets) -> int:
    """How many bytes each value has between these (of one at least); -1: they differ."""
    first, size = int(offsets[0]), int(offsets[1] - offsets[0])
    if size * (len(offsets) - 1) != int(offsets[-1]) - first:
        return -1
    if not size:  # they ascend
        return 0
    evenly = first + size * np.arange(len(offsets), dtype=offsets.dtype)
    return size if np.array_equal(offsets, evenly) else -1


def of_one_size(column: pa.Array) -> pa.Array:
    """A binary column without nulls as one of fixed size, a view, where all values have one."""
    if not len(column) or pa.types.is_fixed_size_binary(column.type):
        return column
    offsets, data = byte_layout(column)
    size = size_of_all(offsets)
    if size <= 0:
        return column
    bytes_ = pa.py_buffer(data[offsets[0] : offsets[-1]])
    return pa.Array.from_buffers(pa.binary(size), len(column), [None, bytes_])


def voids(column: pa.Array) -> Voids:
    """A fixed-size binary column without nulls as a view: each value is one piece, (n,)."""
    width = column.type.byte_width
    data = _bytes(column.buffers()[1])[column.offset * width :][: len(column) * width]
    return data.view(np.dtype((np.void, width)))


def words_of(pieces: Voids, at: int = 0) -> UInt64s:
    """Eight bytes of each of the contiguous `pieces`, from `at` on, as big-endian numbers."""
    if not len(pieces):
        return np.zeros(0, np.uint64)
    words = np.ndarray((len(pieces),), np.uint64, pieces, at, (pieces.dtype.itemsize,))
    return words.byteswap() if sys.byteorder == "little" else words.copy()


def from_voids(pieces: Voids, valid: Bools | None = None) -> pa.Array:
    """The contiguous `pieces` as a fixed-size binary column, not copied; null unless `valid`."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(pieces.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(pieces.dtype.itemsize), len(pieces), buffers)


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Binary columns copied one behind the other; `pa.binary()` unless all are of one type."""
    if any(column.type != columns[0].type for column in columns[1:]):
        columns = [column.cast(pa.binary()) for column in columns]
    return pa.concat_arrays(columns)


def single(column: pa.Array) -> Callable[[int], bytes]:
    """What gives one value of a binary column, not empty, without nulls: those of fixed size from
    where they lie."""
    if not pa.types.is_fixed_size_binary(column.type):
        return lambda place: cast("bytes", column[place].as_py())
    width = column.type.byte_width
    data = memoryview(column.buffers()[1])[column.offset * width :]
    return lambda place: data[place * width : (place + 1) * width].tobytes()


def gathered(columns: Iterable[pa.Array]) -> pa.Array:
    """Columns without nulls one behind the other as a `pa.binary()` one.

    Each may go before the next one comes, and what is gathered grows where it is, in room that
    takes no memory until it is written: nothing is held twice.
    """
    data, end, sizes = np.empty(ROOM_BYTES, np.uint8), 0, [np.zeros(0, np.int64)]
    for column in columns:
        offsets, raw = byte_layout(column)
        begin, end = end, end + int(offsets[-1] - offsets[0])
        if end > len(data):
            data.resize(end + ROOM_BYTES // 16, refcheck=False)
        data[begin:end] = raw[offsets[0] : offsets[-1]]
        sizes.append(np.diff(offsets).astype(np.int64))
    data.resize(end, refcheck=False)
    return from_layout(offsets_of(np.concatenate(sizes)), data)


def spread(column: pa.Array, rows: Int64s, count: int) -> pa.Array:
    """`count` values: those of `column` at the ascending `rows`, empty ones elsewhere."""
    offsets, data = byte_layout(column)
    lengths = np.zeros(count, np.int64)
    lengths[rows] = np.diff(offsets)
    return from_layout(offsets[0] + offsets_of(lengths), data)


def offsets_of(lengths: Int64s) -> Int64s:
    """n + 1 offsets of values of these lengths, laid end to end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _fixed_layout(column: pa.Array, width: int) -> tuple[Offsets, UInt8s]:
    first = column.offset * width
    offsets = first + width * np.arange(len(column) + 1, dtype=np.int64)
    return offsets, _bytes(column.buffers()[1])


def _bytes(buffer: pa.Buffer | None) -> UInt8s:
    return NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)
