"""Mending: the change that mends what a look at a version has found.

Entries that are missing, wrong or too many come in HFiles of their own, asked before all others;
damaged pages and HFiles are named no more; groups of which a file is lost, or tells of its rows
what is not so, are written anew; steps put lost commits back on Hudi's timeline.

A commit whose version is lost is published with its entries, by one version (`publishing_again`):
until then nobody writes, as its instant is in no sum, and its version is right for whoever goes
back to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from metatable.compaction.checks.commit_bodies import Action, body_of, completion_of
from metatable.compaction.checks.examined import Examined
from metatable.compaction.checks.groups_anew import written_anew
from metatable.compaction.checks.kept_versions import Versions
from metatable.data.file_groups.slices import LogFile
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat
from metatable.data.hoodie.operations import REPAIR, UPSERT, action_of
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.reading.slice_reader import writer_of
from metatable.data.rows.row_counts import RowCounts
from metatable.index import create_index
from metatable.metadata.commits.change import Change, Update
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.retention import RaiseFloor
from metatable.metadata.commits.steps import stage, staged_body, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import BeginAnew, SetSchema, Withdraw
from metatable.metadata.hfiles.entry_files import Run, build_hfile, cut_ranges, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.manifests.plans import dropping
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.written import WrittenSlice
from metatable.storage.store import Store

__all__ = ["mending", "needs_version", "publishing_again", "to_stage"]


def needs_version(found: Examined) -> bool:
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


def mending(transaction: Transaction, found: Examined, scratch: Store) -> Change:
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


def publishing_again(
    transaction: Transaction, found: Examined, scratch: Store, one: Action, body: bytes | None
) -> Change:
    """The change that publishes a commit of ours whose version is lost; its files are stored.
    `found`: by a look that has counted it, with its columns; `body`: what it tells, if that can be
    had. Nothing else is mended here, but entries: what else is wrong is found again."""
    snapshot = found.snapshot
    options = snapshot.options
    partitions = partitions_of(options, create_index(options))
    runs = [*found.runs, *_runs_of_anew(found, scratch)]
    owner = transaction.serve(REPAIR)
    files = _built(snapshot.store, scratch, partitions, runs, owner)
    instant, action = one
    step = stage(snapshot.store, instant, body or _listed_commit(found, instant), action)
    columns = snapshot.table_schema.encode()
    return Change(
        REPAIR,
        instant=instant,
        requires=(NewestIsBase(),),
        updates=(found.index_files.forgetting, SetSchema(columns), AddFiles(files), BeginAnew()),
        steps=(step,),
    )


def _runs_of_anew(found: Examined, scratch: Store) -> Iterator[Run]:
    """Entries of `files` for the groups that are still to be written anew: a writer who comes
    before finds out that a file is lost, and takes no older slice for the last one."""
    if found.anew:
        partition = FilesPartition(found.snapshot.options)
        made = [WrittenSlice(one.file) for one in found.anew]
        yield write_run(scratch, partition.name, partition.entries(made))


def _built(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
) -> dict[str, tuple[HFileRef, ...]]:
    """The HFiles of these runs, by metadata partition, one after the other."""
    built: dict[str, tuple[HFileRef, ...]] = {}
    for partition in partitions:
        ours = [run for run in runs if run.partition == partition.name]
        for lo, hi in cut_ranges(partition, ours, partition.options.hfile_target_bytes):
            ref = build_hfile(store, scratch, partition, ours, lo, hi, owner, _distinct)
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
    for instant, action in [*state.missing, *to_stage(store, found)]:
        body = body_of(store, versions, instant, action) or _listed_commit(found, instant)
        yield stage(store, instant, body, action)
    for name in state.savepoints:
        yield _savepoint(store, versions, name)
    for instant, action in state.stray:
        yield Step("withdraw", instant, action=action)
    for path in found.plans:
        yield dropping(path)


def to_stage(store: Store, found: Examined) -> list[Action]:
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
