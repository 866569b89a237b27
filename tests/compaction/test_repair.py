"""Repair mends each fault that can be put into a table, and finds none in a sound one.

A table of each index is made once a module, and copied for each fault. Every fault is found by its
kind, a dry run changes nothing, a repair leaves a table without findings that has the rows it had,
but for those of lost data files, and can be written; a second repair has nothing to do.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import Table
from metatable.compaction.findings import KEPT, Findings
from metatable.compaction.repair import repair
from metatable.data.commit_metadata import CommitMetadata
from metatable.data.slice_reader import stream_left
from metatable.data.slices import DataFile, FileSlice, LogFile, new_file_id
from metatable.data.timeline import Timeline, next_instant
from metatable.engine.local import LocalEngine
from metatable.metadata.bloom_filter import BloomFilterPartition
from metatable.metadata.change import AddFiles, Change
from metatable.metadata.column_stats import ColumnStatsPartition
from metatable.metadata.commit import publish
from metatable.metadata.files import FilesPartition
from metatable.metadata.leases import lease_path
from metatable.metadata.manifest import (
    HOME,
    Manifest,
    load_newest,
    load_version,
    saved_path,
    version_path,
)
from metatable.metadata.owner import Owner
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.plans import PLANS
from metatable.metadata.record_index import RecordIndexPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.steps import announce, stage
from metatable.metadata.written import WrittenSlice, facts_of_stored, stats_columns
from metatable.storage import cache
from metatable.storage.parquet.fields import Bounds, Column, Statistics
from metatable.storage.parquet.thrift import BINARY, I64, LIST, Struct
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import Refused, watched
from tests.long import LONG, one_in
from tests.model import SCHEMA, Row, arrow, listed, read_by_hudi, scanned
from tests.storage.parquet.files import changed_chunks, with_pages, with_statistics

FAST = {"durable": "false"}
INDEXES = ("record", "metadata_bloom", "bloom", "bucket")
LOGGED = ("record-avro", "metadata_bloom-parquet", "bloom-avro", "bucket-parquet")
"""Merge-on-read, with logs of this format."""
TABLES = (*INDEXES, *LOGGED)
NO_KEYS = pa.array([], pa.string())


def rows(first: int, last: int, v: int) -> list[Row]:
    return [
        {"id": f"k{one:02}", "city": ("ny", "sf")[one % 2], "v": v, "ts": one}
        for one in range(first, last)
    ]


def made(uri: str, index: str, **options: Any) -> Table:
    """Five commits over two partitions, one compaction, one commit undone."""
    index, log_format, new_groups = [*index.split("-"), "", ""][:3]
    more: dict[str, Any] = {"bucket_count": 2} if index == "bucket" else {"file_rows": 5}
    if log_format:
        more |= {"table_type": "mor", "log_format": log_format}
        more |= {"new_groups": new_groups or "base"}
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"hfile_codec": "none", "key_scope": "partition"} | more | options,
        storage_options=FAST,
    )
    table.insert(arrow(rows(0, 16, 1)))
    table.upsert(arrow(rows(4, 8, 2)))
    table.compact(major=True)
    table.upsert(arrow(rows(14, 20, 3)))
    table.delete(arrow(rows(0, 2, 0)))
    table.upsert(arrow(rows(6, 9, 9)))
    table.rollback()
    table.upsert(arrow(rows(3, 5, 4)))
    return table


def once(
    tables: pytest.TempPathFactory, make: Callable[[str, str], object]
) -> Callable[[str], Path]:
    """The table of an index, which nobody changes, made (where, index) when it is first asked."""
    folder = tables.mktemp("sound")

    def table(index: str) -> Path:
        path = folder / index / "table"
        if not path.exists():
            make(str(path), index)
        return path

    return table


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return once(tmp_path_factory, made)


@dataclass
class Hurt:
    """A copy of a sound table, and ways to hurt it behind its back."""

    uri: str

    def __post_init__(self) -> None:
        self.table = metatable.open(self.uri, FAST)
        self.store = Store(self.uri, FAST)

    @property
    def newest(self) -> Manifest:
        found = load_newest(self.store)
        assert found is not None
        return found

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.store, self.newest)

    def files(self) -> list[FileSlice]:
        return list(self.snapshot.slices())

    def path(self, path: str) -> Path:
        return Path(self.uri, path)

    def rows_of(self, file: FileSlice) -> set[str]:
        return self.rows_left(file.files)

    def keys_of(self, file: FileSlice) -> pa.Array:
        return pa.array(sorted(self.rows_of(file)))

    def rows_left(self, files: Sequence[DataFile | LogFile]) -> set[str]:
        """Ids in these files of a slice, and in no others."""
        asked, columns = pa.schema([SCHEMA.field("id")]), self.snapshot.table_schema
        pieces = stream_left(self.store, files, asked, columns, None)
        return {one for piece in pieces for one in piece["id"].to_pylist()}

    def written(self, file: FileSlice, **told: Any) -> WrittenSlice:
        columns = stats_columns(self.snapshot.table_schema, self.table.options)
        keys, stats = facts_of_stored(self.store, file, columns, self.snapshot.table_schema)
        given = {"keys": keys, "arrived": NO_KEYS, "departed": NO_KEYS, "stats": stats}
        return WrittenSlice(made=FileSlice(file.base), replaced=None, **(given | told))

    def enter(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish entries of one partition, and nothing else."""
        owner = Owner.new("compact")
        ref = partition.store(self.store, 0, partition.space, entries, owner)
        assert ref is not None
        change = Change("compact", updates=(AddFiles({partition.name: (ref,)}),))
        announce(self.store, publish(self.store, self.newest, change, Owner.new("compact")))

    def every(self, partition: MetadataPartition) -> pa.Table:
        held = self.snapshot.scan(partition).read_all()
        places = pa.array(partition.places(held["key"].combine_chunks()), pa.int64())
        return held.add_column(0, "place", places)

    def bury(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish tombstones for these entries."""
        kind = partition.schema.field("value").type
        gone = pa.nulls(entries.num_rows, kind)
        self.enter(partition, entries.set_column(2, pa.field("value", kind), gone))

    def alter(self, partition: MetadataPartition, value: bytes) -> None:
        """Publish another value of the first entry."""
        first = self.every(partition).slice(0, 1)
        self.enter(partition, first.set_column(2, "value", pa.array([value], pa.binary())))

    def hfiles(self, partition: str) -> list[Path]:
        return [self.path(ref.path) for ref in self.snapshot.refs(partition)]

    def pages(self) -> list[Path]:
        return [self.path(page.path) for held in self.newest.pages.values() for page in held]

    @property
    def action(self) -> str:
        return "deltacommit" if self.table.options.has_logs else "commit"

    def commits(self) -> list[Path]:
        return sorted(Path(self.uri, ".hoodie").glob(f"*.{self.action}"))

    def state(self, suffix: str) -> str:
        """The end of a name on the timeline, of which a table's own kind of commit is left out."""
        if suffix == ".inflight" and self.action == "commit":
            return suffix
        return f".{self.action}{suffix}"

    def aged(self, *names: str, body: bytes = b"") -> None:
        """Files of Hudi's timeline that nobody has touched for a day."""
        for name in names:
            path = self.path(f".hoodie/{name}")
            path.write_bytes(body)
            os.utime(path, (path.stat().st_mtime - 86_400,) * 2)


Lost = set[str] | None
"""Ids of rows that are gone."""


# Entries


def files_of(hurt: Hurt) -> FilesPartition:
    return FilesPartition(hurt.table.options)


def stats_of(hurt: Hurt) -> ColumnStatsPartition:
    return ColumnStatsPartition(hurt.table.options)


def blooms_of(hurt: Hurt) -> BloomFilterPartition:
    return BloomFilterPartition(hurt.table.options)


def records_of(hurt: Hurt) -> RecordIndexPartition:
    return RecordIndexPartition(hurt.table.options)


def one_missing(of: Callable[[Hurt], MetadataPartition], hurt: Hurt) -> None:
    hurt.bury(of(hurt), hurt.every(of(hurt)).slice(1, 1))


def all_missing(of: Callable[[Hurt], MetadataPartition], hurt: Hurt) -> None:
    hurt.bury(of(hurt), hurt.every(of(hurt)))


def no_avro(of: Callable[[Hurt], MetadataPartition], hurt: Hurt) -> None:
    hurt.alter(of(hurt), b"\xff\x00 no Avro")


def of_gone_file(of: Callable[[Hurt], MetadataPartition], hurt: Hurt) -> None:
    file = hurt.files()[0]
    gone = FileSlice(replace(file.base, file_id=new_file_id(), instant="20200101000000000"))
    hurt.enter(of(hurt), of(hurt).entries([replace(hurt.written(file), made=gone)]))


def files_says(hurt: Hurt, file: FileSlice) -> None:
    hurt.enter(files_of(hurt), files_of(hurt).entries([hurt.written(hurt.files()[0], made=file)]))


def files_wrong_size(hurt: Hurt) -> None:
    base = hurt.files()[0].base
    made = FileSlice(replace(base, size_bytes=base.size_bytes + 1))
    partition = files_of(hurt)
    entry = WrittenSlice(made, None, NO_KEYS, NO_KEYS, NO_KEYS, ())
    hurt.enter(partition, partition.entries([entry]))


def files_older_slice(hurt: Hurt) -> None:
    then = {one.file_id: one for one in Snapshot(hurt.store, load_version(hurt.store, 2)).slices()}
    [old, *_] = [
        then[one.file_id]
        for one in hurt.files()
        if one.file_id in then and then[one.file_id].names != one.names
    ]
    entry = WrittenSlice(old, None, NO_KEYS, NO_KEYS, NO_KEYS, ())
    hurt.enter(files_of(hurt), files_of(hurt).entries([entry]))


def files_never_was(hurt: Hurt) -> None:
    never = FileSlice(replace(hurt.files()[0].base, write_token="9-9-9"))
    entry = WrittenSlice(never, None, NO_KEYS, NO_KEYS, NO_KEYS, ())
    hurt.enter(files_of(hurt), files_of(hurt).entries([entry]))


def files_no_name(hurt: Hurt) -> None:
    value = hurt.every(files_of(hurt))["value"][0].as_py()
    hurt.alter(files_of(hurt), value.replace(b".parquet", b".parqueT"))


def stats_say(hurt: Hurt, column: str, **wrong: Any) -> None:
    written = hurt.written(hurt.files()[0])
    stats = tuple(replace(one, **wrong) if one.column == column else one for one in written.stats)
    partition = stats_of(hurt)
    hurt.enter(partition, partition.entries([replace(written, stats=stats)]))


def stats_name_another_file(hurt: Hurt) -> None:
    value = hurt.every(stats_of(hurt))["value"][0].as_py()
    at = re.search(rb"\.parquet|\.log\.", value).start() - 20
    hurt.alter(stats_of(hurt), value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :])


