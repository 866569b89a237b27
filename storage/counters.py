"""Counters: named integers that add up, so that cost can be reported and pinned by tests.

The layer that does the counting names its counters with its own prefix
(`store.requests`, `hfile.blocks`, `tag.files_after_ranges`). Counters from many threads or
many tasks are summed by `merge`; nothing ever counts down.

One lock for all of them, held for one addition: a forked child, which may find it locked by a
thread that it does not have, makes it anew without having to know who counts. An addition is
one assignment, so none is found half done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping

__all__ = ["Counters"]

_lock = threading.Lock()


class Counters(Mapping[str, int]):
    """A thread-safe bag of named sums; a name never counted reads as 0."""

    def __init__(self, start: Mapping[str, int] | None = None) -> None:
        self._sums: dict[str, int] = dict(start or {})

    def add(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the sum called `name`."""
        with _lock:
            self._sums[name] = self._sums.get(name, 0) + amount

    def merge(self, other: Mapping[str, int]) -> None:
        """Add every sum of `other` to ours."""
        for name, amount in dict(other).items():
            self.add(name, amount)

    def since(self, earlier: Mapping[str, int]) -> dict[str, int]:
        """What was counted after `earlier` was taken; names that did not move are left out."""
        now = dict(self)
        moved = {name: now[name] - earlier.get(name, 0) for name in now}
        return {name: amount for name, amount in sorted(moved.items()) if amount}

    def __getitem__(self, name: str) -> int:
        return self._sums.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._sums))

    def __len__(self) -> int:
        return len(self._sums)

    def __contains__(self, name: object) -> bool:
        return name in self._sums

    def __repr__(self) -> str:
        return f"Counters({dict(self)!r})"

    def __getstate__(self) -> dict[str, int]:
        return dict(self)

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state)  # type: ignore[misc]


def _renew() -> None:
    global _lock  # noqa: PLW0603  (one lock a process is the point)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
