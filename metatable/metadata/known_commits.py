"""Known commits: which completed instants on Hudi's timeline are ours.

Another engine that commits to the table leaves its instant on the timeline, and rows of which the
index knows nothing; whatever its time, it must be found. Every root therefore has the *sum* of the
data commits in its content, their number and the exclusive or of their hashes: a listing of the
timeline that has the same sum has the same instants, and nothing else is read. Where the sums
differ (a commit was completed meanwhile, or an old root has none), each instant of ours shows by
its staged commit, one listing; the versions are walked only for those that lack it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.metadata.manifest import COMMITS, Manifest, load_version
from metatable.storage.cache import cached
from metatable.storage.hashing import xxh64
from metatable.storage.store import Store

__all__ = ["CommitSum", "foreign_commits", "known_commits", "with_sum"]


@dataclass(frozen=True, slots=True)
class CommitSum:
    """How many instants there are, and the exclusive or of their hashes (XXH64, seed 0)."""

    count: int
    digest: int

    @classmethod
    def of(cls, instants: Collection[str]) -> CommitSum:
        hashes = xxh64(pa.array(list(instants), pa.string()), 0)
        return cls(len(instants), int(np.bitwise_xor.reduce(hashes, initial=np.uint64(0))))

    def plus(self, instant: str) -> CommitSum:
        """With one more."""
        one = CommitSum.of([instant])
        return CommitSum(self.count + 1, self.digest ^ one.digest)

    def encode(self) -> str:
        return f"{self.count}:{self.digest:016x}"

    @classmethod
    def decode(cls, text: str) -> CommitSum | None:
        """None for the root of a writer that kept none."""
        count, _, digest = text.partition(":")
        try:
            return cls(int(count), int(digest, 16))
        except ValueError:
            return None


def with_sum(store: Store, content: Manifest, instant: str) -> str:
    """The sum of a version with this content and, unless it is empty, one commit more."""
    held = CommitSum.decode(content.commits)
    if held is None:
        held = CommitSum.of(known_commits(store, content) - set(content.withdrawn))
    return (held.plus(instant) if instant else held).encode()


def known_commits(store: Store, manifest: Manifest) -> frozenset[str]:
    """Instants of all data commits that this version or one before it has published.

    Those that were rolled back are among them. Walks the versions; kept by the process.
    """
    return cached(
        ("known commits", store.uri, manifest.version, manifest.nonce),
        lambda: _walk(store, manifest),
        lambda instants: 80 * len(instants) + 200,
    )


def foreign_commits(store: Store, manifest: Manifest, done: Collection[str]) -> list[str]:
    """Of the completed instants `done` those that no version up to this one has published."""
    if CommitSum.decode(manifest.commits) == CommitSum.of(done):
        return []
    staged = {one.name.removesuffix(".json") for one in store.list(COMMITS)}
    strange = set(done) - staged
    return sorted(strange - known_commits(store, manifest)) if strange else []


def _walk(store: Store, manifest: Manifest) -> frozenset[str]:
    instants = {manifest.instant}
    while manifest.parent:
        manifest = load_version(store, manifest.parent)
        instants.add(manifest.instant)
    return frozenset(instants - {""})
