"""Rows for index tests, and the answer that an index must give, by brute force."""

from __future__ import annotations

import tempfile
import uuid
from typing import Any

import pyarrow as pa

import metatable
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.reading.slice_reader import read_slice
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store

CITIES = ["amsterdam", "berlin", "cairo"]

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("value", pa.int64()), ("note", pa.string())]
)

SMALL = {"file_rows": 20, "small_file_bytes": 0, "hfile_block_bytes": 256, "lease_seconds": 5}


ENTRIES = f"sqlite:{tempfile.mkdtemp()}/entries.sqlite"
"""Where the tables of this process keep entries that are not in their own files."""

RINGS = ("consistent_hashing", "extendible_hashing")
"""Engines of `bucket` that tests name as if each was an index."""


def index_of(named: str) -> str:
    return "bucket" if named in RINGS else named


def fitting(named: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options for an index: a table in buckets has no say in how files are cut, and entries outside
    have a place of their own."""
    if named == "hbase":
        return {"hbase_table": f"t_{uuid.uuid4().hex}", "hbase_address": ENTRIES, **options}
    if index_of(named) != "bucket":
        return options
    cut = ("file_rows", "file_bytes", "small_file_bytes")
    kept = {name: value for name, value in options.items() if name not in cut}
    engine = {"bucket_engine": named} if named in RINGS else {}
    return {"bucket_count": 16, **engine, **kept}


def rows(first: int, last: int, value: int = 0) -> pa.Table:
    """Keys k000000…, cities in turn."""
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{number:06d}" for number in numbers],
            "city": [CITIES[number % 3] for number in numbers],
            "value": [value + number for number in numbers],
            "note": [f"note {number}" for number in numbers],
        },
        schema=SCHEMA,
    )


def make(uri: str, index: str, scope: str, **options: Any) -> metatable.Table:
    """An empty table for `rows`."""
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index_of(index),
        options=fitting(index, {**SMALL, "key_scope": scope, **options}),
        storage_options={"durable": "false"},
    )


def where(table: metatable.Table) -> dict[tuple[str, str], tuple[str, str, str, int | None]]:
    """(record key, partition path) -> (partition path, file id, instant, position), by reading."""
    store = Store(table.uri)
    found = {}
    wanted = pa.schema(
        [("_hoodie_record_key", pa.string()), ("_hoodie_partition_path", pa.string())]
    )
    newest = load_newest(store)
    assert newest is not None
    view = Snapshot(store, newest)
    read = ReadColumns(wanted, view.table_schema, view.options.ordering)
    for one in view.slices():
        held = read_slice(store, one, read).to_pylist()
        for place, row in enumerate(held):
            identity = row["_hoodie_record_key"], row["_hoodie_partition_path"]
            assert identity not in found
            at = None if one.logs else place
            found[identity] = (one.partition_path, one.file_id, one.instant, at)
    return found


def expected_tags(
    table: metatable.Table, asked: pa.Table, scope: str
) -> list[tuple[str, str, str, int | None] | None]:
    """What the index must say of each row of `asked`, row by row."""
    held = where(table)
    if scope == "global":
        by_key = {key: place for (key, _), place in held.items()}
        return [by_key.get(key) for key in asked["id"].to_pylist()]
    pairs = zip(asked["id"].to_pylist(), asked["city"].to_pylist(), strict=True)
    return [held.get((key, f"city={city}")) for key, city in pairs]


def told_tags(tagged: pa.Table) -> list[tuple[str, str, str, int | None] | None]:
    """The `_location` column as tuples."""
    return [place and tuple(place.values()) for place in tagged["_location"].to_pylist()]
