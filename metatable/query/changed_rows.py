"""Changed rows: the tasks that compare file groups of two versions, and settle what differs.

    with_rows_alone  file groups in; out again, with all rows of those that one version alone has,
                     by what tells rows apart
    compared         file groups in; out the rows that differ within each, and how
    settled          what differs of some keys in; out without what has only moved from one group
                     to another, and a row that was written there anew as an update

What is small of a group is read once, with all columns, and small logs of several groups together.
When a row counts as changed, and in which order tasks run, `changes.py` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise, tee

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import COMMIT_COLUMN, META_FIELDS
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH, identities, key_column
from metatable.data.logs.log_merge import ReadLogs
from metatable.data.reading.logs_together import logs_together
from metatable.data.reading.slice_reader import read_slice, stream_slice
from metatable.data.rows.taking import taken, whole
from metatable.engine.partitions import task_numbers
from metatable.engine.protocol import TASK_COLUMN
from metatable.metadata.view import TableView, read_columns
from metatable.query.pairing import places_in
from metatable.storage.arrays import Bools, Int32s, Int64s
from metatable.storage.counters import Counters
from metatable.storage.hashing import xxh64
from metatable.storage.portions import TOGETHER_BYTES, together_far

__all__ = [
    "CHANGE_TYPE",
    "DELETE",
    "GROUP",
    "IDENTITY",
    "INSERT",
    "ROW",
    "TOLD",
    "UPDATE",
    "compared",
    "pairs_left",
    "pairs_of",
    "settled",
    "with_rows_alone",
]

CHANGE_TYPE = "_change_type"
INSERT, UPDATE, DELETE = "insert", "update", "delete"

IDENTITY = pa.schema([field for field in META_FIELDS if field.name in (COMMIT_COLUMN, KEY, PATH)])

SMALL_BYTES = 1 << 20
"""A slice of no more is read once, with all columns that are asked for; of others those rows that
differ are read again."""

GROUP = pa.schema([("before", pa.string()), ("after", pa.string()), ("group", pa.int32())])
"""A file group, as its slices, and its number."""

ROW = pa.schema([*GROUP, ("row", pa.int64()), (CHANGE_TYPE, pa.string()), ("of", pa.int32())])
"""A row of a group, by their numbers; or, with the row -1, the group itself. `of`: its task."""

TOLD = pa.schema([*IDENTITY, *ROW, (TASK_COLUMN, pa.int32())])
"""The same, and what tells the row from others."""


def with_rows_alone(
    view: TableView, parts: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: file groups in; out they are again, and all rows of those that one version alone has,
    by what tells them apart, dealt by their key."""
    view, groups = view.counting(counters), pa.Table.from_batches([*batches])
    itself = groups.append_column("of", groups[TASK_COLUMN])
    itself = itself.append_column("row", pa.repeat(-1, len(groups)))
    itself = itself.append_column(CHANGE_TYPE, pa.repeat("", len(groups)))
    for batch in itself.to_batches():
        yield _filled(batch)
    alone = groups.filter(pc.or_(groups["before"].is_null(), groups["after"].is_null()))
    found = _found(view, pairs_of(alone.to_batches()), IDENTITY)
    for number, task, of_group in zip(alone["group"], alone[TASK_COLUMN], found, strict=True):
        row = 0
        for batch in of_group:
            count = batch.num_rows
            told = batch.append_column("group", pa.repeat(number, count))
            told = told.append_column("row", pa.array(np.arange(row, row + count)))
            told = told.append_column("of", pa.repeat(task, count))
            yield _filled(told.append_column(TASK_COLUMN, _dealt(view, batch, parts)))
            row += count


def _filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Null in those columns of `TOLD` that it has not."""
    for field in TOLD:
        if field.name not in batch.schema.names:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return batch.select(TOLD.names)


def compared(
    view: TableView,
    read: pa.Schema,
    parts: int,
    asked: Callable[[Iterable[pa.RecordBatch]], Iterator[Pair]],
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: what is `asked` of file groups in; out the rows that differ within each, dealt by their
    key."""
    view = view.counting(counters)
    for rows in chain.from_iterable(_found(view, asked(batches), read)):
        yield rows.append_column(TASK_COLUMN, _dealt(view, rows, parts))


def _found(
    view: TableView, pairs: Iterable[Pair], read: pa.Schema
) -> Iterator[Iterable[pa.RecordBatch]]:
    """Of each file group the rows that differ, in batches."""

    def differing(pair: Pair) -> Iterable[pa.RecordBatch]:
        rows = _differing(view, pair, read)
        return [*rows] if pair.size_bytes <= TOGETHER_BYTES else rows

    given = _with_logs(view, pairs, _unknown(view, read))
    return together_far(view.store, differing, given, lambda pair: pair.size_bytes)


