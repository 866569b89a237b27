"""Killed anywhere, a table is at the old or at the new version, and the next writer goes on.

Each operation is run once to count its calls of the store, then once for every call that changes
something with a store that refuses all calls behind it. What lies on disk then is looked at three
times: as it is, after recovery, and after a second recovery, when nothing of the dead writer may
be left. One in four of them in a short run, of cases that take the same steps different ones.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, ConflictError, DropColumn, StoreError, Table
from metatable.compaction.merging.compact import Compact
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.cluster import Cluster
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.service import Scheduled, execute, schedule
from metatable.compaction.ways_back.rollback import Rollback
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.leases import LEASES
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write.alter import alter
from metatable.write.commit_pass import delete_partitions, write
from tests.faults import Refused, dying, watched
from tests.index.rows import fitting, index_of
from tests.long import LONG, one_in
from tests.model import (
    SCHEMA,
    Model,
    Row,
    arrow,
    check,
    completed,
    data_files,
    read_by_hudi,
    scanned,
)

FAST = {"durable": "false"}
SMALL = {"file_rows": 4, "lease_seconds": 0, "hfile_codec": "none"}
"""A lease of no time: the next writer takes a silent one for dead at once."""
BUCKETED = {name: value for name, value in SMALL.items() if name != "file_rows"}

Operation = Callable[[Store], Any]


def rows(first: int, last: int, v: int, shift: int = 0) -> list[Row]:
    return [
        {"id": f"k{number:02}", "city": ("ny", "sf")[(number + shift) % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


def writing(operation: str, given: Sequence[Row]) -> Operation:
    return lambda store: write(store, LocalEngine(1), arrow(given), operation)


def serving(service: Any) -> Operation:
    return lambda store: execute(store, LocalEngine(1), service)


def altering(store: Store) -> None:
    """Columns that come and go by one name, so that every file is written anew."""
    word, number = AddColumn("x", pa.string()), AddColumn("x", pa.int64())
    alter(store, LocalEngine(1), [word, DropColumn("x"), number], {})


def scheduling(store: Store) -> None:
    schedule(store, LocalEngine(1), Compact(major=True))


def by_plan(store: Store) -> None:
    [plan] = Path(store.uri, PLANS).iterdir()
    execute(store, LocalEngine(1), Scheduled(Compact(), plan.stem))


def planning(store: Store) -> None:
    schedule(store, LocalEngine(1), MERGE)


def by_resize_plan(store: Store) -> None:
    [plan] = Path(store.uri, PLANS).iterdir()
    execute(store, LocalEngine(1), Scheduled(Resize(), plan.stem))


def dropping(store: Store) -> None:
    delete_partitions(store, LocalEngine(1), "city=ny")


def recovering(store: Store) -> None:
    with Transaction.begin(store):
        pass


def dies(operation: str, given: Sequence[Row], where: str) -> Operation:
    """A writer that dies at the first call (verb and path) that `where` matches."""

    def run(store: Store) -> None:
        with dying(store.uri, where) as deadly:
            writing(operation, given)(deadly)

    return run


@dataclass(frozen=True)
class Case:
    """What has been done before (`before`), and what is killed."""

    index: str
    scope: str
    before: tuple[Operation, ...]
    killed: Operation


FIRST = writing("insert", rows(0, 12, 1))
SECOND = writing("upsert", rows(8, 16, 2))
MOVE = writing("upsert", rows(10, 14, 3, shift=1))
NY = [one for one in rows(4, 20, 5) if one["city"] == "ny"]
OVERWRITE = writing("insert_overwrite", NY)
TABLE = writing("insert_overwrite_table", rows(6, 9, 5))
MAJOR, MINOR = serving(Compact(major=True)), serving(Compact())
ROLLBACK = serving(Rollback())
SPLIT = serving(Resize(BucketSizes(split_above=1, merge_below=0, most_partitions=1)))
MERGE = Resize(BucketSizes(merge_below=1 << 20))
EVENS, ODDS = (
    writing("insert", [one for one in rows(0, 12, 1) if one["id"][-1] in digits])
    for digits in ("04", "268")
)
CLUSTER = serving(Cluster(("id",)))

CASES = {
    "first insert": Case("record", "global", (), FIRST),
    "insert": Case("metadata_bloom", "partition", (FIRST,), writing("insert", rows(12, 20, 2))),
    "upsert": Case("metadata_bloom", "partition", (FIRST,), SECOND),
    "upsert that moves": Case("record", "global", (FIRST, SECOND), MOVE),
    "delete": Case("record", "partition", (FIRST,), writing("delete", rows(2, 9, 0))),
    "delete of all": Case("metadata_bloom", "global", (FIRST,), writing("delete", rows(0, 12, 0))),
    "overwrite": Case("record", "global", (FIRST, SECOND), OVERWRITE),
    "overwrite of buckets": Case("bucket", "partition", (FIRST,), OVERWRITE),
    "overwrite of the table": Case("metadata_bloom", "partition", (FIRST,), TABLE),
    "delete of a partition": Case("record", "partition", (FIRST, SECOND), dropping),
    "rollback of an overwrite": Case("record", "global", (FIRST, OVERWRITE), ROLLBACK),
    "major compaction": Case("record", "global", (FIRST, SECOND, MOVE), MAJOR),
    "minor compaction": Case("metadata_bloom", "partition", (FIRST, SECOND), MINOR),
    "compaction by a stored plan": Case("record", "global", (FIRST, SECOND, scheduling), by_plan),
    "columns changed": Case("record", "global", (FIRST, MOVE), altering),
    "rollback": Case("record", "global", (FIRST, SECOND, MOVE), ROLLBACK),
    "upsert that moves, keys outside": Case("hbase", "global", (FIRST, SECOND), MOVE),
    "overwrite, keys outside": Case("hbase", "global", (FIRST, SECOND), OVERWRITE),
    "rollback, keys outside": Case("hbase", "global", (FIRST, SECOND, MOVE), ROLLBACK),
    "buckets split": Case("consistent_hashing", "partition", (FIRST,), SPLIT),
    "buckets merged by a stored plan": Case(
        "extendible_hashing", "partition", (FIRST, planning), by_resize_plan
    ),
    "rollback of a resize": Case("consistent_hashing", "partition", (FIRST, SPLIT), ROLLBACK),
    "clustering": Case("record", "global", (EVENS, ODDS), CLUSTER),
    "rollback of a clustering": Case("record", "global", (EVENS, ODDS, CLUSTER), ROLLBACK),
    "rollback of a compaction": Case("metadata_bloom", "global", (FIRST, MOVE, MAJOR), ROLLBACK),
    "rollback of the first": Case("metadata_bloom", "partition", (FIRST,), ROLLBACK),
    **{
        f"recovery of a writer that died before {what}": Case(
            "record", "global", (FIRST, dies("upsert", rows(8, 16, 2), where)), recovering
        )
        for what, where in {
            "its first file": r"create .*\.parquet",
            "the put": r"create .*/manifest/\d+\.json",
            "it completed the timeline": r"create .*/\d+\.commit",
            "it gave up its lease": r"delete .*/leases/\d+",
        }.items()
    },
}


SELDOM = (
    "overwrite of buckets",
    "overwrite of the table",
    "delete of a partition",
    "rollback of an overwrite",
    "rollback of a resize",
    "rollback of a clustering",
    "delete of all",
    "rollback of the first",
    "overwrite, keys outside",
)
"""Their steps are those of others: with METATABLE_LONG=1."""


@pytest.mark.parametrize("name", [one for one in CASES if LONG or one not in SELDOM])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_version(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    origin = str(tmp_path / "origin")
    _created(origin, case)
    for operation in case.before:
        operation(Store(origin, FAST))
    old, hudis = scanned(metatable.open(origin)), read_by_hudi(origin)
    dry = _copy(origin, tmp_path / "dry")
    backwards = len(name) % 4 > 1  # calls that go together, in one order or in the other
    store, backend = watched(dry, backwards=backwards)
    case.killed(store)
    new = scanned(metatable.open(dry))
    _settled(dry, [new])
    limits = [0, *backend.kills()]
    assert len(limits) >= 2
    limits = one_in(12, limits, list(CASES).index(name))
    seen: set[tuple[str, ...]] = set()
    for limit in limits:
        uri = _copy(origin, tmp_path / "killed")
        _kill(uri, case.killed, limit, backwards)
        assert read_by_hudi(uri) in (hudis, new), "Hudi reads half a version"
        _look(uri, old, new)
        if (shape := _shape(uri)) not in seen:  # what is left of most kills is the same
            seen.add(shape)
            _go_on(uri)
    print(name, len(backend.calls), len(limits), len(seen))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Twelve rows in two cities; leases of no time."""
    table = _created(str(tmp_path / "table"), CASES["upsert that moves"])
    FIRST(Store(table.uri, FAST))
    return table


