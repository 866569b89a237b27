"""A written file group before it has its name in the store, and how it comes by it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import IO, cast

from metatable.data.base_files.base_file_writer import store_base_file
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.keys.key_texts import KEY
from metatable.data.reading.slice_reader import keys_of_log
from metatable.data.rows.row_counts import RowCounts
from metatable.metadata.view import TableView
from metatable.metadata.written import WrittenSlice, facts_of_stored, stats_columns
from metatable.write.new_log import stats_of_log
from metatable.write.receipts import FileReceipt
from metatable.write.same_rows import refuse_other_keys

__all__ = ["MadeGroup", "on_top_of"]


@dataclass(frozen=True, slots=True)
class MadeGroup:
    """A group's new base file, or logs, complete but for their names in the store."""

    bodies: tuple[bytes | IO[bytes], ...]
    """None of a base file that is too large to wait: it is stored already."""
    ours: bool
    """Of one that is stored: whether by us."""
    written: WrittenSlice
    counts: RowCounts
    """What happened to get there, as the merge tells it."""
    told: RowCounts
    """The group's part of the commit's counts."""

    def stored(self, view: TableView) -> tuple[list[FileReceipt], WrittenSlice]:
        """The same under its name, unless another attempt was first: then what that has stored."""
        return self._logs_stored(view) if self.written.logs else self._base_stored(view)

    def _base_stored(self, view: TableView) -> tuple[list[FileReceipt], WrittenSlice]:
        written, ours, base = self.written, self.ours, self.written.replaced
        target = written.made.base
        for body in self.bodies:
            size_bytes, ours = store_base_file(view.store, target, body)
            target = replace(target, size_bytes=size_bytes)
        if not ours:
            columns, schema = stats_columns(view.table_schema, view.options), view.table_schema
            keys, stats = facts_of_stored(view.store, FileSlice(target), columns, schema)
            refuse_other_keys(target.path, target.row_count, written.keys, keys)
            written = replace(written, made=FileSlice(target), keys=keys, stats=stats)
        stat = WriteStat.of(target, base.instant if base else None, self.counts)
        return [FileReceipt(stat, self.told)], written

    def _logs_stored(self, view: TableView) -> tuple[list[FileReceipt], WrittenSlice]:
        written, counts, told = self.written, self.counts, self.told
        bodies = cast("tuple[bytes, ...]", self.bodies)  # only base files wait on disk
        logs = zip(written.logs, bodies, strict=True)
        stored = [_log_stored(view, file, stats, body) for (file, stats), body in logs]
        base = on_top_of(written.replaced, written.logs[0][0])
        made = base.with_logs([file for file, _ in stored])
        receipts = []
        for file, stats in stored:
            rows = next(one.value_count for one in stats if one.column == KEY)
            receipts.append(FileReceipt(WriteStat.of_log(made, file, rows, counts), told))
            counts = told = RowCounts()  # what the group counts, its first log tells
        return receipts, replace(written, made=made, logs=tuple(stored))


def on_top_of(base: FileSlice | None, log: LogFile) -> FileSlice:
    """What a log of a group is put on: nothing, if it opens it."""
    return base or FileSlice.unopened(log.partition_path, log.file_id, log.instant)


def _log_stored(
    view: TableView, file: LogFile, stats: tuple[ColumnStats, ...], body: bytes
) -> tuple[LogFile, tuple[ColumnStats, ...]]:
    if view.store.create(file.path, body):
        return file, stats
    other = view.store.fetch(file.path)
    told = zip(keys_of_log(body, file.path), keys_of_log(other, file.path), strict=True)
    for ours, stored in told:
        refuse_other_keys(file.path, len(ours), ours, stored)
    file = replace(file, size_bytes=len(other))
    return file, stats_of_log(view, file)
