"""The promises of the commit protocol, each met at the edge where it was once broken."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import (
    ConflictError,
    CorruptError,
    StaleError,
    Table,
    UpgradeError,
    UsageError,
)
from metatable.compaction.compact import Compact
from metatable.compaction.rollback import Rollback
from metatable.compaction.service import execute
from metatable.data.commit_metadata import CommitMetadata
from metatable.data.timeline import Timeline, next_instant
from metatable.engine.local import LocalEngine
from metatable.metadata import leases, manifest, transaction
from metatable.metadata.commit import Change, publish, staged_path
from metatable.metadata.known_commits import CommitSum
from metatable.metadata.leases import LEASES, Lease, StoredLease, lease_path
from metatable.metadata.manifest import Manifest, load_newest, version_path
from metatable.metadata.owner import Owner
from metatable.metadata.recovery import sweep
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.transaction import Transaction
from metatable.storage import cache, clock
from metatable.storage.errors import StoreError
from metatable.storage.store import Store
from metatable.write import write
from tests.faults import Refused, watched
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


def rows(first: int, last: int, v: int, city: str | None = None) -> list[Row]:
    return [
        {"id": f"k{number:02}", "city": city or ("ny", "sf")[number % 2], "v": v, "ts": None}
        for number in range(first, last)
    ]


def made(uri: str, index: str = "record", **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"file_rows": 5, "key_scope": "global", "hfile_codec": "none", **options},
        storage_options=FAST,
    )


@pytest.fixture(params=["record", "metadata_bloom"])
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    """Twelve rows in two cities."""
    table = made(table_uri, request.param)
    table.insert(arrow(rows(0, 12, 1)))
    return table


@pytest.fixture
def one(table_uri: str) -> Table:
    table = made(table_uri)
    table.insert(arrow(rows(0, 12, 1)))
    return table


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """`between(act)`: the next one to publish first waits until `act` is done."""
    put = transaction.publish
    waiting: list[Callable[[], Any]] = []

    def act_first(*given: Any) -> Any:
        if waiting:
            waiting.pop()()
        return put(*given)

    monkeypatch.setattr(transaction, "publish", act_first)
    return waiting.append


def newest(table: Table) -> Manifest:
    found = load_newest(Store(table.uri, FAST))
    assert found is not None
    return found


def recover(table: Table) -> None:
    with Transaction.begin(Store(table.uri, FAST)):
        pass


def age_leases(table: Table, seconds: float) -> None:
    for path in Path(table.uri, LEASES).iterdir():
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


def dies(table: Table, given: list[Row], where: str) -> None:
    """An upsert that dies at the first call (verb and path) that `where` matches."""

    def die(verb: str, path: str) -> None:
        if re.fullmatch(where, f"{verb} {path}"):
            backend.limit = 0
            raise Refused(path)

    store, backend = watched(table.uri, before=die)
    with pytest.raises(Refused):
        write(store, LocalEngine(1), arrow(given), "upsert")


BEFORE_PUT = r"create .*/manifest/\d+\.json"


def every_file_is_there(table: Table) -> None:
    store = Store(table.uri, FAST)
    for version in range(1, table.version + 1):
        held = Snapshot(store, manifest.load_version(store, version))
        for name in held.manifest.pages:
            for ref in held.refs(name):
                assert store.size(ref.path) == ref.size_bytes, (version, ref.path)


# whose files are they


@pytest.mark.parametrize("end", ["conflict", "death"])
def test_a_writer_that_gives_up_keeps_index_files_made_in_its_millisecond(
    table: Table, between: Any, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: moment)
    if end == "death":
        dies(table, rows(0, 3, 7), BEFORE_PUT)
        table.compact(major=True)
        age_leases(table, 90)
        recover(table)
        age_leases(table, 90)
        recover(table)
    else:
        between(lambda: (table.upsert(arrow(rows(0, 2, 5))), table.compact(major=True)))
        assert table.upsert(arrow(rows(1, 4, 6))).attempts == 2
    every_file_is_there(table)
    cache.clear()
    assert table.verify().findings == ()


def test_a_sweep_deletes_index_files_of_its_own_nonce_alone(one: Table) -> None:
    store = Store(one.uri, FAST)
    [instant] = [info.instant for info in one.history() if info.instant]
    before = {item.path for item in store.list(".hoodie/metatable/record_index")}
    sweep(store, Owner("commit", "0" * 32, instant), one.options.buckets)
    assert {item.path for item in store.list(".hoodie/metatable/record_index")} == before


def test_index_files_of_a_dead_writer_are_swept(table: Table) -> None:
    def hfiles() -> set[str]:
        listed = Store(table.uri, FAST).list(".hoodie/metatable", recursive=True)
        return {item.path for item in listed if item.path.endswith(".hfile")}

    before = hfiles()
    dies(table, rows(8, 16, 2), BEFORE_PUT)
    assert hfiles() > before
    age_leases(table, 90)
    recover(table)
    assert hfiles() == before


def test_index_files_of_a_compaction_that_lost_its_race_are_deleted(
    one: Table, between: Any
) -> None:
    one.upsert(arrow(rows(3, 6, 2)))
    between(lambda: one.compact(major=True))
    with pytest.raises(ConflictError):
        execute(Store(one.uri, FAST), LocalEngine(1), Compact(major=True, retries=0))
    store = Store(one.uri, FAST)
    named = {
        ref.path for name in newest(one).pages for ref in Snapshot(store, newest(one)).refs(name)
    }
    listed = store.list(".hoodie/metatable", recursive=True)
    made = {item.path for item in listed if item.name.startswith("compact-")}
    assert made
    assert made <= named


@pytest.mark.parametrize(
    "marked", [".hoodie/hoodie.properties", "live", "../outside", "city=ny/no data file.parquet"]
)
def test_a_marker_below_a_dead_instant_deletes_no_file_of_another_one(
    one: Table, marked: str
) -> None:
    live = data_files(one.uri)
    target = live[0].relative_to(one.uri).as_posix() if marked == "live" else marked
    before = scanned(one)
    dies(one, rows(8, 16, 2), BEFORE_PUT)
    [lease] = Path(one.uri, LEASES).iterdir()
    marker = Path(one.uri, ".hoodie/.temp", lease.name, f"{target}.marker.CREATE")
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    for _ in range(2):
        age_leases(one, 90)
        recover(one)
    assert Path(one.uri, ".hoodie/hoodie.properties").exists()
    assert data_files(one.uri) == live
    assert scanned(one) == before


# who is alive


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_by_an_hour_fences_no_living_writer(
    table: Table, between: Any, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    def elsewhere() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(hours=hours))
            table.upsert(arrow(rows(20, 22, 2, "la")))

    between(elsewhere)
    assert table.upsert(arrow(rows(8, 16, 3))).attempts == 1
    assert "fence" not in {info.operation for info in table.history()}


def test_a_process_that_lives_for_a_moment_fences_by_the_clock_of_the_store(table: Table) -> None:
    dies(table, rows(8, 16, 2), BEFORE_PUT)
    recover(table)
    assert newest(table).operation == "insert"
    age_leases(table, 30)
    recover(table)
    assert newest(table).operation == "insert", "thirty seconds are half a lease"
    age_leases(table, 32)
    recover(table)
    assert newest(table).operation == "fence"


class Failing:
    """A store whose puts of leases fail, in a way that nobody expected."""

    def __init__(self) -> None:
        self.puts = 0

    def create(self, path: str, body: bytes) -> bool:
        return True

    def put(self, path: str, body: bytes) -> None:
        self.puts += 1
        if self.puts < 3:
            raise [ValueError("strange"), Exception("stranger")][self.puts % 2]

    def delete(self, paths: list[str]) -> None:
        return


def test_a_lease_is_renewed_whatever_a_renewal_before_it_ended_with() -> None:
    store = Failing()
    lease = Lease(store, "20260101000000000", 0.03, "n")  # type: ignore[arg-type]
    assert lease.claim()
    until = time.monotonic() + 20
    while store.puts < 5 and time.monotonic() < until:
        time.sleep(0.005)
    lease.release()
    assert store.puts >= 5
    puts = store.puts
    time.sleep(0.05)
    assert store.puts == puts, "a lease that was released is renewed no more"


def test_a_living_writer_renews_its_lease_three_times_a_lease(
    one: Table, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def renewing(renew: Callable[[], None], seconds: float) -> Callable[[], None]:
        asked.append(seconds)
        renew()
        return lambda: asked.append(0)

    monkeypatch.setattr(leases, "renewing", renewing)
    one.upsert(arrow(rows(3, 5, 2)))
    assert asked == [one.options.lease_seconds / 3, 0]


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300])
def test_a_table_whose_lease_has_no_end_can_be_written(table_uri: str, seconds: float) -> None:
    table = made(table_uri)
    path = Path(table.uri, version_path(1))
    body = json.loads(path.read_bytes())["body"]
    body["options"]["lease_seconds"] = seconds
    path.write_bytes(manifest._seal(body))
    table.insert(arrow(rows(0, 4, 1)))
    assert len(scanned(table)) == 4


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"nonce": 5}', b"\xff"])
def test_a_damaged_lease_is_fenced_like_any_other(one: Table, raw: bytes) -> None:
    dies(one, rows(8, 16, 2), BEFORE_PUT)
    [lease] = Path(one.uri, LEASES).iterdir()
    lease.write_bytes(raw)
    files = data_files(one.uri)
    for _ in range(2):
        age_leases(one, 90)
        recover(one)
    assert list(Path(one.uri, LEASES).glob("*")) == []
    assert len(data_files(one.uri)) < len(files)
    assert one.upsert(arrow(rows(3, 5, 2))).updated == 2


# which instants are given out


def test_an_instant_that_was_withdrawn_is_never_given_out_again(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = datetime.now(UTC) + timedelta(hours=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: fast)
        dies(one, rows(8, 16, 2), BEFORE_PUT)
        age_leases(one, 90)
        recover(one)
        age_leases(one, 90)
        recover(one)
        again = one.upsert(arrow(rows(8, 16, 3)))
    assert again.instant is not None
    assert again.instant not in newest(one).withdrawn
    assert newest(one).latest_instant == again.instant
    for _ in range(2):
        recover(one)
    assert read_by_hudi(one.uri) == scanned(one)
    assert len(scanned(one)) == 16


def test_a_withdrawn_instant_that_roots_of_old_passed_over_is_refused_at_the_start(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = next_instant(datetime.now(UTC) + timedelta(hours=1))
    path = Path(one.uri, version_path(one.version))
    body = json.loads(path.read_bytes())["body"]
    body["withdrawn"] = [later]  # and `latest_instant` is below it, as it was in format 1
    path.write_bytes(manifest._seal(body))
    moment = datetime.strptime(later[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    moment += timedelta(milliseconds=int(later[14:]))
    monkeypatch.setattr(clock, "now", lambda: moment)
    result = one.upsert(arrow(rows(3, 5, 2)))
    assert result.instant is not None
    assert result.instant > later


def test_a_withdrawn_instant_is_refused_at_the_first_put(one: Table) -> None:
    store = Store(one.uri, FAST)
    base = newest(one)
    gone = base.latest_instant
    fenced = publish(store, base, Change("fence", withdraws=(gone,)))
    with pytest.raises(ConflictError, match="taken for dead"):
        publish(store, fenced, Change("upsert", instant=gone))
    assert one.version == fenced.version


def test_a_used_instant_is_not_taken_by_a_clock_that_stands_still(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime.now(UTC) - timedelta(hours=3)
    monkeypatch.setattr(clock, "now", lambda: moment)
    taken = [one.upsert(arrow(rows(3, 5, v))).instant for v in range(4)]
    assert sorted(set(taken)) == taken


def test_an_instant_that_is_on_the_timeline_already_is_passed_over(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(clock, "now", lambda: moment)
    pending = next_instant(moment)
    Path(one.uri, f".hoodie/{pending}.commit.requested").touch()
    result = one.upsert(arrow(rows(3, 5, 2)))
    assert result.instant is not None
    assert result.instant > pending


def test_a_requested_file_that_is_said_to_exist_is_taken_for_our_own(one: Table) -> None:
    store, backend = watched(one.uri)
    create = backend.create

    def repeated(path: str, body: bytes) -> bool:
        made = create(path, body)
        return made and not path.endswith(".requested")

    backend.create = repeated  # type: ignore[method-assign]
    result = write(store, LocalEngine(1), arrow(rows(3, 5, 2)), "upsert")
    left = [path.name for path in Path(one.uri, ".hoodie").glob("*.requested")]
    assert len(left) == 2
    assert f"{result.instant}.commit.requested" in left
    assert list(Path(one.uri, LEASES).glob("*")) == []


@pytest.mark.parametrize("kind", [StoreError, TimeoutError, KeyboardInterrupt])
def test_after_a_call_without_an_answer_the_instant_is_left_to_recovery(
    one: Table, kind: type[BaseException]
) -> None:
    def unanswered(verb: str, path: str) -> None:
        if verb == "create" and path.endswith(".parquet"):
            raise kind(path)

    store, _ = watched(one.uri, before=unanswered)
    with pytest.raises(kind):
        write(store, LocalEngine(1), arrow(rows(3, 5, 2)), "upsert")
    [lease] = Path(one.uri, LEASES).iterdir()
    for _ in range(2):
        age_leases(one, 90)
        recover(one)
    assert lease.name in newest(one).withdrawn
    assert list(Path(one.uri, LEASES).glob("*")) == []


# rollbacks


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"no json"])
@pytest.mark.parametrize("twin", [True, False])
def test_a_rollback_without_its_staged_commit_undoes_all_the_same(
    table: Table, damage: bytes | None, twin: bool
) -> None:
    before, files = scanned(table), data_files(table.uri)
    instant = table.upsert(arrow(rows(8, 16, 2))).instant
    assert instant is not None
    for path in (staged_path(instant), *(() if twin else (f".hoodie/{instant}.commit",))):
        if damage is None:
            Path(table.uri, path).unlink()
        else:
            Path(table.uri, path).write_bytes(damage)
    assert table.rollback().version == 4
    assert data_files(table.uri) == files
    assert not list(Path(table.uri, ".hoodie").glob(f"{instant}*"))
    table.upsert(arrow(rows(8, 16, 3)))
    table.rollback()
    assert scanned(table) == read_by_hudi(table.uri) == before


@pytest.mark.parametrize("lost", ["hfile", "page", "root"])
def test_a_rollback_to_a_version_that_cannot_be_read_is_refused_before_its_put(
    one: Table, lost: str
) -> None:
    one.upsert(arrow(rows(3, 5, 2)))
    one.compact(major=True)
    old = newest(one)
    one.upsert(arrow(rows(8, 16, 2)))
    one.compact(major=True)
    held, version = scanned(one), one.version
    page = old.pages["record_index"][0]
    path = {
        "hfile": manifest.read_page(Store(one.uri, FAST), page)[0].path,
        "page": page.path,
        "root": old.path,
    }[lost]
    Path(one.uri, path).unlink()
    cache.clear()
    with pytest.raises((CorruptError, StaleError)) as told:
        one.rollback()
    assert told.value.facts["path"] == path
    assert one.version == version
    assert scanned(one) == held
    assert one.upsert(arrow(rows(0, 2, 7))).updated == 2


def test_a_rollback_that_is_repeated_by_its_instant_undoes_nothing_else(table: Table) -> None:
    first = table.upsert(arrow(rows(8, 14, 2)))
    expected = scanned(table)
    second = table.upsert(arrow(rows(8, 16, 3)))
    assert second.instant is not None
    assert first.instant is not None
    undone = table.rollback(second.instant)
    again = table.rollback(second.instant)
    assert again.version == undone.version == table.version
    assert again.reason == f"commit {second.instant} is undone already"
    assert scanned(table) == expected
    table.upsert(arrow(rows(8, 9, 4)))
    with pytest.raises(UsageError, match="only the last commit can be rolled back"):
        table.rollback(first.instant)


def test_a_rollback_tells_which_commit_it_undoes(one: Table) -> None:
    instant = one.upsert(arrow(rows(8, 14, 2))).instant
    assert one.rollback().reason == f"commit {instant} of version 3 (upsert) undone"


def test_a_rollback_of_a_commit_that_lists_files_of_others_deletes_its_own_alone(
    one: Table,
) -> None:
    live = [path.relative_to(one.uri).as_posix() for path in data_files(one.uri)]
    before = scanned(one)
    instant = one.upsert(arrow(rows(8, 14, 2))).instant
    assert instant is not None
    staged = Path(one.uri, staged_path(instant))
    body = json.loads(staged.read_bytes())
    for stats in body["partitionToWriteStats"].values():
        for stat, path in zip(stats, [*live, ".hoodie/hoodie.properties"], strict=False):
            stat["path"] = path
    raw = json.dumps(body).encode()
    staged.write_bytes(raw)
    Path(one.uri, f".hoodie/{instant}.commit").write_bytes(raw)
    root = Path(one.uri, version_path(3))
    told = json.loads(root.read_bytes())["body"]
    told["steps"][0]["checksum"] = manifest.checksum(raw)
    root.write_bytes(manifest._seal(told))
    one.rollback()
    assert [path for path in live if not Path(one.uri, path).exists()] == []
    assert scanned(one) == before


def test_a_reader_and_a_writer_of_a_version_that_is_rolled_back_are_told_so(
    table: Table, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go while they read them: that is no damage."""
    import metatable.write_groups as groups  # noqa: PLC0415  (patched where it is used)

    table.upsert(arrow(rows(0, 6, 2)))
    merge = groups._merge
    waiting = [table.rollback]
    lock = threading.Lock()

    def roll_back_first(*given: Any) -> Any:
        with lock:
            if waiting:
                waiting.pop()()
        return merge(*given)

    monkeypatch.setattr(groups, "_merge", roll_back_first)
    result = table.upsert(arrow(rows(2, 8, 3)))
    assert result.attempts == 2
    model = Model(is_global=True, ordering=False)
    model.upsert(rows(0, 12, 1) + rows(2, 8, 3))
    check(table, model)


