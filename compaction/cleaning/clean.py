"""Clean: delete what no kept version needs, and archive Hudi's timeline.

    1  a version is published that raises the border of what is kept, withdraws the instants of
       orphans and fences dead services; from then on nobody goes back behind it
    2  what is garbage then is deleted (`garbage.py` proves it; `outside_cells.py`, of cells)
    3  a version is published that archives the oldest commits of Hudi's timeline

Killed anywhere the table is right: what was not deleted is garbage still, for the next one. The
timeline comes last, because an orphan that is older than its first commit would be taken for live.

A version is kept if one of the newest `versions` that a data commit has made is older (those of
services and of commits that were undone do not count), or if it was the newest within the last
`hours` by the store's clock: whoever reads it now may have begun then.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, starmap, takewhile
from typing import Any, ClassVar

from metatable.compaction.cleaning.garbage import FileKind, Left, Suspect, left, suspects
from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.outside_cells import drop_cells
from metatable.compaction.cleaning.signs import Signs
from metatable.compaction.given_numbers import is_number
from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.timeline import CLUSTERING, completed_path
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import back_from
from metatable.metadata.commits.lost_savepoints import lost_savepoints
from metatable.metadata.commits.retention import (
    Archive,
    Fence,
    NoneBelow,
    RaiseFloor,
    archivable,
    archived_by,
    archiving,
    first_part,
    seen_time,
)
from metatable.metadata.commits.steps import settle
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import Withdraw
from metatable.metadata.manifests.leases import service_path, store_time
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import list_roots, load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import ConflictError, StaleError, UsageError
from metatable.storage.portions import in_order_far, together_far
from metatable.storage.store import Store

__all__ = ["Clean"]

_log = logging.getLogger("metatable.compaction")

ARCHIVING_TRIES = 3
"""Lost races, after which a clean archives no further: others are always first."""


@dataclass(frozen=True, slots=True)
class CleanPlan(Plan):
    """What would go: below `oldest`, what is left of garbage, and the timeline below `archived`."""

    oldest: int
    left: Left
    signs: Signs
    archived: str
    now: float

    @property
    def summary(self) -> str:
        kinds = Counter(one.kind for one in self.left.garbage)
        told = [f"{kinds[kind]:,} {kind}" for kind in FileKind if kinds[kind]]
        text = ", ".join(told) if told else "no files"
        text += f"; kept from version {self.oldest}"
        if self.archived:
            text += f", Hudi's timeline from {self.archived}"
        if self.left.unknown:
            text += f"; {len(self.left.unknown):,} data files that no version names were left alone"
        return text

    @property
    def facts(self) -> Mapping[str, Any]:
        garbage = self.left.garbage
        return {
            "files_deleted": len(garbage),
            "bytes_deleted": sum(one.size_bytes for one in garbage),
        }

    def deletes(self, newest: Manifest) -> bool:
        """Whether there is more to do than to archive."""
        return bool(self.left.garbage or self.signs.dead or self.oldest > max(newest.oldest, 1))


@dataclass(frozen=True, slots=True)
class Clean(Service[CleanPlan]):
    """Keep so many versions of data commits, and those of so many hours. `dry`: the plan will not
    be carried out, and may not put the store's clock."""

    versions: int = 10
    hours: float = 24.0
    dry: bool = False
    name: ClassVar[str] = "clean"

    def __post_init__(self) -> None:
        if not isinstance(self.versions, int) or not is_number(self.versions, 1):
            raise UsageError("versions to keep", expected="1 or more", found=self.versions)
        if not is_number(self.hours, 0) or self.hours == math.inf:
            raise UsageError("hours to keep", expected="0 or more, not infinite", found=self.hours)

    def plan(self, snapshot: Snapshot) -> CleanPlan | NothingDue:
        store, newest = snapshot.store, snapshot.manifest
        now = seen_time(store) if self.dry else store_time(store)
        kept = Kept.readable(store, newest, self._oldest(store, newest, now))
        found = suspects(store, kept, now)
        signs = Signs.of(store, newest.options.lease_seconds, now)
        newest = load_newest(store) or newest
        if lost := lost_savepoints(store, newest, signs.timeline):
            return NothingDue(f"savepoint {lost[0]} has lost its root: see `verify`, nothing goes")
        told = left(kept.on(newest), signs, found)
        plan = CleanPlan(kept.oldest, told, signs, _border(store, newest, signs, told.ends), now)
        if plan.archived or plan.deletes(newest):
            return plan
        return NothingDue("nothing to clean")

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: CleanPlan, owner: Owner
    ) -> Outcome:
        if not plan.deletes(snapshot.manifest):
            change = _archiving(plan.archived, plan.signs)
            return Outcome(change, after=lambda store, newest: _gone_on(store, newest, plan))
        change = Change(
            operation=self.name,
            updates=(
                RaiseFloor(plan.oldest),
                Withdraw(tuple(sorted(plan.left.orphans))),
                Fence(tuple(sorted(plan.signs.dead))),
            ),
            summary={"files": len(plan.left.garbage), "oldest_version": plan.oldest},
        )
        return Outcome(change, after=lambda store, newest: _finished(store, newest, plan))

    def _oldest(self, store: Store, newest: Manifest, now: float) -> int:
        """The first version to keep."""
        first = max(newest.oldest, 1)
        made = _commits_of(store, newest)
        border = next(islice(made, min(self.versions, newest.version) - 1, None), first)
        late = now - self.hours * 3600
        ended = {version - 1 for version, one in list_roots(store).items() if one.modified <= late}
        expired = ended.intersection(range(first, border))
        return max(expired, default=first - 1) + 1


