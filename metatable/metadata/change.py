"""Change: what must still be true, and what becomes true.

A change was made on a base version. If that is still the newest there is nothing to check;
otherwise each requirement is asked of the newest. Updates are then applied to a draft of the
next version, in order: what they do not touch is as in the newest. Both are small frozen values,
so that what somebody else needs (a ring of buckets, a pin) is one more class and nothing else.

Some requirements go without saying, for any change (`commit.py`): no rollback since its base,
which is still kept; its instant not withdrawn, and not older than what was archived; its
service not fenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Protocol

from metatable.data.options import Options
from metatable.data.schema_text import TableSchema, parsed_schema
from metatable.data.slices import FileSlice
from metatable.metadata.known_commits import sum_of
from metatable.metadata.manifest import WRITER_FORMAT, Manifest, Pin, Planned, Step, least_reader
from metatable.metadata.pages import (
    PAGE_REFS,
    HFileRef,
    PageRef,
    Part,
    all_refs,
    made_pages,
    read_page,
)
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.versions import load_version
from metatable.storage import clock
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store

__all__ = [
    "AddFiles",
    "Change",
    "ChangeOptions",
    "Draft",
    "FoldPages",
    "Forget",
    "GoBack",
    "GroupsAbsent",
    "NewestIsBase",
    "NoneLater",
    "OptionsAreBase",
    "PutOptions",
    "Race",
    "Requirement",
    "RingsAreBase",
    "RowsUnchanged",
    "SchemaIsBase",
    "SetSchema",
    "SlicesCurrent",
    "Swap",
    "SwapFiles",
    "Update",
    "Withdraw",
]


@dataclass(frozen=True)
class Race:
    """Somebody else was first: the version that a change was made on, and the newest."""

    store: Store
    base: Manifest
    newest: Manifest

    @cached_property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return Snapshot(self.store, self.newest)

    def lost(self, what: str, **facts: object) -> ConflictError:
        """That the race is lost, with both versions in the message."""
        return ConflictError(what, **facts, base=self.base.version, newest=self.newest.version)


class Requirement(Protocol):
    def check(self, race: Race) -> None:
        """Raises ConflictError where the newest version does not allow the change any more."""
        ...


class Update(Protocol):
    def apply(self, draft: Draft) -> None:
        """Alter the next version. Raises ConflictError where it has nothing to alter."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the newest version. `instant`: of a data commit; services have none."""

    operation: str
    instant: str = ""
    requires: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()
    steps: tuple[Step, ...] = ()
    """What must follow the put, done again by whoever comes next until it is done."""
    summary: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What has to be put before the version is, by path: index files and commits that are small,
    so that they and the pages go together."""
    is_undone_alone: bool = True
    """Whether its commit is one that a rollback undoes; else it goes with others."""


# Requirements


@dataclass(frozen=True, slots=True)
class SlicesCurrent:
    """The slices that are replaced are still those of their file groups."""

    slices: tuple[FileSlice, ...]

    def check(self, race: Race) -> None:
        paths = [one.partition_path for one in self.slices]
        current = race.snapshot.current(paths, [one.file_id for one in self.slices])
        for ours, theirs in zip(self.slices, current, strict=True):
            if theirs is None or theirs.names != ours.names:
                raise race.lost(
                    "another commit rewrote the same file group: retry",
                    expected=ours.path,
                    found=theirs and theirs.path,
                )


@dataclass(frozen=True, slots=True)
class GroupsAbsent:
    """Nobody else has opened these file groups: (partition path, file id)."""

    groups: tuple[tuple[str, str], ...]

    def check(self, race: Race) -> None:
        paths = [path for path, _ in self.groups]
        for found in race.snapshot.current(paths, [name for _, name in self.groups]):
            if found is not None:
                raise race.lost(
                    "another commit opened the same file group: retry", found=found.path
                )


@dataclass(frozen=True, slots=True)
class SchemaIsBase:
    """Nobody has changed the columns that files were written for."""

    def check(self, race: Race) -> None:
        ours, theirs = (
            TableSchema.decode(one.schema, one.path) for one in (race.base, race.newest)
        )
        if ours != theirs:
            raise race.lost("another commit changed the columns of the table: retry")


@dataclass(frozen=True, slots=True)
class RingsAreBase:
    """Nobody has resized the buckets of these table partitions, by whose rings rows were placed."""

    paths: tuple[str, ...]

    def check(self, race: Race) -> None:
        ours = Snapshot(race.store, race.base).rings(self.paths)
        theirs = race.snapshot.rings(self.paths)
        resized = [
            path for path, *pair in zip(self.paths, ours, theirs, strict=True) if pair[0] != pair[1]
        ]
        if resized:
            raise race.lost(
                "another commit resized the buckets of a partition: retry", found=resized[:5]
            )


@dataclass(frozen=True, slots=True)
class NoneLater:
    """No other commit has a later instant than this one, which changes the columns: Hudi's readers
    take those of the latest."""

    instant: str

    def check(self, race: Race) -> None:
        if race.newest.latest_instant >= self.instant:
            raise race.lost(
                "another commit with a later instant was first: retry",
                expected=f"less than {self.instant}",
                found=race.newest.latest_instant,
            )


@dataclass(frozen=True, slots=True)
class NewestIsBase:
    """Valid on the very version it was made on: a rollback, a fence."""

    def check(self, race: Race) -> None:
        raise race.lost("another commit was first: retry")


@dataclass(frozen=True, slots=True)
class RowsUnchanged:
    """Nobody has committed rows, or changed the index; HFiles may have been merged."""

    def check(self, race: Race) -> None:
        base, newest = race.base, race.newest
        if newest.data != base.data or newest.options != base.options:
            raise race.lost("rows were committed meanwhile: retry")


@dataclass(frozen=True, slots=True)
class OptionsAreBase:
    """Nobody has set other options, nor changed the index."""

    def check(self, race: Race) -> None:
        if race.newest.options != race.base.options:
            raise race.lost("other options were set meanwhile: retry")


# Updates


@dataclass(slots=True)
class Draft:
    """The next version while updates are applied to it."""

    store: Store
    newest: Manifest
    content: Manifest
    """The version whose content it goes on from: the newest, unless an update goes back."""
    pages: dict[str, tuple[PageRef, ...]]
    withdrawn: tuple[str, ...]
    restored_at: int
    prefix: str
    """What the names of new pages begin with: their owner's."""
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
        return cls(
            store,
            newest,
            newest,
            dict(newest.pages),
            newest.withdrawn,
            newest.restored_at,
            prefix,
            newest.oldest,
            newest.archived,
            newest.fenced,
            newest.pins,
            newest.compactions,
            newest.options,
            newest.schema,
        )

    @property
    def version(self) -> int:
        return self.newest.version + 1

    def added_pages(self, partition: str, refs: Sequence[HFileRef]) -> tuple[PageRef, ...]:
        """New pages with these references."""
        pages, files = made_pages(partition, refs, self.prefix)
        self.files |= files
        return pages

    def finished(self, change: Change) -> Manifest:
        """The next version, ready to be put."""
        newest, content, instant = self.newest, self.content, change.instant
        used = (instant, *self.withdrawn, *(step.instant for step in change.steps))
        is_last = instant and change.is_undone_alone
        schema = parsed_schema(self.schema, newest.path)
        reader = least_reader(self.options, schema.misleads, [*self.compactions.values()])
        return Manifest(
            version=self.version,
            operation=change.operation,
            options=self.options,
            schema=schema.encode(),  # with ids
            instant=instant,
            time_ms=clock.now_ms(),
            parent=newest.version,
            latest_instant=max(newest.latest_instant, *used),
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
            adopted=tuple(one for one in newest.adopted if one >= self.archived),
            unknown=newest.unknown,
        )


