"""Names of data files, markers, and the file by which Hudi finds a partition."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data import slices
from metatable.data.slices import DataFile
from metatable.storage.errors import CorruptError

T = "20250102030405006"
WORD = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)


@settings(deadline=None)
@given(st.sampled_from(["", "city=sf", "a=1/b=2"]), WORD, WORD)
def test_name_of_a_data_file_is_its_encoding(partition: str, file_id: str, token: str) -> None:
    data_file = DataFile(partition, file_id, token, T, size_bytes=7)
    assert DataFile.decode(data_file.path, 7) == data_file
    assert pickle.loads(pickle.dumps(data_file)) == data_file


def test_name_of_a_real_file_is_taken_apart() -> None:
    name = "bb7c3a45-387f-490d-aab2-981c3f1a8ada-0_0-140-198_20240418173213674.parquet"
    read = DataFile.decode(f"byteField=20/shortField=100/{name}")
    assert read.partition_path == "byteField=20/shortField=100"
    assert read.file_id == "bb7c3a45-387f-490d-aab2-981c3f1a8ada-0"
    assert (read.write_token, read.instant) == ("0-140-198", "20240418173213674")
    assert (read.name, read.size_bytes, read.row_count) == (name, 0, None)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a_b.parquet",
        f"a_b_c_{T}.parquet",
        f"a_b_{T}.orc",
        f"_b_{T}.parquet",
        f"a_b_{T}0.parquet",
        "a_b_2025.parquet",
        f"a_b_{T}.parquet.crc",
        f".a_b_{T}.parquet",
        f"a_b_{T}.parquet\n",
    ],
)
def test_a_name_that_is_none_is_damage(path: str) -> None:
    with pytest.raises(CorruptError, match="not the name of a data file"):
        DataFile.decode(path)


def test_markers_lie_where_the_rollback_of_hudi_looks() -> None:
    data_file = DataFile("city=sf", "f-0", "0-0-0", T)
    folder = f".hoodie/.temp/{T}"
    expected = f"{folder}/city=sf/f-0_0-0-0_{T}.parquet.marker.CREATE"
    assert slices.marker_path(data_file, T, "CREATE") == expected
    root = DataFile("", "f-0", "0-0-0", T)
    assert slices.marker_path(root, T, "MERGE") == f"{folder}/f-0_0-0-0_{T}.parquet.marker.MERGE"


@pytest.mark.parametrize(("partition", "depth"), [("", 0), ("a=1", 1), ("a=1/b=2", 2)])
def test_partition_metadata_counts_the_folders_above_it(partition: str, depth: int) -> None:
    lines = slices.partition_metadata(T, partition).decode().splitlines()
    assert lines == [
        "#partition metadata",
        "#Thu Jan 02 03:04:05 UTC 2025",
        f"commitTime={T}",
        f"partitionDepth={depth}",
    ]


def test_partition_metadata_lies_in_the_partition() -> None:
    assert slices.partition_metadata_path("") == ".hoodie_partition_metadata"
    assert slices.partition_metadata_path("a=1/b=2") == "a=1/b=2/.hoodie_partition_metadata"


def test_file_ids_are_new_and_hold_no_separator() -> None:
    made = {slices.new_file_id() for _ in range(100)}
    assert len(made) == 100
    assert not any(set("_./") & set(file_id) for file_id in made)