def test_readers_of_a_version_that_is_undone_meanwhile_are_told_to_try_again(
    table: Table,
) -> None:
    table.upsert(arrow(rows(0, 6, 2)))
    old = metatable.open(table.uri, FAST)
    held = old._snapshot(None)
    table.rollback()
    old._snapshot = lambda version: held  # type: ignore[method-assign]
    keys = arrow(rows(0, 6, 0))
    acts: list[Callable[[], Any]] = [old.verify, lambda: old.read_keys(keys)]
    acts += [lambda: old.scan().to_arrow()]
    if table.options.index == "metadata_bloom":
        acts += [lambda: old.tag_locations(keys), lambda: old.explain(keys)]
    for act in acts:
        with pytest.raises(StaleError):
            act()


def test_a_sleeping_writer_inserts_no_key_that_a_rollback_and_a_commit_brought_back(
    table: Table, between: Any
) -> None:
    table.delete(arrow(rows(0, 4, 0)))

    def meanwhile() -> None:
        table.rollback()
        table.upsert(arrow(rows(20, 22, 5, "la")))

    between(meanwhile)
    late = table.upsert(arrow(rows(0, 2, 9, "la")))
    assert (late.attempts, late.inserted, late.moved) == (2, 0, 2)
    model = Model(is_global=True, ordering=False)
    model.upsert(rows(0, 12, 1) + rows(20, 22, 5, "la") + rows(0, 2, 9, "la"))
    check(table, model)