def filter_denies(hurt: Hurt) -> None:
    file, partition = hurt.files()[1], blooms_of(hurt)
    hurt.enter(partition, partition.entries([hurt.written(file, keys=hurt.keys_of(file)[1:])]))


def filter_no_bytes(hurt: Hurt) -> None:
    value = hurt.every(blooms_of(hurt))["value"][0].as_py()
    hurt.alter(blooms_of(hurt), value[:-9] + bytes([value[-9] ^ 0x55]) + value[-8:])


def record(hurt: Hurt, file: FileSlice, made: FileSlice | None = None, **told: Any) -> None:
    partition = records_of(hurt)
    written = replace(hurt.written(file, **told), made=made or file)
    hurt.enter(partition, partition.entries([written]))


def record_forgets(hurt: Hurt, count: int | None) -> None:
    file = hurt.files()[0]
    record(hurt, file, departed=hurt.keys_of(file)[:count])


def record_elsewhere(hurt: Hurt) -> None:
    one, other = [file for file in hurt.files() if file.partition_path == "city=ny"][:2]
    record(hurt, other, arrived=hurt.keys_of(one)[:2])


def record_no_group(hurt: Hurt) -> None:
    file = hurt.files()[0]
    nowhere = FileSlice(replace(file.base, file_id=new_file_id()))
    record(hurt, file, arrived=hurt.keys_of(file)[:1], made=nowhere)


def record_ghosts(hurt: Hurt) -> None:
    record(hurt, hurt.files()[0], arrived=pa.array(["ghost", "spectre"]))