@dataclass(frozen=True, slots=True)
class AddFiles:
    """New index files, by metadata partition; they are asked before all that are there."""

    files: Mapping[str, tuple[HFileRef, ...]]

    def apply(self, draft: Draft) -> None:
        for partition, refs in self.files.items():
            ours = [replace(ref, sequence=draft.version) for ref in refs]
            added = draft.added_pages(partition, ours)
            draft.pages[partition] = (*draft.pages.get(partition, ()), *added)


@dataclass(frozen=True, slots=True)
class Forget:
    """Pages and HFiles (by path) that are named no more, with all that is in them."""

    pages: frozenset[str]
    hfiles: frozenset[str]

    def apply(self, draft: Draft) -> None:
        for partition, pages in draft.pages.items():
            left = [page for page in pages if page.path not in self.pages]
            refs = all_refs(draft.store, left)
            kept = [ref for ref in refs if ref.path not in self.hfiles]
            if len(left) < len(pages) or len(kept) < len(refs):
                draft.pages[partition] = _folded(draft, partition, left, kept)


@dataclass(frozen=True, slots=True)
class GoBack:
    """To the content of an older version, which lacks these data commits, and to its index. Index
    files of later compactions fall away, too; how new files are made stays as it is."""

    version: int
    undone: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        draft.content = load_version(draft.store, self.version)
        draft.pages = dict(draft.content.pages)
        names = TableSchema.decode(draft.content.schema, draft.content.path).arrow.names
        draft.options = draft.content.options.as_set_in(draft.options, names)
        draft.compactions = draft.content.compactions
        draft.schema = _taken_back(draft.content, draft.newest)
        draft.restored_at = draft.version
        draft.dropped |= set(self.undone)


