"""Packed blocks looked at together: a dict is their judge, and each block alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from metatable.storage import cache
from metatable.storage.byte_columns import from_voids, of_one_size, voids
from metatable.storage.cache import blocks as block_cache
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.codec import ZSTD_REPEATS_ONLY, Codec
from metatable.storage.hfile.key_values import RECORD_OVERHEAD
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import many_keys, packed
from metatable.storage.hfile.reading.alike import Alike
from metatable.storage.hfile.reading.packed_spans import Span, find_in_span, runs_of
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.hfile.zstd_records import LEAST_RECORDS, pack_blocks, shape_of
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, folder

COUNT = 20_000
RECORDS = LEAST_RECORDS + 6
_CHANCE = np.random.default_rng(14)


def hashes(size: int, count: int = COUNT, begin: bytes = b"") -> list[bytes]:
    """So many that blocks of 70 lie between two first bytes, or have one in common."""
    rests = _CHANCE.integers(0, 256, (count, size - len(begin)), np.uint8)
    return sorted({begin + one.tobytes() for one in rests})


KINDS = {
    "hashes": (hashes(16), 4),
    "with bytes behind the last word": (hashes(19), 5),
    "words": (hashes(8), 1),
    "less than two words": (hashes(11), 3),
    "behind three bytes": (hashes(16, begin=b"key"), 4),
}


@pytest.fixture(autouse=True)
def many_keys_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_keys, "FEW_KEYS", 0)
    monkeypatch.setattr(many_keys, "Pass", None)  # nothing else answers


def put(store: Store, keys: Sequence[bytes], value_size: int) -> dict[bytes, bytes]:
    numbers = _CHANCE.integers(0, 300, len(keys)).tolist()
    values = [number.to_bytes(2).rjust(value_size, b"\0")[-value_size:] for number in numbers]
    held = dict(zip(keys, values, strict=True))
    size = RECORDS * (RECORD_OVERHEAD + len(keys[0]) + value_size)
    with HFileWriter(
        store, "a.hfile", block_size_bytes=size, codec=Codec.ZSTD, zstd_level=ZSTD_REPEATS_ONLY
    ) as file:
        file.add(binary(held), binary(held.values()))
    return held


def ask(file: HFileReader, keys: Sequence[bytes], *, keep: bool) -> list[bytes | None]:
    hits = file.find_alike(voids(of_one_size(binary(keys))), keep=keep)
    assert hits is not None
    found: list[bytes | None] = from_voids(hits[1], hits[0]).to_pylist()
    return found


def others(key: bytes) -> list[bytes]:
    """Keys that differ from it in one byte, each in another one."""
    return [key[:place] + bytes((key[place] ^ 1,)) + key[place + 1 :] for place in range(len(key))]


@pytest.mark.each_once
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
@pytest.mark.parametrize("read_bytes", [3_000, 40_000, 4 << 20])
@pytest.mark.parametrize("kind", KINDS)
def test_many_keys_are_answered_as_a_dict_does(
    tmp_path: Path, kind: str, read_bytes: int, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "READ_BYTES", read_bytes)
    keys, value_size = KINDS[kind]
    store = folder(tmp_path)
    held = put(store, keys[::2], value_size)
    file = cold(store, "a.hfile")
    ends = [bytes(len(keys[0])), b"\xff" * len(keys[0])]
    like = sorted({*ends, *keys[::17], *(one for key in keys[::61] for one in others(key))})
    far = [*keys[: COUNT // 9], *keys[COUNT // 2 : -COUNT // 4 : 50]]  # blocks between are not read
    for _ in range(2):  # the second time some may be held
        for asked in (far, keys, like, keys[1::2]):  # of the last none is there
            assert ask(file, asked, keep=keep) == [held.get(key) for key in asked]


def test_what_is_not_kept_is_read_each_time_and_leaves_the_cache_as_it_was(tmp_path: Path) -> None:
    keys, value_size = KINDS["hashes"]
    store = folder(tmp_path)
    put(store, keys, value_size)
    file = cold(store, "a.hfile")
    block_cache.clear()
    told = []
    for _ in range(2):
        before = dict(file.counters)
        ask(file, keys, keep=False)
        told.append(file.counters.since(before)["store.bytes_read"])
    assert told[0] == told[1] > 0
    assert not len(block_cache)
    ask(file, keys, keep=True)
    before = dict(file.counters)
    ask(file, keys, keep=True)
    assert "store.bytes_read" not in file.counters.since(before)


def blocks_of(keys: Sequence[bytes], value_size: int) -> list[bytes]:
    count = len(keys) // LEAST_RECORDS * LEAST_RECORDS
    values = [number.to_bytes(value_size) for number in (np.arange(count) % 200).tolist()]
    parts = (voids(of_one_size(binary(few))) for few in (keys[:count], values))
    return [bytes(one) for one in pack_blocks(*parts, LEAST_RECORDS)[1]]


def test_blocks_of_a_run_are_what_each_is_alone() -> None:
    keys, value_size = KINDS["hashes"]
    bodies = blocks_of(keys[: 30 * LEAST_RECORDS], value_size)
    runs = runs_of(Span.joined(bodies), 16, value_size)
    assert len(runs) < len(bodies) / 2
    for number in range(0, len(bodies), 3):
        for place in {*range(0, len(bodies[number]), 7), len(bodies[number]) - 1}:
            body = bytearray(bodies[number])
            body[place] ^= 2
            changed = [*bodies[:number], bytes(body), *bodies[number + 1 :]]
            runs = runs_of(Span.joined(changed), 16, value_size)
            shapes = [run.shape for run in runs for _ in range(run.first, run.stop)]
            alone = [shape_of(np.frombuffer(one, np.uint8), 16, value_size) for one in changed]
            assert shapes == alone


def test_keys_that_eight_bytes_do_not_order_are_left_to_others() -> None:
    keys, value_size = KINDS["hashes"]
    bodies = blocks_of(keys[: 4 * LEAST_RECORDS], value_size)
    alike = Alike(16, value_size, "a.hfile")
    wanted = voids(of_one_size(binary(keys[:50])))
    for order, is_sorted in ((bodies, True), (bodies[::-1], False)):
        span = Span.joined(order)
        hits = find_in_span(span, runs_of(span, 16, value_size), alike, wanted)
        assert (hits is not None) == is_sorted


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
def test_a_flipped_byte_in_any_block_that_is_read_is_found_and_named(
    tmp_path: Path, keep: bool
) -> None:
    keys, value_size = KINDS["hashes"]
    store = folder(tmp_path)
    put(store, keys[:1_500], value_size)
    whole = store.fetch("a.hfile")
    index = cold(store, "a.hfile").tree.all()
    for number, (offset, size) in enumerate(
        zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)
    ):
        body = bytearray(whole)
        body[offset + 40 + number * (size - 41) // len(index)] ^= 4
        store.put("a.hfile", bytes(body))
        cache.clear()
        with pytest.raises(CorruptError, match=f"checksum mismatch.*offset={offset} "):
            ask(HFileReader.open(store, "a.hfile"), keys[:1_500], keep=keep)
