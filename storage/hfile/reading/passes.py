"""One pass over data blocks of a file: fetched, checked, decoded, and given to some work.

Two stages run on the threads of the process, results in order: blocks are fetched in parts of
READ_BYTES of the file and their headers checked; the blocks of a part are then decoded in
groups of GROUP_BYTES of payload, of SEARCH_BYTES for a search, and the work is done on the
records of each group. So a pass holds a few parts and groups, however large the file is; smaller
ones where the caller says so. Parts of a mapped file are as large as its groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import from_voids
from metatable.storage.cache import blocks as block_cache
from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hfile.block import Headers
from metatable.storage.hfile.block_index import BlockIndex
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.key_values import KeyValues
from metatable.storage.hfile.reading.data_blocks import (
    Payloads,
    columns_of_blocks,
    decode_blocks,
    decode_together,
    payloads_in_place,
    read_headers,
)
from metatable.storage.hfile.reading.fetch import Stored, cut, fetch, meta_payload
from metatable.storage.hfile.reading.finding import (
    check_counts,
    check_records,
    check_starts,
    find_records,
    fixed_batch,
    proven_records,
    records_of_sizes,
    records_of_stride,
)
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.record_sizes import META, RecordSizes, Sizes
from metatable.storage.store import COALESCE_GAP_BYTES, Store
from metatable.storage.threads import in_order, workers_here

__all__ = ["ALONE_BYTES", "BLOCK", "Pass", "worthy_sizes"]

BLOCK = "hfile.block"
"""What a payload is called in the cache, before its store, file and offset."""
READ_BYTES = 4 << 20
"""Stored bytes that one call of the store fetches."""
GROUP_BYTES = 4 << 20
"""Payload that is decoded, parsed and searched as one: enough to make the calls worth while,
little enough to stay near the processor."""
SEARCH_BYTES = 16 << 20
"""Payload of a group, at most, where next to nothing is kept of it: a quarter as often does a
thread have to wait at a call for another one that holds the interpreter's lock."""
ALONE_BYTES = 192 << 10
"""Stored bytes up to which handing work to threads takes longer than doing it."""
CACHED_SHARE = 8
"""A pass over more than this fraction of the cache's budget leaves its blocks out of it."""
SIZES_SHARE, SIZES_FROM_BLOCKS = 8, 16
"""The sizes of all records are read for passes over more than this fraction of the blocks, and
over so many: finding the records of a few costs less than a request."""

R = TypeVar("R")

Work = Callable[[KeyValues, int, int], R]
"""What is done with the records of blocks `start` to `stop` of a pass."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Fetched blocks `start` and following of a pass; payloads that were in the cache."""

    start: int
    stored: Stored
    headers: Headers
    held: list[bytes | None]
    payload_sizes: Int64s


@dataclass(frozen=True, slots=True)
class _Group:
    """Blocks `start` to `stop` of a part."""

    part: _Part
    start: int
    stop: int

    @property
    def first(self) -> int:
        """The number of its first block in the pass."""
        return self.part.start + self.start

    @property
    def blocks(self) -> tuple[int, int]:
        """The numbers of its first block, and of the one behind its last, in the pass."""
        return self.first, self.part.start + self.stop

    @property
    def held(self) -> list[bytes | None]:
        """Its payloads that were in the cache."""
        return self.part.held[self.start : self.stop]