def _commits_of(store: Store, newest: Manifest) -> Iterator[int]:
    """The versions of the data commits in its content, newest first. Those that were undone are
    passed over as the versions tell: an instant that was archived is withdrawn without being told.
    Raises CorruptError where a version that is kept is lost."""
    last = newest.last_commit
    for one in back_from(store, newest):
        if last is not None and one.version < last[0]:
            last = one.last_commit
        if last is None:
            return
        if one.version == last[0]:
            yield one.version


def _finished(store: Store, newest: Manifest, plan: CleanPlan) -> tuple[int, Mapping[str, Any]]:
    """Delete and archive. Returns the table's version, and what was deleted."""
    signs = Signs.of(store, newest.options.lease_seconds, plan.now)
    newest = load_newest(store) or newest  # after the signs
    settle(store, newest)
    kept = Kept.readable(store, newest, max(newest.oldest, 1))
    drop_cells(kept)  # first: where that fails, there is garbage left for the next clean
    told = left(kept, signs, plan.left.garbage)
    sure = [one for one in told.garbage if one.owner not in told.orphans]
    for some in _by_kind(sure):
        store.delete_all(some)
    # the oldest first: whether a put was void is told by the root before it (`commit.py`)
    store.delete(sorted(one.path for one in sure if one.kind is FileKind.VERSIONS))
    store.delete(service_path(name) for name in newest.fenced if name in signs.services)
    done = replace(plan, left=Left(tuple(sure))).facts
    _log.info("clean: %(files_deleted)d files deleted, %(bytes_deleted)d bytes", done)
    return _archived(store, newest.version, plan.left.ends), done


def _by_kind(garbage: Sequence[Suspect]) -> Iterator[list[str]]:
    """Paths to delete, in the order of their kinds; without versions, which go last, one by one."""
    for kind in FileKind:
        if kind is not FileKind.VERSIONS:
            yield sorted(one.path for one in garbage if one.kind is kind)


def _gone_on(store: Store, newest: Manifest, plan: CleanPlan) -> tuple[int, Mapping[str, Any]]:
    return _archived(store, newest.version, plan.left.ends), {}


