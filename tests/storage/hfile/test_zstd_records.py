"""Frames made without looking for repeats: zstd unpacks them, and who knows them need not."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.arrays import UInt8s
from metatable.storage.byte_columns import from_voids
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.codec import ZSTD_REPEATS_ONLY, Codec, compress, decompress
from metatable.storage.hfile.key_values import RECORD_OVERHEAD, encode_records
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import passes
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.hfile.zstd_frames import are_frames
from metatable.storage.hfile.zstd_records import can_pack, pack_blocks, unpack_blocks
from metatable.storage.hfile.zstd_sequences import MOST_REPEATED, encode_sequences
from metatable.storage.store import Store
from tests.storage.hfile.making import folder

COUNT = 80


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return folder(tmp_path)


def rows(size: int, shared: int, blocks: int, count: int = COUNT) -> UInt8s:
    """Ascending keys, or values, of which those of a block begin alike: (n, size)."""
    told = np.random.default_rng(size * 100 + shared).integers(0, 256, (blocks * count, size))
    told[:, :shared] = np.repeat(np.arange(blocks) // 2, count)[:, None]
    told[::count, shared] = 1  # no more than these
    told[1::count, shared] = 2
    made = np.ascontiguousarray(told.astype(np.uint8))
    order = np.lexsort((*made[:, shared:].T[::-1], np.repeat(np.arange(blocks), count)))
    return np.ascontiguousarray(made[order])


def voids_of(table: UInt8s) -> np.ndarray:  # type: ignore[type-arg]
    return table.view((np.void, table.shape[1])).reshape(-1)


def packed(keys: UInt8s, values: UInt8s, count: int = COUNT) -> list[bytes]:
    return [bytes(one) for one in pack_blocks(voids_of(keys), voids_of(values), count)[1]]


def payload(keys: UInt8s, values: UInt8s) -> bytes:
    return bytes(encode_records(from_voids(voids_of(keys)), from_voids(voids_of(values))))


def arrays(stored: list[bytes]) -> list[UInt8s]:
    return [np.frombuffer(one, np.uint8) for one in stored]


SHAPES = [(16, 0, 4, 3), (16, 1, 4, 3), (16, 2, 4, 3), (16, 1, 4, 0), (20, 3, 8, 5), (40, 9, 1, 0)]


@pytest.mark.parametrize(("key", "key_shared", "value", "value_shared"), [*SHAPES, (3, 0, 50, 12)])
def test_zstd_unpacks_the_records_of_blocks_made_without_it(
    key: int, key_shared: int, value: int, value_shared: int
) -> None:
    keys, values = rows(key, key_shared, 5), rows(value, value_shared, 5)
    stored = packed(keys, values)
    size = COUNT * (key + value + RECORD_OVERHEAD)
    assert are_frames([memoryview(one) for one in stored], [size] * 5)
    assert b"".join(decompress(Codec.ZSTD, one, size) for one in stored) == payload(keys, values)
    found = unpack_blocks(arrays(stored), key, value)
    assert found is not None
    assert [one.tobytes() for one in found] == [keys.tobytes(), values.tobytes()]


def test_blocks_as_large_as_there_are_are_unpacked() -> None:
    count = (128 << 10) // 41
    keys, values = rows(16, 1, 2, count), rows(4, 3, 2, count)
    assert can_pack(count, 16, 4)
    assert not can_pack(count + 1, 16, 4)
    stored = packed(keys, values, count)
    assert b"".join(decompress(Codec.ZSTD, one, 41 * count) for one in stored) == payload(
        keys, values
    )


def test_a_block_with_any_byte_altered_is_unpacked_as_zstd_does_or_not_at_all() -> None:
    keys, values = rows(16, 1, 1), rows(4, 3, 1)
    [stored] = packed(keys, values)
    refused = 0
    for place in range(len(stored)):
        altered = bytearray(stored)
        altered[place] ^= 0x10
        found = unpack_blocks(arrays([bytes(altered)]), 16, 4)
        if found is None:
            refused += 1
            continue
        told = payload(*(one.view(np.uint8).reshape(COUNT, -1) for one in found))
        assert decompress(Codec.ZSTD, bytes(altered), len(told)) == told
    assert len(stored) - refused == 16 + 4 + 1 + (COUNT - 1) * 16  # keys and values alone


@pytest.mark.parametrize("size", [0, 3, 7, 8, 20, 100, 600])
def test_a_block_cut_short_is_not_unpacked(size: int) -> None:
    [stored] = packed(rows(16, 1, 1), rows(4, 3, 1))
    assert unpack_blocks(arrays([stored[:size]]), 16, 4) is None


def test_blocks_that_zstd_made_are_not_taken_for_such() -> None:
    keys, values = rows(16, 1, 3), rows(4, 3, 3)
    records = payload(keys, values)
    made = [
        compress(Codec.ZSTD, records[start:stop], zstd_level=ZSTD_REPEATS_ONLY)
        for start, stop in pairwise(range(0, len(records) + 1, 41 * COUNT))
    ]
    assert unpack_blocks(arrays(made), 16, 4) is None
    assert unpack_blocks(arrays(packed(keys, values)), 16, 4) is not None
    assert unpack_blocks(arrays([packed(keys, values)[0], made[1]]), 16, 4) is None


@pytest.mark.parametrize("far", [4, 41, 1000])
def test_zstd_follows_sequences_of_any_lengths(far: int) -> None:
    for literals, repeated in [
        (1, 3),
        (15, 34),
        (16, 35),
        (17, 66),
        (63, 98),
        (300, MOST_REPEATED),
    ]:
        lengths = [(far + 70, 5), *[(literals, repeated), (2, 4), (literals, 9)] * 50]
        told = np.random.default_rng(far).bytes(sum(one for one, _ in lengths) + 3)
        expected, at = bytearray(), 0
        for literal, repeat in lengths:
            expected += told[at : at + literal]
            at += literal
            for _ in range(repeat):
                expected.append(expected[-far])
        expected += told[at:]
        body = (12 | len(told) << 4).to_bytes(3, "little") + told + encode_sequences(lengths, far)
        block = (5 | len(body) << 3).to_bytes(3, "little")
        frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, len(expected)) + block + body
        found = pa.Codec("zstd").decompress(frame, len(expected), asbytes=True)
        assert found == bytes(expected), (literals, repeated)


def written(
    store: Store,
    name: str,
    keys: UInt8s,
    values: UInt8s,
    step: int,
    codec: Codec = Codec.ZSTD,
    *,
    plain: bool = False,
) -> bytes:
    columns = from_voids(voids_of(keys)), from_voids(voids_of(values))
    if plain:
        columns = columns[0].cast(pa.binary()), columns[1].cast(pa.binary())
    options = {"codec": codec, "zstd_level": ZSTD_REPEATS_ONLY, "block_size_bytes": 4096}
    with HFileWriter(store, name, index_chunk_bytes=300, **options) as file:  # type: ignore[arg-type]
        for start in range(0, len(keys), step):
            file.add(*(one[start : start + step] for one in columns))
    whole = store.get(name)
    assert whole is not None
    return whole


def test_a_file_of_such_blocks_is_read_whole_and_its_bytes_do_not_depend_on_batches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    of_blocks = passes.columns_of_blocks

    def counted(*given: object) -> object:
        made = of_blocks(*given)  # type: ignore[arg-type]
        taken.append(made is not None)
        return made

    monkeypatch.setattr(passes, "columns_of_blocks", counted)
    keys, values = rows(16, 0, 1, 30_000), rows(4, 3, 1, 30_000)
    wholes = [written(store, f"{step}", keys, values, step) for step in (30_000, 700, 97)]
    assert wholes[0] == wholes[1] == wholes[2]
    assert written(store, "plain", keys, values, 700, plain=True) == wholes[0]
    read = pa.Table.from_batches(HFileReader.open(store, "97").scan(step_bytes=64 << 10))
    for name, table in ("key", keys), ("value", values):
        assert b"".join(read[name].to_pylist()) == table.tobytes()
    assert taken[:-1] == [True] * (len(taken) - 1)
    assert not taken[-1], "the last block of a file is zstd's own"


def test_damage_in_such_a_block_is_found(store: Store) -> None:
    keys, values = rows(16, 0, 1, 3000), rows(4, 3, 1, 3000)
    whole = written(store, "sound", keys, values, 3000)
    for place in 40, 100, 900:
        store.put(f"{place}", whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
        with pytest.raises(CorruptError, match=r"checksum|header|magic"):
            list(HFileReader.open(store, f"{place}").scan(step_bytes=64 << 10))


def test_records_of_one_size_are_taken_from_where_uncompressed_blocks_lie(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    payloads = passes.Pass._payloads

    def counted(one: passes.Pass, group: object, stored: object, headers: object) -> object:
        joined.append(len(headers))  # type: ignore[arg-type]
        return payloads(one, group, stored, headers)  # type: ignore[arg-type]

    monkeypatch.setattr(passes.Pass, "_payloads", counted)
    keys, values = rows(16, 0, 1, 10_000), rows(4, 3, 1, 10_000)
    wholes = [written(store, f"{one}", keys, values, one, Codec.NONE) for one in (10_000, 97)]
    assert wholes[0] == wholes[1]
    read = pa.Table.from_batches(HFileReader.open(store, "97").scan(step_bytes=16 << 10))
    for name, table in ("key", keys), ("value", values):
        assert b"".join(read[name].to_pylist()) == table.tobytes()
    assert sum(joined) * 4 < len(wholes[0]) // 4096