class Pass:
    """Blocks `chosen` (ascending) of an index. `sizes`: of all records, to be believed.

    `keep`: decoded blocks may wait in the cache. `proven`: every record is proven before the
    work sees it; else those that it uses must be given to `check`. `lasting`: what the work
    makes may point into the records' bytes; else those are gone when it is done. `for_search`: it
    keeps few of the records, so that groups may be larger. `step_bytes`:
    most that is fetched, and decoded, as one; who asks for less than usual reads many files at
    once, and on a local disk each on the caller's thread: threads have other work. Nor are mapped
    files used where they lie then: what was seen of all of them would stay with the process.
    """

    def __init__(
        self,
        store: Store,
        opened: OpenedHFile,
        index: BlockIndex,
        chosen: Int64s,
        *,
        keep: bool,
        proven: bool = True,
        sizes: RecordSizes | None = None,
        lasting: bool = False,
        for_search: bool = False,
        step_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._opened = opened
        self._codec = opened.trailer.compression_codec
        self._chosen = chosen
        self._offsets = index.offsets[chosen]
        self._stored_sizes = index.sizes[chosen]
        self._total = int(self._stored_sizes.sum())
        self._share = block_cache.budget_bytes // CACHED_SHARE
        at_hand = self._codec is Codec.NONE and len(opened.whole) > 0
        unpacked = max(opened.trailer.total_uncompressed_bytes, opened.size_bytes)
        expected = self._total * unpacked // opened.size_bytes  # Hudi's files do not say
        self._keep = keep and not at_hand and expected <= self._share
        self._sizes = sizes
        self._proven = proven
        self._lasting = lasting
        self._in_steps = step_bytes is not None
        most = SEARCH_BYTES if for_search else GROUP_BYTES
        self._group_bytes = min(most, step_bytes or most)
        most = _even_share(self._stored_sizes, most) if at_hand else READ_BYTES
        self._read_bytes = min(most, step_bytes or most)
        self._offered_bytes = 0
        self._offering = Lock()
        alike = opened.record_sizes
        self._stride = alike if alike and min(alike) >= 0 else None

    def each(self, work: Work[R]) -> Iterator[R]:
        """What `work` makes of each group of blocks, in file order."""

        def done(group: _Group) -> R:
            return work(self._records(group), *group.blocks)

        return self._each_group(done)

    def each_payloads(self, work: Callable[[Payloads, int, int], R]) -> Iterator[R]:
        """What `work` makes of the payloads of each group of blocks, verified and no more than
        that, where they lie or in one piece that is gone when it is done."""

        def done(group: _Group) -> R:
            return work(self._at_hand(group), *group.blocks)

        return self._each_group(done)

    def each_sized(
        self, work: Callable[[Payloads, Int64s, Sizes, int, int], R | None]
    ) -> Iterator[R | None]:
        """What `work` makes of the payloads of each group of blocks, with the number of records of
        each block, and the sizes of their values, by the word of `sizes`: the pass must have them.
        """
        sizes = self._sizes
        assert sizes is not None

        def done(group: _Group) -> R | None:
            payloads, blocks = self._at_hand(group), self._chosen[slice(*group.blocks)]
            path, offset = self._opened.path, int(self._offsets[group.first])
            check_counts(payloads, sizes.block_counts[blocks], path, offset)
            counts, _, values = _sizes_of_blocks(sizes, blocks)
            return work(payloads, counts, values, *group.blocks)

        return self._each_group(done)

    def each_part(self, work: Callable[[Sequence[bytes | UInt8s], int, int], R]) -> Iterator[R]:
        """What `work` makes of the payloads of each group of blocks, each for itself: those that
        are in the cache are not copied."""

        def done(group: _Group) -> R:
            if any(one is not None for one in group.held):
                return work(self._parts(group, *self._fetched(group)), *group.blocks)
            return work(self._at_hand(group).parts(), *group.blocks)

        return self._each_group(done)

    def hold(self) -> None:
        """Fetch, and keep in the cache, those blocks that are not there; none where they are too
        many for it."""
        if self._keep:
            deque(self.each_payloads(lambda *_: None), maxlen=0)

    def offsets_of(self, start: int, stop: int) -> list[int]:
        """Where blocks of the pass are in the file."""
        offsets: list[int] = self._offsets[start:stop].tolist()
        return offsets

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All entries, in file order: columns `key` and `value`, binary, both of fixed size where
        the file says that all have one, and that is so."""
        return self._each_group(self._batch)

    def _each_group(self, done: Callable[[_Group], R]) -> Iterator[R]:
        """What `done` makes of each group, in order, on a few threads where that is faster."""
        is_alone = self._total <= ALONE_BYTES or (self._in_steps and not self._store.is_distant)
        workers = 1 if is_alone else None
        parts = in_order(self._fetch, cut(self._spans(), self._read_bytes), workers)
        groups = (group for part in parts for group in _groups(part, self._group_bytes))
        return in_order(done, groups, workers)

    def _spans(self) -> Int64s:
        """What fetching each block reads: itself, and a small gap before the next one."""
        spans = self._stored_sizes.copy()
        gaps = self._offsets[1:] - self._offsets[:-1] - self._stored_sizes[:-1]
        spans[:-1] += np.where(gaps <= COALESCE_GAP_BYTES, gaps, 0)
        return spans

    def check(self, records: KeyValues, block: int, there: KeyValues | None = None) -> None:
        """Raise CorruptError unless records taken from a group, which began with `block`, are
        what the file's word made of them; `there`: those that were copied."""
        if not self._proven and len(records) and (self._stride or self._sizes):
            check_records(records, self._opened.path, int(self._offsets[block]), there)

    def _fetch(self, span: tuple[int, int]) -> _Part:
        """Blocks `span[0]` to `span[1]` of the pass, those that are not in the cache fetched."""
        start, stop = span
        offsets, sizes = self._offsets[start:stop], self._stored_sizes[start:stop]
        held = self._held(offsets)
        missing = np.array([one is None for one in held])
        stored = fetch(
            self._store,
            self._opened,
            offsets[missing],
            sizes[missing],
            as_mapped=not self._in_steps,
        )
        headers = read_headers(stored, self._codec, self._opened.path)
        payload_sizes = np.array([len(one or b"") for one in held], np.int64)
        payload_sizes[missing] = headers["payload_size"]
        return _Part(start, stored, headers, held, payload_sizes)

    def _held(self, offsets: Int64s) -> list[bytes | None]:
        """The payloads of these blocks that are in the cache, None for any other."""
        if not self._keep:
            return [None] * len(offsets)
        return [
            block_cache.get(_key(self._store, self._opened, offset)) for offset in offsets.tolist()
        ]

    def _batch(self, group: _Group) -> pa.RecordBatch:
        """The entries of a group as columns, by the file's word on their sizes where that is so."""
        if self._stride is None:
            return self._records(group).batch()
        stored, headers = self._fetched(group)
        if len(stored) == len(group.held) and not self._keep:
            told = columns_of_blocks(stored, headers, self._codec, self._opened.path, *self._stride)
            if told is not None:
                return pa.record_batch(list(map(from_voids, told)), names=["key", "value"])
        payloads = self._in_place(stored, headers) or self._payloads(group, stored, headers)
        batch = fixed_batch(payloads, *self._stride)
        if batch is None and self._codec is Codec.NONE:
            payloads = self._payloads(group, stored, headers)
            batch = fixed_batch(payloads, *self._stride)
        return self._found(payloads, group.first).batch() if batch is None else batch

    def _records(self, group: _Group) -> KeyValues:
        """The records of a group: where the file says that they are, or found by a walk."""
        stored, headers = self._fetched(group)
        is_placed = self._sizes or (self._stride and not self._proven)
        if is_placed or (self._stride and self._lasting):
            in_place = self._in_place(stored, headers)
            if in_place is not None:
                return self._placed(in_place, *group.blocks)
        payloads = self._payloads(group, stored, headers)
        if is_placed:
            return self._placed(payloads, *group.blocks)
        return self._found(payloads, group.first)

    def _at_hand(self, group: _Group) -> Payloads:
        """The payloads of a group where they lie, or copied."""
        blocks = self._fetched(group)
        in_place = self._in_place(*blocks)
        return self._payloads(group, *blocks) if in_place is None else in_place

    def _in_place(self, stored: Stored, headers: Headers) -> Payloads | None:
        """The payloads of fetched blocks where they lie, if they may be used there."""
        if self._codec is not Codec.NONE or self._keep:
            return None
        is_mapped = self._opened.mapped and not self._in_steps  # else bytes were read anew
        verified = self._opened.verified if is_mapped else None
        return payloads_in_place(stored, headers, self._opened.path, verified)

    def _fetched(self, group: _Group) -> tuple[Stored, Headers]:
        """The blocks of a group that were not in the cache."""
        part = group.part
        before = sum(one is None for one in part.held[: group.start])
        missing = slice(before, before + sum(one is None for one in group.held))
        self._store.counters.add("hfile.blocks", missing.stop - missing.start)
        return part.stored.slice(missing.start, missing.stop), part.headers[missing]

    def _payloads(self, group: _Group, stored: Stored, headers: Headers) -> Payloads:
        """The payloads of all blocks of a group; `stored`: those that were not in the cache."""
        blocks = stored, headers, self._codec, self._opened.path
        is_kept = self._keep and self._offered_bytes <= self._share
        if len(stored) == len(group.held) and not (is_kept and self._codec is not Codec.ZSTD):
            made = decode_together(*blocks, lasting=self._lasting)
            if made is not None:
                self._offered(stored, made.parts())
                return made
        return Payloads.joined(self._parts(group, stored, headers), lasting=self._lasting)

    def _parts(self, group: _Group, stored: Stored, headers: Headers) -> list[bytes | UInt8s]:
        """The payloads of all blocks of a group, each for itself."""
        decoded = decode_blocks(stored, headers, self._codec, self._opened.path)
        fresh = iter(self._offered(stored, decoded))
        return [next(fresh) if one is None else one for one in group.held]

    def _offered(
        self, stored: Stored, payloads: Sequence[bytes | UInt8s]
    ) -> Sequence[bytes | UInt8s]:
        if not self._keep:
            return payloads
        with self._offering:  # groups done at once would count each other's, and none be kept
            self._offered_bytes += sum(map(len, payloads))
            is_too_much = self._offered_bytes > self._share
        if is_too_much:
            return payloads
        return [
            block_cache.offer(_key(self._store, self._opened, offset), bytes(payload), len(payload))
            for offset, payload in zip(stored.offsets.tolist(), payloads, strict=True)
        ]

    def _placed(self, payloads: Payloads, start: int, stop: int) -> KeyValues:
        """Records where the file says that they are."""
        path, offset = self._opened.path, int(self._offsets[start])
        if self._stride:
            records = records_of_stride(payloads, *self._stride, path, offset)
        else:
            assert self._sizes is not None
            blocks = self._chosen[start:stop]
            check_counts(payloads, self._sizes.block_counts[blocks], path, offset)
            sizes = _sizes_of_blocks(self._sizes, blocks)
            records = records_of_sizes(payloads, *sizes, path, offset)
        return proven_records(records, path, offset) if self._proven else records

    def _found(self, payloads: Payloads, start: int) -> KeyValues:
        """Records found in their bytes."""
        with_mvcc, path = self._opened.with_mvcc, self._opened.path
        try:
            records = find_records(payloads.raw, with_mvcc, path, int(self._offsets[start]))
            check_starts(records, payloads.starts, path, int(self._offsets[start]))
            return records
        except CorruptError:
            for place, payload in enumerate(payloads.parts(), start):  # which of them is it
                find_records(payload, with_mvcc, path, int(self._offsets[place]))
            raise


def worthy_sizes(
    store: Store, opened: OpenedHFile, index: BlockIndex, chosen: Int64s
) -> RecordSizes | None:
    """The file's word on the sizes of all its records, where enough of its blocks are read to make
    up for it; None elsewhere. `index`: all of its blocks; `chosen`: the numbers of some."""
    few = len(chosen) < max(len(index) // SIZES_SHARE, SIZES_FROM_BLOCKS)
    return None if few else _record_sizes(store, opened, len(index))


def _record_sizes(store: Store, opened: OpenedHFile, block_count: int) -> RecordSizes | None:
    """What the file says of the sizes of all its records, None if it does not."""
    place = opened.meta.get(META)
    if place is None or opened.record_sizes is None:
        return None
    key = ("hfile.record_sizes", store.uri, opened.path)
    return cached(
        key,
        lambda: (_read_sizes(store, opened, place, block_count),),
        lambda made: made[0].memory_bytes if made[0] else 100,
    )[0]


def _read_sizes(
    store: Store, opened: OpenedHFile, place: tuple[int, int], block_count: int
) -> RecordSizes | None:
    path = opened.path
    try:
        made = RecordSizes.decode(meta_payload(store, opened, place), path, place[0])
    except UpgradeError:  # of a later version: the file is read without them
        return None
    expected = (block_count, opened.trailer.entry_count)
    found = (len(made.block_counts), int(made.block_counts.sum()))
    if found != expected:
        raise CorruptError(
            "record sizes are of other blocks and entries",
            path=path,
            offset=place[0],
            expected=expected,
            found=found,
        )
    return made


def _key(store: Store, opened: OpenedHFile, offset: int) -> tuple[str, str, str, int]:
    return BLOCK, store.uri, opened.path, offset


def _even_share(sizes: Int64s, most: int) -> int:
    """Bytes of a part of blocks of these sizes, of which each thread has as many as another."""
    total, workers = int(sizes.sum()), workers_here()
    parts = max(-(-total // (most * workers)), 1) * workers
    share = max(-(-total // parts), GROUP_BYTES) + int(sizes.max(initial=0))
    return min(most, share)


def _groups(part: _Part, size_bytes: int) -> Iterator[_Group]:
    for start, stop in cut(part.payload_sizes, size_bytes):
        yield _Group(part, start, stop)


def _sizes_of_blocks(sizes: RecordSizes, blocks: Int64s) -> tuple[Int64s, Sizes, Sizes]:
    """(records of each of these blocks, their key sizes, their value sizes)."""
    ends = np.cumsum(sizes.block_counts)
    counts = sizes.block_counts[blocks]
    if int(blocks[-1]) - int(blocks[0]) + 1 == len(blocks):
        start = int(ends[blocks[0]]) - int(counts[0])
        which: slice | Int64s = slice(start, int(ends[blocks[-1]]))
    else:
        firsts = ends[blocks] - counts - (np.cumsum(counts) - counts)
        which = np.repeat(firsts, counts) + np.arange(int(counts.sum()))
    return counts, _at(sizes.key_sizes, which), _at(sizes.value_sizes, which)


def _at(sizes: Sizes, which: slice | Int64s) -> Sizes:
    return sizes if isinstance(sizes, int) else sizes[which]
