"""Several writers and services at once: nothing is lost, nothing is there twice.

Where order matters it is made, not hoped for: `between` lets something else happen after one
writer has begun and before it publishes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import ConflictError, Table, UsageError
from metatable.compaction.service import execute
from metatable.engine.local import LocalEngine
from metatable.storage.store import Store
from tests.face.protocol.making import CompactOnce
from tests.long import LONG
from tests.model import SCHEMA, Model, Row, arrow, check, places, read_by_hudi, scanned

FAST = {"durable": "false"}
SHRUNK: dict[str, Any] = {
    "file_rows": 5,
    "buckets": {"files": 4, "bloom_filter": 4, "column_stats": 4, "record_index": 4},
    "hfile_block_bytes": 256,
}
INDEXES = ("record", "metadata_bloom")


def rows(first: int, last: int, v: int, city: str | None = None) -> list[Row]:
    return [
        {"id": f"k{number:03}", "city": city or ("ny", "sf")[number % 2], "v": v, "ts": None}
        for number in range(first, last)
    ]


class Beside:
    """A table with its model; what goes through `upsert` and the like is told to both."""

    def __init__(self, uri: str, index: str, scope: str = "global", **options: Any) -> None:
        self.table: Table = metatable.create(
            uri,
            SCHEMA,
            key="id",
            partition_by="city",
            index=index,
            options={**SHRUNK, "key_scope": scope, **options},
            storage_options=FAST,
        )
        self.model = Model(scope == "global", ordering=False)
        self.store = Store(uri, FAST)

    def upsert(self, given: list[Row]) -> Any:
        result = self.table.upsert(arrow(given))
        self.model.upsert(given)
        return result

    def delete(self, given: list[Row]) -> Any:
        result = self.table.delete(arrow(given))
        self.model.delete(given)
        return result

    def check(self) -> None:
        probe = rows(0, 70, 0) + rows(0, 70, 0, "la") + rows(0, 70, 0, "ny")
        check(self.table, self.model, probe)


@pytest.fixture(params=INDEXES)
def beside(request: pytest.FixtureRequest, table_uri: str) -> Beside:
    """Thirty rows in two cities, keys unique in the whole table."""
    made = Beside(table_uri, request.param)
    made.upsert(rows(0, 30, 1))
    return made


def test_a_compaction_inside_a_move_neither_stops_it_nor_brings_the_old_place_back(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(10, 20, 2))
    beside.delete(rows(14, 16, 0))
    between(lambda: beside.table.compact(major=True))
    moved = beside.upsert(rows(10, 14, 3, "la"))
    assert (moved.moved, moved.attempts) == (4, 1)
    assert [one.operation for one in beside.table.history()][:2] == ["upsert", "compact"]
    beside.check()
    beside.table.compact(major=True)
    beside.check()


@pytest.mark.each_once
@pytest.mark.parametrize("major", [True, False])
def test_a_compaction_that_publishes_after_a_move_does_not_hide_it(
    beside: Beside, between: Any, major: bool
) -> None:
    beside.upsert(rows(10, 20, 2))
    between(lambda: (beside.upsert(rows(10, 14, 3, "la")), beside.delete(rows(5, 8, 0))))
    beside.table.compact(major=major)
    assert [one.operation for one in beside.table.history()][:3] == ["compact", "delete", "upsert"]
    beside.check()
    beside.table.compact(major=True)
    beside.check()


@pytest.mark.each_once
@pytest.mark.parametrize("partition", ["files", "column_stats", "the index's own"])
def test_a_commit_and_a_compaction_of_one_partition_inside_an_insert_do_not_disturb_it(
    beside: Beside, between: Any, partition: str
) -> None:
    [own] = beside.table.describe().metadata.keys() - {"files", "column_stats"}
    named = own if partition == "the index's own" else partition

    def act() -> None:
        beside.upsert(rows(40, 44, 2))
        beside.table.compact(major=True, partitions=[named])

    between(act)
    inserted = beside.upsert(rows(50, 54, 3, "la"))
    assert (inserted.inserted, inserted.attempts) == (4, 1)
    beside.check()


def test_a_commit_and_a_compaction_of_all_inside_a_move_do_not_disturb_it(
    beside: Beside, between: Any
) -> None:
    between(lambda: (beside.upsert(rows(40, 44, 2, "la")), beside.table.compact(major=True)))
    moved = beside.upsert(rows(0, 4, 3, "la") + rows(50, 52, 3, "la"))
    assert (moved.moved, moved.inserted, moved.attempts) == (4, 2, 1)
    beside.check()


def test_writers_of_different_file_groups_do_not_wait_for_each_other(
    beside: Beside, between: Any
) -> None:
    between(lambda: beside.upsert(rows(40, 42, 2, "la")))
    assert beside.upsert(rows(0, 2, 3)).attempts == 1
    beside.check()


@pytest.mark.each_once
@pytest.mark.both_table_types
def test_two_updates_of_one_file_group_are_both_kept(beside: Beside, between: Any) -> None:
    between(lambda: beside.upsert(rows(0, 3, 2)))
    assert beside.upsert(rows(2, 4, 3)).attempts == 2
    beside.check()


@pytest.mark.each_once
@pytest.mark.both_table_types
def test_a_key_that_two_writers_insert_is_there_once(beside: Beside, between: Any) -> None:
    between(lambda: beside.upsert(rows(40, 44, 2, "la")))
    late = beside.upsert(rows(42, 46, 3, "ny"))
    assert (late.attempts, late.inserted, late.moved) == (2, 2, 2)
    beside.check()


@pytest.mark.each_once
@pytest.mark.both_table_types
def test_an_insert_that_loses_its_race_refuses_the_keys_that_are_there_now(
    beside: Beside, between: Any
) -> None:
    between(lambda: beside.upsert(rows(40, 44, 2)))
    with pytest.raises(UsageError, match="insert of keys that the table holds"):
        beside.table.insert(arrow(rows(42, 46, 3)))
    beside.check()


@pytest.mark.parametrize("index", INDEXES)
def test_in_partition_scope_two_writers_insert_one_key_in_two_partitions_at_once(
    table_uri: str, between: Any, index: str
) -> None:
    beside = Beside(table_uri, index, "partition")
    beside.upsert(rows(0, 10, 1))
    between(lambda: beside.upsert(rows(40, 44, 2, "ny")))
    assert beside.upsert(rows(40, 44, 3, "sf")).attempts == 1
    beside.check()
    between(lambda: beside.upsert(rows(50, 52, 2, "ny")))
    assert beside.upsert(rows(50, 52, 3, "ny")).attempts == 2
    beside.check()


def test_a_conflict_without_retries_is_told_and_leaves_the_other_commit(
    table_uri: str, between: Any
) -> None:
    beside = Beside(table_uri, "record", commit_retries=0)
    beside.upsert(rows(0, 10, 1))
    between(lambda: beside.upsert(rows(0, 4, 2)))
    with pytest.raises(ConflictError, match="another commit rewrote the same file group"):
        beside.table.upsert(arrow(rows(2, 6, 3)))
    beside.check()
    assert not list(Path(table_uri, ".hoodie").rglob("*.marker.*"))
    live = {place.instant for place in places(table_uri, beside.model).values()}
    files = {path.stem.split("_")[2] for path in Path(table_uri).glob("*/*.parquet")}
    assert live <= files
    assert len(files) == 2, "files of the refused commit are left"


def test_of_two_compactions_of_the_same_buckets_the_second_starts_again(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(10, 20, 2))
    beside.delete(rows(12, 15, 0))
    between(lambda: beside.table.compact(major=True))
    again = beside.table.compact(major=True)
    assert again.reason == "nothing to compact"
    assert [one.operation for one in beside.table.history()][:2] == ["compact", "delete"]
    beside.check()


def test_compactions_of_different_buckets_do_not_disturb_each_other(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(10, 20, 2))
    beside.delete(rows(12, 15, 0))

    def compact(*buckets: int) -> None:
        service = CompactOnce(major=True, partitions=["column_stats"], buckets=buckets)
        execute(beside.store, LocalEngine(), service)

    between(lambda: compact(0, 3))
    compact(1, 2)
    assert [one.operation for one in beside.table.history()][:2] == ["compact", "compact"]
    assert beside.table.describe().metadata["column_stats"]["hfiles"] == 4
    beside.check()


@pytest.mark.each_once
@pytest.mark.both_table_types
def test_a_writer_begun_before_a_rollback_starts_again_after_it(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(20, 40, 2))

    def roll_back() -> None:
        beside.table.rollback()
        beside.model.rollback()

    between(roll_back)
    assert beside.upsert(rows(35, 45, 3, "la")).attempts == 2
    beside.check()


def test_a_key_that_a_rollback_brings_back_is_not_inserted_a_second_time(
    beside: Beside, between: Any
) -> None:
    beside.delete(rows(3, 6, 0))

    def roll_back() -> None:
        beside.table.rollback()
        beside.model.rollback()

    between(roll_back)
    late = beside.upsert(rows(3, 6, 2, "la"))
    assert (late.attempts, late.inserted, late.moved) == (2, 0, 3)
    beside.check()


def test_a_compaction_begun_before_a_rollback_starts_again_after_it(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(20, 40, 2))
    beside.upsert(rows(20, 25, 3))

    def roll_back() -> None:
        beside.table.rollback()
        beside.model.rollback()

    between(roll_back)
    beside.table.compact(major=True)
    assert [one.operation for one in beside.table.history()][:2] == ["compact", "rollback"]
    beside.check()


def test_a_rollback_does_not_undo_a_commit_that_came_after_it_began(
    beside: Beside, between: Any
) -> None:
    beside.upsert(rows(20, 40, 2))
    between(lambda: beside.upsert(rows(0, 3, 3)))
    with pytest.raises(ConflictError, match="another commit was first"):
        beside.table.rollback()
    beside.check()


PROCESS = """
import json, sys
from pathlib import Path
import metatable
from tests.face.test_writers import FAST, arrow, rows
uri, number = sys.argv[1], int(sys.argv[2])
table = metatable.open(uri, storage_options=FAST)
print("ready", flush=True)
sys.stdin.readline()
for step in range(10):
    city = ("ny", "sf", "la")[(step + number) % 3]
    given = rows(step * 3, step * 3 + 8, 100 * number + step, city)
    print(json.dumps([table.upsert(arrow(given)).version, given]), flush=True)
"""


@pytest.mark.parametrize("index", INDEXES if LONG else INDEXES[:1])
def test_two_processes_of_ten_upserts_lose_nothing_and_store_nothing_twice(
    table_uri: str, index: str
) -> None:
    beside = Beside(table_uri, index, file_rows=20)
    root = Path(__file__).resolve().parents[2]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, table_uri, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    done = [json.loads(line) for writer in writers for line in writer.communicate()[0].splitlines()]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(done) == 20
    for _, given in sorted(done):  # one after the other, in the order of their versions
        beside.model.upsert(given)
    written = [one for one in beside.table.history() if one.operation == "upsert"]
    assert sorted(version for version, _ in done) == sorted(one.version for one in written)
    assert len(written) == 20
    assert scanned(beside.table) == read_by_hudi(table_uri)
    beside.check()
