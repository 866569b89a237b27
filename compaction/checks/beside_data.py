"""Beside the data: what a table needs besides data files and entries, held against what it is.

    barriers   properties, commits that no version knows, or that were undone
    timeline   commits that are missing, damaged or without traces, stray ones, savepoints
    versions   roots, pages and HFiles of every kept version
    plans      stored ones that nobody can carry out

Barriers are what `repair` mends first: nobody can write before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatable.compaction.checks.commit_bodies import Action
from metatable.compaction.checks.examined import Examined
from metatable.compaction.checks.findings import Findings
from metatable.compaction.checks.kept_versions import dropping_up_to
from metatable.compaction.checks.live_slices import LiveSlices
from metatable.compaction.checks.own_commits import Way
from metatable.compaction.checks.timeline_check import TimelineState
from metatable.compaction.merging.compact import Compact
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.service import Schedulable
from metatable.data.config.options import Options
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.timeline import REPLACING, completed_path, requested_path
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.plans import PLANS, load_plan
from metatable.metadata.manifests.versions import root_place
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import Fault
from metatable.storage.errors import CorruptError, MetatableError, NotFoundError, StaleError
from metatable.storage.store import Store

__all__ = [
    "add_missing",
    "look_at_barriers",
    "look_at_plans",
    "look_at_timeline",
    "look_at_versions",
    "properties_fault",
    "undoable",
]


def look_at_barriers(
    store: Store,
    snapshot: Snapshot,
    state: TimelineState,
    live: LiveSlices | None,
    ways: Mapping[Action, Way],
    findings: Findings,
) -> None:
    """What keeps writers from beginning, or is mended when one does. `live`: where there are
    foreign commits; `ways`: what becomes of ours whose version is lost."""
    wrong = properties_fault(store, snapshot.options)
    if wrong:
        findings.add(Fault.PROPERTIES, PROPERTIES_PATH, wrong, "written anew")
    for one, way in ways.items():
        what = "no version of ours has published it, and it is ours: its version is lost"
        findings.add(Fault.FOREIGN_COMMIT, completed_path(*one), what, way.value)
    for one in state.foreign:
        what, remedy = "no version of ours has published it", ""
        if live is not None and undoable(live, one):
            remedy = "undone, as Hudi's rollback does, with its files"
        findings.add(Fault.FOREIGN_COMMIT, completed_path(*one), what, remedy)
    for one in state.unstaged:
        what = "what lay ready for a commit of ours is lost, and no version of then is kept"
        findings.add(Fault.TRACES_MISSING, staged_path(one[0]), what, "copied from the timeline")
    for one in state.late:
        what = "it was undone, and is on the timeline"
        findings.add(Fault.LATE_COMMIT, completed_path(*one), what, "taken off the timeline")


def properties_fault(store: Store, options: Options) -> str:
    """What is wrong with `hoodie.properties`; "": nothing."""
    raw = store.get(PROPERTIES_PATH)
    if raw is None:
        return "it is lost"
    try:
        TableProperties.decode(raw).check(options)
    except CorruptError as error:
        return str(error)
    return ""


def look_at_timeline(found: Examined) -> None:
    """What is wrong on Hudi's timeline, beside what keeps anybody from writing."""
    state, add = found.state, found.findings.add
    for one in state.missing:
        add_missing(found.findings, one)
    for one, wrong in state.damaged.items():
        add(Fault.COMMIT_DAMAGED, completed_path(*one), wrong, "written anew")
    for one in state.untraced:
        what = "its commit is completed, but has no .requested or no .inflight"
        add(Fault.TRACES_MISSING, requested_path(*one), what, "written anew")
    for one, wrong in state.plans.items():
        what = f"it waits, and {wrong}"
        add(Fault.TRACES_MISSING, requested_path(*one), what, "written anew")
    for one in state.stray:
        what = "under way, and nobody is: no lease, no version, and it has not moved for long"
        add(Fault.STRAY_INSTANT, requested_path(*one), what, "withdrawn, with its files")
    for name in state.savepoints:
        path = completed_path(found.versions.newest.pins[name].instant, "savepoint")
        what = f"savepoint {name} is not on the timeline"
        add(Fault.SAVEPOINT, path, what, "put on the timeline")
    for instant in state.lost_savepoints:  # their names stood in the root alone
        version = found.versions.first_of(instant)
        which = "its version" if version is None else f"version {version}"
        what = f"no version knows this savepoint, its root is lost: keep {which} again by"
        what += f" `savepoint`, or delete {staged_path(instant, 'savepoint')} to drop it"
        add(Fault.SAVEPOINT, completed_path(instant, "savepoint"), what)


