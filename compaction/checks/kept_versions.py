"""Kept versions: whether each can still be read, and what is left of one that cannot.

A root is there and says what it was put with; so is each page that one names; each HFile has the
bytes of its reference, told by length and CRC-32C. What is lost or damaged is a fact here, not an
exception: ordinary readers raise, these go on without it (`Remains`).

Versions that hold a commit which was undone are passed over: what they name may have been deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import google_crc32c

from metatable.metadata.commits.page_updates import Forget
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import Manifest, saved_path, version_path
from metatable.metadata.manifests.pages import HFileRef, PageRef, all_refs, decoded_page, read_page
from metatable.metadata.manifests.sealed import checksum
from metatable.metadata.manifests.sharing import shared
from metatable.metadata.manifests.versions import root_place
from metatable.metadata.partitions.rings import RingsPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["IndexFiles", "Remains", "Versions", "dropping_up_to", "undone_by"]

READ_BYTES = 4 << 20
"""Bytes of an HFile that are read at once, to tell its checksum."""


@dataclass(frozen=True)
class Versions:
    """The roots of what a version keeps, itself included."""

    newest: Manifest
    roots: Mapping[int, Manifest]
    lost: Mapping[int, str]
    """Kept versions without a root that can be read, and why."""
    copies: Mapping[str, str]
    """Where a copy of a root is lost or damaged, and where its twin lies."""

    @classmethod
    def of(cls, store: Store, newest: Manifest) -> Versions:
        """Read all that this version keeps. Raises nothing for what is lost or damaged."""
        kept = [*range(max(newest.oldest, 1), newest.version)]
        pinned = {one.version for one in newest.pins.values()}
        roots, lost, copies = {newest.version: newest}, dict[int, str](), dict[str, str]()
        asked = sorted(pinned.union(kept) - {newest.version})
        places = [root_place(one, newest.oldest) for one in asked]
        roots_of = in_order_far(store, partial(_root_at, store), places)
        last = newest
        for version, found in zip(asked, roots_of, strict=True):
            if isinstance(found, Manifest):
                last = roots[version] = shared(found, last)
            else:
                lost[version] = found
        for version in sorted(one for one in pinned if one >= newest.oldest):
            here, there = version_path(version), saved_path(version)
            saved = _root_at(store, there)
            if isinstance(saved, Manifest) and version in lost:
                roots[version] = saved
                del lost[version]
                copies[here] = there
            elif not isinstance(saved, Manifest) and version in roots:
                copies[there] = here
        return cls(newest, roots, lost, copies)

    @property
    def pinned(self) -> Mapping[int, str]:
        """Versions that savepoints keep, and a savepoint of each."""
        return {one.version: name for name, one in self.newest.pins.items()}

    def first_of(self, instant: str) -> int | None:
        """The first of those that end with this commit, as far as they can be read."""
        ours = (one for one in self.whole() if one.last_commit and one.last_commit[1] == instant)
        return min((one.version for one in ours), default=None)

    def whole(self) -> list[Manifest]:
        """Roots of those whose files must all be there."""
        undone = undone_by(self.roots.values())
        return [one for version, one in self.roots.items() if version not in undone]


def dropping_up_to(version: int) -> str:
    """What is done about a version that cannot be read."""
    return f"versions up to {version} are not kept any more"


def undone_by(roots: Iterable[Manifest]) -> set[int]:
    """Versions that hold a commit which one of these has undone."""
    back = [one for one in roots if one.restored_at == one.version]
    spans = (range(one.summary.get("undone_version", one.version), one.version) for one in back)
    return {version for span in spans for version in span}


def _root_at(store: Store, path: str) -> Manifest | str:
    """The root that lies here, or why there is none."""
    raw = store.get(path)
    if raw is None:
        return "it is lost"
    try:
        return Manifest.decode(raw, path)
    except CorruptError as error:
        return str(error)


@dataclass(frozen=True)
class IndexFiles:
    """Pages and HFiles that are lost or damaged, by path, and why; and which kept versions name
    them."""

    pages: Mapping[str, str]
    hfiles: Mapping[str, str]
    versions: Mapping[str, tuple[int, ...]]
    newest: int
    lasting: frozenset[str] = frozenset()
    """Paths of those that the newest version names and cannot do without: their entries, which are
    rings, are not made anew from data."""

    @classmethod
    def of(cls, store: Store, versions: Versions) -> IndexFiles:
        """Read all pages and HFiles of these versions, and hold them against their references."""
        roots = versions.whole()
        pages = {page.path: page for root in roots for page in root.page_files}
        bad_pages = dict[str, str]()
        refs = {ref.path: ref for root in roots for ref in root.own_refs}
        told = in_order_far(store, partial(_page, store), pages.values())
        for path, found in zip(pages, told, strict=True):
            if isinstance(found, str):
                bad_pages[path] = found
            else:
                refs |= {ref.path: ref for ref in found}
        sizes = _sizes(store, refs.values())
        look = partial(_hfile_fault, store, sizes)
        why_not = in_order_far(store, look, refs.values(), _bytes_at_once)
        bad_hfiles = {path: why for path, why in zip(refs, why_not, strict=True) if why}
        named: dict[str, tuple[int, ...]] = {}
        if bad_pages or bad_hfiles:
            for root in roots:
                for path in _named(store, root, bad_pages) & (bad_pages.keys() | bad_hfiles):
                    named[path] = (*named.get(path, ()), root.version)
        held = {page.path for page in versions.newest.pages.get(RingsPartition.name, ())}
        folder = f"{HOME}/{RingsPartition.name}/"
        lasting = (
            path for path in (*bad_pages, *bad_hfiles) if path in held or path.startswith(folder)
        )
        return cls(bad_pages, bad_hfiles, named, versions.newest.version, frozenset(lasting))

    def of_version(self, path: str) -> bool:
        """Whether the newest version names it."""
        return self.newest in self.versions.get(path, ())

    @property
    def forgetting(self) -> Forget:
        """What the next version is to name no more."""
        ours = [
            frozenset(path for path in bad if self.of_version(path) and path not in self.lasting)
            for bad in (self.pages, self.hfiles)
        ]
        return Forget(*ours)


def _named(store: Store, root: Manifest, bad_pages: Mapping[str, str]) -> set[str]:
    """Pages and HFiles that a version names, as far as its pages can be read."""
    pages = {page.path: page for page in root.page_files}
    good = (page for path, page in pages.items() if path not in bad_pages)
    listed = (ref.path for page in good for ref in read_page(store, page))
    return {*pages, *listed, *(ref.path for ref in root.own_refs)}


def _page(store: Store, page: PageRef) -> tuple[HFileRef, ...] | str:
    """What it lists as it is stored now, or what is wrong with it."""
    raw = store.get(page.path)
    if raw is None:
        return "it is lost"
    if checksum(raw) != page.checksum:
        return f"expected checksum {page.checksum}, found {checksum(raw)}"
    return decoded_page(raw, page.path)


def _bytes_at_once(ref: HFileRef) -> int:
    return min(ref.size_bytes, READ_BYTES)


def _sizes(store: Store, refs: Iterable[HFileRef]) -> dict[str, int]:
    """Bytes of the HFiles that are there: one listing per partition."""
    folders = sorted({ref.path.rpartition("/")[0] for ref in refs})
    return {one.path: one.size_bytes for folder in folders for one in store.list(folder)}


def _hfile_fault(store: Store, sizes: Mapping[str, int], ref: HFileRef) -> str:
    found = sizes.get(ref.path)
    if found is None:
        return "it is lost"
    if found != ref.size_bytes:
        return f"expected {ref.size_bytes} bytes, found {found}"
    try:
        told = _checksum(store, ref.path, found)
    except CorruptError as error:
        return str(error)
    return "" if told == ref.checksum else f"expected checksum {ref.checksum}, found {told}"


def _checksum(store: Store, path: str, size_bytes: int) -> str:
    told = 0
    for start in range(0, size_bytes, READ_BYTES):
        [part] = store.read(path, [(start, min(READ_BYTES, size_bytes - start))])
        told = google_crc32c.extend(told, bytes(part))
    return f"{told:08x}"


class Remains(Snapshot):
    """What is left of a version without its lost and damaged index files: its entries answer as if
    those had never been written. For checks in this process."""

    _gone: Forget = Forget(frozenset(), frozenset())

    @classmethod
    def of(cls, snapshot: Snapshot, gone: Forget) -> Snapshot:
        """The version itself where nothing is gone of it."""
        if not (gone.pages or gone.hfiles):
            return snapshot
        made = cls(snapshot.store, snapshot.manifest, columns=snapshot._columns)
        made._gone = gone
        return made

    @property
    def identity(self) -> tuple[str, int, str, int]:
        uri, version, nonce, after = super().identity
        return uri, version, f"{nonce} without {hash((self._gone.pages, self._gone.hfiles))}", after

    def counting(self, counters: Counters) -> Self:
        made = super().counting(counters)
        made._gone = self._gone
        return made

    def refs(self, partition: str) -> list[HFileRef]:
        pages = self.manifest.pages.get(partition, ())
        left = [page for page in pages if page.path not in self._gone.pages]
        return [ref for ref in all_refs(self.store, left) if ref.path not in self._gone.hfiles]

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("what remains of a damaged version stays in its process")
