"""Verify: hold the index against the data, both ways, by reading all of it.

    data -> index   every live file is there with its size; its filter passes all of its keys;
                    its statistics cover them; the record index finds each key in its group;
                    its footer passes its keys, where the index asks footers; an index that
                    places rows would place them there
    index -> data   no filter, statistic or record index entry is left of what is gone;
                    no key lives twice in its scope
    timeline -> us   every completed commit is ours, and every one of ours is completed

Findings are data: an empty list means that the index equals the data at this version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import identities
from metatable.data.schema import META_COLUMNS
from metatable.data.slice_reader import read_slice
from metatable.data.slices import FileSlice
from metatable.data.timeline import Timeline, completed_path
from metatable.engine.batches import filled, gathered
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.footer_bloom import denied_by_footer
from metatable.index.placement import Placement
from metatable.index.protocol import Index
from metatable.metadata.bloom_filter import BloomFilterPartition, hashes_of
from metatable.metadata.column_stats import RECORD_KEY, ColumnStatsPartition, stats_of
from metatable.metadata.keys import decode_keys
from metatable.metadata.known_commits import foreign_commits, known_commits
from metatable.metadata.manifest import gone_since, load_newest
from metatable.metadata.payload import decode_stats
from metatable.metadata.record_index import RecordIndexPartition
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.results import ServiceResult
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, Finding
from metatable.storage.hashing import md5, xxh64

__all__ = ["verify"]

_log = logging.getLogger("metatable.compaction")

PATH = META_COLUMNS[3]

TASK_BYTES = 4 << 20
"""Fewer bytes of data files are not worth a task of their own."""

LOOKUP_KEYS = 1 << 18
"""Keys of small files are looked up together, so many at least."""

FILE_HASH = slice(16, 32)
"""Where a key of `column_stats` has the hash of a file's name."""

BATCH_ROWS = 1 << 16
"""Entries decoded at once."""


@dataclass(frozen=True, slots=True)
class _Live:
    """Job: a slice of the version, as text."""

    slice: str


@dataclass(frozen=True, slots=True)
class _Checked:
    """Receipt: a finding (as text), or the rows of a file and eight bytes of hash for each key."""

    finding: str | None = None
    rows: int = 0
    identities: bytes = b""


_Held = tuple[FileSlice, pa.Array, pa.Array]
"""A file, its keys, and its rows' partition paths."""


def verify(engine: Engine[Any], snapshot: Snapshot) -> ServiceResult:
    """Compare everything; memory: eight bytes a row and a column of a file, and for each worker
    the keys of a file, or of some small ones."""
    began = time.perf_counter()
    files = list(snapshot.slices())
    index = create_index(snapshot.options)
    jobs = [_Live(one.encode()) for one in files]
    _log.info("verify version %d: reading %d files", snapshot.version, len(files))
    work = partial(_check_files, snapshot, index)
    tasks = 1 + sum(one.size_bytes for one in files) // TASK_BYTES
    checked = run_jobs(engine, jobs, work, _Checked, min(tasks, engine.slots * 4))
    findings = [one.finding for one in checked if one.finding is not None]
    _log.info("verify: %d files read, looking at the index", len(files))
    rows = sum(one.rows for one in checked)
    findings += _check_unique(checked)
    findings += _check_entries(snapshot, index, files, rows)
    findings += _check_commits(snapshot)
    if findings and gone_since(snapshot.store, snapshot.version):
        raise CorruptError("files went while they were verified", path=snapshot.store.uri)
    reason = f"{len(files)} files, {rows} rows"
    return ServiceResult(
        service="verify",
        version=snapshot.version,
        entries=rows,
        bytes_read=engine.counters["store.bytes_read"],
        seconds=time.perf_counter() - began,
        reason=reason + (": index equals data" if not findings else ""),
        findings=tuple(findings),
        counters=dict(engine.counters),
    )


