"""Commit: whatever alters a table is one `Change`, published by one put.

On its base version a change is composed and put at once. Where another one was first, what it
requires is asked of the newest version, it is composed on top of that and put again.

Old roots are deleted one day. A writer that slept could then put its root in the freed place: such
a put is *void*, as readers begin at later roots. So after its put a writer checks that the root it
built on still exists; roots are deleted oldest first, so if it does, the put counts. If it does
not, the put may be void, or the writer slept after a put that counts: what is there tells.

Nor does that root exist where the table was moved or deleted meanwhile, or another one made in its
place. Nobody would find that put, or it would be the next version of another table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from metatable.data.hoodie.properties import PROPERTIES_PATH
from metatable.data.hoodie.timeline import DATA_ACTIONS, Timeline
from metatable.metadata.commits.change import Change, Draft, Race
from metatable.metadata.commits.steps import settle
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import (
    know_root,
    list_roots,
    load_version,
    moved,
    newest_of,
)
from metatable.storage.errors import ConflictError, MetatableError, StaleError
from metatable.storage.store import Store

__all__ = ["publish"]

_log = logging.getLogger("metatable.metadata")

MOST_PUTS = 1000
"""After each put that another one forestalled there is one version more: more of them than this
in the time of one commit are no contention, but something that goes in a circle."""


def publish(
    store: Store,
    base: Manifest,
    change: Change,
    owner: Owner,
    beside: Sequence[Callable[[], object]] = (),
    unsure: Callable[[], object] = lambda: None,
) -> Manifest:
    """Put the next version. Raises ConflictError or StaleError; then nothing is visible.

    `beside`: what is asked of the store beside the look after the put; it changes nothing.
    `unsure` is called where nobody can tell whether a put counted: versions that are kept may name
    what was written for it.
    """
    newest, files = base, change.files
    _check_fence(Race(store, base, base), change, owner)
    for _ in range(MOST_PUTS):
        draft = _compose(store, newest, change, owner)
        manifest = draft.finished(change)
        store.put_all({**files, **draft.files})
        files = {}
        raw = manifest.encode()
        if store.create(manifest.path, raw):
            know_root(store, manifest, raw)
            look: Callable[[], object] = partial(_is_there, store, newest)
            is_there, *_ = store.together([look, *beside])
            is_own = bool(change.instant) and change.instant == owner.instant
            if is_there or _counts(store, newest, manifest, is_own, unsure):
                _log.info("version %d is published: %s", manifest.version, change.operation)
                return manifest
            store.delete([manifest.path])  # void
        newest = newest_of(store)
        _log.info(
            "version %d is another writer's: next to version %d", manifest.version, newest.version
        )
        settle(store, newest)
        _check(Race(store, base, newest), change, owner)
    raise ConflictError(
        "others were always first: retry", path=newest.path, found=f"{MOST_PUTS} puts in vain"
    )


def _is_there(store: Store, manifest: Manifest) -> bool:
    """Whether this very root is there, and not a void one in its place."""
    raw = store.get(manifest.path)
    return raw is not None and manifest.nonce.encode() in raw


def _counts(
    store: Store, before: Manifest, put: Manifest, is_own: bool, unsure: Callable[[], object]
) -> bool:
    """Whether this put was not void, though the root `before` it is gone. Of a service that is not
    kept any more nobody can tell, and nothing is lost where it begins anew. Nor does an instant
    tell that is not the writer's own (`is_own`): what was scheduled another one may have completed.

    Raises StaleError where nobody can tell of a commit, and where the table is not there any more;
    and what is raised where the newest version cannot be read.
    """
    try:
        newest = newest_of(store)
    except MetatableError:
        unsure()
        raise
    if put.version >= newest.oldest:  # nobody has made room for it
        if _is_elsewhere(store, before, put, newest):
            store.delete([put.path])
            raise moved(store, put.version)
        return True
    if not is_own:
        if put.instant not in newest.withdrawn:
            unsure()
        return False
    timeline = Timeline(store)
    if any(timeline.is_complete(put.instant, one) for one in DATA_ACTIONS):
        return True
    is_withdrawn = put.instant in newest.withdrawn
    if is_withdrawn or put.instant < newest.archived:
        if not is_withdrawn:
            unsure()
        # no root counts there any more, whosever it is
        tidy(f"a void root, {put.path}", partial(store.delete, [put.path]))
        raise StaleError(
            "this writer slept until its version was cleaned: look whether its rows are there",
            instant=put.instant,
            version=put.version,
            oldest=newest.oldest,
        )
    return False


def _is_elsewhere(store: Store, before: Manifest, put: Manifest, newest: Manifest) -> bool:
    """Whether this put lies in no table, or in another one than it was composed for. A root that
    was lost alone is damage, and the put counts."""
    if newest.version < put.version or not newest.is_of(put):
        return True
    if before.version < newest.oldest:  # it has gone by right
        return False
    raw = store.get(before.path)
    if raw is not None:
        return before.nonce.encode() not in raw
    return store.size(PROPERTIES_PATH) is None or _is_behind_another(store, put)


def _is_behind_another(store: Store, put: Manifest) -> bool:
    """Whether the last root that is there before this put is of another table."""
    versions = [one for one in list_roots(store) if one < put.version]
    try:
        return bool(versions) and not load_version(store, max(versions), 0).is_of(put)
    except MetatableError:  # it cannot be read, and tells nothing
        return False


def _check(race: Race, change: Change, owner: Owner) -> None:
    if not race.newest.is_of(race.base):
        raise StaleError("table was replaced by another one", path=race.store.uri)
    _check_fence(race, change, owner)
    if race.newest.restored_at > race.base.version:
        raise race.lost("table was rolled back, repaired, or given another index, meanwhile: retry")
    if race.base.version < race.newest.oldest:  # though a savepoint keeps it: fences are forgotten
        raise race.lost("the version that this was made on is not kept any more: retry")
    for requirement in change.requires:
        requirement.check(race)


def _check_fence(race: Race, change: Change, owner: Owner) -> None:
    if change.instant and change.instant in race.newest.withdrawn:
        what = "this writer was taken for dead and its instant withdrawn: retry"
        raise race.lost(what, instant=change.instant)
    if change.instant and change.instant < race.newest.border:
        what = "the timeline begins, or a savepoint is, after the instant of this writer: retry"
        raise race.lost(what, instant=change.instant, border=race.newest.border)
    if owner.name in race.newest.fenced:
        raise race.lost("this service was taken for dead: retry", service=owner.name)


def _compose(store: Store, newest: Manifest, change: Change, owner: Owner) -> Draft:
    draft = Draft.of(store, newest, owner.prefix)
    for update in change.updates:
        update.apply(draft)
    return draft
