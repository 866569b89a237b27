"""Known commits: which completed instants on Hudi's timeline are ours.

Another engine that commits to the table leaves its instant on the timeline, and rows of which the
index knows nothing; whatever its time, it must be found. Every root therefore has the *sum* of the
data commits in its content, their number and the exclusive or of their hashes: a listing of the
timeline that has the same sum has the same instants, and nothing else is read. What was archived,
and so taken off the timeline, is taken out of the sum. Where the sums differ because somebody has
just committed, the versions since the base explain it; only where they do not (or an old root has
no sum) all versions that are kept are walked, once per process.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial, reduce

import numpy as np
import pyarrow as pa

from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.manifest import Manifest, version_path
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.storage.cache import shared
from metatable.storage.errors import CorruptError, MetatableError, StaleError
from metatable.storage.hashing import xxh64, xxh64_one
from metatable.storage.store import Store

__all__ = [
    "CommitSum",
    "back_from",
    "commits_back",
    "foreign_commits",
    "known_commits",
    "sum_of",
    "tells_all",
    "too_many",
]

ROOTS_AT_ONCE = 32
"""Small files; a disk and an object store answer so many in the time of one or two."""

_KNOWN_HASHES = 1 << 12
"""Instants whose hashes a process keeps: each commit sums those of the timeline."""


@dataclass(frozen=True, slots=True)
class CommitSum:
    """How many instants there are, and the exclusive or of their hashes (XXH64, seed 0)."""

    count: int
    digest: int

    @classmethod
    def of(cls, instants: Collection[str]) -> CommitSum:
        """The sum of these instants, each of which is named once."""
        if len(instants) <= _KNOWN_HASHES // 4:
            return cls(len(instants), reduce(operator.xor, map(_hash_of, instants), 0))
        hashes = xxh64(pa.array(list(instants), pa.string()), 0)
        return cls(len(instants), int(np.bitwise_xor.reduce(hashes, initial=np.uint64(0))))

    def plus(self, instants: Collection[str]) -> CommitSum:
        """The sum with these instants added."""
        more = CommitSum.of(instants)
        return CommitSum(self.count + more.count, self.digest ^ more.digest)

    def minus(self, instants: Collection[str]) -> CommitSum:
        """The sum without these instants, which are in it."""
        less = CommitSum.of(instants)
        return CommitSum(self.count - less.count, self.digest ^ less.digest)

    def encode(self) -> str:
        """As a root tells it: the count, a colon, the digest as 16 hexadecimal digits."""
        return f"{self.count}:{self.digest:016x}"

    @classmethod
    def decode(cls, text: str) -> CommitSum | None:
        """The sum as a root tells it; None for the root of a writer that kept none."""
        count, _, digest = text.partition(":")
        try:
            return cls(int(count), int(digest, 16))
        except ValueError:
            return None


@lru_cache(_KNOWN_HASHES)
def _hash_of(instant: str) -> int:
    return xxh64_one(instant.encode(), 0)


def sum_of(store: Store, newest: Manifest, instant: str, dropped: Collection[str]) -> str:
    """The sum of the version after `newest`: with the data commit `instant`, unless that is empty,
    without those that are undone or archived."""
    held = CommitSum.decode(newest.commits)
    if held is None:
        held = CommitSum.of(known_commits(store, newest) - set(newest.withdrawn))
    return held.plus([instant] if instant else []).minus(dropped).encode()


def known_commits(store: Store, manifest: Manifest) -> frozenset[str]:
    """Instants of all data commits that this version or a kept one before it has published, and of
    those that were there when the table was adopted.

    Those that were rolled back are among them, and those that were archived. Walks the versions
    that the process has not seen.
    """
    walked: list[Manifest] = []
    known: frozenset[str] | None = None
    for one in back_from(store, manifest):
        known = shared.get(_key(store, one))
        if known is not None:
            break
        walked.append(one)
    published = {one.instant for one in walked if one.instant}
    known = (known or frozenset()).union(published, manifest.adopted)
    return shared.offer(_key(store, manifest), known, 80 * len(known) + 200)


def tells_all(base: Manifest, done: Collection[str]) -> bool:
    """Whether these completed instants, whenever they were listed, are those of the base."""
    known = set(done).difference(base.withdrawn)
    return CommitSum.decode(base.commits) == CommitSum.of(_listed(known, base))


def foreign_commits(store: Store, base: Manifest, done: Collection[str]) -> list[str]:
    """Which of the instants `done`, listed after `base` was loaded, no version has published."""
    if CommitSum.decode(base.commits) == CommitSum.of(_listed(done, base)):
        return []
    newest = load_newest(store) or base
    since = {one.instant for one in back_from(store, newest, base.version)} - {""}
    # what was published since may be listed or not
    explained = since.union(_listed(done, newest)).difference(newest.withdrawn)
    if CommitSum.decode(newest.commits) == CommitSum.of(explained):
        return []
    strange = set(_listed(done, newest)) - known_commits(store, newest)
    cleaned = {one for one in strange if _is_of_cleaned(store, newest, one)}
    sure = strange - cleaned
    return sorted(sure | too_many(newest, explained - sure, cleaned))


def too_many(newest: Manifest, there: Collection[str], unsure: Collection[str]) -> set[str]:
    """Which of the completed instants that are `there` the version's content does not have, by its
    sum: all that are `unsure`, or one of them; none where the sum does not tell."""
    held, told = CommitSum.decode(newest.commits), CommitSum.of(there)
    if unsure and told.minus(unsure) == held:
        return set(unsure)
    return {one for one in unsure if told.minus([one]) == held}


def back_from(store: Store, newest: Manifest, until: int = 0) -> Iterator[Manifest]:
    """The newest version and those before it that it keeps, back to the one after `until`.

    Raises CorruptError where one is lost. From afar the more are read together the further back.
    """
    manifest, held, count = newest, dict[int, Manifest | MetatableError](), 1
    while manifest.version > until:
        yield manifest
        before = manifest.parent
        if before <= until or not newest.keeps(before):
            return
        if before not in held:
            first = max(until, newest.oldest - 1, before - count)
            some = range(before, min(first, before - 1), -1)
            read = store.together([partial(_version, store, newest, one) for one in some])
            held = dict(zip(some, read, strict=True))
            count = min(2 * count, ROOTS_AT_ONCE) if store.is_distant else 1
        found = held[before]
        if isinstance(found, StaleError):
            later = load_newest(store)
            if later is not None and not later.keeps(before):
                return  # cleaned meanwhile
            raise CorruptError("a version that is kept is lost", **found.facts) from found
        if isinstance(found, MetatableError):
            raise found
        manifest = found


def _version(store: Store, newest: Manifest, version: int) -> Manifest | MetatableError:
    """Its root, or why it cannot be had: it may be that nobody asks for it."""
    try:
        return load_version(store, version, newest.oldest)
    except MetatableError as error:
        return error


def commits_back(store: Store, newest: Manifest) -> Iterator[tuple[int, str]]:
    """(version, instant) of the data commits in the newest version's content, the last one first,
    as far back as versions are kept: those that were undone are none of them. The further back, the
    more roots are read together."""
    last, held, count = newest.last_commit, dict[int, bytes | None](), 1
    while last is not None:
        yield last
        before = last[0] - 1
        if not newest.keeps(before):
            return
        if before >= newest.oldest and before not in held:  # else a savepoint's copy counts
            held = _roots_behind(store, before, min(count, before - newest.oldest + 1))
            count = min(2 * count, ROOTS_AT_ONCE)
        raw = held.get(before)
        if raw is None:
            last = load_version(store, before, newest.oldest).last_commit
        else:
            last = Manifest.decode(raw, version_path(before)).last_commit


def _roots_behind(store: Store, version: int, count: int) -> dict[int, bytes | None]:
    """The root of this version, and so many in all with those before it."""
    some = range(version, version - max(count, 1), -1)
    raw = store.together([partial(store.get, version_path(one)) for one in some])
    return dict(zip(some, raw, strict=True))


def _listed(done: Collection[str], manifest: Manifest) -> list[str]:
    """The instants that are not archived; what late writers leave below them does not matter."""
    return [one for one in done if one >= manifest.archived]


def _is_of_cleaned(store: Store, newest: Manifest, instant: str) -> bool:
    """Whether a version that is not kept any more may have published it: it is not too late for
    that, and what we wrote for the timeline is there."""
    may_be = newest.oldest > 1 and instant <= newest.latest_instant
    may_be = may_be and instant not in newest.compactions  # it waits: a lost one carried it out
    return may_be and store.size(staged_path(instant)) is not None


def _key(store: Store, manifest: Manifest) -> tuple[str, str, int, str]:
    return "known commits", store.uri, manifest.version, manifest.nonce
