"""Change: what a writer or service wants to publish. It says what must still be true of the newest
version, and what becomes true in the next one.

A change was made on a base version. If that is still the newest there is nothing to check;
otherwise each requirement is checked on the newest. Updates are then applied to a draft of the
next version, in order: what they do not touch is as in the newest. Both are small frozen values,
so that whatever else is needed (a ring of buckets, a pin) is one more class and nothing else:
`requirements.py`, `updates.py` and `page_updates.py` have those that several need.

Some requirements go without saying, for any change (`commit.py`): no rollback since its base,
which is still kept; its instant not withdrawn, and not older than what was archived; its
service not fenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from metatable.data.columns.schema_text import parsed_schema
from metatable.data.config.options import Options
from metatable.data.hoodie.timeline import later_of
from metatable.metadata.commits.known_commits import sum_of
from metatable.metadata.manifests.manifest import (
    WRITER_FORMAT,
    Manifest,
    Pin,
    Planned,
    Step,
    least_reader,
)
from metatable.metadata.manifests.pages import HFileRef, PageRef, made_pages
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import clock
from metatable.storage.errors import ConflictError
from metatable.storage.made_once import made_once
from metatable.storage.store import Store

__all__ = ["Change", "Draft", "Race", "Requirement", "Update"]


@dataclass(frozen=True)
class Race:
    """Somebody else was first: the version that a change was made on, and the newest."""

    store: Store
    base: Manifest
    newest: Manifest

    @made_once
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return Snapshot(self.store, self.newest)

    def lost(self, what: str, **facts: object) -> ConflictError:
        """The error that the race is lost, with both versions in its message."""
        return ConflictError(what, **facts, base=self.base.version, newest=self.newest.version)


class Requirement(Protocol):
    """What must be true of the newest version."""

    def check(self, race: Race) -> None:
        """Raises ConflictError where the newest version does not allow the change any more."""
        ...


class Update(Protocol):
    """What becomes true in the next version."""

    def apply(self, draft: Draft) -> None:
        """Alter the next version. Raises ConflictError where it has nothing to alter."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the newest version, and what must still be true of it."""

    operation: str
    instant: str = ""
    """The instant on Hudi's timeline, for commits and for services that write data files; empty
    otherwise."""
    requires: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()
    steps: tuple[Step, ...] = ()
    """What must follow the put; whoever comes next does it until it is done."""
    summary: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What has to be put before the version is, by path: index files and commits that are small,
    so that they and the pages go together."""
    is_undone_alone: bool = True
    """Whether a rollback may undo it as the last commit; else it is undone together with others."""


@dataclass(slots=True)
class Draft:
    """The next version while updates are applied to it."""

    store: Store
    newest: Manifest
    content: Manifest
    """The version whose content it goes on from: the newest, or an older one where an update goes
    back."""
    pages: dict[str, tuple[PageRef, ...]]
    withdrawn: tuple[str, ...]
    restored_at: int
    prefix: str
    """What the names of new pages begin with: the prefix of their owner."""
    oldest: int
    archived: str
    fenced: Mapping[str, int]
    pins: Mapping[str, Pin]
    compactions: Mapping[str, Planned]
    options: Options
    schema: str
    dropped: frozenset[str] = frozenset()
    """Data commits of the newest version that leave the content, or Hudi's timeline."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What has to be put before this version is: its new pages."""

    @classmethod
    def of(cls, store: Store, newest: Manifest, prefix: str) -> Draft:
        """The version after `newest`, as yet with the same content; `prefix` is the owner's."""
        return cls(
            store=store,
            newest=newest,
            content=newest,
            pages=dict(newest.pages),
            withdrawn=newest.withdrawn,
            restored_at=newest.restored_at,
            prefix=prefix,
            oldest=newest.oldest,
            archived=newest.archived,
            fenced=newest.fenced,
            pins=newest.pins,
            compactions=newest.compactions,
            options=newest.options,
            schema=newest.schema,
        )

    @property
    def version(self) -> int:
        return self.newest.version + 1

    def list_files(self, partition: str, kept: Sequence[PageRef], refs: Sequence[HFileRef]) -> None:
        """These pages are the partition's from now on, and behind them new ones with `refs`."""
        self.pages[partition] = tuple(kept)
        others = chain.from_iterable(self.pages.values())
        pages, files = made_pages(partition, refs, self.prefix, others)
        self.pages[partition] += pages
        self.files |= files

    def finished(self, change: Change) -> Manifest:
        """The next version, ready to be put."""
        newest, content, instant = self.newest, self.content, change.instant
        told = (*self.withdrawn, *(step.instant for step in change.steps))
        is_last = instant and change.is_undone_alone
        schema = parsed_schema(self.schema, newest.path)
        waiting = [*self.compactions.values()]
        reader = least_reader(self.options, schema.misleads, waiting, self.pages)
        return Manifest(
            version=self.version,
            operation=change.operation,
            options=self.options,
            schema=schema.encode(),  # with ids
            instant=instant,
            time_ms=clock.now_ms(),
            parent=newest.version,
            latest_instant=later_of(max(newest.latest_instant, instant), told),
            pages=self.pages,
            withdrawn=self.withdrawn,
            restored_at=self.restored_at,
            last_commit=(self.version, instant) if is_last else content.last_commit,
            steps=change.steps,
            summary=change.summary,
            note=change.note,
            format={
                **newest.format,
                "reader": max(newest.format.get("reader", 0), reader),
                "writer": max(newest.format.get("writer", 0), WRITER_FORMAT),
            },
            commits=sum_of(self.store, newest, instant, self.dropped),
            oldest=self.oldest,
            archived=self.archived,
            fenced=self.fenced,
            pins=self.pins,
            compactions=self.compactions,
            adopted=tuple(one for one in newest.adopted if one >= self.archived)
            or newest.adopted[-1:],
            unknown=newest.unknown,
        )
