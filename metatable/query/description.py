"""What a table is and was: its description, versions and savepoints. They are told from manifests
and metadata alone; no data file is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from metatable.data.hoodie.timeline import PLANNED, Timeline, to_the_millisecond
from metatable.metadata.commits.known_commits import back_from, commits_back
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_version, newest_of
from metatable.metadata.partitions.overlap import mean_depths
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.buckets import bucket_facts
from metatable.results import CommitInfo, Description, SavepointInfo
from metatable.storage.errors import StaleError, UsageError
from metatable.storage.store import Store

__all__ = ["describe", "savepoints", "version_as_of", "versions"]


def describe(snapshot: Snapshot) -> Description:
    """What this version is. Reads manifest pages, `files`, and statistics of the key and of
    the columns that files are cut by."""
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
        rows=None if files.has_logs.any() else int(counts.clip(0).sum()),
        data_bytes=files.total_bytes,
        table_type=options.table_type,
        log_files=files.log_count,
        log_bytes=int(files.logs_of_each()[0].sum()),
        metadata={name: _partition_facts(snapshot, name) for name in sorted(manifest.pages)},
        oldest_version=max(manifest.oldest, 1),
        buckets=bucket_facts(snapshot) if options.resizes else None,
        cluster_by=options.cluster_by,
        depths=mean_depths(snapshot, options.cluster_by),
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
    """This version and those before it that it keeps, newest first, and behind them those that
    savepoints alone keep; each is read when it is asked for."""
    oldest = newest.version
    for one in back_from(store, newest):
        oldest = one.version
        yield _info(one)
    for version in sorted({one.version for one in newest.pins.values()}, reverse=True):
        if version < oldest:
            with suppress(StaleError):  # it was dropped meanwhile, and cleaned
                yield _info(load_version(store, version, newest.oldest))


def savepoints(newest: Manifest) -> list[SavepointInfo]:
    """The savepoints that this (newest) version names, by version."""
    held = [
        SavepointInfo(name, one.version, one.instant, one.time_ms, one.note)
        for name, one in newest.pins.items()
    ]
    return sorted(held, key=lambda one: (one.version, one.name))


def version_as_of(store: Store, newest: Manifest, instant: str) -> int:
    """The version that holds all commits up to this instant (of 17 digits), as Hudi has it, and
    no other one.

    Walks back from the newest commit. Raises StaleError where that version is not kept any more,
    UsageError where a slow commit was published behind a faster one, so that none is.
    """
    for pin in newest.pins.values():
        if to_the_millisecond(pin.instant) == instant:
            return pin.version
    commits, later = commits_back(store, newest), list[str]()
    found = None
    for one in commits:
        if one[1] <= instant:
            found = one
            break
        later.append(one[1])
    version = _kept_version(store, newest, found)
    if version is None:
        raise StaleError(
            "what was there then is not kept any more",
            found=instant,
            expected=f"of version {newest.oldest} or later",
            path=store.uri,
        )
    in_order = load_version(store, version, newest.oldest).latest_instant <= instant
    if not in_order and (
        any(before > instant for _, before in commits)
        or _holds_later(store, newest, instant, later)
    ):
        raise UsageError(
            "commits were not published in the order of their instants then: name a version",
            found=instant,
            version=version,
        )
    return version


def _holds_later(store: Store, newest: Manifest, instant: str, later: Collection[str]) -> bool:
    """Whether the version of this instant may hold a commit of a later one that has come before
    what is kept, as Hudi's timeline tells, if that reaches so far back. `later`: commits that have
    come after the version."""
    if newest.oldest <= 1:
        return False
    if instant < newest.archived:
        return True
    done = (one for one in Timeline(store).load() if one.changes_data and one.time > instant)
    held = {one.time for one in done if one.action not in PLANNED}
    held -= {*later, *newest.withdrawn}
    if held:  # some may have come since
        held -= {one.instant for one in back_from(store, newest_of(store), newest.version)}
    return bool(held)


def _kept_version(store: Store, newest: Manifest, commit: tuple[int, str] | None) -> int | None:
    """The version that this commit has made, or the oldest that is kept, where that is a service's
    behind it, or, of no commit, comes before the first one. None: neither is kept."""
    if commit is not None and newest.keeps(commit[0]):
        return commit[0]
    oldest = load_version(store, max(newest.oldest, 1), newest.oldest)
    return oldest.version if oldest.last_commit == commit else None


def _info(manifest: Manifest) -> CommitInfo:
    return CommitInfo(
        version=manifest.version,
        operation=manifest.operation,
        instant=manifest.instant,
        time_ms=manifest.time_ms,
        summary=dict(manifest.summary),
        note=dict(manifest.note),
    )
