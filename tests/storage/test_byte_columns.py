"""What is told of columns of bytes by a look at their layout."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.byte_columns import fresh, is_ascii, size_of_all

values = st.lists(st.binary(max_size=20) | st.text("abé", max_size=20).map(str.encode), max_size=9)


@given(values, st.integers(0, 3))
def test_ascii_is_found_where_it_is_in_slices_too(held: list[bytes], begin: int) -> None:
    column = pa.array(held, pa.binary())[begin:]
    assert is_ascii(column) == all(one.isascii() for one in held[begin:])


@pytest.mark.parametrize("place", [0, 7, 8, 15, 16, 17])
def test_one_byte_of_eight_bits_is_seen_wherever_it_stands(place: int) -> None:
    told = bytearray(b"a" * 18)
    told[place] = 0x80
    assert not is_ascii(pa.array([bytes(told)], pa.binary()))


def test_other_types_are_not_looked_at() -> None:
    assert not is_ascii(pa.array([b"a"], pa.large_binary()))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 5))
def test_the_size_of_all_is_told_where_they_have_one(sizes: list[int], begin: int) -> None:
    offsets = np.cumsum([begin, *sizes]).astype(np.int32)
    assert size_of_all(offsets) == (sizes[0] if len(set(sizes)) == 1 else -1)


def test_a_size_of_all_is_told_up_to_the_last_offset_there_can_be() -> None:
    most = (1 << 31) - 1
    assert size_of_all(np.array([most - 6, most - 3, most], np.int32)) == 3


@pytest.mark.parametrize("size", [0, 1, 2 << 20, (2 << 20) + 1, (4 << 20) - 1, 4 << 20, 5 << 20])
def test_fresh_memory_has_the_size_that_is_asked_for(size: int) -> None:
    memory = fresh(size)
    memory[:] = 7
    assert memory.nbytes == size
    assert not (memory != 7).any()
