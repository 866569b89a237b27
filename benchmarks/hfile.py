"""HFiles alone: what a record index of a million entries costs to write and to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from benchmarks.data import sorted_entries
from benchmarks.harness import FLOOR, Case, Peer, Setup, absent, run_module, timed
from metatable.storage.cache import shared
from metatable.storage.hfile.block import HEADER_SIZE, BlockHeader
from metatable.storage.hfile.codec import Codec, compress, decompress
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store

QUESTION = (
    "How long does it take to write an HFile of sorted entries, to look up a tenth of them, keys "
    "that are not there, one key, and to read it all? How much of that is the codec?"
)

CODECS = (Codec.GZ, Codec.ZSTD, Codec.NONE)
_HUDI_RS = absent("hudi-rs", "the wheel `hudi` reads HFiles inside, and offers no reader of them")


def cases(setup: Setup) -> Iterator[Case]:
    """Five cases a codec; caches of the process are empty before each run."""
    count = setup.tenth(1_000_000)
    keys, values = sorted_entries(count)
    folder = setup.cupboard.scratch()
    store = Store(folder, {"durable": "false"})
    for codec in CODECS:
        path = f"{codec.name.lower()}.hfile"
        _write(store, path, codec, keys, values)
        yield from _cases_of(store, path, codec, keys, values)


def _cases_of(
    store: Store, path: str, codec: Codec, keys: pa.Array, values: pa.Array
) -> Iterator[Case]:
    count, name = len(keys), codec.name
    setting = (
        f"{count:,} entries of 16-byte keys and 4-byte values, {name}, 64 KiB blocks, "
        f"file of {(store.size(path) or 0) / 1e6:.1f} MB in the page cache, "
        "caches of the process empty"
    )
    packed = _packed_blocks(store, path)
    payloads = [decompress(codec, raw, size) for raw, size in packed]
    pack = _floor(codec, "compress", partial(_pack, codec, payloads))
    unpack = _floor(codec, "decompress", partial(_unpack, codec, packed))
    floor = f"it does the {'checksum' if codec is Codec.NONE else 'codec'}'s part and no more"

    def case(what: str, run: Callable[[], Any], check: Callable[[Any], Any], peer: Peer) -> Case:
        measure = timed(run, prepare=shared.clear, check=check)
        peers = [peer, _HUDI_RS] if codec is Codec.GZ and check is _all else [peer]
        return Case(f"{what}, {name}", setting, measure, peers, floor)

    tenth = keys.take(pa.array(np.arange(0, count, 10)))
    other = _absent_keys(count // 100)
    one = keys[count // 2].as_py()
    draft = "draft.hfile"
    write = partial(_write, store, draft, codec, keys, values)
    yield case(f"write {count:,}", write, _nothing, pack)
    yield case(f"get {len(tenth):,} sorted keys", partial(_get, store, path, tenth), _all, unpack)
    yield case(f"get {len(other):,} absent keys", partial(_get, store, path, other), _none, unpack)
    middle = packed[len(packed) // 2 :][:1]
    block = _floor(codec, "decompress", partial(_unpack, codec, middle), "of one block")
    yield case("get one key, open included", lambda: _open(store, path).get(one), _some, block)
    yield case("scan all", partial(_scan, store, path), partial(_equal, count), unpack)


def _floor(codec: Codec, what: str, run: Callable[[], int], rest: str = "alone") -> Peer:
    part = "CRC32C" if codec is Codec.NONE else f"{codec.name} {what}"
    return Peer(f"{FLOOR}{part} {rest}", timed(run))


def _write(store: Store, path: str, codec: Codec, keys: pa.Array, values: pa.Array) -> None:
    with HFileWriter(store, path, codec=codec) as writer:
        writer.add(keys, values)


def _open(store: Store, path: str) -> HFileReader:
    return HFileReader.open(store, path)


def _get(store: Store, path: str, keys: pa.Array) -> pa.Array:
    return _open(store, path).get_sorted(keys)


def _scan(store: Store, path: str) -> int:
    return sum(batch.num_rows for batch in _open(store, path).scan())


def _absent_keys(count: int) -> pa.Array:
    """Ascending keys all over the range; that one of 16 bytes is there by chance is no worry."""
    words = np.arange(count, dtype=np.uint64) * np.uint64(2**64 // count)
    raw = np.stack([words, words], axis=1).astype(">u8").tobytes()
    return pa.array([raw[at : at + 16] for at in range(0, len(raw), 16)], pa.binary())


def _packed_blocks(store: Store, path: str) -> list[tuple[bytes, int]]:
    """(stored payload, its size when unpacked) of every data block."""
    body = Path(store.uri, path).read_bytes()
    index = _open(store, path).opened.index
    found = []
    for offset in index.offsets.tolist():
        header = BlockHeader.decode(body[offset : offset + HEADER_SIZE], path, offset)
        raw = body[offset + HEADER_SIZE : offset + header.covered_size]
        found.append((raw, header.payload_size))
    return found


def _pack(codec: Codec, payloads: list[bytes]) -> int:
    if codec is Codec.NONE:
        return sum(map(google_crc32c.value, payloads))
    return sum(len(compress(codec, payload)) for payload in payloads)


def _unpack(codec: Codec, packed: list[tuple[bytes, int]]) -> int:
    if codec is Codec.NONE:
        return sum(google_crc32c.value(raw) for raw, _ in packed)
    return sum(len(decompress(codec, raw, size)) for raw, size in packed)


def _nothing(answer: object) -> None:
    pass


def _all(answer: pa.Array) -> None:
    _equal(0, answer.null_count)


def _none(answer: pa.Array) -> None:
    _equal(len(answer), answer.null_count)


def _some(answer: bytes | None) -> None:
    assert answer is not None


def _equal(expected: int, found: int) -> None:
    assert found == expected, (expected, found)


if __name__ == "__main__":
    run_module(globals())
