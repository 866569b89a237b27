"""Records whose keys have one size and whose values have several: searched where they lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.byte_columns import of_one_size, voids
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.key_values import encode_records
from metatable.storage.hfile.reading import even_keys, passes
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.even_keys import EvenKeys
from metatable.storage.hfile.writer import HFileWriter
from tests.storage.hfile.making import binary, cold, folder

COUNT = 3_000
NOISE = np.random.default_rng(11).bytes(16 * COUNT)
HASHES = sorted(NOISE[at : at + 16] for at in range(0, len(NOISE), 16))
SHAPES = {
    "hashes": HASHES,
    "texts": sorted(one.hex().encode() for one in HASHES),
    "words": sorted({one[:8] for one in HASHES}),
    "counted": [b"%036d" % number for number in range(COUNT)],
    "behind what all begin with": sorted(b"order-" + one for one in HASHES),
    "pairs that begin alike": sorted({one[:8] + bytes((end,)) for one in HASHES for end in (1, 7)}),
    "late": sorted({b"customers/" + one[:1] + b"/orders/" + one[1:3] for one in HASHES}),
}


def value(key: bytes) -> bytes:
    return key[-3:] * (key[-1] % 5)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether records were searched where they lie, of each group that was asked."""
    told: list[bool] = []
    find = EvenKeys.find

    def watched(*asked: Any) -> Any:
        found = find(*asked)
        told.append(found is not None)
        return found

    monkeypatch.setattr(EvenKeys, "find", watched)
    return told


@pytest.mark.each_once
@pytest.mark.parametrize("group_bytes", [5_000, 4 << 20])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.GZ])
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_of_one_size_are_answered_as_a_dict_does(
    tmp_path: Path,
    codec: Codec,
    shape: str,
    group_bytes: int,
    answered: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passes, "SEARCH_BYTES", group_bytes)
    keys = SHAPES[shape]
    held = {key: value(key) for key in keys[::3]}
    with HFileWriter(folder(tmp_path), "a.hfile", block_size_bytes=2048, codec=codec) as file:
        file.add(binary(held), binary(held.values()))
    ends = [bytes(len(keys[0])), b"\xff" * len(keys[0])]
    for asked in (keys, sorted([*keys[::7], *keys[::3][:40], *ends]), keys[1::3]):
        found = cold(folder(tmp_path), "a.hfile").get_sorted(binary(asked))
        assert found.to_pylist() == [held.get(key) for key in asked]
    assert all(answered) or shape in {"late", "pairs that begin alike"}
    assert answered


def payloads_of(blocks: list[list[bytes]]) -> Payloads:
    parts = [bytes(encode_records(binary(one), binary(map(value, one)))) for one in blocks]
    return Payloads.of(np.frombuffer(b"".join(parts), np.uint8), [len(one) for one in parts])


def ask(payloads: Payloads, blocks: list[list[bytes]], asked: list[bytes]) -> Any:
    sizes = np.array([len(value(key)) for one in blocks for key in one], np.uint8)
    counts = np.array([len(one) for one in blocks])
    wanted = voids(of_one_size(binary(asked)))
    even = EvenKeys.of(len(asked[0]), wanted, "a.hfile")
    assert even is not None
    return even.find(payloads, counts, sizes, 0, wanted)


letters = st.binary(min_size=3, max_size=3).map(lambda one: bytes(byte % 3 for byte in one))
keys_that_begin_alike = st.lists(
    st.tuples(letters, letters).map(lambda two: two[0] + bytes(6) + two[1]), min_size=2, unique=True
)


@given(keys_that_begin_alike, st.data())
def test_what_is_said_is_what_a_dict_says(keys: list[bytes], data: st.DataObject) -> None:
    held = sorted(keys[: -(-len(keys) // 2)])
    cut = data.draw(st.integers(1, len(held)))
    blocks = [one for one in (held[:cut], held[cut:]) if one]
    found = ask(payloads_of(blocks), blocks, sorted(keys))
    expected = {key: value(key) for key in held}
    if found is not None:
        assert found.to_pylist() == [expected.get(key) for key in sorted(keys)]


def test_more_undecided_keys_than_some_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SHAPES["pairs that begin alike"][:40]
    monkeypatch.setattr(even_keys, "MOST_UNSURE", 2)
    assert ask(payloads_of([keys]), [keys], [keys[1]]).to_pylist() == [value(keys[1])]
    assert ask(payloads_of([keys]), [keys], [keys[1], keys[3]]) is None


def test_keys_out_of_order_are_left_to_others() -> None:
    keys = [*HASHES[5:9], *HASHES[:5]]
    assert ask(payloads_of([keys]), [keys], HASHES[5:9]) is None


def test_keys_of_another_size_are_left_to_others() -> None:
    wanted = voids(of_one_size(binary(HASHES[:9])))
    short = voids(of_one_size(binary(key[:7] for key in HASHES[:9])))
    sizes = np.full(9, 16, np.uint8)
    for told, asked in ((15, wanted), (7, short), (sizes, wanted)):
        assert EvenKeys.of(told, asked, "") is None


def grown(raw: bytearray, at: int) -> None:
    raw[at + 7] += 1


def renamed(raw: bytearray, at: int) -> None:
    raw[at + 9] ^= 1


def deleted(raw: bytearray, at: int) -> None:
    raw[at + 10 + 16 + 9] = 8


@pytest.mark.parametrize("damage", [grown, renamed, deleted])
def test_a_record_that_says_otherwise_is_reported_where_it_is_the_answer(
    damage: Callable[[bytearray, int], None],
) -> None:
    keys = HASHES[:100]
    sound = payloads_of([keys])
    raw = bytearray(sound.raw.tobytes())
    at = raw.index(keys[50]) - 10
    damage(raw, at)
    bent = Payloads(np.frombuffer(raw, np.uint8), sound.starts, sound.ends)
    asked = [keys[48], keys[49], keys[51]]
    assert ask(bent, [keys], asked).to_pylist() == list(map(value, asked))
    with pytest.raises(CorruptError, match=f"sizes.*'a record at byte {at}'"):
        ask(bent, [keys], keys[49:51])


def test_the_last_record_of_each_block_is_proven_whatever_is_asked() -> None:
    blocks = [HASHES[:50], HASHES[50:90]]
    sound = payloads_of(blocks)
    for last in (HASHES[49], HASHES[89]):
        raw = bytearray(sound.raw.tobytes())
        renamed(raw, raw.index(last) - 10)
        bent = Payloads(np.frombuffer(raw, np.uint8), sound.starts, sound.ends)
        with pytest.raises(CorruptError, match="sizes"):
            ask(bent, blocks, HASHES[3:5])


def test_sizes_that_do_not_fill_their_blocks_are_reported() -> None:
    blocks = [HASHES[:50], HASHES[50:90]]
    with pytest.raises(CorruptError, match="sizes"):
        ask(payloads_of(blocks), [HASHES[:51], HASHES[51:90]], HASHES[:5])
