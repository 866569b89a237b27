"""A way back behind `alter`, beside who carries out what waits: both sides see other columns.

A base file to come has the name that the plan tells, and is taken for made by who finds it there.
What is acted here lets a hand stop before one call, and another one do all of its work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, CorruptError, DropColumn, NotFoundError, Table, WidenColumn
from metatable.compaction.reshaping import made_before, new_files
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.log_compaction import CompactLogs, ScheduleLogs
from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.reshaping.waiting_resize import CarryOutResize, ScheduleResize
from metatable.compaction.service import Service, execute
from metatable.compaction.ways_back.restore import Restore
from metatable.compaction.ways_back.rollback import Rollback
from metatable.data.file_groups.children import DUAL_WRITE, VIRTUAL_LOG
from metatable.engine.local import LocalEngine
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.results import Fault
from metatable.storage.store import Store
from tests.faults import dying, once, watched
from tests.index.rows import RINGS

FAST = {"durable": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("x", pa.int32())])
LOGS = "logs"
KINDS = [LOGS, DUAL_WRITE, VIRTUAL_LOG]
CHANGES = {"dropped": DropColumn("x"), "widened": WidenColumn("x", pa.int64())}
BEFORE_PUT = r"create .*/manifest/\d+\.json"


def rows(*numbers: int, x: int = 1) -> pa.Table:
    ids = [f"k{one}" for one in numbers]
    return pa.table([ids, numbers, [x * one for one in numbers]], schema=SCHEMA)


def filled(uri: str, kind: str) -> Table:
    """With logs, if they are to be merged. A change of columns writes no file anew."""
    ring = {"bucket_count": 1, "bucket_engine": RINGS[0]}
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        index="record" if kind == LOGS else "bucket",
        table_type="mor",
        options={"hudi_readable": False, "upkeep_files": 0, **({} if kind == LOGS else ring)},
        storage_options=FAST,
    )
    table.insert(rows(*range(30)))
    if kind == LOGS:
        table.upsert(rows(1, 2, 3, x=5))
    return table


def serve(store: Store | Table, service: Service[Any]) -> Any:
    store = Store(store.uri, FAST) if isinstance(store, Table) else store
    return execute(store, LocalEngine(1), service)


def scheduled(table: Table, kind: str) -> str:
    sizes = BucketSizes(split_above=1, merge_below=0)
    plan = serve(
        table, ScheduleLogs(LogSizes(ratio=0)) if kind == LOGS else ScheduleResize(sizes, kind)
    ).plan
    assert plan
    return str(plan)


def carrying_out(kind: str, plan: str) -> Service[Any]:
    return CompactLogs(plan) if kind == LOGS else CarryOutResize(plan)


def dies_before_its_put(table: Table, kind: str, plan: str) -> None:
    """What it has made stays."""
    with dying(table.uri, BEFORE_PUT) as store:
        serve(store, carrying_out(kind, plan))


def stopped(
    table: Table, before: str, act: Callable[[], Any]
) -> tuple[Store, list[str], list[Any]]:
    """(a store that acts before its first `create` of a path with this in it, paths of the Parquet
    files that it has stored, what came of the act)."""
    acting, seen = once(before, act)
    stored: list[str] = []

    def look(verb: str, path: str) -> None:
        if verb in ("create", "sink") and path.endswith(".parquet"):
            stored.append(path)
        acting(verb, path)

    return watched(table.uri, before=look)[0], stored, seen


def root(table: Table) -> Manifest:
    newest = load_newest(Store(table.uri))
    assert newest is not None
    return newest


def contents(table: Table) -> list[Any]:
    table = metatable.open(table.uri, FAST)
    return table.scan().to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]


def made_files(table: Table, plan: str) -> dict[str, int]:
    found = Path(table.uri).rglob(f"*_{plan}.parquet")
    return {path.name: path.stat().st_size for path in found}


def check(table: Table, expected: list[Any]) -> None:
    """Also after all logs are merged."""
    assert contents(table) == expected
    assert table.verify().findings == ()
    table.compact_logs(ratio=0)
    assert contents(table) == expected
    assert table.verify().findings == ()


@pytest.mark.parametrize("goes_back", ["rollback", "restore"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_begun_while_the_table_goes_back_is_taken_back(
    table_uri: str, kind: str, change: str, goes_back: str
) -> None:
    """It was not begun when the way back was planned."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)
    if kind == DUAL_WRITE:
        table.upsert(rows(2, 3, 4, x=7))  # copies go along
    version, expected = table.version, contents(table)
    table.alter(CHANGES[change])
    store, _, seen = stopped(table, "/manifest/", partial(dies_before_its_put, table, kind, plan))
    serve(store, Rollback() if goes_back == "rollback" else Restore(version))
    assert seen
    assert not root(table).compactions
    assert not made_files(table, plan)
    with pytest.raises(NotFoundError, match="carried out, or was taken back"):
        serve(table, carrying_out(kind, plan))
    check(table, expected)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", [LOGS, VIRTUAL_LOG])
