"""LogBlock: a typed content between two sizes, with a few texts before it.

    size  field            (integers big-endian, signed)
       6  magic            b"#HUDI#"
       8  size             bytes behind this field, up to the end of the block
       4  format_version   1
       4  kind             see BlockKind
     var  header           u32 count, then for each: u32 HeaderKey, u32 size, UTF-8
       8  content_size
     var  content
     var  footer           as the header; empty in all files known
       8  total_size       bytes before this field: size + 6

There is no checksum: what is damaged inside a content is found, if at all, by who decodes it.
Rules and history: FORMAT.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from metatable.storage.errors import CorruptError, UpgradeError, UsageError

__all__ = [
    "MAGIC",
    "TOTAL_SIZE",
    "BlockKind",
    "HeaderKey",
    "LogBlock",
    "first_instant",
    "size_at",
    "told_size",
    "total_size",
]

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
_PREFIX = struct.Struct(">6sq")  # tests/storage/hudi_log/test_format_doc.py holds both to FORMAT.md
_HEAD = struct.Struct(">ii")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">ii")
_SIZE = struct.Struct(">q")
PREFIX_SIZE, TOTAL_SIZE = _PREFIX.size, _SIZE.size

_LEAST = _HEAD.size + _COUNT.size + _SIZE.size + _COUNT.size + _SIZE.size
MAX_CONTENT_SIZE = (1 << 31) - 1
"""Hudi's readers hold a content in one array of Java."""


