"""Signs of life: who may still publish a file, by leases, services and Hudi's timeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import COMPACT_LOGS, RESIZE, SERVING
from metatable.data.hoodie.savepoint_metadata import is_of_metatable, saved_files
from metatable.data.hoodie.timeline import REPLACING, Instant, Timeline, completed_path
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.leases import SERVICES, is_dead, leased
from metatable.storage.made_once import made_once
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["Signs"]


@dataclass(frozen=True)
class Signs:
    """Who may still publish something, and what is committed, at one moment."""

    writers: frozenset[str]
    """Instants that have a lease."""
    services: frozenset[str]
    """Names of services that have a lease, dead ones included."""
    dead: frozenset[str]
    """Services that have not renewed theirs."""
    timeline: tuple[Instant, ...]
    replaced: Mapping[str, frozenset[tuple[str, str]]] = field(repr=False)
    """(partition path, file id) of the groups that each completed replacecommit has replaced."""
    saved: frozenset[str] = field(default=frozenset(), repr=False)
    """Data files that savepoints keep which Hudi's own tools have made."""
    overwrites: frozenset[str] = frozenset()
    """Instants of completed replacecommits that are no service's."""

    @classmethod
    def of(cls, store: Store, lease_seconds: float, now: float) -> Signs:
        """Look at them all. `now`: by the store's clock, epoch seconds."""
        writers = leased(store)
        services = store.list(SERVICES)
        timeline = tuple(Timeline(store).load())
        replacing = dict(_replacing(store, timeline))
        return cls(
            writers,
            frozenset(one.name for one in services),
            frozenset(one.name for one in services if is_dead(one.modified, now, lease_seconds)),
            timeline,
            {time: replaced for time, (_, replaced) in replacing.items()},
            frozenset(_saved(store, timeline)),
            frozenset(time for time, (word, _) in replacing.items() if word not in SERVING),
        )

    @made_once
    def pending(self) -> frozenset[str]:
        """Instants of which an action is under way on the timeline, whoever's it is."""
        return frozenset(one.time for one in self.timeline if one.state != "completed")

    @made_once
    def staged(self) -> frozenset[str]:
        """Where what is on the timeline lay ready for it."""
        return frozenset(staged_path(one.time, one.action) for one in self.timeline)

    @made_once
    def done(self) -> frozenset[str]:
        """Instants of the data commits that are complete on the timeline."""
        return frozenset(one.time for one in self.timeline if one.changes_data)

    def lives(self, owner: str, fenced: Collection[str]) -> bool:
        """Whether whoever wrote a file may still publish it."""
        instant = owner.partition("-")[0]
        if instant.isdigit():
            return instant in self.writers or instant in self.pending
        return owner in self.services and owner not in fenced

    def carry_out(self, fenced: Collection[str]) -> bool:
        """Whether somebody who lives carries out a compaction of logs, or a resize, that was
        scheduled: he writes files of its instant, and has no lease of that."""
        names = {one.partition("-")[0] for one in self.services - self.dead.union(fenced)}
        return bool(names & {COMPACT_LOGS, RESIZE})


def _replacing(
    store: Store, timeline: Iterable[Instant]
) -> Iterator[tuple[str, tuple[str, frozenset[tuple[str, str]]]]]:
    """Each completed replacecommit: Hudi's word for it, and (partition path, file id) of what it
    has replaced."""
    for instant, path, body in _completed(store, timeline, REPLACING):
        told = CommitMetadata.decode(body, path)
        groups = ((name, group) for name, ids in (told.replaced or {}).items() for group in ids)
        yield instant, (told.operation, frozenset(groups))


def _saved(store: Store, timeline: Iterable[Instant]) -> Iterator[str]:
    """Paths of the data files that savepoints of Hudi's own tools keep."""
    for _, path, body in _completed(store, timeline, ("savepoint",)):
        if not is_of_metatable(body):  # ours have pins
            yield from saved_files(body, path)


def _completed(
    store: Store, timeline: Iterable[Instant], actions: Collection[str]
) -> Iterator[tuple[str, str, bytes]]:
    """(instant, path, what it says) of the completed ones among these actions."""
    some = [one for one in timeline if one.action in actions and one.state == "completed"]
    paths = [completed_path(one.time, one.action) for one in some]
    for one, path, body in zip(some, paths, in_order_far(store, store.get, paths), strict=True):
        if body is not None:  # else it was undone, or archived, since it was listed
            yield one.time, path, body