# other engines


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_commit_of_another_engine_is_refused_whatever_its_time(table: Table, hours: int) -> None:
    for v in range(3):
        table.upsert(arrow(rows(0, 3, v)))
    foreign = next_instant(datetime.now(UTC) + timedelta(hours=hours))
    Path(table.uri, f".hoodie/{foreign}.commit").write_text("{}")
    for act in (lambda: table.upsert(arrow(rows(3, 5, 2))), table.compact, table.rollback):
        with pytest.raises(UpgradeError, match="another writer has committed to this table"):
            act()
    [finding] = table.verify().findings
    assert finding.startswith(f"foreign-commit: .hoodie/{foreign}.commit")
    Path(table.uri, f".hoodie/{foreign}.commit").unlink()
    assert table.upsert(arrow(rows(3, 5, 2))).updated == 2


def test_a_begin_reads_nothing_more_to_know_our_commits_from_others(one: Table) -> None:
    for v in range(5):
        one.upsert(arrow(rows(0, 3, v)))
    store, backend = watched(one.uri)
    with Transaction.begin(store):
        pass
    listed = [path for verb, path in backend.calls if verb == "list"]
    assert listed == [LEASES, ".hoodie"]
    assert [
        path for verb, path in backend.calls if verb == "read_whole" and "/commits/" in path
    ] == []


