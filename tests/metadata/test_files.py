"""Live slices in columns: their order, their folders, and the objects they become."""

from __future__ import annotations

import io
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import CorruptError
from metatable.data.file_groups import paths as path_columns
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.paths import name_hashes, names_of
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.hfiles.payload import schema_text
from metatable.metadata.partitions.files import FilesPartition
from metatable.storage import byte_columns, cache
from tests.compaction.hurt_tables import FAST, Hurt

PATHS = [
    f"{folder}{file_id}_0-1-0_20240101000000000.parquet"
    for folder in ("", "a/", "a/b/", "a-b/", "a=é/b=x/", "b/")
    for file_id in ("f-1", "f-2", "g")
]


def view(paths: list[str]) -> FileSystemView:
    """Every file as long as its path."""
    return FileSystemView.of(pa.array(paths, pa.string()), np.array([*map(len, paths)], np.int64))


def test_files_stand_by_partition_path_and_name_whatever_order_they_came_in() -> None:
    shuffled = random.Random(7).sample(PATHS, len(PATHS))
    files = list(view(shuffled))
    places = [(one.partition_path.encode(), one.base.name.encode()) for one in files]
    assert all(before < after for before, after in pairwise(places))
    assert sorted(one.path for one in files) == sorted(PATHS)
    assert all(one.size_bytes == len(one.path) for one in files)


def test_a_view_is_a_sequence_of_slices() -> None:
    held = view(PATHS)
    assert len(held) == len(PATHS)
    assert held[3] == list(held)[3]
    assert held[2:5] == list(held)[2:5]
    assert isinstance(held[0], FileSlice)
    assert held.names().to_pylist() == [one.base.name for one in held]
    folders = held.folders.take(pa.array(held.folder_of)).to_pylist()
    assert folders == [one.partition_path for one in held]


def test_a_view_is_the_same_however_its_slices_came(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = view(PATHS)
    monkeypatch.setattr(byte_columns, "ROOM_BYTES", 100)
    for step in (1, 4):
        pieces = (view(PATHS[at : at + step]).lists() for at in range(0, len(PATHS), step))
        held = FileSystemView.of_lists(pieces)
        assert list(held) == list(whole)
        assert held.paths.equals(whole.paths)
        assert held.held.buffers()[2].size == sum(map(len, map(str.encode, PATHS)))
        assert held.name_hashes().tolist() == name_hashes(whole.paths).tolist()


def test_names_are_cut_off_alike_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = view(PATHS).folders
    monkeypatch.setattr(path_columns, "STEP_PATHS", 2)
    shuffled = pa.array(random.Random(7).sample(PATHS, len(PATHS)))
    names = [one.rpartition("/")[2] for one in shuffled.to_pylist()]
    assert names_of(shuffled).to_pylist() == names
    assert names_of(shuffled[3:9]).to_pylist() == names[3:9]
    assert view(shuffled.to_pylist()).folders.equals(folders)


@pytest.mark.parametrize(
    "odd", ["d1/e/abc", "d1eabc/d", "abcdefgh", "/abcdefg", "d1/abcd/", "d2/abcde"]
)
def test_paths_of_one_size_are_cut_where_each_has_its_slash(odd: str) -> None:
    told = [f"d1/{number:05}" for number in range(6)]
    paths = [*told[:3], odd, *told[3:]]
    assert {*map(len, paths)} == {8}
    assert names_of(pa.array(paths)).to_pylist() == [one.rpartition("/")[2] for one in paths]
    held = view(paths)
    folders = held.folders.take(pa.array(held.folder_of)).to_pylist()
    both = zip(held.paths.to_pylist(), folders, strict=True)
    assert all(path.rpartition("/")[0] == folder for path, folder in both)


def test_some_rows_of_a_view_keep_their_folders() -> None:
    held = view(PATHS)
    some = held.take(np.array([0, 4, 17]))
    assert list(some) == [held[0], held[4], held[17]]
    folders = some.folders.take(pa.array(some.folder_of)).to_pylist()
    assert folders == [one.partition_path for one in some]


def test_a_view_of_no_files_is_empty() -> None:
    assert list(view([])) == []
    assert len(view([]).folders) == 0


def test_an_entry_that_is_half_a_tombstone_is_damage(tmp_path: Path) -> None:
    """Tombstones are known by their bytes; this one names the file that is said to be deleted."""
    rows = pa.table({"id": ["a", "b"], "v": [1, 2]})
    metatable.create(tmp_path, rows.schema, key="id", storage_options=FAST).insert(rows)
    hurt, schema = Hurt(str(tmp_path)), json.loads(schema_text())
    partition = FilesPartition(hurt.table.options)
    value = hurt.every(partition)["value"][0].as_py()
    told: Any = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
    for one in told["filesystemMetadata"].values():
        one["isDeleted"] = True
    with io.BytesIO() as out:
        fastavro.schemaless_writer(out, schema, told)
        hurt.alter(partition, out.getvalue())
    table = metatable.open(tmp_path, FAST)
    for ask in (table.scan().count, lambda: table.read_keys(rows), lambda: table.upsert(rows)):
        cache.clear()
        with pytest.raises(CorruptError, match=r"no tombstone: path='\.hoodie/metatable/files'"):
            ask()
    assert table.verify().finding_counts["files"] == 1
