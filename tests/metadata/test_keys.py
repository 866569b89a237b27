"""Metadata keys against RFC-37 spelt out with the standard library, and the golden vectors."""

from __future__ import annotations

import base64
import hashlib

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.metadata.hfiles.keys import (
    HUDI_SEED,
    column_partition_prefix,
    column_prefix,
    decode_keys,
    file_group_keys,
    file_keys,
    hash_seeds,
    partition_prefix,
    partition_words,
    record_key_hash,
    stats_keys,
)
from metatable.storage.errors import CorruptError, UsageError

F1 = "8aa68f7e-afd6-4c94-b86c-8a886552e08d-0_2-1112-3192_20251220210129235.parquet"
PARTITION = "city=sao_paulo"
SALTS = (-6_000_000_000_000_000_000, 123_456_789)

texts = st.lists(st.text(max_size=40), max_size=20)


def hash_64(text: str) -> bytes:
    return xxhash.xxh64(text.encode(), seed=HUDI_SEED).digest()


def rfc_37(column: str | None, partition: str, file: str) -> bytes:
    raw = b"" if column is None else hash_64(column)
    raw += hash_64(partition or ".") + hashlib.md5(file.encode()).digest()
    return base64.b64encode(raw)


def test_keys_are_rfc_37s_golden_vectors() -> None:
    assert file_keys(PARTITION, F1).to_pylist() == [b"6Hj+sBy+gvPRVXRJgW9Ec8Z0gaSn91n4"]
    assert stats_keys("driver", PARTITION, F1).to_pylist() == [
        b"AjpJ7N1gBZfoeP6wHL6C89FVdEmBb0RzxnSBpKf3Wfg="
    ]


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=30))
def test_keys_of_columns_are_keys_of_their_rows(rows: list[tuple[str, str, str]]) -> None:
    columns, partitions, files = (pa.array([row[i] for row in rows], pa.string()) for i in range(3))
    stats = stats_keys(columns, partitions, files)
    assert stats.type == pa.binary()
    assert stats.to_pylist() == [rfc_37(*row) for row in rows]
    for keys in (file_keys(partitions, files), file_group_keys(partitions, files)):
        assert keys.to_pylist() == [rfc_37(None, *row[1:]) for row in rows]


@given(st.text(), st.text(), texts)
@settings(deadline=None)
def test_a_single_text_stands_for_a_column(column: str, partition: str, files: list[str]) -> None:
    keys = stats_keys(column, partition, pa.array(files, pa.string()))
    assert keys.to_pylist() == [rfc_37(column, partition, file) for file in files]


def test_repeated_texts_and_slices_give_the_same_keys() -> None:
    names = pa.array(["x", *(["a", "b", ""] * 30)])[1:]
    assert file_keys(names, "f").to_pylist() == [rfc_37(None, n, "f") for n in names.to_pylist()]


def test_an_unpartitioned_table_is_hashed_as_a_dot() -> None:
    assert file_keys("", "f") == file_keys(".", "f")
    assert file_keys(pa.array(["", "p"]), "f")[0] == file_keys(".", "f")[0]
    assert partition_prefix("") == partition_prefix(".") == b"FXThHwelIT"


@given(st.text(), st.text(), st.text())
@settings(deadline=None)
def test_keys_begin_with_their_prefixes(column: str, partition: str, file: str) -> None:
    (stats,) = stats_keys(column, partition, file).to_pylist()
    (of_file,) = file_keys(partition, file).to_pylist()
    assert len(column_prefix(column)) == len(partition_prefix(partition)) == 10
    assert len(column_partition_prefix(column, partition)) == 21
    assert stats.startswith(column_prefix(column))
    assert stats.startswith(column_partition_prefix(column, partition))
    assert of_file.startswith(partition_prefix(partition))


@given(texts)
@settings(deadline=None)
def test_decoded_keys_are_the_hashes(files: list[str]) -> None:
    column = pa.array(files, pa.string())
    for keys in (stats_keys("c", "p", column), file_keys("p", column)):
        expected = [base64.b64decode(key) for key in keys.to_pylist()]
        assert [row.tobytes() for row in decode_keys(keys, "files")] == expected


@pytest.mark.parametrize(
    "key", [b"", b"AAAA", b"!" * 32, b"A" * 44, b"A" * 43 + b"!", b"=" * 32, b"A" * 31 + b"\n"]
)
def test_what_is_no_key_is_reported(key: bytes) -> None:
    with pytest.raises(CorruptError, match=r"path='\.hoodie/metatable/column_stats'"):
        decode_keys(pa.array([key], pa.binary()), "column_stats")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="length"):
        file_keys(pa.array(["a", "b"]), pa.array(["c"]))
    with pytest.raises(UsageError, match="null"):
        file_keys(pa.array(["a", None]), "c")


@given(texts, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
@settings(deadline=None)
def test_record_key_hash_is_two_xxhashes_under_salted_seeds(
    keys: list[str], one: int, two: int
) -> None:
    seeds = [
        xxhash.xxh64_intdigest(salt.to_bytes(8, "little", signed=True), 42) for salt in (one, two)
    ]
    assert hash_seeds((one, two)) == tuple(seeds)
    hashes = record_key_hash(pa.array(keys, pa.string()), (one, two))
    assert hashes.type == pa.binary(16)
    assert hashes.to_pylist() == [
        b"".join(xxhash.xxh64(key.encode(), seed=seed).digest() for seed in seeds) for key in keys
    ]


def test_a_column_without_chunks_has_no_keys() -> None:
    none = pa.chunked_array([], pa.string())
    assert len(file_keys(none, none)) == len(stats_keys(none, none, none)) == 0


def test_keys_of_another_length_are_reported_with_their_place() -> None:
    with pytest.raises(CorruptError, match=r"path='\.hoodie/metatable/column_stats'"):
        partition_words(pa.array([b"A" * 32], pa.binary()))
