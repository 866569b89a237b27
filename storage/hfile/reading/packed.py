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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import Voids
from metatable.storage.cache import blocks as block_cache
from metatable.storage.hfile.block import Headers
from metatable.storage.hfile.reading.alike import Alike, Hits, Searched
from metatable.storage.hfile.reading.data_blocks import decode_blocks, read_headers, verify
from metatable.storage.hfile.reading.fetch import Stored, cut, fetch
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.reading.packed_spans import Run, Span, find_in_span, runs_of
from metatable.storage.hfile.zstd_records import LEAST_RECORDS, Shape, shape_of
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["OBJECT_BYTES", "PACKED", "PackedBlock", "StoredBlocks", "packed_of"]

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
"""What a block takes in the process's cache besides its bytes."""


class PackedBlock:
    """A block of this shape as it is stored, to be asked for a key at a time.

    What single keys are found by is made for the first of them: blocks that are asked for many
    never need it.
    """

    __slots__ = (
        *("_count", "_first_key", "_first_value", "_high", "_low", "_raw", "_scale", "_second"),
        *("_size", "_start", "_step", "_value_begin", "_value_size", "shape"),
    )

    def __init__(self, stored: bytes, shape: Shape) -> None:
        self._raw, self.shape = stored, shape
        self._count = 0

    def _prepare(self) -> None:
        """Make what single keys are found by: where each part lies, and the words between which
        those of its keys are."""
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
        """Its payload as it is stored."""
        return self._raw

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return len(self._raw) + OBJECT_BYTES

    def value(self, key: bytes) -> bytes | None:
        """The value of `key`, None where it is not there."""
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
        """What a key has of its own; `place` counts from the second record on."""
        at = self._start + place * self._step
        return self._raw[at : at + self._size]

    @staticmethod
    def _word(rest: bytes) -> int:
        return int.from_bytes(rest[:_WORD])


class _Read(NamedTuple):
    """Neighbouring blocks of which all are packed, or all but the last."""

    span: Span
    """The packed ones."""
    runs: list[Run]
    last: Searched | None
    """The last one, if it is not packed."""


