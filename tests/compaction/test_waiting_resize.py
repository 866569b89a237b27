"""Buckets are resized while writers go on: scheduled apart, carried out apart.

The judges are the dict after every step, and the `hudi` wheel whenever it can be: it reads parents
until the resize is carried out, so of a virtual log it has rows of before.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import (
    AddColumn,
    DropColumn,
    NotFoundError,
    RenameColumn,
    StaleError,
    StoreError,
    Table,
    UsageError,
)
from metatable.compaction.reshaping import waiting_plans
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.reshaping.waiting_plans import TakeBack
from metatable.compaction.reshaping.waiting_resize import CarryOutResize, ScheduleResize
from metatable.compaction.service import execute
from metatable.data.file_groups.children import DUAL_WRITE, VIRTUAL_LOG, WAYS
from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.timeline import CLUSTERING, requested_path
from metatable.engine.local import LocalEngine
from metatable.index.bucket.ring import hashes_of
from metatable.index.bucket.rings import rings_of
from metatable.metadata.commits import steps
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.scheduled import SetSlices
from metatable.metadata.commits.scheduled_plans import staged_plan
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import ServiceResult
from metatable.storage import cache
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import Refused, dying, once, watched
from tests.index.rows import RINGS
from tests.index.test_buckets import FAST, rows
from tests.long import LONG, one_in
from tests.model import SCHEMA, Model, arrow, read_by_hudi, scanned

SPLIT = BucketSizes(split_above=1, merge_below=0)
MERGE = BucketSizes(split_above=1 << 30, merge_below=1 << 20)


def made(uri: str, engine: str = RINGS[0], count: int = 1, **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index="bucket",
        table_type="mor",
        options={
            "bucket_engine": engine,
            "bucket_count": count,
            "upkeep_files": 0,
            **options,
        },
        storage_options=FAST,
    )


def filled(uri: str, engine: str = RINGS[0], count: int = 1, **how: Any) -> tuple[Table, Model]:
    table, model = made(uri, engine, count, **how), Model(is_global=False, ordering=True)
    upsert(table, model, rows(0, 60))
    upsert(table, model, rows(10, 30, 2))
    return table, model


def upsert(table: Table, model: Model, given: Sequence[dict[str, Any]]) -> None:
    model.upsert(given)
    table.upsert(arrow(given))


def delete(table: Table, model: Model, given: Sequence[dict[str, Any]]) -> None:
    model.delete(given)
    table.delete(arrow(given))


def test_what_cannot_wait_takes_up_no_bound(table_uri: str) -> None:
    """Buckets without a file, of no bytes, would be the first to be merged: they stand aside, and
    are no neighbours of those that have one."""
    table = made(table_uri, count=4)
    table.insert(arrow([row for row in rows(0, 1) if row["city"] == "sf"] or rows(0, 1)))
    table.insert(arrow([{**row, "city": "Ulm"} for row in rows(100, 160)]))
    limits: dict[str, Any] = {"merge_below": 1 << 20, "split_above": 1 << 30, "most_partitions": 1}
    for left in (2, 1):
        told = str(table.resize_buckets(**limits, writers=DUAL_WRITE))
        assert "merges in 1 partitions" in told
        assert " 0 bytes to rewrite" not in told
        assert sum(one.partition_path == "city=Ulm" for one in table.files()) == left
    assert "no bucket to resize" in str(table.resize_buckets(**limits, writers=DUAL_WRITE))
    assert table.verify().findings == ()


def serve(table: Table, service: Any, store: Store | None = None) -> ServiceResult:
    return execute(store or Store(table.uri, FAST), LocalEngine(1), service)


def scheduled(table: Table, way: str = DUAL_WRITE, sizes: BucketSizes = SPLIT) -> str:
    plan = serve(table, ScheduleResize(sizes, way)).plan
    assert plan
    return plan


def root(table: Table) -> Manifest:
    newest = load_newest(Store(table.uri, FAST))
    assert newest is not None
    return newest


def view(table: Table) -> Snapshot:
    return Snapshot(Store(table.uri, FAST), root(table))


def slices(table: Table) -> list[FileSlice]:
    return list(view(table).slices())


def check(table: Table, model: Model, by_hudi: bool = True) -> None:
    """Rows, keys, the index and Hudi."""
    table = metatable.open(table.uri, storage_options=FAST)
    assert scanned(table) == model.listed()
    assert table.verify().findings == ()
    asked = rows(0, 100)
    there = [model.identity(row) in model.rows for row in asked]
    keys = arrow(asked).select(["id", "city"])
    assert table.filter_exists(keys).equals(keys.filter(pa.array(there, pa.bool_())))
    if by_hudi:
        assert read_by_hudi(table.uri) == model.listed()


@pytest.mark.each_once
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", RINGS)
def test_rows_are_there_before_during_and_after(table_uri: str, engine: str, way: str) -> None:
    table, model = filled(table_uri, engine)
    plan = scheduled(table, way)
    dual = way == DUAL_WRITE
    assert root(table).compactions[plan].action == CLUSTERING
    check(table, model)
    version = table.version
    upsert(table, model, rows(20, 50, 3))
    check(table, model, dual)
    delete(table, model, rows(40, 45))
    upsert(table, model, rows(60, 70, 4))
    check(table, model, dual)
    before = table.version
    for one in slices(table):
        assert len(one.children) == 2
        assert bool(one.copies) == dual
        assert bool(one.ahead) != dual
    done = serve(table, CarryOutResize(plan))
    assert done.files_after == 4
    check(table, model)
    assert table.changes(before).to_arrow().num_rows == 0
    assert table.changes(version).to_arrow().num_rows > 0
    assert [one.children for one in slices(table)] == [()] * 4
    for path in ("city=ny", "city=sf"):
        [ring] = rings_of(view(table), [path])
        assert len(ring.nodes) == 2
    upsert(table, model, rows(20, 80, 5))
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


VERBS = ["upsert"] * 4 + ["delete"] * 2 + ["schedule"] * 3 + ["carry out"] * 2
VERBS += ["take", "back", "rollback", "logs", "resize", "clean", "overwrite"]
SEEDS = range(40) if LONG else (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_reads_as_a_dict(table_uri: str, seed: int) -> None:  # noqa: PLR0912
    draw = random.Random(seed)
    log_format = ("avro", "parquet")[seed % 2]
    table, model = filled(table_uri, RINGS[seed // 2 % 2], 1 + seed % 2, log_format=log_format)
    done, was = 0, {table.version: model.rows}
    for step in range(2, 60 if LONG else 18):
        first = draw.randrange(60)
        match "carry out" if step % 9 == 0 else draw.choice(VERBS):
            case "upsert":
                upsert(table, model, rows(first, first + draw.randrange(1, 20), step))
            case "delete":
                delete(table, model, rows(first, first + draw.randrange(1, 12)))
            case "overwrite":
                given = [one for one in rows(first, first + 20, step) if one["city"] == "ny"]
                with suppress(UsageError):  # some of it waits
                    table.insert_overwrite(arrow(given))
                    model.overwrite(given)
            case "schedule":
                sizes = draw.choice([SPLIT, MERGE, BucketSizes(6000, 3000)])
                serve(table, ScheduleResize(sizes, draw.choice(WAYS)))
            case "carry out":
                for instant, one in sorted(root(table).compactions.items()):
                    if one.action == CLUSTERING:
                        version = table.version
                        serve(table, CarryOutResize(instant))
                        done += 1
                        assert table.changes(version).to_arrow().num_rows == 0
            case "take":
                for instant in root(table).compactions:
                    with suppress(UsageError):  # logs lie on it alone
                        serve(table, TakeBack(instant, root(table).compactions[instant].action))
            case "back" | "rollback" as verb:
                version = draw.choice([*was][-6:])
                if verb == "rollback":
                    last = root(table).last_commit
                    version = last[0] - 1 if last else -1
                with suppress(UsageError, metatable.StaleError):  # undone, or not kept
                    if version in was:
                        table.restore(version)
                        model.rows = was[version]
            case "logs":
                table.compact_logs(ratio=0, schedule=draw.random() < 0.3)
            case "resize":
                with suppress(UsageError):  # a bucket of a stored plan waits
                    serve(table, Resize(draw.choice([SPLIT, MERGE])))
            case "clean":
                table.clean(versions=draw.choice([1, 4]), hours=0)
        was[table.version] = model.rows
        check(table, model, by_hudi=not root(table).compactions)
    table.resize_buckets(split_above=1 << 30, merge_below=0, writers=DUAL_WRITE)
    table.compact_logs()
    assert not root(table).compactions
    check(table, model)
    assert done or LONG  # of many histories some carry nothing out


def test_files_that_are_to_come_are_no_logs(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 60)))
    told, uris = table.describe(), table.files().uris
    scheduled(table)
    again = metatable.open(table_uri, storage_options=FAST)
    assert (again.describe().rows, again.describe().log_files) == (told.rows, 0)
    assert again.files().uris == uris
    assert [one.row_count for one in again.files()] == [one.row_count for one in table.files()]


def test_a_merge_has_the_logs_of_both_in_their_order(table_uri: str) -> None:
    """A commit to both, behind one to one of them, stands behind that in the child as well."""
    table, model = filled(table_uri, count=2)
    plan = scheduled(table, DUAL_WRITE, MERGE)
    for number in range(3, 9):
        upsert(table, model, rows(number, number + 1 + number % 3 * 9, number))
        check(table, model)
    serve(table, CarryOutResize(plan))
    assert len(slices(table)) == 2
    check(table, model)
    upsert(table, model, rows(0, 70, 10))
    check(table, model)


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_a_bucket_that_is_written_anew_is_left_out(table_uri: str, way: str) -> None:
    sizes = SPLIT if way == VIRTUAL_LOG else MERGE
    table, model = filled(table_uri, count=2)
    plan = scheduled(table, way, sizes)
    upsert(table, model, rows(0, 60, 3))
    before = {one.file_id for one in slices(table)}
    odd = [{**one, "ts": None} for one in rows(61, 62, 4)]  # no log says this
    upsert(table, model, odd)
    [anew] = [one for one in slices(table) if not one.children]
    check(table, model, by_hudi=way == DUAL_WRITE)
    serve(table, CarryOutResize(plan))
    assert anew.file_id in {one.file_id for one in slices(table)} & before
    check(table, model)
    upsert(table, model, rows(0, 9, 5))  # the one commit that is kept
    table.clean(versions=1, hours=0)
    check(table, model)
    assert files_there(table) == files_named(table)


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_a_plan_is_taken_back_while_each_row_is_in_its_bucket(table_uri: str, way: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table, way)
    upsert(table, model, rows(4, 40, 3))
    if way == VIRTUAL_LOG:
        with pytest.raises(UsageError, match="carry it out"):
            table.resize_buckets(plan=plan, take_back=True)
        check(table, model, by_hudi=False)
        return
    table.resize_buckets(plan=plan, take_back=True)
    assert not root(table).compactions
    assert plan in root(table).withdrawn
    assert not list(Path(table_uri).rglob(f".hoodie/{plan}*"))
    check(table, model)
    assert files_there(table) == files_named(table)
    upsert(table, model, rows(20, 30, 4))
    with pytest.raises(NotFoundError, match="no such resize of buckets waits"):
        table.resize_buckets(plan=plan)
    check(table, model)


def test_copies_go_with_a_plan_of_which_both_copies_are_lost(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(4, 40, 3))
    for path in (requested_path(plan, CLUSTERING), staged_plan(plan, CLUSTERING)):
        Path(table_uri, path).unlink()
    table.resize_buckets(plan=plan, take_back=True)
    check(table, model)
    assert files_there(table) == files_named(table)
    assert not list(Path(table_uri).rglob(f".hoodie/{plan}*"))


def test_copies_that_went_are_not_looked_for_again(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(4, 40, 3))
    table.resize_buckets(plan=plan, take_back=True)
    monkeypatch.setattr(steps, "files_on", lambda *_: pytest.fail("all of it is gone"))
    upsert(table, model, rows(20, 30, 4))
    check(table, model)


def test_no_plan_is_taken_back_while_older_versions_have_rows_in_its_logs_alone(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of buckets that were written anew since: its logs would go with it."""
    table, model = filled(table_uri)
    plan = scheduled(table, VIRTUAL_LOG)
    upsert(table, model, rows(4, 40, 3))
    version = table.version
    table.alter(RenameColumn("v", "w"))
    assert not any(one.children for one in slices(table))
    with pytest.raises(UsageError, match="carry it out"):
        table.resize_buckets(plan=plan, take_back=True)
    assert scanned(table, version) == model.listed()
    table.rollback()
    check(table, model, by_hudi=False)
    table.alter(RenameColumn("v", "w"))
    monkeypatch.setattr(waiting_plans, "logs_left", lambda *_: ())  # as releases before
    table.resize_buckets(plan=plan, take_back=True)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="with logs on what it is to make, and was taken back"):
        table.rollback()


