"""Recovery: what the next writer does about writers that died.

Every data commit claims its instant by creating `leases/<instant>`, before anything else, and
deletes it last. So the leases tell which commits are, or were, under way:

    committed, tidying was cut off  -> drop markers and lease; where the store does not, go on
    lease alive                     -> leave it alone
    lease ran out                   -> fence: publish a version that withdraws the instant;
                                       only then delete its data files
    withdrawn, ran out again        -> sweep once more, then remove its timeline files
    older than the timeline         -> as withdrawn, for it cannot be published any more: but that
                                       it was nobody can tell, so its index files stay

The fence comes first because the writer may only be asleep: once its instant is withdrawn
it can never publish, so its files are nobody's. Its markers and its `requested` file stay a
lease longer, so that a file that a late worker still writes stays hidden from Hudi's readers
and is found by the second sweep.

A sweep deletes what is proven to be its instant's own: data files whose names tell the instant,
and logs whose blocks do, wherever a marker points, and HFiles and pages whose names carry the
instant and the lease's nonce.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from metatable.data.file_groups.slices import decoded, markers_folder
from metatable.data.hoodie.timeline import TRANSACTED, Timeline
from metatable.data.reading.slice_reader import writer_of
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.requirements import NewestIsBase
from metatable.metadata.commits.steps import announce, drop_markers, settle, staged_path
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.commits.updates import Withdraw
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import (
    LEASES,
    StoredLease,
    is_dead,
    lease_path,
    sane,
    store_time,
)
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_newest
from metatable.storage import clock
from metatable.storage.errors import ConflictError, CorruptError
from metatable.storage.listing import Listed
from metatable.storage.portions import together_far
from metatable.storage.store import Store

__all__ = ["recover", "sweep", "sweep_index_files"]

_log = logging.getLogger("metatable.metadata")


def recover(store: Store, newest: Manifest, leases: Collection[Listed], done: set[str]) -> Manifest:
    """Finish or undo what dead writers left; returns the newest version.

    `leases` as listed, `done` the instants that were complete on the timeline after that.
    """
    under_way, is_tidy = [], True
    for listed in leases:
        is_published = listed.name in done or listed.name in newest.compactions
        if is_published and listed.name not in newest.withdrawn:
            is_tidy = is_tidy and _tidy(store, listed.name)  # who may not delete is refused once
        else:
            under_way.append(listed)
    for listed in _dead(store, under_way, newest.options.lease_seconds):
        raw = store.get(listed.path)
        if raw is not None and _unchanged(store, listed):
            newest = _recover_one(store, newest, listed.name, _decoded(raw, listed.path))
    return newest


def sweep(
    store: Store,
    owner: Owner,
    buckets: Collection[str],
    keep_markers: bool = False,
    index_files: bool = True,
) -> None:
    """Delete what a withdrawn instant has written: data files, index files, its staged commit.

    `buckets` names the metadata partitions. Markers go after the files: killed in between, the
    next sweep still finds them.
    """
    markers = [one.path for one in store.list(markers_folder(owner.instant), recursive=True)]
    store.delete_all(_marked(store, owner.instant, markers))
    if index_files:
        sweep_index_files(store, owner, buckets)
    store.delete([staged_path(owner.instant)])
    if not keep_markers:
        store.delete_all(markers)


def sweep_index_files(store: Store, owner: Owner, buckets: Collection[str]) -> None:
    """Delete the HFiles and pages that carry the owner's name."""
    folders = [f"{HOME}/{one}" for one in (*buckets, "pages")]
    listed = store.together([partial(store.list, folder) for folder in folders])
    files = (one for some in listed for one in some)
    store.delete_all(one.path for one in files if one.name.startswith(owner.prefix))


def _marked(store: Store, instant: str, markers: Collection[str]) -> Iterator[str]:
    """The files that these markers name, if they tell this instant: by name, or logs by blocks."""
    files = []
    for marker in markers:
        named = marker.removeprefix(markers_folder(instant) + "/").rpartition(".marker.")[0]
        with suppress(CorruptError):  # not the name of a data file
            files.append(decoded(named))
    writers = together_far(store, partial(writer_of, store), files, lambda one: one.size_bytes)
    for file, writer in zip(files, writers, strict=True):
        if writer == instant:
            yield file.path


