"""One block of a file, for single keys: no more of it is unpacked than a key needs.

    packed zstd         searched as it is stored (packed.py), where the file says one size
    any other           the key is looked for in its bytes (one_key.py), of GZ in the first of them
    asked once before   its records are found, and kept, unless they have one size

What was verified of a block waits in the cache of blocks, so that its bytes are asked for once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from metatable.storage.cache import blocks as block_cache
from metatable.storage.hfile.block import BlockHeader, BlockType, open_block
from metatable.storage.hfile.block_index import BlockIndex
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec, beginnings, decompress
from metatable.storage.hfile.key_values import KeyValues
from metatable.storage.hfile.reading.alike import Alike, Searched
from metatable.storage.hfile.reading.fetch import fetch_one
from metatable.storage.hfile.reading.finding import find_records
from metatable.storage.hfile.reading.index_tree import IndexTree
from metatable.storage.hfile.reading.one_key import begins_with_digits, share_before, value_of
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.reading.packed import OBJECT_BYTES, PACKED, packed_of
from metatable.storage.hfile.reading.passes import BLOCK
from metatable.storage.store import Store

__all__ = ["OneBlock", "first_value"]

_DATA = (BlockType.DATA,)
_RECORDS, _STORED = "hfile.records", "hfile.stored"
"""What is kept of it besides its payload and its packed form."""

T = TypeVar("T")


class OneBlock:
    """Block number `block` of an index of a file."""

    def __init__(self, store: Store, opened: OpenedHFile, index: BlockIndex, block: int) -> None:
        self._store, self._opened = store, opened
        self._index, self._block = index, block
        self._offset, self._size = int(index.offsets[block]), int(index.sizes[block])

    def value(self, key: bytes) -> bytes | None:
        """The value of `key`, None where it is not there. Raises CorruptError."""
        opened = self._opened
        if opened.with_mvcc and not opened.may_spread_rows:
            alike = self._alike(key)
            if alike is not None:
                value = self._searched(alike).value(key)
                return None if value is None else bytes(value)
            if self._held(_RECORDS) is None:
                value = self._looked_for(key)
                if value is not None:
                    return value
        records = self.records()
        place = records.place_of(key)
        return records.value(place) if place >= 0 else None

    def records(self) -> KeyValues:
        """All of its records, kept as they are. Raises CorruptError."""
        kept: KeyValues | None = self._held(_RECORDS)
        if kept is not None:
            return kept
        raw = np.frombuffer(self._payload(keep=False), np.uint8)
        opened = self._opened
        made = find_records(raw, opened.with_mvcc, opened.path, self._offset)
        made = replace(made, rows=None)  # which lie in `raw`, too
        return self._keep(_RECORDS, made, len(made.raw) + 40 * len(made))

    def _alike(self, key: bytes) -> Alike | None:
        """The sizes of the records, where the file says that all have this key's and one value's,
        and its blocks need not be unpacked for that to be of use."""
        opened = self._opened
        sizes = opened.record_sizes
        if sizes is None or sizes[0] != len(key) or opened.trailer.compression_codec is Codec.GZ:
            return None
        alike = Alike(*sizes, opened.path)
        return alike if alike.can_be_searched else None

    def _searched(self, alike: Alike) -> Searched:
        """The block as a table, kept."""
        kept: Searched | None = self._held(PACKED)
        if kept is not None:
            return kept
        payload, records = self._held(BLOCK), self._held(_RECORDS)
        if payload is not None:
            return alike.block(payload, self._offset)
        if records is not None:
            return alike.block(records.raw, self._offset)
        size, stored = self._stored()
        if self._opened.trailer.compression_codec is Codec.ZSTD:
            packed = packed_of(np.frombuffer(stored, np.uint8), alike)
            if packed is not None:
                return self._keep(PACKED, packed, packed.size_bytes)
        payload = self._unpacked(size, stored)
        return self._keep(PACKED, alike.block(payload, self._offset), size + OBJECT_BYTES)

    def _looked_for(self, key: bytes) -> bytes | None:
        """The value of `key` if its bytes tell, None where all records have to."""
        stride = self._opened.stride
        if self._held(BLOCK) is not None or self._held(_STORED) is not None:
            if stride is None:
                return None
            payload = self._payload(keep=True)
            return value_of([payload], len(payload), key, stride)
        header, stored = self._fetched()
        size = header.payload_size
        if header.checksum is Checksum.NULL:  # then GZ's own alone vouches for it
            payloads: Iterable[bytes] = [self._unpacked(size, stored)]
        else:
            payloads = self._beginnings(size, stored, key)
        value = value_of(payloads, size, key, stride)
        self._keep(_STORED, (size, stored), len(stored))
        return value

    def _beginnings(self, size: int, stored: memoryview, key: bytes) -> Iterable[bytes]:
        """Beginnings of the payload, the first of which goes up to where `key` may be."""
        index, block, opened = self._index, self._block, self._opened
        codec, share = opened.trailer.compression_codec, None
        if codec is Codec.GZ and begins_with_digits(key) and block + 1 < len(index):
            share = share_before(key, index.row(block), index.row(block + 1))
        return beginnings(codec, stored, size, share=share, path=opened.path, offset=self._offset)

    def _payload(self, *, keep: bool) -> bytes:
        """All of the block's payload, verified. `keep`: in the cache of blocks."""
        kept: bytes | None = self._held(BLOCK)
        if kept is not None:
            return kept
        payload = self._unpacked(*self._stored())
        return self._keep(BLOCK, payload, len(payload)) if keep else payload

    def _unpacked(self, size: int, stored: memoryview) -> bytes:
        opened = self._opened
        codec = opened.trailer.compression_codec
        return decompress(codec, stored, size, path=opened.path, offset=self._offset)

    def _stored(self) -> tuple[int, memoryview]:
        """Bytes of the payload, and what is stored of it, verified."""
        kept: tuple[int, memoryview] | None = self._held(_STORED)
        if kept is not None:
            return kept
        header, stored = self._fetched()
        return header.payload_size, stored

    def _fetched(self) -> tuple[BlockHeader, memoryview]:
        raw = fetch_one(self._store, self._opened, self._offset, self._size)
        opened = open_block(raw, self._opened.path, self._offset, _DATA)
        self._store.counters.add("hfile.blocks")
        return opened

    def _held(self, what: str) -> Any | None:
        return block_cache.get((what, self._store.uri, self._opened.path, self._offset))

    def _keep(self, what: str, made: T, size_bytes: int) -> T:
        name = what, self._store.uri, self._opened.path, self._offset
        return block_cache.offer(name, made, size_bytes)


def first_value(store: Store, opened: OpenedHFile, tree: IndexTree, key: bytes) -> bytes | None:
    """The value of the first entry of `key` in a file, None where there is none. Raises
    CorruptError."""
    index = tree.of_key(key)
    last = index.last_at_most(key)
    first = index.first_from(key) - 1 if opened.may_spread_rows else last
    for block in range(max(first, 0), last + 1):
        value = OneBlock(store, opened, index, block).value(key)
        if value is not None:
            return value
    return None
