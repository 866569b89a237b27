"""Savepoints: versions that are kept under a name, until it is dropped.

A savepoint pins a version that a data commit has made, or, where that is not kept any more, one of
a service behind it: its root, index files and data files stay, whatever `clean` is told, Hudi's
timeline is not archived past its commit, and no commit that it holds is undone. On Hudi's timeline
it is a `savepoint` of the commit's instant, which keeps Hudi's own cleaner from its files.

No instant below that of a savepoint is published any more: so what a restore has to undo is all
that is later on the timeline, also where the versions between are not kept any more.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.compaction.ways_back.older_files import check_files
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.hoodie.timeline import PLANNED, Timeline
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import back_from, commits_back
from metatable.metadata.commits.retention import NoneBelow, PinVersion, Unpin
from metatable.metadata.commits.steps import stage
from metatable.metadata.manifests.manifest import Manifest, Pin, Step, saved_path, version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import is_undone, load_version, newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import clock
from metatable.storage.errors import StaleError, UsageError

__all__ = ["DropSavepoint", "Savepoint", "pin_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class SavepointPlan(Plan):
    """The version to keep, and under which name."""

    label: str
    pin: Pin

    @property
    def summary(self) -> str:
        return f"version {self.pin.version} (commit {self.pin.instant}) kept as {self.label}"


@dataclass(frozen=True, slots=True)
class Savepoint(Service[SavepointPlan]):
    """Keep the newest commit's version, or the one that this version goes back to, by a name."""

    label: str
    version: int | None = None
    note: str = ""
    name: ClassVar[str] = "savepoint"

    def plan(self, snapshot: Snapshot) -> SavepointPlan | NothingDue:
        _check_label(self.label)
        newest = snapshot.manifest
        pin = _pin(snapshot, self.version)
        held = newest.pins.get(self.label)
        if held is not None and held.version == pin.version:
            return NothingDue(f"savepoint {self.label} keeps version {pin.version} already")
        if held is not None:
            raise UsageError(
                "there is a savepoint of this name: drop it first, or take another name",
                found=self.label,
                keeps=held.version,
            )
        _check_is_latest(snapshot, pin)
        kept = load_version(snapshot.store, pin.version, newest.oldest)
        _check_none_waits(kept)
        _check_none_behind(snapshot, pin)
        check_files(snapshot, kept, "the version to keep lacks a data file: nothing was kept")
        return SavepointPlan(self.label, pin)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: SavepointPlan, owner: Owner
    ) -> Outcome:
        pin, store, newest = plan.pin, snapshot.store, snapshot.manifest
        held = Snapshot(store, load_version(store, pin.version, newest.oldest)).slices()
        time_ms = clock.now_ms()
        body = savepoint_metadata(list(held), time_ms, self.note)
        is_kept = any(one.version == pin.version for one in newest.pins.values())
        root = None if is_kept else store.get(version_path(pin.version))
        if root is not None:
            store.put(saved_path(pin.version), root)
        change = Change(
            operation=self.name,
            requires=(NoneBelow(pin.instant),),
            updates=(PinVersion(self.label, Pin(pin.version, pin.instant, time_ms, self.note)),),
            steps=(stage(store, pin.instant, body, "savepoint"),),
            summary={"kept_version": pin.version},
        )
        return Outcome(change)


@dataclass(frozen=True, slots=True)
class DropPlan(Plan):
    """A savepoint that is there."""

    label: str
    pin: Pin

    @property
    def summary(self) -> str:
        return f"savepoint {self.label} of version {self.pin.version} dropped"


@dataclass(frozen=True, slots=True)
class DropSavepoint(Service[DropPlan]):
    """Keep it no longer: the next `clean` goes by the other rules."""

    label: str
    name: ClassVar[str] = "drop_savepoint"

    def plan(self, snapshot: Snapshot) -> DropPlan:
        return DropPlan(self.label, pin_of(snapshot.manifest, self.label))

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: DropPlan, owner: Owner
    ) -> Outcome:
        # other savepoints of this commit may go, or come, meanwhile: done, the step asks for them
        step = Step("drop_savepoint", plan.pin.instant, action="savepoint")
        change = Change(
            operation=self.name,
            updates=(Unpin(self.label),),
            steps=(step,),
            summary={"kept_version": plan.pin.version},
        )
        return Outcome(change)


def pin_of(newest: Manifest, label: str) -> Pin:
    """What is kept by this name. Raises UsageError."""
    pin = newest.pins.get(label) if isinstance(label, str) else None
    if pin is None:
        raise UsageError("no such savepoint", found=label, expected=sorted(newest.pins))
    return pin


def _check_label(label: str) -> None:
    if not isinstance(label, str) or not _NAME.fullmatch(label):
        expected = "a letter first, then letters, digits, '_', '.' and '-', 100 at most"
        raise UsageError("not a name for a savepoint", found=label, expected=expected)


