"""An index for a table that is there: another writer's, or one of ours that gets another one.

Tables of Hudi's own come from the corpus. Others are made by us and stripped of all that is ours:
what is left is what another writer would have left. Whatever is adopted is held against its rows as
they were before, as `hudi` reads them, by brute force; whatever is refused, against its bytes.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import permutations, product
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import metatable
from metatable import ConflictError, CorruptError, StoreError, Table, UpgradeError, UsageError
from metatable.compaction.checks.held_slices import damage_of
from metatable.data.columns.schema_changes import ColumnChange
from metatable.data.file_groups.slices import DataFile
from metatable.data.hoodie.other_writers import OtherTimeline, schema_of
from metatable.data.hoodie.properties import TableProperties
from metatable.data.hoodie.savepoint_metadata import _SCHEMA, is_of_metatable
from metatable.data.hoodie.timeline_records import decoded, encoded
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.known_commits import CommitSum
from metatable.metadata.commits.refusals import check_properties
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write import adopt as adopting
from metatable.write import change_index as changing
from metatable.write import keys_twice, stored_entries
from metatable.write.adopt import adopt_table
from metatable.write.change_index import change_index
from metatable.write.commit_pass import write
from tests.cleaned import strange_files
from tests.faults import Refused, watched
from tests.index.rows import fitting
from tests.long import LONG, one_in
from tests.model import SCHEMA, Model, Row, arrow, check, listed, read_by_hudi, scanned
from tests.shared import made_once
from tests.storage.s3_server import serving

FAST = {"durable": "false"}
SMALL: dict[str, Any] = {"file_rows": 4, "lease_seconds": 0, "hfile_codec": "none"}
BUCKETS = {"bucket_count": 4}
OURS = re.compile(r"\.hoodie/metatable/.*|\.hoodie/\.temp/.*")


def rows(first: int, last: int, v: int, shift: int = 0) -> list[Row]:
    return [
        {"id": f"k{number:02}", "city": ("ny", "sf")[(number + shift) % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


def created(uri: Path, index: str, scope: str, **options: Any) -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={**(SMALL if index != "bucket" else BUCKETS), "key_scope": scope, **options},
        storage_options=FAST,
    )


_GROWN: dict[tuple[str, str], tuple[str, Model]] = {}


def grown(uri: Path, index: str = "metadata_bloom", scope: str = "partition") -> Model:
    """A table with some history, and its rows: a copy of one that is made once."""
    if (index, scope) not in _GROWN:
        folder = tempfile.mkdtemp(prefix="metatable-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _GROWN[index, scope] = folder, _grown(Path(folder, "table"), index, scope)
    folder, model = _GROWN[index, scope]
    shutil.copytree(Path(folder, "table"), uri)
    return deepcopy(model)


def _grown(uri: Path, index: str, scope: str) -> Model:
    table, model = created(uri, index, scope), Model(scope == "global", ordering=True)
    for given in (rows(0, 14, 1), rows(10, 18, 2), rows(8, 11, 3, shift=1)):
        table.upsert(arrow(given))
        model.upsert(given)
    table.delete(arrow(rows(2, 5, 0)))
    model.delete(rows(2, 5, 0))
    table.upsert(arrow(rows(0, 3, 9)))
    table.rollback()
    return model


def stripped(uri: Path) -> str:
    """As another writer would have left it."""
    shutil.rmtree(uri / HOME)
    return str(uri)


def adopt(uri: str | Path, **how: Any) -> Table:
    options = {"lease_seconds": 0, "hfile_codec": "none", **how.pop("options", {})}
    return metatable.adopt(uri, options=options, storage_options=FAST, **how)


def bytes_of(uri: str | Path) -> dict[str, bytes]:
    """All that is not ours, and cannot have changed."""
    return {name: body for name, body in everything(uri).items() if not OURS.fullmatch(name)}


def everything(uri: str | Path) -> dict[str, bytes]:
    root = Path(uri)
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def by_hudi(uri: str | Path) -> list[str]:
    """Rows of whatever columns, as texts."""
    batches = HudiTableBuilder.from_base_uri(str(uri)).build().read()
    return texts(row for batch in batches for row in batch.to_pylist())


def texts(found: Any) -> list[str]:
    kept = ({name: row[name] for name in sorted(row) if name[0] != "_"} for row in found)
    return sorted(map(repr, kept))


# Tables that Hudi made


def unpacked(interop: Path, name: str, to: Path) -> Path:
    with zipfile.ZipFile(interop / f"{name}.zip") as file:
        file.extractall(to)
    folder, *more = (path for path in to.iterdir() if not path.name.startswith("__"))
    assert not more
    return folder


HUDIS = {
    "hudi/sample_table__cow__v6_complexkeygen_hivestyle": ("record", 4),
    "hudi/sample_table__cow__v6_nonpartitioned": ("bloom", 4),
    "hudi/sample_table__cow__v6_simplekeygen_nonhivestyle": ("metadata_bloom", 4),
    "hudi-spark/cow_bloom_footer": ("metadata_bloom", 1610),
}


@pytest.mark.parametrize("name", HUDIS)
def test_a_table_that_hudi_made_is_ours_from_there(
    interop: Path, name: str, tmp_path: Path
) -> None:
    index, count = HUDIS[name]
    uri = unpacked(interop, name, tmp_path)
    before, bytes_before = by_hudi(uri), bytes_of(uri)
    table = adopt(uri, index=index)
    assert bytes_of(uri) == bytes_before
    held = table.scan().to_arrow()
    assert texts(held.to_pylist()) == before
    assert (len(before), table.version, table.verify().findings) == (count, 1, ())
    assert [one.operation for one in table.history()] == ["adopt"]
    told = table.describe()
    assert (told.rows, told.index, told.instant) == (count, index, table.instant)

    assert all(one is not None for one in table.tag_locations(held)["_location"].to_pylist())
    table.savepoint("adopted")
    assert table.upsert(held.slice(0, 2)).updated == 2
    assert table.delete(held.slice(1, 2)).deleted == 2
    expected = texts(held.slice(0, 1).to_pylist() + held.slice(3).to_pylist())
    assert texts(table.scan().to_arrow().to_pylist()) == by_hudi(uri) == expected
    gone = table.changes(since=1).to_arrow()
    assert sorted(gone["_change_type"].to_pylist()) == ["delete", "delete", "update"]
    assert table.verify().findings == ()
    table.compact(major=True)
    table.rollback()
    table.restore(savepoint="adopted")
    assert texts(table.scan().to_arrow().to_pylist()) == by_hudi(uri) == before
    with pytest.raises(UsageError, match="cannot be undone"):
        table.rollback()
    table.drop_savepoint("adopted")
    table.insert(table.scan().to_arrow().slice(0, 0))
    assert table.delete(held.slice(0, 1)).deleted == 1
    assert table.insert(held.slice(0, 1)).inserted == 1
    assert texts(table.scan().to_arrow().to_pylist()) == by_hudi(uri) == before
    assert table.verify().findings == ()


def test_what_hudis_savepoints_keep_is_not_cleaned(interop: Path, tmp_path: Path) -> None:
    name = "hudi-spark/cow_bloom_footer"
    uri = unpacked(interop, name, tmp_path)
    expected = pq.read_table(interop / f"{name}.expected.parquet").to_pylist()
    table = adopt(uri, index="record")
    assert texts(table.scan().to_arrow().to_pylist()) == texts(expected)
    before = {name for name in everything(uri) if name.endswith(".parquet")}
    assert table.clean(versions=1, hours=0).files_deleted == 3
    left = {name for name in everything(uri) if name.endswith(".parquet")}
    assert {path[-25:-8] for path in before - left} == {"20261121091133585"}
    assert {path[-25:-8] for path in left} == {"20261121091129140", "20261121091135534"}
    assert texts(table.scan().to_arrow().to_pylist()) == by_hudi(uri)


def test_what_our_savepoints_keep_is_not_cleaned_after_an_adoption(tmp_path: Path) -> None:
    """The way out that is named where another writer has committed: all but Hudi's files goes."""
    uri = tmp_path / "table"
    grown(uri)
    table = metatable.open(uri, FAST)
    table.savepoint("kept")
    kept = {one.path for one in table.files()}
    before, instant = scanned(table), table.instant
    table.upsert(arrow(rows(0, 18, 20)))
    after = scanned(table)
    assert kept.isdisjoint(one.path for one in table.files())
    stripped(uri)
    table = adopt(uri, options={"timeline_commits": 1})
    for _ in range(2):
        table.upsert(arrow(rows(0, 1, 30)))
        table.rollback()
    table.clean(versions=1, hours=0)
    assert scanned(table) == after
    assert kept <= everything(uri).keys()
    assert (uri / f".hoodie/{instant}.savepoint").exists()
    options = HudiReadOptions().with_as_of_timestamp(str(instant))
    batches = HudiTableBuilder.from_base_uri(str(uri)).build().read(options)
    assert listed(row for batch in batches for row in batch.to_pylist()) == before
    assert table.verify().findings == ()


def test_a_savepoint_of_hudis_that_speaks_of_us_is_still_theirs(
    interop: Path, tmp_path: Path
) -> None:
    uri = unpacked(interop, "hudi-spark/cow_bloom_footer", tmp_path)
    [path] = uri.glob(".hoodie/*.savepoint")
    told = decoded(path.read_bytes())
    path.write_bytes(encoded(_SCHEMA, {**told, "comments": "before metatable"}))
    table = adopt(uri)
    assert table.delete(table.scan(limit=1).to_arrow()).deleted == 1
    table.clean(versions=1, hours=0)
    assert path.exists()
    names = {one.name for one in uri.glob("*/*.parquet")}
    for held in told["partitionMetadata"].values():
        assert names.issuperset(held["savepointDataFile"])


