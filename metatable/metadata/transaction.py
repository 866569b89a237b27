"""Transaction: one writer's way from a base version to a published one.

`begin` refuses tables that we must not touch, recovers what dead writers left, and pins the
base. `start` takes an instant and leaves the first traces: bad input found before it has
left none. `publish` puts the version and finishes Hudi's timeline. Any exception before the
put removes what was written; where the outcome of the put is not known, everything is left to
recovery, which looks at what is stored.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from metatable.data.properties import TableProperties
from metatable.data.timeline import Timeline, next_instant
from metatable.metadata.commit import (
    Change,
    Clashes,
    announce,
    drop_markers,
    publish,
    settle,
    stage_commit,
)
from metatable.metadata.manifest import Manifest, TimelineStep, load_newest
from metatable.metadata.recovery import Lease, recover, sweep
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import ConflictError, CorruptError, StaleError, UpgradeError
from metatable.storage.store import Store

__all__ = ["PROPERTIES", "Transaction", "check_properties"]

PROPERTIES = ".hoodie/hoodie.properties"


class Transaction:
    """Begin, maybe start, publish once. Use as a context manager."""

    def __init__(self, store: Store, base: Manifest) -> None:
        self.store = store
        self.base = base
        self.snapshot = Snapshot(store, base)
        self.instant = ""
        self.planned: tuple[str, ...] = ()
        """Paths that this commit may write: given up, they go with or without a marker."""
        self._lease: Lease | None = None
        self._published = False

    @classmethod
    def begin(cls, store: Store) -> Transaction:
        """Refuse, recover, pin. Raises UpgradeError, CorruptError."""
        check_properties(store)
        base = recover(store)
        if base is None:
            raise _no_table(store)
        base.check_writable()
        return cls(store, _check_timeline(store, base))

    def start(self) -> str:
        """Take an instant: later than every one that the table has seen."""
        after = self.base.latest_instant or None
        timeline = Timeline(self.store)
        while True:
            instant = next_instant(None, after)
            lease = Lease(self.store, instant, self.base.options.lease_seconds)
            after = instant
            if not lease.claim():
                continue
            self.instant, self._lease = instant, lease
            if timeline.request(instant):
                break
            self._lease = None
            lease.release()  # used before, by a clock ahead of ours
        timeline.inflight(instant)
        return instant

    def stage(self, body: bytes) -> TimelineStep:
        """Keep the finished Hudi commit ready to be completed."""
        return stage_commit(self.store, self.instant, body)

    def publish(self, change: Change, clashes: Clashes | None = None) -> Manifest:
        """The put. Raises ConflictError (retry the operation) or StaleError."""
        try:
            manifest = publish(self.store, self.base, change, clashes)
        except (ConflictError, StaleError):
            raise
        except BaseException:
            self._leave_to_recovery()
            raise
        self._published = True
        announce(self.store, manifest)
        self._release()
        return manifest

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lease is None:
            return
        if self._published:
            self._lease.stop()
            return
        lease = self._lease
        lease.stop()
        with suppress(Exception):  # the first error matters; what stays is found by recovery
            self.store.delete(self.planned)  # recovery may have dropped their markers meanwhile
            sweep(self.store, self.instant)
            Timeline(self.store).withdraw(self.instant, ("inflight", "requested"))
            lease.release()

    def _leave_to_recovery(self) -> None:
        if self._lease is not None:
            self._lease.stop()
            self._lease = None

    def _release(self) -> None:
        if self._lease is not None:
            drop_markers(self.store, self.instant)
            self._lease.release()


def check_properties(store: Store) -> TableProperties:
    """The table's properties, if it is one that we may read and write."""
    raw = store.get(PROPERTIES)
    if raw is None:
        raise _no_table(store)
    properties = TableProperties.decode(raw, PROPERTIES)
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


def _check_timeline(store: Store, base: Manifest) -> Manifest:
    """Hold Hudi's timeline against the newest version; returns the newest version.

    A completed commit of a withdrawn instant was written by a late helper: it goes again. One
    that no version knows was written by another engine: our index would not know its rows.
    """
    done = _completed(store)
    foreign = [instant for instant in done if instant > base.latest_instant]
    if foreign:
        base = load_newest(store) or base  # one of ours may have published meanwhile
        settle(store, base)
        foreign = [instant for instant in foreign if instant > base.latest_instant]
    if foreign:
        raise UpgradeError(
            "another writer has committed to this table, and the index does not hold its rows."
            " Create the table again from its rows",
            instant=foreign[0],
            newest_of_ours=base.latest_instant,
        )
    for instant in sorted(done & set(base.withdrawn)):
        Timeline(store).withdraw(instant, ("completed",))
    return base


def _completed(store: Store) -> set[str]:
    return {
        one.time
        for one in Timeline(store).load()
        if one.state == "completed" and one.action in _DATA_ACTIONS
    }


_DATA_ACTIONS = ("commit", "deltacommit", "replacecommit")


def _no_table(store: Store) -> CorruptError:
    return CorruptError("there is no table here", path=store.uri, expected=f"{PROPERTIES}")
