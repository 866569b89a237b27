"""A published commit whose staged file was lost before it came onto Hudi's timeline.

Without it nobody could write to the table again. What Hudi's readers need of it stands in the index
entries of the version that published it: the files, their sizes and rows, and from the version
before which slices they replaced, and which file groups are gone. What nobody reads is left at
zero: how many rows came new.
"""

from __future__ import annotations

from metatable.data.commit_metadata import CommitMetadata, WriteStat
from metatable.metadata.manifest import Manifest, load_version
from metatable.metadata.snapshot import Snapshot
from metatable.storage.store import Store

__all__ = ["rebuilt_commit"]


def rebuilt_commit(store: Store, manifest: Manifest, action: str = "commit") -> bytes:
    """The Hudi commit of the version `manifest`, which is the newest one. Raises CorruptError."""
    late = Snapshot(store, manifest).since(manifest.parent)
    files = [one for one in late.slices() if one.instant == manifest.instant]
    base = Snapshot(store, load_version(store, manifest.parent))
    paths, ids = [one.partition_path for one in files], [one.file_id for one in files]
    replaced = base.current(paths, ids)
    stats = tuple(
        WriteStat(
            one.partition_path,
            one.file_id,
            one.path,
            None if before is None else before.instant,
            max(int(rows), 0),
            0,
            0,
            0,
            one.size_bytes,
        )
        for one, before, rows in zip(files, replaced, late.row_counts(files), strict=True)
    )
    gone = None if action == "commit" else _groups_gone(base, Snapshot(store, manifest))
    told = manifest.operation, stats, manifest.note, late.schema, late.options.name
    return CommitMetadata.of_ours(*told, gone).encode()


def _groups_gone(base: Snapshot, now: Snapshot) -> dict[str, tuple[str, ...]]:
    """By partition path, the file groups of a version that a later one lacks."""
    live = {(one.partition_path, one.file_id) for one in now.slices()}
    gone: dict[str, list[str]] = {}
    for one in base.slices():
        if (one.partition_path, one.file_id) not in live:
            gone.setdefault(one.partition_path, []).append(one.file_id)
    return {path: tuple(ids) for path, ids in gone.items()}
