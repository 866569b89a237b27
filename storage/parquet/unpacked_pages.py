"""Unpacked pages: many pages decompressed behind each other, frames of zstd by one call.

A call of zstd makes a context of its own, which costs what decoding a small page does; and frames
behind each other are decoded as one. What a page's header says that it holds is held against what
its frame says, and a frame that holds anything else is damage to zstd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from metatable.storage.parquet.varints import read_varint

__all__ = ["MOST_BYTES", "unpacked"]

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


def unpacked(
    codecs: Sequence[int], stored: Sequence[memoryview], sizes: Sequence[int]
) -> Bytes | None:
    """Pages behind their headers, decompressed and behind each other, of these `sizes`; None where
    one is another codec's, or does not say that it is so long. Memory: twice the sizes."""
    if not stored or not 0 < min(sizes) <= max(sizes) <= MOST_BYTES:
        return None
    if all(codec == _ZSTD for codec in codecs):
        return _of_frames(stored, sizes)
    pages: list[bytes | memoryview] = []
    for codec, body, size in zip(codecs, stored, sizes, strict=True):
        page = _ONE[codec](body, size) if codec in _ONE else None
        if page is None:
            return None
        pages.append(page)
    return np.frombuffer(b"".join(pages), np.uint8)


def _of_frames(stored: Sequence[memoryview], sizes: Sequence[int]) -> Bytes | None:
    heads = b"".join([bytes(body[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0") for body in stored])
    if (_frame_sizes(heads) != sizes).any():
        return None
    try:
        raw = pa.Codec("zstd").decompress(b"".join(stored), sum(sizes))
    except (pa.ArrowException, OSError, ValueError):
        return None
    return np.frombuffer(raw, np.uint8)


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
    page = _of_frames([body], [size])
    return None if page is None else page.data


_ONE = {_NONE: _stored, _SNAPPY: _unsnapped, _GZIP: _inflated, _ZSTD: _unzstd}
