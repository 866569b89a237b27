"""The split-block filter is Parquet's, bit for bit, and no larger than its rate needs."""

from __future__ import annotations

import inspect
import io
import re
import struct

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.filters import build, decode
from metatable.storage.filters import split_block as module
from metatable.storage.filters.split_block import SALTS, SplitBlock
from metatable.storage.hashing import xxh64

U64 = st.integers(0, (1 << 64) - 1)
HASHES = st.lists(U64, max_size=60)

# Of the hash 0x0123456789abcdef: bit (0x89abcdef * salt mod 2**32) >> 27 of each word.
ONE_KEY = "00040000 00080000 40000000 00800000 00000010 00010000 00001000 01000000"


def column(hashes: list[int]) -> np.ndarray:
    return np.array(hashes, np.uint64)


def bits_of(hash64: int, blocks: int) -> set[tuple[int, int, int]]:
    """(block, word, bit) of one hash, as Parquet's specification has it."""
    block = ((hash64 >> 32) * blocks) >> 32
    low = hash64 & 0xFFFFFFFF
    return {
        (block, word, ((low * int(salt)) & 0xFFFFFFFF) >> 27) for word, salt in enumerate(SALTS)
    }


def all_bits(made: SplitBlock) -> set[tuple[int, int, int]]:
    flags = np.unpackbits(made.words.view(np.uint8), bitorder="little")
    return {(int(at) // 256, int(at) % 256 // 32, int(at) % 32) for at in np.flatnonzero(flags)}


def test_salts_are_parquets() -> None:
    told = "47b6137b 44974d91 8824ad5b a2b7289d 705495c7 2df1424b 9efc4947 5c6bfb31"
    assert " ".join(f"{salt:08x}" for salt in SALTS) == told


def test_bits_of_one_key_are_the_golden_ones() -> None:
    made = SplitBlock.of(column([0x0123456789ABCDEF]), 1)
    assert " ".join(f"{word:08x}" for word in made.words[0]) == ONE_KEY


@settings(deadline=None)
@given(HASHES, HASHES, st.integers(1, 50))
def test_bits_and_answers_are_those_of_a_set(
    held: list[int], asked: list[int], blocks: int
) -> None:
    made = SplitBlock.of(column(held), blocks)
    made.check_invariants()
    expected = set().union(*(bits_of(one, blocks) for one in held))
    assert all_bits(made) == expected
    queries = asked + held
    answers = [bits_of(one, blocks) <= expected for one in queries]
    again = decode("split_block", made.encode())
    for one in (made, again):
        assert one.might_contain(column(queries)).tolist() == answers


def test_blocks_that_two_pieces_share_keep_the_bits_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = np.random.default_rng(1).integers(0, 1 << 64, 1000, np.uint64)
    whole = SplitBlock.of(hashes, 7)
    monkeypatch.setattr(module, "_PIECE", 3)
    assert (SplitBlock.of(hashes, 7).words == whole.words).all()
    assert (SplitBlock.of(hashes.repeat(2), 7).words == whole.words).all()


@pytest.mark.skipif(
    "bloom_filter_options" not in inspect.signature(pq.ParquetWriter).parameters
    and "bloom_filter_options" not in inspect.signature(pq.write_table).parameters,
    reason="this pyarrow writes no Bloom filters",
)
def test_bitset_is_the_one_that_arrow_writes_into_parquet() -> None:
    keys = pa.array([f"key-{number}" for number in range(3000)])
    file = io.BytesIO()
    options = {"key": {"ndv": len(keys), "fpp": 0.01}}
    pq.write_table(pa.table({"key": keys}), file, bloom_filter_options=options)
    # BloomFilterHeader in Thrift's compact form: its size, then three unions of empty structs
    found = re.search(rb"\x15(.{2,5}?)(?:\x1c\x1c\x00\x00){3}\x00", file.getvalue(), re.S)
    assert found is not None
    zigzag = sum((byte & 127) << 7 * at for at, byte in enumerate(found[1]))
    size = zigzag // 2
    bitset = file.getvalue()[found.end() : found.end() + size]
    made = SplitBlock.of(xxh64(keys, seed=0), size // 32)
    assert made.words.astype("<u4").tobytes() == bitset


@pytest.mark.parametrize("fpp", [0.3, 0.05, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("count", [1, 30, 1000, 100_000])
def test_measured_rate_is_at_most_the_one_asked_for(count: int, fpp: float) -> None:
    rng = np.random.default_rng(count)
    asked = rng.integers(0, 1 << 64, 1_000_000, np.uint64)
    made = build("split_block", rng.integers(0, 1 << 64, count, np.uint64), fpp)
    chance = 5 * (fpp / len(asked)) ** 0.5
    # few keys lie in few blocks, whose fill is a matter of luck
    luck = 1 if count >= 100_000 else 1 + 5 / count**0.5
    assert made.might_contain(asked).mean() <= (fpp + chance) * luck


@pytest.mark.parametrize(
    ("fpp", "bits"), [(0.05, 7.2), (0.01, 10.5), (1e-3, 16.9), (1e-4, 26.3), (1e-9, 318.4)]
)
def test_size_is_the_least_that_the_rate_needs(fpp: float, bits: float) -> None:
    made = SplitBlock.build(np.zeros(100_000, np.uint64), fpp)
    assert len(made.words) * 256 / 100_000 == pytest.approx(bits, abs=0.05)
    mean = 100_000 / len(made.words)
    assert module._rate(mean) <= fpp < module._rate(mean * 1.01)


def test_no_keys_make_one_empty_block() -> None:
    made = build("split_block", column([]), 0.01)
    assert made.encode()[:40] == struct.pack("<II", 1, 1) + bytes(32)
    assert made.might_contain(column([0, 5, (1 << 64) - 1])).tolist() == [False] * 3


def test_impossible_rates_and_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"lower than a split-block filter goes.*1e-12"):
        build("split_block", column([1]), 1e-13)
    monkeypatch.setattr(module, "_MOST_BLOCKS", 3)
    with pytest.raises(UsageError, match="too many keys for one filter: found=200"):
        build("split_block", column(list(range(200))), 0.01)


# Hostile bytes


@given(HASHES, st.data())
@settings(deadline=None)
def test_any_flipped_bit_is_reported(held: list[int], data: st.DataObject) -> None:
    body = bytearray(SplitBlock.build(column(held), 0.01).encode())
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((CorruptError, UpgradeError), match="p/f"):
        decode("split_block", bytes(body), "p/f")


def test_cut_and_lengthened_bytes_are_reported() -> None:
    body = SplitBlock.of(column([1, 2]), 2).encode()
    for damaged in [body[:kept] for kept in range(len(body))] + [body + b"\0", body * 2]:
        with pytest.raises(CorruptError, match="p/f"):
            decode("split_block", damaged, "p/f")


@pytest.mark.parametrize("count", [0, 1, 3, (1 << 32) - 1])
def test_counts_that_lie_are_reported_whatever_the_checksum(count: int) -> None:
    body = struct.pack("<II", 1, count) + bytes(64)
    with pytest.raises(CorruptError, match="filter has another size"):
        decode("split_block", body + struct.pack("<I", google_crc32c.value(body)))
    nothing = struct.pack("<II", 1, 0)
    with pytest.raises(CorruptError, match="too short"):
        decode("split_block", nothing + struct.pack("<I", google_crc32c.value(nothing)))


def test_unknown_versions_are_told() -> None:
    body = struct.pack("<II", 2, 1) + bytes(36)
    with pytest.raises(UpgradeError, match="unknown filter version"):
        decode("split_block", body, "p/f")
