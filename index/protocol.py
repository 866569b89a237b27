"""Index: answers which file group holds a key.

An index is given an engine and a view, and adds a column `_location` to rows: the file
group that holds the row's key, null where none does. What it needs to know it keeps in
metadata partitions, which every commit fills, or finds in the data files. One class per index;
`register` gives it a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.options import Options
from metatable.data.slices import FileSlice
from metatable.data.taking import grouped
from metatable.engine.protocol import Engine
from metatable.index.placement import Placement
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.threads import in_order

__all__ = [
    "CODED_LOCATION",
    "CODED_LOCATION_FIELD",
    "FOUND",
    "LOCATION",
    "LOCATION_COLUMN",
    "LOCATION_FIELD",
    "Index",
    "coded_locations",
    "count_found",
    "create_index",
    "known_locations",
    "located_slices",
    "location_codes",
    "location_texts",
    "locations",
    "register",
    "without_codes",
]

LOCATION_COLUMN = "_location"

LOCATION = pa.struct(
    [
        pa.field("partition_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("instant", pa.string()),
        pa.field("position", pa.int64()),
    ]
)
"""`instant` is that of the current slice. `position` is the row's place in the base file; it may be
null, and is where the row is in a log, or could be."""

SPREAD_ROWS = 64 << 10
"""For so many rows, or more, the texts of several fields are made at once, in threads."""

LOCATION_FIELD = pa.schema([pa.field(LOCATION_COLUMN, LOCATION)])

_CODES = pa.dictionary(pa.int32(), pa.string())

CODED_LOCATION = pa.struct(
    [one.with_type(_CODES) if one.type == pa.string() else one for one in LOCATION]
)
"""The same where rows stay here: the texts of a million rows are some 66 MB, and those of the
file groups that are named next to nothing. Whoever reads either asks `location_texts`."""

CODED_LOCATION_FIELD = pa.schema([pa.field(LOCATION_COLUMN, CODED_LOCATION)])


class Index(Protocol):
    """Answers which file group holds a key, at one version of a table."""

    name: str
    """The name that `create(index=…)` takes."""
    partitions: tuple[MetadataPartition, ...]
    """The metadata partitions that it reads: every commit fills them, and services compact and
    verify them."""
    proves_presence: bool
    """Whether a location says that the key is there; else only that it is nowhere else."""
    asks_footers: bool
    """Whether it believes the footers of data files; then these are verified, too."""
    indexes_logs: bool
    """Whether it finds keys that only a log holds; else new keys go to new base files."""

    def tag(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        """`rows` with the column `_location`, in the engine's own type and lazy. Rows have the
        key's columns, or its texts."""
        ...

    def placement(self, view: TableView) -> Placement | None:
        """Tells which file group a row goes to; None where it may be any of its partition."""
        ...

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        """Which of these record keys (texts) the view holds. Asked where another writer was first,
        of keys that are to be inserted."""
        ...


_INDEXES: dict[str, Callable[[Options], Index]] = {}


def register(name: str, make: Callable[[Options], Index]) -> None:
    """Make an index known by the name that `create(index=…)` takes."""
    _INDEXES[name] = make


def create_index(options: Options) -> Index:
    """The index of a table. Raises UsageError for a name that nobody registered, and where file
    groups shall begin as logs whose keys it would not find."""
    make = _INDEXES.get(options.index)
    if make is None:
        raise UsageError("no such index", found=options.index, expected=sorted(_INDEXES))
    made = make(options)
    if options.opens_by_logs and not made.indexes_logs:
        raise UsageError(
            "this index finds no keys that only logs hold: none may open a file group",
            index=options.index,
            new_groups=options.new_groups,
            expected="new_groups='base', or an index such as 'bucket' or 'record'",
        )
    return made


