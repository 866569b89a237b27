"""HFileReader: gets, sorted batches of gets, prefixes and scans over one HFile.

Opening reads the trailer and what is loaded on open, once per process: what was parsed, and
decoded blocks, wait in the process's caches. A batch of keys is answered in one forward pass:
each block that can hold one of them is fetched with its neighbours, verified, decoded once,
and searched for all of them at once. Fetching and decoding are done on a few threads; a pass
holds a few MiB of the file for each of them, or one block where that is larger.

Files of ours say where their records are (record_sizes.py) and may carry a filter; both are
read where that is less than what they spare.

Equal keys: `get` and its kin give the first entry; scans and prefixes give all of them. HBase
may spread a row over several blocks; where an index key is one that is asked for, the block
before it is looked at as well.

Keys are found by the order of their bytes. Hudi sorts by UTF-16, which differs for keys that
mix characters beyond U+FFFF with those from U+E000 on: such keys are found within their
block, but not where the index leads to another one. `hfile verify` reports these files, and
scans read them.

Counted: `hfile.blocks` (data blocks decoded), `hfile.index_blocks`, `hfile.lookups` (keys
asked for), `hfile.filtered` (keys that the file's filter answered).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import (
    Voids,
    first_words,
    from_voids,
    of_one_size,
    single,
    voids,
)
from metatable.storage.cache import cached
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile.block_index import BlockIndex
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.columns import (
    bound,
    bytes_of,
    checked_binary,
    column_offsets,
    common_prefix_size,
)
from metatable.storage.hfile.file_info import LASTKEY
from metatable.storage.hfile.key_values import KeyValues, row_of
from metatable.storage.hfile.reading.alike import FEW_KEYS, Alike, Hits
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.even_keys import EvenKeys
from metatable.storage.hfile.reading.fetch import meta_payload
from metatable.storage.hfile.reading.file_filter import META as FILTER
from metatable.storage.hfile.reading.file_filter import might_contain
from metatable.storage.hfile.reading.index_tree import IndexTree
from metatable.storage.hfile.reading.one_block import OneBlock
from metatable.storage.hfile.reading.opened import OpenedHFile, open_hfile
from metatable.storage.hfile.reading.packed import StoredBlocks
from metatable.storage.hfile.reading.passes import Pass, record_sizes_of
from metatable.storage.hfile.reading.searching import find_any
from metatable.storage.hfile.record_sizes import RecordSizes, Sizes
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.ordering import is_ascending
from metatable.storage.store import Store

__all__ = ["HFileReader", "OpenedHFile"]

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])

SIZES_SHARE, SIZES_FROM_BLOCKS = 8, 16
"""The sizes of all records are read for passes over more than this fraction of the blocks, and
over so many: finding the records of a few costs less than a request."""

LEAST_ALIKE = 8
"""Bytes of keys of one size whose blocks are found by words."""

KEPT_BLOCKS = 16
"""Who scans a range of so few blocks may ask for its neighbours next, which lie in them, too."""


class HFileReader:
    """An HFile of any writer. It is read through `store`, and counted into its counters."""

    def __init__(self, store: Store, opened: OpenedHFile) -> None:
        self._store = store
        self.opened = opened
        self.tree = IndexTree(store, opened)

    @classmethod
    def open(cls, store: Store, path: str, size_bytes: int | None = None) -> HFileReader:
        """Open a file of the store. Raises CorruptError for a missing or damaged file, UpgradeError
        for a form that is not read.

        `size_bytes`: the file's size, where the caller knows it; it saves a request.
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
        """The file's path in the store."""
        return self.opened.path

    @property
    def identity(self) -> tuple[str, str]:
        """Names the file for caches: what is made of it may be kept under this name."""
        return self._store.uri, self.path

    @property
    def counters(self) -> Counters:
        """What was asked of the file and its store so far, by name; the cost of a call is
        `counters.since(before)`, with `before = dict(counters)` taken before the call."""
        return self._store.counters

    @property
    def trailer(self) -> Trailer:
        """The file's trailer: its version, codec, and where its parts lie."""
        return self.opened.trailer

    @property
    def entry_count(self) -> int:
        """Entries, equal keys included, as the trailer says."""
        return self.opened.trailer.entry_count

    @property
    def file_info(self) -> dict[bytes, bytes]:
        """Named facts about the file, the writer's own and its caller's."""
        return self.opened.file_info

    @property
    def first_key(self) -> bytes:
        """The first key, b"" in an empty file."""
        return self.opened.root.row(0) if len(self.opened.root) else b""

    @cached_property
    def last_key(self) -> bytes:
        """The last key, b"" in an empty file."""
        row = row_of(self.file_info.get(LASTKEY, b""))
        if row is not None or not len(self.opened.root):
            return row or b""
        index = self.tree.last()
        records = OneBlock(self._store, self.opened, index, len(index) - 1).records()
        return records.key(-1) if len(records) else b""

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None where there is none."""
        self._store.counters.add("hfile.lookups")
        return self._first_value(key)

    def _first_value(self, key: bytes) -> bytes | None:
        index = self.tree.of_key(key)
        last = index.last_at_most(key)
        first = index.first_from(key) - 1 if self.opened.may_spread_rows else last
        for block in range(max(first, 0), last + 1):
            value = OneBlock(self._store, self.opened, index, block).value(key)
            if value is not None:
                return value
        return None

    def get_sorted(self, keys: pa.Array) -> pa.Array:
        """The values of ascending `keys` (n, binary), aligned with them, null where absent."""
        wanted = checked_binary(keys, "keys")
        if not is_ascending(wanted, strictly=False):
            raise UsageError("keys must be ascending: use find for keys in any order")
        self._store.counters.add("hfile.lookups", len(wanted))
        return self._get_ascending(wanted)

    def find_alike(self, keys: Voids, *, keep: bool = True) -> Hits | None:
        """Which of the ascending `keys` (n pieces of one size) are there, and the value of each.
        None where the file does not say that its keys have this size and its values one, or keys
        are not told apart by their first bytes: `get_sorted` answers then. `keep`: blocks may wait
        in the cache; else it is for more of them than there is room for."""
        hits = self._find_alike(keys, keep=keep)
        if hits is not None:
            self._store.counters.add("hfile.lookups", len(keys))
        return hits

    def find(self, keys: pa.Array) -> pa.Array:
        """The values of `keys` (n, binary) in any order, aligned with them, null where absent."""
        wanted = checked_binary(keys, "keys")
        self._store.counters.add("hfile.lookups", len(wanted))
        if is_ascending(wanted, strictly=False):
            return self._get_ascending(wanted)
        order = _order(wanted)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._get_ascending(wanted.take(pa.array(order))).take(pa.array(back))

    def prefix(self, prefix: bytes) -> pa.RecordBatch:
        """All entries whose key begins with `prefix`: columns `key` and `value` (binary)."""
        behind = _successor(prefix)
        index = self.tree.of_range(prefix, behind)
        first = max(index.first_from(prefix) - 1, 0)
        last = len(index) if behind is None else index.first_from(behind)

        def begun(records: KeyValues, *_: int) -> pa.RecordBatch:
            batch = records.batch()
            return batch.filter(pc.starts_with(batch.column(0), prefix))

        one_pass = Pass(self._store, self.opened, index, np.arange(first, last), keep=True)
        return _one_batch(list(one_pass.each(begun)))

    def scan_prefix(self, prefix: bytes) -> Iterator[pa.RecordBatch]:
        """All entries whose key begins with `prefix`, in batches of some MiB, as `scan` gives
        them."""
        return self.scan(prefix, _successor(prefix))

    def scan(
        self,
        first: bytes | None = None,
        behind: bytes | None = None,
        *,
        views: bool = False,
        step_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All entries (from key `first` on, below `behind`) in file order, in batches of about
        4 MiB of payload, or `step_bytes` if that is less.

        Columns `key` and `value`, binary, both of fixed size where the file says that all have
        one, and that is so; with `views`, binary views over the decoded blocks, which are not
        copied. Raises CorruptError at the end if there were not as many entries as the trailer
        says.
        """
        whole = first is None and behind is None
        index = self.tree.all() if whole else self.tree.of_range(first or b"", behind)
        start = 0 if first is None else max(index.first_from(first) - 1, 0)
        stop = len(index) if behind is None else index.first_from(behind)

        def viewed(records: KeyValues, *_: int) -> pa.RecordBatch:
            return records.view_batch()

        count = 0
        chosen = np.arange(start, stop)
        sizes = self._sizes_for(index, chosen)
        one_pass = Pass(
            self._store,
            self.opened,
            index,
            chosen,
            keep=not whole and len(chosen) <= KEPT_BLOCKS,
            sizes=sizes,
            lasting=views,
            step_bytes=step_bytes,
        )
        for batch in one_pass.each(viewed) if views else one_pass.batches():
            count += len(batch)
            if first is not None and len(batch):
                batch = batch.slice(_first_from(batch.column(0), first))
            if behind is not None and len(batch):
                batch = batch.slice(0, _first_from(batch.column(0), behind))
            if len(batch):
                yield batch
        if whole and count != self.entry_count:
            raise CorruptError(
                "file has another number of entries than its trailer says",
                path=self.path,
                offset=self.opened.size_bytes - TRAILER_SIZE,
                expected=self.entry_count,
                found=count,
            )

    def meta(self, name: str) -> bytes | None:
        """The content of the META block called `name`, None where there is none."""
        place = self.opened.meta.get(name)
        return None if place is None else meta_payload(self._store, self.opened, place)

    def _get_ascending(self, wanted: pa.Array) -> pa.Array:
        pieces = of_one_size(wanted)
        if len(wanted) and pa.types.is_fixed_size_binary(pieces.type):
            hits = self._find_alike(voids(pieces))
            if hits is not None:
                return from_voids(hits[1], hits[0]).cast(pa.binary())
        index = self.tree.of_keys(wanted)
        blocks, cuts = _touched(index, wanted)
        kept = self._let_through(index, blocks, wanted)
        if kept is None:
            return self._spread(index, wanted, self._answers(index, blocks, cuts, wanted))
        rest = wanted.take(pa.array(kept))
        found = self._answers(index, *_touched(index, rest), rest)
        places = np.full(len(wanted), -1, np.int64)
        places[kept] = np.arange(len(kept))
        return found.take(pa.array(places, mask=places < 0))

    def _find_alike(self, wanted: Voids, *, keep: bool = True) -> Hits | None:
        sizes = self.opened.record_sizes
        if sizes is None or wanted.dtype.itemsize != sizes[0]:
            return None
        alike = Alike(*sizes, self.path)
        if not alike.can_be_searched:
            return None
        index = self.tree.of_keys(from_voids(wanted))
        touched = index.touched_alike(wanted)
        if touched is None:
            return None
        kept = self._let_through(index, touched[0], from_voids(wanted))
        if kept is None:
            return self._search_alike(alike, index, wanted, *touched, keep=keep)
        found, values = alike.nothing(len(wanted))
        rest = wanted[kept]
        touched = index.touched_alike(rest)
        hits = touched and self._search_alike(alike, index, rest, *touched, keep=keep)
        if hits is None:
            return None
        found[kept], values[kept] = hits
        return found, values

    def _let_through(self, index: BlockIndex, blocks: Int64s, wanted: pa.Array) -> Int64s | None:
        """Which of ascending keys, which touch these blocks, the file's filter lets through; None
        where there is none, or it is not worth asking."""
        if FILTER not in self.opened.meta:
            return None
        stored = int(index.sizes[blocks].sum())
        kept = might_contain(self._store, self.opened, wanted, stored, len(blocks))
        if kept is not None:
            self._store.counters.add("hfile.filtered", len(wanted) - len(kept))
        return kept

    def _search_alike(
        self,
        alike: Alike,
        index: BlockIndex,
        wanted: Voids,
        blocks: Int64s,
        cuts: Int64s,
        *,
        keep: bool,
    ) -> Hits | None:
        """`find_alike` of the blocks that the keys touch."""
        are_few = len(wanted) <= FEW_KEYS * len(blocks)
        if self.opened.trailer.compression_codec is Codec.ZSTD:
            places = index.offsets[blocks], index.sizes[blocks]
            stored = StoredBlocks(self._store, self.opened, alike, places, keep=keep)
            hits = (stored.find_few if are_few else stored.find_many)(wanted, cuts)
            if hits is not None:
                return hits
        found, values = alike.nothing(len(wanted))
        one_pass = Pass(self._store, self.opened, index, blocks, keep=keep, for_search=True)

        def put(hits: Hits | None, start: int, stop: int) -> bool:
            here = slice(int(cuts[start]), int(cuts[stop]))
            if hits is not None:
                found[here], values[here] = hits
            return hits is not None

        def search(payloads: Payloads, start: int, stop: int) -> bool:
            mine = wanted[cuts[start] : cuts[stop]]
            borders = cuts[start : stop + 1] - cuts[start]
            [offset] = one_pass.offsets_of(start, start + 1)
            return put(alike.find(payloads, offset, mine, borders), start, stop)

        def bisect(parts: Sequence[bytes | UInt8s], start: int, stop: int) -> bool:
            offsets = one_pass.offsets_of(start, stop)
            return put(alike.find_few(parts, offsets, wanted, cuts[start : stop + 1]), start, stop)

        made = one_pass.each_part(bisect) if are_few else one_pass.each_payloads(search)
        return (found, values) if all(made) else None

    def _spread(self, index: BlockIndex, wanted: pa.Array, found: pa.Array) -> pa.Array:
        """`found`, with the first entry of keys that open a block and may lie in the one before."""
        if not self.opened.may_spread_rows or not len(index) or not len(wanted):
            return found
        firsts = bound(wanted, index.keys)[1:].tolist()
        stops = bound(wanted, index.keys, right=True)[1:].tolist()
        mask, values = np.zeros(len(wanted), bool), []
        for first, stop in sorted({*zip(firsts, stops, strict=True)}):
            if first < stop:
                mask[first:stop] = True
                values += [self._first_value(wanted[first].as_py())] * (stop - first)
        return pc.replace_with_mask(found, pa.array(mask), pa.array(values, pa.binary()))

    def _answers(
        self, index: BlockIndex, blocks: Int64s, cuts: Int64s, wanted: pa.Array
    ) -> pa.Array:
        """The values of ascending keys; those from `cuts[i]` on can be in block `blocks[i]`."""
        sizes = self._sizes_for(index, blocks)
        even = sizes and self._even_answers(index, blocks, cuts, wanted, sizes)
        if even is not None:
            return even
        one_pass = Pass(
            self._store,
            self.opened,
            index,
            blocks,
            keep=True,
            proven=False,
            sizes=sizes,
            for_search=True,
        )

        def search(records: KeyValues, start: int, stop: int) -> pa.Array:
            mine = wanted[int(cuts[start]) : int(cuts[stop])]
            hits = find_any(records, mine, lambda all_of_them: one_pass.check(all_of_them, start))
            one_pass.check(hits.records, start, hits.there)
            values = hits.records.values()
            if len(values) == len(mine):
                return values
            found = hits.places >= 0
            order = np.cumsum(found) - 1
            return values.take(pa.array(order, mask=~found))

        before = pa.nulls(int(cuts[0]), pa.binary())
        return _one_array([before, *one_pass.each(search)], self.path)

    def _even_answers(
        self, index: BlockIndex, blocks: Int64s, cuts: Int64s, wanted: pa.Array, sizes: RecordSizes
    ) -> pa.Array | None:
        """`_answers` where all keys have one size, None where they have not, or eight bytes of them
        do not tell them apart."""
        pieces = of_one_size(wanted)
        if not pa.types.is_fixed_size_binary(pieces.type):
            return None
        keys = voids(pieces)
        even = EvenKeys.of(sizes.key_sizes, keys, self.path)
        if even is None:
            return None
        one_pass = Pass(
            self._store, self.opened, index, blocks, keep=True, sizes=sizes, for_search=True
        )

        def search(
            payloads: Payloads, counts: Int64s, values: Sizes, start: int, stop: int
        ) -> pa.Array | None:
            [offset] = one_pass.offsets_of(start, start + 1)
            mine = keys[int(cuts[start]) : int(cuts[stop])]
            return even.find(payloads, counts, values, offset, mine)

        parts = [pa.nulls(int(cuts[0]), pa.binary())]
        for part in one_pass.each_sized(search):
            if part is None:
                return None
            parts.append(part)
        return _one_array(parts, self.path)

    def _sizes_for(self, index: BlockIndex, blocks: Int64s) -> RecordSizes | None:
        """The file's word on all record sizes, where enough blocks are read to make up for it."""
        few = len(blocks) < max(len(index) // SIZES_SHARE, SIZES_FROM_BLOCKS)
        if index is not self.tree.complete or few:
            return None
        return record_sizes_of(self._store, self.opened, len(index))


def _touched(index: BlockIndex, wanted: pa.Array) -> tuple[Int64s, Int64s]:
    """`BlockIndex.touched`, by words where the keys have one size and are told apart so."""
    pieces = of_one_size(wanted)
    if pa.types.is_fixed_size_binary(pieces.type) and pieces.type.byte_width >= LEAST_ALIKE:
        touched = index.touched_alike(voids(pieces))
        if touched is not None:
            return touched
    return index.touched(wanted)


def _first_from(keys: pa.Array, first: bytes) -> int:
    """Where the ascending `keys` reach `first`: mostly at once, or not at all."""
    key = single(keys)
    if key(0) >= first:
        return 0
    if key(len(keys) - 1) < first:
        return len(keys)
    return bisect_left(range(len(keys)), first, key=key)


def _order(wanted: pa.Array) -> Int64s:
    """What sorts `wanted`: by eight bytes where those suffice, else by whole keys."""
    ends = pc.min_max(wanted).as_py()
    skip = common_prefix_size(ends["min"], ends["max"])
    offsets = column_offsets(wanted)
    data = np.concatenate((bytes_of(wanted), np.zeros(8, np.uint8)))
    order = np.argsort(first_words(data, offsets[:-1] + skip, np.diff(offsets) - skip))
    if is_ascending(wanted.take(pa.array(order)), strictly=False):
        return order
    return cast("Int64s", pc.sort_indices(wanted).to_numpy().astype(np.int64))


def _successor(prefix: bytes) -> bytes | None:
    """The least key above all that begin with `prefix`; None where there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None


def _one_array(parts: list[pa.Array], path: str) -> pa.Array:
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:  # 32-bit offsets
        raise UsageError(
            "values are too large for one answer: ask for fewer keys at a time",
            path=path,
            expected="less than 2 GiB",
            found=str(error),
        ) from error


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    whole = table.to_batches()
    if len(whole) > 1:
        raise UsageError("entries are too large for one batch: scan instead", found=len(whole))
    return whole[0] if whole else pa.RecordBatch.from_pylist([], SCHEMA)
