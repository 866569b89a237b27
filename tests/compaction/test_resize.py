"""Buckets are split and merged: RFC-42's own test plan, and what a service must hold besides.

Sizes are those of whole Parquet files, of which each has some 3 kB beside its rows.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import ConflictError, StaleError, Table, UsageError
from metatable.compaction.reshaping import bucket_sizes
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.reshaping.resize_plan import ResizePlan
from metatable.compaction.service import execute
from metatable.data.base_files import base_file
from metatable.data.file_groups.hashing_metadata import HashingMetadata
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.index.bucket import rings as held_rings
from metatable.index.bucket.ring import Ring, hashes_of
from metatable.index.bucket.rings import rings_of
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.sealed import seal, unseal
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions import rings
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Fault
from metatable.storage import cache
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import once, watched
from tests.index.rows import RINGS
from tests.index.test_buckets import FAST, rows
from tests.index.test_ring_buckets import made
from tests.long import LONG
from tests.model import SCHEMA, Model, arrow, check, read_by_hudi, scanned

SPLIT = BucketSizes(split_above=1, merge_below=0)
MERGE = BucketSizes(split_above=1 << 30, merge_below=1 << 20)
PATH = "city=ny"


def snapshot(table: Table, version: int | None = None) -> Snapshot:
    store = Store(table.uri, FAST)
    manifest = load_newest(store) if version is None else load_version(store, version, 0)
    assert manifest is not None
    return Snapshot(store, manifest)


def ring_of(table: Table, path: str = PATH, version: int | None = None) -> Ring:
    return rings_of(snapshot(table, version), [path])[0]


def resize(table: Table, sizes: BucketSizes, store: Store | None = None) -> Any:
    return execute(store or Store(table.uri, FAST), LocalEngine(1), Resize(sizes))


def filled(uri: str, engine: str, count: int = 2, last: int = 60) -> tuple[Table, Model]:
    table, model = made(uri, engine, count), Model(is_global=False, ordering=True)
    table.insert(arrow(rows(0, last)))
    model.upsert(rows(0, last))
    return table, model


# The RFC's own test plan (initialise: tests/index/test_ring_buckets.py)


@pytest.mark.parametrize("engine", RINGS)
def test_many_rounds_of_split_and_merge(table_uri: str, engine: str) -> None:
    draw = random.Random(engine)
    table, model = filled(table_uri, engine)
    changed = 0
    # sizes differ by a few bytes from run to run: not all are due
    for step in range(60 if LONG else 36):
        given = rows(at := draw.randrange(60), at + 30, step + 1)
        table.upsert(arrow(given))
        model.upsert(given)
        gone = rows(at := draw.randrange(60), at + 8)
        table.delete(arrow(gone))
        model.delete(gone)
        held = [one.size_bytes for one in table.files()]
        border = sorted(held)[len(held) // 2]
        cut = "median" if engine == RINGS[0] and step % 2 else "middle"
        above = (border, 1 << 30, 2 * border)[step % 3]
        most = draw.choice([1, None])
        chosen = BucketSizes(above, min(border * (step % 3), above // 2), cut, None, most)
        before = table.scan().to_arrow().sort_by("id"), table.version
        changed += resize(table, chosen).version > before[1]
        assert table.scan().to_arrow().sort_by("id").equals(before[0])
        assert table.changes(before[1]).to_arrow().num_rows == 0
        check(table, model, rows(0, 100))
        for path in ("city=ny", "city=sf"):
            ring_of(table, path).check_invariants()
        if step >= 8 and changed >= 6:
            break
    assert changed >= 6
    print(engine, [len(ring_of(table, path).nodes) for path in ("city=ny", "city=sf")])


def crowded(count: int) -> list[str]:
    """Keys of which nine in ten are in the first hundredth of the hashes."""
    keys = pa.array([f"key-{number}" for number in range(count * 100)])
    low = pc.less(pa.array(hashes_of(keys, ["id"])), (1 << 31) // 100)
    few = keys.filter(pc.invert(low))[: count // 10]
    chosen: list[str] = keys.filter(low)[: count - len(few)].to_pylist() + few.to_pylist()
    assert len(chosen) > count * 0.9
    return chosen


@pytest.mark.parametrize(
    ("engine", "cut"), [(RINGS[0], "middle"), (RINGS[0], "median"), (RINGS[1], "middle")]
)
def test_most_data_in_a_small_hash_range(table_uri: str, engine: str, cut: str) -> None:
    """Rounds until nothing is due leave no bucket above the bound."""
    table, model = made(table_uri, engine, 2), Model(is_global=False, ordering=True)
    given = [{"id": key, "city": "ny", "v": 1, "ts": 1} for key in crowded(2000)]
    table.insert(arrow(given))
    model.upsert(given)
    largest = max(one.size_bytes for one in table.files())
    sizes = BucketSizes(largest // 3, largest // 8, cut)
    rounds, skew = 0, max(one.row_count or 0 for one in table.files())
    while (done := resize(table, sizes)).reason != "no bucket to resize":
        rounds += 1
        assert rounds < 30, done
        check(table, model)
    files = table.files()
    assert max(one.size_bytes for one in files) <= sizes.split_above
    assert max(one.row_count or 0 for one in files) < skew / 2
    bound = 3 if cut == "median" else 2 + math.ceil(math.log2(100 * 4))
    assert rounds <= bound, f"{rounds} rounds"
    print(engine, cut, rounds, [one.row_count for one in files])


@pytest.mark.parametrize("engine", RINGS)
def test_concurrent_writer_and_reader(table_uri: str, engine: str) -> None:
    """Whoever is second tries again by the other's ring or slices; readers see rows once."""
    table, model = filled(table_uri, engine)
    reading: Iterator[pa.RecordBatch] = table.scan().to_batches()
    old, first = table.version, next(reading)
    sleep, slept = once("/manifest/0", lambda: resize(table, SPLIT))
    store, _ = watched(table_uri, before=sleep)
    given = rows(40, 80, 1)
    told = write(store, LocalEngine(1), arrow(given), "upsert")
    assert (told.attempts, told.inserted, told.updated) == (2, 20, 20)
    assert slept[0].files_after == 8
    model.upsert(given)
    check(table, model, rows(0, 90))
    assert first.num_rows + sum(one.num_rows for one in reading) == 60

    more = rows(70, 100, 2)
    sleep, slept = once("/manifest/0", lambda: table.upsert(arrow(more)))
    store, _ = watched(table_uri, before=sleep)
    done = resize(table, MERGE, store)
    assert (done.version, slept[0].version) == (old + 4, old + 3)
    model.upsert(more)
    check(table, model, rows(0, 110))


