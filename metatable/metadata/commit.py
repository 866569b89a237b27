"""Commit: whatever alters a table is one `Change`, published by one put.

A change says what must still be true and what becomes true. It was made on a base version;
if that is still the newest there is nothing to check. Otherwise it must hold on the newest
one: no rollback since, our instant not withdrawn, the slices we replace still current, the
HFiles we merged still listed, and nobody inserted a key that we insert. Then it is composed
on top of the newest version and put again.

Nobody puts N+1 before the timeline steps of N are done (`settle`), so only the newest
version can have open steps, and whoever comes next can finish them. Nothing that can be lost may
stop them for ever: what a step needs is read and proven before the put, and has a twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from metatable.data.commit_metadata import CommitMetadata
from metatable.data.slices import DataFile, markers_folder
from metatable.data.timeline import Timeline, completed_path, requested_path
from metatable.metadata.files import current_slices
from metatable.metadata.known_commits import with_sum
from metatable.metadata.lost_commit import rebuilt_commit
from metatable.metadata.manifest import (
    COMMITS,
    READER_FORMAT,
    WRITER_FORMAT,
    HFileRef,
    Manifest,
    PageRef,
    TimelineStep,
    all_refs,
    checksum,
    load_newest,
    load_version,
    put_hint,
    write_pages,
)
from metatable.metadata.snapshot import Snapshot
from metatable.storage import clock
from metatable.storage.errors import ConflictError, CorruptError, MetatableError, StaleError
from metatable.storage.store import Store

__all__ = [
    "Change",
    "Clashes",
    "Swap",
    "announce",
    "commit_body",
    "drop_markers",
    "publish",
    "settle",
    "stage_commit",
    "staged_path",
]

MOST_PUTS = 1000
"""After each put that another one forestalled there is one version more: more of them than this
in the time of one commit are no contention, but something that goes in a circle."""

Clashes = Callable[[Snapshot], None]
"""Looks at what others published since the base; raises ConflictError if it has our keys."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Compaction: `inputs` (paths) give up buckets [lo, hi) of a partition to `output`."""

    partition: str
    lo: int
    hi: int
    inputs: tuple[str, ...]
    output: HFileRef | None


@dataclass(frozen=True, slots=True)
class Change:
    """What must still be true, and what becomes true."""

    operation: str
    instant: str = ""
    """Of a data commit; services have none."""
    expects_slices: tuple[DataFile, ...] = ()
    expects_absent: tuple[tuple[str, str], ...] = ()
    """(partition path, file id) of groups that nobody else may have opened."""
    expects_base: bool = False
    """Only valid on the very version it was made on (rollback)."""
    adds: Mapping[str, tuple[HFileRef, ...]] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    content_of: int | None = None
    """Go back to the content of this version."""
    withdraws: tuple[str, ...] = ()
    steps: tuple[TimelineStep, ...] = ()
    summary: Mapping[str, int] = field(default_factory=dict)


def publish(
    store: Store, base: Manifest, change: Change, clashes: Clashes | None = None
) -> Manifest:
    """Put the next version. Raises ConflictError or StaleError; then nothing is visible."""
    newest = base
    _check_fence(base, change, {"base": base.version})
    for _ in range(MOST_PUTS):
        manifest = _compose(store, newest, change)
        if store.create(manifest.path, manifest.encode()):
            return manifest
        newest = _newest(store)
        settle(store, newest)
        _check(store, base, newest, change, clashes)
    raise ConflictError(
        "others were always first: retry", path=newest.path, found=f"{MOST_PUTS} puts in vain"
    )


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


def _newest(store: Store) -> Manifest:
    newest = load_newest(store)
    if newest is None:
        raise StaleError("table is gone", path=store.uri)
    return newest


def _check(
    store: Store, base: Manifest, newest: Manifest, change: Change, clashes: Clashes | None
) -> None:
    facts = {"base": base.version, "newest": newest.version}
    _check_fence(newest, change, facts)
    if newest.restored_at > base.version:
        raise ConflictError("table was rolled back meanwhile: retry", **facts)
    if change.expects_base:
        raise ConflictError("another commit was first: retry", **facts)
    snapshot = Snapshot(store, newest)
    _check_slices(snapshot, change, facts)
    _check_absent(snapshot, change, facts)
    if clashes is not None:
        clashes(snapshot.since(base.version))


