"""Rows find their groups, however many table partitions there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.data.file_groups.slices import DataFile
from metatable.data.hoodie.operations import INSERT
from metatable.data.keys.key_texts import KEY, PATH
from metatable.write import routes
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.routes import Destinations

PARTITIONS, ROWS = 1 << 8, 1 << 12


def test_inserts_are_looked_through_once_for_all_table_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"city={number:05}" for number in range(PARTITIONS)]
    groups = tuple(GroupPlan(DataFile(name, "g", "0-0-0", "1"), None, 0) for name in names)
    bins = {name: ((), (place,)) for place, name in enumerate(names)}
    plan = WritePlan("1", INSERT, groups, bins, None, True, 1)
    paths = pa.array(names * (ROWS // PARTITIONS))
    passed, grouped = list[int](), routes.grouped

    def counting(columns: Any) -> Any:
        passed.append(sum(map(len, columns.values())))
        return grouped(columns)

    monkeypatch.setattr(routes, "grouped", counting)
    to = Destinations.of(plan, pa.table({KEY: paths, PATH: paths}), np.full(ROWS, -1))
    assert (to.groups == np.arange(ROWS) % PARTITIONS).all()
    assert passed == [ROWS]
