"""Merging a slice: the rows of its base file, with what its logs say since.

**Which blocks count** (`live_blocks`): those of published commits, in the order in which commits
first appear. A rollback takes away the blocks of its target that came before it. Blocks of a log
compaction stand where the newest of the blocks stood that they replace.

**Which row of a key lives**, by commit time: the last. By event time, as Hudi has it:

    among logs   the greatest ordering value; of equal ones the later; null is the lowest
    a delete without an ordering value takes all before it in the logs, and the base's row;
    a row behind it comes in, whatever its value; deletes with a value are passed over there
    then base    stays if its value is greater than that of what logs came to, a delete included

So a row that comes late after such a delete is older than the base's row, and the base's row
lives again: the delete is forgotten. This is what Hudi on Spark reads, 0.15 to 1.2, and what it
writes when it compacts (DECISIONS 79).

Memory: the rows of the logs; those of the base come and go piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

import numpy as np
import pyarrow as pa

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.logs.block_rows import blocks_rows
from metatable.data.logs.log_blocks import ROLLBACK, Deletes, blocks_deletes
from metatable.data.rows.leaving_out import without
from metatable.data.rows.merge import Take, ascending, codes_of, newer, put_into
from metatable.data.rows.taking import rows_of, taker, whole
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.key_places import KeyPlaces
from metatable.storage.threads import WORKERS, in_order

__all__ = ["ReadLogs", "SliceLogs", "live_blocks"]

_NONE = -1
"""A delete without an ordering value, where else the event stands that a key came to."""

STEP_BYTES = 32 << 20
"""How many bytes of rows that the base does not have are given at once."""

PART_ROWS = 16 << 10
"""Rows of a base that are worth a thread of their own."""


def live_blocks(blocks: Iterable[LogBlock], is_published: Callable[[str], bool]) -> list[LogBlock]:
    """The blocks of rows and deletes that count, in the order in which they are merged.

    `blocks`: all of a slice, in the order of its logs. Raises CorruptError for a block that tells
    no instant, and UpgradeError for a command that is no rollback.
    """
    by_instant: dict[str, list[LogBlock]] = {}
    for block in blocks:
        instant = _header(block, HeaderKey.INSTANT_TIME)
        if block.kind is BlockKind.COMMAND:
            by_instant.pop(_rolled_back(block), None)
        elif block.kind is not BlockKind.CORRUPT and is_published(instant):
            by_instant.setdefault(instant, []).append(block)
    placed = _places(by_instant)
    order = sorted(placed, key=placed.__getitem__)
    return [block for instant in order for block in by_instant[instant]]


def _places(by_instant: dict[str, list[LogBlock]]) -> dict[str, int]:
    """Where each instant is merged; those that a log compaction has replaced are left out."""
    places = {instant: place for place, instant in enumerate(by_instant)}
    replaced: set[str] = set()
    for instant, (first, *_) in by_instant.items():  # a later compaction may replace an earlier one
        told = first.header.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        inside = (
            []
            if told is None
            else [one for one in told.split(",") if one in places and one != instant]
        )
        if inside:
            places[instant] = max(places[one] for one in inside)
            replaced.update(inside)
    return {instant: place for instant, place in places.items() if instant not in replaced}


def _rolled_back(block: LogBlock) -> str:
    kind = _header(block, HeaderKey.COMMAND_BLOCK_TYPE)
    if kind != ROLLBACK:
        raise UpgradeError(
            "unknown command in a log file",
            path=block.path,
            offset=block.offset,
            expected=ROLLBACK,
            found=kind,
        )
    return _header(block, HeaderKey.TARGET_INSTANT_TIME)


def _header(block: LogBlock, key: HeaderKey) -> str:
    if key not in block.header:
        raise CorruptError(
            "log block lacks a header", path=block.path, offset=block.offset, expected=key.name
        )
    return block.header[key]


@dataclass(frozen=True, slots=True)
class SliceLogs:
    """What the logs of a slice come to, a row a key.

    `places` are of the keys (string); `events[i]` is the place of what key i came to among `rows`,
    and from `rows.num_rows` on among deletes; `_NONE`: a delete without an ordering value. `is_row`
    says which are rows. `values` are those of the column `ordering` by these places. No ordering:
    the last one wins. `key`: the column that has the keys (`key_texts.key_column`).
    """

    places: KeyPlaces
    events: Int64s
    is_row: Bools
    rows: pa.Table
    ordering: str | None
    values: pa.Array
    key: str

    @classmethod
    def of(cls, blocks: Sequence[LogBlock], read: ReadColumns) -> SliceLogs:
        """From `live_blocks` of one slice, for who reads these columns of it. The rows have the
        columns that decide, too. Raises CorruptError, UpgradeError."""
        [logs] = cls.of_each([blocks], read)
        return logs

    @classmethod
    def of_each(cls, slices: Sequence[Sequence[LogBlock]], read: ReadColumns) -> list[SliceLogs]:
        """`of` each of several slices, whose blocks are decoded together."""
        schema, ordering = read.deciding, read.ordering
        blocks = [*chain.from_iterable(slices)]
        rest = [one for one in blocks if one.kind is not BlockKind.DELETE]
        rows = iter(blocks_rows(rest, schema, read.table))
        lists = [one for one in blocks if one.kind is BlockKind.DELETE]
        kind = None if ordering is None else schema.field(ordering).type
        deletes = iter(blocks_deletes(lists, kind))
        found = []
        for own in slices:
            events = _Events(schema, ordering, read.key)
            for block in own:
                if block.kind is BlockKind.DELETE:
                    events.add_deletes(next(deletes))
                else:
                    events.add_rows(block, next(rows))
            found.append(events.settled())
        return found

    def merged(
        self,
        base: Iterable[pa.Table],
        in_place: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of the slice, of these columns (None: all). `base`: those of the base file piece
        by piece, with what decides among their columns; none for a slice of logs alone.

        Rows of the base keep their places, or are replaced there; new ones follow, in the order
        in which their keys came. Not `in_place`: rows of the base that stay, and then those of
        logs, for who reads them once and in any order; it is less than half the work. Pieces are
        written on then, so nobody else may hold them. Raises CorruptError for a key that the base
        holds twice.
        """
        seen = np.zeros(len(self.events), np.bool_)
        stays = np.zeros(len(self.events), np.bool_)
        given = self.rows.column_names if columns is None else list(columns)
        take = _taker(self.rows.select(given))

        def left_of(piece: pa.Table) -> tuple[pa.Table, Int64s, Bools]:
            rows, hits, wins = self._found(piece)
            return without(piece.select(given), rows[wins]), hits, wins

        for piece in base:
            if in_place:
                rows, hits, wins = self._found(piece)
                self._see(hits, seen)
                yield self._put(piece.select(given), rows[wins], hits[wins], take)
                continue
            for left, hits, wins in in_order(left_of, _parts(piece)):
                self._see(hits, seen)
                stays[hits[~wins]] = True
                yield left
        new = self.events[~(seen if in_place else stays) & self.is_row]
        if not in_place:
            new.sort()
        step = rows_of(self.rows, STEP_BYTES)
        for start in range(0, len(new), step):
            yield take(new[start : start + step])

    def _found(self, piece: pa.Table) -> tuple[Int64s, Int64s, Bools]:
        """Rows of a piece whose keys the logs have, which keys these are, and whether what the logs
        say of them takes their places."""
        rows, hits = self.places.find(whole(piece.column(self.key)))
        return rows, hits, self._wins(piece, rows, hits)

    def _see(self, hits: Int64s, seen: Bools) -> None:
        """Note the keys (by place) that a piece of the base has: no other piece may have them.
        Raises CorruptError."""
        again, before = seen[hits], np.count_nonzero(seen)
        seen[hits] = True
        if np.count_nonzero(seen) - before < len(hits):
            order = np.sort(hits)
            twice = np.concatenate([hits[again], order[1:][order[1:] == order[:-1]]])
            key = self.places.keys[int(twice[0])].as_py()
            raise CorruptError("a key is stored twice in one file", key=key)

    def _put(self, piece: pa.Table, rows: Int64s, hits: Int64s, take: Take) -> pa.Table:
        """A piece whose `rows` are replaced by what the keys `hits` came to, or deleted."""
        put = self.is_row[hits]
        places, kept = np.arange(piece.num_rows), np.ones(piece.num_rows, np.bool_)
        places[rows[put]] = piece.num_rows + np.arange(int(put.sum()))
        kept[rows[~put]] = False
        return put_into(piece, take, self.events[hits[put]], places[kept])

    def _wins(self, piece: pa.Table, rows: Int64s, hits: Int64s) -> Bools:
        """For each of these rows of the base whether what its key came to in the logs is not
        older."""
        if self.ordering is None:
            return np.ones(len(rows), np.bool_)
        events = self.events[hits]
        old = whole(piece.column(self.ordering)).take(pa.array(rows))
        wins: Bools = newer(old, self.values.take(pa.array(np.maximum(events, 0))))
        wins |= events == _NONE
        return wins


