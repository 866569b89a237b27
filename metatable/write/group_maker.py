"""What groups of a plan come to, made of the rows of a task: new base files, and logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from metatable.data.base_files.base_file_writer import store_base_file
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile, marker_path
from metatable.data.hoodie.operations import DELETE, UPSERT
from metatable.data.rows.row_counts import RowCounts
from metatable.metadata.view import TableView
from metatable.metadata.written import NO_KEYS, WrittenSlice
from metatable.write.few_keys import Known
from metatable.write.late_logs import check_none_is_late
from metatable.write.made_group import MadeGroup, on_top_of
from metatable.write.new_log import LoggedGroup, LogMaker, NewLog, deletes_below, fits_log
from metatable.write.new_slice import Entering, Filed, merged_slice, opened_slice
from metatable.write.plan import GroupPlan, WritePlan
from metatable.write.spliced_slice import spliced_file
from metatable.write.task_rows import TaskRows

__all__ = ["GroupMaker"]


class GroupMaker:
    """Makes groups of a plan, each named by its place there, of the rows of one task."""

    def __init__(self, view: TableView, plan: WritePlan, rows: TaskRows) -> None:
        self._view, self._plan, self._rows = view, plan, rows
        if plan.operation == DELETE:  # its rows are key texts
            self._columns = view.schema.empty_table()
        else:
            self._columns = rows.table.select(view.schema.names)
        self._logs = LogMaker(view, plan.instant, self._columns, rows.all_keys)

    def made(self, places: Sequence[int]) -> list[MadeGroup]:
        """These groups, in their order. Logs of all of them are made together."""
        nulls, deleted = self._with_nulls(places), self._deleted(places)
        logged = [self._logged(one, one in nulls, deleted.get(one, [])) for one in places]
        logs = self._logs.logs([one for one in logged if one])
        return [
            self._of_logs(told, next(logs)) if told else self._of_file(place)
            for told, place in zip(logged, places, strict=True)
        ]

    def _with_nulls(self, places: Sequence[int]) -> set[int]:
        """Which of them may have nulls in place of ordering values below the logs that they get."""
        view, ordering = self._view, self._view.options.ordering
        bases = {
            place: group.base
            for place in places
            if isinstance((group := self._plan.groups[place]).target, LogFile) and group.base
        }
        if ordering is None or self._plan.operation == DELETE or not bases:
            return set()
        told = view.null_counts(ordering, view.schema.field(ordering).type, [*bases.values()])
        return {one for one, count in zip(bases, told.to_pylist(), strict=True) if count != 0}

    def _deleted(self, places: Sequence[int]) -> dict[int, list[pa.Array]]:
        """Keys that logs delete below those that groups get with rows, by place."""
        bases = {
            place: on_top_of(group.base, group.target)
            for place in places
            if isinstance((group := self._plan.groups[place]).target, LogFile)
            and len(self._rows.entering.of_group(place))
        }
        return dict(zip(bases, deletes_below(self._view, [*bases.values()]), strict=True))

    def _logged(
        self, place: int, holds_nulls: bool, deleted: Sequence[pa.Array]
    ) -> LoggedGroup | None:
        """What a log on the group is to say; None: it is written whole."""
        group = self._plan.groups[place]
        target, here = group.target, self._rows.entering.of_group(place)
        if not isinstance(target, LogFile):
            return None
        base = on_top_of(group.base, target)
        if not fits_log(self._view, base, self._entering(place, target), holds_nulls, deleted):
            return None
        gone = self._rows.gone(place)
        assert target.named.may_delete or not len(gone), target  # or the next writer looks for none
        return LoggedGroup(place, target, base, group.forwards, here, gone)

    def _of_logs(self, group: LoggedGroup, logs: Sequence[NewLog]) -> MadeGroup:
        plan, rows = self._plan, self._rows
        gone, arriving = rows.keys(group.gone), rows.arriving(group.place)
        replaced = plan.groups[group.place].base
        written = WrittenSlice(
            made=group.base.with_logs([one.file for one in logs]),
            replaced=replaced,
            keys=rows.keys(group.here),
            arrived=rows.keys(arriving),
            departed=gone if plan.operation == DELETE else NO_KEYS,
            stats=(),
            past_stats=self._view.table_schema.past_stats,
            logs=tuple((one.file, one.stats) for one in logs),
        )
        stay = len(group.here) - len(arriving)
        # whose keys alone nobody looks for, where there may be some
        known = plan.proven or plan.operation != UPSERT or not replaced
        counts = RowCounts(
            inserted=len(arriving) if known else None,
            updated=stay if known else None,
            deleted=len(gone),
        )
        bodies = tuple(one.body for one in logs)
        return MadeGroup(bodies, True, written, counts, self._counts(group.place, counts))

    def _of_file(self, place: int) -> MadeGroup:
        plan, rows, view = self._plan, self._rows, self._view
        group = plan.groups[place]
        waits = isinstance(group.target, DataFile)  # who plans logs plans many together
        if not waits:
            group = plan.anew(place)
            view.store.put(marker_path(group.target, plan.instant, group.kind), b"")
        target = group.target
        assert isinstance(target, DataFile)
        new = self._filed(place, group, target)
        if new.body is not None and not waits:
            size_bytes, ours = store_base_file(view.store, target, new.body)
            new = replace(new, body=None, size_bytes=size_bytes, ours=ours)
        written = WrittenSlice(
            made=FileSlice(replace(target, size_bytes=new.size_bytes, row_count=new.row_count)),
            replaced=group.base,
            keys=new.keys,
            arrived=rows.keys(rows.arriving(place)),
            departed=new.deleted_keys if plan.operation == DELETE else NO_KEYS,
            stats=new.stats,
            past_stats=view.table_schema.past_stats,
        )
        bodies = () if new.body is None else (new.body,)
        return MadeGroup(bodies, new.ours, written, new.counts, self._counts(place, new.counts))

    def _filed(self, place: int, group: GroupPlan, target: DataFile) -> Filed:
        """The group's new base file."""
        view, plan, rows = self._view, self._plan, self._rows
        entering = self._entering(place, target)
        if group.base is None or plan.replaces:
            return opened_slice(view, entering).filed(view, target)
        check_none_is_late(view.options, group.base)
        told = view, group.base, entering, rows.keys(rows.gone(place))
        known = Known(len(rows.arriving(place)), plan.proven, plan.asks_for_keys)
        return spliced_file(*told, target, known) or merged_slice(*told).filed(view, target)

    def _entering(self, place: int, target: DataFile | LogFile) -> Entering:
        rows = self._rows
        if isinstance(target, LogFile):  # its rows are of this instant all the same
            target = DataFile(target.partition_path, target.file_id, "", self._plan.instant)
        here = rows.entering.of_group(place)
        return Entering(self._columns, rows.all_keys, here, target, place, rows.texts)

    def _counts(self, place: int, here: RowCounts) -> RowCounts:
        """A group's part of the commit's counts, from what its merge has seen."""
        plan, arriving = self._plan, len(self._rows.arriving(place))
        moved = arriving - len(self._rows.new(place))
        if plan.replaces:  # keys that come back have been updated, wherever they were
            return replace(here, inserted=(here.inserted or 0) - moved, updated=moved)
        told = replace(here, deleted=here.deleted if plan.operation == DELETE else 0, moved=moved)
        if here.inserted is None:
            return told
        misses = here.inserted - arriving if plan.proven else 0
        return replace(told, inserted=here.inserted - misses - moved, index_misses=misses)