def _check_files(
    snapshot: Snapshot, index: Index, jobs: Iterator[_Live], counters: Counters
) -> Iterator[_Checked]:
    snapshot = snapshot.counting(counters)
    waiting: list[_Held] = []
    for job in jobs:
        file = FileSlice.decode(job.slice)
        held = _opened(snapshot, file)
        if isinstance(held, Finding):
            yield _Checked(str(held))
            continue
        keys, paths = held
        yield from (_Checked(str(found)) for found in _check(snapshot, index, file, keys, paths))
        texts = identities(snapshot.options.is_global, keys, paths)
        yield _Checked(rows=len(keys), identities=xxh64(texts, 0).tobytes())
        waiting.append((file, keys, paths))
        if sum(len(keys) for _, keys, _ in waiting) >= LOOKUP_KEYS:
            yield from (_Checked(str(found)) for found in _check_together(snapshot, index, waiting))
            waiting = []
    yield from (_Checked(str(found)) for found in _check_together(snapshot, index, waiting))


def _opened(snapshot: Snapshot, file: FileSlice) -> tuple[pa.Array, pa.Array] | Finding:
    """The keys and partition paths of a live file, or what is wrong with it."""
    size = snapshot.store.size(file.path)
    if size != file.size_bytes:
        return Finding("file-size", file.path, f"expected {file.size_bytes} bytes, found {size}")
    try:
        return _identity(snapshot, file)
    except CorruptError as error:
        return Finding("file-damaged", file.path, str(error))


def _check(
    snapshot: Snapshot, index: Index, file: FileSlice, keys: pa.Array, paths: pa.Array
) -> Iterator[Finding]:
    """What the index says wrongly of one live file."""
    if not pc.all(pc.equal(paths, file.partition_path)).as_py() and len(keys):
        yield Finding("partition-path", file.path, "a row names another partition path")
    if BloomFilterPartition.name in _names(index):
        yield from _check_filter(snapshot, file, keys)
    if index.asks_footers:
        yield from _check_footer(snapshot, file, keys)
    placement = index.placement(snapshot)
    if placement is not None:
        yield from _check_placement(placement, file, keys, paths)


def _check_together(snapshot: Snapshot, index: Index, files: Sequence[_Held]) -> Iterator[Finding]:
    """What is looked up of several files at once."""
    if files:
        yield from _check_stats(snapshot, files)
        if RecordIndexPartition.name in _names(index):
            yield from _check_locations(snapshot, files)


def _names(index: Index) -> list[str]:
    return [one.name for one in index.partitions]


def _check_stats(snapshot: Snapshot, files: Sequence[_Held]) -> Iterator[Finding]:
    """Whether the statistics of the record keys are those of the files."""
    stats = stats_of(snapshot, RECORD_KEY, pa.string(), [file for file, _, _ in files])
    bounds = stats.select(["minimum", "maximum"]).rename_columns(["min", "max"])
    for (file, keys, _), found in zip(files, bounds.to_pylist(), strict=True):
        expected = pc.min_max(keys).as_py()
        if found != expected:
            yield Finding("column-stats", file.path, f"expected {expected}, found {found}")


def _check_filter(snapshot: Snapshot, file: FileSlice, keys: pa.Array) -> Iterator[Finding]:
    try:
        [(_, body)] = snapshot.filters([file])
    except CorruptError as error:
        yield Finding("bloom-filter", file.path, str(error))
        return
    denied = int((~body.might_contain(hashes_of(keys))).sum())
    if denied:
        yield Finding("bloom-filter", file.path, f"{denied} keys of the file are denied")


def _check_footer(snapshot: Snapshot, file: FileSlice, keys: pa.Array) -> Iterator[Finding]:
    try:
        denied = denied_by_footer(snapshot.store, file.base, keys)
    except CorruptError as error:
        yield Finding("footer", file.path, str(error))
        return
    if denied:
        yield Finding("footer", file.path, f"{denied} keys of the file are denied")


def _check_placement(
    placement: Placement, file: FileSlice, keys: pa.Array, paths: pa.Array
) -> Iterator[Finding]:
    rows, file_ids = placement.place(keys, paths)
    here = pc.equal(file_ids, file.file_id).to_numpy(zero_copy_only=False)
    wrong = np.setdiff1d(np.arange(len(keys)), rows[here])
    if len(wrong):
        key = keys[int(wrong[0])].as_py()
        yield Finding(
            "placement", file.path, f"{len(wrong)} keys belong to another group, such as {key!r}"
        )


