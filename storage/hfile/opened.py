"""Opening an HFile: its trailer, indexes and FILE_INFO, checked, before any entry is read.

The last 64 KiB are read first. They hold the trailer, nearly always all that is loaded on
open, and often the whole file. Nothing that the bytes claim is believed beyond the file's
size: offsets must lie in it, blocks must not overlap, counts must fit into their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from metatable.storage.errors import CorruptError
from metatable.storage.hfile.block import BlockHeader, BlockType, decode_block
from metatable.storage.hfile.block_index import BlockIndex, Entry, decode_root, descend
from metatable.storage.hfile.file_info import decode_file_info, has_mvcc
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.store import Store

__all__ = ["OpenedHFile", "open_hfile", "read_runs"]

TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class OpenedHFile:
    """What is known of an immutable file after opening it."""

    path: str
    size_bytes: int
    trailer: Trailer
    file_info: dict[bytes, bytes]
    index: BlockIndex
    meta: dict[str, tuple[int, int]]
    """META blocks: name to offset and size."""
    with_mvcc: bool
    whole: bytes
    """All of the file, if it is small; else nothing."""

    @property
    def memory_bytes(self) -> int:
        facts = sum(len(name) + len(value) for name, value in self.file_info.items())
        return len(self.whole) + facts + self.index.size_bytes + 1000


def open_hfile(store: Store, path: str, size_bytes: int | None) -> OpenedHFile:
    """Read and check the trailer, the indexes and FILE_INFO: one request, mostly."""
    size = store.size(path) if size_bytes is None else size_bytes
    if size is None:
        raise CorruptError("file is missing", path=path, store=store.uri)
    if size < TRAILER_SIZE:
        raise CorruptError(
            "file is too short for an HFile",
            path=path,
            expected=f"{TRAILER_SIZE} bytes or more",
            found=size,
        )
    start = max(size - TAIL_BYTES, 0)
    [tail] = store.read(path, [(start, size - start)])
    trailer_at = size - TRAILER_SIZE
    trailer = Trailer.decode(tail[-TRAILER_SIZE:], path, trailer_at).check(size, path)
    if trailer.load_on_open_data_offset < start:
        start = trailer.load_on_open_data_offset
        [tail] = store.read(path, [(start, size - start)])
    return _parse_loaded(store, path, trailer, tail, start)


def _parse_loaded(store: Store, path: str, trailer: Trailer, raw: bytes, start: int) -> OpenedHFile:
    """From the end of the file, which `raw` is, beginning at offset `start`."""
    at = trailer.load_on_open_data_offset
    section = memoryview(raw)[at - start : -TRAILER_SIZE]
    roots = (BlockType.ROOT_INDEX,)
    data_root, meta_at = _next_block(section, 0, trailer, path, roots)
    meta_root, _ = _next_block(section, meta_at, trailer, path, roots)
    info_start = trailer.file_info_offset - at
    payload, _ = _next_block(section, info_start, trailer, path, (BlockType.FILE_INFO,))
    info = decode_file_info(payload, path, trailer.file_info_offset)
    names = decode_root(meta_root, trailer.meta_index_count, path, at + meta_at, names=True)
    return OpenedHFile(
        path=path,
        size_bytes=start + len(raw),
        trailer=trailer,
        file_info=info,
        index=_load_index(store, path, trailer, data_root),
        meta={_name(entry): _meta_place(path, trailer, entry) for entry in names},
        with_mvcc=has_mvcc(info, path),
        whole=raw if start == 0 else b"",
    )


def _load_index(store: Store, path: str, trailer: Trailer, root: bytes) -> BlockIndex:
    """The index of all data blocks, through every level."""
    at, codec = trailer.load_on_open_data_offset, trailer.compression_codec
    inner = (BlockType.LEAF_INDEX, BlockType.INTERMEDIATE_INDEX)

    def fetch(entries: list[Entry]) -> list[bytes]:
        places = [(offset, size) for offset, size, _ in entries]
        raws = read_runs(store, path, places)
        return [
            decode_block(raw, codec, path, offset, inner)[1]
            for (offset, _), raw in zip(places, raws, strict=True)
        ]

    entries = decode_root(root, trailer.data_index_count, path, at)
    entries = descend(entries, trailer.num_data_index_levels, fetch, limit=at, path=path, offset=at)
    return BlockIndex.of(entries, at, path, at)


def _next_block(
    section: memoryview, at: int, trailer: Trailer, path: str, expected: tuple[BlockType, ...]
) -> tuple[bytes, int]:
    """(payload, where the next block begins) of the block at `at` in the load-on-open section."""
    offset = trailer.load_on_open_data_offset + at
    header = BlockHeader.decode(section[at:], path, offset)
    raw = section[at : at + header.size]
    return decode_block(raw, trailer.compression_codec, path, offset, expected)[1], at + header.size


def _name(entry: Entry) -> str:
    return entry[2].decode("utf-8", "backslashreplace")


def _meta_place(path: str, trailer: Trailer, entry: Entry) -> tuple[int, int]:
    offset, size, _ = entry
    if offset < 0 or size <= 0 or offset + size > trailer.load_on_open_data_offset:
        raise CorruptError(
            "meta index points outside the file",
            path=path,
            offset=trailer.load_on_open_data_offset,
            expected=f"below {trailer.load_on_open_data_offset}",
            found=f"offset {offset}, {size} bytes",
        )
    return offset, size


def read_runs(store: Store, path: str, places: list[tuple[int, int]]) -> list[memoryview]:
    """The bytes at ascending places; those that touch come in one piece and are cut here."""
    runs: list[tuple[int, int]] = []
    for offset, size in places:
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((offset, size))
    pieces = zip(runs, store.read(path, runs), strict=True)
    cut: list[memoryview] = []
    start, piece = 0, memoryview(b"")
    for offset, size in places:
        if offset >= start + len(piece):
            (start, _), body = next(pieces)
            piece = memoryview(body)
        cut.append(piece[offset - start : offset - start + size])
    return cut
