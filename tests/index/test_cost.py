"""What a lookup and a commit cost, in counted reads and requests: pinned, for every table size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable.data.base_files.base_file import read_record_keys
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.operations import UPSERT
from metatable.engine.local import LocalEngine
from metatable.index import bloom_lookup, create_index, metadata_bloom
from metatable.index.bloom_lookup import Ranges
from metatable.index.metadata_bloom import MetadataSource
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.filters import Filter
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests import far
from tests.index.rows import make, rows
from tests.long import LONG

UNPARTITIONED = pa.schema([("id", pa.string()), ("value", pa.int64())])


def _tag_cost(table: metatable.Table, asked: pa.Table) -> Counters:
    engine = LocalEngine(threads=1)
    store = Store(table.uri, counters=engine.counters)
    manifest = load_newest(store)
    assert manifest is not None
    snapshot = Snapshot(store, manifest)
    tagged = create_index(manifest.options).tag(engine, engine.rows(asked), snapshot)
    engine.to_table(tagged)
    return engine.counters


def _keys(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {"id": [f"2024-05-{n // 100:04d}-{n % 100:02d}" for n in numbers], "value": numbers},
        schema=UNPARTITIONED,
    )


def test_time_ordered_keys_of_two_files_leave_two_files_and_read_two_key_columns(
    table_uri: str,
) -> None:
    table = metatable.create(table_uri, UNPARTITIONED, key="id", options={"file_rows": 100})
    table.insert(_keys(0, 5000))
    files = sorted(table.scan().files(), key=lambda file: _held(table, file)[0].as_py())
    assert len(files) == 50
    keys = pa.concat_arrays([_held(table, files[12]), _held(table, files[33])])
    cost = _tag_cost(table, pa.table({"id": keys}))
    assert cost["tag.files"] == 50
    assert cost["tag.files_after_ranges"] <= 2
    assert cost["tag.files_opened"] == 2
    assert cost["data.files_opened"] == 2
    assert cost["tag.false_positives"] == 0


def test_a_thousand_absent_keys_open_no_data_file(table_uri: str) -> None:
    table = make(table_uri, "metadata_bloom", "partition")
    table.insert(rows(0, 600, value=1))
    absent = rows(0, 1000)
    odd = pa.array([f"k{number:06d}-{number * 7919:x}" for number in range(1000)])
    cost = _tag_cost(table, absent.set_column(0, "id", odd))
    assert cost["tag.files_after_ranges"] > 0  # the ranges alone do not answer
    assert cost["tag.files_after_filters"] == 0
    assert cost["data.files_opened"] == 0


def test_a_record_lookup_opens_no_data_file_and_each_block_once(table_uri: str) -> None:
    table = make(table_uri, "record", "global", hfile_block_bytes=1024)
    table.insert(rows(0, 600))
    cache.clear()
    cost = _tag_cost(table, rows(0, 600))
    [ref] = Snapshot(Store(table.uri), load_newest(Store(table.uri))).refs("record_index")  # type: ignore[arg-type]
    blocks = -(-600 * (16 + 4 + 21) // 1024)
    assert ref.entry_count == 600
    assert cost["data.files_opened"] == 0
    assert cost["hfile.blocks"] <= 2 * blocks + 4  # its blocks, and the few of `files`
    again = _tag_cost(table, rows(0, 600))
    assert again["hfile.blocks"] == 0  # decoded once, then kept


MANY_GROUPS = 1000 if LONG else 100


@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bloom"])
def test_a_commit_costs_the_same_beside_few_and_beside_many_file_groups(
    table_uri: str, index: str
) -> None:
    costs = []
    for groups in (10, MANY_GROUPS):
        table = metatable.create(
            f"{table_uri}-{groups}",
            pa.schema([("id", pa.string()), ("part", pa.string()), ("value", pa.int64())]),
            key="id",
            partition_by="part",
            index=index,
            options={"key_scope": "partition"},
            storage_options={"durable": "false"},
        )
        numbers = range(groups * 2)
        table.insert(_parts(numbers, groups))
        for value in (1, 2):  # the first warms the caches: what is immutable is read once
            engine = LocalEngine(threads=1)
            store = Store(table.uri, {"durable": "false"})
            write(store, engine, _parts(range(4), groups, value), UPSERT)
        costs.append(engine.counters)
    few, many = costs
    for name in ("store.requests", "store.reads", "store.writes", "store.lists", "hfile.blocks"):
        assert few[name] == many[name], name
    assert many["store.bytes_written"] == pytest.approx(few["store.bytes_written"], rel=0.02)
    assert many["store.bytes_read"] == pytest.approx(few["store.bytes_read"], rel=0.02)


def _held(table: metatable.Table, file: DataFile) -> pa.Array:
    keys = read_record_keys(Store(table.uri), file)[0]
    return keys.take(pc.array_sort_indices(keys))


def _parts(numbers: range, groups: int, value: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{number:08d}" for number in numbers],
            "part": [f"p{number % min(groups, 1000):04d}" for number in numbers],
            "value": [value] * len(numbers),
        }
    )


def test_explain_tells_the_files_of_each_level_and_the_cost(table_uri: str) -> None:
    table = make(table_uri, "metadata_bloom", "partition")
    table.insert(rows(0, 600))
    told = table.explain(rows(590, 610))
    assert (told.keys, told.found) == (20, 10)
    levels = list(told.files.values())
    assert list(told.files) == ["in the partitions", "after key ranges", "after filters", "opened"]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == 30
    assert levels[-1] == told.counters["data.files_opened"] <= 6
    assert told.requests == told.counters["store.requests"] > 0
    assert "after key ranges" in repr(told)
    assert told.to_dict()["files"] == dict(told.files)


@pytest.mark.parametrize("late", [False, True])
def test_ranges_of_many_partitions_are_read_together(
    table_uri: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string())])
    table = metatable.create(table_uri, schema, key="id", partition_by="part")
    numbers = range(60)
    given = {"id": [f"k{n:02}" for n in numbers], "part": [f"p{n % 20}" for n in numbers]}
    table.insert(pa.table(given, schema))
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    store = Store(table.uri)
    manifest = load_newest(store)
    assert manifest is not None
    view = Snapshot(store, manifest).since(1) if late else Snapshot(store, manifest)
    asked, read = [], metadata_bloom._ranges

    def noting(view: TableView, path: str | None) -> Ranges:
        asked.append(path)
        return read(view, path)

    monkeypatch.setattr(metadata_bloom, "_ranges", noting)
    source, paths = MetadataSource(late), [f"part=p{n}" for n in range(25)]
    source.fetch(view, paths)
    found = [source.ranges(view, path) for path in paths]
    assert asked == [None]
    for path, one in zip(paths, found, strict=True):
        alone = read(view, path)
        assert one.files.paths.equals(alone.files.paths)
        assert (one.minimum, one.maximum) == (alone.minimum, alone.maximum)
    assert sum(len(one.files) for one in found) == 20


@pytest.mark.parametrize(("together", "asked"), [(4096, [far.DAYS]), (10, [10, 10, 4])])
def test_filters_of_many_partitions_are_asked_together(
    together: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metatable.open(far.made(far.in_memory(), "cow", "metadata_bloom"))
    monkeypatch.setattr(bloom_lookup, "FILES_TOGETHER", together)
    told, filters = list[int](), Snapshot.filters

    def noting(view: Snapshot, slices: Sequence[FileSlice]) -> Iterator[tuple[int, Filter]]:
        told.append(len(slices))
        return filters(view, slices)

    monkeypatch.setattr(Snapshot, "filters", noting)
    cache.clear()
    keys = far.rows(0, 800, 0).select(["id", "day"])  # a half of them are not there
    found = table.tag_locations(keys)
    assert told == asked
    paths = pc.struct_field(found["_location"].combine_chunks(), "partition_path")
    there = pc.binary_join_element_wise("day=", keys["day"].combine_chunks(), "")
    assert paths.slice(0, 400).equals(there.slice(0, 400))
    assert paths.slice(400).null_count == 400
