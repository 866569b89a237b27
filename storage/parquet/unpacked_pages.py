"""Unpacked pages: many pages decompressed behind each other, frames of zstd by one call.

A call of zstd makes a context of its own, which costs what decoding a small page does; and frames
behind each other are decoded as one, as are those between which there are frames to be skipped, of
whatever bytes. So pages that were read into one piece of memory are not copied together. What a
page's header says that it holds is held against what its frame says, and a frame that holds
anything else is damage to zstd.

Groups of pages are decompressed beside each other, as many in a call as each thread's share is. A
thread does nothing else meanwhile, and its caller waits: with steps of Python between its calls, or
beside them, each would wait for the interpreter's lock longer than it decompresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from metatable.storage.parquet.varints import read_varint
from metatable.storage.threads import in_order, shared, workers_here

__all__ = ["MOST_BYTES", "Packed", "unpacked_each"]

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NONE, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_GZIP_MEMBER = 31
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_ZSTD_MAGIC = np.frombuffer(bytes.fromhex("28b52ffd"), np.uint8)

_SKIPPED_MAGIC, _SKIPPED_BYTES = 0x184D2A50, 8
"""What a frame that is skipped begins with, and that and its size take (RFC 8878, 3.1.2)."""

_HEAD_BYTES = 16
"""More than of a frame of zstd comes before its blocks."""

MOST_BYTES = 16 << 20
"""Of a page that is decompressed here: its header's word is believed for the allocation."""

LUMP_BYTES = 8 << 20
"""Of pages, decompressed, that one call makes, about, where a thread's share is more."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Pages as they are stored in `memory`: of each its codec, the size that it should have when
    decompressed, the bytes of its header, and where it begins behind that, and ends. No page is in
    two groups that are decompressed at once and lie together."""

    codecs: Numbers
    sizes: Numbers
    memory: memoryview
    headers: Numbers
    begins: Numbers
    ends: Numbers

    @property
    def is_told(self) -> bool:
        """Whether there are pages, none of them empty or too large."""
        sizes = self.sizes
        return bool(len(sizes) and sizes.min() > 0 and sizes.max() <= MOST_BYTES)

    @property
    def is_framed(self) -> bool:
        """Whether all are frames of zstd that say that they are so long."""
        is_zstd = self.is_told and bool((self.codecs == _ZSTD).all())
        return is_zstd and bool((_frame_sizes(self.heads()) == self.sizes).all())

    @property
    def bodies(self) -> list[memoryview]:
        """The pages, without their headers."""
        spans = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [self.memory[begin:end] for begin, end in spans]

    @property
    def plain_bytes(self) -> int:
        """How much they hold."""
        return int(self.sizes.sum())

    @property
    def is_together(self) -> bool:
        """Whether only its header is between a page and the one before, and has room for a frame's
        that is skipped."""
        headers = self.headers[1:]
        behind = self.begins[1:] - headers == self.ends[:-1]
        return bool((behind & (headers >= _SKIPPED_BYTES)).all())

    def unpacked(self) -> Bytes | None:
        """The pages, decompressed and behind each other; None where one is another codec's, or does
        not say that it is so long. Memory: twice the sizes."""
        if self.is_framed:
            return _skipping(self) if self.is_together else _decompressed(_joined([self]))
        if not self.is_told:
            return None
        pages: list[bytes | memoryview] = []
        told = zip(self.codecs.tolist(), self.bodies, self.sizes.tolist(), strict=True)
        for codec, body, size in told:
            page = _ONE[codec](body, size) if codec in _ONE else None
            if page is None:
                return None
            pages.append(page)
        return np.frombuffer(b"".join(pages), np.uint8)

    def heads(self) -> Bytes:
        """The first bytes of each, with zeros behind one that is shorter."""
        at = self.begins[:, None] + np.arange(_HEAD_BYTES)
        found = np.frombuffer(self.memory, np.uint8).take(at, mode="clip")
        found[at >= self.ends[:, None]] = 0
        return found


def unpacked_each(groups: Sequence[Packed]) -> list[Bytes | None]:
    """Each `unpacked`, frames of many groups by few calls. Memory: twice the sizes of all."""
    found: dict[int, Bytes | None] = {}
    framed = [place for place, one in enumerate(groups) if one.is_framed]
    lumps = _lumps({place: groups[place].plain_bytes for place in framed})
    frames = (_joined([groups[place] for place in lump]) for lump in lumps)
    for lump, raw in zip(lumps, shared(_decompressed, frames), strict=True):
        ends = np.cumsum([groups[place].plain_bytes for place in lump])[:-1]
        if raw is not None:
            found.update(zip(lump, np.split(raw, ends), strict=True))
    left = [place for place in range(len(groups)) if place not in found]
    others = in_order(Packed.unpacked, [groups[place] for place in left])
    found.update(zip(left, others, strict=True))
    return [found[place] for place in range(len(groups))]


