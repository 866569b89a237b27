"""Hudi's timeline beside our versions: which data commits count, and what is wrong with it.

    completed, of a version         counts
    completed, of no version        ours where what we staged for it is there: its version is lost.
                                    Counts where the index names files of it, if its version may
                                    have been cleaned. Else another writer's
    published, and not completed    counts, and is missing; also where its version is not kept any
                                    more, if the sum of commits tells that one is missing, and the
                                    index names files of it, or the sum is whole with it
    completed, but withdrawn        a late hand's: counts for nobody but Hudi's readers
    under way, without a lease      nobody's, if it has not moved for long, as our writers have a
                                    lease. But where the sum is not whole any may be published
    planned, and waiting            its plan must be there

What came after the version is left out of all of this, and so is what the steps of the newest
version are still to do. Of the commits that count the bodies are read: which data files they wrote,
which groups they replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from metatable.compaction.checks.commit_bodies import Action, bodies_of
from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.checks.seen_timeline import SeenTimeline
from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import action_of
from metatable.data.hoodie.timeline import (
    DATA_ACTIONS,
    completed_path,
    inflight_path,
    requested_path,
)
from metatable.metadata.commits.known_commits import CommitSum, too_many
from metatable.metadata.commits.lost_savepoints import lost_savepoints
from metatable.metadata.commits.retention import seen_time
from metatable.metadata.commits.scheduled_plans import plan_fault
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.leases import is_dead
from metatable.metadata.manifests.manifest import Manifest
from metatable.storage.store import Store

__all__ = ["TimelineState"]

STRAY_LEASES = 10
"""An action without a lease that has not moved for so many leases is under way no more,"""

STRAY_SECONDS = 600.0
"""nor for so long, however short they are: a late hand may have left it just now."""


@dataclass(frozen=True)
class TimelineState:
    """The timeline, as one version finds it."""

    counted: frozenset[str]
    """Data commits in the version's content, but for those that were archived."""
    archived: str
    withdrawn: frozenset[str]
    ours: tuple[Action, ...]
    """Completed commits of ours whose version is lost."""
    foreign: tuple[Action, ...]
    late: tuple[Action, ...]
    missing: tuple[Action, ...]
    stray: tuple[Action, ...]
    untraced: tuple[Action, ...]
    """Completed, of ours, but `.requested` or `.inflight` is not there."""
    damaged: Mapping[Action, str]
    """Completed files that say something else than what was published, and how."""
    savepoints: tuple[str, ...]
    """Pinned, and not on the timeline: names."""
    lost_savepoints: tuple[str, ...]
    """Of ours, on the timeline, and of no version, as its root is lost: instants."""
    plans: Mapping[Action, str]
    """Those that wait, and of which the plan is lost or damaged there, and how."""
    unstaged: tuple[Action, ...]
    """Completed commits of ours of which nothing but the index tells that they are ours: their
    versions are not kept any more, and what we wrote for the timeline is lost."""
    bodies: Mapping[str, CommitMetadata]
    """What the commits that count tell, by instant, as far as one can be read."""
    not_yet: frozenset[str] = frozenset()
    """Instants of writers under way, and of commits after the version: they, too, may be older than
    the timeline, which was archived meanwhile."""

    def counts(self, instant: str) -> bool:
        """Whether a data file of this instant ("": of one that does not tell) is committed."""
        before = "" < instant < self.archived
        committed = before and instant not in self.withdrawn and instant not in self.not_yet
        return committed or instant in self.counted

    def rows_of(self) -> dict[str, int]:
        """Rows by path, of the data files that the commits say they wrote."""
        bodies = self.bodies.values()
        return {stat.path: stat.row_count for body in bodies for stat in body.stats}

    def sizes(self) -> dict[str, int]:
        """Bytes by path, of the data files of which the commits tell them."""
        stats = (stat for body in self.bodies.values() for stat in body.stats)
        return {stat.path: stat.size_bytes for stat in stats if stat.size_bytes}

    def writers(self) -> dict[str, str]:
        """Instants of the commits that say they wrote a data file, by its path."""
        bodies = self.bodies.items()
        return {stat.path: instant for instant, body in bodies for stat in body.stats}

    def denies(self, file: DataFile | LogFile) -> bool:
        """Whether all commits can be asked that may have written a file of which none tells."""
        if isinstance(file, DataFile):
            return file.instant in self.bodies
        base = file.instant
        later = {one for one in self.counted if one >= base}
        return base >= self.archived and later <= self.bodies.keys()

    def replaced(self) -> frozenset[tuple[str, str]]:
        """(partition path, file id) of groups that a replacecommit has taken away."""
        return frozenset(
            (path, group)
            for body in self.bodies.values()
            for path, ids in (body.replaced or {}).items()
            for group in ids
        )

    @classmethod
    def of(
        cls,
        store: Store,
        manifest: Manifest,
        versions: Versions,
        named: Callable[[], Collection[str]] = frozenset,
        again: str = "",
    ) -> TimelineState:
        """Reads the timeline, then who lives, then what was published since. `named`: instants of
        the commits whose files the index names; asked where the timeline lacks some. `again`: the
        instant of one among `ours` that counts, as it is about to be published again."""
        seen = SeenTimeline.of(store, manifest, versions)
        strange = _strange(seen, versions, store)
        ours = {time for time in strange if _is_staged(store, time)}
        unstaged = _unstaged(seen, versions, strange - ours, named)
        strange -= unstaged
        missing = _missing(seen, strange, named, store)
        stray = _stray(seen, strange, missing, seen_time(store))
        strange, ours = strange - {again}, ours - {again}
        counted = ((seen.there - strange - seen.since) | missing.keys() | {manifest.instant}) - {""}
        bodies, damaged = bodies_of(store, versions, sorted(counted), seen.done)
        return cls(
            counted=frozenset(counted),
            archived=seen.newest.archived,
            withdrawn=seen.withdrawn,
            ours=seen.completed(ours),
            foreign=seen.completed(strange - ours),
            late=seen.completed((seen.done.keys() & seen.withdrawn) - seen.steps),
            missing=tuple(sorted(missing.items())),
            stray=stray,
            untraced=_untraced(seen, counted),
            damaged=damaged,
            savepoints=_savepoints_off(seen),
            lost_savepoints=tuple(lost_savepoints(store, seen.newest, seen.actions)),
            plans=_plans_off(seen, store),
            unstaged=seen.completed(unstaged),
            bodies=bodies,
            not_yet=_not_yet(seen, named),
        )


