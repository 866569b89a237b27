"""Barriers: what keeps anybody from writing, which `repair` mends first.

Without it no transaction would begin: the table's properties, Hudi commits of ours whose version is
lost (`own_commits.py`), commits that no version knows, and kept versions that whoever begins would
have to read. Each is a version of its own, put on the newest; but what waits again has one already.
A commit that is published again takes a look at the whole table: its version has its entries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from metatable.compaction.checks.beside_data import (
    add_missing,
    look_at_barriers,
    properties_fault,
    undoable,
)
from metatable.compaction.checks.commit_bodies import Action, body_of
from metatable.compaction.checks.findings import BY_ENTRIES, Findings
from metatable.compaction.checks.kept_versions import IndexFiles, Remains, Versions, dropping_up_to
from metatable.compaction.checks.live_slices import LiveSlices, entries_of_files, instants_of
from metatable.compaction.checks.mending import publishing_again
from metatable.compaction.checks.own_commits import Way, columns_with, ways_of
from metatable.compaction.checks.timeline_check import TimelineState
from metatable.compaction.checks.verify import examine
from metatable.data.base_files.hadoop_checksum import put_over
from metatable.data.hoodie.operations import REPAIR
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.timeline import Timeline, completed_of, completed_path
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.hudi_rings import drop_rings, dropping_rings
from metatable.metadata.commits.known_commits import tells_all
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.retention import RaiseFloor
from metatable.metadata.commits.steps import announce, settle, stage, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import Withdraw
from metatable.metadata.manifests.manifest import Manifest, Step, version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Fault
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["make_writable"]


def make_writable(store: Store, engine: Engine[Any], findings: Findings) -> None:
    """Mend what keeps anybody from writing; what is found goes to `findings`, mended or not.

    Raises ConflictError where others have published meanwhile, CorruptError where the newest root
    is damaged, UpgradeError where it asks for a newer writer.
    """
    newest = newest_of(store)
    settle(store, newest)
    versions = Versions.of(store, newest)
    snapshot = Snapshot(store, newest)
    view = cache(lambda: Remains.of(snapshot, IndexFiles.of(store, versions).forgetting))
    entries = cache(lambda: entries_of_files(view()))
    state = TimelineState.of(store, newest, versions, lambda: instants_of(store, entries()))
    live = None
    if state.foreign or state.ours:
        live = LiveSlices.of(view(), entries(), state)
    ways = ways_of(snapshot, versions, state, live)
    look_at_barriers(store, snapshot, state, live, ways, findings)
    if properties_fault(store, newest.options):
        _write_properties(store, snapshot)
    for instant, action in state.unstaged:
        stage(store, instant, store.fetch(completed_path(instant, action)), action)
    for instant, action in state.late:
        Timeline(store).withdraw(instant, ("completed",), action)
    for (instant, action), way in ways.items():
        if way is Way.WAITS:
            _wait_again(store, newest, instant, action)
        elif way is Way.UNDONE:
            newest = _undo(store, newest, instant, action, staged_path(instant))
        elif way is Way.PUBLISHED:
            newest = _publish_again(store, engine, newest, versions, (instant, action), findings)
        elif way is Way.LEFT:
            return  # what is later may be of its buckets or columns
    for instant, action in state.foreign:
        if live is not None and undoable(live, (instant, action)):
            newest = _undo(store, newest, instant, action)
    _drop_unreadable(store, newest, versions, state, findings)


def _drop_unreadable(
    store: Store, newest: Manifest, versions: Versions, state: TimelineState, findings: Findings
) -> None:
    """Whoever begins walks the kept versions where the timeline has not the commits that the newest
    one tells: those that cannot be read are not kept any more by then. What only versions that go
    with them know to be missing is put back with it."""
    lost = {one: why for one, why in versions.lost.items() if one not in versions.pinned}
    if not lost or tells_all(newest, completed_of(Timeline(store).load())):
        return
    for version, why in lost.items():
        findings.add(Fault.VERSION, version_path(version), why, dropping_up_to(version))
    steps = []
    for instant, action in state.missing:
        body = body_of(store, versions, instant, action)
        if body is not None:
            steps.append(stage(store, instant, body, action))
            add_missing(findings, (instant, action))
    change = Change(
        REPAIR,
        requires=(NewestIsBase(),),
        updates=(RaiseFloor(max(lost) + 1),),
        steps=tuple(steps),
    )
    _published(store, newest, change)


def _write_properties(store: Store, snapshot: Snapshot) -> None:
    """Put the properties anew: what we wrote when the table was made, and what others have added
    since, where it can be read."""
    try:
        held = TableProperties.decode(store.get(PROPERTIES_PATH) or b"")
    except CorruptError:
        held = TableProperties({})
    mended = held.mended(snapshot.options, snapshot.schema)
    put_over(store, PROPERTIES_PATH, mended.encode())


def _publish_again(
    store: Store,
    engine: Engine[Any],
    newest: Manifest,
    versions: Versions,
    one: Action,
    findings: Findings,
) -> Manifest:
    """Publish a version that knows a commit of ours whose own version is lost, with its columns and
    its entries: nobody can write before, nor reads it without its rows. That takes a look at the
    whole table; what it mends goes to `findings`."""
    body = body_of(store, versions, *one)
    snapshot = Snapshot(store, newest)
    if body is not None:
        columns = columns_with(newest, body, completed_path(*one))
        snapshot = snapshot.with_columns(columns.encode())
    scratch = engine.scratch(store)
    with Transaction(store, newest) as transaction:
        found = examine(engine, snapshot, scratch, one[0])
        change = publishing_again(transaction, found, scratch, one, body)
        made = transaction.publish(change)
    findings.add_kinds(found.findings, BY_ENTRIES)
    return made


def _wait_again(store: Store, newest: Manifest, instant: str, action: str) -> None:
    """Take off the timeline what has carried a plan out. The plan stays there, and hides the files
    that were made of it."""
    done = Step("complete", instant, action=action)
    for step in dropping_rings(newest.options, done):
        drop_rings(store, newest, step)
    Timeline(store).withdraw(instant, ("completed",), action)


def _undo(store: Store, newest: Manifest, instant: str, action: str, staged: str = "") -> Manifest:
    """Publish that a commit is undone: its files are deleted by the step. `staged`: where that of
    one of ours lies ready."""
    step = Step("withdraw", instant, staged, action=action)
    change = Change(
        REPAIR,
        requires=(NewestIsBase(),),
        updates=(Withdraw((instant,)),),
        steps=(*dropping_rings(newest.options, step), step),
    )
    return _published(store, newest, change)


def _published(store: Store, newest: Manifest, change: Change) -> Manifest:
    """Put the next version of `newest`, and do its steps. Nothing was written for it that could be
    left behind, so it needs no lease."""
    made = publish(store, newest, change, Owner.new(REPAIR))
    announce(store, made)
    return made