def _check_fence(newest: Manifest, change: Change, facts: Mapping[str, int]) -> None:
    if change.instant and change.instant in newest.withdrawn:
        raise ConflictError(
            "this writer was taken for dead and its instant withdrawn: retry",
            instant=change.instant,
            **facts,
        )


def _check_slices(snapshot: Snapshot, change: Change, facts: Mapping[str, int]) -> None:
    expected = change.expects_slices
    current = current_slices(
        snapshot, [one.partition_path for one in expected], [one.file_id for one in expected]
    )
    for ours, theirs in zip(expected, current, strict=True):
        if theirs is None or theirs.name != ours.name:
            raise ConflictError(
                "another commit rewrote the same file group: retry",
                expected=ours.path,
                found=theirs and theirs.path,
                **facts,
            )


def _check_absent(snapshot: Snapshot, change: Change, facts: Mapping[str, int]) -> None:
    paths, ids = (
        [path for path, _ in change.expects_absent],
        [id for _, id in change.expects_absent],
    )
    for found in current_slices(snapshot, paths, ids):
        if found is not None:
            raise ConflictError(
                "another commit opened the same file group: retry", found=found.path, **facts
            )


def _compose(store: Store, newest: Manifest, change: Change) -> Manifest:
    version = newest.version + 1
    content = newest if change.content_of is None else load_version(store, change.content_of)
    pages = dict(content.pages)
    for partition, refs in change.adds.items():
        ours = [replace(ref, sequence=version) for ref in refs]
        pages[partition] = (*pages.get(partition, ()), *write_pages(store, partition, ours))
    for partition in sorted({swap.partition for swap in change.swaps}):
        swaps = [swap for swap in change.swaps if swap.partition == partition]
        pages[partition] = _swapped(store, partition, pages.get(partition, ()), swaps)
    fresh = [one for one in change.withdraws if one not in newest.withdrawn]
    return Manifest(
        version=version,
        operation=change.operation,
        options=newest.options,
        schema=newest.schema,
        instant=change.instant,
        time_ms=clock.now_ms(),
        parent=newest.version,
        latest_instant=max(newest.latest_instant, change.instant, *fresh),
        pages=pages,
        withdrawn=(*newest.withdrawn, *fresh),
        restored_at=newest.restored_at if change.content_of is None else version,
        last_commit=(version, change.instant) if change.instant else content.last_commit,
        steps=change.steps,
        summary=change.summary,
        format={
            **newest.format,
            "reader": max(newest.format.get("reader", 0), READER_FORMAT),
            "writer": max(newest.format.get("writer", 0), WRITER_FORMAT),
        },
        commits=with_sum(store, content, change.instant),
        unknown=newest.unknown,
    )


def _swapped(
    store: Store, partition: str, pages: tuple[PageRef, ...], swaps: list[Swap]
) -> tuple[PageRef, ...]:
    """The partition's references after compaction, folded into few pages."""
    refs = all_refs(store, pages)
    for swap in swaps:
        refs = _swap(refs, swap)
    return write_pages(store, partition, sorted(refs, key=lambda ref: (ref.sequence, ref.lo)))


def _swap(refs: list[HFileRef], swap: Swap) -> list[HFileRef]:
    taken = [ref for ref in refs if ref.path in swap.inputs and _covers(ref, swap)]
    if {ref.path for ref in taken} != set(swap.inputs):
        raise ConflictError(
            "another compaction was first: nothing is lost, retry",
            partition=swap.partition,
            buckets=(swap.lo, swap.hi),
        )
    kept = [ref for ref in refs if ref not in taken]
    kept += [rest for ref in taken for rest in ref.without(swap.lo, swap.hi)]
    if swap.output is not None:
        newest = max(ref.sequence for ref in taken)
        kept.append(replace(swap.output, sequence=newest))
    return kept


def _covers(ref: HFileRef, swap: Swap) -> bool:
    return ref.lo < swap.hi and swap.lo < ref.hi


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
