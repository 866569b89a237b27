"""Garbage: files that no kept version names, and nobody who lives will ever publish.

Three looks, in this order, and only this order proves it:

    the files        all of them, by one walk; those that the kept versions name are passed over
                     (`kept_files.py`)
    the signs        leases, services and Hudi's timeline (`signs.py`): the files of whoever lives
                     are left alone
    the versions     once more: what was published after the walk, and is named now, is left alone

A file that somebody was about to publish during the walk is found by the sign or by the version.
An orphan, a file of an instant that was never published (`published.py`), is deleted only once the
instant is withdrawn: then nobody can take it again and write a file of that very name.

What could be rows is deleted for a reason, never for the lack of one: its commit was undone or
never published, its group has a later slice, or a replacecommit has replaced it; and none goes that
a savepoint of Hudi's own tools keeps.

Any other data file that nobody names (its entry was lost, say) stays, and is counted. So does a
file in a folder to which a link leads out of the table, or in that of another table: nothing is
deleted there. The timeline is not archived past the instant of a file that stays, if that instant
does not count, or may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import accumulate, islice

from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.published import Published
from metatable.compaction.cleaning.signs import Signs
from metatable.data.file_groups.hashing_metadata import HASHING_FOLDER
from metatable.data.file_groups.slices import DataFile, LogFile, decoded
from metatable.data.hoodie.properties import PROPERTIES_PATH
from metatable.data.reading.log_writers import writers_of
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import is_dead
from metatable.metadata.manifests.owner import Owner
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.listing import Listed
from metatable.storage.store import TEMPORARY, Store

__all__ = ["FileKind", "Left", "Suspect", "is_needed", "left", "suspects"]

BATCH_FILES = 16 << 10
"""Files of the walk that are looked at together."""

SCRATCH_LEASES = 10
"""A half-written local file that has not grown for so many leases is nobody's. What tasks elsewhere
hand to each other stays as long as its owner lives, besides."""


class FileKind(StrEnum):
    """What a file is, in a word or two for people; in the order in which they are deleted."""

    DATA = "data files"
    HFILES = "HFiles"
    PAGES = "pages"
    STAGED = "staged commits"
    MARKERS = "markers"
    RINGS = "rings"
    SCRATCH = "scratch"
    SAVED = "savepoints"
    VERSIONS = "versions"


NAMED_BY_INSTANT = (FileKind.MARKERS, FileKind.STAGED)
"""What is called by an instant, and by nothing that is a writer's own, as a nonce is. So are data
files."""

_OURS = {
    FileKind.MARKERS: re.compile(r"\.hoodie/\.temp/(\d{17}|\d{14})/.+"),
    FileKind.STAGED: re.compile(rf"{HOME}/commits/(\d{{17}}|\d{{14}})\.[^/]+"),
    FileKind.HFILES: re.compile(rf"{HOME}/\w+/([^/]+)\.hfile"),
    FileKind.PAGES: re.compile(rf"{HOME}/pages/([^/]+)\.json"),
    FileKind.VERSIONS: re.compile(rf"{HOME}/manifest/(\d{{20}})\.json"),
    FileKind.RINGS: re.compile(
        rf"{HASHING_FOLDER}/(?:.+/)?(\d{{17}}|\d{{14}})\.(?:hashing_meta|commit)"
    ),
    FileKind.SAVED: re.compile(rf"{HOME}/savepoints/(\d{{20}})\.json"),
    FileKind.SCRATCH: re.compile(rf"{TEMPORARY}/(.+)"),
}
"""Paths below `.hoodie` that may be garbage; what is of no such form is left alone."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file that no kept version names."""

    path: str
    size_bytes: int
    kind: FileKind
    owner: str = ""
    """Whose it is: an instant, or the name of a service's `Owner`."""

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Left:
    """What the looks have left: what can be deleted, and what nobody knows."""

    garbage: tuple[Suspect, ...] = ()
    orphans: frozenset[str] = frozenset()
    """Instants of garbage that were never published and are not withdrawn yet."""
    unknown: tuple[Suspect, ...] = ()
    """Data files that no version names, and that there is no reason to delete, or no way to."""
    ends: frozenset[str] = frozenset()
    """Instants of those that do not count, or may not."""


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
    unsaved = [one for one in dead if one.kind is FileKind.DATA and one.path not in signs.saved]
    spared = _spared(kept.store, dead)
    data, lasting = list[Suspect](), list[Suspect]()
    for one in _still_unnamed(unsaved, kept):
        (lasting if one.folder in spared else data).append(one)
    others = (one for one in dead if one.kind is not FileKind.DATA and one.folder not in spared)
    published = Published.of(kept, signs)
    garbage = [one for one in others if not is_needed(one, signs, published)]
    named = [one for one in garbage if one.kind in NAMED_BY_INSTANT]
    orphans = {one.owner for one in named if published.is_orphan(one.owner)}
    unknown = []
    for one, is_garbage in zip(data, _may_go(data, kept, signs), strict=True):
        if is_garbage:
            garbage.append(one)
        elif published.is_orphan(one.owner):
            orphans.add(one.owner)
            garbage.append(one)
        else:
            unknown.append(one)
    ends = frozenset(one.owner for one in (*unknown, *lasting) if published.ends(one.owner))
    return Left(tuple(garbage), frozenset(orphans), (*unknown, *lasting), ends)


