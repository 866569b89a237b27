"""Which HFiles are opened for a few keys: those that may hold one by their first and last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.metadata.hfiles.asking import apart
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.manifests.pages import HFileRef
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader

COMMITS = 4


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sequences of the record index's HFiles that are asked."""
    told: list[int] = []
    reader = Entries.reader

    def counted(self: Entries, ref: HFileRef) -> Any:
        if "record_index" in ref.path:
            told.append(ref.sequence)
        return reader(self, ref)

    monkeypatch.setattr(Entries, "reader", counted)
    return told


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": [0] * len(ids)})


def test_a_file_is_asked_for_keys_from_its_first_to_its_last(
    tmp_path: Path, opened: list[int]
) -> None:
    table = metatable.create(
        tmp_path,
        rows("a").schema,
        key="id",
        index="record",
        options={"record_key_form": "plain", "upkeep_files": 0},
        storage_options={"durable": "false"},
    )
    for part in range(COMMITS):
        table.insert(rows(f"k{part}1", f"k{part}5", f"k{part}9"))
    cache.clear()
    versions = [ref.version for ref in table.history() if ref.operation == "insert"][::-1]

    def asked(*ids: str) -> tuple[list[bool], set[int]]:
        opened.clear()
        located = table.tag_locations(rows(*ids))["_location"].combine_chunks()
        return located.is_valid().to_pylist(), set(opened)

    for part, version in enumerate(versions):
        for key in (f"k{part}1", f"k{part}5", f"k{part}9"):
            assert asked(key) == ([True], {version})
        assert asked(f"k{part}3") == ([False], {version})
        assert asked(f"k{part}0") == ([False], set())
    assert asked("k19", "k21") == ([True, True], {*versions[1:3]})
    assert asked("a", "z") == ([False, False], {*versions})


@pytest.mark.parametrize(("room", "kept"), [(1 << 20, True), (64 << 10, True), (20 << 10, False)])
def test_a_lookup_that_the_cache_has_no_room_for_leaves_it_alone(
    tmp_path: Path, room: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metatable.create(
        tmp_path,
        rows("a").schema,
        key="id",
        index="record",
        storage_options={"durable": "false"},
    )
    table.insert(rows(*(f"{number:05}" for number in range(5_000))))
    told: list[bool] = []
    find = HFileReader.find_alike

    def noted(self: HFileReader, keys: Any, *, keep: bool = True) -> Any:
        told.append(keep)
        return find(self, keys, keep=keep)

    monkeypatch.setattr(HFileReader, "find_alike", noted)
    monkeypatch.setattr(cache.blocks, "budget_bytes", room)
    table.tag_locations(rows("00007", "00011"))  # of two blocks at most, of about 32 KiB
    assert set(told) == {kept}


def test_files_are_told_apart_by_a_look_at_each() -> None:
    looks: list[int] = []

    @dataclass(frozen=True)
    class Ref:
        lo: int
        end: int
        sequence: int

        @property
        def hi(self) -> int:
            looks.append(self.sequence)
            return self.end

    places = [(0, 4), (1, 9), (2, 3), (8, 10), (10, 12), (10, 11), (12, 16)]
    refs = [Ref(*ends, number) for number, ends in enumerate(places)]
    told = [[one.sequence for one in few] for few in apart(refs)]  # type: ignore[arg-type]
    assert told == [[3, 2, 1, 0], [5, 4], [6]]
    assert len(looks) == len(refs)
