"""Hudi's timeline beside our versions: which data commits count, and what is wrong with it.

    completed, of a version         counts
    completed, of no version        ours where what we staged for it is there: its version is lost.
                                    Else another writer's
    published, and not completed    counts, and is missing; also where its version is not kept any
                                    more, if the index names files of it and the sum of commits
                                    tells that one is missing
    completed, but withdrawn        a late hand's: counts for nobody but Hudi's readers
    under way, without a lease      nobody's, if it has not moved for long: our writers have a lease

What came after the version is left out of all of this, and so is what the steps of the newest
version are still to do. Of the commits that count the bodies are read: which data files they wrote,
which groups they replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from metatable.compaction.checks.commit_bodies import Action, bodies_of
from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.ways_back.undoing import completion
from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import action_of
from metatable.data.hoodie.timeline import (
    DATA_ACTIONS,
    Instant,
    Timeline,
    completed_path,
    inflight_path,
    requested_path,
)
from metatable.metadata.commits.known_commits import CommitSum, back_from
from metatable.metadata.commits.retention import seen_time
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.leases import is_dead, leased
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.made_once import made_once
from metatable.storage.store import Store

__all__ = ["TimelineState"]

STRAY_LEASES = 10
"""An action without a lease that has not moved for so many leases is under way no more,"""

STRAY_SECONDS = 600.0
"""nor for so long, however short they are: a late hand may have left it just now."""

TIMELINE_STEPS = ("complete", "withdraw")
"""What brings an action onto the timeline, or takes it off."""


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
        seen = _look(store, manifest, versions)
        strange = _strange(seen, versions, store)
        ours = {time for time in strange if _is_staged(store, time)}
        missing = _missing(seen, strange, named)
        strange, ours = strange - {again}, ours - {again}
        counted = ((seen.there - strange - seen.since) | missing.keys() | {manifest.instant}) - {""}
        stray = _stray(seen, missing, seen_time(store))
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
            bodies=bodies,
            not_yet=_not_yet(seen, named),
        )


@dataclass(frozen=True)
class _Seen:
    """What there is to judge by."""

    manifest: Manifest
    """The version that is looked at."""
    newest: Manifest
    listed: Mapping[str, float]
    """Files of the timeline, by path, and when they were written."""
    actions: Sequence[Instant]
    leases: frozenset[str]
    since: frozenset[str]
    """Instants that were published after the version."""
    known: Mapping[str, str]
    """The commits of versions that are kept: instants, and what they are on the timeline."""

    @made_once
    def withdrawn(self) -> frozenset[str]:
        return frozenset(self.newest.withdrawn)

    @made_once
    def doing(self) -> set[Action]:
        """What the steps of the newest version are still to put on the timeline, or to take off."""
        steps = self.newest.steps
        return {(one.instant, one.action) for one in steps if one.kind in TIMELINE_STEPS}

    @made_once
    def steps(self) -> set[str]:
        """Instants of the data commits among `doing`."""
        return {time for time, action in self.doing if action in DATA_ACTIONS}

    @made_once
    def done(self) -> dict[str, str]:
        """Completed data commits that are not archived: instants, and what they are."""
        done = {one.time: one.action for one in self.actions if one.changes_data}
        return {time: action for time, action in done.items() if time >= self.newest.archived}

    @property
    def there(self) -> set[str]:
        """Instants of those among `done` that were not withdrawn."""
        return self.done.keys() - self.withdrawn

    @property
    def under_way(self) -> list[Instant]:
        return [one for one in self.actions if one.state != "completed"]

    def completed(self, instants: Collection[str]) -> tuple[Action, ...]:
        """These completed data commits, by time."""
        return tuple((time, self.done[time]) for time in sorted(instants))


def _look(store: Store, manifest: Manifest, versions: Versions) -> _Seen:
    """In this order: what has no lease by then, and came with no version since, is nobody's."""
    listed = {one.path: one.modified for one in store.list(".hoodie")}
    actions = Timeline(store).load()
    leases = leased(store)
    newest = load_newest(store) or manifest
    since = {one.instant for one in back_from(store, newest, manifest.version)}
    made = [root for root in versions.roots.values() if root.instant]
    return _Seen(
        manifest=manifest,
        newest=newest,
        listed=listed,
        actions=actions,
        leases=leases,
        since=frozenset(since - {""}),
        known={root.instant: completion(root).action for root in made},
    )


