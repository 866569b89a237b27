"""Published: of which instants anything tells that a version has published them.

Hudi's timeline does, as long as it is whole. Hudi's own tools may have archived it, or files of it
are lost: then the versions that are kept tell of their own commits, and the newest one's sum of
commits (`CommitSum`) whether those are all. Where they are not, nobody can tell an instant that was
never published from one that has rows: it is no orphan, and what lies ready for it stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.signs import Signs
from metatable.data.hoodie.timeline import FAR, next_instant
from metatable.metadata.commits.known_commits import tells_all
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.manifest import Manifest
from metatable.storage import clock

__all__ = ["Published"]


@dataclass(frozen=True)
class Published:
    """What the timeline, and the versions that are kept, tell of instants."""

    newest: Manifest
    latest: str
    """The latest instant that can be an orphan's. New instants are later than those withdrawn, so
    that of a file from far in the future (nobody's, or of a clock that was wrong) must not be."""
    first: str
    """The first data commit on Hudi's timeline: its readers take what is older for committed."""
    known: frozenset[str] = field(repr=False)
    """Instants that were published, or wait to be, or are withdrawn."""
    counted: frozenset[str] = field(repr=False)
    """Of these, data commits in the newest version's content that are not archived."""
    is_whole: bool
    """Whether no more commits are in its content than these."""

    @classmethod
    def of(cls, kept: Kept, signs: Signs) -> Published:
        """`kept`: the newest version's, loaded after the signs."""
        newest, roots = kept.newest, [*kept.pinned, *kept.roots]
        last = (root.last_commit[1] for root in roots if root.last_commit is not None)
        told = signs.done.union((root.instant for root in roots), last, newest.adopted) - {""}
        made = told - newest.compactions.keys() - kept.withdrawn
        return cls(
            newest=newest,
            latest=max(newest.latest_instant, next_instant(clock.now() + FAR)),
            first=min(signs.done, default=""),
            known=told.union(newest.compactions, kept.withdrawn),
            counted=frozenset(one for one in made if one >= newest.archived),
            is_whole=tells_all(newest, made),
        )

    def is_orphan(self, instant: str) -> bool:
        """Whether no version has ever published it. A log that is damaged tells no instant, and is
        nobody's."""
        return self.is_whole and self._is_unknown(instant) and instant <= self.latest

    def is_unsure(self, instant: str) -> bool:
        """Whether nothing tells if a version has published it."""
        return not self.is_whole and self._is_unknown(instant)

    def needs(self, path: str, instant: str) -> bool:
        """Whether what is called by an instant, and lies at `path`, must stay: the last twin of a
        commit that counts, what is there of a plan that waits, or nobody can tell."""
        is_twin = instant in self.counted and path == staged_path(instant)
        return is_twin or instant in self.newest.compactions or self.is_unsure(instant)

    def ends(self, instant: str) -> bool:
        """Whether the timeline is not archived past a data file of this instant, which is left:
        committed, as Hudi's readers and `repair` would take it then, it is not, or may not be."""
        if self.is_unsure(instant):
            return instant >= self.first
        return instant in self.newest.withdrawn or self.is_orphan(instant)

    def _is_unknown(self, instant: str) -> bool:
        return bool(instant) and instant >= self.newest.archived and instant not in self.known