def test_concurrent_metadata_updates(table_uri: str) -> None:
    """Two resizes, and a compaction of the index: each ring follows from the one before it."""
    table, model = filled(table_uri, "consistent_hashing")
    one_city = BucketSizes(split_above=1, merge_below=0, partitions=(PATH,))
    other = BucketSizes(split_above=1, merge_below=0, partitions=("city=sf",))

    def act() -> Any:
        table.compact(major=True)
        return resize(table, SPLIT)

    sleep, slept = once("/manifest/0", act)
    store, _ = watched(table_uri, before=sleep)
    resize(table, one_city, store)
    assert slept[0].reason.startswith("4 splits and 0 merges in 2 partitions")
    assert [ring_of(table, path).metadata.seq_no for path in (PATH, "city=sf")] == [2, 1]
    assert len(ring_of(table).nodes) == 8
    check(table, model, rows(0, 70))
    sleep, slept = once("/manifest/0", lambda: resize(table, other))
    store, _ = watched(table_uri, before=sleep)
    before = table.version
    resize(table, one_city, store)  # of another partition: in no one's way
    assert table.version == before + 2
    assert [ring_of(table, path).metadata.seq_no for path in (PATH, "city=sf")] == [3, 2]
    check(table, model, rows(0, 70))
    table.compact(major=True)
    check(table, model, rows(0, 70))


