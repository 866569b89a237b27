"""Slices are shared between workers by the keys that are asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from metatable.data.reading import keyed_rows
from metatable.data.reading.keyed_rows import Asked


def shares(counts: Sequence[int], workers: int) -> list[list[int]]:
    """How many keys are asked of each slice of each share."""
    of: Any = None  # looked at by nobody here
    asked = (Asked(of, pa.array(["k"] * count)) for count in counts)
    return [[len(one.keys) for one in some] for some in keyed_rows._shares(asked, workers)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "KEYS_TOGETHER", 100)


@pytest.mark.parametrize(
    ("counts", "workers", "expected"),
    [
        ([], 2, []),
        ([5, 5, 10], 2, [[5, 5, 10]]),
        ([30] * 6, 2, [[30] * 6]),  # all are few: threads share their pages
        ([30] * 6, 1, [[30] * 3] * 2),
        ([30] * 7, 2, [[30] * 3] * 2 + [[30]]),
        ([280, 10, 10, 250], 3, [[280], [10, 10], [250]]),
        ([10, 10, 170, 20], 2, [[10, 10], [170], [20]]),
        ([900], 2, [[900]]),
        ([900, 5, 901, 30], 2, [[900], [5], [901], [30]]),
    ],
)
def test_each_worker_has_about_as_many_keys(
    counts: list[int], workers: int, expected: list[list[int]]
) -> None:
    found = shares(counts, workers)
    assert found == expected
    assert [count for some in found for count in some] == counts
