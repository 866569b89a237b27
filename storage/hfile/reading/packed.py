"""Blocks of zstd searched as they are stored, where they were packed in the known way.

A frame that `zstd_records.py` has laid out holds the rest of each key and value at even distances.
Once all its other bytes were seen to be those that it must have, a few keys are looked up there,
and for many its keys and values are taken from there: zstd has nothing to do, and what the process
keeps of a block is two fifths of its payload. Any other block (the last of a file, and those of
other writers) is unpacked and bisected as ever.

Hashes lie where their number says, nearly: each is looked for among some records around that
place, and only if it cannot be told from those, by a bisection of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from metatable.storage.byte_columns import Voids, words_of
from metatable.storage.cache import blocks as block_cache
from metatable.storage.hfile.columns import Int64s, UInt8s
from metatable.storage.hfile.reading.alike import Alike, Hits, Searched
from metatable.storage.hfile.reading.data_blocks import bodies, decode_blocks, read_headers, verify
from metatable.storage.hfile.reading.fetch import cut, fetch
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.zstd_records import LEAST_RECORDS, Shape, shape_of, unpack_shapes
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["OBJECT_BYTES", "PACKED", "PackedBlock", "find_many", "find_stored", "packed_of"]

PACKED = "hfile.packed"
"""What such a block is called in the cache, before its store, file and offset."""
READ_BYTES = 4 << 20
"""Stored bytes that one call of the store fetches."""
KEPT_SHARE = 8
"""Blocks of more than this fraction of the cache's budget are not kept."""
AROUND = 48
"""Records on either side of where a hash should be: of 1,600 it is one of 50 that lies farther."""
_WORD = 8
OBJECT_BYTES = 800
"""What one of them takes besides its bytes."""


class PackedBlock:
    """One block as it is stored, of this shape. What single keys are found by is made for the first
    of them: where many are asked, all are unpacked."""

    __slots__ = (
        *("_count", "_first_key", "_first_value", "_high", "_low", "_raw", "_scale", "_second"),
        *("_size", "_start", "_step", "_value_begin", "_value_size", "shape"),
    )

    def __init__(self, stored: bytes, shape: Shape) -> None:
        self._raw, self.shape = stored, shape
        self._count = 0

    def _prepare(self) -> None:
        stored, shape = self._raw, self.shape
        key, value, second, rest = shape.places
        self._first_key, self._first_value = stored[key], stored[value]
        self._second = stored[second]
        self._value_begin = self._first_value[: shape.value_shared]
        self._start, self._step = rest.start, shape.rest_size
        self._size = shape.key_size - shape.key_shared
        self._value_size = shape.value_size - shape.value_shared
        last = shape.count - 2
        self._low, self._high = (self._word(self._row(at)) for at in (0, last))
        self._scale = last / max(self._high - self._low, 1)
        self._count = shape.count - 1  # last of all: another thread may look

    @property
    def stored(self) -> bytes:
        return self._raw

    @property
    def size_bytes(self) -> int:
        return len(self._raw) + OBJECT_BYTES

    def value(self, key: bytes) -> bytes | None:
        if not self._count:
            self._prepare()
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
    keep = _is_kept(places)
    for start, stop in cut(places[1], READ_BYTES):
        offsets, sizes = (one[start:stop] for one in places)
        blocks = _blocks(store, opened, alike, offsets, sizes, keep=keep)
        here = slice(int(cuts[start]), int(cuts[stop]))
        found[here], values[here] = alike.answers(blocks, wanted, cuts[start : stop + 1])
    return found, values


