"""Logs are compacted: scheduled apart, carried out apart, and writers go on meanwhile.

The judges are the dict after every step, and the `hudi` wheel whenever nothing is scheduled: it
does not put logs on a base file that is yet to come, and shows rows of before.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import (
    AddColumn,
    ConflictError,
    CorruptError,
    DropColumn,
    NotFoundError,
    RenameColumn,
    StaleError,
    Table,
    UsageError,
    WidenColumn,
)
from metatable.compaction.reshaping import waiting_plans
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.log_compaction import (
    CompactLogs,
    ScheduleLogs,
)
from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.reshaping.waiting_plans import TakeBack, carry_out_all
from metatable.compaction.service import execute
from metatable.compaction.ways_back.restore import Restore
from metatable.compaction.ways_back.rollback import Rollback
from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.hoodie.slice_compaction_plan import SliceCompactionPlan
from metatable.engine.local import LocalEngine
from metatable.metadata.commits import steps
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import commits_back
from metatable.metadata.commits.scheduled import SetSlices
from metatable.metadata.commits.scheduled_plans import staged_plan
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import Manifest, version_path
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Fault, ServiceResult
from metatable.storage.errors import StoreError
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import Refused, dying, once, watched
from tests.index.rows import RINGS, fitting, index_of
from tests.long import LONG, one_in
from tests.model import SCHEMA, Model, Row, arrow, listed, read_by_hudi, scanned

FAST = {"durable": "false"}
ALL = LogSizes(ratio=0)
VERBS = (
    *("upsert", "upsert", "delete", "schedule", "schedule", "carry out", "back", "take"),
    *("overwrite", "drop"),
)
KINDS = ("record", "metadata_bloom", "bloom", "bucket", *RINGS)
OPENING = [(kind, "log") for kind in ("record", "bucket", *RINGS)]
HISTORIES = (
    [
        (*each, form)
        for each in [*product(KINDS, ["base"]), *OPENING]
        for form in ("avro", "parquet")
    ]
    if LONG
    else [
        ("record", "base", "avro"),
        ("bloom", "base", "parquet"),
        ("bucket", "log", "avro"),
        (RINGS[1], "base", "parquet"),
    ]
)
TWO = ("record", "metadata_bloom")


def made(uri: str, kind: str = "record", **options: Any) -> tuple[Table, Model]:
    given = {"table_type": "mor", "file_rows": 40, "lease_seconds": 5, "bucket_count": 2, **options}
    if index_of(kind) != "bucket":
        given.pop("bucket_count")
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index_of(kind),
        options=fitting(kind, given),
        storage_options=FAST,
    )
    return table, Model(table.options.is_global, ordering=True)


def rows(first: int, last: int, v: int = 1) -> list[Row]:
    return [
        {"id": f"k{number:03}", "city": ("ny", "sf")[number % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


def filled(uri: str, kind: str = "record", **options: Any) -> tuple[Table, Model]:
    """Two groups at least with logs."""
    table, model = made(uri, kind, **options)
    upsert(table, model, rows(0, 30))
    upsert(table, model, rows(5, 20, 2))
    delete(table, model, rows(0, 3))
    return table, model


def upsert(table: Table, model: Model, given: Sequence[Row]) -> Any:
    model.upsert(given)
    return table.upsert(arrow(given))


def delete(table: Table, model: Model, given: Sequence[Row]) -> None:
    model.delete(given)
    table.delete(arrow(given))


def serve(table: Table, service: Any, store: Store | None = None) -> ServiceResult:
    return execute(store or Store(table.uri, FAST), LocalEngine(1), service)


def scheduled(table: Table) -> str:
    return serve(table, ScheduleLogs(ALL)).plan


def root(table: Table) -> Manifest:
    newest = load_newest(Store(table.uri, FAST))
    assert newest is not None
    return newest


def slices(table: Table) -> list[FileSlice]:
    return list(Snapshot(Store(table.uri, FAST), root(table)).slices())


def check(table: Table, model: Model) -> None:
    """Rows, keys, the index and, where nothing waits, Hudi."""
    table = metatable.open(table.uri, storage_options=FAST)
    assert scanned(table) == model.listed()
    assert table.verify().findings == ()
    asked = rows(0, 80)
    there = [model.identity(row) in model.rows for row in asked]
    keys = arrow(asked).select(["id", "city"])
    assert table.filter_exists(keys).equals(keys.filter(pa.array(there, pa.bool_())))
    if not root(table).compactions:
        assert read_by_hudi(table.uri) == model.listed()


def timeline(table: Table, instant: str) -> set[str]:
    """What Hudi's timeline has of an instant."""
    return {one.name[len(instant) :] for one in Path(table.uri, ".hoodie").glob(f"{instant}*")}


# What it comes to


@pytest.mark.parametrize(("kind", "new_groups", "log_format"), HISTORIES)
def test_any_history_reads_as_a_dict(
    table_uri: str, kind: str, new_groups: str, log_format: str
) -> None:
    draw = random.Random(f"{kind}{log_format}")
    table, model = made(table_uri, kind, log_format=log_format, new_groups=new_groups)
    upsert(table, model, rows(0, 30))
    done, was = 0, {table.version: model.rows}
    for step in range(2, 30 if LONG else 18):
        first = draw.randrange(60)
        match "both" if step % 9 == 0 else draw.choice(VERBS):
            case "upsert":
                upsert(table, model, rows(first, first + draw.randrange(1, 20), step))
            case "delete":
                delete(table, model, rows(first, first + draw.randrange(1, 12)))
            case "schedule":
                before = scanned(table)
                sizes = LogSizes(ratio=draw.choice([0, 0.5]), most_bytes=draw.choice([None, 1]))
                serve(table, ScheduleLogs(sizes))
                assert scanned(table) == before
            case "carry out":
                for instant in sorted(root(table).compactions):
                    version = table.version
                    serve(table, CompactLogs(instant))
                    done += 1
                    assert table.changes(version).to_arrow().num_rows == 0
            case "both":
                upsert(table, model, rows(first, first + 9, step))
                done += table.compact_logs(ratio=0).files_after > 0
                assert not root(table).compactions
            case "overwrite":
                with suppress(UsageError):  # its groups wait, and would be written anew
                    table.insert_overwrite(arrow(rows(first, first + 5, step)))
                    model.overwrite(rows(first, first + 5, step))
            case "drop":
                with suppress(UsageError):
                    table.delete_partition({"city": "sf"})
                    model.overwrite([], ["sf"])
            case "take":
                for instant in root(table).compactions:
                    with suppress(UsageError):  # logs lie on it
                        serve(table, TakeBack(instant))
            case "back":
                version = draw.choice([*was][-6:])
                with suppress(
                    UsageError, StaleError
                ):  # it, or a compaction that it holds, was undone
                    table.restore(version)
                    model.rows = was[version]
        was[table.version] = model.rows
        check(table, model)
    table.compact_logs()
    check(table, model)
    assert done


def test_a_schedule_changes_no_row_and_is_on_the_timeline(table_uri: str) -> None:
    table, model = filled(table_uri)
    before = slices(table)
    done = table.compact_logs(ratio=0, schedule=True)
    assert timeline(table, done.plan) == {".compaction.requested"}
    body = Path(table_uri, f".hoodie/{done.plan}.compaction.requested").read_bytes()
    plan = SliceCompactionPlan.decode(body, "plan")
    assert plan.preserves_meta_columns
    assert {(one.file_id, one.base_name, one.log_names) for one in plan.slices} == {
        (one.file_id, one.base.name, tuple(log.name for log in one.logs)) for one in before
    }
    held = root(table).compactions[done.plan]
    assert (held.group_count, held.size_bytes) == (2, sum(one.size_bytes for one in before))
    assert [one.pending and one.pending.instant for one in slices(table)] == [done.plan] * 2
    assert table.history()[0].operation == "schedule_logs"
    assert [one.plan for one in table.due() if one.service == "compact_logs"] == [done.plan]
    assert "no logs to compact" in table.compact_logs(ratio=0, schedule=True).reason
    check(table, model)


