"""Point reads: the rows of some keys, from the few files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.key_texts import KEY, texts_of
from metatable.data.slice_reader import read_slice
from metatable.data.slices import FileSlice
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
    tagged = engine.to_table(create_index(view.options).tag(engine, engine.rows(keys), view))
    parts = []
    for file, asked in _by_file(view, tagged.filter(tagged[LOCATION_COLUMN].is_valid())):
        texts, _ = texts_of(view.options, view.schema, asked)
        schema = pa.schema([pa.field(KEY, pa.string()), *wanted])
        rows = read_slice(view.store, file, schema, view.table_schema, view.options.ordering)
        parts.append(rows.filter(pc.is_in(rows[KEY], value_set=texts)).drop_columns([KEY]))
    return pa.concat_tables(parts) if parts else wanted.empty_table()


def _by_file(view: TableView, tagged: pa.Table) -> list[tuple[FileSlice, pa.RecordBatch]]:
    location = tagged[LOCATION_COLUMN].combine_chunks()
    keys = tagged.drop_columns([LOCATION_COLUMN]).combine_chunks()
    return [
        (file, keys.take(pa.array(here)).to_batches()[0])
        for _, file, here in located_slices(view, location)
        if file is not None
    ]


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    for name in columns:
        if name not in schema.names:
            raise UsageError("no such column", column=name, expected=schema.names)
    return pa.schema([schema.field(name) for name in columns])
