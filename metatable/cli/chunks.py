"""Streams of rows as tables of bounded size, for what the library does with a table at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from metatable.data.columns.align import align
from metatable.data.keys.key_texts import identity_columns, own_identity_columns
from metatable.table import Table

__all__ = ["chunks", "distinct_keys", "keys_of"]

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


def keys_of(rows: pa.RecordBatchReader, table: Table) -> pa.RecordBatchReader:
    """The key columns alone, with the partition's where keys are unique in partitions.

    Raises UsageError where one of them is missing.
    """
    return _columns_of(rows, identity_columns(table.options, rows.schema.names))


def _columns_of(rows: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    schema = pa.schema([rows.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(columns) for batch in rows))


def distinct_keys(rows: pa.RecordBatchReader, table: Table) -> Iterator[pa.Table]:
    """Keys as tables, each once a chunk: as a delete goes by them, not by Hudi's own columns."""
    keys = _columns_of(rows, own_identity_columns(table.options, rows.schema.names))
    own = pa.schema([table.schema.field(name) for name in keys.schema.names])
    for chunk in chunks((align(batch, own) for batch in keys), own):  # Arrow groups not all types
        yield chunk.group_by(own.names).aggregate([])