def test_what_is_put_in_the_place_of_hudis_files_hadoop_reads(
    interop: Path, tmp_path: Path
) -> None:
    uri = unpacked(interop, "hudi-spark/cow_bloom_footer", tmp_path)
    table = adopt(uri)
    before = checked_by_hadoop(uri)
    lost = {".hoodie/hoodie.properties", "part=alpha/.hoodie_partition_metadata"}
    for path in lost:
        (uri / path).unlink()
    assert len(table.repair(dry_run=False).findings) == len(lost)
    assert table.verify().findings == ()
    assert lost <= everything(uri).keys()
    assert {*before} - {*checked_by_hadoop(uri)} == {uri / path for path in lost}


def test_a_savepoint_of_ours_that_hadoop_copied_is_read_after_an_adoption(tmp_path: Path) -> None:
    grown(tmp_path / "table")
    table = metatable.open(tmp_path / "table", FAST)
    table.savepoint("kept")
    path = tmp_path / f"table/.hoodie/{table.instant}.savepoint"
    uri = stripped(tmp_path / "table")
    path.with_name(f".{path.name}.crc").write_bytes(hadoops_checksum(path.read_bytes()))
    assert checked_by_hadoop(uri) == [path]
    assert is_of_metatable(path.read_bytes())
    adopt(uri)
    assert not is_of_metatable(path.read_bytes())
    assert checked_by_hadoop(uri) == []


def checked_by_hadoop(uri: str | Path) -> list[Path]:
    """Files that Hadoop has a checksum of: each must be as that says."""
    pairs = [(one, one.with_name(one.name[1:-4])) for one in Path(uri).rglob(".*.crc")]
    there = [(told, path) for told, path in pairs if path.exists()]
    for told, path in there:
        assert told.read_bytes() == hadoops_checksum(path.read_bytes()), path
    return [path for _, path in there]


def hadoops_checksum(body: bytes) -> bytes:
    """CRC-32 of each 512 bytes, behind a head that says so (`ChecksumFileSystem`)."""
    parts = (zlib.crc32(body[at : at + 512]) for at in range(0, len(body), 512))
    return b"crc\0" + struct.pack(">I", 512) + b"".join(struct.pack(">I", one) for one in parts)


REFUSED = {
    "hudi-spark/cow_v6_mdt_all": "hoodie.metadata.enable=false",
    "hudi-spark/cow_v9_mdt_all": "table version 6",
    "hudi/sample_table__cow__v8_nonpartitioned": "table version 6",
    "hudi-spark/mor_avro_logs_v6": "hoodie.metadata.enable=false",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_of_hudis_that_is_not_for_us_is_refused(
    interop: Path, name: str, tmp_path: Path
) -> None:
    uri = unpacked(interop, name, tmp_path)
    check_refused(uri, UpgradeError, REFUSED[name])


def test_a_table_without_rows_is_adopted(interop: Path, tmp_path: Path) -> None:
    uri = unpacked(interop, "hudi/sample_table__cow__v6_empty", tmp_path)
    table = adopt(uri, index="record")
    assert table.scan().to_arrow().num_rows == 0
    row = dict.fromkeys(table.schema.names) | {"id": 1}
    table.insert(pa.Table.from_pylist([row], schema=table.schema))
    assert table.verify().findings == ()
    assert len(by_hudi(uri)) == 1
    table.rollback()
    with pytest.raises(UsageError, match="no commit to roll back"):
        table.rollback()


# Tables of ours, stripped


CASES = [
    ("metadata_bloom", "partition", "record"),
    ("record", "global", "metadata_bloom"),
    ("bloom", "global", "bloom"),
    ("bucket", "partition", "bucket"),
    ("record", "global", "hbase"),
    ("bloom", "partition", "hbase"),
]


@pytest.mark.parametrize(("made_with", "scope", "index"), CASES if LONG else CASES[:5])
def test_a_stripped_table_goes_on_as_it_was(
    made_with: str, scope: str, index: str, tmp_path: Path
) -> None:
    model = grown(tmp_path / "table", made_with, scope)
    uri = stripped(tmp_path / "table")
    bytes_before = bytes_of(uri)
    table = adopt(uri, index=index, options=fitting(index, {"key_scope": scope, **BUCKETS}))
    assert bytes_of(uri) == bytes_before
    probe = [row | {"city": city} for row in rows(0, 24, 0) for city in ("ny", "sf")]
    check(table, model, probe)
    assert table.version == 1
    given = rows(5, 22, 7, shift=1)
    result, counts = table.upsert(arrow(given)), model.upsert(given)
    assert (result.inserted, result.updated, result.moved, result.stale) == (
        counts.inserted,
        counts.updated,
        counts.moved,
        counts.stale,
    )
    check(table, model, probe)
    table.delete(arrow(rows(0, 9, 0)))
    model.delete(rows(0, 9, 0))
    check(table, model, probe)
    table.rollback()
    model.rollback()
    check(table, model, probe)
    table.clean(versions=1, hours=0)
    check(table, model, probe)
    assert strange_files(Store(str(uri), FAST)) == []


def test_it_takes_options_and_finds_nothing_to_do_twice(tmp_path: Path) -> None:
    grown(tmp_path / "table")
    uri = stripped(tmp_path / "table")
    given = {"record_key_form": "plain", "buckets": {"record_index": 3}, "key_scope": "partition"}
    table = adopt(uri, index="record", options=given)
    options = table.options
    assert (options.record_key_form, options.buckets["record_index"]) == ("plain", 3)
    assert (options.key, options.partition_by, options.ordering) == (("id",), ("city",), "ts")
    assert adopt(uri, index="record").version == 1
    assert metatable.open(uri).verify().findings == ()


def test_buckets_grow_with_the_table_unless_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(tmp_path / "table")
    uri = stripped(tmp_path / "table")
    monkeypatch.setattr(adopting, "BUCKET_BYTES", 16)
    monkeypatch.setattr(stored_entries, "TOLD_BYTES", 100)
    monkeypatch.setattr(keys_twice, "CHECKED_BYTES", 50)
    given = {"buckets": {"column_stats": 4}, "key_scope": "partition"}
    table = adopt(uri, index="record", options=given)
    assert table.options.buckets["record_index"] > 16
    assert table.options.buckets["column_stats"] == 4
    assert table.verify().findings == ()


def test_columns_that_footers_tell_of_are_not_read(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("x", pa.float64())])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    random = Random(1)
    words = [random.randbytes(500).hex() for _ in range(1500)]
    numbers = [float("nan"), *map(float, range(1499))]
    ids = [f"k{number}" for number in range(1500)]
    made.insert(pa.table({"id": ids, "text": words, "x": numbers}, schema=schema))
    uri = stripped(tmp_path / "table")
    [file] = (path for path in bytes_of(uri) if path.endswith(".parquet"))
    size_bytes = Path(uri, file).stat().st_size
    table = adopt(uri)
    assert table.counters["store.bytes_read"] < size_bytes / 3
    for where, count in (
        (metatable.col("text") < "!", 0),
        (metatable.col("text") == words[7], 1),
        (metatable.col("x") > 1e9, 1),
        (metatable.col("x") < 0, 0),
    ):
        assert (table.scan(where=where).count(), len(table.files(where))) == (count, count)


def test_binaries_of_a_fixed_size_longer_than_any_bound_are_taken(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("sig", pa.binary(96))])
    given = pa.table([["a", "b"], [b"\1" * 96, b"\xff" * 96]], schema=schema)
    path = tmp_path / "table"
    metatable.create(path, schema, key="id", storage_options=FAST).insert(given)
    table = adopt(stripped(path), index="metadata_bloom")
    assert table.verify().findings == ()
    assert table.scan(where=[("sig", ">", b"\1" * 96)]).to_arrow() == given.slice(1)


def test_what_came_before_is_not_to_be_had(tmp_path: Path) -> None:
    grown(tmp_path / "table")
    before = metatable.open(tmp_path / "table").history()
    uri = stripped(tmp_path / "table")
    table = adopt(uri)
    last = table.instant
    assert last is not None
    assert scanned(table) == listed(table.scan(as_of=last).to_arrow().to_pylist())
    with pytest.raises(metatable.StaleError, match="not kept any more"):
        table.scan(as_of=before[-2].instant)
    with pytest.raises(UsageError, match="cannot be undone"):
        table.rollback()


