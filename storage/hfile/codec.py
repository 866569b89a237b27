"""How one block's payload is compressed. The codec holds for the whole file, index included.

    id  name    framing of one payload
     0  LZO     not read
     1  GZ      one gzip member with the fixed header 1f8b0800000000000000, deflate, CRC32, size
     2  NONE    the payload itself
     3  SNAPPY  Hadoop block framing around raw Snappy
     4  LZ4     Hadoop block framing around raw LZ4 blocks, each of at most 4 MiB
     5  BZIP2   one bzip2 stream; read, but not written
     6  ZSTD    Hadoop block framing around zstd frames; bare frames are read as well

Hadoop block framing: groups of { u32 payload size; chunks of { u32 size; bytes } until the
group's payload is complete }, big-endian. We write what HBase writes: one group, cut into
chunks that its decompressors have room for. An empty group is the end; it stands where there
is no payload, and, a habit of Hadoop's, behind a group of several chunks.

The usual block, one member or one group of one chunk, is one call into C with nothing copied
but an LZ4 chunk. What a block claims is not believed: no more is produced than it claims,
and a claim above BOMB_BYTES is refused unless 1 / BOMB_RATIO of it is stored.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, cast

import pyarrow as pa
import xxhash
from isal import igzip_lib, isal_zlib

from metatable.storage.arrays import UInt8s
from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.hfile import wire
from metatable.storage.inflate import gunzip, gunzip_into

__all__ = [
    "BOMB_BYTES",
    "BOMB_RATIO",
    "READABLE",
    "SUPPORTED",
    "ZSTD_LEVEL",
    "ZSTD_REPEATS_ONLY",
    "Codec",
    "beginnings",
    "compress",
    "decompress",
    "decompress_into",
]

Raw: TypeAlias = bytes | memoryview | UInt8s


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
        """`gz`, `none`, `snappy`, … Raises UsageError for a codec that is not written."""
        found = cls.__members__.get(name.upper())
        if found not in SUPPORTED:
            expected = [one.name.lower() for one in SUPPORTED]
            raise UsageError("no such HFile codec", found=name, expected=expected)
        return found


SUPPORTED = (Codec.GZ, Codec.NONE, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
"""Read and written."""
READABLE = (*SUPPORTED, Codec.BZIP2)

BOMB_BYTES = 256 << 20
"""So much a reader may be made to hold for one block whatever the block's size: a thousand
blocks of the usual size, and less than a small machine has."""
BOMB_RATIO = 64
"""Above that, memory stays in proportion to the file. Records shrink to a third or a tenth."""

_AT_ONCE_BYTES = 16 << 20
"""Claims up to this are allocated before a byte has been seen, larger ones as bytes come."""
_PIECE_BYTES = 1 << 20

_BEGINNINGS = 4
"""Steps in which a payload is inflated that may be needed in part: more of them cost more than they
spare."""
_HEAD, _SPARE = 0.09, 0.04
"""A share of a payload is made of more than that share of what is stored: its beginning repeats
less, by the first of these; and what one looks for is a little later than it should."""

ZSTD_LEVEL, ZSTD_REPEATS_ONLY = 1, -1
"""From -1 down zstd tells repeats alone, and leaves the bytes between them as they are. Text takes
up to 1.7 times as much so; hashes take no more, and are compressed in four fifths of the time."""
_GZ_HEADER = bytes.fromhex("1f8b0800000000000000")
_GZ_LEVEL = 2  # isal knows 0 to 3: level 3 takes twice the time for 1 % less
_JAVA_GZ_LEVEL = 6
_GZ_END = struct.Struct("<II")
_RAW_DEFLATE = -15

_SIZE = struct.Struct(">I")
_END = bytes(_SIZE.size)
_GROUP = struct.Struct(">II")
_CHUNK_BYTES = (256 << 10) - ((256 << 10) // 6 + 32)
"""HBase's buffers hold 256 KiB, less what it reserves for bytes that do not shrink."""

