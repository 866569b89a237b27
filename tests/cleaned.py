"""What a cleaned table may hold: named by a kept version or Hudi's timeline, and nothing else."""

from __future__ import annotations

import re

from metatable.data.timeline import Timeline
from metatable.metadata.manifest import (
    COMMITS,
    HOME,
    Manifest,
    load_newest,
    load_version,
    saved_path,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage.store import Store

PUBLIC = re.compile(r"\.hoodie/hoodie\.properties|(.+/)?\.hoodie_partition_metadata")
"""Of Hudi's: these stay."""


def strange_files(store: Store) -> list[str]:
    """Files that are too many, and those that are missing."""
    newest = load_newest(store)
    assert newest is not None
    listed = {one.path for one in store.list("", recursive=True)}
    return sorted({path for path in listed if not PUBLIC.fullmatch(path)} ^ _named(store, newest))


def _named(store: Store, newest: Manifest) -> set[str]:
    named = {f"{HOME}/clock", f"{HOME}/manifest/latest"}
    pinned = {one.version for one in newest.pins.values()}
    for version in sorted(pinned.union(range(max(newest.oldest, 1), newest.version + 1))):
        manifest = newest if version == newest.version else load_version(store, version)
        if version in pinned:
            named.add(saved_path(version))
        if version >= newest.oldest:
            named.add(manifest.path)
        if manifest.instant in newest.withdrawn and version > newest.oldest:
            continue  # undone, and all that it was
        snapshot = Snapshot(store, manifest)
        named |= {page.path for pages in manifest.pages.values() for page in pages}
        named |= {ref.path for name in manifest.pages for ref in snapshot.refs(name)}
        named |= {one.path for one in snapshot.slices()}
    for one in Timeline(store).load():
        assert one.state == "completed", one
        staged = "json" if one.changes_data else one.action
        action = "" if one.action == "commit" else f".{one.action}"
        named |= {f"{COMMITS}/{one.time}.{staged}", f".hoodie/{one.time}.{one.action}"}
        named |= {f".hoodie/{one.time}{action}.inflight"}
        named |= set() if one.action == "savepoint" else {_requested(one.time, one.action)}
    return named


def _requested(time: str, action: str) -> str:
    return f".hoodie/{time}.{action}.requested"
