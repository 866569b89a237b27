"""Rollback: undo the last data commit.

Versions are immutable; going back is pointing at old pages. The new version has the content
from before the commit, so compactions that came after it fall away with it, and it withdraws
the instant for ever. Only then, as the version's timeline step, the commit leaves Hudi's
timeline and its data files go; killed in between, the next writer finishes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metatable.compaction.service import Outcome
from metatable.engine.protocol import Engine
from metatable.metadata.commit import Change, staged_path
from metatable.metadata.manifest import TimelineStep
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import UsageError

__all__ = ["Rollback"]


@dataclass(frozen=True, slots=True)
class Rollback:
    """Undo the newest data commit of this version."""

    name: str = "rollback"
    retries: int = 0

    def work(self, engine: Engine[Any], snapshot: Snapshot) -> Outcome:
        last = snapshot.manifest.last_commit
        if last is None:
            raise UsageError("there is no commit to roll back", path=snapshot.store.uri)
        version, instant = last
        change = Change(
            operation=self.name,
            expects_base=True,
            content_of=version - 1,
            withdraws=(instant,),
            steps=(TimelineStep("withdraw", instant, staged_path(instant), ""),),
            summary={"undone_version": version},
        )
        return Outcome(change, f"commit {instant} of version {version} undone")