def test_who_begins_behind_a_way_back_looks_again(table_uri: str, kind: str, late: bool) -> None:
    """With columns of before he would make files that nobody may take. `late`: logs lie on them, so
    that it goes on waiting."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)
    if late:
        table.upsert(rows(2, 3, 4, x=7))
    expected = contents(table)
    table.alter(DropColumn("x"))
    store, stored, seen = stopped(table, ".inflight", table.rollback)
    if late:
        serve(store, carrying_out(kind, plan))
    else:
        with pytest.raises(NotFoundError, match="carried out, or was taken back"):
            serve(store, carrying_out(kind, plan))
    assert seen
    assert len(stored) == len({*stored}) == len(made_files(table, plan))
    assert bool(stored) == late
    check(table, expected)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [LOGS, VIRTUAL_LOG])
def test_a_file_of_other_columns_is_not_taken_for_made(
    table_uri: str, kind: str, change: str
) -> None:
    """Logs lie on it, so that the plan goes on waiting when the table goes back."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)
    table.upsert(rows(2, 3, 4, x=7))
    expected = contents(table)
    table.alter(CHANGES[change])
    store, _, seen = stopped(table, "/manifest/", partial(dies_before_its_put, table, kind, plan))
    serve(store, Rollback())
    assert seen
    assert [*root(table).compactions] == [plan]
    assert made_files(table, plan)
    serve(table, carrying_out(kind, plan))
    check(table, expected)


def test_nor_is_one_that_comes_while_ours_is_made(table_uri: str) -> None:
    """Its maker was slow to store it."""
    table = filled(table_uri, LOGS)
    plan = scheduled(table, LOGS)
    table.upsert(rows(2, 3, 4, x=7))
    expected = contents(table)
    table.alter(DropColumn("x"))
    dies_before_its_put(table, LOGS, plan)
    [made] = Path(table_uri).rglob(f"*_{plan}.parquet")
    body = made.read_bytes()
    made.unlink()
    Path(table_uri, f".hoodie/{plan}.compaction.inflight").unlink()
    table.rollback()
    store, _, seen = stopped(table, ".parquet", lambda: made.write_bytes(body))
    serve(store, CompactLogs(plan))
    assert seen
    check(table, expected)


@pytest.mark.parametrize("kind", [LOGS, VIRTUAL_LOG])
def test_a_file_that_is_published_is_put_over_by_nobody(table_uri: str, kind: str) -> None:
    """Who comes late to it has columns that it lacks."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)

    def drop_and_carry_out() -> dict[str, int]:
        table.alter(DropColumn("x"))
        serve(table, carrying_out(kind, plan))
        return made_files(table, plan)

    store, _, seen = stopped(table, ".parquet", drop_and_carry_out)
    with pytest.raises(NotFoundError, match="carried out, or was taken back"):
        serve(store, carrying_out(kind, plan))
    assert made_files(table, plan) == seen[0]
    check(table, contents(table))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_from_before_a_column_was_added_is_taken_for_made(table_uri: str, kind: str) -> None:
    """None of the rows that it is made of has a value in it."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)
    dies_before_its_put(table, kind, plan)
    table.alter(AddColumn("y", pa.string()))
    made, expected = made_files(table, plan), contents(table)
    store, stored, _ = stopped(table, "nothing", lambda: None)
    serve(store, carrying_out(kind, plan))
    assert not stored
    assert made_files(table, plan) == made
    check(table, expected)


@pytest.mark.parametrize("kind", [LOGS, VIRTUAL_LOG])
def test_a_column_of_another_type_than_the_tables_is_told(
    table_uri: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was where such a file was taken for made."""
    table = filled(table_uri, kind)
    plan = scheduled(table, kind)
    table.upsert(rows(2, 3, 4, x=7))
    expected = contents(table)
    table.alter(WidenColumn("x", pa.int64()))
    store, _, _ = stopped(table, "/manifest/", partial(dies_before_its_put, table, kind, plan))
    serve(store, Rollback())
    for module in (made_before, new_files):
        monkeypatch.setattr(module, "is_fit", lambda *_: True)
    serve(table, carrying_out(kind, plan))
    with pytest.raises(CorruptError, match="has another type for a column than the table ever had"):
        contents(table)
    made = made_files(table, plan)
    for found in (table.verify(), table.repair(dry_run=False), table.verify()):
        assert {one.kind for one in found.findings} == {Fault.COLUMN_TYPE}
        assert {Path(one.where).name for one in found.findings} == {*made}
        assert all("column='x'" in one.detail and not one.remedy for one in found.findings)
    table.alter(WidenColumn("x", pa.int64()))
    check(table, expected)
