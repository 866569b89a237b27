"""Verify finds each kind of fault: every finding is provoked by damaging something."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import CorruptError, Table
from metatable.data.base_files import base_file_writer
from metatable.data.base_files.base_file_writer import write_base_file
from metatable.data.file_groups.slices import DataFile, FileSlice, new_file_id
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.steps import announce
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.hfiles.payload import decode_stats, schema_text
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.written import WrittenSlice
from metatable.storage import cache
from metatable.storage.parquet.fields import Page
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import decode_struct
from metatable.storage.store import Store
from tests.compaction.hurt_tables import FAST, Hurt
from tests.compaction.ways_to_hurt import written_as

pytestmark = pytest.mark.in_turn("damaged")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
KEY, PATH = "_hoodie_record_key", "_hoodie_partition_path"


class Damaged:
    """Twenty rows, two cities, four files; and ways to damage them behind the table's back."""

    def __init__(self, uri: str, index: str, scope: str = "global") -> None:
        self.table: Table = metatable.create(
            uri,
            SCHEMA,
            key="id",
            partition_by="city",
            index=index,
            options={"file_rows": 5, "key_scope": scope},
            storage_options={"durable": "false"},
        )
        numbers = range(20)
        ids, cities = [f"k{one:02}" for one in numbers], [("ny", "sf")[one % 2] for one in numbers]
        self.table.insert(pa.table([ids, cities, list(numbers)], schema=SCHEMA))
        self.store = Store(uri, {"durable": "false"})
        assert self.table.verify().findings == ()

    @property
    def options(self) -> metatable.Options:
        return self.table.options

    def files(self) -> Sequence[DataFile]:
        newest = load_newest(self.store)
        assert newest is not None
        return [one.base for one in Snapshot(self.store, newest).slices()]

    def rows(self, file: DataFile) -> pa.Table:
        return pq.ParquetFile(Path(self.store.uri, file.path)).read()

    def file_of(self, rows: pa.Table, like: DataFile, file_id: str) -> DataFile:
        """A data file with these rows, in the place of `like`, known to nobody yet."""
        made = replace(like, file_id=file_id)
        self.store.delete([made.path])
        size_bytes, _ = write_base_file(self.store, made, rows, options=self.options)
        return replace(made, size_bytes=size_bytes)

    def written(self, file: DataFile, **told: pa.Array) -> WrittenSlice:
        return WrittenSlice(FileSlice(file), **told)

    def enter(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish entries of one partition, and nothing else."""
        ref = partition.store(
            self.store,
            0,
            partition.space,
            entries,
            Owner("repair", "0" * 32, "20200101000000000"),
        )
        assert ref is not None
        newest = load_newest(self.store)
        assert newest is not None
        change = Change("damage", updates=(AddFiles({partition.name: (ref,)}),))
        announce(self.store, publish(self.store, newest, change, Owner.new("service")))

    def bury(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish tombstones for these entries."""
        gone = pa.nulls(entries.num_rows, entries.schema.field("value").type)
        place = entries.schema.get_field_index("value")
        self.enter(partition, entries.set_column(place, entries.schema.field("value"), gone))

    def codes(self) -> set[str]:
        cache.clear()
        return {finding.code for finding in self.table.verify().findings}

    def only_finding(self) -> str:
        cache.clear()
        [finding] = self.table.verify().findings
        return str(finding)


@pytest.fixture
def record(table_uri: str) -> Damaged:
    return Damaged(table_uri, "record")


@pytest.fixture
def bloom(table_uri: str) -> Damaged:
    return Damaged(table_uri, "metadata_bloom")


@pytest.fixture(params=["record", "metadata_bloom", "bloom"])
def damaged(request: pytest.FixtureRequest, table_uri: str) -> Damaged:
    return Damaged(table_uri, request.param)


def test_a_missing_data_file_is_found(damaged: Damaged) -> None:
    gone = damaged.files()[1]
    damaged.store.delete([gone.path])
    cache.clear()
    findings = [*map(str, damaged.table.verify().findings)]
    assert f"file-size: {gone.path}: expected {gone.size_bytes} bytes, found None" in findings


def test_a_truncated_data_file_is_found(damaged: Damaged) -> None:
    cut = damaged.files()[0]
    path = Path(damaged.store.uri, cut.path)
    path.write_bytes(path.read_bytes()[:-1])
    assert "file-size" in damaged.codes()


@pytest.mark.parametrize("where", ["page header", "keys", "footer"])
def test_a_data_file_with_other_bytes_is_found(damaged: Damaged, where: str) -> None:
    file = damaged.files()[0]
    path = Path(damaged.store.uri, file.path)
    body = bytearray(path.read_bytes())
    page = pq.ParquetFile(path).metadata.row_group(0).column(2).data_page_offset
    start = {"page header": page, "keys": page + 30, "footer": len(body) - 9}[where]
    for offset in range(start, start + 8):
        body[offset] ^= 0xFF
    path.write_bytes(body)
    own = {"bloom-filter", "record-index", "footer"}
    assert damaged.codes() & {"file-damaged", "column-stats", *own}


def test_a_page_header_that_gives_rows_the_values_of_others_is_found(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers have no checksum, and pyarrow reads on behind a page that says to have fewer rows."""
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", 5)
    table = metatable.create(table_uri, SCHEMA, key="id", storage_options={"durable": "false"})
    rows = [(f"k{one:02}", "ny", one if one % 3 else None) for one in range(30)]
    table.insert(pa.table([*map(list, zip(*rows, strict=True))], schema=SCHEMA))
    [path] = Path(table_uri).glob("*.parquet")
    raw = path.read_bytes()
    silent = [*bits_that_nobody_misses(raw, "v", pq.ParquetFile(path).read())]
    assert silent
    for turned in silent:
        path.write_bytes(turned)
        cache.clear()
        told = [*map(str, table.verify().findings)]
        assert any("file-damaged" in one and path.name in one for one in told), told


def bits_that_nobody_misses(raw: bytes, column: str, rows: pa.Table) -> Iterator[bytes]:
    """The file with one bit of a page's header turned, where pyarrow reads other rows then."""
    [chunk] = [one for one in ParquetParts.of_bytes(raw).chunks(0) if one.leaf.name == column]
    start = chunk.offset
    while start < chunk.offset + chunk.size:
        header, body = decode_struct(raw, "", start)
        for bit in range(8 * start, 8 * body):
            turned = bytearray(raw)
            turned[bit // 8] ^= 1 << bit % 8
            file = io.BytesIO(turned)
            with suppress(pa.ArrowException, OSError):
                if not pq.ParquetFile(file, page_checksum_verification=True).read().equals(rows):
                    yield bytes(turned)
        start = body + header[Page.STORED]


def test_rows_of_another_partition_in_a_file_are_found(damaged: Damaged) -> None:
    file = damaged.files()[0]
    rows = damaged.rows(file)
    place = rows.schema.get_field_index(PATH)
    elsewhere = pa.array(["city=la"] * rows.num_rows)
    rows = rows.set_column(place, rows.schema.field(PATH), elsewhere)
    made = damaged.file_of(rows, file, file.file_id)
    partition = FilesPartition(damaged.options)
    damaged.enter(partition, partition.entries([damaged.written(made)]))
    assert "partition-path" in damaged.codes()


def test_a_key_that_the_data_has_and_the_statistics_exclude_is_found(damaged: Damaged) -> None:
    file = damaged.files()[0]
    rows = damaged.rows(file)
    keys = rows[KEY].to_pylist()
    place = rows.schema.get_field_index(KEY)
    renamed = pa.array(["zz", *keys[1:]])
    made = damaged.file_of(
        rows.set_column(place, rows.schema.field(KEY), renamed), file, file.file_id
    )
    partition = FilesPartition(damaged.options)
    damaged.enter(partition, partition.entries([damaged.written(made)]))
    own = {"record": {"record-index"}, "metadata_bloom": {"bloom-filter"}, "bloom": set()}
    assert {"column-stats", *own[damaged.options.index]} <= damaged.codes()


def test_missing_statistics_of_a_live_file_are_found(damaged: Damaged) -> None:
    partition = ColumnStatsPartition(damaged.options)
    newest = load_newest(damaged.store)
    assert newest is not None
    every = Snapshot(damaged.store, newest).scan(partition).read_all()
    places = pa.array(partition.places(every["key"].combine_chunks()))
    damaged.bury(partition, every.add_column(0, partition.schema.field("place"), places))
    assert damaged.codes() == {"column-stats"}


def test_statistics_that_name_another_file_than_their_key_are_found(damaged: Damaged) -> None:
    """Lookups go by the key, readers of whole columns by the name."""
    partition = ColumnStatsPartition(damaged.options)
    newest = load_newest(damaged.store)
    assert newest is not None
    every = Snapshot(damaged.store, newest).scan(partition).read_all()
    [name] = decode_stats(every["value"].combine_chunks()[:1], None)["file_name"].to_pylist()
    value = every["value"][0].as_py()
    wrong = value.replace(name.encode(), b"x" + name.encode()[1:], 1)
    assert wrong != value
    places = pa.array(partition.places(every["key"].combine_chunks()[:1]))
    entries = pa.table([places, every["key"][:1], pa.array([wrong])], schema=partition.schema)
    damaged.enter(partition, entries)
    assert "1 entry names another file than its key" in damaged.only_finding()


def test_a_missing_filter_is_found(bloom: Damaged) -> None:
    file = bloom.files()[2]
    partition = BloomFilterPartition(bloom.options)
    bloom.bury(partition, partition.entries([bloom.written(file)]))
    cache.clear()
    findings = [*map(str, bloom.table.verify().findings)]
    assert any(one.startswith(f"bloom-filter: {file.path}: ") for one in findings)
    assert any(one.startswith("entry-count: bloom_filter: ") for one in findings)


def test_a_filter_that_denies_a_key_of_its_file_is_found(bloom: Damaged) -> None:
    file = bloom.files()[2]
    keys = bloom.rows(file)[KEY].combine_chunks()
    partition = BloomFilterPartition(bloom.options)
    bloom.enter(partition, partition.entries([bloom.written(file, keys=keys[1:])]))
    assert bloom.only_finding() == f"bloom-filter: {file.path}: 1 keys of the file are denied"


def test_a_filter_of_a_file_that_is_gone_is_found(bloom: Damaged) -> None:
    gone = replace(bloom.files()[0], file_id=new_file_id())
    partition = BloomFilterPartition(bloom.options)
    bloom.enter(partition, partition.entries([bloom.written(gone)]))
    expected = "entry-count: bloom_filter: expected 4 live entries, found 5"
    assert bloom.only_finding() == expected


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "bloom"])
@pytest.mark.parametrize("what", ["minimum", "maximum", "filter", "damaged"])
def test_a_footer_that_denies_keys_of_its_file_is_found_where_it_is_asked(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, what: str, index: str
) -> None:
    damaged = Damaged(table_uri, index)
    file = damaged.files()[2]
    rows = damaged.rows(file)
    keys = rows[KEY].combine_chunks().sort()
    words = base_file_writer.footer_of(rows[KEY], 1e-6)
    words |= {
        "minimum": {"hoodie_min_record_key": keys[2].as_py()},
        "maximum": {"hoodie_max_record_key": keys[-3].as_py()},
        "filter": base_file_writer.footer_of(pa.chunked_array([keys[2:]]), 1e-6)
        | {"hoodie_min_record_key": keys[0].as_py()},
        "damaged": {"hoodie_min_record_key": "z", "hoodie_max_record_key": "a"},
    }[what]
    monkeypatch.setattr(base_file_writer, "footer_of", lambda *_: words)
    made = damaged.file_of(rows, file, file.file_id)
    partition = FilesPartition(damaged.options)
    damaged.enter(partition, partition.entries([damaged.written(made)]))
    if index == "record":
        assert damaged.codes() == set()
    elif what == "damaged":
        assert damaged.only_finding().startswith(f"footer: {file.path}: bounds of the record keys")
    else:
        assert damaged.only_finding() == f"footer: {file.path}: 2 keys of the file are denied"


def test_a_key_that_the_record_index_does_not_know_is_found(record: Damaged) -> None:
    file = record.files()[0]
    keys = record.rows(file)[KEY].combine_chunks()
    partition = RecordIndexPartition(record.options)
    record.enter(partition, partition.entries([record.written(file, departed=keys[:2])]))
    cache.clear()
    findings = [*map(str, record.table.verify().findings)]
    first = keys[0].as_py()
    assert f"record-index: {file.path}: 2 keys elsewhere, such as {first!r}: nowhere" in findings
    assert "entry-count: record_index: expected 20 live entries, found 18" in findings


def test_a_key_that_the_record_index_puts_elsewhere_is_found(record: Damaged) -> None:
    one, other = record.files()[:2]
    keys = record.rows(one)[KEY].combine_chunks()
    partition = RecordIndexPartition(record.options)
    record.enter(partition, partition.entries([record.written(other, arrived=keys[:1])]))
    finding = record.only_finding()
    assert finding.startswith(f"record-index: {one.path}: 1 keys elsewhere")
    assert other.file_id in finding


def test_a_record_index_entry_of_a_key_that_is_gone_is_found(record: Damaged) -> None:
    partition = RecordIndexPartition(record.options)
    ghost = pa.array(["ghost"])
    record.enter(partition, partition.entries([record.written(record.files()[0], arrived=ghost)]))
    expected = "entry-count: record_index: expected 20 live entries, found 21"
    assert record.only_finding() == expected


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_a_key_that_lives_twice_in_its_scope_is_found(
    table_uri: str, index: str, scope: str
) -> None:
    damaged = Damaged(table_uri, index, scope)
    file = damaged.files()[0]
    copy = replace(file, file_id=new_file_id())
    written_as(damaged.store.uri, file.path, copy.path)
    partition = FilesPartition(damaged.options)
    damaged.enter(partition, partition.entries([damaged.written(copy)]))
    cache.clear()
    findings = [*map(str, damaged.table.verify().findings)]
    assert "duplicate-keys: table: 5 keys live in more than one place" in findings


def test_the_same_key_in_two_partitions_is_no_fault_in_partition_scope(table_uri: str) -> None:
    damaged = Damaged(table_uri, "metadata_bloom", "partition")
    numbers = range(20)
    cities = [("sf", "ny")[one % 2] for one in numbers]
    again = pa.table([[f"k{one:02}" for one in numbers], cities, list(numbers)], schema=SCHEMA)
    assert damaged.table.insert(again).inserted == 20
    result = damaged.table.verify()
    assert (result.findings, result.entries) == ((), 40)


def test_a_damaged_hfile_is_a_finding_and_corruption_for_readers(record: Damaged) -> None:
    [path] = [one.path for one in record.store.list(".hoodie/metatable/record_index")]
    body = bytearray(Path(record.store.uri, path).read_bytes())
    body[60] ^= 0x01
    Path(record.store.uri, path).write_bytes(body)
    cache.clear()
    assert record.codes() == {"hfile", "record-index", "entry-count"}
    cache.clear()
    with pytest.raises(CorruptError, match="record_index"):
        record.table.tag_locations(pa.table({"id": ["k00"], "city": ["ny"]}))


def test_an_empty_table_has_no_findings(table_uri: str) -> None:
    table = metatable.create(table_uri, SCHEMA, key="id", index="record")
    result = table.verify()
    assert (result.findings, result.entries) == ((), 0)
    assert "index equals data" in result.reason


def test_a_file_without_rows_is_no_fault(damaged: Damaged) -> None:
    ids = pa.table({"id": [f"k{one:02}" for one in np.arange(20)]})
    assert damaged.table.delete(ids).deleted == 20
    result = damaged.table.verify()
    assert (result.findings, result.entries) == ((), 0)


def test_bounds_that_are_no_days_of_the_calendar_are_found(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a"], "day": pa.array([19_000], pa.date32())})
    table = metatable.create(tmp_path, rows.schema, key="id", storage_options=FAST)
    table.insert(rows)
    hurt, schema = Hurt(str(tmp_path)), json.loads(schema_text())
    partition = ColumnStatsPartition(table.options)
    entries = hurt.every(partition)
    for place, value in enumerate(entries["value"].to_pylist()):
        told: Any = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
        stats = told["ColumnStatsMetadata"]
        if stats["columnName"] == "day":
            stats["maxValue"]["value"] = (1 << 31) - 1
            with io.BytesIO() as out:
                fastavro.schemaless_writer(out, schema, told)
                wrong = pa.array([out.getvalue()], pa.binary())
            hurt.enter(partition, entries.slice(place, 1).set_column(2, "value", wrong))
    assert table.verify().finding_counts == {"column-stats": 1}
    assert table.repair(dry_run=False).unmended == ()
    assert table.verify().findings == ()
