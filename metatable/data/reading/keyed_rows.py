"""Rows of a few keys: from the pages of base files that hold them, with logs merged in.

Of the column of keys the pages are read that may hold some of those asked for, then of the other
columns the pages of the rows that were found, of several files together. A file that has no page
index is read whole, and so is one of which so much is asked that it costs less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.base_file import stream_record_keys
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import IDS_ARE_OURS, AskedColumns, StoredColumns
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.logs.log_merge import ReadLogs
from metatable.data.reading.logs_together import logs_together
from metatable.data.reading.slice_reader import merge_logs, read_slice, read_slice_keys
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.key_places import KeyPlaces, found_among
from metatable.storage.parquet.chosen_pages import find_rows, read_rows
from metatable.storage.parquet.page_places import KeyPages, Wanted, key_pages
from metatable.storage.parquet.paged_file import PagedFile, Shape, paged
from metatable.storage.portions import far_portions, in_portions, together_far
from metatable.storage.store import Store
from metatable.storage.threads import in_order, workers_here

__all__ = [
    "Asked",
    "paged_for_rows",
    "places_of_keys",
    "raw_texts",
    "rows_of_keys",
    "together",
]

KEY_ROWS = 8 << 10
"""Rows of a file for each key that is asked: with fewer, decoding all of it takes no longer."""

FOUND_ROWS = 2 << 10
"""`KEY_ROWS` where only keys are read: their pages are searched without being decoded."""

KEYS_TOGETHER = 512
"""Keys whose pages are read at once: of each some 2,048 keys are held."""

FEW_KEYS = 64
"""Up to so many keys the interpreter's own set is made sooner than a call of Arrow."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Keys (texts) that are asked of a slice. `are_there`: it is known to hold them all.
    `positions`: where they stand in its base file, if that is known."""

    of: FileSlice
    keys: pa.Array
    are_there: bool = False
    positions: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a base file that are asked for: their positions, ascending. `keys`: the texts of
    theirs, where these have been read already."""

    file: PagedFile
    positions: Int64s
    keys: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """Rows of a base file among which all are that hold some keys: their positions, ascending, and
    the texts of the keys that they hold."""

    file: PagedFile
    positions: Int64s
    keys: pa.Array


_Look = tuple[Asked, Searched | None, ReadLogs | None]
"""What is asked of a slice, what was found in its base file (None: nothing was looked for), and
what its logs hold."""


def rows_of_keys(store: Store, asked: Sequence[Asked], read: ReadColumns) -> Iterator[pa.Table]:
    """For each slice the rows of the keys that are asked of it, in their order in the slice. The
    column `read.key` is not read where the keys were found. Raises CorruptError."""
    for some in together(asked):
        yield from _rows_of_some(store, some, read)


def _rows_of_some(store: Store, asked: Sequence[Asked], read: ReadColumns) -> list[pa.Table]:
    """`rows_of_keys` of slices whose pages are read together; of each by itself where one is
    damaged, and of that one without its pages, for what tells of these has no checksum."""
    try:
        return [*_rows_of_each(store, asked, read, _rows_to_read(store, asked))]
    except CorruptError as error:
        if len(asked) > 1:
            return [rows for one in asked for rows in _rows_of_some(store, [one], read)]
        with _told_instead(error):
            return [*_rows_of_each(store, asked, read, [None])]


@contextmanager
def _told_instead(error: CorruptError) -> Iterator[None]:
    """Raises this one, which names a place, where there is damage without pages, too."""
    try:
        yield
    except CorruptError:
        raise error from None


def _rows_of_each(
    store: Store, asked: Sequence[Asked], read: ReadColumns, found: Sequence[Found | None]
) -> Iterator[pa.Table]:
    """`rows_of_keys` of slices of which these rows of base files are read; None: all."""
    with_key = read.with_key()
    there = [held for held in found if held is not None]
    if any(one.of.logs for one in asked):
        tables = iter(_rows_at(store, there, with_key.deciding, read.table))
    else:
        tables = iter(_rows_with_keys(store, there, read))
    shared = logs_together(store, (one.of for one in asked), with_key)
    given = (
        (one, None if held is None else next(tables), logs)
        for one, held, (_, logs) in zip(asked, found, shared, strict=True)
    )
    work = partial(_rows_of_slice, store, with_key)
    for rows in together_far(store, work, given, _unread):
        yield rows.select(read.schema.names)


