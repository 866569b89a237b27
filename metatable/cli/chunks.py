"""Streams of rows as tables of bounded size, for what the library does with a table at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from metatable.data.columns.align import align
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


def distinct_keys(keys: pa.RecordBatchReader, table: Table) -> Iterator[pa.Table]:
    """Keys as tables, each once a chunk: as a delete goes by them, not by Hudi's own columns."""
    own = pa.schema([table.schema.field(name) for name in keys.schema.names])
    for chunk in chunks((align(batch, own) for batch in keys), own):  # Arrow groups not all types
        yield chunk.group_by(own.names).aggregate([])
