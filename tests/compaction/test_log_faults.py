"""Verify finds each fault of a log, and repair mends it: what was lost with a log is what that one
commit wrote into one file group; all else stays, for us and for Hudi's readers.

The expected rows are those that Hudi's own reader gives for what is left of the table's files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from metatable.compaction.checks.held_slices import damage_of, read_held
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.logs.log_blocks import LogWriter
from metatable.metadata.commits.lost_commit import rebuilt_commit
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.written import NO_KEYS, WrittenSlice
from metatable.storage import cache
from metatable.storage.hudi_log import log_file
from metatable.storage.hudi_log.block import HeaderKey, LogBlock
from tests.compaction.hurt_tables import LOGGED, Hurt, contents, made, once, rows, writable
from tests.compaction.ways_to_hurt import (
    cut,
    empty,
    hfiles_lost,
    lose,
    records_of,
    some_of,
    stats_of,
)
from tests.long import one_in
from tests.model import SCHEMA, arrow, read_by_hudi, scanned

Lost = tuple[str, ...]
"""Paths of files whose rows are gone."""


def with_logs(uri: str, index: str) -> None:
    """A table with two logs on a group."""
    waits = index.removesuffix(WAITING)
    one = made(uri, waits)
    one.upsert(arrow(rows(2, 8, 6)))
    one.delete(arrow(rows(4, 5, 0)))
    if waits != index:
        assert one.compact_logs(schedule=True).plan
    one.upsert(arrow(rows(5, 8, 8)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return once(tmp_path_factory, with_logs)


def logged(hurt: Hurt) -> FileSlice:
    """The slice with most logs."""
    return max(hurt.files(), key=lambda one: len(one.logs))


def says(hurt: Hurt, made: FileSlice) -> None:
    """Let `files` name this slice."""
    partition = FilesPartition(hurt.table.options)
    entry = WrittenSlice(made)
    hurt.enter(partition, partition.entries([entry]))


def log_forgotten(hurt: Hurt) -> None:
    one = logged(hurt)
    says(hurt, FileSlice(one.base, one.logs[:-1]))


def first_log_forgotten(hurt: Hurt) -> None:
    one = logged(hurt)
    says(hurt, FileSlice(one.base, one.logs[1:]))


def logs_forgotten(hurt: Hurt) -> None:
    says(hurt, FileSlice(logged(hurt).base))


def log_never_was(hurt: Hurt) -> None:
    says(hurt, logged(hurt).with_logs([logged(hurt).next_log("9-9-9")]))


def log_of_nobody(hurt: Hurt) -> None:
    """Whose commit was never published, and which a damaged entry names."""
    left = stray_log(hurt)
    says(hurt, logged(hurt).with_logs([left]))


def log_of_another_group(hurt: Hurt) -> None:
    one = logged(hurt)
    other = next(each for each in hurt.files() if each.file_id != one.file_id)
    named = replace(one.logs[-1].named, file_id=other.file_id)
    says(hurt, FileSlice(one.base, (*one.logs[:-1], replace(one.logs[-1], named=named))))


def log_wrong_size(hurt: Hurt) -> None:
    one = logged(hurt)
    last = replace(one.logs[-1], size_bytes=one.logs[-1].size_bytes + 1)
    says(hurt, FileSlice(one.base, (*one.logs[:-1], last)))


def stats_forgotten(hurt: Hurt) -> None:
    written = of_log(hurt)
    hurt.bury(stats_of(hurt), stats_of(hurt).entries([written]))


def stats_narrow(hurt: Hurt) -> None:
    written = of_log(hurt)
    stats = tuple(
        replace(one, minimum=50, maximum=51) if one.column == "v" else one for one in written.stats
    )
    narrow = replace(written, logs=((logged(hurt).logs[-1], stats),))
    hurt.enter(stats_of(hurt), stats_of(hurt).entries([narrow]))


def stats_too_many(hurt: Hurt) -> None:
    one = logged(hurt)
    written = of_log(hurt)
    never = replace(written, logs=((one.next_log("9-9-9"), written.stats),))
    hurt.enter(stats_of(hurt), stats_of(hurt).entries([never]))


def record_forgets_a_key_of_a_log(hurt: Hurt) -> None:
    one = logged(hurt)
    keys = pa.array(sorted(hurt.rows_of(one) & hurt.rows_left(one.logs))[:1])
    assert len(keys)
    written = replace(of_log(hurt), arrived=NO_KEYS, departed=keys)
    hurt.enter(records_of(hurt), records_of(hurt).entries([written]))


def of_log(hurt: Hurt) -> WrittenSlice:
    """The last log, with the statistics that it has."""
    one = logged(hurt)
    held = read_held(hurt.snapshot, one, {})
    return held.written(NO_KEYS, len(one.files) - 1)


def stray_log(hurt: Hurt) -> LogFile:
    """What a writer leaves who died."""
    one = logged(hurt)
    blocks = log_file.LogFile.decode(hurt.path(one.logs[-1].path).read_bytes(), "").blocks
    body = log_file.LogFile.encode([_told(block, "20990101000000000") for block in blocks])
    left = replace(one.next_log("9-9-9"), size_bytes=len(body))
    hurt.path(left.path).write_bytes(body)
    return left


def _told(block: LogBlock, instant: str) -> LogBlock:
    header = {**block.header, HeaderKey.INSTANT_TIME: instant}
    return LogBlock(block.kind, header, bytes(block.content))


def log(how: Callable[[Path], None], place: int, hurt: Hurt) -> Lost:
    one = logged(hurt).logs[place]
    how(hurt.path(one.path))
    return (one.path,)


def no_log(path: Path) -> None:
    path.write_bytes(b"these are no blocks" * 20)


def no_magic(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


def no_rows(path: Path) -> None:
    """The content of the first block is not what its header says."""
    blocks = log_file.LogFile.decode(path.read_bytes(), "").blocks
    content = bytes(blocks[0].content)
    wrong = b"\xff" * len(content)
    made = LogBlock(blocks[0].kind, blocks[0].header, wrong)
    path.write_bytes(log_file.LogFile.encode([made, *blocks[1:]]))


def block_gone(path: Path) -> None:
    """A log that ends where a block does tells nothing by itself."""
    path.write_bytes(path.read_bytes() * 2)


def of_another_commit(path: Path) -> None:
    blocks = log_file.LogFile.decode(path.read_bytes(), "").blocks
    instant = blocks[0].header[HeaderKey.INSTANT_TIME]
    other = instant[:-3] + f"{(int(instant[-3:]) + 1) % 1000:03}"
    path.write_bytes(log_file.LogFile.encode([_told(block, other) for block in blocks]))


def log_and_entry_lost(hurt: Hurt) -> Lost:
    gone = log(lose, -1, hurt)
    log_forgotten(hurt)
    return gone


def log_and_index_lost(hurt: Hurt) -> Lost:
    gone = log(lose, 0, hurt)
    hfiles_lost(hurt)
    return gone


def two_logs_lost(hurt: Hurt) -> Lost:
    return (*log(lose, 0, hurt), *log(empty, -1, hurt))


def all_logs_lost(hurt: Hurt) -> Lost:
    gone = tuple(one.path for each in hurt.files() for one in each.logs)
    for path in gone:
        hurt.path(path).unlink()
    return gone


WAITING = ", waiting"
"""Of a compaction of logs, which has been scheduled, and has a log on what it will make."""
ALONE = ("record-avro-log", "bucket-avro-log")
"""Some groups have no base file."""
EVERY, R = (*LOGGED, *ALONE, *(f"{one}{WAITING}" for one in (*LOGGED[:2], ALONE[1]))), LOGGED[:1]
Fault = tuple[str, str, Callable[[Hurt], Lost | None], tuple[str, ...]]

FAULTS: list[Fault] = [
    ("files lacks a log", "files", log_forgotten, EVERY),
    ("files lacks the first log", "files", first_log_forgotten, EVERY),
    ("files lacks all logs of a slice", "files", logs_forgotten, EVERY),
    ("files names a log that never was", "files", log_never_was, EVERY),
    ("files names a log of nobody", "files", log_of_nobody, EVERY),
    ("files names a log of another group", "files", log_of_another_group, EVERY),
    ("files has a wrong size of a log", "files", log_wrong_size, EVERY),
    ("column_stats lacks a log", "column-stats", stats_forgotten, EVERY),
    ("column_stats has narrow bounds of a log", "column-stats", stats_narrow, EVERY),
    ("column_stats knows a log too many", "entry-count", stats_too_many, EVERY),
    ("record_index lacks a key", "record-index", record_forgets_a_key_of_a_log, R),
    ("log lost", "file-size", partial(log, lose, -1), EVERY),
    ("first log lost", "file-size", partial(log, lose, 0), EVERY),
    ("log cut", "file-size", partial(log, cut, -1), EVERY),
    ("log emptied", "file-size", partial(log, empty, -1), EVERY),
    ("log has blocks too many", "file-size", partial(log, block_gone, -1), EVERY),
    ("log is no log", "file-size", partial(log, no_log, -1), EVERY),
    ("log begins with other bytes", "file-damaged", partial(log, no_magic, -1), EVERY),
    ("log holds no rows", "file-damaged", partial(log, no_rows, -1), EVERY),
    ("log is of another commit", "file-damaged", partial(log, of_another_commit, 0), EVERY),
    ("log and its entry lost", "file-size", log_and_entry_lost, EVERY),
    ("log and all HFiles lost", "file-size", log_and_index_lost, EVERY),
    ("two logs lost", "file-size", two_logs_lost, EVERY),
    ("all logs lost", "file-size", all_logs_lost, EVERY),
]

CASES = [
    pytest.param(fault, index, id=f"{fault[0]}-{index}")
    for turn, fault in enumerate(some_of(FAULTS))
    for index in one_in(len(fault[3]), fault[3], turn)
]


@pytest.mark.parametrize(("fault", "index"), CASES)
def test_a_fault_of_a_log_is_found_and_mended(
    fault: Fault, index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    _, kind, hurts, _ = fault
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    before = scanned(hurt.table)
    gone = hurts(hurt) or ()
    cache.clear()
    there = contents(hurt.uri)
    dry = hurt.table.repair()
    told = {(str(one.kind), one.where) for one in dry.findings}
    assert kind in {one for one, _ in told}, dry.findings
    if hurts is not log_and_index_lost:
        lost = {where for what, where in told if what in ("file-size", "file-damaged")}
        assert lost == {*gone}, dry.findings
        assert not [one for one in told if one[0] in ("record-index", "bloom-filter")] or (
            kind == "record-index" or gone
        )
    assert bool(dry.rows_lost) >= bool(gone)
    assert contents(hurt.uri) == there, "a dry run has changed something"

    done = hurt.table.repair(dry_run=False)
    assert done.unmended == ()
    assert done.rows_lost == dry.rows_lost
    cache.clear()
    assert [str(one) for one in hurt.table.verify().findings] == []
    mended = scanned(hurt.table)
    for plan in hurt.newest.compactions:  # the wheel does not read logs on what is to come
        hurt.table.compact_logs(plan=plan)
    for path in gone:  # Hudi's reader would stop at some of them
        hurt.path(path).unlink(missing_ok=True)
    left = read_by_hudi(hurt.uri)
    assert scanned(hurt.table) == mended == left
    assert gone or left == before
    writable(hurt, {row[0]: row for row in left})
    cache.clear()
    assert hurt.table.verify().findings == ()


@pytest.mark.parametrize("index", LOGGED)
def test_what_is_left_of_a_slice_is_what_was_there_without_the_lost_log(
    index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Rows that it had changed are as they were before, and rows that it had deleted are back."""
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    [gone] = log(lose, 0, hurt)
    expected = read_by_hudi(hurt.uri)
    done = hurt.table.repair(dry_run=False)
    [told] = [one for one in done.findings if one.where == gone]
    assert "rows are gone, group written anew from what is left" in told.remedy
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == expected