@pytest.mark.parametrize("way", WAYS)
def test_a_table_goes_back_where_no_bucket_waits_any_more(table_uri: str, way: str) -> None:
    """Nothing tells what was planned."""
    table, model = filled(table_uri)
    plan = scheduled(table, way)
    table.alter(AddColumn("w", pa.int64()), RenameColumn("v", "x"))
    table.alter(RenameColumn("x", "v"))
    version = table.version
    upsert(table, model, rows(4, 40, 3))
    table.resize_buckets(plan=plan, take_back=True)
    table.rollback()
    assert scanned(table) == scanned(table, version)


def test_there_is_no_way_back_that_takes_the_logs_of_an_older_version_along(table_uri: str) -> None:
    """The version that is gone back to does not name them."""
    table, model = filled(table_uri)
    plan = scheduled(table, VIRTUAL_LOG)
    upsert(table, model, rows(4, 40, 3))
    older = table.version
    table.alter(RenameColumn("v", "w"))
    table.alter(DropColumn("w"))
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        execute(deadly, LocalEngine(1), CarryOutResize(plan))
    with pytest.raises(UsageError, match="or begun, when columns had been dropped"):
        table.rollback()
    assert scanned(table, older) == model.listed()


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_what_is_taken_back_while_it_is_carried_out_never_comes_to_light(
    table_uri: str, way: str
) -> None:
    """Files of children would be rows twice to Hudi's readers, once its timeline begins later."""
    table, model = filled(table_uri, timeline_commits=1)
    plan = scheduled(table, way)

    def go_on() -> None:
        table.resize_buckets(plan=plan, take_back=True)
        for v in range(5, 9):
            upsert(table, model, rows(5, 20, v))
        table.clean(versions=1, hours=0)

    sleep, slept = once(".parquet", go_on)
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises((NotFoundError, StaleError)):
        serve(table, CarryOutResize(plan), store)
    assert slept
    check(table, model)
    table.clean(versions=1, hours=0)
    check(table, model)
    assert root(table).archived > plan
    assert not list(Path(table_uri).rglob(f"*_{plan}.parquet*"))


