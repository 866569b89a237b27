"""Finding the records of data blocks, and proving that they are what was found.

Records say their own sizes, so the place of one is known only from the one before. No loop
over records is needed on the usual ways:

    sizes     a file of ours says the sizes again (record_sizes.py): places are sums of them
    stride    records that are all alike but for rows and values are a table
    endings   where keys of one length end, or keys of values of one length, tells all the starts
              (endings.py)
    walk      one by one: takes what only HBase writes (families, other timestamps, longer
              mvcc numbers)

`find_records` believes nothing that it has not proven for every record. Sizes that a file
says are proven for one record of every block; `check_records` then proves the records that
are used.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import replace

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import Voids, at_every_byte, from_voids
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.columns import (
    once,
    repeated,
)
from metatable.storage.hfile.key_values import (
    HEADER,
    KEY_SUFFIX,
    MAX_ROW_SIZE,
    RECORD_OVERHEAD,
    ROW_AT,
    KeyValues,
    record_header,
)
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.endings import by_endings
from metatable.storage.hfile.reading.grid import Grid
from metatable.storage.hfile.record_sizes import Sizes
from metatable.storage.hfile.wire import Malformed, read_hadoop

__all__ = [
    "check_counts",
    "check_records",
    "check_starts",
    "check_stride",
    "find_records",
    "fixed_batch",
    "proven_records",
    "records_of_sizes",
    "records_of_stride",
    "rows_of_sizes",
]

_PUT = 4
_ENDING_THERE = np.frombuffer(KEY_SUFFIX[2:], np.uint64)[0]


def find_records(payload: UInt8s, with_mvcc: bool, path: str, offset: int) -> KeyValues:
    """The records of a payload, uint8. Raises CorruptError, naming the one that does not fit."""
    if not len(payload):
        return _nothing(payload)
    if with_mvcc and len(payload) > RECORD_OVERHEAD:
        found = _by_stride(payload) or by_endings(payload)
        if found is not None:
            return found
    return _walk(payload, with_mvcc, path, offset)


def records_of_stride(
    payloads: Payloads, key_size: int, value_size: int, path: str, offset: int
) -> KeyValues:
    """Records that all have these sizes, by the file's word."""
    stride = key_size + value_size + RECORD_OVERHEAD
    check_stride(payloads, stride, path, offset)
    counts = (payloads.ends - payloads.starts) // stride
    before = np.cumsum(counts) - counts
    first = payloads.starts + ROW_AT - before * stride
    total = int(counts.sum())
    starts = np.repeat(first, counts) + np.arange(0, total * stride, stride)
    records = KeyValues.plain(
        payloads.raw, starts, repeated(key_size, total), repeated(value_size, total)
    )
    check_records(records.at(before[counts > 0]), path, offset)
    return records


def records_of_sizes(
    payloads: Payloads, counts: Int64s, keys: Sizes, values: Sizes, path: str, offset: int
) -> KeyValues:
    """Records of these sizes, `counts` of them in each block, by the file's word.

    `counts` have passed `check_counts`.
    """
    total = int(counts.sum())
    starts, lasts = rows_of_sizes(payloads, counts, keys, values, path, offset)
    key_sizes = repeated(keys, total) if isinstance(keys, int) else keys.astype(np.int64)
    value_sizes = repeated(values, total) if isinstance(values, int) else values.astype(np.int64)
    records = KeyValues.plain(payloads.raw, starts, key_sizes, value_sizes)
    check_records(records.at(lasts), path, offset)
    return records


