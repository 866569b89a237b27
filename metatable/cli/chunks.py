"""Streams of rows as tables of bounded size, for what the library does with a table at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from metatable.data.key_texts import identity_columns
from metatable.table import Table

__all__ = ["chunks", "distinct_keys"]

CHUNK_ROWS = 1 << 20
CHUNK_BYTES = 256 << 20


def chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows, in order, a million or 256 MB at a time; one empty table where there are none."""
    held: list[pa.RecordBatch] = []
    rows = size = told = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.Table.from_batches(held, schema)
            held, rows, size, told = [], 0, 0, told + 1
    if held or not told:
        yield pa.Table.from_batches(held, schema)


def distinct_keys(rows: pa.RecordBatchReader, table: Table) -> Iterator[pa.Table]:
    """The key columns, with the partition's where it is part of the key, each key once a chunk."""
    columns = identity_columns(table.options, rows.schema.names)
    for chunk in chunks(rows, rows.schema):
        yield chunk.select(columns).group_by(columns).aggregate([])
