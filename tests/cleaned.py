"""What a cleaned table may hold: named by a kept version or Hudi's timeline, and nothing else."""

from __future__ import annotations

import re

from metatable.data.hoodie.timeline import COMPACTION, Instant, Timeline, filed_as
from metatable.data.hoodie.undo_metadata import UNDOING
from metatable.metadata.manifests.home import COMMITS, HOME
from metatable.metadata.manifests.manifest import Manifest, saved_path
from metatable.metadata.manifests.pages import HFileRef, read_page
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store

PUBLIC = re.compile(r"\.hoodie/hoodie\.properties|(.+/)?\.hoodie_partition_metadata")
"""Of Hudi's: these stay."""


def strange_files(store: Store) -> list[str]:
    """Files that are too many, and those that are missing."""
    newest = load_newest(store)
    assert newest is not None
    listed = {one.path for one in store.list("", recursive=True)}
    found = {path for path in listed if not PUBLIC.fullmatch(path)}
    return sorted(found ^ _named(store, newest, listed))


def _undone(store: Store, newest: Manifest) -> set[int]:
    """Versions that hold a commit that was undone."""
    undone: set[int] = set()
    for version in range(max(newest.oldest, 1), newest.version + 1):
        root = load_version(store, version, newest.oldest)
        if root.restored_at == version:
            undone |= set(range(root.summary.get("undone_version", version), version))
    return undone


def _is_copied(store: Store, manifest: Manifest, listed: set[str]) -> bool:
    """Whether a savepoint that was dropped has left the root's second copy: it goes with the
    version, of which others may come."""
    saved = saved_path(manifest.version)
    return saved in listed and store.get(saved) == store.get(manifest.path)


def _refs(store: Store, manifest: Manifest, path: str) -> tuple[HFileRef, ...]:
    [page] = [page for page in manifest.page_files if page.path == path]
    return read_page(store, page)


def _named(store: Store, newest: Manifest, listed: set[str]) -> set[str]:
    undone = _undone(store, newest)
    named = {f"{HOME}/clock"}
    if newest.version > 1:  # whoever creates a table puts no hint
        named.add(f"{HOME}/manifest/latest")
    pinned = {one.version for one in newest.pins.values()}
    for version in sorted(pinned.union(range(max(newest.oldest, 1), newest.version + 1))):
        manifest = (
            newest if version == newest.version else load_version(store, version, newest.oldest)
        )
        if version in pinned or _is_copied(store, manifest, listed):
            named.add(saved_path(version))
        if version >= newest.oldest:
            named.add(manifest.path)
        snapshot = Snapshot(store, manifest)
        held = {page.path for page in manifest.page_files}
        if version in undone:  # of which something may be left
            held |= {ref.path for path in held & listed for ref in _refs(store, manifest, path)}
            held |= {ref.path for ref in manifest.own_refs}
            named |= held & listed
            continue
        named |= held
        named |= {ref.path for name in manifest.pages for ref in snapshot.refs(name)}
        named |= {*snapshot.slices().all_files()[0].to_pylist()}
    for one in Timeline(store).load():
        assert one.state == "completed", one
        staged = "json" if one.changes_data else one.action
        filed = filed_as(one.action)
        action = "" if filed == "commit" else f".{filed}"
        done = "commit" if one.action == COMPACTION else filed
        named |= {f".hoodie/{one.time}.{done}"}
        record = f"{COMMITS}/{one.time}.{staged}"
        if not (one.time in newest.adopted or (_was_theirs(one, newest) and record not in listed)):
            named |= {record}
        named |= {f".hoodie/{one.time}{action}.inflight"}
        named |= set() if one.action == "savepoint" else {_requested(one.time, filed)}
    return named


def _was_theirs(one: Instant, newest: Manifest) -> bool:
    """What has undone something may be older than the adoption: it is no commit to be told of."""
    return bool(newest.adopted) and one.action in UNDOING


def _requested(time: str, action: str) -> str:
    return f".hoodie/{time}.{action}.requested"
