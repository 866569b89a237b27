"""Commit metadata: the JSON of version 6."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from metatable.data.file_groups.slices import DataFile
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat
from metatable.data.rows.row_counts import RowCounts
from metatable.storage.errors import CorruptError

T = "20250102030405006"
FILE = DataFile("city=sf", "f-0", "0-0-0", T, size_bytes=100, row_count=5)
STAT = WriteStat.of(FILE, None, RowCounts(inserted=4, updated=1, deleted=2))


def test_commit_comes_back_as_it_was() -> None:
    other = WriteStat.of(DataFile("", "g-0", "1", T), T, RowCounts())
    for replaced in (None, {"city=ny": ("a", "b"), "": ()}):
        commit = CommitMetadata(
            "UPSERT",
            (
                STAT,
                other,
            ),
            {"schema": "{}", "ä": "日"},
            replaced,
        )
        assert CommitMetadata.decode(commit.encode(), "x") == commit


def test_a_stat_tells_sizes_counts_and_the_slice_before() -> None:
    stored = json.loads(CommitMetadata("INSERT", (STAT,)).encode())
    [stat] = stored["partitionToWriteStats"]["city=sf"]
    assert stat["prevCommit"] == "null"
    assert stat["fileSizeInBytes"] == stat["totalWriteBytes"] == 100
    assert stat["path"] == FILE.path
    counts = ("numWrites", "numInserts", "numUpdateWrites", "numDeletes")
    assert [stat[name] for name in counts] == [5, 4, 1, 2]


def test_only_a_replacecommit_names_replaced_groups() -> None:
    assert b"partitionToReplaceFileIds" not in CommitMetadata("INSERT", ()).encode()
    replacing = CommitMetadata("DELETE_PARTITION", (), {}, {"city=ny": ("f",)})
    assert json.loads(replacing.encode())["partitionToReplaceFileIds"] == {"city=ny": ["f"]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"partitionToWriteStats": {"": [3]}}',
        b"\xff",
        b"[" * 100_000,
        b'{"partitionToWriteStats": {"": [{"numWrites": Infinity}]}}',
        b'{"partitionToWriteStats": {"": [{"numWrites": 1e999}]}}',
        b'{"partitionToWriteStats": {"": [{"fileSizeInBytes": 9223372036854775808}]}}',
        b'{"partitionToWriteStats": {"": [{"path": 5}]}}',
        b'{"partitionToWriteStats": {"": [{"fileId": {}}]}}',
        b'{"partitionToWriteStats": {"": [{"prevCommit": []}]}}',
        b'{"partitionToWriteStats": {"": [{"path": "\\ud800"}]}}',
        b'{"partitionToWriteStats": {"\\udfff": [{}]}}',
        b'{"partitionToReplaceFileIds": {"": [{}]}}',
        b'{"partitionToReplaceFileIds": {"": "abc"}}',
        b'{"partitionToReplaceFileIds": {"\\ud800": []}}',
        b'{"extraMetadata": [1, 2]}',
        b'{"operationType": ["upsert"]}',
    ],
    ids=lambda raw: repr(raw[:60]),
)
def test_what_is_no_commit_is_damage(raw: bytes) -> None:
    with pytest.raises(CorruptError, match="commit is not readable"):
        CommitMetadata.decode(raw, ".hoodie/T.commit")


def test_real_commits_are_read_and_have_our_fields_in_our_order(interop: Path) -> None:
    read = 0
    for archive in sorted((interop / "hudi").glob("*cow__v6*.zip")):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if not name.endswith(".commit") or "MACOSX" in name:
                    continue
                raw = opened.read(name)
                commit = CommitMetadata.decode(raw, name)
                stored = json.loads(raw)
                again = json.loads(commit.encode())
                assert list(again) == list(stored)
                for partition_path, stats in stored["partitionToWriteStats"].items():
                    ours = again["partitionToWriteStats"][partition_path]
                    for stat, our in zip(stats, ours, strict=True):
                        stat["runtimeStats"] = None
                        assert list(our.items()) == list(stat.items())
                        read += 1
    assert read >= 5
