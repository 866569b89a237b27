"""Three processes write one table at random and are killed at random: nothing is lost.

On a disk and on a real S3 server. What the processes have told their logs, and the published
history, say exactly what the table must hold in every version: operations are known by their
instants, so one that was killed counts as published, whole, if its instant is there.

METATABLE_SEED replays the random choices (not the moments), METATABLE_LONG=1 takes minutes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import metatable
from metatable.data.hoodie.timeline import Timeline
from metatable.data.hoodie.undo_metadata import UNDOING
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.pages import all_refs
from metatable.metadata.manifests.versions import load_version
from metatable.results import CommitInfo
from metatable.storage.store import Store
from tests.face.random_writer import CITIES, KEYS, Job, write_on
from tests.face.test_kill import leftovers
from tests.long import LONG
from tests.model import SCHEMA, Counts, Identity, Model, Row, check, listed, scanned
from tests.services.servers import Bucket

ROUNDS, SECONDS = (12, 20.0) if LONG else (1, 5.0)
PROCESSES = 3
MOST_LINES = 24
"""An operation tells two or three."""
PATIENCE_SECONDS = 120
ENOUGH = 4
"""Of killed processes and of acknowledged operations, however busy the machine is."""
LEASE_SECONDS = 1.0
SILENCE_SECONDS = LEASE_SECONDS + 2.2
"""After which a lease has surely run out: S3 tells times in whole seconds, which counts twice."""
SMALL: dict[str, Any] = {
    "file_rows": 10,
    "lease_seconds": LEASE_SECONDS,
    "hfile_block_bytes": 256,
    "hfile_codec": "none",
    "buckets": {"files": 2, "bloom_filter": 2, "column_stats": 2, "record_index": 2},
}

DECIDED = ("inserted", "updated", "moved", "deleted")
"""Counts that the history has, of all rows that were given."""

_SPAWN = multiprocessing.get_context("forkserver")
_SPAWN.set_forkserver_preload(["tests.face.random_writer"])


@dataclass(frozen=True, slots=True)
class Place:
    """A table's address, and the folder in which its files can be looked at."""

    uri: str
    storage_options: Mapping[str, str]
    folder: Path

    @property
    def store(self) -> Store:
        return Store(self.uri, dict(self.storage_options))

    def open(self) -> metatable.Table:
        return metatable.open(self.uri, storage_options=dict(self.storage_options))


@dataclass(slots=True)
class Operation:
    """What a process set out to do, and what it heard of it."""

    verb: str
    rows: list[Row]
    instants: list[str] = field(default_factory=list)
    heard: dict[str, Any] | None = None
    error: str = ""


def seeds() -> list[int]:
    named = os.environ.get("METATABLE_SEED")
    first = SystemRandom().randrange(1 << 32) if named is None else int(named)
    return [first + number for number in range(ROUNDS)]


def test_processes_killed_on_a_disk_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    for seed in seeds():
        place = Place(str(tmp_path / f"{seed}"), {"durable": "false"}, tmp_path / f"{seed}")
        _round(place, tmp_path / f"{seed}-logs", seed)


def test_processes_killed_on_an_s3_server_lose_nothing_and_leave_nothing(
    bucket: Bucket, tmp_path: Path
) -> None:
    for seed in seeds():
        uri, folder = f"{bucket.uri}/{seed}", bucket.folder / f"{seed}"
        _round(Place(uri, bucket.storage_options, folder), tmp_path / f"{seed}-logs", seed)


