"""Locations: the column `_location` that an index adds to rows, and what it is made of.

A location is the file group that holds the row's key, null where none does:

    partition_path, file_id    of the group
    instant                    of its current slice
    position                   the row's place in the base file; null where it is not known, where
                               the row is in a log, and where it could be

Rows that stay in this process have the texts as dictionaries (`CODED_LOCATION`): those of a million
rows are some 66 MB, and those of the file groups that are named next to nothing. Whoever reads
either form asks `location_texts`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import FileSlice
from metatable.data.rows.taking import grouped
from metatable.metadata.view import TableView
from metatable.storage.arrays import Int64s
from metatable.storage.threads import in_order

__all__ = [
    "CODED_LOCATION",
    "CODED_LOCATION_FIELD",
    "LOCATION",
    "LOCATION_COLUMN",
    "LOCATION_FIELD",
    "coded_locations",
    "known_locations",
    "located_slices",
    "location_codes",
    "location_texts",
    "locations",
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

LOCATION_FIELD = pa.schema([pa.field(LOCATION_COLUMN, LOCATION)])
"""The column alone, as a schema."""

_CODES = pa.dictionary(pa.int32(), pa.string())

CODED_LOCATION = pa.struct(
    [one.with_type(_CODES) if one.type == pa.string() else one for one in LOCATION]
)

CODED_LOCATION_FIELD = pa.schema([pa.field(LOCATION_COLUMN, CODED_LOCATION)])

SPREAD_ROWS = 64 << 10
"""For so many rows, or more, the texts of several fields are made at once, in threads."""


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