def _spared(store: Store, found: Sequence[Suspect]) -> frozenset[str]:
    """Folders of these files to which a link leads out of the table, or which are those of another
    table that lies in this one: nothing is deleted there."""
    of_folder = {one.folder: one.path for one in found}
    linked = {folder for folder, path in of_folder.items() if store.spares(path)}
    return frozenset(linked | _of_others(store, of_folder))


def _of_others(store: Store, folders: Iterable[str]) -> set[str]:
    """Those that lie in a folder which is a table."""
    parts = {one: one.split("/") for one in folders if one}
    above = {
        one: [*accumulate(some, "{}/{}".format)]
        for one, some in parts.items()
        if some[0] != ".hoodie"
    }
    asked = sorted({one for some in above.values() for one in some})
    told = dict(
        zip(asked, store.together([partial(_is_table, store, one) for one in asked]), strict=True)
    )
    return {one for one, some in above.items() if any(map(told.__getitem__, some))}


def _is_table(store: Store, folder: str) -> bool:
    try:
        return store.size(f"{folder}/{PROPERTIES_PATH}") is not None
    except UsageError:  # a name that no path of ours has
        return False


def _still_unnamed(data: Sequence[Suspect], kept: Kept) -> list[Suspect]:
    """Those that no savepoint names which was made meanwhile."""
    named = kept.names([one.path for one in data]) if data else ()
    return [one for one, is_named in zip(data, named, strict=True) if not is_named]


def _may_go(data: Sequence[Suspect], kept: Kept, signs: Signs) -> list[bool]:
    """Whether there is a reason to delete a data file, other than that it is an orphan."""
    if not data:
        return []
    files = [decoded(one.path) for one in data]
    replaced = frozenset().union(*signs.replaced.values())
    return [
        later or one.owner in kept.withdrawn or (file.partition_path, file.file_id) in replaced
        for one, file, later in zip(data, files, kept.superseded(files), strict=True)
    ]