def _round(place: Place, logs: Path, seed: int) -> None:
    random = Random(seed)
    index = random.choice(("record", "metadata_bloom"))
    scope = random.choice(("global", "partition"))
    ordering = random.choice((None, "ts"))
    print(f"METATABLE_SEED={seed} {index} {scope} {ordering} {place.uri} {logs}")
    metatable.create(
        place.uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering=ordering,
        index=index,
        options={**SMALL, "key_scope": scope},
        storage_options=dict(place.storage_options),
    )
    logs.mkdir()
    killed = _run(place, logs, seed, random)
    operations = list(_operations(logs))
    _settle(place)
    model = Model(scope == "global", ordering is not None)
    history = place.open().history()
    states = _replay(history, operations, model)
    _check_heard(history, operations)
    _check_reads(operations, states)
    _check_versions(place, history, states)
    _check_newest(place, model, random)
    _check_nothing_is_left(place, history, operations)
    errors = [one.error for one in operations if one.error]
    assert not errors, f"{len(errors)} errors that nobody has to reckon with, such as: {errors[0]}"
    acknowledged = sum(one.heard is not None for one in operations)
    print(f"{killed} killed, {len(history)} versions, {acknowledged} of {len(operations)} heard of")
    assert acknowledged >= ENOUGH, "too little was done to show anything"


def _run(place: Place, logs: Path, seed: int, random: Random) -> int:
    """Let processes write and kill them, one after the other, in the end all; how many."""
    crew: list[Any] = []
    _warm_up()
    until = time.monotonic() + SECONDS
    killed = 0
    try:
        while time.monotonic() < until or killed < ENOUGH:
            while len(crew) < PROCESSES:
                job = Job(place.uri, place.storage_options, logs, killed + len(crew), seed)
                crew.append(_SPAWN.Process(target=write_on, args=(job,), daemon=True))
                crew[-1].start()
            _wait(logs, random)
            _kill(crew.pop(random.randrange(PROCESSES)))
            killed += 1
    finally:
        for one in crew:
            _kill(one)
    return killed + len(crew)


def _warm_up() -> None:
    """What writers import is loaded once, by the process that they are forked from."""
    first = _SPAWN.Process(target=int)
    first.start()
    first.join()


def _wait(logs: Path, random: Random) -> None:
    """Until all together have told some more, and a moment: a busy machine kills less often."""
    told, patience = (
        _lines(logs) + random.randrange(MOST_LINES),
        time.monotonic() + PATIENCE_SECONDS,
    )
    while _lines(logs) < told:
        assert time.monotonic() < patience, "the writers stand still"
        time.sleep(0.02)
    time.sleep(random.uniform(0, 0.4))


def _lines(logs: Path) -> int:
    return sum(log.read_bytes().count(b"\n") for log in logs.glob("*.jsonl"))


def _kill(process: Any) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "a writer ended by itself"


def _operations(logs: Path) -> Iterator[Operation]:
    """Of all processes, those of one in their order."""
    for log in sorted(logs.glob("*.jsonl")):
        current: Operation | None = None
        for line in log.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):  # killed while it was being written
                continue
            told = json.loads(line)
            if told["kind"] == "begin":
                current = Operation(told["verb"], told["rows"])
                yield current
                continue
            assert current is not None
            if told["kind"] == "instant":
                current.instants.append(told["instant"])
            elif told["kind"] == "done":
                current.heard = told
            elif told["kind"] == "failed":
                current.error = told["error"]


def _settle(place: Place) -> None:
    """Twice a lease's time of silence, each with the recovery that comes after it."""
    for _ in range(2):
        time.sleep(SILENCE_SECONDS)
        with Transaction.begin(place.store):
            pass


def _replay(
    history: Sequence[CommitInfo], operations: Sequence[Operation], model: Model
) -> dict[int, dict[Identity, Row]]:
    """The rows of each version; `model` ends as the newest."""
    by_instant = {instant: one for one in operations for instant in one.instants}
    states: dict[int, dict[Identity, Row]] = {}
    for info in reversed(history):
        if info.instant:
            operation = by_instant[info.instant]
            told, model.rows = _applied(operation, info, model, states)
            if operation.heard is not None and operation.heard["instant"] == info.instant:
                assert operation.heard["counts"] == asdict(told), info
        elif info.operation == "rollback":
            model.rows = states[info.summary["undone_version"] - 1]
        states[info.version] = model.rows
    return states