def test_rows_keep_their_commits_and_new_files_their_names(table_uri: str) -> None:
    table, model = filled(table_uri)
    meta = ["id", "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_partition_path"]
    states, version = table.scan(meta).to_arrow().sort_by("id"), table.version
    done = table.compact_logs(ratio=0)
    assert (done.files_before, done.files_after, done.entries) == (6, 2, len(model.rows))
    assert table.scan(meta).to_arrow().sort_by("id").equals(states)
    assert table.changes(version).to_arrow().num_rows == 0
    assert table.changes(0).to_arrow().num_rows == len(model.rows)
    for one in slices(table)[::-1]:
        assert (one.logs, one.pending, one.instant) == ((), None, done.plan)
        held = pq.ParquetFile(Path(table_uri, one.path)).read()
        assert set(held["_hoodie_file_name"].to_pylist()) == {one.base.name}
    expected = {".compaction.requested", ".compaction.inflight", ".commit"}
    assert timeline(table, done.plan) == expected
    told = json.loads(Path(table_uri, f".hoodie/{done.plan}.commit").read_text())
    assert (told["operationType"], told["compacted"]) == ("COMPACT", True)
    [stat] = told["partitionToWriteStats"]["city=ny"]
    assert (stat["totalLogFilesCompacted"], stat["numWrites"]) == (2, held.num_rows)
    assert not list(Path(table_uri, ".hoodie/.temp").rglob("*.marker.*"))
    assert not Path(table_uri, staged_plan(done.plan)).exists()
    check(table, model)


def test_logs_of_a_slice_that_waits_lie_on_what_is_to_come(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(4, 24, 3))
    delete(table, model, rows(20, 22))
    for one in slices(table):
        names = [log.named for log in one.logs]
        assert [name.version for name in names] == [1, 2, 1, 2]
        assert [name.base_instant == plan for name in names] == [False, False, True, True]
        assert one.late == one.logs[2:]
    [commit] = Path(table_uri, ".hoodie").glob(f"{table.instant}.deltacommit")
    for stat in json.loads(commit.read_text())["partitionToWriteStats"]["city=ny"]:
        assert (stat["baseFile"], stat["prevCommit"], len(stat["logFiles"])) == ("", plan, 2)
    check(table, model)
    serve(table, CompactLogs(plan))
    assert [(one.instant, len(one.logs)) for one in slices(table)] == [(plan, 2)] * 2
    check(table, model)


@pytest.mark.parametrize("kind", ["record", "metadata_bloom"])
def test_a_slice_whose_rows_are_all_deleted_becomes_an_empty_file(
    table_uri: str, kind: str
) -> None:
    table, model = filled(table_uri, kind)
    delete(table, model, rows(0, 40))
    table.compact_logs(ratio=0)
    files = [pq.ParquetFile(Path(table_uri, one.path)) for one in slices(table)]
    assert [one.metadata.num_rows for one in files] == [0, 0]
    check(table, model)
    upsert(table, model, rows(0, 9, 3))
    check(table, model)


def test_floats_that_are_not_numbers_have_no_bounds(table_uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("x", pa.float64())])
    table = metatable.create(
        table_uri, schema, key="id", options={"table_type": "mor"}, storage_options=FAST
    )
    given = [{"id": f"k{number}", "x": float(number)} for number in range(4)]
    table.upsert(pa.Table.from_pylist(given, schema))
    table.upsert(pa.Table.from_pylist([{"id": "k2", "x": float("nan")}], schema))
    table.compact_logs(ratio=0)
    [file] = slices(table)
    column = pq.ParquetFile(Path(table_uri, file.path)).metadata.row_group(0).column(6)
    assert (column.path_in_schema, column.statistics) == ("x", None)
    assert table.scan(where=[("x", ">", 100)]).count() == 1


# Which slices


def test_due_is_by_bytes_by_number_and_by_age(table_uri: str) -> None:
    table, _ = made(table_uri)
    upsert(table, Model(True, True), rows(0, 60))
    for number in range(3):
        given = [one for one in rows(0, 8, number + 2) if one["city"] == "ny" or number == 0]
        upsert(table, Model(True, True), given)
    by_city = {one.partition_path: one for one in slices(table) if one.logs}
    assert [len(one.logs) for one in by_city.values()] == [3, 1]
    view = Snapshot(Store(table_uri, FAST), root(table))

    def due(**bounds: Any) -> list[str]:
        given = {"ratio": 1e9, "count": 100, **bounds}
        return [one.partition_path for one in LogSizes(**given).slices(view)]

    shares = {
        path: sum(log.size_bytes for log in one.logs) / one.base.size_bytes
        for path, one in by_city.items()
    }
    assert shares["city=ny"] > shares["city=sf"]
    assert due() == []
    assert due(ratio=0) == ["city=ny", "city=sf"]
    assert due(ratio=sum(shares.values()) / 2) == ["city=ny"]
    assert due(count=3) == ["city=ny"]
    assert due(count=1) == ["city=ny", "city=sf"]
    assert due(hours=0) == ["city=ny", "city=sf"]
    assert due(hours=1) == due(hours=30_000_000) == due(hours=math.inf) == []
    assert due(hours=np.int64(0)) == ["city=ny", "city=sf"]
    assert due(ratio=0, partitions=("city=sf",)) == ["city=sf"]
    assert due(ratio=0, most_bytes=1) == ["city=ny"]
    assert due(ratio=0, most_bytes=1 << 30) == ["city=ny", "city=sf"]


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"ratio": -1}, "a share of the base's bytes"),
        ({"ratio": float("nan")}, "a share of the base's bytes"),
        ({"count": 0}, "a bound is 1 or more"),
        ({"most_bytes": 0}, "a bound is 1 or more"),
        ({"most_bytes": "x"}, "a bound is 1 or more"),
        ({"count": None}, "a bound is 1 or more"),
        ({"ratio": "x"}, "a share of the base's bytes"),
        ({"hours": "x"}, "hours since the first log"),
        ({"hours": -1}, "hours since the first log"),
    ],
)
def test_bounds_that_cannot_be_are_refused(
    table_uri: str, bounds: dict[str, Any], why: str
) -> None:
    table, _ = made(table_uri)
    with pytest.raises(UsageError, match=why):
        table.compact_logs(**bounds)


def test_what_cannot_be_compacted_is_refused(table_uri: str) -> None:
    table, _ = filled(table_uri)
    with pytest.raises(NotFoundError, match="no such compaction of logs waits"):
        table.compact_logs(plan="20200101000000000")
    with pytest.raises(UsageError, match="of which plan"):
        table.compact_logs(take_back=True)
    with pytest.raises(UsageError, match="plan stands alone"):
        table.compact_logs(plan="20200101000000000", ratio=0)
    with pytest.raises(UsageError, match="schedule stands alone"):
        table.compact_logs(schedule=True, plan="20200101000000000")
    plain = metatable.create(f"{table_uri}-plain", SCHEMA, key="id", storage_options=FAST)
    for how in ({}, {"plan": "20200101000000000"}):
        with pytest.raises(UsageError, match="the table has no logs"):
            plain.compact_logs(**how)


# Others at work


def test_a_writer_who_planned_before_the_schedule_tries_again(table_uri: str) -> None:
    """Its log would lie on a base file that no plan names."""
    table, model = filled(table_uri)
    sleep, slept = once("/manifest/0", lambda: scheduled(table))
    store, _ = watched(table_uri, before=sleep)
    given = rows(10, 20, 5)
    told = write(store, LocalEngine(1), arrow(given), "upsert")
    model.upsert(given)
    assert told.attempts == 2
    assert {log.named.base_instant for one in slices(table) for log in one.late} == {slept[0]}
    check(table, model)
    table.compact_logs()
    check(table, model)


