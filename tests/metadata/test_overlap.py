"""In how many files a value is: from bounds, held against a look at every pair."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.metadata.partitions.overlap import Neighbours, Overlap, _ranks, _swept
from metatable.metadata.view import StatsColumn

ONE = np.zeros(9, np.int32)


def depths(*ranges: tuple[int, int]) -> list[int]:
    low, high = (np.array(one, np.int64) for one in zip(*ranges, strict=True))
    return _swept(ONE[: len(ranges)], low, high)[0].tolist()


def test_the_depth_is_how_many_files_hold_the_middle_of_a_range() -> None:
    assert depths((1, 9), (1, 9), (1, 9)) == [3, 3, 3]
    assert depths((1, 8), (2, 7), (3, 6)) == [3, 3, 3]
    assert depths((1, 9), (2, 3), (7, 8)) == [1, 2, 2]


def test_ranges_that_only_touch_do_not_overlap() -> None:
    assert depths((1, 3), (3, 5), (5, 7)) == [1, 1, 1]
    assert depths((2, 2), (2, 2), (2, 9)) == [1, 1, 1]
    assert depths((1, 3), (2, 2), (2, 2), (2, 4)) == [1, 2, 2, 2]


def test_files_of_other_partitions_are_none_of_ours() -> None:
    folder = np.array([0, 0, 1], np.int32)
    depth, meets = _swept(folder, np.array([1, 2, 1]), np.array([5, 9, 9]))
    assert (depth.tolist(), meets.tolist()) == ([1, 2, 1], [2, 2, 1])
    none = np.zeros(0, np.int64)
    assert [one.tolist() for one in _swept(ONE[:0], none, none)] == [[], []]


def test_files_met_are_those_of_a_look_at_every_pair() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        low = draw.integers(0, 6, 8)
        high, folder = low + draw.integers(0, 4, 8), draw.integers(0, 2, 8).astype(np.int32)
        depth, meets = _swept(folder, low, high)
        shares = (low[:, None] < high) & (low < high[:, None]) | np.eye(8, dtype=bool)
        expected = (shares & (folder[:, None] == folder)).sum(axis=1)
        assert meets.tolist() == expected.tolist()
        assert ((depth >= 1) & (depth <= meets)).all()


def test_a_file_without_bounds_may_hold_any_value_and_one_of_nulls_none() -> None:
    bounds = [pa.array([5, None, None]), pa.array([9, None, None])]
    counts = [pa.array([0, None, 4]), pa.array([4, None, 4])]
    files: Any = range(3)
    low, high = _ranks(StatsColumn(files, *bounds, *counts), "a")
    assert low[1] < low[0] < high[0] < high[1]
    assert low[2] == high[2]


def test_what_bounds_cannot_tell_is_one_value() -> None:
    """NaN, and texts that begin alike: to cut files anew would tell nothing more."""
    counts = [pa.array([0, 0, 0]), pa.array([4, 4, 4])]
    files: Any = range(3)
    floats = pa.array([1.0, 5.0, None]), pa.array([3.0, None, None])
    low, high = _ranks(StatsColumn(files, *floats, *counts), "a")
    assert low[0] < high[0] < low[1] < high[1] == low[2] == high[2]
    for form in (str, str.encode):
        ends = "x" * 64, "x" * 63 + "y", "x" * 63
        first, raised, short = map(form, ends)  # type: ignore[arg-type]
        texts = pa.array([first, first, short]), pa.array([raised, first, first])
        low, high = _ranks(StatsColumn(files, *texts, *counts), "a")
        assert low[0] == high[0] == low[1] == high[1]
        assert low[2] < high[2]


def test_neighbours_are_those_of_a_look_at_every_pair() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        low = draw.integers(0, 6, 12)
        high, folder = low + draw.integers(0, 4, 12), draw.integers(0, 3, 12).astype(np.int32)
        files: Any = SimpleNamespace(folder_of=folder)
        found = Overlap(files, *_swept(folder, low, high), low, high)
        rows = np.flatnonzero(draw.random(12) < 0.8)
        near = Neighbours(found, rows)
        for row in rows.tolist():
            shares = (low < high[row]) & (low[row] < high) & (folder == folder[row])
            shares[row] = True
            expected = np.intersect1d(np.flatnonzero(shares), rows)
            assert np.sort(near.met(row)).tolist() == expected.tolist()