def _check_locations(snapshot: Snapshot, files: Sequence[_Held]) -> Iterator[Finding]:
    """Whether the record index finds the keys of these files where they are: one lookup."""
    found = snapshot.locate(*(pa.concat_arrays([one[at] for one in files]) for at in (1, 2)))
    groups = {group: place for place, group in reversed([*enumerate(found.groups)])}
    first = np.array([*(groups[group] for group in found.groups), -1])  # -1: nowhere
    begin = 0
    for file, keys, _ in files:
        here = found.group[begin : begin + len(keys)]
        begin += len(keys)
        wrong = np.flatnonzero(first[here] != groups.get((file.partition_path, file.file_id), -2))
        if len(wrong):
            key, group = keys[int(wrong[0])].as_py(), int(here[wrong[0]])
            named = "nowhere" if group < 0 else str(found.groups[group])
            detail = f"{len(wrong)} keys elsewhere, such as {key!r}: {named}"
            yield Finding("record-index", file.path, detail)


def _check_unique(checked: Sequence[_Checked]) -> list[str]:
    raw = b"".join(one.identities for one in checked)
    identities = np.sort(np.frombuffer(raw, dtype=np.uint64))
    again = int((identities[1:] == identities[:-1]).sum())
    detail = f"{again} keys live in more than one place"
    return [str(Finding("duplicate-keys", "table", detail))] if again else []


def _check_entries(
    snapshot: Snapshot, index: Index, files: Sequence[FileSlice], rows: int
) -> list[str]:
    """Entries of what is gone show as a count that is too high."""
    findings = []
    expected = {BloomFilterPartition.name: len(files), RecordIndexPartition.name: rows}
    for partition in partitions_of(snapshot.options, index):
        if partition.name not in expected:
            continue
        found = sum(batch.num_rows for batch in snapshot.scan(partition))
        if found != expected[partition.name]:
            detail = f"expected {expected[partition.name]} live entries, found {found}"
            findings.append(str(Finding("entry-count", partition.name, detail)))
    return findings + [str(one) for one in _check_stats_entries(snapshot, len(files))]


def _check_commits(snapshot: Snapshot) -> list[str]:
    """Hudi's timeline beside our versions; of both what came since is left out."""
    store, manifest = snapshot.store, snapshot.manifest
    done = Timeline(store).completed()
    newest = load_newest(store) or manifest
    ours = known_commits(store, manifest) - {manifest.instant} - set(newest.withdrawn)
    found = [
        Finding("foreign-commit", completed_path(instant), "no version of ours has published it")
        for instant in foreign_commits(store, newest, done)
    ]
    found += [
        Finding("commit-missing", completed_path(instant), "published, and not on the timeline")
        for instant in sorted(ours - done)
        if instant >= newest.archived
    ]
    return [str(one) for one in found]


def _check_stats_entries(snapshot: Snapshot, files: int) -> Iterator[Finding]:
    """Whether there are statistics of so many files, and each names the file of its key."""
    partition = ColumnStatsPartition(snapshot.options)
    known, wrong = np.zeros(0, np.uint64), 0
    for batch in filled(gathered(snapshot.scan(partition), BATCH_ROWS)) or ():
        names = decode_stats(batch["value"], None)["file_name"].combine_chunks()
        hashed = np.ascontiguousarray(decode_keys(batch["key"])[:, FILE_HASH])
        wrong += int((hashed != _hashed(names)).any(axis=1).sum())
        known = np.union1d(known, hashed.view(np.uint64)[:, 0])
    if len(known) != files:
        detail = f"expected statistics of {files} files, found {len(known)}"
        yield Finding("entry-count", partition.name, detail)
    if wrong:
        what = "1 entry names another file than its key"
        several = f"{wrong} entries name other files than their keys"
        yield Finding("column-stats", partition.name, what if wrong == 1 else several)


def _hashed(names: pa.Array) -> npt.NDArray[np.uint8]:
    """MD5 of each file name: n rows of 16 bytes."""
    distinct = names.dictionary_encode()
    hashes = np.frombuffer(b"".join(md5(distinct.dictionary).to_pylist()), np.uint8)
    return np.asarray(hashes.reshape(-1, 16)[distinct.indices.to_numpy()])


def _identity(snapshot: Snapshot, file: FileSlice) -> tuple[pa.Array, pa.Array]:
    schema = pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PATH, pa.string())])
    table = read_slice(snapshot.store, file, schema)
    return table[RECORD_KEY].combine_chunks(), table[PATH].combine_chunks()
