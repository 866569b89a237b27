"""Rows find their groups, however many table partitions there are."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from metatable.data.key_texts import KEY, PATH
from metatable.data.operations import INSERT
from metatable.data.slices import DataFile
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.routes import Destinations

ROWS = 1 << 16


def _seconds(partitions: int) -> float:
    """The processor time in which so many partitions' inserts, one after the other, are placed."""
    names = [f"city={number:05}" for number in range(partitions)]
    groups = tuple(GroupPlan(DataFile(name, "g", "0-0-0", "1"), None, 0) for name in names)
    bins = {name: ((), (place,)) for place, name in enumerate(names)}
    plan = WritePlan("1", INSERT, groups, bins, None, True, 1)
    paths = pa.array(names * (ROWS // partitions))
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        to = Destinations.of(plan, pa.table({KEY: paths, PATH: paths}), np.full(ROWS, -1))
        best = min(best, time.process_time() - began)
    assert (to.groups == np.arange(ROWS) % partitions).all()
    return best


def test_inserts_are_not_looked_through_for_each_table_partition() -> None:
    assert _seconds(1 << 13) < 20 * _seconds(1 << 4)
