"""Footers read alone, and Parquet's own filters: of pyarrow's files, and of damaged ones."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.hashing import xxh64
from metatable.storage.parquet.bloom_filter import SEED, read_bloom_filters
from metatable.storage.parquet.footer import TAIL_BYTES, read_footer
from metatable.storage.store import Store

KEYS = pa.array([f"key-{number:05}" for number in range(900)] + ["naïve", "\U0001f600"])


def parquet_bytes(words: dict[str, str] | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema({"key": pa.string()}), **options) as writer:
        writer.write_table(pa.table({"key": KEYS}), row_group_size=300)
        if words:
            writer.add_key_value_metadata(words)
    return sink.getvalue()


def stored(tmp_path: Path, raw: bytes) -> tuple[Store, str, int]:
    store = Store(tmp_path, {"durable": "false"})
    store.put("f.parquet", raw)
    return store, "f.parquet", len(raw)


def test_a_footer_is_read_by_one_request_for_the_tail(tmp_path: Path) -> None:
    given = stored(tmp_path, parquet_bytes(compression="none", use_dictionary=False))
    before = given[0].counters["store.requests"]
    assert read_footer(*given)[1].num_rows == len(KEYS)
    assert given[0].counters["store.requests"] == before + 1
    assert given[0].counters["store.bytes_read"] == min(given[2], TAIL_BYTES)


def test_what_a_long_footer_has_before_the_tail_is_read_by_a_second_request(
    tmp_path: Path,
) -> None:
    word = "x" * (3 * TAIL_BYTES)
    given = stored(tmp_path, bytes(TAIL_BYTES) + parquet_bytes({"long": word}))
    before = given[0].counters["store.requests"]
    assert read_footer(*given)[1].metadata[b"long"].decode() == word
    assert given[0].counters["store.requests"] == before + 2
    length = int.from_bytes(given[0].get("f.parquet")[-8:-4], "little")  # type: ignore[index]
    assert given[0].counters["store.bytes_read"] == length + 8 + given[2]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "too short"),
        (b"PAR1\0\0\0\0PAR", "too short"),
        (b"PAR1\0\0\0\0PARE", "not a Parquet file: .*found=b'PARE'"),
        (b"PAR1\x01\0\0\0PAR1", "footer is longer than its file"),
        (b"PAR1" + b"\xff\xff\xff\xff" + b"PAR1", "footer is longer than its file"),
        (b"PAR1" + bytes(30) + b"\x1e\0\0\0PAR1", "footer is not readable"),
    ],
)
def test_what_is_no_parquet_file_is_damage(tmp_path: Path, raw: bytes, told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        read_footer(*stored(tmp_path, raw))


def test_a_file_that_is_shorter_than_it_should_be_is_damage(tmp_path: Path) -> None:
    store, path, size = stored(tmp_path, parquet_bytes())
    with pytest.raises(CorruptError, match="file ends too early"):
        read_footer(store, path, size + 10)
    with pytest.raises(CorruptError, match="file is missing"):
        read_footer(store, "g.parquet", size)


def test_a_footer_for_which_there_is_no_memory_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    given = stored(tmp_path, parquet_bytes())
    monkeypatch.setattr("pyarrow.parquet.read_metadata", fails)
    with pytest.raises(MemoryError, match="malloc"):
        read_footer(*given)


# filters


def with_filters(tmp_path: Path, **options: Any) -> tuple[Store, str, int, list[tuple[int, int]]]:
    wanted = {"bloom_filter_options": {"key": {"ndv": 300, "fpp": 1e-3}}}
    given = stored(tmp_path, parquet_bytes(**(wanted | options)))
    _, footer = read_footer(*given)
    chunks = [footer.row_group(group).column(0) for group in range(footer.num_row_groups)]
    if not hasattr(chunks[0], "bloom_filter_offset"):
        pytest.skip("this pyarrow does not tell where filters lie")
    return *given, [(one.bloom_filter_offset, one.bloom_filter_length) for one in chunks]


@pytest.mark.parametrize("told", [True, False], ids=["with lengths", "without"])
def test_filters_of_pyarrow_pass_their_keys_and_deny_others(tmp_path: Path, told: bool) -> None:
    store, path, size, places = with_filters(tmp_path)
    asked = [(offset, length if told else None) for offset, length in places]
    filters = read_bloom_filters(store, path, size, asked)
    assert filters is not None
    assert len(filters) == 4
    for place, one in enumerate(filters):
        own = KEYS.slice(300 * place, 300)
        assert one.might_contain(xxh64(own, SEED)).all()
        assert one.might_contain(xxh64(KEYS, SEED)).sum() < len(own) + 20
    absent = pa.array([f"other-{number}" for number in range(10_000)])
    assert filters[0].might_contain(xxh64(absent, SEED)).mean() < 0.01


def test_filters_that_lie_together_are_read_by_one_request(tmp_path: Path) -> None:
    store, path, size, places = with_filters(tmp_path)
    before = store.counters["store.requests"]
    read_bloom_filters(store, path, size, places)
    assert store.counters["store.requests"] == before + 1
    read_bloom_filters(store, path, size, [(offset, None) for offset, _ in places])
    assert store.counters["store.requests"] == before + 3


HEADER = bytes.fromhex("15401c1c00001c1c00001c1c000000")
"""32 bytes, split block, XXH64, uncompressed."""


@pytest.mark.parametrize("told", [True, False], ids=["with lengths", "without"])
@pytest.mark.parametrize("place", [3, 7, 11], ids=["algorithm", "hash", "compression"])
def test_a_filter_of_an_unknown_kind_is_as_good_as_none(
    tmp_path: Path, place: int, told: bool
) -> None:
    raw = bytearray(HEADER + b"\xff" * 32)
    raw[place] = 0x2C  # another member of the union
    given = stored(tmp_path, bytes(raw))
    assert read_bloom_filters(*given, [(0, len(raw) if told else None)]) is None


@pytest.mark.parametrize("told", [True, False], ids=["with lengths", "without"])
@pytest.mark.parametrize(
    ("raw", "offset", "what"),
    [
        (HEADER + b"\xff" * 31, 0, "cut short|outside of its file"),
        (HEADER.replace(b"\x15\x40", b"\x15\x42") + bytes(99), 0, "impossible size"),
        (HEADER.replace(b"\x15\x40", b"\x15\x00") + bytes(99), 0, "impossible size"),
        (HEADER.replace(b"\x15\x40", b"\x15\x3f") + bytes(99), 0, "impossible size"),
        (b"\x18\x01a" + HEADER[2:] + bytes(99), 0, "impossible size"),
        (b"\x15" + b"\xff" * 20, 0, "thrift is damaged"),
        (HEADER + bytes(32), 1 << 40, "outside of its file"),
        (HEADER + bytes(32), -3, "outside of its file"),
    ],
)
def test_a_damaged_filter_is_told(
    tmp_path: Path, raw: bytes, offset: int, what: str, told: bool
) -> None:
    given = stored(tmp_path, raw)
    with pytest.raises(CorruptError, match=what):
        read_bloom_filters(*given, [(offset, len(raw) if told else None)])


def test_a_length_beyond_the_file_is_not_read(tmp_path: Path) -> None:
    given = stored(tmp_path, HEADER + bytes(32))
    with pytest.raises(CorruptError, match="outside of its file"):
        read_bloom_filters(*given, [(0, 1 << 40)])


def test_filters_that_lie_over_each_other_are_damage(tmp_path: Path) -> None:
    """A footer may tell of as many row groups as it likes that have one and the same."""
    raw = HEADER.replace(b"\x15\x40", b"\x15\x80\x80\x04") + bytes(1 << 15)
    given = stored(tmp_path, raw + bytes(64 << 10))
    assert len(read_bloom_filters(*given, [(0, len(raw))] * 2) or ()) == 2
    for length in (None, len(raw)):
        with pytest.raises(CorruptError, match="lie over each other"):
            read_bloom_filters(*given, [(0, length)] * 100_000)


def test_flipped_bytes_of_filters_are_damage_or_an_answer(tmp_path: Path) -> None:
    draw = random.Random(3)
    sound = HEADER + bytes(range(32))
    hashes = np.arange(50, dtype=np.uint64)
    for _ in range(300):
        raw = bytearray(sound)
        for _ in range(draw.choice([1, 1, 2, 5])):
            raw[draw.randrange(len(HEADER))] = draw.randrange(256)
        given = stored(tmp_path, bytes(raw))
        try:
            filters = read_bloom_filters(*given, [(0, draw.choice([None, len(raw)]))])
        except CorruptError:
            continue
        for one in filters or []:
            assert len(one.might_contain(hashes)) == 50


def test_flipped_bytes_of_a_footer_are_damage_or_a_footer(tmp_path: Path) -> None:
    draw = random.Random(5)
    sound = parquet_bytes()
    length = int.from_bytes(sound[-8:-4], "little")
    for _ in range(300):
        raw = bytearray(sound[-length - 8 :])
        for _ in range(draw.choice([1, 1, 2, 5])):
            raw[draw.randrange(length)] = draw.randrange(256)
        given = stored(tmp_path, b"PAR1" + bytes(raw))
        try:
            assert read_footer(*given)[1].num_columns >= 0
        except CorruptError:
            continue