def _dead(store: Store, leases: Collection[Listed], seconds: float) -> list[Listed]:
    """The leases that were not renewed for a lease's time."""
    if not leases:
        return []
    now = store_time(store) if sane(seconds) else 0.0
    return [one for one in leases if is_dead(one.modified, now, seconds)]


def _unchanged(store: Store, listed: Listed) -> bool:
    """Whether what was just read is the lease that was judged: another recovery may have swept
    first meanwhile, and its lease has only begun to run out."""
    return any(one == listed for one in store.list(LEASES))


def _decoded(raw: bytes, path: str) -> StoredLease:
    """A damaged lease has no nonce: its instant is withdrawn and swept by what names tell."""
    try:
        return StoredLease.decode(raw, path)
    except CorruptError:
        return StoredLease("damaged")


def _recover_one(store: Store, newest: Manifest, instant: str, lease: StoredLease) -> Manifest:
    """Go on with what a dead writer of this instant has left. The newest version then."""
    if instant not in newest.withdrawn and instant >= newest.archived:
        if _is_published(store, newest, instant):  # since it was listed
            _tidy(store, instant)
            return newest
        return _fence(store, newest, instant, lease)
    if lease.nonce:  # whoever put the fence died before its first sweep
        _sweep_first(store, newest, instant, lease)
        return newest
    _log.info("sweeping once more behind the dead writer of %s", instant)
    _swept(store, newest, Owner("", lease.dead or "unknown", instant))
    for action in TRANSACTED:  # nobody has told which one it was to be
        Timeline(store).withdraw(instant, ("inflight", "requested"), action)
    store.delete([lease_path(instant)])
    return newest


def _is_published(store: Store, newest: Manifest, instant: str) -> bool:
    """Whether it waits to be carried out, or is complete. A fence finds out what comes later: it
    loses its race."""
    is_complete = partial(Timeline(store).is_complete, instant)
    return instant in newest.compactions or any(map(is_complete, TRANSACTED))


def _tidy(store: Store, instant: str) -> bool:
    """What a writer does last, for one that died before it; whether it is done."""
    _log.info("tidying up behind commit %s", instant)

    def drop() -> None:
        drop_markers(store, instant)
        store.delete([lease_path(instant)])

    return tidy(f"traces of {instant}", drop)


def _fence(store: Store, newest: Manifest, instant: str, lease: StoredLease) -> Manifest:
    """Withdraw a dead writer's instant, then delete what it wrote."""
    _log.info("the writer of %s is silent beyond its lease: withdrawing its instant", instant)
    change = Change("fence", requires=(NewestIsBase(),), updates=(Withdraw((instant,)),))
    try:
        newest = publish(store, newest, change, Owner("fence", lease.nonce))
    except ConflictError:
        return _reload(store, newest)  # somebody published: perhaps the sleeper; look again later
    announce(store, newest)
    _sweep_first(store, newest, instant, lease)
    return newest


def _sweep_first(store: Store, newest: Manifest, instant: str, lease: StoredLease) -> None:
    """Delete what is there, and let a lease run out before the last sweep."""
    owner = Owner("", lease.nonce, instant)
    _swept(store, newest, owner, keep_markers=True)
    until = clock.now_ms() + int(sane(newest.options.lease_seconds) * 1000)
    held = replace(lease, nonce="", dead=lease.nonce, expires_ms=until)
    store.put(lease_path(instant), held.encode())


def _swept(store: Store, newest: Manifest, owner: Owner, keep_markers: bool = False) -> None:
    """Markers are gone before a commit can be archived, and with it whoever knew that it counts:
    what carries the name of such a one may be named by versions, as `clean` will tell."""
    is_withdrawn = owner.instant in newest.withdrawn
    sweep(store, owner, newest.options.buckets, keep_markers, index_files=is_withdrawn)


def _reload(store: Store, newest: Manifest) -> Manifest:
    again = load_newest(store) or newest
    settle(store, again)
    return again