def test_two_who_resize_other_buckets_of_one_partition_do_not_undo_each_other(
    table_uri: str,
) -> None:
    """Their groups are different ones: the ring alone is one."""
    table, model = filled(table_uri, "consistent_hashing", 8)
    one_split, one_merge = (
        replace(one, most_bytes=1, partitions=(PATH,)) for one in (SPLIT, MERGE)
    )
    sleep, slept = once("/manifest/0", lambda: resize(table, one_merge))
    store, _ = watched(table_uri, before=sleep)
    resize(table, one_split, store)
    assert slept[0].reason.startswith("0 splits and 1 merges")
    assert ring_of(table).metadata.seq_no == 2
    assert len(ring_of(table).nodes) == 8
    check(table, model, rows(0, 70))


# What it comes to


def test_a_writer_that_opens_a_bucket_by_the_old_ring_tries_again(table_uri: str) -> None:
    """No slice of it was there that could tell: the ring alone does."""
    table, model = made(table_uri, "consistent_hashing", 8), Model(False, True)
    table.insert(arrow(rows(0, 2)))
    model.upsert(rows(0, 2))
    ring = ring_of(table)
    there = {int(one) for one in ring.place(hashes_of(pa.array(["k000"]), ["id"]))}
    free = [one for one in rows(2, 200) if one["city"] == "ny"]
    places = ring.place(hashes_of(pa.array([one["id"] for one in free]), ["id"])).tolist()
    neighbours = there | {(one + shift) % 8 for one in there for shift in (-1, 1)}
    new = [next(row for row, at in zip(free, places, strict=True) if at not in neighbours)]
    sleep, slept = once("/manifest/0", lambda: resize(table, MERGE))
    store, _ = watched(table_uri, before=sleep)
    told = write(store, LocalEngine(1), arrow(new), "upsert")
    assert (told.attempts, told.inserted) == (2, 1)
    assert slept[0].version == 3
    model.upsert(new)
    check(table, model, new)


def test_a_bucket_that_a_writer_has_opened_is_not_merged_as_an_empty_one(table_uri: str) -> None:
    table, model = made(table_uri, "consistent_hashing", 2), Model(False, True)
    table.insert(arrow(rows(0, 1)))
    more = [one for one in rows(1, 60) if one["city"] == "ny"]
    sleep, slept = once("/manifest/0", lambda: table.insert(arrow(more)))
    store, _ = watched(table_uri, before=sleep)
    done = resize(table, MERGE, store)
    assert slept
    model.upsert([*rows(0, 1), *more])
    check(table, model, rows(0, 70))
    assert (done.files_before, done.files_after) == (2, 1)


@pytest.mark.parametrize("engine", RINGS)
def test_rows_keep_their_commits_and_older_versions_their_rings(
    table_uri: str, engine: str
) -> None:
    table, model = filled(table_uri, engine)
    asked = arrow(rows(0, 60))
    before, tags = table.version, table.tag_locations(asked)["_location"].to_pylist()
    meta = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    states = table.scan(meta).to_arrow().sort_by("id")
    done = resize(table, SPLIT)
    assert (done.files_before, done.files_after, done.entries) == (4, 8, 60)
    assert table.scan(meta).to_arrow().sort_by("id").equals(states)
    assert table.changes(before).to_arrow().num_rows == 0
    assert table.changes(0).to_arrow().num_rows == 60
    assert table.tag_locations(asked, version=before)["_location"].to_pylist() == tags
    assert scanned(table, before) == model.listed()
    newest = table.history()[0]
    assert (newest.operation, newest.summary["splits"], newest.summary["rows"]) == (
        "resize_buckets",
        4,
        60,
    )
    assert len(list(Path(table_uri, ".hoodie").glob(f"{newest.instant}.replacecommit"))) == 1
    assert ring_of(table).metadata.instant == newest.instant
    table.rollback()
    assert ring_of(table).metadata.seq_no == 0
    assert table.tag_locations(asked)["_location"].to_pylist() == tags
    check(table, model, rows(0, 70))
    resize(table, SPLIT)
    check(table, model, rows(0, 70))


def test_a_resize_costs_its_bucket(table_uri: str) -> None:
    """No other file is read or written."""
    table, _ = filled(table_uri, "consistent_hashing", 8, 400)
    before = {one.path: one.size_bytes for one in table.files()}
    store, backend = watched(table_uri)
    done = resize(table, replace(SPLIT, most_bytes=1), store)
    after = {one.path for one in table.files()}
    [parent] = before.keys() - after
    assert len(after - before.keys()) == done.files_after == 2
    asked = {path for _, path in backend.calls if path.endswith(".parquet")}
    assert asked == {parent} | (after - before.keys())
    assert before[parent] == max(before.values())