def rows_of_sizes(
    payloads: Payloads, counts: Int64s, keys: Sizes, values: Sizes, path: str, offset: int
) -> tuple[Int64s, Int64s]:
    """(where the row of each of these records begins, the last record of each block), by the file's
    word. Raises CorruptError unless the records fill their blocks."""
    lasts = np.cumsum(counts) - 1
    rows = np.empty(int(counts.sum()) + 1, np.int64)  # at first from one record to the next
    rows[0] = payloads.starts[0] + ROW_AT
    lengths = rows[1:]
    lengths[:] = values
    lengths += RECORD_OVERHEAD + keys if isinstance(keys, int) else keys
    if not isinstance(keys, int):
        lengths += RECORD_OVERHEAD
    last_lengths = lengths[lasts]
    lengths[lasts[:-1]] += payloads.starts[1:] - payloads.ends[:-1]
    np.cumsum(rows, out=rows)
    ends = rows[lasts] + last_lengths - ROW_AT
    if not np.array_equal(ends, payloads.ends):
        raise _unfit(path, offset, f"ends at {payloads.ends.tolist()[:5]}", ends.tolist()[:5])
    return rows[:-1], lasts


def fixed_batch(payloads: Payloads, key_size: int, value_size: int) -> pa.RecordBatch | None:
    """Columns `key` and `value`, both of fixed size, of records that are proven to have these
    sizes; None where they have not, or where these can be no sizes."""
    stride = key_size + value_size + RECORD_OVERHEAD
    if not 1 <= key_size <= MAX_ROW_SIZE or value_size < 1:
        return None
    grid = Grid.of_blocks(payloads, stride)
    if grid is None or not _are_alike(grid, key_size, value_size):
        return None
    places = (ROW_AT, key_size), (stride - 1 - value_size, value_size)
    pieces = (grid.pieces(np.dtype((np.void, size)), at).copy() for at, size in places)
    return pa.record_batch([from_voids(one.ravel()) for one in pieces], names=["key", "value"])


def check_stride(payloads: Payloads, stride: int, path: str, offset: int) -> None:
    """Raise CorruptError unless each block is whole records of so many bytes."""
    sizes = payloads.ends - payloads.starts
    if (sizes % stride).any():
        raise _unfit(path, offset, f"blocks of {stride}-byte records", sizes.tolist()[:5])


def check_counts(payloads: Payloads, counts: Int64s, path: str, offset: int) -> None:
    """Raise CorruptError unless so many records can be in each block, before they get memory."""
    room = (payloads.ends - payloads.starts) // RECORD_OVERHEAD
    if (counts < 1).any() or (counts > room).any():
        raise _unfit(path, offset, f"1 to {room.tolist()[:5]} records", counts.tolist()[:5])


def check_starts(records: KeyValues, starts: Int64s, path: str, offset: int) -> None:
    """Raise CorruptError unless a record begins where each block does."""
    begun = records.row_starts - ROW_AT
    places = np.minimum(np.searchsorted(begun, starts), max(len(begun) - 1, 0))
    filled = starts < len(records.raw)  # a block may be empty
    if filled.any() and not (len(begun) and (begun[places] == starts)[filled].all()):
        raise CorruptError(
            "a record lies in two blocks",
            path=path,
            offset=offset,
            expected="whole records in every block",
            found=f"{len(begun)} records in {len(starts)} blocks",
        )


def check_records(
    records: KeyValues, path: str, offset: int, there: KeyValues | None = None
) -> None:
    """Raise CorruptError unless the bytes of every record say that it is one. Of copies, `there`
    are those that were copied: the message says where they lie."""
    if not len(records):
        return
    words, rows = at_every_byte(records.raw, np.uint64), once(records.row_sizes)
    sound = words[records.row_starts - (ROW_AT - 2)] == records.header_words()
    sound &= words[records.row_starts + (rows + once(records.value_gaps) - 8)] == _ENDING_THERE
    if not sound.all():
        there = records if there is None else there
        at = int(there.row_starts[int(np.argmin(sound))]) - ROW_AT
        found = there.raw[at : at + ROW_AT].tobytes().hex()
        raise _unfit(path, offset, f"a record at byte {at}", found)


def proven_records(records: KeyValues, path: str, offset: int) -> KeyValues:
    """The records once `check_records` has passed them. Their rows are copied along where that is
    the faster way to look at them. Raises CorruptError."""
    rows = _sound_rows(records)
    if rows is not None:
        return replace(records, rows=rows)
    check_records(records, path, offset)
    return records