def _unread(given: tuple[Asked, object, ReadLogs | None]) -> int:
    """Bytes of a slice that are still to be read, at most: none where something of its base file
    was found (None: nothing)."""
    one, found, _ = given
    return one.of.size_bytes if found is None else 0


def _rows_of_slice(
    store: Store, with_key: ReadColumns, given: tuple[Asked, pa.Table | None, ReadLogs | None]
) -> pa.Table:
    """`rows_of_keys` of a slice of which these rows of the base file were read; None: none were."""
    one, held, logs = given
    if held is None:
        return _of_keys(read_slice(store, one.of, with_key, logs), one.keys)
    if not one.of.logs:
        return held
    rows = _of_keys(merge_logs(store, one.of, held, with_key, logs), one.keys)
    if one.are_there and _distinct(rows[KEY_COLUMN]) < _distinct(one.keys):
        # bounds of pages were wrong
        return _of_keys(read_slice(store, one.of, with_key), one.keys)
    return rows


def _of_keys(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[KEY_COLUMN], value_set=keys))


def _distinct(keys: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.count_distinct(keys).as_py())


def places_of_keys(
    store: Store,
    asked: Iterable[Asked],
    columns: TableSchema,
    ordering: str | None,
    workers: int | None = None,
) -> Iterator[tuple[Asked, Int64s, Int64s]]:
    """Which of the keys that are asked of each slice it holds, ascending, and their positions; of a
    slice with logs these say nothing. Keys are distinct. Some slices are looked into beside each
    other, on so many `workers`, a few ahead. Raises CorruptError."""
    look = partial(_places_of_share, store, ReadColumns.of_keys(columns, ordering), workers)
    shares = _shares(asked, workers_here() if workers is None else workers)
    for some in in_order(look, shares, workers):
        yield from some


def _places_of_share(
    store: Store, read: ReadColumns, workers: int | None, asked: Sequence[Asked]
) -> list[tuple[Asked, Int64s, Int64s]]:
    """`places_of_keys` of slices whose pages of keys are read together. Where one is damaged, as in
    `_rows_of_some`."""
    try:
        return _places_of_each(store, read, workers, asked, _searched(store, asked, FOUND_ROWS))
    except CorruptError as error:
        if len(asked) > 1:
            alone = (_places_of_share(store, read, workers, [one]) for one in asked)
            return [*chain.from_iterable(alone)]
        with _told_instead(error):
            return _places_of_each(store, read, workers, asked, [None])


def _places_of_each(
    store: Store,
    read: ReadColumns,
    workers: int | None,
    asked: Sequence[Asked],
    searched: Sequence[Searched | None],
) -> list[tuple[Asked, Int64s, Int64s]]:
    """`places_of_keys` of slices of which these rows were searched; None: all are."""
    find = partial(_places_in_slice, store, read)
    shared = logs_together(store, (one.of for one in asked), read)
    some = zip(asked, searched, (logs for _, logs in shared), strict=True)
    if all(searched):
        return [*map(find, some)]
    if not store.is_distant:
        return [*in_order(find, some, workers)]
    portions = far_portions(some, _unread)

    def find_together(portion: Sequence[_Look]) -> Sequence[tuple[Asked, Int64s, Int64s]]:
        return store.together([partial(find, one) for one in portion])

    told = in_order(find_together, portions, workers)
    return [*chain.from_iterable(told)]


def _places_in_slice(store: Store, read: ReadColumns, given: _Look) -> tuple[Asked, Int64s, Int64s]:
    """`places_of_keys` of one slice: by the pages of its base file that were searched (None: by all
    of its keys), and what gives its logs."""
    asked, held, logs = given
    position = np.full(len(asked.keys), -1, np.int64)
    if held is None:
        known = KeyPlaces.of(asked.keys)
        for keys, start in _all_keys(store, asked, read, logs):
            here, places = known.find(keys)
            position[places] = start + here
    elif asked.of.logs:
        merged = _merged_keys(store, asked, held, read, logs)
        _, places = found_among(merged, asked.keys)
        position[places] = 0
    else:
        here, places = found_among(held.keys, asked.keys)
        position[places] = held.positions[here]
    rows = np.flatnonzero(position >= 0)
    return asked, rows, position[rows]