_SNAPPY_RATIO = 32  # 64 bytes take at least a copy of three
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_BLOCK_BYTES = {5: 256 << 10, 6: 1 << 20, 7: 4 << 20}  # by their code in a frame

_DAMAGED = cast("type[Exception]", igzip_lib.IsalError)


def compress(
    codec: Codec,
    payload: bytes | memoryview,
    *,
    like_java: bool = False,
    zstd_level: int = ZSTD_LEVEL,
) -> bytes:
    """`payload` as it lies in a block.

    `like_java`: GZ in the bytes that HBase and Hudi write, where this zlib is of their make.
    Raises UsageError for a codec that is not written, and for what no reader would take.
    """
    if codec not in SUPPORTED:
        raise UsageError("HFile codec is not written", found=codec.name, expected=_names(SUPPORTED))
    if codec is Codec.NONE:
        return bytes(payload)
    if codec is Codec.GZ:
        stored = _gzip(payload, _deflate_like_java if like_java else _deflate)
    else:
        level = zstd_level if codec is Codec.ZSTD else None
        stored = _framed(pa.Codec(_ARROW_NAMES[codec], level), memoryview(payload))
    if _is_bomb(len(stored), len(payload)):
        raise UsageError(
            "payload is too large for how far it shrinks", found=len(payload), expected=_limit()
        )
    return stored


def decompress(codec: Codec, raw: Raw, size: int, *, path: str = "", offset: int = 0) -> bytes:
    """Exactly `size` bytes of payload; never produces more than that and one.

    Raises CorruptError where `raw` holds something else, UpgradeError for an unread codec.
    """
    if codec not in READABLE:
        raise UpgradeError(
            "HFile codec is not read", path=path, found=codec.name, expected=_names(READABLE)
        )
    if _is_bomb(len(raw), size):
        raise CorruptError(
            "block claims more payload than is believed",
            path=path,
            offset=offset,
            expected=_limit(),
            found=f"{size} bytes of {len(raw)}",
        )
    try:
        payload = _READ[codec](memoryview(cast("bytes", raw)), size)
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


def decompress_into(
    codec: Codec,
    raws: Sequence[memoryview],
    sizes: Sequence[int],
    out: UInt8s,
    *,
    path: str = "",
    offsets: Sequence[int],
) -> None:
    """What `decompress` gives of each of `raws`, end to end in `out`, which they fill. GZ is
    inflated to where it is to lie; any other payload is copied while it is near the processor, and
    the next one has its memory. Raises as `decompress`, with anything in `out`."""
    room, end = out.data, 0
    for raw, size, offset in zip(raws, sizes, offsets, strict=True):
        start, end = end, end + size
        is_asked = codec is Codec.GZ and not _is_bomb(len(raw), size)
        if not is_asked or not gunzip_into(raw, out[start:end]):
            room[start:end] = decompress(codec, raw, size, path=path, offset=offset)


def beginnings(
    codec: Codec,
    raw: Raw,
    size: int,
    *,
    share: float | None = None,
    path: str = "",
    offset: int = 0,
) -> Iterator[bytes]:
    """What `decompress` gives, and before it, of GZ, longer and longer beginnings of that: who
    finds what he looks for in one of them needs no more. `share`: of the payload, what the first
    of them should reach. Raises as `decompress`, at the end."""
    if codec is Codec.GZ and not _is_bomb(len(raw), size):
        whole = yield from _inflated(memoryview(cast("bytes", raw)), size, share)
        if whole is not None:
            yield whole
            return
    yield decompress(codec, raw, size, path=path, offset=offset)


