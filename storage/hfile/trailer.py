"""Trailer: the last 4096 bytes of an HFile, and the first a reader asks for.

    magic `TRABLK"$`, protobuf varint length, message, zeros, minor u8, major u24

    field  name                          type
        1  file_info_offset              varint
        2  load_on_open_data_offset      varint  the data root index
        3  uncompressed_data_index_size  varint  payloads of all data index blocks
        4  total_uncompressed_bytes      varint  headers and payloads, but of data root indexes
        5  data_index_count              varint  entries of the root block
        6  meta_index_count              varint
        7  entry_count                   varint
        8  num_data_index_levels         varint  1: the root points at data blocks
        9  first_data_block_offset       varint  -1 in an empty file
       10  last_data_block_offset        varint  where the last data block starts, or -1
       11  comparator_class_name         bytes   a Java class name
       12  compression_codec             varint  see codec.py; absent means NONE
       13  encryption_key                bytes   refused unless empty

Major version 3 is read, with any minor. Rules and history: FORMAT.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hfile import wire
from metatable.storage.hfile.codec import Codec

__all__ = ["COMPARATOR", "TRAILER_SIZE", "Trailer"]

MAGIC = b'TRABLK"$'
TRAILER_SIZE = 4096
MAJOR, MINOR = 3, 3
_VERSION_SIZE = 4
COMPARATOR = "org.apache.hadoop.hbase.KeyValue$KVComparator"
"""The name that HBase, hudi-io and hudi-rs all know."""

FIELDS = {
    1: "file_info_offset",
    2: "load_on_open_data_offset",
    3: "uncompressed_data_index_size",
    4: "total_uncompressed_bytes",
    5: "data_index_count",
    6: "meta_index_count",
    7: "entry_count",
    8: "num_data_index_levels",
    9: "first_data_block_offset",
    10: "last_data_block_offset",
    11: "comparator_class_name",
    12: "compression_codec",
    13: "encryption_key",
}
_BYTES_FIELDS = ("comparator_class_name", "encryption_key")
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class Trailer:
    """Where the sections of an HFile begin and what they hold."""

    file_info_offset: int
    load_on_open_data_offset: int
    uncompressed_data_index_size: int = 0
    total_uncompressed_bytes: int = 0
    data_index_count: int = 0
    meta_index_count: int = 0
    entry_count: int = 0
    num_data_index_levels: int = 1
    first_data_block_offset: int = -1
    last_data_block_offset: int = -1
    comparator_class_name: str = COMPARATOR
    compression_codec: Codec = Codec.NONE
    minor: int = MINOR

    def encode(self) -> bytes:
        """The 4096 bytes."""
        message = b"".join(self._field(number, name) for number, name in FIELDS.items())
        body = MAGIC + wire.write_varint(len(message)) + message
        version = bytes((self.minor,)) + MAJOR.to_bytes(3, "big")
        return body.ljust(TRAILER_SIZE - _VERSION_SIZE, b"\0") + version

    @classmethod
    def decode(cls, raw: bytes, path: str, offset: int) -> Trailer:
        """Raises CorruptError for other bytes, UpgradeError for another major version."""
        if len(raw) != TRAILER_SIZE or raw[: len(MAGIC)] != MAGIC:
            found = raw[: len(MAGIC)]
            raise CorruptError(
                "file has no HFile trailer", path=path, offset=offset, expected=MAGIC, found=found
            )
        minor, major = raw[-_VERSION_SIZE], int.from_bytes(raw[1 - _VERSION_SIZE :], "big")
        if major != MAJOR:
            raise UpgradeError("HFile version is not read", path=path, expected=MAJOR, found=major)
        try:
            return cls._decode_message(raw, minor, path)
        except (wire.Malformed, TypeError, ValueError) as error:
            raise CorruptError(
                "trailer is malformed",
                path=path,
                offset=offset,
                expected="a TrailerProto message",
                found=str(error),
            ) from error

    def check(self, size_bytes: int, path: str) -> Trailer:
        """This trailer, unless its offsets lie outside the file. Raises CorruptError."""
        end = size_bytes - TRAILER_SIZE
        sound = (
            0 <= self.load_on_open_data_offset <= self.file_info_offset < end
            and 0 <= self.num_data_index_levels <= _MOST_LEVELS
            and -1 <= self.first_data_block_offset <= self.load_on_open_data_offset
            and -1 <= self.last_data_block_offset <= self.load_on_open_data_offset
        )
        if not sound:
            raise CorruptError(
                "trailer points outside the file",
                path=path,
                offset=end,
                expected=f"offsets in order below {end}, at most {_MOST_LEVELS} index levels",
                found=f"load_on_open_data_offset={self.load_on_open_data_offset} "
                f"file_info_offset={self.file_info_offset} "
                f"num_data_index_levels={self.num_data_index_levels} "
                f"data blocks {self.first_data_block_offset} to {self.last_data_block_offset}",
            )
        return self

    def _field(self, number: int, name: str) -> bytes:
        if name == "encryption_key":  # HBase fails on an empty one
            return b""
        value = getattr(self, name)
        if name == "total_uncompressed_bytes" and not value:  # Hudi's writer has none
            return b""
        if isinstance(value, str):
            return wire.write_bytes_field(number, value.encode())
        return wire.write_varint_field(number, value)

    @classmethod
    def _decode_message(cls, raw: bytes, minor: int, path: str) -> Trailer:
        size, at = wire.read_varint(raw, len(MAGIC))
        if at + size > TRAILER_SIZE - _VERSION_SIZE:
            raise wire.Malformed(f"a message of {size} bytes")
        if any(raw[at + size : -_VERSION_SIZE]):
            raise wire.Malformed("bytes that are not zero behind the message")
        values: dict[str, Any] = {}
        for number, value in wire.fields(raw[at : at + size]):
            name = FIELDS.get(number, "")
            if name and isinstance(value, bytes) != (name in _BYTES_FIELDS):
                raise wire.Malformed(f"field {number} ({name}) has another kind")
            values[name] = _signed(value) if isinstance(value, int) else value
        values.pop("", None)  # fields of a newer minor version
        if values.pop("encryption_key", b""):
            raise UpgradeError("HFile is encrypted", path=path)
        values["comparator_class_name"] = values.get("comparator_class_name", b"").decode()
        values["compression_codec"] = _codec(values.get("compression_codec", Codec.NONE), path)
        return cls(minor=minor, **values)


def _codec(number: int, path: str) -> Codec:
    if number not in {int(one) for one in Codec}:
        raise UpgradeError(
            "HFile codec is not known", path=path, found=number, expected=[*map(int, Codec)]
        )
    return Codec(number)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