def test_files_of_a_writer_that_failed_are_passed_over_and_cleaned(tmp_path: Path) -> None:
    model = grown(tmp_path / "table")
    uri = stripped(tmp_path / "table")
    live = next(Path(uri).glob("city=ny/*.parquet"))
    left = live.with_name(re.sub(r"_\d+\.parquet", "_20990101000000000.parquet", live.name))
    shutil.copy(live, left)
    table = adopt(uri)
    check(table, model)
    store = Store(uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    assert newest.withdrawn == ("20990101000000000",)
    assert table.upsert(arrow(rows(0, 1, 20))).instant is not None
    assert table.instant is not None
    assert table.instant > "20990101000000000", "Hudi's readers would not see it"
    table.clean(versions=1, hours=0)
    assert not left.exists()


def test_an_archived_timeline_and_its_files_are_taken_as_committed(tmp_path: Path) -> None:
    table = created(tmp_path / "table", "record", "global", timeline_commits=2)
    model = Model(is_global=True, ordering=True)
    for first in range(0, 24, 4):
        table.upsert(arrow(rows(first, first + 4, 1)))
        model.upsert(rows(first, first + 4, 1))
    table.clean(versions=1, hours=0)
    uri = stripped(tmp_path / "table")
    assert len(list(Path(uri, ".hoodie").glob("*.commit"))) < 6
    table = adopt(uri, index="record", options={"timeline_commits": 2})
    check(table, model)
    newest = load_newest(Store(uri, FAST))
    assert newest is not None
    assert newest.archived == min(newest.adopted)
    assert newest.commits == CommitSum.of(newest.adopted).encode()
    table.upsert(arrow(rows(0, 4, 2)))
    model.upsert(rows(0, 4, 2))
    table.clean(versions=1, hours=0)
    check(table, model)
    assert strange_files(Store(str(uri), FAST)) == []


def named(path: Path, name: str) -> None:
    """Let the rows of a data file tell that it is called so."""
    held = pq.read_table(path, partitioning=None)
    place = held.schema.get_field_index("_hoodie_file_name")
    names = pa.array([name] * len(held))
    pq.write_table(held.set_column(place, held.schema.field(place), names), path)


def test_rows_that_name_an_older_slice_are_sound_however_old_the_adoption_is(
    tmp_path: Path,
) -> None:
    table = created(tmp_path / "table", "metadata_bloom", "partition")
    for v in (1, 2):
        table.upsert(arrow(rows(0, 1, v)))
    old, new = sorted(Path(table.uri).glob("city=ny/*.parquet"), key=lambda one: one.name[-25:])
    named(new, old.name)  # as older writers left rows that they had not changed
    table = adopt(stripped(tmp_path / "table"), options={"timeline_commits": 1})
    slices: list[bytes] = []
    for v in range(3):
        table.upsert(arrow(rows(1, 2, v)))
        table.clean(versions=1, hours=0)
        assert table.verify().findings == ()
        [live] = Path(table.uri).glob("city=sf/*.parquet")
        slices.append(live.read_bytes())
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    assert newest.archived > max(newest.adopted), "nothing on the timeline tells of the adoption"
    live.write_bytes(slices[1])  # no row of what we write names an older slice
    file = DataFile.decode(f"city=sf/{live.name}", len(slices[1]))
    assert "rows of another file" in damage_of(Snapshot(store, newest), file)


def test_rows_of_other_writers_may_name_any_file(tmp_path: Path) -> None:
    """As of groups that old releases of Hudi have clustered; also where a table was adopted so long
    ago that nothing tells of it any more."""
    table = created(tmp_path / "table", "metadata_bloom", "partition")
    table.insert(arrow(rows(0, 1, 1)))
    [path] = Path(table.uri).glob("city=ny/*.parquet")
    named(path, "another-0_0-0-0_20200101000000000.parquet")
    table = adopt(stripped(tmp_path / "table"))
    assert table.verify().findings == ()
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    long_ago = Snapshot(store, replace(newest, adopted=()))
    file = DataFile.decode(f"city=ny/{path.name}", 0)
    assert "rows of another file" in damage_of(long_ago, file)
    held = pl.from_arrow(pq.read_table(path, partitioning=None))
    assert isinstance(held, pl.DataFrame)
    held.write_parquet(path)
    assert damage_of(long_ago, file) == ""


def test_what_a_table_is_cannot_be_chosen(tmp_path: Path) -> None:
    grown(tmp_path / "table")
    uri = stripped(tmp_path / "table")
    with pytest.raises(UsageError, match="type of the table is what it is"):
        adopt(uri, options={"table_type": "mor"})
    assert adopt(uri, options={"table_type": "cow"}).verify().findings == ()


def test_moments_of_microseconds_in_a_column_of_milliseconds_are_refused(tmp_path: Path) -> None:
    """Hudi 0.14 to 1.0 called numbers so that are milliseconds."""
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    made.insert(pa.table({"id": ["a"], "at": pa.array([1_700_000_000_000])}).cast(schema))
    uri = stripped(tmp_path / "table")
    [path] = Path(uri).glob("*.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    [commit] = Path(uri, ".hoodie").glob("*.commit")
    commit.write_text(commit.read_text().replace("timestamp-micros", "timestamp-millis"))
    with pytest.raises(
        UpgradeError, match=r"microseconds in a column of milliseconds.*column='at'"
    ):
        adopt(uri)


def test_groups_that_were_replaced_are_gone(tmp_path: Path) -> None:
    grown(tmp_path / "table")
    uri = stripped(tmp_path / "table")
    groups: dict[str, set[str]] = {}
    for path in Path(uri).glob("city=*/*.parquet"):
        groups.setdefault(path.parent.name, set()).add(path.name.split("_")[0])
    gone = {"city=ny": sorted(groups["city=ny"])}
    body = json.loads(max(Path(uri, ".hoodie").glob("*.commit")).read_text())
    body |= {"partitionToReplaceFileIds": gone, "extraMetadata": {}}
    for name, text in ((".requested", ""), (".inflight", ""), ("", json.dumps(body))):
        Path(uri, ".hoodie", f"20990101000000000.replacecommit{name}").write_text(text)
    table = adopt(uri)
    assert {row[1] for row in scanned(table)} == {"sf"}
    assert scanned(table) == read_by_hudi(uri)
    assert table.verify().findings == ()
    table.upsert(arrow(rows(0, 4, 30)))
    table.clean(versions=1, hours=0)
    assert scanned(table) == read_by_hudi(uri)
    assert not any(one in str(path) for path in Path(uri).rglob("*") for one in gone["city=ny"])


def test_files_of_older_schemas_are_read_as_the_newest(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("i", pa.int32())])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    made.insert(pa.table({"id": ["a", "b"], "n": [1, 2], "i": [5, None]}, schema=schema))
    uri = stripped(tmp_path / "table")
    added = {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}
    with_columns(uri, n="long", i="double", when=added)
    table = adopt(uri)
    times = pa.list_(pa.field("element", pa.timestamp("ms", "UTC"), nullable=False))
    assert table.schema == pa.schema(
        [("id", pa.string()), ("n", pa.int64()), ("i", pa.float64()), ("when", times)]
    )
    assert (table.scan(where=metatable.col("n") > 1).count(), table.verify().findings) == (1, ())
    table.upsert(pa.table({"id": ["b"], "n": [1 << 40], "i": [0.1]}))
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": "a", "n": 1, "i": 5.0, "when": None},
        {"id": "b", "n": 1 << 40, "i": 0.1, "when": None},
    ]
    assert table.verify().findings == ()


def clustered(uri: str, instant: str, operation: str) -> None:
    """A commit of another writer behind all others, with the schema of the newest one."""
    newest = max(Path(uri, ".hoodie").glob("*.commit"))
    body = json.loads(newest.read_text()) | {"operationType": operation}
    body |= {"partitionToWriteStats": {}, "partitionToReplaceFileIds": {}}
    for name, text in ((".requested", ""), (".inflight", ""), ("", json.dumps(body))):
        newest.with_name(f"{instant}.replacecommit{name}").write_text(text)


def test_a_clustering_does_not_tell_the_columns(theirs: str) -> None:
    """It tells those with which it began. So do Hudi's other services."""
    before = adopt(theirs).schema
    stripped(Path(theirs))
    clustered(theirs, "20990101000000000", "CLUSTER")
    clustered(theirs, "20990102000000000", "LOG_COMPACT")
    with_columns(theirs, new="long")
    table = adopt(theirs)
    assert table.schema == before.append(pa.field("new", pa.int64()))
    table.upsert(arrow(rows(0, 1, 9)).append_column("new", pa.array([7])))
    assert sum(table.scan().to_arrow()["new"].drop_null().to_pylist()) == 7
    assert table.verify().findings == ()


def test_a_clustering_tells_the_columns_where_nobody_else_does(theirs: str) -> None:
    with_columns(theirs, new="long")
    clustered(theirs, "20990101000000000", "CLUSTER")
    for path in Path(theirs, ".hoodie").glob("[0-9]*"):
        if not path.name.startswith("2099"):
            path.unlink()  # archived
    created = {"name": "t", "type": "record", "fields": [{"name": "id", "type": "string"}]}
    with_properties(theirs, hoodie__table__create__schema=json.dumps(created))
    assert "new" in adopt(theirs).schema.names


def test_a_commit_that_a_savepoint_kept_tells_no_columns_before_a_clustering(theirs: str) -> None:
    """What was archived between them may have brought some."""
    home = Path(theirs, ".hoodie")
    old = max(home.glob("*.commit"))
    body = old.read_text()
    with_columns(theirs, new="long")
    clustered(theirs, "20990101000000000", "CLUSTER")
    old.write_text(body)
    for path in home.glob("[0-9]*"):
        if path.name[:17] not in (old.name[:17], "20990101000000000"):
            path.unlink()  # archived
    for end in (".savepoint.inflight", ".savepoint"):
        home.joinpath(f"{old.name[:17]}{end}").touch()
    store = Store(theirs)
    properties = TableProperties.decode((home / "hoodie.properties").read_bytes())
    assert "new" in schema_of(store, OtherTimeline.load(store), properties).names


def record_of(name: str, **fields: str) -> dict[str, Any]:
    told = [{"name": one, "type": ["null", kind], "default": None} for one, kind in fields.items()]
    return {"type": "record", "name": name, "fields": told}