def _dealt(view: TableView, rows: pa.RecordBatch, parts: int) -> pa.Array:
    """The task of each row, by its key."""
    texts = identities(view.options.is_global, rows[KEY], rows[PATH])
    return pa.array(task_numbers(xxh64(texts, 0), parts))


@dataclass(frozen=True, slots=True)
class Pair:
    """A file group before and after; None where it is not there."""

    before: FileSlice | None
    after: FileSlice | None
    logs_before: ReadLogs | None = None
    logs_after: ReadLogs | None = None
    """What gives the logs of these, read with those of other pairs; None: each reads its own."""
    left: pa.Table | None = None
    """Of one that one version alone has, which rows differ (`ROW`); None: nobody has looked."""

    @classmethod
    def decode(cls, *texts: str | None) -> Pair:
        before, after = (None if one is None else FileSlice.decode(one) for one in texts)
        return cls(before, after)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in (self.before, self.after) if one)

    @property
    def is_small(self) -> bool:
        """Whether the rows as they are in the later version are read once."""
        return self.after is not None and self.after.size_bytes <= SMALL_BYTES


def pairs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Pair]:
    """These file groups."""
    for batch in batches:
        yield from map(Pair.decode, batch["before"].to_pylist(), batch["after"].to_pylist())


def pairs_left(batches: Iterable[pa.RecordBatch]) -> Iterator[Pair]:
    """The file groups among these rows, but those of one version alone of which no row is left."""
    rows = pa.Table.from_batches([*batches]).sort_by([("group", "ascending"), ("row", "ascending")])
    starts = np.flatnonzero(rows["row"].to_numpy() < 0)
    for start, end in pairwise([*starts.tolist(), len(rows)]):
        pair = Pair.decode(*(rows[name][start].as_py() for name in ("before", "after")))
        left = rows.slice(start + 1, end - start - 1)
        if pair.before and pair.after:
            yield pair
        elif len(left):
            yield replace(pair, left=left)


def _with_logs(view: TableView, pairs: Iterable[Pair], others: pa.Schema) -> Iterator[Pair]:
    """The same pairs, whose small logs are read together; `others`: the columns that are asked of
    small slices besides their states."""
    for_before, for_after, pairs = tee(pairs, 3)
    gone = (one.before for one in for_before if one.before)
    come = (one.after for one in for_after if one.after and one.is_small)
    befores = logs_together(view.store, gone, _read_of_states(view, _NOTHING, True))
    afters = logs_together(view.store, come, _read_of_states(view, others, True))
    for pair in pairs:
        _, was = next(befores) if pair.before else (None, None)
        _, now = next(afters) if pair.is_small else (None, None)
        yield replace(pair, logs_before=was, logs_after=now)


