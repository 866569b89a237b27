"""How often a commit and a tag wait for an object store, and what must wait for what.

`benchmarks/rounds.py` has the store that counts: calls that go together are of one round. On a
store of that kind requests that follow each other are what takes time, 30 ms each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from benchmarks.rounds import (
    COMMIT_SECONDS,
    LATENCY_SECONDS,
    SCHEMA,
    TAG_SECONDS,
    Rounds,
    commit,
    made,
    reached,
    rows_of,
    tag,
)
from metatable import RenameColumn, Table, UsageError, adopting, col
from metatable.compaction.cleaning.garbage import suspects
from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.signs import Signs
from metatable.compaction.merging.upkeep import looks_after
from metatable.data.hoodie.properties import PROPERTIES_PATH
from metatable.data.hoodie.timeline import inflight_path
from metatable.engine import local
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.column_stats import RECORD_KEY
from metatable.query.description import version_as_of
from metatable.results import WriteResult
from metatable.storage import cache
from metatable.storage.hfile.reading import opened
from metatable.storage.store import Store
from metatable.write import commit_pass

COMMIT_ROUNDS = {"metadata_bloom": 12, "bloom": 12, "record": 11}
TAG_ROUNDS = {"metadata_bloom": 5, "bloom": 5, "record": 4}
ROWS = 3000


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of rounds is for one; and a process that knows nothing."""
    monkeypatch.setattr(local, "_processors", lambda: 1)
    yield
    cache.clear()


def committed(index: str) -> Rounds:
    return measured(*commit(made(index, ROWS), Rounds))


def overwritten(index: str) -> Rounds:
    uri = made(index, ROWS)
    cache.clear()
    table, backend = reached(uri, Rounds)
    return measured(lambda: table.insert_overwrite(rows_of(range(99))), backend)


def measured(run: Callable[[], object], backend: Rounds) -> Rounds:
    """The backend when this was done by it; its rounds are counted from here."""
    before = backend.now
    backend.log.clear()
    run()
    backend.log[:] = [(at - before, verb, path) for at, verb, path in backend.log]
    backend.now -= before
    return backend


@pytest.mark.parametrize("index", COMMIT_ROUNDS)
def test_a_small_commit_is_few_rounds(index: str) -> None:
    backend = committed(index)
    assert backend.now == COMMIT_ROUNDS[index]
    assert backend.now * LATENCY_SECONDS <= COMMIT_SECONDS
    assert len(backend.log) <= 70, "requests did not become more for it"


def test_a_process_that_goes_on_committing_waits_no_longer() -> None:
    table, backend = reached(made("record", ROWS), Rounds)
    done: list[WriteResult] = []
    for number in range(2):
        rows = rows_of(range(100 * number, 100 * number + 100))
        measured(lambda rows=rows: done.append(table.upsert(rows)), backend)
    assert backend.now == COMMIT_ROUNDS["record"]
    assert not looks_after(done[-1].version)  # whether upkeep is due would be one more


def test_an_overwrite_asks_for_little_more_than_a_commit() -> None:
    assert overwritten("record").now == 16


def test_rows_that_were_long_in_coming_are_written_on_a_base_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_pass, "YOUNG_MS", 0)
    backend = committed("record")
    assert backend.now == COMMIT_ROUNDS["record"] + 1
    assert len([path for _, _, path in backend.log if path == PROPERTIES_PATH]) == 2


def _absent(table: Table) -> None:
    table.delete(pa.table({"id": ["nobody's"], "day": ["d0"]}))


def _there(table: Table) -> None:
    with pytest.raises(UsageError, match="insert of keys that the table holds"):
        table.insert(rows_of(range(9)))


@pytest.mark.parametrize("asked", [_absent, _there])
def test_an_instant_that_was_not_needed_leaves_nothing(asked: Callable[[Table], None]) -> None:
    uri = made("record", ROWS)
    table, backend = reached(uri, Rounds)
    before = [one.path for one in Store(uri).walk()]
    backend.log.clear()
    asked(table)
    assert [verb for _, verb, path in backend.log if re.search(r"leases/\d", path)] == [
        "create",
        "get",
        "delete",
    ]
    assert [one.path for one in Store(uri).walk()] == before