def test_a_commit_beside_a_begin_is_explained_by_the_versions_since(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for v in range(5):
        one.upsert(arrow(rows(0, 3, v)))
    cache.clear()
    load = Timeline.load
    waiting = [lambda: one.upsert(arrow(rows(20, 22, 1, "la")))]

    def commit_first(timeline: Timeline) -> Any:
        if waiting:
            waiting.pop()()
        return load(timeline)

    monkeypatch.setattr(Timeline, "load", commit_first)
    store, backend = watched(one.uri)
    with Transaction.begin(store) as begun:
        assert begun.base.version == 7
    roots = [path for verb, path in backend.calls if verb == "read_whole" and "/0000" in path]
    assert len({*roots} - {version_path(8), version_path(9)}) == 1, "older versions are not read"


def test_roots_without_a_sum_tell_our_commits_from_others_by_a_walk(one: Table) -> None:
    one.upsert(arrow(rows(0, 3, 5)))
    path = Path(one.uri, version_path(one.version))
    body = json.loads(path.read_bytes())["body"]
    assert body["commits"].startswith("2:")
    body["commits"] = ""
    path.write_bytes(manifest._seal(body))
    assert one.upsert(arrow(rows(0, 3, 6))).updated == 3
    assert newest(one).commits.startswith("3:")
    one.rollback()
    recover(one)
    assert newest(one).commits == CommitSum.of(completed(one.uri)).encode()


def test_a_commit_of_ours_that_is_gone_from_the_timeline_is_found(one: Table) -> None:
    instant = one.upsert(arrow(rows(0, 3, 5))).instant
    one.upsert(arrow(rows(0, 3, 6)))
    Path(one.uri, f".hoodie/{instant}.commit").unlink()
    assert [found.partition(":")[0] for found in one.verify().findings] == ["commit-missing"]


# roots, pages, hints


def test_a_root_that_is_a_copy_of_another_is_damage_and_nobody_spins(one: Table) -> None:
    root = Path(one.uri, version_path(one.version))
    shutil.copy(root, root.with_name(f"{one.version + 1:020d}.json"))
    for act in (lambda: one.upsert(arrow(rows(3, 5, 2))), one.compact, lambda: one.scan().count()):
        with pytest.raises(CorruptError, match="manifest is another version's") as told:
            act()
        assert told.value.facts["expected"] == 3
        assert told.value.facts["found"] == 2


def test_a_put_that_is_always_forestalled_ends(one: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    store, backend = watched(one.uri)
    base = newest(one)
    create = backend.create

    def forestalled(path: str, body: bytes) -> bool:
        if "/manifest/" in path:
            publish(Store(one.uri, FAST), newest(one), Change("compact"))
        return create(path, body)

    monkeypatch.setattr("metatable.metadata.commit.MOST_PUTS", 5)
    backend.create = forestalled  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="others were always first"):
        publish(store, base, Change("compact"))
    assert one.version == base.version + 5


@pytest.mark.parametrize("hint", [None, b"", b"garbage", b"1", b"99", b"9" * 20, b"-1", b"\xff"])
def test_the_newest_version_is_found_whatever_the_hint_says(one: Table, hint: bytes | None) -> None:
    for v in range(3):
        one.upsert(arrow(rows(0, 3, v)))
    path = Path(one.uri, ".hoodie/metatable/manifest/latest")
    if hint is None:
        path.unlink()
    else:
        path.write_bytes(hint)
    assert one.version == 5
    assert one.upsert(arrow(rows(0, 3, 7))).version == 6
    assert path.read_bytes() == b"6"


def test_a_page_in_the_place_of_another_is_damage(one: Table) -> None:
    first, second = newest(one).pages["files"][0], newest(one).pages["record_index"][0]
    shutil.copy(Path(one.uri, second.path), Path(one.uri, first.path))
    cache.clear()
    with pytest.raises(CorruptError, match="page is not the one that the manifest names"):
        scanned(one)


@pytest.mark.parametrize("damage", [None, b"{}"])
def test_a_staged_commit_that_was_lost_or_damaged_is_made_again_from_the_index(
    table: Table, damage: bytes | None
) -> None:
    dies(table, rows(8, 16, 2), r"create .*/\d+\.commit")
    [step] = newest(table).steps
    before = CommitMetadata.decode(Path(table.uri, step.staged).read_bytes(), step.staged)
    if damage is None:
        Path(table.uri, step.staged).unlink()
    else:
        Path(table.uri, step.staged).write_bytes(damage)
    recover(table)
    path = f".hoodie/{step.instant}.commit"
    after = CommitMetadata.decode(Path(table.uri, path).read_bytes(), path)
    unknown = {"inserted": 0, "updated": 0, "deleted": 0}
    assert sorted(after.stats, key=lambda one: one.path) == [
        replace(one, **unknown) for one in sorted(before.stats, key=lambda one: one.path)
    ]
    assert (after.extra, after.operation) == (before.extra, before.operation)
    assert read_by_hudi(table.uri) == scanned(table)
    assert len(scanned(table)) == 16
    assert table.upsert(arrow(rows(0, 2, 7))).updated == 2


def test_a_table_that_was_made_anew_is_not_read_by_an_old_plan(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 4, 1)))
    plan = pickle.dumps(Snapshot(Store(table_uri, FAST), newest(table)))
    shutil.rmtree(table_uri)
    again = made(table_uri)
    again.insert(arrow(rows(0, 4, 2)))
    cache.clear()
    with pytest.raises(StaleError, match="table was replaced by another one"):
        pickle.loads(plan)


