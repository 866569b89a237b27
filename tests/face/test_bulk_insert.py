"""Bulk insert: rows in the order of any columns, in files of which each holds a range."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import Table, UsageError, col
from metatable.data.hoodie.operations import BULK_INSERT
from metatable.engine import partitions
from metatable.engine.local import LocalEngine
from metatable.storage.store import Store
from metatable.write import profile
from metatable.write.commit_pass import write
from tests.model import SCHEMA, Model, arrow, check

FAST = {"durable": "false"}


def created(uri: str, index: str = "record", **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"key_scope": "global", "file_rows": 40, **options},
        storage_options=FAST,
    )


def made_rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Keys and values in no common order; some values are null, some repeat."""
    chosen = random.Random(count + first)
    times = chosen.sample(range(1000, 1000 + count), count)
    return [
        {
            "id": f"{chosen.randrange(10**9):09}-{first + number}",
            "city": ("ny", "sf")[number % 2],
            "v": None if number % 50 == 7 else number % 3,
            "ts": times[number],
        }
        for number in range(count)
    ]


def joined(lists: Iterable[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def contents(table: Table, city: str) -> list[list[dict[str, Any]]]:
    """The rows of each file of a partition."""
    paths = [Path(table.uri, one.path) for one in table.files(where=col("city") == city)]
    return [pq.ParquetFile(path).read().select(SCHEMA.names).to_pylist() for path in paths]


@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_a_range_of_the_column_is_in_one_or_two_files(
    table_uri: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "SAMPLE_KEYS", 100)
    table, rows = created(table_uri, index), made_rows(800)
    told = table.bulk_insert(arrow(rows), sort_by="ts", note={"job": "load"})
    assert (told.operation, told.inserted) == ("bulk_insert", 800)
    assert 20 <= told.files <= 26
    for least in range(1000, 1790, 79):
        within = (col("city") == "ny") & (col("ts") >= least) & (col("ts") < least + 20)
        assert len(table.files(where=within)) in (1, 2)
    model = Model(is_global=True, ordering=False)
    model.upsert(rows)
    check(table, model, rows[::50])
    commit = json.loads(Path(table.uri, ".hoodie", f"{told.instant}.commit").read_text())
    assert commit["operationType"] == "BULK_INSERT"
    done = table.history(1)[0]
    assert (done.operation, done.note) == ("bulk_insert", {"job": "load"})


def test_files_are_ranges_of_all_columns_and_in_order_within(table_uri: str) -> None:
    table = created(table_uri)
    table.bulk_insert(arrow(made_rows(400)), sort_by=["v", "ts"])
    for city in ("ny", "sf"):
        files = [
            [(one["v"] is not None, one["v"] or 0, one["ts"]) for one in rows]
            for rows in contents(table, city)
        ]
        assert all(rows == sorted(rows) for rows in files)
        files.sort()
        assert joined(files) == sorted(joined(files))
        assert max(map(len, files)) <= 44


def test_a_value_that_repeats_is_cut_by_key(table_uri: str) -> None:
    table = created(table_uri)
    table.bulk_insert(arrow([{**row, "v": 1, "city": "ny"} for row in made_rows(200)]), sort_by="v")
    keys = sorted([row["id"] for row in rows] for rows in contents(table, "ny"))
    assert len(keys) == 5
    assert joined(keys) == sorted(joined(keys))


def test_without_columns_it_is_the_key_that_sorts_and_small_files_stay(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow(made_rows(10)))
    before = {one.path for one in table.files()}
    told = table.bulk_insert(arrow(made_rows(200, first=10)))
    assert before < {one.path for one in table.files()}
    assert told.files == 6
    assert table.bulk_insert(arrow([])).instant is None
    assert table.verify().findings == ()


def test_a_stream_of_any_size_is_sorted_over_all_of_it(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit waits on disk."""
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 100)
    rows = arrow(made_rows(600)).to_batches(max_chunksize=50)
    table = created(table_uri)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows)
    store, engine = Store(table.uri, FAST), LocalEngine(2, memory_bytes=1 << 12)
    told = write(store, engine, reader, BULK_INSERT, sort_by=("ts",))
    assert told.inserted == 600
    for city in ("ny", "sf"):
        times = sorted([row["ts"] for row in found] for found in contents(table, city))
        assert joined(times) == sorted(joined(times))
    assert table.verify().findings == ()


def test_existing_keys_are_refused_and_named(table_uri: str) -> None:
    table, rows = created(table_uri), made_rows(30)
    table.insert(arrow(rows[:4]))
    moved = [{**row, "city": "la"} for row in rows]
    for given in (rows, moved):
        with pytest.raises(UsageError, match="keys that the table holds") as told:
            table.bulk_insert(arrow(given), sort_by="ts")
        assert told.value.facts["keys"] == sorted(row["id"] for row in rows[:4])
    assert table.version == 2


@pytest.mark.parametrize(
    ("sort_by", "words"),
    [("w", "'w'"), (["v", "v"], "'v'"), (7, "sort_by"), ([7], "sort_by")],
)
def test_columns_that_are_none_are_refused(table_uri: str, sort_by: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        created(table_uri).bulk_insert(arrow(made_rows(3)), sort_by=sort_by)


def test_an_index_that_tells_files_leaves_no_choice(table_uri: str) -> None:
    table = metatable.create(table_uri, SCHEMA, key="id", index="bucket", storage_options=FAST)
    with pytest.raises(UsageError, match="index tells which file"):
        table.bulk_insert(arrow(made_rows(3)), sort_by="ts")
    assert table.bulk_insert(arrow(made_rows(3))).inserted == 3