def _sound_rows(records: KeyValues) -> Voids | None:
    """Copies of the rows of sound records; None where rows are of several sizes, or where
    `check_records` has something to tell."""
    sizes, gaps = once(records.row_sizes), once(records.value_gaps)
    if len(sizes) != 1 or len(gaps) != 1 or sizes[0] < 1 or gaps[0] != len(KEY_SUFFIX):
        return None
    size = int(sizes[0])
    width = ROW_AT + size + len(KEY_SUFFIX)
    heads = Grid.of_copies(records.raw, records.row_starts - ROW_AT, width)
    if heads is None or not (heads.pieces("u8", 2) == records.header_words()).all():
        return None
    ends_well = heads.repeats(ROW_AT + size + 2, KEY_SUFFIX[2:])
    return heads.pieces(f"V{size}", ROW_AT) if ends_well else None


def _unfit(path: str, offset: int, expected: str, found: object) -> CorruptError:
    return CorruptError(
        "records do not have the sizes that their file says",
        path=path,
        offset=offset,
        expected=expected,
        found=found,
    )


def _nothing(raw: UInt8s) -> KeyValues:
    empty = np.empty(0, np.int64)
    return KeyValues(raw, empty, empty, empty, empty)


def _by_stride(raw: UInt8s) -> KeyValues | None:
    """Records that are all alike, but for rows and values; else None."""
    _, value_size, row_size = HEADER.unpack_from(raw.data)
    stride = row_size + value_size + RECORD_OVERHEAD
    if len(raw) % stride:
        return None
    if not _are_alike(Grid(raw, 0, (len(raw) // stride,), (stride,)), row_size, value_size):
        return None
    starts = np.arange(ROW_AT, len(raw), stride)
    sizes = repeated(row_size, len(starts)), repeated(value_size, len(starts))
    return KeyValues.plain(raw, starts, *sizes)


def _are_alike(grid: Grid, key_size: int, value_size: int) -> bool:
    """Whether all are records of these sizes, without families, times and versions."""
    stride = key_size + value_size + RECORD_OVERHEAD
    header = record_header(key_size, value_size)
    places = (0, header), (ROW_AT + key_size, KEY_SUFFIX), (stride - 1, b"\0")
    return all(grid.repeats(at, told) for at, told in places)


def _walk(raw: UInt8s, with_mvcc: bool, path: str, offset: int) -> KeyValues:
    """Record by record: the slow way, which takes everything that HBase may write."""
    payload = raw.tobytes()
    places = array("q")  # four numbers per record, in as many bytes as the columns take
    at = 0
    while at < len(payload):
        try:
            place, at = _step(payload, at, with_mvcc)
        except (Malformed, struct.error) as error:
            raise CorruptError(
                "records do not fit into their block",
                path=path,
                offset=offset,
                record=len(places) // 4,
                expected=f"a record at byte {at} of {len(payload)}",
                found=str(error),
            ) from error
        places.extend(place)
    return KeyValues(raw, *np.frombuffer(places, np.int64).reshape(-1, 4).T)


def _step(payload: bytes, at: int, with_mvcc: bool) -> tuple[tuple[int, int, int, int], int]:
    """(row start, row size, bytes from row to value, value size) of a record, and the next."""
    key_length, value_size, row_size = HEADER.unpack_from(payload, at)
    key_end = at + 8 + key_length
    value_end = key_end + value_size
    if value_end > len(payload) or row_size > MAX_ROW_SIZE or key_length < row_size + 12:
        raise Malformed(f"key_length={key_length} value_length={value_size} row_length={row_size}")
    family_size = payload[at + ROW_AT + row_size]
    if row_size + 12 + family_size > key_length:
        raise Malformed(f"key_length={key_length} row_length={row_size} family={family_size}")
    if payload[key_end - 1] != _PUT:
        raise Malformed(f"cell type {payload[key_end - 1]}, not a put")
    after = read_hadoop(payload, value_end)[1] if with_mvcc else value_end
    row_start = at + ROW_AT
    return (row_start, row_size, key_end - row_start - row_size, value_size), after
