"""Transaction: one writer's way from a base version to a published one.

`begin` refuses tables that we must not touch (`refusals.py`), recovers what dead writers left, and
pins the base. `start` takes an instant and leaves the first traces; bad input that is found before
it has left none. (On an object store a lease is taken earlier, to save a round trip, and released.)
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

from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.timeline import PLANNED, TRANSACTED, Timeline, completed_of, next_instant
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.known_commits import tells_all
from metatable.metadata.commits.recovery import recover, sweep, sweep_index_files
from metatable.metadata.commits.refusals import check_properties, check_timeline, no_table
from metatable.metadata.commits.steps import announce, files_on, list_markers, settle, stage, staged
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.manifests.leases import LEASES, Lease, lease_path, service_path
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import gone_since, load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import (
    ConflictError,
    CorruptError,
    StaleError,
    UpgradeError,
    UsageError,
)
from metatable.storage.store import Store

__all__ = ["Transaction"]


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
        """Paths that this commit may write: given up, they go with or without a marker. Those of a
        service its commit tells."""
        self.speculates = False
        """Whether tasks that another attempt has overtaken may still write for it."""
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
            raise no_table(store)
        properties.check(base.options)
        settle(store, base, completed_of(timeline))
        if not tells_all(base, completed_of(timeline)):
            timeline = Timeline(store).load()
        base = recover(store, base, leases, completed_of(timeline))
        check_timeline(store, base, timeline)
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

        `action`: what it will be on Hudi's timeline, as `data.operations.action_of` says.

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
        """The step that completes this Hudi commit, and its file by path, for a change that puts
        the file itself (`Change.files`)."""
        return staged(self.instant, body, self._action)

    def publish(self, change: Change) -> Manifest:
        """The put. Raises ConflictError (retry the operation) or StaleError. Behind a put that
        counts only what keeps the next one off is told, too: that its steps could not be done.

        The order that must hold, whatever goes together:

            lease, requested, inflight     before any data file; a marker before its own
            data files, HFiles, pages, the staged commit     before the root
            a look whether the put counts  before anybody is told of it, and before a marker goes:
                                           what counts is not undone by markers
            the timeline's commit          before the lease goes: who takes the instant again looks
                                           for it there
            markers                        before the lease, by which recovery finds them
        """
        if self._started and not self.planned:
            self.planned = _told_in(change)
        ready: dict[str, bytes | None] = {}
        markers: list[str] = []

        def read_staged() -> None:
            for step in change.steps:
                if step.kind == "complete" and self.instant and step.instant == self.instant:
                    ready[step.staged] = self.store.get(step.staged)

        def read_markers() -> None:
            if self.instant:
                markers[:] = list_markers(self.store, self.instant)

        beside = (read_staged, read_markers)
        manifest = publish(self.store, self.base, change, self.owner, beside, self._leave)
        self._over = True
        after: list[Callable[[], object]] = [
            partial(announce, self.store, manifest, ready),
            partial(tidy, f"markers of {self.instant}", partial(self.store.delete_all, markers)),
        ]
        _, is_tidy = self.store.together(after, writes=True)
        if self._lease is not None and is_tidy:  # else it is stopped, and stays
            tidy(f"lease of {self.owner.name}", self._lease.release)
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
        if not self._over and self._is_outcome_known(error):
            with suppress(Exception):  # the first error matters; what stays is found by recovery
                self._give_up()
        if isinstance(error, CorruptError):
            self._look_for_newer(error)

    def _is_outcome_known(self, error: BaseException | None) -> bool:
        """Whether nothing that was asked of the store for this commit may still come. Before it has
        started, and in a service that takes no instant, it is index files that may: they are
        nobody's, and hidden from Hudi."""
        if not isinstance(error, _OUTCOME_KNOWN):
            return error is None
        return not (self._started and (self.speculates or error.others_go_on))

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

    def _leave(self) -> None:
        """Leave what was written, and the lease, to recovery and `clean`."""
        self._over = True

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
            if not self.planned and self._is_withdrawn():
                self.store.delete_all(list(files_on(self.store, self.instant)))
            sweep(self.store, self.owner, self.base.options.buckets)
        if self._lease is not None and not self._lease.is_taken_over():
            if self._started:
                Timeline(self.store).withdraw(self.instant, ("inflight", "requested"), self._action)
            self._lease.release()

    def _is_withdrawn(self) -> bool:
        """Whether recovery was here: nothing but a walk finds what came behind it."""
        newest = load_newest(self.store)
        return newest is not None and self.instant in newest.withdrawn


def _told_in(change: Change) -> tuple[str, ...]:
    """The data files that a commit tells which lies ready to be put with its version."""
    ready = [one.staged for one in change.steps if one.kind == "complete"]
    bodies = [(change.files[path], path) for path in ready if path in change.files]
    return tuple(stat.path for one in bodies for stat in CommitMetadata.decode(*one).stats)


_OUTCOME_KNOWN = (ConflictError, CorruptError, StaleError, UpgradeError, UsageError)
"""Errors that tell of no call to the store whose effect may still come, unless they come from a
worker beside whom others go on. After any other one the files, the timeline and the lease are left
to recovery, which first withdraws the instant: a file that lands later must find it taken, or
another writer would publish it as its own; and which sweeps once more behind that file."""
