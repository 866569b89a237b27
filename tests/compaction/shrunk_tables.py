"""Tables of many small HFiles in few buckets, for tests of what merges them."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache as cache_of
from typing import Any

import numpy as np
import pyarrow as pa

import metatable
from metatable import Table
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store

FAST = {"durable": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
SHRUNK: dict[str, Any] = {
    "file_rows": 100,
    "buckets": {"files": 1, "bloom_filter": 4, "column_stats": 4, "record_index": 8},
    "hfile_block_bytes": 256,
    "hfile_codec": "none",
}
"""Options of such tables."""


def make(uri: str, index: str, **options: Any) -> Table:
    """An empty table, of small files and blocks."""
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={**SHRUNK, **options},
        storage_options=FAST,
    )


def rows(first: int, last: int, v: int = 0) -> pa.Table:
    """Rows `first` to `last` - 1, in two partitions in turn."""
    numbers = np.arange(first, last)
    ids = pa.array([f"k{number:05}" for number in numbers])
    cities = pa.array([("ny", "sf")[number % 2] for number in numbers])
    return pa.table([ids, cities, pa.array(np.full(len(numbers), v))], schema=SCHEMA)


def grown(uri: str, index: str, **options: Any) -> Table:
    """A large first commit, four small ones: tombstones in every partition but `files`."""
    shutil.copytree(_grown_once(index, json.dumps(options)), uri)
    return metatable.open(uri, storage_options=FAST)


@cache_of
def _grown_once(index: str, options: str) -> str:
    """Where such a table lies, to be copied."""
    folder = tempfile.mkdtemp(prefix="metatable-grown-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    table = make(f"{folder}/table", index, **json.loads(options))
    table.insert(rows(0, 1500))
    table.upsert(rows(1490, 1520, 1))
    table.delete(rows(30, 40))
    table.upsert(rows(35, 45, 2))
    table.delete(rows(1500, 1505))
    return table.uri


def snapshot(table: Table) -> Snapshot:
    """The newest version, by a store of its own."""
    store = Store(table.uri, FAST)
    return Snapshot(store, newest_of(store))


def answers(table: Table) -> tuple[pa.Table, pa.Table]:
    """Tags of keys that are there and of others, and all rows."""
    asked = rows(0, 1600).select(["id", "city"])
    asked = asked.take(pa.array(np.random.default_rng(3).permutation(len(asked))))
    return table.tag_locations(asked), table.scan().to_arrow()