def _inflated(
    raw: memoryview, size: int, share: float | None
) -> Generator[bytes, None, bytes | None]:
    """Beginnings of what `raw` is inflated to, and all of it, None where it is no such stream."""
    inflater = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)
    made, step, end = b"", -(-len(raw) // _BEGINNINGS) or 1, 0
    first = step if share is None else int(len(raw) * (share + _HEAD * (1 - share) + _SPARE)) or 1
    while end < len(raw):
        if made:
            yield made
        start, end = end, end + step if end else first
        try:
            made += inflater.decompress(raw[start:end], size + 1 - len(made))
        except (_DAMAGED, EOFError):
            return None
        if len(made) > size:
            return None
    is_whole = inflater.eof and not inflater.unused_data and len(made) == size
    return made if is_whole else None


def _names(codecs: tuple[Codec, ...]) -> list[str]:
    return [one.name for one in codecs]


def _is_bomb(stored: int, size: int) -> bool:
    return size > BOMB_BYTES and size > BOMB_RATIO * stored


def _limit() -> str:
    return f"at most {BOMB_BYTES} bytes, or {BOMB_RATIO} times what is stored"


# One stream: NONE, GZ, BZIP2


def _raw(raw: memoryview, size: int) -> bytes:
    return bytes(raw)


def _gzip(payload: bytes | memoryview, deflate: Callable[[bytes | memoryview], bytes]) -> bytes:
    end = _GZ_END.pack(isal_zlib.crc32(payload), len(payload) & 0xFFFFFFFF)
    return b"".join((_GZ_HEADER, deflate(payload), end))


def _deflate(payload: bytes | memoryview) -> bytes:
    return bytes(isal_zlib.compress(payload, _GZ_LEVEL, _RAW_DEFLATE))


def _deflate_like_java(payload: bytes | memoryview) -> bytes:
    return zlib.compress(payload, _JAVA_GZ_LEVEL, _RAW_DEFLATE)


def _gunzip(raw: memoryview, size: int) -> bytes:
    payload = gunzip(raw, size)
    if payload is not None:
        return payload
    return _one_stream(igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), raw, size)


def _bunzip(raw: memoryview, size: int) -> bytes:
    return _one_stream(bz2.BZ2Decompressor(), raw, size)


def _one_stream(decompressor: Any, raw: memoryview, size: int) -> bytes:
    payload: bytes = decompressor.decompress(raw, size + 1)
    if len(payload) <= size and not decompressor.eof:
        raise EOFError("compressed bytes end too early")
    if decompressor.unused_data:
        raise ValueError(f"{len(decompressor.unused_data)} bytes after the end")
    return payload


# Hadoop block framing: SNAPPY, LZ4, ZSTD


def _framed(codec: pa.Codec, payload: memoryview) -> bytes:
    parts = [_SIZE.pack(len(payload))]
    for start in range(0, len(payload), _CHUNK_BYTES):
        chunk = codec.compress(payload[start : start + _CHUNK_BYTES], asbytes=True)
        parts += (_SIZE.pack(len(chunk)), chunk)
    if len(payload) > _CHUNK_BYTES:
        parts.append(_END)
    return b"".join(parts)


def _unframed(name: str, raw: memoryview, size: int) -> bytes:
    """The payload of `size` bytes out of Hadoop's block framing. Raises ValueError, EOFError,
    struct.error, or what the codec does."""
    if len(raw) > _GROUP.size and _GROUP.unpack_from(raw) == (size, len(raw) - _GROUP.size):
        return _whole(name, raw[_GROUP.size :], size)
    parts: list[bytes] = []
    at, made = 0, 0
    while at < len(raw) and raw[at:] != _END:
        group_end = made + _SIZE.unpack_from(raw, at)[0]
        at += _SIZE.size
        if not made < group_end <= size:
            raise ValueError(f"a group of {group_end - made} bytes where {size - made} are left")
        while made < group_end:
            chunk_end = at + _SIZE.size + _SIZE.unpack_from(raw, at)[0]
            if chunk_end > len(raw):
                raise EOFError("a chunk ends after the block")
            part = _part(name, raw[at + _SIZE.size : chunk_end], group_end - made)
            if not 0 < len(part) <= group_end - made:
                raise ValueError(f"a chunk makes {len(part)} of {group_end - made} bytes")
            parts.append(part)
            at, made = chunk_end, made + len(part)
    return b"".join(parts)


