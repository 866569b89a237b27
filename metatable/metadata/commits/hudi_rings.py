"""Rings in Hudi's own place, for its writers: option `hudi_hashing_metadata`.

    put_rings   what a resize has made, once it is published and before it is on Hudi's timeline
    mark_rings  their marks, once it is there
    drop_rings  both, before a resize that was undone leaves the timeline

So Hudi takes the ring of before up to the moment in which the timeline has the file groups of the
new one, and nothing lies there that no version has published. The ring of a partition that nobody
has resized follows from its path: it is put before the partition's first files, and may stay
whatever becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from metatable.data.config.options import Options
from metatable.data.file_groups.hashing_metadata import HASHING_FOLDER
from metatable.data.hoodie.timeline import REPLACING
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.rings import every_ring
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store

__all__ = ["drop_rings", "dropping_rings", "mark_rings", "put_rings", "with_rings"]


def with_rings(options: Options, done: Step) -> tuple[Step, ...]:
    """What completes a resize, and puts its rings where Hudi looks for them."""
    if not options.hudi_hashing_metadata:
        return (done,)
    put, mark = (
        Step(kind, done.instant, action=done.action) for kind in ("put_rings", "mark_rings")
    )
    return put, done, mark


def dropping_rings(options: Options, undone: Step) -> tuple[Step, ...]:
    """What takes the rings away that a commit may have made."""
    if not options.hudi_hashing_metadata or undone.action not in REPLACING:
        return ()
    return (Step("drop_rings", undone.instant, action=undone.action),)


def put_rings(store: Store, manifest: Manifest, step: Step) -> None:
    """Put the rings that this version has made, before its commit is completed."""
    made = every_ring(Snapshot(store, manifest).since(manifest.version - 1))
    _put(store, step, {one.path: one.encode() for one in made})


def mark_rings(store: Store, manifest: Manifest, step: Step) -> None:
    """Put the marks beside them, after it: Hudi counts a ring from then on."""
    made = every_ring(Snapshot(store, manifest).since(manifest.version - 1))
    _put(store, step, {one.mark_path: b"" for one in made})


def drop_rings(store: Store, manifest: Manifest, step: Step) -> None:
    """Delete the rings of an undone commit, then their marks: Hudi marks a ring that has none."""
    listed = [one.path for one in store.list(HASHING_FOLDER, recursive=True)]
    for kind in ("hashing_meta", "commit"):
        store.delete_all(one for one in listed if one.endswith(f"/{step.instant}.{kind}"))


def _put(store: Store, step: Step, files: Mapping[str, bytes]) -> None:
    """Put the files that are not there yet. If the resize was undone meanwhile, this is a late
    hand: what it has put goes again."""
    there = {one.path for one in store.list(HASHING_FOLDER, recursive=True)}
    missing = {path: body for path, body in files.items() if path not in there}
    if not missing or _is_undone(store, step):
        return
    puts = [partial(store.put, path, body) for path, body in missing.items()]
    store.together(puts, writes=True)  # not `put_all`: what is listed here counts as put
    if _is_undone(store, step):
        store.delete_all(missing)


def _is_undone(store: Store, step: Step) -> bool:
    newest = load_newest(store)
    return newest is not None and step.instant in newest.withdrawn
