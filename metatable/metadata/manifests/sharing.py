"""Sharing: of many roots what they have in common is in memory once.

Next to each other, versions of a table have the same schema, options and, but for one or two, pages
with their references. Decoded each by itself a root takes some 25 KiB, and a busy day has tens of
thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace

from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.pages import PageRef

__all__ = ["shared", "sharing"]

_NAMES = tuple(one.name for one in fields(Manifest))


def sharing(roots: Iterable[Manifest]) -> Iterator[Manifest]:
    """Equal roots, of which each has what equals a part of the one before it from that one."""
    before: Manifest | None = None
    for root in roots:
        before = root if before is None else shared(root, before)
        yield before


def shared(root: Manifest, before: Manifest) -> Manifest:
    """An equal root, which has what equals a part of another one from that one."""
    held = {name: getattr(before, name) for name in _NAMES}
    same = {name: one for name, one in held.items() if one == getattr(root, name)}
    if "pages" not in same:
        same["pages"] = _pages(root, before)
    return replace(root, **same)


def _pages(root: Manifest, before: Manifest) -> Mapping[str, tuple[PageRef, ...]]:
    known = {page.identity: page for pages in before.pages.values() for page in pages}
    return {
        name: tuple(_one_of(page, known.get(page.identity)) for page in pages)
        for name, pages in root.pages.items()
    }


def _one_of(page: PageRef, held: PageRef | None) -> PageRef:
    return held if held is not None and held == page else page