def add_missing(findings: Findings, one: Action) -> None:
    """Tell of a published commit that is not on the timeline, and is put there."""
    what = "published, and not on the timeline"
    findings.add(Fault.COMMIT_MISSING, completed_path(*one), what, "put on the timeline")


def undoable(live: LiveSlices, one: Action) -> bool:
    """Whether a commit that no version knows can be undone: nothing is lost with it but what it
    wrote, for each group that it has written again has its slice from before."""
    instant, action = one
    lost = {(each.slice.partition_path, each.slice.file_id) for each in live.lost}
    groups = {(each.partition_path, each.file_id) for each in live.foreign.get(instant, ())}
    return action not in REPLACING and not groups & lost


def look_at_versions(found: Examined) -> None:
    """What is wrong with kept versions: their roots, pages and HFiles."""
    add, versions, index_files = found.findings.add, found.versions, found.index_files
    newest, pinned = versions.newest.version, versions.pinned
    bad: set[int] = set()
    for path, twin in versions.copies.items():
        add(Fault.VERSION, path, "the root is lost or damaged", f"copied from {twin}")
    for version, why in versions.lost.items():
        place = root_place(version, versions.newest.oldest)
        if version in pinned:
            add(Fault.VERSION, place, f"{why}: drop savepoint {pinned[version]}")
        else:
            bad.add(version)
            add(Fault.VERSION, place, why, dropping_up_to(version))
    for fault, files in ((Fault.PAGE, index_files.pages), (Fault.HFILE, index_files.hfiles)):
        for path, why in files.items():
            if path in index_files.lasting:
                add(fault, path, f"{why}: restore it, nothing says where keys are without it")
                continue
            named = index_files.versions.get(path, ())
            free = [one for one in named if one not in pinned and one <= newest]
            bad.update(free)
            remedy = "its entries made anew" if newest in named else ""
            if older := [one for one in free if one < newest]:
                remedy = "; ".join(filter(None, (remedy, dropping_up_to(max(older)))))
            add(fault, path, why, remedy)
            for one in sorted(pinned.keys() & set(named) - {newest}):
                what = f"it names {path}: drop savepoint {pinned[one]}"
                add(Fault.VERSION, root_place(one, versions.newest.oldest), what)
    found.floor = max(bad, default=-1) + 1


def look_at_plans(view: Snapshot, found: Examined) -> None:
    """Only a plan of a service that we know can be judged."""
    store = view.store
    services: dict[str, Schedulable[Any]] = {one.name: one for one in (Compact(), Resize())}
    carried_out = {one.staged for one in view.manifest.steps}
    for listed in store.list(PLANS):
        if listed.path in carried_out:
            continue
        try:
            path, plan = load_plan(store, listed.name.removesuffix(".json"))
            if plan.service in services:
                services[plan.service].resume(view, plan.work, path)
        except NotFoundError:  # carried out since it was listed
            continue
        except (CorruptError, StaleError) as error:
            if store.size(listed.path) is not None:
                found.plans.append(listed.path)
                found.findings.add(Fault.PLAN, listed.path, str(error), "deleted")
        except MetatableError:  # not the name of a plan
            continue
