"""What a commit writes: file groups, each by one task, under names that are fixed beforehand.

A second attempt of a task finds the first one's file and adopts it. `planning` makes plans, and
`routes` tells which of its groups a row goes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.children import is_virtual
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.hoodie.operations import OVERWRITING
from metatable.data.keys.row_order import BY_KEY, RowOrder
from metatable.index.locations import location_codes
from metatable.index.placement import Placement
from metatable.storage.arrays import Int64s

__all__ = ["LEAVES", "NO_TASK", "GroupPlan", "WritePlan", "whole_file"]

LEAVES = -2
"""The group of a key that leaves the table."""

NO_TASK = -1
"""The task of groups that get no rows: whoever is given rows does not write them."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One file group to write: from which slice (None: a new group), under which name, where."""

    target: DataFile | LogFile
    base: FileSlice | None
    task: int
    forwards: tuple[LogFile, ...] = ()
    """Logs on the children of a group that is being resized: of those that get some of it."""

    @property
    def targets(self) -> tuple[DataFile | LogFile, ...]:
        """All files that it may come to."""
        if self.base and self.forwards and is_virtual(self.base.children[0]):
            return self.forwards
        return self.target, *self.forwards

    @property
    def kind(self) -> Literal["CREATE", "MERGE", "APPEND"]:
        """What Hudi calls it: a group is opened (CREATE) or written anew (MERGE), or a log is put
        on it, or where it will be (APPEND)."""
        if isinstance(self.target, LogFile):
            return "APPEND"
        return "MERGE" if self.base else "CREATE"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All file groups to write. Where the index has no placement, `bins` are, for each partition
    path, the groups that the ranges of inserts go to (ordinals) and the texts between them (one
    fewer), in this order."""

    instant: str
    operation: str
    groups: tuple[GroupPlan, ...]
    bins: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]
    placement: Placement | None
    proven: bool
    """Whether a located key is one that its file holds: one that is not is a miss of the index."""
    tasks: int
    order: RowOrder = BY_KEY
    asks_for_keys: bool = True
    """Whether entries are made of all keys of a new file, not just of those that come and go."""
    prepared: bool = False
    """Whether what goes before the data files is there already; else each task sees to its own."""
    sums_keys: bool = False
    """Whether tasks add up the keys that they were given (`same_rows.py`)."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All files that it may write, relative to the table."""
        logs = [at for at, one in enumerate(self.groups) if isinstance(one.target, LogFile)]
        groups = (*self.groups, *map(self.anew, logs))
        return tuple(file.path for one in groups for file in one.targets)

    def anew(self, place: int) -> GroupPlan:
        """A group of the plan, to be written anew where a log was planned."""
        group = self.groups[place]
        path, file_id = group.target.partition_path, group.target.file_id
        target = whole_file(path, file_id, place, self.instant)
        return replace(group, target=target, forwards=())

    def texts(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """What inserts are in order by."""
        return self.order.texts(rows)

    @property
    def replaces(self) -> bool:
        """Whether what its groups hold now leaves the table."""
        return self.operation in OVERWRITING

    @property
    def opened(self) -> tuple[tuple[str, str], ...]:
        """(partition path, id) of groups that another writer could open, too: it would be told
        the same id by the index's placement."""
        if self.placement is None:
            return ()
        new = [group.target for group in self.groups if group.base is None]
        return tuple((one.partition_path, one.file_id) for one in new)

    def located(self, location: pa.Array) -> Int64s:
        """The group of each location that an index has told, -1 where it is null; `LEAVES`, where
        what is stored leaves the table."""
        if self.replaces:
            known = location.is_valid().to_numpy(zero_copy_only=False)
            return np.where(known, LEAVES, -1)
        told = location_codes(location)
        if told is None:
            return self.ordinals(
                *(pc.struct_field(location, name) for name in ("partition_path", "file_id"))
            )
        codes, paths, file_ids = told
        of_code = self.ordinals(pa.array(paths, pa.string()), pa.array(file_ids, pa.string()))
        return np.append(of_code, -1)[codes]

    def ordinals(self, partition_paths: pa.Array, file_ids: pa.Array) -> Int64s:
        """The group of each pair, -1 where it is none of the plan's, or null."""
        names = pc.binary_join_element_wise(partition_paths, file_ids, "\0")
        known = [f"{g.target.partition_path}\0{g.target.file_id}" for g in self.groups]
        found = pc.index_in(names, value_set=pa.array(known, pa.string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy().astype(np.int64))


def whole_file(path: str, file_id: str, place: int, instant: str) -> DataFile:
    """The base file of a group at this place of its plan."""
    return DataFile(path, file_id, f"{place}-0-0", instant)
