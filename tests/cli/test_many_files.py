"""Rows in several files: each comes to the table as it would alone, whatever stands before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable.cli.main import main

XY = pa.struct([("x", pa.int64()), ("y", pa.int64())])

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("s", XY),
        ("l", pa.list_(XY)),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("n", pa.int64()),
    ]
)

Fill = Callable[[list[Any]], str]


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    """A table into which files are put by one call, each of a row; its address."""

    def filled(columns: list[Any]) -> str:
        uri = str(tmp_path / "table")
        metatable.create(uri, SCHEMA, key="id", storage_options={"durable": "false"})
        files = []
        for place, column in enumerate(columns):
            name, values = column
            files.append(str(tmp_path / f"{place}.parquet"))
            keys = pa.array([str(place)] if name != "id" else values)
            pq.write_table(pa.table({"id": keys} | {name: values}), files[-1])
        assert main(["insert", uri, *files, "--storage-option", "durable=false"]) == 0
        return uri

    return filled


def held(uri: str, name: str) -> list[Any]:
    found: list[Any] = metatable.open(uri).scan().to_arrow().sort_by("id")[name].to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("s", pa.array([{"x": 1}]), pa.array([{"x": 1, "y": 2}])),
        ("l", pa.array([[{"x": 1}]]), pa.array([[{"x": 1, "y": 2}]])),
        ("fare", pa.array([0.5], pa.float32()), pa.array([0.1])),
        ("n", pa.array([1], pa.int32()), pa.array([1 << 40])),
        ("n", pa.array([None], pa.null()), pa.array([7])),
        ("n", pa.array([1 << 40]), pa.array([1], pa.int32())),
    ],
)
def test_a_file_is_stored_as_it_would_be_alone(
    fill: Fill, name: str, first: pa.Array, second: pa.Array
) -> None:
    one, other = held(fill([(name, first), (name, second)]), name)
    assert other == second.to_pylist()[0]
    if isinstance(one, list | dict):
        one = str(one).replace(", 'y': None", "")
        assert one == str(first.to_pylist()[0])
    else:
        assert one == first.to_pylist()[0]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("at", pa.array([datetime(2026, 1, 1)]), pa.array([1700000000])),
        ("at", pa.array([datetime(2026, 1, 1)]), pa.array([datetime(2026, 1, 1, tzinfo=UTC)])),
        ("zoned", pa.array([datetime(2026, 1, 1, tzinfo=UTC)]), pa.array([datetime(2026, 1, 1)])),
        ("day", pa.array([datetime(2026, 1, 1).date()]), pa.array([datetime(2026, 1, 1, 13)])),
        ("id", pa.array(["a"]), pa.array([7])),
        ("fare", pa.array([0.5]), pa.array([1 << 40])),
    ],
)
def test_what_is_refused_alone_is_refused_behind_another(
    fill: Fill, capfd: Any, tmp_path: Path, name: str, first: pa.Array, second: pa.Array
) -> None:
    with pytest.raises(AssertionError, match="assert 2 == 0"):
        fill([(name, first), (name, second)])
    told = capfd.readouterr().err
    assert "column has another type than the table's" in told
    assert str(tmp_path / "1.parquet") in told
    assert f"column='{name}'" in told
    assert metatable.open(tmp_path / "table").scan().count() == 0


def test_numbers_that_the_table_does_not_know_are_one_kind(tmp_path: Path, capfd: Any) -> None:
    uri = str(tmp_path / "table")
    metatable.create(uri, SCHEMA, key="id", storage_options={"durable": "false"})
    for place, number in enumerate(["1.5", "2"]):
        (tmp_path / f"{place}.csv").write_text(f"id,weight\na,{number}\n")
    files = [str(tmp_path / f"{place}.csv") for place in range(2)]
    assert main(["tag", uri, *files, "--format", "jsonl"]) == 0
    assert capfd.readouterr().out.count('"weight": 2.0') == 1


@pytest.mark.parametrize("empty", ["", '""'])
def test_a_row_without_a_key_is_told_by_its_file_and_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], empty: str
) -> None:
    uri, first, second = (str(tmp_path / name) for name in ("table", "a.csv", "b.csv"))
    metatable.create(uri, SCHEMA, key="id", storage_options={"durable": "false"})
    Path(first).write_text("id,n\nk,1\nl,2\n")
    Path(second).write_text(f'id,n\n"m\nm",3\n\n{empty},4\n')
    for verb, files in (("insert", [first, second]), ("delete", [second]), ("lookup", [second])):
        assert main([verb, uri, *files, "--storage-option", "durable=false"]) == 2
        told = capfd.readouterr().err
        assert f"key is null or empty: column='id' file='{second}' line=5" in told
    assert metatable.open(uri).version == 1


def test_a_row_without_a_key_is_told_by_its_file_and_number(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri, lines, parquet = (str(tmp_path / name) for name in ("table", "a.jsonl", "b.parquet"))
    metatable.create(uri, SCHEMA, key="id", storage_options={"durable": "false"})
    Path(lines).write_text('{"id": "k"}\n{"id": "l"}\n{"id": null}\n')
    pq.write_table(pa.table({"id": ["k"] * 99 + [""] * 2}), parquet, row_group_size=10)
    for file, row in ((lines, 3), (parquet, 100)):
        assert main(["upsert", uri, file, "--storage-option", "durable=false"]) == 2
        told = capfd.readouterr().err
        assert f"key is null or empty: column='id' file='{file}' row={row}" in told
    named = pa.table({"id": pa.nulls(1, pa.string()), "_hoodie_record_key": ["k"]})
    pq.write_table(named, parquet)
    assert main(["tag", uri, parquet, "--storage-option", "durable=false"]) == 0
