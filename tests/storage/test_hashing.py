"""Column hashes against the `xxhash` package, hashlib, and Java's rule written out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage import hashing, java_hash
from metatable.storage import quick_hash as quick
from metatable.storage.errors import UsageError
from metatable.storage.hashing import (
    LONG_BYTES,
    md5,
    md5_one,
    xxh64,
    xxh64_one,
    xxh64_pair,
)
from metatable.storage.java_hash import java_string_hash
from metatable.storage.quick_hash import quick_hash

HUDI_SEED = 0xFFFFFFFF_DABADABA
SEEDS = (42, HUDI_SEED, 0, (1 << 64) - 1)
KINDS = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]

values_of_any_length = st.lists(st.binary(max_size=140), max_size=40)
seeds = st.integers(0, (1 << 64) - 1)


@pytest.fixture(autouse=True, params=["one by one", "in columns"], scope="module")
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """A handful of values is hashed as they are few, and as if they were many."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in columns":
            patch.setattr(hashing, "FEW_ROWS", -1)
            patch.setattr(quick, "FEW_ROWS", 1)
        yield


def expected(values: list[bytes], seed: int) -> list[int]:
    return [xxhash.xxh64_intdigest(value, seed) for value in values]


def hash_of_java(text: str) -> int:
    h = 0
    units = text.encode("utf-16-le")
    for i in range(0, len(units), 2):
        h = (31 * h + units[i] + 256 * units[i + 1]) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize("width", range(101))
def test_values_of_one_length_hash_as_xxhash_does(width: int) -> None:
    values = [np.random.default_rng([width, i]).bytes(width) for i in range(5)]
    for seed in SEEDS:
        assert xxh64(pa.array(values, pa.binary()), seed).tolist() == expected(values, seed)
        if width:
            fixed = pa.array([b"?" * width, *values], pa.binary(width))[1:]
            assert xxh64(fixed, seed).tolist() == expected(values, seed)


@given(values_of_any_length, seeds, st.sampled_from(KINDS), st.integers(0, 5))
@settings(deadline=None)
def test_values_of_any_length_hash_as_xxhash_does(
    values: list[bytes], seed: int, kind: pa.DataType, skipped: int
) -> None:
    column = pa.array(values, kind)[skipped:]
    assert xxh64(column, seed).tolist() == expected(values[skipped:], seed)


def test_chunks_and_length_groups_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hashing, java_hash):
        monkeypatch.setattr(module, "CHUNK_ROWS", 7)
    monkeypatch.setattr(hashing, "RAGGED_ROWS", 100)
    monkeypatch.setattr(hashing, "GROUP_ROWS", 5)
    rng = np.random.default_rng(1)
    values = [rng.bytes(int(rng.integers(0, 70))) for _ in range(450)]
    values[100:200] = [rng.bytes(36) for _ in range(100)]
    parts = [pa.array(values[:250], pa.binary()), pa.array(values[250:], pa.binary())]
    assert xxh64(pa.chunked_array(parts), 7).tolist() == expected(values, 7)
    java = [value.hex() for value in values]
    assert java_string_hash(pa.array(java)).tolist() == [hash_of_java(text) for text in java]


def test_very_long_values_hash_among_short_ones() -> None:
    values = [b"a", b"x" * (LONG_BYTES - 1), b"y" * LONG_BYTES, b"", b"z" * (3 * LONG_BYTES + 5)]
    assert xxh64(pa.array(values, pa.binary())).tolist() == expected(values, 42)
    assert xxh64(pa.array(values[2:3] * 2, pa.binary())).tolist() == expected(values[2:3] * 2, 42)


@given(values_of_any_length, seeds, seeds)
@settings(deadline=None)
def test_a_pair_of_hashes_is_two_hashes(values: list[bytes], one: int, two: int) -> None:
    pair = xxh64_pair(pa.array(values, pa.binary()), (one, two))
    assert pair.tolist() == [expected(values, one), expected(values, two)]