def _strange(seen: SeenTimeline, versions: Versions, store: Store) -> set[str]:
    """Completed instants that no version has published."""
    newest = seen.newest
    if CommitSum.decode(newest.commits) == CommitSum.of(seen.there):
        return set()
    strange = seen.there - seen.known.keys() - seen.since - {*newest.adopted}
    cleaned = {time for time in strange if _may_be_cleaned(seen, versions, time)}
    cleaned = {time for time in cleaned if _is_staged(store, time)}
    sure = strange - cleaned
    there = (seen.there | (seen.since - seen.withdrawn)) - sure
    return sure | too_many(newest, there, cleaned)


def _may_be_cleaned(seen: SeenTimeline, versions: Versions, instant: str) -> bool:
    """Whether a version that is not there may have published this completed instant."""
    newest = seen.newest
    are_gone = newest.oldest > 1 or bool(versions.lost)
    return are_gone and instant <= newest.latest_instant and instant not in newest.compactions


def _unstaged(
    seen: SeenTimeline, versions: Versions, strange: set[str], named: Callable[[], Collection[str]]
) -> set[str]:
    """Which of these completed instants, that no version tells and nothing staged, are ours: the
    index names files of no other writer."""
    unsure = {time for time in strange if _may_be_cleaned(seen, versions, time)}
    return unsure.intersection(named()) if unsure else set()


def _is_staged(store: Store, instant: str) -> bool:
    """Whether the finished file of a data commit lies beside our versions."""
    return store.size(staged_path(instant)) is not None


def _missing(
    seen: SeenTimeline, strange: set[str], named: Callable[[], Collection[str]], store: Store
) -> dict[str, str]:
    """Data commits that were published and are not completed: instants, and what they are."""
    published = seen.known.keys() - seen.withdrawn - seen.steps
    published -= {seen.manifest.instant, seen.newest.instant}
    missing = {
        time: seen.known[time]
        for time in published - seen.done.keys()
        if time >= seen.newest.archived
    }
    held = _held(seen, strange)
    if _lacks(seen.newest, held):
        missing |= _unkept(seen, named())
    held |= missing.keys()
    if _lacks(seen.newest, held):
        missing |= _summed(seen, held, store)
    return missing


def _held(seen: SeenTimeline, strange: set[str]) -> set[str]:
    """Data commits that count, as far as the timeline and kept versions tell."""
    return (seen.there - strange) | (seen.since.union(seen.known) - seen.withdrawn)


