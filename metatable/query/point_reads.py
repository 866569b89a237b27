"""Point reads: the rows of some keys, from the few files that hold them, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import key_column, texts_of
from metatable.data.keyed_rows import Asked
from metatable.data.proven_rows import rows_of_proven_keys
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.index.protocol import LOCATION_COLUMN, located_slices
from metatable.metadata.view import TableView
from metatable.storage.errors import UsageError

__all__ = ["read_keys"]


def read_keys(
    engine: LocalEngine, view: TableView, keys: Any, columns: Sequence[str] | None
) -> pa.Table:
    """Rows whose key is among `keys` (rows with the key's columns); absent keys are left out.

    Raises UsageError for unknown columns and for keys without their columns.
    """
    wanted = _chosen(view.schema, columns)
    index = create_index(view.options)
    tagged = engine.to_table(index.tag(engine, engine.rows(keys), view))
    asked = _asked(view, tagged.filter(tagged[LOCATION_COLUMN].is_valid()), index.proves_presence)
    ordering, key = view.options.ordering, key_column(view.options, view.schema)
    rows = rows_of_proven_keys(view.store, asked, wanted, view.table_schema, ordering, key)
    return pa.concat_tables([wanted.empty_table(), *rows])


def _asked(view: TableView, tagged: pa.Table, are_there: bool) -> list[Asked]:
    """The keys by slice, with their places where the index tells them all."""
    if not tagged.num_rows:
        return []
    location = tagged[LOCATION_COLUMN].combine_chunks()
    [keys] = tagged.drop_columns([LOCATION_COLUMN]).combine_chunks().to_batches()
    texts, _ = texts_of(view.options, view.schema, keys)
    located = located_slices(view, location)
    order = pa.array(np.concatenate([rows for _, _, rows in located]))
    texts, positions = texts.take(order), pc.struct_field(location, "position").take(order)
    asked, low = [], 0
    for _, held, rows in located:
        if held is not None:
            own = positions.slice(low, len(rows))
            known = None if own.null_count else own.to_numpy()
            asked.append(Asked(held, texts.slice(low, len(rows)), are_there, known))
        low += len(rows)
    return asked


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    for name in columns:
        if name not in schema.names:
            raise UsageError("no such column", column=name, expected=schema.names)
    return pa.schema([schema.field(name) for name in columns])
