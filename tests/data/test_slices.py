"""Names of data files, markers, and the file by which Hudi finds a partition."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.file_groups import file_system_view, slices
from metatable.data.file_groups.file_system_view import FILE, FileSystemView
from metatable.data.file_groups.slices import DataFile, FileSlice
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


# Slices


LATER = "20250102030405007"


def log(instant: str, version: int, file_id: str = "f-0", size_bytes: int = 3) -> tuple[str, int]:
    return f"city=sf/.{file_id}_{instant}.log.{version}_0-1-2", size_bytes


def base(instant: str, size_bytes: int, file_id: str = "f-0") -> tuple[str, int]:
    return f"city=sf/{file_id}_0-0-0_{instant}.parquet", size_bytes


WAITS = [log(LATER, 1), base(LATER, 0), log(T, 2), base(T, 9), log(T, 1)]


def test_logs_of_a_slice_that_waits_are_behind_those_that_are_planned() -> None:
    held = FileSlice.of(WAITS)
    assert [one.name for one in held.files] == [
        f"f-0_0-0-0_{T}.parquet",
        f".f-0_{T}.log.1_0-1-2",
        f".f-0_{T}.log.2_0-1-2",
        f".f-0_{LATER}.log.1_0-1-2",
    ]
    assert held.pending == DataFile("city=sf", "f-0", "0-0-0", LATER)
    assert held.names == (*(one.name for one in held.files), held.pending.name)
    assert (held.instant, held.size_bytes) == (T, 18)
    assert held.planned == FileSlice.of([one for one in WAITS if LATER not in one[0]])
    assert [one.named.base_instant for one in held.late] == [LATER]
    assert held.next_log("7-7-7").named.name == f".f-0_{LATER}.log.2_7-7-7"
    assert held.with_logs([held.next_log("7-7-7")]).pending == held.pending
    assert FileSlice.decode(held.encode()) == held
    done = replace(held.pending, size_bytes=8)
    assert held.compacted(done) == FileSlice(done, held.late)


def test_a_slice_waits_from_its_schedule_on() -> None:
    before = FileSlice.of([base(T, 9), log(T, 1)])
    assert before.pending is None
    assert before.late == before.planned.logs == before.logs
    held = before.scheduled(DataFile("city=sf", "f-0", "0-0-0", LATER))
    assert held.names != before.names
    assert (held.planned, held.late) == (before, ())
    assert held.next_log("7-7-7").named.name == f".f-0_{LATER}.log.1_7-7-7"


def test_logs_alone_are_a_slice_without_a_base_file() -> None:
    held = FileSlice.of([log(T, 2), log(T, 1)])
    assert not held.has_base
    assert (held.instant, held.file_id, held.size_bytes) == (T, "f-0", 6)
    assert held.path == held.files[0].path == log(T, 1)[0]
    assert FileSlice.decode(held.encode()) == held
    assert FileSlice.unopened("city=sf", "f-0", T).with_logs(held.logs) == held
    assert held.next_log("7-7-7").named.name == f".f-0_{T}.log.3_7-7-7"
    waits = FileSlice.of([log(T, 1), base(LATER, 0), log(LATER, 1), log(T, 2)])
    assert (waits.planned, waits.awaits, waits.has_base) == (held, LATER, False)
    done = DataFile("city=sf", "f-0", "0-0-0", LATER, 8)
    assert waits.compacted(done) == FileSlice(done, waits.late)


@pytest.mark.parametrize(
    "files",
    [
        [],
        [log(T, 1), base(LATER, 9)],
        [log(T, 1), log(LATER, 1)],
        [log(T, 1), log(T, 1, "g-0")],
        [log(LATER, 1), base(T, 0)],
        [base(T, 9), log(LATER, 1)],
        [base(T, 9), base(LATER, 9)],
        [base(T, 9), base(T, 0)],
        [base(T, 9), base(LATER, 9, "g-0")],
        [*WAITS, base(LATER, 0, "g-0")],
        [base(T, 9), log(T, 1, "g-0")],
        [*WAITS, base("20250102030405008", 0)],
    ],
)
def test_files_that_are_no_slice_are_damage(files: list[tuple[str, int]]) -> None:
    with pytest.raises(CorruptError, match="no file slice"):
        FileSlice.of(files)


def test_many_slices_are_what_each_of_them_is() -> None:
    groups = [WAITS, [base(T, 7, "a-0")], [base(T, 8, "b-0"), log(T, 1, "b-0")]]
    listed = [[{"path": path, "size": size} for path, size in one] for one in groups]
    view = FileSystemView.of_lists([pa.array(listed, pa.list_(FILE))])
    expected = sorted((FileSlice.of(one) for one in groups), key=lambda one: one.file_id)
    assert list(view) == view[:] == expected
    assert view.is_pending.tolist() == [False, False, True]
    assert view.has_logs.tolist() == [False, True, True]
    assert view.total_bytes == 7 + 11 + 18
    paths, sizes, places = view.all_files()
    assert sorted(paths.to_pylist()) == sorted(path for one in groups for path, size in one if size)
    assert sizes.sum() == view.total_bytes
    assert places.tolist()[:3] == [0, 1, 2]
    assert list(FileSystemView.joined([view.take(np.array([2])), view.take(np.array([0, 1]))])) == (
        expected
    )
    assert not view.take(np.array([0])).is_pending.any()


def test_many_slices_know_which_are_logs_alone() -> None:
    alone = [log(T, 1, "a-0"), log(T, 2, "a-0", 4), base(LATER, 0, "a-0"), log(LATER, 1, "a-0", 5)]
    groups = [alone, [log(T, 1, "b-0")], [base(T, 7, "c-0")], WAITS]
    listed = [[{"path": path, "size": size} for path, size in one] for one in groups]
    view = FileSystemView.of_lists([pa.array(listed, pa.list_(FILE))])
    assert list(view) == [FileSlice.of(one) for one in groups]
    assert view.file_ids().to_pylist() == ["a-0", "b-0", "c-0", "f-0"]
    assert view.alone.tolist() == [True, True, False, False]
    assert view.has_logs.tolist() == [True, True, False, True]
    assert view.is_pending.tolist() == [True, False, False, True]
    assert view.slice_sizes.tolist() == [12, 3, 7, 18]
    assert [one.tolist() for one in view.logs_of_each()] == [[12, 3, 0, 9], [3, 1, 0, 3]]
    assert view.log_count == 7
    assert [one.file_id for one in view.bases()] == ["c-0", "f-0"]
    assert not view.bases().has_logs.any()
    assert FileSystemView.of_lists([view.lists()]).contents().equals(view.contents())
    only = FileSystemView.of_lists([pa.array(listed[1:3], pa.list_(FILE))])
    assert only.contents().equals(view.take(np.array([1, 2])).contents())
    assert len({*view.contents().to_pylist(), *view.bases().contents().to_pylist()}) == 5
    assert (only.logs, only.log_count, only.has_logs.tolist()) == (None, 1, [True, False])


@pytest.mark.parametrize("logs", [0, 3])
def test_slices_one_after_the_other_are_those_by_their_places(
    monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    monkeypatch.setattr(file_system_view, "TOGETHER", 4)
    view = many_slices(10, logs)
    assert list(view) == [view[place] for place in range(10)]
    assert list(view.take(np.array([], np.int64))) == []


def test_the_first_of_very_many_slices_makes_no_objects_of_the_others() -> None:
    view = many_slices(20_000, 10)
    tracemalloc.start()
    assert len(next(iter(view)).logs) == 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def many_slices(count: int, logs: int) -> FileSystemView:
    """So many slices, each of a base file and so many logs, the last first."""
    paths = [f"g{place:06}-0_0-0-0_{T}.parquet" for place in reversed(range(count))]
    files = [
        f".g{place:06}-0_{T}.log.{one + 1}_0-0-0" for place in range(count) for one in range(logs)
    ]
    of_each = pa.StructArray.from_arrays(
        [pa.array(files, pa.string()), pa.array(np.full(len(files), 3))], fields=list(FILE)
    )
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * logs)
    others = pa.ListArray.from_arrays(ends, of_each)[::-1] if logs else None
    return FileSystemView.of(pa.array(paths), np.full(count, 7), others)
