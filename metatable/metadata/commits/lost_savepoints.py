"""Lost savepoints: those of ours on Hudi's timeline that no version knows, because the newest root,
which had pinned them, is lost.

A dropped one that a late hand has put there again looks like it, but for what lay ready: whoever
drops a savepoint deletes that last, and only who makes one puts it. So a completed file that is
still the same as the one that lies ready was not dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from metatable.data.hoodie.savepoint_metadata import (
    HEAD_BYTES,
    is_of_metatable,
    may_be_of_metatable,
)
from metatable.data.hoodie.timeline import Instant, completed_path
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["is_lost", "lost_savepoints", "own_bodies", "unpinned"]


def lost_savepoints(store: Store, newest: Manifest, timeline: Iterable[Instant]) -> list[str]:
    """Their instants. Those that came behind `newest` are none of them."""
    some = unpinned(newest, timeline)
    if some:
        newest = load_newest(store) or newest
    return [one for one, body in own_bodies(store, some) if is_lost(store, newest, one, body)]


def unpinned(newest: Manifest, timeline: Iterable[Instant]) -> list[str]:
    """Instants of completed savepoints, whoever made them, that this version does not pin."""
    done = (one for one in timeline if one.action == "savepoint" and one.state == "completed")
    pinned = _pinned(newest)
    return [one.time for one in done if one.time not in pinned]


def own_bodies(store: Store, instants: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The completed files of those of these savepoints that we have made. Others name all files of
    a table, and stay for long: of them the beginning alone is read."""
    paths = [completed_path(one, "savepoint") for one in instants]
    bodies = store.together([partial(_own_body, store, path) for path in paths])
    for instant, body in zip(instants, bodies, strict=True):
        if body is not None and is_of_metatable(body):
            yield instant, body


def _own_body(store: Store, path: str) -> bytes | None:
    """The file, if it may be one of ours."""
    size = store.size(path) or 0
    if size > HEAD_BYTES:
        with suppress(CorruptError):  # it is another one by now, or gone
            if not may_be_of_metatable(store.read_one(path, 0, HEAD_BYTES)):
                return None
    return store.get(path)


def is_lost(store: Store, newest: Manifest, instant: str, body: bytes) -> bool:
    """Whether a savepoint of ours, of which this is the completed file, is one that `newest` does
    not know, nor drops."""
    dropped = {one.instant for one in newest.steps if one.kind == "drop_savepoint"}
    if instant in _pinned(newest) | dropped:
        return False
    return store.get(staged_path(instant, "savepoint")) == body


def _pinned(newest: Manifest) -> set[str]:
    return {pin.instant for pin in newest.pins.values()}
