"""Blocks of zstd searched as they are stored: a dict is their judge, and what unpacks them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metatable.storage import cache
from metatable.storage.byte_columns import from_voids, of_one_size, voids
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.codec import ZSTD_LEVEL, ZSTD_REPEATS_ONLY, Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import many_keys, packed
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, folder

COUNT = 3_000
BLOCK = 90 * 41
_CHANCE = np.random.default_rng(8)


def of_letters(letters: int, size: int) -> list[bytes]:
    return sorted({_CHANCE.integers(0, letters, size, np.uint8).tobytes() for _ in range(COUNT)})


SHAPES = {
    "hashes": of_letters(256, 16),
    "far from where a hash would be": sorted(
        {bytes((int(255 * (at / COUNT) ** 9),)) + at.to_bytes(3) + bytes(12) for at in range(COUNT)}
    ),
    "of two letters": of_letters(2, 16),
    "words": of_letters(256, 8),
    "behind what all begin with": [b"order-" + one for one in of_letters(256, 10)],
}


def put(
    store: Store, keys: list[bytes], level: int = ZSTD_REPEATS_ONLY
) -> tuple[HFileReader, dict[bytes, bytes]]:
    held = {key: number.to_bytes(4) for number, key in enumerate(keys)}
    size = BLOCK // 41 * (21 + len(keys[0]) + 4)
    with HFileWriter(
        store, "a.hfile", block_size_bytes=size, codec=Codec.ZSTD, zstd_level=level
    ) as file:
        file.add(binary(held), binary(held.values()))
    return cold(store, "a.hfile"), held


def ask(file: HFileReader, keys: list[bytes]) -> list[bytes | None]:
    hits = file.find_alike(voids(of_one_size(binary(keys))))
    assert hits is not None
    found: list[bytes | None] = from_voids(hits[1], hits[0]).to_pylist()
    return found


def near(key: bytes) -> list[bytes]:
    """It, and keys that are as if it was moved by a byte, or ended otherwise."""
    return [key, key[1:] + key[:1], key[-1:] + key[:-1], key[:-1] + bytes((key[-1] ^ 1,))]


@pytest.fixture(autouse=True)
def few_keys_are_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_keys, "FEW_KEYS", 1 << 40)


@pytest.fixture
def many_keys_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_keys, "FEW_KEYS", 0)


@pytest.mark.each_once
@pytest.mark.parametrize("level", [ZSTD_REPEATS_ONLY, ZSTD_LEVEL], ids=["packed", "by zstd"])
@pytest.mark.parametrize("around", [0, 4, 48])
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_are_answered_as_a_dict_does(
    tmp_path: Path, shape: str, around: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "AROUND", around)
    monkeypatch.setattr(packed, "READ_BYTES", 9_000)  # several times
    keys = SHAPES[shape]
    file, held = put(folder(tmp_path), [*keys[3::3], keys[-1]][: len(keys) // 3], level)
    ends = [bytes(len(keys[0])), b"\xff" * len(keys[0])]
    everything = sorted({*keys, *ends, *(one for key in keys for one in near(key))})
    for _ in range(2):  # the second time from the cache
        for asked in (everything, everything[5::7], [keys[3]] * 3, ends[:1]):
            assert ask(file, asked) == [held.get(key) for key in asked]


@pytest.mark.each_once
@pytest.mark.usefixtures("many_keys_are_one")
@pytest.mark.parametrize("level", [ZSTD_REPEATS_ONLY, ZSTD_LEVEL], ids=["packed", "by zstd"])
@pytest.mark.parametrize("shape", SHAPES)
def test_many_keys_are_answered_as_a_dict_does(
    tmp_path: Path, shape: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "READ_BYTES", 9_000)
    keys = SHAPES[shape]
    file, held = put(folder(tmp_path), [*keys[3::3], keys[-1]][: len(keys) // 3], level)
    ends = [bytes(len(keys[0])), b"\xff" * len(keys[0])]
    everything = sorted({*keys, *ends, *(one for key in keys for one in near(key))})
    for _ in range(2):
        for asked in (everything, everything[5::7], [keys[3]] * 3, ends[:1]):
            expected = [held.get(key) for key in asked]
            assert file.get_sorted(binary(asked)).to_pylist() == expected
            if shape == "hashes":
                assert ask(file, asked) == expected


@pytest.mark.usefixtures("many_keys_are_one")
def test_many_keys_of_packed_blocks_leave_zstd_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = SHAPES["hashes"]
    file, held = put(folder(tmp_path), keys)
    last = len(keys) // 90 * 90
    monkeypatch.setattr(packed, "decode_blocks", None)
    assert ask(file, keys[:last]) == [held[key] for key in keys[:last]]
    assert file.counters["hfile.blocks"] == last // 90


def test_blocks_that_were_packed_are_not_unpacked_and_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = SHAPES["hashes"]
    file, held = put(folder(tmp_path), keys)
    last = len(keys) // 90 * 90
    monkeypatch.setattr(packed, "decode_blocks", None)  # the last one alone is zstd's own
    assert ask(file, keys[:last:20]) == [held[key] for key in keys[:last:20]]
    before = dict(file.counters)
    assert before["hfile.blocks"] == last // 90
    assert ask(file, keys[:last:7]) == [held[key] for key in keys[:last:7]]
    told = file.counters.since(before)
    assert not {"hfile.blocks", "store.bytes_read"} & told.keys()


def test_a_window_is_enough_for_nearly_every_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = SHAPES["hashes"]
    file, held = put(folder(tmp_path), keys[: len(keys) // 90 * 90])
    monkeypatch.setattr(packed, "bisect_left", None)
    assert ask(file, keys[::20][:-9]) == [held[key] for key in keys[::20][:-9]]


@pytest.mark.parametrize("place", [100, 700, 1200])
def test_damage_in_a_packed_block_is_found(tmp_path: Path, place: int) -> None:
    store = folder(tmp_path)
    keys = SHAPES["hashes"]
    put(store, keys)
    body = bytearray(store.fetch("a.hfile"))
    body[place] ^= 4
    store.put("a.hfile", bytes(body))
    cache.clear()
    with pytest.raises(CorruptError, match="checksum"):
        ask(HFileReader.open(store, "a.hfile"), keys[:300])