def test_a_late_twin_of_who_has_carried_one_out_is_void(table_uri: str) -> None:
    """Though the commit of its instant is complete: it is the other one's."""
    table, model = filled(table_uri)
    plan = scheduled(table)

    def go_on() -> None:
        serve(table, CarryOutResize(plan))
        upsert(table, model, rows(5, 20, 5))
        table.clean(versions=1, hours=0)

    sleep, slept = once("/manifest/0", go_on)
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError, match="carried out"):
        serve(table, CarryOutResize(plan), store)
    assert slept
    check(table, model)
    upsert(table, model, rows(0, 9, 6))
    table.clean(versions=1, hours=0)
    check(table, model)


@pytest.mark.each_once
@pytest.mark.parametrize("second", [ScheduleResize, Resize])
@pytest.mark.parametrize("first", [ScheduleResize, Resize])
def test_two_resizes_of_a_partition_that_race_do_not_both_come(
    table_uri: str, first: Callable[..., Any], second: Callable[..., Any]
) -> None:
    """Of different buckets: the later ring would be of the earlier instant, and Hudi's writers
    would place rows by the other one."""
    table, model = filled(table_uri, count=4, hudi_hashing_metadata=True)
    path = ("city=ny",)
    largest = max(table.buckets("city=ny")["bytes"].to_pylist())
    merge, split = (
        BucketSizes(1 << 30, largest, partitions=path),
        BucketSizes(largest - 1, 0, partitions=path),
    )
    sleep, slept = once("/manifest/0", partial(serve, table, first(merge)))
    store, _ = watched(table_uri, before=sleep)
    serve(table, second(split), store)
    assert slept
    waits = sorted(root(table).compactions)
    for plan in waits[::-1]:
        serve(table, CarryOutResize(plan))
    check(table, model)
    assert len(waits) <= 1
    [ring] = rings_of(view(table), path)
    there = Path(table_uri, ".hoodie/.bucket_index").rglob("city=ny/*.hashing_meta")
    assert max(one.stem for one in there) == ring.metadata.instant


