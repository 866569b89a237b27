"""Known commits: which completed instants on Hudi's timeline are ours.

Another engine that commits to the table leaves its instant on the timeline, and rows of which the
index knows nothing; whatever its time, it must be found. Every root therefore has the *sum* of the
data commits in its content, their number and the exclusive or of their hashes: a listing of the
timeline that has the same sum has the same instants, and nothing else is read. Where the sums
differ because somebody has just committed, the versions since the base explain it; only where
they do not (or an old root has no sum) all versions are walked, once a process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.metadata.manifest import Manifest, load_newest, load_version
from metatable.storage.cache import shared
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

    Those that were rolled back are among them. Walks the versions that the process has not seen.
    """
    walked: list[Manifest] = []
    known: frozenset[str] | None = None
    for one in _back_from(store, manifest):
        known = shared.get(_key(store, one))
        if known is not None:
            break
        walked.append(one)
    known = (known or frozenset()) | {one.instant for one in walked if one.instant}
    return shared.offer(_key(store, manifest), known, 80 * len(known) + 200)


def foreign_commits(store: Store, base: Manifest, done: Collection[str]) -> list[str]:
    """Of the instants `done`, listed after `base` was loaded, those that no version published."""
    expected = CommitSum.decode(base.commits)
    if expected == CommitSum.of(done):
        return []
    newest = load_newest(store) or base
    since = set()
    for one in _back_from(store, newest):
        if one.version <= base.version:
            break
        since.add(one.instant)
    if expected == CommitSum.of(set(done) - since):
        return []
    return sorted(set(done) - known_commits(store, newest))


def _back_from(store: Store, manifest: Manifest) -> Iterator[Manifest]:
    """This version and all before it."""
    yield manifest
    while manifest.parent:
        manifest = load_version(store, manifest.parent)
        yield manifest


def _key(store: Store, manifest: Manifest) -> tuple[str, str, int, str]:
    return "known commits", store.uri, manifest.version, manifest.nonce
