"""Garbage: files that no kept version names, and nobody who lives will ever publish.

Three looks, in this order, and only this order proves it:

    the files        all of them, by one walk; those that the kept versions name are passed over
    the signs        leases, services and Hudi's timeline: whose a file is that lives is left alone
    the versions     once more: what was published after the walk, and is named now, is left alone

A file that somebody was about to publish during the walk is found by the sign or by the version.
An orphan, a file of an instant that was never published, is deleted only once the instant is
withdrawn: then nobody can take it again and write a file of that very name.

What could be rows is deleted for a reason, never for the lack of one: its commit was undone or
never published, its group has a later slice, or a replacecommit has replaced it; and none goes that
a savepoint of Hudi's own tools keeps. Any other data file that nobody names (an entry that was
lost, say) stays, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

import numpy as np
import pyarrow as pa

from metatable.compaction.hudi_rings import KeptRings
from metatable.compaction.kept_versions import undone_by
from metatable.data.commit_metadata import CommitMetadata
from metatable.data.hashing_metadata import HASHING_FOLDER
from metatable.data.savepoint_metadata import is_of_metatable, saved_files
from metatable.data.slice_reader import writer_of
from metatable.data.slices import DataFile, LogFile, decoded
from metatable.data.timeline import FAR, REPLACING, Instant, Timeline, completed_path, next_instant
from metatable.metadata.home import HOME
from metatable.metadata.leases import SERVICES, is_dead, leased
from metatable.metadata.manifest import Manifest
from metatable.metadata.owner import Owner
from metatable.metadata.pages import HFileRef, PageRef, read_page
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.steps import staged_path
from metatable.metadata.versions import load_newest, load_version
from metatable.storage import clock
from metatable.storage.arrays import Bools, UInt64s
from metatable.storage.errors import ConflictError, CorruptError, StaleError
from metatable.storage.hashing import xxh64
from metatable.storage.listing import Listed
from metatable.storage.store import TEMPORARY, Store
from metatable.storage.threads import in_order

__all__ = ["Kept", "Left", "Signs", "Suspect", "is_needed", "left", "suspects"]

BATCH_FILES = 16 << 10
SCRATCH_LEASES = 10
"""A half-written local file that has not grown for so many leases is nobody's."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file that no kept version names. `kind`: in a word or two, for people."""

    path: str
    size_bytes: int
    kind: str
    owner: str = ""
    """Whose it is: an instant, or the name of a service's `Owner`."""


