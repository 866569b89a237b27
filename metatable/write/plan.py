"""Workload: from where the rows are to what has to be written.

`count_groups` tells, for each partition of rows, how many go where, and a sample of the keys
that have no place yet. `WritePlan.make` turns that into file groups to write: every group with
updates or deletes is rewritten; inserts fill small files first and then new groups. Which
insert goes to which group is decided by the key alone: the bins of a partition are ranges of
keys, cut at quantiles of the sample, so files hold narrow ranges of keys wherever keys have
an order, and no row needs to know its place in the input.

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
from metatable.data.slices import DataFile, new_file_id
from metatable.index.protocol import LOCATION_COLUMN
from metatable.metadata.column_stats import row_counts
from metatable.metadata.files import current_slices, slices_of_partition
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError
from metatable.storage.ordering import PrefixIndex, sort_order

__all__ = [
    "DELETE",
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

GROUP_BYTES = 1 << 30
"""Rows in memory that one commit puts into one file group, however well they compress."""

SMALL_FILES = 64
"""At most so many small files of a partition are filled up in one commit."""

PROFILE = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("located_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("keys", pa.list_(pa.string())),
    ]
)


def count_groups(
    options: Options, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: rows of each (partition path, location), with keys in order; in `PROFILE`.

    The keys are all of them, or every n-th, beginning with the least.
    """
    table = pa.Table.from_batches(list(batches))
    location = table[LOCATION_COLUMN].combine_chunks()
    columns = {
        "partition_path": table[PATH],
        "located_path": pc.struct_field(location, "partition_path"),
        "file_id": pc.struct_field(location, "file_id"),
    }
    places = pa.table({**columns, "row": np.arange(table.num_rows)})
    groups = places.group_by(list(columns), use_threads=False).aggregate([("row", "list")])
    width = table.nbytes / max(table.num_rows, 1)
    keys = table[KEY].combine_chunks()
    rows = groups["row_list"].combine_chunks()
    counts = pc.list_value_length(rows).to_numpy()
    finest = max(1, _most_rows(options, width) // FILE_KEYS)
    samples = [_sample(keys, rows[number].values, finest) for number in range(len(rows))]
    yield pa.RecordBatch.from_arrays(
        [
            *(groups[name].combine_chunks() for name in columns),
            pa.array(counts, pa.int64()),
            pa.array((counts * width).astype(np.int64)),
            pa.array(samples, pa.list_(pa.string())),
        ],
        schema=PROFILE,
    )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One file group to write: from which slice (None: a new group), under which name, where."""

    target: DataFile
    base: DataFile | None
    task: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All file groups to write; `bins` are, for each partition path, the groups that inserts
    go to (ordinals) and the keys between them (one fewer)."""

    instant: str
    operation: str
    groups: tuple[GroupPlan, ...]
    bins: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]
    tasks: int

    @classmethod
    def make(
        cls, snapshot: Snapshot, profile: pa.Table, operation: str, instant: str, slots: int
    ) -> WritePlan:
        """The plan for what `count_groups` found."""
        bases, weights = _touched(snapshot, profile)
        bins: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
        names: list[tuple[str, str]] = [(one.partition_path, one.file_id) for one in bases]
        held: list[DataFile | None] = list(bases)
        places = {name: place for place, name in enumerate(names)}
        for path, inserts in _inserts(profile, operation).items():
            cuts, sizes = _cut_keys(inserts, _bins_for(snapshot, path, inserts))
            ordinals = []
            for base, rows in sizes:
                name = (path, base.file_id if base else new_file_id())
                if name not in places:
                    places[name] = len(names)
                    names.append(name)
                    held.append(base)
                    weights.append(base.size_bytes if base else 0)
                ordinals.append(places[name])
                weights[places[name]] += int(rows * inserts.width)
            bins[path] = cuts, tuple(ordinals)
        tasks, spread = _spread(weights, slots)
        groups = tuple(
            GroupPlan(_target(name, place, instant), base, task)
            for place, (name, base, task) in enumerate(zip(names, held, spread, strict=True))
        )
        return cls(instant, operation, groups, bins, tasks)