def locations(
    places: Int64s,
    partition_paths: list[str],
    file_ids: list[str],
    instants: list[str],
    positions: pa.Array | None = None,
) -> pa.Array:
    """A `LOCATION` column: row i is group `places[i]` of the three lists, null where it is -1."""
    absent = places < 0
    taken = pa.array(places, mask=absent)
    told = [pa.array(values, pa.string()) for values in (partition_paths, file_ids, instants)]
    workers = None if len(places) >= SPREAD_ROWS else 1
    texts = in_order(lambda values: values.take(taken), told, workers)
    last = pa.nulls(len(places), pa.int64()) if positions is None else positions
    return pa.StructArray.from_arrays([*texts, last], fields=list(LOCATION), mask=pa.array(absent))


def coded_locations(
    places: Int64s,
    partition_paths: list[str],
    file_ids: list[str],
    instants: list[str],
) -> pa.Array:
    """What `locations` makes, as a `CODED_LOCATION` column."""
    absent = places < 0
    codes = pa.array(places.astype(np.int32), mask=absent)
    told = [
        pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))
        for values in (partition_paths, file_ids, instants)
    ]
    positions = pa.nulls(len(places), pa.int64())
    fields = list(CODED_LOCATION)
    return pa.StructArray.from_arrays([*told, positions], fields=fields, mask=pa.array(absent))


def location_texts(location: pa.Array, name: str) -> pa.Array:
    """A field of a `LOCATION` column, coded or not; null where there is no location."""
    texts = pc.struct_field(location, name)
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def location_codes(
    location: pa.Array,
) -> tuple[Int64s, list[str], list[str]] | None:
    """(a number for each row of a `CODED_LOCATION` column, -1 where it is null; of each number the
    partition path; the file id). Two numbers may mean one group. None of a column without codes."""
    paths, ids = (pc.struct_field(location, name) for name in ("partition_path", "file_id"))
    if not (pa.types.is_dictionary(paths.type) and pa.types.is_dictionary(ids.type)):
        return None
    absent = location.is_null().to_numpy(zero_copy_only=False)
    of_path, of_id = (
        pc.fill_null(one.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        for one in (paths, ids)
    )
    names, known = (one.dictionary.to_pylist() for one in (paths, ids))
    if names and len(names) == len(known) and (of_path == of_id).all():  # as they were made
        return np.where(absent, -1, of_id), names, known
    pairs, codes = np.unique(of_path * max(len(known), 1) + of_id, return_inverse=True)
    of_pair = [divmod(pair, max(len(known), 1)) for pair in pairs.tolist()] if known else []
    codes = np.where(absent, -1, codes)
    return codes, [names[path] for path, _ in of_pair], [known[one] for _, one in of_pair]


def without_codes(rows: pa.Table) -> pa.Table:
    """Rows whose locations are plain texts, for workers in other processes."""
    at = rows.schema.get_field_index(LOCATION_COLUMN)
    return rows.set_column(at, LOCATION_FIELD[0], rows[LOCATION_COLUMN].cast(LOCATION))


def known_locations(view: TableView, at_most: int) -> pa.Array | None:
    """The locations of all file groups, without positions; None where there are more than so
    many."""
    slices = view.few_slices(at_most)
    if slices is None:
        return None
    told = [(one.partition_path, one.file_id, one.instant) for one in slices]
    lists = (list(values) for values in zip(*told, strict=True)) if told else ([], [], [])
    return locations(np.arange(len(told)), *lists)


def located_slices(
    view: TableView, location: pa.Array
) -> list[tuple[tuple[str, str], FileSlice | None, Int64s]]:
    """The file groups that a `LOCATION` column without nulls names: (partition path, file id),
    the current slice (None: there is none), and the numbers of the rows that name it."""
    names = ("partition_path", "file_id")
    groups, rows = grouped({name: location_texts(location, name) for name in names})
    paths, ids = (groups[name].to_pylist() for name in names)
    slices = view.current(paths, ids)
    return list(zip(zip(paths, ids, strict=True), slices, rows, strict=True))


FOUND = pa.schema([pa.field("keys", pa.int64()), pa.field("found", pa.int64())])


def count_found(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Task: how many rows there are, and how many have a location."""
    for batch in batches:
        found = len(batch) - batch[LOCATION_COLUMN].null_count
        yield pa.RecordBatch.from_pylist([{"keys": len(batch), "found": found}], schema=FOUND)