def test_a_schedule_that_a_writer_forestalled_has_its_log(table_uri: str) -> None:
    table, model = filled(table_uri)
    sleep, slept = once("/manifest/0", lambda: upsert(table, model, rows(10, 20, 5)))
    store, _ = watched(table_uri, before=sleep)
    plan = serve(table, ScheduleLogs(ALL), store).plan
    assert slept
    assert [len(one.planned.logs) for one in slices(table)] == [3, 3]
    assert all(one.pending and one.pending.instant == plan for one in slices(table))
    check(table, model)


def test_a_writer_of_other_groups_does_not_try_again(table_uri: str) -> None:
    table, model = filled(table_uri)
    by_ny = LogSizes(ratio=0, partitions=("city=ny",))
    sleep, slept = once("/manifest/0", lambda: serve(table, ScheduleLogs(by_ny)))
    store, _ = watched(table_uri, before=sleep)
    given = [one for one in rows(10, 20, 5) if one["city"] == "sf"]
    assert write(store, LocalEngine(1), arrow(given), "upsert").attempts == 1
    model.upsert(given)
    assert slept
    check(table, model)


def test_who_carries_one_out_does_not_begin_again_for_writers(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    sleep, slept = once("/manifest/0", lambda: upsert(table, model, rows(10, 40, 5)))
    store, backend = watched(table_uri, before=sleep)
    serve(table, CompactLogs(plan), store)
    assert slept
    assert [verb for verb, path in backend.calls if path.endswith(".parquet")].count("create") == 2
    assert sorted((one.instant, len(one.logs)) for one in slices(table) if one.logs) == [
        (plan, 1),
        (plan, 1),
    ]
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


@pytest.mark.parametrize("where", [r"\.compaction\.inflight", r"\.parquet", "/manifest/0"])
def test_two_at_once_do_it_once(table_uri: str, where: str) -> None:
    """The second finds the files of the first; one of the two publishes."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    act = partial(serve, table, CompactLogs(plan))
    sleep, slept = once(where.replace("\\", ""), act)
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError, match="carried out"):
        serve(table, CompactLogs(plan), store)
    assert slept[0].files_after == 2
    assert len(list(Path(table_uri).rglob(f"*_{plan}.parquet"))) == 2
    check(table, model)


def test_a_late_twin_of_who_has_carried_one_out_is_void(table_uri: str) -> None:
    """His put lies in the place of a version that was cleaned, and the commit of the plan's instant
    is complete: it is the other one's."""
    table, model = filled(table_uri)
    plan = scheduled(table)

    def go_on() -> None:
        serve(table, CompactLogs(plan))
        upsert(table, model, rows(10, 20, 5))
        table.clean(versions=1, hours=0)

    sleep, slept = once("/manifest/0", go_on)
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError, match="carried out"):
        serve(table, CompactLogs(plan), store)
    assert slept
    check(table, model)
    upsert(table, model, rows(0, 9, 6))
    table.clean(versions=1, hours=0)
    check(table, model)


def test_what_another_carries_out_meanwhile_is_left_to_it(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    sleep, slept = once("/manifest/0", partial(serve, table, CompactLogs(plan)))
    store, _ = watched(table_uri, before=sleep)
    done = carry_out_all(store, LocalEngine(1), ScheduleLogs(ALL), carry_out=CompactLogs)
    assert slept
    assert not root(table).compactions
    assert done.version == root(table).version
    assert f"{plan} waits no more: another process carried it out" in done.reason
    assert done.bytes_read > 0
    check(table, model)


@pytest.mark.parametrize("first", [CompactLogs, TakeBack])
def test_where_another_was_first_and_nothing_is_due_the_result_says_so(
    table_uri: str, first: Any
) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    sleep, slept = once("/manifest/0", partial(serve, table, first(plan)))
    store, _ = watched(table_uri, before=sleep)
    bound = LogSizes(ratio=1000, count=1000)
    done = carry_out_all(store, LocalEngine(1), ScheduleLogs(bound), carry_out=CompactLogs)
    assert slept
    assert not root(table).compactions
    assert done.version == root(table).version
    assert done.files_after == 0
    assert f"{plan} waits no more" in done.reason
    assert done.reason.endswith("no logs to compact")
    check(table, model)


def test_a_file_that_is_there_is_adopted_and_not_made_again(table_uri: str) -> None:
    table, model = filled(table_uri, "metadata_bloom")
    plan = scheduled(table)
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        serve(table, CompactLogs(plan), deadly)
    there = {path: path.read_bytes() for path in Path(table_uri).rglob(f"*_{plan}.parquet")}
    assert len(there) == 2
    check(table, model)
    upsert(table, model, rows(10, 20, 5))
    store, backend = watched(table_uri)
    done = serve(table, CompactLogs(plan), store)
    assert (done.files_after, done.entries) == (2, 27)
    assert not [path for path in backend.paths("read", "map", "read_whole") if ".log." in path]
    assert {path: path.read_bytes() for path in Path(table_uri).rglob(f"*_{plan}.parquet")} == there
    check(table, model)


@pytest.mark.parametrize("late", [False, True])
def test_a_group_that_was_written_anew_is_left_out(table_uri: str, late: bool) -> None:
    """As a repair does it, too, and a change of columns that writes all files."""
    table, model = filled(table_uri, "bucket", bucket_count=1)
    plan = scheduled(table)

    def anew() -> None:  # a row behind a delete, older than what was deleted
        upsert(table, model, [{"id": "k000", "city": "ny", "v": 0, "ts": 0}])

    sleep, slept = once("/manifest/0", anew if late else lambda: None)
    store, _ = watched(table_uri, before=sleep)
    if not late:
        anew()
    assert serve(table, CompactLogs(plan), store).files_after == 1
    assert slept
    assert [one.instant == plan for one in slices(table)] == [False, True]
    assert [(one.logs, one.pending) for one in slices(table)] == [((), None)] * 2
    check(table, model)
    upsert(table, model, rows(10, 20, 5))
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


ANEW: dict[str, Callable[[Table, Model], object]] = {
    "a row behind a delete": lambda table, model: upsert(
        table, model, [{"id": "k002", "city": "ny", "v": 7, "ts": 7}]
    ),
    "rows of a bulk insert": lambda table, model: bulk_insert(
        table, model, [{"id": "k002", "city": "ny", "v": 7, "ts": 7}]
    ),
    "a change of columns": lambda table, _: table.alter(RenameColumn("v", "w")),
}


def bulk_insert(table: Table, model: Model, given: Sequence[Row]) -> None:
    model.upsert(given)
    table.bulk_insert(arrow(given))


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("anew", ANEW)
def test_a_group_with_late_logs_is_written_anew_behind_its_compaction(
    table_uri: str, anew: str, others: bool
) -> None:
    """Or Hudi 1.x would read them on top of the new file, as what they lie on is not complete. That
    is no lost race."""
    table, model = filled(table_uri, "bucket", bucket_count=1, commit_retries=0)
    plan = table.compact_logs(ratio=0, partitions="city=ny", schedule=True).plan
    other = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    if others:  # another process carries it out while we look
        sleep, slept = once(".compaction.inflight", lambda: serve(table, CompactLogs(plan)))
    else:
        sleep, slept = once("nothing", lambda: None)
    store, _ = watched(table_uri, before=sleep)
    table._store = store
    ANEW[anew](table, model)
    assert bool(slept) == others
    assert (plan in root(table).compactions, other in root(table).compactions) == (
        False,
        anew != "a change of columns",
    )
    assert ".commit" in timeline(table, plan)
    assert all(one.instant >= plan for one in slices(table) if one.partition_path == "city=ny")
    table = metatable.open(table_uri, storage_options=FAST)
    assert table.verify().findings == ()
    if anew == "a change of columns":
        held = table.scan().to_arrow().rename_columns({"w": "v"}).select(SCHEMA.names)
        assert listed(held.to_pylist()) == model.listed()
    else:
        check(table, model)


def test_who_may_not_carry_out_a_compaction_says_which_is_in_the_way(table_uri: str) -> None:
    table, model = filled(table_uri, "bucket", bucket_count=1, commit_retries=1)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    late = arrow([{"id": "k002", "city": "ny", "v": 7, "ts": 7}])
    with pytest.raises(
        ConflictError, match=f"must be written anew.* the compaction {plan} is to make"
    ):
        write(Store(table_uri, FAST), LocalEngine(1), late, "upsert")
    check(table, model)


def test_where_hudi_s_readers_do_not_count_nobody_waits(table_uri: str) -> None:
    table, model = filled(table_uri, "bucket", bucket_count=1, hudi_readable=False)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    upsert(table, model, [{"id": "k002", "city": "ny", "v": 7, "ts": 7}])
    assert [*root(table).compactions] == [plan]
    assert scanned(table) == model.listed()


def test_going_back_to_a_group_that_was_left_out(table_uri: str) -> None:
    """It does not wait any more."""
    table, model = filled(table_uri, "bucket", bucket_count=1)
    plan = scheduled(table)
    version, was = table.version, model.rows
    upsert(table, model, [{"id": "k000", "city": "ny", "v": 0, "ts": 0}])
    serve(table, CompactLogs(plan))
    table.restore(version)
    model.rows = was
    assert [(one.instant == plan, one.pending) for one in slices(table)] == [
        (False, None),
        (True, None),
    ]
    check(table, model)
    upsert(table, model, rows(10, 20, 5))
    check(table, model)


def test_there_is_no_way_back_where_logs_lie_on_what_was_left_out(table_uri: str) -> None:
    """As where Hudi's readers do not count, and a group is written anew before its compaction."""
    table, model = filled(table_uri, "bucket", bucket_count=1, hudi_readable=False)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 6))
    version = table.version
    upsert(table, model, [{"id": "k002", "city": "ny", "v": 0, "ts": 0}])
    serve(table, CompactLogs(plan))
    with pytest.raises(UsageError, match="has left out groups"):
        table.restore(version)
    assert scanned(table) == model.listed()


