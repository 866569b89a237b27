"""Rows to slice by splicing: most of the new file is copied from the one before.

A row group that nobody hits is copied, but for the column that names the file. Where rows take the
places of others, the columns that change are encoded anew, and the others are copied: keys, the
partition, whatever stays as it was. Where rows go, the row group is encoded whole. New rows come
behind: in row groups of their own, or with the last one while that is short, so that there never
are many short ones.

All else is what `new_slice.py` does, which is asked where this one finds nothing to copy.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.base_files import statistics
from metatable.data.base_files.base_file_writer import columns_with_nan, store_base_file
from metatable.data.base_files.exchanged_columns import (
    MOST_PAGES,
    NOT_EXCHANGED,
    ExchangedColumns,
    Hit,
    are_few,
    exchanged_columns,
)
from metatable.data.base_files.footer_statistics import of_footer
from metatable.data.base_files.key_footer import GrownFilter
from metatable.data.base_files.meta_columns import with_file_name
from metatable.data.base_files.spliced_file import StoredParts, stored_parts
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.schema import META_FIELDS, with_meta_columns
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.keys.key_texts import KEY
from metatable.data.rows.dictionaries import constant, trimmed
from metatable.data.rows.merge import Merge, Take, changed_columns, put_columns, put_into
from metatable.data.rows.taking import rows_of, whole
from metatable.metadata.view import TableView
from metatable.metadata.written import stats_columns
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.parts import Chunk
from metatable.storage.pieces import Pieces
from metatable.storage.system_errors import in_temporary_folder
from metatable.write.few_keys import Known, merge_of_few
from metatable.write.new_slice import (
    LARGE_FILE_BYTES,
    LARGE_ROWS_BYTES,
    PIECE_BYTES,
    Entering,
    Filed,
)

__all__ = ["spliced_file"]

_PATH, _NAME = META_FIELDS[3:]

LEAST_BYTES, COLUMNS = 256 << 10, 64
"""A smaller file is encoded sooner than it is looked at; of more columns than these, one that is
as many times as large: each column is looked at."""

_Rows = Callable[[list[str], int], pa.Table]
"""Gives columns of a row group."""


def spliced_file(
    view: TableView,
    base: FileSlice,
    entering: Entering,
    deletes: pa.Array,
    target: DataFile,
    known: Known,
) -> Filed | None:
    """The file of a stored slice with rows put in and keys (texts) taken out; None: nothing of it
    is worth copying, or what would be is damaged, or Arrow cannot do it. Raises CorruptError."""
    columns, ordering = view.table_schema, view.options.ordering
    least = LEAST_BYTES * max(len(columns.arrow), COLUMNS) // COLUMNS
    if base.logs or base.base.size_bytes < least:
        return None
    with stored_parts(view.store, base.base, view.options, columns) as held:
        is_short = held and _is_short(held, view.options.row_group_rows) == [True]
        if held is None or (known.arriving and is_short):
            return None
        schema, paged = with_meta_columns(view.schema), _paged(held)
        deciding, stored = entering.deciding(ordering), None
        merge = merge_of_few(held, paged, deciding, deletes, ordering, known)
        if merge is None:
            asked = pa.schema(map(schema.field, filter(None, (KEY, ordering))))
            stored = held.read(asked)
            merge = Merge.of(stored, deciding, deletes, ordering)
        is_small = _is_small(held, entering)
        plan = _Plan.of(held, merge, view.options.row_group_rows, is_small)
        if not plan.is_worth_it or (plan.widest > LARGE_ROWS_BYTES and not is_small):
            return None
        if _with_nan(held, merge, entering, schema) != held.unbounded:
            return None
        changing = entering.changing(_changing(view))
        takes = entering.taker(schema), changing, entering.step
        made = _Made(view, held, merge, plan, *takes, target, paged)
        try:
            return _filed(made, stored and stored[KEY], entering)
        except CorruptError as error:  # pages have checksums, footers have none: who decodes judges
            if _is_of_lists(held, error):
                raise
        except pa.ArrowException as error:  # no array holds 2 GiB of repeated texts
            if isinstance(error, MemoryError):
                raise
        return None


def _is_small(held: StoredParts, entering: Entering) -> bool:
    """Whether the ordinary way has all rows in memory: else they pass to the file piece by piece,
    each of which makes row groups of its own."""
    return held.file.size_bytes <= LARGE_FILE_BYTES and entering.size_bytes <= LARGE_ROWS_BYTES


def _is_of_lists(held: StoredParts, error: CorruptError) -> bool:
    """Whether what is damaged is a column of lists: that one of them has lost values, the number of
    rows does not tell to who decodes it."""
    lists = {leaf.name for leaf in held.parts.leaves if leaf.is_repeated}
    return error.facts.get("column") in lists


def _changing(view: TableView) -> pa.Schema:
    """Columns of a file that must be looked at where a row takes the place of another: of the rest,
    rows of one key and one group have one value. A key of one text column is that text."""
    key = view.options.key
    is_text = len(key) == 1 and pa.types.is_string(view.schema.field(key[0]).type)
    same = {KEY, _PATH.name, _NAME.name, *(key if is_text else ())}
    return pa.schema([one for one in with_meta_columns(view.schema) if one.name not in same])


def _paged(held: StoredParts) -> PagedFile | None:
    try:
        return held.paged()
    except CorruptError:  # of what may not be needed
        return None


def _with_nan(held: StoredParts, merge: Merge, entering: Entering, schema: pa.Schema) -> set[str]:
    """Columns of the new file of which a number is not one: those that tell no bounds. Of the
    stored file each is looked at until it shows one, a row group at a time."""
    names = set(entering.with_nan())
    stays = merge.kept & (merge.source < len(merge.source))
    parts = np.split(stays, np.cumsum(held.group_rows)[:-1])
    for group, own in enumerate(parts):
        left = sorted(held.unbounded - names)
        if left and own.any():
            rows = held.read(pa.schema(map(schema.field, left)), group)
            names.update(columns_with_nan(rows.filter(pa.array(own))))
    return names


@dataclass(frozen=True, slots=True)
class _Group:
    """A stored row group: its number, its rows in the file, whether rows take the places of some of
    them, and whether it is encoded whole."""

    number: int
    here: slice
    is_hit: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    groups: tuple[_Group, ...]
    fills_last: bool
    """Whether new rows come into the last row group."""
    widest: int
    """Bytes of the largest row group that is decoded."""
    group_rows: int
    is_worth_it: bool
    """Something is copied, and of the row groups not most are short."""

    @classmethod
    def of(cls, held: StoredParts, merge: Merge, group_rows: int, is_small: bool) -> _Plan:
        counts = held.group_rows
        ends = np.cumsum([0, *counts]).tolist()
        is_short = _is_short(held, group_rows)
        fills_last = is_short[-1:] == [True] and len(merge.new) > 0
        groups = []
        for number, count in enumerate(counts):
            here = slice(ends[number], ends[number] + count)
            is_hit = bool((merge.source[here] >= len(merge.source)).any())
            loses = not merge.kept[here].all()
            fills = fills_last and number == len(counts) - 1
            is_whole = not count or loses or fills  # of no rows nothing is copied, nor made
            groups.append(_Group(number, here, is_hit, is_whole))
        decoded = [held.group_bytes(one.number) for one in groups if one.is_hit or one.is_whole]
        # as deletes leave them; pieces of a large file would be no longer another time
        most = group_rows if is_small else max(counts, default=0)
        short = sum(one and count * 2 < most for one, count in zip(is_short, counts, strict=True))
        many = short * 2 > len(counts) + 1
        is_worth_it = not many and not all(one.is_whole for one in groups)
        return cls(tuple(groups), fills_last, max(decoded, default=0), group_rows, is_worth_it)


def _is_short(held: StoredParts, group_rows: int) -> list[bool]:
    """Of each row group: whether new rows come into it, if it is the last."""
    return [
        count * 2 < group_rows and held.group_bytes(number) * 2 < PIECE_BYTES
        for number, count in enumerate(held.group_rows)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A row group where rows take the places of others: these rows, `places` of all rows in the row
    group and, behind it, of these, and what is done already."""

    hit: Hit
    places: Int64s
    paged: ExchangedColumns = NOT_EXCHANGED