def test_golden_vectors_of_hudi_and_spark() -> None:
    golden = {
        "driver": 0x023A49ECDD600597,
        "_hoodie_record_key": 0xB92246743895AFF9,
        "region=us": 0xE37D531D34F03B94,
        ".": 0x1574E11F07A52133,
        "": 0x0D6FDE68D55B45DA,
        "日本": 0xE2AA32A31545CE8F,
    }
    assert xxh64(pa.array(list(golden)), HUDI_SEED).tolist() == list(golden.values())
    assert xxh64_one(b"driver", HUDI_SEED) == golden["driver"]
    assert xxh64_one((7).to_bytes(4, "little")) == 0x26ACCD7F28005477  # Spark: lit(7)


@pytest.mark.parametrize("column", [pa.array(["a", None]), pa.array([None], pa.binary())])
def test_nulls_are_refused(column: pa.Array) -> None:
    for hash_of in (xxh64, md5, java_string_hash):
        with pytest.raises(UsageError, match="null"):
            hash_of(column)


def test_columns_without_bytes_are_refused() -> None:
    with pytest.raises(UsageError, match="int64"):
        xxh64(pa.array([1, 2]))


def test_no_rows_give_no_hashes() -> None:
    for column in (pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.nulls(0)):
        assert xxh64(column).tolist() == []
        assert java_string_hash(column).tolist() == []
        assert len(md5(column)) == 0


@given(st.lists(st.binary(max_size=80), max_size=20))
@settings(deadline=None)
def test_md5_is_hashlibs(values: list[bytes]) -> None:
    digests = [hashlib.md5(value).digest() for value in values]
    assert md5(pa.array(values, pa.binary())).to_pylist() == digests
    assert [md5_one(value) for value in values] == digests


@given(st.lists(st.text(max_size=60), max_size=20), st.integers(0, 3))
@settings(deadline=None)
def test_java_string_hash_goes_over_utf16_units(texts: list[str], skipped: int) -> None:
    column = pa.array(texts, pa.string())[skipped:]
    assert java_string_hash(column).tolist() == [hash_of_java(text) for text in texts[skipped:]]


def test_java_string_hash_knows_hudis_golden_vectors() -> None:
    golden = {
        "334e26e9-8355-45cc-97c6-c31daf0df330": 1880221124,
        "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa": -117635293,
        "TXN-009": -166313930,
        "Uber$": 81519434,
        "\x00$": 36,
        "polygenelubricants": -(1 << 31),
        "AjpJ7N1gBZc=6Hj+sBy+gvM=0VV0SYFvRHPGdIGkp/dZ+A==": -173401780,
    }
    assert java_string_hash(pa.array(list(golden))).tolist() == list(golden.values())


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=20), st.binary(max_size=9))
def test_quick_hashes_are_equal_where_pieces_are(pieces: list[bytes], before: bytes) -> None:
    pieces += [pieces[0], pieces[0] + b"\0", pieces[-1]]
    data = np.frombuffer(before + b"".join(pieces), np.uint8)
    sizes = np.array([*map(len, pieces)], np.int64)
    hashes = quick_hash(data, len(before) + np.cumsum(sizes) - sizes, sizes).tolist()
    assert len({*zip(pieces, hashes, strict=True)}) == len({*pieces}) == len({*hashes})
    [alone] = quick_hash(np.frombuffer(pieces[0], np.uint8), np.zeros(1, np.int64), sizes[:1])
    assert hashes[0] == alone


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 21, 60])
def test_quick_hashes_of_pieces_of_one_size_are_those_of_each_alone(size: int, gap: int) -> None:
    """Whatever lies behind them, and whether or not a piece of another size is among them."""
    count, step = 100, size + gap
    data = np.random.default_rng(7).integers(0, 256, count * step, np.uint8)
    starts, sizes = step * np.arange(count), np.full(count, size)
    found = quick_hash(data, starts, sizes)
    for row in range(count):
        alone = quick_hash(data[starts[row] :][:size], np.zeros(1, np.int64), sizes[:1])
        assert found[row] == alone[0]
    sizes[50] -= 1
    among = quick_hash(data, starts, sizes)
    assert np.flatnonzero(among != found).tolist() == [50]
