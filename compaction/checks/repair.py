"""Repair: mend what `verify` finds, by one ordinary version.

    1  barriers   what keeps anybody from writing (`barriers.py`): properties, commits that no
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
from itertools import count
from typing import Any

from metatable.compaction.checks.barriers import make_writable
from metatable.compaction.checks.commit_bodies import completion_of
from metatable.compaction.checks.examined import Examined
from metatable.compaction.checks.findings import Findings
from metatable.compaction.checks.mending import mending, needs_version, to_stage
from metatable.compaction.checks.verify import examine, result_of
from metatable.compaction.service import RETRIES
from metatable.data.base_files.hadoop_checksum import forget_checksum, put_over
from metatable.data.file_groups.slices import partition_metadata, partition_metadata_path
from metatable.data.hoodie.operations import REPAIR
from metatable.data.hoodie.timeline import Timeline, completed_path, inflight_path, requested_path
from metatable.engine.protocol import Engine
from metatable.metadata.commits.scheduled_plans import plan_body, waits
from metatable.metadata.commits.steps import staged_body, staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
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
            make_writable(store, engine, opened)
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
        if needs_version(found) or to_stage(store, found):
            version = transaction.publish(mending(transaction, found, scratch)).version
    _finish(store, found)
    return found, version


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
    for instant, action in found.state.plans:
        _plan_again(found.snapshot, instant, action)
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


def _plan_again(snapshot: Snapshot, instant: str, action: str) -> None:
    """Put a plan that waits back on the timeline, unless it waits no more."""
    store, told = snapshot.store, snapshot.manifest.compactions[instant]
    body = plan_body(snapshot, instant, told.checksum, action)
    if not waits(store, instant):
        return
    put_over(store, requested_path(instant, action), body)
    if not waits(store, instant) and not Timeline(store).is_complete(instant, action):
        Timeline(store).withdraw(instant, ("requested",), action)  # taken back meanwhile
