"""Pages: which HFiles a version has of a metadata partition, as lists that versions share.

    pages/<owner>-<id>.json              immutable list of at most 256 HFile references, sealed

A root names its pages with their checksums, oldest first. Pages of few references, as small commits
make them, lie in the root itself: that is a file less to put, and one less to fetch. What a
reference tells of an HFile holds for the places [lo, hi) that no other has taken over. Fields:
metadata/FORMAT.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from metatable.data.stored_fields import NATURAL, decode_fields, encode_fields, many, stored
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.sealed import checksum, seal, unseal
from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = [
    "PAGE_REFS",
    "ROOT_KEY_BYTES",
    "ROOT_REFS",
    "HFileRef",
    "PageRef",
    "Part",
    "all_refs",
    "border",
    "decoded_page",
    "made_pages",
    "read_page",
]

PAGE_REFS = 256
"""A page is read whole: this bounds it to some 100 kB."""

ROOT_REFS = 64
"""How many references a root holds itself: every version puts them again, and whoever asks for the
newest one reads them. This bounds them to some 30 kB, where keys are not long."""

ROOT_KEY_BYTES = 16 << 10
"""How many bytes of keys these have at most: an index may keep keys as they are, and long ones."""


@dataclass(frozen=True, slots=True)
class HFileRef:
    """One HFile as a version sees it: of its places, those in [lo, hi) are still live."""

    path: str
    lo: int = field(metadata={"kind": NATURAL})
    hi: int = field(metadata={"kind": NATURAL})
    sequence: int
    """The version that published it: the newest wins by this, never by instant."""
    instant: str
    entry_count: int
    tombstone_count: int
    first_key: bytes
    last_key: bytes
    size_bytes: int
    checksum: str
    space: int = 0
    """How many places the partition has (`data/bucket_functions.py`). 0, in pages of format 1: `lo`
    and `hi` are numbers of buckets."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def encode(self) -> dict[str, Any]:
        """As JSON values."""
        return encode_fields(self)

    @classmethod
    def decode(cls, body: Any, path: str = "") -> HFileRef:
        """Raises CorruptError, with the path of the file that has it."""
        return decode_fields(cls, body, path, "reference")

    def placed(self, space: int, buckets: int) -> HFileRef:
        """This reference with `lo` and `hi` as places. Raises CorruptError where they are places of
        another space."""
        if self.space == space:
            return self
        if self.space:
            raise CorruptError(
                "reference is in another space", path=self.path, expected=space, found=self.space
            )
        lo, hi = (border(space, buckets, bucket) for bucket in (self.lo, self.hi))
        return replace(self, lo=lo, hi=hi, space=space)

    @property
    def identity(self) -> tuple[str, int, int, int, int]:
        """What it is told from other references by."""
        return self.path, self.lo, self.hi, self.sequence, self.space

    def covers(self, lo: int, hi: int) -> bool:
        """Whether any of its live places are in [lo, hi)."""
        return self.lo < hi and lo < self.hi

    def without(self, lo: int, hi: int) -> list[HFileRef]:
        """What stays live of this reference when places [lo, hi) are taken over."""
        left = replace(self, hi=min(self.hi, lo))
        right = replace(self, lo=max(self.lo, hi))
        return [one for one in (left, right) if one.lo < one.hi]


@dataclass(frozen=True, slots=True)
class Part:
    """What an HFile holds in places [lo, hi)."""

    path: str
    lo: int
    hi: int
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, ref: HFileRef, lo: int, hi: int) -> Part:
        """The part of this HFile that is live there."""
        return cls(ref.path, max(ref.lo, lo), min(ref.hi, hi))


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page, a list of HFile references, as a root has it: the name of a file, or the list."""

    path: str
    """Empty where the root has the list."""
    checksum: str
    ref_count: int
    newest_sequence: int
    refs: tuple[HFileRef, ...] = stored(many(HFileRef, "reference"), default=())
    """Empty where it is a file."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.refs) or len(self.refs) not in (0, self.ref_count):
            raise ValueError("a page is a file, or as many references as it says")

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for pages that list the same."""
        return (self.path,) if self.path else tuple(ref.identity for ref in self.refs)


@dataclass(frozen=True, slots=True)
class _Page:
    """What a page file holds."""

    partition: str
    refs: tuple[HFileRef, ...] = stored(many(HFileRef, "reference"))
    unknown: Mapping[str, Any] = field(default_factory=dict)


def border(space: int, buckets: int, bucket: int) -> int:
    """The first place of a bucket: place p is in bucket `p * buckets // space`."""
    return -(-space * bucket // buckets)


def made_pages(
    partition: str, refs: Sequence[HFileRef], prefix: str, others: Iterable[PageRef]
) -> tuple[tuple[PageRef, ...], dict[str, bytes]]:
    """New pages holding `refs`, and what has to be put for them before a root is that
    has them and `others`; `prefix` tells their owner."""
    if refs and _has_room([*refs, *(ref for page in others for ref in page.refs)]):
        return (PageRef("", "", len(refs), _newest(refs), tuple(refs)),), {}
    chunks = [refs[start : start + PAGE_REFS] for start in range(0, len(refs), PAGE_REFS)]
    made = [_made_page(partition, chunk, prefix) for chunk in chunks]
    return tuple(page for page, _ in made), {page.path: raw for page, raw in made}


def _has_room(refs: Sequence[HFileRef]) -> bool:
    """Whether a root may hold all of these."""
    keys = sum(len(ref.first_key) + len(ref.last_key) for ref in refs)
    return len(refs) <= ROOT_REFS and keys <= ROOT_KEY_BYTES


def read_page(store: Store, page: PageRef) -> tuple[HFileRef, ...]:
    """The references of one page; of a file kept in the process's cache, for it never changes."""
    return page.refs or cached(
        ("page", store.uri, page.path, page.checksum),
        lambda: _read_page(store, page),
        lambda refs: 600 * len(refs) + 200,
    )


def all_refs(store: Store, pages: Iterable[PageRef]) -> list[HFileRef]:
    """The references of many pages, newest first."""
    read = store.together([partial(read_page, store, page) for page in pages])
    refs = [ref for held in read for ref in held]
    return sorted(refs, key=lambda ref: (-ref.sequence, ref.lo, ref.path))


def _made_page(partition: str, refs: Sequence[HFileRef], prefix: str) -> tuple[PageRef, bytes]:
    raw = seal(encode_fields(_Page(partition, tuple(refs))))
    path = f"{HOME}/pages/{prefix}{uuid.uuid4().hex}.json"
    return PageRef(path, checksum(raw), len(refs), _newest(refs)), raw


def _newest(refs: Sequence[HFileRef]) -> int:
    return max(ref.sequence for ref in refs)


def _read_page(store: Store, page: PageRef) -> tuple[HFileRef, ...]:
    raw = store.fetch(page.path)
    if checksum(raw) != page.checksum:
        raise CorruptError(
            "page is not the one that the manifest names",
            path=page.path,
            expected=page.checksum,
            found=checksum(raw),
        )
    return decoded_page(raw, page.path)


def decoded_page(raw: bytes, path: str) -> tuple[HFileRef, ...]:
    """The references of a page, from its bytes. Raises CorruptError."""
    return decode_fields(_Page, unseal(raw, path), path, "page").refs