def find_many(
    store: Store,
    opened: OpenedHFile,
    alike: Alike,
    places: tuple[Int64s, Int64s],
    wanted: Voids,
    cuts: Int64s,
) -> Hits | None:
    """The same of many keys a block, whose keys and values are taken from what is stored,
    some blocks at a time. None where the first block is not packed, or eight bytes do not tell
    keys apart: they are unpacked and searched elsewhere. Raises CorruptError."""
    found, values = alike.nothing(len(wanted))
    keep = _is_kept(places)
    first = [one[:1] for one in places]
    if len(places[0]) < 2 or opened.trailer.entry_count < LEAST_RECORDS * len(opened.root):
        return None
    if not _blocks(store, opened, alike, *first, keep=keep, only_packed=True):
        return None

    def search(span: tuple[int, int]) -> bool:
        part = slice(*span)
        blocks = _blocks(store, opened, alike, places[0][part], places[1][part], keep=keep)
        borders = cuts[span[0] : span[1] + 1]
        last = len(blocks) - (not _all_packed(blocks[-1:]))
        packed = [one for one in blocks[:last] if isinstance(one, PackedBlock)]
        if len(packed) < last:
            return False
        here = slice(int(borders[0]), int(borders[last]))
        hits = _found(packed, wanted[here], alike)
        if hits is None:
            return False
        found[here], values[here] = hits
        if last < len(blocks):
            here = slice(int(borders[last]), int(borders[-1]))
            found[here], values[here] = alike.answers(blocks[last:], wanted, borders[last:])
        return True

    return (found, values) if all(in_order(search, cut(places[1], READ_BYTES))) else None


def _found(blocks: Sequence[PackedBlock], wanted: Voids, alike: Alike) -> Hits | None:
    """Which of the ascending `wanted` are in these blocks; None where eight bytes do not order
    their keys."""
    found, values = alike.nothing(len(wanted))
    if not len(wanted) or not blocks:
        return found, values
    stored = [np.frombuffer(one.stored, np.uint8) for one in blocks]
    keys, told = unpack_shapes(stored, [one.shape for one in blocks])
    words, sought = words_of(keys), words_of(wanted)
    if (words[1:] <= words[:-1]).any():
        return None
    at = np.searchsorted(words, sought)
    np.minimum(at, len(words) - 1, out=at)
    seeming = np.flatnonzero(words[at] == sought)
    at = at[seeming]
    same = keys[at] == wanted[seeming]
    seeming = seeming[same]
    found[seeming], values[seeming] = True, told[at[same]]
    return found, values


def _all_packed(blocks: Sequence[Searched]) -> bool:
    return all(isinstance(one, PackedBlock) for one in blocks)


def _is_kept(places: tuple[Int64s, Int64s]) -> bool:
    return int(places[1].sum()) <= block_cache.budget_bytes // KEPT_SHARE


def _blocks(
    store: Store,
    opened: OpenedHFile,
    alike: Alike,
    offsets: Int64s,
    sizes: Int64s,
    *,
    keep: bool,
    only_packed: bool = False,
) -> list[Searched]:
    """`only_packed`: of those not held, none that is not, and none behind one."""
    names = [(PACKED, store.uri, opened.path, offset) for offset in offsets.tolist()]
    held: list[Searched | None] = [block_cache.get(name) for name in names]
    missing = np.array([one is None for one in held])
    if missing.any():
        made = _read(store, opened, alike, offsets[missing], sizes[missing], only_packed)
        numbers = np.flatnonzero(missing).tolist()
        for number, (block, size_bytes) in zip(numbers, made, strict=not only_packed):
            held[number] = block
            if keep:
                held[number] = block_cache.offer(names[number], block, size_bytes)
    return [one for one in held if one is not None]


def _read(
    store: Store,
    opened: OpenedHFile,
    alike: Alike,
    offsets: Int64s,
    sizes: Int64s,
    only_packed: bool,
) -> Iterator[tuple[Searched, int]]:
    """Blocks, verified, and how much memory each takes; `only_packed`: up to one that is not."""
    codec, path = opened.trailer.compression_codec, opened.path
    stored = fetch(store, opened, offsets, sizes)
    headers = read_headers(stored, codec, path)
    store.counters.add("hfile.blocks", len(stored))
    raw, told = stored.blocks(), offsets.tolist()
    verify(raw, told, headers, path)
    for number, body in enumerate(bodies(raw, headers)):
        packed = packed_of(body, alike)
        if packed is not None:
            yield packed, packed.size_bytes
        elif only_packed:
            return
        else:
            one = slice(number, number + 1)
            [payload] = decode_blocks(stored.slice(number, number + 1), headers[one], codec, path)
            yield alike.block(bytes(payload), told[number]), len(payload) + OBJECT_BYTES


def packed_of(body: UInt8s, alike: Alike) -> PackedBlock | None:
    """A stored payload of records of these sizes, None where it is not packed so."""
    shape = shape_of(body, alike.key_size, alike.value_size)
    return None if shape is None else PackedBlock(body.tobytes(), shape)
