"""Finds the version that a call reads: the newest, one by its number, or the one of a moment."""

from __future__ import annotations

from datetime import date
from numbers import Integral

from metatable.arguments import one_of
from metatable.data.hoodie.timeline import instant_of
from metatable.metadata.manifests.versions import is_undone, load_version, newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.description import version_as_of
from metatable.storage.errors import NotFoundError, StaleError, UsageError
from metatable.storage.store import Store

__all__ = ["snapshot_at"]


def snapshot_at(store: Store, version: int | None, as_of: str | date | None = None) -> Snapshot:
    """A version that is kept, by its number or by a moment; without either the newest.

    Raises UsageError for what is no number and no moment, or for both; NotFoundError for a version
    that never was; StaleError for one that is not kept any more, or whose last commit was undone:
    its files may be gone, and whoever reads it sees rows that never were.
    """
    newest = newest_of(store)
    if as_of is not None:
        one_of(version=version, as_of=as_of)
        version = version_as_of(store, newest, instant_of(as_of))
    if version is None:
        return Snapshot(store, newest)
    if isinstance(version, bool) or not isinstance(version, Integral):
        raise UsageError("a version is a number", found=version, expected="an int, or None")
    version = int(version)
    if not 0 < version <= newest.version:
        raise NotFoundError(
            "no such version", found=version, expected=f"1 to {newest.version}", path=store.uri
        )
    if version == newest.version:
        return Snapshot(store, newest)
    if not newest.keeps(version):
        raise StaleError(
            "this version is not kept any more",
            found=version,
            expected=f"{newest.oldest} to {newest.version}",
            path=store.uri,
        )
    asked = load_version(store, version, newest.oldest)
    last = asked.last_commit[1] if asked.last_commit else ""
    if last in newest.withdrawn or is_undone(store, newest, version):
        raise StaleError(
            "this version was undone: name one before it",
            found=version,
            instant=last,
            path=store.uri,
        )
    return Snapshot(store, asked)