@dataclass(frozen=True, slots=True)
class _Made:
    """The new file, row group by row group."""

    view: TableView
    held: StoredParts
    merge: Merge
    plan: _Plan
    take: Take
    take_changing: Take
    """The same, but for columns of which rows of one key and one group have one value."""
    step: int
    target: DataFile
    paged: PagedFile | None
    """The file, where single pages of it can be read."""
    names: dict[int, Chunk] = field(default_factory=dict)
    """The column that names the file, by how many rows: row groups of as many have the same."""

    def groups(self) -> Iterator[list[Chunk] | tuple[Chunk, ...]]:
        for some in self._portions():
            ready = self._exchanged([one for one in some if one.is_hit and not one.is_whole])
            for group in some:
                yield from self._group(group, ready.pop(group.number, None))
        if not self.plan.fills_last:
            yield from self._encoded(self.take(self.merge.new[:0]), with_new=True)

    def _portions(self) -> Iterator[list[_Group]]:
        """Row groups of which some pages may be looked at together."""
        some: list[_Group] = []
        held = 0
        for group in self.plan.groups:
            size = self.held.group_bytes(group.number)
            if some and held + size > LARGE_ROWS_BYTES / MOST_PAGES:
                yield some
                some, held = [], 0
            some.append(group)
            held += size
        yield some

    def _group(
        self, group: _Group, ready: _Ready | None
    ) -> Iterator[list[Chunk] | tuple[Chunk, ...]]:
        if group.is_whole:
            is_last = group.number + 1 == len(self.plan.groups)
            yield from self._encoded(self._whole(group), is_last and self.plan.fills_last)
        elif group.is_hit:
            yield self._replaced(group, ready or self._looked(group))
        else:
            yield self.held.copied(group.number, [self._named(group)])

    def _named(self, group: _Group) -> Chunk:
        if not self.names:
            counts = {
                one.here.stop - one.here.start for one in self.plan.groups if not one.is_whole
            }
            sizes = sorted(counts)
            names = constant(self.target.name, sum(sizes))
            rows = pa.table([names], schema=pa.schema([_NAME.with_type(names.type)]))
            made = self.held.encoded_groups(rows, sizes, self.held.encoding)
            self.names.update((size, one) for size, [one] in zip(sizes, made, strict=True))
        return self.names[group.here.stop - group.here.start]

    def _put(self, group: _Group) -> tuple[Int64s, Int64s]:
        """(rows put in, by number; places of all rows in the row group and, behind it, these)."""
        stored = len(self.merge.source)
        source = self.merge.source[group.here][self.merge.kept[group.here]]
        put = source >= stored
        places = source - group.here.start
        places[put] = group.here.stop - group.here.start + np.arange(int(put.sum()))
        return source[put] - stored, places

    def _whole(self, group: _Group) -> pa.Table:
        piece = self.held.read(with_meta_columns(self.view.schema), group.number)
        put, places = self._put(group)
        return with_file_name(put_into(piece, self.take, put, places), self.target.name)

    def _exchanged(self, groups: Sequence[_Group]) -> dict[int, _Ready]:
        """Those of these row groups, by number, of which few pages have rows that change."""
        few = []
        for group in groups if self.paged else ():
            hit = np.flatnonzero(self.merge.source[group.here] >= len(self.merge.source))
            if are_few(hit, group.here.stop - group.here.start):
                few.append(self._looked(group))
        made = exchanged_columns(self.held, self.paged, [one.hit for one in few])
        return {
            one.hit.group: replace(one, paged=paged) for one, paged in zip(few, made, strict=True)
        }

    def _looked(self, group: _Group) -> _Ready:
        put, places = self._put(group)
        hit = np.flatnonzero(places >= len(places))
        return _Ready(Hit(group.number, hit, self.take_changing(put)), places)

    def _replaced(self, group: _Group, ready: _Ready) -> list[Chunk]:
        """A row group where rows take the places of others: columns that change are other ones."""
        rows, paged = ready.hit.rows, ready.paged
        left = rows.select([one for one in rows.column_names if one not in paged.done])
        made = self._changed(ready.hit.group, left, ready.places)
        return self.held.copied(group.number, [self._named(group), *made, *paged.chunks])

    def _changed(self, group: int, rows: pa.Table, places: Int64s) -> tuple[Chunk, ...]:
        """Those of these columns that change, decoded and encoded whole."""
        if not rows.num_columns:
            return ()
        schema = with_meta_columns(self.view.schema)
        asked = self.held.as_stored(pa.schema(map(schema.field, rows.column_names)))
        piece = self.held.read(asked, group)
        changed = changed_columns(piece, rows, places)
        if not changed:
            return ()
        return self.held.changed(trimmed(put_columns(piece, rows, places, changed)))

    def _encoded(self, rows: pa.Table, with_new: bool) -> Iterator[tuple[Chunk, ...]]:
        """Row groups of these rows and, behind them, of all new ones."""
        new, step = self.merge.new if with_new else self.merge.new[:0], self.step
        pieces = [rows]
        for start in range(0, max(len(new), 1), step):
            pieces.append(self.take(new[start : start + step]))
            held = pa.concat_tables(pieces)
            count = min(self.plan.group_rows, rows_of(held, LARGE_ROWS_BYTES))
            is_last = start + step >= len(new)
            full = held.num_rows if is_last else held.num_rows // count * count
            for at in range(0, full, count):
                yield self.held.encoded(held.slice(at, min(count, full - at)))
            pieces = [held.slice(full)]