def test_what_cannot_be_is_refused(table_uri: str) -> None:
    table, _ = filled(table_uri)
    with pytest.raises(UsageError, match="how writers go on"):
        table.resize_buckets(writers="twice")
    with pytest.raises(UsageError, match="of which plan"):
        table.resize_buckets(take_back=True)
    with pytest.raises(UsageError, match="plan stands alone"):
        table.resize_buckets(plan="20200101000000000", writers=DUAL_WRITE)
    with pytest.raises(NotFoundError, match="no such resize of buckets waits"):
        table.resize_buckets(plan="20200101000000000")
    logs = table.compact_logs(ratio=0, schedule=True).plan
    with pytest.raises(NotFoundError, match="no such resize of buckets waits"):
        table.resize_buckets(plan=logs)
    assert (
        "no bucket"
        in table.resize_buckets(split_above=1, merge_below=0, writers="dual_write").reason
    )
    table.compact_logs()
    plan = scheduled(table)
    with pytest.raises(NotFoundError, match="no such compaction of logs waits"):
        table.compact_logs(plan=plan)
    assert "no bucket" in serve(table, ScheduleResize(SPLIT)).reason
    assert "no bucket" in serve(table, Resize(SPLIT)).reason
    assert "no logs" in table.compact_logs(ratio=0).reason
    assert [one.plan for one in table.due() if one.service == "resize_buckets"] == [plan]
    with pytest.raises(UsageError, match="wait for something scheduled"):
        table.insert_overwrite(arrow(rows(0, 9)))
    upsert(table, Model(is_global=False, ordering=True), rows(0, 9, 4))
    with pytest.raises(UsageError, match="what is scheduled waits"):
        table.savepoint("now")