def _private(listed: Listed, kept: Kept, now: float) -> Suspect | None:
    """What a file below `.hoodie` is, if it may be garbage."""
    matches = ((kind, form.fullmatch(listed.path)) for kind, form in _OURS.items())
    told = next(((kind, match[1]) for kind, match in matches if match), None)
    if told is None or _is_kept(*told, listed, kept, now):
        return None
    kind, named = told
    if kind in (FileKind.MARKERS, FileKind.SCRATCH) and _marks_a_folder(listed):
        return None
    if kind in (FileKind.HFILES, FileKind.PAGES):
        owner = _owner(listed.name)
    elif kind is FileKind.SCRATCH:
        owner = Owner.of_folder(named)
    else:
        owner = named if kind in (*NAMED_BY_INSTANT, FileKind.RINGS) else ""
    return Suspect(listed.path, listed.size_bytes, kind, owner)


def _marks_a_folder(listed: Listed) -> bool:
    """Whether it is an empty object by which some tools mark a folder. It is called as that is,
    with a slash behind, which no name of ours has: so nothing deletes it."""
    return not listed.size_bytes and "." not in listed.name


def _is_kept(kind: FileKind, named: str, listed: Listed, kept: Kept, now: float) -> bool:
    """Whether a file of this kind has to stay; `named`: what its name tells, as in `_OURS`."""
    if kind is FileKind.VERSIONS:
        return int(named) >= kept.oldest
    if kind is FileKind.SAVED:  # of a version that is kept: another savepoint of it may come
        return int(named) in kept.saved or int(named) >= kept.oldest
    if kind is FileKind.RINGS:
        return kept.rings.need(listed.path)
    if kind is FileKind.SCRATCH:
        seconds = kept.newest.options.lease_seconds * SCRATCH_LEASES
        return not is_dead(listed.modified, now, seconds)
    return listed.path in kept.hfiles or listed.path in kept.pages


def _owner(name: str) -> str:
    """Whose an index file is: in format 1 its name tells an instant alone."""
    return Owner.of_file(name) or name.partition("-")[0]


def _data_file(listed: Listed) -> DataFile | LogFile | None:
    """A file outside of `.hoodie` as its name tells it; None where it is none of Hudi's."""
    try:
        return decoded(listed.path, listed.size_bytes)
    except CorruptError:  # not ours to judge
        return None


def _unnamed(files: Sequence[DataFile | LogFile], kept: Kept) -> Iterator[Suspect]:
    """Those of these data files that no kept version names."""
    if files:
        named = kept.names([one.path for one in files])
        left = [one for one, is_named in zip(files, named, strict=True) if not is_named]
        logs = [one for one in left if isinstance(one, LogFile)]
        writers = writers_of(kept.store, logs)
        of_log = dict(zip((one.path for one in logs), writers, strict=True))
        for file in left:
            owner = file.instant if isinstance(file, DataFile) else of_log[file.path]
            if owner not in kept.instants:
                yield Suspect(file.path, file.size_bytes, FileKind.DATA, owner)


def _is_named(one: Suspect, kept: Kept) -> bool:
    """Whether the kept versions name it by now."""
    if one.kind is FileKind.SAVED:
        return int(one.path[-25:-5]) in kept.saved
    if one.kind is FileKind.RINGS:
        return kept.rings.need(one.path)
    if one.kind is FileKind.DATA:
        return one.owner in kept.instants
    return one.path in kept.hfiles or one.path in kept.pages


def is_needed(one: Suspect, signs: Signs, published: Published) -> bool:
    """Whether a file that no version names, other than a data file, must stay.

    What lies ready for an action is kept as long as that is on the timeline, or counts, or waits;
    what is of no instant that the table has seen is left alone.
    """
    if one.kind not in NAMED_BY_INSTANT:
        return False
    is_staged = one.kind is FileKind.STAGED
    if is_staged and (one.path in signs.staged or _may_be_of_service(one, signs, published)):
        return True
    return one.owner > published.latest or published.needs(one.path, one.owner)


def _may_be_of_service(one: Suspect, signs: Signs, published: Published) -> bool:
    """Whether a service that lives may have put it, for an instant that is not its own."""
    alive = signs.services - signs.dead - published.newest.fenced.keys()
    return bool(alive) and not one.path.endswith(".json")