@pytest.mark.parametrize("back", ["rollback", "restore"])
def test_what_was_made_of_a_group_that_was_left_out_goes_on_the_way_back(
    table_uri: str, back: str
) -> None:
    """Its instant is complete: Hudi's readers would take it for the latest slice of the group."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    version, was = table.version, model.rows
    drop = partial(metatable.open(table_uri, FAST).delete_partition, {"city": "ny"})
    sleep, slept = once("/manifest/0", drop)  # behind the first attempt's files
    serve(table, CompactLogs(plan), watched(table_uri, before=sleep)[0])
    assert slept
    model.overwrite([], ["ny"])
    check(table, model)
    assert len(list(Path(table_uri).rglob(f"*_{plan}.parquet"))) == 2
    table.rollback() if back == "rollback" else table.restore(version)
    model.rows = was
    assert len(list(Path(table_uri).rglob(f"*_{plan}.parquet"))) == 1
    check(table, model)
    upsert(table, model, rows(0, 9, 5))
    check(table, model)


def test_columns_that_come_meanwhile_are_in_the_new_file(table_uri: str) -> None:
    table, model = filled(table_uri, "metadata_bloom")
    plan = scheduled(table)
    sleep, _ = once("/manifest/0", lambda: table.alter(AddColumn("x", pa.string())))
    store, _ = watched(table_uri, before=sleep)
    serve(table, CompactLogs(plan), store)
    assert not root(table).compactions
    check(table, model)


# Other services


def test_groups_that_wait_are_not_resized_nor_overwritten_in_place(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    waits = "wait for something scheduled"
    stored = table.resize_buckets(split_above=1, merge_below=0, schedule=True).plan
    plan = scheduled(table)
    with pytest.raises(UsageError, match=waits):
        table.insert_overwrite(arrow(rows(0, 2, 9)))
    with pytest.raises(UsageError, match=waits):
        table.delete_partition({"city": "ny"})
    with pytest.raises(UsageError, match=waits):
        table.resize_buckets(plan=stored)
    left = r"no bucket to resize: plans wait for \d partitions?, left out here \(see `due`\)"
    for more in ({"split_above": 1, "merge_below": 0}, {"merge_below": 1 << 20}):
        assert re.fullmatch(left, table.resize_buckets(**more).reason)
    check(table, model)
    serve(table, CompactLogs(plan))
    table.resize_buckets(plan=stored)
    check(table, model)


def test_a_resize_planned_before_a_schedule_finds_nothing_behind_it(table_uri: str) -> None:
    """Nobody has written a log: the schedule alone tells."""
    table, model = filled(table_uri, "consistent_hashing")
    before = root(table)
    sleep, slept = once("/manifest/0", lambda: scheduled(table))
    store, _ = watched(table_uri, before=sleep)
    sizes = BucketSizes(split_above=1, merge_below=0)
    assert serve(table, Resize(sizes), store).reason == "no bucket to resize"
    assert slept
    assert root(table).version == before.version + 1
    check(table, model)


@pytest.mark.parametrize("kind", TWO)
def test_groups_that_were_overwritten_are_left_out(table_uri: str, kind: str) -> None:
    """And a rollback of that finds them waiting again."""
    table, model = filled(table_uri, kind)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 3))
    was = model.rows
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    check(table, model)
    table.rollback()
    model.rows = was
    check(table, model)
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    upsert(table, model, rows(0, 12, 4))
    check(table, model)
    done = serve(table, CompactLogs(plan))
    assert {Path(one.path).parent.name for one in slices(table) if one.instant == plan} == {
        "city=sf"
    }
    assert done.files_after == len([one for one in slices(table) if one.instant == plan])
    check(table, model)
    plan = scheduled(table)
    table.insert_overwrite(arrow(rows(20, 30, 9)), by="table")
    model.overwrite(rows(20, 30, 9), ["ny", "sf"])
    check(table, model)
    assert serve(table, CompactLogs(plan)).files_after == 0
    check(table, model)
    table.clean(versions=1, hours=0)
    check(table, model)


@pytest.mark.parametrize("kind", TWO if LONG else TWO[:1])
@pytest.mark.parametrize("first", ["overwrite", "compaction", "schedule"])
def test_an_overwrite_and_a_compaction_that_race_both_hold(
    table_uri: str, kind: str, first: str
) -> None:
    table, model = filled(table_uri, kind)
    plan = "" if first == "schedule" else scheduled(table)
    given = rows(0, 9, 9)

    def overwrite(store: Store) -> None:
        write(store, LocalEngine(1), arrow(given), "insert_overwrite")

    def compact(store: Store) -> None:
        execute(store, LocalEngine(1), CompactLogs(plan) if plan else ScheduleLogs(ALL))

    act, late = (overwrite, compact) if first == "overwrite" else (compact, overwrite)
    sleep, slept = once("/manifest/0", lambda: act(Store(table_uri, FAST)))
    late(watched(table_uri, before=sleep)[0])
    assert slept
    model.overwrite(given)
    check(table, model)
    table.compact_logs(ratio=0)
    assert not root(table).compactions
    check(table, model)


def test_an_index_is_not_changed_while_one_waits(table_uri: str) -> None:
    """Who goes back behind the change would find base files without the entries of the index of
    then."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(40, 44, 5))
    with pytest.raises(UsageError, match="before the index changes"):
        metatable.adopt(table_uri, index="metadata_bloom", storage_options=FAST)
    serve(table, CompactLogs(plan))
    metatable.adopt(table_uri, index="metadata_bloom", storage_options=FAST)
    check(table, model)


