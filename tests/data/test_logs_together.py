"""Logs of several slices, read together: rows are those of slices read one by one, and errors."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import CorruptError, Table
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.logs.log_merge import SliceLogs
from metatable.data.reading import logs_together as together_module
from metatable.data.reading.logs_together import logs_together
from metatable.data.reading.slice_reader import logs_of_each, stream_slice
from metatable.storage import cache
from tests.model import SCHEMA, arrow, scanned
from tests.shared import made_once

CITIES = [f"c{number}" for number in range(9)]
COLUMNS = pa.schema([SCHEMA.field("id"), SCHEMA.field("v")])


def rows(draw: random.Random, count: int, v: int) -> list[dict[str, Any]]:
    keys = draw.sample(range(120), count)
    return [{"id": f"k{key:03}", "city": CITIES[key % 9], "v": v, "ts": v} for key in keys]


def made(uri: str) -> Table:
    """Nine groups; some have many logs, some none."""
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index="bloom",
        table_type="mor",
        options={"key_scope": "partition"},
        storage_options={"durable": "false"},
    )
    draw = random.Random(7)
    table.insert(arrow(rows(draw, 120, 1)))
    for v in range(2, 8):
        table.upsert(arrow(rows(draw, 6, v)))
        table.delete(arrow(rows(draw, 2, v)))
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return metatable.open(made_once(tmp_path_factory, "logs", made), {"durable": "false"})


def slices(table: Table) -> list[FileSlice]:
    return list(table._snapshot(None).slices())


def read(table: Table, some: Sequence[FileSlice], by: Any = None) -> list[list[Any]]:
    """The rows of each slice, by what gives their logs, if not alone."""
    asked = ReadColumns(COLUMNS, table._snapshot(None).table_schema, "ts")
    given = ((one, None) for one in some) if by is None else by(table._store, some, asked)
    return [
        pa.concat_tables(stream_slice(table._store, one, asked, logs=logs)).to_pylist()
        for one, logs in given
    ]


@pytest.mark.parametrize("log_bytes", [0, 4000, 1 << 20])
@pytest.mark.parametrize("most", [1, 2, 64])
def test_rows_are_those_of_slices_read_alone(
    table: Table, log_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together_module, "LOG_BYTES", log_bytes)
    monkeypatch.setattr(together_module, "MOST_SLICES", most)
    some = slices(table)
    assert {bool(one.logs) for one in some} == {True, False}
    assert read(table, some, logs_together) == read(table, some)
    assert read(table, [], logs_together) == []


def test_small_logs_of_neighbours_are_read_at_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(store: Any, logs: Sequence[Sequence[LogFile]], *given: Any) -> list[SliceLogs]:
        calls.append(len(logs))
        return logs_of_each(store, logs, *given)

    monkeypatch.setattr(together_module, "logs_of_each", counted)
    with_logs = sum(bool(one.logs) for one in slices(table))
    assert with_logs > 4
    scanned(table)
    assert calls == [with_logs]
    keys = pa.table({"id": [f"k{key:03}" for key in range(120)]})
    table.read_keys(keys.append_column("city", [[CITIES[key % 9] for key in range(120)]]))
    assert calls[1:] == [with_logs] * 2  # which keys there are, and their rows
    del calls[:]
    assert table.scan(limit=1).to_arrow().num_rows == 1  # what comes first may be enough
    assert calls == []
    monkeypatch.setattr(together_module, "MOST_SLICES", 3)
    scanned(table)
    assert sum(calls) >= with_logs
    assert max(calls) <= 3
    del calls[:]
    monkeypatch.setattr(together_module, "LOG_BYTES", 0)
    scanned(table)
    assert calls == [1] * with_logs


def test_damage_is_told_of_its_own_slice_behind_the_rows_of_those_before(tmp_path: Path) -> None:
    table = made(str(tmp_path / "table"))
    some = [one for one in slices(table) if one.logs]
    expected = read(table, some)
    hurt = some[2].logs[0]
    body = bytearray(Path(table.uri, hurt.path).read_bytes())
    Path(table.uri, hurt.path).write_bytes(body[:-1])
    cache.clear()
    asked = ReadColumns(COLUMNS, table._snapshot(None).table_schema, "ts")
    found = []

    def find() -> None:
        for one, logs in logs_together(table._store, some, asked):
            rows = pa.concat_tables(stream_slice(table._store, one, asked, logs=logs))
            found.append(rows.to_pylist())

    with pytest.raises(CorruptError, match=hurt.path):
        find()
    assert found == expected[:2]


def test_threads_that_ask_at_once_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    begun = threading.Event()

    def slow(store: Any, logs: Sequence[Sequence[LogFile]], *given: Any) -> list[SliceLogs]:
        calls.append(len(logs))
        begun.wait(0.2)
        return logs_of_each(store, logs, *given)

    monkeypatch.setattr(together_module, "logs_of_each", slow)
    asked = ReadColumns(COLUMNS, table._snapshot(None).table_schema, "ts")
    reads = [logs for _, logs in logs_together(table._store, slices(table), asked) if logs]
    threads = [threading.Thread(target=one) for one in reads]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert calls == [len(reads)]
