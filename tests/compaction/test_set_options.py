"""Other options make other files from now on; what is there is read as before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import AddColumn, DropColumn, Table, UsageError
from metatable.compaction.service import execute
from metatable.compaction.set_options import SetOptions
from metatable.data.columns.schema_changes import ColumnChange
from metatable.engine.local import LocalEngine
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from metatable.write.alter import alter
from metatable.write.commit_pass import write
from tests.faults import once, watched
from tests.index.test_buckets import FAST
from tests.model import SCHEMA, Model, Row, arrow, check, data_files

GIVEN = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "record"}


def rows(first: int, end: int, ts: int = 0) -> list[Row]:
    return [{"id": f"k{at:03d}", "city": "ny", "v": end - at, "ts": ts} for at in range(first, end)]


def filled(uri: str, **changed: Any) -> tuple[Table, Model]:
    table = metatable.create(uri, SCHEMA, **(GIVEN | changed), storage_options=FAST)
    model = Model(is_global=table.options.is_global, ordering=True)
    table.insert(arrow(rows(0, 40)))
    model.upsert(rows(0, 40))
    return table, model


def codecs(table: Table) -> set[str]:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    refs = Snapshot(store, newest).refs("record_index")
    opened = [HFileReader.open(store, ref.path) for ref in refs]
    return {one.trailer.compression_codec.name.lower() for one in opened}


def test_files_are_made_by_the_new_options_and_old_ones_are_read(table_uri: str) -> None:
    table, model = filled(table_uri)
    before = set(data_files(table_uri))
    done = table.set_options(
        {"file_rows": 10, "small_file_bytes": 0, "parquet_codec": "snappy", "cluster_by": "v"}
    )
    assert done.reason.startswith("file_rows: 500000 -> 10")
    more = rows(40, 80)
    table.insert(arrow(more))
    model.upsert(more)
    came = sorted(set(data_files(table_uri)) - before)
    assert len(came) == 4
    assert {pq.ParquetFile(one).metadata.row_group(0).column(5).compression for one in came} == {
        "SNAPPY"
    }
    bounds = [pq.read_table(one)["v"].to_pylist() for one in came]
    assert all(max(one) - min(one) == 9 for one in bounds), "cut by v"
    news = rows(0, 60, ts=1)
    table.upsert(arrow(news))
    model.upsert(news)
    check(table, model)
    assert table.verify().findings == ()


def test_index_files_are_of_another_codec_from_then_on(table_uri: str) -> None:
    table, model = filled(table_uri)
    assert codecs(table) == {"zstd"}
    table.set_options({"hfile_codecs": {"record_index": "none"}})
    assert codecs(table) == {"zstd"}
    table.insert(arrow(rows(40, 80)))
    model.upsert(rows(40, 80))
    assert codecs(table) == {"zstd", "none"}
    table.compact(major=True)
    assert codecs(table) == {"none"}
    check(table, model)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"key_scope": "partition"}, "key_scope"),
        ({"index": "bloom"}, "index"),
        ({"buckets": {"files": 2}}, "buckets"),
        ({"lease_seconds": 1.0}, "lease_seconds"),
        ({"nonsense": 1}, "nonsense"),
        ({"file_rows": 0}, "file_rows"),
        ({"file_rows": "many"}, "file_rows"),
        ({"hfile_codec": "lz4"}, "hfile_codec"),
        ({"hfile_codecs": {"nowhere": "gz"}}, "nowhere"),
        ({"cluster_by": ["w"]}, "w"),
    ],
    ids=str,
)
def test_what_stored_things_go_by_and_nonsense_is_refused(
    table_uri: str, options: Mapping[str, Any], named: str
) -> None:
    table, _ = filled(table_uri)
    with pytest.raises(UsageError, match=named):
        table.set_options(options)
    assert table.version == 2


def test_a_bucket_stays_one_file_in_the_order_of_its_keys(table_uri: str) -> None:
    table, _ = filled(table_uri, index="bucket")
    for given in ({"file_rows": 5}, {"cluster_by": ["v"]}):
        with pytest.raises(UsageError, match="contradict"):
            table.set_options(given)
    assert table.set_options({"upkeep_files": 3}).version == 3


def test_the_same_again_and_a_dry_run_make_no_version(table_uri: str) -> None:
    table, _ = filled(table_uri)
    before = sorted(Path(table_uri).rglob("*"))
    assert table.set_options({"file_rows": 500_000}).reason.startswith("nothing to set")
    told = table.set_options({"file_rows": 9}, dry_run=True)
    assert told.reason == "dry run, nothing was done: file_rows: 500000 -> 9"
    assert sorted(Path(table_uri).rglob("*")) == before


def test_history_tells_what_was_set(table_uri: str) -> None:
    table, _ = filled(table_uri)
    table.set_options({"cluster_by": ["v", "ts"]})
    [told] = table.history(limit=1)
    assert (told.operation, told.note) == ("set_options", {"cluster_by": "none -> v, ts"})


def test_going_back_goes_back_to_rows_and_leaves_options(table_uri: str) -> None:
    table, model = filled(table_uri)
    table.insert(arrow(rows(40, 50)))
    table.set_options({"file_rows": 9})
    table.rollback()
    assert table.options.file_rows == 9
    check(table, model)
    table.alter(AddColumn("w", SCHEMA.field("v").type))
    table.set_options({"cluster_by": ["w"], "file_rows": 8})
    table.restore(version=2)
    assert (table.options.file_rows, table.options.cluster_by) == (8, ())
    check(table, model)


def test_going_back_to_another_column_of_the_name_files_are_not_cut_by_it(table_uri: str) -> None:
    table, model = filled(table_uri)
    version = table.alter(AddColumn("w", pa.list_(pa.string()))).version
    table.alter(DropColumn("w"))
    table.alter(AddColumn("w", pa.int64()))
    table.set_options({"cluster_by": "w", "file_rows": 8})
    table.restore(version=version)
    assert (table.options.file_rows, table.options.cluster_by) == (8, ())
    more = rows(40, 60)
    table.insert(arrow(more))
    model.upsert(more)
    assert table.scan(SCHEMA.names).to_arrow().num_rows == len(model.rows)
    assert table.describe().depths == {}


def test_who_began_before_is_not_in_the_way(table_uri: str) -> None:
    table, model = filled(table_uri)
    more = rows(30, 60, ts=1)
    sleep, _ = once("/manifest/0", lambda: table.set_options({"file_rows": 9}))
    store, _ = watched(table_uri, before=sleep)
    assert write(store, LocalEngine(1), arrow(more), "upsert").attempts == 1
    model.upsert(more)
    assert table.options.file_rows == 9
    check(table, model)


def test_of_two_who_set_options_nothing_is_lost(table_uri: str) -> None:
    table, _ = filled(table_uri)
    sleep, _ = once("/manifest/0", lambda: table.set_options({"file_rows": 9}))
    store, _ = watched(table_uri, before=sleep)
    execute(store, LocalEngine(1), SetOptions({"upkeep_files": 3}))
    assert (table.options.file_rows, table.options.upkeep_files) == (9, 3)


def test_a_column_is_not_dropped_that_files_are_cut_by_since(table_uri: str) -> None:
    table, _ = filled(table_uri)
    sleep, _ = once("/manifest/0", lambda: table.set_options({"cluster_by": ["v"]}))
    store, _ = watched(table_uri, before=sleep)
    dropping: list[ColumnChange] = [DropColumn("v")]
    with pytest.raises(UsageError, match="clustering"):
        alter(store, LocalEngine(1), dropping, {})
    assert "v" in table.schema.names