def _filed(made: _Made, stored_keys: pa.ChunkedArray | None, entering: Entering) -> Filed:
    """`stored_keys`: None where they were not read, and nobody asks for them."""
    merge, held, target = made.merge, made.held, made.target
    new = entering.keys.take(pa.array(entering.here[merge.new]))
    count = int(merge.kept.sum()) + len(new)
    is_alike = merge.kept.all() and not len(new)
    words = held.kept_words if is_alike else None
    grown = None if words else _grown(held, merge, new)
    if grown and stored_keys is None:
        words = held.grown_words(grown, count)
    keys = new.slice(0, 0)
    if words is None or stored_keys is not None:
        keys = _keys(made, stored_keys, new)
    words = words or held.words(keys, grown)
    with _sink(_is_small(held, entering)) as sink:
        footer = held.write(sink, made.groups(), words)
        stats = _stats(made, footer, sink)
        told = count, keys, stats, merge.counts, whole(merge.deleted_keys)
        if isinstance(sink, Pieces):
            return Filed(sink, sink.seek(0, os.SEEK_END), True, *told)
        size_bytes, ours = store_base_file(made.view.store, target, sink)
        return Filed(None, size_bytes, ours, *told)


def _grown(held: StoredParts, merge: Merge, new: pa.Array) -> GrownFilter | None:
    bloom = held.filter
    return GrownFilter(bloom, new, _ends(held, merge, new)) if bloom else None


