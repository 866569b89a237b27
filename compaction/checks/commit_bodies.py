"""Commit bodies: what the commits of a timeline say, from wherever it can still be had.

    on Hudi's timeline      if it is what was published: by its checksum, or as recovery makes it
    as it was staged        beside our versions, until it is archived
    made anew               of the version that published it, and the one before

Data files, rows and sizes are told there; what is wrong with a file on the timeline is told, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.ways_back.undoing import unknown_completion
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import action_of
from metatable.data.hoodie.timeline import DATA_ACTIONS, PLANNED, TRANSACTED, completed_path
from metatable.metadata.commits.lost_commit import rebuilt_commit
from metatable.metadata.commits.steps import staged_body, staged_path
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.sealed import checksum
from metatable.storage.errors import CorruptError, MetatableError
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = ["Action", "bodies_of", "body_of", "completion_of"]

Action = tuple[str, str]
"""An instant and what it is."""


def completion_of(versions: Versions, instant: str, action: str) -> Step:
    """The step that has put this commit on the timeline, last; without a checksum where its version
    is not kept, or lost."""
    known = _completions(versions).get((instant, action))
    return known or unknown_completion(instant, action)


def body_of(store: Store, versions: Versions, instant: str, action: str) -> bytes | None:
    """The finished file of a commit that its version has published: as staged, from the timeline,
    or made anew. None: it cannot be had."""
    body = staged_body(store, completion_of(versions, instant, action))
    if body is not None:
        return body
    root = next((one for one in versions.roots.values() if one.instant == instant), None)
    return _rebuilt(store, root, action)


def bodies_of(
    store: Store, versions: Versions, instants: Sequence[str], done: Mapping[str, str]
) -> tuple[dict[str, CommitMetadata], dict[Action, str]]:
    """(what these commits say, as far as one can be read; what is wrong with their files on the
    timeline). `done`: those that are there, and what they are."""
    steps = {
        time: step
        for (time, action), step in _completions(versions).items()
        if action in DATA_ACTIONS
    }
    roots = {root.instant: root for root in versions.roots.values() if root.instant}
    bodies, damaged = dict[str, CommitMetadata](), dict[Action, str]()
    told = in_order_far(
        store,
        lambda time: _body(store, time, done.get(time), steps.get(time), roots.get(time)),
        instants,
    )
    for time, (body, wrong) in zip(instants, told, strict=True):
        if wrong:
            damaged[time, done[time]] = wrong
        if body is not None:
            bodies[time] = body
    return bodies, damaged


def _body(
    store: Store, instant: str, action: str | None, step: Step | None, root: Manifest | None
) -> tuple[CommitMetadata | None, str]:
    """(what a commit says, what is wrong with its file on the timeline). `action`: None where it
    is not there; `root`: of the version that published it, where that is kept."""
    default = action_of(root.operation, root.options.has_logs) if root else "commit"
    wrong, meant = "", action or (step.action if step else default)
    for raw, path in _places(store, instant, meant):
        on_timeline = path == completed_path(instant, action) if action else False
        strange = step is not None and step.checksum not in ("", checksum(raw))
        if step and strange and not (on_timeline and _rebuilt(store, root, step.action) == raw):
            found = f"expected checksum {step.checksum}, found {checksum(raw)}"
        else:
            try:
                return CommitMetadata.decode(raw, path), wrong
            except CorruptError as error:
                found = str(error)
        if on_timeline:
            wrong = found
    rebuilt = _rebuilt(store, root, meant)
    return None if rebuilt is None else CommitMetadata.decode(rebuilt, instant), wrong


def _places(store: Store, instant: str, action: str) -> Iterator[tuple[bytes, str]]:
    for path in (completed_path(instant, action), staged_path(instant, action)):
        raw = store.get(path)
        if raw is not None:
            yield raw, path


def _rebuilt(store: Store, root: Manifest | None, action: str) -> bytes | None:
    """What recovery puts on the timeline where the staged file was lost. None: it cannot be had."""
    if root is None or action not in (*TRANSACTED, *PLANNED):
        return None
    try:
        return rebuilt_commit(store, root, action)
    except MetatableError:  # the version before is not kept, or damaged
        return None


def _completions(versions: Versions) -> dict[Action, Step]:
    """A repair may have completed a commit once more, with what was left of it."""
    return {
        (step.instant, step.action): step
        for _, root in sorted(versions.roots.items())
        for step in root.steps
        if step.kind == "complete"
    }
