"""Rows of a merge that come in any order read the files that hold their keys once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.data.file_groups.slices import FileSlice
from metatable.engine import partitions
from metatable.engine.local import LocalEngine
from metatable.storage.store import Store
from metatable.write import partial_rows
from metatable.write.commit_pass import write

FILES, ROWS = 20, 400
FAST = {"durable": "false"}


def _rows(v: int) -> pa.Table:
    """Those of a file lie far apart."""
    numbers = [number * 7 % ROWS for number in range(ROWS)]
    return pa.table(
        {
            "id": [f"k{number:03}" for number in numbers],
            "v": [v] * ROWS,
            "kept": numbers,
        }
    )


def test_tasks_are_as_many_as_the_rows_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metatable.create(
        tmp_path / "table",
        _rows(0).schema,
        key="id",
        index="record",
        options={"file_rows": ROWS // FILES, "small_file_bytes": 0},
        storage_options=FAST,
    )
    table.insert(_rows(0))
    monkeypatch.setattr(
        partitions, "PARTITION_ROWS", 40
    )  # without memory each batch is one that is kept
    monkeypatch.setattr(partial_rows, "TASK_ROWS", 10)
    monkeypatch.setattr(partial_rows, "ROWS_TOGETHER", 80)
    read, stream = Counter[str](), partial_rows.stream_slice

    def noting(store: Store, held: FileSlice, *more: Any) -> Any:
        read[held.file_id] += 1
        return stream(store, held, *more)

    monkeypatch.setattr(partial_rows, "stream_slice", noting)
    given = _rows(1).select(["id", "v"])
    write(Store(table.uri, FAST), LocalEngine(1, memory_bytes=0), given, "merge")
    assert len(read) == len(table.files())
    assert read.total() <= 1.5 * len(read), "a second time where many fall to one task"
    assert table.scan().to_arrow().sort_by("id").equals(_rows(1).sort_by("id"))
