"""Steps: what must follow the put of a version. The root names them, and whoever comes next does
them until they are done.

Nobody puts N+1 before the steps of N are done (`settle`), so only the newest version can have
open steps, and whoever comes next can finish them. Nothing that can be lost may stop them for
ever: what a step needs is read and proven before the put, and has a twin.

    complete    an action on Hudi's timeline, of which the finished file lies ready
    withdraw    undo a data commit, on Hudi's timeline and among the data files
    drop_plan   a stored plan has been carried out: it goes
    archive     completed actions that are older leave Hudi's timeline
    drop_savepoint  the savepoint of this instant leaves it
    request     a plan goes onto Hudi's timeline, of a compaction of logs or a resize of buckets
    unrequest   such a plan leaves it, with what was made of it
    put_rings, mark_rings, drop_rings  rings in Hudi's own place (`hudi_rings.py`)

`KINDS` says how each is done; done again, each must be harmless. A writer that does not know a
kind, or an action, refuses the table: so a new kind is one more line there, and needs no new number
of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from metatable.data.file_groups.slices import DataFile, LogFile, decoded, markers_folder
from metatable.data.hoodie.commit_metadata import COLUMNS, CommitMetadata
from metatable.data.hoodie.savepoint_metadata import is_of_others
from metatable.data.hoodie.slice_compaction_plan import SliceCompactionPlan
from metatable.data.hoodie.timeline import (
    ACTIONS,
    CLUSTERING,
    DATA_ACTIONS,
    PLANNED,
    TRANSACTED,
    Timeline,
    completed_path,
    inflight_path,
    requested_path,
)
from metatable.data.hoodie.undo_metadata import UNDOING, undo_plan
from metatable.data.reading.log_writers import writers_of
from metatable.metadata.commits.hudi_rings import drop_rings, mark_rings, put_rings
from metatable.metadata.commits.lost_commit import rebuilt_commit, rebuilt_savepoint
from metatable.metadata.commits.scheduled_plans import (
    plan_body,
    read_plan,
    to_come,
    waits,
)
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.manifests.home import COMMITS
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.plans import drop_plan
from metatable.metadata.manifests.sealed import checksum
from metatable.metadata.manifests.versions import load_newest, put_hint
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError, MetatableError, UpgradeError
from metatable.storage.store import Store

__all__ = [
    "KINDS",
    "Settle",
    "announce",
    "drop_markers",
    "drop_savepoint",
    "files_on",
    "list_markers",
    "lying_ready",
    "settle",
    "stage",
    "staged",
    "staged_body",
    "staged_path",
]

Settle = Callable[[Store, Manifest, Step], None]
"""How a step of this (newest) version is done. Harmless to repeat."""


def staged_path(instant: str, action: str = "commit") -> str:
    """The path of the finished file of an action, before and after it is published.

    An instant belongs to one data commit; what else has it (a savepoint of it) lies beside it.
    """
    return f"{COMMITS}/{instant}.{'json' if action in DATA_ACTIONS else action}"


def stage(store: Store, instant: str, body: bytes, action: str = "commit") -> Step:
    """Write the finished file of an action aside, and say that it is to be completed."""
    step, _ = staged(instant, body, action)
    store.put(step.staged, body)
    return step


def staged(instant: str, body: bytes, action: str = "commit") -> tuple[Step, dict[str, bytes]]:
    """The step that `stage` gives, and the file by path that is to be put before the root
    (`Change.files`): nothing is written yet."""
    path = staged_path(instant, action)
    return Step("complete", instant, path, checksum(body), action), {path: body}


def lying_ready(store: Store, step: Step) -> Step:
    """A step that takes a plan off the timeline, for who is about to publish it: what lies ready
    goes last, and as long as it is there, not all of it is done. Where it is lost, or was deleted
    as the plan was carried out, it is put again: empty, if nobody can read the plan."""
    if store.size(step.staged) is None:
        store.put(step.staged, read_plan(store, step.instant, step.checksum, step.action) or b"")
    return step


def settle(
    store: Store,
    manifest: Manifest,
    done: Collection[str] = (),
    ready: Mapping[str, bytes | None] | None = None,
) -> None:
    """Do the steps of this (newest) version. Harmless to repeat; for writers.

    `done`: data commits that are known to be complete on the timeline; `ready`: staged files as
    they were just read. Raises UpgradeError, and has done none of the steps, where the version asks
    for a newer writer.
    """
    manifest.check_writable()
    for do, step in [(_known(manifest, step), step) for step in manifest.steps]:
        is_commit = step.kind == "complete" and step.action in DATA_ACTIONS
        if is_commit and step.instant in done:
            continue
        body = (ready or {}).get(step.staged)
        if is_commit and body is not None and _is_whole(body, step, step.staged):
            _finish(store, manifest, step, body)  # others have an instant that they share
        else:
            do(store, manifest, step)


def announce(
    store: Store, manifest: Manifest, ready: Mapping[str, bytes | None] | None = None
) -> None:
    """After a put that counts: do its steps, and tell readers where to begin."""
    steps: Callable[[], object] = partial(settle, store, manifest, ready=ready)
    hint: Callable[[], object] = partial(tidy, "the hint", partial(put_hint, store, manifest))
    store.together([steps, hint], writes=True)


def _known(manifest: Manifest, step: Step) -> Settle:
    if step.kind not in KINDS or step.action not in ACTIONS:
        raise UpgradeError(
            "a newer writer has left something to be done: upgrade metatable to write the table",
            path=manifest.path,
            expected=f"a step of {', '.join(KINDS)}; {', '.join(ACTIONS)}",
            found=f"{step.kind} {step.action}",
        )
    return KINDS[step.kind]


def _complete(store: Store, manifest: Manifest, step: Step) -> None:
    if Timeline(store).is_complete(step.instant, step.action):
        return
    body = staged_body(store, step)
    if body is None:
        if step.action in UNDOING or _is_past(store, manifest):
            return  # nobody needs it, or a late hand: others have done it long ago
        body = _rebuilt(store, manifest, step)
    _finish(store, manifest, step, body)


def _finish(store: Store, manifest: Manifest, step: Step, body: bytes) -> None:
    timeline = Timeline(store)
    if not _is_begun(store, step):
        if step.action in DATA_ACTIONS and _is_past(store, manifest):
            return  # undone since, or archived
        timeline.begin(step.instant, step.action, _plan(step, body))
    if timeline.complete(step.instant, body, step.action) or step.action == "savepoint":
        return  # savepoints of one commit share a file, whoever was first
    if not _is_past(store, manifest):  # else it was completed by others, and may be undone since
        raise CorruptError(
            "timeline holds another action of this instant",
            path=completed_path(step.instant, step.action),
        )


def _plan(step: Step, body: bytes) -> bytes:
    if step.action not in UNDOING:
        return b""
    return undo_plan(step.action, body, staged_path(step.instant, step.action))


def _is_begun(store: Store, step: Step) -> bool:
    """Whether the first states of this action are on the timeline. A commit was begun before its
    data files were written, and so was a replacecommit that wrote some; others are begun as they
    are completed."""
    if step.action not in DATA_ACTIONS:
        return False
    second = inflight_path(step.instant, step.action)
    return step.action == "commit" or store.size(second) is not None


def _rebuilt(store: Store, manifest: Manifest, step: Step) -> bytes:
    if step.action in (*TRANSACTED, *PLANNED):
        return rebuilt_commit(store, manifest, step.action)
    body = rebuilt_savepoint(store, manifest, step.instant) if step.action == "savepoint" else None
    if body is None:
        raise CorruptError(
            "what was to be put on Hudi's timeline is gone or damaged: restore the file",
            path=staged_path(step.instant, step.action),
            expected=step.checksum,
        )
    return body


def _is_past(store: Store, manifest: Manifest) -> bool:
    """Whether there is a later version: it was put when the steps of this one were done."""
    newest = load_newest(store)
    return newest is not None and newest.version > manifest.version


def _archive(store: Store, manifest: Manifest, step: Step) -> None:
    """Take completed actions off the timeline: first all that is beside their completed files, in
    any order, then these, the oldest first, one after the other.

    So whatever is gone at any time is older than the first completed one that is left, and counts
    as committed; a commit without its completed file, but with its first, would be hidden. What lay
    ready for it goes before, and no late hand completes it again.
    """
    done = [
        (one.time, one.action)
        for one in Timeline(store).load()
        if one.time < step.instant and one.state == "completed"
    ]
    before = (staged_path, requested_path, inflight_path)
    store.delete_all(path(*one) for path in before for one in done)
    store.delete(completed_path(*one) for one in done)


def _drop_savepoint(store: Store, manifest: Manifest, step: Step) -> None:
    drop_savepoint(store, step.instant)


def drop_savepoint(store: Store, instant: str) -> None:
    """Take our savepoint of this commit off the timeline, with what lay ready for it, unless Hudi's
    own tools have made the one that is there, or there is one of ours again: a late hand puts back
    what it has taken of that one."""
    newest = load_newest(store)
    if newest is None or any(pin.instant == instant for pin in newest.pins.values()):
        return
    timeline = Timeline(store)
    if not is_of_others(store.get(completed_path(instant, "savepoint")) or b""):
        timeline.withdraw(instant, ("completed", "inflight"), "savepoint")
    store.delete([staged_path(instant, "savepoint")])
    newest = load_newest(store)
    body = rebuilt_savepoint(store, newest, instant) if newest is not None else None
    if body is not None:
        store.put(staged_path(instant, "savepoint"), body)
        timeline.begin(instant, "savepoint")
        timeline.complete(instant, body, "savepoint")
        drop_savepoint(store, instant)  # if it was dropped meanwhile: else it would look lost


def _request(store: Store, manifest: Manifest, step: Step) -> None:
    """Put the plan onto the timeline; where its file is gone, it is made anew from the entries."""
    there = store.size(requested_path(step.instant, step.action)) is not None
    if there or _is_past(store, manifest):
        return
    body = plan_body(Snapshot(store, manifest), step.instant, step.checksum, step.action)
    timeline = Timeline(store)
    if timeline.request(step.instant, step.action, body) and not waits(store, step.instant):
        timeline.withdraw(step.instant, ("requested",), step.action)  # ours is a late hand


def _unrequest(store: Store, manifest: Manifest, step: Step) -> None:
    """Take the plan off the timeline. What was made of it goes first: its files as the plan tells
    them, or as a listing does where nobody can read it. Last goes what lies ready for it."""
    timeline = Timeline(store)
    kinds = (requested_path, inflight_path)
    if _is_traceless(store, [*(path(step.instant, step.action) for path in kinds), step.staged]):
        return
    body = read_plan(store, step.instant, step.checksum, step.action)
    if step.action == CLUSTERING:
        store.delete_all(list(files_on(store, step.instant)))
    elif body is None:
        store.delete_all(_files_of(store, step))
    else:
        planned = SliceCompactionPlan.decode(body, step.staged).slices
        files = (to_come(one.partition_path, one.file_id, step.instant) for one in planned)
        store.delete_all([one.path for one in files])
    drop_markers(store, step.instant)
    timeline.withdraw(step.instant, ("inflight", "requested"), step.action)
    store.delete([step.staged])


def _withdraw(store: Store, manifest: Manifest, step: Step) -> None:
    """Undo a commit: out of Hudi's sight first, then its files, then its first traces. Last goes
    what lay ready: where Hudi has archived the commit, its files are told by nothing else."""
    timeline = Timeline(store)
    kinds = (requested_path, completed_path, inflight_path)
    traces = [path(step.instant, step.action) for path in kinds] + [step.staged] * bool(step.staged)
    if _is_traceless(store, traces):
        return
    files = _files_of(store, step)
    timeline.withdraw(step.instant, ("completed",), step.action)
    store.delete_all(files)
    drop_markers(store, step.instant)
    timeline.withdraw(step.instant, ("inflight", "requested"), step.action)
    if step.staged:
        store.delete([step.staged])


def _is_traceless(store: Store, traces: Sequence[str]) -> bool:
    """Whether none of these files is left, of which the last to go says that all of it is done."""
    sizes = store.together([partial(store.size, path) for path in traces])
    return all(size is None for size in sizes)


def staged_body(store: Store, step: Step) -> bytes | None:
    """The finished file of a published action, as staged or from its twin on the timeline.

    None: both are gone or damaged. Where the step knows no checksum, a commit tells by itself.
    """
    twin = completed_path(step.instant, step.action)
    for path in (staged_path(step.instant, step.action), twin):
        body = store.get(path)
        if body is not None and _is_whole(body, step, path):
            return body
    return None


def _is_whole(body: bytes, step: Step, path: str) -> bool:
    if step.checksum and checksum(body) != step.checksum:
        return False
    if step.action not in DATA_ACTIONS:
        return bool(step.checksum)
    try:
        told = CommitMetadata.decode(body, path)
    except CorruptError:
        return False
    return bool(step.checksum or told.stats or told.replaced or COLUMNS in told.extra)


def _files_of(store: Store, step: Step) -> list[str]:
    """The data files of the instant to undo: what its commit lists, else what a listing finds."""
    body = staged_body(store, step) if step.staged and step.kind == "withdraw" else None
    if body is None:
        return [path for path, _ in listed_of(store, [step.instant])]
    paths = (stat.path for stat in CommitMetadata.decode(body, step.staged).stats)
    return [path for path in paths if _is_named_by(path, step.instant)]


def files_on(store: Store, instant: str) -> Iterator[str]:
    """Paths of the base files of this instant, and of all logs on such: a resize that is taken back
    leaves copies there."""
    for one in store.walk():
        with suppress(CorruptError):
            if decoded(one.path).instant == instant:
                yield one.path


def _is_named_by(path: str, instant: str) -> bool:
    """Whether it is the name of a data file of this instant: nothing else may be deleted. The name
    of a log tells no instant: it belongs to the commit that lists it."""
    try:
        file = decoded(path)
    except MetatableError:
        return False
    return isinstance(file, LogFile) or file.instant == instant


def listed_of(store: Store, instants: Collection[str]) -> Iterator[tuple[str, str]]:
    """(path, instant) of the data files that a listing finds of these instants, by what each tells
    itself: from its name, or from the file where the name tells none."""
    files = list[DataFile | LogFile]()
    for one in store.list("", recursive=True):
        with suppress(CorruptError):
            files.append(decoded(one.path, one.size_bytes))
    for file, writer in zip(files, writers_of(store, files), strict=True):
        if writer in instants:
            yield file.path, writer


def drop_markers(store: Store, instant: str) -> None:
    """Delete the markers of this instant (`list_markers`)."""
    store.delete_all(list_markers(store, instant))


def list_markers(store: Store, instant: str) -> list[str]:
    """The paths of the markers that a Hudi writer of this instant has left: one for each file that
    it began."""
    return [one.path for one in store.list(markers_folder(instant), recursive=True)]


KINDS: dict[str, Settle] = {
    "complete": _complete,
    "withdraw": _withdraw,
    "drop_plan": drop_plan,
    "archive": _archive,
    "drop_savepoint": _drop_savepoint,
    "request": _request,
    "unrequest": _unrequest,
    "put_rings": put_rings,
    "mark_rings": mark_rings,
    "drop_rings": drop_rings,
}