def _skipping(group: Packed) -> Bytes | None:
    """Frames where they lie: headers between them are frames that are skipped, as long as it takes,
    since who decodes a page otherwise needs its header."""
    headers = group.headers[1:]
    held = np.frombuffer(group.memory, np.uint8)
    at = group.ends[:-1, None] + np.arange(_SKIPPED_BYTES)
    before = held[at]
    told = np.stack([np.full(len(headers), _SKIPPED_MAGIC), headers - _SKIPPED_BYTES], axis=1)
    held[at] = told.astype("<u4").view(np.uint8)
    try:
        frames = group.memory[int(group.begins[0]) : int(group.ends[-1])]
        return _decompressed((frames, group.plain_bytes))
    finally:
        held[at] = before


def _joined(groups: Sequence[Packed]) -> tuple[pa.Buffer, int]:
    """Frames behind each other, and how much they hold. The memory is Arrow's, as that is kept for
    the next ones: megabytes of the interpreter's are given back, and cleared when they come."""
    bodies = [body for one in groups for body in one.bodies]
    frames = pa.allocate_buffer(sum(map(len, bodies)))
    memory, at = memoryview(frames).cast("B"), 0
    for body in bodies:
        end = at + len(body)
        memory[at:end] = body
        at = end
    return frames, sum(one.plain_bytes for one in groups)


def _lumps(sizes: Mapping[int, int]) -> list[list[int]]:
    """Which go together, so that threads have alike much of these sizes: large ones first."""
    count = max(min(workers_here(), len(sizes)), -(-sum(sizes.values()) // LUMP_BYTES))
    lumps: list[tuple[int, list[int]]] = [(0, []) for _ in range(count)]
    for place in sorted(sizes, key=sizes.__getitem__, reverse=True):
        held, own = heappop(lumps)
        heappush(lumps, (held + sizes[place], [*own, place]))
    return [own for _, own in lumps if own]


def _decompressed(frames: tuple[memoryview | pa.Buffer, int]) -> Bytes | None:
    try:
        raw = pa.Codec("zstd").decompress(*frames)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return np.frombuffer(raw, np.uint8)


def _frame_sizes(rows: Bytes) -> Numbers:
    """What frames that begin so say that they hold; -1 where one does not, or has a dictionary.
    Without such a word less would leave memory as it was."""
    told = rows[:, 4].astype(np.int64)
    flag, is_single = told >> 6, told >> 5 & 1
    width = np.where(flag == 0, is_single, 1 << flag)
    at = (6 - is_single)[:, None] + np.arange(8)
    value = np.take_along_axis(rows, at, axis=1)
    value[np.arange(8) >= width[:, None]] = 0
    sizes = np.ascontiguousarray(value).view("<i8")[:, 0] + np.where(flag == 1, 256, 0)
    is_frame = (rows[:, :4] == _ZSTD_MAGIC).all(axis=1) & (told & 3 == 0) & (width > 0)
    return np.where(is_frame, sizes, -1)


def _stored(body: memoryview, size: int) -> bytes | memoryview | None:
    return body if len(body) == size else None


def _inflated(body: memoryview, size: int) -> bytes | None:
    try:
        raw: bytes = isal_zlib.decompressobj(_GZIP_MEMBER).decompress(body, size + 1)
    except _DAMAGED:
        return None
    return raw if len(raw) == size else None


def _unsnapped(body: memoryview, size: int) -> bytes | None:
    if read_varint(bytes(body[:_HEAD_BYTES]), 0)[0] != size:
        return None
    try:
        raw: bytes = pa.Codec("snappy").decompress(body, size, asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return raw


def _unzstd(body: memoryview, size: int) -> memoryview | None:
    head = np.frombuffer(bytes(body[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0"), np.uint8)
    is_frame = _frame_sizes(head.reshape(1, -1))[0] == size
    page = _decompressed((body, size)) if is_frame else None
    return None if page is None else page.data


_ONE = {_NONE: _stored, _SNAPPY: _unsnapped, _GZIP: _inflated, _ZSTD: _unzstd}
