"""FILE_INFO: named facts about a file, the writer's own and its caller's.

    `PBUF`, protobuf varint length, message { repeated 1: { 1: name bytes, 2: value bytes } }

    name                 value
    hfile.LASTKEY        the last key in full; absent in an empty file
    hfile.AVG_KEY_LEN    i32, mean size of full keys (row + 12)
    hfile.AVG_VALUE_LEN  i32
    hfile.CREATE_TIME_TS i64, always 0 from us: equal entries make equal files
    KEY_VALUE_VERSION    i32 = 1: every record ends with an mvcc number
    MAX_MEMSTORE_TS_KEY  i64 = 0

We write the names in byte order, as HBase does; readers must not depend on any order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hfile import wire

__all__ = [
    "AVG_KEY_LEN",
    "AVG_VALUE_LEN",
    "CREATE_TIME_TS",
    "KEY_VALUE_VERSION",
    "LASTKEY",
    "MAX_MEMSTORE_TS_KEY",
    "NUMBERS",
    "RESERVED",
    "decode_file_info",
    "encode_file_info",
    "has_mvcc",
]

_MAGIC = b"PBUF"

LASTKEY = b"hfile.LASTKEY"
AVG_KEY_LEN = b"hfile.AVG_KEY_LEN"
AVG_VALUE_LEN = b"hfile.AVG_VALUE_LEN"
CREATE_TIME_TS = b"hfile.CREATE_TIME_TS"
KEY_VALUE_VERSION = b"KEY_VALUE_VERSION"
MAX_MEMSTORE_TS_KEY = b"MAX_MEMSTORE_TS_KEY"
RESERVED = (
    LASTKEY,
    AVG_KEY_LEN,
    AVG_VALUE_LEN,
    CREATE_TIME_TS,
    KEY_VALUE_VERSION,
    MAX_MEMSTORE_TS_KEY,
)
NUMBERS = RESERVED[1:]
"""The reserved keys whose values are big-endian integers."""
MOST_PAIRS = 1 << 16
"""Pairs that are believed: each becomes objects. Files have about ten."""
_MAX_TAGS_LEN = b"hfile.MAX_TAGS_LEN"
_BLOCK_ENCODING = b"DATA_BLOCK_ENCODING"


def encode_file_info(
    facts: Mapping[bytes, bytes],
    order: Callable[[Iterable[bytes]], Iterable[bytes]] = sorted,
) -> bytes:
    """The payload of a FILE_INFO block; `order` arranges the names."""
    pairs = (
        wire.write_bytes_field(
            1, wire.write_bytes_field(1, name) + wire.write_bytes_field(2, facts[name])
        )
        for name in order(facts)
    )
    message = b"".join(pairs)
    return _MAGIC + wire.write_varint(len(message)) + message


def decode_file_info(payload: bytes, path: str, offset: int) -> dict[bytes, bytes]:
    """Name to value. Raises CorruptError."""
    try:
        if payload[: len(_MAGIC)] != _MAGIC:
            raise wire.Malformed(f"begins with {payload[: len(_MAGIC)]!r}")
        size, at = wire.read_varint(payload, len(_MAGIC))
        if at + size > len(payload):
            raise wire.Malformed(f"a message of {size} bytes")
        pairs = (pair for number, pair in wire.fields(payload[at : at + size]) if number == 1)
        return dict(_pair(pair) for pair in _few(pairs))
    except wire.Malformed as error:
        raise CorruptError(
            "file info is malformed",
            path=path,
            offset=offset,
            expected="PBUF and pairs of bytes",
            found=str(error),
        ) from error


def has_mvcc(facts: Mapping[bytes, bytes], path: str) -> bool:
    """Whether records end with an mvcc number. Raises UpgradeError for forms that are not read."""
    if _MAX_TAGS_LEN in facts:
        raise UpgradeError("HFile carries cell tags, which are not read", path=path)
    if facts.get(_BLOCK_ENCODING, b"NONE") != b"NONE":
        found = facts[_BLOCK_ENCODING]
        raise UpgradeError("data block encoding is not read", path=path, found=found)
    return facts.get(KEY_VALUE_VERSION) == struct.pack(">i", 1)


def _few(pairs: Iterable[int | bytes]) -> Iterator[int | bytes]:
    for count, pair in enumerate(pairs):
        if count == MOST_PAIRS:
            raise wire.Malformed(f"more than {MOST_PAIRS} pairs")
        yield pair


def _pair(raw: int | bytes) -> tuple[bytes, bytes]:
    if isinstance(raw, int):
        raise wire.Malformed("a number where a pair of bytes belongs")
    both: dict[int, bytes] = {1: b"", 2: b""}
    for number, value in wire.fields(raw):
        if isinstance(value, int):
            raise wire.Malformed("a number where bytes belong")
        if number in both:  # of others there may be millions
            both[number] = value
    return both[1], both[2]
