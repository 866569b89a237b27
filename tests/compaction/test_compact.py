"""Compaction: fewer HFiles, the same answers, one version."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metatable import Table, UsageError
from metatable.compaction.merging.compact import Compact
from metatable.compaction.merging.compaction_plan import CompactionPlan
from metatable.compaction.service import execute
from metatable.data.bucket_functions import HASH_SPACE
from metatable.engine.local import LocalEngine
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.pages import HFileRef, border
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition, index_keys
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from tests.compaction.shrunk_tables import answers, grown, make, rows, snapshot
from tests.faults import watched

pytestmark = pytest.mark.in_turn("table")


def refs(table: Table, partition: str) -> list[HFileRef]:
    return snapshot(table).refs(partition)


def in_buckets(table: Table, ref: HFileRef) -> tuple[int, int]:
    """The buckets [lo, hi) that a reference stands for: there are 8, or, of statistics, others."""
    count = table.options.buckets[ref.path.split("/")[-2]]
    found = [number for number in range(count) if ref.covers(*bucket(count, number))]
    assert (ref.lo, ref.hi) == (bucket(count, found[0])[0], bucket(count, found[-1])[1])
    return found[0], found[-1] + 1


def bucket(count: int, number: int) -> tuple[int, int]:
    return border(HASH_SPACE, count, number), border(HASH_SPACE, count, number + 1)


def partition_of(table: Table, name: str) -> MetadataPartition:
    kinds = {one.name: one for one in (ColumnStatsPartition, RecordIndexPartition)}
    return kinds[name](table.options)


def live(table: Table, partition: MetadataPartition) -> pa.Table:
    return snapshot(table).scan(partition).read_all()


@pytest.fixture(params=["record", "metadata_bloom"])
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    return grown(table_uri, request.param)


@pytest.mark.parametrize("major", [True, False])
def test_compaction_leaves_fewer_hfiles_and_the_same_answers(table: Table, major: bool) -> None:
    before = answers(table)
    result = table.compact(major=major)
    assert result.files_after < result.files_before
    names = table.describe().metadata
    assert result.files_after == sum(one["hfiles"] for one in names.values())
    after = answers(table)
    assert after[0].equals(before[0])
    assert after[1].equals(before[1])
    assert table.verify().findings == ()


def test_compaction_is_one_version_and_no_commit_of_hudi(table: Table) -> None:
    version, commits = table.version, [one.instant for one in table.history() if one.instant]
    result = table.compact(major=True)
    assert result.version == table.version == version + 1
    newest = table.history()[0]
    assert (newest.operation, newest.instant) == ("compact", "")
    assert [one.instant for one in table.history() if one.instant] == commits


def test_compaction_deletes_nothing_so_older_versions_answer_as_before(table: Table) -> None:
    version, before = table.version, answers(table)
    files = {one.path for one in Store(table.uri).list(".hoodie/metatable", recursive=True)}
    table.compact(major=True)
    left = {one.path for one in Store(table.uri).list(".hoodie/metatable", recursive=True)}
    assert files <= left
    cache.clear()
    asked = before[0].select(["id", "city"])
    assert table.tag_locations(asked, version=version).equals(before[0])


@pytest.mark.parametrize("name", ["record_index", "column_stats"])
def test_tombstones_stay_as_long_as_an_older_file_is_left(table_uri: str, name: str) -> None:
    def told() -> tuple[int, bool]:
        one = table.describe().metadata[name]
        return one["hfiles"], one["tombstones"] > 0

    table = grown(table_uri, "record")
    assert told() == (5, True)
    table.compact(major=False)
    left = {"record_index": (2, True), "column_stats": (1, False)}  # the oldest is large, or not
    assert told() == left[name]
    table.compact(major=True)
    assert told() == (1, False)
    assert table.verify().findings == ()


def test_minor_compaction_leaves_a_large_old_file_alone(table_uri: str) -> None:
    table = grown(table_uri, "record")
    large = refs(table, "record_index")[-1]
    assert large.entry_count == 1500
    table.compact(major=False)
    left = refs(table, "record_index")
    assert left[-1] == large
    assert [ref.path for ref in left[:-1]] != []
    assert len(left) == 2
    assert left[0].sequence == table.version - 1, "the highest sequence of what was merged"
    assert table.verify().findings == ()


def test_nothing_is_published_where_nothing_is_worth_merging(table: Table) -> None:
    table.compact(major=True)
    version = table.version
    again = table.compact(major=True)
    assert (again.version, again.reason) == (version, "nothing to compact")
    assert table.compact().version == table.version == version


def test_a_lone_file_is_rewritten_by_major_compaction_only_for_its_tombstones(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record")
    table.insert(rows(0, 50))
    table.delete(rows(0, 10))
    with monkeypatch.context() as patch:  # as earlier writers left it
        plan = Compact(partitions=["record_index"]).plan(snapshot(table))
        assert isinstance(plan, CompactionPlan)
        kept = replace(plan, tasks=tuple(replace(one, keep_tombstones=True) for one in plan.tasks))
        patch.setattr(Compact, "plan", lambda self, newest: kept)
        table.compact()
    [lone] = refs(table, "record_index")
    assert lone.tombstone_count == 10
    table.compact(major=True, partitions=["record_index"])
    [rewritten] = refs(table, "record_index")
    assert (rewritten.entry_count, rewritten.tombstone_count) == (40, 0)
    table.delete(rows(10, 50))
    table.compact(major=True, partitions=["record_index"])
    assert refs(table, "record_index") == [], "nothing is left, so no file is"
    assert table.verify().findings == ()


def test_named_buckets_are_rewritten_and_old_files_keep_the_rest_of_their_range(
    table_uri: str,
) -> None:
    table = grown(table_uri, "record")
    before, old = answers(table), refs(table, "record_index")
    table.compact(major=True, partitions=["record_index"], buckets=[2, 3, 6])
    new = refs(table, "record_index")
    made = [ref for ref in new if ref.path not in {one.path for one in old}]
    assert sorted(in_buckets(table, ref) for ref in made) == [(2, 3), (3, 4), (6, 7)]
    for ref in old:
        rest = sorted(in_buckets(table, one) for one in new if one.path == ref.path)
        assert rest == [(0, 2), (4, 6), (7, 8)]
    assert answers(table)[0].equals(before[0])
    assert table.verify().findings == ()
    table.compact(major=True, partitions=["record_index"])
    assert {ref.path for ref in refs(table, "record_index")}.isdisjoint(ref.path for ref in new)
    assert answers(table)[0].equals(before[0])
    assert table.verify().findings == ()


@pytest.mark.parametrize("name", ["record_index", "column_stats"])
def test_an_output_holds_only_live_entries_of_its_buckets(table_uri: str, name: str) -> None:
    table = grown(table_uri, "record")
    partition = partition_of(table, name)
    before = live(table, partition)
    table.compact(major=True, partitions=[name], buckets=[1])
    [made] = [ref for ref in refs(table, name) if in_buckets(table, ref) == (1, 2)]
    held = pa.Table.from_batches(snapshot(table).reader(made).scan())
    [batch] = before.combine_chunks().to_batches()
    expected = pa.table(partition.live(batch, *partition.bucket(1)))
    assert held["key"].to_pylist() == expected["key"].to_pylist()
    assert made.entry_count == expected.num_rows > 0
    assert (made.first_key, made.last_key) == (held["key"][0].as_py(), held["key"][-1].as_py())


def test_compaction_of_a_bucket_reads_only_the_files_that_cover_it(table_uri: str) -> None:
    table = make(table_uri, "record", hfile_target_bytes=16 << 10)
    table.insert(rows(0, 3000))
    table.upsert(rows(2990, 3010, 1))
    old = refs(table, "record_index")
    covering = {ref.path for ref in old if ref.covers(*bucket(8, 5))}
    assert 1 < len(covering) < len(old), "the files must differ in what they cover"
    cache.clear()
    store, backend = watched(table_uri)
    service = Compact(major=True, partitions=["record_index"], buckets=[5])
    execute(store, LocalEngine(), service)
    read = {path for path in backend.paths("read", "read_whole") if path.endswith(".hfile")}
    assert read == covering
    assert not any(path.endswith(".parquet") for path in backend.paths("read", "read_whole"))
    assert table.verify().findings == ()


def test_an_old_file_does_not_answer_for_buckets_that_were_taken_from_it(table_uri: str) -> None:
    table = make(table_uri, "record")
    table.insert(rows(0, 1500))
    table.delete(rows(30, 40))
    [tombstones, large] = refs(table, "record_index")
    partition = partition_of(table, "record_index")
    gone = snapshot(table).reader(tombstones).scan()
    taken = int(partition.places(next(iter(gone))["key"])[0]) * 8 // HASH_SPACE
    table.compact(major=True, partitions=["record_index"], buckets=[taken])
    table.delete(rows(40, 50))
    rest = [bucket for bucket in range(8) if bucket != taken]
    table.compact(major=False, partitions=["record_index"], buckets=rest)
    left = {ref.path for ref in refs(table, "record_index")}
    assert large.path in left, "the file that still holds the deleted keys"
    assert tombstones.path not in left, "and no tombstone of theirs in another one"
    found = table.tag_locations(rows(30, 50))["_location"]
    assert found.null_count == 20
    assert table.verify().findings == ()


def test_a_deleted_key_stays_deleted_when_an_old_file_is_merged_for_what_it_still_stands_for(
    table_uri: str,
) -> None:
    """The old file holds the key in a bucket that was taken from it, with its tombstone."""
    table = make(table_uri, "record")
    table.insert(rows(0, 1500))
    table.delete(rows(30, 40))
    [tombstones, large] = refs(table, "record_index")
    partition = partition_of(table, "record_index")
    gone = snapshot(table).reader(tombstones).scan()
    taken = int(partition.places(next(iter(gone))["key"])[0]) * 8 // HASH_SPACE
    table.compact(major=True, partitions=["record_index"], buckets=[taken])
    table.upsert(rows(100, 110, 5))
    table.delete(rows(40, 50))
    assert large.path in {ref.path for ref in refs(table, "record_index")}
    table.compact(major=True, partitions=["record_index"])
    found = table.tag_locations(rows(30, 50))["_location"]
    assert found.null_count == 20
    [whole] = refs(table, "record_index")
    assert whole.entry_count == 1480
    assert table.verify().findings == ()


def test_a_deleted_key_stays_deleted_when_its_bucket_is_compacted_beside_a_slow_compaction(
    table_uri: str, between: Any
) -> None:
    """The slow one has read the key before it was deleted, and publishes when key and tombstone
    are merged already. The files that it has read still stand for other buckets."""
    table = grown(table_uri, "record")
    key = rows(700, 701)
    [place] = partition_of(table, "record_index").places(
        index_keys(table.options, key["id"].combine_chunks(), pa.array(["city=ny"]))
    )

    def meanwhile() -> None:
        table.delete(key)
        bucket = int(place) * 8 // HASH_SPACE
        table.compact(major=True, partitions="record_index", buckets=bucket)

    between(meanwhile)
    table.compact(major=True, partitions="record_index")
    assert table.filter_exists(key).num_rows == 0
    assert table.tag_locations(key)["_location"].null_count == 1
    assert table.verify().findings == ()


def test_large_partitions_are_cut_into_ranges_that_are_worth_a_file(table_uri: str) -> None:
    table = make(table_uri, "record", hfile_target_bytes=16 << 10)
    table.insert(rows(0, 3000))
    table.upsert(rows(2990, 3010, 1))
    table.compact(major=True)
    made = sorted(in_buckets(table, ref) for ref in refs(table, "record_index"))
    assert len(made) > 1
    assert [lo for lo, _ in made] == [0, *(hi for _, hi in made[:-1])]
    assert made[-1][1] == 8
    assert len(refs(table, "files")) == 1


@pytest.mark.each_once
@pytest.mark.parametrize("function", ["xxh64", "java_string"])
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_plain_keys_and_java_buckets_compact_like_hashed_ones(
    table_uri: str, function: str, scope: str
) -> None:
    plain = {"record_key_form": "plain", "record_bucket_function": function, "key_scope": scope}
    table = grown(table_uri, "record", **plain)
    before = answers(table)
    table.compact(major=True, partitions=["record_index"], buckets=[0, 1, 7])
    assert answers(table)[0].equals(before[0])
    table.compact(major=True)
    assert answers(table)[0].equals(before[0])
    [whole] = refs(table, "record_index")
    assert whole.first_key == (b"k00000" if scope == "global" else b"city=ny\0k00000")
    assert table.verify().findings == ()


def test_locations_that_no_entry_names_any_more_leave_the_dictionary(table_uri: str) -> None:
    table = make(table_uri, "record", key_scope="global")
    table.insert(rows(0, 40))
    moved = rows(0, 40).set_column(1, "city", pa.array(["la"] * 40))
    table.upsert(moved)
    table.compact(major=True)
    [whole] = refs(table, "record_index")
    raw = snapshot(table).reader(whole).meta("locations")
    assert raw is not None
    assert raw.count(b"city=la") == 1
    assert b"city=ny" not in raw


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"partitions": ["bloom_filter"]}, "no such metadata partition"),
        ({"partitions": ["record_index"], "buckets": [8]}, "no such bucket.*record_index 0 to 7"),
        (
            {"partitions": ["files"], "buckets": [1]},
            "no such bucket: found=1 expected='files 0 to 0",
        ),
        ({"buckets": [8]}, "no such bucket"),
        ({"partitions": ["record_index"], "buckets": [-1]}, "no such bucket"),
    ],
)
def test_unknown_partitions_and_buckets_are_refused(
    table_uri: str, named: dict[str, Any], message: str
) -> None:
    table = make(table_uri, "record")
    with pytest.raises(UsageError, match=message):
        table.compact(**named)
    assert table.version == 1


def test_a_bucket_that_some_partitions_lack_is_compacted_in_the_others(table_uri: str) -> None:
    table = make(table_uri, "record")
    for first in range(3):
        table.upsert(rows(first, first + 40))
    before = {name: len(refs(table, name)) for name in ("files", "record_index")}
    table.compact(major=True, buckets=[5])
    after = {name: len(refs(table, name)) for name in ("files", "record_index")}
    assert after["files"] == before["files"]
    assert [one.operation for one in table.history(1)] == ["compact"]


def test_an_empty_table_has_nothing_to_compact(table_uri: str) -> None:
    assert make(table_uri, "record").compact(major=True).reason == "nothing to compact"


def test_a_reinserted_key_lives_on_after_its_tombstone_is_compacted_away(table_uri: str) -> None:
    table = make(table_uri, "record")
    table.insert(rows(0, 20))
    table.delete(rows(5, 10))
    table.compact(major=True)
    table.upsert(rows(5, 8, 9))
    table.compact(major=True)
    tagged = table.tag_locations(rows(0, 20))
    assert [place is None for place in tagged["_location"].to_pylist()] == [
        number in (8, 9) for number in range(20)
    ]
    assert table.verify().findings == ()


@pytest.mark.parametrize(
    ("lo", "hi"), [(0, 1), (0, 1 << 31), (3 << 29, 5 << 29), (7 << 29, 1 << 32)]
)
def test_hashes_of_some_places_are_a_range_of_keys(table_uri: str, lo: int, hi: int) -> None:
    table = make(table_uri, "record")
    table.insert(rows(0, 500))
    snapshot = Snapshot(Store(table_uri), newest_of(Store(table_uri)))
    partition = RecordIndexPartition(table.options)
    bounds = partition.key_range(lo, hi)
    assert bounds is not None
    for ref in snapshot.refs("record_index"):
        reader = HFileReader.open(Store(table_uri), ref.path, ref.size_bytes)
        chosen = [partition.live(batch, lo, hi) for batch in reader.scan()]
        expected = [key for batch in chosen for key in batch["key"].to_pylist()]
        found = [key for batch in reader.scan(*bounds) for key in batch["key"].to_pylist()]
        assert found == expected


def test_of_hashes_only_the_blocks_of_the_buckets_that_are_merged_are_read(table_uri: str) -> None:
    table = make(table_uri, "record")
    for first in range(0, 2000, 500):
        table.insert(rows(first, first + 500))
    planned = table.compact(major=True, partitions="record_index", dry_run=True).counters
    assert "hfile.blocks" not in planned
    cache.clear()
    one = table.compact(major=True, partitions="record_index", buckets=3).counters["hfile.blocks"]
    cache.clear()
    rest = table.compact(major=True, partitions="record_index").counters["hfile.blocks"]
    assert one * 5 < rest < one * 12


@pytest.mark.parametrize(
    ("index", "target_bytes"), [("record", 4 << 10), ("metadata_bloom", 16 << 10)]
)
def test_a_minor_compaction_never_leaves_more_files(
    table_uri: str, index: str, target_bytes: int
) -> None:
    """Also where it may cut what two files hold into many ranges, and some buckets were merged."""
    table = make(table_uri, index, file_rows=40, hfile_target_bytes=target_bytes, upkeep_files=0)
    merged = 0
    for step, count in enumerate((30, 600, 3, 200, 600, 3, 30, 200)):
        table.upsert(rows(step * 150, step * 150 + count, step))
        if step % 3 == 2:
            table.compact(major=True, partitions="column_stats", buckets=0)
        told = table.compact()
        assert told.files_after <= told.files_before
        merged += told.files_after < told.files_before
    assert merged > 3
    assert table.verify().findings == ()


def test_a_lookup_asks_few_files_and_an_entry_is_written_few_times(table_uri: str) -> None:
    """Merged after each of 24 commits of equal size, both grow with the logarithm of their number:
    an older file joins while it is no larger than twice what has joined."""
    table = make(table_uri, "record", buckets={"record_index": 1}, upkeep_files=0)
    written = 0
    for commit in range(24):
        table.insert(rows(commit * 20, commit * 20 + 20))
        written += table.compact(partitions="record_index").entries
        assert len(table._snapshot(None).refs("record_index")) <= 5
    assert written <= 6 * 24 * 20


def test_due_tells_what_services_would_do_and_does_nothing(table_uri: str) -> None:
    table = make(table_uri, "record", upkeep_files=0)
    assert table.due() == []
    for first in range(0, 300, 100):
        table.insert(rows(first, first + 100))
    before = sorted(Path(table_uri).rglob("*"))
    [told] = table.due()
    assert (told.service, told.version, told.plan) == ("compact", 4, "")
    assert told.reason == f"due: {table.compact(dry_run=True).reason.partition(': ')[2]}"
    assert sorted(Path(table_uri).rglob("*")) == before
    name = table.compact(schedule=True).plan
    assert [one.plan for one in table.due()] == [name, ""]
    table.compact(plan=name)
    assert table.due() == []


def test_due_tells_of_what_a_clean_would_delete(table_uri: str) -> None:
    table = make(table_uri, "record", upkeep_files=0)
    for version in range(12):
        table.upsert(rows(0, 10, version))
        table.compact(major=True)
    assert table.due() == []  # all of it is of today
    for path in Path(table_uri).rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    table.upsert(rows(0, 10, 12))
    table.compact(major=True)
    [told] = table.due()
    done = table.clean()
    assert done.files_deleted == told.files_deleted > 0
    assert (told.service, told.reason) == ("clean", f"due: {done.reason}")