class Kept:
    """What the versions from `oldest` up to the newest name."""

    def __init__(self, store: Store, newest: Manifest, oldest: int) -> None:
        self.store, self.newest, self.oldest = store, newest, oldest
        versions = range(oldest, newest.version)
        self.roots = [*in_order(self._root, versions), newest]
        self._paths: UInt64s | None = None
        self._rings: KeptRings | None = None
        pinned = {one.version for one in newest.pins.values() if one.version < oldest}
        self.pinned = [*in_order(self._root, sorted(pinned))]
        """Roots of savepoints that are older."""
        self.saved = frozenset(one.version for one in newest.pins.values())
        every = [*self.pinned, *self.roots]
        pages = {page.path: page for root in every for page in root.every_page}
        self.pages = frozenset(pages)
        undone = undone_by(self.roots)
        in_use = [root for root in every if root.version not in undone]
        needed = {page.path for root in in_use for page in root.every_page}
        with self._reading():
            refs = in_order(lambda page: _refs(store, page, needed), pages.values())
            self.hfiles = frozenset(ref.path for held in refs for ref in held)
        late = {root.instant for root in self.roots[1:] if root.instant}
        self.instants = frozenset(late.difference(newest.withdrawn))
        """Data commits of kept versions: their files are named, also where a later one of those
        versions has replaced them."""

    def on(self, newest: Manifest) -> Kept:
        """The same for a version that may be newer."""
        if newest.nonce == self.newest.nonce:
            return self
        return Kept(self.store, newest, max(self.oldest, newest.oldest))

    @property
    def paths(self) -> UInt64s:
        """Hashes, in order, of the paths of the data files of the oldest kept version and of
        savepoints before it, and of the newest one where there are logs. Two paths of one hash
        would only keep what could go."""
        if self._paths is None:  # `cached_property` would read them under one lock for all objects
            self._paths = self._read_paths()
        return self._paths

    def _read_paths(self) -> UInt64s:
        roots = [*self.pinned, self.roots[0]]
        roots += [self.newest] if self.newest.options.has_logs else []  # no need to open their logs
        with self._reading():
            held = [Snapshot(self.store, one).slices().all_files()[0] for one in roots]
        return np.unique(xxh64(pa.concat_arrays(held), 0))

    @property
    def rings(self) -> KeptRings:
        if self._rings is None:
            undone = undone_by(self.roots)
            whole = [one for one in (*self.pinned, *self.roots) if one.version not in undone]
            self._rings = KeptRings.of(self.store, whole)
        return self._rings

    def names(self, paths: Sequence[str]) -> Bools:
        """Whether the oldest kept version, or a savepoint, names these data files."""
        asked = xxh64(pa.array(paths, pa.string()), 0)
        at = np.searchsorted(self.paths, asked)
        found = np.zeros(len(asked), dtype=bool)
        inside = at < len(self.paths)
        found[inside] = self.paths[at[inside]] == asked[inside]
        return found

    def superseded(self, files: Sequence[DataFile | LogFile]) -> list[bool]:
        """Whether the file group has a later slice in the oldest kept version, or the newest."""
        told = [False] * len(files)
        for snapshot in (self._floor, Snapshot(self.store, self.newest)):
            paths, ids = [one.partition_path for one in files], [one.file_id for one in files]
            for place, now in enumerate(snapshot.current(paths, ids)):
                told[place] |= now is not None and now.instant > files[place].instant
        return told

    @property
    def _floor(self) -> Snapshot:
        return Snapshot(self.store, self.roots[0])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Index files go when their versions are not kept any more, by a clean of others. Raises
        ConflictError then."""
        try:
            yield
        except CorruptError as error:
            later = load_newest(self.store)
            every = (*self.pinned, *self.roots)
            if later is None or all(later.keeps(one.version) for one in every):
                raise
            raise ConflictError("another clean was first: retry", **error.facts) from error

    def _root(self, version: int) -> Manifest:
        try:
            return load_version(self.store, version)
        except StaleError as error:
            later = load_newest(self.store)
            if later is not None and not later.keeps(version):
                raise ConflictError("another clean was first: retry", **error.facts) from error
            raise CorruptError("a version that is kept is lost", **error.facts) from error


def _refs(store: Store, page: PageRef, needed: Collection[str]) -> Sequence[HFileRef]:
    """What a page lists; nothing where it is damaged, and only versions name it that were undone:
    nobody reads those."""
    try:
        return read_page(store, page)
    except CorruptError:
        if page.path in needed:
            raise
        return ()


@dataclass(frozen=True)
class Signs:
    """Who lives, and what is committed."""

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

    @classmethod
    def of(cls, store: Store, lease_seconds: float, now: float) -> Signs:
        """`now`: by the store's clock, epoch seconds."""
        writers = leased(store)
        services = store.list(SERVICES)
        timeline = tuple(Timeline(store).load())
        return cls(
            writers,
            frozenset(one.name for one in services),
            frozenset(one.name for one in services if is_dead(one.modified, now, lease_seconds)),
            timeline,
            dict(_replaced(store, timeline)),
            frozenset(_saved(store, timeline)),
        )

    @cached_property
    def pending(self) -> frozenset[str]:
        """Instants of which an action is under way on the timeline, whoever's it is."""
        return frozenset(one.time for one in self.timeline if one.state != "completed")

    @cached_property
    def staged(self) -> frozenset[str]:
        """Where what is on the timeline lay ready for it."""
        return frozenset(staged_path(one.time, one.action) for one in self.timeline)

    @cached_property
    def done(self) -> frozenset[str]:
        return frozenset(one.time for one in self.timeline if one.changes_data)

    def lives(self, owner: str, fenced: Collection[str]) -> bool:
        """Whether whoever wrote a file may still publish it."""
        instant = owner.partition("-")[0]
        if instant.isdigit():
            return instant in self.writers or instant in self.pending
        return owner in self.services and owner not in fenced


def _replaced(
    store: Store, timeline: Iterable[Instant]
) -> Iterator[tuple[str, frozenset[tuple[str, str]]]]:
    for one in timeline:
        if one.action in REPLACING and one.state == "completed":
            path = completed_path(one.time, one.action)
            body = store.get(path)
            if body is None:  # undone, or archived, since it was listed
                continue
            replaced = CommitMetadata.decode(body, path).replaced or {}
            groups = ((name, group) for name, ids in replaced.items() for group in ids)
            yield one.time, frozenset(groups)


