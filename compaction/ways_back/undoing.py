"""Undoing: the steps by which the commits that a rollback or restore undoes leave the table.

Each commit is withdrawn from Hudi's timeline, and its data files go. Last comes what Hudi itself
would leave there: a `rollback`, or a `restore`, at an instant of its own, which tells its tools
what was undone. No reader needs that one, and no writer waits for it if it is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import action_of
from metatable.data.hoodie.timeline import Timeline, filed_as, next_instant
from metatable.data.hoodie.undo_metadata import Undone, undo_metadata
from metatable.metadata.commits.hudi_rings import dropping_rings
from metatable.metadata.commits.steps import stage, staged_body, staged_path
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.portions import together_far
from metatable.storage.store import Store

__all__ = ["completion", "undoing", "unknown_completion"]


def undoing(snapshot: Snapshot, action: str, completions: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that undo commits, given those that completed them. `action`: what Hudi calls it.

    What lay staged for a commit and is damaged is mended from its twin first.
    """
    store, undone = snapshot.store, list[Undone]()
    steps: list[Step] = []
    told = together_far(store, partial(_withdrawing, store), completions, lambda _: 0)
    for done, (step, files) in zip(completions, told, strict=True):
        steps += [*dropping_rings(snapshot.options, done), step]
        undone.append(files)
    instant = _free_instant(snapshot)
    return (*steps, stage(store, instant, undo_metadata(action, instant, undone), action))


def completion(undone: Manifest) -> Step:
    """The step that has put the commit of this version on the timeline."""
    for step in undone.steps:
        if step.kind == "complete" and step.instant == undone.instant:
            return step
    return unknown_completion(undone.instant, action_of(undone.operation, undone.options.has_logs))


def unknown_completion(instant: str, action: str) -> Step:
    """The step that has put a commit on the timeline whose version is not kept any more: nobody
    knows the checksum."""
    return Step("complete", instant, staged_path(instant, action), action=action)


def _withdrawing(store: Store, done: Step) -> tuple[Step, Undone]:
    """The step that undoes a commit, and what Hudi is told of it."""
    body = staged_body(store, done)
    undone = _undone(store, done, body)
    if body is None:  # both are gone: its files are found by a listing
        return Step("withdraw", done.instant, action=done.action), undone
    return replace(stage(store, done.instant, body, done.action), kind="withdraw"), undone


def _undone(store: Store, done: Step, body: bytes | None) -> Undone:
    files: dict[str, list[str]] = {}
    stats = CommitMetadata.decode(body, done.staged).stats if body is not None else ()
    for stat in stats:
        files.setdefault(stat.partition_path, []).append(f"{store.uri}/{stat.path}")
    return Undone(done.instant, filed_as(done.action), files)


def _free_instant(snapshot: Snapshot) -> str:
    """Later than all that the table has seen, and not that of a writer who is under way: he will
    fail, but his traces are told by it."""
    taken = {one.time for one in Timeline(snapshot.store).load()}
    instant = next_instant(None, snapshot.manifest.latest_instant or None)
    while instant in taken:
        instant = next_instant(None, instant)
    return instant
