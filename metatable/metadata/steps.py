"""What follows a put: Hudi's timeline is made equal to the newest version.

Nobody puts N+1 before the steps of N are done (`settle`), so only the newest version can have
open steps, and whoever comes next can finish them. Nothing that can be lost may stop them for
ever: what a step needs is read and proven before the put, and has a twin.
"""

from __future__ import annotations

from collections.abc import Iterable

from metatable.data.commit_metadata import CommitMetadata
from metatable.data.slices import DataFile, markers_folder
from metatable.data.timeline import Timeline, completed_path, requested_path
from metatable.metadata.lost_commit import rebuilt_commit
from metatable.metadata.manifest import COMMITS, Manifest, TimelineStep, checksum, put_hint
from metatable.storage.errors import CorruptError, MetatableError
from metatable.storage.store import Store

__all__ = ["announce", "commit_body", "drop_markers", "settle", "stage_commit", "staged_path"]


def staged_path(instant: str) -> str:
    """Where the finished Hudi commit of an instant lies, before and after it is published."""
    return f"{COMMITS}/{instant}.json"


def stage_commit(store: Store, instant: str, body: bytes) -> TimelineStep:
    """Write the finished Hudi commit aside, and say that it is to be completed."""
    path = staged_path(instant)
    store.put(path, body)
    return TimelineStep("complete", instant, path, checksum(body))


def settle(store: Store, manifest: Manifest) -> None:
    """Make Hudi's timeline equal to this (newest) version. Harmless to repeat."""
    for step in manifest.steps:
        if step.kind == "complete":
            _complete(store, manifest, step)
        else:
            _withdraw(store, step)


def announce(store: Store, manifest: Manifest) -> None:
    """After a put: finish the timeline, then tell readers where to begin."""
    settle(store, manifest)
    put_hint(store, manifest.version)


def _complete(store: Store, manifest: Manifest, step: TimelineStep) -> None:
    timeline = Timeline(store)
    if timeline.is_complete(step.instant):
        return
    body = commit_body(store, step.instant, step.checksum)
    if body is None:
        body = rebuilt_commit(store, manifest)
    if not timeline.complete(step.instant, body):
        raise CorruptError(
            "timeline holds another commit of this instant", path=completed_path(step.instant)
        )


def _withdraw(store: Store, step: TimelineStep) -> None:
    """Undo a commit: out of Hudi's sight first, then its files, its first traces last."""
    timeline = Timeline(store)
    traces = (requested_path(step.instant), completed_path(step.instant))
    if all(store.size(path) is None for path in traces):
        return
    files = _files_of(store, step)
    timeline.withdraw(step.instant, ("completed",))
    store.delete(files)
    drop_markers(store, step.instant)
    timeline.withdraw(step.instant, ("inflight", "requested"))


def commit_body(store: Store, instant: str, expected: str) -> bytes | None:
    """The Hudi commit of a published instant, as staged or from its twin on the timeline.

    `expected` is its checksum, empty where none is known. None: both are gone or damaged.
    """
    for path in (staged_path(instant), completed_path(instant)):
        body = store.get(path)
        if body is None or (expected and checksum(body) != expected):
            continue
        try:
            CommitMetadata.decode(body, path)
        except CorruptError:
            continue
        return body
    return None


def _files_of(store: Store, step: TimelineStep) -> list[str]:
    """The data files of the instant to undo: what its commit lists, else what a listing finds."""
    body = commit_body(store, step.instant, step.checksum) if step.staged else None
    if body is None:
        paths: Iterable[str] = (one.path for one in store.list("", recursive=True))
    else:
        paths = (stat.path for stat in CommitMetadata.decode(body, step.staged).stats)
    return [path for path in paths if _is_of(path, step.instant)]


def _is_of(path: str, instant: str) -> bool:
    """Whether it is the name of a data file of this instant: nothing else may go."""
    try:
        return DataFile.decode(path).instant == instant
    except MetatableError:
        return False


def drop_markers(store: Store, instant: str) -> None:
    store.delete(one.path for one in store.list(markers_folder(instant), recursive=True))
