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
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import (
    Voids,
    first_words,
    single,
)
from metatable.storage.cache import cached
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile.columns import (
    bytes_of,
    checked_binary,
    column_offsets,
    common_prefix_size,
)
from metatable.storage.hfile.file_info import LASTKEY
from metatable.storage.hfile.key_values import KeyValues, row_of
from metatable.storage.hfile.reading.alike import Hits
from metatable.storage.hfile.reading.fetch import meta_payload
from metatable.storage.hfile.reading.index_tree import IndexTree, within
from metatable.storage.hfile.reading.many_keys import ManyKeys
from metatable.storage.hfile.reading.one_block import OneBlock, first_value
from metatable.storage.hfile.reading.opened import OpenedHFile, open_hfile
from metatable.storage.hfile.reading.passes import Pass, worthy_sizes
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.made_once import made_once
from metatable.storage.ordering import is_ascending
from metatable.storage.store import Store

__all__ = ["HFileReader", "OpenedHFile"]

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


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

    @made_once
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
        return first_value(self._store, self.opened, self.tree, key)

    def get_sorted(self, keys: pa.Array) -> pa.Array:
        """The values of ascending `keys` (n, binary), aligned with them, null where absent."""
        wanted = checked_binary(keys, "keys")
        if not is_ascending(wanted, strictly=False):
            raise UsageError("keys must be ascending: use find for keys in any order")
        self._store.counters.add("hfile.lookups", len(wanted))
        return self._many_keys().values(wanted)

    def find_alike(self, keys: Voids, *, keep: bool = True) -> Hits | None:
        """Which of the ascending `keys` (n pieces of one size) are there, and the value of each.
        None where the file does not say that its keys have this size and its values one, or keys
        are not told apart by their first bytes: `get_sorted` answers then. `keep`: blocks may wait
        in the cache; else it is for more of them than there is room for."""
        hits = self._many_keys().find_alike(keys, keep=keep)
        if hits is not None:
            self._store.counters.add("hfile.lookups", len(keys))
        return hits

    def find(self, keys: pa.Array) -> pa.Array:
        """The values of `keys` (n, binary) in any order, aligned with them, null where absent."""
        wanted = checked_binary(keys, "keys")
        self._store.counters.add("hfile.lookups", len(wanted))
        if is_ascending(wanted, strictly=False):
            return self._many_keys().values(wanted)
        order = _order(wanted)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._many_keys().values(wanted.take(pa.array(order))).take(pa.array(back))

    def _many_keys(self) -> ManyKeys:
        return ManyKeys(self._store, self.opened, self.tree)

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

    def hold(self, prefixes: Sequence[bytes]) -> None:
        """Fetch together what `scan_prefix` of each of these would fetch after each other, and keep
        it for them in the cache of blocks; what they would not look for there, or is at hand, is
        left."""
        if not prefixes or len(self.opened.whole):
            return
        ranges = [(one, _successor(one)) for one in prefixes]
        index = self.tree.of_ranges(ranges)
        asked = [within(index, *one) for one in ranges]
        few = [one for one in asked if len(one) <= KEPT_BLOCKS]
        if few:
            Pass(self._store, self.opened, index, np.unique(np.concatenate(few)), keep=True).hold()

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
        is_complete = index is self.tree.complete
        sizes = worthy_sizes(self._store, self.opened, index, chosen) if is_complete else None
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


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    whole = table.to_batches()
    if len(whole) > 1:
        raise UsageError("entries are too large for one batch: scan instead", found=len(whole))
    return whole[0] if whole else pa.RecordBatch.from_pylist([], SCHEMA)