def _all_keys(
    store: Store, asked: Asked, read: ReadColumns, logs: ReadLogs | None
) -> Iterator[tuple[pa.Array, int]]:
    """Keys of a slice, among them all that are asked: neighbours, and where the first stands."""
    ends = pc.min_max(asked.keys).as_py()
    bounds = ends["min"], ends["max"]
    if not asked.of.logs:
        return stream_record_keys(store, asked.of.base, *bounds)
    keys, _ = read_slice_keys(store, asked.of, read.table, read.ordering, *bounds, logs=logs)
    return iter([(keys, 0)])


def _merged_keys(
    store: Store,
    asked: Asked,
    held: Searched,
    read: ReadColumns,
    logs: ReadLogs | None,
) -> pa.Array:
    """The keys asked for that a slice with logs holds, and others that its logs bring."""
    rows, _ = KeyPlaces.of(asked.keys.unique()).find(held.keys)
    some = Found(held.file, held.positions[rows])
    [base] = _rows_at(store, [some], read.deciding, read.table)
    return whole(merge_logs(store, asked.of, base, read, logs)[KEY_COLUMN])


def _searched(store: Store, asked: Sequence[Asked], rows: int) -> list[Searched | None]:
    """`_search` of the base file of each slice; None where it has none."""
    based = [place for place, one in enumerate(asked) if one.of.has_base]
    some = [(asked[place].of.base, asked[place].keys) for place in based]
    found = iter(_search(store, some, rows))
    return [next(found) if one.of.has_base else None for one in asked]


def _search(
    store: Store, asked: Sequence[tuple[DataFile, pa.Array]], rows: int
) -> list[Searched | None]:
    """Read the pages of base files that may hold these keys (texts).

    None where a file has to be looked through the ordinary way: it has no page index, or fewer than
    so many `rows` for each key. Raises CorruptError.
    """
    files = _paged(store, [(file, len(keys)) for file, keys in asked], rows)
    known = [(place, file) for place, file in enumerate(files) if file is not None]
    bounds = key_pages(store, [file for _, file in known], KEY_COLUMN)
    alike: dict[Shape, list[tuple[int, PagedFile, KeyPages, Wanted]]] = {}
    for (place, file), pages in zip(known, bounds, strict=True):
        if pages is not None:
            texts = sorted(set(raw_texts(asked[place][1])))
            one = place, file, pages, pages.wanted(texts)
            alike.setdefault(file.shape, []).append(one)
    found: list[Searched | None] = [None] * len(asked)
    for some in alike.values():
        read = find_rows(store, [one[1:] for one in some], KEY_COLUMN)
        for (place, file, _, _), (at, keys) in zip(some, read, strict=True):
            if keys.null_count:
                raise CorruptError("a stored record key is null", path=file.path)
            found[place] = Searched(file, at, keys.cast(pa.string()))
    return found


def _paged(
    store: Store, asked: Sequence[tuple[DataFile, int]], rows: int
) -> list[PagedFile | None]:
    """The files, where single pages of them can be read, and they have so many `rows` a key."""
    sized = [(file.path, file.size_bytes) for file, _ in asked if file.size_bytes]
    files = iter(paged(store, sized))
    found = [next(files) if file.size_bytes else None for file, _ in asked]
    return [
        file if file is not None and keys * rows <= file.starts[-1] else None
        for file, (_, keys) in zip(found, asked, strict=True)
    ]


def paged_for_rows(store: Store, asked: Sequence[Asked]) -> list[PagedFile | None]:
    """The base file of each slice, where so few rows of it are asked that it is read by pages."""
    return _paged(store, [(one.of.base, len(one.keys)) for one in asked], KEY_ROWS)


def _rows_to_read(store: Store, asked: Sequence[Asked]) -> list[Found | None]:
    """For each slice the rows of its base file that hold the keys; None: it is read whole."""
    found: list[Found | None] = [None] * len(asked)
    known = {place: one.positions for place, one in enumerate(asked) if one.positions is not None}
    files = paged_for_rows(store, [asked[place] for place in known])
    for (place, positions), file in zip(known.items(), files, strict=True):
        found[place] = None if file is None else Found(file, np.unique(positions))
    others = [place for place in range(len(asked)) if place not in known]
    searched = _searched(store, [asked[place] for place in others], KEY_ROWS)
    for place, held in zip(others, searched, strict=True):
        found[place] = None if held is None else _matching(asked[place], held)
    return found


