"""Small HFiles for tests, and cold readers of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.hfile.block import HEADER_SIZE, BlockHeader, BlockType
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.forms import OURS
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import TRAILER_SIZE
from metatable.storage.hfile.writer import HFileWriter, WrittenHFile
from metatable.storage.hfile.writing.block_writer import BlockWriter
from metatable.storage.store import Store

Entries = Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]


def binary(values: Iterable[bytes | None]) -> pa.Array:
    return pa.array(list(values), pa.binary())


def folder(path: Path) -> Store:
    return Store(path, {"durable": "false"})


def blocks_of(body: bytes) -> Iterator[tuple[int, BlockHeader]]:
    """(offset, header) of every block of a file."""
    at = 0
    while at < len(body) - TRAILER_SIZE:
        header = BlockHeader.decode(body[at : at + HEADER_SIZE], "", at)
        yield at, header
        at += header.size


def write(
    store: Store,
    path: str,
    entries: Entries,
    *,
    meta: Mapping[str, bytes] | None = None,
    facts: Mapping[str, bytes] | None = None,
    **options: Any,
) -> WrittenHFile:
    """A file of `entries`; `options` are the writer's."""
    pairs = sorted(entries.items()) if isinstance(entries, Mapping) else list(entries)
    writer = HFileWriter(store, path, **options)
    with writer as file:
        file.add(binary(key for key, _ in pairs), binary(value for _, value in pairs))
        for name, body in (meta or {}).items():
            file.add_meta(name, body)
        for name, value in (facts or {}).items():
            file.add_file_info(name, value)
    return writer.written


def write_in_parts(store: Store, path: str, *parts: list[bytes]) -> None:
    """A file whose values are its keys, added in several calls."""
    with HFileWriter(store, path) as file:
        for keys in parts:
            file.add(binary(keys), binary(keys))


def cold(store: Store, path: str, size_bytes: int | None = None) -> HFileReader:
    """A reader that finds nothing in the process's cache, with counters of its own."""
    cache.clear()
    return HFileReader.open(store.counting(Counters()), path, size_bytes)


def entries_of(reader: HFileReader, first: bytes | None = None) -> list[tuple[bytes, bytes]]:
    return [
        pair
        for batch in reader.scan(first)
        for pair in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]


def encode_block(
    kind: BlockType, payload: bytes, codec: Codec, *, checksum: Checksum = Checksum.CRC32C
) -> bytes:
    """A whole block by itself."""
    file = io.BytesIO()
    BlockWriter(file, codec, replace(OURS, checksum=checksum)).emit(kind, payload)
    return file.getvalue()
