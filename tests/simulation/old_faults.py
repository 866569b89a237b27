"""Faults that were once in the protocol, each to be put back for as long as a test wants it.

millisecond   a compaction names its index files by a millisecond that nobody has claimed, and
              who gives up deletes whatever begins with the millisecond of its instant
withdrawn     a fence does not raise the greatest instant, and nobody asks at the start or at
              the first put whether an instant was withdrawn
requested     "already exists" of `.requested` is always taken for another writer's
opened        two writers open one bucket, and both are published
void          a writer whose base was cleaned while it slept puts its root where there was one, and
              takes it for published
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metatable.data.hoodie.timeline import Timeline, next_instant
from metatable.metadata.commits import commit
from metatable.metadata.commits.change import Draft
from metatable.metadata.commits.requirements import GroupsAbsent
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.owner import Owner

__all__ = ["FAULTS"]


def millisecond(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Owner, "prefix", property(lambda owner: f"{owner.instant}-"))
    patch.setattr(Transaction, "serve", lambda self, name: Owner.new(name).of(next_instant()))


def withdrawn(patch: pytest.MonkeyPatch) -> None:
    check, finished, begin = commit._check_fence, Draft.finished, Transaction.__init__

    def check_later(race: Any, change: Any, owner: Any) -> None:
        if race.newest is not race.base:
            check(race, change, owner)

    def finished_low(draft: Draft, change: Any) -> Any:
        latest = max(draft.newest.latest_instant, change.instant)
        return replace(finished(draft, change), latest_instant=latest)

    def forget(self: Transaction, store: Any, base: Any, taken: Any = ()) -> None:
        begin(self, store, base)
        self._taken = frozenset()

    patch.setattr(commit, "_check_fence", check_later)
    patch.setattr(Draft, "finished", finished_low)
    patch.setattr(Transaction, "__init__", forget)


def requested(patch: pytest.MonkeyPatch) -> None:
    def start(self: Transaction, action: str = "commit") -> str:
        self._action = action
        if self._lease is None:
            self._take_instant()
        self._started = True
        while not Timeline(self.store).request(self.instant, action):
            self._give_back()
            self._taken |= {self.instant}
            self._take_instant()
        return self.instant

    patch.setattr(Transaction, "start", start)


def opened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupsAbsent, "check", lambda self, race: None)


def void(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit, "_is_there", lambda store, manifest: True)


FAULTS = {
    "millisecond": millisecond,
    "withdrawn": withdrawn,
    "requested": requested,
    "opened": opened,
    "void": void,
}
