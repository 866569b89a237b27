"""Where blocks begin: against the rule said record by record, however entries are batched."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.errors import UsageError
from metatable.storage.hfile import codec, columns
from metatable.storage.hfile.block import HEADER_SIZE
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, chunk_count
from metatable.storage.hfile.key_values import RECORD_OVERHEAD
from metatable.storage.hfile.writing import runs
from metatable.storage.hfile.writing.runs import MAX_PAYLOAD, BlockPlan, Cutter, Run, batches
from tests.storage.hfile.making import binary

Pair = tuple[bytes, bytes]
KEYS = st.binary(min_size=1, max_size=2)
VALUES = st.binary(max_size=40)


def blocks_by_the_rule(pairs: list[Pair], block_size: int, overfills: bool) -> list[list[Pair]]:
    blocks: list[list[Pair]] = []
    size, last = 0, None
    for key, value in pairs:
        record = RECORD_OVERHEAD + len(key) + len(value)
        is_full = size >= block_size if overfills else size + record > block_size
        if not blocks or (is_full and key != last):
            blocks.append([])
            size = 0
        blocks[-1].append((key, value))
        size, last = size + record, key
    return blocks


def entries_of(run: Run) -> Iterator[list[Pair]]:
    keys, values = run.columns()
    pairs = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    for block in run.blocks:
        yield pairs[: block.entry_count]
        del pairs[: block.entry_count]
    assert pairs == []


def plan_of(pairs: list[Pair]) -> BlockPlan:
    sizes = [RECORD_OVERHEAD + len(key) + len(value) for key, value in pairs]
    return BlockPlan(sum(sizes), len(pairs), sizes[-1], pairs[0][0], pairs[-1][0])


@given(
    st.lists(st.tuples(KEYS, VALUES, st.integers(1, 4)), max_size=30),
    st.integers(1, 200),
    st.booleans(),
    st.booleans(),
    st.integers(1, 12),
    st.sampled_from([1, 100, 1 << 20]),
    st.sampled_from([1, 3, 1 << 16]),
    st.sampled_from([1, 50, 1 << 28]),
)
def test_blocks_end_where_the_rule_ends_them(
    counted: list[tuple[bytes, bytes, int]],
    block_size: int,
    overfills: bool,
    unique: bool,
    step: int,
    run_bytes: int,
    batch_rows: int,
    batch_bytes: int,
) -> None:
    pairs = sorted((key, value) for key, value, count in counted for _ in range(count))
    if unique:
        pairs = sorted(dict(pairs).items())
    cutter = Cutter(block_size, overfills=overfills, unique=unique, path="p")
    found: list[Run] = []
    with (
        patch.object(runs, "RUN_BYTES", run_bytes),
        patch.object(runs, "BATCH_ROWS", batch_rows),
        patch.object(runs, "BATCH_BYTES", batch_bytes),
    ):
        for at in range(0, len(pairs), step):
            part = pairs[at : at + step]
            columns = binary(key for key, _ in part), binary(value for _, value in part)
            cutter.check(*columns)
            found += cutter.runs(*columns)
        found += cutter.rest()
    expected = blocks_by_the_rule(pairs, block_size, overfills)
    assert [block for run in found for block in entries_of(run)] == expected
    assert [plan for run in found for plan in run.blocks] == [*map(plan_of, expected)]


def test_run_is_of_many_blocks_but_no_larger_than_a_run_should_be() -> None:
    cutter = Cutter(1000, overfills=False, unique=True, path="p")
    keys = binary(b"%06d" % number for number in range(110_000))
    found = [*cutter.runs(keys, keys), *cutter.rest()]
    assert all(run.size <= runs.RUN_BYTES for run in found)
    assert len(found) == 3
    assert sum(len(run.pieces) for run in found) == len(found)  # slices, nothing joined


def test_a_batch_that_is_refused_leaves_no_trace() -> None:
    cutter = Cutter(100, overfills=False, unique=True, path="p")
    list(cutter.runs(binary([b"b"]), binary([b"1"])))
    with pytest.raises(UsageError, match="strictly ascending"):
        cutter.check(binary([b"c", b"e", b"d"]), binary([b""] * 3))
    cutter.check(binary([b"c"]), binary([b"2"]))
    list(cutter.runs(binary([b"c"]), binary([b"2"])))
    [run] = cutter.rest()
    assert run.columns()[0].to_pylist() == [b"b", b"c"]


@pytest.mark.parametrize("unique", [True, False])
def test_refusal_names_both_keys_wherever_they_are(unique: bool) -> None:
    cutter = Cutter(100, overfills=False, unique=unique, path="p")
    list(cutter.runs(binary([b"m"]), binary([b""])))
    for keys, previous, offered in (
        ([b"a"], b"m", b"a"),
        ([b"x", b"z", b"y"], b"z", b"y"),
    ):
        with pytest.raises(UsageError, match=f"previous={previous!r} offered={offered!r}"):
            cutter.check(pa.chunked_array([binary([one]) for one in keys]), binary([b""] * 3))


@pytest.mark.parametrize("keys", [[b"a", b"c", b"b"], [b"a", b"b", b"b"]])
def test_order_is_checked_between_batches_of_one_call(keys: list[bytes]) -> None:
    cutter = Cutter(100, overfills=False, unique=True, path="p")
    with patch.object(runs, "BATCH_ROWS", 2), pytest.raises(UsageError, match="ascending"):
        cutter.check(binary(keys), binary([b""] * 3))


def test_entries_too_large_for_a_block_are_refused() -> None:
    cutter = Cutter(10, overfills=False, unique=False, path="p")
    keys, values = binary([b"k"] * 10), binary([b"v" * 100] * 10)
    with patch.object(runs, "MAX_PAYLOAD", 1000):
        with pytest.raises(UsageError, match="too large for a block"):
            list(cutter.runs(keys, values))


TYPES = [
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(20)),
    *(pa.string(), pa.large_string(), pa.string_view()),
]


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_batches_come_to_so_many_bytes_at_most(kind: pa.DataType, is_chunked: bool) -> None:
    keys = binary(b"%020d" % number for number in range(30))
    given = keys.cast(kind)[2:]  # a slice: sizes are those of its own rows
    if is_chunked:
        given = pa.chunked_array([given[:0], given[:5], given[5:]])
    with patch.object(runs, "BATCH_BYTES", 250):
        found = [rows for rows, _ in batches(given, keys[2:])]
    assert [len(rows) for rows in found] == [6, 6, 6, 6, 4]
    assert pa.concat_arrays(found).cast(pa.binary()).equals(keys[2:])


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.binary())])
def test_other_types_are_refused_however_large_they_are(kind: pa.DataType) -> None:
    with patch.object(runs, "BATCH_BYTES", 0), pytest.raises(UsageError, match="are not bytes"):
        list(batches(pa.nulls(3, kind), binary([b"v"] * 3)))


def test_views_that_share_bytes_count_each_for_itself() -> None:
    starts, sizes = np.zeros(10, np.int64), np.full(10, 100, np.int64)
    shared = columns.views(np.ones(100, np.uint8), starts, sizes)
    keys = binary(b"%d" % number for number in range(10))
    with patch.object(runs, "BATCH_BYTES", 450):
        assert [len(cells) for _, cells in batches(keys, shared)] == [4, 4, 2]


def test_row_that_is_larger_than_a_batch_is_a_batch() -> None:
    keys, values = binary([b"a", b"b", b"c"]), binary([b"", b"v" * 100, b""])
    with patch.object(runs, "BATCH_BYTES", 10):
        assert [rows.to_pylist() for rows, _ in batches(keys, values)] == [[b"a"], [b"b"], [b"c"]]


def large(*cuts: int) -> pa.Array:
    """Values between these places of bytes that end behind them."""
    offsets, raw = pa.py_buffer(np.array(cuts, np.int64)), pa.py_buffer(bytes(range(200)))
    return pa.Array.from_buffers(pa.large_binary(), len(cuts) - 1, [None, offsets, raw])


def test_large_column_may_be_longer_than_one_array() -> None:
    values = large(10, 60, 110, 160)
    with patch.object(columns, "_LAST_OFFSET", 100), patch.object(runs, "BATCH_BYTES", 60):
        found = [cells for _, cells in batches(binary([b"a", b"b", b"c"]), values)]
    assert [cells.to_pylist() for cells in found] == [[value] for value in values.to_pylist()]
    assert {cells.type for cells in found} == {pa.binary()}
    assert int(columns.column_offsets(found[-1])[-1]) == 50  # it could not say 160


def test_value_that_is_too_large_for_an_array_is_refused() -> None:
    too_large = pa.ArrowInvalid("input array too large")
    cutter = Cutter(10, overfills=False, unique=True, path="p")
    with patch.object(columns, "_within_reach", side_effect=too_large):
        with pytest.raises(UsageError, match="values are too large for one array"):
            cutter.check(binary([b"a"]), large(0, 100))


def test_largest_payload_leaves_room_for_what_is_stored_with_it() -> None:
    stored = 32 + MAX_PAYLOAD + MAX_PAYLOAD // 6  # Snappy's own bound, above those of the others
    chunks = MAX_PAYLOAD // codec._CHUNK_BYTES + 1
    covered_size = HEADER_SIZE + stored + (4 + 32) * chunks + 8
    block_size = covered_size + CHECKSUM_BYTES * chunk_count(covered_size, 16 << 10)
    assert block_size < 1 << 31


def test_slices_that_wait_do_not_keep_their_arrays_alive() -> None:
    cutter = Cutter(1 << 16, overfills=False, unique=True, path="p")
    before = pa.total_allocated_bytes()
    for number in range(5):
        column = binary([b"%04d" % number, *[bytes(1000)] * 1000])
        list(cutter.runs(column[:1], column[:1]))
        del column
    assert pa.total_allocated_bytes() - before < 10_000
    [run] = cutter.rest()
    assert run.columns()[0].to_pylist() == [b"%04d" % number for number in range(5)]


def test_slices_of_a_part_of_a_buffer_do_not_keep_all_of_it_alive() -> None:
    whole = pa.py_buffer(bytes(100_000))
    offsets = pa.py_buffer(np.array([0, 50], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, whole.slice(500, 50)])
    run = Run([(column, column)], [BlockPlan(150, 1, 150, b"", b"")]).apart()
    assert [one.buffers()[2].parent for one in run.pieces[0]] == [None, None]
    assert run.pieces[0][0].equals(column)


def test_what_keeps_little_else_alive_waits_as_it_is() -> None:
    keys, values = binary([b"a", b"b"]), binary([b"", b"v" * 50])
    run = Run([(keys, values)], [BlockPlan(102, 2, 78, b"a", b"b")])
    assert run.apart().pieces is run.pieces