def _saved(store: Store, timeline: Iterable[Instant]) -> Iterator[str]:
    for one in timeline:
        if one.action == "savepoint" and one.state == "completed":
            path = completed_path(one.time, one.action)
            body = store.get(path)
            if body is not None and not is_of_metatable(body):  # ours have pins
                yield from saved_files(body, path)


@dataclass(frozen=True, slots=True)
class Left:
    """What the looks have left: what can be deleted, and what nobody knows."""

    garbage: tuple[Suspect, ...] = ()
    orphans: frozenset[str] = frozenset()
    """Instants of garbage that were never published and are not withdrawn yet."""
    unknown: tuple[Suspect, ...] = ()
    """Data files that no version names, and that there is no reason to delete."""


def suspects(store: Store, kept: Kept, now: float) -> list[Suspect]:
    """The first look: files that the kept versions do not name. Memory follows what is found."""
    found: list[Suspect] = []
    walk = store.walk()
    while batch := list(islice(walk, BATCH_FILES)):
        data = []
        for listed in batch:
            if listed.path.startswith(".hoodie/"):
                suspect = _private(listed, kept, now)
                if suspect is not None:
                    found.append(suspect)
            elif (file := _data_file(listed)) is not None:
                data.append(file)
        found += _unnamed(data, kept)
    return found


def left(kept: Kept, signs: Signs, found: Sequence[Suspect]) -> Left:
    """The second and the third look, at what the first has found. `kept`: the newest version's,
    loaded after the signs; its steps are done."""
    fenced = kept.newest.fenced.keys() | signs.dead
    dead = [one for one in found if not signs.lives(one.owner, fenced) and not _is_named(one, kept)]
    unsaved = [one for one in dead if one.kind == DATA and one.path not in signs.saved]
    data = _still_unnamed(unsaved, kept)
    garbage = [one for one in dead if one.kind != DATA and not is_needed(one, kept, signs)]
    named = [one for one in garbage if one.kind in NAMED_BY_INSTANT]
    orphans = {one.owner for one in named if _is_orphan(one.owner, kept.newest, signs)}
    unknown = []
    for one, is_garbage in zip(data, _may_go(data, kept, signs), strict=True):
        if is_garbage:
            garbage.append(one)
        elif _is_orphan(one.owner, kept.newest, signs):
            orphans.add(one.owner)
            garbage.append(one)
        else:
            unknown.append(one)
    return Left(tuple(garbage), frozenset(orphans), tuple(unknown))


def _still_unnamed(data: Sequence[Suspect], kept: Kept) -> list[Suspect]:
    """Without those that a savepoint names, which was made meanwhile."""
    named = kept.names([one.path for one in data]) if data else ()
    return [one for one, is_named in zip(data, named, strict=True) if not is_named]


def _may_go(data: Sequence[Suspect], kept: Kept, signs: Signs) -> list[bool]:
    """Whether there is a reason to delete a data file, other than that it is an orphan."""
    if not data:
        return []
    files = [decoded(one.path) for one in data]
    replaced = frozenset().union(*signs.replaced.values())
    return [
        later
        or one.owner in kept.newest.withdrawn
        or (file.partition_path, file.file_id) in replaced
        for one, file, later in zip(data, files, kept.superseded(files), strict=True)
    ]


DATA, MARKERS, STAGED = "data files", "markers", "staged commits"
NAMED_BY_INSTANT = (MARKERS, STAGED)
"""And by nothing that is a writer's own, as a nonce: data files, too."""

SAVED, RINGS = "savepoints", "rings"
_HFILES, _PAGES, _VERSIONS, _SCRATCH = "HFiles", "pages", "versions", "scratch"
_OURS = {
    MARKERS: re.compile(r"\.hoodie/\.temp/(\d{17}|\d{14})/.+"),
    STAGED: re.compile(rf"{HOME}/commits/(\d{{17}}|\d{{14}})\.[^/]+"),
    _HFILES: re.compile(rf"{HOME}/\w+/([^/]+)\.hfile"),
    _PAGES: re.compile(rf"{HOME}/pages/([^/]+)\.json"),
    _VERSIONS: re.compile(rf"{HOME}/manifest/(\d{{20}})\.json"),
    RINGS: re.compile(rf"{HASHING_FOLDER}/(?:.+/)?(\d{{17}}|\d{{14}})\.(?:hashing_meta|commit)"),
    SAVED: re.compile(rf"{HOME}/savepoints/(\d{{20}})\.json"),
    _SCRATCH: re.compile(rf"{TEMPORARY}/(.+)"),
}
"""Paths below `.hoodie` that may be garbage; what is of no such form is left alone."""