def test_fields_that_went_are_passed_over_in_files_that_have_them(tmp_path: Path) -> None:
    """As columns that went are: in structs of any depth. Of a name that comes again the files' old
    values are none."""
    deep = pa.struct([("x", pa.int32()), ("y", pa.string())])
    kinds = {"at": deep, "l": pa.list_(deep), "m": pa.map_(pa.string(), deep)}
    schema = pa.schema({"id": pa.int64(), **kinds})
    options = {"small_file_bytes": 0}
    table = metatable.create(
        tmp_path / "table", schema, key="id", options=options, storage_options=FAST
    )
    was, now = {"x": 1, "y": "old"}, {"x": 1}
    given = [{"id": 1, "at": was, "l": [was, None], "m": [("k", was)]}, {"id": 2}]
    for row in given:
        table.insert(pa.Table.from_pylist([row], schema))
    uri = stripped(tmp_path / "table")
    without_ids(uri)
    some = {"type": "array", "items": ["null", record_of("l", x="int")]}
    named = {"type": "map", "values": ["null", record_of("m", x="long")]}
    with_columns(uri, at=record_of("at", x="int"), l=some, m=named)
    ours = adopt(uri, options=options)
    left = [
        {"id": 1, "at": now, "l": [now, None], "m": [("k", now)]},
        {"id": 2, "at": None, "l": None, "m": None},
    ]
    assert ours.scan().to_arrow().sort_by("id").to_pylist() == left
    assert by_hudi(uri) == texts(left)
    assert ours.verify().findings == ()
    ours.upsert(pa.Table.from_pylist([{"id": 2, "at": {"x": 5}}, {"id": 3}], ours.schema))
    left[1]["at"] = {"x": 5}
    left.append({"id": 3, "at": None, "l": None, "m": None})
    assert ours.scan().to_arrow().sort_by("id").to_pylist() == left
    assert by_hudi(uri) == texts(left)
    again = [("at.y", pa.string()), ("l.element.y", pa.int32())]
    ours.alter(*(metatable.AddColumn(*one) for one in again))
    left[0] |= {"at": {"x": 1, "y": None}, "l": [{"x": 1, "y": None}, None]}
    left[1]["at"] = {"x": 5, "y": None}
    assert ours.scan().to_arrow().sort_by("id").to_pylist() == left
    assert by_hudi(uri) == texts(left)
    assert ours.verify().findings == ()


def test_a_struct_of_which_all_fields_went_is_refused(tmp_path: Path) -> None:
    """What Spark reads of one is null, or a struct of nulls, by a setting."""
    schema = pa.schema({"id": pa.int64(), "at": pa.struct([("x", pa.int32())])})
    table = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    table.insert(pa.Table.from_pylist([{"id": 1, "at": {"x": 1}}], schema))
    uri = stripped(tmp_path / "table")
    without_ids(uri)
    with_columns(uri, at=record_of("at", y="int"))
    check_refused(uri, UpgradeError, "a column of another type than the table")


FLOATS: dict[str, tuple[pa.DataType, Any]] = {
    "a column": (pa.float32(), "double"),
    "a list": (pa.list_(pa.float32()), {"type": "array", "items": ["null", "double"]}),
    "a map": (pa.map_(pa.string(), pa.float32()), {"type": "map", "values": ["null", "double"]}),
    "a struct": (
        pa.struct([("x", pa.int32()), ("y", pa.float32())]),
        {
            "type": "record",
            "name": "f",
            "fields": [
                {"name": "x", "type": ["null", "int"]},
                {"name": "y", "type": ["null", "double"]},
            ],
        },
    ),
}


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_that_are_doubles_by_now_are_refused(kind: str, tmp_path: Path) -> None:
    """Hudi on Spark and the wheel read 0.1 there, by its text, and we 0.10000000149011612."""
    held, avro = FLOATS[kind]
    schema = pa.schema([("id", pa.string()), ("f", held)])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    made.insert(pa.table({"id": ["a"], "f": [None]}, schema=schema))
    uri = stripped(tmp_path / "table")
    with_columns(uri, f=avro)
    check_refused(uri, UpgradeError, "have Hudi write it anew")


OLD, NEW = date(1582, 10, 14), date(1582, 10, 15)
SPARK = "org.apache.spark."


@pytest.mark.parametrize(
    ("told", "days", "match"),
    [
        ({"legacyDateTime": ""}, [NEW, OLD], "column='day'"),
        ({"legacyDateTime": "", "version": "3.5.7"}, [OLD, None], "column='day'"),
        ({"version": "2.4.8"}, [OLD], "column='day'"),
        ({"legacyDateTime": ""}, [NEW, None], "column='at'"),
        ({"legacyDateTime": ""}, [date(1900, 1, 1), None], None),
        ({"legacyDateTime": ""}, [None], None),
        ({"version": "3.5.7"}, [OLD, None], None),
        ({"legacyINT96": ""}, [OLD], None),
        ({}, [OLD], None),
    ],
)
def test_days_of_another_calendar_are_refused(
    told: dict[str, str], days: list[date | None], match: str | None, tmp_path: Path
) -> None:
    """Spark reads them as others than their numbers say, and would not in a file of ours."""
    schema = pa.schema(
        [("id", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]
    )
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    ids = [f"k{number}" for number in range(len(days))]
    columns = [pa.array(ids), pa.array(days, pa.date32())]
    made.insert(pa.table([*columns, columns[1].cast(schema.field("at").type)], schema=schema))
    uri = stripped(tmp_path / "table")
    [path] = Path(uri).glob("*.parquet")
    held = pq.read_table(path)
    marks = {f"{SPARK}{name}": value for name, value in told.items()}
    pq.write_table(held.replace_schema_metadata({**(held.schema.metadata or {}), **marks}), path)
    if match is None:
        assert adopt(uri).scan().to_arrow()["day"].to_pylist() == days
    else:
        check_refused(uri, UpgradeError, match)


def remembered(uri: str, *schemas: dict[str, Any]) -> None:
    """What Hudi's schema on read has written of the schemas that there were, newest first."""
    folder = Path(uri, ".hoodie/.schema")
    folder.mkdir()
    told = [{"max_column_id": 9, "type": "record", **one} for one in schemas]
    (folder / "20990101000000000.schemacommit").write_text(json.dumps({"schemas": told}))
    (folder / "20980101000000000.schemacommit").write_text("")
    (folder / "20990102000000000.schemacommit.inflight").touch()


def with_ids(**columns: tuple[int, Any]) -> dict[str, Any]:
    told = [{"id": id_, "name": one, "type": kind} for one, (id_, kind) in columns.items()]
    return {"type": "record", "fields": told}


def list_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "element_id": 7, "element": kind, "element_optional": True}


def map_of(kind: Any) -> dict[str, Any]:
    return {"type": "map", "key_id": 7, "value_id": 8, "key": "string", "value": kind}


RENAMED: dict[str, list[dict[str, Any]]] = {
    "w": [with_ids(id=(5, "string"), w=(6, "int")), with_ids(id=(5, "string"), v=(6, "int"))],
    "v": [with_ids(v=(7, "int")), with_ids(), with_ids(v=(6, "int"))],
    "at.y": [with_ids(at=(5, with_ids(**{name: (6, "int")}))) for name in "yx"],
    "at.element.y": [with_ids(at=(5, list_of(with_ids(**{name: (8, "int")})))) for name in "yx"],
    "at.value.y": [with_ids(at=(5, map_of(with_ids(**{name: (9, "int")})))) for name in "yx"],
}


@pytest.mark.parametrize("column", RENAMED)
def test_columns_that_hudi_finds_by_ids_are_refused(theirs: str, column: str) -> None:
    """Its files have them under other names, or other columns under theirs."""
    remembered(theirs, *RENAMED[column])
    check_refused(theirs, UpgradeError, "by Hudi's schema on read")
    with pytest.raises(UpgradeError, match=f"column='{column}'"):
        adopt(theirs)


def test_columns_that_were_added_widened_dropped_and_moved_are_taken(theirs: str) -> None:
    first = with_ids(id=(5, "string"), v=(6, "int"), tags=(8, list_of("int")), gone=(9, "int"))
    last = with_ids(v=(6, "long"), id=(5, "string"), tags=(8, list_of("long")), new=(10, "int"))
    remembered(theirs, last, first)
    assert adopt(theirs).verify().findings == ()


def test_a_history_of_schemas_that_is_damaged_is_refused(theirs: str) -> None:
    remembered(theirs, {"fields": [{"name": "id", "type": "string"}]})
    check_refused(theirs, CorruptError, "schema is not readable")


def with_columns(uri: str, **avro: Any) -> None:
    """Other types of columns in the schema of the last commit; those that it lacks come last."""
    commit = max(Path(uri, ".hoodie").glob("*.commit"))
    body = json.loads(commit.read_text())
    schema = json.loads(body["extraMetadata"]["schema"])
    for column in schema["fields"]:
        if (kind := avro.pop(column["name"], None)) is not None:
            column["type"] = ["null", kind]
    schema["fields"] += [{"name": name, "type": ["null", kind]} for name, kind in avro.items()]
    body["extraMetadata"]["schema"] = json.dumps(schema)
    commit.write_text(json.dumps(body))


def without_ids(uri: str, **more: int) -> None:
    """Files as another writer makes them: their columns are their names; some have more of them,
    of one value each."""
    for file in Path(uri).rglob("*.parquet"):
        held = pq.read_table(file, partitioning=None)
        words = held.schema.metadata
        for name, value in more.items():
            held = held.append_column(name, pa.array([value] * len(held)))
        metadata = {name: word for name, word in words.items() if b"field_ids" not in name}
        pq.write_table(held.replace_schema_metadata(metadata), file)


def test_a_file_without_rows_is_told_of_too(tmp_path: Path) -> None:
    table = created(tmp_path / "table", "metadata_bloom", "partition")
    table.insert(arrow(rows(0, 6, 1)))
    table.delete(arrow(rows(0, 6, 0)[::2]))
    uri = stripped(tmp_path / "table")
    for path in Path(uri).glob("city=ny/*.parquet"):
        if not (held := pq.ParquetFile(path).read()).num_rows:
            pq.ParquetWriter(path, held.schema).close()  # nor a row group
    for index in ("metadata_bloom", "record"):
        table = adopt(uri, index=index, options={"key_scope": "partition"})
        assert (table.describe().rows, table.verify().findings) == (3, ())
        stripped(Path(uri))


def test_blanks_between_names_are_no_matter(theirs: str) -> None:
    with_properties(theirs, hoodie__table__recordkey__fields=" id ")
    assert adopt(theirs).options.key == ("id",)
    assert metatable.open(theirs).verify().findings == ()


