"""Kept files: what the kept versions name, of which nothing may be deleted.

A version names its root, pages and HFiles by their paths. The data files of all kept versions would
be too many to hold: those of the oldest one (and of older savepoints) are held as hashes of their
paths, and what later versions have added is told by the instant that wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pyarrow as pa

from metatable.compaction.checks.hudi_ring_check import KeptRings
from metatable.compaction.checks.kept_versions import undone_by
from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.pages import HFileRef, PageRef, read_page
from metatable.metadata.manifests.sharing import sharing
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.arrays import Bools, UInt64s
from metatable.storage.errors import ConflictError, CorruptError, StaleError
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import which_are_among
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["Kept"]


class Kept:
    """What the versions from `oldest` up to the newest name, and older savepoints.

    Raises ConflictError where one of them is not kept any more, CorruptError where it is lost.
    """

    def __init__(self, store: Store, newest: Manifest, oldest: int) -> None:
        self.store, self.newest, self.oldest = store, newest, oldest
        versions = range(oldest, newest.version)
        self.roots = [*sharing(in_order_far(store, self._root, versions)), newest]
        self._paths: UInt64s | None = None
        self._rings: KeptRings | None = None
        pinned = {one.version for one in newest.pins.values() if one.version < oldest}
        self.pinned = [*sharing(in_order_far(store, self._root, sorted(pinned)))]
        """Roots of savepoints that are older."""
        self.saved = frozenset(one.version for one in newest.pins.values())
        every = [*self.pinned, *self.roots]
        pages = {page.path: page for root in every for page in root.page_files}
        self.pages = frozenset(pages)
        needed = {page.path for root in self.whole for page in root.page_files}
        with self._reading():
            refs = in_order_far(store, lambda page: _refs(store, page, needed), pages.values())
            own = (ref.path for root in every for ref in root.own_refs)
            self.hfiles = frozenset(chain(own, (ref.path for held in refs for ref in held)))
        late = {root.instant for root in self.roots[1:] if root.instant}
        self.withdrawn = frozenset(newest.withdrawn)
        """Instants that never count: of a large restore they are as many as its commits."""
        self.instants = frozenset(late - self.withdrawn)
        """Data commits of kept versions: their files are named, also where a later one of those
        versions has replaced them."""

    @classmethod
    def readable(cls, store: Store, newest: Manifest, oldest: int) -> Kept:
        """What is kept from `oldest` on; later, where that version was undone and nobody reads
        it."""
        kept = cls(store, newest, oldest)
        for root in kept.roots:
            undone = root.summary.get("undone_version", root.version)
            if root.restored_at == root.version and undone <= kept.oldest < root.version:
                kept = cls(store, newest, root.version)
        return kept

    def on(self, newest: Manifest) -> Kept:
        """What the kept versions name when this one is the newest: it may be later than ours."""
        if newest.nonce == self.newest.nonce:
            return self
        return Kept.readable(self.store, newest, max(self.oldest, newest.oldest))

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
        held = np.zeros(0, np.uint64)
        with self._reading():
            for one in roots:  # the paths of one version at a time
                named = Snapshot(self.store, one).slices().all_files()[0]
                held = np.union1d(held, xxh64(named, 0))
        return held

    @property
    def rings(self) -> KeptRings:
        """Which of Hudi's ring files the kept versions need; read when they are asked for."""
        if self._rings is None:
            self._rings = KeptRings.of(self.store, self.whole)
        return self._rings

    @property
    def whole(self) -> list[Manifest]:
        """Roots of kept versions whose files must all be there: of those that were not undone."""
        undone = undone_by(self.roots)
        return [one for one in (*self.pinned, *self.roots) if one.version not in undone]

    def names(self, paths: Sequence[str]) -> Bools:
        """Whether the oldest kept version, or a savepoint, names these data files."""
        return which_are_among(xxh64(pa.array(paths, pa.string()), 0), self.paths)

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
        """The oldest kept version."""
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
        """Raises ConflictError where another clean has taken it, CorruptError where it is lost."""
        try:
            return load_version(self.store, version, self.newest.oldest)
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