def _private(listed: Listed, kept: Kept, now: float) -> Suspect | None:
    """What a file below `.hoodie` is, if it may be garbage."""
    matches = ((kind, form.fullmatch(listed.path)) for kind, form in _OURS.items())
    kind, found = next(((kind, match) for kind, match in matches if match), ("", None))
    if found is None or _is_kept(kind, listed, found[1], kept, now):
        return None
    if kind in (_HFILES, _PAGES):
        owner = _owner(listed.name)
    else:
        owner = found[1] if kind in (*NAMED_BY_INSTANT, RINGS) else ""
    return Suspect(listed.path, listed.size_bytes, kind, owner)


def _is_kept(kind: str, listed: Listed, named: str, kept: Kept, now: float) -> bool:
    if kind == _VERSIONS:
        return int(named) >= kept.oldest
    if kind == SAVED:
        return int(named) in kept.saved
    if kind == RINGS:
        return kept.rings.need(listed.path)
    if kind == _SCRATCH:
        seconds = kept.newest.options.lease_seconds * SCRATCH_LEASES
        return not is_dead(listed.modified, now, seconds)
    return listed.path in kept.hfiles or listed.path in kept.pages


def _owner(name: str) -> str:
    """Of an index file: in format 1 its name tells an instant alone."""
    return Owner.of_file(name) or name.partition("-")[0]


def _data_file(listed: Listed) -> DataFile | LogFile | None:
    try:
        return decoded(listed.path, listed.size_bytes)
    except CorruptError:  # not ours to judge
        return None


def _unnamed(files: Sequence[DataFile | LogFile], kept: Kept) -> Iterator[Suspect]:
    if files:
        named = kept.names([one.path for one in files])
        left = [one for one, is_named in zip(files, named, strict=True) if not is_named]
        owners = in_order(partial(writer_of, kept.store), left)
        for file, owner in zip(left, owners, strict=True):
            if owner not in kept.instants:
                yield Suspect(file.path, file.size_bytes, DATA, owner)


def _is_named(one: Suspect, kept: Kept) -> bool:
    """Whether the kept versions name it by now."""
    if one.kind == SAVED:
        return int(one.path[-25:-5]) in kept.saved
    if one.kind == RINGS:
        return kept.rings.need(one.path)
    if one.kind == DATA:
        return one.owner in kept.instants
    return one.path in kept.hfiles or one.path in kept.pages


def is_needed(one: Suspect, kept: Kept, signs: Signs) -> bool:
    """What lies ready for an action is kept as long as that is on the timeline; what is of no
    instant that the table has seen is left alone."""
    if one.kind == SAVED:
        return _may_be_of_service(one, kept, signs)
    if one.kind not in NAMED_BY_INSTANT:
        return False
    if one.kind == STAGED and (one.path in signs.staged or _may_be_of_service(one, kept, signs)):
        return True
    return one.owner > _latest(kept.newest)


def _may_be_of_service(one: Suspect, kept: Kept, signs: Signs) -> bool:
    """Whether a service that lives may have put it, for an instant that is not its own."""
    alive = signs.services - signs.dead - kept.newest.fenced.keys()
    return bool(alive) and (one.kind == SAVED or not one.path.endswith(".json"))


def _is_orphan(instant: str, newest: Manifest, signs: Signs) -> bool:
    """Whether no version has ever published it: the timeline would tell. A log that is damaged
    tells no instant, and is nobody's."""
    seen = newest.archived <= instant <= _latest(newest)
    known = instant in signs.done or instant in newest.withdrawn
    return bool(instant) and seen and not known


def _latest(newest: Manifest) -> str:
    """The latest instant that can be an orphan's. New instants are later than those withdrawn, so
    that of a file from far in the future (nobody's, or of a clock that was wrong) must not be."""
    return max(newest.latest_instant, next_instant(clock.now() + FAR))
