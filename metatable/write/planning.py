"""Planning: which file groups a commit writes.

Every group with updates or deletes is written anew, or gets a log; inserts go to the bins of their
partition, or where the index's placement puts them.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.log_names import log_write_token
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile, new_file_id
from metatable.data.hoodie.operations import BULK_INSERT, DELETE, OVERWRITING
from metatable.data.keys.row_order import BY_KEY, RowOrder
from metatable.index.protocol import Index
from metatable.metadata.view import TableView
from metatable.storage.errors import CorruptError
from metatable.write.bins import Bins, Inserts, bins_for, inserts_of, small_files
from metatable.write.plan import NO_TASK, GroupPlan, WritePlan, whole_file
from metatable.write.ranged_bins import ranged_bins

__all__ = ["planned", "rewriting"]

TASK_BYTES = 64 << 20
"""Rows and stored files that one task is given; only a single file group may be more."""

LEAST_TASK_BYTES = 4 << 20
"""What is worth a task of its own where every slot has one."""


def planned(
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
    """The plan for what `CountGroups` found. `nonce`: the writer's, for the names of logs.

    `emptied`: slices that go; if the index tells the ids of groups, theirs are written without
    rows where none come.
    """
    placement = index.placement(view)
    chosen, bins = _Groups(), {}
    for held, weight in _touched(view, profile):
        chosen.add(held.partition_path, held.file_id, held, weight)
    if operation != DELETE:
        for path, file_id, base, weight in _placed(view, profile):
            chosen.add(path, file_id, base, weight)
        opened = inserts_of(profile)
        each = zip(opened.items(), _binned(view, opened, operation, order), strict=True)
        for (path, inserts), binned in each:
            bins[path] = chosen.add_bins(path, inserts, binned, anew=not index.indexes_logs)
    logs = view.options.has_logs and operation not in OVERWRITING
    tasks, spread = _spread(chosen.loads(logs), slots)
    for one in emptied if placement is not None else ():
        if (one.partition_path, one.file_id) not in chosen.places:
            chosen.add(one.partition_path, one.file_id, one, 0)
            spread.append(NO_TASK)
    groups = chosen.planned(
        instant,
        spread,
        nonce if logs else None,
        losing=chosen.places if operation == DELETE else _losing(profile),
        opens=logs and view.options.opens_by_logs and operation != BULK_INSERT,
    )
    return WritePlan(
        instant, operation, groups, bins, placement, index.proves_presence, tasks, order
    )


def rewriting(slices: Sequence[FileSlice], instant: str, slots: int) -> WritePlan:
    """The plan for writing these slices again with the rows that they hold: one of deletes, of no
    key."""
    chosen = _Groups()
    for one in slices:
        chosen.add(one.partition_path, one.file_id, one, one.size_bytes)
    tasks, spread = _spread(chosen.weights, slots)
    return WritePlan(instant, DELETE, chosen.planned(instant, spread), {}, None, True, tasks)


def _binned(
    view: TableView, opened: Mapping[str, Inserts], operation: str, order: RowOrder
) -> Iterator[Bins]:
    """The bins of each partition; small files are filled but by what opens groups of its own."""
    if operation in (*OVERWRITING, BULK_INSERT):
        return (bins_for(view.options, inserts, []) for inserts in opened.values())
    if order.columns:
        return ranged_bins(view, opened, order)
    told = zip(opened.values(), small_files(view, [*opened]), strict=True)
    return (bins_for(view.options, inserts, small) for inserts, small in told)


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

    def add_bins(
        self, path: str, inserts: Inserts, binned: Bins, anew: bool
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Those of a partition's bins: the texts between them, and their ordinals. `anew`: no log
        may bring their rows."""
        cuts, sizes, which = binned
        ordinals = []
        for base, rows in sizes:
            weight = int(rows * inserts.width) + (base.size_bytes if base else 0)
            file_id = base.file_id if base else new_file_id()
            ordinals.append(self.add(path, file_id, base, weight))
        named = tuple(ordinals[place] for place in which)
        if anew:
            self.anew.update(named)
        return cuts, named

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
        losing: Container[tuple[str, str]] = (),
        opens: bool = False,
    ) -> tuple[GroupPlan, ...]:
        """`nonce`: that of a writer who puts logs on top of groups where he can. `losing`: those
        from which keys may go. `opens`: whether logs open groups, too."""
        planned, numbers = [], _next_numbers(self.bases)
        for ((path, file_id), place), base, task in zip(
            self.places.items(), self.bases, tasks, strict=True
        ):
            target: DataFile | LogFile = whole_file(path, file_id, place, instant)
            forwards: tuple[LogFile, ...] = ()
            if nonce is not None and (base or opens) and place not in self.anew:
                on_top = base or FileSlice.unopened(path, file_id, instant)
                may_delete = base is not None and (path, file_id) in losing
                token = log_write_token(nonce, place, may_delete)
                target = on_top.next_log(token)
                named = ((one, numbers[one.file_id]) for one in on_top.children)
                forwards = tuple(child.log(number, token) for child, number in named)
            planned.append(GroupPlan(target, base, task, forwards))
        return tuple(planned)


def _next_numbers(bases: Iterable[FileSlice | None]) -> dict[str, int]:
    """The version of the next log on each child, by its file id: beyond all that its parents have
    put on their children, or logs of one commit would stand before and behind those of another."""
    numbers: dict[str, int] = {}
    for one in (one for one in bases if one and one.children):
        beyond = max((log.named.version for log in one.forwarded), default=0) + 1
        for child in one.children:
            numbers[child.file_id] = max(numbers.get(child.file_id, 1), beyond)
    return numbers


def _touched(view: TableView, profile: pa.Table) -> Iterator[tuple[FileSlice, int]]:
    """Current slices of the groups that hold some of the rows' keys, and how heavy each is."""
    located = profile.filter(profile["file_id"].is_valid())
    for path, file_id, base, weight in _weighed(view, located, "located_path", "file_id"):
        if base is None:
            raise CorruptError("index names a file group that is not there", found=(path, file_id))
        yield base, weight


def _losing(profile: pa.Table) -> set[tuple[str, str]]:
    """(partition path, file id) of the groups from which keys go to others."""
    located = profile.filter(profile["file_id"].is_valid())
    elsewhere = pc.not_equal(located["located_path"], located["partition_path"])
    placed = pc.fill_null(pc.not_equal(located["target_id"], located["file_id"]), False)
    leave = located.filter(pc.or_(elsewhere, placed))
    return set(zip(leave["located_path"].to_pylist(), leave["file_id"].to_pylist(), strict=True))


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
    """How many tasks, and the task of each of the groups of these weights.

    The heaviest group first, each to the least loaded task. Where there are groups enough, every
    slot has as many tasks, and the most loaded come first, so that the last ones end together.
    """
    total = sum(weights)
    evenly = min(3, total // (LEAST_TASK_BYTES * slots))
    rounds = max(1, evenly, -(-total // (TASK_BYTES * slots)))
    tasks = max(1, min(len(weights), rounds * slots))
    loads = [(0, task) for task in range(tasks)]
    spread = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda one: -weights[one]):
        load, task = loads[0]
        spread[place] = task
        heapq.heapreplace(loads, (load + weights[place] + 1, task))
    number = {task: place for place, (_, task) in enumerate(sorted(loads, reverse=True))}
    return tasks, [number[task] for task in spread]
