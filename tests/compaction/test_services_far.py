"""Services, `verify` and `changes` on tables in an object store: slices are read together, each
being some waits, and what comes of it is what comes of it near by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from benchmarks import rounds
from benchmarks.rounds import Distant, Rounds, Sleeping
from metatable import CorruptError, Table
from metatable.data.reading import slice_reader
from metatable.engine import local
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache, portions
from tests.far import DAYS, data_rounds, far, in_memory, made, rows
from tests.long import LONG


@dataclass(frozen=True)
class Verb:
    """Something that reads all slices, of a table that is made so."""

    call: Callable[[Table], Any]
    table_type: str = "cow"
    made: dict[str, Any] = field(default_factory=dict)
    publishes: bool = True

    def table(self, uri: str) -> str:
        made(uri, self.table_type, **self.made)
        if self is VERBS["changes"]:
            table = metatable.open(uri)
            table.upsert(rows(0, 100, 7))
            table.delete(rows(90, 95, 0))
        return uri


def changed(table: Table) -> pa.Table:
    return table.changes(2).to_arrow().sort_by([("id", "ascending"), ("_change_type", "ascending")])


BUCKETS = {
    "index": "bucket",
    "options": {"bucket_engine": "consistent_hashing", "bucket_count": 1},
}
SPREAD = {"options": {"file_rows": 5}}
VERBS = {
    "compact_logs": Verb(lambda table: table.compact_logs(count=1), "mor"),
    "cluster": Verb(lambda table: table.cluster(by="v"), made=SPREAD),
    "cluster, with logs": Verb(lambda table: table.cluster(by="v"), "mor", SPREAD),
    "resize_buckets": Verb(
        lambda table: table.resize_buckets(split_above=1, merge_below=0), made=BUCKETS
    ),
    "verify": Verb(lambda table: table.verify(), publishes=False),
    "verify, with logs": Verb(lambda table: table.verify(), "mor", publishes=False),
    "changes": Verb(changed, publishes=False),
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    cache.clear()


PLAYED = [name for name in VERBS if LONG or f"{name}, with logs" not in VERBS]


@pytest.fixture(params=PLAYED)
def verb(request: pytest.FixtureRequest) -> Verb:
    return VERBS[request.param]


def carried_out(verb: Verb, through: type[Distant]) -> tuple[Any, Table, Distant]:
    """What it gives, and the table behind it, near by."""
    uri = verb.table(in_memory())
    before = metatable.open(uri).scan().to_arrow().sort_by("id")
    table, backend = far(uri, through)
    version = table.version
    found = verb.call(table)
    after = metatable.open(uri)
    assert after.scan().to_arrow().sort_by("id").equals(before)
    assert (after.version > version) == verb.publishes
    assert not after.verify().findings
    return found, after, backend


def test_slices_are_waited_for_together(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_processors", lambda: 1)  # the clock of rounds is for one
    _, _, backend = carried_out(verb, Rounds)
    waited = data_rounds(backend)
    monkeypatch.setattr(portions, "MOST_TOGETHER", 1)
    _, _, backend = carried_out(verb, Rounds)
    alone = data_rounds(backend)
    assert max(waited) >= 8  # two buckets are made of one
    assert len(alone) >= 4 * len(waited)


@pytest.mark.in_turn("verb", one_in=2)
def test_the_same_comes_of_answers_that_take_long(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On threads, which wait for each other's logs."""
    monkeypatch.setattr(rounds, "LATENCY_SECONDS", 0.001)
    for most in (1, 3, 16) if LONG else (3,):
        monkeypatch.setattr(portions, "MOST_TOGETHER", most)
        found, after, _ = carried_out(verb, Sleeping)
        if isinstance(found, pa.Table):
            assert found.equals(changed(after))
        elif verb.publishes:
            assert found.version == after.version


@pytest.mark.in_turn("verb", one_in=2)
def test_a_damaged_file_ends_it_and_nothing_is_published(
    tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LATENCY_SECONDS", 0.001)
    uri = verb.table(str(tmp_path / "table"))
    hurt = next(one for one in metatable.open(uri).files() if one.path.startswith("day=d06"))
    path = Path(uri, hurt.path)
    path.write_bytes(path.read_bytes()[:-9])
    table, _ = far(uri, Sleeping)
    if verb in (VERBS["verify"], VERBS["verify, with logs"]):
        assert any(path.name in one.where for one in table.verify().findings)
        return
    with pytest.raises(CorruptError, match=path.name):
        verb.call(table)
    assert metatable.open(uri).version == table.version


def test_what_a_restore_undoes_is_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_processors", lambda: 1)  # the clock of rounds is for one
    table, backend = far(made(in_memory(), "cow"), Rounds)
    assert isinstance(backend, Rounds)
    waited = []
    for count in (2, 14):
        version = table.version
        for number in range(count):
            table.upsert(rows(0, 10, number))
        began, backend.log = backend.now, []
        root = version_path(table.restore(version).version)
        log = backend.log
        [put] = [at for at, verb, path in log if (verb, path) == ("create", root)]
        aside = {at for at, verb, path in log if verb == "put" and "/commits/" in path}
        assert len({at for at in aside if at < put}) == 2, "what it undoes, and what tells of it"
        waited.append(put - began)
    few, many = waited
    assert many - few <= 6, "twice the roots on the way: 1, 2, 4, ... at once"


@pytest.mark.parametrize("first_bytes", [slice_reader.FIRST_BYTES, 40])
def test_of_first_logs_a_few_bytes_are_read_together(
    monkeypatch: pytest.MonkeyPatch, first_bytes: int
) -> None:
    """And none of those on base files that are not so old themselves. Few bytes may be too few."""
    monkeypatch.setattr(slice_reader, "FIRST_BYTES", first_bytes)
    monkeypatch.setattr(local, "_processors", lambda: 1)
    table, backend = far(made(in_memory(), "mor"), Rounds)
    assert isinstance(backend, Rounds)
    for hours, due in ((0, DAYS), (1, 0)):
        backend.log = []
        told = table.compact_logs(ratio=1e9, count=10_000, hours=hours, dry_run=True)
        assert (told.files_before > 0) == (due > 0)
        log = [(at, verb) for at, verb, path in backend.log if ".log." in path]
        read = {at for at, verb in log if verb == "read"}
        assert len(read) == (2 if due else 0)
        whole = [verb for _, verb in log if verb == "get"]
        assert len(whole) == (0 if first_bytes > 100 else due)


def test_verify_looks_rings_up_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = metatable.open(made(str(tmp_path / "table"), "cow", **BUCKETS))
    cache.clear()
    asked, real = list[int](), Snapshot.rings

    def noting(self: Snapshot, paths: Sequence[str]) -> Any:
        asked.append(len(paths))
        return real(self, paths)

    monkeypatch.setattr(Snapshot, "rings", noting)
    assert table.verify().findings == ()
    assert asked == [DAYS], "neither for each partition nor for each slice"


def test_deleting_a_partition_lists_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    table = metatable.open(made(in_memory(), "cow"))
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    asked, real = list[str | None](), Snapshot.slices

    def noting(self: Snapshot, path: str | None = None) -> Any:
        asked.append(path)
        return real(self, path)

    monkeypatch.setattr(Snapshot, "slices", noting)
    assert table.delete_partition([{"day": "d03"}, {"day": "none"}]).deleted == 17
    assert set(asked) == {"day=d03", "day=none"}