# creation


def test_of_two_creators_of_one_table_one_is_told_and_the_table_is_one(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: list[Table] = []
    create = Store.create

    def second_first(store: Store, path: str, body: bytes) -> bool:
        if not inner and path.endswith("hoodie.properties"):
            inner.append(Table.__new__(Table))
            inner[0] = made(table_uri)
        return create(store, path, body)

    monkeypatch.setattr(Store, "create", second_first)
    with pytest.raises(ConflictError, match="somebody else has just created this table"):
        made(table_uri)
    inner[0].insert(arrow(rows(0, 4, 1)))
    table = metatable.open(table_uri, FAST)
    assert table.options.key_salts == inner[0].options.key_salts
    assert table.verify().findings == ()


def test_a_creation_that_died_is_finished_by_the_next_one_for_the_same_table(
    table_uri: str,
) -> None:
    table = made(table_uri)
    salts = table.options.key_salts
    Path(table_uri, ".hoodie/hoodie.properties").unlink()
    assert made(table_uri).options.key_salts == salts
    table.insert(arrow(rows(0, 4, 1)))
    assert read_by_hudi(table_uri) == scanned(table)


def test_a_creator_of_another_table_is_told_of_the_one_that_was_begun(table_uri: str) -> None:
    made(table_uri)
    Path(table_uri, ".hoodie/hoodie.properties").unlink()
    with pytest.raises(ConflictError, match="began to create, another table here"):
        made(table_uri, index="metadata_bloom")


def test_no_table_is_created_over_one_that_lost_its_properties(one: Table) -> None:
    Path(one.uri, ".hoodie/hoodie.properties").unlink()
    with pytest.raises(CorruptError, match="a table without its properties"):
        made(one.uri)
    assert newest(one).version == 2


# a rollback that nobody asked for twice


def test_a_service_takes_no_instant(one: Table) -> None:
    before = set(os.listdir(Path(one.uri, ".hoodie")))
    execute(Store(one.uri, FAST), LocalEngine(1), Rollback())
    assert set(os.listdir(Path(one.uri, ".hoodie"))) < before
    assert newest(one).instant == ""


def test_a_lease_tells_whose_it_is(one: Table) -> None:
    dies(one, rows(8, 16, 2), BEFORE_PUT)
    [path] = Path(one.uri, LEASES).iterdir()
    lease = StoredLease.decode(path.read_bytes(), lease_path(path.name))
    hfiles = Path(one.uri, ".hoodie/metatable/files").glob(f"{path.name}-{lease.nonce}-*.hfile")
    assert len(list(hfiles)) == 1