def test_the_ordering_column_has_another_name_in_newer_tables(theirs: str) -> None:
    """Hudi 1.1 and newer call it so, also in a table of version 6."""
    with_properties(
        theirs, hoodie__table__precombine__field="", hoodie__table__ordering__fields="ts"
    )
    table = adopt(theirs)
    assert table.options.ordering == "ts"
    before = scanned(table)
    told = table.upsert(arrow([row | {"v": -1, "ts": -1} for row in rows(5, 8, 0)]))
    assert (told.stale, told.updated) == (3, 0)
    assert scanned(table) == before


PAYLOADS = "org.apache.hudi.common.model."


@pytest.mark.parametrize(
    ("told", "ordering"),
    [
        ({"payload": "DefaultHoodieRecordPayload"}, "ts"),
        ({"payload": "EventTimeAvroPayload"}, "ts"),
        ({"payload": "OverwriteWithLatestAvroPayload"}, None),
        ({"mode": "EVENT_TIME_ORDERING"}, "ts"),
        ({"mode": "COMMIT_TIME_ORDERING"}, None),
        ({"payload": "OverwriteWithLatestAvroPayload", "mode": "EVENT_TIME_ORDERING"}, None),
    ],
)
def test_where_the_later_commit_wins_it_goes_on_winning(
    theirs: str, told: dict[str, str], ordering: str | None
) -> None:
    """Hudi's writers of such a table put an upsert's row in place of a newer one that is stored."""
    payload = PAYLOADS + told["payload"] if "payload" in told else ""
    mode = told.get("mode", "")
    with_properties(
        theirs, hoodie__compaction__payload__class=payload, hoodie__record__merge__mode=mode
    )
    table = adopt(theirs)
    assert table.options.ordering == ordering
    given = [row | {"v": -1, "ts": -1} for row in rows(5, 8, 0)]
    result = table.upsert(arrow(given))
    assert (result.updated, result.stale) == ((0, 3) if ordering else (3, 0))
    stored = [row["v"] for row in table.read_keys(arrow(given)).to_pylist()]
    assert stored == ([1, 1, 1] if ordering else [-1, -1, -1])
    assert table.verify().findings == ()


# Refusals


def check_refused(uri: str | Path, error: type[Exception], match: str, **how: Any) -> None:
    """Refused, and not a byte is another."""
    before = everything(uri)
    with pytest.raises(error, match=re.escape(match)):
        adopt(uri, **how)
    assert everything(uri) == before


def with_properties(uri: str, **changed: str) -> None:
    """Dots are two underscores; an empty value takes the line away."""
    path = Path(uri, ".hoodie/hoodie.properties")
    named = {name.replace("__", "."): value for name, value in changed.items()}
    kept = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in named]
    path.write_text("\n".join([*kept, *(f"{one}={named[one]}" for one in named if named[one])]))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of another writer; never to be touched."""

    def of_others(uri: str) -> None:
        grown(Path(uri))
        stripped(Path(uri))

    return made_once(tmp_path_factory, "others", of_others)


@pytest.fixture
def theirs(others: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copytree(others, tmp_path / "theirs"))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"hoodie__populate__meta__fields": "false"}, "lack record keys"),
        ({"hoodie__datasource__write__partitionpath__urlencode": "true"}, "are escaped"),
        ({"hoodie__partition__metafile__use__base__format": "true"}, "are Parquet files, which"),
        ({"hoodie__datasource__write__drop__partition__columns": "true"}, "partition columns"),
        ({"hoodie__table__base__file__format": "ORC"}, "not Parquet"),
        ({"hoodie__table__cdc__enabled": "true"}, "change logs"),
        ({"hoodie__table__metadata__partitions": "files"}, "hoodie.metadata.enable=false"),
        ({"hoodie__table__metadata__partitions__inflight": "files"}, "somebody else's work"),
        ({"hoodie__bootstrap__base__path": "/elsewhere"}, "somebody else's work"),
        ({"hoodie__table__keygenerator__class": "org.TimestampBasedKeyGenerator"}, "of its own"),
        ({"hoodie__table__keygenerator__class": "my.own.CustomKeyGenerator"}, "of its own"),
        ({"hoodie__table__keygenerator__type": "TIMESTAMP"}, "of its own"),
        ({"hoodie__table__precombine__field": "ts,v"}, "could not go on"),
        ({"hoodie__table__ordering__fields": "ts,v"}, "hoodie.table.ordering.fields"),
        ({"hoodie__table__recordkey__fields": ""}, "could not go on"),
        ({"hoodie__table__recordkey__fields": "at.id"}, "partitions or order: create one from its"),
        ({"hoodie__table__partition__fields": "at.city"}, "column='at.city'"),
        ({"hoodie__table__precombine__field": "at.ts"}, "no such column: column='at.ts'"),
        ({"hoodie__compaction__payload__class": "my.own.Payload"}, "in a way of its own"),
        (
            {"hoodie__compaction__payload__class": f"{PAYLOADS}PartialUpdateAvroPayload"},
            "hoodie.compaction.payload.class",
        ),
        ({"hoodie__record__merge__mode": "CUSTOM"}, "in a way of its own"),
        ({"hoodie__table__version": "5"}, "table version 6"),
        ({"hoodie__table__version": "8", "hoodie__timeline__layout__version": "2"}, "version 6"),
        ({"hoodie__table__type": "MERGE_ON_READ"}, "copy-on-write"),
        ({"hoodie__table__recordkey__fields": "v"}, "not those that our writers make"),
        ({"hoodie__datasource__write__hive_style_partitioning": "false"}, "not those that our"),
    ],
)
def test_properties_that_our_writers_could_not_go_on_with(
    theirs: str, changed: dict[str, str], match: str
) -> None:
    with_properties(theirs, **changed)
    check_refused(theirs, UpgradeError, match)


def test_a_metadata_table_that_the_properties_do_not_name_is_refused(theirs: str) -> None:
    path = Path(theirs, ".hoodie/metadata/.hoodie/hoodie.properties")
    path.parent.mkdir(parents=True)
    path.write_text("hoodie.table.version=6\n")
    check_refused(theirs, UpgradeError, "metadata delete")


@pytest.mark.parametrize(
    "name",
    [
        "20990101000000000.commit.requested",
        "20990101000000000.inflight",
        "20990101000000000.replacecommit.requested",
        "20990101000000000.clean.inflight",
        "20990101000000000.rollback.requested",
    ],
)
def test_nothing_may_be_under_way(theirs: str, name: str) -> None:
    Path(theirs, ".hoodie", name).touch()
    check_refused(theirs, ConflictError, "is at work here, or has died at it")


@pytest.mark.parametrize("instant", ["99999999999999999", "20261399999999999", "99991231235959999"])
def test_a_commit_at_no_time_is_refused_by_its_name(theirs: str, instant: str) -> None:
    Path(theirs, f".hoodie/{instant}.commit").write_bytes(b"{}")
    check_refused(theirs, CorruptError, f"an action at no time: path='.hoodie/{instant}.commit'")


@pytest.mark.parametrize(
    ("avro", "match"),
    [
        ({"type": "enum", "name": "e", "symbols": ["a"]}, "does not write"),
        (["null", "int", "string"], "does not write"),
        ({"type": "array"}, "not readable"),
        ("int", "another type than the table"),
    ],
)
def test_columns_that_are_not_ours_to_write(theirs: str, avro: Any, match: str) -> None:
    commit = max(Path(theirs, ".hoodie").glob("*.commit"))
    body = json.loads(commit.read_text())
    schema = json.loads(body["extraMetadata"]["schema"])
    [column] = [one for one in schema["fields"] if one["name"] == "city"]
    column["type"] = avro
    body["extraMetadata"]["schema"] = json.dumps(schema)
    commit.write_text(json.dumps(body))
    with_properties(theirs, hoodie__table__partition__fields="")
    error = CorruptError if match == "not readable" else UpgradeError
    check_refused(theirs, error, match)


@pytest.mark.parametrize("unit", ["millis", "micros"])
def test_local_timestamps_are_refused(tmp_path: Path, unit: str) -> None:
    """Our commits would tell all readers that they are moments."""
    kind = pa.list_(pa.timestamp({"millis": "ms", "micros": "us"}[unit]))
    schema = pa.schema([("id", pa.string()), ("at", kind)])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    made.insert(pa.table({"id": ["a"], "at": [[1]]}).cast(schema))
    uri = stripped(tmp_path / "table")
    without_ids(uri)
    local = {"type": "long", "logicalType": f"local-timestamp-{unit}"}
    with_columns(uri, at={"type": "array", "items": ["null", local]})
    check_refused(uri, UpgradeError, "a column of a type that metatable does not write")
    with pytest.raises(UpgradeError, match=rf"column='at.element' found=.*local-timestamp-{unit}"):
        adopt(uri)


def test_a_key_of_a_type_that_makes_none_is_refused_with_the_way_out(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("f", pa.float64())])
    made = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    made.insert(pa.table({"id": ["a"], "f": [0.5]}, schema=schema))
    uri = stripped(tmp_path / "table")
    with_properties(uri, hoodie__table__recordkey__fields="f")
    check_refused(uri, UpgradeError, "partitions or order: create one from its rows")


def twin(theirs: str, scope: str) -> None:
    """A file of `ny` once more: in a group of its own, in global scope in another partition."""
    live = max(Path(theirs, "city=ny").glob("*.parquet"), key=lambda path: path.name[-25:])
    name = f"00000000-1111-2222-3333-444444444444-0_0-0-0_{live.name[-25:]}"
    if scope == "partition":
        shutil.copy(live, live.with_name(name))
        return
    held = pq.read_table(live)
    for column, text in (("city", "sf"), ("_hoodie_partition_path", "city=sf")):
        place = held.schema.get_field_index(column)
        field = held.schema.field(place)  # with its id
        held = held.set_column(place, field, pa.repeat(text, held.num_rows))
    pq.write_table(held, Path(theirs, "city=sf", name))


@pytest.mark.parametrize(
    ("index", "scope"),
    [("metadata_bloom", "partition"), ("metadata_bloom", "global"), ("record", "global")],
)
def test_keys_that_are_there_twice_are_named(theirs: str, index: str, scope: str) -> None:
    twin(theirs, scope)
    given = {"key_scope": scope}
    check_refused(theirs, UsageError, "keys are more than once in", index=index, options=given)
    with suppress(UsageError):
        adopt(theirs, index=index, options=given)
        pytest.fail("taken")
    if scope == "global":  # in partition scope these are keys of two rows
        assert adopt(theirs, index=index, options={"key_scope": "partition"}).version == 1


def test_two_slices_of_one_instant_are_refused(theirs: str) -> None:
    live = max(Path(theirs, "city=ny").glob("*.parquet"), key=lambda path: path.name[-25:])
    shutil.copy(live, live.with_name(live.name.replace("-0-0_", "-7-7_")))
    check_refused(theirs, CorruptError, "two slices of one instant")


def test_a_partition_path_with_a_backslash_is_refused_with_the_way_out(theirs: str) -> None:
    Path(theirs, "city=ny").rename(Path(theirs, "city=n\\y"))
    check_refused(theirs, UpgradeError, "no path of ours has a backslash: create one from its rows")


def test_a_footer_that_denies_its_own_keys_is_not_believed(theirs: str) -> None:
    ny, sf = (
        max(Path(theirs, folder).glob("*.parquet"), key=lambda path: path.name[-25:])
        for folder in ("city=ny", "city=sf")
    )
    other = pq.ParquetFile(sf).metadata.metadata
    rows_of_ny = pq.ParquetFile(ny).read().replace_schema_metadata(other)
    with pq.ParquetWriter(ny, rows_of_ny.schema, store_schema=False) as writer:
        writer.write_table(rows_of_ny)
        writer.add_key_value_metadata({k.decode(): v.decode() for k, v in other.items()})
    check_refused(theirs, UpgradeError, "leaves out keys", index="bloom")
    assert adopt(theirs, index="metadata_bloom").verify().findings == ()


def test_what_savepoints_leave_unsure_is_refused(theirs: str) -> None:
    """The second commit was archived, and the first one kept: is the second one's file live?"""
    home = Path(theirs, ".hoodie")
    first, second, *_ = sorted(path.name.partition(".")[0] for path in home.glob("*.commit"))
    for state in ("", ".inflight"):
        (home / f"{first}.savepoint{state}").touch()
    for path in home.glob(f"{second}*"):
        path.unlink()
    assert any(second in path.name for path in Path(theirs).rglob("*.parquet"))
    check_refused(theirs, UpgradeError, "cannot be told")


