"""Ways to hurt a table: what is done to its entries, index files, data files and timeline, and as
which kind of finding `verify` tells of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.data.file_groups.slices import FileSlice, new_file_id
from metatable.data.hoodie.timeline import next_instant
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import saved_path, version_path
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.written import WrittenSlice
from metatable.storage.parquet.fields import Bounds, Column, Statistics
from metatable.storage.parquet.thrift import BINARY, I64, LIST, Struct
from tests.compaction.hurt_tables import INDEXES, TABLES, Hurt, Lost, rows
from tests.long import one_in
from tests.model import arrow
from tests.storage.parquet.files import changed_chunks, with_pages, with_statistics

R, M = ("record", "record-avro"), ("metadata_bloom", "metadata_bloom-parquet")
Fault = tuple[str, str, Callable[[Hurt], Lost], tuple[str, ...]]
AnyFault = TypeVar("AnyFault", bound=tuple[str, str, Any, tuple[str, ...]])


def some_of(faults: Sequence[AnyFault]) -> list[AnyFault]:
    """In a short run every fifth of those that are found as the same kind."""
    kinds: dict[str, list[AnyFault]] = {}
    for fault in faults:
        kinds.setdefault(fault[1], []).append(fault)
    return [fault for alike in kinds.values() for fault in one_in(5, alike)]


def written_as(uri: str, path: str, copy: str) -> None:
    """The rows of a base file in another one, which they name."""
    rows = pq.read_table(Path(uri, path), partitioning=None)
    place = rows.schema.get_field_index("_hoodie_file_name")
    names = pa.array([Path(copy).name] * rows.num_rows)
    pq.write_table(rows.set_column(place, rows.schema.field(place), names), Path(uri, copy))


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
    entry = WrittenSlice(made)
    hurt.enter(partition, partition.entries([entry]))


def files_older_slice(hurt: Hurt) -> None:
    then = {
        one.file_id: one for one in Snapshot(hurt.store, load_version(hurt.store, 2, 0)).slices()
    }
    [old, *_] = [
        then[one.file_id]
        for one in hurt.files()
        if one.file_id in then and then[one.file_id].names != one.names
    ]
    entry = WrittenSlice(old)
    hurt.enter(files_of(hurt), files_of(hurt).entries([entry]))


def files_never_was(hurt: Hurt) -> None:
    never = FileSlice(replace(hurt.files()[0].base, write_token="9-9-9"))
    entry = WrittenSlice(never)
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
    then = Snapshot(hurt.store, load_version(hurt.store, 2, 0)).refs("column_stats")
    how(hurt.path(then[0].path))


def old_page(hurt: Hurt) -> None:
    one, *_ = load_version(hurt.store, 2, 0).page_files
    hurt.path(one.path).unlink()


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
    old = Snapshot(hurt.store, load_version(hurt.store, 2, 0)).slices()
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
    entry = WrittenSlice(file)
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
