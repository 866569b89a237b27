"""Merging rows: which of two rows of one key lives on.

Rows are matched by the text of `_hoodie_record_key`. With an ordering column the greatest
wins: null is the lowest value, NaN the greatest, and -0 = 0. Equal ones: the later row of a
batch wins, and a row that comes in replaces the stored one (Hudi's
`DefaultHoodieRecordPayload`). Without an ordering column a key may come once in a batch, and
what comes in wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.rows.row_counts import RowCounts
from metatable.data.rows.taking import piece_rows, taken, whole
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.key_places import KeyPlaces

__all__ = [
    "Merge",
    "Take",
    "ascending",
    "changed_columns",
    "check_ordering",
    "codes_of",
    "deduplicate",
    "newer",
    "put_columns",
    "put_into",
]

PIECE_BYTES = 16 << 20
"""Stored rows that are merged at once, of many columns up to twice that: what takes their places is
held beside them, and what comes of both."""

RUN_ROWS = 512
"""Rows that are taken one by one in the time that it takes to copy a run of them."""

FIRST_ROWS = 128
"""A column that changes is as a rule another one among so few rows that change."""

Take = Callable[[Int64s], pa.Table]
"""Rows by their numbers."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Where each row of a new slice comes from, and what happened to get there.

    For the stored rows, in order: the row that takes its place (itself, or, from `stored` on, a
    row put in) and whether one does; then the rows put in that are new. `counts` are those of this
    group alone: what comes in from another one is inserted here, and deleted there.
    `deleted_keys`: a string array; a delete of an absent key counts nowhere.
    """

    source: Int64s
    kept: Bools
    new: Int64s
    counts: RowCounts
    deleted_keys: pa.Array

    @classmethod
    def of(
        cls, base: pa.Table, upserts: pa.Table, deletes: pa.Array, ordering: str | None
    ) -> Merge:
        """From keys, and the ordering column where there is one: all that decides.

        Keys of `upserts` differ from each other and from those of `deletes` (else UsageError).
        Raises CorruptError where one of these is stored twice; the others nobody compares.
        """
        stored, offered = base.num_rows, upserts.num_rows
        places = _places(base.column(KEY_COLUMN), _asked(base, upserts, deletes))
        targets = places[:offered]
        found = np.flatnonzero(targets >= 0)
        wins = _winners(base, upserts, found, targets[found], ordering)
        gone = places[offered:]
        gone = np.sort(gone[gone >= 0])
        new = np.flatnonzero(targets < 0)
        source, kept = np.arange(stored), np.ones(stored, np.bool_)
        source[targets[found[wins]]] = stored + found[wins]
        kept[gone] = False
        counts = RowCounts(
            inserted=len(new),
            updated=int(wins.sum()),
            deleted=len(gone),
            stale=len(found) - int(wins.sum()),
        )
        return cls(source, kept, new, counts, whole(base.column(KEY_COLUMN)).take(pa.array(gone)))

    def within(self, rows: Int64s, count: int) -> Merge:
        """This merge, which looked at some stored rows alone, as one of the whole slice of `count`
        rows: they stand at `rows` in it (ascending), and all others stay."""
        source, kept = np.arange(count), np.ones(count, np.bool_)
        stored = len(self.source)
        put = self.source >= stored
        source[rows] = np.where(put, self.source + (count - stored), rows)
        kept[rows] = self.kept
        return replace(self, source=source, kept=kept)

    def rows(self, base: Iterable[pa.Table], take: Take, step: int) -> Iterator[pa.Table]:
        """The rows of the new slice, from the stored ones piece by piece, in their order.

        `take` gives rows put in, by their numbers; it is asked for `step` new ones at a time. All
        tables have the same columns, meta columns included. Stored rows keep their places and,
        where nothing replaces them, their meta columns; inserts follow in their order.
        """
        stored, start = len(self.source), 0
        for piece in _cut(base):
            here = slice(start, start + piece.num_rows)
            start = here.stop
            source = self.source[here][self.kept[here]]
            put = source >= stored
            places = source - here.start
            places[put] = piece.num_rows + np.arange(int(put.sum()))
            yield put_into(piece, take, source[put] - stored, places)
        for start in range(0, len(self.new), step):
            yield take(self.new[start : start + step])


def _cut(base: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for piece in base:
        step = piece_rows(piece, PIECE_BYTES)
        for start in range(0, max(piece.num_rows, 1), step):
            yield piece.slice(start, step)


def check_ordering(schema: pa.Schema, ordering: str | None) -> None:
    """Raises UsageError where the ordering column has no order: it is nested."""
    if ordering is not None and pa.types.is_nested(schema.field(ordering).type):
        found = str(schema.field(ordering).type)
        raise UsageError("column has no order", column=ordering, expected="one value", found=found)


def deduplicate(table: pa.Table, key_columns: Sequence[str], ordering: str | None) -> pa.Table:
    """One row a key: the greatest by `ordering`; the survivors keep their order.

    Raises UsageError, naming five keys, where keys repeat and there is no ordering.
    """
    codes, count = codes_of([table.column(name) for name in key_columns])
    if count == table.num_rows:
        return table
    repeated = np.flatnonzero(np.bincount(codes, minlength=count)[codes] > 1)
    if ordering is None:
        raise _repeated(table, key_columns, codes[repeated], repeated)
    ranked = repeated[ascending(table.column(ordering).take(pa.array(repeated)))]
    last = np.full(count, -1, np.int64)
    last[codes[ranked]] = ranked  # numpy keeps the last value given for a place: the greatest
    survives = np.ones(table.num_rows, np.bool_)
    survives[repeated] = last[codes[repeated]] == repeated
    return table.filter(pa.array(survives))


def newer(base_ordering: pa.Array, incoming_ordering: pa.Array) -> Bools:
    """For each pair whether the incoming row replaces the stored one, that is, is not older."""
    base, incoming = whole(base_ordering), whole(incoming_ordering)
    if base.type != incoming.type:
        base = base.cast(incoming.type)
    replaces = _numpy_mask(pc.greater_equal(incoming, base))
    if pa.types.is_floating(incoming.type):
        replaces |= _numpy_mask(pc.is_nan(incoming))
    return replaces | _numpy_mask(base.is_null())


def _asked(base: pa.Table, upserts: pa.Table, deletes: pa.Array) -> KeyPlaces:
    """The keys that are put, then those that are deleted, each once. Raises UsageError.

    That no two are one, their tables prove as a rule; else it takes a look at all texts.
    """
    kind = base.schema.field(KEY_COLUMN).type
    put = whole(upserts.column(KEY_COLUMN)).cast(kind)
    gone = pc.unique(whole(deletes)).cast(kind)
    asked = KeyPlaces.of(pa.concat_arrays([put, gone]) if len(gone) else put)
    if not asked.are_distinct:
        _refuse_repeated(put, gone)
    return asked


def _refuse_repeated(put: pa.Array, gone: pa.Array) -> None:
    if len(pc.unique(put)) < len(put):
        _, first = np.unique(codes_of([put])[0], return_index=True)
        again = put.take(pa.array(np.setdiff1d(np.arange(len(put)), first)))
        raise UsageError("a key is given twice", keys=again[:5].to_pylist())
    if len(gone) and (both := pc.is_in(put, value_set=gone)).true_count:
        raise UsageError("a key is both put and deleted", keys=put.filter(both)[:5].to_pylist())


def _places(stored: pa.ChunkedArray, asked: KeyPlaces) -> Int64s:
    """The row that holds each key; -1: none does. What is hashed are the keys asked, as a rule the
    fewer. Raises CorruptError where two rows hold one."""
    start, places = 0, np.full(len(asked.keys), -1, np.int64)
    for chunk in stored.chunks:
        rows, found = asked.find(chunk)
        rows += start
        again = places[found] >= 0
        places[found] = rows
        again |= places[found] != rows
        if again.any():
            key = asked.keys[int(found[np.argmax(again)])].as_py()
            raise CorruptError("a key is stored twice in one file", key=key)
        start += len(chunk)
    return places


def _winners(
    base: pa.Table, upserts: pa.Table, rows: Int64s, targets: Int64s, ordering: str | None
) -> Bools:
    if ordering is None:
        return np.ones(len(rows), np.bool_)
    old = whole(base.column(ordering)).take(pa.array(targets))
    return newer(old, whole(upserts.column(ordering)).take(pa.array(rows)))


def put_into(piece: pa.Table, take: Take, put: Int64s, places: Int64s) -> pa.Table:
    """The rows at these places of a piece and, behind it, of the upserts put into it.

    Columns that come out as they were are not taken: keys, for one.
    """
    every = len(places) == piece.num_rows
    if not len(put) and every:
        return piece
    rows = take(put)
    changed = changed_columns(piece, rows, places) if every else piece.column_names
    made = put_columns(piece, rows, places, changed)
    others = frozenset(changed)
    columns = [made[name] if name in others else piece[name] for name in piece.column_names]
    return pa.table(columns, schema=piece.schema)


def changed_columns(piece: pa.Table, rows: pa.Table, places: Int64s) -> list[str]:
    """Columns that are other ones once these rows have taken the places of as many.

    Of numbers with a point nobody looks: -0 equals 0, and is another value. Nor of nested ones.
    """
    replaced = np.flatnonzero(places >= piece.num_rows)
    kept = [
        one.name
        for one in piece.schema
        if not pa.types.is_floating(one.type) and not pa.types.is_nested(one.type)
    ]
    for count in (FIRST_ROWS, len(replaced)):
        if kept:
            after = rows.select(kept).slice(0, count)
            before = taken(piece.select(kept), pa.array(replaced[:count])).cast(after.schema)
            kept = [name for name in kept if before[name].equals(after[name])]
    same = frozenset(kept)
    return [name for name in piece.column_names if name not in same]


def put_columns(piece: pa.Table, rows: pa.Table, places: Int64s, names: Sequence[str]) -> pa.Table:
    """Some columns of the rows at these places of a piece and, behind it, of others. Those that are
    dictionaries in the piece stay such.

    Where long runs of rows stay beside each other, these are copied: a row costs more to be taken.
    """
    like = piece.select(names)
    both = pa.concat_tables([like, rows.select(names).cast(like.schema)]).unify_dictionaries()
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    if len(ends) * RUN_ROWS > len(places):
        return taken(both, pa.array(places))
    cuts = [0, *ends.tolist(), len(places)]
    runs = [both.slice(places[lo], hi - lo) for lo, hi in pairwise(cuts) if lo < hi]
    return pa.concat_tables(runs or [both.slice(0, 0)]).combine_chunks()


def codes_of(columns: Sequence[pa.ChunkedArray]) -> tuple[Int64s, int]:
    """A number for each row, equal for rows that agree in all columns, and how many there are.

    Numbers of a single column are given in the order of first appearance.
    """
    codes, count = _column_codes(columns[0])
    for column in columns[1:]:
        more, width = _column_codes(column)
        distinct, codes = np.unique(codes * width + more, return_inverse=True)
        count = len(distinct)
    return codes, count


def _column_codes(column: pa.ChunkedArray) -> tuple[Int64s, int]:
    encoded = whole(column).dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, len(encoded.dictionary)


def ascending(ordering: pa.ChunkedArray) -> Int64s:
    """Row numbers from lowest to greatest, null first, NaN last, equal ones in their order."""
    column = whole(ordering)
    if pa.types.is_floating(column.type):
        nulls = _numpy_mask(column.is_null())
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return np.lexsort((values, ~nulls))
    order = pc.array_sort_indices(column, null_placement="at_start")
    rows: Int64s = order.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def _numpy_mask(mask: pa.Array) -> Bools:
    filled: Bools = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return filled


def _repeated(
    table: pa.Table, key_columns: Sequence[str], codes: Int64s, rows: Int64s
) -> UsageError:
    """The error that names up to five of the keys that repeat."""
    _, first = np.unique(codes, return_index=True)
    examples = table.select(list(key_columns)).take(pa.array(np.sort(rows[first])[:5])).to_pylist()
    return UsageError(
        "keys repeat in the rows given",
        keys=[
            tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in examples
        ],
        expected="each key once, or a table with an ordering column",
        found=f"{len(first)} keys more than once",
    )