def test_a_schedule_behind_a_resize_is_of_the_new_groups(table_uri: str) -> None:
    table, model = filled(table_uri, "consistent_hashing")
    sizes = BucketSizes(split_above=1, merge_below=0)
    sleep, slept = once("/manifest/0", lambda: serve(table, Resize(sizes)))
    store, _ = watched(table_uri, before=sleep)
    assert serve(table, ScheduleLogs(ALL), store).reason == "no logs to compact"
    assert slept
    check(table, model)


def test_clean_keeps_what_a_waiting_plan_needs_and_the_timeline_from_there(table_uri: str) -> None:
    table, model = filled(table_uri, timeline_commits=1)
    plan = scheduled(table)
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        serve(table, CompactLogs(plan), deadly)
    for number in range(4):
        upsert(table, model, rows(3 + number, 12, number + 3))
    table.clean(versions=1, hours=0)
    assert len(list(Path(table_uri).rglob(f"*_{plan}.parquet"))) == 2
    assert Path(table_uri, staged_plan(plan)).is_file()
    assert root(table).archived < plan
    assert timeline(table, plan) == {".compaction.requested", ".compaction.inflight"}
    check(table, model)
    serve(table, CompactLogs(plan))
    check(table, model)
    old = {path for path in Path(table_uri).rglob(".*.log.*") if plan not in path.name}
    assert len(old) == 4
    upsert(table, model, rows(3, 5, 20))
    table.clean(versions=1, hours=0)
    assert not any(path.exists() for path in old)
    check(table, model)
    upsert(table, model, rows(3, 5, 21))
    table.clean(versions=1, hours=0)
    assert root(table).archived > plan
    assert timeline(table, plan) == set()
    check(table, model)


def test_a_clean_counts_no_compactions_of_logs(table_uri: str) -> None:
    """Else none might be left of the commits of rows, for a savepoint to keep."""
    table, model = filled(table_uri)
    table.compact_logs(ratio=0)
    kept = list(commits_back(Store(table.uri, FAST), root(table)))
    table.clean(versions=2, hours=0)
    assert min(one.version for one in table.history()) == kept[1][0]
    upsert(table, model, rows(10, 20, 5))
    table.compact_logs(ratio=0)
    table.clean(versions=1, hours=0)
    table.savepoint("kept")
    check(table, model)


def test_savepoints_wait_until_none_waits(table_uri: str) -> None:
    """No instant below a savepoint's is published any more."""
    table, model = filled(table_uri)
    table.savepoint("before")
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    with pytest.raises(UsageError, match="what is scheduled waits in this version"):
        table.savepoint("between")
    serve(table, CompactLogs(plan))
    before = model.listed()
    upsert(table, model, rows(10, 20, 6))
    table.savepoint("behind")
    upsert(table, model, rows(10, 20, 7))
    table.compact_logs(ratio=0)
    table.restore(savepoint="behind")
    model.rollback()
    check(table, model)
    table.drop_savepoint("behind")
    table.restore(savepoint="before")
    check_rows = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert check_rows["k010"] == 2
    assert before != model.listed()
    assert read_by_hudi(table_uri) == scanned(table)


def test_a_savepoint_keeps_the_version_in_which_what_waited_is_done(table_uri: str) -> None:
    """In the one that its commit has made a compaction waits; where nobody commits any more, no
    other one is to be had."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    commit = table.instant
    serve(table, CompactLogs(plan))
    done = table.version
    table.compact(major=True)
    for _ in range(2):
        table.savepoint("done")
    assert [(one.version, one.instant) for one in table.savepoints()] == [(done, commit)]
    upsert(table, model, rows(10, 20, 6))
    table.compact_logs(ratio=0)
    table.clean(versions=1, hours=0)
    table.restore(savepoint="done")
    model.rollback()
    check(table, model)
    upsert(table, model, rows(15, 25, 7))
    check(table, model)
    assert read_by_hudi(table_uri) == scanned(table)
    assert table.verify().findings == ()


# There and back


def test_a_plan_is_taken_back_while_nothing_lies_on_top(table_uri: str) -> None:
    table, model = filled(table_uri)
    first = scheduled(table)
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        serve(table, CompactLogs(first), deadly)
    table.compact_logs(plan=first, take_back=True)
    assert timeline(table, first) == set()
    assert not list(Path(table_uri).rglob(f"*_{first}.parquet*"))
    assert not Path(table_uri, staged_plan(first)).exists()
    assert first in root(table).withdrawn
    check(table, model)
    second = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    with pytest.raises(UsageError, match="carry it out"):
        serve(table, TakeBack(second))
    check(table, model)
    serve(table, CompactLogs(second))
    check(table, model)


def test_what_was_taken_back_is_not_looked_for_again(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a listing of the table, from which each of its logs would be read."""
    table, model = filled(table_uri)
    table.compact_logs(plan=scheduled(table), take_back=True)
    monkeypatch.setattr(steps, "listed_of", lambda *_: pytest.fail("all of it is gone"))
    upsert(table, model, rows(10, 20, 5))
    check(table, model)


def in_ny(given: Sequence[Row]) -> list[Row]:
    return [row for row in given if row["city"] == "ny"]


def test_no_plan_is_taken_back_while_older_versions_have_rows_on_it_alone(table_uri: str) -> None:
    """Of groups that went since: whoever goes back to them looks for those rows."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, in_ny(rows(10, 20, 5)))
    table.delete_partition({"city": "ny"})
    with pytest.raises(UsageError, match="carry it out"):
        table.compact_logs(plan=plan, take_back=True)
    table.rollback()
    check(table, model)
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    table.clean(versions=1, hours=0)  # nobody goes back there any more
    table.compact_logs(plan=plan, take_back=True)
    assert not root(table).compactions
    check(table, model)


@pytest.mark.parametrize("back", ["rollback", "restore"])
def test_there_is_no_way_back_to_rows_on_what_was_taken_back(
    table_uri: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was by a release that did not look at groups that went."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, in_ny(rows(10, 20, 5)))
    version, was = table.version, model.listed()
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    monkeypatch.setattr(waiting_plans, "logs_left", lambda *_: ())
    table.compact_logs(plan=plan, take_back=True)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="with logs on what it is to make, and was taken back"):
        table.rollback() if back == "rollback" else table.restore(version)
    assert scanned(table, version) == was
    check(table, model)


def test_whoever_carries_out_what_is_taken_back_fails(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    sleep, slept = once("/manifest/0", partial(serve, table, TakeBack(plan)))
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError):
        serve(table, CompactLogs(plan), store)
    assert slept
    check(table, model)
    table.clean(versions=1, hours=0)
    check(table, model)


@pytest.mark.parametrize(
    "where", [r"create .*\.parquet", r"create .*\.inflight", r"put .*\.marker\.\w+"]
)
def test_what_is_taken_back_while_it_is_carried_out_never_comes_to_light(
    table_uri: str, where: str
) -> None:
    """Though Hudi's timeline is archived past its instant before a file of it is there."""
    table, model = filled(table_uri, timeline_commits=1, upkeep_files=0)
    plan = scheduled(table)

    def go_on() -> None:
        table.compact_logs(plan=plan, take_back=True)
        for v in range(5, 9):
            upsert(table, model, rows(5, 20, v))
        table.clean(versions=1, hours=0)

    seen: list[str] = []

    def sleep(verb: str, path: str) -> None:
        if not seen and re.fullmatch(where, f"{verb} {path}"):
            seen.append(path)
            go_on()

    store, _ = watched(table_uri, before=sleep)
    with pytest.raises((NotFoundError, StaleError)):
        serve(table, CompactLogs(plan), store)
    assert seen
    check(table, model)
    table.clean(versions=1, hours=0)
    check(table, model)
    assert root(table).archived > plan
    assert timeline(table, plan) == set()
    assert not list(Path(table_uri).rglob(f"*_{plan}.parquet*"))