def _pin(snapshot: Snapshot, version: int | None) -> Pin:
    """The version that made the last commit of `version`'s content, or, where that is not kept, or
    something waited in it, a later one of the same commits."""
    store, newest = snapshot.store, snapshot.manifest
    asked = newest if version in (None, newest.version) else _kept(snapshot, version)
    if asked.last_commit is None:
        raise UsageError("there is no commit to keep", version=asked.version, path=store.uri)
    made, instant = asked.last_commit
    kept = made if newest.keeps(made) else _first_kept(newest, asked, instant)
    kept = _first_done(snapshot, kept, asked)
    if instant in newest.withdrawn or (kept != made and is_undone(store, newest, kept)):
        raise StaleError("this version was undone", version=asked.version)
    return Pin(kept, instant)


def _first_kept(newest: Manifest, asked: Manifest, instant: str) -> int:
    """The version to keep for those whose last commit is older than what is kept, as behind a
    repair of index files: that of another savepoint of this commit, or the first that is kept and
    has come since the table last went back. Who asks again gets the same one."""
    saved = [one.version for one in newest.pins.values() if one.instant == instant]
    return min(saved, default=max(newest.oldest, asked.restored_at))


def _first_done(snapshot: Snapshot, kept: int, asked: Manifest) -> int:
    """The first version from this one on, up to the one that was asked for, of the same commits and
    in which nothing scheduled waits any more; this one, where something waits in all."""
    if asked.compactions:
        return kept
    store, oldest = snapshot.store, snapshot.manifest.oldest
    later = (load_version(store, one, oldest) for one in range(kept, asked.version))
    is_done = (
        one.version for one in later if not one.compactions and one.last_commit == asked.last_commit
    )
    return next(is_done, asked.version)


def _kept(snapshot: Snapshot, version: int | None) -> Manifest:
    newest = snapshot.manifest
    if version is None or not 0 < version <= newest.version or not newest.keeps(version):
        expected = f"{max(newest.oldest, 1)} to {newest.version}"
        raise UsageError("no such version to keep", found=version, expected=expected)
    return load_version(snapshot.store, version, newest.oldest)


def _check_none_waits(kept: Manifest) -> None:
    """No instant below a savepoint's is published any more: none may be left open there."""
    if kept.compactions:
        raise UsageError(
            "what is scheduled waits in this version: carry it out, and keep a later one",
            version=kept.version,
            found=sorted(kept.compactions),
        )


def _check_none_behind(snapshot: Snapshot, pin: Pin) -> None:
    """What was scheduled by a slow hand may have an earlier instant than the version's commit, and
    have come behind it: it could not be carried out, or, done, would not be undone by instants."""
    newest = snapshot.manifest
    done = {one.instant for one in back_from(snapshot.store, newest, pin.version)} - {""}
    planned = done.difference(newest.withdrawn) | newest.compactions.keys()
    behind = sorted(one for one in planned if one < pin.instant)
    if behind:
        raise UsageError(
            "something of an earlier instant came, or waits, behind this version: carry it out, and"
            " keep a later one",
            version=pin.version,
            instant=pin.instant,
            found=behind[:5],
        )


def _check_is_latest(snapshot: Snapshot, pin: Pin) -> None:
    """No commit that came with the version, or before it, may be later by its instant, and none
    that came after it may be earlier: Hudi's tools would keep, and undo, by instants. Where another
    savepoint keeps the version it was so, and stays so; what came after it may be told by nothing
    any more."""
    store, newest = snapshot.store, snapshot.manifest
    if pin.version in {one.version for one in newest.pins.values()}:
        return
    if pin.instant < newest.archived:
        raise UsageError(
            "Hudi's timeline begins after the commit of this version: keep a later version",
            version=pin.version,
            instant=pin.instant,
            expected=f"a commit of {newest.archived} or later",
        )
    done = [one for one in Timeline(store).load() if one.changes_data]
    commits = commits_back(store, newest)
    later = [instant for version, instant in takewhile(lambda one: one[0] > pin.version, commits)]
    if any(instant < pin.instant for instant in later):
        raise UsageError(
            "a slower commit was published behind this version: keep a later one",
            version=pin.version,
            found=min(later),
        )
    late = {one.time for one in done if one.time > pin.instant and one.action not in PLANNED}
    if len(late) != len(later):  # some have come since
        late -= {one.instant for one in back_from(store, newest_of(store), newest.version)}
    planned = {one.time for one in done if one.time > pin.instant and one.action in PLANNED}
    if len(late) != len(later) or _held(snapshot, pin, planned):
        raise UsageError(
            "this version holds a commit of a later instant than its own: keep a later version",
            version=pin.version,
            instant=pin.instant,
        )


def _held(snapshot: Snapshot, pin: Pin, done: Collection[str]) -> frozenset[str]:
    """Which of these the version holds, of compactions and resizes that were carried out: what
    none of those behind it has published. A version that is kept by a savepoint holds none."""
    if not done or pin.version < snapshot.manifest.oldest:
        return frozenset()
    since = back_from(snapshot.store, newest_of(snapshot.store), pin.version)
    return frozenset(done).difference(one.instant for one in since)
