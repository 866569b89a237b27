"""Retention: which versions are kept, and how far back Hudi's timeline goes.

Both are borders in the root, and only ever rise:

    oldest      the first version that is kept, but for those of savepoints. What no kept version
                names may be deleted, by whoever finds it, once the border is published: nobody can
                go back behind it, and a change that was made on an older version is refused
    archived    the first instant of Hudi's timeline. What is older was taken off it

Hudi takes a data file for committed whose instant is older than the first completed one on the
timeline. So only a prefix is archived, of completed actions alone, never past one that is under
way; and an instant below the border is never published any more: as the first on the timeline it
would hide the rows of all that were archived after it. History behind the border is dropped, no
`archived/` is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from metatable.data.hoodie.timeline import CLUSTERING, REPLACING, Instant
from metatable.metadata.commits.change import Draft, Race
from metatable.metadata.commits.known_commits import back_from
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import CLOCK
from metatable.metadata.manifests.manifest import Pin, Step
from metatable.metadata.manifests.versions import list_roots
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store

__all__ = [
    "Archive",
    "Fence",
    "NoneBelow",
    "PinVersion",
    "RaiseFloor",
    "Unpin",
    "archivable",
    "archived_by",
    "archiving",
    "first_part",
    "seen_time",
]


MOST_AT_ONCE = 256
"""Data commits that one version takes off the timeline: each is waited for, and no writer publishes
meanwhile."""


@dataclass(frozen=True, slots=True)
class RaiseFloor:
    """Versions below `oldest` are not kept any more."""

    oldest: int

    def apply(self, draft: Draft) -> None:
        draft.oldest = max(draft.oldest, self.oldest)
        draft.fenced = {name: at for name, at in draft.fenced.items() if at >= draft.oldest}


@dataclass(frozen=True, slots=True)
class PinVersion:
    """A savepoint of this name."""

    name: str
    pin: Pin

    def apply(self, draft: Draft) -> None:
        held = draft.pins.get(self.name)
        if held is not None or not draft.newest.keeps(self.pin.version):
            raise ConflictError(
                "another savepoint of this name, or a clean, was first: retry", name=self.name
            )
        if self.pin.instant < draft.archived:
            raise ConflictError("Hudi's timeline begins after the commit: retry", name=self.name)
        draft.pins = {**draft.pins, self.name: self.pin}


@dataclass(frozen=True, slots=True)
class Unpin:
    """The savepoint of this name is kept no longer."""

    name: str

    def apply(self, draft: Draft) -> None:
        draft.pins = {name: pin for name, pin in draft.pins.items() if name != self.name}


@dataclass(frozen=True, slots=True)
class Fence:
    """These services (names of owners) never publish any more."""

    services: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        draft.fenced = {**draft.fenced, **dict.fromkeys(self.services, draft.version)}


@dataclass(frozen=True, slots=True)
class NoneBelow:
    """Nobody has published an instant below the border meanwhile."""

    archived: str

    def check(self, race: Race) -> None:
        for instant in race.newest.compactions:
            if instant < self.archived:
                raise race.lost("something was scheduled meanwhile: retry", instant=instant)
        for one in back_from(race.store, race.newest, race.base.version):
            if one.instant and one.instant < self.archived:
                raise race.lost("a slow writer was first: retry", instant=one.instant)


@dataclass(frozen=True, slots=True)
class Archive:
    """Hudi's timeline begins at `archived`; the data commits `instants` are taken off it.

    Withdrawn instants below the border need not be told any more: it refuses them, too. Those of
    `instants` below the border of before were taken off already, and late hands have put them back.
    """

    archived: str
    instants: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        if draft.archived >= self.archived:
            raise ConflictError("Hudi's timeline was archived meanwhile", found=draft.archived)
        if any(pin.instant < self.archived for pin in draft.pins.values()):
            raise ConflictError("a savepoint came meanwhile: retry", border=self.archived)
        draft.dropped |= {one for one in self.instants if one >= draft.archived}
        draft.archived = self.archived
        draft.withdrawn = tuple(one for one in draft.withdrawn if one >= self.archived)


def seen_time(store: Store) -> float:
    """The latest time that the store's clock has shown, epoch seconds, as files tell it: for those
    who only look, and put nothing to ask it."""
    clocks = [one.modified for one in store.list(HOME) if one.path == CLOCK]
    return max([*clocks, *(one.modified for one in list_roots(store).values())])


def archiving(archived: str) -> Step:
    """The step that takes off the timeline what is older."""
    return Step("archive", archived)


def archivable(
    timeline: Sequence[Instant],
    keep: int,
    ends: Collection[str] = (),
    settled: Collection[str] = (),
    overwrites: Collection[str] = (),
) -> str:
    """The border that leaves `keep` data commits on the timeline, "" where none can be drawn.

    `ends`: instants that it must not pass. Nor does it pass actions that are under way, savepoints,
    and replacecommits other than those `settled`, of which no replaced file is left: without the
    replacecommit it would be taken for live. The last commit that tells Hudi's readers the columns
    stays: what a replacecommit is its name does not tell, so of them it is one of `overwrites`.
    """
    done = [one.time for one in timeline if one.changes_data]
    if not keep or len(done) <= keep:
        return ""
    held = [one.time for one in timeline if _holds(one, settled)]
    tell = [one.time for one in timeline if _tells_columns(one) or one.time in overwrites]
    most = min([done[-keep], *tell[-1:], *held, *ends])
    border = max((one for one in done if one <= most), default="")
    return "" if border == done[0] else border


def first_part(timeline: Iterable[Instant], border: str) -> str:
    """The border up to which one version archives, of one that can be drawn. Where a resize that
    waited would leave the timeline all goes at once: commits far behind it, which go with it, may
    tell the groups that it replaced."""
    passed = [one for one in timeline if one.changes_data and one.time < border]
    first = passed[:MOST_AT_ONCE]
    if first == passed or any(one.action == CLUSTERING for one in first):
        return border
    return passed[MOST_AT_ONCE].time


def archived_by(timeline: Iterable[Instant], archived: str) -> tuple[str, ...]:
    """The data commits that a border takes off the timeline."""
    return tuple(one.time for one in timeline if one.changes_data and one.time < archived)


def _tells_columns(one: Instant) -> bool:
    """Whether Hudi's readers surely take the table's columns from it, which they do from no
    commit of a service."""
    return one.changes_data and one.action in ("commit", "deltacommit")


def _holds(one: Instant, settled: Collection[str]) -> bool:
    if one.state == "completed" and one.action in REPLACING:
        return one.time not in settled
    return one.state != "completed" or one.action == "savepoint"  # of a commit's instant
