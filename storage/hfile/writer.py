"""HFileWriter: sorted entries in, one immutable HFile out, readable by every HFile reader.

The form is "Recipe B" of FORMAT.md: full index keys, CRC32C, HBase's order and offsets, one
index level. Held in memory: one data block, the index, and META blocks; records are encoded
many at a time. The file appears, whole, when the block of `with` ends without an exception.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import IO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.errors import UsageError
from metatable.storage.hfile import file_info
from metatable.storage.hfile.block import HEADER_SIZE, BlockType, encode_block
from metatable.storage.hfile.block_index import Entry, encode_root, entry_of
from metatable.storage.hfile.codec import SUPPORTED, Codec
from metatable.storage.hfile.columns import Int64s, as_binary, offsets_of
from metatable.storage.hfile.key_values import (
    KEY_SUFFIX,
    MAX_ROW_SIZE,
    RECORD_OVERHEAD,
    encode_records,
    full_key,
)
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.store import Store

__all__ = ["HFileWriter", "WrittenHFile"]

BATCH_ROWS = 64 << 10
BATCH_BYTES = 8 << 20
"""Records encoded at a time: few enough to stay near the processor."""
_MAX_PAYLOAD = (1 << 31) - 1


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
    """A context manager; `written` tells of the file afterwards.

    `unique=False` allows equal keys, which then stay in one block.
    """

    written: WrittenHFile

    def __init__(
        self,
        store: Store,
        path: str,
        *,
        codec: Codec = Codec.GZ,
        block_size_bytes: int = 65536,
        unique: bool = True,
    ) -> None:
        if codec not in SUPPORTED:
            codecs = [one.name for one in SUPPORTED]
            raise UsageError("HFile codec is not written", found=codec.name, expected=codecs)
        if not 0 < block_size_bytes <= _MAX_PAYLOAD:
            expected = f"1 to {_MAX_PAYLOAD}"
            raise UsageError("block size out of range", expected=expected, found=block_size_bytes)
        self._store = store
        self._path = path
        self._codec = codec
        self._block_size = block_size_bytes
        self._unique = unique
        self._sink: AbstractContextManager[IO[bytes]] | None = None
        self._file: IO[bytes] | None = None
        # the file so far
        self._offset = 0
        self._checksum = 0
        self._payload_bytes = 0
        self._previous: dict[BlockType, int] = {}
        self._index: list[Entry] = []
        self._meta: dict[str, bytes] = {}
        self._facts: dict[bytes, bytes] = {}
        # the entries so far
        self._entry_count = 0
        self._key_bytes = 0
        self._value_bytes = 0
        self._first_key = b""
        self._last_key: bytes | None = None
        # the block under way
        self._pending: list[memoryview] = []
        self._pending_size = 0
        self._pending_key = b""
        self._last_entry_size = 0

    def __enter__(self) -> HFileWriter:
        self._sink = self._store.sink(self._path)
        self._file = self._sink.__enter__()
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
                self._file = None
            sink.__exit__(None, None, None)
            self.written = written
            return
        self._file = None
        sink.__exit__(kind, error, trace)

    def add(self, keys: pa.Array, values: pa.Array) -> None:
        """Append entries: two binary columns of one length, without nulls, ascending by key.

        Raises UsageError, with nothing of this call written, for anything else.
        """
        self._check_open()
        if len(keys) != len(values):
            raise UsageError("keys and values differ in number", keys=len(keys), values=len(values))
        for rows, cells in _batches(keys, values):
            self._add_batch(rows, cells)

    def add_meta(self, name: str, body: bytes) -> None:
        """A META block, found by `name`; META blocks follow the data in the order of names."""
        self._check_open()
        if not name or name in self._meta:
            raise UsageError("META blocks need names of their own", path=self._path, found=name)
        self._meta[name] = bytes(body)

    def add_file_info(self, name: str, value: bytes) -> None:
        """A fact of the caller's in FILE_INFO."""
        self._check_open()
        raw = name.encode()
        if not raw or raw in self._facts or raw in file_info.RESERVED or raw[:6] == b"hfile.":
            raise UsageError("file info name is taken", path=self._path, found=name)
        self._facts[raw] = bytes(value)

    def _check_open(self) -> None:
        if self._file is None:
            raise UsageError("HFile is not open for writing: use `with`", path=self._path)

    def _add_batch(self, keys: pa.Array, values: pa.Array) -> None:
        opens = self._check_keys(keys)
        records, ends = encode_records(keys, values)
        self._place(records, ends, keys, opens)
        self._entry_count += len(keys)
        self._key_bytes += int(pc.sum(pc.binary_length(keys)).as_py())
        self._value_bytes += int(pc.sum(pc.binary_length(values)).as_py())
        self._first_key = self._first_key or keys[0].as_py()
        self._last_key = keys[len(keys) - 1].as_py()

    def _check_keys(self, keys: pa.Array) -> Int64s | None:
        """Where a block may begin, None for everywhere. Raises UsageError for keys out of order."""
        sizes = np.diff(offsets_of(keys))
        if sizes.min() < 1 or sizes.max() > MAX_ROW_SIZE:
            worst = int(sizes.argmin() if sizes.min() < 1 else sizes.argmax())
            raise UsageError(
                "key has an impossible size",
                path=self._path,
                expected=f"1 to {MAX_ROW_SIZE} bytes",
                found=f"{sizes[worst]} bytes: {keys[worst].as_py()[:50]!r}",
            )
        before = pa.concat_arrays([pa.array([self._last_key or b""], pa.binary()), keys[:-1]])
        risen = pc.less(before, keys).to_numpy(zero_copy_only=False)
        if risen.all():
            return None
        allowed = risen if self._unique else pc.less_equal(before, keys).to_numpy(False)
        if not allowed.all():
            at = int(np.argmin(allowed))
            raise UsageError(
                f"keys must be {'strictly ' if self._unique else ''}ascending",
                path=self._path,
                previous=before[at].as_py(),
                offered=keys[at].as_py(),
            )
        return np.flatnonzero(risen)

    def _place(
        self, records: memoryview, ends: Int64s, keys: pa.Array, opens: Int64s | None
    ) -> None:
        """Distribute encoded records over blocks: none grows past the block size, but for one
        that a single record or equal keys fill."""
        at, count = 0, len(ends)
        while at < count:
            start = int(ends[at - 1]) if at else 0
            room = start + self._block_size - self._pending_size
            cut = int(np.searchsorted(ends, room, "right"))
            cut = max(cut, at if self._pending else at + 1)
            if opens is not None:  # to where the next other key begins
                next_open = int(np.searchsorted(opens, cut))
                cut = int(opens[next_open]) if next_open < len(opens) else count
            if cut > at:
                self._hold(records[start : int(ends[cut - 1])], ends, cut, keys[at])
                at = cut
            if at < count:
                self._flush()

    def _hold(self, records: memoryview, ends: Int64s, cut: int, first: pa.Scalar) -> None:
        if not self._pending:
            self._pending_key = first.as_py()
        self._pending.append(records)
        self._pending_size += len(records)
        self._last_entry_size = int(ends[cut - 1] - (ends[cut - 2] if cut > 1 else 0))
        if self._pending_size > _MAX_PAYLOAD:
            raise UsageError(
                "entries are too large for a block",
                path=self._path,
                expected=f"at most {_MAX_PAYLOAD} bytes",
                found=self._pending_size,
            )

    def _flush(self) -> None:
        if not self._pending:
            return
        payload = b"".join(self._pending)
        offset, size = self._emit(BlockType.DATA, payload, self._last_entry_size)
        self._index.append(entry_of(offset, size, self._pending_key))
        self._pending, self._pending_size = [], 0

    def _emit(
        self, kind: BlockType, payload: bytes, last_entry_size: int | None = None
    ) -> tuple[int, int]:
        """Write a block; (its offset, its size)."""
        offset = self._offset
        block = encode_block(
            kind,
            payload,
            self._codec,
            previous_offset=self._previous.get(kind, -1),
            last_entry_size=last_entry_size,
        )
        self._previous[kind] = offset
        self._payload_bytes += HEADER_SIZE + len(payload)
        self._write(block)
        return offset, len(block)

    def _write(self, body: bytes) -> None:
        assert self._file is not None
        self._file.write(body)
        self._checksum = google_crc32c.extend(self._checksum, body)
        self._offset += len(body)

    def _finish(self) -> WrittenHFile:
        self._flush()
        meta = [
            (*self._emit(BlockType.META, self._meta[name.decode()]), name)
            for name in sorted(one.encode() for one in self._meta)
        ]
        before_root = self._payload_bytes
        root = encode_root(self._index)
        root_offset, _ = self._emit(BlockType.ROOT_INDEX, root)
        self._payload_bytes = before_root  # HBase leaves the root out of its sum
        self._emit(BlockType.ROOT_INDEX, encode_root(meta))
        info = file_info.encode_file_info(self._all_facts())
        info_offset, _ = self._emit(BlockType.FILE_INFO, info)
        trailer = Trailer(
            file_info_offset=info_offset,
            load_on_open_data_offset=root_offset,
            uncompressed_data_index_size=len(root),
            total_uncompressed_bytes=self._payload_bytes + TRAILER_SIZE,
            data_index_count=len(self._index),
            meta_index_count=len(meta),
            entry_count=self._entry_count,
            first_data_block_offset=self._index[0][0] if self._index else -1,
            last_data_block_offset=self._index[-1][0] if self._index else -1,
            compression_codec=self._codec,
        )
        self._write(trailer.encode())
        return WrittenHFile(
            self._path,
            self._entry_count,
            self._first_key,
            self._last_key or b"",
            self._offset,
            f"{self._checksum:08x}",
        )

    def _all_facts(self) -> dict[bytes, bytes]:
        count = max(self._entry_count, 1)
        key_bytes = self._key_bytes + self._entry_count * (2 + len(KEY_SUFFIX))
        facts = self._facts | {
            file_info.AVG_KEY_LEN: struct.pack(">i", key_bytes // count),
            file_info.AVG_VALUE_LEN: struct.pack(">i", self._value_bytes // count),
            file_info.CREATE_TIME_TS: struct.pack(">q", 0),
            file_info.KEY_VALUE_VERSION: struct.pack(">i", 1),
            file_info.MAX_MEMSTORE_TS_KEY: struct.pack(">q", 0),
        }
        if self._last_key is not None:
            facts[file_info.LASTKEY] = full_key(self._last_key)
        return facts


def _batches(
    keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Both columns as `pa.binary()`, in pieces of at most BATCH_ROWS and about BATCH_BYTES."""
    for start in range(0, len(keys), BATCH_ROWS):
        rows = as_binary(keys[start : start + BATCH_ROWS], "keys")
        cells = as_binary(values[start : start + BATCH_ROWS], "values")
        sizes = np.diff(offsets_of(rows)) + np.diff(offsets_of(cells)) + RECORD_OVERHEAD
        ends = np.cumsum(sizes)
        at = 0
        while at < len(rows):
            before = int(ends[at - 1]) if at else 0
            cut = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), at + 1)
            yield rows[at:cut], cells[at:cut]
            at = cut