# Others at work


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_a_writer_who_planned_before_the_schedule_tries_again(table_uri: str, way: str) -> None:
    table, model = filled(table_uri)
    sleep, slept = once("/manifest/0", lambda: scheduled(table, way))
    store, _ = watched(table_uri, before=sleep)
    given = rows(10, 20, 5)
    assert write(store, LocalEngine(1), arrow(given), "upsert").attempts == 2
    model.upsert(given)
    check(table, model, way == DUAL_WRITE)
    serve(table, CarryOutResize(slept[0]))
    check(table, model)


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_who_carries_one_out_does_not_begin_again_for_writers(table_uri: str, way: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table, way)
    sleep, slept = once("/manifest/0", lambda: upsert(table, model, rows(10, 40, 5)))
    store, backend = watched(table_uri, before=sleep)
    serve(table, CarryOutResize(plan), store)
    assert slept
    assert [verb for verb, path in backend.calls if path.endswith(".parquet")].count("create") == 4
    assert [len(one.logs) for one in slices(table)] == [1] * 4
    check(table, model)


@pytest.mark.parametrize("where", [".replacecommit.inflight", ".parquet", "/manifest/0"])
def test_two_at_once_do_it_once(table_uri: str, where: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    sleep, slept = once(where, partial(serve, table, CarryOutResize(plan)))
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError, match="carried out"):
        serve(table, CarryOutResize(plan), store)
    assert slept[0].files_after == 4
    check(table, model)


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_a_rollback_to_where_one_waited_leaves_it_done(table_uri: str, way: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table, way)
    upsert(table, model, rows(4, 30, 5))
    upsert(table, model, rows(20, 40, 6))
    serve(table, CarryOutResize(plan))
    upsert(table, model, rows(30, 50, 7))
    for _ in range(3):
        table.rollback()
        model.rollback()
        assert [one.instant for one in slices(table)] == [plan] * 4
        check(table, model)
    table.rollback()
    model.rollback()
    assert len(slices(table)) == 2
    check(table, model)


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_a_resize_carried_out_without_a_column_is_undone_on_the_way_back(
    table_uri: str, way: str
) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table, way)
    version = table.version
    table.alter(DropColumn("v"))
    serve(table, CarryOutResize(plan))
    table.restore(version)
    assert len(slices(table)) == 2
    assert not root(table).compactions
    check(table, model)
    upsert(table, model, rows(20, 40, 6))
    check(table, model)


