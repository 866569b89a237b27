"""Rows that may be older than what is stored are held against it some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.engine import partitions
from metatable.engine.local import LocalEngine
from metatable.index.locations import LOCATION, LOCATION_COLUMN
from metatable.metadata import written
from metatable.results import Fault
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write import new_log, stale_rows
from metatable.write.commit_pass import write
from tests.compaction.hurt_tables import Hurt
from tests.compaction.ways_to_hurt import stats_say


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


def test_a_task_of_many_pieces_tells_of_each_file_group_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 10)
    groups = [{"partition_path": "", "file_id": f"g{number}"} for number in range(4)]
    located = pa.array([*groups, None] * 20, LOCATION)
    ages = pa.array([100 - number if number != 51 else None for number in range(100)])
    rows = pa.table([located, ages], names=[LOCATION_COLUMN, "at"])
    task = partial(stale_rows._least, "at", stale_rows._least_sums(pa.int64()))
    batches = rows.to_batches(max_chunksize=10)
    told = pa.Table.from_batches(task(iter(batches), Counters()))
    assert sorted(told.to_pylist(), key=lambda one: str(one["file_id"])) == [
        {"path": "", "file_id": f"g{number}", "least": 5 - number, "null": number == 1}
        for number in range(4)
    ]


def _wide(at: int, ids: range = range(40)) -> pa.Table:
    """Rows whose key and ordering column stand behind forty others."""
    others = {f"c{number:02}": np.full(len(ids), number) for number in range(40)}
    ages = np.full(len(ids), at)
    return pa.table({**others, "id": [f"k{number:02}" for number in ids], "at": ages})


def _made_wide(place: Path, **how: Any) -> metatable.Table:
    options = {"file_rows": 10, "small_file_bytes": 0, "log_format": "parquet"}
    return metatable.create(
        place,
        _wide(0).schema,
        key="id",
        ordering="at",
        index="record",
        options=options | how.pop("options", {}),
        storage_options={"durable": "false"},
        **how,
    )


def _upserted(table: metatable.Table, given: pa.Table) -> tuple[int | None, int]:
    result = write(Store(table.uri, {"durable": "false"}), LocalEngine(1), given, "upsert")
    return result.updated, result.stale


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By which look the files of stored rows were read, in order."""
    calls = list[str]()
    for module, name in ((stale_rows, "read_slice"), (new_log, "read_base_file")):
        read = getattr(module, name)

        def noting(*asked: Any, _name: str = name, _read: Any = read) -> Any:
            calls.append(_name)
            return _read(*asked)

        monkeypatch.setattr(module, name, noting)
    return calls


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_newer_rows_open_no_file_wherever_the_ordering_column_stands(
    tmp_path: Path, opened: list[str], table_type: str
) -> None:
    table = _made_wide(tmp_path / "table", table_type=table_type)
    table.insert(_wide(10))
    assert _upserted(table, _wide(12)) == (40, 0)
    assert _upserted(table, _wide(14, range(3, 5))) == (2, 0)
    assert opened == []
    assert _upserted(table, _wide(11)) == (0, 40)
    assert table.verify().findings == ()
    stats_say(Hurt(table.uri), column="at", maximum=0)
    assert [one.code for one in table.verify().findings] == [Fault.COLUMN_STATS]


def test_a_table_without_statistics_keeps_none_of_its_ordering_column(
    tmp_path: Path, opened: list[str]
) -> None:
    table = _made_wide(tmp_path / "table", options={"stats_columns": 0})
    table.insert(_wide(10))
    assert _upserted(table, _wide(12)) == (40, 0)
    assert set(opened) == {"read_slice"}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_files_of_a_version_that_kept_no_such_statistics_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str], table_type: str
) -> None:
    table = _made_wide(tmp_path / "table", table_type=table_type)
    with monkeypatch.context() as before:
        before.setattr(written, "_anywhere", lambda _: ())
        table.insert(_wide(10))
    assert table.verify().findings == ()
    assert _upserted(table, _wide(9, range(20, 40))) == (0, 20)
    assert set(opened) == {"read_slice"}
    assert _upserted(table, _wide(12, range(20))) == (20, 0)
    opened.clear()
    assert _upserted(table, _wide(11, range(20))) == (0, 20)
    assert table.verify().findings == ()
    assert table.scan(where=[("at", "<", 11)]).count() == 20
    assert table.scan(where=[("at", "=", 12)]).count() == 20
    if table_type == "cow":
        assert _upserted(table, _wide(13, range(20))) == (20, 0)
        assert opened == ["read_slice"] * 2  # of the rows that were older
    assert table.repair().findings == ()
