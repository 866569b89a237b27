"""Tables made of our parts, read by the `hudi` wheel: snapshots, time travel, increments."""

from __future__ import annotations

import zipfile
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.data.base_files.base_file import read_base_file, read_record_keys
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage.store import Store
from tests.data.hudi_table import HudiTable
from tests.data.test_schema import EVERY_TYPE, FULL_ROW

hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")

TRIPS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("val", pa.int64())])


def opened(table: HudiTable) -> Any:
    return hudi.HudiTableBuilder.from_base_uri(table.store.uri).build()


def read(table: HudiTable, options: Any = None) -> list[dict[str, Any]]:
    """What hudi sees, by id, without meta columns."""
    found = [row for batch in opened(table).read(options) for row in batch.to_pylist()]
    plain = [{name: row[name] for name in table.schema.names} for row in found]
    return sorted(plain, key=lambda row: row["id"])


def as_of(instant: str) -> Any:
    return hudi.HudiReadOptions().with_as_of_timestamp(instant)


def equal_to(column: str, word: str) -> Any:
    return hudi.HudiReadOptions(filters=[(column, "=", word)])


def rows(*values: tuple[Any, ...]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*values, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, TRIPS, strict=True)],
        schema=TRIPS,
    )


def as_rows(*values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(TRIPS.names, value, strict=True)) for value in sorted(values)]


def trips(uri: str, partition_by: str | tuple[str, ...], **options: Any) -> HudiTable:
    made = Options.create(
        "trips", TRIPS.names, key="id", partition_by=partition_by, ordering="val", options=options
    )
    return HudiTable.create(uri, TRIPS, made)


@pytest.mark.parametrize(
    ("partition_by", "hive_style"), [("city", True), ("city", False), ((), True)]
)
def test_hudi_reads_every_version_of_a_history(
    table_uri: str, partition_by: str, hive_style: bool
) -> None:
    table = trips(table_uri, partition_by, hive_style=hive_style)
    assert read(table) == []
    first = table.upsert(rows((1, "sf", 10), (2, "sf", 20), (3, "ny", 30)), "INSERT")
    second = table.upsert(rows((1, "sf", 11), (2, "sf", 5), (4, "la", 40)))
    path = {("city", True): "city=sf", ("city", False): "sf"}.get(
        (str(partition_by), hive_style), ""
    )
    third = table.delete(path, ["1", "absent"])
    whole = as_rows((1, "sf", 10), (2, "sf", 20), (3, "ny", 30))
    updated = as_rows((1, "sf", 11), (2, "sf", 20), (3, "ny", 30), (4, "la", 40))
    assert read(table) == [row for row in updated if row["id"] != 1]
    for instant, expected in ((first, whole), (second, updated), (third, read(table))):
        assert read(table, as_of(instant)) == expected


def test_increments_hold_the_rows_that_a_commit_wrote_and_no_copies(table_uri: str) -> None:
    table = trips(table_uri, "city")
    first = table.upsert(rows((1, "sf", 10), (2, "sf", 20)), "INSERT")
    second = table.upsert(rows((1, "sf", 11), (3, "ny", 30)))
    options = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental)
    batches = opened(table).read(options.with_start_timestamp(first))
    found = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(row["id"] for row in found) == [1, 3]
    assert {row["_hoodie_commit_time"] for row in found} == {second}