@pytest.mark.parametrize("goes_back", ["rollback", "restore"])
def test_copies_for_a_resize_that_is_undone_go_with_it(table_uri: str, goes_back: str) -> None:
    """Hudi takes them for rows once its timeline is past the instant of the resize."""
    table, model = filled(table_uri, timeline_commits=2)
    plan = scheduled(table, DUAL_WRITE)
    upsert(table, model, rows(4, 30, 5))
    version = table.version
    table.alter(DropColumn("v"))
    serve(table, CarryOutResize(plan))
    assert (table.rollback() if goes_back == "rollback" else table.restore(version)).version
    assert files_there(table) == files_named(table)
    check(table, model)
    for number in range(4):
        upsert(table, model, rows(20, 40, 6 + number))
    table.clean(versions=1, hours=0)
    assert not (Path(table.uri) / ".hoodie" / f"{plan}.replacecommit.requested").exists()
    assert files_there(table) == files_named(table)
    check(table, model)


def test_a_resize_begun_without_a_column_is_taken_back_on_the_way_back(table_uri: str) -> None:
    """Whoever carried it out later would take the files that it left for its own."""
    table, model = filled(table_uri)
    plan = scheduled(table, DUAL_WRITE)
    table.alter(DropColumn("v"))
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        execute(deadly, LocalEngine(1), CarryOutResize(plan))
    table.rollback()
    assert not root(table).compactions
    check(table, model)
    serve(table, CarryOutResize(scheduled(table, DUAL_WRITE)))
    check(table, model)


# Killed anywhere


def files_named(table: Table) -> set[str]:
    return {file.path for one in slices(table) for file in one.files}


def files_there(table: Table) -> set[str]:
    found = (*Path(table.uri).rglob("*.parquet"), *Path(table.uri).rglob(".*.log.*"))
    return {path.relative_to(table.uri).as_posix() for path in found}


KILLED: dict[str, Callable[[Store, str], Any]] = {
    "schedule": lambda store, way: execute(store, LocalEngine(1), ScheduleResize(SPLIT, way)),
    "carry out": lambda store, plan: execute(store, LocalEngine(1), CarryOutResize(plan)),
    "take back": lambda store, plan: execute(store, LocalEngine(1), TakeBack(plan, CLUSTERING)),
    "write": lambda store, _: write(store, LocalEngine(1), arrow(rows(6, 40, 5)), "upsert"),
}