def test_a_placement_that_is_not_the_tables_is_refused(theirs: str) -> None:
    check_refused(theirs, UsageError, "in another file group", index="bucket")


def test_buckets_are_as_many_as_the_properties_say(tmp_path: Path) -> None:
    table = created(tmp_path / "table", "bucket", "partition", bucket_count=3)
    table.insert(arrow(rows(0, 9, 1)))
    uri = stripped(tmp_path / "table")
    check_refused(uri, UsageError, "another bucket_count", index="bucket")
    assert adopt(uri, index="bucket", options={"bucket_count": 3}).options.bucket_count == 3
    stripped(tmp_path / "table")
    with_properties(uri, hoodie__bucket__index__num__buckets="3")
    assert adopt(uri, index="bucket").options.bucket_count == 3


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"index": "none"}, "no such index"),
        ({"options": {"hive_style": False}}, "style of the partition paths"),
        ({"options": {"nonsense": 1}}, "unknown option"),
        ({"engine": "spark"}, "no such engine"),
    ],
)
def test_calls_that_cannot_be_carried_out(theirs: str, how: dict[str, Any], match: str) -> None:
    check_refused(theirs, UsageError, match, **how)


def test_a_table_that_nobody_adopted_is_not_opened(theirs: str) -> None:
    with pytest.raises(UpgradeError, match=re.escape("metatable.adopt makes an index")):
        metatable.open(theirs)
    with pytest.raises(metatable.NotFoundError):
        metatable.adopt(f"{theirs}-not")


# Kills and rivals


def adopting_by(store: Store, index: str = "record") -> None:
    given = {"lease_seconds": 0, "hfile_codec": "none", "key_scope": "partition"}
    adopt_table(store, LocalEngine(1), check_properties(store), index, given)


def changing_by(store: Store) -> None:
    change_index(store, LocalEngine(1), "record", {})


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_killed_anywhere_it_is_adopted_or_as_it_was(whose: str, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    model = grown(origin)
    run: Callable[[Store], None] = changing_by
    if whose == "theirs":
        stripped(origin)
        run = adopting_by
    before = bytes_of(origin)
    shutil.copytree(origin, tmp_path / "dry")
    store, backend = watched(str(tmp_path / "dry"))
    run(store)
    limits = backend.kills()
    assert len(limits) >= 4
    for limit in one_in(6, [0, *limits]):
        uri = tmp_path / f"killed-{limit}"
        shutil.copytree(origin, uri)
        store, backend = watched(str(uri), limit=limit)
        with suppress(Refused):
            run(store)
        assert bytes_of(uri) == before
        assert read_by_hudi(str(uri)) == model.listed()
        if whose == "ours":
            assert scanned(metatable.open(uri)) == model.listed()
        table = adopt(
            uri, index="record", options={"key_scope": "partition"} if whose == "theirs" else {}
        )
        assert table.options.index == "record"
        check(table, model)
        table.upsert(arrow(rows(0, 2, 9)))
        table.clean(versions=1, hours=0)
        assert strange_files(Store(str(uri), FAST)) == []
        shutil.rmtree(uri)


@contextmanager
def coming_before(uri: str, where: str, come: Callable[[], object]) -> Iterator[Store]:
    """A store; whoever uses it is forestalled, once, before the first call that `where` matches."""
    done: list[str] = []

    def before(verb: str, path: str) -> None:
        if not done and re.fullmatch(where, f"{verb} {path}"):
            done.append(path)
            come()

    store, _ = watched(uri, before=before)
    yield store
    assert done


ROOT = r"create .*/manifest/\d+\.json"


def test_of_two_who_adopt_at_once_one_is_first(theirs: str) -> None:
    with (
        coming_before(theirs, ROOT, lambda: adopting_by(Store(theirs, FAST), "bloom")) as store,
        pytest.raises(ConflictError, match="has just adopted"),
    ):
        adopting_by(store)
    table = metatable.open(theirs, FAST)
    assert (table.options.index, table.verify().findings) == ("bloom", ())
    table.clean(versions=1, hours=0)
    assert strange_files(Store(str(theirs), FAST)) == []


def test_an_adoption_whose_put_lands_though_nobody_was_told_is_whole(theirs: str) -> None:
    store, backend = watched(theirs)
    create, late = backend.create, []

    def lands_later(path: str, body: bytes, **how: Any) -> bool:
        if "/manifest/" in path:
            late.append((path, body))
            raise StoreError("no answer")
        return create(path, body, **how)

    backend.create = lands_later  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="no answer"):
        adopting_by(store)
    [(path, body)] = late
    Store(theirs, FAST).put(path, body)
    assert metatable.open(theirs, FAST).verify().findings == ()


def commits(uri: str, name: str = "20990101000000000.commit") -> Callable[[], object]:
    """Another writer's last step."""
    source = max(Path(uri, ".hoodie").glob("*.commit"))
    return lambda: shutil.copy(source, Path(uri, ".hoodie", name))


def test_a_commit_that_comes_while_files_are_read_is_noticed(theirs: str) -> None:
    before = everything(theirs).keys()
    with (
        coming_before(theirs, r"\w+ .*hfile", commits(theirs)) as store,
        pytest.raises(ConflictError, match="has been at work meanwhile"),
    ):
        adopting_by(store)
    assert everything(theirs).keys() - before == {".hoodie/20990101000000000.commit"}
    assert adopt(theirs, options={"key_scope": "partition"}).verify().findings == ()


def test_a_commit_that_comes_before_the_put_is_noticed_after_it(theirs: str) -> None:
    with (
        coming_before(theirs, ROOT, commits(theirs)) as store,
        pytest.raises(UpgradeError, match="begun while the table was adopted"),
    ):
        adopting_by(store)
    table = metatable.open(theirs, FAST)
    with pytest.raises(UpgradeError, match="20990101000000000"):
        table.upsert(arrow(rows(0, 1, 1)))
    [finding] = table.verify().findings
    assert "20990101000000000" in str(finding)
    stripped(Path(theirs))  # the way out that is named
    assert adopt(theirs).verify().findings == ()


def test_another_writer_after_the_adoption_is_told_by_its_own_instant(theirs: str) -> None:
    table = adopt(theirs)
    table.upsert(arrow(rows(0, 3, 9)))
    commits(theirs)()
    with pytest.raises(UpgradeError, match="20990101000000000"):
        table.upsert(arrow(rows(0, 3, 10)))


# Another index for a table of ours


PAIRS = [
    ("record", "metadata_bloom", "global"),
    ("bucket", "record", "partition"),
    ("metadata_bloom", "bloom", "partition"),
    ("bloom", "metadata_bloom", "partition"),
]


