"""Workload: from where the rows are to what has to be written.

`count_groups` tells, for each partition of rows, how many go where, and a sample of the keys
that have no place yet. `WritePlan.make` turns that into file groups to write: every group with
updates or deletes is rewritten; inserts fill small files first and then new groups. Which
insert goes to which group is decided by the key alone: the bins of a partition are ranges of
keys, cut at quantiles of the sample, so files hold narrow ranges of keys wherever keys have
an order, and no row needs to know its place in the input. An index with a placement of its own
decides instead of the bins, for all rows.

The names of all files are fixed by the plan: a second attempt of a task finds the first
one's file and adopts it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import KEY, PATH
from metatable.data.options import Options
from metatable.data.slices import DataFile, is_file_id, new_file_id
from metatable.data.taking import grouped
from metatable.index.placement import Placement
from metatable.index.protocol import LOCATION_COLUMN, Index
from metatable.metadata.column_stats import row_counts
from metatable.metadata.files import current_slices, slices_of_partition
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.ordering import PrefixIndex, sort_order

__all__ = [
    "DELETE",
    "NAMED_KEYS",
    "PROFILE",
    "TASK_COLUMN",
    "Destinations",
    "GroupPlan",
    "WritePlan",
    "count_groups",
    "route",
]

TASK_COLUMN = "_metatable_task"
DELETE = "delete"

SAMPLE_KEYS = 2048
"""Keys a partition of rows gives as a sample: all of a small batch, enough of a large one."""

FILE_KEYS = 64
"""Keys at least that stand for the rows of one file: so much finer are samples than files."""

TASK_BYTES = 256 << 20
"""Rows and stored files that one task is given; only a single file group may be more."""

NAMED_KEYS = 5
"""So many keys an error names."""

GROUP_BYTES = 1 << 30
"""Rows in memory that one commit puts into one file group, however well they compress."""

SMALL_FILES = 64
"""At most so many small files of a partition are filled up in one commit."""

PROFILE = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("located_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("target_id", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("keys", pa.list_(pa.string())),
    ]
)


def count_groups(
    options: Options,
    placement: Placement | None,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: rows of each (partition path, location, placed group), in `PROFILE`.

    Of rows that a plan must find a place for, the keys in order: all of them, or every n-th,
    beginning with the least. Of others a few, to be named.
    """
    table = pa.Table.from_batches(list(batches))
    places, row_of = _places(table, placement)
    groups, rows = grouped(places)
    width = table.nbytes / max(table.num_rows, 1)
    keys = table[KEY].combine_chunks()
    counts = np.array([len(here) for here in rows], dtype=np.int64)
    finest = max(1, _most_rows(options, width) // FILE_KEYS)
    samples = [
        _sample(keys, row_of[here], finest)
        if _is_open(group)
        else keys.take(pa.array(row_of[here[:NAMED_KEYS]])).to_pylist()
        for group, here in zip(groups.to_pylist(), rows, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(
        [
            *(groups[name].combine_chunks() for name in places),
            pa.array(counts),
            pa.array((counts * width).astype(np.int64)),
            pa.array(samples, pa.list_(pa.string())),
        ],
        schema=PROFILE,
    )


def _is_open(group: Mapping[str, str | None]) -> bool:
    """Whether rows of this kind may go to any file group of their partition."""
    stays = group["located_path"] == group["partition_path"]
    return not stays and group["target_id"] is None


def _places(
    table: pa.Table, placement: Placement | None
) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64]]:
    """Where rows come from and, where that is decided, go to; and which rows these are."""
    location = _whole(table[LOCATION_COLUMN])
    columns = {
        "partition_path": _whole(table[PATH]),
        "located_path": pc.struct_field(location, "partition_path"),
        "file_id": pc.struct_field(location, "file_id"),
    }
    if placement is None:
        rows, file_ids = np.arange(table.num_rows), pa.nulls(table.num_rows, pa.string())
    else:
        rows, file_ids = placement.place(_whole(table[KEY]), columns["partition_path"])
        _check_placed(rows, file_ids, table.num_rows)
        columns = {name: one.take(pa.array(rows)) for name, one in columns.items()}
    return columns | {"target_id": file_ids}, rows


def _check_placed(rows: npt.NDArray[np.int64], file_ids: pa.Array, count: int) -> None:
    """Placements are written by others, too: no row may be lost, no id make a name of no file."""
    placed = np.zeros(count, dtype=bool)
    placed[rows] = True
    if not placed.all() or (np.diff(rows) < 0).any() or len(file_ids) != len(rows):
        raise UsageError(
            "the index has not placed all rows, in ascending order",
            expected=f"{count} rows or more, each with a file id",
            found=f"{int(placed.sum())} rows, {len(file_ids)} file ids",
        )
    for file_id in pc.unique(file_ids).to_pylist():
        if file_id is None or not is_file_id(file_id):
            raise UsageError(
                "the index has placed rows under an id that makes no file name",
                expected="up to 100 letters, digits and hyphens",
                found=file_id,
            )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One file group to write: from which slice (None: a new group), under which name, where."""

    target: DataFile
    base: DataFile | None
    task: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All file groups to write. Where the index has no placement, `bins` are, for each partition
    path, the groups that inserts go to (ordinals) and the keys between them (one fewer)."""

    instant: str
    operation: str
    groups: tuple[GroupPlan, ...]
    bins: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]
    placement: Placement | None
    proven: bool
    """Whether a located key is one that its file holds: one that is not is a miss of the index."""
    tasks: int

    @classmethod
    def make(
        cls,
        snapshot: Snapshot,
        index: Index,
        profile: pa.Table,
        operation: str,
        instant: str,
        slots: int,
    ) -> WritePlan:
        """The plan for what `count_groups` found."""
        chosen = _Groups()
        for held, weight in _touched(snapshot, profile):
            chosen.add(held.partition_path, held.file_id, held, weight)
        if operation != DELETE:
            for path, file_id, base, weight in _placed(snapshot, profile):
                chosen.add(path, file_id, base, weight)
        bins = {}
        for path, inserts in _inserts(profile, operation).items():
            cuts, sizes = _cut_keys(inserts, _bins_for(snapshot, path, inserts))
            bins[path] = (
                cuts,
                tuple(
                    chosen.add(
                        path,
                        base.file_id if base else new_file_id(),
                        base,
                        int(rows * inserts.width) + (base.size_bytes if base else 0),
                    )
                    for base, rows in sizes
                ),
            )
        tasks, spread = _spread(chosen.weights, slots)
        return cls(
            instant=instant,
            operation=operation,
            groups=chosen.planned(instant, spread),
            bins=bins,
            placement=index.placement(snapshot),
            proven=index.proves_presence,
            tasks=tasks,
        )

    @property
    def opened(self) -> tuple[tuple[str, str], ...]:
        """(partition path, id) of groups that another writer could open, too: it would be told
        the same id by the index's placement."""
        if self.placement is None:
            return ()
        new = [group.target for group in self.groups if group.base is None]
        return tuple((one.partition_path, one.file_id) for one in new)

    def ordinals(self, partition_paths: pa.Array, file_ids: pa.Array) -> npt.NDArray[np.int64]:
        """The group of each pair, -1 where it is none of the plan's, or null."""
        names = pc.binary_join_element_wise(partition_paths, file_ids, "\0")
        known = [f"{g.target.partition_path}\0{g.target.file_id}" for g in self.groups]
        found = pc.index_in(names, value_set=pa.array(known, pa.string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy().astype(np.int64))


@dataclass(slots=True)
class _Groups:
    """Groups that are to be written, in the order in which they were found, and their weights."""

    places: dict[tuple[str, str], int] = field(default_factory=dict)
    bases: list[DataFile | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    def add(self, path: str, file_id: str, base: DataFile | None, weight: int) -> int:
        """Its ordinal. The weight of a stored file counts once."""
        name = (path, file_id)
        if name not in self.places:
            self.places[name] = len(self.places)
            self.bases.append(base)
            self.weights.append(weight)
        else:
            self.weights[self.places[name]] += weight - (base.size_bytes if base else 0)
        return self.places[name]

    def planned(self, instant: str, tasks: Sequence[int]) -> tuple[GroupPlan, ...]:
        return tuple(
            GroupPlan(DataFile(path, file_id, f"{place}-0-0", instant), base, task)
            for ((path, file_id), place), base, task in zip(
                self.places.items(), self.bases, tasks, strict=True
            )
        )


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where the rows of a batch come from and go to.

    `source` (one a row) is the group that holds the row's key now, -1 where none does. `rows` and
    `groups` are pairs, rows ascending: that row is put into that group. A row that stays has its
    source for a group, one that moves another, one that is deleted no pair.
    """

    source: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]

    @classmethod
    def of(cls, plan: WritePlan, batch: pa.RecordBatch | pa.Table) -> Destinations:
        location = _whole(batch[LOCATION_COLUMN])
        located_path = pc.struct_field(location, "partition_path")
        source = plan.ordinals(located_path, pc.struct_field(location, "file_id"))
        if plan.operation == DELETE:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(source, nothing, nothing)
        keys, paths = _whole(batch[KEY]), _whole(batch[PATH])
        if plan.placement is not None:
            rows, file_ids = plan.placement.place(keys, paths)
            groups = plan.ordinals(paths.take(pa.array(rows)), file_ids)
            _refuse_unplanned(paths, rows[groups < 0])
            return cls(source, rows, groups)
        stays = pc.fill_null(pc.equal(paths, located_path), False)
        stays = stays.to_numpy(zero_copy_only=False)
        target = np.where(stays, source, -1)
        _place_inserts(plan, paths, keys, ~stays, target)
        return cls(source, np.arange(len(target)), target)


def route(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the tasks each row goes to, a list: a row that moves goes to two groups."""
    task_of = np.array([group.task for group in plan.groups], dtype=np.int64)
    for batch in batches:
        to = Destinations.of(plan, batch)
        leaves = np.flatnonzero(to.source >= 0)
        rows = np.concatenate([leaves, to.rows])
        tasks = task_of[np.concatenate([to.source[leaves], to.groups])]
        pairs = np.unique(rows * plan.tasks + tasks)
        offsets = np.searchsorted(pairs, np.arange(batch.num_rows + 1) * plan.tasks)
        lists = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(pairs % plan.tasks, pa.int32())
        )
        yield pa.RecordBatch.from_arrays([lists], names=[TASK_COLUMN])


def _sample(keys: pa.Array, rows: npt.NDArray[np.int64], finest: int) -> list[str]:
    step = min(finest, -(-len(rows) // SAMPLE_KEYS))
    keys = keys.take(pa.array(rows))
    picked: list[str] = keys.take(pa.array(sort_order(keys)[::step])).to_pylist()
    return picked


def _most_rows(options: Options, width: float) -> int:
    """Rows of this many bytes that one commit puts into one file group."""
    return max(1, min(options.file_rows, int(options.file_bytes / max(width, 1.0))))


@dataclass(slots=True)
class _Inserts:
    """Rows to be put into one partition: how many, how large, sampled keys with weights.

    Between two sampled keys there are at most `slack` rows more than their weights say.
    """

    rows: int = 0
    bytes: int = 0
    slack: int = 0
    keys: list[str] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Bytes of a row in memory."""
        return max(self.bytes / max(self.rows, 1), 1.0)

    def add(self, rows: int, size_bytes: int, keys: Sequence[str]) -> None:
        """Rows of one task: each key stands for itself and those before the next one."""
        step = -(-rows // len(keys))
        self.rows += rows
        self.bytes += size_bytes
        self.slack += 2 * (step - 1)
        self.keys += keys
        self.weights += [step] * (len(keys) - 1) + [rows - step * (len(keys) - 1)]


def _inserts(profile: pa.Table, operation: str) -> dict[str, _Inserts]:
    """Rows that no index has placed and that do not stay where they are."""
    found: dict[str, _Inserts] = {}
    for one in profile.to_pylist() if operation != DELETE else []:
        if not _is_open(one):
            continue
        inserts = found.setdefault(one["partition_path"], _Inserts())
        inserts.add(one["rows"], one["bytes"], one["keys"])
    return dict(sorted(found.items()))


def _touched(snapshot: Snapshot, profile: pa.Table) -> Iterator[tuple[DataFile, int]]:
    """Current slices of the groups that hold some of the rows' keys, and how heavy each is."""
    located = profile.filter(profile["file_id"].is_valid())
    for path, file_id, base, weight in _weighed(snapshot, located, "located_path", "file_id"):
        if base is None:
            raise CorruptError("index names a file group that is not there", found=(path, file_id))
        yield base, weight


def _placed(
    snapshot: Snapshot, profile: pa.Table
) -> Iterator[tuple[str, str, DataFile | None, int]]:
    """Groups that the index has put rows into, those that are not there yet as well.

    Rows that stay have been weighed as those of the group that holds them.
    """
    placed = profile.filter(profile["target_id"].is_valid())
    stays = pc.and_(
        pc.equal(placed["located_path"], placed["partition_path"]),
        pc.equal(placed["file_id"], placed["target_id"]),
    )
    stays = pc.fill_null(stays, False)
    yield from _weighed(snapshot, placed.filter(pc.invert(stays)), "partition_path", "target_id")


def _weighed(
    snapshot: Snapshot, profile: pa.Table, path: str, file_id: str
) -> Iterator[tuple[str, str, DataFile | None, int]]:
    """(partition path, file id, current slice, bytes of it and of the rows) by two columns."""
    found = profile.group_by([path, file_id]).aggregate([("bytes", "sum")])
    found = found.sort_by([(file_id, "ascending"), (path, "ascending")])
    paths, ids = found[path].to_pylist(), found[file_id].to_pylist()
    slices, sizes = current_slices(snapshot, paths, ids), found["bytes_sum"].to_pylist()
    for one, name, base, size in zip(paths, ids, slices, sizes, strict=True):
        yield one, name, base, size + (base.size_bytes if base else 0)


_Bin = tuple[DataFile | None, int]


def _bins_for(snapshot: Snapshot, path: str, inserts: _Inserts) -> list[_Bin]:
    """(small file to fill or None for a new one, rows for it): all inserts of a partition.

    A small file is left alone where its room is less than what samples may be wrong by.
    """
    options = snapshot.options
    left = inserts.rows
    bins: list[_Bin] = []
    width = inserts.width
    memory = max(1, int(GROUP_BYTES / width))
    for small, held in _small_files(snapshot, path):
        width = small.size_bytes / max(held, 1)
        room = min(options.file_rows - held, int((options.file_bytes - small.size_bytes) / width))
        rows = min(left, room - inserts.slack, memory)
        if rows > 0:
            bins.append((small, rows))
            left -= rows
    most = min(_most_rows(options, width), memory)
    most -= min(inserts.slack, most // 8)  # more slack than that is chance, and evens out
    count = -(-left // most)
    borders = [left * number // count for number in range(count + 1)] if count else []
    bins += [(None, hi - lo) for lo, hi in pairwise(borders)]
    return bins


def _small_files(snapshot: Snapshot, path: str) -> list[tuple[DataFile, int]]:
    """Files of a partition that may be filled up, smallest first, with their row counts."""
    limit = snapshot.options.small_file_bytes
    if not limit:
        return []
    small = [one for one in slices_of_partition(snapshot, path) if one.size_bytes < limit]
    small = sorted(small, key=lambda one: (one.size_bytes, one.file_id))[:SMALL_FILES]
    counts = row_counts(snapshot, small).tolist()
    return [(one, held) for one, held in zip(small, counts, strict=True) if held >= 0]


def _cut_keys(inserts: _Inserts, bins: Sequence[_Bin]) -> tuple[tuple[str, ...], list[_Bin]]:
    """Keys between neighbouring bins, so that each gets about its number of rows; and the bins,
    without those for which the sample is too coarse: every one has its first key."""
    order = sorted(range(len(inserts.keys)), key=inserts.keys.__getitem__)
    before = np.cumsum([0] + [inserts.weights[place] for place in order])[:-1]
    borders = np.cumsum([0, *(rows for _, rows in bins)])[:-1]
    first = np.searchsorted(before, borders)
    firsts, kept = np.unique(first[first < len(order)], return_index=True)
    cuts = tuple(inserts.keys[order[place]] for place in firsts[1:].tolist())
    return cuts, [bins[place] for place in kept.tolist()]


def _spread(weights: Sequence[int], slots: int) -> tuple[int, list[int]]:
    """Tasks for groups of these weights: the heaviest first, each to the least loaded task."""
    wanted = max(slots * 3, -(-sum(weights) // TASK_BYTES))
    tasks = max(1, min(len(weights), wanted))
    loads = [(0, task) for task in range(tasks)]
    spread = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda one: -weights[one]):
        load, task = loads[0]
        spread[place] = task
        heapq.heapreplace(loads, (load + weights[place] + 1, task))
    return tasks, spread


def _place_inserts(
    plan: WritePlan,
    paths: pa.Array,
    keys: pa.Array,
    wanted: npt.NDArray[np.bool_],
    target: npt.NDArray[np.int64],
) -> None:
    encoded = paths.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for number, path in enumerate(encoded.dictionary.to_pylist()):
        rows = np.flatnonzero(wanted & (codes == number))
        if not len(rows):
            continue
        if path not in plan.bins:
            _refuse_unplanned(paths, rows)
        cuts, ordinals = plan.bins[path]
        between = PrefixIndex(pa.array(cuts, pa.string()))
        target[rows] = np.array(ordinals)[between.place(keys.take(pa.array(rows)), "right")]


def _refuse_unplanned(paths: pa.Array, rows: npt.NDArray[np.int64]) -> None:
    if len(rows):
        found = paths[int(rows[0])].as_py()
        raise CorruptError("a row appeared after the plan was made", partition_path=found)


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
