"""Set options: publishes a version from which writers and services go by other options. No file
changes.

Only options can be set that say how new files are made, and when services are due, which nobody has
to know who reads what was made before (`SETTABLE`). A writer who began before goes by the old ones,
and is not in the way. Rollback and restore go back to rows: these options stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from metatable.compaction.service import NothingDue, Outcome, Plan, Service
from metatable.data.config.options import SETTABLE, Options
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.requirements import OptionsAreBase, SchemaIsBase
from metatable.metadata.commits.updates import PutOptions
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.overlap import check_clustered
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = ["SetOptions"]


@dataclass(frozen=True, slots=True)
class OptionsPlan(Plan):
    """The options that are, and those that are to be."""

    held: Options
    options: Options

    @property
    def changes(self) -> dict[str, str]:
        """By option: what it was and what it becomes."""
        pairs = {one: (getattr(self.held, one), getattr(self.options, one)) for one in SETTABLE}
        return {one: f"{_shown(a)} -> {_shown(b)}" for one, (a, b) in pairs.items() if a != b}

    @property
    def summary(self) -> str:
        return ", ".join(f"{name}: {change}" for name, change in self.changes.items())


@dataclass(frozen=True, slots=True)
class SetOptions(Service[OptionsPlan]):
    """These options, by name, from now on; the others stay as they are."""

    given: Mapping[str, Any]
    name: ClassVar[str] = "set_options"

    def plan(self, snapshot: Snapshot) -> OptionsPlan | NothingDue:
        """Raises UsageError, naming the option."""
        held, table = snapshot.options, snapshot.table_schema
        options = held.changed(self.given, snapshot.schema.names)
        check_clustered(table, options, options.cluster_by)
        if options == held:
            return NothingDue("nothing to set: the options are these already")
        return OptionsPlan(held, options)

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: OptionsPlan, owner: Owner
    ) -> Outcome:
        change = Change(
            operation=self.name,
            requires=(OptionsAreBase(), SchemaIsBase()),
            updates=(PutOptions(plan.options),),
            note=plan.changes,
        )
        return Outcome(change)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "none"
    return str(value)