@pytest.mark.parametrize(("first", "other", "scope"), PAIRS if LONG else PAIRS[:2])
def test_another_index_answers_the_same_and_no_data_is_touched(
    first: str, other: str, scope: str, tmp_path: Path
) -> None:
    uri = tmp_path / "table"
    model = grown(uri, first, scope)
    before, version = bytes_of(uri), metatable.open(uri).version
    table = adopt_ours(uri, other)
    assert (table.version, bytes_of(uri)) == (version + 1, before)
    assert table.history(1)[0].operation == "adopt"
    assert (table.options.index, table.options.key_scope) == (other, scope)
    probe = [row | {"city": city} for row in rows(0, 24, 0) for city in ("ny", "sf")]
    check(table, model, probe)
    keys = arrow(probe).select(["id", "city"])
    now = located(table.tag_locations(keys))
    if first != "bucket":  # which tells where a key would be
        assert located(table.tag_locations(keys, version=version)) == now
    given = rows(6, 20, 8, shift=1)
    table.upsert(arrow(given))
    model.upsert(given)
    check(table, model, probe)
    held = load_version(Store(str(uri), FAST), table.version, 0).pages
    assert ("record_index" in held, "bloom_filter" in held) == (
        other == "record",
        other == "metadata_bloom",
    )
    table.compact(major=True)
    table.clean(versions=1, hours=0)
    check(table, model, probe)
    assert strange_files(Store(str(uri), FAST)) == []


def adopt_ours(uri: str | Path, index: str, **options: Any) -> Table:
    return metatable.adopt(uri, index=index, options=options, storage_options=FAST)


def located(tagged: pa.Table) -> list[Any]:
    found = tagged["_location"].to_pylist()
    return [one and (one["partition_path"], one["file_id"], one["instant"]) for one in found]