def record_no_location(hurt: Hurt) -> None:
    """A number that stands for no location of the file."""
    partition = records_of(hurt)
    entries = hurt.every(partition).slice(0, 1)
    values = pa.array([(77).to_bytes(4)], pa.binary())
    storer = SimpleNamespace(values=lambda _: values, metas=lambda: {"locations": b"[]"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "storer", lambda: storer)
        hurt.enter(partition, entries)


# Index files


def lose(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0x10
    path.write_bytes(body)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def hfile(partition: str, how: Callable[[Path], None], hurt: Hurt) -> None:
    how(hurt.hfiles(partition)[-1])


def hfiles_lost(hurt: Hurt) -> None:
    for name in hurt.newest.pages:
        for path in hurt.hfiles(name):
            path.unlink()


def hfile_of_another(hurt: Hurt) -> None:
    one, other = hurt.hfiles("column_stats")[:2]
    shutil.copy(one, other)


def page(how: Callable[[Path], None], hurt: Hurt) -> None:
    how(hurt.pages()[0])


def pages_lost(hurt: Hurt) -> None:
    for path in hurt.pages():
        path.unlink()


def page_of_another(hurt: Hurt) -> None:
    shutil.copy(hurt.pages()[0], hurt.pages()[-1])


def root(version: int, how: Callable[[Path], None], hurt: Hurt) -> None:
    how(hurt.path(version_path(version)))


def root_of_another(hurt: Hurt) -> None:
    shutil.copy(hurt.path(version_path(3)), hurt.path(version_path(5)))


def roots_lost(hurt: Hurt) -> None:
    for version in range(1, hurt.newest.version):
        hurt.path(version_path(version)).unlink()


def old_hfile(how: Callable[[Path], None], hurt: Hurt) -> None:
    """One that a compaction has merged, and that older versions still name."""
    then = Snapshot(hurt.store, load_version(hurt.store, 2)).refs("column_stats")
    how(hurt.path(then[0].path))


def old_page(hurt: Hurt) -> None:
    hurt.path(load_version(hurt.store, 2).pages["files"][0].path).unlink()


def saved(which: Callable[[int], str], how: Callable[[Path], None], hurt: Hurt) -> None:
    hurt.table.savepoint("kept")
    how(hurt.path(which(hurt.newest.pins["kept"].version)))


# Data files


def data(how: Callable[[Path], None], hurt: Hurt) -> Lost:
    file = hurt.files()[1]
    gone = hurt.rows_of(file) - hurt.rows_left(file.logs)
    how(hurt.path(file.path))
    return gone


def data_no_parquet(path: Path) -> None:
    path.write_bytes(b"these are no rows" * 100)


def data_page(path: Path) -> None:
    """In the last column, of which no statistics are looked at by lookups."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(8)
    first = column.dictionary_page_offset or column.data_page_offset
    body = bytearray(path.read_bytes())
    body[first + column.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(body)


def footer(how: Callable[[Path], None], hurt: Hurt) -> None:
    """No row goes with what is told of them."""
    bases = [one.base for one in hurt.files() if one.has_base]
    largest = max(bases, key=lambda base: len(hurt.rows_left([base])))
    how(hurt.path(largest.path))


def page_bounds(path: Path) -> None:
    def lowered(told: Struct) -> Struct:
        return told.changed((Bounds.GREATEST, LIST, told[Bounds.LEAST]))

    path.write_bytes(with_pages(path.read_bytes(), "_hoodie_record_key", lowered))


def group_bounds(path: Path) -> None:
    def lowered(told: Struct) -> Struct:
        return told.changed((Statistics.GREATEST, BINARY, told[Statistics.LEAST]))

    path.write_bytes(with_statistics(path.read_bytes(), "ts", lowered))


def page_index(path: Path) -> None:
    def moved(chunk: Struct) -> Struct:
        place = chunk[Column.COLUMN_INDEX]
        return chunk.changed((Column.COLUMN_INDEX, I64, place - 1))

    path.write_bytes(changed_chunks(path.read_bytes(), "v", moved))


def folder_lost(hurt: Hurt) -> Lost:
    gone = set[str]().union(*(hurt.rows_of(one) for one in hurt.files() if "sf" in one.path))
    shutil.rmtree(hurt.path("city=sf"))
    return gone


def all_data_lost(hurt: Hurt) -> Lost:
    gone = set[str]().union(*map(hurt.rows_of, hurt.files()))
    for file in (one for each in hurt.files() for one in each.files):
        hurt.path(file.path).unlink()
    return gone


def rewritten(hurt: Hurt) -> tuple[FileSlice, Path]:
    """A live slice, and the file of an older one of its group."""
    old = Snapshot(hurt.store, load_version(hurt.store, 2)).slices()
    then = {one.file_id: hurt.path(one.path) for one in old}
    for file in hurt.files():
        if then.get(file.file_id, hurt.path(file.path)) != hurt.path(file.path):
            return file, then[file.file_id]
    raise AssertionError("no group was written again")


def data_with_older_slice(hurt: Hurt) -> Lost:
    """The rows of the older slice must not come back."""
    file, older = rewritten(hurt)
    gone = hurt.rows_of(file)
    hurt.path(file.path).unlink()
    assert older.exists()
    return gone


def data_and_entry_lost(hurt: Hurt) -> Lost:
    file, _ = rewritten(hurt)
    gone = hurt.rows_of(file)
    entry = WrittenSlice(file, None, NO_KEYS, NO_KEYS, NO_KEYS, ())
    hurt.bury(files_of(hurt), files_of(hurt).entries([entry]))
    hurt.path(file.path).unlink()
    return gone


def data_and_index_lost(hurt: Hurt) -> Lost:
    gone = data(lose, hurt)
    hfiles_lost(hurt)
    return gone


# Hudi's timeline


def commit(how: Callable[[Path], None], hurt: Hurt) -> None:
    how(hurt.commits()[1])


def commit_and_staged(hurt: Hurt) -> None:
    instant = hurt.commits()[1].stem
    hurt.commits()[1].unlink()
    hurt.path(f"{HOME}/commits/{instant}.json").unlink()


def commit_and_root(hurt: Hurt) -> None:
    """Of a version that is lost with it nothing tells but the files."""
    instant = hurt.commits()[1].stem
    hurt.commits()[1].write_bytes(b"")
    hurt.path(f"{HOME}/commits/{instant}.json").unlink()


def traces(suffixes: Sequence[str], hurt: Hurt) -> None:
    instant = hurt.commits()[1].stem
    for suffix in suffixes:
        hurt.path(f".hoodie/{instant}{hurt.state(suffix)}").unlink()


def later(hurt: Hurt) -> str:
    return next_instant(None, hurt.newest.latest_instant)


def foreign_commit(hurt: Hurt) -> None:
    hurt.aged(f"{later(hurt)}.{hurt.action}", body=b"{}")


def foreign_rows(hurt: Hurt) -> None:
    """Another engine has written a group again, and opened another one."""
    file, instant = hurt.files()[0], later(hurt)
    for made in (
        replace(file.base, instant=instant),
        replace(file.base, instant=instant, file_id=new_file_id()),
    ):
        shutil.copy(hurt.path(file.path), hurt.path(made.path))
    hurt.aged(*(f"{instant}{hurt.state(one)}" for one in (".requested", ".inflight")))
    hurt.aged(f"{instant}.{hurt.action}", body=b'{"partitionToWriteStats": {}}')


def dead_writer(states: Sequence[str], hurt: Hurt) -> None:
    """One whose lease was lost with it, and who has left a file and its marker."""
    file, instant = hurt.files()[0], later(hurt)
    left = replace(file.base, instant=instant)
    shutil.copy(hurt.path(file.path), hurt.path(left.path))
    marker = hurt.path(f".hoodie/.temp/{instant}/{left.path}.marker.MERGE")
    marker.parent.mkdir(parents=True)
    marker.touch()
    hurt.aged(*(f"{instant}{hurt.state(one)}" for one in states))


def undone_commit(hurt: Hurt) -> None:
    [undone] = hurt.newest.withdrawn
    hurt.aged(f"{undone}.{hurt.action}", body=hurt.commits()[0].read_bytes())


def version_lost(hurt: Hurt) -> None:
    """The newest root: its commit is complete, and nobody knows it."""
    hurt.path(hurt.newest.path).unlink()


def versions_lost(hurt: Hurt) -> None:
    hurt.table.upsert(arrow(rows(3, 5, 4)))
    version_lost(hurt)
    version_lost(hurt)


def savepoint_gone(staged: bool, hurt: Hurt) -> None:
    hurt.table.savepoint("kept")
    hurt.table.compact(major=True)
    instant = hurt.newest.pins["kept"].instant
    hurt.path(f".hoodie/{instant}.savepoint").unlink()
    if staged:
        hurt.path(f"{HOME}/commits/{instant}.savepoint").unlink()


# What else there is


def partition_file(hurt: Hurt) -> None:
    hurt.path("city=ny/.hoodie_partition_metadata").unlink()


def plan_outdated(hurt: Hurt) -> None:
    hurt.table.upsert(arrow(rows(3, 5, 4)))
    hurt.table.compact(major=True, schedule=True)
    hurt.table.compact(major=True)


def plan_damaged(hurt: Hurt) -> None:
    hurt.table.compact(major=True, schedule=True)
    [path] = hurt.path(PLANS).iterdir()
    flip(path)


def properties(body: Callable[[str], str] | None, hurt: Hurt) -> None:
    path = hurt.path(".hoodie/hoodie.properties")
    if body is None:
        path.unlink()
    else:
        path.write_text(body(path.read_text()))


def key_replaced(text: str) -> str:
    return text.replace("recordkey.fields=id", "recordkey.fields=v")


def escaped(text: str) -> str:
    return text.replace("partitionpath.urlencode=false", "partitionpath.urlencode=true")


R, M = ("record", "record-avro"), ("metadata_bloom", "metadata_bloom-parquet")
Fault = tuple[str, str, Callable[[Hurt], Lost], tuple[str, ...]]
AnyFault = TypeVar("AnyFault", bound=tuple[str, str, Any, tuple[str, ...]])


def _of_turn(tables: tuple[str, ...], turn: int) -> str:
    """Of an even turn one with logs, if there is one."""
    some = [one for one in tables if one.endswith(("avro", "parquet")) == (turn % 2 == 0)]
    return (some or tables)[turn // 2 % len(some or tables)]


FAULTS: list[Fault] = [
    # name, kind of finding that tells it, what is done to the table, indexes that have it
    ("files lacks an entry", "files", partial(one_missing, files_of), TABLES),
    ("files lacks all entries", "files", partial(all_missing, files_of), TABLES),
    ("files has a wrong size", "files", files_wrong_size, TABLES),
    ("files names an older slice", "files", files_older_slice, TABLES),
    ("files names a file that never was", "files", files_never_was, TABLES),
    ("files names no data file", "files", files_no_name, TABLES),
    ("files has an entry that is no Avro", "files", partial(no_avro, files_of), TABLES),
    ("files has an entry too many", "entry-count", partial(of_gone_file, files_of), TABLES),
    ("column_stats lacks an entry", "column-stats", partial(one_missing, stats_of), TABLES),
    ("column_stats lacks all entries", "column-stats", partial(all_missing, stats_of), TABLES),
    (
        "column_stats has too low a maximum",
        "column-stats",
        partial(stats_say, column="v", maximum=0),
        TABLES,
    ),
    (
        "column_stats has too high a minimum",
        "column-stats",
        partial(stats_say, column="ts", minimum=1000, maximum=2000),
        TABLES,
    ),
    (
        "column_stats has wider bounds of keys",
        "column-stats",
        partial(stats_say, column="_hoodie_record_key", minimum="a"),
        TABLES,
    ),
    (
        "column_stats counts other rows",
        "column-stats",
        partial(stats_say, column="city", value_count=77),
        TABLES,
    ),
    (
        "column_stats counts other nulls",
        "column-stats",
        partial(stats_say, column="v", null_count=1),
        TABLES,
    ),
    ("column_stats names another file", "column-stats", stats_name_another_file, TABLES),
    ("column_stats has no Avro", "column-stats", partial(no_avro, stats_of), TABLES),
    ("column_stats knows a file too many", "entry-count", partial(of_gone_file, stats_of), TABLES),
    ("bloom_filter lacks an entry", "bloom-filter", partial(one_missing, blooms_of), M),
    ("bloom_filter lacks all entries", "bloom-filter", partial(all_missing, blooms_of), M),
    ("bloom_filter denies a key", "bloom-filter", filter_denies, M),
    ("bloom_filter has no filter's bytes", "bloom-filter", filter_no_bytes, M),
    ("bloom_filter has no Avro", "bloom-filter", partial(no_avro, blooms_of), M),
    ("bloom_filter has an entry too many", "entry-count", partial(of_gone_file, blooms_of), M),
    ("record_index lacks two keys", "record-index", partial(record_forgets, count=2), R),
    ("record_index lacks a file's keys", "record-index", partial(record_forgets, count=None), R),
    ("record_index lacks all keys", "record-index", partial(all_missing, records_of), R),
    ("record_index puts keys elsewhere", "record-index", record_elsewhere, R),
    ("record_index names no group", "record-index", record_no_group, R),
    ("record_index names no location", "record-index", record_no_location, R),
    ("record_index has keys too many", "entry-count", record_ghosts, R),
    ("HFile of files lost", "hfile", partial(hfile, "files", lose), TABLES),
    ("HFile of files flipped", "hfile", partial(hfile, "files", flip), TABLES),
    ("HFile of column_stats cut", "hfile", partial(hfile, "column_stats", cut), TABLES),
    ("HFile of column_stats is another", "hfile", hfile_of_another, TABLES),
    ("HFile of bloom_filter lost", "hfile", partial(hfile, "bloom_filter", lose), M),
    ("HFile of bloom_filter flipped", "hfile", partial(hfile, "bloom_filter", flip), M),
    ("HFile of record_index lost", "hfile", partial(hfile, "record_index", lose), R),
    ("HFile of record_index emptied", "hfile", partial(hfile, "record_index", empty), R),
    ("all HFiles lost", "hfile", hfiles_lost, TABLES),
    ("page lost", "page", partial(page, lose), TABLES),
    ("page flipped", "page", partial(page, flip), TABLES),
    ("page is another", "page", page_of_another, TABLES),
    ("all pages lost", "page", pages_lost, TABLES),
    ("older root lost", "version", partial(root, 4, lose), TABLES),
    ("older root flipped", "version", partial(root, 3, flip), TABLES),
    ("older root is another's", "version", root_of_another, TABLES),
    ("all older roots lost", "version", roots_lost, TABLES),
    ("older version's HFile lost", "hfile", partial(old_hfile, lose), TABLES),
    ("older version's HFile flipped", "hfile", partial(old_hfile, flip), TABLES),
    ("older version's page lost", "page", old_page, TABLES),
    ("savepoint's root lost", "version", partial(saved, version_path, lose), TABLES),
    ("savepoint's copy of the root lost", "version", partial(saved, saved_path, lose), TABLES),
    ("savepoint's copy of the root flipped", "version", partial(saved, saved_path, flip), TABLES),
    ("data file lost", "file-size", partial(data, lose), TABLES),
    ("data file cut", "file-size", partial(data, cut), TABLES),
    ("data file emptied", "file-size", partial(data, empty), TABLES),
    ("data file is no Parquet", "file-size", partial(data, data_no_parquet), TABLES),
    ("data file has a damaged page", "file-damaged", partial(data, data_page), TABLES),
    ("bounds of a page leave out keys", "footer", partial(footer, page_bounds), TABLES),
    ("bounds of a row group leave out values", "footer", partial(footer, group_bounds), TABLES),
    ("page index lies elsewhere", "footer", partial(footer, page_index), TABLES),
    ("partition's folder lost", "file-size", folder_lost, TABLES),
    ("all data files lost", "file-size", all_data_lost, TABLES),
    ("data file lost, older slice there", "file-size", data_with_older_slice, INDEXES),
    ("data file and its entry lost", "file-size", data_and_entry_lost, INDEXES),
    ("data file and all HFiles lost", "file-size", data_and_index_lost, TABLES),
    ("commit lost on the timeline", "commit-missing", partial(commit, lose), TABLES),
    ("commit lost, and what was staged", "commit-missing", commit_and_staged, TABLES),
    ("commit emptied", "commit-damaged", partial(commit, empty), TABLES),
    ("commit cut", "commit-damaged", partial(commit, cut), TABLES),
    ("commit emptied, staged file lost", "commit-damaged", commit_and_root, TABLES),
    (
        "requested lost on the timeline",
        "traces-missing",
        partial(traces, [".requested"]),
        TABLES,
    ),
    ("inflight lost on the timeline", "traces-missing", partial(traces, [".inflight"]), TABLES),
    (
        "all of a commit lost on the timeline",
        "commit-missing",
        partial(traces, [".requested", ".inflight", ""]),
        TABLES,
    ),
    ("commit of nobody", "foreign-commit", foreign_commit, TABLES),
    ("commit of another writer, with rows", "foreign-commit", foreign_rows, TABLES),
    (
        "dead writer without a lease",
        "stray-instant",
        partial(dead_writer, [".requested", ".inflight"]),
        TABLES,
    ),
    ("stray inflight", "stray-instant", partial(dead_writer, [".inflight"]), TABLES),
    ("stray requested", "stray-instant", partial(dead_writer, [".requested"]), TABLES),
    ("undone commit on the timeline", "late-commit", undone_commit, TABLES),
    ("newest root lost, commit complete", "foreign-commit", version_lost, TABLES),
    ("two newest roots lost", "foreign-commit", versions_lost, TABLES),
    ("savepoint lost on the timeline", "savepoint", partial(savepoint_gone, False), TABLES),
    ("savepoint lost, and what was staged", "savepoint", partial(savepoint_gone, True), TABLES),
    ("partition metadata lost", "partition-metadata", partition_file, TABLES),
    ("plan out of date", "plan", plan_outdated, M),
    ("plan damaged", "plan", plan_damaged, M),
    ("properties lost", "properties", partial(properties, None), TABLES),
    ("properties name another key", "properties", partial(properties, key_replaced), TABLES),
    ("properties tell of escaped paths", "properties", partial(properties, escaped), TABLES),
    ("properties are no text", "properties", partial(properties, lambda _: "\x00=\n"), TABLES),
]


def some_of(faults: Sequence[AnyFault]) -> list[AnyFault]:
    """In a short run every other one of those that are found as the same kind."""
    kinds: dict[str, list[AnyFault]] = {}
    for fault in faults:
        kinds.setdefault(fault[1], []).append(fault)
    return [fault for alike in kinds.values() for fault in one_in(2, alike)]


CASES = [
    pytest.param(fault, index, id=f"{fault[0]}-{index}")
    for turn, fault in enumerate(some_of(FAULTS))
    for index in (fault[3] if LONG else [_of_turn(fault[3], turn)])
]
"""In the short run with one table each: neighbours are alike, and have tables of both types."""


def test_readme_tells_of_each_kind() -> None:
    told = Path(__file__).resolve().parents[2].joinpath("README.md").read_text("utf-8")
    kinds = re.findall(r"^\| `([a-z-]+)` \| .* \| .* \|$", told, re.M)
    assert [one for one in kinds if one in set(metatable.results.Fault)] == [
        str(one) for one in metatable.results.Fault
    ]


def test_there_are_many_faults_and_each_has_a_name_of_its_own() -> None:
    assert len({name for name, *_ in FAULTS}) == len(FAULTS) >= 80
    assert {kind for _, kind, *_ in FAULTS} | NOT_MENDED == set(metatable.results.Fault)


NOT_MENDED = {
    "partition-path",
    "placement",
    "duplicate-keys",
    "entries",
    "hashing-metadata",
}


@pytest.mark.parametrize(("fault", "index"), CASES)
def test_a_fault_is_found_and_mended(
    fault: Fault, index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    _, kind, hurts, _ = fault
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    before = {row[0]: row for row in scanned(hurt.table)}
    gone = hurts(hurt) or set()
    cache.clear()
    there = contents(hurt.uri)
    dry = hurt.table.repair()
    assert kind in {one.kind for one in dry.findings}, dry.findings
    exact = index in INDEXES or not gone  # of a key that is in several files several rows are gone
    assert dry.rows_lost == len(gone) if exact else dry.rows_lost >= len(gone)
    assert contents(hurt.uri) == there, "a dry run has changed something"

    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    assert kind in {one.kind for one in done.findings}
    assert done.rows_lost == dry.rows_lost
    cache.clear()
    assert [str(one) for one in hurt.table.verify().findings] == []
    assert {one.state for one in Timeline(hurt.store).load()} == {"completed"}
    left = [row for key, row in sorted(before.items()) if key not in gone]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == left
    writable(hurt, {row[0]: row for row in left})


def writable(hurt: Hurt, held: dict[str, tuple[Any, ...]]) -> None:
    """Updates, inserts and deletes go where they should."""
    told = hurt.table.upsert(arrow(rows(10, 22, 7)))
    known = [key for key in held if "k10" <= key < "k22"]
    if not hurt.table.options.has_logs:
        assert (told.updated, told.inserted) == (len(known), 12 - len(known))
    held |= {row[0]: row for row in listed(rows(10, 22, 7))}
    assert scanned(hurt.table) == sorted(held.values())
    if LONG:
        assert hurt.table.delete(arrow(rows(18, 22, 0))).deleted in (4, None)
        assert hurt.table.verify().findings == ()


def written_as(uri: str, path: str, copy: str) -> None:
    """The rows of a base file in another one, which they name."""
    rows = pq.read_table(Path(uri, path), partitioning=None)
    place = rows.schema.get_field_index("_hoodie_file_name")
    names = pa.array([Path(copy).name] * rows.num_rows)
    pq.write_table(rows.set_column(place, rows.schema.field(place), names), Path(uri, copy))


def contents(uri: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(uri)): path.read_bytes()
        for path in sorted(Path(uri).rglob("*"))
        if path.is_file()
    }


# Sound tables


def cleaned(table: Table) -> None:
    table.compact(major=True)
    table.clean(versions=1, hours=0)


def archived(table: Table) -> None:
    table.clean(versions=2, hours=0)
    table.upsert(arrow(rows(30, 33, 1)))
    table.clean(versions=1, hours=0)


def pinned(table: Table) -> None:
    table.savepoint("kept")
    table.upsert(arrow(rows(0, 9, 5)))
    table.restore(savepoint="kept")
    table.clean(versions=1, hours=0)


def emptied(table: Table) -> None:
    table.delete(arrow(rows(0, 30, 0)))


def planned(table: Table) -> None:
    table.compact(major=True, schedule=True)


def untouched(table: Table) -> None:
    pass


HISTORIES = [untouched, cleaned, archived, pinned, emptied, planned]
SOUND = [
    (history, index)
    for turn, history in enumerate(HISTORIES)
    for index in (TABLES if LONG or history is untouched else [TABLES[(5 * turn) % len(TABLES)]])
]


@pytest.mark.parametrize(("history", "index"), SOUND)
def test_nothing_is_found_in_a_sound_table_and_nothing_done(
    history: Callable[[Table], None], index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    if history is archived:
        table = made(str(tmp_path / "table"), index, timeline_commits=2)
    else:
        table = Hurt(str(shutil.copytree(sound(index), tmp_path / "table"))).table
    history(table)
    cache.clear()
    version = table.version
    assert table.verify().findings == ()
    done = table.repair(dry_run=False)
    assert (done.findings, done.version, table.version) == ((), version, version)
    assert "index equals data" in done.reason


def test_a_group_that_a_replacecommit_took_away_is_not_brought_back(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its files lie there until they are cleaned."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file, instant = hurt.files()[0], later(hurt)
    gone = hurt.rows_of(file)
    left = [row for row in scanned(hurt.table) if row[0] not in gone]
    body = CommitMetadata("DELETE_PARTITION", (), {}, {file.partition_path: (file.file_id,)})
    written = hurt.written(file)
    buried = {}
    for of in (files_of, stats_of, records_of):
        partition = of(hurt)
        entries = partition.entries([replace(written, arrived=written.keys)])
        kind = partition.schema.field("value").type
        none = entries.set_column(2, "value", pa.nulls(entries.num_rows, kind))
        ref = partition.store(hurt.store, 0, partition.space, none, Owner.new("commit"))
        assert ref is not None
        buried[partition.name] = (ref,)
    change = Change(
        "delete",
        instant=instant,
        updates=(AddFiles(buried),),
        steps=(stage(hurt.store, instant, body.encode(), "replacecommit"),),
    )
    announce(hurt.store, publish(hurt.store, hurt.newest, change, Owner.new("commit")))
    assert scanned(hurt.table) == left
    assert hurt.table.repair(dry_run=False).findings == ()
    entry = WrittenSlice(file, None, NO_KEYS, NO_KEYS, NO_KEYS, ())
    hurt.enter(files_of(hurt), files_of(hurt).entries([entry]))
    assert {one.kind for one in hurt.table.repair(dry_run=False).findings} == {"entry-count"}
    assert scanned(hurt.table) == left


REPLACECOMMIT = (".replacecommit", ".replacecommit.requested", ".replacecommit.inflight")


@pytest.mark.parametrize(
    "lost",
    [
        (".hoodie/{}.replacecommit",),
        (".hoodie/{}.replacecommit", f"{HOME}/commits/{{}}.json"),
        tuple(f".hoodie/{{}}{suffix}" for suffix in REPLACECOMMIT),
        tuple(f".hoodie/{{}}{suffix}" for suffix in REPLACECOMMIT[1:]),
    ],
    ids=["alone", "with what was staged", "with its traces", "its traces alone"],
)
def test_a_replacecommit_that_is_lost_comes_back_as_one(
    sound: Callable[[str], Path], tmp_path: Path, lost: Sequence[str]
) -> None:
    """As a commit it would bring the rows back that it has taken away, to Hudi's readers."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.table.delete_partition("city=sf")
    instant = hurt.table.instant
    hurt.table.upsert(arrow(rows(0, 4, 7)))
    expected, actions = scanned(hurt.table), Timeline(hurt.store).load()
    for path in lost:
        hurt.path(path.format(instant)).unlink()
    done = hurt.table.repair(dry_run=False)
    assert [f"{instant}.replacecommit" in one.where for one in done.findings] == [True]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert Timeline(hurt.store).load() == actions
    assert hurt.table.verify().findings == ()


@pytest.mark.parametrize(
    ("what", "staged"),
    [("upsert", True), ("upsert", False), ("insert_overwrite", True)],
    ids=["upsert", "upsert, and not staged", "overwrite"],
)
@pytest.mark.parametrize("saved", [True, False], ids=["older slices there", "none older"])
def test_rows_of_a_lost_commit_stay_where_its_version_is_not_kept_any_more(
    sound: Callable[[str], Path], tmp_path: Path, what: str, saved: bool, staged: bool
) -> None:
    """A clean keeps ten versions, the timeline a hundred commits."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    if saved:
        hurt.table.savepoint("before")
    write = hurt.table.insert_overwrite if what == "insert_overwrite" else hurt.table.upsert
    write(arrow([one for one in rows(0, 20, 5) if one["city"] == "ny"]))
    instant = str(hurt.table.instant)
    for v in range(3):
        hurt.table.upsert(arrow([one for one in rows(0, 20, v) if one["city"] == "sf"]))
    hurt.table.clean(versions=1, hours=0)
    expected, actions = scanned(hurt.table), Timeline(hurt.store).load()
    [lost] = [one for one in actions if one.time == instant]
    hurt.path(f".hoodie/{instant}.{lost.action}").unlink()
    if not staged:
        hurt.path(f"{HOME}/commits/{instant}.json").unlink()
    cache.clear()
    assert [one.kind for one in hurt.table.verify().findings] == ["commit-missing"]
    done = hurt.table.repair(dry_run=False)
    assert [one.kind for one in done.findings] == ["commit-missing"]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert Timeline(hurt.store).load() == actions
    assert hurt.table.verify().findings == ()


@pytest.mark.parametrize("how", [flip, lose], ids=["flipped", "lost"])
def test_a_lost_commit_is_put_back_where_an_older_root_cannot_be_read(
    how: Callable[[Path], None], sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A writer walks the versions where the timeline lacks a commit."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    expected = scanned(hurt.table)
    root(5, how, hurt)
    commit(lose, hurt)
    cache.clear()
    with pytest.raises(metatable.CorruptError):
        hurt.table.upsert(arrow(rows(3, 5, 4)))
    kinds = {"version", "commit-missing"}
    assert {one.kind for one in hurt.table.repair().findings} == kinds
    done = hurt.table.repair(dry_run=False)
    assert {one.kind for one in done.findings} == kinds
    assert done.unmended == ()
    assert hurt.table.verify().findings == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected
    assert hurt.newest.oldest > 5
    writable(hurt, {row[0]: row for row in expected})


@pytest.mark.parametrize("newest", ["savepoint", "drop_savepoint", "clean"])
def test_a_lost_commit_is_found_where_the_newest_version_names_its_instant(
    tmp_path: Path, newest: str
) -> None:
    """By another step than the one that completes it."""
    table = made(str(tmp_path / "table"), "record", timeline_commits=2)
    hurt, instant = Hurt(table.uri), str(table.instant)
    if newest == "clean":
        table.clean(versions=99, hours=24)
        instant = hurt.newest.archived
    else:
        table.savepoint("kept")
    if newest == "drop_savepoint":
        table.drop_savepoint("kept")
    assert instant in {one.instant for one in hurt.newest.steps}
    expected = scanned(table)
    hurt.path(f".hoodie/{instant}.commit").unlink()
    assert [one.kind for one in table.verify().findings] == ["commit-missing"]
    table.repair(dry_run=False)
    assert scanned(table) == read_by_hudi(table.uri) == expected
    assert table.verify().findings == ()


@pytest.mark.parametrize("suffix", [".commit.requested", ".inflight"])
def test_traces_of_the_newest_commit_are_missed_at_once(tmp_path: Path, suffix: str) -> None:
    table = made(str(tmp_path / "table"), "record")
    trace = Path(table.uri, f".hoodie/{table.instant}{suffix}")
    trace.unlink()
    assert [one.kind for one in table.verify().findings] == ["traces-missing"]
    table.repair(dry_run=False)
    assert trace.exists()
    assert table.verify().findings == ()


def test_a_plan_to_merge_what_is_damaged_is_mended_with_it(tmp_path: Path) -> None:
    table = made(str(tmp_path / "table"), "record")
    hurt = Hurt(table.uri)
    assert table.compact(schedule=True, major=True).plan
    hurt.hfiles("column_stats")[0].write_bytes(b"")
    found = table.repair(dry_run=False).findings
    assert {"hfile", "plan"} <= {one.kind for one in found}
    assert table.verify().findings == ()


PUT = [(index, place) for index in TABLES for place in ("another partition", "the same one")]
PUT += [(index, "an older slice") for index in INDEXES]  # of others groups have one base file


@pytest.mark.parametrize(("index", "place"), PUT)
def test_a_file_that_was_put_in_another_s_place_is_lost_not_believed(
    index: str, place: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sound file, whose rows are not those of the group."""
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    before = {row[0]: row for row in scanned(hurt.table)}
    file, older = rewritten(hurt) if index in INDEXES else (hurt.files()[0], Path())
    if place != "an older slice":
        same = place == "the same one"
        others = [one for one in hurt.files() if one.file_id != file.file_id]
        older = next(
            hurt.path(one.path)
            for one in others
            if (one.partition_path == file.partition_path) is same
        )
    gone = hurt.rows_of(file) - hurt.rows_left(file.logs)
    shutil.copy(older, hurt.path(file.path))
    cache.clear()
    [told] = [one for one in hurt.table.verify().findings if one.where == file.path]
    assert told.kind in ("file-size", "file-damaged")
    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    exact = index in INDEXES
    assert done.rows_lost == len(gone) if exact else done.rows_lost >= len(gone)
    left = [row for key, row in sorted(before.items()) if key not in gone]
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == left
    assert hurt.table.verify().findings == ()


# What cannot be mended, and what is said


def test_what_cannot_be_mended_is_told_and_all_else_is_mended(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    copy = replace(file.base, file_id=new_file_id())
    written_as(hurt.uri, file.path, copy.path)  # its keys live twice
    all_missing(records_of, hurt)  # and neither of the two is indexed
    one_missing(stats_of, hurt)
    done = hurt.table.repair(dry_run=False)
    assert "duplicate-keys" in {one.kind for one in done.unmended}
    left = {one.kind for one in hurt.table.verify().findings}
    assert "duplicate-keys" in left
    assert "column-stats" not in left


@pytest.mark.parametrize("sign", ["lease", "fresh"])
def test_a_commit_that_may_be_under_way_is_left_alone(
    sign: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    instant = later(hurt)
    hurt.aged(f"{instant}.commit.requested", f"{instant}.inflight")
    if sign == "lease":
        hurt.store.put(lease_path(instant), b'{"nonce": "somebody"}')
    else:
        os.utime(hurt.path(f".hoodie/{instant}.inflight"))
    assert hurt.table.verify().findings == ()
    assert hurt.table.repair(dry_run=False).findings == ()
    assert hurt.path(f".hoodie/{instant}.inflight").exists()


def test_a_commit_of_another_engine_that_replaces_groups_is_left_and_named(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.aged(f"{later(hurt)}.replacecommit", body=b'{"partitionToReplaceFileIds": {}}')
    [told] = hurt.table.repair().unmended
    assert told.kind == "foreign-commit"
    there = contents(hurt.uri)
    with pytest.raises(metatable.UpgradeError, match="another writer has committed"):
        hurt.table.repair(dry_run=False)
    assert contents(hurt.uri) == there


def test_a_commit_of_another_engine_whose_older_files_are_gone_is_not_undone(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its rows are all that is left of the groups."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    foreign_rows(hurt)
    hurt.path(file.path).unlink()
    assert "foreign-commit" in {one.kind for one in hurt.table.repair().unmended}
    with pytest.raises(metatable.UpgradeError, match="another writer has committed"):
        hurt.table.repair(dry_run=False)


def test_a_damaged_newest_root_is_refused_and_without_it_the_table_is_mended(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("metadata_bloom"), tmp_path / "table")))
    expected, path = scanned(hurt.table), hurt.path(hurt.newest.path)
    flip(path)
    for dry_run in (True, False):
        with pytest.raises(metatable.CorruptError, match=path.name):
            hurt.table.repair(dry_run=dry_run)
    path.unlink()
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected


def test_a_savepoint_of_which_an_index_file_is_damaged_is_named(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    hurt.table.savepoint("kept")
    hfile("files", flip, hurt)
    done = hurt.table.repair(dry_run=False)
    assert ["drop savepoint kept" in one.detail for one in done.unmended] == [True]
    hurt.table.drop_savepoint("kept")
    assert hurt.table.repair(dry_run=False).unmended == ()
    assert hurt.table.verify().findings == ()


def test_older_rows_of_a_lost_file_are_in_the_version_before(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """A repair is a commit: it can be looked behind, and undone."""
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    gone, then = data_with_older_slice(hurt) or set(), scanned(hurt.table, 2)
    done = hurt.table.repair(dry_run=False)
    [lost] = [one for one in done.findings if one.kind == "file-size"]
    assert lost.rows_lost == len(gone)
    assert f"{len(gone)} rows are gone" in lost.remedy
    assert scanned(hurt.table, 2) == then
    assert hurt.table.history(1)[0].operation == "repair"
    hurt.table.rollback(hurt.table.instant)
    assert {one.kind for one in hurt.table.verify().findings} >= {"file-size"}


def test_findings_are_all_counted_and_the_first_of_each_kind_kept() -> None:
    findings = Findings()
    for number in range(KEPT + 5):
        findings.add(metatable.results.Fault.FILES, str(number), "wrong", "", rows=-1)
        findings.add(metatable.results.Fault.HFILE, str(number), "lost", "made anew", rows=2)
    both = findings.plus(findings)
    assert [one.where for one in both.told] == [*map(str, range(KEPT))] * 2
    assert both.counts == {"hfile": 2 * KEPT + 10, "files": 2 * KEPT + 10}
    assert (len(both), both.left, both.rows_lost) == (4 * KEPT + 20, 2 * KEPT + 10, 4 * KEPT + 20)


# Others, and kills


def test_a_writer_who_is_first_makes_repair_look_again(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record"), tmp_path / "table")))
    file = hurt.files()[0]
    record_forgets(hurt, 1)
    forgotten = hurt.written(file).keys[0].as_py()
    other = Store(hurt.uri, FAST)
    between(lambda: write(other, LocalEngine(1), arrow(rows(40, 44, 1)), "insert"))
    expected = sorted([*scanned(hurt.table), *listed(rows(40, 44, 1))])
    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    assert forgotten in {row[0] for row in expected}
    assert scanned(hurt.table) == expected
    assert hurt.table.verify().findings == ()


def test_of_two_repairs_at_a_time_the_second_has_nothing_to_do(
    sound: Callable[[str], Path], tmp_path: Path, between: Callable[[Callable[[], Any]], None]
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("metadata_bloom"), tmp_path / "table")))
    data(lose, hurt)
    version = hurt.table.version
    first: list[Any] = []
    between(lambda: first.append(repair(Store(hurt.uri, FAST), LocalEngine(1), dry_run=False)))
    second = hurt.table.repair(dry_run=False)
    assert first[0].rows_lost > 0
    assert (second.findings, hurt.table.version) == ((), version + 1)


def test_a_repair_killed_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    origin = made(str(tmp_path / "origin"), "record", lease_seconds=0)
    hurt = Hurt(origin.uri)
    before = {row[0]: row for row in scanned(hurt.table)}
    commit(lose, hurt)
    partition_file(hurt)
    properties(key_replaced, hurt)
    hfile("record_index", lose, hurt)
    gone = data_with_older_slice(hurt) or set()
    left = [row for key, row in sorted(before.items()) if key not in gone]
    dry = shutil.copytree(origin.uri, tmp_path / "dry")
    store, backend = watched(str(dry))
    repair(store, LocalEngine(1), dry_run=False)
    changing = backend.kills()
    assert len(changing) > 15
    for limit in one_in(5, changing):
        cache.clear()
        uri = str(shutil.copytree(origin.uri, tmp_path / f"killed-{limit}"))
        store, _ = watched(uri, limit=limit)
        with suppress(Refused, metatable.MetatableError):
            repair(store, LocalEngine(1), dry_run=False)
        table = Table(Store(uri, FAST))
        with suppress(metatable.CorruptError):
            assert scanned(table) == left, "a reader sees half a repair"
        table.repair(dry_run=False)
        assert scanned(table) == read_by_hudi(uri) == left
        assert table.repair(dry_run=False).findings == ()
        shutil.rmtree(uri)
