"""Overwriting: whole table partitions are replaced, or go.

What is in the partitions when the commit is made leaves the table, file group by file group, and
only what the commit brings is in them afterwards:

    insert_overwrite         the partitions that occur among the rows
    insert_overwrite_table   all
    delete_partition         those that are named; there are no rows

File groups go for good: Hudi's readers pass over a replaced one whatever its instant is, so its id
is never used again. Where an index tells the ids, the groups of a partition are therefore all
written anew instead, those that get no rows without any.

How a user names partitions, `named_partitions.py` tells; what the index is told of what goes,
`entries_gone.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.hoodie.commit_metadata import ids_by_path
from metatable.data.hoodie.operations import (
    DELETE_PARTITION,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
)
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.rows.taking import grouped, whole
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.locations import LOCATION_COLUMN
from metatable.metadata.commits.change import Race
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import FEW_PARTITIONS, TableView
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.write.plan import WritePlan
from metatable.write.profile import NAMED_KEYS

__all__ = ["Overwritten", "PartitionsUnchanged", "overwritten"]

_WHERE = pa.schema(
    [("path", pa.string()), ("located", pa.string()), ("keys", pa.list_(pa.string()))]
)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The table partitions that a commit overwrites (None: all), and the slices in them."""

    paths: tuple[str, ...] | None
    files: FileSystemView
    rows: Int64s
    """The rows of each slice; -1 where the number is not known."""

    @property
    def row_count(self) -> int | None:
        """How many rows they have; None where they would have to be read for that."""
        return None if (self.rows < 0).any() else int(self.rows.sum())

    def deleted(self, updated: int | None) -> int | None:
        """How many rows leave of which so many come back."""
        if self.row_count is None or updated is None:
            return None
        return max(self.row_count - updated, 0)

    @property
    def filled(self) -> FileSystemView:
        """Slices that have rows, or may have."""
        return self.files.take(np.flatnonzero(self.rows))

    def leaving(self, plan: WritePlan) -> FileSystemView:
        """Those whose file groups leave with them: all, or, where the index tells ids, none."""
        return self.files if plan.placement is None else self.files.take(np.zeros(0, np.int64))

    def told(self, plan: WritePlan) -> dict[str, tuple[str, ...]]:
        """File ids that leave the table, by partition path: as Hudi is told of them."""
        files = self.leaving(plan)
        paths = files.folders.to_pylist() if self.paths is None else self.paths
        folders = files.folders.take(pa.array(files.folder_of)).to_pylist()
        return ids_by_path(zip(folders, files.file_ids().to_pylist(), strict=True), paths)


@dataclass(frozen=True, slots=True)
class PartitionsUnchanged:
    """Nobody else has written to these table partitions (None: to any)."""

    paths: tuple[str, ...] | None

    def check(self, race: Race) -> None:
        before, now = (
            pc.struct_field(_files_in(one, self.paths).lists().flatten(), "path")
            for one in (Snapshot(race.store, race.base), race.snapshot)
        )
        if before.equals(now):
            return
        strange = pc.is_in(now, value_set=before)
        raise race.lost(
            "another commit wrote to a partition that is overwritten: retry",
            found=now.filter(pc.invert(strange))[:NAMED_KEYS].to_pylist(),
        )


def overwritten(
    engine: Engine[Any],
    located: Any,
    view: TableView,
    operation: str,
    named: tuple[str, ...],
) -> Overwritten:
    """What a commit of these rows overwrites; `named`: what it deletes.

    Raises UsageError for rows whose key lives in a partition that stays: they would have to move.
    """
    if operation == DELETE_PARTITION:
        return _overwritten(view, _there(view, named))
    if operation == INSERT_OVERWRITE_TABLE:
        return _overwritten(view, None)
    assert operation == INSERT_OVERWRITE
    where = engine.run(engine.select(located, [KEY, PATH, LOCATION_COLUMN]), _where, _WHERE)
    paths = pc.unique(where["path"])
    stays = pc.invert(pc.is_in(where["located"], value_set=paths))
    elsewhere = where.filter(pc.and_(stays, where["located"].is_valid()))
    if elsewhere.num_rows:
        keys = sorted(key for few in elsewhere["keys"].to_pylist() for key in few)
        raise UsageError(
            "insert_overwrite of keys that live in other partitions: they would have to move",
            keys=keys[:NAMED_KEYS],
            found=sorted(set(elsewhere["located"].to_pylist()))[:NAMED_KEYS],
            expected="keys that are new, or live in the partitions that are overwritten",
        )
    return _overwritten(view, tuple(sorted(paths.to_pylist())))


def _overwritten(view: TableView, paths: tuple[str, ...] | None) -> Overwritten:
    files = _files_in(view, paths)
    if files.is_pending.any() and create_index(view.options).placement(view) is not None:
        # logs since the schedule tell an instant that is not complete yet, and Hudi 1.x reads such
        # ones on top of a group's newest base, also of one that was written anew
        waits = np.flatnonzero(files.is_pending)[:NAMED_KEYS].tolist()
        raise UsageError(
            "file groups that would be written anew wait for something scheduled: carry it out"
            " first",
            found=[files[place].path for place in waits],
        )
    return Overwritten(paths, files, view.row_counts(files))


def _there(view: TableView, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these partitions that have files."""
    if len(paths) > FEW_PARTITIONS:
        there = set(view.slices().folders.to_pylist())
        return tuple(path for path in paths if path in there)
    return tuple(path for path in paths if len(view.slices(path)))


def _files_in(view: TableView, paths: Sequence[str] | None) -> FileSystemView:
    if paths is None:
        return view.slices()
    if len(paths) > FEW_PARTITIONS:
        files = view.slices()
        wanted = pc.is_in(files.folders, value_set=pa.array(list(paths), pa.string()))
        inside = wanted.to_numpy(zero_copy_only=False)[files.folder_of]
        return files.take(np.flatnonzero(inside))
    parts = [view.slices(path) for path in paths]
    return FileSystemView.joined(parts)


def _where(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Task: where rows go, and where their keys are now; with a few of the keys that might have to
    move."""
    found = dict[tuple[str, str | None], list[str]]()
    for batch in batches:
        located = pc.struct_field(batch[LOCATION_COLUMN], "partition_path")
        groups, rows = grouped({"path": whole(batch[PATH]), "located": located})
        places = zip(groups["path"].to_pylist(), groups["located"].to_pylist(), strict=True)
        for place, here in zip(places, rows, strict=True):
            keys = found.setdefault(place, [])
            if place[1] not in (None, place[0]) and len(keys) < NAMED_KEYS:
                some = pa.array(here[: NAMED_KEYS - len(keys)])
                keys += batch[KEY].take(some).to_pylist()
    told = [dict(zip(_WHERE.names, (*place, keys), strict=True)) for place, keys in found.items()]
    yield pa.RecordBatch.from_pylist(told, schema=_WHERE)
