"""Rings in Hudi's own place: which of them are needed, and what is wrong with them.

A ring is needed as long as a kept version places rows by it, for going back to that version leaves
it the latest again. What is missing or damaged has its twin in `hashing_metadata`; what a late hand
has put there of a resize that was undone would be the latest one to Hudi.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from metatable.data.file_groups.hashing_metadata import (
    FIRST_INSTANT,
    HASHING_FOLDER,
    HashingMetadata,
)
from metatable.data.file_groups.slices import FileSlice
from metatable.index.bucket.rings import rings_of
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.rings import RingsPartition, every_ring
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["KeptRings", "RingFile", "hudi_ring_faults"]


@dataclass(frozen=True, slots=True)
class KeptRings:
    """What kept versions need in Hudi's own place. Rings are told by their paths without endings: a
    ring and its mark go together."""

    stored: frozenset[str]
    """Rings that one of the versions has."""
    outdated: frozenset[str]
    """First rings, of partitions that every one of them has resized."""
    is_ours: bool
    """Whether rings are put there at all."""

    @classmethod
    def of(cls, store: Store, roots: Sequence[Manifest]) -> KeptRings:
        """What these versions need, the last of which is the newest. Raises CorruptError."""
        if not roots[-1].options.hudi_hashing_metadata:
            return cls(frozenset(), frozenset(), False)
        pages = [one.pages.get(RingsPartition.name, ()) for one in roots]
        apart = {
            tuple(page.identity for page in each): one
            for each, one in zip(pages, roots, strict=True)
        }.values()
        stored: set[str] = set()
        outdated: set[str] | None = None
        for one in apart:  # of a ring only its name is kept
            firsts = set()
            for ring in every_ring(Snapshot(store, one)):
                stored.add(_stem(ring.path))
                firsts.add(_stem(replace(ring, instant=FIRST_INSTANT).path))
            outdated = firsts if outdated is None else outdated & firsts
        return cls(frozenset(stored), frozenset(outdated or ()), True)

    def need(self, path: str) -> bool:
        """Whether the file at `path`, a ring or a mark, must stay."""
        stem = _stem(path)
        is_first = stem.endswith(f"/{FIRST_INSTANT}")
        return not self.is_ours or stem in self.stored or (is_first and stem not in self.outdated)


@dataclass(frozen=True, slots=True)
class RingFile:
    """A ring or a mark that is wrong. `body`: what it must be; None: it must not be there."""

    path: str
    what: str
    body: bytes | None


def hudi_ring_faults(view: Snapshot, live: Iterable[FileSlice]) -> Iterator[RingFile]:
    """What is wrong in Hudi's own place, in a table with `hudi_hashing_metadata`. What steps of the
    newest version put there, or take away, is left to them."""
    store, newest = view.store, load_newest(view.store) or view.manifest
    listed = {one.path for one in store.list(HASHING_FOLDER, recursive=True)}
    doing = {step.instant for step in newest.steps if step.kind.endswith("_rings")}
    for path in sorted(listed):
        if _stem(path).rpartition("/")[2] in set(newest.withdrawn) - doing:
            yield RingFile(path, "its resize was undone, and Hudi would place rows by it", None)
    try:
        rings = _rings(view, live)
    except CorruptError:  # a finding of its own
        return
    bodies = in_order_far(store, lambda ring: store.get(ring.path), rings)
    for ring, body in zip(rings, bodies, strict=True):
        is_done = ring.instant not in doing
        if (body is not None or is_done) and (what := _wrong(ring, body)):
            yield RingFile(ring.path, what, ring.encode())
        if ring.seq_no and is_done and ring.mark_path not in listed:
            yield RingFile(ring.mark_path, "the mark of a ring is missing", b"")


def _rings(view: Snapshot, live: Iterable[FileSlice]) -> list[HashingMetadata]:
    """The rings of partitions that have rows, or were resized."""
    stored = [*every_ring(view)]
    first = {one.partition_path for one in live} - {one.partition_path for one in stored}
    return [*stored, *(one.metadata for one in rings_of(view, sorted(first)))]


def _wrong(ring: HashingMetadata, body: bytes | None) -> str:
    """What is wrong with what lies at its place; "": nothing."""
    if body is None:
        return "the ring is missing: Hudi would place rows by another one"
    try:
        held = HashingMetadata.decode(body, ring.path)
    except CorruptError as error:
        return str(error)
    return "" if held == ring else "it is not the ring of its partition"


def _stem(path: str) -> str:
    return path.rpartition(".")[0]
