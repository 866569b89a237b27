"""New files that a disk settles while the task that made them goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.storage.errors import StoreError
from metatable.write import groups
from metatable.write.group_maker import GroupMaker
from metatable.write.made_group import MadeGroup

FILES = 3


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> metatable.Table:
    """One task writes its files one by one."""
    monkeypatch.setattr(groups, "TOGETHER_BYTES", 1)
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    options = {"file_rows": 10, "small_file_bytes": 0}
    made = metatable.create(str(tmp_path / "t"), schema, key="id", index="record", options=options)
    made.insert(rows(0))
    assert len(list(made.files())) == FILES
    return made


def rows(value: int) -> pa.Table:
    ids = [f"k{one:02}" for one in range(10 * FILES)]
    return pa.table({"id": ids, "n": [value] * len(ids)})


def test_files_are_stored_by_threads_that_merge_none(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, stored = GroupMaker.made, MadeGroup.stored
    merging, storing = set[int](), list[int]()

    def merged(*given: Any) -> Any:
        merging.add(threading.get_ident())
        return made(*given)

    def put(*given: Any) -> Any:
        storing.append(threading.get_ident())
        return stored(*given)

    monkeypatch.setattr(GroupMaker, "made", merged)
    monkeypatch.setattr(MadeGroup, "stored", put)
    assert table.upsert(rows(1)).updated == 10 * FILES
    assert len(storing) == FILES
    assert not merging & set(storing)
    assert table.verify().findings == ()


def test_a_file_that_cannot_be_stored_ends_the_commit_and_nothing_goes_on(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, threads = table.version, set[int]()

    def failing(*_: Any) -> Any:
        threads.add(threading.get_ident())
        raise StoreError("the disk is full")

    monkeypatch.setattr(MadeGroup, "stored", failing)
    with pytest.raises(StoreError, match="the disk is full"):
        table.upsert(rows(1))
    assert threads
    assert metatable.open(table.uri).version == version