def _applied(
    operation: Operation,
    info: CommitInfo,
    model: Model,
    states: Mapping[int, dict[Identity, Row]],
) -> tuple[Counts, dict[Identity, Row]]:
    """(its counts, the rows after it). What it decided not to write was decided on the version that
    it began on: keys to delete that were not there, rows older than the stored ones. That is the
    version before it, or the last one by which the commit's own counts are right."""
    deletes, before = operation.verb == "delete", model.rows
    for version in sorted(states, reverse=True):
        then = Model(model.is_global, model.ordering, dict(states[version]))
        told = (then.delete if deletes else then.upsert)(operation.rows)
        given = {then.identity(row): row for row in operation.rows}
        gone = given.keys() & states[version].keys() if deletes else set()
        if all(getattr(told, name) == info.summary[name] for name in DECIDED):
            kept = {name: row for name, row in before.items() if name not in gone}
            put = {name: row for name, row in given.items() if then.rows.get(name) is row}
            return told, kept if deletes else kept | put
    raise AssertionError(f"no version explains the counts of {info}")


def _check_heard(history: Sequence[CommitInfo], operations: Sequence[Operation]) -> None:
    """What was acknowledged is in the history, and no operation is there twice."""
    versions = {info.version: info for info in history}
    assert sorted(versions) == list(range(1, len(history) + 1))
    published = {info.instant for info in history if info.instant}
    assert len(published) == sum(bool(info.instant) for info in history)
    for one in operations:
        assert len(published & set(one.instants)) <= 1, f"published twice: {one}"
        if one.heard is None:
            continue
        info = versions.get(one.heard["version"])
        assert info is not None, f"acknowledged, and not in the history: {one}"
        if one.verb == "rollback":
            assert info.operation == "rollback", one
        elif one.heard.get("instant"):
            assert info.instant == one.heard["instant"], one
        elif "counts" in one.heard:
            changed = ("inserted", "updated", "moved", "deleted")
            assert not any(one.heard["counts"][name] for name in changed), one


def _check_reads(
    operations: Sequence[Operation], states: Mapping[int, Mapping[Identity, Row]]
) -> None:
    """Whoever read beside the writers saw one version, whole."""
    for one in operations:
        if one.verb == "read" and one.heard is not None:
            expected = listed(states[one.heard["version"]].values())
            assert [tuple(row) for row in one.heard["found"]] == expected, one.heard["version"]


def _check_versions(
    place: Place, history: Sequence[CommitInfo], states: Mapping[int, Mapping[Identity, Row]]
) -> None:
    """What any version names is there; all but those of undone commits can still be read."""
    table, store = place.open(), place.store
    there = {one.path for one in store.list(HOME, recursive=True)}
    undone: set[int] = set()
    for info in history:
        if info.operation == "rollback":
            undone |= set(range(info.summary["undone_version"], info.version))
    for version, rows in states.items():
        pages = load_version(store, version, 0).pages.values()
        named = {ref.path for one in pages for ref in all_refs(store, one)}
        assert named <= there, f"version {version} names what is not there: {named - there}"
        if version not in undone:
            assert scanned(table, version) == listed(rows.values()), f"version {version}"


def _check_newest(place: Place, model: Model, random: Random) -> None:
    """Through the store, and by everything that reads the folder."""
    assert place.open().verify().findings == ()
    probe = [
        {"id": f"k{number:03}", "city": random.choice(CITIES), "v": None, "ts": None}
        for number in range(KEYS + 5)
    ]
    check(metatable.open(str(place.folder)), model, probe)


def _check_nothing_is_left(
    place: Place, history: Sequence[CommitInfo], operations: Sequence[Operation]
) -> None:
    """A commit that lost to a rollback may have had its instant for a moment: before the rollback
    had it, or after that was over. It is the rollback's then."""
    assert leftovers(str(place.folder)) == []
    undoing = {one.time for one in Timeline(place.store).load() if one.action in UNDOING}
    published = {info.instant for info in history} | undoing
    dead = {instant for one in operations for instant in one.instants} - published
    files = [path for path in (place.folder / HOME).rglob("*") if path.is_file()]
    left = [path for path in files if path.name[:17] in dead]
    assert left == [], "metadata of instants that were never published"
