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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from metatable.storage.arrays import Bools, Int64s, UInt8s
from metatable.storage.inflate import gunzip
from metatable.storage.parquet.varints import read_varint
from metatable.storage.threads import beside, in_order, workers_here

__all__ = ["MOST_BYTES", "Packed", "begun_each", "unpacked_each"]

_NONE, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_GZIP_MEMBER = 31
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_ZSTD_MAGIC = np.frombuffer(bytes.fromhex("28b52ffd"), np.uint8)

_SKIPPED_MAGIC, _SKIPPED_BYTES = 0x184D2A50, 8
"""What a frame that is skipped begins with, and that and its size take (RFC 8878, 3.1.2)."""

_HEAD_BYTES = 16
"""More than of a frame of zstd comes before its blocks."""

MOST_BYTES = 16 << 20
"""A page that is decompressed here has no more: its header's word is believed for the
allocation."""

LUMP_BYTES = 16 << 20
"""Decompressed bytes of pages that one call makes, about, where a thread's share is more."""

LEAST_BYTES = 256 << 10
"""For each other thread: it takes less time to decompress fewer than to wake one."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Pages as they are stored in `memory`: of each its codec, the size that it should have when
    decompressed, the bytes of its header, and where it begins behind that, and ends. No page is in
    two groups that are decompressed at once and lie together."""

    codecs: Int64s
    sizes: Int64s
    memory: memoryview
    headers: Int64s
    begins: Int64s
    ends: Int64s

    @classmethod
    def together(cls, groups: Sequence[Packed]) -> Packed:
        """The pages of groups that lie in one memory."""
        told = [(one.codecs, one.sizes, one.headers, one.begins, one.ends) for one in groups]
        codecs, sizes, *places = (np.concatenate(own) for own in zip(*told, strict=True))
        return cls(codecs, sizes, groups[0].memory, *places)

    @property
    def is_told(self) -> bool:
        """Whether there are pages, none of them empty or too large."""
        sizes = self.sizes
        return bool(len(sizes) and sizes.min() > 0 and sizes.max() <= MOST_BYTES)

    @property
    def is_framed(self) -> bool:
        """Whether all are frames of zstd that say that they are so long."""
        return self.is_told and bool(self.are_frames.all())

    @property
    def are_frames(self) -> Bools:
        """Which of them are."""
        return np.asarray((self.codecs == _ZSTD) & (_frame_sizes(self.heads()) == self.sizes))

    @property
    def is_plain(self) -> bool:
        """Whether none has a codec, and all are so long."""
        as_stored = self.ends - self.begins == self.sizes
        return self.is_told and bool((as_stored & (self.codecs == _NONE)).all())

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

    def unpacked(self) -> UInt8s | None:
        """The pages, decompressed and behind each other; None where one is another codec's, or does
        not say that it is so long. Memory: twice the sizes."""
        if self.is_framed:
            frames = _Frames.of(self)
            raw = frames.decompressed()
            frames.restore()
            return raw
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

    def heads(self) -> UInt8s:
        """The first bytes of each, with zeros behind one that is shorter."""
        at = self.begins[:, None] + np.arange(_HEAD_BYTES)
        found = np.frombuffer(self.memory, np.uint8).take(at, mode="clip")
        found[at >= self.ends[:, None]] = 0
        return found


def unpacked_each(groups: Sequence[Packed]) -> list[UInt8s | None]:
    """Each `unpacked`, of groups that lie in one memory, frames of many by few calls. Memory: twice
    the sizes of all."""
    return begun_each(groups, 1.0)()


def begun_each(groups: Sequence[Packed], own: float) -> Callable[[], list[UInt8s | None]]:
    """Begin `unpacked_each` on other threads; the caller decompresses, now, `own` times as much as
    each of them. What is returned waits for theirs, and gives what `unpacked_each` does; until it
    is called, headers of pages may not be what is stored."""
    framed = _framed(groups)
    sizes = [groups[place].plain_bytes for place in framed]
    begun: list[_Begun] = []
    for lump in _lumps(sizes, own):
        places = [framed[place] for place in lump]
        frames = _Frames.of(Packed.together([groups[place] for place in places]))
        is_own = own > 0 and lump[-1] == len(framed) - 1
        call = _done(frames.decompressed) if is_own else beside(frames.decompressed)
        begun.append(_Begun(places, frames, call))
    return partial(_ended, groups, begun)


def _done(call: Callable[[], UInt8s | None]) -> Callable[[], UInt8s | None]:
    made = call()
    return lambda: made


