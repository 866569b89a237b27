"""What a table is and was: told from its manifests and metadata alone, no data file is read."""

from __future__ import annotations

from collections.abc import Iterator

from metatable.metadata.known_commits import back_from
from metatable.metadata.manifest import Manifest, load_version
from metatable.metadata.snapshot import Snapshot
from metatable.results import CommitInfo, Description, SavepointInfo
from metatable.storage.errors import StaleError, UsageError
from metatable.storage.store import Store

__all__ = ["describe", "savepoints", "version_as_of", "versions"]


def describe(snapshot: Snapshot) -> Description:
    """What this version is. Reads manifest pages, `files` and one column of `column_stats`."""
    files = snapshot.slices()
    options, manifest = snapshot.options, snapshot.manifest
    counts = snapshot.row_counts(files)
    return Description(
        uri=snapshot.store.uri,
        name=options.name,
        version=snapshot.version,
        instant=manifest.last_commit[1] if manifest.last_commit else "",
        key=options.key,
        partition_by=options.partition_by,
        ordering=options.ordering,
        index=options.index,
        key_scope=options.key_scope,
        columns={field.name: str(field.type) for field in snapshot.schema},
        file_groups=len(files),
        partitions=len(files.folders),
        rows=int(counts.clip(0).sum()),
        data_bytes=int(files.sizes.sum()),
        metadata={name: _partition_facts(snapshot, name) for name in sorted(manifest.pages)},
        oldest_version=max(manifest.oldest, 1),
    )


def _partition_facts(snapshot: Snapshot, name: str) -> dict[str, int]:
    refs = snapshot.refs(name)
    files = {ref.path: ref for ref in refs}.values()
    return {
        "buckets": int(snapshot.options.buckets[name]),
        "hfiles": len(files),
        "entries": sum(ref.entry_count for ref in files),
        "tombstones": sum(ref.tombstone_count for ref in files),
        "bytes": sum(ref.size_bytes for ref in files),
    }


def versions(store: Store, newest: Manifest) -> Iterator[CommitInfo]:
    """This version and those before it that it keeps, newest first; each is read when it is asked
    for."""
    return map(_info, back_from(store, newest))


def savepoints(newest: Manifest) -> list[SavepointInfo]:
    """Those of this (newest) version, by version."""
    held = [
        SavepointInfo(name, one.version, one.instant, one.time_ms, one.note)
        for name, one in newest.pins.items()
    ]
    return sorted(held, key=lambda one: (one.version, one.name))


def version_as_of(store: Store, newest: Manifest, instant: str) -> int:
    """The version that holds all commits up to this instant, as Hudi has it, and no other one.

    Walks back from the newest commit. Raises StaleError where that version is not kept any more,
    UsageError where a slow commit was published behind a faster one, so that none is.
    """
    for pin in newest.pins.values():
        if pin.instant == instant:
            return pin.version
    last = newest.last_commit
    while last is not None and last[1] > instant and newest.keeps(last[0] - 1):
        last = load_version(store, last[0] - 1).last_commit
    if last is None:
        return 1
    if last[1] > instant or not newest.keeps(last[0]):
        raise StaleError(
            "what was there then is not kept any more",
            found=instant,
            expected=f"{last[1]} or later",
            path=store.uri,
        )
    found = load_version(store, last[0])
    if found.latest_instant > instant and _holds_later(store, newest, last, instant):
        raise UsageError(
            "commits were not published in the order of their instants then: name a version",
            found=instant,
            version=last[0],
        )
    return last[0]


def _holds_later(store: Store, newest: Manifest, last: tuple[int, str], instant: str) -> bool:
    """Whether a commit that came before this one has a later instant than the one asked for."""
    held: tuple[int, str] | None = last
    while held is not None and newest.keeps(held[0] - 1):
        if held[1] > instant:
            return True
        held = load_version(store, held[0] - 1).last_commit
    return held is not None and held[1] > instant


def _info(manifest: Manifest) -> CommitInfo:
    return CommitInfo(
        version=manifest.version,
        operation=manifest.operation,
        instant=manifest.instant,
        time_ms=manifest.time_ms,
        summary=dict(manifest.summary),
    )
