"""Plan: which file groups a commit writes, and which of them each row goes to.

`WritePlan.make` turns a profile into file groups to write: every group with updates or
deletes is rewritten, inserts go to their bins. Which insert goes to which group is decided by
the key alone, so files hold narrow ranges of keys wherever keys have an order, and no row needs
to know its place in the input. An index with a placement of its own decides instead of the bins,
for all rows.

The names of all files are fixed by the plan: a second attempt of a task finds the first
one's file and adopts it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.children import is_virtual
from metatable.data.key_texts import KEY, PATH
from metatable.data.log_names import log_write_token
from metatable.data.operations import BULK_INSERT, DELETE, OVERWRITING
from metatable.data.row_order import BY_KEY, RowOrder
from metatable.data.slices import DataFile, FileSlice, LogFile, new_file_id
from metatable.data.taking import whole
from metatable.engine.protocol import TASK_COLUMN
from metatable.index.placement import Placement
from metatable.index.protocol import LOCATION_COLUMN, Index, location_codes
from metatable.metadata.view import TableView
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError
from metatable.storage.ordering import PrefixIndex
from metatable.write.bins import bins_for, inserts_of
from metatable.write.ranged_bins import ranged_bins

__all__ = [
    "LEAVES",
    "NO_TASK",
    "ROUTE",
    "SOURCE_COLUMN",
    "Destinations",
    "GroupPlan",
    "WritePlan",
    "route",
]

SOURCE_COLUMN = "_metatable_source"
ROUTE = pa.schema(
    [pa.field(TASK_COLUMN, pa.list_(pa.int32())), pa.field(SOURCE_COLUMN, pa.int32())]
)
"""The tasks that a row goes to, and the group of the plan that holds its key now; -1: none does,
`LEAVES`: one that leaves the table."""

LEAVES = -2

NO_TASK = -1
"""The task of groups that get no rows: whoever is given rows does not write them."""

TASK_BYTES = 64 << 20
"""Rows and stored files that one task is given; only a single file group may be more."""

LEAST_TASK_BYTES = 4 << 20
"""What is worth a task of its own where every slot has one."""


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

    @classmethod
    def make(
        cls,
        view: TableView,
        index: Index,
        profile: pa.Table,
        operation: str,
        instant: str,
        slots: int,
        nonce: str,
        emptied: Sequence[FileSlice] = (),
        order: RowOrder = BY_KEY,
    ) -> WritePlan:
        """The plan for what `count_groups` found. `nonce`: the writer's, for the names of logs.

        `emptied`: slices that go; if the index tells the ids of groups, theirs are written without
        rows where none come.
        """
        chosen = _Groups()
        for held, weight in _touched(view, profile):
            chosen.add(held.partition_path, held.file_id, held, weight)
        if operation != DELETE:
            for path, file_id, base, weight in _placed(view, profile):
                chosen.add(path, file_id, base, weight)
        bins = {}
        fills = operation not in (*OVERWRITING, BULK_INSERT)
        fills_logs = operation not in OVERWRITING
        for path, inserts in inserts_of(profile).items() if operation != DELETE else ():
            if fills and order.columns:
                cuts, sizes, which = ranged_bins(view, path, inserts, order)
            else:
                cuts, sizes, which = bins_for(view, path, inserts, fills)
            ordinals = [
                chosen.add(
                    path,
                    base.file_id if base else new_file_id(),
                    base,
                    int(rows * inserts.width) + (base.size_bytes if base else 0),
                )
                for base, rows in sizes
            ]
            bins[path] = cuts, tuple(ordinals[place] for place in which)
            if not index.indexes_logs:
                chosen.anew.update(bins[path][1])
        deletes = operation == DELETE or view.options.may_move
        logs = view.options.has_logs and fills_logs
        opens = logs and view.options.opens_by_logs and operation != BULK_INSERT
        tasks, spread = _spread(chosen.loads(logs), slots)
        for one in emptied if index.placement(view) is not None else ():
            if (one.partition_path, one.file_id) not in chosen.places:
                chosen.add(one.partition_path, one.file_id, one, 0)
                spread.append(NO_TASK)
        return cls(
            instant=instant,
            operation=operation,
            groups=chosen.planned(instant, spread, nonce if logs else None, deletes, opens),
            bins=bins,
            placement=index.placement(view),
            proven=index.proves_presence,
            tasks=tasks,
            order=order,
        )

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
        whole_file = _whole_file(path, file_id, place, self.instant)
        return replace(group, target=whole_file, forwards=())

    def texts(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """What inserts are in order by."""
        return self.order.texts(rows)

    @property
    def replaces(self) -> bool:
        """Whether what its groups hold now leaves the table."""
        return self.operation in OVERWRITING

    @classmethod
    def rewriting(cls, slices: Sequence[FileSlice], instant: str, slots: int) -> WritePlan:
        """The plan for writing these slices again with the rows that they hold: one of deletes, of
        no key."""
        chosen = _Groups()
        for one in slices:
            chosen.add(one.partition_path, one.file_id, one, one.size_bytes)
        tasks, spread = _spread(chosen.weights, slots)
        return cls(instant, DELETE, chosen.planned(instant, spread), {}, None, True, tasks)

    @property
    def opened(self) -> tuple[tuple[str, str], ...]:
        """(partition path, id) of groups that another writer could open, too: it would be told
        the same id by the index's placement."""
        if self.placement is None:
            return ()
        new = [group.target for group in self.groups if group.base is None]
        return tuple((one.partition_path, one.file_id) for one in new)

    def located(self, location: pa.Array) -> npt.NDArray[np.int64]:
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
    bases: list[FileSlice | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    anew: set[int] = field(default_factory=set)
    """Ordinals of those that get keys which no log may bring."""

    def add(self, path: str, file_id: str, base: FileSlice | None, weight: int) -> int:
        """Its ordinal. The weight of a stored file counts once."""
        name = (path, file_id)
        if name not in self.places:
            self.places[name] = len(self.places)
            self.bases.append(base)
            self.weights.append(weight)
        else:
            self.weights[self.places[name]] += weight - (base.size_bytes if base else 0)
        return self.places[name]

    def loads(self, logs: bool) -> list[int]:
        """What is read and written of each: a file on which a log can be put is not read."""
        return [
            weight - base.size_bytes if logs and base and place not in self.anew else weight
            for place, (base, weight) in enumerate(zip(self.bases, self.weights, strict=True))
        ]

    def planned(
        self,
        instant: str,
        tasks: Sequence[int],
        nonce: str | None = None,
        deletes: bool = False,
        opens: bool = False,
    ) -> tuple[GroupPlan, ...]:
        """`nonce`: that of a writer who puts logs on top of groups where he can. `deletes`: whether
        keys may go from them. `opens`: whether logs open groups, too."""
        planned, numbers = [], _next_numbers(self.bases)
        for ((path, file_id), place), base, task in zip(
            self.places.items(), self.bases, tasks, strict=True
        ):
            target: DataFile | LogFile = _whole_file(path, file_id, place, instant)
            forwards: tuple[LogFile, ...] = ()
            if nonce is not None and (base or opens) and place not in self.anew:
                on_top = base or FileSlice.unopened(path, file_id, instant)
                token = log_write_token(nonce, place, deletes and base is not None)
                target = on_top.next_log(token)
                named = ((one, numbers[one.file_id]) for one in on_top.children)
                forwards = tuple(child.log(number, token) for child, number in named)
            planned.append(GroupPlan(target, base, task, forwards))
        return tuple(planned)


def _next_numbers(bases: Iterable[FileSlice | None]) -> dict[str, int]:
    """The version of the next log on each child, by its file id: beyond all that its parents have
    put on it, or logs of one commit would stand before and behind those of another."""
    parents = [one for one in bases if one and one.children]
    numbers = {child.file_id: 1 for one in parents for child in one.children}
    for log in (log for one in parents for log in one.forwarded):
        numbers[log.file_id] = max(numbers[log.file_id], log.named.version + 1)
    return numbers


def _whole_file(path: str, file_id: str, place: int, instant: str) -> DataFile:
    """The base file of a group at this place of its plan."""
    return DataFile(path, file_id, f"{place}-0-0", instant)


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where the rows of a batch come from and go to.

    `source` (one per row) is the group that holds the row's key now, below 0 where none of the
    plan's does. `rows` and `groups` are pairs, rows ascending: that row is put into that group. A
    row that stays has its source as its group, one that moves another group, and one that is
    deleted no pair.
    """

    source: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, plan: WritePlan, batch: pa.RecordBatch | pa.Table, source: npt.NDArray[np.int64]
    ) -> Destinations:
        """The destinations of a batch, from its key texts and from where its rows come from."""
        if plan.operation == DELETE:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(source, nothing, nothing)
        keys, paths = whole(batch[KEY]), whole(batch[PATH])
        if plan.placement is not None:
            rows, file_ids = plan.placement.place(keys, paths)
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


def _touched(view: TableView, profile: pa.Table) -> Iterator[tuple[FileSlice, int]]:
    """Current slices of the groups that hold some of the rows' keys, and how heavy each is."""
    located = profile.filter(profile["file_id"].is_valid())
    for path, file_id, base, weight in _weighed(view, located, "located_path", "file_id"):
        if base is None:
            raise CorruptError("index names a file group that is not there", found=(path, file_id))
        yield base, weight


def _placed(view: TableView, profile: pa.Table) -> Iterator[tuple[str, str, FileSlice | None, int]]:
    """Groups that the index has put rows into, those that are not there yet as well.

    Rows that stay have been weighed as those of the group that holds them.
    """
    placed = profile.filter(profile["target_id"].is_valid())
    stays = pc.and_(
        pc.equal(placed["located_path"], placed["partition_path"]),
        pc.equal(placed["file_id"], placed["target_id"]),
    )
    stays = pc.fill_null(stays, False)
    yield from _weighed(view, placed.filter(pc.invert(stays)), "partition_path", "target_id")


def _weighed(
    view: TableView, profile: pa.Table, path: str, file_id: str
) -> Iterator[tuple[str, str, FileSlice | None, int]]:
    """(partition path, file id, current slice, bytes of it and of the rows) by two columns."""
    if not profile.num_rows:
        return
    found = profile.group_by([path, file_id]).aggregate([("bytes", "sum")])
    found = found.sort_by([(file_id, "ascending"), (path, "ascending")])
    paths, ids = found[path].to_pylist(), found[file_id].to_pylist()
    slices, sizes = view.current(paths, ids), found["bytes_sum"].to_pylist()
    for one, name, base, size in zip(paths, ids, slices, sizes, strict=True):
        yield one, name, base, size + (base.size_bytes if base else 0)


def _spread(weights: Sequence[int], slots: int) -> tuple[int, list[int]]:
    """Tasks for groups of these weights: the heaviest first, each to the least loaded task."""
    total = sum(weights)
    evenly = min(slots * 3, total // LEAST_TASK_BYTES)  # so that the last ones end together
    wanted = max(slots, evenly, -(-total // TASK_BYTES))
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
    encoded: pa.DictionaryArray,
    keys: pa.Array,
    target: npt.NDArray[np.int64],
) -> None:
    """Fill in what has no target yet; `encoded`: the same paths."""
    wanted = np.flatnonzero(target < 0)
    codes = encoded.indices.to_numpy()[wanted]
    for number, path in enumerate(encoded.dictionary.to_pylist()):
        rows = wanted[codes == number]
        if not len(rows):
            continue
        if path not in plan.bins:
            _refuse_unplanned(paths, rows)
        cuts, ordinals = plan.bins[path]
        if not cuts:
            target[rows] = ordinals[0]
            continue
        between = PrefixIndex(pa.array(cuts, pa.string()))
        target[rows] = np.array(ordinals)[between.place(keys.take(pa.array(rows)), "right")]


def _refuse_unplanned(paths: pa.Array, rows: npt.NDArray[np.int64]) -> None:
    if len(rows):
        found = paths[int(rows[0])].as_py()
        raise CorruptError("a row appeared after the plan was made", partition_path=found)
