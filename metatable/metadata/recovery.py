"""Recovery: what the next writer does about writers that died.

Every data commit claims its instant by creating `leases/<instant>`, before anything else, and
deletes it last. So the leases tell which commits are, or were, under way:

    committed, tidying was cut off  -> drop markers and lease
    lease alive                     -> leave it alone
    lease ran out                   -> fence: publish a version that withdraws the instant;
                                       only then delete its data files
    withdrawn, ran out again        -> sweep once more, then remove its timeline files

The fence comes first because the writer may only be asleep: once its instant is withdrawn
it can never publish, so its files are nobody's. Its markers and its `requested` file stay a
lease longer, so that a file that a late worker still writes stays hidden from Hudi's readers
and is found by the second sweep.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass

from metatable.data.options import DEFAULT_BUCKETS
from metatable.data.slices import markers_folder
from metatable.data.timeline import Timeline
from metatable.metadata.commit import Change, announce, drop_markers, publish, settle, staged_path
from metatable.metadata.manifest import HOME, Manifest, load_newest
from metatable.storage.errors import ConflictError, CorruptError, MetatableError
from metatable.storage.store import Store

__all__ = ["Lease", "clock_ms", "lease_path", "recover", "sweep"]

LEASES = f"{HOME}/leases"
SWEPT = ""
"""The nonce of a lease that recovery holds in a dead writer's place: swept once already."""


def clock_ms() -> int:
    """Epoch milliseconds; tests that need time to pass replace it."""
    return time.time_ns() // 1_000_000


def lease_path(instant: str) -> str:
    return f"{LEASES}/{instant}"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A lease as it lies there."""

    instant: str
    nonce: str
    expires_ms: int

    def encode(self) -> bytes:
        return json.dumps({"nonce": self.nonce, "expires_ms": self.expires_ms}).encode()

    @classmethod
    def decode(cls, instant: str, raw: bytes) -> _Stored:
        try:
            body = json.loads(raw)
            return cls(instant, str(body["nonce"]), int(body["expires_ms"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError("damaged lease", path=lease_path(instant)) from error


class Lease:
    """A living writer's sign, renewed by a thread until it is released."""

    def __init__(self, store: Store, instant: str, seconds: float) -> None:
        self._store = store
        self._instant = instant
        self._seconds = seconds
        self._nonce = uuid.uuid4().hex
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def claim(self) -> bool:
        """Take the instant; False if another writer has it."""
        if not self._store.create(lease_path(self._instant), self._body()):
            return False
        if self._seconds:
            self._thread.start()
        return True

    def stop(self) -> None:
        """Renew no more, and leave the lease to run out."""
        self._released.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def release(self) -> None:
        """The commit is over, one way or the other."""
        self.stop()
        self._store.delete([lease_path(self._instant)])

    def _renew(self) -> None:
        while not self._released.wait(self._seconds / 3):
            try:
                self._store.put(lease_path(self._instant), self._body())
            except (MetatableError, OSError):
                continue  # a lease that cannot be renewed runs out, and the commit is refused

    def _body(self) -> bytes:
        expires_ms = clock_ms() + int(self._seconds * 1000)
        return _Stored(self._instant, self._nonce, expires_ms).encode()


def recover(store: Store) -> Manifest | None:
    """Finish or undo what dead writers left. Returns the newest version, None for no table."""
    newest = load_newest(store)
    if newest is None:
        return None
    settle(store, newest)
    for listed in store.list(LEASES):
        raw = store.get(listed.path)
        if raw is not None:
            newest = _recover_one(store, newest, _Stored.decode(listed.name, raw))
    return newest


def _recover_one(store: Store, newest: Manifest, lease: _Stored) -> Manifest:
    if Timeline(store).is_complete(lease.instant):
        drop_markers(store, lease.instant)
        store.delete([lease_path(lease.instant)])
        return newest
    if lease.expires_ms > clock_ms():
        return newest
    if lease.instant not in newest.withdrawn:
        return _fence(store, newest, lease)
    if lease.nonce != SWEPT:  # whoever put the fence died before its first sweep
        _sweep_first(store, newest, lease.instant)
        return newest
    sweep(store, lease.instant)
    Timeline(store).withdraw(lease.instant, ("inflight", "requested"))
    store.delete([lease_path(lease.instant)])
    return newest


def _fence(store: Store, newest: Manifest, lease: _Stored) -> Manifest:
    """Withdraw a dead writer's instant, then delete what it wrote."""
    change = Change("fence", withdraws=(lease.instant,), expects_base=True)
    try:
        newest = publish(store, newest, change)
    except ConflictError:
        return _reload(store, newest)  # somebody published: perhaps the sleeper; look again later
    announce(store, newest)
    _sweep_first(store, newest, lease.instant)
    return newest


def _sweep_first(store: Store, newest: Manifest, instant: str) -> None:
    """Delete what is there, and let a lease run out before the last sweep."""
    sweep(store, instant, keep_markers=True)
    expires_ms = clock_ms() + int(newest.options.lease_seconds * 1000)
    store.put(lease_path(instant), _Stored(instant, SWEPT, expires_ms).encode())


def _reload(store: Store, newest: Manifest) -> Manifest:
    again = load_newest(store) or newest
    settle(store, again)
    return again


def sweep(store: Store, instant: str, keep_markers: bool = False) -> None:
    """Delete the data files that the markers of a withdrawn instant name, its HFiles, the markers.

    Markers go after the files: killed in between, the next sweep still finds them.
    """
    markers = store.list(markers_folder(instant), recursive=True)
    prefix = markers_folder(instant) + "/"
    store.delete(one.path.removeprefix(prefix).rpartition(".marker.")[0] for one in markers)
    for partition in DEFAULT_BUCKETS:
        hfiles = store.list(f"{HOME}/{partition}")
        store.delete(one.path for one in hfiles if one.name.startswith(f"{instant}-"))
    store.delete([staged_path(instant)])
    if not keep_markers:
        store.delete(one.path for one in markers)
