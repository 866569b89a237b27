"""What `scan` and `files` give back goes wherever Arrow and Parquet go, and is read as it goes."""

from __future__ import annotations

import importlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import col, data_files
from metatable.data.base_files import base_file
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query import scan as scan_module
from metatable.query.skipping import keep_files
from metatable.storage import cache

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("city", pa.string()),
        ("x", pa.float64()),
        ("fare", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
DAYS = [date(2024, 3, 1), date(2024, 3, 2)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> metatable.Table:
    """Two days of forty rows, in files of two row groups of ten; ids and `x` go up."""
    made = metatable.create(
        str(tmp_path_factory.mktemp("scan") / "rides"),
        SCHEMA,
        key="id",
        partition_by="day",
        options={"file_rows": 20, "row_group_rows": 10, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    for first in (0, 20):
        made.insert(rows(range(first, first + 20), range(40 + first, 60 + first)))
    return made


def rows(*ranges: range) -> pa.Table:
    ids = [number for one in ranges for number in one]
    columns = {
        "id": ids,
        "day": [DAYS[number // 40] for number in ids],
        "city": [f"c{number % 3}" for number in ids],
        "x": [number / 2 for number in ids],
        "fare": pa.array(ids, pa.int64()).cast(pa.decimal128(38, 2)),
        "tags": [["a"] * (number % 3) for number in ids],
        "at": [number * 10**9 for number in ids],
    }
    return pa.table([pa.array(columns[one.name]).cast(one.type) for one in SCHEMA], schema=SCHEMA)


def ids_of(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


# Files


def test_files_are_a_sequence_that_knows_its_rows(table: metatable.Table) -> None:
    files = table.files()
    assert (len(files), files.row_count, [one.row_count for one in files]) == (4, 80, [20] * 4)
    assert [files[place].path for place in range(-4, 4)] == [one.path for one in [*files] * 2]
    assert files[np.int64(1)] == files[1] == list(files)[1]
    assert files[1:3] == list(files)[1:3]
    assert files[::-2] == list(files)[::-2]
    assert (files[1:1] == [], bool(files[1:1]), files == [], files != table.files()[:2]) == (
        (True, False, False, True)
    )
    assert files.size_bytes == sum(Path(uri).stat().st_size for uri in files.uris)
    with pytest.raises(IndexError):
        files[4]
    with pytest.raises(AttributeError):
        files.root = "elsewhere"  # type: ignore[misc]


def test_files_are_told_in_a_few_lines(table: metatable.Table) -> None:
    lines = repr(table.files()).splitlines()
    assert lines[0].startswith("4 data files, 80 rows, ")
    assert lines[1:] == [f"  {one.path}" for one in table.files()]


def test_row_counts_cost_no_request_a_file(table: metatable.Table) -> None:
    def cost(where: Any) -> int:
        cache.clear()
        opened = metatable.open(table.uri)
        before = dict(opened.counters)
        files = opened.files(where)
        told = opened.counters.since(before)
        assert files.row_count == 20 * len(files)
        assert "data.files_opened" not in told
        return told["store.requests"]

    assert cost(None) == cost(col("day") == DAYS[0])


def test_rows_of_files_are_known_from_the_statistics_that_were_read_anyway(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = Snapshot.row_counts
    monkeypatch.setattr(
        Snapshot,
        "row_counts",
        lambda self, slices: asked.append(len(slices)) or real(self, slices),
    )
    assert [one.row_count for one in table.files(col("x") > 30)] == [20]
    assert [one.row_count for one in table.files(col("tags").is_null() | (col("x") > 30))] != []
    assert asked[0] == 0


READERS: dict[str, Callable[[list[str]], pa.Table]] = {
    "pyarrow": lambda uris: pq.read_table(uris, partitioning=None),
    "duckdb": lambda uris: duckdb.read_parquet(uris, hive_partitioning=False).to_arrow_table(),
    "polars": lambda uris: polars.read_parquet(uris, hive_partitioning=False).to_arrow(),
    "pandas": lambda uris: pa.Table.from_pandas(pandas.read_parquet(uris, partitioning=None)),
}


@pytest.mark.parametrize("reader", READERS)
def test_uris_of_files_are_taken_by(table: metatable.Table, reader: str) -> None:
    uris = table.files(col("day") == DAYS[1]).uris
    assert all(Path(uri).is_absolute() for uri in uris)
    found = READERS[reader](uris)
    assert ids_of(found) == list(range(40, 80))
    assert set(SCHEMA.names) < set(found.schema.names)


def test_uris_of_an_object_store_are_urls_of_its_scheme() -> None:
    from metatable.results import DataFiles  # noqa: PLC0415

    name = "f-0_0-0-0_20240301000000000.parquet"
    one = np.array([7])
    files = DataFiles("s3://bucket/rides", pa.array([f"city=Ulm/{name}"]), one, one)
    assert files.uris == [f"s3://bucket/rides/city=Ulm/{name}"]


def test_files_become_objects_in_parts(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_AT_ONCE", 2)
    files = table.files()
    assert len(files) > 2
    assert list(files) == [files[place] for place in range(len(files))]
    assert list(files[:0]) == []


# Scans, by name of who takes them


def _from_scan(scan: Any) -> pa.Table:
    return duckdb.sql("select * from scan").to_arrow_table()


TAKERS: dict[str, Callable[[Any], pa.Table]] = {
    "pyarrow.table": pa.table,
    "pyarrow.RecordBatchReader": lambda scan: pa.RecordBatchReader.from_stream(scan).read_all(),
    "polars.DataFrame": lambda scan: polars.DataFrame(scan).to_arrow(),
    "duckdb.sql": _from_scan,
    "duckdb.from_arrow": lambda scan: duckdb.from_arrow(scan).to_arrow_table(),
    "to_arrow": lambda scan: scan.to_arrow(),
    "to_batches": lambda scan: pa.Table.from_batches(scan.to_batches(), scan.schema),
    "to_reader": lambda scan: scan.to_reader().read_all(),
    "to_pandas": lambda scan: pa.Table.from_pandas(scan.to_pandas(), scan.schema),
    "to_polars": lambda scan: scan.to_polars().to_arrow(),
    "to_duckdb": lambda scan: scan.to_duckdb().to_arrow_table(),
    "to_duckdb(connection)": lambda scan: scan.to_duckdb(duckdb.connect()).to_arrow_table(),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_scan_is_taken_by(table: metatable.Table, taker: str) -> None:
    scan = table.scan(["x", "id", "fare", "tags", "at"], where=col("x") >= 29.5)
    for _ in range(2):  # a scan may be asked again
        found = TAKERS[taker](scan)
        assert found.schema.names == scan.schema.names
        assert sorted(row["id"] for row in found.to_pylist()) == list(range(59, 80))
        assert found["fare"].to_pylist() == scan.to_arrow()["fare"].to_pylist()


@pytest.mark.parametrize("taker", TAKERS)
def test_a_scan_without_rows_keeps_its_columns_for(table: metatable.Table, taker: str) -> None:
    for scan in (table.scan(where=col("x") > 1e9), table.scan(limit=0)):
        found = TAKERS[taker](scan)
        assert found.num_rows == 0
        assert found.schema.names == SCHEMA.names
        kinds = {"int64": "id", "date32[day]": "day", "double": "x", "decimal128(9, 2)": "fare"}
        assert {str(found.schema.field(name).type): name for name in kinds.values()} == kinds


def test_a_duckdb_relation_of_a_scan_may_be_asked_twice(table: metatable.Table) -> None:
    relation = table.scan(["id"]).to_duckdb()
    assert relation.count("*").fetchall() == relation.count("*").fetchall() == [(80,)]
    assert relation.filter("id < 3").fetchall() == [(0,), (1,), (2,)]


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_a_package_that_is_missing_is_told(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError):
        importlib.import_module(package)
    told = f"{package} is not installed: expected='pip install {package}'"
    with pytest.raises(metatable.UsageError, match=told):
        getattr(table.scan(), f"to_{package}")()


def test_one_column_may_be_named_alone(table: metatable.Table) -> None:
    assert table.scan("id").schema.names == ["id"]


def test_names_of_columns_may_come_one_by_one(table: metatable.Table) -> None:
    assert table.scan(iter(["x", "id"])).to_arrow().column_names == ["x", "id"]
    assert table.read_keys(rows(range(1)), iter(["x", "id"])).to_pydict() == {"x": [0.0], "id": [0]}
    assert table.changes(0, columns=iter(["id"])).to_arrow().num_rows == 80


def test_a_scan_tells_what_it_is(table: metatable.Table) -> None:
    told = repr(table.scan(["id"], [("x", ">", 5)], limit=3))
    assert told.startswith(f"Scan({table.uri!r}, version=3, columns=['id'], where=Comparison(")
    assert told.endswith("limit=3)")
    assert repr(table.scan(["id"])) == f"Scan({table.uri!r}, version=3, columns=['id'])"


# Streams


def in_order(table: metatable.Table, where: Any = None) -> list[int]:
    """All ids, as files of random names bring them."""
    return table.scan(["id"], where).to_arrow()["id"].to_pylist()


def read_so_far(table: metatable.Table) -> tuple[int, int]:
    """(files opened, row groups read)."""
    return table.counters.get("data.files_opened", 0), table.counters.get("data.row_groups", 0)


@pytest.fixture
def fresh(table: metatable.Table, monkeypatch: pytest.MonkeyPatch) -> metatable.Table:
    """The table with nothing counted, of which a stream holds one row group."""
    monkeypatch.setattr(base_file, "STEP_BYTES", 1)
    return metatable.open(table.uri)


def test_a_stream_reads_a_row_group_when_it_is_asked_for_it(
    table: metatable.Table, fresh: metatable.Table
) -> None:
    expected = in_order(table)
    batches = fresh.scan(["id"]).to_batches()
    assert read_so_far(fresh) == (0, 0)
    for number, batch in enumerate(batches):
        assert batch["id"].to_pylist() == expected[10 * number :][:10]
        assert read_so_far(fresh) == (number // 2 + 1, number + 1)
    assert read_so_far(fresh) == (4, 8)


def test_small_row_groups_of_a_file_are_read_together(table: metatable.Table) -> None:
    opened = metatable.open(table.uri)
    scan = opened.scan(["id"])
    scan.files()
    before = dict(opened.counters)
    assert scan.to_arrow().num_rows == 80
    told = opened.counters.since(before)
    assert (told["data.files_opened"], told["data.row_groups"]) == (4, 8)
    assert told["store.requests"] <= 3 * 4


def test_a_stream_that_is_left_alone_reads_no_more_and_holds_nothing(
    fresh: metatable.Table,
) -> None:
    def half(taken: Iterator[Any]) -> None:
        next(taken)

    before = pa.total_allocated_bytes()
    half(fresh.scan().to_batches())
    reader = fresh.scan().to_reader()
    half(reader)
    del reader
    half(iter(pa.RecordBatchReader.from_stream(fresh.scan())))
    assert read_so_far(fresh) == (3, 3)
    assert pa.total_allocated_bytes() <= before + 4096


@pytest.mark.parametrize(
    ("limit", "read"),
    [
        (0, (0, 0)),
        (1, (1, 1)),
        (10, (1, 1)),
        (11, (1, 2)),
        (20, (1, 2)),
        (21, (2, 3)),
        (99, (4, 8)),
        (10**30, (4, 8)),
    ],
)
def test_a_limit_stops_reading(
    table: metatable.Table, fresh: metatable.Table, limit: int, read: tuple[int, int]
) -> None:
    scan = fresh.scan(["id"], limit=limit)
    assert scan.to_arrow()["id"].to_pylist() == in_order(table)[:limit]
    assert read_so_far(fresh) == read
    assert scan.count() == min(limit, 80)
    assert len(scan.files()) == read[0]
    assert read_so_far(fresh) == read


def test_a_limit_counts_rows_for_which_the_condition_is_true(
    table: metatable.Table, fresh: metatable.Table
) -> None:
    first = in_order(table, col("city") == "c1")[:5]
    scan = fresh.scan(["id"], where=col("city") == "c1", limit=5)
    assert scan.to_arrow()["id"].to_pylist() == first
    assert read_so_far(fresh) == (1, 2)
    assert scan.count() == 5
    assert read_so_far(fresh) == (2, 4)
    assert len(scan.files()) == 4  # which of them hold five such rows, nobody knows


def test_explain_tells_how_many_files_a_limit_leaves(fresh: metatable.Table) -> None:
    told = fresh.scan(limit=21).explain()
    assert list(told.files.items())[-1] == ("within the limit", 2)
    assert told.file_bytes == fresh.files()[:2].size_bytes
    assert "within the limit" not in fresh.scan(where=col("x") > 1, limit=21).explain().files
    assert read_so_far(fresh) == (0, 0)


@pytest.mark.parametrize("limit", [-1, 1.0, "10", True])
def test_a_limit_that_is_no_number_of_rows_is_refused(table: metatable.Table, limit: Any) -> None:
    with pytest.raises(metatable.UsageError, match=r"limit is no number of rows: expected='0 or"):
        table.scan(limit=limit)


def test_a_scan_that_waits_for_its_files_keeps_no_other_waiting(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a child that is forked meanwhile, which would wait for ever."""
    begun, go_on = threading.Event(), threading.Event()

    def kept(where: Any, view: Any) -> Any:
        if where is not None:
            begun.set()
            assert go_on.wait(30)
        return keep_files(where, view)

    monkeypatch.setattr(scan_module, "keep_files", kept)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(table.scan(where=[("id", "is not null")]).count)
        assert begun.wait(30)
        try:
            count = pool.submit(table.scan().count).result(5)
        finally:
            go_on.set()
        assert slow.result() == count


@pytest.mark.parametrize("anew", [True, False])
def test_a_scan_of_a_table_that_was_deleted_meanwhile_is_stale(tmp_path: Path, anew: bool) -> None:
    """And no damage, which somebody would repair."""
    uri, schema = tmp_path / "t", pa.schema({"id": pa.string()})
    rows = pa.table({"id": ["a"]})
    table = metatable.create(uri, schema, key="id", storage_options={"durable": "false"})
    table.insert(rows)
    held = table.scan()
    shutil.rmtree(uri)
    if anew:
        metatable.create(uri, schema, key="id", storage_options={"durable": "false"}).insert(rows)
    with pytest.raises(metatable.StaleError, match="moved or deleted meanwhile"):
        held.to_arrow()
