"""Seen timeline: what stands on Hudi's timeline, who lives, and what kept versions tell.

It is read in an order by which what is nobody's can be told (`SeenTimeline.of`); what is made of it
`timeline_check.py` says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from metatable.compaction.checks.commit_bodies import Action
from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.ways_back.undoing import completion
from metatable.data.hoodie.timeline import DATA_ACTIONS, Instant, Timeline
from metatable.metadata.commits.known_commits import back_from
from metatable.metadata.manifests.leases import leased
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.made_once import made_once
from metatable.storage.store import Store

__all__ = ["SeenTimeline"]

TIMELINE_STEPS = ("complete", "withdraw")
"""What brings an action onto the timeline, or takes it off."""


@dataclass(frozen=True)
class SeenTimeline:
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

    @classmethod
    def of(cls, store: Store, manifest: Manifest, versions: Versions) -> SeenTimeline:
        """In this order: what has no lease by then, and came with no version since, is nobody's."""
        listed = {one.path: one.modified for one in store.list(".hoodie")}
        actions = Timeline(store).load()
        leases = leased(store)
        newest = load_newest(store) or manifest
        since = {one.instant for one in back_from(store, newest, manifest.version)}
        made = [root for root in versions.roots.values() if root.instant]
        return cls(
            manifest=manifest,
            newest=newest,
            listed=listed,
            actions=actions,
            leases=leases,
            since=frozenset(since - {""}),
            known={root.instant: completion(root).action for root in made},
        )
