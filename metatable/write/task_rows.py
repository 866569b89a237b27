"""The rows of one task of a data commit, or of all: where each comes from and where it goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.data.keys.key_texts import KEY
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.routes import SOURCE_COLUMN, Destinations

__all__ = ["TaskRows"]


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Row numbers, each with a group: one sort, instead of a look at all rows for each group."""

    rows: Int64s
    groups: Int64s

    @classmethod
    def of(cls, rows: Int64s, groups: Int64s) -> _Grouped:
        short = not len(groups) or groups.max() < np.iinfo(np.int16).max
        order = np.argsort(groups.astype(np.int16) if short else groups, kind="stable")  # by radix
        return cls(rows[order], groups[order])

    def of_group(self, place: int) -> Int64s:
        """Its row numbers, ascending where those given were."""
        lo, hi = np.searchsorted(self.groups, [place, place + 1])
        return np.asarray(self.rows[lo:hi])


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows of one task, and where each comes from and goes to.

    `leaving` and `entering` are row numbers, sorted by the group that they leave and enter.
    """

    table: pa.Table
    to: Destinations
    all_keys: pa.Array
    leaving: _Grouped
    entering: _Grouped
    texts: pa.Array | None = None
    """What they are in order by, if that is not their keys."""

    @classmethod
    def dealt(cls, plan: WritePlan, table: pa.Table) -> TaskRows:
        """The rows of a task, from the table that comes to it."""
        source = whole(table[SOURCE_COLUMN]).to_numpy().astype(np.int64)
        return cls.of(plan, table, Destinations.of(plan, table, source))

    @classmethod
    def of(cls, plan: WritePlan, table: pa.Table, to: Destinations) -> TaskRows:
        return cls(
            table,
            to,
            whole(table[KEY]),
            _Grouped.of(np.arange(len(to.source)), to.source),
            _Grouped.of(to.rows, to.groups),
            plan.texts(table) if plan.order.columns else None,
        )

    @classmethod
    def none(cls, table: pa.Table) -> TaskRows:
        """A task without rows, with these columns."""
        no = np.zeros(0, np.int64)
        return cls(table, Destinations(no, no, no), whole(table[KEY]), *[_Grouped.of(no, no)] * 2)

    def keys(self, rows: Int64s) -> pa.Array:
        return self.all_keys.take(pa.array(rows))

    def size_bytes(self, place: int) -> int:
        """What the rows that are put into this group are, about."""
        count = len(self.entering.of_group(place))
        return int(self.table.nbytes * count / max(self.table.num_rows, 1))

    def writes(self, group: GroupPlan, place: int) -> bool:
        """Whether a task with these rows writes its group, the plan's `place`-th: one of a stored
        slice always, another one if rows are put into it."""
        return group.base is not None or len(self.entering.of_group(place)) > 0

    def new(self, place: int) -> Int64s:
        """Rows put into this group whose key no group held."""
        rows = self.entering.of_group(place)
        return np.asarray(rows[self.to.source[rows] == -1])

    def arriving(self, place: int) -> Int64s:
        """Rows put into this group that it did not hold: new ones and those that move."""
        rows = self.entering.of_group(place)
        return np.asarray(rows[self.to.source[rows] != place])

    def gone(self, place: int) -> Int64s:
        """Rows whose key this group held, and that go elsewhere or nowhere."""
        rows = self.leaving.of_group(place)
        stays = np.isin(rows, self.entering.of_group(place), assume_unique=True)
        return np.asarray(rows[~stays])
