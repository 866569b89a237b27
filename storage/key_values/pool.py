"""Pool: connections to a key-value store that wait for whoever asks next.

The one that was given back last goes out first, so that no more stay in use than are needed. What
has waited for `IDLE_S` is closed when the next one is taken or given back: a gateway hangs up on
whoever is silent for longer, and keeps a thread for each connection until then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from metatable.storage.counters import Counters
from metatable.storage.key_values.protocol import KeyValues

__all__ = ["Pool"]

IDLE_S = 30.0
"""HBase's gateway waits for 60 s (`hbase.thrift.server.socket.read.timeout`)."""


class Pool:
    """Threads may share it. `connect` opens a connection."""

    def __init__(self, connect: Callable[[], KeyValues]) -> None:
        self._connect = connect
        self._idle: deque[tuple[float, KeyValues]] = deque()
        self._lock = threading.Lock()

    def take(self, counters: Counters) -> KeyValues:
        """A connection of the caller's own; `kv.connections` counts those that are opened."""
        self._close_older(time.monotonic() - IDLE_S)
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        counters.add("kv.connections")
        return self._connect()

    def give_back(self, store: KeyValues) -> None:
        """For the next one. A connection whose answers were not read to their end is closed
        instead."""
        with self._lock:
            self._idle.append((time.monotonic(), store))
        self._close_older(time.monotonic() - IDLE_S)

    def clear(self) -> None:
        """Close all that wait: where one connection broke, the others are of the same gateway."""
        self._close_older(time.monotonic() + 1)

    def _close_older(self, than: float) -> None:
        old = []
        with self._lock:
            while self._idle and self._idle[0][0] < than:
                old.append(self._idle.popleft()[1])
        for store in old:
            store.close()