def test_a_late_hand_requests_nothing_that_was_taken_back(table_uri: str) -> None:
    """A plan under way that nobody carries out would end the archiving of Hudi's timeline."""
    table, model = filled(table_uri)

    def take_back() -> None:
        [plan] = root(table).compactions
        table.compact_logs(plan=plan, take_back=True)

    sleep, slept = once(".compaction.requested", take_back)
    store, _ = watched(table_uri, before=sleep)
    plan = serve(table, ScheduleLogs(ALL), store).plan
    assert slept
    assert plan in root(table).withdrawn
    assert timeline(table, plan) == set()
    check(table, model)


def test_nothing_is_scheduled_below_a_savepoint_that_came_meanwhile(table_uri: str) -> None:
    """No instant below a savepoint's is published any more: it could never be carried out."""
    table, model = filled(table_uri)

    def save() -> None:
        upsert(table, model, rows(40, 44, 5))
        table.savepoint("one")

    sleep, slept = once("/manifest/0", save)
    store, _ = watched(table_uri, before=sleep)
    plan = serve(table, ScheduleLogs(ALL), store).plan
    assert slept
    assert plan > root(table).pins["one"].instant
    serve(table, CompactLogs(plan))
    check(table, model)


def test_what_was_carried_out_meanwhile_is_not_taken_back(table_uri: str) -> None:
    """Though there was nothing left of it."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    given = rows(0, 6, 9)
    table.insert_overwrite(arrow(given), by="table")
    model.overwrite(given, {"ny", "sf"})
    sleep, slept = once("/manifest/0", partial(serve, table, CompactLogs(plan)))
    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(NotFoundError):
        serve(table, TakeBack(plan), store)
    assert slept
    assert plan not in root(table).withdrawn
    check(table, model)


def test_no_savepoint_is_behind_what_was_scheduled_by_a_slow_hand(table_uri: str) -> None:
    """Its instant is earlier than that of the commit, behind which it came: it could not be carried
    out, or would be left there by a restore that goes by instants."""
    table, model = filled(table_uri)
    elsewhere = [{**one, "city": "la"} for one in rows(40, 44, 5)]
    sleep, slept = once("/manifest/0", lambda: upsert(table, model, elsewhere))
    store, _ = watched(table_uri, before=sleep)
    plan = serve(table, ScheduleLogs(ALL), store).plan
    assert slept
    assert plan < str(table.instant)
    for _ in range(2):
        with pytest.raises(UsageError, match="behind this version"):
            table.savepoint("one")
        if plan in root(table).compactions:
            serve(table, CompactLogs(plan))
    upsert(table, model, rows(50, 54, 6))
    table.savepoint("one")
    kept = model.listed()
    upsert(table, model, rows(5, 20, 7))
    table.clean(versions=1, hours=0)
    table.restore(savepoint="one")
    assert scanned(table) == read_by_hudi(table_uri) == kept


def test_no_savepoint_holds_a_compaction_of_a_later_instant(table_uri: str) -> None:
    """Carried out before a slow commit was published: a restore undoes all that is later."""
    table, model = filled(table_uri)
    given = [{**one, "city": "la"} for one in rows(40, 44, 5)]
    sleep, slept = once("/manifest/0", lambda: table.compact_logs(ratio=0))
    store, _ = watched(table_uri, before=sleep)
    write(store, LocalEngine(1), arrow(given), "upsert")
    model.upsert(given)
    assert slept
    with pytest.raises(UsageError, match="a later instant than its own: keep a later version"):
        table.savepoint("one")
    upsert(table, model, rows(10, 20, 6))
    table.savepoint("one")
    kept = model.listed()
    for number in range(2):
        upsert(table, model, rows(10, 20, 7 + number))
        table.compact_logs(ratio=0)
        table.clean(versions=1, hours=0)
    table.restore(savepoint="one")
    assert scanned(table) == read_by_hudi(table_uri) == kept
    assert table.verify().findings == ()


def test_a_rollback_takes_back_what_was_scheduled_behind_its_commit(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    table.rollback()
    model.rollback()
    assert timeline(table, plan) == set()
    assert plan in root(table).withdrawn
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


def test_a_rollback_of_a_commit_takes_its_compaction_along(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = table.compact_logs(ratio=0).plan
    table.rollback()
    model.rollback()
    assert timeline(table, plan) == set()
    assert not list(Path(table_uri).rglob(f"*{plan}*.parquet"))
    check(table, model)
    upsert(table, model, rows(10, 20, 5))
    table.compact_logs(ratio=0)
    check(table, model)


@pytest.mark.parametrize("back", ["rollback", "restore"])
def test_no_compaction_is_undone_that_a_savepoint_of_hudis_own_tools_keeps(
    table_uri: str, back: str
) -> None:
    """Behind one its instant is that of the last commit, of which they make a savepoint."""
    table, model = filled(table_uri)
    version = root(table).last_commit[0] - 1  # type: ignore[index]
    plan = table.compact_logs(ratio=0).plan
    held = slices(table)
    body = savepoint_metadata(held, 0, "").replace(b"metatable", b"hudi user")
    for end, one in ((".inflight", b""), ("", body)):
        Path(table_uri, f".hoodie/{plan}.savepoint{end}").write_bytes(one)
    goes_back = table.rollback if back == "rollback" else partial(table.restore, version)
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="of Hudi's own tools keeps"):
            goes_back(dry_run=dry_run)
    assert [one.path for one in held if not Path(table_uri, one.path).exists()] == []
    check(table, model)


def test_no_compaction_stays_behind_that_is_not_kept_any_more(table_uri: str) -> None:
    """Nothing but the timeline tells it then: a restore goes by that, a rollback does not."""
    table, model = made(table_uri, upkeep_files=0)
    upsert(table, model, rows(0, 30))
    upsert(table, model, rows(5, 20, 2))
    last, was = str(table.instant), model.listed()
    table.savepoint("before", root(table).last_commit[0] - 1)  # type: ignore[index]
    plan = table.compact_logs(ratio=0).plan
    for path in Path(table_uri, HOME, "column_stats").glob(f"{last}*.hfile"):
        path.unlink()
    table.repair(dry_run=False)
    for kept in (True, False):
        if not kept:
            table.clean(versions=1, hours=0)
        with pytest.raises(UsageError, match=r"restore the savepoint before it.*savepoint before"):
            table.rollback()
        assert scanned(table) == was
        assert table.verify().findings == ()
    table.restore(savepoint="before")
    model.rollback()
    assert timeline(table, plan) == set()
    check(table, model)


def test_a_rollback_to_where_one_waited_leaves_it_done(table_uri: str) -> None:
    """A commit that stays may lie on its files."""
    table, model = filled(table_uri, "metadata_bloom")
    plan = scheduled(table)
    upsert(table, model, rows(4, 10, 5))
    upsert(table, model, rows(10, 20, 6))
    serve(table, CompactLogs(plan))
    table.compact(major=True)
    table.rollback()
    model.rollback()
    assert [one.instant for one in slices(table)] == [plan] * 2
    check(table, model)
    table.compact(major=True)
    upsert(table, model, rows(8, 12, 7))
    check(table, model)
    table.rollback()
    model.rollback()
    table.rollback()
    model.rollback()
    check(table, model)
    table.rollback()
    model.rollback()
    assert timeline(table, plan) == set()
    check(table, model)


def test_going_back_asks_for_what_a_compaction_has_made_not_for_what_it_has_merged(
    table_uri: str,
) -> None:
    """Of a compaction that stays done Hudi's cleaner may have taken the second; the first, of which
    the groups begin then, must be there."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    merged = [file.path for one in slices(table) for file in one.files]
    upsert(table, model, rows(10, 20, 5))
    version, was = table.version, model.rows
    serve(table, CompactLogs(plan))
    upsert(table, model, rows(0, 30, 6))
    table.compact_logs(ratio=0)
    for path in merged:
        Path(table_uri, path).unlink()
    base = min(Path(table_uri).rglob(f"*_{plan}.parquet"))
    away = base.rename(base.with_suffix(".away"))
    with pytest.raises(CorruptError, match="lacks a data file: nothing was undone"):
        table.restore(version)
    away.rename(base)
    table.restore(version)
    model.rows = was
    assert [one.instant for one in slices(table)] == [plan] * 2
    check(table, model)