def test_going_back_goes_back_to_the_index_of_then(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    model = grown(uri)
    table = metatable.open(uri, FAST)
    version = table.version
    adopt_ours(uri, "record")
    table.upsert(arrow(rows(0, 4, 20)))
    table.rollback()
    assert table.options.index == "record"
    check(table, model, rows(0, 20, 0))
    table.upsert(arrow(rows(0, 4, 21)))
    table.restore(version)
    assert table.options.index == "metadata_bloom"
    check(table, model, rows(0, 20, 0))
    given = rows(3, 9, 22)
    table.upsert(arrow(given))
    model.upsert(given)
    check(table, model, rows(0, 20, 0))


def test_filters_of_before_are_not_asked_once_they_are_made_anew(tmp_path: Path) -> None:
    """The files are the same, but keys have come to logs beside them meanwhile."""
    uri, asked = tmp_path / "table", pa.table({"id": ["m"], "city": ["ny"]})
    table = metatable.create(
        uri, SCHEMA, key="id", partition_by="city", table_type="mor", storage_options=FAST
    )
    table.insert(arrow([{"id": id, "city": "ny", "v": 0, "ts": 0} for id in "az"]))
    then = table.version
    assert table.filter_exists(asked).num_rows == 0  # its filter is kept from here on
    adopt_ours(uri, "record")
    table.insert(arrow([{"id": "m", "city": "ny", "v": 0, "ts": 0}]))
    adopt_ours(uri, "metadata_bloom")
    for one in (table, metatable.open(uri)):
        assert one.filter_exists(asked).num_rows == one.read_keys(asked).num_rows == 1
        assert one.tag_locations(asked, version=then)["_location"].null_count == 1
    assert table.delete(asked).deleted == 1


def test_of_one_index_the_options_may_be_others(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    model = grown(uri)
    table = adopt_ours(uri, "metadata_bloom", filter_kind="split_block", filter_fpp=0.01)
    version = table.version
    check(table, model, rows(0, 20, 0))
    assert adopt_ours(uri, "metadata_bloom").version == version
    assert table.options.filter_kind == "split_block"
    table = adopt_ours(
        uri,
        "record",
        record_key_form="plain",
        record_bucket_function="java_string",
        buckets={"record_index": 5},
    )
    check(table, model, rows(0, 20, 0))


@pytest.mark.parametrize(
    ("index", "options", "match"),
    [
        ("record", {"key_scope": "global"}, "does not change with the index"),
        ("record", {"file_rows": 3}, "does not change with the index"),
        ("record", {"nonsense": 3}, "does not change with the index"),
        ("record", {"buckets": {"files": 3}}, "stays as it is"),
        ("record", {"record_bucket_function": "java_string"}, "contradict each other"),
        ("none", {}, "no such index"),
        ("bucket", {}, "contradict each other"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    index: str, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    uri = tmp_path / "table"
    created(uri, "metadata_bloom", "partition").insert(arrow(rows(0, 3, 1)))
    before = everything(uri)
    with pytest.raises(UsageError, match=match):
        adopt_ours(uri, index, **options)
    assert everything(uri) == before


def test_groups_that_do_not_follow_the_rule_of_buckets_are_refused(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    metatable.create(uri, SCHEMA, key="id", storage_options=FAST).insert(arrow(rows(0, 3, 1)))
    before = everything(uri)
    with pytest.raises(UsageError, match="in another file group"):
        adopt_ours(uri, "bucket")
    after = everything(uri)
    assert after.keys() - before.keys() <= {f"{HOME}/clock"}
    assert {name: after[name] for name in before} == before


def test_a_writer_that_began_before_the_change_starts_again(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    created(Path(uri), "metadata_bloom", "partition", lease_seconds=60).insert(arrow(rows(0, 9, 1)))
    model, given = Model(is_global=False, ordering=True), rows(6, 20, 8)
    model.upsert(rows(0, 9, 1))
    with coming_before(uri, ROOT, lambda: changing_by(Store(uri, FAST))) as store:
        assert write(store, LocalEngine(1), arrow(given), "upsert").attempts == 2
    model.upsert(given)
    table = metatable.open(uri, FAST)
    assert table.options.index == "record"
    check(table, model, rows(0, 24, 0))


@pytest.mark.parametrize("came", ["commit", "compaction", "rollback", "another"])
def test_what_comes_while_an_index_is_made(tmp_path: Path, came: str) -> None:
    uri = str(tmp_path / "table")
    model = grown(Path(uri))
    given = rows(6, 20, 8)

    def come() -> None:
        table = metatable.open(uri, FAST)
        if came == "commit":
            table.upsert(arrow(given))
            model.upsert(given)
        elif came == "compaction":
            table.compact(major=True)
        elif came == "rollback":
            table.rollback()
            model.rollback()
        else:
            adopt_ours(uri, "bloom")

    with coming_before(uri, ROOT, come) as store:
        changing_by(store)
    table = metatable.open(uri, FAST)
    assert table.options.index == "record"
    check(table, model, rows(0, 24, 0))
    table.clean(versions=1, hours=0)
    assert strange_files(Store(str(uri), FAST)) == []


def test_a_table_that_is_written_without_a_pause_keeps_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "table")
    grown(Path(uri))
    monkeypatch.setattr(changing, "RETRIES", 0)
    write_on = lambda: metatable.open(uri, FAST).upsert(arrow(rows(0, 4, 20)))  # noqa: E731
    with (
        coming_before(uri, ROOT, write_on) as store,
        pytest.raises(ConflictError, match="rows were committed meanwhile"),
    ):
        changing_by(store)
    table = metatable.open(uri, FAST)
    assert (table.options.index, table.verify().findings) == ("metadata_bloom", ())


@pytest.mark.parametrize("seed", range(12 if LONG else 2))
def test_histories_with_changes_of_the_index(seed: int, tmp_path: Path) -> None:
    random, uri = Random(seed), tmp_path / "table"
    scope = ("partition", "global")[seed % 2]
    indexes = ("metadata_bloom", "record", "bloom")
    table = created(uri, random.choice(indexes), scope, timeline_commits=3)
    model = Model(scope == "global", ordering=True)
    probe = [row | {"city": city} for row in rows(0, 30, 0) for city in ("ny", "sf")]
    undoable = 0
    for step in range(14 if LONG else 8):
        what = random.choice(("upsert", "upsert", "delete", "adopt", "adopt", "back", "clean"))
        first = random.randrange(24)
        given = rows(first, first + random.randrange(1, 8), step, shift=random.randrange(2))
        if what == "adopt":
            table = adopt_ours(uri, random.choice(indexes))
        elif what == "clean":
            table.clean(versions=1, hours=0)
            undoable = 0
        elif what == "back" and undoable:
            table.rollback()
            model.rollback()
            undoable -= 1
        else:
            before, verb = table.version, "delete" if what == "delete" else "upsert"
            getattr(table, verb)(arrow(given))
            getattr(model, verb)(given)
            if any(one.operation == verb for one in table.history(table.version - before)):
                undoable += 1
            else:
                model.forget_commit()
    check(table, model, probe)
    with Transaction.begin(Store(str(uri), FAST)):
        pass


def test_columns_that_came_and_went_are_not_taken_for_others(tmp_path: Path) -> None:
    """Files of a table of ours tell ids: a table that is adopted gives them anew."""
    table = created(tmp_path / "table", "metadata_bloom", "partition", hudi_readable=False)
    table.insert(arrow(rows(0, 4, 1)))
    table.alter(metatable.DropColumn("v"), metatable.AddColumn("v", pa.int64()))
    table.insert(arrow(rows(4, 6, 1)))
    theirs = stripped(tmp_path / "table")
    check_refused(theirs, UpgradeError, "ids that are not the table's")


NESTED = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.struct({"x": pa.int64(), "y": pa.int64()}),
        "stops": pa.list_(pa.struct({"x": pa.int64(), "y": pa.int64()})),
    }
)


CHANGES: list[ColumnChange] = [
    metatable.MoveColumn("at.y", ""),
    metatable.MoveColumn("stops.element.y", ""),
    metatable.AddColumn("at.z", pa.int64(), after=""),
    metatable.AddColumn("first", pa.struct({"x": pa.int64()}), after=""),
    metatable.DropColumn("at.x"),
    metatable.DropColumn("at"),
    metatable.RenameColumn("at", "there"),
]


def altered(uri: Path, change: ColumnChange) -> tuple[str, pa.Table]:
    """A table with files of before a change of its columns and of after it, stripped; its rows."""
    options = {"small_file_bytes": 0}
    table = metatable.create(uri, NESTED, key="id", options=options, storage_options=FAST)
    row = {"id": 1, "at": {"x": 1, "y": 2}, "stops": [{"x": 1, "y": 2}]}
    table.insert(pa.Table.from_pylist([row], NESTED))
    table.alter(change)
    table.insert(pa.Table.from_pylist([{"id": 2}], pa.schema({"id": pa.int64()})))
    rows = table.scan().to_arrow().sort_by("id")
    return stripped(uri), rows


@pytest.mark.parametrize("change", CHANGES)
def test_columns_that_changed_keep_the_ids_that_files_tell(
    tmp_path: Path, change: ColumnChange
) -> None:
    """Each later commit tells them, for Avro tells no ids: the one that has changed them may be
    archived."""
    uri, expected = altered(tmp_path / "table", change)
    _, altering, _ = sorted(Path(uri, ".hoodie").glob("*.commit"))
    if not [*Path(uri).glob(f"*_{altering.stem}.parquet")]:
        for path in altering.parent.glob(f"{altering.stem}.*"):
            path.unlink()
    for version in (1, 2):
        table = adopt(uri, options={"small_file_bytes": 0})
        assert table.scan().to_arrow().sort_by("id").equals(expected)
        assert by_hudi(uri) == texts(expected.to_pylist())
        table.upsert(expected.slice(version - 1, 1))
        assert table.scan().to_arrow().sort_by("id").equals(expected)
        assert (by_hudi(uri), table.verify().findings) == (texts(expected.to_pylist()), ())
        table.alter(metatable.AddColumn(f"new{version}", pa.int64(), after=""))
        expected = expected.add_column(0, f"new{version}", pa.nulls(2, pa.int64()))
        assert table.scan().to_arrow().sort_by("id").equals(expected)
        assert (by_hudi(uri), table.verify().findings) == (texts(expected.to_pylist()), ())
        stripped(Path(uri))


def test_columns_are_taken_with_their_ids_though_another_writer_has_committed_since(
    tmp_path: Path,
) -> None:
    uri, expected = altered(tmp_path / "table", metatable.DropColumn("at.x"))
    newest = max(Path(uri, ".hoodie").glob("*.commit"))
    body = json.loads(newest.read_text())
    del body["extraMetadata"]["metatable.columns"]
    for state in (".requested", ".inflight"):
        newest.with_name(f"20990101000000000{state}").touch()
    body["partitionToWriteStats"] = {}
    newest.with_name("20990101000000000.commit").write_text(json.dumps(body))
    assert adopt(uri).scan().to_arrow().sort_by("id").equals(expected)


UNTOLD: dict[str, Callable[[dict[str, Any]], object]] = {
    "by no commit": lambda extra: extra.pop("metatable.columns", None),
    "other columns": lambda extra: extra.update(schema=extra["schema"].replace("stops", "halts")),
}


@pytest.mark.parametrize("told", UNTOLD)
@pytest.mark.parametrize("change", CHANGES[:5])
def test_columns_are_not_taken_for_others_where_their_ids_are_not_told(
    tmp_path: Path, change: ColumnChange, told: str
) -> None:
    uri, _ = altered(tmp_path / "table", change)
    for path in Path(uri, ".hoodie").glob("*.commit"):
        body = json.loads(path.read_text())
        UNTOLD[told](body["extraMetadata"])
        path.write_text(json.dumps(body))
    check_refused(uri, UpgradeError, "ids that are not the table's")


def test_timestamps_without_a_zone_stay_so(tmp_path: Path) -> None:
    """Avro has one type for both."""
    kinds = [pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC")]
    struct = pa.struct({f"f{number}": kind for number, kind in enumerate(kinds)})
    columns = [*kinds, struct, pa.list_(kinds[0]), pa.map_(pa.string(), kinds[1])]
    names = [f"c{number}" for number in range(len(columns))]
    schema = pa.schema([("id", pa.int64()), *zip(names, columns, strict=True)])
    moment = datetime(2024, 3, 1, 1, 2, 3, 4000)
    fields = dict.fromkeys(struct.names, moment) | {"f2": moment.replace(tzinfo=UTC)}
    values = [moment, moment, fields["f2"], fields, [moment, None], [("k", moment)]]
    given = pa.Table.from_pylist(
        [{"id": 1, **dict(zip(names, values, strict=True))}, {"id": 2}], schema
    )
    table = metatable.create(tmp_path / "table", schema, key="id", storage_options=FAST)
    table.insert(given)
    uri = stripped(tmp_path / "table")
    for version in (1, 2):
        table = adopt(uri)
        assert table.schema == schema
        table.upsert(given.slice(version - 1, 1))
        assert (
            table.scan()
            .to_arrow()
            .sort_by("id")
            .equals(table.scan(version=1).to_arrow().sort_by("id"))
        )
        assert table.scan().to_arrow().sort_by("id").cast(schema).equals(given)
        assert (len(by_hudi(uri)), table.verify().findings) == (2, ())
        stripped(Path(uri))


@pytest.mark.parametrize("stats_columns", [32, 0])
def test_an_id_of_a_column_that_went_is_not_given_again(tmp_path: Path, stats_columns: int) -> None:
    given = {"hudi_readable": False, "small_file_bytes": 0}  # or no live file would have it
    table = created(tmp_path / "table", "metadata_bloom", "partition", **given)
    table.alter(metatable.AddColumn("last", pa.int64()))
    table.insert(arrow(rows(0, 4, 1)).append_column("last", pa.array([7] * 4)))
    table.alter(metatable.DropColumn("last"))
    table.insert(arrow(rows(4, 6, 1)))
    theirs = stripped(tmp_path / "table")
    ours = adopt(theirs, options={"stats_columns": stats_columns, "hudi_readable": False})
    ours.alter(metatable.AddColumn("new", pa.int64()))
    assert ours.scan(columns=["new"]).to_arrow()["new"].to_pylist() == [None] * 6
    assert ours.verify().findings == ()


def test_a_name_that_files_hold_and_the_table_has_not_is_another_column(tmp_path: Path) -> None:
    """Hudi's readers go by names, so the files are written anew."""
    table = created(tmp_path / "table", "metadata_bloom", "partition")
    table.insert(arrow(rows(0, 4, 1)))
    theirs = stripped(tmp_path / "table")
    without_ids(theirs, gone=42)
    ours = adopt(theirs, index="record", options={"key_scope": "partition"})
    more = pa.table({"id": ["k99"], "city": ["ny"], "ts": [1], "gone": [5]})
    with pytest.raises(UsageError, match="gone"):
        ours.upsert(more, evolve=True)
    done = ours.alter(metatable.AddColumn("gone", pa.int64()))
    assert done.files == len(ours.files())
    by_hudi = pa.Table.from_batches(HudiTableBuilder.from_base_uri(theirs).build().read())
    for found in (ours.scan().to_arrow(), by_hudi):
        assert found["gone"].to_pylist() == [None] * 4


# Tables with logs


FOUND = ("record", "metadata_bloom", "bloom")


@pytest.mark.parametrize(
    ("before", "after"), [*product(FOUND, FOUND)] if LONG else one_in(2, [*permutations(FOUND, 2)])
)
def test_an_index_is_changed_for_tables_with_logs_where_it_finds_their_keys(
    table_uri: str, before: str, after: str
) -> None:
    """Keys that came with a log are in the record index, and in filters made anew, and in no
    footer of a base file."""
    options = {"key_scope": "partition", "table_type": "mor", "file_rows": 8}
    table = metatable.create(
        table_uri, SCHEMA, key="id", partition_by="city", index=before, options=options
    )
    model = Model(is_global=False, ordering=False)

    def go_on(first: int, last: int, v: int) -> None:
        given = [
            {"id": f"k{one:02}", "city": ("ny", "sf")[one % 2], "v": v, "ts": one}
            for one in range(first, last)
        ]
        table.upsert(arrow(given))
        model.upsert(given)
        table.delete(arrow(given[:2]))
        model.delete(given[:2])

    for number in range(3):
        go_on(number * 3, number * 3 + 9, number)
    newest = load_newest(Store(table_uri))
    assert newest is not None
    assert Snapshot(Store(table_uri), newest).slices().has_logs.any()
    if (before, after) == ("record", "bloom"):
        with pytest.raises(UsageError, match="in no footer: compact the logs"):
            metatable.adopt(table_uri, index=after)
        return
    table = metatable.adopt(table_uri, index=after)
    for number in range(3):
        probe = [{"id": f"k{key:02}", "city": city} for key in range(30) for city in ("ny", "sf")]
        check(table, model, probe)
        go_on(number * 4 + 5, number * 4 + 14, number + 5)
    check(table, model)


def test_no_table_is_adopted_in_a_store_that_overwrites_what_it_may_not(tmp_path: Path) -> None:
    grown(tmp_path / "t")
    files = bytes_of(stripped(tmp_path / "t"))
    with serving() as server:
        server.objects = {f"t/{name}": (body, datetime.now(UTC)) for name, body in files.items()}
        server.overwrites = True
        with pytest.raises(UsageError, match="overwrites what it was told not to"):
            metatable.adopt(f"{server.uri}/t", storage_options=server.options)
        assert server.objects.keys() == {f"t/{name}" for name in files}
        server.overwrites = False
        adopted = metatable.adopt(f"{server.uri}/t", storage_options=server.options)
        assert adopted.verify().findings == ()
