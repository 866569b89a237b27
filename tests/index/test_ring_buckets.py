"""Buckets that are ranges of hashes: what a table in them is, before anybody resizes one."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable import Table, UsageError
from metatable.index import create_index
from metatable.index.bucket.directory import Directory
from metatable.index.bucket.ring import Ring, hashes_of
from metatable.metadata.manifests.manifest import WRITER_FORMAT
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import BucketSpread
from metatable.storage import cache
from metatable.storage.store import Store
from tests.index.rows import RINGS
from tests.index.test_buckets import FAST, rows
from tests.model import SCHEMA, Model, arrow, check, read_by_hudi, scanned

KINDS = {"consistent_hashing": Ring, "extendible_hashing": Directory}


def made(uri: str, engine: str, count: int = 4, **changed: Any) -> Table:
    given = {"key": "id", "partition_by": "city", "ordering": "ts"} | changed
    options = {"bucket_count": count, "bucket_engine": engine, **given.pop("options", {})}
    return metatable.create(
        uri, SCHEMA, index="bucket", options=options, storage_options=FAST, **given
    )


@pytest.mark.parametrize("engine", RINGS)
def test_a_new_partition_has_the_groups_of_its_first_ring(table_uri: str, engine: str) -> None:
    """RFC-42's own: a new partition has the first ring, of which nothing is stored, and each of its
    buckets is one file group under the id that the ring tells."""
    table, model = made(table_uri, engine), Model(is_global=False, ordering=True)
    for number in range(3):
        given = rows(number * 30, number * 30 + 60, number)
        table.upsert(arrow(given))
        model.upsert(given)
    groups = {(one.partition_path, one.file_id) for one in table.files()}
    assert len(groups) == len(table.files()) == 8
    rings = {path: KINDS[engine].first(path, 4) for path in ("city=ny", "city=sf")}
    assert groups == {(path, one.file_id) for path, ring in rings.items() for one in ring.nodes}
    assert "hashing_metadata" not in table.describe().metadata
    check(table, model, rows(0, 150))
    keys = table.scan(["id"]).to_arrow()["id"].combine_chunks()
    tagged = table.tag_locations(table.scan().to_arrow())["_location"].to_pylist()
    places = rings["city=ny"].place(hashes_of(keys, ["id"])).tolist()
    for place, one in zip(places, tagged, strict=True):
        assert one["file_id"] == rings[one["partition_path"]].nodes[place].file_id
    assert read_by_hudi(table.uri) == scanned(table)


@pytest.mark.parametrize("engine", RINGS)
def test_a_table_without_partitions_and_with_a_key_of_two_columns(
    table_uri: str, engine: str
) -> None:
    table = made(table_uri, engine, key=["id", "v"], partition_by=(), ordering=None)
    given = arrow([*rows(0, 40, 1), *rows(0, 40, 2)])
    assert table.insert(given).inserted == 80
    ids = {(one.partition_path, one.file_id) for one in table.files()}
    assert ids == {("", one.file_id) for one in KINDS[engine].first("", 4).nodes}
    assert table.filter_exists(given).equals(given)
    assert table.filter_exists(arrow(rows(0, 40, 3))).num_rows == 0
    assert table.verify().findings == ()


def test_a_ring_that_nobody_has_resized_costs_no_request(table_uri: str) -> None:
    made(table_uri, "consistent_hashing").insert(arrow(rows(0, 50)))
    opened = metatable.open(table_uri, storage_options=FAST)
    cache.clear()
    before = dict(opened.counters)
    opened.tag_locations(arrow(rows(0, 50)))
    cost = opened.counters.since(before)
    assert "data.files_opened" not in cost
    assert cost["store.requests"] <= 6, cost  # hint, root, page, the entries of `files`


@pytest.mark.parametrize("engine", ["simple", *RINGS])
@pytest.mark.usefixtures("pages_as_files")
def test_only_tables_with_rings_ask_for_who_knows_them(table_uri: str, engine: str) -> None:
    table = made(table_uri, engine)
    table.insert(arrow(rows(0, 4)))
    newest = load_newest(Store(table_uri, FAST))
    assert newest is not None
    assert newest.format == {"reader": 2 if engine == "simple" else 7, "writer": WRITER_FORMAT}
    assert ("hashing_metadata" in newest.options.buckets) == (engine != "simple")


@pytest.mark.parametrize(
    ("engine", "options", "told"),
    [
        ("extendible_hashing", {"bucket_count": 3}, "a power of two"),
        ("extendible_hashing", {"bucket_count": 1 << 18}, "a power of two"),
        ("consistent_hashing", {"bucket_count": (1 << 17) + 1}, "bucket_count"),
        ("consistent_hashing", {"bucket_count": 0}, "bucket_count"),
        ("consistent_hashing", {"file_rows": 1000}, "file_rows"),
        ("consistent_hashing", {"key_scope": "global"}, "key_scope"),
        ("simple", {"buckets": {"hashing_metadata": 2}}, "unknown metadata partition"),
    ],
)
def test_options_that_contradict_rings_are_refused(
    table_uri: str, engine: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        made(table_uri, engine, options=options)
    assert not Path(table_uri, ".hoodie").exists()


@pytest.mark.parametrize("index", ["record", "bucket"])
def test_a_table_does_not_change_to_rings_and_changes_from_them(table_uri: str, index: str) -> None:
    """Ids that a resize took away are hidden from Hudi's readers for ever: they may not come
    again."""
    metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"key_scope": "partition"},
        storage_options=FAST,
    )
    chosen = {"bucket_engine": "consistent_hashing"}
    with pytest.raises(UsageError, match="come with the table"):
        metatable.adopt(table_uri, index="bucket", options=chosen, storage_options=FAST)
    other = made(f"{table_uri}-rings", "consistent_hashing")
    other.insert(arrow(rows(0, 20)))
    assert metatable.adopt(other.uri, index="bucket", storage_options=FAST).version == 2
    metatable.adopt(other.uri, index="record", storage_options=FAST)
    assert other.filter_exists(arrow(rows(0, 30))).num_rows == 20
    assert other.verify().findings == ()


def test_partitions_are_overwritten_and_go_bucket_by_bucket(table_uri: str) -> None:
    """Their groups stay, for their ids are those of the ring."""
    table, model = made(table_uri, "consistent_hashing"), Model(is_global=False, ordering=True)
    table.insert(arrow(rows(0, 40)))
    model.upsert(rows(0, 40))
    groups = {(one.partition_path, one.file_id) for one in table.files()}
    new = [row for row in rows(30, 50, 1) if row["city"] == "ny"]
    table.insert_overwrite(arrow(new))
    model.delete([row for row in rows(0, 40) if row["city"] == "ny"])
    model.upsert(new)
    check(table, model, rows(0, 60))
    table.delete_partition("city=sf")
    model.delete([row for row in rows(0, 60) if row["city"] == "sf"])
    check(table, model, rows(0, 60))
    assert {(one.partition_path, one.file_id) for one in table.files()} == groups
    assert read_by_hudi(table.uri) == scanned(table)


def test_keys_are_placed_alike_however_their_partitions_are_mixed(table_uri: str) -> None:
    table = made(table_uri, "extendible_hashing", 8)
    given = arrow(rows(0, 60))
    table.insert(given)
    mixed = given.take(pa.array([*range(59, -1, -2), *range(0, 60, 2)]))
    told = table.tag_locations(mixed)
    by_key = dict(zip(told["id"].to_pylist(), told["_location"].to_pylist(), strict=True))
    again = table.tag_locations(given)
    assert again["_location"].to_pylist() == [by_key[key] for key in given["id"].to_pylist()]


@pytest.mark.parametrize("engine", ["simple", *RINGS])
def test_explain_tells_how_keys_spread(table_uri: str, engine: str) -> None:
    table = made(table_uri, engine)
    table.insert(arrow(rows(0, 6)))
    if engine != "simple":
        table.resize_buckets(split_above=1, merge_below=0, most_partitions=1)
    asked = arrow([*rows(0, 40), *rows(4, 5) * 20])
    newest = load_newest(Store(table_uri, FAST))
    assert newest is not None
    placement = create_index(table.options).placement(Snapshot(Store(table_uri, FAST), newest))
    assert placement is not None
    paths = pc.binary_join_element_wise("city", asked["city"], "=").combine_chunks()
    _, places = placement.place(asked["id"].combine_chunks(), paths)
    counted = Counter(zip(paths.to_pylist(), places.to_pylist(), strict=True))
    files = {(one.partition_path, one.file_id): one.size_bytes for one in table.files()}
    told = table.explain(asked)
    assert told.keys == 60
    spread = told.buckets
    assert spread is not None
    (path, file_id), most = counted.most_common(1)[0]
    assert spread == BucketSpread(
        partitions=2,
        buckets=8 if engine == "simple" else table.buckets().num_rows,
        touched=len(counted),
        without_files=len(counted.keys() - files.keys()),
        bytes=sum(size for group, size in files.items() if group in counted),
        fullest_keys=most,
        skew=round(most * len(counted) / 60, 2),
        fullest=spread.fullest,
        fullest_bytes=files[path, file_id],
    )
    if engine == "simple":
        assert spread.fullest == f"{path} bucket {int(file_id[:8])}"
    else:
        [held] = [one for one in table.buckets(path).to_pylist() if one["file_id"] == file_id]
        assert spread.fullest == f"{path} hashes ({held['after']}, {held['upto']}]"
    assert re.search(rf"buckets touched +{len(counted)}  ", repr(told))
    assert repr(told).splitlines()[-1].startswith(f"  the fullest bucket: {spread.fullest}, ")
    assert table.explain(arrow([])).buckets is None
    assert json.loads(json.dumps(told.to_dict()))["buckets"]["touched"] == len(counted)
