"""HFileReader: gets, sorted batches of gets, prefixes and scans over one HFile.

Opening reads the trailer and what is loaded on open, once a process: the parsed result and
decoded blocks wait in the process's cache. A batch of keys is answered in one forward pass:
each block that can hold one of them is fetched with its neighbours, verified, decoded once,
and searched for all of them at once. A scan holds about 4 MiB of the file at a time, or one
block where that is larger.

Equal keys: `get` and its kin give the first entry; scans and prefixes give all of them.

Counted: `hfile.blocks` (decoded), `hfile.lookups` (keys asked for).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.byte_columns import first_words
from metatable.storage.cache import cached, shared
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile.block import BlockType, decode_block
from metatable.storage.hfile.columns import (
    Int64s,
    as_binary,
    bound,
    bytes_of,
    common_prefix_size,
    is_ascending,
    offsets_of,
)
from metatable.storage.hfile.file_info import LASTKEY
from metatable.storage.hfile.key_values import KeyValues, parse, row_of
from metatable.storage.hfile.opened import OpenedHFile, open_hfile, read_runs
from metatable.storage.hfile.trailer import Trailer
from metatable.storage.store import Store

__all__ = ["HFileReader", "OpenedHFile"]

READ_BYTES = 4 << 20
"""Stored bytes that one call of the store fetches during a pass."""
GROUP_BYTES = 1 << 20
"""Payload that is parsed and searched, or handed out by a scan, as one."""
CACHED_SHARE = 8
"""A pass over more than this fraction of the cache's budget leaves its blocks out of it."""

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class HFileReader:
    """One HFile of any writer. Reads through `store`, and counts into its counters."""

    def __init__(self, store: Store, opened: OpenedHFile) -> None:
        self._store = store
        self.opened = opened

    @classmethod
    def open(cls, store: Store, path: str, size_bytes: int | None = None) -> HFileReader:
        """Raises CorruptError for a missing or damaged file, UpgradeError for an unread form.

        `size_bytes` saves a request where the caller knows it.
        """
        opened = cached(
            ("hfile", store.uri, path),
            lambda: open_hfile(store, path, size_bytes),
            lambda made: made.memory_bytes,
        )
        if size_bytes is not None and size_bytes != opened.size_bytes:
            raise CorruptError(
                "file has another size", path=path, expected=size_bytes, found=opened.size_bytes
            )
        return cls(store, opened)

    @property
    def path(self) -> str:
        return self.opened.path

    @property
    def identity(self) -> tuple[str, str]:
        """Names the file for caches: what is made from it may be kept under this."""
        return self._store.uri, self.path

    @property
    def trailer(self) -> Trailer:
        return self.opened.trailer

    @property
    def entry_count(self) -> int:
        """Entries, equal keys included, as the trailer says."""
        return self.opened.trailer.entry_count

    @property
    def file_info(self) -> dict[bytes, bytes]:
        return self.opened.file_info

    @property
    def first_key(self) -> bytes:
        """The first key, b"" in an empty file."""
        return self.opened.index.rows[0] if len(self.opened.index) else b""

    @cached_property
    def last_key(self) -> bytes:
        """The last key, b"" in an empty file."""
        row = row_of(self.file_info.get(LASTKEY, b""))
        if row is not None or not len(self.opened.index):
            return row or b""
        [records] = self._groups([len(self.opened.index) - 1], keep=True)
        return records.key(-1) if len(records) else b""

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None where there is none."""
        self._store.counters.add("hfile.lookups")
        block = bisect_right(self.opened.index.rows, key) - 1
        if block < 0:
            return None
        [records] = self._groups([block], keep=True)
        place = records.find(pa.array([key], pa.binary()))
        return cast("bytes | None", records.values_at(place)[0].as_py())

    def get_sorted(self, keys: pa.Array) -> pa.Array:
        """The values of ascending `keys` (n, binary), aligned with them, null where absent."""
        wanted = as_binary(keys, "keys")
        if not is_ascending(wanted, strictly=False):
            raise UsageError("keys must be ascending: use find for keys in any order")
        self._store.counters.add("hfile.lookups", len(wanted))
        return self._get_ascending(wanted)

    def find(self, keys: pa.Array) -> pa.Array:
        """The values of `keys` (n, binary) in any order, aligned with them, null where absent."""
        wanted = as_binary(keys, "keys")
        self._store.counters.add("hfile.lookups", len(wanted))
        if is_ascending(wanted, strictly=False):
            return self._get_ascending(wanted)
        order = _order(wanted)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._get_ascending(wanted.take(pa.array(order))).take(pa.array(back))

    def prefix(self, prefix: bytes) -> pa.RecordBatch:
        """All entries whose key begins with `prefix`: columns `key` and `value` (binary)."""
        rows = self.opened.index.rows
        first = max(bisect_right(rows, prefix) - 1, 0)
        behind = _successor(prefix)
        last = len(rows) if behind is None else bisect_left(rows, behind)
        batches = [
            batch.filter(pc.starts_with(batch.column(0), prefix))
            for batch in map(KeyValues.batch, self._groups(range(first, last), keep=True))
        ]
        return _one_batch(batches)

    def scan(self, first: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """All entries (from key `first` on) in file order, about 1 MiB of payload a batch.

        Raises CorruptError at the end if there were not as many as the trailer says.
        """
        rows = self.opened.index.rows
        start = 0 if first is None else max(bisect_right(rows, first) - 1, 0)
        count = 0
        for records in self._groups(range(start, len(rows)), keep=False):
            batch = records.batch()
            count += len(batch)
            if first is not None and len(batch):
                batch = batch.filter(pc.greater_equal(batch.column(0), first))
            if len(batch):
                yield batch
        if not start and count != self.entry_count:
            raise CorruptError(
                "file has another number of entries than its trailer says",
                path=self.path,
                expected=self.entry_count,
                found=count,
            )

    def meta(self, name: str) -> bytes | None:
        """The content of the META block called `name`, None where there is none."""
        place = self.opened.meta.get(name)
        if place is None:
            return None
        [raw] = self._read([place])
        codec = self.trailer.compression_codec
        return decode_block(raw, codec, self.path, place[0], (BlockType.META,))[1]

    def _get_ascending(self, wanted: pa.Array) -> pa.Array:
        blocks, cuts = self._blocks_of(wanted)
        answers = [pa.nulls(int(cuts[0]), pa.binary())]
        done = 0
        for records, count in self._counted_groups(blocks.tolist()):
            mine = wanted[int(cuts[done]) : int(cuts[done + count])]
            answers.append(records.values_at(records.find(mine)))
            done += count
        try:
            return pa.concat_arrays(answers)
        except pa.ArrowInvalid as error:  # 32-bit offsets
            raise UsageError(
                "values are too large for one answer: ask for fewer keys at a time",
                path=self.path,
                expected="less than 2 GiB",
                found=str(error),
            ) from error

    def _blocks_of(self, wanted: pa.Array) -> tuple[Int64s, Int64s]:
        """(blocks that can hold a wanted key, where the keys of each begin, and the end).

        Wanted keys before the first of these places can be in no block.
        """
        index = self.opened.index
        if len(wanted) < len(index):
            of_key = bound(index.keys, wanted, right=True) - 1
            blocks, starts = np.unique(of_key, return_index=True)
            blocks, starts = (blocks[1:], starts[1:]) if blocks[:1] == -1 else (blocks, starts)
            return blocks, np.append(starts, len(wanted))
        starts = bound(wanted, index.keys)
        cuts = np.append(starts, len(wanted))
        blocks = np.flatnonzero(np.diff(cuts))
        return blocks, np.append(starts[blocks], len(wanted))

    def _groups(self, blocks: Sequence[int], keep: bool) -> Iterator[KeyValues]:
        for records, _ in self._counted_groups(blocks, keep):
            yield records

    def _counted_groups(
        self, blocks: Sequence[int], keep: bool = True
    ) -> Iterator[tuple[KeyValues, int]]:
        """(the records of some blocks, how many blocks), in file order."""
        held: list[tuple[int, bytes]] = []
        size = 0
        for block, payload in self._payloads(blocks, keep):
            if held and size + len(payload) > GROUP_BYTES:
                yield self._parse(held), len(held)
                held, size = [], 0
            held.append((block, payload))
            size += len(payload)
        if held:
            yield self._parse(held), len(held)

    def _parse(self, held: list[tuple[int, bytes]]) -> KeyValues:
        with_mvcc = self.opened.with_mvcc
        joined = held[0][1] if len(held) == 1 else b"".join(payload for _, payload in held)
        offsets = self.opened.index.offsets
        try:
            return parse(joined, with_mvcc, self.path, int(offsets[held[0][0]]))
        except CorruptError:
            for block, payload in held:  # which of them is it
                parse(payload, with_mvcc, self.path, int(offsets[block]))
            raise

    def _payloads(self, blocks: Sequence[int], keep: bool) -> Iterator[tuple[int, bytes]]:
        sizes = self.opened.index.sizes
        total = int(sizes[list(blocks)].sum()) if len(blocks) else 0
        keep = keep and total <= shared.budget_bytes // CACHED_SHARE
        for part in self._parts(blocks):
            held = {block: shared.get(self._key(block)) for block in part} if keep else {}
            missing = [block for block in part if held.get(block) is None]
            fetched = dict(zip(missing, self._fetch(missing), strict=True))
            for block in part:
                payload = held.get(block)
                yield (
                    block,
                    self._decode(block, fetched[block], keep) if payload is None else payload,
                )

    def _parts(self, blocks: Sequence[int]) -> Iterator[list[int]]:
        """`blocks` cut where another READ_BYTES of the file begin."""
        sizes = self.opened.index.sizes
        part: list[int] = []
        size = 0
        for block in blocks:
            part.append(block)
            size += int(sizes[block])
            if size >= READ_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _key(self, block: int) -> tuple[str, str, str, int]:
        return "hfile.block", self._store.uri, self.path, block

    def _decode(self, block: int, raw: memoryview, keep: bool) -> bytes:
        offset = int(self.opened.index.offsets[block])
        _, payload = decode_block(
            raw, self.trailer.compression_codec, self.path, offset, (BlockType.DATA,)
        )
        self._store.counters.add("hfile.blocks")
        return shared.offer(self._key(block), payload, len(payload)) if keep else payload

    def _fetch(self, blocks: Sequence[int]) -> list[memoryview]:
        """The stored bytes of data blocks; neighbours come as one range."""
        offsets, sizes = self.opened.index.offsets, self.opened.index.sizes
        return self._read([(int(offsets[block]), int(sizes[block])) for block in blocks])

    def _read(self, places: list[tuple[int, int]]) -> list[memoryview]:
        if self.opened.whole:
            view = memoryview(self.opened.whole)
            return [view[offset : offset + size] for offset, size in places]
        return read_runs(self._store, self.path, places)


def _order(wanted: pa.Array) -> Int64s:
    """What sorts `wanted`: by eight bytes where those suffice, else by whole keys."""
    ends = pc.min_max(wanted).as_py()
    skip = common_prefix_size(ends["min"], ends["max"])
    offsets = offsets_of(wanted)
    data = np.concatenate((bytes_of(wanted), np.zeros(8, np.uint8)))
    order = np.argsort(first_words(data, offsets[:-1] + skip, np.diff(offsets) - skip))
    if is_ascending(wanted.take(pa.array(order)), strictly=False):
        return order
    return cast("Int64s", pc.sort_indices(wanted).to_numpy().astype(np.int64))


def _successor(prefix: bytes) -> bytes | None:
    """The least key above all that begin with `prefix`; None where there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    whole = table.to_batches()
    if len(whole) > 1:
        raise UsageError("entries are too large for one batch: scan instead", found=len(whole))
    return whole[0] if whole else pa.RecordBatch.from_pylist([], SCHEMA)
