"""Simple buckets: Hudi's numbers, one file group each, nothing looked up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import Table, UsageError
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import execute
from metatable.data.keys.key_texts import parts_of
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.index.bucket import simple
from metatable.index.bucket.index import bucket_index
from metatable.index.bucket.simple import bucket_numbers, file_id_of
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query import bucket_spread
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import watched
from tests.model import SCHEMA, Model, Row, arrow, check, check_tags, scanned

FAST = {"durable": "false"}
KEYS = ["", "a", "abc", "k000000", "f\u00fcr", "\U0001f600", "x" * 500]


def made(uri: str, count: int = 4, **changed: Any) -> Table:
    given = {"key": "id", "partition_by": "city", "ordering": "ts"} | changed
    options = {"bucket_count": count, **given.pop("options", {})}
    return metatable.create(
        uri, SCHEMA, index="bucket", options=options, storage_options=FAST, **given
    )


def rows(first: int, last: int, v: int = 0) -> list[Row]:
    return [
        {"id": f"k{number:03}", "city": ("ny", "sf")[number % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


# Which bucket


def java_list_hash(words: list[str]) -> int:
    """`List.hashCode`, as its documentation has it, in plain numbers."""
    total = 1
    for word in words:
        units = np.frombuffer(word.encode("utf-16-le"), "<u2").tolist()
        value = 0
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
        total = (31 * total + value) & 0xFFFFFFFF
    return total


@pytest.mark.parametrize("count", [1, 4, 7, 256, 10**8])
def test_the_number_of_a_bucket_is_java_s(count: int) -> None:
    told = bucket_numbers(pa.array(KEYS), ["id"], count).tolist()
    assert told == [(java_list_hash([key]) & 0x7FFFFFFF) % count for key in KEYS]
    pairs = [(one, other) for one in KEYS[1:] for other in ("b", ",", "c:d", ",a:", "\u00e9")]
    keys = pa.array([f"a:{one},b:{other}" for one, other in pairs])
    told = bucket_numbers(keys, ["a", "b"], count).tolist()
    assert told == [(java_list_hash(list(pair)) & 0x7FFFFFFF) % count for pair in pairs]


def test_a_key_of_three_columns_is_taken_apart() -> None:
    parts = parts_of(pa.array(["a:1,b:x,y,c:2", "a:\u00fc,b:,c::"]), ["a", "b", "c"])
    assert [part.to_pylist() for part in parts] == [["1", "\u00fc"], ["x,y", ""], ["2", ":"]]


def test_what_is_no_key_of_several_columns_is_taken_apart_as_far_as_it_goes() -> None:
    parts = parts_of(pa.array(["k1", "", "a:1,c:2", "a:1,b:2,c:3"]).slice(0), ["a", "b", "c"])
    told = [["", "", "1,c:2", "1"], ["", "", "", "2"], ["", "", "", "3"]]
    assert [part.to_pylist() for part in parts] == told


def test_a_record_key_that_is_none_of_the_table_is_not_there(table_uri: str) -> None:
    table = made(table_uri, key=["id", "v"])
    table.insert(arrow(rows(0, 4)))
    asked = {"_hoodie_record_key": ["k001", "id:k001,v:0", "id:k001"]}
    asked["_hoodie_partition_path"] = ["city=sf"] * 3
    found = table.filter_exists(pa.table(asked))
    assert found["_hoodie_record_key"].to_pylist() == ["id:k001,v:0"]


def test_hudi_has_put_every_key_into_the_bucket_that_we_say(interop: Path) -> None:
    told = pq.read_table(interop / "hudi-spark" / "mor_bucket_simple.expected.parquet")
    ours = bucket_numbers(told["_hoodie_record_key"].combine_chunks(), ["key"], 4)
    theirs = [int(name[:8]) for name in told["_hoodie_file_name"].to_pylist()]
    assert len(theirs) > 1000
    assert ours.tolist() == theirs


# One file group a bucket


def test_a_bucket_is_one_file_group_however_many_commits_fill_it(table_uri: str) -> None:
    table, model = made(table_uri), Model(is_global=False, ordering=True)
    for number in range(3):
        given = rows(number * 30, number * 30 + 60, number)
        table.upsert(arrow(given))
        model.upsert(given)
    groups = Counter((one.partition_path, one.file_id) for one in table.files())
    assert set(groups.values()) == {1}
    ids = {file_id_of(bucket) for bucket in range(4)}
    assert set(groups) == {(f"city={city}", one) for city in ("ny", "sf") for one in ids}
    check(table, model, rows(0, 150))
    held = table.scan(["id"]).to_arrow(), table.tag_locations(table.scan().to_arrow())
    found = [place["file_id"] for place in held[1]["_location"].to_pylist()]
    keys = held[1]["id"].combine_chunks()
    assert found == [file_id_of(bucket) for bucket in bucket_numbers(keys, ["id"], 4).tolist()]


def test_nothing_is_read_of_data_files_or_index_to_place_rows(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 50)))
    told = table.explain(arrow(rows(0, 50)).select(["id", "city"]))
    assert told.files == {}
    assert told.counters.get("data.files_opened", 0) == 0
    assert told.keys == told.found == told.counters["tag.keys"] == 50
    opened = metatable.open(table_uri, storage_options=FAST)
    before = dict(opened.counters)
    opened.tag_locations(arrow(rows(0, 50)))
    cost = opened.counters.since(before)
    assert "data.files_opened" not in cost
    assert cost["store.requests"] <= 6, cost  # hint, root, page, the entries of `files`


def test_a_task_tells_of_each_bucket_once(table_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_spread, "BATCH_KEYS", 5)
    table = made(table_uri)
    table.insert(arrow(rows(0, 50)))
    tagged = table.tag_locations(arrow(rows(0, 50))).to_batches(max_chunksize=5)
    store = Store(table_uri)
    snapshot = Snapshot(store, newest_of(store))
    index = bucket_index(create_index(snapshot.options))
    assert index is not None
    told = [*bucket_spread.count_placed(index, snapshot, iter(tagged), Counters())]
    counted = [one for batch in told for one in batch.to_pylist()]
    assert len({one["file_id"] for one in counted}) == 4
    assert len(counted) == len({(one["partition_path"], one["file_id"]) for one in counted})
    assert sum(one["keys"] for one in counted) == sum(one["found"] for one in counted) == 50


def test_inserts_and_deletes_look_whether_the_keys_are_there(table_uri: str) -> None:
    table, model = made(table_uri), Model(is_global=False, ordering=True)
    assert table.delete(arrow(rows(0, 3)).select(["id", "city"])).absent == 3
    assert table.version == 1
    first = rows(0, 20)
    table.insert(arrow(first))
    model.upsert(first)
    with pytest.raises(UsageError, match=r"insert of keys that the table holds.*k019"):
        table.insert(arrow(rows(19, 30)))
    more = rows(20, 30)
    assert table.insert(arrow(more)).inserted == 10
    model.upsert(more)
    gone = table.delete(arrow(rows(25, 40)).select(["id", "city"]))
    assert (gone.deleted, gone.absent) == (5, 10)
    model.delete(rows(25, 40))
    nothing = table.delete(arrow(rows(25, 40)).select(["id", "city"]))
    assert (nothing.version, nothing.absent) == (gone.version, 15)
    told = table.upsert(arrow(rows(20, 35, 1)))
    assert (told.inserted, told.updated, told.index_misses) == (10, 5, 0)
    model.upsert(rows(20, 35, 1))
    check(table, model, rows(0, 60))


def test_keys_asked_for_twice_are_answered_twice(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 4)))
    asked = arrow([*rows(2, 6), *rows(3, 5), *rows(3, 4)])
    found = table.filter_exists(asked)["id"].to_pylist()
    assert found == ["k002", "k003", "k003", "k003"]
    assert sorted(table.read_keys(asked)["id"].to_pylist()) == ["k002", "k003"]


def test_a_table_without_partitions_and_with_a_key_of_two_columns(table_uri: str) -> None:
    table = made(table_uri, key=["id", "v"], partition_by=(), ordering=None)
    given = arrow([*rows(0, 40, 1), *rows(0, 40, 2)])
    assert table.insert(given).inserted == 80
    assert {one.partition_path for one in table.files()} == {""}
    assert len(table.files()) == 4
    assert table.filter_exists(given).equals(given)
    assert table.filter_exists(arrow(rows(0, 40, 3))).num_rows == 0
    assert table.verify().findings == ()


# Two writers


def test_of_two_who_open_a_bucket_one_is_first_and_the_other_tries_again(table_uri: str) -> None:
    made(table_uri, count=1)
    table, model = metatable.open(table_uri, storage_options=FAST), Model(False, True)
    slept: list[Any] = []

    def sleep(verb: str, path: str) -> None:
        if not slept and verb == "create" and "/manifest/0" in path:
            slept.append(table.insert(arrow(rows(0, 2))))

    store, _ = watched(table_uri, before=sleep)
    told = write(store, LocalEngine(1), arrow(rows(2, 6)), "insert")
    assert (told.attempts, told.inserted, told.version) == (2, 4, 3)
    assert len(table.files()) == 2
    model.upsert(rows(0, 6))
    check(table, model, rows(0, 10))


def test_of_two_who_insert_one_key_the_second_is_refused(table_uri: str) -> None:
    table = made(table_uri, count=1)
    slept: list[Any] = []

    def sleep(verb: str, path: str) -> None:
        if not slept and verb == "create" and "/manifest/0" in path:
            slept.append(table.insert(arrow(rows(0, 2))))

    store, _ = watched(table_uri, before=sleep)
    with pytest.raises(UsageError, match="insert of keys that the table holds"):
        write(store, LocalEngine(1), arrow(rows(0, 4)), "insert")
    assert len(scanned(table)) == 2


def test_compaction_and_rollback_leave_the_buckets_as_they_are(table_uri: str) -> None:
    table, model = made(table_uri), Model(is_global=False, ordering=True)
    for given in (rows(0, 40), rows(20, 60, 1)):
        table.upsert(arrow(given))
        model.upsert(given)
    execute(Store(table_uri, FAST), LocalEngine(1), Compact(major=True))
    check(table, model, rows(0, 80))
    last = table.upsert(arrow(rows(0, 80, 2)))
    assert last.instant is not None
    table.rollback(last.instant)
    check(table, model, rows(0, 80))


def test_what_a_view_of_later_commits_holds_is_read_in_the_files(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 40)))
    version = table.version
    table.upsert(arrow(rows(100, 101)))
    store = Store(table_uri, FAST)
    index = metatable.index.create_index(table.options)
    from metatable.metadata.manifests.versions import load_newest  # noqa: PLC0415

    newest = load_newest(store)
    assert newest is not None
    since = Snapshot(store, newest).since(version)
    asked = pa.array(["k100", "k000", "k999"]), pa.array(["city=ny", "city=ny", "city=ny"])
    bucket = bucket_numbers(asked[0], ["id"], 4).tolist()
    assert index.holds(since, *asked).tolist() == [True, bucket[0] == bucket[1], False]


def test_verify_finds_rows_in_a_group_where_their_index_would_not_look(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(table_uri)
    with monkeypatch.context() as patch:
        patch.setattr(simple, "bucket_numbers", lambda keys, *_: np.ones(len(keys), np.int64))
        table.insert(arrow(rows(0, 20)))
        assert table.verify().findings == ()
    findings = table.verify().findings
    assert len(findings) == len(table.files()) == 2
    assert all("placement" in str(one) and "to another group" in str(one) for one in findings)


# What contradicts one file group a bucket


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"options": {"file_rows": 1000}}, "file_rows"),
        ({"options": {"file_bytes": 1000}}, "file_bytes"),
        ({"options": {"small_file_bytes": 0}}, "small_file_bytes"),
        ({"options": {"key_scope": "global"}}, "key_scope"),
        ({"options": {"bucket_count": 0}}, "bucket_count"),
        ({"options": {"bucket_count": 10**8 + 1}}, "bucket_count"),
        ({"options": {"bucket_count": 4.0}}, "bucket_count"),
        ({"options": {"bucket_engine": "linear"}}, "bucket_engine"),
    ],
    ids=lambda one: next(iter(one["options"])) if isinstance(one, dict) else "",
)
def test_options_that_contradict_buckets_are_refused(
    table_uri: str, changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        made(table_uri, **changed)
    assert not Path(table_uri, ".hoodie").exists()


def test_a_global_scope_is_one_without_partitions(table_uri: str) -> None:
    table = made(table_uri, partition_by=(), options={"key_scope": "global"})
    model = Model(is_global=True, ordering=True)
    table.upsert(arrow(rows(0, 30)))
    model.upsert(rows(0, 30))
    assert {one.file_id for one in table.files()} <= {file_id_of(number) for number in range(4)}
    assert table.filter_exists(arrow(rows(20, 40))).num_rows == 10
    check_tags_of_whole_table(table, model)


def check_tags_of_whole_table(table: Table, model: Model) -> None:
    with pytest.MonkeyPatch.context():
        check_tags(table, model, rows(0, 40))