def _taken_back(content: Manifest, newest: Manifest) -> str:
    """The schema of an older version; ids that were given out since are not given again."""
    schema, since = (TableSchema.decode(one.schema, one.path) for one in (content, newest))
    return replace(schema, last_column_id=max(schema.last_column_id, since.last_column_id)).encode()


@dataclass(frozen=True, slots=True)
class SetSchema:
    """The columns are these from now on, as the text has them."""

    schema: str

    def apply(self, draft: Draft) -> None:
        draft.schema = self.schema


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Other options, and metadata partitions that go with them. Whoever began before starts again:
    he would write entries by the options that were."""

    options: Options
    gone: tuple[str, ...] = ()

    def apply(self, draft: Draft) -> None:
        draft.options = self.options
        draft.pages = {name: kept for name, kept in draft.pages.items() if name not in self.gone}
        draft.restored_at = draft.version


@dataclass(frozen=True, slots=True)
class PutOptions:
    """Other options, by which nothing has to be read or written that was begun before."""

    options: Options

    def apply(self, draft: Draft) -> None:
        draft.options = self.options


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Instants that are never published any more, nor given out again."""

    instants: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        fresh = [one for one in self.instants if one not in draft.withdrawn]
        draft.withdrawn = (*draft.withdrawn, *fresh)


@dataclass(frozen=True, slots=True)
class Swap:
    """What `inputs` have in places [lo, hi) of a metadata partition is in `output` from now on."""

    partition: str
    space: int
    lo: int
    hi: int
    inputs: tuple[Part, ...]
    output: HFileRef | None

    def within(self, refs: Sequence[HFileRef]) -> list[HFileRef]:
        """The partition's references after it. Raises ConflictError where an input is gone.

        In whole or in part: what somebody else has merged of an input's places is newer than
        what was read of them, and the output would bring back what was deleted there since.
        """
        paths = {one.path for one in self.inputs}
        is_taken = [ref.path in paths and ref.covers(self.lo, self.hi) for ref in refs]
        taken = list(compress(refs, is_taken))
        if {Part.of(ref, self.lo, self.hi) for ref in taken} != set(self.inputs):
            raise ConflictError(
                "another compaction was first: nothing is lost, retry",
                partition=self.partition,
                places=(self.lo, self.hi),
            )
        kept = [ref for ref, gone in zip(refs, is_taken, strict=True) if not gone]
        kept += [rest for ref in taken for rest in ref.without(self.lo, self.hi)]
        if self.output is not None:
            newest = max(ref.sequence for ref in taken)
            kept.append(replace(self.output, sequence=newest))
        return kept


@dataclass(frozen=True, slots=True)
class SwapFiles:
    """Compaction: references are folded into few pages. Pages of which none changes stay."""

    swaps: tuple[Swap, ...]

    def apply(self, draft: Draft) -> None:
        for partition in sorted({swap.partition for swap in self.swaps}):
            pages = draft.pages.get(partition, ())
            refs = all_refs(draft.store, pages)
            left = self.within(partition, refs, draft.newest.options.buckets[partition])
            draft.pages[partition] = _folded(draft, partition, pages, left)

    def within(self, partition: str, refs: Sequence[HFileRef], buckets: int) -> list[HFileRef]:
        """A partition's references after it. Raises ConflictError where an input is gone."""
        for swap in self.swaps:
            if swap.partition == partition:
                refs = swap.within([ref.placed(swap.space, buckets) for ref in refs])
        return list(refs)


@dataclass(frozen=True, slots=True)
class FoldPages:
    """Small pages of these metadata partitions are folded into few; their references stay."""

    partitions: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        for partition in self.partitions:
            pages = draft.pages.get(partition, ())
            refs = all_refs(draft.store, pages)
            draft.pages[partition] = _folded(draft, partition, pages, refs)


def _folded(
    draft: Draft, partition: str, pages: Sequence[PageRef], refs: Sequence[HFileRef]
) -> tuple[PageRef, ...]:
    """Pages with these references. Full ones, of which all are among them, are kept."""
    left = set(map(_known_by, refs))
    kept, rest = [], {_known_by(ref): ref for ref in refs}
    for page in pages:
        held = [_known_by(ref) for ref in read_page(draft.store, page)]
        if len(held) == PAGE_REFS and left.issuperset(held):
            kept.append(page)
            for known in held:
                del rest[known]
    ordered = sorted(rest.values(), key=lambda ref: (ref.sequence, ref.lo, ref.path))
    return (*kept, *draft.added_pages(partition, ordered))


def _known_by(ref: HFileRef) -> tuple[str, int, int, int, int]:
    return ref.path, ref.lo, ref.hi, ref.sequence, ref.space