@pytest.mark.parametrize(
    ("value", "hive_style"),
    [
        *product(["sf", "it's", "São Paulo", "a b", None, ""], [True, False]),
        ("a=b", True),
    ],
)
def test_partitions_are_found_by_their_value(
    table_uri: str, value: str | None, hive_style: bool
) -> None:
    table = trips(table_uri, "city", hive_style=hive_style)
    table.upsert(rows((1, value, 10), (2, "zz", 20)))
    assert read(table) == as_rows((1, value, 10), (2, "zz", 20))
    if value:
        assert read(table, equal_to("city", value)) == as_rows((1, value, 10))


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        (pa.int32(), -5, "-5"),
        (pa.bool_(), True, "true"),
        (pa.date32(), date(2024, 3, 1), "2024-03-01"),
        (pa.timestamp("us"), datetime(2024, 3, 1, 1, 2, 3, 4), "2024-03-01T01:02:03.000004"),
        (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
    ],
)
def test_partitions_of_every_type_are_pruned_without_losing_rows(
    table_uri: str, kind: pa.DataType, value: Any, word: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    options = Options.create("t", schema.names, key="id", partition_by="p")
    table = HudiTable.create(table_uri, schema, options)
    table.upsert(pa.RecordBatch.from_pydict({"id": [1, 2], "p": [value, None]}, schema=schema))
    found = read(table, equal_to("p", word))
    assert [row["id"] for row in found] == [1]


def test_hudi_reads_every_type(table_uri: str) -> None:
    options = Options.create("t", EVERY_TYPE.names, key="id")
    table = HudiTable.create(table_uri, EVERY_TYPE, options)
    empty = dict.fromkeys(EVERY_TYPE.names) | {"id": 2}
    table.upsert(pa.RecordBatch.from_pylist([FULL_ROW, empty], schema=EVERY_TYPE))
    naive = FULL_ROW | {
        "t": FULL_ROW["tz"],
        "ms": FULL_ROW["tz"],
    }  # readers of Hudi take all timestamps as UTC
    assert read(table) == [naive, empty]


def test_a_table_without_commits_has_its_schema(table_uri: str) -> None:
    table = trips(table_uri, "city")
    assert pa.schema(opened(table).get_schema()).names[-3:] == TRIPS.names
    assert read(table) == []


def test_a_file_group_may_become_empty(table_uri: str) -> None:
    table = trips(table_uri, "city")
    table.upsert(rows((1, "sf", 10), (2, "ny", 20)))
    table.delete("city=sf", ["1"])
    assert read(table) == as_rows((2, "ny", 20))
    table.upsert(rows((1, "sf", 30)))
    assert read(table) == as_rows((1, "sf", 30), (2, "ny", 20))


def test_a_crashed_commit_is_not_seen(table_uri: str) -> None:
    table = trips(table_uri, "city")
    table.upsert(rows((1, "sf", 10)))
    table.begin()
    table.write("city=sf", pa.Table.from_batches([rows((2, "sf", 20))]), pa.array(["2"]), 0)
    assert read(table) == as_rows((1, "sf", 10))
    markers = table.store.list(".hoodie/.temp", recursive=True)
    assert [one.name.rpartition(".")[2] for one in markers] == ["MERGE"]


@pytest.mark.parametrize("name", ["cow_bloom_footer", "cow_v6_mdt_all"])
def test_files_of_hudi_on_spark_are_read_as_spark_reads_them(
    interop: Path, tmp_path: Path, name: str
) -> None:
    folder = interop / "hudi-spark"
    with zipfile.ZipFile(folder / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    expected = pq.read_table(folder / f"{name}.expected.parquet")
    store = Store(tmp_path / name)
    paths = {
        listed.name: listed.path
        for listed in store.list("", recursive=True)
        if listed.path.endswith(".parquet") and not listed.path.startswith(".hoodie/")
    }
    schema = pa.schema(list(expected.schema))
    found = []
    for file_name in expected["_hoodie_file_name"].unique().to_pylist():
        data_file = DataFile.decode(paths[file_name])
        found.append(read_base_file(store, data_file, schema))
        keys, positions = read_record_keys(store, data_file)
        assert keys.to_pylist() == found[-1]["_hoodie_record_key"].to_pylist()
        assert positions.tolist() == list(range(len(keys)))
    by_key = [("_hoodie_partition_path", "ascending"), ("_hoodie_record_key", "ascending")]
    ours = pa.concat_tables(found).sort_by(by_key)
    theirs = expected.select(schema.names).sort_by(by_key)
    assert ours.to_pylist() == theirs.to_pylist()
