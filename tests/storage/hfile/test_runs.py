"""Where blocks begin: against the rule said record by record, however entries are batched."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.errors import UsageError
from metatable.storage.hfile.key_values import RECORD_OVERHEAD
from metatable.storage.hfile.writing import runs
from metatable.storage.hfile.writing.runs import BlockPlan, Cutter, Run
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
)
def test_blocks_end_where_the_rule_ends_them(
    counted: list[tuple[bytes, bytes, int]],
    block_size: int,
    overfills: bool,
    unique: bool,
    step: int,
    run_bytes: int,
    batch_rows: int,
) -> None:
    pairs = sorted((key, value) for key, value, count in counted for _ in range(count))
    if unique:
        pairs = sorted(dict(pairs).items())
    cutter = Cutter(block_size, overfills=overfills, unique=unique, path="p")
    found: list[Run] = []
    with patch.object(runs, "RUN_BYTES", run_bytes), patch.object(runs, "BATCH_ROWS", batch_rows):
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
    keys = binary(b"%06d" % number for number in range(50_000))
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
