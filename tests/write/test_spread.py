"""Which task writes which file groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.write import planning
from metatable.write.planning import LEAST_TASK_BYTES, TASK_BYTES
from tests.long import examples

MIB = 1 << 20


def loads(weights: list[int], slots: int) -> list[int]:
    """The bytes of each task."""
    tasks, spread = planning._spread(weights, slots)
    assert len(spread) == len(weights)
    assert set(spread) == set(range(tasks if weights else 0)), "none has nothing to do"
    return np.bincount(spread, weights, tasks).astype(int).tolist()


@settings(max_examples=examples(50, 500))
@given(st.lists(st.integers(1, 100 * MIB), max_size=60), st.integers(1, 9))
def test_every_slot_has_as_many_tasks_and_the_heaviest_come_first(
    weights: list[int], slots: int
) -> None:
    found = loads(weights, slots)
    assert found == sorted(found, reverse=True)
    assert len(found) == max(len(weights), 1) or len(found) % slots == 0
    if len(found) < len(weights):
        assert sum(weights) <= len(found) * TASK_BYTES
        assert max(found) <= max([*weights, 2 * TASK_BYTES])


@pytest.mark.parametrize(
    ("count", "slots", "expected"),
    [
        (30, 2, [3, 3, *[2] * 12]),  # fourteen tasks, not thirteen
        (30, 4, [2] * 14 + [1, 1]),
        (3, 8, [1, 1, 1]),
        (0, 2, [0]),
    ],
)
def test_files_of_one_size_are_dealt_so_that_the_last_ones_end_together(
    count: int, slots: int, expected: list[int]
) -> None:
    weight = 27 * MIB
    assert [load // weight for load in loads([weight] * count, slots)] == expected


def test_a_little_work_is_one_task_a_slot() -> None:
    assert len(loads([LEAST_TASK_BYTES // 40] * 30, 4)) == 4
    assert len(loads([LEAST_TASK_BYTES // 4] * 21, 4)) == 4, "of five tasks one would be alone"
