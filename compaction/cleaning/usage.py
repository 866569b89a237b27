"""Usage: what a table's bytes are for, by a listing of all its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from metatable.compaction.cleaning.garbage import Suspect, is_needed, left, suspects
from metatable.compaction.cleaning.kept_files import Kept
from metatable.compaction.cleaning.published import Published
from metatable.compaction.cleaning.signs import Signs
from metatable.metadata.commits.retention import seen_time
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.store import Store

__all__ = ["usage"]


def usage(store: Store, newest: Manifest) -> dict[str, int]:
    """Bytes of files, which add up to all of the table's:

    live           the newest version names them, or Hudi's timeline does
    kept           only older versions do that are kept, those of savepoints too
    reclaimable    nobody does: the next `clean` deletes them
    others         of writers at work, or not ours to judge

    It reads, and writes nothing. Two walks, and the roots and pages of the kept versions.
    """
    now = seen_time(store)
    total = sum(one.size_bytes for one in store.walk())
    kept = Kept.readable(store, newest, max(newest.oldest, 1))
    unnamed = suspects(store, kept, now)
    alone = replace(newest, pins={})
    not_live = suspects(store, Kept(store, alone, newest.version), now)
    signs = Signs.of(store, newest.options.lease_seconds, now)
    now_kept = kept.on(load_newest(store) or newest)
    garbage = left(now_kept, signs, unnamed).garbage
    published = Published.of(now_kept, signs)

    def weight(files: Iterable[Suspect]) -> int:
        return sum(one.size_bytes for one in files if not is_needed(one, signs, published))

    return {
        "live": total - weight(not_live),
        "kept": weight(not_live) - weight(unnamed),
        "reclaimable": weight(garbage),
        "others": weight(unnamed) - weight(garbage),
    }
