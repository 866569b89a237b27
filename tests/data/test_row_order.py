"""What rows are in order by as they are cut into files: columns, or a curve through several."""

from __future__ import annotations

from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.data.keys import row_order
from metatable.data.keys.key_texts import KEY
from metatable.data.keys.row_order import (
    COLUMN_SAMPLES,
    MOST_POINTS,
    RowOrder,
    _grid,
    sample_columns,
)
from metatable.data.keys.sort_texts import column_texts
from metatable.data.rows.samples import Sample, every
from metatable.data.rows.space_filling import hilbert_codes
from metatable.storage.counters import Counters
from metatable.storage.ordering import sort_order


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 6), (2, 1), (2, 5), (3, 3), (4, 2), (64, 1)])
def test_the_curve_meets_each_place_once_and_goes_from_neighbour_to_neighbour(
    dimensions: int, bits: int
) -> None:
    if dimensions * bits < 20:
        grid = np.meshgrid(*[np.arange(1 << bits, dtype=np.uint64)] * dimensions)
        places = [one.ravel() for one in grid]
    else:
        places = [np.array([0, 1], np.uint64)] * dimensions
    codes = hilbert_codes(places, bits)
    if dimensions * bits < 20:
        assert sorted(codes.tolist()) == list(range(1 << dimensions * bits))
        walked = np.stack(places).astype(np.int64)[:, np.argsort(codes)]
        assert set(np.abs(np.diff(walked)).sum(axis=0).tolist()) == {1}
    assert codes[0] == 0


def fitted(columns: tuple[str, ...], rows: pa.Table) -> RowOrder:
    batches = rows.to_batches(max_chunksize=50)
    found = sample_columns(columns, len(rows), iter(batches), Counters())
    return RowOrder.fitted(columns, pa.Table.from_batches(found))