class BlockKind(IntEnum):
    """What a block is."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """What a text of the header tells."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block. `content` may be a view of the file's bytes; the order of texts is kept.

    `path` and `offset` say where it was read, for messages.
    """

    kind: BlockKind
    header: Mapping[HeaderKey, str]
    content: bytes | memoryview
    footer: Mapping[int, str] = field(default_factory=dict)
    path: str = field(default="", compare=False)
    offset: int = field(default=0, compare=False)

    def encode(self) -> bytes:
        """The bytes of the block. Raises UsageError for a content that Hudi could not hold."""
        if len(self.content) > MAX_CONTENT_SIZE:
            found = len(self.content)
            raise UsageError("log block is too large", expected=MAX_CONTENT_SIZE, found=found)
        header, footer = _encode_texts(self.header), _encode_texts(self.footer)
        size = _LEAST - 2 * _COUNT.size + len(header) + len(self.content) + len(footer)
        return b"".join(
            (
                _PREFIX.pack(MAGIC, size),
                _HEAD.pack(FORMAT_VERSION, self.kind),
                header,
                _SIZE.pack(len(self.content)),
                self.content,
                footer,
                _SIZE.pack(size + len(MAGIC)),
            )
        )

    @classmethod
    def decode(cls, raw: memoryview, path: str, offset: int) -> LogBlock:
        """The block that `raw` is, from the magic to the last size; it lies at `offset`.

        Raises CorruptError, and UpgradeError for a version, a kind or a header of a later Hudi.
        """
        reader = _Reader(raw, path, offset, PREFIX_SIZE)
        version, kind = reader.take(_HEAD, "log block head")
        for what, expected, found in (
            ("log format version", (FORMAT_VERSION,), version),
            ("kind of log block", _KINDS, kind),
        ):
            if found not in expected:
                raise reader.wrong(UpgradeError, f"unknown {what}", [*expected], found)
        texts = reader.texts("log block header")
        unknown = sorted(texts.keys() - _KEYS)
        if unknown:
            raise reader.wrong(UpgradeError, "unknown log block header", sorted(_KEYS), unknown)
        (content_size,) = reader.take(_SIZE, "size of a log block's content")
        content = reader.bytes(content_size, "content of a log block")
        footer = reader.texts("log block footer")
        if reader.at != len(raw) - TOTAL_SIZE:
            what = "parts of a log block do not fill it"
            raise reader.wrong(CorruptError, what, len(raw) - TOTAL_SIZE, reader.at)
        if total_size(raw) != reader.at:
            what = "sizes before and behind a log block differ"
            raise reader.wrong(CorruptError, what, reader.at, total_size(raw))
        header = {HeaderKey(key): text for key, text in texts.items()}
        return cls(BlockKind(kind), header, content, footer, path, offset)


_KINDS = tuple(int(one) for one in BlockKind)
_KEYS = {int(one) for one in HeaderKey}


def first_instant(raw: memoryview, path: str) -> str | None:
    """The instant that the block tells which `raw` begins with. None: these bytes, which may end
    within the block, do not hold it. Raises CorruptError where no block begins."""
    size_at(raw, 0, path)
    reader = _Reader(raw, path, 0, PREFIX_SIZE)
    try:
        reader.take(_HEAD, "log block head")
        (count,) = reader.take(_COUNT, "log block header")
        texts = reader.entries(count, "log block header")
        return next((text for key, text in texts if key == HeaderKey.INSTANT_TIME), None)
    except CorruptError:
        return None


def total_size(raw: memoryview) -> int:
    """What the last bytes of a block say: how many there are before them."""
    return int(_SIZE.unpack(raw[-TOTAL_SIZE:])[0])


def size_at(raw: memoryview, at: int, path: str) -> int | None:
    """Bytes of the block that begins at `at`; None where the bytes end before it does.

    Raises CorruptError where no block begins.
    """
    size = told_size(raw, at, path)
    return None if size is None or size > len(raw) - at else size


def told_size(raw: memoryview, at: int, path: str) -> int | None:
    """Bytes that the block at `at` says it has, whether or not they are there; None where there are
    too few to say so. Raises as above."""
    head = raw[at : at + PREFIX_SIZE]
    magic = bytes(head[: len(MAGIC)])
    if magic != MAGIC[: len(magic)]:
        raise CorruptError(
            "no log block begins here", path=path, offset=at, expected=MAGIC, found=magic
        )
    if len(head) < PREFIX_SIZE:
        return None
    _, size = _PREFIX.unpack(head)
    if size < _LEAST:
        what = "size of a log block is impossible"
        raise CorruptError(what, path=path, offset=at, expected=f">= {_LEAST}", found=size)
    return PREFIX_SIZE + int(size)


class _Reader:
    """Steps through the bytes of one block; no size is believed before there are bytes for it."""

    def __init__(self, raw: memoryview, path: str, offset: int, at: int) -> None:
        self.raw, self.path, self.offset, self.at = raw, path, offset, at

    def take(self, layout: struct.Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self.bytes(layout.size, what))

    def bytes(self, size: int, what: str) -> memoryview:
        left = len(self.raw) - self.at
        if not 0 <= size <= left:
            raise self.wrong(CorruptError, f"{what} is out of bounds", f"0 to {left}", size)
        self.at += size
        return self.raw[self.at - size : self.at]

    def texts(self, what: str) -> dict[int, str]:
        (count,) = self.take(_COUNT, what)
        if not 0 <= count <= (len(self.raw) - self.at) // _ENTRY.size:
            raise self.wrong(CorruptError, f"{what} has an impossible count", "texts", count)
        found: dict[int, str] = {}
        for key, text in self.entries(count, what):
            if key in found:
                raise self.wrong(CorruptError, f"{what} tells one thing twice", "once", key)
            found[key] = text
        return found

    def entries(self, count: int, what: str) -> Iterator[tuple[int, str]]:
        for _ in range(count):
            key, size = self.take(_ENTRY, what)
            raw = bytes(self.bytes(size, what))
            try:
                yield key, raw.decode()
            except UnicodeDecodeError as error:
                what = f"{what} is not UTF-8"
                raise self.wrong(CorruptError, what, "UTF-8", raw[:100]) from error

    def wrong(
        self, kind: type[CorruptError | UpgradeError], what: str, expected: object, found: object
    ) -> CorruptError | UpgradeError:
        offset = self.offset + self.at
        return kind(what, path=self.path, offset=offset, expected=expected, found=found)


def _encode_texts(texts: Mapping[HeaderKey, str] | Mapping[int, str]) -> bytes:
    parts = [_COUNT.pack(len(texts))]
    for key, text in texts.items():
        raw = text.encode()
        parts += _ENTRY.pack(key, len(raw)), raw
    return b"".join(parts)