def _archived(store: Store, version: int, ends: Collection[str]) -> int:
    """Publish borders of Hudi's timeline, as long as one can be drawn; the table's version then.
    `ends`: instants that they do not pass.

    Where others are always first it is left to the next one, or to upkeep.
    """
    lost = 0
    while lost < ARCHIVING_TRIES:
        try:
            with Transaction.begin(store) as transaction:
                newest = transaction.base
                signs = Signs.of(store, newest.options.lease_seconds, 0.0)
                border = _border(store, newest, signs, ends)
                if not border:
                    return max(version, newest.version)
                transaction.serve("clean")
                version = transaction.publish(_archiving(border, signs)).version
        except (ConflictError, StaleError):
            lost += 1
    return version


def _archiving(most: str, signs: Signs) -> Change:
    """The first part of what can be archived, up to the border `most`."""
    border = first_part(signs.timeline, most)
    return Change(
        operation="clean",
        requires=(NoneBelow(border),),
        updates=(Archive(border, archived_by(signs.timeline, border)),),
        steps=(archiving(border),),
    )


def _border(store: Store, newest: Manifest, signs: Signs, ends: Collection[str]) -> str:
    """Where Hudi's timeline may begin, once what is garbage now is gone. Withdrawn instants may be
    passed, for what they left is among that, but for `ends`; and replacecommits of whose groups no
    file is left, nor is one told by a commit that stays: a resize that waited is older than commits
    to them.

    Neither while somebody carries out what was scheduled: whatever has become of it meanwhile, he
    may still write a file of its instant, which would come to light behind the border."""
    keep, held = newest.options.timeline_commits, signs.writers.union(newest.held, ends)
    draw = partial(archivable, signs.timeline, keep, overwrites=signs.overwrites)
    if signs.carry_out(newest.fenced):
        return draw(held.union(newest.withdrawn))
    most = draw(held, signs.replaced)
    settled = _settled(store, signs.replaced, most)
    border = draw(held, settled)
    waited = {one.time for one in signs.timeline if one.action == CLUSTERING and one.time < border}
    passed = [signs.replaced[one] for one in settled if one in waited]
    if not passed or not _told_since(store, signs, border) & frozenset().union(*passed):
        return border
    left = [one for one in settled if one not in waited]
    return draw(held, left)


def _told_since(store: Store, signs: Signs, border: str) -> frozenset[tuple[str, str]]:
    """(partition path, file id) of the groups to which commits from the border on have written."""
    later = (one for one in signs.timeline if one.changes_data and one.time >= border)
    paths = [completed_path(one.time, one.action) for one in later]
    told = zip(paths, in_order_far(store, store.get, paths), strict=True)
    bodies = (CommitMetadata.decode(body, path) for path, body in told if body is not None)
    return frozenset((stat.partition_path, stat.file_id) for body in bodies for stat in body.stats)


def _settled(
    store: Store, replaced: Mapping[str, Collection[tuple[str, str]]], border: str
) -> list[str]:
    """Replacecommits before this border of whose groups no file is left, the oldest first, up to
    one of which some is: the border does not pass that. Each folder is listed once, far away with
    those that are asked next."""
    near = [one for one in sorted(replaced) if one < border]
    ids: dict[str, set[str]] = {}
    for folder, group in chain.from_iterable(replaced[one] for one in near):
        ids.setdefault(folder, set()).add(group)  # folders in the order in which they are asked

    def groups_in(folder: str) -> set[str]:  # a log's name begins with a dot
        names = (one.name.removeprefix(".") for one in store.list(folder))
        return ids[folder].intersection(name.partition("_")[0] for name in names)

    listed = zip(ids, together_far(store, groups_in, ids, lambda _: 0), strict=True)
    left: dict[str, set[str]] = {}

    def is_left(folder: str, group: str) -> bool:
        while folder not in left:
            left.update([next(listed)])
        return group in left[folder]

    return list(takewhile(lambda one: not any(starmap(is_left, replaced[one])), near))