def _strange(seen: _Seen, versions: Versions, store: Store) -> set[str]:
    """Completed instants that no version has published."""
    newest = seen.newest
    if CommitSum.decode(newest.commits) == CommitSum.of(seen.there):
        return set()
    strange = seen.there - seen.known.keys() - seen.since - {*newest.adopted}
    if newest.oldest > 1 or versions.lost:  # a version that is not there may have published it
        strange = {
            time
            for time in strange
            if time > newest.latest_instant
            or time in newest.compactions
            or not _is_staged(store, time)
        }
    return strange


def _is_staged(store: Store, instant: str) -> bool:
    """Whether the finished file of a data commit lies beside our versions."""
    return store.size(staged_path(instant)) is not None


def _missing(
    seen: _Seen, strange: set[str], named: Callable[[], Collection[str]]
) -> dict[str, str]:
    """Data commits that were published and are not completed: instants, and what they are."""
    published = seen.known.keys() - seen.withdrawn - seen.steps
    published -= {seen.manifest.instant, seen.newest.instant}
    missing = {
        time: seen.known[time]
        for time in published - seen.done.keys()
        if time >= seen.newest.archived
    }
    held = (seen.there - strange) | (seen.known.keys() - seen.withdrawn)
    if _lacks(seen.newest, held):
        missing |= _unkept(seen, named())
    return missing


def _lacks(newest: Manifest, instants: Collection[str]) -> bool:
    """Whether more commits are in the content of the newest version than these."""
    held = CommitSum.decode(newest.commits)
    return held is not None and held.count > sum(one >= newest.archived for one in instants)


def _unkept(seen: _Seen, named: Collection[str]) -> dict[str, str]:
    """Commits, by instant, of versions that are not kept any more, which nothing tells but the
    index, because it names files of them; and what they are on the timeline."""
    told = seen.done.keys() | seen.known.keys() | seen.withdrawn | seen.since | seen.steps
    begun = {one.time: one.action for one in seen.under_way}
    meant = action_of("", seen.newest.options.has_logs)
    unsure = (time for time in named if time not in told and time >= seen.newest.archived)
    return {time: begun.get(time, meant) for time in unsure}


def _not_yet(seen: _Seen, named: Callable[[], Collection[str]]) -> frozenset[str]:
    """Instants of writers under way that are older than the timeline, which was archived meanwhile,
    and of commits after the version."""
    under_way = seen.leases.union(one.time for one in seen.under_way) - seen.known.keys()
    begun = {time for time in under_way if time < seen.newest.archived}
    if begun:  # a late hand may have left a trace of one that the index names
        begun -= set(named())
    return frozenset(begun | seen.since)


def _stray(seen: _Seen, missing: Collection[str], now: float) -> tuple[Action, ...]:
    """Data commits under way that are nobody's."""
    held = seen.leases.union(
        seen.known, missing, seen.since, seen.steps, seen.done, seen.newest.compactions
    )
    return tuple(
        (one.time, one.action)
        for one in seen.under_way
        if one.action in DATA_ACTIONS and one.time not in held and _is_dead(seen, now, one)
    )


def _is_dead(seen: _Seen, now: float, one: Instant) -> bool:
    begun = _begun(one.time, one.action) & seen.listed.keys()
    moved = max((seen.listed[path] for path in begun), default=now)
    seconds = seen.newest.options.lease_seconds
    return is_dead(moved, now, max(seconds * STRAY_LEASES, STRAY_SECONDS))


def _begun(instant: str, action: str) -> set[str]:
    """Paths of what stands on the timeline of an action before it is completed."""
    return {requested_path(instant, action), inflight_path(instant, action)}


def _untraced(seen: _Seen, counted: set[str]) -> tuple[Action, ...]:
    """Commits of ours that count and are completed, and of which the beginning is not there."""
    ours = (counted & seen.done.keys()) - {*seen.newest.adopted}
    return seen.completed(
        [time for time in ours if not _begun(time, seen.done[time]) <= seen.listed.keys()]
    )


def _savepoints_off(seen: _Seen) -> tuple[str, ...]:
    """Names of those that are pinned, and not on the timeline, nor on their way to it."""
    pinned = {name: pin.instant for name, pin in sorted(seen.newest.pins.items())}
    return tuple(
        name
        for name, instant in pinned.items()
        if completed_path(instant, "savepoint") not in seen.listed
        and (instant, "savepoint") not in seen.doing
    )