@pytest.mark.each_once
@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("recoveries", [1, 3])
@pytest.mark.parametrize(
    "asleep_before",
    [
        r"create .*/manifest/\d+\.json",
        r"create .*\.parquet",
        r"put .*\.marker\.\w+",
        r"create .*\.requested",
        r"create .*\.inflight",
    ],
)
def test_a_writer_that_wakes_after_recovery_leaves_nothing_and_begins_anew(
    tmp_path: Path, asleep_before: str, recoveries: int, retries: int
) -> None:
    table = _created(str(tmp_path / "table"), CASES["upsert that moves"], commit_retries=retries)
    FIRST(Store(table.uri, FAST))
    expected = table.scan().to_arrow()
    slept: list[str] = []

    def sleep(verb: str, path: str) -> None:
        if not slept and re.fullmatch(asleep_before, f"{verb} {path}"):
            slept.append(path)
            for _ in range(recoveries):
                recovering(Store(table.uri, FAST))

    store, _ = watched(table.uri, before=sleep)
    if not retries:
        with pytest.raises(ConflictError, match="taken for dead"):
            SECOND(store)
        assert table.scan().to_arrow().equals(expected)
    else:
        assert SECOND(store).attempts == 2
        assert len(scanned(table)) == 16
    assert slept
    _settled(table.uri, [scanned(table)])