def test_clean_takes_outdated_groups_and_their_rings(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    old = {one.path for one in table.files()}
    for sizes in (SPLIT, MERGE, SPLIT):
        resize(table, sizes)
    table.compact(major=True)
    table.upsert(arrow(rows(0, 2, 5)))
    model.upsert(rows(0, 2, 5))
    table.clean(versions=1, hours=0)
    there = {one.relative_to(table_uri).as_posix() for one in Path(table_uri).rglob("*.parquet")}
    assert there == {one.path for one in table.files()}
    assert not old & there
    folder = Path(table_uri, ".hoodie/metatable/hashing_metadata")
    assert len(list(folder.iterdir())) == 1
    check(table, model, rows(0, 70))


def test_a_merge_around_the_end_of_the_ring(table_uri: str) -> None:
    """The last bucket goes into the first, which then holds both ends."""
    table, model = filled(table_uri, "consistent_hashing", 3)
    ring = ring_of(table)
    sizes = {one.file_id: one.size_bytes for one in table.files() if one.partition_path == PATH}
    middle = ring.nodes[1].file_id
    more = [one for one in rows(60, 2000) if one["city"] == "ny"]
    keys = pa.array([one["id"] for one in more])
    ours = [
        one for one, at in zip(more, ring.place(hashes_of(keys, ["id"])), strict=True) if at == 1
    ]
    table.upsert(arrow(ours))
    model.upsert(ours)
    below = next(one.size_bytes for one in table.files() if one.file_id == middle)
    assert below > max(sizes.values())
    resize(table, BucketSizes(1 << 20, below, partitions=(PATH,)))
    values = [one.value for one in ring_of(table).nodes]
    assert values == [ring.nodes[0].value, ring.nodes[1].value]
    check(table, model, rows(0, 100))


def test_large_buckets_pass_piece_by_piece_with_all_of_their_values(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a column of numbers one is not a number, in the last piece of one child."""
    monkeypatch.setattr(base_file, "STEP_BYTES", 1)
    schema = pa.schema([("id", pa.string()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    table = metatable.create(
        table_uri,
        schema,
        key="id",
        index="bucket",
        options={"bucket_engine": "consistent_hashing", "bucket_count": 1, "row_group_rows": 7},
        storage_options=FAST,
    )
    numbers = [float(n) for n in range(99)] + [math.nan]
    held = {
        "id": [f"k{n:03}" for n in range(100)],
        "x": numbers,
        "tags": [[str(n)] for n in range(100)],
    }
    table.insert(pa.table(held, schema=schema))
    before = table.scan().to_arrow().sort_by("id")
    resize(table, SPLIT)
    assert len(table.files()) == 2
    after = table.scan().to_arrow().sort_by("id")
    assert str(after.to_pylist()) == str(before.to_pylist())
    for one in table.files():
        with pq.ParquetFile(Path(table_uri, one.path)) as file:
            place = file.schema_arrow.names.index("x")
            has_nan = pc.any(pc.is_nan(file.read(["x"])["x"])).as_py()
            groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
            assert len(groups) > 1
            assert {group.column(place).is_stats_set for group in groups} == {not has_nan}
    assert table.verify().findings == ()


# Plans


def test_a_dry_run_tells_and_writes_nothing(table_uri: str) -> None:
    table, _ = filled(table_uri, "consistent_hashing")
    before = sorted(Path(table_uri).rglob("*"))
    told = table.resize_buckets(split_above=1, merge_below=0, dry_run=True)
    assert told.reason.startswith(
        "dry run, nothing was done: 4 splits and 0 merges in 2 partitions"
    )
    assert sorted(Path(table_uri).rglob("*")) == before
    told = table.resize_buckets()  # by default small ones are merged, and all of these are
    assert told.reason.startswith("0 splits and 2 merges in 2 partitions")


def test_a_plan_is_carried_out_later_and_plans_do_not_overlap(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    first = table.resize_buckets(split_above=1, merge_below=0, partitions=PATH, schedule=True).plan
    second = table.resize_buckets(split_above=1, merge_below=0, schedule=True)
    assert "2 splits and 0 merges in 1 partitions" in second.reason
    assert table.resize_buckets(split_above=1, merge_below=0, schedule=True).plan == ""
    assert {first, second.plan} <= {one.plan for one in table.due()}
    given = rows(30, 70, 3)
    table.upsert(arrow(given))  # slices are others, the ring is not
    model.upsert(given)
    told = table.resize_buckets(plan=second.plan, dry_run=True)
    assert told.version == 3
    for plan in (first, second.plan):
        table.resize_buckets(plan=plan)
        check(table, model, rows(0, 80))
        with pytest.raises(metatable.NotFoundError):
            table.resize_buckets(plan=plan)
    assert [len(ring_of(table, path).nodes) for path in (PATH, "city=sf")] == [4, 4]
    with pytest.raises(UsageError, match="stands alone"):
        table.resize_buckets(plan=first, split_above=5, merge_below=0)
    with pytest.raises(UsageError, match="another service"):
        table.compact(plan=table.resize_buckets(merge_below=1 << 20, schedule=True).plan)


def test_partitions_that_wait_for_a_plan_are_told_and_it_may_be_forgotten(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    name = table.resize_buckets(split_above=1, merge_below=0, partitions=PATH, schedule=True).plan
    told = table.resize_buckets(split_above=1, merge_below=0, partitions=["city=sf"])
    assert "2 splits" in told.reason
    left = "no bucket to resize: plans wait for 1 partition, left out here (see `due`)"
    assert table.resize_buckets(merge_below=0).reason == left
    assert table.resize_buckets(merge_below=0, partitions=PATH).reason == left
    assert table.resize_buckets(merge_below=0, partitions="city=sf").reason == "no bucket to resize"
    version = table.version
    back = partial(table.resize_buckets, plan=name, take_back=True)
    assert back(dry_run=True).reason.startswith("dry run, nothing was done: plan taken back: 2 spl")
    assert [one.plan for one in table.due() if one.plan] == [name]
    done = back()
    assert (done.plan, done.version, table.version) == (name, version, version)
    assert done.reason.startswith("plan taken back: 2 splits and 0 merges in 1 partition")
    assert not [one.plan for one in table.due() if one.plan]
    with pytest.raises(metatable.NotFoundError):
        back()
    assert "2 splits" in table.resize_buckets(split_above=1, merge_below=0, partitions=PATH).reason
    check(table, model, rows(0, 80))


def test_a_plan_of_another_ring_is_out_of_date_and_verify_says_so(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    plan = table.resize_buckets(split_above=1, merge_below=0, schedule=True).plan
    stored = unseal(Path(table_uri, PLANS, f"{plan}.json").read_bytes(), "", "plan")
    path = Path(table_uri, PLANS, f"{plan}.json")
    path.unlink()
    resize(table, SPLIT)
    path.write_bytes(seal(stored))
    with pytest.raises(StaleError, match="resized since it was planned"):
        table.resize_buckets(plan=plan)
    assert [one.kind for one in table.verify().findings] == [Fault.PLAN]
    told = table.resize_buckets(merge_below=1 << 20, schedule=True)  # it is in nobody's way
    assert told.plan
    table.repair(dry_run=False)
    check(table, model)


@pytest.mark.parametrize(
    "change",
    [
        lambda tasks: tasks.clear(),
        lambda tasks: tasks.append(tasks[0]),
        lambda tasks: tasks[0]["before"].clear(),
        lambda tasks: tasks[0]["after"].pop(),
        lambda tasks: tasks[0]["before"][0].update(value=5),
        lambda tasks: tasks[0]["before"][0].update(file_id_prefix="x"),
        lambda tasks: tasks[0]["after"][0].update(value=tasks[0]["after"][1]["value"]),
        lambda tasks: tasks[0]["after"][1].update(value=3),
        lambda tasks: tasks[0]["after"][0].update(file_id_prefix="../x"),
        lambda tasks: tasks[0]["after"][0].update(
            file_id_prefix=tasks[1]["before"][0]["file_id_prefix"]
        ),
        lambda tasks: tasks[0].update(before=tasks[0]["before"] + tasks[2]["before"]),
        lambda tasks: tasks[0].update(seq_no="0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    table_uri: str, change: Callable[[list[Any]], Any]
) -> None:
    table, model = filled(table_uri, "consistent_hashing", 3)
    name = table.resize_buckets(split_above=1, merge_below=0, schedule=True).plan
    path = Path(table_uri, PLANS, f"{name}.json")
    body = unseal(path.read_bytes(), "", "plan")
    body["work"]["tasks"].sort(key=lambda one: (one["partition_path"], one["before"][0]["value"]))
    change(body["work"]["tasks"])
    path.write_bytes(seal(body))
    with pytest.raises(CorruptError, match="is damaged"):
        table.resize_buckets(plan=name)
    assert table.version == 2
    assert scanned(table) == model.listed()


def test_a_plan_is_bounded_by_partitions_and_bytes_and_the_largest_come_first(
    table_uri: str,
) -> None:
    table, _ = filled(table_uri, "consistent_hashing")
    more = [one for one in rows(60, 400) if one["city"] == "ny"]
    table.upsert(arrow(more))
    largest = max(one.size_bytes for one in table.files())
    whole = Resize(SPLIT).plan(snapshot(table))
    assert [one.partition_path for one in whole.tasks] == [PATH, PATH, "city=sf", "city=sf"]
    few = BucketSizes(1, 0, most_partitions=1)
    assert Resize(few).plan(snapshot(table)).paths == (PATH,)
    [one] = Resize(BucketSizes(1, 0, most_bytes=1)).plan(snapshot(table)).tasks
    assert one.size_bytes == largest
    two = Resize(BucketSizes(1, 0, most_bytes=2 * largest)).plan(snapshot(table))
    assert len(two.tasks) == 2


@pytest.mark.parametrize(
    ("engine", "how", "told"),
    [
        ("simple", {}, "are not resized"),
        ("consistent_hashing", {"split_above": 10, "merge_below": 6}, "split again"),
        ("consistent_hashing", {"cut": "anywhere"}, "not cut there"),
        ("extendible_hashing", {"cut": "median"}, "not cut there"),
        ("consistent_hashing", {"most_partitions": 0}, "a bound is 1 or more"),
        ("consistent_hashing", {"most_bytes": -1}, "a bound is 1 or more"),
        ("consistent_hashing", {"most_bytes": "x"}, "a bound is 1 or more"),
        ("consistent_hashing", {"split_above": "x"}, "sizes in bytes"),
        ("consistent_hashing", {"split_above": 0}, "sizes in bytes"),
        ("consistent_hashing", {"merge_below": None}, "sizes in bytes"),
        ("consistent_hashing", {"schedule": True, "dry_run": True}, "stands alone"),
        ("consistent_hashing", {"partitions": 5}, "can be named"),
    ],
)
def test_what_cannot_be_resized_is_refused(
    table_uri: str, engine: str, how: dict[str, Any], told: str
) -> None:
    table = made(table_uri, engine)
    with pytest.raises(UsageError, match=told):
        table.resize_buckets(**how)
    assert table.version == 1


def test_keys_are_read_of_those_buckets_alone_that_bounds_let_pass(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = filled(table_uri, RINGS[0], count=4)
    read = []
    keys_of = bucket_sizes.read_slice_keys

    def noting(store: Store, file: Any, *told: Any) -> Any:
        read.append(file.path)
        return keys_of(store, file, *told)

    monkeypatch.setattr(bucket_sizes, "read_slice_keys", noting)
    [task] = BucketSizes(1, 0, "median", most_bytes=1).tasks(snapshot(table), ())
    assert len(read) == 1
    assert task.size_bytes == max(one.size_bytes for one in table.files())


def test_keys_of_one_hash_are_not_cut_at_a_median(table_uri: str) -> None:
    table = made(table_uri, "consistent_hashing", 1, partition_by=())
    table.insert(arrow(rows(0, 1)))
    assert resize(table, BucketSizes(1, 0, "median")).reason == "no bucket to resize"
    table.insert(arrow(rows(1, 2)))
    resize(table, BucketSizes(1, 0, "median"))
    assert len(table.files()) == 2


def test_a_resize_that_always_loses_says_so(table_uri: str) -> None:
    table, _ = filled(table_uri, "consistent_hashing")
    number = iter(range(100))

    def act(verb: str, path: str) -> None:
        if verb == "create" and "/manifest/0" in path and "metatable" in path:
            table.upsert(arrow(rows(0, 2, next(number) + 1)))

    store, _ = watched(table_uri, before=act)
    with pytest.raises(ConflictError, match="rewrote the same file group"):
        resize(table, SPLIT, store)
    assert ring_of(table).metadata.seq_no == 0
    assert table.verify().findings == ()


# What verify says


def rewrite_ring(table: Table, change: Callable[[dict[str, Any]], Any]) -> None:
    """The ring of PATH, changed, as an entry of a version of its own."""
    from metatable.metadata.commits.change import Change  # noqa: PLC0415
    from metatable.metadata.commits.page_updates import AddFiles  # noqa: PLC0415
    from metatable.metadata.commits.transaction import Transaction  # noqa: PLC0415
    from metatable.metadata.partitions.rings import RingsPartition, ring_entries  # noqa: PLC0415

    held = ring_of(table).metadata
    stored = json.loads(held.encode())
    change(stored)
    with Transaction.begin(Store(table.uri, FAST)) as transaction:
        partition = RingsPartition(table.options)
        entries = ring_entries(table.options, [held])
        values = pa.array([json.dumps(stored).encode()], pa.binary())
        entries = entries.set_column(2, entries.schema.field(2), values)
        owner = transaction.serve("compact")
        ref = partition.store(transaction.store, 0, partition.space, entries, owner)
        assert ref is not None
        transaction.publish(Change("compact", updates=(AddFiles({partition.name: (ref,)}),)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda ring: ring["nodes"][0].update(fileIdPrefix="other"),
            "does not name the live group",
        ),
        (lambda ring: ring["nodes"][0].update(value=9), "belong to another group"),
        (lambda ring: ring.update(seqNo=-3), "hashing metadata is damaged"),
        (lambda ring: ring.update(partitionPath="city=sf"), "another partition's"),
        (
            lambda ring: [one.update(fileIdPrefix=f"n{one['value']}") for one in ring["nodes"]],
            "a ring without a group",
        ),
    ],
)
def test_verify_knows_rings(
    table_uri: str, change: Callable[[dict[str, Any]], Any], told: str
) -> None:
    table, _ = filled(table_uri, "consistent_hashing")
    resize(table, SPLIT)
    rewrite_ring(table, lambda ring: None)
    assert table.verify().findings == ()
    rewrite_ring(table, change)
    found = table.verify()
    assert any(told in str(one) for one in found.findings), found.findings
    assert {one.kind for one in found.findings} <= {Fault.HASHING_METADATA, Fault.PLACEMENT}
    assert all(not one.remedy for one in found.findings)
    assert HashingMetadata.decode(ring_of(table, "city=sf").metadata.encode(), "").seq_no == 1


def test_a_lost_ring_is_told_and_not_forgotten(table_uri: str) -> None:
    """Nothing says where keys are without it: a repair that went on would put them elsewhere."""
    table, model = filled(table_uri, "consistent_hashing")
    resize(table, SPLIT)
    [file] = Path(table_uri, ".hoodie/metatable/hashing_metadata").iterdir()
    body = file.read_bytes()
    file.write_bytes(body[:-1])
    from metatable.storage import cache  # noqa: PLC0415

    cache.clear()
    found = table.verify()
    assert Fault.HFILE in {one.kind for one in found.findings}
    assert any("restore it" in str(one) and not one.remedy for one in found.findings)
    table.repair(dry_run=False)
    with pytest.raises(CorruptError):
        table.upsert(arrow(rows(0, 2, 9)))
    file.write_bytes(body)
    cache.clear()
    check(table, model)


def test_a_view_of_later_commits_looks_where_the_newest_ring_says(table_uri: str) -> None:
    table, _ = filled(table_uri, "consistent_hashing")
    resize(table, SPLIT)
    version = table.version
    table.upsert(arrow(rows(100, 101)))
    since = snapshot(table).since(version)
    asked = pa.array(["k100", "k999"]), pa.array(["city=ny", "city=ny"])
    assert create_index(table.options).holds(since, *asked).tolist() == [True, False]


def test_buckets_and_describe_tell_ranges_bytes_and_skew(table_uri: str) -> None:
    table = made(table_uri, "consistent_hashing", 4)
    assert table.buckets().num_rows == 0
    table.insert(arrow(rows(0, 3)))
    version = table.version
    resize(table, BucketSizes(split_above=1, merge_below=0, partitions=(PATH,)))
    told, ring = table.buckets(PATH).to_pylist(), ring_of(table)
    assert [(one["upto"], one["file_id"]) for one in told] == [
        (node.value, node.file_id) for node in ring.nodes
    ]
    assert [one["after"] for one in told] == [told[-1]["upto"], *(one["upto"] for one in told[:-1])]
    sizes = {one.file_id: (one.size_bytes, one.row_count) for one in table.files()}
    assert {one["file_id"]: (one["bytes"], one["rows"]) for one in told if one["bytes"]} == {
        name: size for name, size in sizes.items() if name in ring.file_ids.to_pylist()
    }
    assert {one["resized"] for one in told} == {1}
    assert table.buckets("city=sf")["resized"].to_pylist() == [0] * 4
    assert table.buckets(version=version).num_rows == 8
    facts = table.describe().buckets
    assert facts is not None
    largest = max(size for size, _ in sizes.values())
    mean = sum(size for size, _ in sizes.values()) / len(sizes)
    assert facts == {
        "buckets": len(told) + 4,
        "with_files": len(sizes),
        "resized_partitions": 1,
        "largest_bytes": largest,
        "skew": round(largest / mean, 2),
    }
    simple = made(f"{table_uri}-simple", "simple")
    assert simple.describe().buckets is None
    with pytest.raises(UsageError, match="no rings"):
        simple.buckets()


def test_hudi_reads_equal_rows_after_each_step(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    for sizes in (SPLIT, SPLIT, MERGE, MERGE, MERGE):
        resize(table, sizes)
        assert read_by_hudi(table_uri) == model.listed()
    assert SCHEMA.names == table.schema.names


def test_a_plan_and_history_say_why(table_uri: str) -> None:
    table, _ = filled(table_uri, "consistent_hashing", 1)
    sizes = sorted(one.size_bytes for one in table.files())
    told = table.resize_buckets(split_above=1000, merge_below=0, schedule=True)
    why = f": {sizes[1]:,} bytes, above 1,000, and 1 more"
    assert told.reason.endswith(why)
    assert "split in city=" in told.reason
    assert any(one.reason.endswith(why) for one in table.due())
    table.resize_buckets(plan=told.plan)
    assert table.history(1)[0].note["why"] in told.reason
    pair = [one["bytes"] for one in table.buckets(PATH).to_pylist()]
    both = BucketSizes(1 << 30, 10_000, partitions=(PATH,))
    told = resize(table, both)
    why = f"merged in {PATH}: {pair[0]:,} and {pair[1]:,} bytes, both below 10,000"
    assert table.history(1)[0].note == {"why": why}
    assert told.reason.endswith(f"; {why}")
    stored = ResizePlan.decode({"tasks": []}, "of before")
    assert stored.summary.endswith("0 bytes to rewrite")


def test_rings_of_many_partitions_are_looked_up_together(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = filled(table_uri, RINGS[0])
    more = [row | {"city": f"c{place % 5}"} for place, row in enumerate(rows(60, 100))]
    table.upsert(arrow(more))
    asked = []
    stored = rings.stored_rings

    def noting(entries: Any, partition_paths: list[str]) -> Any:
        asked.append(len(partition_paths))
        return stored(entries, partition_paths)

    monkeypatch.setattr(rings, "stored_rings", noting)
    monkeypatch.setattr(held_rings, "RINGS_AT_ONCE", 3)
    cache.clear()
    buckets = table.buckets()
    assert asked == [3, 3, 1]
    assert pc.count_distinct(buckets["partition_path"]).as_py() == 7
    cache.clear()
    due = BucketSizes(1, 0).tasks(snapshot(table), ())
    assert asked[3:] == [3, 3, 1]
    assert len(due) == buckets["bytes"].drop_null().length()