@pytest.mark.parametrize("index", EVERY)
def test_nothing_is_found_in_a_sound_table(
    index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    assert bool(hurt.newest.compactions) == index.endswith(WAITING)
    assert hurt.table.repair(dry_run=False).findings == ()


def test_a_log_of_a_dead_writer_is_no_finding(sound: Callable[[str], Path], tmp_path: Path) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record-avro"), tmp_path / "table")))
    before = scanned(hurt.table)
    stray_log(hurt)
    cache.clear()
    assert hurt.table.verify().findings == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri) == before


def test_nor_is_one_that_was_cut_off_where_the_timeline_is_archived(table_uri: str) -> None:
    """It tells no instant, and so none that is older than the timeline."""
    made(table_uri, "record-avro", timeline_commits=1)
    hurt = Hurt(table_uri)
    for number in range(3):
        hurt.table.upsert(arrow(rows(4, 8, 10 + number)))
    hurt.table.clean(versions=1, hours=0)
    assert hurt.newest.archived
    before = scanned(hurt.table)
    path = hurt.path(stray_log(hurt).path)
    path.write_bytes(path.read_bytes()[:40])
    cache.clear()
    assert hurt.table.verify().findings == ()
    assert hurt.table.repair(dry_run=False).findings == ()
    assert path.exists()
    assert scanned(hurt.table) == before


