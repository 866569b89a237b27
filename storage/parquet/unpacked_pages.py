"""Unpacked pages: many pages decompressed behind each other, frames of zstd by one call.

A call of zstd makes a context of its own, which costs what decoding a small page does; and frames
behind each other are decoded as one. What a page's header says that it holds is held against what
its frame says, and a frame that holds anything else is damage to zstd.

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

_HEAD_BYTES = 16
"""More than of a frame of zstd comes before its blocks."""

MOST_BYTES = 16 << 20
"""Of a page that is decompressed here: its header's word is believed for the allocation."""

LUMP_BYTES = 8 << 20
"""Of pages, decompressed, that one call makes, about, where a thread's share is more."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Pages behind their headers, as they are stored, and the `sizes` that they should have."""

    codecs: Sequence[int]
    bodies: Sequence[memoryview]
    sizes: Sequence[int]

    @property
    def is_told(self) -> bool:
        """Whether there are pages, none of them empty or too large."""
        return bool(self.bodies) and 0 < min(self.sizes) <= max(self.sizes) <= MOST_BYTES

    @property
    def is_framed(self) -> bool:
        """Whether all are frames of zstd that say that they are so long."""
        is_zstd = self.is_told and all(codec == _ZSTD for codec in self.codecs)
        return is_zstd and _are_frames(self.bodies, self.sizes)

    def unpacked(self) -> Bytes | None:
        """The pages, decompressed and behind each other; None where one is another codec's, or does
        not say that it is so long. Memory: twice the sizes."""
        if self.is_framed:
            return _decompressed(_joined([self]))
        if not self.is_told:
            return None
        pages: list[bytes | memoryview] = []
        for codec, body, size in zip(self.codecs, self.bodies, self.sizes, strict=True):
            page = _ONE[codec](body, size) if codec in _ONE else None
            if page is None:
                return None
            pages.append(page)
        return np.frombuffer(b"".join(pages), np.uint8)


def unpacked_each(groups: Sequence[Packed]) -> list[Bytes | None]:
    """Each `unpacked`, frames of many groups by few calls. Memory: twice the sizes of all."""
    found: dict[int, Bytes | None] = {}
    framed = [place for place, one in enumerate(groups) if one.is_framed]
    lumps = _lumps({place: sum(groups[place].sizes) for place in framed})
    frames = (_joined([groups[place] for place in lump]) for lump in lumps)
    for lump, raw in zip(lumps, shared(_decompressed, frames), strict=True):
        ends = np.cumsum([sum(groups[place].sizes) for place in lump])[:-1]
        if raw is not None:
            found.update(zip(lump, np.split(raw, ends), strict=True))
    left = [place for place in range(len(groups)) if place not in found]
    others = in_order(Packed.unpacked, [groups[place] for place in left])
    found.update(zip(left, others, strict=True))
    return [found[place] for place in range(len(groups))]


def _joined(groups: Sequence[Packed]) -> tuple[bytes, int]:
    """Frames behind each other, and how much they hold."""
    frames = b"".join([body for one in groups for body in one.bodies])
    return frames, sum(sum(one.sizes) for one in groups)


def _lumps(sizes: Mapping[int, int]) -> list[list[int]]:
    """Which go together, so that threads have alike much of these sizes: large ones first."""
    count = max(min(workers_here(), len(sizes)), -(-sum(sizes.values()) // LUMP_BYTES))
    lumps: list[tuple[int, list[int]]] = [(0, []) for _ in range(count)]
    for place in sorted(sizes, key=sizes.__getitem__, reverse=True):
        held, own = heappop(lumps)
        heappush(lumps, (held + sizes[place], [*own, place]))
    return [own for _, own in lumps if own]


def _decompressed(frames: tuple[bytes, int]) -> Bytes | None:
    try:
        raw = pa.Codec("zstd").decompress(*frames)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return np.frombuffer(raw, np.uint8)


def _are_frames(bodies: Sequence[memoryview], sizes: Sequence[int]) -> bool:
    heads = b"".join([bytes(body[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0") for body in bodies])
    return bool((_frame_sizes(heads) == sizes).all())


def _frame_sizes(heads: bytes) -> Numbers:
    """What frames say that they hold; -1 where one does not, or has a dictionary. Without such a
    word less would leave memory as it was."""
    rows = np.frombuffer(heads, np.uint8).reshape(-1, _HEAD_BYTES)
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
    page = _decompressed((bytes(body), size)) if _are_frames([body], [size]) else None
    return None if page is None else page.data


_ONE = {_NONE: _stored, _SNAPPY: _unsnapped, _GZIP: _inflated, _ZSTD: _unzstd}