def _whole(name: str, chunk: memoryview, size: int) -> bytes:
    """The chunk's payload, which is `size` bytes or an error, or has another length."""
    if size > _AT_ONCE_BYTES and name == "zstd":
        return _streamed(name, chunk, size)
    if name == "lz4":
        return _arrow(name, _lz4_frame(chunk, size), size)
    if name == "snappy" and _snappy_size(chunk) != size:  # Arrow leaves the difference unfilled
        raise ValueError(f"a chunk of {_snappy_size(chunk)} bytes where {size} are left")
    return _arrow(name, chunk, size)


def _arrow(name: str, stored: bytes | memoryview, size: int) -> bytes:
    return cast("bytes", pa.Codec(name).decompress(stored, size, asbytes=True))


def _part(name: str, chunk: memoryview, limit: int) -> bytes:
    """The payload of a chunk that may have others behind it; too long if above `limit`."""
    if name == "snappy":
        return _whole(name, chunk, min(_snappy_size(chunk), limit))
    try:
        return _whole(name, chunk, min(limit, _CHUNK_BYTES))
    except (OSError, ValueError):  # neither the last chunk nor as long as HBase makes them
        return _streamed(name, _lz4_frame(chunk) if name == "lz4" else chunk, limit)


def _streamed(name: str, stored: bytes | memoryview, limit: int) -> bytes:
    """At most `limit` bytes (and one, so that too much is seen), allocated as they come."""
    parts: list[bytes] = []
    left = limit + 1
    with pa.CompressedInputStream(pa.BufferReader(stored), name) as stream:
        while left and (part := stream.read(min(left, _PIECE_BYTES))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _snappy_size(chunk: memoryview) -> int:
    """What the chunk says it makes. Snappy itself holds it to that."""
    size, _ = wire.read_varint(bytes(chunk[:5]), 0)
    if size > _SNAPPY_RATIO * len(chunk):
        raise ValueError(f"a chunk of {len(chunk)} bytes claims to make {size}")
    return size


def _lz4_frame(chunk: memoryview, size: int | None = None) -> bytes:
    """The chunk as the one block of an LZ4 frame, which makes exactly `size` bytes if given.

    A raw LZ4 block does not know its length, and Arrow does not tell what it decoded.
    """
    at_least = max(len(chunk), _LZ4_BLOCK_BYTES[7] if size is None else size)
    code = next((code for code, most in _LZ4_BLOCK_BYTES.items() if most >= at_least), None)
    if code is None:
        raise ValueError(f"an LZ4 chunk of {len(chunk)} bytes, for {size}")
    head = bytes((0x60, code << 4))  # blocks do not depend on each other
    if size is not None:
        head = bytes((0x68, code << 4)) + size.to_bytes(8, "little")
    check = xxhash.xxh32_intdigest(head) >> 8 & 0xFF
    stored = len(chunk).to_bytes(4, "little")
    return b"".join((_LZ4_MAGIC, head, bytes((check,)), stored, chunk, bytes(4)))


def _unsnappy(raw: memoryview, size: int) -> bytes:
    return _unframed("snappy", raw, size)


def _unlz4(raw: memoryview, size: int) -> bytes:
    return _unframed("lz4", raw, size)


def _unzstd(raw: memoryview, size: int) -> bytes:
    if raw[:4] == _ZSTD_MAGIC:
        return _whole("zstd", raw, size)
    return _unframed("zstd", raw, size)


_ARROW_NAMES = {Codec.SNAPPY: "snappy", Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
_READ: dict[Codec, Callable[[memoryview, int], bytes]] = {
    Codec.GZ: _gunzip,
    Codec.NONE: _raw,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.BZIP2: _bunzip,
    Codec.ZSTD: _unzstd,
}
