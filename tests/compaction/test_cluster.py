"""File groups are cut anew by columns: no row changes, and few files hold a value."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, ConflictError, Table, UsageError, col
from metatable.compaction.reshaping.cluster import Cluster
from metatable.compaction.reshaping.cluster_plan import _among, _within
from metatable.compaction.service import execute
from metatable.data.file_groups.slices import FileSlice
from metatable.engine.local import LocalEngine
from metatable.index.bucket.index import BucketIndex
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.overlap import Overlap, _swept
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import once, watched
from tests.index.rows import fitting
from tests.index.test_buckets import FAST
from tests.model import SCHEMA, Model, Row, arrow, check, scanned

COUNT, FILES = 192, 6
SIXTEEN = {"options": {"file_rows": COUNT // 16}}


def made(uri: str, index: str = "metadata_bloom", **changed: Any) -> Table:
    given = {"key": "id", "partition_by": "city", "ordering": "ts"} | changed
    options = {"file_rows": COUNT // FILES, "small_file_bytes": 0} | given.pop("options", {})
    return metatable.create(
        uri,
        SCHEMA,
        index=index,
        options=fitting(index, options),
        storage_options=FAST,
        **given,
    )


def rows(cities: tuple[str, ...] = ("ny",), seed: int = 0) -> list[Row]:
    """Random keys; of each of two columns all numbers of a range, in no order."""
    draw = random.Random(seed)
    ts, v = (draw.sample(range(COUNT), COUNT) for _ in range(2))
    keys = (str(uuid.UUID(int=draw.getrandbits(128))) for _ in range(COUNT))
    return [
        {"id": key, "city": cities[at % len(cities)], "v": v[at], "ts": ts[at]}
        for at, key in enumerate(keys)
    ]


def filled(uri: str, index: str = "metadata_bloom", **changed: Any) -> tuple[Table, Model]:
    table = made(uri, index, **changed)
    model = Model(is_global=table.options.is_global, ordering=True)
    table.insert(arrow(rows()))
    model.upsert(rows())
    assert COUNT // table.options.file_rows <= len(table.files()) <= 18
    return table, model


def cluster(table: Table, *by: str, store: Store | None = None, **how: Any) -> Any:
    """Every task runs twice, and they run in any order."""
    engine = LocalEngine(2, twice=True, shuffle_seed=1)
    return execute(store or Store(table.uri, FAST), engine, Cluster(by, **how))


def kept(table: Table, *columns: str, part: int = 5) -> int:
    """Files that may hold rows of a sixteenth of the range of each of these columns."""
    low, high = part * COUNT // 16, (part + 1) * COUNT // 16
    where = [[one for name in columns for one in ((name, ">=", low), (name, "<", high))]]
    return len(table.files(where))


def test_random_keys_and_a_sixteenth_of_a_range_keep_one_or_two_files(table_uri: str) -> None:
    table, model = filled(table_uri, **SIXTEEN)
    files = len(table.files())
    assert kept(table, "ts") == files >= 16
    done = table.cluster(by="ts")
    assert done.depth_before["ts"] > 16 * 0.7
    assert done.depth_after == {"ts": 1.0}
    told = table.scan(where=(col("ts") < 9) & (col("v") < 9) & (col("city") == "ny")).explain()
    assert told.depths == {"ts": 1.0, "v": pytest.approx(16, rel=0.3)}
    assert "a value of ts is in 1.0 files" in repr(told)
    assert max(kept(table, "ts", part=part) for part in range(16)) <= 2
    check(table, model)


@pytest.mark.parametrize("index", ["metadata_bloom", "hbase"])
def test_no_row_changes_and_the_index_follows(table_uri: str, index: str) -> None:
    table, model = filled(table_uri, index)
    before, version = table.scan(["_hoodie_commit_time", "_hoodie_commit_seqno", "id"]), 2
    states, files = before.to_arrow().sort_by("id"), len(table.files())
    done = cluster(table, "ts")
    assert (done.files_before, done.files_after, done.entries) == (files, FILES, COUNT)
    check(table, model, rows()[::20] + rows(seed=9)[:5])
    held = table.scan(["_hoodie_commit_time", "_hoodie_commit_seqno", "id"]).to_arrow()
    assert held.sort_by("id").equals(states)
    assert table.changes(version).to_arrow().num_rows == 0
    assert scanned(table, version) == model.listed()
    assert table.tag_locations(arrow(rows()), version=version)["_location"].null_count == 0
    newest = table.history(1)[0]
    assert (newest.operation, newest.note) == ("cluster", {"by": "ts"})
    assert Path(table_uri, ".hoodie", f"{newest.instant}.replacecommit").is_file()
    assert table.cluster(by="ts").reason == "nothing to cluster: a value of ts in 1.0 files"

    more = [one | {"v": -1, "ts": COUNT} for one in rows()[::7]] + rows(seed=9)[:9]
    table.upsert(arrow(more))
    table.delete(arrow(rows()[3::7]))
    model.upsert(more)
    model.delete(rows()[3::7])
    check(table, model, rows()[::20])
    table.clean(versions=1, hours=0)
    live = {one.path for one in table.files()}
    there = {one.relative_to(table_uri).as_posix() for one in Path(table_uri).rglob("*.parquet")}
    assert there == live


def test_a_rollback_brings_the_old_files_back(table_uri: str) -> None:
    table, model = filled(table_uri, "record")
    table.savepoint("before")
    files, tags = table.files(), table.tag_locations(arrow(rows()))
    cluster(table, "ts")
    assert table.files() != files
    table.rollback()
    assert table.files() == files
    assert table.tag_locations(arrow(rows())).equals(tags)
    check(table, model)


def paths(table: Table) -> list[str]:
    return [one.path for one in table.files()]


def bounds(table: Table, column: str) -> list[tuple[Any, Any]]:
    """The least and greatest value of each file, in order: from the rows themselves."""
    held = table.scan([column, "_hoodie_file_name"]).to_arrow().group_by("_hoodie_file_name")
    found = held.aggregate([(column, "min"), (column, "max")]).to_pylist()
    return sorted((one[f"{column}_min"], one[f"{column}_max"]) for one in found)


def test_numbers_are_in_order_as_numbers(table_uri: str) -> None:
    """As texts 9 would be behind 10, and -1 before -2."""
    table = made(table_uri, options={"file_rows": 30})
    given = [one | {"v": one["v"] - COUNT // 2} for one in rows()]
    table.insert(arrow(given))
    cluster(table, "v")
    found = bounds(table, "v")
    assert [low for low, _ in found[1:]] == [high + 1 for _, high in found[:-1]]


def test_two_columns_each_skip_and_both_skip_more(table_uri: str) -> None:
    table, model = filled(table_uri, **SIXTEEN)
    table.cluster(by=["ts", "v"])
    for one in ("ts", "v"):
        counts = [kept(table, one, part=part) for part in range(16)]
        assert np.mean(counts) < 16 * 0.4, (one, counts)
    both = [kept(table, "ts", "v", part=part) for part in range(16)]
    assert np.mean(both) < 3, both
    check(table, model)
    assert cluster(table, "ts", "v").reason.startswith("nothing to cluster")


def test_only_files_that_may_hold_what_was_asked_are_cut(table_uri: str) -> None:
    """Of each table partition on its own, whatever the others hold."""
    table, model = made(table_uri), Model(is_global=False, ordering=True)
    cities = ("ny", "sf")
    table.insert(arrow(rows(cities)))
    model.upsert(rows(cities))
    stays = table.files(col("city") == "sf")
    table.cluster(col("city") == "ny", "ts")
    assert table.files(col("city") == "sf") == stays
    assert cluster(table, "ts").depth_after == {"ts": 1.0}
    assert sorted({one.partition_path for one in table.files()}) == ["city=ny", "city=sf"]
    check(table, model, rows(cities)[:4])


def test_runs_are_bounded_and_come_to_an_end(table_uri: str) -> None:
    table, model = filled(table_uri, **SIXTEEN)
    files, depths = table.files(), list[float]()
    most = files.size_bytes // 2
    while not (done := cluster(table, "ts", most_bytes=most)).reason.startswith("nothing"):
        assert sum(one.size_bytes for one in files if one not in table.files()) <= most
        files = table.files()
        depths.append(done.depth_before["ts"])
        assert len(depths) < 9
    assert depths == sorted(depths, reverse=True)
    assert len(depths) > 1
    assert done.depth_before["ts"] < 2
    check(table, model)
    assert cluster(table, "v", most_bytes=1).files_before == 2


def test_logs_are_merged_in_and_what_waits_is_left(table_uri: str) -> None:
    table, model = filled(table_uri, "record", table_type="mor")
    more = [one | {"v": -1, "ts": 10 * COUNT} for one in rows()[:9]]
    table.upsert(arrow(more))
    table.delete(arrow(rows()[9:12]))
    model.upsert(more)
    model.delete(rows()[9:12])
    due = table.compact_logs(ratio=0, count=1, schedule=True)
    files = table.files()
    waits = {one.path for one, logs in zip(files, files.has_logs, strict=True) if logs}
    table.upsert(arrow(rows(seed=9)))
    model.upsert(rows(seed=9))
    before = {*paths(table)}
    cluster(table, "ts")
    assert waits <= before & {*paths(table)} < before
    table.compact_logs(plan=due.plan)
    check(table, model, rows()[:12])
    table.upsert(arrow(more := [one | {"ts": 20 * COUNT} for one in rows()[:200:9]]))
    model.upsert(more)
    cluster(table, "v")
    assert table.describe().log_files == 0
    check(table, model, rows()[:12])


def test_whoever_is_second_tries_again(table_uri: str) -> None:
    table, model = filled(table_uri, "record")
    more = [one | {"ts": COUNT + 1} for one in rows()[:40]] + rows(seed=9)[:5]
    sleep, slept = once("/manifest/0", lambda: cluster(table, "ts"))
    store, _ = watched(table_uri, before=sleep)
    told = write(store, LocalEngine(1), arrow(more), "upsert")
    assert (told.attempts, told.inserted, told.updated) == (2, 5, 40)
    assert slept[0].files_after == FILES
    model.upsert(more)
    check(table, model, rows()[:50])

    model.upsert(more := [one | {"ts": COUNT + 2} for one in rows()[50:60]])
    sleep, slept = once("/manifest/0", lambda: table.upsert(arrow(more)))
    store, _ = watched(table_uri, before=sleep)
    done = cluster(table, "v", store=store)
    assert done.version == slept[0].version + 1
    check(table, model, rows()[:70])


def test_a_clustering_that_always_loses_says_so(table_uri: str) -> None:
    table, _ = filled(table_uri, options={"file_rows": COUNT // 2})
    number = iter(range(100))

    def act(verb: str, path: str) -> None:
        if verb == "create" and "/manifest/0" in path and "metatable" in path:
            table.upsert(arrow([rows()[0] | {"ts": COUNT + next(number)}]))

    store, _ = watched(table_uri, before=act)
    with pytest.raises(ConflictError, match="rewrote the same file group"):
        cluster(table, "ts", store=store)
    assert table.verify().findings == ()
    assert "cluster" not in {one.operation for one in table.history()}


def test_a_dry_run_tells_and_writes_nothing(table_uri: str) -> None:
    table, _ = filled(table_uri)
    before = sorted(Path(table_uri).rglob("*"))
    told = table.cluster(by="ts", dry_run=True)
    assert "files in 1 partitions to cut by ts" in told.reason
    assert told.depth_before["ts"] > 1
    assert not told.depth_after
    assert sorted(Path(table_uri).rglob("*")) == before
    keyed = table.cluster(dry_run=True)  # by default the key, by which its inserts were cut
    assert keyed.reason == "nothing to cluster: a value of id in 1.0 files"


NESTED = pa.schema([*SCHEMA, pa.field("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("options", "how", "told"),
    [
        ({}, {"by": "none"}, "no column to sort by"),
        ({}, {"by": ["ts", "ts"]}, "no column to sort by"),
        ({}, {"by": 5}, "can be named"),
        ({}, {"by": "ts", "most_bytes": 0}, "a bound is 1 or more"),
        ({}, {"by": "ts", "most_bytes": "x"}, "a bound is 1 or more"),
        ({}, {"by": "ts", "most_bytes": None}, "a bound is 1 or more"),
        ({}, {"where": [("none", "=", 1)]}, "none"),
        ({"stats_columns": 2}, {"by": "v"}, "no statistics are kept"),
        ({"stats_columns": 0}, {"by": "ts"}, "no statistics are kept"),
    ],
)
def test_what_cannot_be_clustered_is_refused(
    table_uri: str, options: Mapping[str, Any], how: dict[str, Any], told: str
) -> None:
    table = made(table_uri, options=options)
    with pytest.raises(UsageError, match=told):
        table.cluster(**how)
    assert table.version == 1


def test_a_key_and_an_ordering_column_behind_all_that_have_statistics_are_clustered_by(
    table_uri: str,
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in ("v", "city", "ts", "id")])
    options = {"file_rows": COUNT // FILES, "small_file_bytes": 0, "stats_columns": 1}
    table = metatable.create(
        table_uri, schema, key="id", ordering="ts", options=options, storage_options=FAST
    )
    for part in range(FILES):
        table.insert(arrow(rows()[part::FILES]).select(schema.names))
    for by, column in (((), "id"), (("ts",), "ts")):
        done = table.cluster(by=by or None)
        assert (done.depth_before[column] > 3, done.depth_after) == (True, {column: 1.0})
        assert table.verify().findings == ()


def test_buckets_are_not_clustered(table_uri: str) -> None:
    table = metatable.create(table_uri, SCHEMA, key="id", index=BucketIndex.name)
    with pytest.raises(UsageError, match="the index tells which file a row goes to"):
        table.cluster(by="ts")


def test_a_table_without_rows_has_nothing_to_cluster(table_uri: str) -> None:
    table = made(table_uri)
    assert cluster(table, "ts").reason == "nothing to cluster: a value of ts in 0.0 files"


def test_files_that_lack_a_column_may_hold_any_value_of_it(table_uri: str) -> None:
    table, model = filled(table_uri)
    files = len(table.files())
    table.alter(AddColumn("w", pa.int64()))
    done = cluster(table, "w")
    assert (done.depth_before, done.depth_after) == ({"w": files}, {"w": 1.0})
    assert len(table.scan().to_arrow()) == len(model.rows)


def test_values_that_repeat_and_nulls_come_to_an_end_too(table_uri: str) -> None:
    """One value fills several files: cutting them anew would not part them."""
    table = made(table_uri)
    given = [one | {"v": (None, 3, 4)[one["v"] % 3]} for one in rows()]
    table.insert(arrow(given))
    model = Model(is_global=False, ordering=True)
    model.upsert(given)
    cluster(table, "v")
    assert cluster(table, "v").reason.startswith("nothing to cluster")
    assert len(table.files(col("v") == 3)) <= 3
    cluster(table, "v", "ts")
    check(table, model)


@pytest.mark.parametrize("by", [("v", "ts"), ("ts", "city"), ("v", "ts", "city")], ids=str)
def test_a_column_of_one_value_neither_cuts_nor_hinders(
    table_uri: str, by: tuple[str, ...]
) -> None:
    """Here one has one in all files, another one in those of a table partition."""
    cities = ("ny", "sf")
    given = [one | {"v": 7} for one in rows(cities)]
    table, model = made(table_uri, options={"file_rows": COUNT // 12}), Model(False, True)
    table.insert(arrow(given))
    model.upsert(given)
    assert cluster(table, *by).depth_after["ts"] < 1.5
    assert cluster(table, *by).reason.startswith("nothing to cluster")
    check(table, model)


def test_columns_of_one_value_alone_are_never_due(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow([one | {"v": 7} for one in rows()]))
    assert cluster(table, "v", "city").reason.startswith("nothing to cluster")


class Counted(np.ndarray[Any, Any]):
    """Counts the numbers that are compared."""

    count = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **how: Any) -> Any:
        Counted.count += max(np.size(one) for one in given)
        return getattr(ufunc, method)(*map(np.asarray, given), **how)


def test_of_files_that_hardly_overlap_each_is_looked_at_a_few_times() -> None:
    """A long history in the order of time, which only touches, with small files of late rows in
    it, and what has just come in no order."""
    count, new = 2000, 40
    low = np.append(np.arange(count) * 10, np.full(new, count * 10))
    high = np.append(low[:count] + np.where(np.arange(count) % 2, 2, 11), np.full(new, 1 << 20))
    folder = np.zeros(count + new, np.int32)
    depth, meets = _swept(folder, low, high)
    files: Any = SimpleNamespace(folder_of=folder)
    bounds = [one.view(Counted) for one in (low, high)]
    found = Overlap(files, depth, meets, *bounds)
    order, Counted.count = np.argsort(-meets, kind="stable"), 0
    sizes = np.ones(count + new, np.int64)
    taken = _within([found], [np.array([True])], order, sizes, 1 << 30)
    assert sorted(taken) == [*range(count, count + new)]
    assert Counted.count < 1000 * count


def test_of_very_many_files_those_that_may_be_cut_are_found_at_once() -> None:
    """Held each with each it would be ten billion comparisons of texts: the test would not end."""
    paths = pa.array([f"city=ny/{number:06}.parquet" for number in range(100_000)])
    some = np.arange(0, 100_000, 3)
    every, files = SimpleNamespace(paths=paths), SimpleNamespace(paths=paths.take(pa.array(some)))
    assert np.flatnonzero(_among(every, files)).tolist() == some.tolist()  # type: ignore[arg-type]


def test_entries_of_very_many_files_are_deleted_some_at_a_time(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.compaction.reshaping.cluster.FILES_TOGETHER", 4)
    together, real = list[int](), ColumnStatsPartition.retired

    def noting(self: ColumnStatsPartition, slices: Sequence[FileSlice], columns: Any) -> pa.Table:
        together.append(len(slices))
        return real(self, slices, columns)

    monkeypatch.setattr(ColumnStatsPartition, "retired", noting)
    table, model = filled(table_uri)
    together.clear()
    table.cluster(by="v")
    assert together == [4, 2]
    assert table.verify().findings == ()
    check(table, model, rows()[:40])