def _matching(asked: Asked, held: Searched) -> Found | None:
    """Those of the searched rows that hold the keys; None where some are missing that are known to
    be there: bounds of pages were wrong."""
    rows, distinct = _rows_among(held.keys, asked.keys)
    if asked.are_there and not asked.of.logs and len(rows) < distinct:
        return None
    if len(rows) == len(held.keys):
        return Found(held.file, held.positions, held.keys)
    return Found(held.file, held.positions[rows], held.keys.take(pa.array(rows)))


def _rows_among(keys: pa.Array, asked: pa.Array) -> tuple[Int64s, int]:
    """(which of these keys, by number, are among those asked; how many these are)."""
    if max(len(keys), len(asked)) <= FEW_KEYS:
        wanted = set(raw_texts(asked))
        found = [row for row, key in enumerate(raw_texts(keys)) if key in wanted]
        return np.array(found, np.int64), len(wanted)
    distinct = asked.unique()
    rows, _ = KeyPlaces.of(distinct).find(keys)
    return rows, len(distinct)


def _rows_with_keys(store: Store, found: Sequence[Found], read: ReadColumns) -> list[pa.Table]:
    """`_rows_at`, but that what is known of the column of keys is not read again."""
    schema = read.schema
    place = schema.get_field_index(read.key)
    if place < 0 or any(one.keys is None for one in found):
        return _rows_at(store, found, schema, read.table)
    others = schema.remove(place)
    if not others:
        return [pa.table([one.keys], schema=schema) for one in found]
    tables = zip(found, _rows_at(store, found, others, read.table), strict=True)
    return [rows.add_column(place, schema.field(place), one.keys) for one, rows in tables]


def _rows_at(
    store: Store, found: Sequence[Found], schema: pa.Schema, columns: TableSchema | None
) -> list[pa.Table]:
    """The rows of each file, with these columns; files of one shape are read together."""
    alike: dict[tuple[Shape, bool], list[int]] = {}
    for place, one in enumerate(found):
        alike.setdefault((one.file.shape, IDS_ARE_OURS.encode() in one.file.words), []).append(
            place
        )
    made: dict[int, pa.Table] = {}
    for (shape, _), places in alike.items():
        file = found[places[0]].file
        stored = StoredColumns.of_schema(shape.schema, file.words, file.path)
        asked = AskedColumns.of(stored, schema, columns)
        some = [(found[place].file, found[place].positions) for place in places]
        rows = asked.of_table(read_rows(store, some, asked.names or [KEY_COLUMN]))
        start = 0
        for place in places:
            made[place] = rows.slice(start, len(found[place].positions))
            start += len(found[place].positions)
    return [made[place] for place in range(len(found))]


def _shares(asked: Iterable[Asked], workers: int) -> Iterator[list[Asked]]:
    """Some slices at a time, for each of the workers about as many keys: one whose files are read
    together takes fewer steps than one per file. Few that are all are one share: threads have pages
    of it each."""
    portions = together(asked, workers)
    begun = [*islice(portions, 2)]
    if len(begun) < 2:
        yield from begun
        return
    for some in chain(begun, portions):
        ends = np.cumsum([len(one.keys) for one in some])
        middles = ends - np.diff(ends, prepend=0) / 2
        of = (middles * workers / ends[-1]).astype(np.int64)
        borders = np.flatnonzero(np.diff(of, prepend=-1, append=workers)).tolist()
        yield from (some[low:high] for low, high in pairwise(borders))


def together(asked: Iterable[Asked], workers: int = 1) -> Iterator[list[Asked]]:
    """Some slices at a time, of which so many keys are asked as go together, or one."""
    return in_portions(asked, lambda one: len(one.keys), KEYS_TOGETHER * workers)


def raw_texts(texts: pa.Array) -> list[bytes]:
    """Their bytes: those on disk may be no UTF-8."""
    raw: list[bytes] = texts.view(pa.binary()).to_pylist()
    return raw
