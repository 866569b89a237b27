"""Which instants are given out, and who else commits to the timeline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metatable import (
    ConflictError,
    Table,
    UpgradeError,
)
from metatable.data.hoodie.timeline import Timeline, next_instant
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.known_commits import CommitSum
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import Withdraw
from metatable.metadata.manifests.leases import LEASES
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.sealed import seal
from metatable.storage import cache, clock
from metatable.storage.errors import CorruptError, StoreError
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.face.protocol.making import (
    BEFORE_PUT,
    FAST,
    age_leases,
    dies,
    newest,
    recover,
    rows,
)
from tests.faults import dying, watched
from tests.model import (
    arrow,
    completed,
    read_by_hudi,
    scanned,
)

pytestmark = pytest.mark.in_turn("table")


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
    path.write_bytes(seal(body))
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
    fenced = publish(store, base, Change("fence", updates=(Withdraw((gone,)),)), Owner.new("fence"))
    with pytest.raises(ConflictError, match="taken for dead"):
        publish(store, fenced, Change("upsert", instant=gone), Owner.new("commit").of(gone))
    assert one.version == fenced.version


def test_of_two_recoveries_side_by_side_none_sweeps_for_the_last_time(one: Table) -> None:
    dies(one, rows(3, 5, 2), BEFORE_PUT)
    age_leases(one, 3600)
    (lease,) = Path(one.uri, LEASES).iterdir()
    with dying(one.uri, r"list .*/\.temp/.*") as fencing, Transaction.begin(fencing):
        pass
    assert newest(one).operation == "fence"
    swept: list[str] = []

    def another_first(verb: str, path: str) -> None:
        if not swept and verb == "read_whole" and path == f"{LEASES}/{lease.name}":
            swept.append(path)
            recover(one)  # for the first time, and gives the lease a new term

    store, _ = watched(one.uri, before=another_first)
    with Transaction.begin(store):
        pass
    assert swept
    assert lease.exists(), "a sleeper's file would stay for ever"
    assert Timeline(Store(one.uri, FAST)).load()[-1].time == lease.name
    age_leases(one, 3600)
    recover(one)
    assert not lease.exists()


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

    def repeated(path: str, body: bytes, **how: Any) -> bool:
        made = create(path, body, **how)
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


def check_swept(one: Table, late: Path) -> None:
    """A file that comes when its commit is given up goes, and the commit never counts."""
    late.write_bytes(b"late")
    for _ in range(2):
        age_leases(one, 90)
        recover(one)
    assert not late.exists()
    assert late.stem.rpartition("_")[2] in newest(one).withdrawn
    assert list(Path(one.uri, LEASES).glob("*")) == []


def test_what_one_worker_writes_after_another_has_failed_is_swept(one: Table) -> None:
    planned: list[Path] = []

    def damaged(verb: str, path: str) -> None:
        if verb == "create" and path.endswith(".parquet"):
            planned.append(Path(one.uri, path))
            error = CorruptError("a file that is merged is damaged", path=path)
            error.others_go_on = True
            raise error

    store, _ = watched(one.uri, before=damaged)
    with pytest.raises(CorruptError):
        write(store, LocalEngine(1), arrow(rows(3, 5, 2)), "upsert")
    check_swept(one, planned[0])


class Speculative(LocalEngine):
    speculates = True


def test_what_a_task_writes_after_its_twin_has_ended_is_swept(
    one: Table, between: Callable[[Callable[[], Any]], None]
) -> None:
    """The commit that it writes for has lost a race meanwhile, and was given up."""
    planned: list[Path] = []

    def noted(verb: str, path: str) -> None:
        if verb == "create" and path.endswith(".parquet"):
            planned.append(Path(one.uri, path))

    store, _ = watched(one.uri, before=noted)
    between(lambda: one.upsert(arrow(rows(3, 5, 9))))
    result = write(store, Speculative(1), arrow(rows(3, 5, 2)), "upsert")
    assert result.attempts == 2
    check_swept(one, planned[0])
    assert read_by_hudi(one.uri) == scanned(one)


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
    assert str(finding).startswith(f"foreign-commit: .hoodie/{foreign}.commit")
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


def test_a_commit_lists_the_active_timeline_once_and_reads_nothing_of_it(one: Table) -> None:
    for v in range(5):
        one.upsert(arrow(rows(0, 3, v)))
    store, backend = watched(one.uri)
    write(store, LocalEngine(1), arrow(rows(3, 5, 9)), "upsert")
    asked = [
        (verb, path) for verb, path in backend.calls if re.fullmatch(r"\.hoodie(/[^/]*)?", path)
    ]
    listed = [path for verb, path in asked if verb == "list"]
    read = [path for verb, path in asked if verb in ("read", "read_whole")]
    assert listed == [".hoodie"]
    assert read == [".hoodie/hoodie.properties"]


def test_a_commit_between_the_listing_and_the_base_of_a_begin_costs_one_more_listing(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for v in range(5):
        one.upsert(arrow(rows(0, 3, v)))
    cache.clear()
    waiting = [lambda: one.upsert(arrow(rows(20, 22, 1, "la")))]
    load = Timeline.load

    def commit_behind(timeline: Timeline) -> Any:
        told = load(timeline)
        if waiting:
            waiting.pop()()
            cache.clear()
        return told

    monkeypatch.setattr(Timeline, "load", commit_behind)
    store, backend = watched(one.uri, backwards=True)
    with Transaction.begin(store) as begun:
        assert begun.base.version == 8
    assert [path for verb, path in backend.calls if verb == "list"].count(".hoodie") == 2
    asked = [path for _, path in backend.calls if "/manifest/0" in path]
    assert len(asked) == 2, "versions were walked"


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
    path.write_bytes(seal(body))
    assert one.upsert(arrow(rows(0, 3, 6))).updated == 3
    assert newest(one).commits.startswith("3:")
    one.rollback()
    recover(one)
    assert newest(one).commits == CommitSum.of(completed(one.uri)).encode()


def test_a_commit_of_ours_that_is_gone_from_the_timeline_is_found(one: Table) -> None:
    instant = one.upsert(arrow(rows(0, 3, 5))).instant
    one.upsert(arrow(rows(0, 3, 6)))
    Path(one.uri, f".hoodie/{instant}.commit").unlink()
    assert [found.code for found in one.verify().findings] == ["commit-missing"]