def _lacks(newest: Manifest, instants: Collection[str]) -> bool:
    """Whether more commits are in the content of the newest version than these."""
    held = CommitSum.decode(newest.commits)
    return held is not None and held.count > sum(one >= newest.archived for one in instants)


def _unkept(seen: SeenTimeline, named: Collection[str]) -> dict[str, str]:
    """Commits, by instant, of versions that are not kept any more, which nothing tells but the
    index, because it names files of them; and what they are on the timeline."""
    told = seen.done.keys() | seen.known.keys() | seen.withdrawn | seen.since | seen.steps
    begun = {one.time: one.action for one in seen.under_way}
    meant = action_of("", seen.newest.options.has_logs)
    unsure = (time for time in named if time not in told and time >= seen.newest.archived)
    return {time: begun.get(time, meant) for time in unsure}


def _summed(seen: SeenTimeline, held: Collection[str], store: Store) -> dict[str, str]:
    """Commits, by instant, of which no file is live any more: with one of those under way, or with
    all of them, the sum is whole. What lies ready says what they are."""
    told = CommitSum.of([time for time in held if time >= seen.newest.archived])
    whole = CommitSum.decode(seen.newest.commits)
    unsure = {time: action for time, action in _alone(seen, held) if _is_staged(store, time)}
    some = (unsure, *({time: action} for time, action in unsure.items()))
    return next((one for one in some if one and told.plus(one) == whole), {})


def _not_yet(seen: SeenTimeline, named: Callable[[], Collection[str]]) -> frozenset[str]:
    """Instants of writers under way that are older than the timeline, which was archived meanwhile,
    and of commits after the version."""
    under_way = seen.leases.union(one.time for one in seen.under_way) - seen.known.keys()
    begun = {time for time in under_way if time < seen.newest.archived}
    if begun:  # a late hand may have left a trace of one that the index names
        begun -= set(named())
    return frozenset(begun | seen.since)


def _stray(
    seen: SeenTimeline, strange: set[str], missing: Collection[str], now: float
) -> tuple[Action, ...]:
    """Data commits under way that are nobody's. Where more commits count than can be told, any may
    have been published, and kept versions may name its files."""
    held = _held(seen, strange).union(missing)
    if _lacks(seen.newest, held):
        return ()
    return tuple(one for one in _alone(seen, missing) if _is_dead(seen, now, one))


def _alone(seen: SeenTimeline, told: Collection[str]) -> Iterator[Action]:
    """Data commits under way that have no lease, and are of no version that is there; but for those
    that are `told`."""
    held = seen.leases.union(
        seen.known, told, seen.since, seen.steps, seen.done, seen.newest.compactions
    )
    for one in seen.under_way:
        if one.action in DATA_ACTIONS and one.time not in held:
            yield one.time, one.action


def _is_dead(seen: SeenTimeline, now: float, one: Action) -> bool:
    begun = _begun(*one) & seen.listed.keys()
    moved = max((seen.listed[path] for path in begun), default=now)
    seconds = seen.newest.options.lease_seconds
    return is_dead(moved, now, max(seconds * STRAY_LEASES, STRAY_SECONDS))


def _begun(instant: str, action: str) -> set[str]:
    """Paths of what stands on the timeline of an action before it is completed."""
    return {requested_path(instant, action), inflight_path(instant, action)}


def _untraced(seen: SeenTimeline, counted: set[str]) -> tuple[Action, ...]:
    """Commits of ours that count and are completed, and of which the beginning is not there."""
    ours = (counted & seen.done.keys()) - {*seen.newest.adopted}
    return seen.completed(
        [time for time in ours if not _begun(time, seen.done[time]) <= seen.listed.keys()]
    )


def _savepoints_off(seen: SeenTimeline) -> tuple[str, ...]:
    """Names of those that are pinned, and not on the timeline, nor on their way to it."""
    pinned = {name: pin.instant for name, pin in sorted(seen.newest.pins.items())}
    return tuple(
        name
        for name, instant in pinned.items()
        if completed_path(instant, "savepoint") not in seen.listed
        and (instant, "savepoint") not in seen.doing
    )


def _plans_off(seen: SeenTimeline, store: Store) -> dict[Action, str]:
    """Plans that wait, and are not on the timeline as they were put there: Hudi's readers would not
    know what the slices on top of them are."""
    asked = {one.instant for one in seen.newest.steps if one.kind == "request"}
    wrong = {
        (time, plan.action): plan_fault(store, time, plan)
        for time, plan in sorted(seen.manifest.compactions.items())
        if time in seen.newest.compactions and time not in asked
    }
    return {one: what for one, what in wrong.items() if what}
