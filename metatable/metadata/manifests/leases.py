"""Lease: a living writer's sign.

    leases/<instant>                JSON; its creation claims the instant; put again while the
                                    writer lives
    services/<operation>-<nonce>    the same of a service, which claims nothing: what it writes is
                                    its own as long as this is there
    clock                           empty; put by whoever asks what time it is

How old a lease is, the store tells: its time of writing beside that of the clock, put just before.
So two machines' clocks are never compared, and a process that lives for seconds can tell, too.
A lease is taken for dead when it was not renewed for `lease_seconds` (and the grain of a store's
clock); a writer renews it three times as often.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metatable.data.stored_fields import decode_fields, encode_fields
from metatable.metadata.manifests.home import HOME
from metatable.storage import clock
from metatable.storage.errors import CorruptError, StoreError
from metatable.storage.store import Store

__all__ = [
    "CLOCK",
    "LEASES",
    "SERVICES",
    "Lease",
    "StoredLease",
    "is_dead",
    "lease_path",
    "leased",
    "service_path",
    "serving",
    "store_time",
]

LEASES = f"{HOME}/leases"
"""The folder of the leases of data commits, by instant."""
SERVICES = f"{HOME}/services"
"""The folder of the leases of services, by the name of their `Owner`."""
CLOCK = f"{HOME}/clock"
"""A file that is put to learn what time it is by the store's clock."""

GRAIN_SECONDS = 1.0
"""How much older a lease may look, because some stores (S3) tell times in whole seconds."""

LONGEST_SECONDS = 24 * 3600.0
"""Tables of format 1 may name a lease without end, or one that is no number."""


def leased(store: Store) -> frozenset[str]:
    """Instants of which a writer holds a lease, or held it when he died: one listing."""
    return frozenset(one.name for one in store.list(LEASES))


def serving(store: Store) -> frozenset[str]:
    """Nonces of services that hold a lease, or held it when they died: one listing."""
    return frozenset(one.name.rpartition("-")[2] for one in store.list(SERVICES))


@dataclass(frozen=True, slots=True)
class StoredLease:
    """What a lease file holds."""

    nonce: str
    """The writer's; empty where recovery holds the lease in a dead writer's place."""
    expires_ms: int = 0
    """When it ends by the writer's own clock: for people, and for writers of format 1, who go by
    it."""
    dead: str = ""
    """The nonce of the dead writer in whose place recovery holds the lease."""
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(encode_fields(self)).encode()

    @classmethod
    def decode(cls, raw: bytes, path: str) -> StoredLease:
        """Raises CorruptError."""
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise CorruptError("lease is damaged", path=path, found=str(error)) from error
        return decode_fields(cls, body, path, "lease")


class Lease:
    """A writer's or a service's own lease, renewed beside it until it is stopped."""

    def __init__(self, store: Store, path: str, seconds: float, nonce: str) -> None:
        self._store = store
        self._path = path
        self._seconds = sane(seconds)
        self._nonce = nonce
        self._renewal: Callable[[], None] = _nothing

    def claim(self, *, soon: bool = False) -> bool:
        """Take it; False if another writer has it. `soon`: durable as `Store.create` says. Raises
        StoreError, and gives it back, where the system has no thread that would renew it."""
        if not self._store.create(self._path, self._body(), soon=soon):
            return False
        try:
            if self._seconds:
                self._renewal = renewing(self.renew, self._seconds / 3)
        except RuntimeError as error:
            self._store.delete([self._path])
            what, expected = "no thread to renew a lease with", "a higher limit of threads"
            raise StoreError(what, path=self._path, expected=expected, found=str(error)) from error
        return True

    def renew(self) -> None:
        """Say once more that the writer lives. A disk is not waited for: a slow one would make the
        sign as old as the wait. What a crash of the machine leaves of it may be damaged; then
        `clean` finds the writer's index files, and not who recovers."""
        self._store.put(self._path, self._body(), lasting=False)

    def stop(self) -> None:
        """Renew no more, and leave the lease to run out."""
        self._renewal()
        self._renewal = _nothing

    def release(self) -> None:
        """The commit is over, one way or the other."""
        self.stop()
        self._store.delete([self._path])

    def is_taken_over(self) -> bool:
        """Whether it is recovery's by now. If it is gone recovery is through, and nobody else sees
        to what came behind it."""
        raw = self._store.get(self._path)
        return raw is not None and StoredLease.decode(raw, self._path).nonce != self._nonce

    def _body(self) -> bytes:
        return StoredLease(self._nonce, clock.now_ms() + int(self._seconds * 1000)).encode()


def renewing(renew: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Call `renew` every so many seconds, until what is returned is called."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            try:
                renew()
            except Exception:  # whatever it was: the next one may go through
                continue

    thread = threading.Thread(target=work, name="metatable-lease", daemon=True)
    try:
        thread.start()
    except BaseException:  # an interrupt comes while the thread, which has begun, is waited for
        over.set()
        raise

    def stop() -> None:
        over.set()
        if threading.current_thread() is not thread:
            thread.join()

    return stop


def lease_path(instant: str) -> str:
    """Where the lease of a data commit's instant lies."""
    return f"{LEASES}/{instant}"


def service_path(name: str) -> str:
    """Where the lease of a service lies; `name`: that of its `Owner`."""
    return f"{SERVICES}/{name}"


def sane(seconds: float) -> float:
    """The length of a lease, whatever a table's options say."""
    return min(max(seconds, 0.0), LONGEST_SECONDS) if not math.isnan(seconds) else LONGEST_SECONDS


def store_time(store: Store) -> float:
    """What time it is by the store's own clock, epoch seconds: two requests. A disk is not waited
    for, as what it was asked is over by then."""
    store.put(CLOCK, b"", lasting=False)
    for listed in store.list(HOME):
        if listed.path == CLOCK:
            return listed.modified
    raise CorruptError("a file that was just put is not there", path=CLOCK, store=store.uri)


def is_dead(modified: float, now: float, seconds: float) -> bool:
    """Whether a lease written at `modified` has run out at `now`, both by the store's clock."""
    seconds = sane(seconds)
    return not seconds or now - modified > seconds + GRAIN_SECONDS


def _nothing() -> None:
    return
