"""Blocks of zstd searched as they are stored, where they were packed in the known way.

A frame that `zstd_records.py` has laid out holds the rest of each key and value at even distances.
Once all its other bytes were seen to be those that it must have, a few keys are looked up there:
nothing is unpacked, and what the process keeps of a block is two fifths of its payload. Any other
block (the last of a file, and those of other writers) is unpacked and bisected as ever.

Hashes lie where their number says, nearly: each is looked for among some records around that
place, and only if it cannot be told from those, by a bisection of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from metatable.storage.byte_columns import Voids
from metatable.storage.cache import blocks as block_cache
from metatable.storage.hfile.columns import Int64s, UInt8s
from metatable.storage.hfile.reading.alike import Alike, Hits, Searched
from metatable.storage.hfile.reading.data_blocks import bodies, decode_blocks, read_headers, verify
from metatable.storage.hfile.reading.fetch import cut, fetch
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.zstd_records import Shape, shape_of
from metatable.storage.store import Store

__all__ = ["PackedBlock", "find_stored"]

READ_BYTES = 4 << 20
"""Stored bytes that one call of the store fetches."""
KEPT_SHARE = 8
"""Blocks of more than this fraction of the cache's budget are not kept."""
AROUND = 48
"""Records on either side of where a hash should be: of 1,600 it is one of 50 that lies farther."""
_WORD = 8
_OBJECT_BYTES = 800


class PackedBlock:
    """One block as it is stored, of this shape."""

    __slots__ = (
        *("_count", "_first_key", "_first_value", "_high", "_low", "_raw", "_scale", "_second"),
        *("_size", "_start", "_step", "_value_begin", "_value_size"),
    )

    def __init__(self, stored: bytes, shape: Shape) -> None:
        key, value, second, rest = shape.places
        self._raw = stored
        self._first_key, self._first_value = stored[key], stored[value]
        self._second = stored[second]
        self._value_begin = self._first_value[: shape.value_shared]
        self._start, self._step = rest.start, shape.rest_size
        self._size = shape.key_size - shape.key_shared
        self._value_size = shape.value_size - shape.value_shared
        self._count = shape.count - 1
        self._low, self._high = (self._word(self._row(at)) for at in (0, self._count - 1))
        self._scale = (self._count - 1) / max(self._high - self._low, 1)

    @property
    def size_bytes(self) -> int:
        return len(self._raw) + _OBJECT_BYTES

    def value(self, key: bytes) -> bytes | None:
        if key == self._first_key:
            return self._first_value
        if not key.startswith(self._second):
            return None
        rest = key[len(self._second) :]
        word = self._word(rest)
        if not self._low <= word <= self._high:
            return None
        lo = max(int((word - self._low) * self._scale) - AROUND, 0)
        hi = min(lo + 2 * AROUND, self._count - 1)
        begin, step = self._start + lo * self._step, self._step
        at = self._raw.find(rest, begin, self._start + hi * step + self._size)
        if at < 0 and self._row(lo) < rest < self._row(hi):
            return None
        if at < 0 or (at - begin) % step:
            place = bisect_left(range(self._count), rest, key=self._row)
            if place == self._count or self._row(place) != rest:
                return None
            at = self._start + place * step
        at += self._size
        return self._value_begin + self._raw[at : at + self._value_size]

    def _row(self, place: int) -> bytes:
        at = self._start + place * self._step
        return self._raw[at : at + self._size]

    @staticmethod
    def _word(rest: bytes) -> int:
        return int.from_bytes(rest[:_WORD])


def find_stored(
    store: Store,
    opened: OpenedHFile,
    alike: Alike,
    places: tuple[Int64s, Int64s],
    wanted: Voids,
    cuts: Int64s,
) -> Hits:
    """Look up `wanted`; those from `cuts[i]` to `cuts[i + 1]` can be in the block at the i-th of
    `places` (offsets, stored sizes; ascending) alone. Raises CorruptError."""
    found, values = alike.nothing(len(wanted))
    keep = int(places[1].sum()) <= block_cache.budget_bytes // KEPT_SHARE
    for start, stop in cut(places[1], READ_BYTES):
        offsets, sizes = (one[start:stop] for one in places)
        blocks = _blocks(store, opened, alike, offsets, sizes, keep=keep)
        here = slice(int(cuts[start]), int(cuts[stop]))
        found[here], values[here] = alike.answers(blocks, wanted, cuts[start : stop + 1])
    return found, values


def _blocks(
    store: Store,
    opened: OpenedHFile,
    alike: Alike,
    offsets: Int64s,
    sizes: Int64s,
    *,
    keep: bool,
) -> list[Searched]:
    names = [("hfile.packed", store.uri, opened.path, offset) for offset in offsets.tolist()]
    held: list[Searched | None] = [block_cache.get(name) for name in names]
    missing = np.array([one is None for one in held])
    if missing.any():
        made = _read(store, opened, alike, offsets[missing], sizes[missing])
        for number, (block, size_bytes) in zip(np.flatnonzero(missing).tolist(), made, strict=True):
            held[number] = block
            if keep:
                held[number] = block_cache.offer(names[number], block, size_bytes)
    return [one for one in held if one is not None]


def _read(
    store: Store, opened: OpenedHFile, alike: Alike, offsets: Int64s, sizes: Int64s
) -> Iterator[tuple[Searched, int]]:
    """Blocks, verified, and how much memory each takes."""
    codec, path = opened.trailer.compression_codec, opened.path
    stored = fetch(store, opened, offsets, sizes)
    headers = read_headers(stored, codec, path)
    store.counters.add("hfile.blocks", len(stored))
    raw, told = stored.blocks(), offsets.tolist()
    verify(raw, told, headers, path)
    for number, body in enumerate(bodies(raw, headers)):
        packed = _packed(body, alike)
        if packed is not None:
            yield packed, packed.size_bytes
        else:
            one = slice(number, number + 1)
            [payload] = decode_blocks(stored.slice(number, number + 1), headers[one], codec, path)
            yield alike.block(bytes(payload), told[number]), len(payload) + _OBJECT_BYTES


def _packed(body: UInt8s, alike: Alike) -> PackedBlock | None:
    shape = shape_of(body, alike.key_size, alike.value_size)
    return None if shape is None else PackedBlock(body.tobytes(), shape)