def test_a_version_whose_compaction_was_undone_is_gone(table_uri: str) -> None:
    """Though all its commits of rows are there."""
    table, model = filled(table_uri)
    before, was = table.version, model.rows
    table.compact_logs(ratio=0)
    done = table.version
    upsert(table, model, rows(10, 20, 5))
    table.restore(before)
    model.rows = was
    check(table, model)
    upsert(table, model, rows(10, 20, 6))
    with pytest.raises(StaleError, match="this version was undone"):
        table.restore(done)
    with pytest.raises(UsageError, match="that version was undone"):  # meanwhile, for whoever asked
        serve(table, Restore(done))
    check(table, model)


def test_going_back_keeps_a_compaction_that_is_older_than_all_kept_commits(table_uri: str) -> None:
    """What a version keeps is told by itself, not by its last commit of rows."""
    table, model = filled(table_uri)
    table.compact_logs(ratio=0)
    done, was, held = table.version, model.rows, slices(table)
    for version in range(1, done + 1):  # the version before a root ends when it is put
        path = Path(table.uri, version_path(version))
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    upsert(table, model, rows(10, 20, 5))
    table.clean(versions=1, hours=1)
    assert min(one.version for one in table.history()) == done
    assert "1 commit undone" in table.restore(done).reason
    model.rows = was
    assert slices(table) == held
    check(table, model)


NARROWER = {"dropped": DropColumn("v"), "widened": WidenColumn("n", pa.int64())}


@pytest.mark.each_once
@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("change", NARROWER)
def test_what_was_compacted_with_other_columns_is_undone_on_the_way_back(
    table_uri: str, change: str, readable: bool
) -> None:
    """What the older version reads is not in the new files, or not of its type."""
    table, model = filled(table_uri, hudi_readable=readable)
    table.alter(AddColumn("n", pa.int32()))
    upsert(table, model, rows(3, 9, 3))
    plan = scheduled(table)
    version, was = table.version, slices(table)
    table.alter(NARROWER[change])
    serve(table, CompactLogs(plan))
    table.restore(version)
    assert [one.base for one in slices(table)] == [one.base for one in was]
    assert [one.logs for one in slices(table)] == [one.logs for one in was]
    assert not root(table).compactions
    assert not list(Path(table_uri).rglob(f"*_{plan}.parquet"))
    check(table, model)
    upsert(table, model, rows(10, 20, 6))
    table.compact_logs(ratio=0)
    check(table, model)


def test_there_is_no_way_back_where_logs_lie_on_what_lacks_a_column(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(4, 10, 5))
    version = table.version
    table.alter(DropColumn("v"))
    serve(table, CompactLogs(plan))
    with pytest.raises(UsageError, match="columns had been dropped or widened"):
        table.restore(version)
    with pytest.raises(UsageError, match="columns had been dropped or widened"):
        table.rollback()
    without_v = [(one[0], one[1], one[3]) for one in model.listed()]
    found = table.scan().to_arrow().select(["id", "city", "ts"]).to_pylist()
    assert sorted(tuple(one.values()) for one in found) == without_v


@pytest.mark.parametrize("begun", [True, False])
def test_what_was_begun_with_other_columns_is_taken_back_on_the_way_back(
    table_uri: str, begun: bool
) -> None:
    """Whoever carried it out later would take the files that it left for its own. So may one do who
    begins only now, before the way back is published."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    table.alter(DropColumn("v"))
    if begun:
        with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
            serve(table, CompactLogs(plan), deadly)
    table.rollback()
    assert not root(table).compactions
    assert not list(Path(table_uri).rglob(f"*_{plan}.parquet"))
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


def test_there_is_no_way_back_where_logs_lie_on_what_was_begun_without_a_column(
    table_uri: str,
) -> None:
    table, _ = filled(table_uri)
    plan = scheduled(table)
    table.upsert(arrow(rows(4, 10, 5)))
    table.alter(DropColumn("v"))
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        serve(table, CompactLogs(plan), deadly)
    with pytest.raises(UsageError, match="or begun, when columns had been dropped"):
        table.rollback()


@pytest.mark.parametrize("change", [AddColumn("x", pa.string()), RenameColumn("v", "w")])
def test_what_was_compacted_with_more_columns_stays_on_the_way_back(
    table_uri: str, change: Any
) -> None:
    table, model = filled(table_uri, hudi_readable=False)
    plan = scheduled(table)
    version = table.version
    table.alter(change)
    serve(table, CompactLogs(plan))
    table.restore(version)
    assert [one.instant for one in slices(table)] == [plan] * 2
    assert table.verify().findings == ()
    assert scanned(table) == model.listed()


RENAMED = {
    "renamed": ([RenameColumn("v", "w")], []),
    "exchanged": ([RenameColumn("v", "w"), RenameColumn("n", "v"), RenameColumn("w", "n")], []),
    "for a while": ([RenameColumn("v", "w")], [RenameColumn("w", "v")]),
}


def compacted_under_other_names(uri: str, how: str) -> tuple[Table, list[dict[str, Any]]]:
    """A table that has gone back behind them, and its rows of before."""
    table, _ = filled(uri, hudi_readable=False)
    table.alter(AddColumn("n", pa.int64()))
    given = arrow(rows(3, 9, 3))
    table.upsert(given.append_column("n", pa.array([7] * len(given))))
    plan = scheduled(table)
    version, was = table.version, table.scan().to_arrow().sort_by("id").to_pylist()
    first, then = RENAMED[how]
    table.alter(*first)
    serve(table, CompactLogs(plan))
    if then:
        table.alter(*then)
    table.restore(version)
    assert {one.instant for one in slices(table)} == {plan}
    return table, was


@pytest.mark.parametrize("how", RENAMED)
def test_what_was_compacted_under_other_names_is_read_by_ids_on_the_way_back(
    table_uri: str, how: str
) -> None:
    """Whoever reads by names, as Spark's own reader does, would go wrong in those files."""
    table, was = compacted_under_other_names(table_uri, how)
    assert TableSchema.decode(root(table).schema, table.uri).by_id
    assert table.scan().to_arrow().sort_by("id").to_pylist() == was
    assert table.verify().findings == ()


@pytest.mark.parametrize("begun", [True, False])
def test_a_name_of_a_column_that_was_compacted_meanwhile_is_past_on_the_way_back(
    table_uri: str, begun: bool
) -> None:
    """Hudi's readers would take the column that comes again under it from those files."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    table.alter(AddColumn("x", pa.string()))
    with dying(table_uri, r"create .*/manifest/\d+\.json") as deadly:
        serve(table, CompactLogs(plan), deadly)
    if not begun:
        serve(table, CompactLogs(plan))
    table.rollback()
    if begun:
        serve(table, CompactLogs(plan))
    table.alter(AddColumn("x", pa.struct([("a", pa.int64())])))
    check(table, model)


def test_going_back_to_where_one_waited_that_was_taken_back(table_uri: str) -> None:
    """Its instant is never published: it does not wait there either."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    version, was = table.version, model.rows
    serve(table, TakeBack(plan))
    upsert(table, model, rows(10, 20, 5))
    table.restore(version)
    model.rows = was
    assert not root(table).compactions
    assert not any(one.pending for one in slices(table))
    check(table, model)
    upsert(table, model, rows(10, 20, 6))
    table.compact_logs(ratio=0)
    check(table, model)


