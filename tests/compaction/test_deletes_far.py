"""What is deleted on a store far away goes together, wherever the order does not count."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from benchmarks.rounds import Rounds
from metatable import Table
from metatable.data.file_groups.slices import DataFile, marker_path
from metatable.engine import local
from metatable.metadata.commits.recovery import sweep
from metatable.metadata.hfiles import entry_files
from metatable.metadata.hfiles.entry_files import drop_runs, write_run
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.owner import Owner
from metatable.storage import cache, threads
from metatable.storage.store import Store
from tests.far import DAYS, far, in_memory, made, rows


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of rounds is for one."""
    monkeypatch.setattr(local, "_processors", lambda: 1)
    monkeypatch.setattr(threads, "WORKERS", 1)
    yield
    cache.clear()


def asked(backend: Rounds, verb: str, pattern: str) -> dict[str, int]:
    """In which round each of these was asked for, by path."""
    return {path: at for at, did, path in backend.log if did == verb and re.search(pattern, path)}


def far_away(table_type: str) -> tuple[Table, Rounds]:
    table, backend = far(made(in_memory(), table_type), Rounds)
    assert isinstance(backend, Rounds)
    backend.log.clear()
    return table, backend


def test_files_of_an_undone_commit_go_together() -> None:
    table, backend = far_away("cow")
    table.rollback()
    gone = asked(backend, "delete", r"\.parquet$")
    assert (len(gone), len({*gone.values()})) == (DAYS, 1)
    looks = asked(backend, "size", r"\.hoodie/\d+\.(commit|inflight)")
    assert max(looks.values()) < min(asked(backend, "delete", r"\.hoodie/\d+\.commit$").values())


def test_garbage_of_a_kind_goes_together() -> None:
    table, backend = far_away("cow")
    table.upsert(rows(0, 400, 5))
    table.compact(major=True)
    table.upsert(rows(0, 400, 6))
    backend.log.clear()
    table.clean(versions=1, hours=0)
    data = asked(backend, "delete", r"\.parquet$")
    index = asked(backend, "delete", r"\.hfile$")
    assert (len(data), len({*data.values()})) == (2 * DAYS, 1)
    assert len({*index.values()}) == 1
    assert max(data.values()) < min(index.values())


def test_folders_of_what_was_replaced_are_listed_together() -> None:
    options = {"timeline_commits": 3, "lease_seconds": 0}
    table, backend = far(made(in_memory(), "cow", options=options), Rounds)
    assert isinstance(backend, Rounds)
    for number in range(3):
        table.insert_overwrite(rows(1000, 1400, number))
    for number in range(6):
        table.upsert(rows(1000, 1010, number))
    backend.log.clear()
    table.clean(versions=1, hours=0)
    listed = [(at, path) for at, did, path in backend.log if did == "list" and "day=" in path]
    assert len({path for _, path in listed}) == DAYS
    before_the_put, behind = 1, 2  # as far as the first with files; then all
    assert len({at for at, _ in listed}) == before_the_put + behind


def test_what_a_dead_writer_left_goes_together_files_before_their_markers() -> None:
    store, backend = Store(in_memory()), Rounds(Store(in_memory()).backend)
    store.backend, owner = backend, Owner("commit", "1" * 32, "20260101000000000")
    files = [DataFile(f"d{n}", f"f{n}-0", "0-0-0", owner.instant) for n in range(9)]
    index = [f"{HOME}/{place}/{owner.prefix}{n}" for place in ("files", "pages") for n in range(4)]
    markers = [marker_path(one, owner.instant, "CREATE") for one in files]
    for path in [*(one.path for one in files), *index, *markers]:
        store.put(path, b"x")
    backend.log.clear()
    sweep(store, owner, ["files"])
    assert [*store.walk()] == []
    told = [asked(backend, "delete", form) for form in (r"^d\d/.*", HOME, r"/\.temp/")]
    data, ours, marked = ({*one.values()} for one in told)
    staged = 1
    assert (len(data), len(ours) - staged, len(marked)) == (1, 1, 1)
    assert max(data) < min(marked)


def test_logs_that_markers_name_are_asked_together_whose_they_are() -> None:
    uri = in_memory()
    table, backend = far(made(uri, "mor"), Rounds)
    [instant] = [one.instant for one in table.history() if one.version == 3]
    logs = [one.path for one in Store(uri).walk() if ".log." in one.path]
    for path in logs:
        Store(uri).put(f".hoodie/.temp/{instant}/{path}.marker.APPEND", b"")
    backend.log.clear()
    sweep(table._store, Owner("commit", "1" * 32, str(instant)), [])
    read = asked(backend, "get", r"\.log\.")
    assert read.keys() == {*logs}
    assert len({*read.values()}) == -(-len(logs) // 16)
    left = {one.path for one in Store(uri).walk() if ".log." in one.path}
    assert asked(backend, "delete", r"^day=").keys() == {*logs} - left
    assert left


def test_runs_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_files, "INLINE_BYTES", 0)
    scratch = Store(in_memory())
    runs = [write_run(scratch, "files", pa.table({"key": ["a"]})) for _ in range(5)]
    scratch.backend = backend = Rounds(scratch.backend)
    drop_runs(scratch, runs)
    assert [at for at, _, _ in backend.log] == [0] * 5
    assert [*scratch.walk()] == []
