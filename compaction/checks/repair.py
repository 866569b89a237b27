"""Repair: mend what `verify` finds, by one ordinary version.

    1  opening    what keeps anybody from writing (`opening.py`): properties, commits that no
                  version knows
    2  a version  the entries that are missing, wrong or too many, in HFiles of their own, asked
                  before all others; damaged pages and HFiles are named no more; groups of which
                  a file is lost, or tells of its rows what is not so, get one with the rows that
                  are left (`groups_anew.py`); older versions that cannot be read are kept no more;
                  steps put lost commits back on Hudi's timeline and withdraw dead ones
    3  after      copies of what is the same elsewhere, and Hudi's small files

Nobody sees half of it: the version is put as any, on the very version that was looked at, and
who was first wins. Where it mends entries, writers that began before begin again: what they found
by them may not be so. Killed anywhere, the table is as before or after, and the next repair goes
on. Nothing is deleted here but what a step withdraws: damaged files are garbage, for `clean`.

A group of which the file is lost is written again, empty, by a commit of its own: so the rows of
an older slice come back neither for us nor for Hudi's readers, who go by file names. Those rows are
in the versions before, as long as those are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.compaction.checks.commit_bodies import Action, body_of, completion_of
from metatable.compaction.checks.examined import Examined
from metatable.compaction.checks.findings import Findings
from metatable.compaction.checks.groups_anew import written_anew
from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.checks.opening import make_writable
from metatable.compaction.checks.verify import examine, result_of
from metatable.compaction.service import RETRIES
from metatable.data.base_files.hadoop_checksum import forget_checksum, put_over
from metatable.data.file_groups.slices import LogFile, partition_metadata, partition_metadata_path
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat
from metatable.data.hoodie.operations import REPAIR, UPSERT, action_of
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.hoodie.timeline import Timeline, completed_path, inflight_path, requested_path
from metatable.data.reading.slice_reader import writer_of
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.commits.change import Change, Update
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.retention import RaiseFloor
from metatable.metadata.commits.steps import stage, staged_body, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import BeginAnew, Withdraw
from metatable.metadata.hfiles.entry_files import Run, cut_ranges, read_places
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.manifests.plans import dropping
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.results import Fault, ServiceResult
from metatable.storage.errors import ConflictError, StaleError
from metatable.storage.store import Store

__all__ = ["repair"]


def repair(store: Store, engine: Engine[Any], *, dry_run: bool = True) -> ServiceResult:
    """Mend a table, or say what would be done: the `remedy` of each finding.

    Raises ConflictError where others have always published meanwhile, CorruptError where the newest
    root is damaged, UpgradeError for tables that are not for us.
    """
    began = time.perf_counter()
    store = store.counting(engine.counters)
    if dry_run:
        snapshot = Snapshot(store, newest_of(store))
        with snapshot.reading():
            found = examine(engine, snapshot)
        done = f": dry run, nothing was done; {_spelled(found.findings, 'could be mended')}"
        return result_of(engine, REPAIR, snapshot.version, found, began, done)
    opened = Findings()
    for attempt in count():
        try:
            make_writable(store, opened)
            found, version = _mend(store, engine)
            break
        except (ConflictError, StaleError):
            if attempt == RETRIES:
                raise
    found.findings = opened.plus(found.findings)
    done = f": {_spelled(found.findings, 'mended')}"
    return result_of(engine, REPAIR, version, found, began, done)


def _spelled(findings: Findings, word: str) -> str:
    """How many findings are mended (`word`: or could be), and how many nothing is done about."""
    left = findings.left
    return f"{len(findings) - left} {word}" + (f", {left} not" if left else "")


def _mend(store: Store, engine: Engine[Any]) -> tuple[Examined, int]:
    """(what was found on the newest version, the table's version when it is mended)."""
    scratch = engine.scratch(store)
    with Transaction.begin(store) as transaction:
        found = examine(engine, transaction.snapshot, scratch)
        version = transaction.base.version
        if _needs_version(found) or _to_stage(store, found):
            version = transaction.publish(_change(transaction, found, scratch)).version
    _finish(store, found)
    return found, version


def _needs_version(found: Examined) -> bool:
    """Whether anything that was found is mended by a version."""
    forgetting, state = found.index_files.forgetting, found.state
    return bool(
        found.anew
        or found.runs
        or found.plans
        or found.floor
        or forgetting.pages
        or forgetting.hfiles
        or state.missing
        or state.savepoints
        or state.stray
    )


def _change(transaction: Transaction, found: Examined, scratch: Store) -> Change:
    """The one change that mends what was found; its files are stored."""
    snapshot, state = transaction.snapshot, found.state
    store, options = snapshot.store, snapshot.options
    partitions = partitions_of(options, create_index(options))
    runs, steps = list(found.runs), list(_steps(store, found))
    instant = ""
    if found.anew:
        instant = transaction.start(action_of(REPAIR, options.has_logs))
        stats, entries = written_anew(transaction, found.anew, partitions, scratch)
        runs += entries
        body = CommitMetadata.of_ours(REPAIR, stats, {}, snapshot.schema, options.name).encode()
        steps.insert(0, transaction.stage(body))
    else:
        transaction.serve(REPAIR)
    files = _built(store, scratch, partitions, runs, transaction.owner)
    updates: list[Update] = [found.index_files.forgetting, AddFiles(files)]
    if found.runs:
        updates.append(BeginAnew())
    if found.floor:
        updates.append(RaiseFloor(found.floor))
    if state.stray:
        updates.append(Withdraw(tuple(time for time, _ in state.stray)))
    return Change(
        REPAIR,
        instant=instant,
        requires=(NewestIsBase(),),
        updates=tuple(updates),
        steps=tuple(steps),
        summary={"findings": len(found.findings), "deleted": found.findings.rows_lost},
    )


def _built(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
) -> dict[str, tuple[HFileRef, ...]]:
    """The HFiles of these runs, by metadata partition; in memory one at a time."""
    built: dict[str, tuple[HFileRef, ...]] = {}
    for partition in partitions:
        ours = [run for run in runs if run.partition == partition.name]
        for lo, hi in cut_ranges(partition, ours, partition.options.hfile_target_bytes):
            held = [one for run in ours for one in read_places(scratch, run, lo, hi)]
            entries = _distinct(pa.Table.from_batches(held, partition.schema))
            ref = partition.store(store, lo, hi, entries, owner)
            if ref is not None:
                built[partition.name] = (*built.get(partition.name, ()), ref)
    return built


def _distinct(entries: pa.Table) -> pa.Table:
    """One entry a key: of a key that lives twice (which no entry can mend) any of the two."""
    codes = entries["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    if len(first) == entries.num_rows:
        return entries
    return entries.unify_dictionaries().combine_chunks().take(pa.array(np.sort(first)))


def _steps(store: Store, found: Examined) -> Iterator[Step]:
    """What follows the version on Hudi's timeline; what is to be completed there is staged."""
    versions, state = found.versions, found.state
    for instant, action in [*state.missing, *_to_stage(store, found)]:
        body = body_of(store, versions, instant, action) or _listed_commit(found, instant)
        yield stage(store, instant, body, action)
    for name in state.savepoints:
        yield _savepoint(store, versions, name)
    for instant, action in state.stray:
        yield Step("withdraw", instant, action=action)
    for path in found.plans:
        yield dropping(path)


def _to_stage(store: Store, found: Examined) -> list[Action]:
    """Damaged commits of which no other copy is there, either."""
    return [
        one
        for one in found.state.damaged
        if staged_body(store, completion_of(found.versions, *one)) is None
    ]


def _listed_commit(found: Examined, instant: str) -> bytes:
    """The finished file of a commit of which nothing is left but data files: it lists those of them
    that are live."""
    snapshot = found.snapshot
    stats = []
    for one in found.live.there:
        if one.instant == instant and one.has_base:
            stats.append(WriteStat.of(replace(one.base, row_count=0), None, RowCounts()))
        for log in one.files:
            if isinstance(log, LogFile) and writer_of(snapshot.store, log) == instant:
                stats.append(WriteStat.of_log(one, log, 0, RowCounts()))
    name = snapshot.options.name
    return CommitMetadata.of_ours(UPSERT, stats, {}, snapshot.schema, name).encode()


def _savepoint(store: Store, versions: Versions, name: str) -> Step:
    """Complete a savepoint on Hudi's timeline once more, as it was staged or from its version."""
    pin = versions.newest.pins[name]
    body = store.get(staged_path(pin.instant, "savepoint"))
    if body is None:
        held = Snapshot(store, versions.roots[pin.version]).slices()
        body = savepoint_metadata(list(held), pin.time_ms, pin.note)
    return stage(store, pin.instant, body, "savepoint")


def _finish(store: Store, found: Examined) -> None:
    """Mend what needs no version: every file becomes what it was, or should have been. It may be
    done twice."""
    for path, twin in found.versions.copies.items():
        store.put(path, store.fetch(twin))
    for instant, action in found.state.damaged:
        body = staged_body(store, completion_of(found.versions, instant, action))
        body = body or store.fetch(staged_path(instant, action))
        put_over(store, completed_path(instant, action), body)
    for instant, action in [*found.state.untraced, *found.state.missing]:
        _retrace(store, instant, action)
    for ring in found.rings:
        if ring.body is None:
            store.delete([ring.path])
        else:
            store.put(ring.path, ring.body)
    instants = {one.partition_path: one.instant for one in found.live.there}
    for folder in found.live.unmarked:
        path = partition_metadata_path(folder)
        forget_checksum(store, path)
        if not store.create(path, partition_metadata(instants[folder], folder)) and (
            store.size(path) is None
        ):
            what = "something that is no file lies in its place: delete that"
            found.findings.leave(Fault.PARTITION_METADATA, path, what)


def _retrace(store: Store, instant: str, action: str) -> None:
    """Put the first files of a completed commit back on the timeline; they go again where it is
    being undone: an action under way that has no commit would hide nobody's files."""
    timeline = Timeline(store)
    missing = [
        path(instant, action)
        for path in (requested_path, inflight_path)
        if store.size(path(instant, action)) is None
    ]
    timeline.begin(instant, action)
    if not timeline.is_complete(instant, action):
        store.delete(missing)
