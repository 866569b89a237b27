"""Runs of entries that ride in receipts are few together, whoever has the entries made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.compaction.service import execute
from metatable.index import build
from metatable.metadata.hfiles import entry_files
from metatable.metadata.hfiles.entry_files import Run, cut_ranges
from metatable.storage.store import Store
from metatable.write import planning, stored_files
from tests.compaction import test_built_index as services
from tests.compaction.test_built_index import Elsewhere
from tests.face.test_adopt import stripped
from tests.index.test_buckets import FAST

ALL_BYTES = 3000


def written(uri: str) -> tuple[Table, Callable[[], Any]]:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = metatable.create(uri, schema, key="id", storage_options=FAST, options={"file_rows": 4})
    rows = pa.table([[f"k{one:03}" for one in range(64)], range(64)], schema=schema)
    return table, lambda: table.insert(rows)


def adopted(uri: str) -> tuple[Table, Callable[[], Any]]:
    table, insert = written(uri)
    insert()
    stripped(Path(uri))
    return table, lambda: metatable.adopt(uri, index="record")


def served(due: Callable[[str], Any]) -> Callable[[str], tuple[Table, Callable[[], Any]]]:
    def filled(uri: str) -> tuple[Table, Callable[[], Any]]:
        table, _, service = due(uri)
        return table, lambda: execute(Store(uri, FAST), Elsewhere(1), service)

    return filled


@pytest.mark.parametrize(
    "due",
    [
        written,
        adopted,
        served(services.clustered),
        served(services.compacted),
        served(services.resized),
    ],
    ids=["insert", "adopt", "cluster", "compact_logs", "resize_buckets"],
)
def test_what_rides_is_bounded_together(
    tmp_path: Path,
    due: Callable[[str], tuple[Table, Callable[[], Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "TASK_BYTES", 100)
    monkeypatch.setattr(planning, "LEAST_TASK_BYTES", 1)
    monkeypatch.setattr(stored_files, "TASK_BYTES", 100)
    table, run = due(str(tmp_path / "table"))
    told: list[Run] = []

    def noting(partition: Any, runs: Sequence[Run], target_bytes: int) -> Any:
        told.extend(runs)
        return cut_ranges(partition, runs, target_bytes)

    monkeypatch.setattr(build, "cut_ranges", noting)
    monkeypatch.setattr(entry_files, "ALL_INLINE_BYTES", ALL_BYTES)
    run()
    assert len(told) > len({one.partition for one in told})
    for name in {one.partition for one in told}:
        riding = [len(one.body) for one in told if one.partition == name and one.body is not None]
        assert sum(riding) <= ALL_BYTES, (name, riding)
    assert not metatable.open(table.uri).verify().findings
