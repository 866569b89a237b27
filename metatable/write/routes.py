"""Routes: which group of a plan each row goes to, and which task.

Which insert goes to which group is decided by its text alone, that of its key as a rule, so files
hold narrow ranges wherever keys have an order, and no row needs to know its place in the input. An
index with a placement of its own decides instead, for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.hoodie.operations import DELETE
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.rows.taking import grouped, whole
from metatable.engine.protocol import TASK_COLUMN
from metatable.index.locations import LOCATION_COLUMN
from metatable.index.placement import placed
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters
from metatable.storage.ordering import PrefixIndex
from metatable.write.plan import WritePlan
from metatable.write.same_rows import other_rows

__all__ = ["ROUTE", "SOURCE_COLUMN", "Destinations", "route"]

SOURCE_COLUMN = "_metatable_source"
ROUTE = pa.schema(
    [pa.field(TASK_COLUMN, pa.list_(pa.int32())), pa.field(SOURCE_COLUMN, pa.int32())]
)
"""The tasks that a row goes to, and the group of the plan that holds its key now; -1: none does,
`LEAVES`: one that leaves the table."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where the rows of a batch come from and go to.

    `source` (one per row) is the group that holds the row's key now, below 0 where none of the
    plan's does. `rows` and `groups` are pairs, rows ascending: that row is put into that group. A
    row that stays has its source as its group, one that moves another group, and one that is
    deleted no pair.
    """

    source: Int64s
    rows: Int64s
    groups: Int64s

    @classmethod
    def of(cls, plan: WritePlan, batch: pa.RecordBatch | pa.Table, source: Int64s) -> Destinations:
        """The destinations of a batch, from its key texts and from where its rows come from."""
        if plan.operation == DELETE:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(source, nothing, nothing)
        keys, paths = whole(batch[KEY]), whole(batch[PATH])
        if plan.placement is not None:
            rows, file_ids = placed(plan.placement, keys, paths)
            groups = plan.ordinals(paths.take(pa.array(rows)), file_ids)
            _refuse_unplanned(paths, rows[groups < 0])
            return cls(source, rows, groups)
        encoded = paths.dictionary_encode()
        codes, names = encoded.indices.to_numpy(), encoded.dictionary
        held_in = pa.array([one.target.partition_path for one in plan.groups], pa.string())
        path_of = pc.fill_null(pc.index_in(held_in, names), -1).to_numpy()  # of each group
        stays = (source >= 0) & (np.append(path_of, -1)[np.maximum(source, -1)] == codes)
        target = np.where(stays, source, -1)
        _place_inserts(plan, paths, encoded, plan.texts(batch), target)
        return cls(source, np.arange(len(target)), target)

    @classmethod
    def joined(cls, parts: Sequence[Destinations]) -> Destinations:
        """The destinations of several batches, as if their rows were one batch."""
        starts = np.cumsum([0, *(len(one.source) for one in parts)])
        rows = [one.rows + start for one, start in zip(parts, starts[:-1], strict=True)]
        sources, groups = ([getattr(one, name) for one in parts] for name in ("source", "groups"))
        return cls(*map(np.concatenate, (sources, rows, groups)))


def route(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: `ROUTE` of each row. The tasks are a list: a row that moves goes to two groups."""
    task_of = np.array([group.task for group in plan.groups], dtype=np.int64)
    for batch in batches:
        source = plan.located(whole(batch[LOCATION_COLUMN]))
        to = Destinations.of(plan, batch, source)
        leaves = np.flatnonzero(to.source >= 0)
        rows = np.concatenate([leaves, to.rows])
        tasks = task_of[np.concatenate([to.source[leaves], to.groups])]
        pairs = np.sort(rows * plan.tasks + tasks, kind="stable")  # two runs in order are merged
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        offsets = np.searchsorted(pairs, np.arange(batch.num_rows + 1) * plan.tasks)
        lists = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(pairs % plan.tasks, pa.int32())
        )
        yield pa.RecordBatch.from_arrays([lists, pa.array(source, pa.int32())], schema=ROUTE)


def _place_inserts(
    plan: WritePlan,
    paths: pa.Array,
    encoded: pa.DictionaryArray,
    keys: pa.Array,
    target: Int64s,
) -> None:
    """Fill in what has no target yet; `encoded`: the same paths."""
    wanted = np.flatnonzero(target < 0)
    found, rows_of = grouped({"path": encoded.take(pa.array(wanted))})
    for path, places in zip(found["path"].to_pylist(), rows_of, strict=True):
        rows = wanted[places]
        if path not in plan.bins:
            _refuse_unplanned(paths, rows)
        cuts, ordinals = plan.bins[path]
        if not cuts:
            target[rows] = ordinals[0]
            continue
        between = PrefixIndex(pa.array(cuts, pa.string()))
        target[rows] = np.array(ordinals)[between.place(keys.take(pa.array(rows)), "right")]


def _refuse_unplanned(paths: pa.Array, rows: Int64s) -> None:
    if len(rows):
        found = paths[int(rows[0])].as_py()
        raise other_rows([found])
