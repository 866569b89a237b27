"""Rows to logs: what a commit puts on top of file groups of a merge-on-read table.

Rows that are put in stand whole in data blocks, keys that are taken out in a delete block, whatever
the group holds: nothing of it is read. A delete has no ordering value, so it takes what was there
before, as in a copy-on-write table.

Hudi's readers forget such a delete once a row of its key follows, and hold the row against the one
that the base still has (DECISIONS 79); and a null in place of an ordering value is nothing that
they can compare, neither in a log nor in the base file below it. Such rows are put into the group
by writing it anew (`fits_log`).

Where the group is being resized each child gets a log of what is in its hashes, and so does the
group one, of the same blocks, unless its reader merges those of the children.

A commit of few rows may well put a log on each of many groups. So what costs by the call is done
for the rows of many logs at once: taking, encoding and looking through them, hashing their keys. A
log is cut out of that, and has only its sizes and header for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.base_file import read_base_file
from metatable.data.base_files.meta_columns import with_meta_columns_of
from metatable.data.base_files.statistics import ColumnStats, of_all
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.children import is_virtual, node_of
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.keys.key_texts import KEY
from metatable.data.logs.log_blocks import LogWriter
from metatable.data.reading.slice_reader import log_deletes, log_rows
from metatable.data.rows.taking import rows_of, taker
from metatable.index.bucket.ring import hashes_of, part_of
from metatable.metadata.view import TableView
from metatable.metadata.written import (
    stats_columns,
    stats_of_parts,
    stats_of_rows,
)
from metatable.storage.arrays import Int64s
from metatable.storage.byte_columns import offsets_of
from metatable.storage.hudi_log import log_file
from metatable.storage.hudi_log.block import LogBlock
from metatable.storage.made_once import made_once
from metatable.write.new_slice import PIECE_BYTES, Entering

__all__ = ["LogMaker", "LoggedGroup", "NewLog", "deletes_below", "fits_log", "stats_of_log"]


@dataclass(frozen=True, slots=True)
class NewLog:
    """The name of a log and its size, its bytes, and what its rows tell."""

    file: LogFile
    body: bytes
    stats: tuple[ColumnStats, ...]

    @classmethod
    def of(cls, file: LogFile, body: bytes, stats: Sequence[ColumnStats]) -> NewLog:
        return cls(replace(file, size_bytes=len(body)), body, tuple(stats))


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """A file group that gets a log, the group at this `place` of its plan.

    `here` and `gone`: numbers of the task's rows that enter it, and of those whose keys go from it;
    `forwards`: the names of logs on its children.
    """

    place: int
    target: LogFile
    base: FileSlice
    forwards: tuple[LogFile, ...]
    here: Int64s
    gone: Int64s


@dataclass(frozen=True, slots=True)
class _Part:
    """What stands in one log: of the rows that enter a group, those of these `numbers`."""

    group: LoggedGroup
    file: LogFile
    numbers: Int64s
    gone: Int64s

    @property
    def here(self) -> Int64s:
        return self.group.here[self.numbers]


def deletes_below(view: TableView, bases: Sequence[FileSlice]) -> list[list[pa.Array]]:
    """The keys that the logs of each slice delete, fetched together; none where nobody asks: in a
    table without an ordering column."""
    asks = view.options.ordering is not None
    logs = [[one for one in base.logs if asks and one.named.may_delete] for base in bases]
    calls = [partial(log_deletes, view.store, one) for of_base in logs for one in of_base]
    told = iter(view.store.together(calls))
    return [[next(told) for _ in of_base] for of_base in logs]


def fits_log(
    view: TableView,
    base: FileSlice,
    entering: Entering,
    holds_nulls: bool,
    deleted: Sequence[pa.Array],
) -> bool:
    """Whether every reader finds these rows in a log on this slice as the table means them.

    `holds_nulls`: whether the ordering column may be null in its base file; `deleted`: what its
    logs delete."""
    ordering = view.options.ordering
    if ordering is None or not len(entering.here):
        return True
    if _is_of_bytes(view.schema.field(ordering).type):
        return False
    rows = entering.deciding(ordering)
    if rows[ordering].null_count or _has_negative_zero(rows[ordering]):
        return False
    if holds_nulls and base.has_base:
        asked = pa.schema([pa.field(KEY, pa.string()), view.schema.field(ordering)])
        held = read_base_file(view.store, base.base, asked, view.table_schema)
        below = held[KEY].filter(held[ordering].is_null()).combine_chunks()
        if pc.any(pc.is_in(rows[KEY], value_set=below)).as_py():
            return False
    return not any(pc.any(pc.is_in(rows[KEY], value_set=keys)).as_py() for keys in deleted)


def _is_of_bytes(kind: pa.DataType) -> bool:
    """Which are numbers from 0 to 255 to us, and from -128 to 127 to Hudi's readers."""
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _has_negative_zero(values: pa.ChunkedArray) -> bool:
    """Which is 0 to us, and less to Hudi's readers."""
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.to_numpy()
    return bool(((numbers == 0) & np.signbit(numbers)).any())


