"""Records that are all of one size: searched where they lie, and what that is held to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metatable.storage.byte_columns import from_voids, of_one_size, voids
from metatable.storage.errors import CorruptError
from metatable.storage.hfile import record_sizes
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import LASTKEY, decode_file_info, encode_file_info
from metatable.storage.hfile.key_values import encode_records
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import many_keys
from metatable.storage.hfile.reading.alike import Alike, Hits
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, folder
from tests.storage.hfile.raw_file import DATA
from tests.storage.hfile.sound_files import Form, laid_out

COUNT = 4_000
NOISE = np.random.default_rng(5).bytes(16 * COUNT)
HASHES = sorted(NOISE[at : at + 16] for at in range(0, len(NOISE), 16))
SHAPES = {
    "hashes": HASHES,
    "words": sorted({one[:8] for one in HASHES}),
    "counted": [b"%036d" % number for number in range(COUNT)],
    "behind what all begin with": sorted(b"order-" + one for one in HASHES),
    "pairs that begin alike": sorted({one[:8] + bytes((end,)) for one in HASHES for end in (1, 7)}),
    "late": sorted({b"customers/" + one[:1] + b"/orders/" + one[1:3] for one in HASHES}),
}
MANY, FEW = 0, 1 << 40


def put(store: Store, keys: list[bytes], codec: Codec, **options: int) -> HFileReader:
    with HFileWriter(store, "a.hfile", block_size_bytes=4096, codec=codec, **options) as file:  # type: ignore[arg-type]
        file.add(binary(keys), binary(key[-3:] + b"!" for key in keys))
    return cold(store, "a.hfile")


@pytest.fixture(params=[MANY, FEW], ids=["as many keys", "as few"])
def bisected_below(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    most: int = request.param
    monkeypatch.setattr(many_keys, "FEW_KEYS", most)
    return most


@pytest.mark.each_once
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_of_one_size_are_answered_as_a_dict_does(
    tmp_path: Path, codec: Codec, shape: str, bisected_below: int
) -> None:
    keys = SHAPES[shape]
    held = {key: key[-3:] + b"!" for key in keys[::3]}
    file = put(folder(tmp_path), list(held), codec, index_chunk_bytes=900)
    ends = [bytes(len(keys[0])), b"\xff" * len(keys[0])]
    for asked in (keys, sorted([*keys[40:900:7], *keys[::3][:40], *ends]), [keys[0]] * 3, ends[:1]):
        expected = [held.get(key) for key in asked]
        assert file.get_sorted(binary(asked)).to_pylist() == expected
        for _ in range(2):  # the second time from the cache
            hits = file.find_alike(voids(of_one_size(binary(asked))))
            if hits is not None:
                assert from_voids(hits[1], hits[0]).to_pylist() == expected
                assert not hits[1][~hits[0]].tobytes().strip(b"\0")


def test_hashes_are_found_where_they_lie(tmp_path: Path, bisected_below: int) -> None:
    file = put(folder(tmp_path), HASHES, Codec.NONE)
    assert file.find_alike(voids(of_one_size(binary(HASHES)))) is not None


@pytest.mark.parametrize("kept", [16, 0], ids=["few", "many"])
def test_keys_that_eight_bytes_do_not_tell_apart_are_left_to_others(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_keys, "FEW_KEYS", MANY)
    keys = SHAPES["pairs that begin alike"]
    file = put(folder(tmp_path), keys, Codec.NONE)
    asked = voids(of_one_size(binary([key for key in keys if key[-1] == 7][kept and -kept :])))
    assert file.find_alike(asked) is None


def test_other_sizes_and_other_files_are_left_to_others(tmp_path: Path) -> None:
    asked = voids(of_one_size(binary(HASHES[:9])))
    short = voids(of_one_size(binary([key[:9] for key in HASHES[:9]])))
    file = put(folder(tmp_path), HASHES, Codec.NONE)
    assert file.find_alike(short) is None
    assert file.find_alike(asked[:0]) is not None
    mixed = put(folder(tmp_path / "mixed"), sorted([b"odd", *HASHES]), Codec.NONE)
    assert mixed.find_alike(asked) is None


@pytest.mark.parametrize("told", [(16, 3), (16, 4)], ids=["another stride", "the same stride"])
def test_sizes_of_all_records_that_are_not_true_are_reported(
    told: tuple[int, int],
    bisected_below: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "metatable.storage.hfile.writer.record_sizes.encode_fact",
        lambda *_: record_sizes._FACT.pack(*told),
    )
    store = Store(f"memory://alike{told}{bisected_below}")
    with HFileWriter(store, "a.hfile", block_size_bytes=4096, codec=Codec.NONE) as file:
        file.add(binary(key[:15] for key in HASHES), binary(key[:5] for key in HASHES))
    with pytest.raises(CorruptError, match="sizes"):
        cold(store, "a.hfile").find_alike(voids(of_one_size(binary(HASHES[5:90]))))


@pytest.fixture
def block() -> bytearray:
    """The payload of one block: the first hundred hashes."""
    return bytearray(encode_records(binary(HASHES[:100]), binary(b"%04d" % n for n in range(100))))


def ask(block: bytearray, places: list[int], few: bool) -> Hits | None:
    alike, cuts = Alike(16, 4, "a.hfile"), np.array([0, len(places)])
    wanted = voids(of_one_size(binary(HASHES[place] for place in places)))
    if few:
        return alike.find_few([bytes(block)], [0], wanted, cuts)
    return alike.find(Payloads.of(np.frombuffer(block, np.uint8), [len(block)]), 0, wanted, cuts)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("at", [3, 5, 9, 29, 35], ids=str)
def test_a_record_that_says_otherwise_is_reported_where_it_is_the_answer(
    block: bytearray, few: bool, at: int
) -> None:
    record = 50 * Alike(16, 4, "").stride
    block[record + at] ^= 4
    told = ask(block, [48, 49, 51], few)
    assert told is not None
    assert told[1].tobytes() == b"004800490051"
    with pytest.raises(CorruptError, match=f"sizes.*'a record at byte {record}'"):
        ask(block, [49, 50], few)


@pytest.mark.parametrize("few", [False, True])
def test_of_keys_that_are_not_there_none_is_found(block: bytearray, few: bool) -> None:
    told = ask(block, [100, 101, 3999], few)
    assert told is not None
    assert not told[0].any()


def test_many_keys_of_a_block_that_does_not_ascend_are_left_to_others(block: bytearray) -> None:
    stride = Alike(16, 4, "").stride
    block[:stride], block[-stride:] = block[-stride:], block[:stride]
    assert ask(block, [20, 40], few=False) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_key_is_answered_alike_before_and_after_its_records_were_found(codec: Codec) -> None:
    """Two records have changed places, which nobody who looks for one key has to see."""
    raw = laid_out(Form(codec, "equal", hints="sizes"))
    block = raw.of(DATA)[-1]
    half = len(block.payload) // 6
    first, second, rest = (
        block.payload[:half],
        block.payload[half : 2 * half],
        block.payload[2 * half :],
    )
    block.payload = second + first + rest
    facts = decode_file_info(raw.roots[2].payload, "", 0)
    del facts[LASTKEY]  # so that the last key is looked for
    raw.roots[2].payload = encode_file_info(facts)
    store = Store("memory://alike")
    store.put("a.hfile", raw.build())
    keys = [first[10:18], second[10:18], rest[10:18]]
    before = [cold(store, "a.hfile").get(key) for key in keys]
    file = cold(store, "a.hfile")
    assert file.last_key == rest[-half:][10:18]
    assert [file.get(key) for key in keys] == before
    assert before[2] is not None
    assert file.counters["hfile.blocks"] == 1