@pytest.mark.parametrize("index", TAG_ROUNDS)
def test_a_cold_tag_is_few_rounds(index: str) -> None:
    run, backend = tag(made(index, ROWS), Rounds)
    run()
    assert backend.now == TAG_ROUNDS[index]
    assert backend.now * LATENCY_SECONDS <= TAG_SECONDS
    assert len(backend.log) <= 40, "requests did not become more for it"


@pytest.mark.usefixtures("pages_as_files")
def test_pages_that_are_files_are_a_round_more() -> None:
    run, backend = tag(made("record", ROWS), Rounds)
    run()
    assert backend.now == TAG_ROUNDS["record"] + 1


@pytest.fixture
def spread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a table of many partitions, whose statistics are not read whole."""
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(opened, "_tail_bytes", lambda *_: 4096)
    uri = f"memory://{request.node.name}"
    options = {"hfile_block_bytes": 256, "hfile_codec": "none"}
    table = metatable.create(uri, SCHEMA, key="id", partition_by="day", options=options)
    table.insert(rows_of(range(200), 40))
    return uri


RANGES = re.compile(r"/(files|column_stats)/.*\.hfile")
DAYS = [f"d{number}" for number in range(0, 40, 4)]


def test_statistics_of_some_partitions_are_fetched_together(spread: str) -> None:
    """Of two of them and one column it takes as many rounds as of ten and three."""
    asked, found = [], []
    few = (col("id") > "k") & col("day").is_in(DAYS[:2])
    many = (col("id") > "k") & (col("value") > 170) & (col(RECORD_KEY) > "k")
    for where in (few, many & col("day").is_in(DAYS)):
        cache.clear()
        table, backend = reached(spread, Rounds)
        scan = table.scan(where=where)
        asked.append(measured(scan.files, backend).now)
        found.append(len(scan.files()))
    assert asked == [7, 7]
    assert found == [2, 7]


def test_a_tag_of_some_partitions_fetches_their_ranges_together(spread: str) -> None:
    rows = rows_of(range(200), 40).drop_columns(["value"])
    asked = []
    for days in (DAYS[:2], DAYS):
        keys = rows.filter(pc.is_in(rows["day"], pa.array(days)))
        cache.clear()
        table, backend = reached(spread, Rounds)
        measured(partial(table.tag_locations, keys), backend)
        asked.append(len({at for at, _, path in backend.log if RANGES.search(path)}))
    assert asked == [3, 3]


FILTERS = re.compile(r"/bloom_filter/.*\.hfile")


def test_filters_of_many_partitions_are_fetched_together(spread: str) -> None:
    rows = rows_of(range(200), 40).drop_columns(["value"])
    asked = []
    for days in (DAYS[:1], rows["day"]):
        keys = rows.filter(pc.is_in(rows["day"], pa.array(days)))
        cache.clear()
        table, backend = reached(spread, Rounds)
        measured(partial(table.tag_locations, keys), backend)
        asked.append(len({at for at, _, path in backend.log if FILTERS.search(path)}))
    assert asked == [3, 3]


def test_an_old_moment_is_found_in_few_rounds() -> None:
    """The further back it is, the more roots are read together."""
    table, backend = reached(made("record", ROWS), Rounds)
    done = [table.upsert(rows_of([number])) for number in range(20)]
    store = Store(table.uri)
    store.backend = backend
    newest = newest_of(store)
    for back, rounds in ((1, 2), (3, 3), (6, 4), (13, 5)):  # the last one is for what was found
        found = measured(partial(_holds, store, newest, done[-1 - back]), backend)
        assert found.now == rounds


def test_what_looks_at_every_version_reads_many_of_them_together() -> None:
    """Of each version a root and pages: were they read one after the other, four times as many
    would wait four times as often."""
    uri, waits = made("record", ROWS), list[list[int]]()
    table = metatable.open(uri)
    for commits in (10, 30):
        for number in range(commits):
            table.upsert(rows_of([number]))
        cache.clear()
        far, backend = reached(uri, Rounds)
        asked = (far.verify, far.due, partial(far.describe, listing=True), far.history)
        waits.append([measured(ask, backend).now for ask in asked])
    versions = len(table.history())
    for few, many in zip(*waits, strict=True):
        assert many - few <= 0.7 * versions, (waits, versions)


@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_keys_of_many_small_files_are_read_together(index: str) -> None:
    uri = f"memory://keys-of-{index}"
    table = metatable.create(uri, SCHEMA, key="id", partition_by="day", index=index)
    table.insert(rows_of(range(64), 32))
    waits = list[int]()
    for days in (4, 32):
        keys = rows_of(range(days), 32)
        cache.clear()
        far, backend = reached(uri, Rounds)
        waits.append(measured(partial(far.read_keys, keys), backend).now)
        assert far.read_keys(keys).num_rows == days
    assert waits[1] - waits[0] <= 8, waits


def test_files_that_a_change_of_columns_writes_anew_are_read_together() -> None:
    waits = list[int]()
    for days in (8, 32):
        uri = f"memory://altered-{days}"
        table = metatable.create(uri, SCHEMA, key="id", partition_by="day")
        table.insert(rows_of(range(days), days))
        cache.clear()
        far, backend = reached(uri, Rounds)
        waits.append(measured(partial(far.alter, RenameColumn("value", "worth")), backend).now)
        assert far.scan("worth").to_arrow().num_rows == days
    assert waits[1] - waits[0] <= 8, waits


@pytest.mark.parametrize("gone", [Table.insert_overwrite, Table.delete_partition])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_keys_of_files_that_are_overwritten_are_read_together(
    table_type: str, gone: Callable[[Table, object], object]
) -> None:
    waits = list[int]()
    for days in (4, 32):
        uri = f"memory://{gone.__name__}-{table_type}-{days}"
        table = metatable.create(
            uri, SCHEMA, key="id", partition_by="day", index="record", table_type=table_type
        )
        table.insert(rows_of(range(2 * days), days))
        table.upsert(rows_of(range(days), days))
        cache.clear()
        far, backend = reached(uri, Rounds)
        asked = rows_of(range(days), days)
        given = asked if gone is Table.insert_overwrite else [f"day=d{n}" for n in range(days)]
        waits.append(measured(partial(gone, far, given), backend).now)
        assert far.scan("id").to_arrow().num_rows == (days if given is asked else 0)
    assert waits[1] - waits[0] <= 8, waits


def adoption(
    uri: str, monkeypatch: pytest.MonkeyPatch, **given: object
) -> tuple[Callable[[], object], Rounds]:
    """`adopt` by a process that knows nothing, and the backend that it goes through."""
    cache.clear()
    store = Store(uri)
    store.backend = backend = Rounds(store.backend)
    monkeypatch.setattr(adopting, "Store", lambda *_: store)
    return partial(metatable.adopt, uri, index="record", **given), backend


def made_another_writers(uri: str) -> None:
    store = Store(uri)
    ours = store.list(".hoodie/metatable", recursive=True)
    store.delete_all([one.path for one in ours])


@pytest.mark.parametrize("foreign", [False, True])
def test_files_that_are_adopted_are_read_together(
    foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[int]()
    for days in (4, 32):
        uri = f"memory://adopted-{foreign}-{days}"
        table = metatable.create(uri, SCHEMA, key="id", partition_by="day", index="bloom")
        table.insert(rows_of(range(days), days))
        if foreign:
            made_another_writers(uri)
        waits.append(measured(*adoption(uri, monkeypatch)).now)
        assert metatable.open(uri).read_keys(rows_of(range(days), days)).num_rows == days
    assert waits[1] - waits[0] <= 8, waits


def test_files_with_keys_that_are_there_twice_are_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(run: Callable[[], object]) -> None:
        with pytest.raises(UsageError, match="more than once"):
            run()

    waits = list[int]()
    for days in (4, 32):
        uri = f"memory://twice-{days}"
        table = metatable.create(uri, SCHEMA, key="id", partition_by="day", index="bloom")
        same = rows_of(range(days), days).drop_columns("id")
        table.insert(same.add_column(0, "id", pa.array(["k"] * days)))
        made_another_writers(uri)
        run, backend = adoption(uri, monkeypatch, options={"key_scope": "global"})
        waits.append(measured(partial(refused, run), backend).now)
    assert waits[1] - waits[0] <= 10, waits


def test_what_clean_goes_by_on_the_timeline_is_read_together() -> None:
    uri, waits = made("record", ROWS), list[int]()
    table = metatable.open(uri)
    for overwrites in (4, 12):
        for number in range(overwrites):
            table.insert_overwrite(rows_of([number]), by="table")
        store = Store(uri)
        store.backend = backend = Rounds(store.backend)
        waits.append(measured(partial(Signs.of, store, 60.0, 0.0), backend).now)
    assert waits[1] == waits[0]


def test_logs_that_nobody_names_are_read_together() -> None:
    waits = list[int]()
    for commits in (3, 15):
        uri = f"memory://logs-{commits}"
        table = metatable.create(uri, SCHEMA, key="id", table_type="mor")
        for _ in range(commits + 1):
            table.upsert(rows_of(range(9)))
        table.compact_logs(count=1)
        store = Store(uri)
        store.backend = backend = Rounds(store.backend)
        newest = newest_of(store)
        look = partial(suspects, store, Kept(store, newest, newest.version), 0.0)
        waits.append(measured(look, backend).now)
        assert sum(".log." in one.path for one in look()) == commits
    assert waits[1] == waits[0]


def _holds(store: Store, newest: Manifest, done: WriteResult) -> None:
    assert done.instant
    assert version_as_of(store, newest, done.instant) == done.version


STEPS = {
    "properties": r"get \.hoodie/hoodie.properties",
    "lease": r"create \S+/leases/\d+",
    "look whether it is used": r"size \S+/\d+\.(ACTION|OTHER)",
    "requested": r"create \S+/\d+\.ACTION\.requested",
    "inflight": r"create INFLIGHT",
    "marker": r"put \.hoodie/\.temp/\S+\.marker\.(MERGE|CREATE)",
    "data file": r"create day=\S+\.parquet",
    "HFile": r"put \S+\.hfile",
    "page": r"put \S+/pages/\S+",
    "staged commit": r"put \S+/commits/\d+\.json",
    "root": r"create \S+/manifest/0\d+\.json",
    "look": r"get \S+/commits/\d+\.json",
    "commit": r"create \S+/\d+\.ACTION",
    "hint": r"put \S+/manifest/latest",
    "marker goes": r"delete \.hoodie/\.temp/\S+",
    "lease goes": r"delete \S+/leases/\d+",
}

BEFORE = {
    "lease": ["properties"],
    "look whether it is used": ["lease"],
    "requested": ["lease", "look whether it is used"],
    "inflight": ["requested"],
    "marker": ["lease"],
    "data file": ["inflight", "marker"],
    "root": ["data file", "HFile", "page", "staged commit"],
    "look": ["root"],
    "commit": ["root", "look"],
    "hint": ["root", "look"],
    "marker goes": ["root", "look"],
    "lease goes": ["commit", "marker goes"],
}
"""Of each step: those that have been answered before it is asked. What a killed writer leaves is
found by its lease, hidden from Hudi by `inflight`, and undone by its markers; what a root names is
there; and nobody is told of a root before it is certain that it counts."""


@pytest.mark.each_once
@pytest.mark.parametrize(
    ("done", "action", "other"),
    [(committed, "commit", "replacecommit"), (overwritten, "replacecommit", "commit")],
)
@pytest.mark.parametrize("index", COMMIT_ROUNDS)
@pytest.mark.usefixtures("pages_as_files")
def test_what_must_wait_for_another_waits(
    index: str, done: Callable[[str], Rounds], action: str, other: str
) -> None:
    log = done(index).log
    inflight = inflight_path(r"\d+", action)
    told = {
        step: pattern.replace("INFLIGHT", inflight)
        .replace("ACTION", action)
        .replace("OTHER", other)
        for step, pattern in STEPS.items()
    }
    rounds = {
        step: [at for at, verb, path in log if re.fullmatch(pattern, f"{verb} {path}")]
        for step, pattern in told.items()
    }
    assert [step for step, when in rounds.items() if not when] == []
    wrong = [
        (earlier, step)
        for step, before in BEFORE.items()
        for earlier in before
        if max(rounds[earlier]) >= min(rounds[step])
    ]
    assert wrong == []