@dataclass(frozen=True)
class LogMaker:
    """Makes logs of the rows of a task: `columns` are the table's, `keys` the key texts (string) of
    all its rows."""

    view: TableView
    instant: str
    columns: pa.Table
    keys: pa.Array

    def logs(self, groups: Sequence[LoggedGroup]) -> Iterator[list[NewLog]]:
        """What each of them comes to, the first log with what the group counts."""
        parts = [self._parts(one) for one in groups]
        made = self._made([part for of_group in parts for part in of_group])
        for group, of_group in zip(groups, parts, strict=True):
            logs = [next(made) for _ in of_group]
            if group.base.children and not is_virtual(group.base.children[0]):
                body = b"".join(one.body for one in logs)
                copied = of_all([one.stats for one in logs])
                logs.insert(0, NewLog.of(group.target, body, copied))
            yield logs

    def _parts(self, group: LoggedGroup) -> list[_Part]:
        """Of a group that is being resized by the hashes of its children; none that is empty."""
        if not group.base.children:
            return [_Part(group, group.target, np.arange(len(group.here)), group.gone)]
        nodes = [node_of(one) for one in group.base.children]
        rows = part_of(nodes, self._hashes[group.here])
        gone = part_of(nodes, self._hashes[group.gone])
        parts = [
            _Part(group, file, np.flatnonzero(rows == number), group.gone[gone == number])
            for number, file in enumerate(group.forwards)
        ]
        return [one for one in parts if len(one.numbers) or len(one.gone)]

    def _made(self, parts: Sequence[_Part]) -> Iterator[NewLog]:
        """Those of small parts together, while their rows are no more than a piece."""
        most, some, held = rows_of(self.columns, PIECE_BYTES), list[_Part](), 0
        for part in parts:
            if some and held + len(part.numbers) > most:
                yield from self._together(some)
                some, held = [], 0
            some.append(part)
            held += len(part.numbers)
        if some:
            yield from self._together(some)

    def _together(self, parts: Sequence[_Part]) -> Iterator[NewLog]:
        counts = np.array([len(one.numbers) for one in parts])
        rows, cuts = self._rows(parts, counts), offsets_of(counts).tolist()
        deletes, data = self._delete_blocks(parts), self._data_blocks(rows, cuts)
        columns = stats_columns(self.view.table_schema, self.view.options)
        told = zip(parts, deletes, data, stats_of_parts(rows, cuts, columns), strict=True)
        for part, first, then, stats in told:
            yield NewLog.of(part.file, log_file.LogFile.encode([*first, *then]), stats)

    def _rows(self, parts: Sequence[_Part], counts: Int64s) -> pa.Table:
        """The rows as logs have them: each names its group in place of a file."""
        numbers = np.concatenate([one.numbers for one in parts])
        here = pa.array(np.concatenate([one.here for one in parts]))
        words = (
            _each([one.file.partition_path for one in parts], counts),
            _each([one.file.file_id for one in parts], counts),
            _each([str(one.group.place) for one in parts], counts),
        )
        told = self.keys.take(here), self.instant, words, numbers
        rows = with_meta_columns_of(self._take(here), *told)
        return rows.cast(with_meta_columns(self.view.schema))

    def _data_blocks(self, rows: pa.Table, cuts: Sequence[int]) -> list[list[LogBlock]]:
        if self.view.options.log_format == "avro":
            return self._writer.avro_parts(rows, cuts, self.instant)
        parts = (rows.slice(lo, hi - lo) for lo, hi in pairwise(cuts))
        codec = self.view.options.parquet_codec
        written = partial(self._writer.parquet_block, instant=self.instant, compression=codec)
        return [[written(one)] if one.num_rows else [] for one in parts]

    def _delete_blocks(self, parts: Sequence[_Part]) -> list[list[LogBlock]]:
        keys = self.keys.take(pa.array(np.concatenate([one.gone for one in parts])))
        counts = np.array([len(one.gone) for one in parts])
        paths = _each([one.file.partition_path for one in parts], counts)
        return self._writer.delete_parts(keys, paths, offsets_of(counts).tolist(), self.instant)

    @made_once
    def _writer(self) -> LogWriter:
        view = self.view
        return LogWriter(view.schema, view.options.name, view.table_schema)

    @made_once
    def _take(self) -> Callable[[pa.Array], pa.Table]:
        return taker(self.columns)

    @made_once
    def _hashes(self) -> Int64s:
        return hashes_of(self.keys, self.view.options.key)


def _each(words: Sequence[str], counts: Int64s) -> pa.Array:
    """Each word so many times."""
    return pa.array(words, pa.string()).take(pa.array(np.repeat(np.arange(len(words)), counts)))


def stats_of_log(view: TableView, log: LogFile) -> tuple[ColumnStats, ...]:
    """What the rows of one tell that another attempt has stored. Raises CorruptError."""
    rows = log_rows(view.store, log, with_meta_columns(view.schema), view.table_schema)
    return tuple(stats_of_rows(rows, stats_columns(view.table_schema, view.options)))