class StoredBlocks:
    """Data blocks of a file as they are stored, of which ascending keys are asked.

    `places`: their offsets and their stored sizes, ascending. Those from `cuts[i]` up to
    `cuts[i + 1]` of the keys `wanted` can be in the i-th block alone. With `keep` the blocks that
    are read stay in the process's cache, unless they would take too much of it.
    """

    __slots__ = ("_alike", "_keep", "_offsets", "_opened", "_sizes", "_store")

    def __init__(
        self,
        store: Store,
        opened: OpenedHFile,
        alike: Alike,
        places: tuple[Int64s, Int64s],
        *,
        keep: bool,
    ) -> None:
        self._store, self._opened, self._alike = store, opened, alike
        self._offsets, self._sizes = places
        self._keep = keep and int(self._sizes.sum()) <= block_cache.budget_bytes // KEPT_SHARE

    def find_few(self, wanted: Voids, cuts: Int64s) -> Hits:
        """Look up few keys a block, one after the other. Raises CorruptError."""
        found, values = self._alike.nothing(len(wanted))
        for start, stop in cut(self._sizes, READ_BYTES):
            blocks = self._blocks(slice(start, stop))
            here = slice(int(cuts[start]), int(cuts[stop]))
            found[here], values[here] = self._alike.answers(blocks, wanted, cuts[start : stop + 1])
        return found, values

    def find_many(self, wanted: Voids, cuts: Int64s) -> Hits | None:
        """Look up many keys a block: keys and values are taken from what is stored, of some blocks
        at a time. None where the first block is not packed, or eight bytes do not tell keys apart:
        blocks are unpacked and searched elsewhere then. Raises CorruptError."""
        alike, opened = self._alike, self._opened
        found, values = alike.nothing(len(wanted))
        entries, blocks = opened.trailer.entry_count, len(opened.root)
        if len(self._sizes) < 2 or entries < LEAST_RECORDS * blocks:
            return None
        if self._keep and not self._blocks(slice(0, 1), only_packed=True):
            return None  # else the first blocks read tell it: they are not looked for in the cache

        def search(span: tuple[int, int]) -> bool:
            read = self._together(slice(*span))
            if read is None:
                return False
            borders = cuts[span[0] : span[1] + 1]
            here = slice(int(borders[0]), int(borders[len(read.span)]))
            hits = find_in_span(read.span, read.runs, alike, wanted[here])
            if hits is None:
                return False
            found[here], values[here] = hits
            if read.last is not None:
                here = slice(int(borders[-2]), int(borders[-1]))
                found[here], values[here] = alike.answers_of(read.last, wanted[here])
            return True

        return (found, values) if all(in_order(search, cut(self._sizes, READ_BYTES))) else None

    def _together(self, part: slice) -> _Read | None:
        """Some of the blocks; None where one that is not the last is not packed."""
        if self._keep:
            return _joined(self._blocks(part), self._alike)
        fresh = self._fetch(self._offsets[part], self._sizes[part])
        inner, last = fresh.runs[:-1], fresh.runs[-1]
        if any(one.shape is None for one in inner):
            return None
        if last.shape is not None:
            return _Read(fresh.span, fresh.runs, None)
        block, _ = fresh.unpacked(self._opened, self._alike, last.first)
        return _Read(fresh.span.up_to(last.first), inner, block)

    def _blocks(self, part: slice, *, only_packed: bool = False) -> list[Searched]:
        """Some of the blocks, to be asked one by one, from the cache or from the store.

        `only_packed`: of those that have to be read none that is not packed, and none behind one.
        """
        offsets, sizes = self._offsets[part], self._sizes[part]
        uri, path = self._store.uri, self._opened.path
        names = [(PACKED, uri, path, offset) for offset in offsets.tolist()]
        held: list[Searched | None] = [block_cache.get(name) for name in names]
        missing = np.array([one is None for one in held])
        if missing.any():
            made = self._read(offsets[missing], sizes[missing], only_packed)
            numbers = np.flatnonzero(missing).tolist()
            for number, (block, size_bytes) in zip(numbers, made, strict=not only_packed):
                held[number] = block
                if self._keep:
                    held[number] = block_cache.offer(names[number], block, size_bytes)
        return [one for one in held if one is not None]

    def _read(
        self, offsets: Int64s, sizes: Int64s, only_packed: bool
    ) -> Iterator[tuple[Searched, int]]:
        """Blocks, and how much memory each takes; `only_packed`: up to one that is not."""
        fresh = self._fetch(offsets, sizes)
        for number, shape in enumerate(fresh.shapes()):
            if shape is not None:
                packed = PackedBlock(fresh.span.body(number).tobytes(), shape)
                yield packed, packed.size_bytes
            elif only_packed:
                return
            else:
                yield fresh.unpacked(self._opened, self._alike, number)

    def _fetch(self, offsets: Int64s, sizes: Int64s) -> _Fetched:
        store, opened, alike = self._store, self._opened, self._alike
        stored = fetch(store, opened, offsets, sizes)
        headers = read_headers(stored, opened.trailer.compression_codec, opened.path)
        store.counters.add("hfile.blocks", len(stored))
        verify(stored, headers, opened.path)
        span = Span.of_stored(stored, headers)
        return _Fetched(stored, headers, span, runs_of(span, alike.key_size, alike.value_size))


def _joined(blocks: Sequence[Searched], alike: Alike) -> _Read | None:
    """Blocks that each lie for itself; None where one that is not the last is not packed."""
    last = None if isinstance(blocks[-1], PackedBlock) else blocks[-1]
    stored = [one.stored for one in blocks if isinstance(one, PackedBlock)]
    if len(stored) + (last is not None) < len(blocks):
        return None
    span = Span.joined(stored)
    return _Read(span, runs_of(span, alike.key_size, alike.value_size), last)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Blocks as they are stored, verified, and which of them are packed."""

    stored: Stored
    headers: Headers
    span: Span
    runs: list[Run]

    def shapes(self) -> list[Shape | None]:
        """The shape of each block, None where it is not packed."""
        return [run.shape for run in self.runs for _ in range(run.first, run.stop)]

    def unpacked(self, opened: OpenedHFile, alike: Alike, number: int) -> tuple[Searched, int]:
        """A block that zstd unpacks, and how much memory it takes."""
        one = slice(number, number + 1)
        stored, codec = self.stored.slice(number, number + 1), opened.trailer.compression_codec
        [payload] = decode_blocks(stored, self.headers[one], codec, opened.path)
        block = alike.block(bytes(payload), int(self.stored.offsets[number]))
        return block, len(payload) + OBJECT_BYTES


def packed_of(body: UInt8s, alike: Alike) -> PackedBlock | None:
    """A stored payload of records of these sizes, None where it is not packed so."""
    shape = shape_of(body, alike.key_size, alike.value_size)
    return None if shape is None else PackedBlock(body.tobytes(), shape)
