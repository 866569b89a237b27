"""HFileWriter: sorted entries in, one immutable HFile out, readable by every HFile reader.

Three steps, a module each in `writing/`: entries into blocks (runs), blocks encoded and
compressed on the thread pool (packing), blocks into the file in order (block_writer), with
the index growing beside them (index_writer). What stands at the end of the file is here. Forms of
other writers are in forms.py; the format is in FORMAT.md.

Held in memory: the entries of one block, a few blocks under way, one leaf of the index and an
entry for each leaf before it, META blocks, and what the hints need of each record. The file
appears, whole, when the block of `with` ends without an exception; its bytes follow from the
entries alone, not from how they were added or from threads.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import IO

import numpy as np
import pyarrow as pa

from metatable.storage import filters
from metatable.storage.errors import UsageError
from metatable.storage.hfile import file_info, record_sizes
from metatable.storage.hfile.block import BlockType
from metatable.storage.hfile.codec import SUPPORTED, ZSTD_LEVEL, Codec
from metatable.storage.hfile.forms import OURS, Form
from metatable.storage.hfile.key_values import full_key
from metatable.storage.hfile.reading import file_filter
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.hfile.writing.block_writer import AROUND_BYTES, BlockWriter, Stored
from metatable.storage.hfile.writing.index_writer import (
    INDEX_CHUNK_BYTES,
    IndexWriter,
    Root,
    encode_root,
    separator,
)
from metatable.storage.hfile.writing.packing import Packer, Tally
from metatable.storage.hfile.writing.runs import MAX_PAYLOAD, BlockPlan, Cutter, Run
from metatable.storage.sinks import Sinks
from metatable.storage.threads import in_order

__all__ = ["HFileWriter", "WrittenHFile"]

_OURS = "metatable."
"""What names of our own META blocks and facts begin with."""
WAITING_BYTES = 2 << 20
"""Small additions are packed together once they have this many bytes."""


@dataclass(frozen=True, slots=True)
class WrittenHFile:
    """What a writer left behind. `checksum` is the CRC32C of the whole file, in hex.

    First and last key are b"" where there are no entries.
    """

    path: str
    entry_count: int
    first_key: bytes
    last_key: bytes
    size_bytes: int
    checksum: str


class HFileWriter:
    """Writes one HFile. Use it as a context manager; afterwards `written` tells of the file.

    `unique=False` allows equal keys, which then stay in one block. `filter_kind`: store a filter
    of this family (storage/filters) over the XXH64 of all keys, wrong with probability
    `filter_fpp` at most. `zstd_level`: of data blocks, where the codec is ZSTD; ZSTD_REPEATS_ONLY
    is for keys that are hashes, unique and of one size, as are their values.
    """

    written: WrittenHFile

    def __init__(
        self,
        store: Sinks,
        path: str,
        *,
        codec: Codec = Codec.GZ,
        block_size_bytes: int = 65536,
        index_chunk_bytes: int = INDEX_CHUNK_BYTES,
        unique: bool = True,
        filter_kind: str | None = None,
        filter_fpp: float = 1e-3,
        form: Form = OURS,
        zstd_level: int = ZSTD_LEVEL,
    ) -> None:
        _check_options(codec, block_size_bytes, index_chunk_bytes, filter_kind, filter_fpp, form)
        self._store = store
        self._path = path
        self._codec = codec
        self._form = form
        self._index_chunk_bytes = index_chunk_bytes if form.has_levels else None
        self._filter = (filter_kind, filter_fpp) if filter_kind else None
        self._sink: AbstractContextManager[IO[bytes]] | None = None
        self._meta: dict[str, bytes] = {}
        self._facts: dict[bytes, bytes] = {}
        # entries on their way into the file
        self._cutter = Cutter(
            block_size_bytes, overfills=form.overfills_blocks, unique=unique, path=path
        )
        self._waiting: list[Run] = []
        self._waiting_bytes = 0
        self._packer = Packer(codec, form, self._filter is not None, zstd_level, block_size_bytes)
        # the file so far
        self._blocks: BlockWriter | None = None
        self._index: IndexWriter
        self._tally = Tally()
        self._data_blocks = 0
        self._data_from, self._data_to = -1, -1

    def __enter__(self) -> HFileWriter:
        self._sink = self._store.sink(self._path)
        self._blocks = BlockWriter(self._sink.__enter__(), self._codec, self._form)
        self._index = IndexWriter(self._blocks.emit, self._index_chunk_bytes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._sink is not None
        sink, self._sink = self._sink, None
        if kind is None:
            try:
                written = self._finish()
            except BaseException:
                sink.__exit__(*sys.exc_info())
                raise
            finally:
                self._blocks = None
            sink.__exit__(None, None, None)
            self.written = written
            return
        self._blocks = None
        sink.__exit__(kind, error, trace)

    def add(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Append entries: two binary columns of one length, without nulls, ascending by key.

        Raises UsageError, with nothing of this call written, for anything else.
        """
        self._open_blocks()
        if len(keys) != len(values):
            raise UsageError("keys and values differ in number", keys=len(keys), values=len(values))
        self._cutter.check(keys, values)
        runs = self._cutter.runs(keys, values)
        try:
            if keys.nbytes + values.nbytes < WAITING_BYTES:
                self._wait(runs)
            else:
                self._append(runs)
        except BaseException:  # what is half done must not be finished
            self._blocks = None
            raise

    def add_meta(self, name: str, body: bytes) -> None:
        """A META block, found by `name`; META blocks follow the data in the order of names."""
        self._open_blocks()
        if not name or name in self._meta or name.startswith(_OURS):
            raise UsageError("META blocks need names of their own", path=self._path, found=name)
        self._meta[name] = bytes(body)

    def add_file_info(self, name: str, value: bytes) -> None:
        """A fact of the caller's in FILE_INFO."""
        self._open_blocks()
        raw = name.encode()
        is_ours = raw in file_info.RESERVED or name.startswith(("hfile.", _OURS))
        if not raw or raw in self._facts or is_ours:
            raise UsageError("file info name is taken", path=self._path, found=name)
        self._facts[raw] = bytes(value)

    def _open_blocks(self) -> BlockWriter:
        if self._blocks is None:
            raise UsageError("HFile is not open for writing: use `with`", path=self._path)
        return self._blocks

    # Data blocks

    def _wait(self, runs: Iterable[Run]) -> None:
        """Hold small runs until together they are worth the threads."""
        for run in runs:
            self._waiting.append(run.apart())
            self._waiting_bytes += run.size
        if self._waiting_bytes >= WAITING_BYTES:
            self._append(())

    def _append(self, runs: Iterable[Run]) -> None:
        """Write what waits, and then `runs`."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for packed in in_order(self._packer.pack, chain(waiting, runs)):
            self._append_blocks(packed.blocks, packed.stored, packed.room)
            self._tally.add(packed, with_sizes=self._form.has_hints)

    def _append_blocks(
        self, blocks: list[BlockPlan], stored: list[Stored], room: memoryview
    ) -> None:
        """Write blocks, and each leaf of the index right behind the one that fills it."""
        keys = self._index_keys(blocks)
        while keys:
            count = self._index.takes(keys)
            offsets, sizes = self._open_blocks().emit_stored(
                BlockType.DATA,
                stored[:count],
                np.array([block.size for block in blocks[:count]]),
                np.array([block.last_entry_size for block in blocks[:count]]),
                room,
            )
            room = room[sum(map(len, stored[:count])) + AROUND_BYTES * count :]
            self._index.add(list(zip(offsets.tolist(), sizes.tolist(), keys[:count], strict=True)))
            if not self._data_blocks:
                self._data_from = int(offsets[0])
            self._data_to = int(offsets[-1])
            self._data_blocks += count
            keys, blocks, stored = keys[count:], blocks[count:], stored[count:]

    def _index_keys(self, blocks: list[BlockPlan]) -> list[bytes]:
        """The keys that lead to these blocks, the next ones of the file."""
        if not self._form.shortens_keys:
            return [full_key(block.first_key, self._form.key_suffix) for block in blocks]
        befores = [self._tally.last_key, *(block.last_key for block in blocks[:-1])]
        between = zip(befores, blocks, strict=True)
        keys = [full_key(*separator(before, block.first_key)) for before, block in between]
        return keys if self._data_blocks else [full_key(blocks[0].first_key), *keys[1:]]

    # What stands at the end

    def _finish(self) -> WrittenHFile:
        blocks = self._open_blocks()
        self._append(self._cutter.rest())
        self._index.end_of_data()
        hints, facts = self._hints()
        bodies = {name.encode(): body for name, body in (self._meta | hints).items()}
        meta = [(*blocks.emit(BlockType.META, bodies[name]), name) for name in sorted(bodies)]
        root = self._index.finish()
        root_offset, _ = blocks.emit(BlockType.ROOT_INDEX, root.payload)
        blocks.emit(BlockType.ROOT_INDEX, encode_root(meta))
        info = file_info.encode_file_info(self._all_facts(facts), self._form.fact_order)
        info_offset, _ = blocks.emit(BlockType.FILE_INFO, info)
        blocks.write(self._trailer(root, root_offset, len(meta), info_offset).encode())
        return WrittenHFile(
            self._path,
            self._tally.entry_count,
            self._tally.first_key,
            self._tally.last_key,
            blocks.offset,
            f"{blocks.checksum:08x}",
        )

    def _hints(self) -> tuple[dict[str, bytes], dict[bytes, bytes]]:
        """META blocks and facts for our own reader; others pass them over."""
        meta: dict[str, bytes] = {}
        facts: dict[bytes, bytes] = {}
        if not self._form.has_hints or not self._tally.entry_count:
            return meta, facts
        equal = self._tally.equal_sizes()
        facts[record_sizes.FACT] = record_sizes.encode_fact(*equal)
        sizes, hashes = self._tally.sizes(), self._tally.hashes()
        if sizes is not None and None in equal and self._data_blocks > 1:
            meta[record_sizes.META] = sizes.encode()
        if self._filter and hashes is not None:
            kind, fpp = self._filter
            facts[file_filter.FACT] = kind.encode()
            meta[file_filter.META] = filters.build(kind, hashes, fpp).encode()
        return meta, facts

    def _all_facts(self, hints: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """In the order in which Hudi's writer comes to know them."""
        form, tally = self._form, self._tally
        count = max(tally.entry_count, 1)
        key_bytes = tally.key_bytes + tally.entry_count * form.key_overhead
        facts = {file_info.MAX_MEMSTORE_TS_KEY: struct.pack(">q", 0)} | self._facts | hints
        if tally.entry_count:
            facts[file_info.LASTKEY] = full_key(tally.last_key, form.key_suffix)
        elif form.names_no_last_key:
            facts[file_info.LASTKEY] = b""
        return facts | {
            file_info.AVG_KEY_LEN: struct.pack(">i", key_bytes // count),
            file_info.CREATE_TIME_TS: struct.pack(">q", form.create_time_ms),
            file_info.AVG_VALUE_LEN: struct.pack(">i", tally.value_bytes // count),
            file_info.KEY_VALUE_VERSION: struct.pack(">i", 1),
        }

    def _trailer(self, root: Root, root_offset: int, meta_count: int, info_offset: int) -> Trailer:
        form, index, tally = self._form, self._index, self._tally
        total = self._open_blocks().unpacked_bytes - index.upper_bytes + TRAILER_SIZE
        return Trailer(
            file_info_offset=info_offset,
            load_on_open_data_offset=root_offset,
            uncompressed_data_index_size=(
                index.payload_bytes if form.sums_indexes else tally.payload_bytes
            ),
            total_uncompressed_bytes=total if form.sums_indexes else 0,
            data_index_count=root.entry_count,
            meta_index_count=meta_count,
            entry_count=tally.entry_count,
            num_data_index_levels=root.levels,
            first_data_block_offset=self._data_from,
            last_data_block_offset=self._data_to if self._data_blocks else form.last_block_of_none,
            comparator_class_name=form.comparator,
            compression_codec=self._codec,
            minor=form.minor,
        )


def _check_options(
    codec: Codec,
    block_size_bytes: int,
    index_chunk_bytes: int,
    filter_kind: str | None,
    filter_fpp: float,
    form: Form,
) -> None:
    if codec not in SUPPORTED:
        codecs = [one.name for one in SUPPORTED]
        raise UsageError("HFile codec is not written", found=codec.name, expected=codecs)
    if not 0 < block_size_bytes <= MAX_PAYLOAD:
        expected = f"1 to {MAX_PAYLOAD}"
        raise UsageError("block size out of range", expected=expected, found=block_size_bytes)
    if index_chunk_bytes < 1:
        raise UsageError("index chunk size out of range", expected="1", found=index_chunk_bytes)
    if filter_kind is None:
        return
    if not form.has_hints:
        raise UsageError("this form of HFile has no filter", found=form.name, expected=OURS.name)
    filters.build(filter_kind, np.empty(0, np.uint64), filter_fpp)  # refuses now, not at the end
