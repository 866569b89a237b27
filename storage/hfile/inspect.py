"""Looking into an HFile of any writer: its facts for people, and its faults as data.

`verify` reads every block once, in order, and reports

    open       trailer, index or file info cannot be read: nothing else was looked at
    block      a block is damaged: checksum, sizes, compression, records
    order      a key is less than the one before it
    index      an index key is above the first key of its block, or not above the last key
               of the block before: lookups miss entries
    count      entries, blocks or the last key differ from what trailer and file info say
    meta       a META block is damaged
    tail       entries that hudi-io's reader drops (FORMAT.md, "Two hazards")
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.errors import CorruptError, Finding, UpgradeError
from metatable.storage.hfile.block import BlockHeader, BlockType, decode_block
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, chunk_count
from metatable.storage.hfile.file_info import LASTKEY, NUMBERS
from metatable.storage.hfile.key_values import KeyValues, parse, row_of
from metatable.storage.hfile.opened import OpenedHFile, open_hfile
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import MAJOR
from metatable.storage.store import Store

__all__ = ["meta", "verify"]


def meta(reader: HFileReader) -> dict[str, Any]:
    """An HFile's facts as JSON values: trailer, file info, counts, first and last key (base64)."""
    opened, trailer = reader.opened, reader.trailer
    facts = {one.name: getattr(trailer, one.name) for one in fields(trailer)}
    return {
        "path": opened.path,
        "size_bytes": opened.size_bytes,
        "version": f"{MAJOR}.{trailer.minor}",
        "codec": trailer.compression_codec.name,
        "comparator": trailer.comparator_class_name,
        "entry_count": reader.entry_count,
        "data_block_count": len(opened.index),
        "first_key": _base64(reader.first_key),
        "last_key": _base64(reader.last_key),
        "meta_blocks": {name: size for name, (_, size) in sorted(opened.meta.items())},
        "trailer": facts | {"compression_codec": trailer.compression_codec.name},
        "file_info": {
            _name(name): _fact(name, opened.file_info[name]) for name in opened.file_info
        },
    }


def verify(store: Store, path: str) -> list[Finding]:
    """All faults of the file. Raises CorruptError only where there is no file at all."""
    size = store.size(path)
    if size is None:
        raise CorruptError("file is missing", path=path, store=store.uri)
    try:
        opened = open_hfile(store, path, size)
    except (CorruptError, UpgradeError) as error:
        return [Finding("open", path, str(error))]
    return [*_Verifier(store, opened).findings(), *_meta_findings(store, opened)]


class _Verifier:
    """One pass over the data blocks."""

    def __init__(self, store: Store, opened: OpenedHFile) -> None:
        self._store = store
        self._opened = opened
        self._count = 0
        self._last: bytes | None = None
        self._damaged = False

    def findings(self) -> Iterator[Finding]:
        for block in range(len(self._opened.index)):
            yield from self._block(block)
        if not self._damaged:
            yield from self._totals()

    def _block(self, block: int) -> Iterator[Finding]:
        opened = self._opened
        offset, size = int(opened.index.offsets[block]), int(opened.index.sizes[block])
        where = f"{opened.path} offset {offset}"
        try:
            [raw] = self._store.read(opened.path, [(offset, size)])
            codec = opened.trailer.compression_codec
            header, payload = decode_block(raw, codec, opened.path, offset, (BlockType.DATA,))
            records = parse(payload, opened.with_mvcc, opened.path, offset)
        except CorruptError as error:
            self._damaged = True
            yield Finding("block", where, str(error))
            return
        self._count += len(records)
        keys = records.keys()
        if len(keys):
            yield from self._keys(block, where, keys)
            yield from _tail_findings(where, header, records, keys)

    def _keys(self, block: int, where: str, keys: pa.Array) -> Iterator[Finding]:
        first, last = keys[0].as_py(), keys[len(keys) - 1].as_py()
        index_key = self._opened.index.rows[block]
        if index_key > first:
            yield Finding("index", where, f"index key {index_key!r} is above first key {first!r}")
        if self._last is not None and index_key <= self._last:
            detail = f"index key {index_key!r} is not above last key {self._last!r} before it"
            yield Finding("index", where, detail)
        if self._last is not None and first < self._last:
            yield Finding("order", where, f"key {first!r} follows {self._last!r}")
        falls = pc.less(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        if falls.any():
            at = int(np.argmax(falls))
            yield Finding(
                "order", where, f"key {keys[at + 1].as_py()!r} follows {keys[at].as_py()!r}"
            )
        self._last = last

    def _totals(self) -> Iterator[Finding]:
        opened = self._opened
        expected = opened.trailer.entry_count
        if self._count != expected:
            detail = f"expected {expected} entries, as the trailer says, found {self._count}"
            yield Finding("count", opened.path, detail)
        stored = row_of(opened.file_info.get(LASTKEY, b""))
        if stored is not None and self._last is not None and stored != self._last:
            detail = f"expected last key {stored!r}, as file info says, found {self._last!r}"
            yield Finding("count", opened.path, detail)
        places = opened.index.offsets
        ends = (int(places[0]), int(places[-1])) if len(places) else None
        trailer = opened.trailer
        said = (trailer.first_data_block_offset, trailer.last_data_block_offset)
        if ends is not None and ends != said:
            detail = f"expected first and last data block at {said}, found {ends}"
            yield Finding("count", opened.path, detail)


def _tail_findings(
    where: str, header: BlockHeader, records: KeyValues, keys: pa.Array
) -> Iterator[Finding]:
    lost_bytes = CHECKSUM_BYTES * chunk_count(header.covered_size, header.chunk_bytes)
    starts = records.row_starts - 10
    lost = int((starts >= header.payload_size - lost_bytes).sum())
    if lost:
        named = [one.as_py() for one in keys[-min(lost, 5) :]]
        yield Finding("tail", where, f"{lost} entries are dropped by hudi-io, such as {named!r}")


def _meta_findings(store: Store, opened: OpenedHFile) -> Iterator[Finding]:
    for name, (offset, size) in opened.meta.items():
        try:
            [raw] = store.read(opened.path, [(offset, size)])
            codec = opened.trailer.compression_codec
            decode_block(raw, codec, opened.path, offset, (BlockType.META,))
        except CorruptError as error:
            yield Finding("meta", f"{opened.path} offset {offset}", f"{name}: {error}")


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _fact(name: bytes, value: bytes) -> int | str | dict[str, str]:
    """A number where the name is known for one, text where it is text, else base64."""
    if name in NUMBERS:
        return int.from_bytes(value, "big", signed=True)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(value)}
    return text if name != LASTKEY and "\0" not in text else {"base64": _base64(value)}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
