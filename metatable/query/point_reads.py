"""Point reads: the rows of some keys, from the few files that hold them, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keys.as_given import given_keys
from metatable.data.keys.key_texts import identity_columns, key_column, texts_of
from metatable.data.reading.keyed_rows import Asked
from metatable.data.reading.proven_rows import rows_of_proven_keys
from metatable.engine.batches import gathered
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.index.locations import LOCATION_COLUMN, located_slices
from metatable.index.record import KeyedIndex, keyed_index
from metatable.metadata.view import TableView, read_columns
from metatable.query.rows import chosen_columns

__all__ = ["read_keys"]

FEW_ROWS = 64 << 10
"""So many keys, which the caller holds, are looked up at once, without a column for locations."""

PART_ROWS, PART_BYTES = 4 << 20, 512 << 20
"""So many keys that were found, or so many bytes of them, are dealt to their slices together: a
column of Arrow's has 2 GiB at most."""


def read_keys(
    engine: LocalEngine, view: TableView, keys: Any, columns: Sequence[str] | None
) -> pa.Table:
    """Rows whose key is among `keys` (rows with the key's columns); absent keys are left out.

    Raises UsageError for unknown columns and for keys without their columns.
    """
    wanted = chosen_columns(view.schema, columns)
    keys = given_keys(keys, view.options, view.schema)
    index, rows = create_index(view.options), engine.rows(keys)
    keyed = keyed_index(index)
    is_few = isinstance(keys, pa.Table | pa.RecordBatch) and 0 < keys.num_rows <= FEW_ROWS
    if is_few and keyed is not None:
        asked = _found(view, engine.to_table(rows), keyed)
    else:
        rows = engine.select(rows, identity_columns(view.options, engine.columns(rows)))
        tagged = engine.to_table(index.tag(engine, rows, view))
        there = tagged.filter(tagged[LOCATION_COLUMN].is_valid())
        asked = _asked(view, there, index.proves_presence)
    key = key_column(view.options, view.schema)
    read = read_columns(view, wanted, key)
    found = rows_of_proven_keys(view.store, asked, read)
    return pa.concat_tables([wanted.empty_table(), *found])


def _found(view: TableView, rows: pa.Table, index: KeyedIndex) -> list[Asked]:
    """The keys of some rows by the slice that holds them, in the order of their first rows. The
    index tells no more of them than that they are there."""
    inputs = identity_columns(view.options, rows.column_names)
    [batch] = rows.select(inputs).combine_chunks().to_batches()
    texts, slices, group = index.find(view, batch)
    order = np.argsort(group, kind="stable")
    texts, ends = texts.take(pa.array(order)), group[order].searchsorted(range(len(slices) + 1))
    spans = zip(slices, pairwise(ends.tolist()), strict=True)
    asked = [(low, Asked(one, texts.slice(low, high - low), True)) for one, (low, high) in spans]
    return [one for _, one in sorted(asked, key=lambda one: int(order[one[0]]))]


def _asked(view: TableView, tagged: pa.Table, are_there: bool) -> list[Asked]:
    """The keys of rows with locations by the slice that holds them, with their positions in it
    where the index tells all of these. `are_there`: the index has proven that they are."""
    found: dict[tuple[str, str], list[Asked]] = {}
    batches = (one for one in tagged.to_batches(max_chunksize=PART_ROWS) if one.num_rows)
    for part in gathered(batches, PART_ROWS, PART_BYTES):
        for group, asked in _of_part(view, part, are_there):
            found.setdefault(group, []).append(asked)
    return [*map(_in_one, found.values())]


def _of_part(
    view: TableView, part: pa.RecordBatch, are_there: bool
) -> Iterator[tuple[tuple[str, str], Asked]]:
    """What `_asked` gives of some of the rows, each with its file group."""
    location = part[LOCATION_COLUMN]
    texts, _ = texts_of(view.options, view.schema, part.drop_columns([LOCATION_COLUMN]))
    located = located_slices(view, location)
    order = pa.array(np.concatenate([rows for _, _, rows in located]))
    texts, positions = texts.take(order), pc.struct_field(location, "position").take(order)
    low = 0
    for group, held, rows in located:
        if held is not None:
            own = positions.slice(low, len(rows))
            known = None if own.null_count else own.to_numpy()
            yield group, Asked(held, texts.slice(low, len(rows)), are_there, known)
        low += len(rows)


def _in_one(parts: Sequence[Asked]) -> Asked:
    """What several parts ask of a slice, together: it is read once, and gives no row twice, though
    two of them may ask for one key."""
    if len(parts) == 1:
        return parts[0]
    texts = pa.concat_arrays([one.keys for one in parts])
    known = [one.positions for one in parts if one.positions is not None]
    positions = np.concatenate(known) if len(known) == len(parts) else None
    return Asked(parts[0].of, texts, parts[0].are_there, positions)