@pytest.mark.each_once
@pytest.mark.parametrize("archives", [False, True])
@pytest.mark.parametrize("name", ["clustering", "buckets split"])
def test_a_service_that_wakes_after_recovery_leaves_no_file(
    tmp_path: Path, name: str, archives: bool
) -> None:
    """What it writes then has no marker any more; to Hudi's readers it would be committed if their
    timeline begins later."""
    case, uri, slept = CASES[name], str(tmp_path / "table"), list[str]()
    table = _created(uri, case, timeline_commits=1, upkeep_files=0)
    for operation in case.before:
        operation(Store(uri, FAST))
    expected = scanned(table)

    def sleep(verb: str, path: str) -> None:
        if not slept and re.fullmatch(r"create .*\.parquet", f"{verb} {path}"):
            slept.append(path)
            for _ in range(3):
                recovering(Store(uri, FAST))
            if archives:
                writing("delete", rows(0, 1, 1))(Store(uri, FAST))
                expected[:] = scanned(metatable.open(uri))
                metatable.open(uri, FAST).clean(versions=5, hours=0)

    store, _ = watched(uri, before=sleep)
    case.killed(store)
    assert slept
    assert not Path(uri, slept[0]).exists()
    assert scanned(metatable.open(uri)) == read_by_hudi(uri) == expected
    if not archives:
        _settled(uri, [expected])


def test_a_file_that_a_late_worker_writes_stays_hidden_and_is_swept(table: Table) -> None:
    old = scanned(table)
    written: list[str] = []

    def sleep(verb: str, path: str) -> None:
        if not written and re.fullmatch(r"create .*\.parquet", f"{verb} {path}"):
            written.append(path)
            recovering(Store(table.uri, FAST))
            backend.limit = len(backend.calls)  # this file is still written, nothing after it

    store, backend = watched(table.uri, before=sleep)
    with pytest.raises(Refused):
        SECOND(store)
    assert Path(table.uri, written[0]).exists()
    assert scanned(table) == read_by_hudi(table.uri) == old
    _settled(table.uri, [old])


def test_a_writer_whose_put_came_first_is_not_fenced(table: Table) -> None:
    def recover_late(verb: str, path: str) -> None:
        if re.fullmatch(r"create .*/\d+\.commit", f"{verb} {path}"):
            recovering(Store(table.uri, FAST))

    store, _ = watched(table.uri, before=recover_late)
    result = SECOND(store)
    assert (result.version, result.attempts) == (3, 1)
    assert [one.operation for one in table.history()] == ["upsert", "insert", "create"]
    _settled(table.uri, [scanned(table)])