def _ended(groups: Sequence[Packed], begun: Sequence[_Begun]) -> list[UInt8s | None]:
    found: dict[int, UInt8s | None] = {}
    for one in begun:
        raw = one.call()
        one.frames.restore()
        if raw is not None:
            ends = np.cumsum([groups[place].plain_bytes for place in one.places]).tolist()
            parts = [raw[low:high] for low, high in pairwise([0, *ends])]
            found.update(zip(one.places, parts, strict=True))
    left = [place for place in range(len(groups)) if place not in found]
    plain = [place for place in left if groups[place].is_plain]
    found.update((place, groups[place].unpacked()) for place in plain)  # sooner than a thread wakes
    others = [place for place in left if place not in found]
    made = in_order(Packed.unpacked, [groups[place] for place in others])
    found.update(zip(others, made, strict=True))
    return [found[place] for place in range(len(groups))]


@dataclass(frozen=True, slots=True, eq=False)
class _Frames:
    """Frames behind each other, and how much they hold: where they lie, or joined. Where they lie,
    headers between them are made frames that are skipped, for as long as it takes, since who
    decodes a page otherwise needs its header: `hidden` is their memory, places and bytes."""

    frames: memoryview | pa.Buffer
    plain_bytes: int
    hidden: tuple[UInt8s, Int64s, UInt8s] | None = None

    @classmethod
    def of(cls, group: Packed) -> _Frames:
        if not group.is_together:
            return cls(_joined(group.bodies), group.plain_bytes)
        headers = group.headers[1:]
        held = np.frombuffer(group.memory, np.uint8)
        at = group.ends[:-1, None] + np.arange(_SKIPPED_BYTES)
        before = held[at]
        told = np.stack([np.full(len(headers), _SKIPPED_MAGIC), headers - _SKIPPED_BYTES], axis=1)
        held[at] = told.astype("<u4").view(np.uint8)
        frames = group.memory[int(group.begins[0]) : int(group.ends[-1])]
        return cls(frames, group.plain_bytes, (held, at, before))

    def decompressed(self) -> UInt8s | None:
        return _decompressed(self.frames, self.plain_bytes)

    def restore(self) -> None:
        if self.hidden is not None:
            held, at, before = self.hidden
            held[at] = before


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """Groups, by number, whose frames are decompressed together, and what waits for it."""

    places: Sequence[int]
    frames: _Frames
    call: Callable[[], UInt8s | None]


def _framed(groups: Sequence[Packed]) -> list[int]:
    """The numbers of the groups whose pages are all frames that are decompressed together."""
    told = [place for place, one in enumerate(groups) if one.is_told]
    if not told:
        return []
    every = Packed.together([groups[place] for place in told])
    ends = np.cumsum([len(groups[place].sizes) for place in told])
    starts = np.append(0, ends[:-1])
    is_framed = np.logical_and.reduceat(every.are_frames, starts).tolist()
    return [place for place, own in zip(told, is_framed, strict=True) if own]


def _joined(bodies: Sequence[memoryview]) -> pa.Buffer:
    """Frames behind each other. The memory is Arrow's, as that is kept for the next ones: megabytes
    of the interpreter's are given back, and cleared when they come."""
    frames = pa.allocate_buffer(sum(map(len, bodies)))
    memory, at = memoryview(frames).cast("B"), 0
    for body in bodies:
        end = at + len(body)
        memory[at:end] = body
        at = end
    return frames


def _lumps(sizes: Sequence[int], own: float) -> list[list[int]]:
    """Which neighbours go together, so that threads have alike much of these sizes; the last ones
    are the caller's, which takes `own` as much as each other thread."""
    total = sum(sizes)
    others = min(workers_here() - 1, total // LEAST_BYTES)
    count = max(others, -(-total // LUMP_BYTES) - (own > 0), own == 0)
    shares = np.array([1.0] * count + [own] * (own > 0))
    ends = np.cumsum(sizes)
    borders = np.cumsum(shares)[:-1] / shares.sum() * total
    of = borders.searchsorted(ends - np.array(sizes) / 2)
    firsts = np.flatnonzero(np.diff(of, prepend=-1)).tolist()
    return [[*range(low, high)] for low, high in pairwise([*firsts, len(sizes)])]


def _decompressed(frames: memoryview | pa.Buffer, size: int) -> UInt8s | None:
    try:
        raw = pa.Codec("zstd").decompress(frames, size)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return np.frombuffer(raw, np.uint8)


def _frame_sizes(rows: UInt8s) -> Int64s:
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
    payload = gunzip(body, size)
    if payload is not None:
        return payload
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
    page = _decompressed(body, size) if is_frame else None
    return None if page is None else page.data


_ONE = {_NONE: _stored, _SNAPPY: _unsnapped, _GZIP: _inflated, _ZSTD: _unzstd}
