"""What a crash of the machine may leave: no name without what is to be there before it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.metadata.commits.transaction import Transaction
from metatable.storage.store import Store

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of handles are unknown here"
)


@dataclass
class Disk:
    """A table's folder as a crash would leave it: only what was settled, and where it is.

    `rules`: asked of each name before it is given. Several threads give names, so who looks through
    them takes a list first, which is one step.
    """

    root: str
    rules: list[Callable[[str], None]] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    """Names, and the file behind each, that are there until a crash."""
    kept: dict[str, int] = field(default_factory=dict)
    """The same behind it."""
    whole: set[int] = field(default_factory=set)
    """Files whose content was settled."""

    def name(self, source: str, target: str) -> None:
        path = os.path.relpath(target, self.root)
        for rule in self.rules:
            rule(path)
        self.named[path] = os.stat(source).st_ino
        if not os.stat(source).st_size:
            self.whole.add(self.named[path])

    def settle(self, handle: int) -> None:
        place = os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), self.root)
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            self.whole.add(os.fstat(handle).st_ino)
            return
        inside = [path for path in [*self.named] if (os.path.dirname(path) or ".") == place]
        self.kept |= {path: self.named[path] for path in inside}

    def lost(self, paths: list[str]) -> list[str]:
        """Those that a crash would take."""
        return [path for path in paths if self.kept.get(path) not in self.whole]

    def of(self, pattern: str) -> list[str]:
        return [path for path in [*self.named] if re.fullmatch(pattern, path)]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(str(tmp_path / "table"))
    fsync, replace, link = os.fsync, os.replace, os.link

    def settled(handle: int) -> None:
        fsync(handle)
        disk.settle(handle)

    def named(give: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def given(source: str, target: str) -> None:
            if target.startswith(disk.root):
                disk.name(source, target)
            give(source, target)

        return given

    monkeypatch.setattr(os, "fsync", settled)
    monkeypatch.setattr(os, "replace", named(replace))
    monkeypatch.setattr(os, "link", named(link))
    return disk


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"k{one:04}" for one in numbers], "p": [str(one % 2) for one in numbers]}
    )


def made(disk: Disk, table_type: str = "cow") -> Table:
    return metatable.create(
        disk.root,
        rows(0, 1).schema,
        key="id",
        partition_by=["p"],
        index="record",
        table_type=table_type,
    )


INSTANT = r"\d{17}"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_commit_leaves_nothing_without_what_goes_before_it(disk: Disk, table_type: str) -> None:
    """Of files of an instant its lease, its first actions and their markers; of a version all its
    files; of a completed action its version."""
    table = made(disk, table_type)
    seen = {"data": 0, "root": 0, "completed": 0}

    def data_file(path: str) -> None:
        if re.fullmatch(r"p=[01]/(?!\.hoodie).*", path):
            seen["data"] += 1
            begun = disk.of(rf"\.hoodie/metatable/leases/{INSTANT}")
            assert len(begun) == 1 + seen["root"]  # of each commit until now
            first = disk.of(rf"\.hoodie/{INSTANT}\.\w+\.requested")
            assert len(first) == 1 + seen["root"]
            marker = disk.of(rf"\.hoodie/\.temp/{INSTANT}/{re.escape(path)}\.marker\.\w+")
            assert marker or ".log." in path
            markers = disk.of(rf"\.hoodie/\.temp/{INSTANT}/.*")
            assert markers
            inflight = disk.of(rf"\.hoodie/{INSTANT}(\.\w+)?\.inflight")
            assert len(inflight) == 1 + seen["root"]
            partition = disk.of(rf"{os.path.dirname(path)}/\.hoodie_partition_metadata")
            assert len(partition) == 1
            assert disk.lost([*begun, *first, *inflight, *markers, *partition]) == []

    def root(path: str) -> None:
        if re.fullmatch(r"\.hoodie/metatable/manifest/\d+\.json", path):
            seen["root"] += 1
            every = [one for one in [*disk.named] if not one.endswith("manifest/latest")]
            assert len(disk.of(r"\.hoodie/metatable/record_index/.*")) == seen["root"]
            assert disk.lost(every) == []

    def completed(path: str) -> None:
        if re.fullmatch(rf"\.hoodie/{INSTANT}\.(delta)?commit", path):
            seen["completed"] += 1
            assert disk.lost(disk.of(r"\.hoodie/metatable/manifest/\d+\.json")) == []

    disk.named.clear()
    disk.rules += [data_file, root, completed]
    table.insert(rows(0, 10))
    assert disk.lost(disk.of(rf"\.hoodie/{INSTANT}\.(delta)?commit")) == []
    table.upsert(rows(5, 10))
    assert disk.lost(disk.of(rf"\.hoodie/{INSTANT}\.(delta)?commit")) == []
    assert seen["data"] >= 4
    assert (seen["root"], seen["completed"]) == (2, 2)


def test_who_lets_others_write_files_waits_before_they_do(disk: Disk) -> None:
    made(disk)
    disk.named.clear()
    with Transaction.begin(Store(disk.root)) as transaction:
        transaction.start()
        assert disk.lost(list(disk.named)) != []
        transaction.begin_files(Store(disk.root).marking([".hoodie/.temp/1/a.marker.CREATE"]))
        assert len(disk.named) == 4
        assert disk.lost(list(disk.named)) == []