def with_keys(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({KEY: [f"k{place:05}" for place in range(count)], **columns})


@pytest.mark.parametrize(
    "values",
    [
        [-2, -1, 0, 9, 10, 100],
        [-1.5, 0.0, 2.5, 9.0, 10.0, float("inf")],
        [Decimal("-3.10"), Decimal("9.00"), Decimal("10.00")],
        ["", "a", "a\0", "b", "ü"],
        [None, 1, 2],
    ],
)
def test_one_column_is_in_order_of_its_values(values: list[Any]) -> None:
    rows = with_keys(a=values).take(list(reversed(range(len(values)))))
    order = sort_order(RowOrder(("a",)).texts(rows))
    assert rows["a"].take(pa.array(order)).to_pylist() == values


def test_files_along_the_curve_hold_a_range_of_each_column() -> None:
    draw = np.random.default_rng(1)
    spread = draw.lognormal(0, 2, 4096)  # most of it near zero: ranks share the curve evenly
    rows = with_keys(a=spread, b=draw.permutation(4096))
    order = fitted(("a", "b"), rows)
    texts = order.texts(rows)
    assert len(texts.unique()) == len(rows)
    parts = np.array_split(sort_order(texts), 16)
    for name in ("a", "b"):
        ranks = np.argsort(np.argsort(rows[name].to_numpy()))
        width = np.mean([np.ptp(ranks[one]) for one in parts]) / 4096
        assert width < 0.45, (name, width)


def test_few_values_have_their_share_of_the_curve_too() -> None:
    draw = np.random.default_rng(4)
    rows = with_keys(a=draw.integers(0, 4, 4096), b=draw.permutation(4096))
    parts = np.array_split(sort_order(fitted(("a", "b"), rows).texts(rows)), 16)
    held = [len(set(rows["a"].to_numpy()[one])) for one in parts]
    assert np.mean(held) <= 2, held


def test_the_range_of_a_file_is_around_the_texts_of_its_rows() -> None:
    draw = np.random.default_rng(2)
    rows = with_keys(a=draw.permutation(2000), b=draw.permutation(2000))
    for order in (RowOrder(("a",)), fitted(("a", "b"), rows)):
        texts = order.texts(rows)
        for part in np.array_split(sort_order(texts), 8):
            held = rows.take(pa.array(part))
            ends = {
                name: (pa.array([min(column)]), pa.array([max(column)]))
                for name in ("a", "b")
                for column in [held[name].to_pylist()]
            }
            low, high = (side[0].as_py() for side in order.ranges(ends))
            inside = [low <= one <= high + "~" for one in texts.take(pa.array(part)).to_pylist()]
            assert np.mean(inside) > 0.9


@pytest.mark.filterwarnings("error")
def test_a_file_whose_greatest_value_nobody_knows_has_a_range_too() -> None:
    rows = with_keys(a=np.arange(100.0), b=np.arange(100))
    untold, told = pa.array([None, 90.0]), pa.array([95, 95])
    low, high = fitted(("a", "b"), rows).ranges(
        {"a": (pa.array([80.0, 80.0]), untold), "b": (told, told)}
    )
    assert [a <= b for a, b in zip(low.to_pylist(), high.to_pylist(), strict=True)] == [True, True]


@pytest.mark.parametrize("dimensions", [1, 2, 8, 9, 20])
def test_a_range_of_many_columns_is_looked_at_in_few_places(dimensions: int) -> None:
    points = list(islice(_grid(dimensions), MOST_POINTS + 1))
    assert len(points) <= MOST_POINTS
    assert {(0.0,) * dimensions, (1.0,) * dimensions} <= {*points}


def texts_told(rows: pa.Table, given: int, batch_rows: int) -> list[list[str]]:
    """What one task gives of each column of rows that come in batches of so many."""
    batches = rows.to_batches(max_chunksize=batch_rows)
    told = pa.Table.from_batches(sample_columns(("a", "b"), given, iter(batches), Counters()))
    every_text = [(one["column"], text) for one in told.to_pylist() for text in one["texts"]]
    return [[text for name, text in every_text if name == column] for column in ("a", "b")]


@pytest.mark.parametrize("batch_rows", [1, 7, 100, 4096])
def test_all_tasks_together_give_no_more_texts_than_are_asked_for(
    batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_order, "ALL_TEXTS", 512)
    draw = np.random.default_rng(5)
    rows = with_keys(a=draw.permutation(4096), b=draw.permutation(4096))
    for column, texts in zip(("a", "b"), texts_told(rows, 4 * 4096, batch_rows), strict=True):
        assert 63 <= len(texts) <= 65  # of each of two columns, a fourth of all rows are here
        places = np.searchsorted(sorted(column_texts(rows[column], column).to_pylist()), texts)
        quarters = np.bincount(places // 1024, minlength=4)  # no small batch gives its least alone
        assert quarters.min() >= 6, quarters


def test_a_task_of_few_rows_gives_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "ALL_TEXTS", 8)
    rows = with_keys(a=[3, 1, 2], b=[7, 7, 7])
    [[of_a], [of_b]] = told = texts_told(rows, 1 << 30, 3)
    assert of_a in column_texts(rows["a"], "a").to_pylist()
    assert of_b in column_texts(rows["b"], "b").to_pylist()
    assert texts_told(rows, 1 << 30, 3) == told, "the task was tried again"


@pytest.mark.parametrize("texts", [1, 2])
def test_tasks_of_alike_rows_tell_other_parts_of_them(
    texts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which each is told by few: what all of them give is spread as all rows are."""
    tasks, each = 400, 100
    monkeypatch.setattr(row_order, "ALL_TEXTS", 2 * tasks * texts)
    draw, told = np.random.default_rng(9), list[int]()
    for _ in range(tasks):
        values = draw.random(each)
        [of_a, _] = texts_told(with_keys(a=values, b=draw.random(each)), tasks * each, each)
        in_order = sorted(column_texts(pa.array(values), "a").to_pylist())
        told += map(in_order.index, of_a)
    assert np.bincount(np.array(told) // 5, minlength=20).min() > 0


def test_columns_of_one_value_or_of_none_have_an_order_too() -> None:
    same = with_keys(a=[7] * 20, b=pa.nulls(20, pa.int64()))
    order = fitted(("a", "b"), same)
    assert sort_order(order.texts(same)).tolist() == list(range(20))
    of_nothing = RowOrder.fitted(("a", "b"), COLUMN_SAMPLES.empty_table())
    assert of_nothing.texts(same)[0].as_py() == "0" * 16 + "k00000"


def test_samples_cut_parts_that_are_even() -> None:
    draw, sample = np.random.default_rng(3), Sample()
    texts = np.array([f"{one:06}" for one in draw.permutation(10_000)])
    for part in np.array_split(texts, 7):
        sample.add(len(part), every(pa.array(part), 20))
    assert sample.rows == 10_000
    cuts, kept = sample.cut([0, 2500, 5000, 7500])
    assert kept.tolist() == [0, 1, 2, 3]
    counts = np.bincount(np.searchsorted(cuts, texts, "right"))
    assert abs(counts - 2500).max() <= sample.slack
    assert abs(counts - 2500).max() < 150
    few = Sample()
    few.add(3, ["b"])
    assert few.cut([0, 1, 2])[0] == ()
