"""Restore: go back to an older version, over many commits at once.

As a rollback it points at old pages: the new version has the content of the old one, compactions
since then fall away, and every commit since then is withdrawn for ever; each then leaves Hudi's
timeline, and its data files go, as a step of the new version. What is needed is proven before the
put. A savepoint that is newer than the target is not passed: drop it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.compaction.ways_back.going_back import LogCompactionsBack
from metatable.compaction.ways_back.rollback import back_to
from metatable.compaction.ways_back.undoing import completion, unknown_completion
from metatable.data.hoodie.timeline import Timeline
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import commits_back
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError
from metatable.storage.portions import in_order_far

__all__ = ["Restore"]


@dataclass(frozen=True, slots=True)
class RestorePlan(Plan):
    """Where to, and what is undone on the way, newest first."""

    version: int
    undone: tuple[Step, ...]
    first: int
    """The oldest version of those that is kept."""
    back: LogCompactionsBack

    @property
    def summary(self) -> str:
        count = len(self.undone)
        return f"back to version {self.version}: {count} commit{'s' * (count > 1)} undone"


@dataclass(frozen=True, slots=True)
class Restore(Service[RestorePlan]):
    """Go back to `version`, which must be kept."""

    version: int
    name: ClassVar[str] = "restore"
    retries: ClassVar[int] = 0

    def plan(self, snapshot: Snapshot) -> RestorePlan | NothingDue:
        store, newest = snapshot.store, snapshot.manifest
        if not 0 < self.version <= newest.version or not newest.keeps(self.version):
            raise UsageError(
                "no such version to go back to, or it is not kept any more",
                found=self.version,
                expected=f"{max(newest.oldest, 1)} to {newest.version}",
            )
        target = load_version(store, self.version, newest.oldest)
        since = list(self._since(snapshot, target))
        if not since:
            return NothingDue(f"the table has the content of version {self.version}")
        undone = tuple(step for _, step in since)
        back = back_to(snapshot, target, {one.instant: one for one in undone})
        return RestorePlan(self.version, undone, since[-1][0], back)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: RestorePlan, owner: Owner
    ) -> Outcome:
        instants = tuple(one.instant for one in plan.undone)
        change = Change(
            operation=self.name,
            requires=(NewestIsBase(),),
            updates=plan.back.updates(snapshot.store, instants, owner),
            steps=plan.back.steps(snapshot, self.name, plan.undone),
            summary={
                "restored_version": plan.version,
                "undone_version": min(plan.first, plan.back.first),
                "undone_commits": len(plan.undone),
            },
        )
        return Outcome(change)

    def _since(self, snapshot: Snapshot, target: Manifest) -> Iterator[tuple[int, Step]]:
        """For each commit that the target does not hold, newest first: the version that made it, or
        the first that is kept, and the step that completed it."""
        store, newest = snapshot.store, snapshot.manifest
        goal = target.last_commit
        if goal is not None and target.version < newest.oldest:  # a savepoint: all later is undone
            done = (one for one in Timeline(store).load() if one.changes_data)
            later = [unknown_completion(one.time, one.action) for one in done if one.time > goal[1]]
            yield from ((newest.oldest, one) for one in reversed(later))
            return
        undone: list[int] = []
        for made in commits_back(store, newest):
            if made == goal:
                break
            undone.append(made[0])
        else:
            if goal is not None or (undone and not newest.keeps(undone[-1] - 1)):
                raise UsageError(
                    "that version was undone: the table cannot go back to it", found=target.version
                )
        load = partial(load_version, store, oldest=newest.oldest)
        roots = in_order_far(store, load, undone)
        yield from zip(undone, map(completion, roots), strict=True)
