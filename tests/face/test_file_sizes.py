"""How rows are cut into files: never more than was asked for, never none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.data.rows import taking
from metatable.write import bins, groups, held_rows, planning, profile, written_files

pytestmark = pytest.mark.in_turn("index")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("value", pa.int64())])
INDEXES = ("record", "metadata_bloom")


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _create(path: Path, index: str, **options: object) -> metatable.Table:
    return metatable.create(
        path / "table",
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"small_file_bytes": 0, "stats_columns": 0, **options},
        storage_options={"durable": "false"},
    )


def _rows(keys: list[str]) -> pa.Table:
    columns = [pa.array(keys, pa.string()), pa.repeat("Ulm", len(keys)), range(len(keys))]
    return pa.table(columns, schema=SCHEMA)


def _sizes(table: metatable.Table) -> list[int]:
    """Rows of each file, counted."""
    ids = table.scan(["_hoodie_file_name"]).to_arrow()["_hoodie_file_name"]
    counts = {one["values"]: one["counts"] for one in ids.value_counts().to_pylist()}
    assert len(counts) == len(table.scan().files())
    return sorted(counts.values())


def test_keys_of_one_prefix_are_cut_into_files_as_any_others(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, file_rows=100)
    keys = [f"{'ab'[place % 2]}-customer-number-{place // 2:06d}" for place in range(3000)]
    random.Random(1).shuffle(keys)
    table.insert(_rows(keys))
    assert _sizes(table) == [100] * 30
    assert table.verify().findings == ()


def test_files_hold_no_more_rows_than_asked_for_where_keys_are_sampled(tmp_path: Path) -> None:
    table = _create(tmp_path, "record", file_rows=1280)
    keys = [f"{place:032d}" for place in range(70_000)]
    random.Random(2).shuffle(keys)
    table.insert(_rows(keys))
    sizes = _sizes(table)
    assert sum(sizes) == 70_000
    assert max(sizes) <= 1280
    assert min(sizes) > 1000


def test_small_files_are_not_filled_beyond_file_rows(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, file_rows=100, small_file_bytes=1 << 20)
    keys = [f"customer-number-{place:06d}" for place in range(400)]
    random.Random(3).shuffle(keys)
    table.insert(_rows(keys[:60]))
    table.insert(_rows(keys[60:90]))
    assert _sizes(table) == [90]
    table.insert(_rows(keys[90:120]))
    assert _sizes(table) == [20, 100]
    table.insert(_rows(keys[120:350]))
    assert _sizes(table) == [75, 75, 100, 100]
    assert table.verify().findings == ()


def test_small_files_are_not_filled_beyond_file_rows_where_keys_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "SAMPLE_KEYS", 16)
    table = _create(tmp_path, "record", file_rows=640, small_file_bytes=1 << 20)
    keys = [f"customer-number-{place:06d}" for place in range(2300)]
    random.Random(6).shuffle(keys)
    table.insert(_rows(keys[:300]))
    table.insert(_rows(keys[300:]))
    sizes = _sizes(table)
    assert (sum(sizes), len(sizes)) == (2300, 4)
    assert max(sizes) <= 640


def test_one_commit_puts_no_more_into_a_file_than_memory_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _create(tmp_path, "record")
    rows = _rows([f"customer-number-{place:06d}" for place in range(1000)])
    monkeypatch.setattr(bins, "GROUP_BYTES", rows.nbytes // 2)
    table.insert(rows)
    assert 3 <= len(_sizes(table)) <= 12  # the rows in memory have their key's text, too


def test_small_files_are_not_filled_beyond_file_bytes(tmp_path: Path) -> None:
    table = _create(tmp_path, "record", file_bytes=64 << 10, small_file_bytes=63 << 10)
    rng = random.Random(4)
    keys = [rng.randbytes(64).hex() for _ in range(2000)]
    for first in range(0, 2000, 250):
        table.insert(_rows(keys[first : first + 250]))
    assert max(file.size_bytes for file in table.scan().files()) <= 64 << 10
    assert sum(_sizes(table)) == 2000


def test_a_task_is_given_no_more_bytes_than_its_budget(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def spied(*given: Any) -> Iterator[pa.RecordBatch]:
        *rest, batches, counters = given
        batches = list(batches)
        held.append(sum(batch.num_rows for batch in batches))
        return groups.write_groups(*rest, iter(batches), counters)

    monkeypatch.setattr(written_files, "write_groups", spied)
    monkeypatch.setattr(held_rows, "LEAST_ROWS_ALONE", 1 << 40)  # one task's, too, are dealt
    table = _create(tmp_path, index, file_rows=50)
    keys = [f"customer-number-{place:06d}" for place in range(3000)]
    table.insert(_rows(keys))
    few = len(held)
    assert max(held) > 100
    held.clear()
    monkeypatch.setattr(planning, "TASK_BYTES", 10_000)
    assert table.upsert(_rows(keys)).updated == 3000
    assert len(held) > 30 > few
    assert max(held) <= 100
    assert table.verify().findings == ()


def test_text_that_does_not_fit_into_one_column_is_written_in_chunks(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "JOINED_BYTES", 1000)
    table = _create(tmp_path, index, file_rows=100)
    keys = [f"customer-number-{place:06d}" for place in range(300)]
    random.Random(5).shuffle(keys)
    table.insert(_rows(keys))
    assert table.upsert(_rows(keys[100:])).updated == 200
    assert table.delete(_rows(keys[:50])).deleted == 50
    assert table.verify().findings == ()
    held = {row["id"]: row["value"] for row in table.scan().to_arrow().to_pylist()}
    expected = {key: place for place, key in enumerate(keys[100:])}
    assert held == expected | {key: place for place, key in enumerate(keys[:100]) if place >= 50}


def keyed(lo: int, hi: int, value: int) -> pa.Table:
    ids = [f"k{number:06d}" for number in range(lo, hi)]
    values = pa.array([value] * len(ids), pa.int64())
    return pa.table({"id": pa.array(ids, pa.string()), "v": values})


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_small_groups_are_filled_whether_or_not_they_have_logs(
    table_uri: str, table_type: str, index: str
) -> None:
    """Where the index finds no keys in logs, a group that has some takes no new ones."""
    words: dict[str, Any] = {"index": index, "storage_options": {"durable": "false"}}
    schema = keyed(0, 0, 0).schema
    table = metatable.create(table_uri, schema, key="id", table_type=table_type, **words)
    for number in range(12):
        table.upsert(keyed(0, 10 * number + 10, number))
    groups = len(table.files(read_optimized=True))
    assert groups == 1 if (table_type, index) != ("mor", "metadata_bloom") else groups <= 12
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == keyed(0, 120, 0)["id"].to_pylist()
    assert table.verify().findings == ()


def test_a_file_of_one_row_does_not_tell_how_wide_rows_are(table_uri: str) -> None:
    """It is all footer."""
    schema = keyed(0, 0, 0).schema
    words: dict[str, Any] = {"index": "record", "storage_options": {"durable": "false"}}
    table = metatable.create(table_uri, schema, key="id", **words)
    table.insert(keyed(0, 1, 0))
    table.insert(keyed(1, 100_000, 1))
    assert len(table.files()) == 1