def _keys(made: _Made, stored: pa.ChunkedArray | None, new: pa.Array) -> pa.Array:
    """All of the new file."""
    if stored is None:
        stored = made.held.read(pa.schema([with_meta_columns(made.view.schema).field(KEY)]))[KEY]
    kept = made.merge.kept
    keys = whole(stored if kept.all() else stored.filter(pa.array(kept)))
    return pa.concat_arrays([keys, new]) if len(new) else keys


@contextmanager
def _sink(is_small: bool) -> Iterator[IO[bytes]]:
    if is_small:
        yield cast("IO[bytes]", Pieces())
        return
    with in_temporary_folder(), tempfile.TemporaryFile() as file:
        yield file


def _ends(held: StoredParts, merge: Merge, new: pa.Array) -> tuple[str, str] | None:
    """The least and the greatest key of the new file, where nothing is taken out of it."""
    ends = held.key_ends if merge.kept.all() else None
    if ends is None or not len(new):
        return ends
    least, most = pc.min_max(new).as_py().values()
    return min(ends[0], least), max(ends[1], most)


def _stats(made: _Made, footer: pq.FileMetaData, file: IO[bytes]) -> tuple[ColumnStats, ...]:
    """Of the new file, from its footer; what that does not tell is read, by row groups."""
    view = made.view
    columns: Mapping[str, str] = stats_columns(view.table_schema, view.options)
    schema = with_meta_columns(view.schema)
    wanted = pa.schema([schema.field(name) for name in columns])
    floats = [one.name for one in wanted if pa.types.is_floating(one.type)]
    numbers = {*floats} - made.held.unbounded
    rows = _reader(file)
    told = {
        one.column: one
        for one in of_footer(footer, wanted, wanted, numbers, lambda name, n: rows([name], n)[name])
    }
    left = [name for name in columns if name not in told]
    if left:
        asked = pa.schema(map(schema.field, left))
        told |= {one.column: one for one in _looked_at(rows, asked, footer.num_row_groups)}
    return tuple(replace(told[name], column=first) for name, first in columns.items())


def _looked_at(rows: _Rows, asked: pa.Schema, groups: int) -> Iterator[ColumnStats]:
    """Of columns that a footer has no bounds of: texts that are too long for it, for one, a row
    group at a time. Numbers of which some are none are narrow, and looked at one column after the
    other, whole: where all of a row group are none, that has no bound."""

    def pieces(own: pa.Schema) -> Iterator[pa.Table]:
        return (rows(own.names, group).select(own.names).cast(own) for group in range(groups))

    others = pa.schema([one for one in asked if not pa.types.is_floating(one.type)])
    if others.names:
        told = [statistics.of_table(one, others.names) for one in pieces(others)]
        yield from statistics.of_all(told)
    for number in asked:
        if pa.types.is_floating(number.type):
            yield from statistics.of_table(
                pa.concat_tables(pieces(pa.schema([number]))), [number.name]
            )


def _reader(file: IO[bytes]) -> _Rows:
    """The file is opened when the first are asked for."""
    opened: list[pq.ParquetFile] = []

    def read(names: list[str], group: int) -> pa.Table:
        if not opened:
            file.seek(0)
            opened.append(pq.ParquetFile(file))
        return opened[0].read_row_group(group, names)

    return read
