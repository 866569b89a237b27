"""Hudi's bloom filters: those of real footers, and of a plain rewriting of the rules."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.filters.hudi import DYNAMIC, SIMPLE, FilterForm, HudiBloom, chained

KEYS = st.lists(st.text(min_size=1, max_size=40), max_size=40, unique=True)


def murmur(key: bytes, seed: int) -> int:
    """Hudi's hash, one key at a time, as the rules say it."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    state = (seed ^ len(key)) & mask
    for at in range(0, len(key) // 4 * 4, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        state = state * factor & mask ^ word
    left = len(key) % 4
    for back in range(left, 0, -1):
        signed = key[-back] - 256 if key[-back] > 127 else key[-back]
        state = (state ^ signed << 8 * (back - 1)) & mask
    state = state * factor & mask if left else state
    state = (state ^ state >> 13) * factor & mask
    return state ^ state >> 15


def plain_bits(keys: list[str], hashes: int, bits: int) -> bytes:
    flags = bytearray(-(-bits // 8))
    for key in keys:
        seed = 0
        for _ in range(hashes):
            seed = murmur(key.encode(), seed)
            place = abs(seed - (1 << 32) if seed >> 31 else seed) % bits
            flags[place >> 3] |= 1 << (place & 7)
    return bytes(flags)


def footers(interop: Path) -> Iterator[tuple[str, dict[bytes, bytes], pa.Array]]:
    """Every data file with a filter in its footer, out of the zipped tables."""
    archives = [
        *sorted((interop / "hudi").glob("*cow*.zip")),
        interop / "hudi-spark" / "cow_bloom_footer.zip",
    ]
    for archive in archives:
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if not name.endswith(".parquet") or "/.hoodie/" in name or "MACOSX" in name:
                    continue
                parquet = pq.ParquetFile(io.BytesIO(opened.read(name)))
                footer = parquet.metadata.metadata or {}
                if b"org.apache.hudi.bloomfilter" in footer:
                    keys = parquet.read(["_hoodie_record_key"]).column(0).combine_chunks()
                    yield f"{archive.name}/{name}", footer, keys


def test_filters_of_real_footers_are_rebuilt_byte_for_byte(interop: Path) -> None:
    rebuilt = 0
    for name, footer, keys in footers(interop):
        stored = footer[b"org.apache.hudi.bloomfilter"]
        code = footer[b"hoodie_bloom_filter_type_code"].decode()
        read = HudiBloom.from_base64(stored, code)
        assert read.to_base64() == stored, name
        assert read.might_contain(keys).all(), name
        if code == DYNAMIC and len(read.rows) == 1:
            fpp = fpp_of(read)
            ours = HudiBloom.build(keys, fpp, capacity=read.keys_a_row, type_code=code)
            assert ours.to_base64() == stored, name
            rebuilt += 1
    assert rebuilt >= 20


def fpp_of(filter_: HudiBloom) -> float:
    """The rate that gives this filter's size: Hudi's default, or ten times more and so on."""
    for power in range(1, 12):
        probe = HudiBloom.build(
            pa.array([], pa.string()), 10.0**-power, capacity=filter_.keys_a_row
        )
        if probe.bits == filter_.bits:
            return 10.0**-power
    raise AssertionError(filter_.bits)


@settings(deadline=None)
@given(KEYS, st.integers(1, 12), st.integers(1, 5000))
def test_bits_are_those_of_the_rules_taken_one_key_at_a_time(
    keys: list[str], hashes: int, bits: int
) -> None:
    fpp = 0.01
    built = HudiBloom.build(pa.array(keys, pa.string()), fpp)
    assert built.rows[0] == plain_bits(keys, built.hashes, built.bits)
    raw = struct.pack(">iibi", -1, hashes, 1, bits) + plain_bits(keys, hashes, bits)
    read = HudiBloom.from_base64(base64.b64encode(raw), SIMPLE)
    assert read.might_contain(pa.array(keys, pa.string())).all()


@settings(deadline=None)
@given(KEYS, KEYS)
def test_answers_are_the_same_for_every_order_and_slice(keys: list[str], others: list[str]) -> None:
    built = HudiBloom.build(pa.array(keys, pa.string()), 0.3)
    asked = pa.array(["x", *others, *keys], pa.string())
    one_by_one = [bool(built.might_contain(asked.slice(row, 1))[0]) for row in range(len(asked))]
    assert built.might_contain(asked).tolist() == one_by_one
    assert all(one_by_one[1 + len(others) :])


@given(st.lists(st.text(min_size=1), max_size=30), st.lists(st.text(min_size=1), max_size=30))
def test_keys_that_were_hashed_for_many_filters_get_the_same_answers(
    keys: list[str], others: list[str]
) -> None:
    asked = pa.array(["x", *keys, *others, "yy"], pa.string()).slice(1, len(keys) + len(others))
    chains = chained(asked, 20)
    for fpp in (0.3, 0.01, 1e-5):
        made = HudiBloom.build(pa.array(keys, pa.string()), fpp)
        told = made.might_contain_hashed(chains).tolist()
        assert told == made.might_contain(asked).tolist()
        assert made.might_contain_hashed(chains[:, 3:9]).tolist() == told[3:9]


def test_false_positives_are_about_as_many_as_asked_for() -> None:
    keys = pa.array([f"key-{row:08}" for row in range(40_000)])
    built = HudiBloom.build(keys, 0.01)
    absent = pa.array([f"other-{row:08}" for row in range(40_000)])
    assert built.might_contain(keys).all()
    assert 0.005 < built.might_contain(absent).mean() < 0.02


@pytest.mark.parametrize("code", [DYNAMIC, SIMPLE])
def test_filter_comes_back_as_it_was(code: str) -> None:
    built = HudiBloom.build(pa.array(["a", "bb", "日本語"]), 1e-3, type_code=code)
    assert HudiBloom.from_base64(built.to_base64(), code) == built


def test_filter_of_no_keys_denies_everything() -> None:
    built = HudiBloom.build(pa.array([], pa.string()), 1e-3)
    assert not built.might_contain(pa.array(["a", "b"])).any()


def test_every_row_of_a_dynamic_filter_is_asked() -> None:
    first = HudiBloom.build(pa.array(["a"]), 1e-3, capacity=100)
    second = HudiBloom.build(pa.array(["b"]), 1e-3, capacity=100)
    both = HudiBloom(DYNAMIC, first.hashes, first.bits, 100, 1, first.rows + second.rows)
    read = HudiBloom.from_base64(both.to_base64(), DYNAMIC)
    assert read.might_contain(pa.array(["a", "b", "c"])).tolist() == [True, True, False]


@settings(deadline=None)
@given(KEYS, KEYS)
def test_filter_that_grows_is_one_made_of_all_keys(keys: list[str], more: list[str]) -> None:
    held, new = pa.array(keys, pa.string()), pa.array(more, pa.string())
    built = HudiBloom.build(held, 0.01, capacity=100)
    grown = built.with_keys(new, 0.01, 1.0)
    if not len(held) + len(new):
        assert grown is None
        return
    assert grown == HudiBloom.build(pa.concat_arrays([held, new]), 0.01, capacity=100)
    assert built == HudiBloom.build(held, 0.01, capacity=100)


def test_filter_grows_only_as_what_it_was_made_for() -> None:
    keys, new = pa.array([f"k{row}" for row in range(20)]), pa.array(["a", "b"])
    built = HudiBloom.build(keys, 0.01)
    assert built.with_keys(new, 0.01, 1.1) is not None
    assert built.with_keys(new, 0.001, 1.1) is None
    assert built.with_keys(new, 0.01, 1.05) is None
    assert HudiBloom.build(keys, 0.01, type_code=SIMPLE).with_keys(new, 0.01, 9) is None
    assert replace(built, rows=built.rows * 2).with_keys(new, 0.01, 9) is None
    for count in (0, -5):  # from disk
        assert replace(built, keys_a_row=count).with_keys(new, 0.01, 9) is None


def test_the_form_of_a_filter_is_told_by_the_beginning_of_its_text() -> None:
    for count in (1, 2, 20, 3000):
        built = HudiBloom.build(pa.array([f"k{row}" for row in range(count)]), 0.01)
        text = built.to_base64()
        form = FilterForm.of_base64(text)
        assert form == FilterForm(built.hashes, built.bits, count, count)
        assert form.holds(0, 0.01, 1.0)
        assert not form.holds(0, 0.001, 1.0)
        assert not form.holds(count, 0.01, 1.9)
        two = replace(built, rows=built.rows * 2).to_base64()
        simple = HudiBloom.build(pa.array(["k"]), 0.01, type_code=SIMPLE).to_base64()
        for other in (two, simple, text[:-4], text + b"AAAA", text[:20], b"", b"A", b"!" * 60):
            assert FilterForm.of_base64(other) is None


def test_keys_of_other_string_layouts_hash_the_same() -> None:
    keys = pa.array(["a", "bcdefghi"])
    built = HudiBloom.build(keys, 1e-3)
    assert built == HudiBloom.build(keys.cast(pa.large_string()), 1e-3)
    assert built == HudiBloom.build(pa.array(["zz", "a", "bcdefghi"]).slice(1), 1e-3)


@pytest.mark.parametrize("keys", [["a", None], ["a", ""]])
def test_null_and_empty_keys_are_refused(keys: list[str | None]) -> None:
    with pytest.raises(UsageError):
        HudiBloom.build(pa.array(keys, pa.string()), 1e-3)


def test_damaged_filters_are_reported() -> None:
    good = base64.b64decode(HudiBloom.build(pa.array(["a"]), 1e-3).to_base64())
    for cut in range(len(good)):
        with pytest.raises((CorruptError, UpgradeError)):
            HudiBloom.from_base64(base64.b64encode(good[:cut]), DYNAMIC, "f")
    with pytest.raises(CorruptError, match="not base64"):
        HudiBloom.from_base64("§§", DYNAMIC, "f")
    with pytest.raises(UpgradeError, match="unknown bloom filter"):
        HudiBloom.from_base64(base64.b64encode(good), "XOR", "f")


def test_a_filter_with_the_old_hash_is_refused() -> None:
    raw = struct.pack(">iibi", -1, 3, 0, 64) + bytes(8)
    with pytest.raises(UpgradeError, match="old form"):
        HudiBloom.from_base64(base64.b64encode(raw), SIMPLE)


def test_a_lone_row_cannot_claim_more_bits_than_it_has() -> None:
    raw = struct.pack(">iibi", -1, 3, 1, (1 << 31) - 1) + bytes(8)
    with pytest.raises(CorruptError, match="wrong length"):
        HudiBloom.from_base64(base64.b64encode(raw), SIMPLE)


def test_a_filter_for_more_keys_than_there_can_be_does_not_last() -> None:
    assert not FilterForm(10, 100, (1 << 31) - 1, 1).holds(0, 1e-9, 1.1)


def test_a_filter_of_more_hashes_than_any_rate_takes_is_refused() -> None:
    """Each is a pass over all keys that are asked."""
    raw = struct.pack(">iibi", -1, (1 << 31) - 1, 1, 64) + bytes(8)
    with pytest.raises(CorruptError, match="too many hashes"):
        HudiBloom.from_base64(base64.b64encode(raw), SIMPLE, "f")
    least = HudiBloom.build(pa.array(["a"]), 5e-324)
    assert HudiBloom.from_base64(least.to_base64(), DYNAMIC, "f") == least


def test_long_keys_span_several_chunks() -> None:
    keys = pa.array([f"{row:x}" * (1 + row % 50) for row in range(70_000)])
    built = HudiBloom.build(keys, 1e-2)
    some = np.random.default_rng(0).choice(len(keys), 300, replace=False)
    assert built.might_contain(keys.take(pa.array(some))).all()
    bits = np.unpackbits(np.frombuffer(built.rows[0], np.uint8)).mean()
    assert 0.4 < bits < 0.6, json.dumps(bits)


@pytest.mark.parametrize("long", [1, 4, 40], ids=["one", "a few", "too many to go alone"])
def test_keys_far_longer_than_others_are_hashed_by_the_same_rules(long: int) -> None:
    """Some go one by one: their bytes, and those of the others, are where they were."""
    others, far_longer = (
        [f"key {row:02}" for row in range(20)],
        [f"ü{row}" * 2000 for row in range(long)],
    )
    keys = [*others, *far_longer, "last"]
    of_one_size = [*others[:5], *far_longer[:1], *others[5:9], *far_longer[1:], *others[9:10]]
    for some in (keys, keys[::-1], far_longer, of_one_size):
        built = HudiBloom.build(pa.array(["x", *some]).slice(1), 0.01)
        assert built.rows[0] == plain_bits(some, built.hashes, built.bits)
        half = HudiBloom.build(pa.array(some[::2]), 0.01)
        alone = [bool(half.might_contain(pa.array([key]))[0]) for key in some]
        assert half.might_contain(pa.array(some)).tolist() == alone
        assert half.might_contain_hashed(chained(pa.array(some), half.hashes)).tolist() == alone
