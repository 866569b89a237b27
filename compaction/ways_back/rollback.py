"""Rollback: undo the last data commit.

Versions are immutable; going back is pointing at old pages. The new version has the content
from before the commit, so compactions that came after it fall away with it, and it withdraws
the instant for ever. Only then, as steps of the version, the commit leaves Hudi's timeline, its
data files go, and Hudi's own record of it is left; killed in between, the next writer finishes it.

Whatever is needed is read and proven before the put: the older version with its pages, HFiles and
data files, and the commit that lists the data files to delete. A rollback whose answer was lost is
repeated with the `instant` that it names, and then undoes nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.compaction.ways_back.going_back import LogCompactionsBack
from metatable.compaction.ways_back.older_files import check_files
from metatable.compaction.ways_back.undoing import completion
from metatable.data.hoodie.savepoint_metadata import is_of_others
from metatable.data.hoodie.timeline import (
    DATA_ACTIONS,
    Instant,
    Timeline,
    completed_of,
    completed_path,
)
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.lost_savepoints import lost_savepoints
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.steps import listed_of, staged_body, staged_path
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["Rollback", "back_to"]


@dataclass(frozen=True, slots=True)
class RollbackPlan(Plan):
    """The version whose commit is to be undone."""

    undone: Manifest
    back: LogCompactionsBack

    @property
    def summary(self) -> str:
        one = self.undone
        return f"commit {one.instant} of version {one.version} ({one.operation}) undone"


@dataclass(frozen=True, slots=True)
class Rollback(Service[RollbackPlan]):
    """Undo the newest data commit of this version; only this `instant`, if one is given."""

    instant: str | None = None
    name: ClassVar[str] = "rollback"
    retries: ClassVar[int] = 0

    def plan(self, snapshot: Snapshot) -> RollbackPlan | NothingDue:
        store, newest = snapshot.store, snapshot.manifest
        if self.instant is not None and self.instant in newest.withdrawn:
            return NothingDue(f"commit {self.instant} is undone already")
        version, instant = self._last(store, newest)
        _check_kept(newest, version)
        load = partial(load_version, store, oldest=newest.oldest)
        content, undone = load(version - 1), load(version)
        back = back_to(snapshot, content, {instant: completion(undone)})
        return RollbackPlan(undone, back)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: RollbackPlan, owner: Owner
    ) -> Outcome:
        undone = plan.undone
        change = Change(
            operation=self.name,
            requires=(NewestIsBase(),),
            updates=plan.back.updates(snapshot.store, (undone.instant,), owner),
            steps=plan.back.steps(snapshot, self.name, [completion(undone)]),
            summary={"undone_version": undone.version},
        )
        return Outcome(change)

    def _last(self, store: Store, newest: Manifest) -> tuple[int, str]:
        """(version, instant) of the commit to undo. Raises UsageError where there is none."""
        if newest.last_commit is None:
            raise UsageError("there is no commit to roll back", path=store.uri)
        if self.instant not in (None, newest.last_commit[1]):
            raise UsageError(
                "only the last commit can be rolled back",
                path=store.uri,
                expected=newest.last_commit[1],
                found=self.instant,
            )
        return newest.last_commit


def back_to(
    snapshot: Snapshot, content: Manifest, undone: Mapping[str, Step]
) -> LogCompactionsBack:
    """The way back to this version, which undoes these commits (what completed each, by instant).
    Raises UsageError where a savepoint, Hudi's timeline or what is scheduled forbids it,
    CorruptError where the version is damaged, or nothing tells what a commit has written."""
    timeline = Timeline(snapshot.store).load()
    _check_timeline(snapshot.manifest, timeline, content)
    _check_content(snapshot.store, content)
    back = LogCompactionsBack.of(snapshot, content)
    _check_savepoints(snapshot, timeline, {*undone, *(one.instant for one in back.undone)})
    what = "the version to go back to lacks a data file: nothing was undone"
    check_files(snapshot, content, what, back.made, back.passed(snapshot.store))
    _check_told(snapshot.store, timeline, [*undone.values(), *back.undone])
    return back


def _check_savepoints(
    snapshot: Snapshot, timeline: Sequence[Instant], undone: Collection[str]
) -> None:
    """Neither what ours keep goes, be their root lost, nor what those of Hudi's own tools do, whose
    last commit may be a compaction that goes along."""
    for name, pin in snapshot.manifest.pins.items():
        if pin.instant in undone:
            raise UsageError(
                "a savepoint keeps a commit that would be undone: drop it first",
                savepoint=name,
                instant=pin.instant,
            )
    store = snapshot.store
    for instant in lost_savepoints(store, snapshot.manifest, timeline):
        if instant in undone:
            raise UsageError(
                "a savepoint whose root is lost keeps a commit that would be undone: keep its"
                " version again, and drop that",
                path=completed_path(instant, "savepoint"),
            )
    for one in timeline:
        if one.action == "savepoint" and one.time in undone:
            path = completed_path(one.time, one.action)
            if is_of_others(store.get(path) or b""):
                raise UsageError(
                    "a savepoint of Hudi's own tools keeps a commit that would be undone: have them"
                    " delete it first",
                    path=path,
                )


def _check_kept(newest: Manifest, made: int) -> None:
    """What was before the version that made the commit to undo, and what has come since, too:
    compactions of logs that go along are told by nothing else."""
    before = made - 1
    saved = [name for name, pin in newest.pins.items() if pin.version == before]
    if saved and made < newest.oldest:
        raise UsageError(
            "versions since the last commit are not kept any more: restore the savepoint before it",
            found=f"version {made}",
            expected=f"savepoint {saved[0]}",
        )
    if not newest.keeps(before):
        raise UsageError(
            "what was before the last commit is not kept any more: it cannot be undone",
            found=f"version {before}",
            expected=f"version {newest.oldest} or later",
        )


def _check_timeline(newest: Manifest, timeline: Sequence[Instant], content: Manifest) -> None:
    """Without a commit on it that is still there, Hudi's readers would find no rows. Its own tools
    archive, too, and no version of ours tells how far."""
    last = content.last_commit[1] if content.last_commit else ""
    if last < newest.archived:
        raise UsageError(
            "no commit would be left on Hudi's timeline: the last one cannot be undone",
            found=last,
            expected=f"{newest.archived} or later",
        )
    if last and last not in completed_of(timeline):
        raise UsageError(
            "the last commit of that version is not on Hudi's timeline any more, whose readers"
            " would not find its rows: the table cannot go back to it",
            version=content.version,
            instant=last,
        )


def _check_told(store: Store, timeline: Sequence[Instant], undone: Sequence[Step]) -> None:
    """Of a commit that was archived only what lies beside our versions tells the files to delete;
    they would come to light behind the timeline's next commit. Of others a listing does. Where
    neither is there, the commit may have been undone already, and none of its files be left."""
    there = {one.time for one in timeline if one.action in DATA_ACTIONS}
    gone = [one for one in undone if one.instant not in there]
    bodies = in_order_far(store, partial(staged_body, store), gone)
    untold = {one.instant: one for one, body in zip(gone, bodies, strict=True) if body is None}
    for path, instant in listed_of(store, untold) if untold else ():
        raise CorruptError(
            "a commit to undo was archived, and what it has written is told by nothing any"
            " more: nothing was undone",
            path=staged_path(instant, untold[instant].action),
            instant=instant,
            found=path,
        )


def _check_content(store: Store, content: Manifest) -> None:
    """Nobody can read a version of which a page or an HFile is gone. Raises CorruptError."""
    snapshot = Snapshot(store, content)
    for partition in content.pages:
        held = {one.path: one.size_bytes for one in store.list(f"{HOME}/{partition}")}
        for ref in snapshot.refs(partition):
            if held.get(ref.path) != ref.size_bytes:
                raise CorruptError(
                    "the version to go back to lacks an index file: nothing was undone",
                    path=ref.path,
                    version=content.version,
                    expected=f"{ref.size_bytes} bytes",
                    found=held.get(ref.path),
                )
