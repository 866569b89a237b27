"""What engines do with batches between tasks."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.engine.batches import (
    conform,
    deal,
    filled,
    gathered,
    joined,
    one_piece,
    viewless,
)
from metatable.storage.errors import UsageError


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def test_conform_orders_columns_by_name() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    given_batch = pa.record_batch({"b": ["x"], "a": [1]})
    assert conform(given_batch, schema).equals(pa.record_batch({"a": [1], "b": ["x"]}))


def test_conform_hands_on_what_is_right_already() -> None:
    one = batch(1, 2)
    assert conform(one, one.schema) is one


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pa.array([1 << 40]), pa.int32()),
        (pa.array(["x"]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([[1]]), pa.int64()),
    ],
)
def test_conform_refuses_to_lose_a_value(found: pa.Array, expected: pa.DataType) -> None:
    with pytest.raises(UsageError, match=f"column='n' expected='{expected}' found="):
        conform(pa.record_batch({"n": found}), pa.schema({"n": expected}))


@pytest.mark.parametrize("names", [[], ["m"], ["n", "m"]])
def test_conform_refuses_other_columns(names: list[str]) -> None:
    other = pa.record_batch([pa.array([1])] * len(names), names)
    with pytest.raises(UsageError, match=r"expected=\['n'\] found="):
        conform(other, pa.schema({"n": pa.int64()}))


def test_filled_tells_no_rows_from_few() -> None:
    assert filled([]) is None
    assert filled([batch(), batch()]) is None
    some = filled([batch(), batch(1), batch(), batch(2)])
    assert some is not None
    assert [one["n"].to_pylist() for one in some] == [[1], [2]]


@given(st.lists(st.integers(0, 7), max_size=20), st.integers(1, 10))
def test_gathered_batches_are_large_enough_except_for_the_last(sizes: list[int], rows: int) -> None:
    numbers = iter(range(sum(sizes)))
    pieces = [batch(*(next(numbers) for _ in range(size))) for size in sizes]
    out = list(gathered(pieces, rows))
    assert [n for one in out for n in one["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(one.num_rows >= rows for one in out[:-1])


@given(st.lists(st.integers(0, 7), max_size=20), st.integers(1, 80))
def test_gathered_batches_are_no_larger_than_they_must_be(
    sizes: list[int], size_bytes: int
) -> None:
    out = list(gathered([batch(*range(size)) for size in sizes], 1000, size_bytes))
    assert sum(one.num_rows for one in out) == sum(sizes)
    assert all(size_bytes <= one.nbytes < size_bytes + 7 * 8 for one in out[:-1])


def test_joined_is_one_batch() -> None:
    assert joined([]) == []
    assert [one["n"].to_pylist() for one in joined([batch(1), batch(2, 3)])] == [[1, 2, 3]]


def test_views_become_what_arrow_has_kernels_for() -> None:
    schema = pa.schema({"s": pa.string_view(), "b": pa.binary_view()}, metadata={"x": "y"})
    plain = viewless(schema)
    assert plain.types == [pa.large_string(), pa.large_binary()]
    assert plain.metadata is None


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (pa.list_(pa.string_view(), 2), pa.list_(pa.large_string(), 2)),
        (pa.map_(pa.string_view(), pa.int8()), pa.map_(pa.large_string(), pa.int8())),
        (pa.dictionary(pa.uint8(), pa.binary_view()), pa.dictionary(pa.int32(), pa.large_binary())),
        (pa.dictionary(pa.uint32(), pa.string()), pa.dictionary(pa.uint32(), pa.string())),
    ],
    ids=str,
)
def test_so_do_views_and_small_dictionaries_within_other_types(
    kind: pa.DataType, plain: pa.DataType
) -> None:
    given_batch = pa.record_batch(
        {"x": pa.nulls(2, kind), "s": pa.nulls(2, pa.struct([("x", kind)]))}
    )
    schema = viewless(given_batch.schema)
    assert schema.types == [plain, pa.struct([("x", plain)])]
    assert conform(given_batch, schema).schema.equals(schema)


PLACES = st.integers(0, 4)


@given(st.lists(PLACES, max_size=30), st.sampled_from([5, 70_000]))
def test_deal_splits_stably(places: list[int], count: int) -> None:
    rows = pa.record_batch({"to": pa.array(places, pa.int32()), "n": range(len(places))})
    dealt = deal(rows, "to", count)
    assert [place for place, _ in dealt] == sorted(set(places))
    for place, piece in dealt:
        assert piece["to"].to_pylist() == [place] * piece.num_rows
        assert piece["n"].to_pylist() == [n for n, to in enumerate(places) if to == place]


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=3))), st.integers(0, 3))
def test_a_text_that_is_there_twice_is_dealt_as_two_columns(
    rows: list[tuple[int, str | None]], skipped: int
) -> None:
    words = pa.array([word for _, word in rows], pa.string())
    twice = pa.concat_arrays([words, words])
    shifted, first = twice[1 : len(words) + 1], twice[: len(words)]  # of the same buffers
    to = pa.array([place for place, _ in rows], pa.int32())
    columns = {
        "a": words,
        "to": to,
        "b": words,
        "c": shifted,
        "e": first,
        "d": words.dictionary_encode(),
    }
    batch = pa.record_batch(columns).slice(skipped)
    for place, piece in deal(batch, "to", 4):
        want = pa.Table.from_batches([batch]).filter(pc.equal(batch["to"], place))
        assert pa.Table.from_batches([piece]).equals(want)


def test_more_places_than_sixteen_bits_have_are_told_apart() -> None:
    places = [70_000, 4_464, 65_536, 0, 70_000]  # the first two are equal in 16 bits, and so on
    rows = pa.record_batch({"to": pa.array(places, pa.int32()), "n": range(5)})
    dealt = [(place, piece["n"].to_pylist()) for place, piece in deal(rows, "to", 100_000)]
    assert dealt == [(0, [3]), (4_464, [1]), (65_536, [2]), (70_000, [0, 4])]


@given(st.lists(st.none() | st.lists(PLACES, max_size=4), max_size=20), st.integers(0, 5))
def test_deal_sends_a_copy_for_each_place_of_a_list(
    places: list[list[int] | None], skipped: int
) -> None:
    to = pa.array(places, pa.list_(pa.int32()))
    rows = pa.record_batch({"n": range(len(places)), "to": to}).slice(skipped)
    got = sorted((place, n) for place, piece in deal(rows, "to", 5) for n in piece["n"].to_pylist())
    assert got == sorted((p, n) for n, to in enumerate(places) if n >= skipped for p in to or ())


@pytest.mark.parametrize("to", [[0, None], [0, 5], [-1, 0]])
def test_deal_refuses_a_place_that_is_none(to: list[int | None]) -> None:
    for column in (pa.array(to, pa.int32()), pa.array([to], pa.list_(pa.int32()))):
        with pytest.raises(UsageError, match="column='to'"):
            deal(pa.record_batch({"to": column}), "to", 5)


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=4)), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.booleans(),
)
def test_what_was_cut_side_by_side_is_one_piece_again(
    texts: list[str | None], cuts: list[int], shared: bool
) -> None:
    ends = sorted({0, len(texts), *(cut for cut in cuts if cut < len(texts))})
    columns = {
        "t": pa.array(texts, pa.string()),
        "n": pa.array(range(len(texts))),
        "b": pa.array([one is None for one in texts]),
        "d": pa.array(texts, pa.string()).dictionary_encode(),
        "l": pa.array([[one] for one in texts]),
    }
    whole = pa.record_batch(columns)
    pieces = [whole.slice(lo, hi - lo) for lo, hi in itertools.pairwise(ends)]
    if not shared:
        pieces = [
            pa.record_batch([one.take(pa.array(range(len(one)))) for one in piece], list(columns))
            for piece in pieces
        ]
    found = one_piece(pieces, 1 << 20)
    assert found is not None
    assert found.equals(pa.table(whole))
    assert all(column.num_chunks == 1 for column in found.columns)
    found.validate(full=True)


def test_pieces_in_another_order_are_copied_up_to_a_limit() -> None:
    whole = pa.record_batch({"n": pa.array(range(10))})
    pieces = [whole.slice(5), whole.slice(0, 5)]
    assert one_piece(pieces, 79) is None
    found = one_piece(pieces, 80)
    assert found is not None
    assert found["n"].to_pylist() == [*range(5, 10), *range(5)]
    assert one_piece([whole.slice(2, 3), whole.slice(5)], 0) == pa.table(whole.slice(2))
    assert one_piece([whole.slice(2, 3), whole.slice(6)], 0) is None
    again = pa.record_batch({"n": pa.array(range(10))})
    assert one_piece([whole.slice(0, 5), again.slice(5)], 0) is None


def test_memory_that_was_cut_shorter_is_not_read_behind_its_end() -> None:
    whole = pa.array(range(10), pa.int64())
    memory = whole.buffers()[1]
    shorter = pa.Array.from_buffers(pa.int64(), 5, [None, memory.slice(0, 40)])
    pieces = [pa.record_batch({"n": one}) for one in (shorter, whole.slice(5))]
    assert one_piece(pieces, 0) is None
    found = one_piece(pieces, 80)
    assert found is not None
    found.validate(full=True)
    assert found["n"].to_pylist() == [*range(10)]
