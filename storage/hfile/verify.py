"""The faults of an HFile of any writer, as data.

`verify` reads every block once, in order, and reports

    open       trailer, root index or file info cannot be read: nothing else was looked at
    index      an index block is damaged; its keys do not ascend; the key that leads to it is
               not its first; or an index key is above the first key of its data block, or
               not above the last key of the block before: lookups miss entries. (HBase may have a
               row in several blocks: such a key may come again where the row goes on)
    block      a data block is damaged: checksum, sizes, compression, records
    order      a key is less than the one before it
    meta       a META block is damaged
    hint       what the file says of its records' sizes is not so (record_sizes.py)
    filter     the file's filter cannot be read, or denies keys that are there
    count      entries, blocks, the last key or the sums of sizes differ from what trailer
               and file info say. (Hudi's writer leaves field 4 out and counts something else
               in field 3: where there is no 4, neither is looked at.)
    tail       entries that hudi-io's reader drops (FORMAT.md, "Two hazards")
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import pieces_at
from metatable.storage.errors import CorruptError, Finding, UpgradeError
from metatable.storage.filters import Filter, decode
from metatable.storage.hashing import xxh64
from metatable.storage.hfile import record_sizes
from metatable.storage.hfile.block import HEADER_SIZE, BlockHeader, BlockType, decode_block
from metatable.storage.hfile.block_index import BlockIndex, check_places, decode_inner
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, chunk_count
from metatable.storage.hfile.file_info import LASTKEY
from metatable.storage.hfile.key_values import KEY_SUFFIX, ROW_AT, KeyValues, row_of
from metatable.storage.hfile.reading import file_filter
from metatable.storage.hfile.reading.fetch import cut, fetch
from metatable.storage.hfile.reading.finding import find_records
from metatable.storage.hfile.reading.opened import OpenedHFile, open_hfile
from metatable.storage.hfile.record_sizes import RecordSizes, Sizes
from metatable.storage.hfile.trailer import TRAILER_SIZE
from metatable.storage.store import Store

__all__ = ["verify"]

READ_BYTES = 4 << 20
"""Stored bytes of blocks that are held at once."""
NAMED = 5
"""Keys that a finding names, however many it is about."""
NAMED_LOST = 10_000
"""Keys that hudi-io loses and a finding names: whoever must write them again needs all of them."""

_Level = Generator[Finding, None, BlockIndex]
"""Findings, and in the end a level of the index."""


def verify(store: Store, path: str) -> list[Finding]:
    """All faults of the file. Raises CorruptError only where there is no file at all."""
    size = store.size(path)
    if size is None:
        raise CorruptError("file is missing", path=path, store=store.uri)
    try:
        opened = open_hfile(store, path, size)
    except (CorruptError, UpgradeError) as error:
        return [Finding("open", path, str(error))]
    return list(_Verifier(store, opened).findings())


@dataclass
class _Some:
    """A number of keys, of which the first few are named."""

    count: int = 0
    blocks: int = 0
    named: list[bytes] = field(default_factory=list)
    most: int = NAMED

    def add(self, keys: pa.Array) -> None:
        if len(keys):
            self.count += len(keys)
            self.blocks += 1
            self.named += keys[: self.most - len(self.named)].to_pylist()


class _Verifier:
    """One pass over the blocks of a file, and what it gathers on its way."""

    def __init__(self, store: Store, opened: OpenedHFile) -> None:
        self._store = store
        self._opened = opened
        self._damaged = False
        self._count = 0
        self._last: bytes | None = None
        self._twice: dict[bytes, Finding] = {}
        """Faults by index keys that come again, unless a row of theirs lies in several blocks."""
        self._index_bytes = 0
        self._counted_bytes = 0
        self._stored_bytes = 0
        self._sizes: RecordSizes | None = None
        self._listed_from = np.zeros(1, np.int64)
        self._filter: Filter | None = None
        self._denied = _Some()
        self._dropped = _Some(most=NAMED_LOST)

    def findings(self) -> Iterator[Finding]:
        """All that is wrong with the file, as the pass comes to it."""
        path = self._opened.path
        index = yield from self._data_index()
        yield from self._metas(len(index))
        for block, (offset, raw) in enumerate(self._read(index)):
            yield from self._block(block, offset, raw, index.row(block))
        if not self._damaged:
            yield from self._twice.values()
            yield from self._totals(index)
        if (some := self._denied).count:
            told = f"{some.count} keys are denied by the file's filter, such as {some.named!r}"
            yield Finding("filter", path, told)
        if (some := self._dropped).count:
            told = f"{some.count} of {self._count} entries, in {some.blocks} of {len(index)} blocks"
            others = " and others" if some.count > len(some.named) else ""
            told += f", are dropped by hudi-io: {some.named!r}{others}"
            yield Finding("tail", path, told)

    # The index

    def _data_index(self) -> _Level:
        """Findings of all index blocks; returns the index of the data blocks."""
        index = self._opened.root
        yield from self._rising(index, self._opened.trailer.load_on_open_data_offset)
        for below in range(self._opened.levels - 1, 0, -1):
            kind = BlockType.LEAF_INDEX if below == 1 else BlockType.INTERMEDIATE_INDEX
            index = yield from self._level(index, kind)
        return index

    def _level(self, above: BlockIndex, kind: BlockType) -> _Level:
        """Findings of the index blocks that `above` leads to; returns what they hold."""
        parts: list[BlockIndex] = []
        for place, (offset, raw) in enumerate(self._read(above)):
            try:
                header, payload = self._decode(raw, offset, kind)
                part = decode_inner(payload, self._opened.path, offset)
            except CorruptError as error:
                self._damaged = True
                yield Finding("index", self._where(offset), str(error))
                continue
            first = part.row(0) if len(part) else None
            if first != (leading := above.row(place)):
                told = (
                    f"first key {first!r} of an index block is not {leading!r}, which leads to it"
                )
                yield Finding("index", self._where(offset), told)
            yield from self._rising(part, offset)
            self._index_bytes += header.payload_size
            if kind is BlockType.LEAF_INDEX:
                self._counted_bytes += HEADER_SIZE + header.payload_size
            parts.append(part)
        return (yield from self._together(above, parts))

    def _together(self, above: BlockIndex, parts: list[BlockIndex]) -> _Level:
        """Findings of a level as a whole; returns it, or nothing where its blocks overlap."""
        limit, path = self._opened.trailer.load_on_open_data_offset, self._opened.path
        try:
            if parts:
                return check_places(BlockIndex.joined(parts), limit, path, limit)
        except CorruptError as error:
            self._damaged = True
            yield Finding("index", path, str(error))
        none = np.empty(0, np.int64)
        return BlockIndex(none, none, above.raw, none, none)

    def _rising(self, index: BlockIndex, offset: int) -> Iterator[Finding]:
        keys = index.keys
        for at in _where_true(pc.less_equal(keys[1:], keys[:-1])).tolist():
            before, key = keys[at].as_py(), keys[at + 1].as_py()
            told = f"index key {key!r} follows {before!r}"
            finding = Finding("index", self._where(offset), told)
            if key == before and self._opened.may_spread_rows:
                self._twice.setdefault(key, finding)
                continue
            yield finding
            return

    # META blocks

    def _metas(self, block_count: int) -> Iterator[Finding]:
        """Findings of META blocks; record sizes and the filter are kept for the data blocks."""
        opened = self._opened
        for name, (offset, size) in opened.meta.items():
            where = self._where(offset)
            try:
                [raw] = self._store.read(opened.path, [(offset, size)])
                _, payload = self._decode(raw, offset, BlockType.META)
            except CorruptError as error:
                self._damaged = True
                yield Finding("meta", where, f"{name}: {error}")
                continue
            self._counted_bytes += HEADER_SIZE + len(payload)
            self._stored_bytes += size
            if name == record_sizes.META and opened.record_sizes is not None:
                yield from self._take_sizes(payload, offset, block_count)
            if name == file_filter.META and file_filter.FACT in opened.file_info:
                yield from self._take_filter(payload, where)
        named, counted = len(opened.meta), opened.trailer.meta_index_count
        if named != counted:
            yield Finding("meta", opened.path, f"{counted} META blocks have {named} names")
        stored = opened.file_info.get(record_sizes.FACT)
        if stored is not None and record_sizes.decode_fact(opened.file_info) is None:
            yield Finding("hint", opened.path, f"record sizes in file info are {stored!r}")

    def _take_sizes(self, payload: bytes, offset: int, block_count: int) -> Iterator[Finding]:
        where, entries = self._where(offset), self._opened.trailer.entry_count
        try:
            sizes = RecordSizes.decode(payload, self._opened.path, offset)
        except (CorruptError, UpgradeError) as error:
            yield Finding("hint", where, str(error))
            return
        found = len(sizes.block_counts), int(sizes.block_counts.sum())
        if found == (block_count, entries):
            self._sizes = sizes
            self._listed_from = np.concatenate(([0], np.cumsum(sizes.block_counts)))
        else:
            told = "record sizes are of {} blocks and {} entries, expected {} and {}"
            yield Finding("hint", where, told.format(*found, block_count, entries))

    def _take_filter(self, payload: bytes, where: str) -> Iterator[Finding]:
        kind = self._opened.file_info[file_filter.FACT].decode("utf-8", "backslashreplace")
        try:
            self._filter = decode(kind, payload, self._opened.path)
        except (CorruptError, UpgradeError) as error:
            yield Finding("filter", where, str(error))

    # Data blocks

    def _block(self, block: int, offset: int, raw: UInt8s, index_key: bytes) -> Iterator[Finding]:
        """Findings of a data block, which the index says begins with `index_key` or behind it."""
        opened, where = self._opened, self._where(offset)
        try:
            header, payload = self._decode(raw, offset, BlockType.DATA)
            body = np.frombuffer(payload, np.uint8)
            records = find_records(body, opened.with_mvcc, opened.path, offset)
        except CorruptError as error:
            self._damaged = True
            yield Finding("block", where, str(error))
            return
        self._count += len(records)
        self._counted_bytes += HEADER_SIZE + header.payload_size
        keys = records.keys()
        if self._sizes is not None:
            yield from self._listed(self._sizes, block, offset, records)
        if len(keys):
            if opened.record_sizes is not None:
                yield from self._hinted(opened.record_sizes, offset, records)
            yield from self._keys(where, index_key, keys)
            self._dropped.add(keys.filter(_dropped(header, records)))
            if self._filter is not None:
                self._denied.add(keys.filter(pa.array(~self._filter.might_contain(xxh64(keys)))))

    def _keys(self, where: str, index_key: bytes, keys: pa.Array) -> Iterator[Finding]:
        """Keys of a block that are out of order, or not where the index says."""
        first, last = keys[0].as_py(), keys[len(keys) - 1].as_py()
        if index_key > first:
            yield Finding("index", where, f"index key {index_key!r} is above first key {first!r}")
        if self._opened.may_spread_rows and index_key == first == self._last:
            self._twice.pop(first, None)
        elif self._last is not None and index_key <= self._last:
            detail = f"index key {index_key!r} is not above last key {self._last!r} before it"
            yield Finding("index", where, detail)
        if self._last is not None and first < self._last:
            yield Finding("order", where, f"key {first!r} follows {self._last!r}")
        falls = _where_true(pc.less(keys[1:], keys[:-1]))
        if len(falls):
            at = int(falls[0])
            detail = f"key {keys[at + 1].as_py()!r} follows {keys[at].as_py()!r}"
            yield Finding("order", where, detail)
        self._last = last

    def _hinted(self, said: tuple[int, int], offset: int, records: KeyValues) -> Iterator[Finding]:
        """Records that are not of the form or the sizes that file info says."""
        found = (records.row_sizes, records.value_sizes)
        for name, size, sizes in zip(("key", "value"), said, found, strict=True):
            if size >= 0 and (sizes != size).any():
                other = int(sizes[np.argmax(sizes != size)])
                told = f"{name} of {other} bytes, expected {size}, as file info says"
                yield Finding("hint", self._where(offset), told)
        if (odd := _other_form(records)) is not None:
            told = f"record {odd} is more than a row and a value, which file info denies"
            yield Finding("hint", self._where(offset), told)

    def _listed(
        self, sizes: RecordSizes, block: int, offset: int, records: KeyValues
    ) -> Iterator[Finding]:
        """Records that are not of the sizes that the META block says."""
        start, stop = self._listed_from[block : block + 2].tolist()
        count = stop - start
        agree = count == len(records) and all(
            np.array_equal(found, np.broadcast_to(_part(listed, start, stop), count))
            for found, listed in (
                (records.row_sizes, sizes.key_sizes),
                (records.value_sizes, sizes.value_sizes),
            )
        )
        if not agree:
            told = f"the sizes of {len(records)} records are not those of the META block"
            yield Finding("hint", self._where(offset), told)

    # The file as a whole

    def _totals(self, index: BlockIndex) -> Iterator[Finding]:
        """What trailer and file info say of the whole file, and is not so."""
        opened, trailer = self._opened, self._opened.trailer
        expected = trailer.entry_count
        if self._count != expected:
            detail = f"expected {expected} entries, as the trailer says, found {self._count}"
            yield Finding("count", opened.path, detail)
        stored = row_of(opened.file_info.get(LASTKEY, b""))
        if stored is not None and (stored or self._last) and stored != self._last:
            detail = f"expected last key {stored!r}, as file info says, found {self._last!r}"
            yield Finding("count", opened.path, detail)
        ends = (int(index.offsets[0]), int(index.offsets[-1])) if len(index) else None
        said = (trailer.first_data_block_offset, trailer.last_data_block_offset)
        if ends is not None and ends != said:
            detail = f"expected first and last data block at {said}, found {ends}"
            yield Finding("count", opened.path, detail)
        if trailer.total_uncompressed_bytes:
            yield from self._sums()  # sums of all blocks, of which HBase may have others

    def _sums(self) -> Iterator[Finding]:
        """Sums of bytes that the trailer says, and are not so, where blocks fill the file."""
        trailer = self._opened.trailer
        data_root, meta_root, info = self._loaded_on_open()
        loaded = data_root.size + meta_root.size + info.size + TRAILER_SIZE
        if self._stored_bytes + loaded != self._opened.size_bytes:
            return
        index_bytes = self._index_bytes + data_root.payload_size
        total = self._counted_bytes + meta_root.payload_size + info.payload_size
        total += 2 * HEADER_SIZE + TRAILER_SIZE
        for name, found in (
            ("uncompressed_data_index_size", index_bytes),
            ("total_uncompressed_bytes", total),
        ):
            if (said := getattr(trailer, name)) != found:
                detail = f"expected {name} {said}, as the trailer says, found {found}"
                yield Finding("count", self._opened.path, detail)

    def _loaded_on_open(self) -> tuple[BlockHeader, BlockHeader, BlockHeader]:
        data_at = self._opened.trailer.load_on_open_data_offset
        data_root = self._header(data_at)
        meta_root = self._header(data_at + data_root.size)
        return data_root, meta_root, self._header(self._opened.trailer.file_info_offset)

    def _header(self, offset: int) -> BlockHeader:
        [raw] = self._store.read(self._opened.path, [(offset, HEADER_SIZE)])
        return BlockHeader.decode(raw, self._opened.path, offset)

    # Reading

    def _read(self, index: BlockIndex) -> Iterator[tuple[int, UInt8s]]:
        """(offset, bytes) of the blocks of an index."""
        for start, stop in cut(index.sizes, READ_BYTES):
            offsets, sizes = index.offsets[start:stop], index.sizes[start:stop]
            self._stored_bytes += int(sizes.sum())
            stored = fetch(self._store, self._opened, offsets, sizes)
            yield from zip(offsets.tolist(), stored.blocks(), strict=True)

    def _decode(
        self, raw: bytes | UInt8s, offset: int, kind: BlockType
    ) -> tuple[BlockHeader, bytes]:
        codec = self._opened.trailer.compression_codec
        return decode_block(
            memoryview(cast("bytes", raw)), codec, self._opened.path, offset, (kind,)
        )

    def _where(self, offset: int) -> str:
        return f"{self._opened.path} offset {offset}"


def _dropped(header: BlockHeader, records: KeyValues) -> pa.Array:
    """Which records hudi-io drops: those that begin in the last bytes of the payload, as many
    as it takes for checksums. It counts chunks over the whole block, checksums included."""
    area = CHECKSUM_BYTES * chunk_count(header.size, header.chunk_bytes)
    starts = records.row_starts - ROW_AT
    return pa.array(starts >= header.payload_size - area)


def _other_form(records: KeyValues) -> int | None:
    """The first record that is not of the one form that sizes can be said of: a key that is only a
    row, the latest Put of it, and one byte of mvcc. None where all are. Lookups of many look at
    what may hide another size, those of one key at more."""
    size, raw = len(KEY_SUFFIX), records.raw
    ends = records.value_starts + records.value_sizes
    sound = np.append(records.row_starts[1:] - ROW_AT, len(raw)) == ends + 1
    sound &= records.value_gaps == size
    betweens = pieces_at(raw, records.row_starts + records.row_sizes, size)
    sound &= betweens == np.void(KEY_SUFFIX)
    return None if sound.all() else int(np.argmin(sound))


def _part(sizes: Sizes, start: int, stop: int) -> Sizes:
    return sizes if isinstance(sizes, int) else sizes[start:stop]


def _where_true(mask: pa.Array) -> Int64s:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))