def _differing(view: TableView, pair: Pair, read: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file group that differ, with the columns `read` and their kind; by commit, so
    of a row that was written anew as it was, too."""
    before, after = pair.before, pair.after
    others = _unknown(view, read) if pair.is_small else _NOTHING
    was_read, now_read = view.store.together(
        [
            partial(_with_states, view, before, _NOTHING, pair.logs_before),
            partial(_with_states, view, after, others, pair.logs_after),
        ]
    )
    was, now = _states(was_read), _states(now_read)
    held = now_read if pair.is_small else None
    if pair.left is not None:
        chosen, kinds = pair.left["row"].to_numpy(), pair.left[CHANGE_TYPE]
        for file, states in ((before, was), (after, now)):
            if file is not None:
                yield from _rows_of(view, file, read, states, chosen, kinds, held)
        return
    places = places_in(was[KEY], now[KEY])
    if after is not None:
        differs = np.flatnonzero(
            ~_are_of_one_commit(was[COMMIT_COLUMN], now[COMMIT_COLUMN], places)
        )
        kinds = pc.if_else(pa.array(places[differs] >= 0), UPDATE, INSERT)
        yield from _rows_of(view, after, read, now, differs, kinds, held)
    if before is not None:
        left = np.ones(was.num_rows, bool)
        left[places[places >= 0]] = False
        gone = np.flatnonzero(left)
        yield from _rows_of(view, before, read, was, gone, pa.repeat(DELETE, len(gone)))


def _are_of_one_commit(was: pa.DictionaryArray, now: pa.DictionaryArray, places: Int64s) -> Bools:
    """Whether each row names the same commit as the one at its place before (-1: none was)."""
    if not len(was):
        return np.zeros(len(now), bool)
    then = np.where(places < 0, -1, _numbered(was, now.dictionary)[places])
    return np.asarray((then >= 0) & (then == _numbered(now, now.dictionary)))


def _numbered(commits: pa.DictionaryArray, named: pa.Array) -> Int32s:
    """The first place of each commit in `named`; -1: it is not there."""
    numbers = pc.index_in(commits.dictionary, value_set=named)
    return np.asarray(numbers.take(commits.indices).fill_null(-1))


_STATES = pa.schema([(KEY, pa.string()), (COMMIT_COLUMN, pa.dictionary(pa.int32(), pa.string()))])

_NOTHING = pa.schema([])


def _unknown(view: TableView, read: pa.Schema) -> pa.Schema:
    """Those of these columns that the states of rows do not tell."""
    told = {KEY, COMMIT_COLUMN, PATH, key_column(view.options, read)}
    return pa.schema([field for field in read if field.name not in told])


def _read_of_states(view: TableView, others: pa.Schema, has_logs: bool) -> ReadColumns:
    """What `_with_states` reads of a slice."""
    commits = pa.field(COMMIT_COLUMN, pa.string()) if has_logs else _STATES.field(COMMIT_COLUMN)
    return read_columns(view, pa.schema([_STATES.field(KEY), commits, *others]))


def _with_states(
    view: TableView, file: FileSlice | None, others: pa.Schema, logs: ReadLogs | None
) -> pa.Table:
    """The record key of each row, the commit that wrote it, and these columns; without a slice no
    rows."""
    read = _read_of_states(view, others, file is not None and bool(file.logs))
    return read.schema.empty_table() if file is None else read_slice(view.store, file, read, logs)


def _states(rows: pa.Table) -> pa.RecordBatch:
    """The record key of each row, and the commit that wrote it, as a dictionary."""
    keys, commits = whole(rows[KEY]), whole(rows[COMMIT_COLUMN])
    if not pa.types.is_dictionary(commits.type):
        commits = commits.dictionary_encode()
    return pa.RecordBatch.from_arrays([keys, commits], schema=_STATES)


def _rows_of(
    view: TableView,
    file: FileSlice,
    read: pa.Schema,
    states: pa.RecordBatch,
    chosen: Int64s,
    kinds: pa.Array,
    held: pa.Table | None = None,
) -> Iterator[pa.RecordBatch]:
    """The chosen rows of a slice, each with its kind; what is known of them is not read again, nor
    what is `held` of all its rows."""
    if not len(chosen):
        return
    known = pa.Table.from_batches([states.take(pa.array(chosen))])
    known = known.set_column(1, COMMIT_COLUMN, known[COMMIT_COLUMN].cast(pa.string()))
    known = known.append_column(PATH, pa.repeat(file.partition_path, len(chosen)))
    known = known.append_column(CHANGE_TYPE, kinds)
    key = key_column(view.options, read)
    if key != KEY:  # the same texts once more
        known = known.append_column(read.field(key), known[KEY])
    names, others = [*read.names, CHANGE_TYPE], _unknown(view, read)
    if not others.names:
        yield from known.select(names).to_batches()
        return
    start = given = 0
    pieces = [held] if held is not None else _pieces(view, file, others)
    for table in pieces:
        end = given + int(np.searchsorted(chosen[given:], start + table.num_rows))
        rows = taken(table, pa.array(chosen[given:end] - start))
        told = known.slice(given, end - given)
        for name in others.names:
            told = told.append_column(others.field(name), rows[name])
        yield from told.select(names).to_batches()
        start, given = start + table.num_rows, end


def _pieces(view: TableView, file: FileSlice, others: pa.Schema) -> Iterator[pa.Table]:
    return stream_slice(view.store, file, read_columns(view, others))


def settled(
    is_global: bool, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: all that differs of some keys; a row that left one group and came to another has been
    updated, or has only moved."""
    rows = pa.Table.from_batches(list(batches))
    kinds, texts = rows[CHANGE_TYPE], identities(is_global, rows[KEY], rows[PATH])
    came = np.flatnonzero(pc.equal(kinds, INSERT).to_numpy())
    left = np.flatnonzero(pc.equal(kinds, DELETE).to_numpy())
    places = pc.index_in(texts.take(pa.array(came)), value_set=texts.take(pa.array(left)))
    again = came[places.is_valid().to_numpy(zero_copy_only=False)]
    old = left[places.drop_null().to_numpy()]
    if len(again):
        by = rows[COMMIT_COLUMN].combine_chunks()
        moved = pc.equal(by.take(pa.array(again)), by.take(pa.array(old)))
        kept, updated = np.ones((2, rows.num_rows), bool)
        updated[again] = False
        kept[old] = False
        kept[again[moved.to_numpy(zero_copy_only=False)]] = False
        at = rows.schema.get_field_index(CHANGE_TYPE)
        rows = rows.set_column(at, CHANGE_TYPE, pc.if_else(pa.array(updated), kinds, UPDATE))
        rows = rows.filter(pa.array(kept))
    yield from rows.to_batches()