@pytest.mark.each_once
@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("way", WAYS)
def test_a_kill_at_any_call_loses_nothing(tmp_path: Path, name: str, way: str) -> None:
    """Then others write, and all is carried out."""
    origin = str(tmp_path / "origin")
    table, model = filled(origin, lease_seconds=0)
    plan = way if name == "schedule" else scheduled(table, way)
    if name == "carry out" or (name, way) == ("take back", DUAL_WRITE):
        upsert(table, model, rows(20, 50, 4))
    before, was = model.listed(), model.rows
    dry = str(shutil.copytree(origin, tmp_path / "dry"))
    store, backend = watched(dry, backwards=way == DUAL_WRITE)
    KILLED[name](store, plan)
    after = scanned(metatable.open(dry))
    changing = backend.kills()
    assert len(changing) > 5
    for limit in one_in(18, changing, len(name)):
        uri = str(shutil.copytree(origin, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit, backwards=way == DUAL_WRITE)
        with suppress(Refused, StoreError):
            KILLED[name](store, plan)
        table = metatable.open(uri, storage_options=FAST)
        assert scanned(table) in (before, after)
        model.rows = was
        if scanned(table) != before:
            model.upsert(rows(6, 40, 5))
        upsert(table, model, rows(8, 24, 7))
        check(table, model, by_hudi=False)
        table.resize_buckets(split_above=1 << 30, merge_below=0, writers=way)
        check(table, model)
        delete(table, model, rows(20, 30))
        assert not root(table).compactions
        table.clean(versions=1, hours=0)
        check(table, model)
        assert files_there(table) == files_named(table)
        assert not list(Path(uri, ".hoodie/metatable/leases").glob("*"))


# What was lost


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", WAYS)
def test_repair_knows_what_is_to_come(table_uri: str, way: str) -> None:
    """An entry that does not name it would hide what lies on it alone."""
    table, model = filled(table_uri, count=2)
    plan = scheduled(table, way, SPLIT if way == VIRTUAL_LOG else MERGE)
    upsert(table, model, rows(10, 40, 5))
    before = slices(table)
    with Transaction.begin(Store(table_uri, FAST)) as transaction:
        update = SetSlices((before[0].unscheduled,), transaction.serve("repair"))
        transaction.publish(Change("repair", updates=(update,)))
    assert [one.kind for one in table.verify().findings if one.where == before[0].path] == ["files"]
    table.repair(dry_run=False)
    assert slices(table) == before
    check(table, model, way == DUAL_WRITE)
    serve(table, CarryOutResize(plan))
    check(table, model)


def test_a_plan_that_is_lost_is_told_by_the_slices(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    Path(table_uri, staged_plan(plan, CLUSTERING)).unlink()
    Path(table_uri, f".hoodie/{plan}.replacecommit.requested").write_bytes(b"nonsense")
    serve(table, CarryOutResize(plan))
    assert [one.instant for one in slices(table)] == [plan] * 4
    check(table, model)


def test_a_lost_copy_costs_no_row(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 40, 5))
    Path(table_uri, slices(table)[0].copies[0].path).unlink()
    done = table.repair(dry_run=False)
    assert (done.rows_lost, done.unmended) == (0, ())
    check(table, model)
    serve(table, CarryOutResize(plan))
    check(table, model)


@pytest.mark.parametrize("sizes", [SPLIT, MERGE], ids=["split", "merge"])
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_lost_logs_of_which_there_are_copies_cost_no_row(
    table_uri: str, sizes: BucketSizes, lost: tuple[int, ...]
) -> None:
    """Whichever of them are left: of each key the row is the last one that came."""
    table, model = filled(table_uri, count=1 if sizes is SPLIT else 2)
    plan = scheduled(table, sizes=sizes)
    upsert(table, model, rows(10, 40, 5))
    delete(table, model, rows(20, 30))
    upsert(table, model, rows(30, 65, 6))
    for one in slices(table):
        logs = [log for log in one.logs if log not in one.planned.logs]
        for place in lost:
            Path(table_uri, logs[place].path).unlink()
    done = table.repair(dry_run=False)
    assert (done.rows_lost, done.unmended) == (0, ())
    check(table, model)
    serve(table, CarryOutResize(plan))
    check(table, model)


@pytest.mark.parametrize("what", ["copy", "planned"])
def test_rows_of_a_lost_log_are_gone_with_what_else_is_lost_of_them(
    table_uri: str, what: str
) -> None:
    table, _ = filled(table_uri)
    scheduled(table)
    table.upsert(arrow(rows(10, 40, 5)))
    [one, _] = slices(table)
    other = one.copies[0] if what == "copy" else one.planned.logs[0]
    own = next(log for log in one.logs if log not in one.planned.logs)
    lost = [own, other]
    before = {row["id"] for row in table.scan().to_arrow().to_pylist() if row["v"] != 5}
    for log in lost:
        Path(table_uri, log.path).unlink()
    done = table.repair(dry_run=False)
    assert done.rows_lost > 0
    told = {one.where: one.rows_lost for one in done.findings if one.rows_lost}
    assert [*told] == [own.path if what == "copy" else other.path]
    assert table.verify().findings == ()
    assert before <= {row["id"] for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.parametrize("engine", RINGS)
def test_rows_of_a_child_are_merged_in_the_order_in_which_they_came(
    table_uri: str, engine: str
) -> None:
    """A commit to both children stands first in the one and last in the other."""
    table, model = filled(table_uri, engine)
    scheduled(table, VIRTUAL_LOG)
    given = [row | {"city": "ny"} for row in rows(0, 60, 3) if row["city"] == "ny"]
    hashes = hashes_of(pa.array([row["id"] for row in given]), ("id",))
    order = [given[place] for place in np.argsort(hashes)]
    ends = order[0], order[-1]
    for one in ends:  # whichever stands first
        for v in (4, 5):
            upsert(table, model, [one | {"v": v, "ts": 5}])
        upsert(table, model, [row | {"v": 9, "ts": 5} for row in ends])
        check(table, model, by_hudi=False)


@pytest.mark.parametrize("back", ["restore", "rollback"])
def test_the_way_back_to_where_a_plan_waited_that_was_taken_back(table_uri: str, back: str) -> None:
    """Copies for its children went with the plan: nobody misses them."""
    table, model = filled(table_uri)
    plan = scheduled(table, DUAL_WRITE)
    upsert(table, model, rows(20, 50, 3))
    version = table.version
    table.upsert(arrow(rows(0, 9, 5)))
    table.resize_buckets(plan=plan, take_back=True)
    table = metatable.open(table_uri, storage_options=FAST)
    if back == "restore":
        table.restore(version=version)
    else:
        table.rollback()
    check(table, model)


@pytest.mark.parametrize("way", WAYS)
def test_many_buckets_are_looked_up_as_often_as_two(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """And each of them is looked at a few times, not once for each of the others."""
    looked, asked = [0], Counter[str]()
    forwarded = cast(property, FileSlice.forwarded)

    def noting(name: str) -> Callable[..., Any]:
        real = getattr(Snapshot, name)

        def lookup(self: Snapshot, *given: Any) -> Any:
            asked[name] += 1
            return real(self, *given)

        return lookup

    def looking(one: FileSlice) -> Any:
        looked[0] += 1
        return forwarded.__get__(one)

    for name in ("current", "rings"):
        monkeypatch.setattr(Snapshot, name, noting(name))
    monkeypatch.setattr(FileSlice, "forwarded", property(looking))
    told = []
    for count in (1, 16):
        table, model = filled(f"{table_uri}-{count}", count=count)
        buckets = len(table.files())
        looked[0] = 0
        asked.clear()
        cache.clear()
        plan = scheduled(table, way)
        serve(table, CarryOutResize(plan))
        told.append((dict(asked), looked[0] // buckets))
        check(table, model)
    assert buckets > 20
    assert told[0] == told[1]
