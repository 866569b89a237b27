"""Records found by where their keys end: every key ends in `7f ff*7 04`.

With keys of one length, or values of one length, these places give all the starts. What stands at
such places, in every record, is copied to even steps once, and compared there: it proves that they
are what they seem to be, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import at_every_byte
from metatable.storage.hfile.columns import repeated
from metatable.storage.hfile.key_values import (
    HEADER,
    KEY_SUFFIX,
    MAX_ROW_SIZE,
    ROW_AT,
    KeyValues,
    record_header,
)
from metatable.storage.hfile.reading.grid import Grid

__all__ = ["by_endings"]

_ENDING_SIZE = len(KEY_SUFFIX) - 2
_ENDING = np.frombuffer(KEY_SUFFIX[2:], np.uint64)[0]
_QUAD, _FULL = 4, 0xFFFFFFFF
_ONES_BEFORE = (0xFF000000, 0xFFFF0000, 0xFFFFFF00)
"""A little-endian number is not below these if its last byte, its last two, three are ff."""


def by_endings(raw: UInt8s) -> KeyValues | None:
    """Records whose starts follow from where the keys end; None where that cannot be proven."""
    places = _full_places(raw)
    found = _even(raw, places + _ENDING_SIZE)
    if found is None:
        ends = _key_ends(raw, places)
        found = _even(raw, ends) if len(ends) < len(places) else None
    return found


def _even(raw: UInt8s, ends: Int64s) -> KeyValues | None:
    """The records whose keys end there, by what the first one says of keys, or of values."""
    key_length, value_size, _ = HEADER.unpack_from(raw.data)
    return _even_keys(raw, ends, key_length) or _even_values(raw, ends, value_size)


def _full_places(raw: UInt8s) -> Int64s:
    """Where `ff*7 04` may begin, everywhere in the payload, ascending.

    Four of its bytes are all the bits of a number where such begin: a quarter as many are looked
    at, and bytes of text are none.
    """
    skip = -raw.ctypes.data % _QUAD
    quads = raw[skip : skip + max(len(raw) - skip, 0) // _QUAD * _QUAD].view("<u4")
    full = np.flatnonzero(quads == _FULL)
    full = full[int(np.searchsorted(full, 1)) :]  # a record begins otherwise
    before = quads[full - 1]
    ones = np.zeros(len(full), np.uint8)
    for least in _ONES_BEFORE:
        ones += before >= least
    places = full * _QUAD
    places += skip
    places -= ones
    return places[: int(np.searchsorted(places, len(raw) - _ENDING_SIZE))]


def _key_ends(raw: UInt8s, places: Int64s) -> Int64s:
    """Where `7f ff*7 04` ends, of the places that `_full_places` tells."""
    sound = (at_every_byte(raw, np.uint64)[places] == _ENDING) & (raw[places - 1] == KEY_SUFFIX[1])
    return cast("Int64s", places[sound] + _ENDING_SIZE)


def _even_keys(raw: UInt8s, ends: Int64s, key_length: int) -> KeyValues | None:
    """The records whose keys end at `ends`, ascending, and all have this length, if all bytes
    agree."""
    starts, row_size = ends - (8 + key_length), key_length - 2 - len(KEY_SUFFIX)
    if not len(starts) or starts[0] != 0 or row_size < 1:
        return None
    middle = int(starts[len(starts) // 2])
    if int.from_bytes(raw[middle : middle + 4].tobytes(), "big") != key_length:
        return None
    heads = Grid.of_copies(raw, starts, 8 + key_length)
    if heads is None:
        return None
    value_sizes = heads.pieces(">u4", 4).astype(np.int64)
    record_ends = ends + value_sizes + 1
    header = record_header(row_size, 0)
    whole = (
        record_ends[-1] == len(raw)
        and np.array_equal(record_ends[:-1], starts[1:])
        and heads.repeats(0, header[:4])
        and heads.repeats(8, header[8:])
        and heads.repeats(ROW_AT + row_size, KEY_SUFFIX)
        and not raw[record_ends - 1].any()
    )
    if not whole:
        return None
    sizes, rows = repeated(row_size, len(ends)), heads.pieces(f"V{row_size}", ROW_AT)
    return replace(KeyValues.plain(raw, starts + ROW_AT, sizes, value_sizes), rows=rows)


def _even_values(raw: UInt8s, ends: Int64s, value_size: int) -> KeyValues | None:
    """The records, two at least, whose keys end at `ends`, ascending, and whose values all have
    this size, if all bytes agree."""
    if len(ends) < 2 or ends[-1] + value_size + 1 != len(raw):
        return None
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + value_size + 1))
    row_sizes = ends - starts - (ROW_AT + len(KEY_SUFFIX))
    if int(row_sizes.min()) < 0 or int(row_sizes.max()) > MAX_ROW_SIZE:
        return None
    first, last = int(row_sizes[0]), int(ends[-1])
    records = KeyValues.plain(raw, starts + ROW_AT, row_sizes, repeated(value_size, len(ends)))
    # suffix, value and mvcc of each but the last, and the header of the next
    behind = len(KEY_SUFFIX) + value_size + 1
    tails = Grid.of_copies(raw, ends[:-1] - len(KEY_SUFFIX), behind + ROW_AT)
    whole = (
        tails is not None
        and raw[:ROW_AT].tobytes() == record_header(first, value_size)
        and (tails.pieces("u8", behind + 2) == records.header_words()[1:]).all()
        and tails.repeats(behind - 1, bytes(3))
        and tails.repeats(0, KEY_SUFFIX)
        and raw[last - len(KEY_SUFFIX) : last].tobytes() == KEY_SUFFIX
        and raw[-1] == 0
    )
    return records if whole else None