def test_going_back_to_where_one_waited_whose_instant_is_archived(table_uri: str) -> None:
    """That it is withdrawn is told by nothing then."""
    table, model = filled(table_uri, timeline_commits=1)
    plan = scheduled(table)
    upsert(table, model, [{"id": "new", "city": "la", "v": 1, "ts": 1}])
    version = table.version
    serve(table, TakeBack(plan))
    table.clean(versions=20, hours=0)
    assert plan not in root(table).withdrawn
    table.upsert(arrow(rows(10, 20, 5)))
    table.restore(version)
    assert not root(table).compactions
    assert not any(one.pending for one in slices(table))
    check(table, model)
    table.compact_logs(ratio=0)
    check(table, model)


def test_a_moment_is_told_by_the_commits_of_rows(table_uri: str) -> None:
    table, model = filled(table_uri)
    last, before = table.instant, model.listed()
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    behind = table.instant
    serve(table, CompactLogs(plan))
    assert last is not None
    assert behind is not None
    for moment, expected in ((last, before), (plan, before), (behind, model.listed())):
        assert listed(table.scan(as_of=moment).to_arrow().to_pylist()) == expected


# Killed anywhere


KILLED: dict[str, Callable[[Store, str], Any]] = {
    "schedule": lambda store, _: execute(store, LocalEngine(1), ScheduleLogs(ALL)),
    "carry out": lambda store, plan: execute(store, LocalEngine(1), CompactLogs(plan)),
    "take back": lambda store, plan: execute(store, LocalEngine(1), TakeBack(plan)),
    "roll back": lambda store, _: execute(store, LocalEngine(1), Rollback()),
    "write": lambda store, _: write(store, LocalEngine(1), arrow(rows(6, 40, 5)), "upsert"),
    "overwrite": lambda store, _: write(
        store, LocalEngine(1), arrow(rows(6, 40, 5)), "insert_overwrite"
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for turn, name in enumerate(KILLED) for kind in one_in(2, TWO, turn)],
)
def test_a_kill_at_any_call_loses_nothing(tmp_path: Path, name: str, kind: str) -> None:
    """Then others write, and all is carried out."""
    origin = str(tmp_path / "origin")
    table, model = filled(origin, kind, lease_seconds=0)
    plan = "" if name == "schedule" else scheduled(table)
    before, was = model.listed(), model.rows
    dry = str(shutil.copytree(origin, tmp_path / "dry"))
    store, backend = watched(dry, backwards=kind == "record")
    KILLED[name](store, plan)
    after = {row["id"]: row for row in metatable.open(dry).scan().to_arrow().to_pylist()}
    changing = backend.kills()
    assert len(changing) > 5
    for limit in one_in(24 if name == "overwrite" else 18, changing, len(name)):
        uri = str(shutil.copytree(origin, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit, backwards=kind == "record")
        with suppress(Refused, StoreError):
            KILLED[name](store, plan)
        table = metatable.open(uri, storage_options=FAST)
        assert scanned(table) in (before, listed(after.values()))
        model.rows = was
        if scanned(table) != before:
            model.rows = {model.identity(row): row for row in after.values()}
        upsert(table, model, rows(8, 24, 7))
        check(table, model)
        table.compact_logs(ratio=0)
        check(table, model)
        delete(table, model, rows(20, 30))
        assert not root(table).compactions
        assert not [one for one in slices(table) if one.pending]
        assert not list(Path(uri, ".hoodie/metatable/leases").glob("*"))
        check(table, model)
        table.clean(versions=1, hours=0)
        check(table, model)
        known = {file.path for one in slices(table) for file in one.files}
        there = {
            path.relative_to(uri).as_posix()
            for path in (*Path(uri).rglob("*.parquet"), *Path(uri).rglob(".*.log.*"))
        }
        assert there == known


# What was lost


def test_a_plan_that_is_lost_is_told_by_the_slices(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    Path(table_uri, staged_plan(plan)).unlink()
    Path(table_uri, f".hoodie/{plan}.compaction.requested").write_bytes(b"nonsense")
    serve(table, CompactLogs(plan))
    assert [one.instant for one in slices(table) if one.base.row_count is None] == [plan] * 2
    check(table, model)


def test_a_plan_that_is_lost_before_it_is_on_the_timeline_is_made_anew(table_uri: str) -> None:
    table, model = filled(table_uri)
    with dying(table_uri, r"create .*\.compaction\.requested") as deadly:
        serve(table, ScheduleLogs(ALL), deadly)
    [plan] = root(table).compactions
    Path(table_uri, staged_plan(plan)).unlink()
    upsert(table, model, rows(10, 20, 5))
    body = Path(table_uri, f".hoodie/{plan}.compaction.requested").read_bytes()
    told = SliceCompactionPlan.decode(body, "plan").slices
    assert [len(one.log_names) for one in told] == [2, 2]
    check(table, model)
    table.compact_logs()
    check(table, model)


def test_a_commit_that_is_lost_before_it_is_on_the_timeline_is_made_anew(table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = scheduled(table)
    with dying(table_uri, rf"create .*/{plan}\.commit") as deadly:
        serve(table, CompactLogs(plan), deadly)
    Path(table_uri, f".hoodie/metatable/commits/{plan}.json").unlink()
    upsert(table, model, rows(10, 20, 5))
    told = json.loads(Path(table_uri, f".hoodie/{plan}.commit").read_text())
    assert told["operationType"] == "COMPACT"
    assert [len(stats) for stats in told["partitionToWriteStats"].values()] == [1, 1]
    check(table, model)


def test_repair_knows_what_is_to_come(table_uri: str) -> None:
    """An entry that does not name it would bring a log that no plan has."""
    table, model = filled(table_uri)
    plan = scheduled(table)
    upsert(table, model, rows(10, 20, 5))
    assert table.verify().findings == ()
    before = slices(table)
    with Transaction.begin(Store(table_uri, FAST)) as transaction:
        update = SetSlices((before[0].planned,), transaction.serve("repair"))
        transaction.publish(Change("repair", updates=(update,)))
    [found] = table.verify().findings
    assert (found.kind, found.where) == (Fault.FILES, before[0].path)
    table.repair(dry_run=False)
    assert slices(table) == before
    check(table, model)
    serve(table, CompactLogs(plan))
    check(table, model)


@pytest.mark.parametrize("small", [0, entries.SMALL_ENTRIES])
def test_files_of_one_name_in_two_partitions_have_statistics_of_their_own(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Buckets have the same ids in each partition, and what compacts them gives the same names."""
    monkeypatch.setattr(entries, "SMALL_ENTRIES", small)
    table, _ = made(table_uri, "bucket", bucket_count=1)
    ny = [{"id": f"k{number}", "city": "ny", "v": number, "ts": 1} for number in range(9)]
    sf = [{"id": f"k{number}", "city": "sf", "v": 200 + number, "ts": 9} for number in range(7)]
    for _ in range(2):
        table.upsert(arrow([*ny, *sf]))
    table.compact_logs(ratio=0)
    assert len({Path(one.path).name for one in table.files()}) == 1
    assert listed(table.scan(where=[("v", ">", 100)]).to_arrow().to_pylist()) == listed(sf)
    assert table.scan().count() == table.describe().rows == 16
    stale = table.upsert(arrow([{**sf[0], "ts": 5}]))
    assert (stale.stale, stale.updated) == (1, 0)
