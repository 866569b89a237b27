"""Opening an HFile: its trailer, root indexes and FILE_INFO, checked, before any entry is read.

The end of the file is read first: as much as nearly always holds the trailer and all that is
loaded on open, and often the whole file. Nothing that the bytes claim is believed beyond the
file's size: offsets must lie in it, blocks must not overlap, counts must fit into their bytes.

A large file on a local disk whose blocks are not compressed is mapped into memory: blocks are
then used where they lie. (Files are immutable. One that somebody cuts short while it is mapped
ends the process, as everywhere with mapped memory.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from metatable.storage.arrays import UInt8s
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.block import BlockHeader, BlockType, decode_block
from metatable.storage.hfile.block_index import BlockIndex, check_places, decode_names, decode_root
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import decode_file_info, has_mvcc
from metatable.storage.hfile.key_values import RECORD_OVERHEAD
from metatable.storage.hfile.record_sizes import decode_fact
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.made_once import made_once
from metatable.storage.store import Store

__all__ = ["OpenedHFile", "open_hfile"]

TAIL_BYTES = 64 << 10
MOST_TAIL_BYTES = 2 << 20
TAIL_SHARE = 512
"""The index is about a thousandth of a file with 64 KiB blocks: read twice that at once."""

MAPPING_BYTES = 1 << 20
"""What a mapping counts for in the cache: it takes no memory of ours, but a file handle."""

NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True)
class OpenedHFile:
    """What is known of an immutable file after opening it."""

    path: str
    size_bytes: int
    trailer: Trailer
    file_info: dict[bytes, bytes]
    root: BlockIndex
    """The data blocks, or, with more than one level, the index blocks below the root."""
    meta: dict[str, tuple[int, int]]
    """META blocks: name to offset and size."""
    with_mvcc: bool
    whole: UInt8s
    """All of the file, if it is small or mapped; else nothing."""
    mapped: bool
    verified: set[int] = field(default_factory=set, compare=False)
    """Offsets of blocks of a mapped file whose checksums were verified: once is enough."""

    @property
    def levels(self) -> int:
        """1: the root leads to data blocks."""
        return max(self.trailer.num_data_index_levels, 1)

    @made_once
    def record_sizes(self) -> tuple[int, int] | None:
        """(key size, value size) of all records, -1 where they differ, if the file says so."""
        return decode_fact(self.file_info) if self.with_mvcc else None

    @made_once
    def stride(self) -> int | None:
        """Bytes of every record, if the file says one size for all keys, and one for all values."""
        sizes = self.record_sizes
        return sum(sizes) + RECORD_OVERHEAD if sizes and min(sizes) >= 0 else None

    @made_once
    def may_spread_rows(self) -> bool:
        """Whether entries of one row may lie in several blocks: HBase's cells are told apart by
        more than the row. Our files say sizes, Hudi's own ones no total (trailer field 4)."""
        return self.record_sizes is None and self.trailer.total_uncompressed_bytes != 0

    @property
    def memory_bytes(self) -> int:
        facts = sum(len(name) + len(value) for name, value in self.file_info.items())
        held = MAPPING_BYTES if self.mapped else len(self.whole)
        return held + facts + self.root.size_bytes + 1000


def open_hfile(store: Store, path: str, size_bytes: int | None) -> OpenedHFile:
    """Read and check the trailer, the root indexes and FILE_INFO: one request, mostly."""
    size = store.size(path) if size_bytes is None else size_bytes
    if size is None:
        raise CorruptError("file is missing", path=path, store=store.uri)
    if size < TRAILER_SIZE:
        raise CorruptError(
            "file is too short for an HFile",
            path=path,
            offset=0,
            expected=f"{TRAILER_SIZE} bytes or more",
            found=size,
        )
    start = max(size - _tail_bytes(store, size), 0)
    [tail] = store.read(path, [(start, size - start)])
    trailer_at = size - TRAILER_SIZE
    trailer = Trailer.decode(tail[-TRAILER_SIZE:], path, trailer_at).check(size, path)
    at = trailer.load_on_open_data_offset
    if at < start:
        [before] = store.read(path, [(at, start - at)])
        tail, start = before + tail, at
    mapped = None
    if start and trailer.compression_codec is Codec.NONE:
        mapped = store.map(path, size)
    section = memoryview(tail)[at - start : -TRAILER_SIZE]
    whole = mapped if mapped is not None else _array(tail) if not start else NOTHING
    return _parse_loaded(path, size, trailer, section, whole, mapped is not None)


def _tail_bytes(store: Store, size: int) -> int:
    """How much of a file's end is read at first, at most; from afar, all of a small one."""
    if store.is_distant and size <= store.request_bytes:
        return size
    return min(max(TAIL_BYTES, size // TAIL_SHARE), MOST_TAIL_BYTES)


def _parse_loaded(
    path: str, size: int, trailer: Trailer, section: memoryview, whole: UInt8s, mapped: bool
) -> OpenedHFile:
    """From the blocks between the data and the trailer, which `section` is."""
    at = trailer.load_on_open_data_offset
    roots = (BlockType.ROOT_INDEX,)
    data_root, meta_at = _next_block(section, 0, trailer, path, roots)
    meta_root, _ = _next_block(section, meta_at, trailer, path, roots)
    info_start = trailer.file_info_offset - at
    payload, _ = _next_block(section, info_start, trailer, path, (BlockType.FILE_INFO,))
    info = decode_file_info(payload, path, trailer.file_info_offset)
    names = decode_names(meta_root, trailer.meta_index_count, path, at + meta_at)
    root = decode_root(data_root, trailer.data_index_count, path, at)
    return OpenedHFile(
        path=path,
        size_bytes=size,
        trailer=trailer,
        file_info=info,
        root=check_places(root, at, path, at),
        meta={
            name.decode("utf-8", "backslashreplace"): _meta_place(path, trailer, offset, length)
            for offset, length, name in names
        },
        with_mvcc=has_mvcc(info, path),
        whole=whole,
        mapped=mapped,
    )


def _next_block(
    section: memoryview, at: int, trailer: Trailer, path: str, expected: tuple[BlockType, ...]
) -> tuple[bytes, int]:
    """(payload, where the next block begins) of the block at `at` in the load-on-open section."""
    offset = trailer.load_on_open_data_offset + at
    header = BlockHeader.decode(section[at:], path, offset)
    raw = section[at : at + header.size]
    return decode_block(raw, trailer.compression_codec, path, offset, expected)[1], at + header.size


def _meta_place(path: str, trailer: Trailer, offset: int, size: int) -> tuple[int, int]:
    if offset < 0 or size <= 0 or offset + size > trailer.load_on_open_data_offset:
        raise CorruptError(
            "meta index points outside the file",
            path=path,
            offset=trailer.load_on_open_data_offset,
            expected=f"below {trailer.load_on_open_data_offset}",
            found=f"offset {offset}, {size} bytes",
        )
    return offset, size


def _array(raw: bytes) -> UInt8s:
    return np.frombuffer(raw, np.uint8)
