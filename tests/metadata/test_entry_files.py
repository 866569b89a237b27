"""Runs of entries become HFiles: the same ones, whatever is in memory at once."""

from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rounds import Rounds
from metatable.data.bucket_functions import HASH_SPACE
from metatable.data.config.options import Options
from metatable.metadata.hfiles import entry_files
from metatable.metadata.hfiles.entry_files import (
    build_hfile,
    cut_ranges,
    drop_runs,
    read_run,
    write_run,
)
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.partitions.record_index import RecordIndexPartition, _decode_locations
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import TEMPORARY, Store
from tests.far import in_memory
from tests.long import examples

SALTS = (1, 2)
OPTIONS = Options(name="rides", key=("id",), buckets={"record_index": 4}, key_salts=SALTS)
PARTITION = RecordIndexPartition(OPTIONS)
PLACES = st.integers(0, HASH_SPACE - 1) | st.sampled_from([0, 1, HASH_SPACE // 4, HASH_SPACE - 1])


def entries_of(places: list[int], groups: list[int | None]) -> pa.Table:
    """Keys whose hash begins with their place, each in one of three groups, or deleted."""
    keys = [place.to_bytes(4) + bytes(12) for place in places]
    locations = pa.array([f'["p","g{number}"]' for number in range(3)])
    values = pa.DictionaryArray.from_arrays(pa.array(groups, pa.int32()), locations)
    return pa.table([places, pa.array(keys, pa.binary()), values], schema=PARTITION.schema)


def held(store: Store, refs: list[HFileRef | None]) -> list[tuple[bytes, bytes | None]]:
    """Keys and groups (None: deleted) of files, in their order."""
    found: list[tuple[bytes, bytes | None]] = []
    for ref in filter(None, refs):
        reader = HFileReader.open(store, ref.path)
        locations = reader.meta("locations") or b""
        told = [None, *(one.split(b'"')[-2] for one in locations.split(b"],["))]
        for batch in reader.scan():
            numbers = (int.from_bytes(value) for value in batch["value"].to_pylist())
            found += zip(batch["key"].to_pylist(), (told[n] for n in numbers), strict=True)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three entries, steps of a few of them, nothing in receipts."""
    monkeypatch.setattr(entry_files, "BATCH_ROWS", 3)
    monkeypatch.setattr(entry_files, "STEP_BYTES", 200)
    monkeypatch.setattr(entry_files, "INLINE_BYTES", 0)


@pytest.mark.parametrize(
    "raw",
    [b"[" * 100_000, b'[["p", "\\ud800"]]', b"[null]", b"\xff"],
    ids=lambda raw: repr(raw[:20]),
)
def test_locations_that_are_none_are_damage(raw: bytes) -> None:
    class Reader:
        path = "a.hfile"

        def meta(self, name: str) -> bytes:
            assert name == "locations"
            return raw

    with pytest.raises(CorruptError, match="damaged meta block"):
        _decode_locations(cast(HFileReader, Reader()))


@pytest.mark.parametrize("tasks", [0, 1, 2, 50, 10_000])
def test_runs_ride_as_long_as_those_of_all_tasks_are_few(
    tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_files, "ALL_INLINE_BYTES", 10_000)
    store = Store("memory://riding")
    runs = [
        write_run(store, "files", pa.table({"key": ["a" * size]}), tasks)
        for size in range(0, 12_000, 500)
    ]
    riding = [run.size_bytes for run in runs if run.body is not None]
    assert max(riding, default=0) * tasks <= 10_000
    assert bool(riding) == (tasks < 50)


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(20, 60), deadline=None)
@given(
    wanted=st.dictionaries(PLACES, st.none() | st.integers(0, 2), max_size=60),
    runs=st.integers(1, 4),
    target_bytes=st.sampled_from([100, 500, 10_000]),
)
def test_what_was_written_in_runs_is_in_the_files_once_and_in_order(
    wanted: dict[int, int | None], runs: int, target_bytes: int
) -> None:
    store = Store("memory://runs")
    places = list(wanted)
    shares = [places[start::runs] for start in range(runs)]
    made = [
        write_run(store, PARTITION.name, entries_of(share, [wanted[place] for place in share]))
        for share in shares
    ]
    refs = [
        build_hfile(store, store, PARTITION, made, lo, hi, Owner("compact", "a"))
        for lo, hi in cut_ranges(PARTITION, made, target_bytes)
    ]
    told = {
        place.to_bytes(4) + bytes(12): None if group is None else f"g{group}".encode()
        for place, group in wanted.items()
    }
    assert held(store, refs) == sorted(told.items())


@pytest.mark.usefixtures("small")
def test_a_file_reads_of_runs_what_is_in_its_range(tmp_path: Path) -> None:
    """A batch or two of each run lie across the borders of the range."""
    store = Store(str(tmp_path), {"durable": "false"})
    places = np.random.default_rng(0).permutation(4000) * (HASH_SPACE // 4000)
    runs = [
        write_run(store, PARTITION.name, entries_of(share.tolist(), [0] * len(share)))
        for share in np.split(places, 4)
    ]
    whole = sum(batch.num_rows for run in runs for batch in read_run(store, run))
    assert whole == len(places)
    asked = [0]
    read = pa.ipc.RecordBatchFileReader.get_batch

    class Counting(pa.ipc.RecordBatchFileReader):
        def get_batch(self, number: int) -> pa.RecordBatch:
            asked[0] += 1
            return read(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pa.ipc, "open_file", Counting)
        ref = build_hfile(
            store, store, PARTITION, runs, *PARTITION.bucket(2), Owner("compact", "a")
        )
    assert ref is not None
    assert ref.entry_count == 1000
    assert 1000 // 3 <= asked[0] <= 1000 // 3 + 2 * len(runs)


def test_no_folder_is_left_of_a_scratch_whose_runs_are_dropped(tmp_path: Path, small: None) -> None:
    """On Spark it is one in the table's own."""
    Store(tmp_path).put(".hoodie/metatable/hint", b"")
    scratch, other = (Store(tmp_path / TEMPORARY / name) for name in ("upsert-1", "upsert-2"))
    runs = [write_run(scratch, "files", pa.table({"key": ["a"]})) for _ in range(2)]
    write_run(other, "files", pa.table({"key": ["a"]}))
    drop_runs(scratch, runs[:1])
    assert [one.path for one in scratch.walk()] == [runs[1].path]
    drop_runs(scratch, runs)
    drop_runs(scratch, [])
    assert [one.name for one in Path(tmp_path, TEMPORARY).iterdir()] == ["upsert-2"]
    assert len([*other.walk()]) == 1


@pytest.mark.usefixtures("small")
def test_runs_far_away_are_read_together() -> None:
    """As many rounds as one run takes: its footer in two, and each batch in one."""
    store = Store(in_memory())
    step = HASH_SPACE // 50
    runs = [
        write_run(store, PARTITION.name, entries_of([n * step + k for n in range(20)], [0] * 20))
        for k in range(12)
    ]
    store.backend = backend = Rounds(store.backend)
    ref = build_hfile(store, store, PARTITION, runs, 0, HASH_SPACE, Owner("compact", "a"))
    assert ref is not None
    assert ref.entry_count == 12 * 20
    assert {verb for _, verb, path in backend.log if path.endswith(".arrow")} == {"read"}
    read = {at for at, verb, path in backend.log if path.endswith(".arrow")}
    assert len(read) <= 2 + 1 + -(-20 // 3)
