"""Sorted streams merged into one, held against a dict; columns of values of one size."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import sorted_merge
from metatable.storage.byte_columns import of_one_size
from metatable.storage.sorted_merge import merge_newest_first

Stream = dict[bytes, bytes]

FIXED = st.dictionaries(
    st.integers(0, 30).map(lambda one: b"%016d" % one), st.binary(min_size=4, max_size=4)
)
"""Keys of 16 bytes that agree in the first eight, values of four: sorted and taken as such."""
OTHERS = st.dictionaries(st.binary(max_size=3), st.binary(max_size=2))
NARROW = st.dictionaries(st.binary(min_size=2, max_size=2), st.just(b""))


def batches(stream: Stream, size: int, is_fixed: bool = False) -> list[pa.RecordBatch]:
    keys = sorted(stream)
    columns = [pa.array(keys, pa.binary()), pa.array([stream[key] for key in keys], pa.binary())]
    if is_fixed:
        columns = [of_one_size(column) for column in columns]
    table = pa.table(columns, names=["key", "value"])
    return table.to_batches(max_chunksize=size)


@given(
    st.one_of(*(st.lists(one, max_size=5) for one in (FIXED, OTHERS, NARROW, FIXED | OTHERS))),
    st.integers(1, 7),
    st.sampled_from([1, 5, 1000]),
    st.sampled_from([(False,), (True,), (True, False)]),
)
def test_of_each_key_the_entry_of_the_newest_stream_is_kept(
    streams: list[Stream], size: int, round_entries: int, are_fixed: tuple[bool, ...]
) -> None:
    expected = {
        key: (value, number)
        for number, stream in reversed(list(enumerate(streams)))
        for key, value in stream.items()
    }
    found = []
    parts = [
        batches(one, size, are_fixed[number % len(are_fixed)]) for number, one in enumerate(streams)
    ]
    kinds = {tuple(part.schema.types) for one in parts for part in one}
    with patch.object(sorted_merge, "ROUND_ENTRIES", round_entries):
        for keys, values, sources in merge_newest_first(parts):
            if len(kinds) == 1:
                assert {(keys.type, values.type)} == kinds
            assert len(keys) <= max(round_entries, len(streams))
            found += zip(keys.to_pylist(), values.to_pylist(), sources.tolist(), strict=True)
    assert found == [(key, *expected[key]) for key in sorted(expected)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(3)], ids=str)
def test_values_of_one_size_are_seen_as_such_without_a_copy(kind: pa.DataType) -> None:
    column = pa.array([b"abc", b"def", b"ghi", b"jkl"], kind)[1:3]
    found = of_one_size(column)
    assert found.type == pa.binary(3)
    assert found.to_pylist() == [b"def", b"ghi"]
    held = column.buffers()[-1]
    assert held.address <= found.buffers()[1].address < held.address + held.size


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"bc"], [b"ab", b"", b"cd"]])
def test_other_columns_stay_what_they_are(values: list[bytes]) -> None:
    column = pa.array(values, pa.binary())
    assert of_one_size(column).equals(column)