@dataclass(frozen=True, slots=True)
class Destinations:
    """For each row the group that it leaves or is updated in, and the one it is put into.

    `source` is the group that holds the key now, `target` the one that shall hold it; equal
    for an update, both set and different for a move, -1 where there is none.
    """

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]

    @classmethod
    def of(cls, plan: WritePlan, batch: pa.RecordBatch | pa.Table) -> Destinations:
        location = _whole(batch[LOCATION_COLUMN])
        located_path = pc.struct_field(location, "partition_path")
        names = pc.binary_join_element_wise(
            located_path, pc.struct_field(location, "file_id"), "\0"
        )
        known = [f"{g.target.partition_path}\0{g.target.file_id}" for g in plan.groups]
        found = pc.index_in(names, value_set=pa.array(known, pa.string()))
        source = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        if plan.operation == DELETE:
            return cls(source, np.full(len(source), -1, dtype=np.int64))
        paths = _whole(batch[PATH])
        stays = pc.fill_null(pc.equal(paths, located_path), False)
        stays = stays.to_numpy(zero_copy_only=False)
        target = np.where(stays, source, -1)
        _place_inserts(plan, paths, _whole(batch[KEY]), ~stays, target)
        return cls(source, target)


def route(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the tasks each row goes to, a list: a row that moves goes to two groups."""
    task_of = np.array([group.task for group in plan.groups] + [-1], dtype=np.int32)
    for batch in batches:
        to = Destinations.of(plan, batch)
        first, second = task_of[to.source], task_of[to.target]
        second = np.where(second == first, -1, second)
        pairs = np.stack([first, second], axis=1)
        valid = pairs >= 0
        offsets = np.concatenate([[0], np.cumsum(valid.sum(axis=1))]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(pairs[valid], pa.int32()))
        yield pa.RecordBatch.from_arrays([lists], names=[TASK_COLUMN])


def _sample(keys: pa.Array, rows: pa.Array, finest: int) -> list[str]:
    step = min(finest, -(-len(rows) // SAMPLE_KEYS))
    keys = keys.take(rows)
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
    found: dict[str, _Inserts] = {}
    for one in profile.to_pylist() if operation != DELETE else []:
        if one["located_path"] == one["partition_path"]:
            continue
        inserts = found.setdefault(one["partition_path"], _Inserts())
        inserts.add(one["rows"], one["bytes"], one["keys"])
    return dict(sorted(found.items()))


def _touched(snapshot: Snapshot, profile: pa.Table) -> tuple[list[DataFile], list[int]]:
    """Current slices of the groups that hold some of the rows' keys, and how heavy each is."""
    located = profile.filter(profile["file_id"].is_valid())
    grouped = located.group_by(["located_path", "file_id"]).aggregate([("bytes", "sum")])
    rows = grouped.sort_by("file_id")
    paths, ids = rows["located_path"].to_pylist(), rows["file_id"].to_pylist()
    bases: list[DataFile] = []
    for path, file_id, base in zip(paths, ids, current_slices(snapshot, paths, ids), strict=True):
        if base is None:
            raise CorruptError("index names a file group that is not there", found=(path, file_id))
        bases.append(base)
    sizes = rows["bytes_sum"].to_pylist()
    return bases, [base.size_bytes + size for base, size in zip(bases, sizes, strict=True)]


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


def _target(name: tuple[str, str], place: int, instant: str) -> DataFile:
    return DataFile(name[0], name[1], f"{place}-0-0", instant)


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
            raise CorruptError("a row appeared after the plan was made", partition_path=path)
        cuts, ordinals = plan.bins[path]
        between = PrefixIndex(pa.array(cuts, pa.string()))
        target[rows] = np.array(ordinals)[between.place(keys.take(pa.array(rows)), "right")]


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
