"""XXH32 of columns against the `xxhash` package."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import xxh32 as module
from metatable.storage.errors import UsageError
from metatable.storage.xxh32 import LONG_BYTES, xxh32


def expected(values: list[bytes], seed: int) -> list[int]:
    return [xxhash.xxh32_intdigest(value, seed) for value in values]


@given(st.lists(st.binary(max_size=70), max_size=40), st.integers(0, (1 << 32) - 1))
def test_values_of_any_length_hash_as_the_package_says(values: list[bytes], seed: int) -> None:
    assert xxh32(pa.array(values, pa.binary()), seed).tolist() == expected(values, seed)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_all_ways_to_hold_bytes_hash_the_same(kind: pa.DataType) -> None:
    values = [bytes(range(size)) for size in (0, 3, 4, 15, 16, 17, 40)] * 3
    column = pa.chunked_array([pa.array(values[:5], kind), pa.array(values[5:], kind).slice(1)])
    assert xxh32(column).tolist() == expected(values[:5] + values[6:], 0)


def test_many_rows_are_gathered_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHERED_BYTES", 64)
    values = [f"k{number:09}".encode() for number in range(50)]
    assert xxh32(pa.array(values)).tolist() == expected(values, 0)


@pytest.mark.parametrize("size", [LONG_BYTES - 1, LONG_BYTES, 3 * LONG_BYTES])
def test_long_values_hash_as_short_ones_do(size: int) -> None:
    values = [b"x" * size, b"", b"y" * size]
    assert xxh32(pa.array(values), 7).tolist() == expected(values, 7)


def test_nulls_are_refused() -> None:
    with pytest.raises(UsageError, match="null"):
        xxh32(pa.array([b"a", None]))
