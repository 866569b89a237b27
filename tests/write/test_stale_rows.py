"""Rows that may be older than what is stored are held against it some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.engine import partitions
from metatable.engine.local import LocalEngine
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write import stale_rows
from metatable.write.commit_pass import write


def _rows(at: int) -> pa.Table:
    return pa.table({"id": [f"k{number:02}" for number in range(40)], "at": [at] * 40})


@pytest.mark.parametrize("at", [8, 12])
def test_a_task_judges_some_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    table = metatable.create(
        tmp_path / "table",
        _rows(0).schema,
        key="id",
        ordering="at",
        index="record",
        options={"file_rows": 5, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    ages = pa.array([9, 11] * 20)  # each file has rows that are newer, and older ones
    table.insert(_rows(0).set_column(1, "at", ages))
    monkeypatch.setattr(stale_rows, "ROWS_TOGETHER", 5)
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 1)
    given, judge = list[int](), stale_rows._stale

    def judged(view: Any, ordering: str, identity: Any, *told: Any) -> Iterator[pa.RecordBatch]:
        batches = list(told[0])
        given.append(sum(map(len, batches)))
        return judge(view, ordering, identity, iter(batches), Counters())

    monkeypatch.setattr(stale_rows, "_stale", judged)
    result = write(Store(table.uri, {"durable": "false"}), LocalEngine(1), _rows(at), "upsert")
    stale = {8: 40, 12: 0}[at]
    assert (result.stale, result.updated) == (stale, 40 - stale)
    assert (sum(given), max(given, default=0) < 40) == ({8: 40, 12: 0}[at], True)
