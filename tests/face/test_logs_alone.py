"""File groups that logs open (`new_groups="log"`): what is written, who reads it, what is refused,
what services make of them. (Histories beside a dict: tests/index/test_logs.py, simulation.)"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import metatable
from metatable import Table, UsageError
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.hoodie.slice_compaction_plan import SliceCompactionPlan
from metatable.data.reading import slice_reader
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from tests.model import SCHEMA, Model, Row, arrow, check, data_files, listed, read_by_hudi, scanned

FAST = {"durable": "false"}
BOTH = pytest.mark.parametrize("index", ["record", "bucket"])


def created(uri: str, index: str = "bucket", **given: Any) -> Table:
    options = {"bucket_count": 1} if index == "bucket" else {}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        table_type="mor",
        options={"key_scope": "partition", "new_groups": "log", **options, **given},
        storage_options=FAST,
    )


def rows(first: int, last: int, v: int, city: str = "ny") -> list[Row]:
    return [{"id": f"k{one:02}", "city": city, "v": v, "ts": v} for one in range(first, last)]


def slices(table: Table) -> list[FileSlice]:
    newest = load_newest(Store(table.uri, FAST))
    assert newest is not None
    return list(Snapshot(Store(table.uri, FAST), newest).slices())


def bases(table: Table) -> list[str]:
    return [path.name for path in data_files(table.uri) if path.suffix == ".parquet"]


def stored_commit(table: Table, instant: str | None) -> list[Path]:
    """The finished file of a commit, and its copy."""
    home = Path(table.uri, ".hoodie")
    return [home / f"{instant}.deltacommit", home / f"metatable/commits/{instant}.json"]


@pytest.mark.in_turn("index")
@BOTH
def test_the_first_log_of_a_group_has_the_instant_of_its_commit(table_uri: str, index: str) -> None:
    table = created(table_uri, index)
    told = table.insert(arrow(rows(0, 4, 1)))
    [path] = data_files(table_uri)
    assert re.fullmatch(rf"\.[^_]+_{told.instant}\.log\.1_\d+-\d+-\d+", path.name)
    commit = json.loads(Path(table_uri, f".hoodie/{told.instant}.deltacommit").read_text())
    [stat] = commit["partitionToWriteStats"]["city=ny"]
    assert (stat["baseFile"], stat["logFiles"], stat["logVersion"]) == ("", [path.name], 1)
    assert (stat["prevCommit"], stat["logOffset"]) == (told.instant, 0)
    counts = stat["numWrites"], stat["numInserts"], stat["numUpdateWrites"], stat["numDeletes"]
    assert counts == (4, 4, 0, 0)
    assert WriteStat.of_json(stat, "city=ny").path == f"city=ny/{path.name}"
    assert told.inserted == 4
    assert Path(table_uri, "city=ny/.hoodie_partition_metadata").is_file()


@pytest.mark.in_turn("index")
@BOTH
def test_later_logs_go_on_the_group_and_both_orders_merge(table_uri: str, index: str) -> None:
    table, model = created(table_uri, index), Model(False, True)
    told = table.upsert(arrow(rows(0, 6, 5)))
    model.upsert(rows(0, 6, 5))
    assert (told.inserted, told.updated) == (6, 0)
    for given in (rows(2, 4, 9), rows(3, 5, 1), rows(5, 8, 7)):
        table.upsert(arrow(given))
        model.upsert(given)
    table.delete(arrow(rows(0, 1, 0)).select(["id", "city"]))
    model.delete(rows(0, 1, 0))
    check(table, model, rows(0, 9, 0))
    assert bases(table) == []
    [held] = slices(table)
    assert [one.named.version for one in held.logs] == [*range(1, len(held.logs) + 1)]
    assert not held.has_base
    assert isinstance(table.files()[0], LogFile)
    assert table.scan().count() == len(model.rows)


def test_read_optimised_it_has_no_rows_and_after_its_compaction_all(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow(rows(0, 4, 1)))
    table.bulk_insert(arrow(rows(0, 3, 1, "sf")))
    assert len(bases(table)) == 1, "a bulk insert opens groups by base files"
    scan = table.scan(read_optimized=True)
    assert {row["city"] for row in scan.to_arrow().to_pylist()} == {"sf"}
    assert (scan.count(), len(scan.files().uris)) == (3, 1)
    assert table.scan(read_optimized=True, where=[("v", "=", 1)]).count() == 3
    with pytest.raises(UsageError, match="log files lie on some"):
        _ = table.files().uris
    facts = table.describe()
    assert (facts.file_groups, facts.log_files, facts.rows) == (2, 1, None)
    assert facts.log_bytes == slices(table)[0].size_bytes
    before = scanned(table)
    table.compact_logs()
    scan = table.scan(read_optimized=True)
    assert listed(scan.to_arrow().to_pylist()) == scanned(table) == before


def test_its_statistics_leave_it_out(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow(rows(0, 4, 1) + rows(0, 4, 7, "sf")))
    told = table.scan(where=[("v", ">", 5)]).explain()
    assert told.files is not None
    assert (told.files["all"], told.files["after statistics"]) == (2, 1)
    assert table.scan(where=[("v", ">", 5)]).count() == 4


def test_a_plan_names_no_base_and_the_first_base_is_no_merge(table_uri: str) -> None:
    table = created(table_uri)
    table.upsert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(2, 6, 2)))
    before = scanned(table)
    assert [one.service for one in table.due() if one.service == "compact_logs"]
    assert table.compact_logs(ratio=1000, dry_run=True).files_before == 2
    assert not table.compact_logs(ratio=float("inf"), dry_run=True).files_before
    plan = table.compact_logs(schedule=True).plan
    assert plan is not None
    path = f".hoodie/{plan}.compaction.requested"
    [told] = SliceCompactionPlan.decode(Path(table_uri, path).read_bytes(), path).slices
    assert (told.base_name, told.log_names) == (
        None,
        tuple(one.name for one in slices(table)[0].logs),
    )
    table.upsert(arrow(rows(5, 8, 3)))
    table.compact_logs(plan=plan)
    commit = json.loads(Path(table_uri, f".hoodie/{plan}.commit").read_text())
    [stat] = commit["partitionToWriteStats"]["city=ny"]
    assert (stat["prevCommit"], stat["totalLogFilesCompacted"]) == ("null", 2)
    [held] = slices(table)
    assert (held.base.instant, held.has_base, len(held.logs)) == (plan, True, 1)
    assert len(before) == 6
    assert scanned(table) == read_by_hudi(table_uri)
    table.upsert(arrow(rows(8, 9, 4)))  # the version before the compaction is a commit's, too
    table.clean(versions=1, hours=0)
    [held] = slices(table)
    assert {path.name for path in data_files(table_uri)} == {one.name for one in held.files}
    assert table.verify().findings == ()


@pytest.mark.in_turn("index")
@BOTH
def test_a_rollback_of_the_commit_that_opened_it_takes_the_group_away(
    table_uri: str, index: str
) -> None:
    table = created(table_uri, index)
    table.insert(arrow(rows(0, 4, 1)))
    was = data_files(table_uri)
    told = table.insert(arrow(rows(0, 4, 1, "sf")))
    table.upsert(arrow(rows(2, 3, 2, "sf")))
    table.rollback()
    assert len(scanned(table)) == 8
    table.rollback(told.instant)
    assert data_files(table_uri) == was
    assert len(slices(table)) == 1
    assert scanned(table) == read_by_hudi(table_uri)
    assert table.verify().findings == ()


def test_small_groups_are_filled_by_logs_until_they_are_full(table_uri: str) -> None:
    table = created(table_uri, "record", file_rows=10)
    for first in range(0, 24, 3):
        table.insert(arrow(rows(first, first + 3, 1)))
    counts = [sum(1 for _ in one.logs) for one in slices(table)]
    assert sum(counts) >= 8
    assert len(counts) == 3, "each commit has opened a group of its own"
    assert bases(table) == []
    assert len(scanned(table)) == 24


def test_rows_that_fit_no_log_open_a_group_by_a_base_file(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow([{"id": "a", "city": "ny", "v": 1, "ts": None}]))
    assert len(bases(table)) == len(data_files(table_uri)) == 1


@pytest.mark.parametrize("index", ["bloom", "metadata_bloom"])
def test_indexes_that_find_no_keys_in_logs_refuse_them(table_uri: str, index: str) -> None:
    with pytest.raises(UsageError, match="finds no keys that only logs hold") as refused:
        created(table_uri, index)
    assert "new_groups='base'" in str(refused.value)
    table = created(table_uri, "record")
    table.insert(arrow(rows(0, 4, 1)))
    with pytest.raises(UsageError, match="finds no keys that only logs hold"):
        metatable.adopt(table_uri, index=index)
    to_base = {"new_groups": "base"}
    with pytest.raises(UsageError, match=r"logs alone.*compact the logs first"):
        metatable.adopt(table_uri, index=index, options=to_base)
    table.compact_logs()
    table = metatable.adopt(table_uri, index=index, options=to_base, storage_options=FAST)
    table.insert(arrow(rows(4, 6, 1)))
    assert scanned(table) == read_by_hudi(table_uri)
    assert table.verify().findings == ()


def test_copy_on_write_has_no_logs_to_open_groups_with(table_uri: str) -> None:
    with pytest.raises(UsageError, match="without logs none can open a file group"):
        metatable.create(table_uri, SCHEMA, key="id", index="record", options={"new_groups": "log"})
    with pytest.raises(UsageError, match="new_groups"):
        created(table_uri, new_groups="none")


def test_another_index_comes_with_them_and_finds_their_keys(table_uri: str) -> None:
    table = created(table_uri, "bucket", bucket_count=2)
    table.insert(arrow(rows(0, 9, 1)))
    table = metatable.adopt(table_uri, index="record", storage_options=FAST)
    assert table.upsert(arrow(rows(5, 12, 2))).inserted == 3
    assert bases(table) == []
    assert scanned(table) == read_by_hudi(table_uri)
    assert table.verify().findings == ()


def test_who_does_not_know_them_is_kept_out(table_uri: str) -> None:
    created(table_uri)
    newest = load_newest(Store(table_uri))
    assert newest is not None
    assert newest.format["reader"] == 10


def test_changes_and_older_versions_know_them(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow(rows(0, 4, 1)))
    first = table.version
    table.upsert(arrow(rows(3, 6, 2)))
    table.compact_logs()
    told = table.changes(first).to_arrow().select(["id", "_change_type"]).to_pylist()
    assert sorted((one["id"], one["_change_type"]) for one in told) == [
        ("k03", "update"),
        ("k04", "insert"),
        ("k05", "insert"),
    ]
    assert len(scanned(table, first)) == 4
    keys = pa.table({"id": ["k01", "k04"], "city": ["ny", "ny"]})
    assert table.read_keys(keys, version=first).num_rows == 1
    assert table.read_keys(keys).num_rows == 2
    table.restore(first)
    assert len(scanned(table)) == 4
    assert scanned(table) == read_by_hudi(table_uri)
    assert table.verify().findings == ()


@pytest.mark.parametrize("way", ["dual_write", "virtual_log"])
def test_such_a_bucket_is_split_while_writers_go_on(table_uri: str, way: str) -> None:
    table = created(table_uri, bucket_engine="consistent_hashing")
    model = Model(False, True)
    for given in (rows(0, 12, 1), rows(6, 9, 2)):
        table.upsert(arrow(given))
        model.upsert(given)
    [held] = table.buckets().to_pylist()
    assert held["bytes"] == slices(table)[0].size_bytes
    assert held["rows"] is None  # before its logs are merged
    how: dict[str, Any] = {"split_above": 1, "merge_below": 0, "writers": way}
    plan = table.resize_buckets(**how, schedule=True).plan
    body = Path(table_uri, f".hoodie/{plan}.replacecommit.requested").read_bytes()
    [told] = fastavro.reader(io.BytesIO(body))
    [group] = told["clusteringPlan"]["inputGroups"]
    assert [one["dataFilePath"] for one in group["slices"]] == [""]
    for given in (rows(8, 15, 3), rows(3, 4, 4)):
        table.upsert(arrow(given))
        model.upsert(given)
        assert scanned(table) == model.listed()
        assert table.verify().findings == ()
    table.resize_buckets(plan=plan)
    assert len(slices(table)) == 2
    check(table, model, rows(0, 16, 0))


def test_a_lost_first_log_costs_its_rows_and_no_others(table_uri: str) -> None:
    table = created(table_uri)
    opened = table.insert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(2, 6, 2)))
    first = slices(table)[0].logs[0]
    Path(table_uri, first.path).unlink()
    told = table.repair(dry_run=False)
    assert (told.rows_lost, told.unmended) == (4, ())
    assert scanned(table) == read_by_hudi(table_uri) == listed(rows(2, 6, 2))
    assert table.verify().findings == ()
    assert opened.instant is not None


def test_a_lost_log_is_lost_where_its_commit_cannot_be_asked(table_uri: str) -> None:
    """`files` alone says that there was a group, and that it had no base file to lose."""
    table = created(table_uri)
    table.insert(arrow(rows(0, 4, 1, "sf")))
    opened = table.insert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(0, 4, 2, "sf")))
    [gone] = [one.path for one in slices(table) if one.instant == opened.instant]
    table.clean(versions=1, hours=0)
    Path(table_uri, gone).unlink()
    for path in stored_commit(table, opened.instant):
        path.write_bytes(b"{")
    told = table.repair(dry_run=False)
    assert [one.where for one in told.findings if one.kind == "file-size"] == [gone]
    assert told.rows_lost == 4
    assert scanned(table) == listed(rows(0, 4, 2, "sf"))
    assert table.verify().findings == ()


def test_its_commit_is_told_anew_without_a_base(table_uri: str) -> None:
    table = created(table_uri)
    opened = table.insert(arrow(rows(0, 4, 1)))
    table.upsert(arrow(rows(2, 6, 2)))
    table.clean(versions=1, hours=0)
    for path in stored_commit(table, opened.instant):
        path.unlink()
    table.repair(dry_run=False)
    commit = json.loads(Path(table_uri, f".hoodie/{opened.instant}.deltacommit").read_text())
    [stat] = commit["partitionToWriteStats"]["city=ny"]
    assert (stat["path"], stat["baseFile"]) == (slices(table)[0].logs[0].path, "")
    assert scanned(table) == read_by_hudi(table_uri)
    assert table.verify().findings == ()


def test_logs_behind_a_limit_are_not_read(table_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, those of the next group are begun before its turn."""
    table = created(table_uri)
    for city in ("la", "ny", "sf"):
        table.insert(arrow(rows(0, 4, 1, city)))
    read = []
    blocks = slice_reader._blocks

    def watched(store: Store, log: LogFile) -> Any:
        read.append(log.path)
        return blocks(store, log)

    monkeypatch.setattr(slice_reader, "_blocks", watched)
    assert table.scan(limit=5).to_arrow().num_rows == 5
    assert len(read) == 2
    assert table.scan().to_arrow().num_rows == 12
    assert len(read) == 2 + 3
