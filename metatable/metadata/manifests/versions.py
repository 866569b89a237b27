"""Versions: which roots there are, and what finds the newest without a listing.

    manifest/<version, 20 digits>.json   the roots, without gaps from the oldest that is kept
    manifest/latest                      a hint: some version that exists, and its root's nonce;
                                         readers probe forward
    savepoints/<version>.json            the root of a version that is kept by a name

Who puts the next root is `commit.py`; what goes before it, and the hint behind it, is put here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import Manifest, saved_path, version_path
from metatable.storage.cache import shared
from metatable.storage.errors import CorruptError, StaleError
from metatable.storage.listing import Listed
from metatable.storage.store import Store

__all__ = [
    "gone_since",
    "is_undone",
    "know_root",
    "last_met",
    "list_roots",
    "load_newest",
    "load_version",
    "moved",
    "newest_of",
    "put_hint",
    "root_place",
]

_ROOT = re.compile(r"[0-9]{20}\.json")
_NONCE_CHARS = 32


def load_newest(store: Store) -> Manifest | None:
    """The newest version, or None where there is no table. Three small requests: the hint, the root
    that it names and the one behind it; in one round where this process has seen that root before,
    else in two.

    The hint saves a listing; one that is lost, garbage, or names no version costs one. One of a
    version that was cleaned may name what a writer who slept has put there in its place (which is
    void, `commit.py`): so it tells the nonce of the root that it means.
    """
    seen: int | None = shared.get(("seen", store.uri))
    hint: Callable[[], Any] = partial(_hinted, store)
    (version, nonce), *pair = store.together([hint, *_pair(store, seen)])
    if version is not None and version != seen:
        pair = list(store.together(_pair(store, version)))
    if version is None or pair[0] is None or nonce not in pair[0]:
        version, pair = _listed(store)
    if version is None:
        return None
    raw, later = pair
    while later is not None:
        version, raw = version + 1, later
        later = store.get(version_path(version + 1))
    shared.replace(("seen", store.uri), version, 200)
    return _decoded(store, raw, version)


def newest_of(store: Store) -> Manifest:
    """The newest version of a table that was opened. Raises StaleError where the table is gone."""
    newest = load_newest(store)
    if newest is None:
        raise StaleError("the table is gone", path=store.uri)
    return newest


def last_met(store: Store) -> Manifest | None:
    """The root that this process has met last, for who must not ask the store; None where it is
    forgotten."""
    known = shared.get(("root", store.uri))
    met: Manifest | None = None if known is None else known[1]
    return met


def load_version(store: Store, version: int, oldest: int) -> Manifest:
    """The root of one version, from `root_place` or a savepoint's copy. Raises StaleError where it
    is not there (any more)."""
    for path in dict.fromkeys((root_place(version, oldest), saved_path(version))):
        raw = store.get(path)
        if raw is not None:
            return Manifest.decode(raw, path)
    raise StaleError(
        "no such version, or it is not kept any more",
        path=root_place(version, oldest),
        version=version,
    )


def root_place(version: int, oldest: int) -> str:
    """Where a version's root is to lie. `oldest`: the first of those that the newest one keeps;
    before it only the copy of a savepoint counts, for what lies in the root's place may be void
    (`commit.py`)."""
    return version_path(version) if version >= oldest else saved_path(version)


def moved(store: Store, version: int) -> StaleError:
    """For who held this version of a table that is not there any more."""
    what = "the table was moved or deleted meanwhile, or another one is in its place"
    return StaleError(what, path=store.uri, version=version)


def gone_since(store: Store, version: int) -> Manifest | None:
    """The newest version, if files that `version` names may have been deleted: by a rollback after
    it, or because it is not kept any more."""
    newest = load_newest(store)
    if newest is None or (newest.restored_at <= version and newest.keeps(version)):
        return None
    return newest


def is_undone(store: Store, newest: Manifest, version: int) -> bool:
    """Whether a version that is kept holds what was undone since, a commit or a compaction of logs,
    as the restores since tell: an instant that was archived is withdrawn without being told."""
    if version < newest.oldest:  # a savepoint, of which nothing is undone
        return False
    restored_at = newest.restored_at
    while restored_at > version:
        restored = load_version(store, restored_at, newest.oldest)
        if restored.summary.get("undone_version", restored_at) <= version:
            return True
        restored_at = load_version(store, restored_at - 1, newest.oldest).restored_at
    return False


def list_roots(store: Store) -> dict[int, Listed]:
    """The roots that are there, by version: one listing."""
    listed = store.list(f"{HOME}/manifest")
    return {int(one.name[:20]): one for one in listed if _ROOT.fullmatch(one.name)}


def know_root(store: Store, manifest: Manifest, raw: bytes) -> None:
    """This process has put that root: it is not parsed when it is met with these bytes."""
    shared.replace(("root", store.uri), ((manifest.path, raw), manifest), 10 * len(raw))


def put_hint(store: Store, manifest: Manifest) -> None:
    """Tell readers where to begin probing; a hint may be old, lost or garbage without harm. This
    process knows by then, and asks for the root itself next time."""
    shared.replace(("seen", store.uri), manifest.version, 200)
    hint = f"{manifest.version} {manifest.nonce}".encode()
    store.jot(f"{HOME}/manifest/latest", hint)


def _hinted(store: Store) -> tuple[int | None, bytes]:
    """(version, nonce) as the hint has them; writers below format 5 tell no nonce. Part of one is
    what a writer who died has left (`Store.jot`), and many roots have that."""
    version, _, nonce = (store.get(f"{HOME}/manifest/latest") or b"").partition(b" ")
    is_told = version.isdigit() and len(version) <= 20 and len(nonce) in (0, _NONCE_CHARS)
    return int(version) if is_told else None, nonce


def _listed(store: Store) -> tuple[int | None, list[Any]]:
    """The newest version by a listing, its root and the one behind it. One that was cleaned before
    it could be read has later ones: they are listed anew."""
    gone: int | None = None
    version = max(list_roots(store), default=None)
    while version is not None and version != gone:
        pair = list(store.together(_pair(store, version)))
        if pair[0] is not None:
            return version, pair
        gone, version = version, max(list_roots(store), default=None)
    if version is None:
        return None, []
    raise CorruptError("manifest vanished while it was read", path=version_path(version))


def _pair(store: Store, version: int | None) -> list[Callable[[], Any]]:
    """Calls for a root and the one behind it."""
    if version is None:
        return []
    return [partial(store.get, version_path(one)) for one in (version, version + 1)]


def _decoded(store: Store, raw: bytes, version: int) -> Manifest:
    """A root; that which this process has met last is not parsed again while its bytes are the
    same."""
    known, name = shared.get(("root", store.uri)), version_path(version)
    if known is None or known[0] != (name, raw):
        known = (name, raw), Manifest.decode(raw, name)
        shared.replace(("root", store.uri), known, 10 * len(raw))
    newest: Manifest = known[1]
    return newest