def _parts(piece: pa.Table) -> Iterator[pa.Table]:
    """A piece for each thread."""
    step = max(-(-piece.num_rows // WORKERS), PART_ROWS)
    return (piece.slice(start, step) for start in range(0, max(piece.num_rows, 1), step))


def _taker(rows: pa.Table) -> Take:
    """Gives rows by their numbers; all of them, as they lie there, without a copy."""
    ready = cache(partial(taker, rows))

    def take(wanted: Int64s) -> pa.Table:
        if len(wanted) == rows.num_rows and (np.diff(wanted) == 1).all():
            return rows
        return ready()(pa.array(wanted))

    return take


ReadLogs = Callable[[], SliceLogs]
"""What gives the logs of a slice."""


class _Events:
    """Rows and deletes of logs, in the order in which they came."""

    def __init__(self, schema: pa.Schema, ordering: str | None, key: str) -> None:
        self.schema, self.ordering, self.key = schema, ordering, key
        self.kind = None if ordering is None else schema.field(ordering).type
        self.rows: list[pa.Table] = []
        self.keys: list[pa.Array] = []
        self.deleted_values: list[pa.Array] = []
        self.unordered: list[Bools] = []  # of all events, in their order
        self.is_row: list[Bools] = []

    def add_rows(self, block: LogBlock, rows: pa.Table) -> None:
        keys = whole(rows.column(self.key))
        if keys.null_count:
            raise CorruptError(
                "a row in a log file has no key", path=block.path, offset=block.offset
            )
        self.rows.append(rows)
        self._add(keys, np.zeros(len(keys), np.bool_), is_row=True)

    def add_deletes(self, deletes: Deletes) -> None:
        if deletes.ordering is not None:
            self.deleted_values.append(deletes.ordering)
        unordered = deletes.unordered.to_numpy(zero_copy_only=False)
        self._add(deletes.keys, unordered, is_row=False)

    def _add(self, keys: pa.Array, unordered: Bools, is_row: bool) -> None:
        self.keys.append(keys.cast(pa.string()))
        self.unordered.append(unordered)
        self.is_row.append(np.full(len(keys), is_row))

    def settled(self) -> SliceLogs:
        """What they come to: for each key the event that lives."""
        rows = pa.concat_tables(self.rows or [self.schema.empty_table()])
        keys = whole(pa.chunked_array(self.keys, pa.string()))
        places = KeyPlaces.of(keys)
        codes, count = np.arange(len(keys)), len(keys)
        if not places.are_distinct:
            codes, count = codes_of([pa.chunked_array([keys])])
            first = np.full(count, len(codes))
            np.minimum.at(first, codes, np.arange(len(codes)))
            places = KeyPlaces.of(keys.take(pa.array(first)))
        is_row, unordered = _joined(self.is_row), _joined(self.unordered)
        place = np.where(is_row, np.cumsum(is_row), rows.num_rows + np.cumsum(~is_row)) - 1
        values = self._values(rows)
        if self.ordering is None:
            last = np.zeros(count, np.int64)
            last[codes] = np.arange(len(codes))  # numpy keeps the last value given for a place
        else:
            last = _greatest(codes, count, is_row, unordered, values.take(pa.array(place)))
        events = np.where(last < 0, _NONE, place[last] if len(place) else last)
        lives = (events >= 0) & (events < rows.num_rows)
        return SliceLogs(places, events, lives, rows, self.ordering, values, self.key)

    def _values(self, rows: pa.Table) -> pa.Array:
        """Ordering values of all rows, then of all deletes."""
        if self.ordering is None:
            return pa.nulls(0)
        chunks = [*rows.column(self.ordering).chunks, *self.deleted_values]
        return pa.chunked_array(chunks, self.kind).combine_chunks()


def _greatest(
    codes: Int64s, count: int, is_row: Bools, unordered: Bools, values: pa.Array
) -> Int64s:
    """For each key its greatest event, the later of equal ones; `_NONE` where all that is left is
    a delete without an ordering value."""
    number = np.arange(len(codes))
    begins = np.full(count, -1)  # the last delete without a value: events before it are gone,
    begins[codes[unordered]] = number[unordered]
    counts = number > begins[codes]
    row = np.full(count, len(codes))  # and so are deletes behind it, up to the first row
    np.minimum.at(row, codes[is_row & counts], number[is_row & counts])
    counts &= (begins[codes] < 0) | (number >= row[codes])
    left = np.flatnonzero(counts)
    ranked = left[ascending(pa.chunked_array([values.take(pa.array(left))]))]
    last = np.full(count, _NONE)
    last[codes[ranked]] = ranked  # numpy keeps the last value given for a place: the greatest
    return last


def _joined(masks: list[Bools]) -> Bools:
    """All masks behind each other; of none an empty one."""
    none: Bools = np.zeros(0, np.bool_)
    return np.concatenate([none, *masks])
