"""The index of an HFile, through all of its levels, of which only what is asked for is read.

The root is loaded on open. With more than one level its entries lead to index blocks, and
those to index blocks or data blocks; each is decoded once per process, while the cache has room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.cache import cached, shared
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.block import BlockType, decode_block
from metatable.storage.hfile.block_index import BlockIndex, check_places, decode_inner
from metatable.storage.hfile.codec import BOMB_BYTES, BOMB_RATIO
from metatable.storage.hfile.reading.fetch import cut, fetch
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.store import Store

__all__ = ["IndexTree", "within"]

FEW_KEYS = 64
"""So many keys are looked for along their own paths through the index; more read all of it."""
READ_BYTES = 4 << 20
"""Stored bytes of index blocks that are held at once."""
LEVEL_BYTES = BOMB_BYTES
LEVEL_RATIO = BOMB_RATIO
"""All payloads of a level together are held to what is believed of one block: LEVEL_BYTES,
or, above that, LEVEL_RATIO times the size of the file. Each block alone could claim as much."""

_INNER = (BlockType.LEAF_INDEX, BlockType.INTERMEDIATE_INDEX)

Choice = Callable[[BlockIndex], Int64s]
"""Which entries of an index to follow, ascending."""


class IndexTree:
    """Finds the data blocks of one opened file."""

    def __init__(self, store: Store, opened: OpenedHFile) -> None:
        self._store = store
        self._opened = opened
        self.complete = opened.root if opened.levels == 1 else None
        """What `all` gives, if it is known."""

    def all(self) -> BlockIndex:
        """All data blocks."""
        if self.complete is None:
            key = ("hfile.index", self._store.uri, self._opened.path)
            self.complete = cached(
                key, lambda: self.level(self._opened.levels), lambda made: made.size_bytes
            )
        return self.complete

    def of_keys(self, wanted: pa.Array) -> BlockIndex:
        """The data blocks that can hold a key of `wanted`, which ascends, and some more."""
        if len(wanted) > FEW_KEYS:
            return self._searchable(self.all())
        return self._follow(lambda index: index.touched(wanted)[0])

    def of_key(self, key: bytes) -> BlockIndex:
        """The data blocks that can hold `key`, and some more."""
        if self.complete is not None:
            return self._searchable(self.complete)
        spread = self._opened.may_spread_rows

        def choose(index: BlockIndex) -> Int64s:
            last = index.last_at_most(key)
            first = index.first_from(key) - 1 if spread else last
            return np.arange(max(first, 0), last + 1)

        return self._follow(choose)

    def of_range(self, first: bytes, behind: bytes | None) -> BlockIndex:
        """The data blocks that can hold keys from `first` on, below `behind`, and some more."""
        return self._follow(lambda index: within(index, first, behind))

    def of_ranges(self, ranges: Sequence[tuple[bytes, bytes | None]]) -> BlockIndex:
        """`of_range` of each of these: each block once."""

        def choose(index: BlockIndex) -> Int64s:
            return np.unique(np.concatenate([within(index, *one) for one in ranges]))

        return self._follow(choose)

    def last(self) -> BlockIndex:
        """The last data block, and some more."""
        return self._descend(lambda index: _at(len(index) - 1), self._opened.levels)

    def level(self, number: int) -> BlockIndex:
        """All blocks of a level; those that the root points at are of level 1."""
        return self._descend(lambda index: np.arange(len(index)), number)

    def _follow(self, choose: Choice) -> BlockIndex:
        """Down to the data blocks by comparing keys, which must be in order for that."""
        return self._searchable(
            self._descend(lambda index: choose(self._searchable(index)), self._opened.levels)
        )

    def _searchable(self, index: BlockIndex) -> BlockIndex:
        if not index.is_ascending:
            raise CorruptError(
                "index keys are not in order: the file can be scanned, but nothing be looked up",
                path=self._opened.path,
                offset=self._opened.trailer.load_on_open_data_offset,
                expected="ascending bytes",
                found="a key less than the one before it",
            )
        return index

    def _descend(self, choose: Choice, levels: int) -> BlockIndex:
        index, opened = self._opened.root, self._opened
        limit = opened.trailer.load_on_open_data_offset
        for _ in range(levels - 1):
            chosen = choose(index)
            if not len(chosen):
                return _nothing(index)
            index = BlockIndex.joined(self._below(index, chosen))
            check_places(index, limit, opened.path, limit)
        return index

    def _below(self, index: BlockIndex, chosen: Int64s) -> list[BlockIndex]:
        """What the index blocks of these entries hold."""
        held = [shared.get(self._key(int(offset))) for offset in index.offsets[chosen]]
        missing = chosen[[one is None for one in held]]
        payload_bytes = sum(len(one.raw) for one in held if one is not None)
        fresh = iter(self._decode(index, missing, payload_bytes))
        return [next(fresh) if one is None else one for one in held]

    def _decode(self, index: BlockIndex, chosen: Int64s, payload_bytes: int) -> list[BlockIndex]:
        """What these index blocks hold, of a level of which `payload_bytes` are there already."""
        made: list[BlockIndex] = []
        codec, path = self._opened.trailer.compression_codec, self._opened.path
        offsets, sizes = index.offsets[chosen], index.sizes[chosen]
        for start, stop in cut(sizes, READ_BYTES):
            stored = fetch(self._store, self._opened, offsets[start:stop], sizes[start:stop])
            for raw, offset in zip(stored.blocks(), stored.offsets.tolist(), strict=True):
                _, payload = decode_block(raw.data, codec, path, offset, _INNER)
                payload_bytes += len(payload)
                self._check_level(payload_bytes, offset)
                inner = decode_inner(payload, path, offset)
                self._check_first(inner, index.row(int(chosen[len(made)])), offset)
                made.append(shared.offer(self._key(offset), inner, inner.size_bytes))
        self._store.counters.add("hfile.index_blocks", len(made))
        return made

    def _check_first(self, inner: BlockIndex, leading: bytes, offset: int) -> None:
        """Every writer leads to an index block by its first key. Where another one does, keys in
        between are in a block that nobody looks into: not there, as far as one can see."""
        first = inner.row(0) if len(inner) else leading
        if first != leading:
            raise CorruptError(
                "an index block begins with another key than the one that leads to it",
                path=self._opened.path,
                offset=offset,
                expected=leading,
                found=first,
            )

    def _check_level(self, payload_bytes: int, offset: int) -> None:
        most = max(LEVEL_BYTES, LEVEL_RATIO * self._opened.size_bytes)
        if payload_bytes > most:
            raise CorruptError(
                "index blocks of one level claim more payload than is believed",
                path=self._opened.path,
                offset=offset,
                expected=f"at most {most} bytes",
                found=f"{payload_bytes} up to this block",
            )

    def _key(self, offset: int) -> tuple[str, str, str, int]:
        return "hfile.index", self._store.uri, self._opened.path, offset


def within(index: BlockIndex, first: bytes, behind: bytes | None) -> Int64s:
    """Which blocks can hold keys from `first` on, below `behind`."""
    start = max(index.first_from(first) - 1, 0)  # HBase may spread a row over blocks
    stop = len(index) if behind is None else index.first_from(behind)
    return np.arange(start, stop)


def _at(place: int) -> Int64s:
    return np.array([place] if place >= 0 else [], np.int64)


def _nothing(index: BlockIndex) -> BlockIndex:
    none = np.empty(0, np.int64)
    return BlockIndex(none, none, index.raw, none, none)