@pytest.mark.parametrize("gone", [False, True], ids=["alone", "with the store"])
def test_a_put_whose_answer_was_lost_is_found_to_have_been_carried_out(
    table: Table, gone: bool
) -> None:
    """By its own writer, or, where the store is gone with the answer, by the next one."""
    store, backend = watched(table.uri)
    create = backend.create

    def lose_answer(path: str, body: bytes, **how: Any) -> bool:
        made = create(path, body, **how)
        if "/manifest/" in path:
            backend.limit = 0 if gone else None
            raise TimeoutError(path)
        return made

    backend.create = lose_answer  # type: ignore[method-assign]
    with pytest.raises(TimeoutError) if gone else nullcontext():
        assert SECOND(store).version == 3
    assert table.version == 3
    _settled(table.uri, [scanned(table)])
    assert len(scanned(table)) == 16


@pytest.mark.parametrize(
    ("name", "asleep_before"),
    [
        ("upsert", r"create .*/\d+\.commit"),
        ("overwrite", r"create .*/\d+\.replacecommit"),
    ],
)
def test_a_commit_rolled_back_before_its_writer_completes_it_stays_undone(
    table: Table, name: str, asleep_before: str
) -> None:
    old = scanned(table)
    rolled_back: list[Any] = []

    def roll_back(verb: str, path: str) -> None:
        if not rolled_back and re.fullmatch(asleep_before, f"{verb} {path}"):
            rolled_back.append(path)
            ROLLBACK(Store(table.uri, FAST))

    store, _ = watched(table.uri, before=roll_back)
    {"upsert": SECOND, "overwrite": TABLE}[name](store)
    assert rolled_back
    _settled(table.uri, [old])


def test_an_overwrite_that_was_undone_is_not_begun_again_by_its_writer(table: Table) -> None:
    """Who slept behind its put, and wakes when others have gone on."""
    undone: list[str] = []

    def undo(verb: str, path: str) -> None:
        if not undone and re.fullmatch(r"size .*/\d+\.replacecommit\.inflight", f"{verb} {path}"):
            undone.append(path)
            ROLLBACK(Store(table.uri, FAST))
            SECOND(Store(table.uri, FAST))

    store, _ = watched(table.uri, before=undo)
    TABLE(store)
    assert undone
    assert not list(Path(table.uri, ".hoodie").glob("*.replacecommit*"))
    _settled(table.uri, [scanned(table)])
    assert len(scanned(table)) == 16


def test_a_late_completion_of_a_withdrawn_commit_is_removed_by_the_next_writer(
    table: Table,
) -> None:
    old = scanned(table)
    instant = SECOND(Store(table.uri, FAST)).instant
    completion = Path(table.uri, ".hoodie", f"{instant}.commit")
    body = completion.read_bytes()
    ROLLBACK(Store(table.uri, FAST))
    completion.write_bytes(body)
    _settled(table.uri, [old])
    assert not completion.exists()


WRITER = """
import sys, time
from metatable.metadata.commits import transaction
from tests.face.test_kill import FAST, Store, rows, writing
put = transaction.publish
def wait(*given):
    print("about to put", flush=True)
    time.sleep(600)
transaction.publish = wait
writing("upsert", rows(8, 16, 2))(Store(sys.argv[1], FAST))
"""


def test_a_process_killed_in_mid_write_is_cleared_away_when_its_lease_has_run_out(
    tmp_path: Path,
) -> None:
    table = _created(str(tmp_path / "table"), CASES["upsert"], lease_seconds=60)
    store = Store(table.uri, FAST)
    FIRST(store)
    old, files = scanned(table), data_files(table.uri)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", WRITER, table.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"about to put\n"
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    left = leftovers(table.uri)
    assert len(data_files(table.uri)) > len(files)
    assert scanned(table) == read_by_hudi(table.uri) == old

    recovering(store)  # it may be alive: its lease has not run out
    assert leftovers(table.uri) == left

    age_leases(table.uri, 62)
    recovering(store)
    assert data_files(table.uri) == files
    assert any(name.endswith(".requested") for name in leftovers(table.uri)), "gone too early"
    assert scanned(table) == read_by_hudi(table.uri) == old

    recovering(store)
    assert any(name.endswith(".requested") for name in leftovers(table.uri)), "gone too early"
    age_leases(table.uri, 62)
    recovering(store)
    assert leftovers(table.uri) == []
    SECOND(store)
    model = Model(is_global=False, ordering=True)
    model.upsert(rows(0, 12, 1) + rows(8, 16, 2))
    check(table, model)


