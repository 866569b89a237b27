"""Page updates: which HFiles the next version has, and in which pages.

A commit adds a page of its own. Whatever takes references away folds those that are left: pages
that are full stay as they are, the others become few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from metatable.metadata.commits.change import Draft
from metatable.metadata.manifests.pages import (
    PAGE_REFS,
    HFileRef,
    PageRef,
    Part,
    all_refs,
    read_page,
)
from metatable.storage.errors import ConflictError

__all__ = ["AddFiles", "FoldPages", "Forget", "Swap", "SwapFiles"]


@dataclass(frozen=True, slots=True)
class AddFiles:
    """New index files, by metadata partition; they are asked before all that are there."""

    files: Mapping[str, tuple[HFileRef, ...]]

    def apply(self, draft: Draft) -> None:
        for partition, refs in self.files.items():
            ours = [replace(ref, sequence=draft.version) for ref in refs]
            draft.list_files(partition, draft.pages.get(partition, ()), ours)


@dataclass(frozen=True, slots=True)
class Forget:
    """These pages and HFiles (by path) are named no more, with all that is in them."""

    pages: frozenset[str]
    hfiles: frozenset[str]

    def apply(self, draft: Draft) -> None:
        for partition, pages in draft.pages.items():
            left = [page for page in pages if page.path not in self.pages]
            refs = all_refs(draft.store, left)
            kept = [ref for ref in refs if ref.path not in self.hfiles]
            if len(left) < len(pages) or len(kept) < len(refs):
                _fold(draft, partition, left, kept)


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
    """Swaps of a compaction; the references are folded into few pages. Pages of which no reference
    changes stay."""

    swaps: tuple[Swap, ...]

    def apply(self, draft: Draft) -> None:
        for partition in sorted({swap.partition for swap in self.swaps}):
            pages = draft.pages.get(partition, ())
            refs = all_refs(draft.store, pages)
            left = self.within(partition, refs, draft.newest.options.buckets[partition])
            _fold(draft, partition, pages, left)

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
            _fold(draft, partition, pages, refs)


def _fold(draft: Draft, partition: str, pages: Sequence[PageRef], refs: Sequence[HFileRef]) -> None:
    """Pages with these references are the partition's. Full pages of which all references are among
    them are kept."""
    rest = {ref.identity: ref for ref in refs}
    left, kept = set(rest), []
    for page in pages:
        held = [ref.identity for ref in read_page(draft.store, page)]
        if len(held) == PAGE_REFS and left.issuperset(held):
            kept.append(page)
            for known in held:
                del rest[known]
    ordered = sorted(rest.values(), key=lambda ref: (ref.sequence, ref.lo, ref.path))
    draft.list_files(partition, kept, ordered)
