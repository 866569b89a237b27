"""How one block's payload is compressed. The codec holds for the whole file, index included.

    id  name    framing of one payload
     0  LZO     not read
     1  GZ      one gzip member with the fixed header 1f8b0800000000000000, deflate, CRC32, size
     2  NONE    the payload itself
     3  SNAPPY  not read
     4  LZ4     not read
     5  BZIP2   not read
     6  ZSTD    Hadoop block framing around zstd frames; a bare frame is read as well

Hadoop block framing: groups of { u32 payload size; chunks of { u32 size; bytes } until the
group's payload is complete }, big-endian. Only GZ and NONE are read by HBase, hudi-io and
hudi-rs alike. GZ is done by isal: a ninth of zlib's time for the same size.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import cast

import pyarrow as pa
from isal import igzip_lib, isal_zlib

from metatable.storage.errors import CorruptError, UpgradeError, UsageError

__all__ = ["Codec", "compress", "decompress"]


class Codec(IntEnum):
    """The trailer's `compression_codec`."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6

    @classmethod
    def named(cls, name: str) -> Codec:
        """`gz`, `none` or `zstd`. Raises UsageError for a codec that is not written."""
        found = cls.__members__.get(name.upper())
        if found not in SUPPORTED:
            expected = [one.name.lower() for one in SUPPORTED]
            raise UsageError("no such HFile codec", found=name, expected=expected)
        return found


SUPPORTED = (Codec.GZ, Codec.NONE, Codec.ZSTD)

_GZ_HEADER = bytes.fromhex("1f8b0800000000000000")
_GZ_LEVEL = 2  # isal knows 0 to 3: level 3 takes twice the time for 1 % less
_GZ_END = struct.Struct("<II")
_FRAME_SIZE = struct.Struct(">I")
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_GROUP_BYTES = 128 << 10  # HBase's decompressor has room for 256 KiB at a time
_PIECE_BYTES = 1 << 20
_RAW_DEFLATE = -15
_DAMAGED = cast("type[Exception]", igzip_lib.IsalError)


def compress(codec: Codec, payload: bytes) -> bytes:
    """`payload` as it lies in a block. Raises UsageError for a codec that is not written."""
    if codec is Codec.NONE:
        return payload
    if codec is Codec.GZ:
        deflated = isal_zlib.compress(payload, _GZ_LEVEL, _RAW_DEFLATE)
        end = _GZ_END.pack(isal_zlib.crc32(payload), len(payload) & 0xFFFFFFFF)
        return b"".join((_GZ_HEADER, deflated, end))
    if codec is Codec.ZSTD:
        return _zstd_frame(payload)
    raise UsageError("HFile codec is not written", found=codec.name, expected=_expected())


def decompress(codec: Codec, raw: bytes, size: int, *, path: str = "", offset: int = 0) -> bytes:
    """Exactly `size` bytes of payload; never produces more than that.

    Raises CorruptError where `raw` holds something else, UpgradeError for an unread codec.
    """
    if codec not in SUPPORTED:
        raise UpgradeError(
            "HFile codec is not read", path=path, found=codec.name, expected=_expected()
        )
    try:
        payload = _READ[codec](raw, size)
    except (_DAMAGED, EOFError, OSError, ValueError, struct.error) as error:
        raise CorruptError(
            "block cannot be decompressed",
            path=path,
            offset=offset,
            expected=f"{size} bytes of {codec.name}",
            found=str(error),
        ) from error
    if len(payload) != size:
        raise CorruptError(
            "block has another payload size than its header says",
            path=path,
            offset=offset,
            expected=size,
            found=f"{len(payload)}" if len(payload) < size else f"more than {size}",
        )
    return payload


def _expected() -> list[str]:
    return [one.name for one in SUPPORTED]


def _raw(raw: bytes, size: int) -> bytes:
    return bytes(raw)


def _gunzip(raw: bytes, size: int) -> bytes:
    member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    payload = member.decompress(raw, size + 1)
    if len(payload) <= size and not member.eof:
        raise EOFError("gzip member ends too early")
    if member.unused_data:
        raise ValueError(f"{len(member.unused_data)} bytes after the gzip member")
    return payload


def _zstd_frame(payload: bytes) -> bytes:
    zstd = pa.Codec("zstd")
    parts: list[bytes] = []
    for start in range(0, len(payload), _ZSTD_GROUP_BYTES):
        group = payload[start : start + _ZSTD_GROUP_BYTES]
        chunk = zstd.compress(group, asbytes=True)
        parts += (_FRAME_SIZE.pack(len(group)), _FRAME_SIZE.pack(len(chunk)), chunk)
    return b"".join(parts) or _FRAME_SIZE.pack(0)


def _unzstd(raw: bytes, size: int) -> bytes:
    if raw[:4] == _ZSTD_MAGIC:
        return _unzstd_chunk(raw, size, exact=False)
    parts: list[bytes] = []
    at, made = 0, 0
    while at < len(raw):
        group_end = made + _FRAME_SIZE.unpack_from(raw, at)[0]
        if group_end > size:
            raise ValueError(f"a group would make {group_end} bytes")
        at += 4
        while made < group_end:
            chunk_end = at + 4 + _FRAME_SIZE.unpack_from(raw, at)[0]
            if chunk_end > len(raw):
                raise EOFError("a chunk ends after the block")
            part = _unzstd_chunk(raw[at + 4 : chunk_end], group_end - made, exact=True)
            parts.append(part)
            at, made = chunk_end, made + len(part)
    return b"".join(parts)


def _unzstd_chunk(chunk: bytes, limit: int, exact: bool) -> bytes:
    """At most `limit` bytes (and one, so that too much is seen), allocated as they come."""
    if exact and limit <= _PIECE_BYTES:
        try:
            return cast("bytes", pa.Codec("zstd").decompress(chunk, limit, asbytes=True))
        except OSError:  # the group has more chunks than this one
            pass
    parts: list[bytes] = []
    left = limit + 1
    with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
        while left and (part := stream.read(min(left, _PIECE_BYTES))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


_READ = {Codec.NONE: _raw, Codec.GZ: _gunzip, Codec.ZSTD: _unzstd}