def age_leases(uri: str, seconds: float) -> None:
    """Let the store's clock say that all leases were written so long ago."""
    for path in Path(uri, LEASES).iterdir():
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


def _created(uri: str, case: Case, **options: Any) -> Table:
    named = case.index
    bucketed = {"bucket_count": 2, **BUCKETED}
    small = fitting(named, bucketed if index_of(named) == "bucket" else SMALL)
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index_of(named),
        options={**small, "key_scope": case.scope, **options},
        storage_options=FAST,
    )


def _look(uri: str, old: list[Any], new: list[Any]) -> None:
    ours = scanned(metatable.open(uri, storage_options=FAST))
    assert ours in (old, new), "half a version"
    recovering(Store(uri, FAST))
    assert scanned(metatable.open(uri)) == ours, "recovery has changed the answer"
    assert read_by_hudi(uri) == ours
    _settled(uri, [old, new])


def _go_on(uri: str) -> None:
    """The next writer finds a table like any other."""
    given = rows(4, 22, 9)
    table = metatable.open(uri, storage_options=FAST)
    model = Model(table.options.is_global, True)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in scanned(table))
    model.upsert(given)
    table.upsert(arrow(given))
    check(table, model)


def _settled(uri: str, allowed: Sequence[list[Any]]) -> None:
    """After some recoveries nothing of a dead writer is left."""
    for _ in range(2):
        recovering(Store(uri, FAST))
    table = metatable.open(uri, storage_options=FAST)
    found = scanned(table)
    assert found in allowed
    assert read_by_hudi(uri) == found
    assert table.verify().findings == ()
    assert leftovers(uri) == []


def leftovers(uri: str) -> list[str]:
    """Leases, markers, actions begun and not completed, data files of no completed commit, and
    HFiles of data commits that no version names."""
    root, done = Path(uri), completed(uri)
    hoodie = [path for path in (root / ".hoodie").rglob("*") if path.is_file()]
    names = [path.relative_to(root).as_posix() for path in hoodie]
    left = [name for name in names if "/leases/" in name or "/.temp/" in name]
    left += [name for name in names if re.fullmatch(r"\.hoodie/\d+\.\S+", name)]
    told = {path.stem for path in hoodie if path.suffix in (".rollback", ".restore")}
    left = [name for name in left if Path(name).name.split(".")[0] not in done | told]
    files = [path for path in data_files(uri) if path.stem.split("_")[2] not in done]
    return left + [path.name for path in files] + sorted(_made_by_commits(uri) - _named(uri))


def _made_by_commits(uri: str) -> set[str]:
    hfiles = Path(uri, ".hoodie/metatable").glob("*/*.hfile")
    return {path.name for path in hfiles if path.name[0].isdigit()}


def _named(uri: str) -> set[str]:
    """The HFiles that any version names."""
    store = Store(uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    return {
        Path(ref.path).name
        for version in range(1, newest.version + 1)
        for held in [Snapshot(store, load_version(store, version, 0))]
        for partition in held.manifest.pages
        for ref in held.refs(partition)
    }


def _kill(uri: str, operation: Operation, limit: int, backwards: bool = False, **how: Any) -> None:
    store, backend = watched(uri, limit=limit, backwards=backwards, **how)
    with suppress(Refused, StoreError):  # the second where a large file is put aside first
        operation(store)
    assert len(backend.calls) == limit, "the operation took another way than in the dry run"


def _copy(origin: str, to: Path) -> str:
    """A copy under a path of its own: what the process has cached of another is no help."""
    copies = len(list(to.parent.glob(f"{to.name}-*")))
    target = to.with_name(f"{to.name}-{copies}")
    if copies:
        shutil.rmtree(to.with_name(f"{to.name}-{copies - 1}"))
        target.with_name(f"{to.name}-{copies - 1}").mkdir()
    shutil.copytree(origin, target)
    return str(target)


def _shape(uri: str) -> tuple[str, ...]:
    """The files of a table, without what differs between two runs of one operation."""
    found = []
    for path in Path(uri).rglob("*"):
        if path.is_file():
            name = path.relative_to(uri).as_posix()
            name = re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "U", name)
            found.append(re.sub(r"\d{17}", "T", name))
    return tuple(sorted(found))
