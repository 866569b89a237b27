"""One least-recently-used cache a process, for immutable things only, within a byte budget.

Files of ours never change once they are written, so what was parsed from them may be kept
for as long as there is room: readers, block indexes, decoded blocks, snapshots. A key must
therefore name everything that the value depends on (address, path, version, column).

Two threads that miss the same key at the same time may both make it; the first one in
wins, and both get that one. Making is done outside the lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Cache", "cached", "shared"]

T = TypeVar("T")

DEFAULT_BUDGET_BYTES = 256 << 20


class Cache:
    """A byte-budgeted LRU map. `budget_bytes` bounds the sum of the sizes that callers state."""

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        """The value kept under `key`, or None."""
        with self._lock:
            kept = self._held.get(key)
            if kept is None:
                return None
            self._held.move_to_end(key)
            return kept[0]

    def offer(self, key: Hashable, value: T, size_bytes: int) -> T:
        """Keep `value` unless one is there; return the one that is kept."""
        with self._lock:
            kept = self._held.get(key)
            if kept is not None:
                return kept[0]  # type: ignore[no-any-return]
            if size_bytes > self.budget_bytes:
                return value
            self._held[key] = (value, size_bytes)
            self._bytes += size_bytes
            self._evict()
        return value

    def clear(self) -> None:
        """Forget everything (tests that count reads start cold)."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Sum of the stated sizes of what is kept."""
        return self._bytes

    def _evict(self) -> None:
        while self._bytes > self.budget_bytes:
            _, (_, size_bytes) = self._held.popitem(last=False)
            self._bytes -= size_bytes


shared = Cache()
"""The process's cache; executors have one each."""


def cached(key: Hashable, make: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
    """The value kept under `key` in the process's cache, made and kept if it is not there."""
    kept = shared.get(key)
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    value = make()
    return shared.offer(key, value, size_bytes(value))