def test_logs_of_slices_that_were_replaced_are_no_finding(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record-avro"), tmp_path / "table")))
    hurt.table.insert_overwrite(arrow(rows(0, 10, 5)))
    cache.clear()
    assert hurt.table.verify().findings == ()
    assert scanned(hurt.table) == read_by_hudi(hurt.uri)


def test_an_entry_of_files_is_told_with_its_logs(
    sound: Callable[[str], Path], tmp_path: Path
) -> None:
    hurt = Hurt(str(shutil.copytree(sound("record-avro"), tmp_path / "table")))
    one = logged(hurt)
    log_forgotten(hurt)
    cache.clear()
    [finding] = hurt.table.verify().findings
    both = [f"{file.path} of {file.size_bytes} bytes" for file in one.files]
    expected = f"expected {', '.join(both)}, found {', '.join(both[:-1])}"
    assert (finding.where, finding.detail) == (one.path, expected)
    assert len(Snapshot(hurt.store, hurt.newest).slices()) == len(hurt.files())


@pytest.mark.parametrize("index", LOGGED)
def test_a_lost_deltacommit_is_made_anew_with_its_logs(
    index: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Also those of its base files that opened groups."""
    hurt = Hurt(str(shutil.copytree(sound(index), tmp_path / "table")))
    names = ("path", "fileId", "numWrites", "fileSizeInBytes", "logFiles", "baseFile", "prevCommit")
    for entry in hurt.table.history():
        root = load_version(hurt.store, entry.version, 0)
        if not entry.instant or root.instant in hurt.newest.withdrawn:
            continue
        path = hurt.path(f".hoodie/{entry.instant}.deltacommit")
        rebuilt = rebuilt_commit(hurt.store, root, "deltacommit")
        told, made = (
            sorted(
                [stat.get(name) for name in names]
                for stats in json.loads(body)["partitionToWriteStats"].values()
                for stat in stats
            )
            for body in (path.read_bytes(), rebuilt)
        )
        assert told == made
        assert "partitionToReplaceFileIds" not in json.loads(rebuilt)


@pytest.mark.parametrize("lacking", ["_hoodie_record_key", "_hoodie_partition_path"])
def test_a_row_without_a_key_is_damage_of_its_log(
    lacking: str, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Found by flipping bytes of logs, each in turn, and together with those of other files."""
    hurt = Hurt(str(shutil.copytree(sound("record-avro"), tmp_path / "table")))
    schema = with_meta_columns(SCHEMA)
    texts = pa.array(["a", "b"])
    columns = {one.name: pa.nulls(2, one.type) if one.nullable else texts for one in schema}
    columns |= {"_hoodie_record_key": texts, "_hoodie_partition_path": texts}
    rows = pa.table(columns | {lacking: pa.nulls(2, pa.string())}, schema=schema)
    block = LogWriter(SCHEMA, "table").parquet_block(rows, "20260101000000000", "none")
    log = logged(hurt).next_log("9-9-9")
    hurt.path(log.path).write_bytes(log_file.LogFile.encode([block]))
    told = damage_of(hurt.snapshot, log)
    assert "a row in a log file has no key" in told
    assert lacking in told
