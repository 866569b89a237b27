"""Whose files are they, and who is alive: what a sweep deletes and whom recovery fences."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metatable import (
    ConflictError,
    StoreError,
    Table,
)
from metatable.compaction.reshaping.log_compaction import LogPlan, ScheduleLogs
from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.service import execute
from metatable.data.hoodie.timeline import COMPACTION
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.recovery import sweep
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests import leases
from metatable.metadata.manifests.leases import LEASES, SERVICES, Lease, lease_path, store_time
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.sealed import seal
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache, clock
from metatable.storage.store import Store
from tests.face.protocol.making import (
    BEFORE_PUT,
    FAST,
    CompactOnce,
    age_leases,
    dies,
    every_file_is_there,
    made,
    newest,
    recover,
    rows,
)
from tests.faults import Refused, once, watched
from tests.model import (
    arrow,
    data_files,
    scanned,
)

pytestmark = pytest.mark.in_turn("table")


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
        execute(Store(one.uri, FAST), LocalEngine(1), CompactOnce(major=True))
    store = Store(one.uri, FAST)
    named = {
        ref.path for name in newest(one).pages for ref in Snapshot(store, newest(one)).refs(name)
    }
    listed = store.list(".hoodie/metatable", recursive=True)
    made = {item.path for item in listed if re.match(r"compact-.*\.hfile", item.name)}
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

    def create(self, path: str, body: bytes, *, soon: bool) -> bool:
        return True

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
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


def test_a_sign_of_life_and_a_look_at_the_clock_wait_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    fsync = os.fsync

    def counted(handle: int) -> None:
        asked.append(handle)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counted)
    store = Store(tmp_path)
    lease = Lease(store, lease_path("20260101000000000"), 0, "n")
    assert lease.claim()
    assert asked
    asked.clear()
    lease.renew()
    store_time(store)
    assert not asked
    assert len(store.list(LEASES)) == 1


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


def test_a_writer_that_is_interrupted_as_it_takes_its_lease_renews_it_no_more(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a notebook: the process lives on, and the commit does not."""
    begun: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        START(thread)
        if thread.name == "metatable-lease":
            begun.append(thread)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            one.upsert(arrow(rows(3, 5, 2)))
    [renewing] = begun
    renewing.join(10)
    assert not renewing.is_alive()
    assert one.upsert(arrow(rows(3, 5, 3))).updated == 2


START = threading.Thread.start


@pytest.mark.parametrize("verb", ["upsert", "clean"])
def test_a_writer_without_a_thread_is_refused_and_leaves_no_lease(
    one: Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """As where a container's processes are limited."""

    def start(thread: threading.Thread) -> None:
        if thread.name == "metatable-lease":
            raise RuntimeError("can't start new thread")
        START(thread)

    one.upsert(arrow(rows(3, 5, 1)))
    calls: dict[str, Callable[[], object]] = {
        "upsert": partial(one.upsert, arrow(rows(3, 5, 2))),
        "clean": partial(one.clean, versions=1, hours=0),
    }
    call = calls[verb]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(StoreError, match="limit of threads"):
            call()
    assert not [*Path(one.uri, LEASES).glob("*"), *Path(one.uri, SERVICES).glob("*")]
    call()


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300])
def test_a_table_whose_lease_has_no_end_can_be_written(table_uri: str, seconds: float) -> None:
    table = made(table_uri)
    path = Path(table.uri, version_path(1))
    body = json.loads(path.read_bytes())["body"]
    body["options"]["lease_seconds"] = seconds
    path.write_bytes(seal(body))
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


def test_what_a_writer_left_untidied_after_its_put_is_tidied_by_the_next(one: Table) -> None:
    dies(one, rows(3, 5, 7), r"delete \.hoodie/\.temp/.*")
    assert {row[2] for row in scanned(one)} == {1, 7}, "it was published"
    assert list(Path(one.uri, LEASES).iterdir())
    recover(one)
    assert not list(Path(one.uri, LEASES).glob("*"))
    assert not list(Path(one.uri, ".hoodie/.temp").rglob("*.marker.*"))
    assert {row[2] for row in scanned(one)} == {1, 7}


def test_what_is_scheduled_while_another_lease_is_fenced_is_not_withdrawn(table_uri: str) -> None:
    table = made(table_uri, "record-avro", upkeep_files=0)
    for v in (1, 2):
        table.upsert(arrow(rows(0, 6, v)))
    expected = scanned(table)
    dies(table, rows(20, 24, 9), BEFORE_PUT)
    store, service = Store(table_uri, FAST), ScheduleLogs(LogSizes(count=1))
    with suppress(Refused), Transaction.begin(store) as scheduler:
        plan = service.plan(scheduler.snapshot)
        assert isinstance(plan, LogPlan)
        owner = scheduler.reserve(COMPACTION)
        change = service.work(LocalEngine(1), scheduler.snapshot, plan, owner).change
        age_leases(table, 90)
        wakes, _ = once("/manifest/", lambda: publish(store, scheduler.base, change, owner))
        late, _ = watched(table_uri, before=wakes)
        with Transaction.begin(late):  # both leases have run out, and the first fence comes late
            pass
        raise Refused("the scheduler dies behind its put")
    age_leases(table, 90)
    recover(table)
    every_file_is_there(table)
    assert not Path(table_uri, lease_path(owner.instant)).exists()
    table.compact_logs(plan=owner.instant)
    assert scanned(table) == expected
    assert table.verify().findings == ()


def test_markers_tell_a_file_that_opens_a_group_from_one_that_follows_a_slice(one: Table) -> None:
    held = {file.file_id for file in one.files()}
    dies(one, rows(3, 30, 7), BEFORE_PUT)
    markers = list(Path(one.uri, ".hoodie/.temp").rglob("*.marker.*"))
    kinds = {marker.name.partition("_")[0]: marker.suffix for marker in markers}
    assert {kinds[name] for name in kinds.keys() & held} == {".MERGE"}
    assert {kinds[name] for name in kinds.keys() - held} == {".CREATE"}
