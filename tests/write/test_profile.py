"""What tasks tell of the rows that a plan finds a place for stays small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable.data.config.options import Options
from metatable.data.keys.key_texts import KEY, PATH
from metatable.engine import partitions
from metatable.index.locations import LOCATION, LOCATION_COLUMN
from metatable.storage.counters import Counters
from metatable.write import commit_pass, profile

OPTIONS = Options(name="t", key=("id",), partition_by=("city",))


def _told(cities: int, rows: int) -> list[dict[str, Any]]:
    """What one task tells of new rows, each city's in descending order."""
    keys = [f"k{number:06}" for number in reversed(range(rows))]
    paths = [f"city={number % cities:05}" for number in range(rows)]
    columns = [pa.array(keys), pa.array(paths), pa.nulls(rows, LOCATION)]
    batch = pa.RecordBatch.from_arrays(columns, names=[KEY, PATH, LOCATION_COLUMN])
    [made] = profile.CountGroups(OPTIONS, None)(iter([batch]), Counters())
    return list(made.to_pylist())


def test_rows_of_many_table_partitions_give_no_more_keys_than_those_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile, "SAMPLE_KEYS", 64)
    monkeypatch.setattr(profile, "MOST_KEYS", 256)
    told = _told(cities=200, rows=4000)
    assert sum(len(one["keys"]) for one in told) <= 256 + len(told)
    for one in told:
        city = int(one["partition_path"][-5:])
        assert one["rows"] == 20
        assert one["keys"][0] == min(f"k{3999 - row:06}" for row in range(city, 4000, 200))
    assert len(_told(cities=1, rows=4000)[0]["keys"]) <= 64
    assert sum(len(one["keys"]) for one in _told(cities=20, rows=200)) == 200


def test_files_of_many_table_partitions_hold_no_more_rows_than_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "MOST_KEYS", 512)
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    table = metatable.create(
        tmp_path / "table",
        schema,
        key="id",
        partition_by="city",
        options={"file_rows": 640},
        storage_options={"durable": "false"},
    )
    count = 6000
    keys = [f"customer-{number * 7919 % count:05}" for number in range(count)]
    table.insert(pa.table([keys, [f"c{number % 4}" for number in range(count)]], schema=schema))
    sizes = table.files().row_counts.tolist()
    assert (sum(sizes), len(sizes)) == (count, 12)
    assert max(sizes) <= 640


@pytest.mark.parametrize("refuses", [True, False])
def test_rows_that_stay_give_keys_only_where_they_are_refused(refuses: bool) -> None:
    """Each task meets most file groups."""
    groups = [{"partition_path": "city=a", "file_id": f"g{number}"} for number in range(50)]
    keys = pa.array([f"k{number:03}" for number in range(500)])
    located = pa.array(groups * 10, LOCATION)
    columns = [keys, pa.array(["city=a"] * 500), located]
    batch = pa.RecordBatch.from_arrays(columns, names=[KEY, PATH, LOCATION_COLUMN])
    [made] = profile.CountGroups(OPTIONS, None, refuses=refuses)(iter([batch]), Counters())
    assert made.num_rows == 50
    assert (sum(map(len, made["keys"].to_pylist())) > 0) == refuses
    assert pa.array([False] * 50).equals(profile.are_open(pa.Table.from_batches([made])).chunk(0))


@pytest.mark.parametrize("refuses", [True, False])
def test_a_task_of_many_pieces_tells_of_each_kind_of_rows_once(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random keys meet most file groups in each piece. New ones are told a piece at a time."""
    keys = pa.array([f"k{number * 7919 % 1000:03}" for number in range(1000)])
    groups = [{"partition_path": "city=a", "file_id": f"g{number}"} for number in range(19)]
    located = pa.array([*groups, None] * 50, LOCATION)
    batch = pa.RecordBatch.from_arrays(
        [keys, pa.array(["city=a"] * 1000), located], names=[KEY, PATH, LOCATION_COLUMN]
    )
    count = profile.CountGroups(OPTIONS, None, refuses=refuses, sums=True)
    [whole] = count(iter([batch]), Counters())
    monkeypatch.setattr(partitions, "PARTITION_ROWS", 100)
    batches = [batch.slice(start, 100) for start in range(0, 1000, 100)]
    told = pa.Table.from_batches(count(iter(batches), Counters()))
    opened = profile.are_open(told)
    assert opened.to_pylist().count(True) == 10
    assert sum(map(len, told.filter(opened)["keys"].to_pylist())) == 50
    stays = told.filter(pc.invert(opened)).sort_by("file_id")
    assert told.num_rows == len(opened) == 10 + 19
    assert [bool(named) for named in stays["keys"].to_pylist()] == [refuses] * 19
    once = pa.Table.from_batches([whole]).filter(pc.is_valid(whole["file_id"])).sort_by("file_id")
    for name in ("partition_path", "located_path", "file_id", "target_id", "rows", "key_sum"):
        assert stays[name].to_pylist() == once[name].to_pylist(), name


def _wide(count: int) -> Iterator[pa.RecordBatch]:
    """Batches of new rows, a MB each."""
    for number in range(count):
        keys = [f"k{number:03}-{row}-{'x' * 10_000}" for row in range(100)]
        columns = [pa.array(keys), pa.array(["a"] * 100), pa.nulls(100, LOCATION)]
        yield pa.RecordBatch.from_arrays(columns, names=[KEY, PATH, LOCATION_COLUMN])


def test_a_task_of_many_rows_holds_some_of_them_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition of Spark's may be any size."""
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 4 << 20)
    before, held, told = pa.total_allocated_bytes(), [0], 0

    def given() -> Iterator[pa.RecordBatch]:
        for batch in _wide(64):
            held.append(pa.total_allocated_bytes() - before)
            yield batch

    for made in profile.CountGroups(OPTIONS, None)(given(), Counters()):
        told += sum(made["rows"].to_pylist())
        del made
    assert told == 6400
    assert max(held) < 16 << 20


def test_all_tasks_together_give_no_more_keys_than_one_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "ALL_KEYS", 100)
    told, plan = list[int](), commit_pass.planned

    def planned(view: Any, index: Any, found: pa.Table, *rest: Any) -> Any:
        told.append(sum(map(len, found["keys"].to_pylist())))
        return plan(view, index, found, *rest)

    monkeypatch.setattr(commit_pass, "planned", planned)
    ids = [f"k{number:05}" for number in range(4000)]
    table = metatable.create(
        tmp_path / "table",
        pa.schema([("id", pa.string())]),
        key="id",
        options={"file_rows": 6400},
        storage_options={"durable": "false"},
    )
    assert table.insert(pa.table([ids], ["id"])).inserted == 4000
    assert told[0] == 100
    assert table.files().row_counts.tolist() == [4000]
