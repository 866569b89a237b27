"""Transaction: one writer's way from a base version to a published one.

`begin` refuses tables that we must not touch, recovers what dead writers left, and pins the
base. `start` takes an instant and leaves the first traces; bad input that is found before it has
left none. (On an object store a lease is taken earlier, to save a round trip, and released.)
`publish` puts the version and finishes Hudi's timeline. An error of ours before the put removes
what was written; where it is not known what the store has done, or will still do, everything is
left to recovery, which looks at what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from metatable.data.properties import TableProperties
from metatable.data.savepoint_metadata import is_of_metatable
from metatable.data.timeline import (
    PLANNED,
    TRANSACTED,
    Instant,
    Timeline,
    completed_of,
    completed_path,
    next_instant,
)
from metatable.data.undo_metadata import UNDOING
from metatable.metadata.change import Change
from metatable.metadata.commit import publish
from metatable.metadata.known_commits import foreign_commits, tells_all
from metatable.metadata.leases import LEASES, Lease, lease_path, service_path
from metatable.metadata.manifest import Manifest, Step, version_path
from metatable.metadata.owner import Owner
from metatable.metadata.recovery import recover, sweep, sweep_index_files
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.steps import announce, list_markers, settle, stage, staged, staged_path
from metatable.metadata.versions import gone_since, load_newest
from metatable.storage.cache import cached
from metatable.storage.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    StaleError,
    UpgradeError,
    UsageError,
)
from metatable.storage.store import Store

__all__ = ["PROPERTIES", "Transaction", "check_properties"]

PROPERTIES = ".hoodie/hoodie.properties"


class Transaction:
    """One attempt to publish a version: `begin`, maybe `start`, `publish` once. Use it as a context
    manager."""

    def __init__(self, store: Store, base: Manifest, taken: Collection[str] = ()) -> None:
        self.store = store
        self.base = base
        self.snapshot = Snapshot(store, base)
        self.owner = Owner.new("commit")
        """The owner of the index files that this transaction writes."""
        self.planned: tuple[str, ...] = ()
        """Paths that this commit may write: given up, they go with or without a marker."""
        self._taken = frozenset(taken) | set(base.withdrawn)
        self._lease: Lease | None = None
        self._action = "commit"
        self._started = False
        """Whether there is more than a lease."""
        self._over = True
        """Nothing was begun, or what was begun is published."""

    @classmethod
    def begin(cls, store: Store) -> Transaction:
        """Refuse, recover, pin. Raises NotFoundError, UpgradeError, CorruptError.

        All that is asked goes together. So the base may be older or newer than a listing: where
        they do not tell of the same commits, the timeline is listed once more, behind the base.
        """
        asked: list[Callable[[], Any]] = [
            partial(check_properties, store),
            partial(load_newest, store),
            partial(store.list, LEASES),
            Timeline(store).load,
        ]
        properties, base, leases, timeline = store.together(asked)
        if base is None:
            raise _no_table(store)
        properties.check(base.options)
        settle(store, base, completed_of(timeline))
        if not tells_all(base, completed_of(timeline)):
            timeline = Timeline(store).load()
        base = recover(store, base, leases, completed_of(timeline))
        _check_timeline(store, base, timeline)
        return cls(store, base, {one.time for one in timeline})

    @property
    def instant(self) -> str:
        """The instant of a data commit that has started; empty before that, and for services."""
        return self.owner.instant if self._started else ""

    def claim_beside(self, fetch: Callable[[], object]) -> None:
        """Fetch something, and on an object store take an instant meanwhile, which then costs no
        round trip. On a disk, where a request costs more than a round trip, `start` takes it when
        it is needed.

        Where nothing comes of the commit the lease is released; there is no other trace.
        """
        if self.store.is_distant:
            self.store.together([fetch, self._take_instant])
        else:
            fetch()

    def start(self, action: str = "commit") -> str:
        """Begin at the instant that is ours: later than every one that the table had seen, and
        never given out.

        `action`: what it will be on Hudi's timeline, as `data.commit_metadata.action_of` says.

        The lease is first, because recovery finds what a dead writer has left by it; then a look
        whether the instant is used, and `requested`; `begin_files` says the rest. Nothing of it may
        go together.
        """
        if self._lease is None:
            self._take_instant()
        self._action = action
        self._started = True
        # if it is there, we have put it
        Timeline(self.store).request(self.instant, action, soon=True)
        return self.instant

    def reserve(self, action: str) -> Owner:
        """Take an instant for what begins later, and leave no trace of it but the lease."""
        self._take_instant()
        self._action = action
        self._started = True
        return self.owner

    def _take_instant(self) -> None:
        """Lease an instant that nobody has used.

        Once its lease is there an instant is ours alone: whoever has published it since the base
        held the lease until it was complete on the timeline, as one action or another, or planned.
        """
        self._over = False
        timeline = Timeline(self.store)
        after = self.base.latest_instant or None
        while True:
            after = instant = next_instant(None, after)
            if instant in self._taken or not self._claim(instant):
                continue
            looks = [partial(timeline.is_complete, instant, one) for one in TRANSACTED]
            plans = PLANNED if self.base.options.has_logs else ()
            looks += [partial(timeline.is_requested, instant, one) for one in plans]
            if not any(self.store.together(looks)):
                return
            self._give_back()

    def begin_files(
        self, beside: Sequence[Callable[[], object]] = (), *, here: bool = False
    ) -> None:
        """Say that data files are about to be written: none may be before. `beside`: what need not
        wait for it, such as their markers. `here`: this process alone will write files, of which
        each waits until all of that is durable; else it is when this returns."""
        timeline = Timeline(self.store)
        calls: list[Callable[[], object]]
        calls = [partial(timeline.inflight, self.instant, self._action, soon=True), *beside]
        self.store.together(calls, writes=True)
        if here:
            self.store.begin_to_settle()
        else:
            self.store.settle()

    def serve(self, operation: str) -> Owner:
        """A name for the index files of a service, which takes no instant; and its lease."""
        self._over = False
        base = self.base
        after = f"{base.latest_instant}.{base.version:010d}"
        self.owner = replace(Owner.new(operation), after=after)
        path, seconds = service_path(self.owner.name), base.options.lease_seconds
        self._lease = Lease(self.store, path, seconds, self.owner.nonce)
        self._lease.claim()
        return self.owner

    def stage(self, body: bytes) -> Step:
        """Keep the finished Hudi commit ready to be completed."""
        return stage(self.store, self.instant, body, self._action)

    def staged(self, body: bytes) -> tuple[Step, dict[str, bytes]]:
        """The same, for a change that puts the file itself."""
        return staged(self.instant, body, self._action)

    def publish(self, change: Change) -> Manifest:
        """The put. Raises ConflictError (retry the operation) or StaleError.

        The order that must hold, whatever goes together:

            lease, requested, inflight     before any data file; a marker before its own
            data files, HFiles, pages, the staged commit     before the root
            a look whether the put counts  before anybody is told of it, and before a marker goes:
                                           what counts is not undone by markers
            the timeline's commit          before the lease goes: who takes the instant again looks
                                           for it there
            markers                        before the lease, by which recovery finds them
        """
        ready: dict[str, bytes | None] = {}
        markers: list[str] = []

        def read_staged() -> None:
            for step in change.steps:
                if step.kind == "complete" and self.instant and step.instant == self.instant:
                    ready[step.staged] = self.store.get(step.staged)

        def read_markers() -> None:
            if self.instant:
                markers[:] = list_markers(self.store, self.instant)

        manifest = publish(self.store, self.base, change, self.owner, (read_staged, read_markers))
        self._over = True
        after: list[Callable[[], object]] = [
            partial(announce, self.store, manifest, ready),
            partial(self.store.delete_all, markers),
        ]
        self.store.together(after, writes=True)
        if self._lease is not None:
            self._lease.release()
        return manifest

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            self._lease.stop()
        if not self._over and (error is None or isinstance(error, _OUTCOME_KNOWN)):
            with suppress(Exception):  # the first error matters; what stays is found by recovery
                self._give_up()
        if isinstance(error, CorruptError):
            self._look_for_newer(error)

    def _look_for_newer(self, error: CorruptError) -> None:
        """A file of the base may be gone because its commit was undone, or the base is not kept
        any more: that is no damage."""
        newest = gone_since(self.store, self.base.version)
        if newest is not None:
            raise ConflictError(
                "table was rolled back or cleaned meanwhile: retry",
                base=self.base.version,
                newest=newest.version,
            ) from error

    def _claim(self, instant: str) -> bool:
        """Lease an instant. It is ours from here on, also where the answer never comes."""
        self.owner = Owner.new("commit").of(instant)
        seconds = self.base.options.lease_seconds
        self._lease = Lease(self.store, lease_path(instant), seconds, self.owner.nonce)
        return self._lease.claim(soon=True)

    def _give_back(self) -> None:
        """Release the lease of an instant that turns out to be used."""
        if self._lease is not None:
            self._lease.release()

    def _give_up(self) -> None:
        """Remove what was written, and release the lease. Only where everything that was asked of
        the store was answered."""
        if not self.owner.instant:
            sweep_index_files(self.store, self.owner, self.base.options.buckets)
            if self._lease is not None:
                self._lease.release()
            return
        if self._started:
            self.store.delete_all(self.planned)  # recovery may have dropped their markers meanwhile
            sweep(self.store, self.owner, self.base.options.buckets)
        if self._lease is not None and self._lease.is_ours():
            if self._started:
                Timeline(self.store).withdraw(self.instant, ("inflight", "requested"), self._action)
            self._lease.release()


_OUTCOME_KNOWN = (ConflictError, CorruptError, StaleError, UpgradeError, UsageError)
"""Errors that tell of no call to the store whose effect may still come. After any other one the
files, the timeline and the lease are left to recovery, which first withdraws the instant: a file
that lands later must find it taken, or another writer would publish it as its own."""


def check_properties(store: Store) -> TableProperties:
    """The table's properties, if it is one that we may read and write.

    Raises NotFoundError where there is no table, UpgradeError for one that is not for us.
    """
    raw = store.get(PROPERTIES)
    if raw is None:
        raise _no_table(store)
    properties = cached(
        ("properties", raw),
        lambda: TableProperties.decode(raw, PROPERTIES),
        lambda _: 10 * len(raw),
    )
    if not properties.version:
        raise CorruptError(
            "hoodie.properties tells no table version: it is empty or damaged",
            path=PROPERTIES,
            expected="hoodie.table.version=6",
            found=properties.values.get("hoodie.table.version", "")[:40],
        )
    if properties.version < 6:
        raise UpgradeError(
            "an older Hudi keeps this table: metatable writes table version 6. Upgrade it with Hudi"
            " 0.14 or 0.15",
            path=PROPERTIES,
            expected="version 6, timeline layout 1",
            found=f"version {properties.version}, timeline layout {properties.layout}",
        )
    if properties.version != 6 or properties.layout != 1:
        raise UpgradeError(
            "Hudi has upgraded this table: metatable writes table version 6. Downgrade it with"
            " Hudi's own tools, and write with hoodie.write.auto.upgrade=false",
            path=PROPERTIES,
            expected="version 6, timeline layout 1",
            found=f"version {properties.version}, timeline layout {properties.layout}",
        )
    if properties.metadata_partitions:
        raise UpgradeError(
            "Hudi keeps a metadata table of its own here, which our commits would leave behind."
            " One Spark write with hoodie.metadata.enable=false removes it",
            path=PROPERTIES,
            found=",".join(properties.metadata_partitions),
        )
    return properties


def _check_timeline(store: Store, base: Manifest, timeline: Collection[Instant]) -> None:
    """Hold Hudi's timeline against the newest version.

    A completed commit of a withdrawn instant was written by a late helper, and so was an archived
    one that is there, a record of an undoing that is archived, and a savepoint of ours that was
    dropped: they go again. A commit that no version knows was written by another engine: our index
    would not know its rows.
    """
    kept = {pin.instant for pin in base.pins.values()}
    for one in timeline:
        if one.action == "savepoint" and one.state == "completed" and one.time not in kept:
            _drop_late_savepoint(store, one.time)
        if one.action in UNDOING and one.time < base.archived:
            Timeline(store).withdraw(one.time, action=one.action)
    done = {one.time: one.action for one in timeline if one.changes_data}
    late = sorted(one for one in done if one in base.withdrawn or one < base.archived)
    for instant in late:
        Timeline(store).withdraw(instant, ("completed",), done[instant])
    foreign = foreign_commits(store, base, done.keys() - late)
    if not foreign:
        return
    if store.size(staged_path(foreign[0])) is not None:
        raise CorruptError(
            "a version is lost: its commit is on the timeline, and no root names it. Restore the"
            " file, or take the commit off the timeline with the data files of its instant",
            path=version_path(base.version + 1),
            instant=foreign[0],
        )
    raise UpgradeError(
        "another writer has committed to this table, and the index does not hold its rows."
        " Delete the folder .hoodie/metatable and adopt the table again, or create one from its"
        " rows",
        path=completed_path(foreign[0], done[foreign[0]]),
        instant=foreign[0],
        newest_of_ours=base.latest_instant,
    )


def _drop_late_savepoint(store: Store, instant: str) -> None:
    """Unless Hudi's own tools have made it, or it is none that was dropped: the base may be older
    than the listing. One that comes while it is dropped is put back."""
    if _is_pinned(store, instant):
        return
    if is_of_metatable(store.get(completed_path(instant, "savepoint")) or b""):
        timeline = Timeline(store)
        timeline.withdraw(instant, ("completed", "inflight"), "savepoint")
        body = store.get(staged_path(instant, "savepoint")) if _is_pinned(store, instant) else None
        if body is not None:
            timeline.begin(instant, "savepoint")
            timeline.complete(instant, body, "savepoint")


def _is_pinned(store: Store, instant: str) -> bool:
    newest = load_newest(store)
    return newest is not None and any(pin.instant == instant for pin in newest.pins.values())


def _no_table(store: Store) -> NotFoundError:
    return NotFoundError("there is no table here", path=store.uri, expected=f"{PROPERTIES}")
