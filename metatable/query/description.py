"""What a table is and was: told from its manifests and metadata alone, no data file is read."""

from __future__ import annotations

from collections.abc import Iterator

from metatable.metadata.known_commits import back_from
from metatable.metadata.manifest import Manifest
from metatable.metadata.snapshot import Snapshot
from metatable.results import CommitInfo, Description
from metatable.storage.store import Store

__all__ = ["describe", "versions"]


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


def _info(manifest: Manifest) -> CommitInfo:
    return CommitInfo(
        version=manifest.version,
        operation=manifest.operation,
        instant=manifest.instant,
        time_ms=manifest.time_ms,
        summary=dict(manifest.summary),
    )
